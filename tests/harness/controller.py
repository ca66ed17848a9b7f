"""A controller and a log under it: the log keeps the appended batches, the test commits them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from kraft._core.bytes.batch_records import iterate
from kraft._core.decide.placement import JavaRandom, StripedPlacer
from kraft.controller.brokers.sessions import Heartbeat
from kraft.controller.runtime import requests
from kraft.controller.runtime.operations import (
    Answer,
    ControllerOutput,
    DecisionContext,
    Operation,
    OperationResult,
)
from kraft.controller.runtime.quorum_controller import QuorumController
from kraft.controller.runtime.settings import ControllerSettings
from kraft.controller.topics.topic_creation import NewTopic
from kraft.image.replay import MetadataState
from kraft.records import Record, Uuid, decode_value
from tests.harness.decisions import registration

LEADER_CHANGE_END = 1
_MADE = count(1)


def make_controller(**fields: Any) -> QuorumController:
    """Return a controller of an empty log; its ids count up and differ from other controllers'
    ids.
    """
    numbers = count(1_000_000 * next(_MADE))
    settings = ControllerSettings(**{"max_idle_interval_ms": None} | fields)
    return QuorumController(
        MetadataState(journaling=True),
        settings,
        placer=StripedPlacer(JavaRandom(7)),
        random_uuid=lambda: Uuid(next(numbers).to_bytes(16, "big")),
    )


class AppendedLog:
    """The log under ``controller``: its batches and the answers to requests, at time `now_ms`."""

    def __init__(self, controller: QuorumController, end_offset: int) -> None:
        self.controller = controller
        self.now_ms = 1_000.0
        self.end_offset = end_offset
        self.batches: list[tuple[int, bytes]] = []
        self.answers: dict[int, Answer] = {}
        self.resigned: list[int] = []
        self._tokens = count(1)

    def take(self, ready: ControllerOutput) -> ControllerOutput:
        """Do the work that a call returned."""
        if ready.to_append is not None:
            assert ready.base_offset == self.end_offset
            self.batches.append((self.end_offset, bytes(ready.to_append)))
            self.end_offset = self.controller.cluster.next_offset
        for answer in ready.answers:
            assert answer.token not in self.answers, "a request was answered twice"
            self.answers[answer.token] = answer
        if ready.resign_epoch is not None:
            self.resigned.append(ready.resign_epoch)
        return ready

    def run_once(self, *, may_append: bool = True) -> ControllerOutput:
        return self.take(self.controller.run(self.now_ms, self.end_offset, may_append=may_append))

    def commit(self, end_offset: int | None = None) -> None:
        end_offset = self.end_offset if end_offset is None else end_offset
        self.take(self.controller.commit(end_offset, self.now_ms))


class ControllerLog(AppendedLog):
    """Drives one controller; offset 0 is the raft layer's LeaderChange."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(make_controller(**fields), LEADER_CHANGE_END)

    def lead(self, epoch: int = 1) -> None:
        """Make the node the leader, and commit its first records."""
        self.take(self.controller.claim(epoch, self.now_ms, self.end_offset))
        self.commit()

    def ask(self, name: str, decide: Callable[[DecisionContext], OperationResult]) -> int:
        return self.submit(Operation(name, decide))

    def submit(self, operation: Operation, *, deadline_ms: float = float("inf")) -> int:
        operation.token = token = next(self._tokens)
        operation.deadline_ms = deadline_ms
        self.take(self.controller.submit(operation, self.now_ms))
        return token

    def heartbeat(self, broker: int, **fields: Any) -> int:
        """Send the heartbeat of a registered broker that has applied the whole log."""
        registered = self.controller.cluster.state.brokers[broker]
        given = {"metadata_offset": self.end_offset} | fields
        heartbeat = Heartbeat(broker, registered.epoch, **given)
        token = next(self._tokens)

        operation = requests.broker_heartbeat(heartbeat)
        operation.token = token
        self.take(
            self.controller.submit_heartbeat(operation, broker, registered.epoch, self.now_ms)
        )
        return token

    def register(self, broker: int) -> int:
        return self.submit(requests.register_broker(registration(broker)))

    def create(self, name: str, partitions: int, factor: int = 1, **fields: Any) -> int:
        """Create a topic, in one batch or in chunks."""

        topic_id = self.controller.context.random_uuid()
        topics = [NewTopic(name, topic_id, partitions, factor)]
        return self.submit(requests.create_topics(topics), **fields)

    def run(self) -> None:
        """Run until there is nothing to do at this time."""
        ready = self.run_once()
        while ready.wake_at_ms <= self.now_ms:
            ready = self.run_once()

    def settle(self) -> None:
        self.run()
        self.commit()

    def brokers(self, *ids: int) -> None:
        """Register brokers and unfence them."""
        for broker in ids:
            self.register(broker)
        self.settle()
        for broker in ids:
            self.heartbeat(broker)
        self.settle()

    def written(self, since: int = 0) -> list[Record]:
        """Return the records from offset ``since`` on."""
        return [
            decode_value(record.value)
            for base_offset, batches in self.batches
            if base_offset >= since
            for batch in iterate(batches)
            for record in batch
            if record.value is not None
        ]

    def names(self, since: int = 0) -> list[str]:
        return [type(record).__name__ for record in self.written(since)]

    def response_of_new_topic(self) -> int:
        """Create a topic and return its number of partitions, to show that the controller still
        works.
        """
        token = self.create("afterwards", 1)
        self.settle()
        return int(self.response(token)["afterwards"].num_partitions)

    def response(self, token: int) -> Any:
        answer = self.answers[token]
        assert answer.error is None, answer.error
        return answer.response


def leading(brokers: int, **fields: Any) -> ControllerLog:
    """Return the log of a leader with unfenced brokers, from 1 on."""
    log = ControllerLog(**fields)
    log.lead()
    log.brokers(*range(1, brokers + 1))
    return log


def replayed(log: ControllerLog, *, until: int | None = None) -> MetadataState:
    """Return a standby's state: a replay of the log up to an offset."""
    standby = MetadataState(journaling=True)
    standby.next_offset = LEADER_CHANGE_END
    for base_offset, batches in log.batches:
        if until is None or base_offset < until:
            standby.apply(batches)
    return standby
