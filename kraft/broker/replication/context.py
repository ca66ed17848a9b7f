"""Replication context: what every partition of a broker shares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kraft.broker.replication.broker_liveness import BrokerLiveness
from kraft.broker.replication.messages import NO_EPOCH, FetchedPartition, PartitionId
from kraft.broker.replication.ports import TopicSettings
from kraft.broker.replication.quotas import ReplicationQuotas
from kraft.broker.replication.replica_counts import DataTraffic

if TYPE_CHECKING:
    from kraft.broker.replication.partition import HostedPartition


@dataclass(slots=True)
class ReplicationContext:
    """The broker, its view of the others, and its settings; ``broker_epoch`` is -1 before the
    registration.
    """

    broker_id: int
    brokers: BrokerLiveness
    topics: TopicSettings
    broker_epoch: int = NO_EPOCH
    #: replica.lag.time.max.ms
    max_lag_ms: float = 30_000.0
    traffic: DataTraffic = field(default_factory=DataTraffic)
    quotas: ReplicationQuotas = field(default_factory=ReplicationQuotas)

    def must_wait(self, partition: HostedPartition, replica_id: int, now_ms: float) -> bool:
        """Return whether the quota of leaders holds a follower back: one that is not in sync."""
        leading = partition.leading
        return (
            leading is not None
            and replica_id not in leading.isr
            and self.quotas.leader.holds_back(partition.topic, partition.id, now_ms)
        )

    def note_sent(
        self,
        answers: Iterable[FetchedPartition],
        partitions: Mapping[PartitionId, HostedPartition],
        now_ms: float,
    ) -> None:
        """Count the records that a follower gets of throttled partitions."""
        quota = self.quotas.leader
        if not quota.has_throttled:
            return
        for answer in answers:
            partition = partitions.get(answer.id) if answer.size else None
            if partition is not None and quota.is_throttled(partition.topic, answer.id):
                quota.record(answer.size, now_ms)
