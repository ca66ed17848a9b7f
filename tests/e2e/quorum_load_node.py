"""A node of the quorum that makes its own load while it leads, and notes what it was told.

``python -m tests.e2e.quorum_load_node FILE NOTES INCARNATION`` runs the same pieces as ``kraft
server start FILE``, and ends with its standard input. Every note is one line at the end of NOTES,
written with one system call before anything else happens, so that a kill leaves whole lines; one
that was torn all the same has no semicolon at its end, and is none:

``L EPOCH;``                        this node leads, and its epoch has begun for good
``H OFFSET;``                       everything below is committed, as far as this node knows
``A NUMBER COUNT OFFSET EPOCH;``    so many records from this number on were acknowledged; the last
                                    lies at this offset

A record's number says everything of it: `record_value`. Numbers are never used twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sys
import time

from kraft._core.batch import BatchBuilder
from kraft.errors import NotControllerError, ThrottlingQuotaExceededError
from kraft.raft.ready import Role, RoleChange
from kraft.server.config.loading import ServerConfig
from kraft.server.process import QuorumNode, run

#: Numbers of one life of a node: no life makes as many.
NUMBERS_A_LIFE = 1 << 32
#: Appends on their way at once.
IN_FLIGHT = 32
_PAUSE_S = 0.002


def record_value(number: int) -> bytes:
    """The record of this number: short ones, and now and then one of several kilobytes."""
    size = 8 + (number * 2654435761 >> 7) % (6000 if number % 61 == 0 else 200)
    return (number.to_bytes(8, "big") * (size // 8 + 1))[:size]


class LoadNode(QuorumNode):
    """Appends while it leads."""

    def __init__(self, config: ServerConfig, notes_path: str, incarnation: int) -> None:
        super().__init__(
            config,
            on_committed=self._committed,
            on_role=self._change_role,
            # What is written is no metadata.
            has_controller=False,
        )
        self._notes = os.open(notes_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        # What a kill cut off in the middle of a line ends here.
        os.write(self._notes, b"\n")
        self._next_number = incarnation * NUMBERS_A_LIFE
        self._draw = random.Random(incarnation)
        self._load: asyncio.Task[None] | None = None
        self._in_flight = 0

    def note(self, *words: object) -> None:
        line = f"{' '.join(map(str, words))};\n".encode()
        written = os.write(self._notes, line)
        assert written == len(line)

    def _committed(self, high_watermark: int) -> None:
        self.note("H", high_watermark)

    def _change_role(self, change: RoleChange) -> None:
        if change.is_active and self._load is None:
            self.note("L", change.epoch)
            self._load = asyncio.get_running_loop().create_task(self._lead(change.epoch))
        elif change.role is not Role.LEADER and self._load is not None:
            self._load.cancel()
            self._load = None

    async def _lead(self, epoch: int) -> None:
        while True:
            while self._in_flight < IN_FLIGHT and self._draw.random() < 0.6:
                self._append(epoch)
            await asyncio.sleep(_PAUSE_S)

    def _append(self, epoch: int) -> None:
        """Some records: as values, or as a finished batch, as a controller makes them."""
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
