"""``ProcessObserver``: fetches the metadata log once for all brokers of a process.

A process whose brokers start again has one snapshot for all of them, and an observer fetches the
log behind it to the leader's high watermark. Its copy of the log then is that of each broker, which
fetches by itself from there on. The observer uses the id and the directory of a broker that is
down, and never registers. Created by ``worker``.
"""

from __future__ import annotations

import asyncio

from kraft.fleet.light_broker import LightBroker

_LOOK_S = 0.025


class ProcessObserver(LightBroker):
    """A light broker without a session: it only fetches."""

    def _schedule(self) -> None:
        """Send no registration and no heartbeat."""


async def high_watermark_reached(broker: LightBroker) -> None:
    """Wait until a broker has applied what its leader reported to be committed, or is down."""
    while broker.is_up and not (
        0 < broker.position.high_watermark <= broker.position.committed_offset
    ):
        await asyncio.sleep(_LOOK_S)
