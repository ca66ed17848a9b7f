"""A kraft node that is asked while it leads: metadata that Kafka's controllers take in as it comes.

``python -m tests.interop.quota_writer FILE NOTES`` runs the same pieces as ``kraft server start
FILE``. Some requests to the controller at a time are on their way. Each gives a quota to a user
``kraft-EPOCH-NUMBER``, of which no other can be made; the name is written into NOTES once the
quorum has acknowledged it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys

from kraft.controller import requests
from kraft.controller.quotas import QuotaAlteration
from kraft.errors import KraftError, NotControllerError
from kraft.image.quotas import QuotaEntity
from kraft.raft.ready import Role, RoleChange
from kraft.server.config.loading import ServerConfig
from kraft.server.process import QuorumNode, run

USER_PREFIX = "kraft-"
QUOTA = "producer_byte_rate"
_IN_FLIGHT = 10
_PAUSE_S = 0.005


class QuotaWriter(QuorumNode):
    """Asks its own controller while that is active."""

    def __init__(self, config: ServerConfig, notes_path: str) -> None:
        super().__init__(config, on_role=self._change_role)
        self._notes = os.open(notes_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._writing: asyncio.Task[None] | None = None
        self._in_flight = 0

    def _change_role(self, change: RoleChange) -> None:
        if change.is_active and self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write(change.epoch))
        elif change.role is not Role.LEADER and self._writing is not None:
            self._writing.cancel()
            self._writing = None

    async def _write(self, epoch: int) -> None:
        number = 0
        while True:
            if self._in_flight < _IN_FLIGHT:
                number += 1
                self._append(epoch, number)
            await asyncio.sleep(_PAUSE_S)

    def _append(self, epoch: int, number: int) -> None:
        assert self.controller is not None
        name = f"{USER_PREFIX}{epoch}-{number}"
        wanted = QuotaAlteration({"user": name}, [(QUOTA, float(number))])
        answer = self.controller.submit(requests.limit_clients([wanted]))
        self._in_flight += 1

        def answered(done: asyncio.Future[dict[QuotaEntity, KraftError | None]]) -> None:
            self._in_flight -= 1
            with contextlib.suppress(NotControllerError):
                (refusal,) = done.result().values()
                assert refusal is None, refusal
                os.write(self._notes, f"{name}\n".encode())

        answer.add_done_callback(answered)


def main() -> None:
    path, notes_path = sys.argv[1:]
    run(ServerConfig.load(path), make_node=lambda config: QuotaWriter(config, notes_path))


if __name__ == "__main__":
    main()
