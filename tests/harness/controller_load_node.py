"""A node that sends requests to its own controller while it leads, and notes the responses.

``python -m tests.harness.controller_load_node FILE NOTES INCARNATION`` is `load_node` with a
controller: it creates and deletes topics, some so large that they take a metadata transaction, and
registers brokers and sends their heartbeats. Notes, beside those of `load_node`:

``C NUMBER PARTITIONS;``    topic ``t-NUMBER`` was created, and that was acknowledged
``E NUMBER;``               its deletion will be requested next
``D NUMBER;``               its deletion was acknowledged
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Coroutine
from typing import Any

from kraft.controller.brokers.broker_lifecycle import RegistrationRequest
from kraft.controller.brokers.sessions import Heartbeat
from kraft.controller.runtime import requests
from kraft.controller.runtime.operations import Operation
from kraft.controller.topics.topic_creation import NewTopic
from kraft.controller.topics.topic_deletion import TopicToDelete
from kraft.errors import KraftError, NotControllerError, RequestTimedOutError
from kraft.image import NodeEndpoint, VersionRange
from kraft.metadata.identifiers import random_uuid
from kraft.records import Uuid
from kraft.server.config.loading import ServerConfig
from kraft.server.process import QuorumNode, run
from tests.harness.leading import NotesFile, WorkOfLeader
from tests.harness.load_node import NUMBERS_A_LIFE

#: Concurrent operations, and the partitions of a topic that takes many batches.
IN_FLIGHT = 8
LARGE = 12_000
_PAUSE_S = 0.004
_BEAT_EVERY_S = 0.5
_BROKERS = (1001, 1002, 1003)
_FEATURES = {
    "metadata.version": VersionRange(7, 30),
    "eligible.leader.replicas.version": VersionRange(0, 1),
    "group.version": VersionRange(0, 1),
    "transaction.version": VersionRange(0, 2),
    "share.version": VersionRange(0, 1),
    "streams.version": VersionRange(0, 1),
    "kraft.version": VersionRange(0, 1),
}


def topic_name(number: int) -> str:
    return f"t-{number}"


def broker(id: int) -> RegistrationRequest:
    """Return a registration, always of the same incarnation: a new controller updates it."""
    return RegistrationRequest(
        id,
        Uuid(b"incarnation " + id.to_bytes(4, "big")),
        [NodeEndpoint("PLAINTEXT", "127.0.0.1", 9092, 0)],
        _FEATURES,
        rack=f"rack-{id % 3}",
        log_dirs=[Uuid(b"a directory " + id.to_bytes(4, "big"))],
    )


class ControllerLoadNode(QuorumNode):
    """A node that sends requests to its controller while it leads."""

    def __init__(self, config: ServerConfig, notes_path: str, incarnation: int) -> None:
        work = WorkOfLeader(self._lead)
        super().__init__(config, on_committed=self._note_committed, on_role=work.change_role)
        self._notes = NotesFile(notes_path)
        self._notes.write("")
        self._next_number = incarnation * NUMBERS_A_LIFE
        self._draw = random.Random(incarnation)
        self._asked: set[asyncio.Task[None]] = set()
        self._large: list[int] = []
        self._mine: list[int] = []

    def note(self, *words: object) -> None:
        self._notes.write(f"{' '.join(map(str, words))};")

    def _note_committed(self, high_watermark: int) -> None:
        self.note("H", high_watermark)

    def _lead(self, epoch: int) -> Coroutine[None, None, None]:
        self.note("L", epoch)
        return self._make_load()

    async def _make_load(self) -> None:
        assert self.controller is not None
        while not self.controller.controller.is_active:
            await asyncio.sleep(_PAUSE_S)
        epochs = {
            id: await self.controller.submit(requests.register_broker(broker(id)))
            for id in _BROKERS
        }
        beating = asyncio.get_running_loop().create_task(self._beat(epochs))
        try:
            await asyncio.sleep(0.1)
            while True:
                while len(self._asked) < IN_FLIGHT and self._draw.random() < 0.7:
                    task = asyncio.get_running_loop().create_task(self._request())
                    self._asked.add(task)
                    task.add_done_callback(self._asked.discard)
                await asyncio.sleep(_PAUSE_S)
        finally:
            beating.cancel()

    async def _beat(self, epochs: dict[int, int]) -> None:
        assert self.controller is not None
        while True:
            for id, epoch in epochs.items():
                beat = Heartbeat(id, epoch, self.controller.controller.committed_offset)
                answer = self.controller.submit_heartbeat(
                    requests.broker_heartbeat(beat), id, epoch
                )
                answer.add_done_callback(lambda done: done.cancelled() or done.exception())
            await asyncio.sleep(_BEAT_EVERY_S if self._mine else 0.02)

    async def _request(self) -> None:
        if self._large or (self._mine and self._draw.random() < 0.3):
            await self._delete(self._large.pop() if self._large else self._take_one())
        else:
            self._next_number += 1
            is_large = self._draw.random() < 0.02
            count = LARGE + self._draw.randrange(LARGE) if is_large else self._draw.randint(1, 12)
            await self._create(self._next_number, count)

    def _take_one(self) -> int:
        return self._mine.pop(self._draw.randrange(len(self._mine)))

    async def _create(self, number: int, partitions: int) -> None:
        name = topic_name(number)
        topic = NewTopic(name, random_uuid(), partitions, 3)
        response = await self._answer_of(requests.create_topics([topic]))
        if response is None:
            return
        created = response[name]
        assert not isinstance(created, KraftError), created
        assert created.num_partitions == partitions
        self.note("C", number, partitions)
        (self._large if partitions >= LARGE else self._mine).append(number)

    async def _delete(self, number: int) -> None:
        self.note("E", number)
        response = await self._answer_of(
            requests.delete_topics([TopicToDelete(topic_name(number))])
        )
        if response is not None:
            (deleted,) = response
            assert deleted.error is None, deleted
            self.note("D", number)

    async def _answer_of(self, operation: Operation) -> Any:
        """Return the response; None where its outcome is unknown."""
        assert self.controller is not None
        try:
            return await self.controller.submit(operation)
        except (NotControllerError, RequestTimedOutError):
            return None


def main() -> None:
    path, notes_path, incarnation = sys.argv[1:]
    run(
        ServerConfig.load(path),
        until_stdin_closes=True,
        make_node=lambda config: ControllerLoadNode(config, notes_path, int(incarnation)),
    )


if __name__ == "__main__":
    main()
