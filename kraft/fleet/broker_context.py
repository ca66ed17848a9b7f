"""``BrokerContext``: what the light brokers of one process share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from kraft.fleet.repeated_response import RepeatedResponse
from kraft.fleet.shared_metadata import SharedMetadata
from kraft.network.authentication import ListenerSecurity
from kraft.network.throttled_log import ThrottledLog
from kraft.raft.voters import Endpoint


@dataclass(slots=True)
class BrokerContext:
    """What the brokers of one process share.

    ``report`` is called with the name of an event, the broker's id and a value or None; ``broken``
    with the broker's id and an error after which it does not fetch any more.
    """

    loop: asyncio.AbstractEventLoop
    cluster_id: str
    bootstrap: tuple[Endpoint, ...]
    security: ListenerSecurity
    warnings: ThrottledLog
    shared: SharedMetadata
    report: Callable[[str, int, float | None], None]
    broken: Callable[[int, Exception], None]
    heartbeat_interval_ms: float = 2000.0
    last_response: RepeatedResponse = field(default_factory=RepeatedResponse)
