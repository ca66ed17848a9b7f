"""A kraft node that writes while it leads: metadata that Kafka's controllers take in as it comes.

``python -m tests.interop.quota_writer FILE NOTES`` runs the same pieces as ``kraft server start
FILE``. Record by record it gives a quota to a user ``kraft-EPOCH-OFFSET``, of which no other can be
made; the name is written into NOTES once the quorum has acknowledged the record.
"""

from __future__ import annotations

import asyncio
import os
import sys

from kraft.errors import NotControllerError
from kraft.raft.ready import Role, RoleChange
from kraft.records import ClientQuota
from kraft.records.classes import EntityData
from kraft.records.values import encode_value
from kraft.server.config import ServerConfig
from kraft.server.process import QuorumNode, run

USER_PREFIX = "kraft-"
QUOTA = "producer_byte_rate"
_PAUSE_S = 0.002


class QuotaWriter(QuorumNode):
    """Appends while it is the active controller."""

    def __init__(self, config: ServerConfig, notes_path: str) -> None:
        super().__init__(config, on_role=self._change_role)
        self._notes = os.open(notes_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._writing: asyncio.Task[None] | None = None

    def _change_role(self, change: RoleChange) -> None:
        if change.is_active and self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write(change.epoch))
        elif change.role is not Role.LEADER and self._writing is not None:
            self._writing.cancel()
            self._writing = None

    async def _write(self, epoch: int) -> None:
        assert self.driver is not None
        while True:
            offset = self.driver.node.log.end_offset
            name = f"{USER_PREFIX}{epoch}-{offset}"
            record = ClientQuota([EntityData("user", name)], QUOTA, float(offset), False)
            try:
                await self.driver.append((encode_value(record),), epoch=epoch)
            except NotControllerError:
                return
            os.write(self._notes, f"{name}\n".encode())
            await asyncio.sleep(_PAUSE_S)


def main() -> None:
    path, notes_path = sys.argv[1:]
    run(ServerConfig.load(path), make_node=lambda config: QuotaWriter(config, notes_path))


if __name__ == "__main__":
    main()
