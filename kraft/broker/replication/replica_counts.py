"""What a broker has of replicas and traffic, as plain numbers that change with each event.

`ReplicaCounts` is kept up to date where a replica changes its role, its ISR or goes offline, so
that a reader needs no pass over the partitions: it sees each kind of led partition once. Kept by
`replica_manager` and `replica_fetching`, read for metrics. Meanings: Kafka's ``ReplicaManager`` and
``Partition`` (the metrics of both), ``BrokerTopicMetrics``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kraft.broker.replication.messages import PartitionId
from kraft.errors import (
    CORRUPT_MESSAGE,
    FENCED_LEADER_EPOCH,
    KAFKA_STORAGE_ERROR,
    MESSAGE_TOO_LARGE,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
    RECORD_LIST_TOO_LARGE,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)

if TYPE_CHECKING:
    from kraft.broker.replication.partition import HostedPartition

#: Errors that Kafka does not count as failed requests: the client refreshes its metadata, or the
#: request is at fault.
_EXPECTED_OF_PRODUCE = frozenset(
    (
        UNKNOWN_TOPIC_OR_PARTITION,
        UNKNOWN_TOPIC_ID,
        NOT_LEADER_OR_FOLLOWER,
        MESSAGE_TOO_LARGE,
        RECORD_LIST_TOO_LARGE,
        CORRUPT_MESSAGE,
        KAFKA_STORAGE_ERROR,
    )
)
_EXPECTED_OF_FETCH = frozenset(
    (
        NOT_LEADER_OR_FOLLOWER,
        UNKNOWN_LEADER_EPOCH,
        FENCED_LEADER_EPOCH,
        KAFKA_STORAGE_ERROR,
        OFFSET_OUT_OF_RANGE,
    )
)


@dataclass(slots=True)
class DataTraffic:
    """Totals since the start; requests count once for each of their partitions, as in Kafka."""

    messages_in: int = 0
    bytes_in: int = 0
    #: To consumers, and to followers.
    bytes_out: int = 0
    replication_bytes_out: int = 0
    #: From leaders.
    replication_bytes_in: int = 0
    produces: int = 0
    failed_produces: int = 0
    fetches: int = 0
    failed_fetches: int = 0
    isr_shrinks: int = 0
    isr_expands: int = 0
    failed_isr_updates: int = 0

    def appended(self, records: int, size: int) -> None:
        self.messages_in += records
        self.bytes_in += size

    def produce_failed(self, error: int) -> None:
        self.failed_produces += error not in _EXPECTED_OF_PRODUCE

    def produce_rejected(self, error: int) -> None:
        """Note a partition whose records are not valid: it is not appended to."""
        self.produces += 1
        self.produce_failed(error)

    def fetch_failed(self, error: int) -> None:
        self.failed_fetches += error not in _EXPECTED_OF_FETCH

    def sent(self, size: int, *, to_follower: bool) -> None:
        if to_follower:
            self.replication_bytes_out += size
        else:
            self.bytes_out += size

    def isr_changed(self, before: int, after: int) -> None:
        """Note a committed change of the number of an ISR's members."""
        self.isr_shrinks += after < before
        self.isr_expands += after > before


class _Led(NamedTuple):
    """The kind of a led partition: what its state depends on."""

    topic: str
    isr: int
    replicas: int
    #: Replicas without those that a reassignment adds.
    wanted: int
    is_reassigning: bool


class ReplicaStates(NamedTuple):
    """The numbers of led partitions in each state, and of all replicas."""

    partitions: int
    leaders: int
    offline: int
    under_replicated: int
    under_min_isr: int
    at_min_isr: int
    reassigning: int


class ReplicaCounts:
    """The replicas of one broker by their kinds; call `note` after every change of one."""

    def __init__(self) -> None:
        self._led_by_id: dict[PartitionId, _Led] = {}
        self._led: Counter[_Led] = Counter()
        self._offline: set[PartitionId] = set()

    def note(self, partition: HostedPartition) -> None:
        """Count a replica as it is now."""
        id = partition.id
        self.forget(id)
        leading, assignment = partition.leading, partition.assignment
        if leading is not None and assignment is not None:
            replicas, adding = len(assignment.replicas), len(assignment.adding)
            is_reassigning = bool(adding or assignment.removing)
            kind = _Led(
                partition.topic, len(leading.isr), replicas, replicas - adding, is_reassigning
            )
            self._led_by_id[id] = kind
            self._led[kind] += 1
        if partition.log is None:
            self._offline.add(id)

    def forget(self, id: PartitionId) -> None:
        """Do not count a replica any more."""
        kind = self._led_by_id.pop(id, None)
        if kind is not None:
            self._led[kind] -= 1
            if not self._led[kind]:
                del self._led[kind]
        self._offline.discard(id)

    def states(self, partitions: int, min_isr: Callable[[str], int]) -> ReplicaStates:
        """Return the numbers; ``min_isr`` returns the min.insync.replicas of a topic.

        Costs the kinds of led partitions: the topics, unless ISRs differ within one.
        """
        under_replicated = under_min = at_min = reassigning = 0
        for kind, count in self._led.items():
            least = min(min_isr(kind.topic), kind.replicas)
            if kind.isr < kind.wanted:
                under_replicated += count
            if kind.isr < least:
                under_min += count
            elif kind.isr == least:
                at_min += count
            if kind.is_reassigning:
                reassigning += count
        return ReplicaStates(
            partitions,
            len(self._led_by_id),
            len(self._offline),
            under_replicated,
            under_min,
            at_min,
            reassigning,
        )
