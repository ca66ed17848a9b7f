"""Settings of the replication, with Kafka's names and defaults (``ReplicationConfigs``)."""

from __future__ import annotations

from dataclasses import dataclass, field

from kraft.broker.replication.fetch_sessions import DEFAULT_MAX_SESSIONS
from kraft.broker.replication.leader_fetcher import FetcherSettings


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    """Settings of the replication, with Kafka's defaults (ms)."""

    #: replica.lag.time.max.ms
    max_lag_ms: float = 30_000.0
    fetcher: FetcherSettings = field(default_factory=FetcherSettings)
    #: max.incremental.fetch.session.cache.slots
    max_fetch_sessions: int = DEFAULT_MAX_SESSIONS
    #: Whether consumers are sent to a replica of their rack (RackAwareReplicaSelector).
    is_rack_aware: bool = False


DEFAULT_SETTINGS = ReplicationSettings()
