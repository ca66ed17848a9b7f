"""A kraft node that writes client quotas while it leads, for Kafka's controllers to replicate.

``python -m tests.interop.quota_writer FILE NOTES`` runs the same code as ``kraft server start
FILE``. It sends several requests to its controller at a time. Each sets a quota of a new user
``kraft-EPOCH-NUMBER``; the name is appended to NOTES once the quorum has acknowledged it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

from kraft.controller.configs.client_quotas import QuotaAlteration
from kraft.controller.runtime import requests
from kraft.errors import KraftError, NotControllerError
from kraft.image.quotas import QuotaEntity
from kraft.server.config.loading import ServerConfig
from kraft.server.process import QuorumNode, run
from tests.harness.leading import NotesFile, WorkOfLeader

USER_PREFIX = "kraft-"
QUOTA = "producer_byte_rate"
_IN_FLIGHT = 10
_PAUSE_S = 0.005


class QuotaWriter(QuorumNode):
    """A node that sends requests to its controller while it is active."""

    def __init__(self, config: ServerConfig, notes_path: str) -> None:
        super().__init__(config, on_role=WorkOfLeader(self._write).change_role)
        self._notes = NotesFile(notes_path)
        self._in_flight = 0

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
        answer = self.controller.submit(requests.alter_client_quotas([wanted]))
        self._in_flight += 1

        def answered(done: asyncio.Future[dict[QuotaEntity, KraftError | None]]) -> None:
            self._in_flight -= 1
            with contextlib.suppress(NotControllerError):
                (refusal,) = done.result().values()
                assert refusal is None, refusal
                self._notes.write(name)

        answer.add_done_callback(answered)


def main() -> None:
    path, notes_path = sys.argv[1:]
    run(ServerConfig.load(path), make_node=lambda config: QuotaWriter(config, notes_path))


if __name__ == "__main__":
    main()
