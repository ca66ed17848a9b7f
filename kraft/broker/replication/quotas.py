"""Replication quotas: bounds on the bytes that replication moves, and the replicas they are for.

Kafka has three a broker: what it sends to followers that are not in sync, what its own such
followers fetch, and what it copies between log directories. The first two are for the replicas that
leader.replication.throttled.replicas and follower.replication.throttled.replicas of a topic name.

Pure. Sources: Kafka's ``ReplicationQuotaManager``, ``SimpleRate``,
``TopicConfigHandler.parseThrottledPartitions`` (4.3.1), KIP-73.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kraft.broker.replication.messages import PartitionId
from kraft.controller.quotas.rates import WindowedRate

#: ``throttled`` of a topic all of whose replicas are.
ALL_PARTITIONS: frozenset[int] = frozenset((-1,))


class ReplicationQuota:
    """One quota; ``limit`` is in bytes per second, None for no limit.

    The rate is that of the last ``window_count`` windows of ``window_s`` seconds.
    """

    def __init__(self, window_count: int = 11, window_s: int = 1) -> None:
        self.limit: float | None = None
        self._rate = WindowedRate(window_count, 1000.0 * window_s, least_windows=1)
        self._throttled: dict[str, frozenset[int]] = {}

    def throttle(self, topic: str, partitions: frozenset[int]) -> None:
        """Set the partitions of a topic whose replicas here are throttled."""
        if partitions:
            self._throttled[topic] = partitions
        else:
            self._throttled.pop(topic, None)

    def clear_topics(self) -> None:
        """Throttle no topic."""
        self._throttled.clear()

    @property
    def has_throttled(self) -> bool:
        """Whether any replica is throttled."""
        return bool(self._throttled)

    def is_throttled(self, topic: str, id: PartitionId) -> bool:
        """Return whether a replica is among the throttled ones."""
        partitions = self._throttled.get(topic)
        return partitions is not None and (
            partitions is ALL_PARTITIONS or id.partition in partitions
        )

    def holds_back(self, topic: str, id: PartitionId, now_ms: float) -> bool:
        """Return whether a replica that is not in sync has to wait."""
        return self.is_throttled(topic, id) and self.is_exceeded(now_ms)

    def is_exceeded(self, now_ms: float) -> bool:
        """Return whether the rate is above the limit."""
        return self.limit is not None and self._rate.measure(now_ms).rate > self.limit

    def record(self, size: int, now_ms: float) -> None:
        """Count bytes that were moved."""
        self._rate.record(size, now_ms)


@dataclass(frozen=True, slots=True)
class ReplicationQuotas:
    """The quotas of a broker."""

    leader: ReplicationQuota = field(default_factory=ReplicationQuota)
    follower: ReplicationQuota = field(default_factory=ReplicationQuota)
    #: Of copies between log directories.
    moves: ReplicationQuota = field(default_factory=ReplicationQuota)


def throttled_partitions(text: str, broker_id: int) -> frozenset[int]:
    """Return the partitions whose replicas on a broker a topic's config names.

    The config is ``*``, or a list of ``PARTITION:BROKER``. The controller has checked it; an entry
    of another form is ignored.
    """
    if text.strip() == "*":
        return ALL_PARTITIONS
    found = set()
    for entry in text.split(","):
        partition, _, broker = entry.strip().partition(":")
        if partition.isdecimal() and broker == str(broker_id):
            found.add(int(partition))
    return frozenset(found)
