"""A node that appends records while it leads, and notes the acknowledgements.

``python -m tests.harness.load_node FILE NOTES INCARNATION`` runs the same code as ``kraft server
start FILE``, and ends when its standard input closes. Every note is one line appended to NOTES with
one system call at the time of the event, so that a kill leaves whole lines. A torn line has no
semicolon at its end and does not count:

``L EPOCH;``                        this node leads; a record of its epoch is committed
``H OFFSET;``                       the node's high watermark
``A NUMBER COUNT OFFSET EPOCH;``    COUNT records from this number on were acknowledged; the last
                                    is at this offset

A record's number determines its value: `record_value`. No number is used twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import time
from collections.abc import Coroutine

from kraft._core.bytes.batch import BatchBuilder
from kraft.errors import NotControllerError, ThrottlingQuotaExceededError
from kraft.server.config.loading import ServerConfig
from kraft.server.process import QuorumNode, run
from tests.harness.leading import NotesFile, WorkOfLeader

#: Numbers of one process of a node: no process uses as many.
NUMBERS_A_LIFE = 1 << 32
#: Concurrent appends.
IN_FLIGHT = 32
_PAUSE_S = 0.002


def record_value(number: int) -> bytes:
    """Return the record of this number: most are short, some have several kilobytes."""
    size = 8 + (number * 2654435761 >> 7) % (6000 if number % 61 == 0 else 200)
    return (number.to_bytes(8, "big") * (size // 8 + 1))[:size]


class LoadNode(QuorumNode):
    """A node that appends while it leads."""

    def __init__(self, config: ServerConfig, notes_path: str, incarnation: int) -> None:
        super().__init__(
            config,
            on_committed=self._note_committed,
            on_role=WorkOfLeader(self._lead).change_role,
            # The records are not metadata.
            has_controller=False,
        )
        self._notes = NotesFile(notes_path)
        # End a line that a kill may have torn.
        self._notes.write("")
        self._next_number = incarnation * NUMBERS_A_LIFE
        self._draw = random.Random(incarnation)
        self._in_flight = 0

    def note(self, *words: object) -> None:
        self._notes.write(f"{' '.join(map(str, words))};")

    def _note_committed(self, high_watermark: int) -> None:
        self.note("H", high_watermark)

    def _lead(self, epoch: int) -> Coroutine[None, None, None]:
        self.note("L", epoch)
        return self._make_load(epoch)

    async def _make_load(self, epoch: int) -> None:
        while True:
            while self._in_flight < IN_FLIGHT and self._draw.random() < 0.6:
                self._append(epoch)
            await asyncio.sleep(_PAUSE_S)

    def _append(self, epoch: int) -> None:
        """Append records, as values or as a finished batch like a controller's."""
        assert self.driver is not None
        number, count = self._next_number, self._draw.choice((1, 1, 1, 2, 5))
        self._next_number += count
        values = tuple(map(record_value, range(number, number + count)))
        if self._draw.random() < 0.5:
            answer = self.driver.append(values, epoch=epoch)
        else:
            builder = BatchBuilder(0, 0, time.time_ns() // 1_000_000)
            for value in values:
                builder.append(value)
            answer = self.driver.append(batches=builder.finish(), epoch=epoch)
        self._in_flight += 1

        def answered(done: asyncio.Future[int]) -> None:
            self._in_flight -= 1
            with contextlib.suppress(NotControllerError, ThrottlingQuotaExceededError):
                self.note("A", number, count, done.result(), epoch)

        answer.add_done_callback(answered)


def main() -> None:
    path, notes_path, incarnation = sys.argv[1:]
    run(
        ServerConfig.load(path),
        until_stdin_closes=True,
        make_node=lambda config: LoadNode(config, notes_path, int(incarnation)),
    )


if __name__ == "__main__":
    main()
