"""Requests and responses at the boundary of the replication, without their encoding.

The listener and the connections to other brokers translate between these and the messages of
``kraft.protocol``. Partitions are named by topic id; the caller resolves names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from typing_extensions import Buffer

from kraft._core.log.epoch_cache import EpochEndOffset

if TYPE_CHECKING:
    from kraft.broker.replication.ports import DataSlice

#: ``replica_id`` of a consumer.
CONSUMER = -1
#: A leader epoch, or a broker epoch, that the sender does not give.
NO_EPOCH = -1

#: Timestamps of ListOffsets with a meaning of their own.
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3

INITIAL_SESSION_EPOCH = 0
FINAL_SESSION_EPOCH = -1
NO_SESSION = 0


class PartitionId(NamedTuple):
    """A partition: the 16 bytes of its topic's id, and its index."""

    topic_id: bytes
    partition: int


class OffsetAtTime(NamedTuple):
    """A record's timestamp, offset and leader epoch (-1 if unknown)."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


# -- Produce


class ProducedPartition(NamedTuple):
    """The outcome of one partition of a Produce request."""

    error: int
    base_offset: int = -1
    log_start_offset: int = -1
    message: str | None = None
    #: The time of the records under LogAppendTime, else -1.
    append_time_ms: int = -1


# -- Fetch


class FetchPartition(NamedTuple):
    """One partition of a Fetch request; epochs are -1 if the client does not give them."""

    id: PartitionId
    fetch_offset: int
    max_bytes: int
    leader_epoch: int = NO_EPOCH
    #: The epoch of the last record before ``fetch_offset`` (Fetch 12 and later).
    last_fetched_epoch: int = NO_EPOCH
    #: The follower's log start offset; -1 of a consumer.
    log_start_offset: int = -1


class BrokerFetchRequest(NamedTuple):
    """A Fetch request of a follower or a consumer; times in ms, sizes in bytes."""

    partitions: Sequence[FetchPartition]
    replica_id: int = CONSUMER
    replica_epoch: int = NO_EPOCH
    max_wait_ms: int = 0
    min_bytes: int = 1
    max_bytes: int = 2**31 - 1
    session_id: int = NO_SESSION
    session_epoch: int = FINAL_SESSION_EPOCH
    forgotten: Sequence[PartitionId] = ()
    #: The rack of a consumer; None before Fetch 11, which cannot name one.
    rack_id: str | None = None
    #: Fetch 13 and later name topics by id.
    uses_topic_ids: bool = True
    #: Returns the error of a partition that the sender may not read, 0 if it may; also of the
    #: partitions that only its session names. None: it may read all.
    error_of: Callable[[PartitionId], int] | None = None

    @property
    def is_from_follower(self) -> bool:
        return self.replica_id >= 0

    @property
    def needs_leader(self) -> bool:
        """Whether only the leader may answer (KIP-392)."""
        return self.is_from_follower or self.rack_id is None


class FetchedPartition(NamedTuple):
    """The answer for one partition of a Fetch request.

    There are no transactions: the last stable offset equals the high watermark. ``leader_id`` and
    ``leader_epoch`` name the present leader in answers of a wrong one (KIP-951).
    """

    id: PartitionId
    error: int
    high_watermark: int = -1
    log_start_offset: int = -1
    records: DataSlice | None = None
    diverging_epoch: EpochEndOffset | None = None
    preferred_read_replica: int = -1
    leader_id: int = -1
    leader_epoch: int = -1

    @property
    def size(self) -> int:
        return 0 if self.records is None else self.records.size


class BrokerFetchResponse(NamedTuple):
    error: int
    session_id: int
    partitions: Sequence[FetchedPartition]


class ReceivedPartition(NamedTuple):
    """A follower's view of a `FetchedPartition`: the records are bytes."""

    id: PartitionId
    error: int
    high_watermark: int = -1
    log_start_offset: int = -1
    records: Buffer = b""
    diverging_epoch: EpochEndOffset | None = None


class ReceivedFetch(NamedTuple):
    """A follower's view of a `BrokerFetchResponse`."""

    error: int
    session_id: int
    partitions: Sequence[ReceivedPartition]


# -- ListOffsets and OffsetForLeaderEpoch


class ListedOffset(NamedTuple):
    """The answer of ListOffsets for one partition; offset and timestamp are -1 if there is none."""

    error: int
    offset: int = -1
    timestamp_ms: int = -1
    leader_epoch: int = -1


class EpochEnd(NamedTuple):
    """The answer of OffsetForLeaderEpoch; epoch and end offset are -1 if unknown."""

    error: int
    epoch: int = -1
    end_offset: int = -1


# -- DeleteRecords


class DeletedRecords(NamedTuple):
    error: int
    low_watermark: int = -1


# -- AlterPartition


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """The ISR that a leader proposes; ``isr`` maps each member to its broker epoch (-1: unknown).

    Compared by identity: a response to an earlier proposal must not complete a later equal one.
    """

    id: PartitionId
    leader_epoch: int
    partition_epoch: int
    isr: Mapping[int, int]
    #: The members of the last committed ISR and those added: see `maximal_isr`.
    added: frozenset[int] = frozenset()
    removed: frozenset[int] = frozenset()

    __eq__ = object.__eq__
    __hash__ = object.__hash__


class CommittedIsr(NamedTuple):
    """The state of a partition after an accepted AlterPartition."""

    leader_id: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class IsrChangeResponse:
    """An AlterPartition response: a top-level error, or the outcome of each partition."""

    error: int
    partitions: Mapping[PartitionId, CommittedIsr | int] = field(default_factory=dict)
