"""Hosted partition: one replica on this broker, as leader or as follower.

Changes its role by the metadata, appends, reads and advances the high watermark. All offsets that
leave here obey the kind of reader: a follower reads to the log's end, a consumer to the high
watermark, which is also the last stable offset (there are no transactions).

Invariants:
- Leader epoch and partition epoch never fall (older metadata is ignored).
- The high watermark falls only with the log's end, in a truncation. Kafka's followers also take a
  lower one from a leader; a consumer that reads from a follower would see it fall.
- Metadata of the partition epoch on which a proposal is based leaves the proposal pending. Kafka
  drops it; then only the lag time makes it wait for a replica that the controller may have added.

Called by `replica_manager` and `replica_fetching`. Rules: Kafka's ``Partition`` (4.3), KIP-101,
KIP-207, KIP-320, KIP-497, KIP-966.
"""

from __future__ import annotations

from typing import NamedTuple

from typing_extensions import Buffer

from kraft._core.log.epoch_cache import EpochEndOffset
from kraft.broker.replication.context import ReplicationContext
from kraft.broker.replication.leadership import PartitionLeadership
from kraft.broker.replication.messages import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    NO_EPOCH,
    CommittedIsr,
    DeletedRecords,
    EpochEnd,
    FetchedPartition,
    FetchPartition,
    IsrProposal,
    ListedOffset,
    PartitionId,
)
from kraft.broker.replication.ports import AppendOutcome, ReplicatedLog
from kraft.errors import (
    FENCED_LEADER_EPOCH,
    INELIGIBLE_REPLICA,
    INVALID_REQUEST,
    INVALID_UPDATE_VERSION,
    KAFKA_STORAGE_ERROR,
    NEW_LEADER_ELECTED,
    NONE,
    NOT_ENOUGH_REPLICAS,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_NOT_AVAILABLE,
    OFFSET_OUT_OF_RANGE,
    OPERATION_NOT_ATTEMPTED,
    POLICY_VIOLATION,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    KraftError,
)

ALL_IN_SYNC = -1
#: DeleteRecords up to the high watermark.
TO_HIGH_WATERMARK = -1
NO_LEADER = -1

#: Errors of AlterPartition after which the leader waits for newer metadata.
_AWAIT_METADATA = (
    UNKNOWN_TOPIC_OR_PARTITION,
    UNKNOWN_TOPIC_ID,
    FENCED_LEADER_EPOCH,
    INVALID_UPDATE_VERSION,
    INVALID_REQUEST,
    NEW_LEADER_ELECTED,
)


class PartitionAssignment(NamedTuple):
    """The state of a partition in the metadata, as this broker needs it."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    #: The id of this replica's assigned directory.
    directory: bytes = bytes(16)


class RejectedOperationError(KraftError):
    """A partition rejects an operation; ``code`` is the error code of the response."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = self.kafka_code = code


class HostedPartition:
    """One replica; ``log`` is None while its directory is offline."""

    __slots__ = (
        "assignment",
        "cuts",
        "directory",
        "high_watermark",
        "id",
        "leader_epoch",
        "leader_id",
        "leading",
        "log",
        "partition_epoch",
        "topic",
    )

    def __init__(
        self,
        id: PartitionId,
        topic: str,
        log: ReplicatedLog | None,
        *,
        high_watermark: int = 0,
        directory: bytes = bytes(16),
    ) -> None:
        self.id = id
        self.topic = topic
        self.log = log
        self.directory = directory
        #: How many times the log was cut.
        self.cuts = 0
        self.high_watermark = 0
        if log is not None:
            self.high_watermark = max(log.start_offset, min(high_watermark, log.end_offset))
        self.leader_id = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = -1
        self.assignment: PartitionAssignment | None = None
        #: None unless this broker leads.
        self.leading: PartitionLeadership | None = None

    def __repr__(self) -> str:
        role = "follower" if self.leading is None else "leader"
        end = "offline" if self.log is None else self.log.end_offset
        return (
            f"{self.topic}-{self.id.partition} ({role} of epoch {self.leader_epoch}, "
            f"high watermark {self.high_watermark}, end {end})"
        )

    @property
    def is_leader(self) -> bool:
        return self.leading is not None

    @property
    def local_log(self) -> ReplicatedLog:
        if self.log is None:
            raise RejectedOperationError(
                KAFKA_STORAGE_ERROR, f"the log directory of {self} is offline"
            )
        return self.log

    @property
    def isr(self) -> frozenset[int]:
        """The committed ISR if this broker leads, else empty."""
        return frozenset() if self.leading is None else self.leading.isr

    # -- roles

    def become_leader(
        self, assigned: PartitionAssignment, context: ReplicationContext, now_ms: float
    ) -> bool:
        """Apply metadata that names this broker as the leader; return whether it did not lead.

        A partition that recovers from an unclean election counts as recovered from now on: the
        next ISR proposal says so (KIP-704).
        """
        if assigned.partition_epoch < self.partition_epoch:
            return False
        log = self.local_log
        leading = self.leading
        is_new_leader = leading is None
        if leading is None:
            leading = self.leading = PartitionLeadership()
        is_known = (
            assigned.partition_epoch == self.partition_epoch
            and assigned.leader_epoch == self.leader_epoch
        )
        if not is_known or is_new_leader:
            leading.proposal = None
        followers = [id for id in assigned.replicas if id != context.broker_id]
        leading.assign(followers, assigned.isr)
        if is_new_leader or assigned.leader_epoch > self.leader_epoch:
            leading.begin_epoch(log.end_offset, now_ms, is_new_leader=is_new_leader)
        self._take_over(assigned)
        return is_new_leader

    def become_follower(self, assigned: PartitionAssignment) -> bool:
        """Apply metadata that names another leader, or none; return whether the epoch is new."""
        if assigned.partition_epoch < self.partition_epoch:
            return False
        is_new_epoch = assigned.leader_epoch > self.leader_epoch
        self.leading = None
        self._take_over(assigned)
        return is_new_epoch

    def _take_over(self, assigned: PartitionAssignment) -> None:
        self.leader_id = assigned.leader
        self.leader_epoch = assigned.leader_epoch
        self.partition_epoch = assigned.partition_epoch
        self.assignment = assigned

    def take_offline(self) -> None:
        """Stop leading and reading: the log's directory has failed."""
        self.log = None
        self.leading = None

    # -- checks

    def epoch_error(self, leader_epoch: int, *, needs_leader: bool) -> int:
        """Return the error of a request with this leader epoch (-1: not given), 0 if none."""
        if leader_epoch != NO_EPOCH:
            if leader_epoch < self.leader_epoch:
                return FENCED_LEADER_EPOCH
            if leader_epoch > self.leader_epoch:
                return UNKNOWN_LEADER_EPOCH
        if needs_leader and self.leading is None:
            return KAFKA_STORAGE_ERROR if self.log is None else NOT_LEADER_OR_FOLLOWER
        return KAFKA_STORAGE_ERROR if self.log is None else NONE

    def min_isr(self, context: ReplicationContext) -> int:
        assert self.leading is not None
        return self.leading.effective_min_isr(context.topics.min_insync_replicas(self.topic))

    def is_under_min_isr(self, context: ReplicationContext) -> bool:
        leading = self.leading
        # With all replicas in sync the setting does not matter.
        if leading is None or len(leading.isr) > len(leading.followers):
            return False
        return len(leading.isr) < self.min_isr(context)

    # -- producing

    def append(self, batch: Buffer, acks: int, context: ReplicationContext) -> AppendOutcome:
        """Append a validated batch as the leader.

        Raises `RejectedOperationError` (NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS) and the errors
        of the log.
        """
        log, leading = self.local_log, self.leading
        if leading is None:
            raise RejectedOperationError(
                NOT_LEADER_OR_FOLLOWER, f"broker {context.broker_id} does not lead {self}"
            )
        if acks == ALL_IN_SYNC and self.is_under_min_isr(context):
            raise RejectedOperationError(
                NOT_ENOUGH_REPLICAS,
                f"the ISR {sorted(leading.isr)} of {self} has fewer members than "
                f"min.insync.replicas, {self.min_isr(context)}",
            )
        return log.append_as_leader(batch, self.leader_epoch)

    def acknowledgement(self, required_offset: int, context: ReplicationContext) -> int | None:
        """Return the outcome of acks=all for the records before ``required_offset``; None: wait."""
        leading = self.leading
        if leading is None:
            return KAFKA_STORAGE_ERROR if self.log is None else NOT_LEADER_OR_FOLLOWER
        if self.high_watermark < required_offset:
            return None
        if len(leading.maximal_isr) < self.min_isr(context):
            return NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return NONE

    def advance_high_watermark(self, context: ReplicationContext, now_ms: float) -> bool:
        """Raise the leader's high watermark if possible; return whether it rose.

        It does not rise while the ISR is below min.insync.replicas (KIP-966): else an eligible
        replica outside of the ISR could lack committed records.
        """
        leading, log = self.leading, self.log
        if leading is None or log is None or self.is_under_min_isr(context):
            return False
        reached = leading.high_watermark_at(
            log.end_offset, now_ms, context.max_lag_ms, context.brokers
        )
        if reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True

    # -- following

    def follow_high_watermark(self, leader_high_watermark: int) -> bool:
        """Raise a follower's high watermark to its leader's, at most to the log's end."""
        reached = min(leader_high_watermark, self.local_log.end_offset)
        if reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True

    def truncate_to(self, offset: int) -> None:
        log = self.local_log
        self.cuts += 1
        if offset < log.start_offset:
            log.restart_at(offset)
        elif offset < log.end_offset:
            log.truncate_to(offset)
        self.high_watermark = min(self.high_watermark, log.end_offset)

    def restart_at(self, offset: int) -> None:
        self.cuts += 1
        self.local_log.restart_at(offset)
        self.high_watermark = offset

    def raise_start_offset(self, offset: int) -> bool:
        """Raise the log start offset to the leader's; return whether it rose."""
        log = self.local_log
        if offset <= log.start_offset or offset > self.high_watermark:
            return False
        log.raise_start_offset(offset)
        return True

    # -- reading

    def end_of_epoch(self, epoch: int) -> EpochEndOffset | None:
        """Return the largest epoch at or below ``epoch`` and its end; None if unknown.

        A leader's own epoch begins at its election, before the first record of it. So an epoch
        between the log's last one and the leader's ends where the log ended then: a follower may
        have records of an epoch that this log lacks (KIP-279).
        """
        log = self.local_log
        if self.leading is not None and log.latest_epoch < epoch <= self.leader_epoch:
            if epoch == self.leader_epoch:
                return EpochEndOffset(epoch, log.end_offset)
            known = log.latest_epoch
            return EpochEndOffset(epoch if known < 0 else known, log.end_offset)
        return log.end_offset_of(epoch)

    def epoch_end(self, leader_epoch: int, epoch: int) -> EpochEnd:
        """Answer OffsetForLeaderEpoch."""
        error = self.epoch_error(leader_epoch, needs_leader=True)
        if error:
            return EpochEnd(error)
        found = self.end_of_epoch(epoch)
        return EpochEnd(NONE) if found is None else EpochEnd(NONE, *found)

    def read(
        self,
        fetch: FetchPartition,
        max_bytes: int,
        *,
        from_follower: bool,
        needs_leader: bool,
        at_least_one: bool,
    ) -> FetchedPartition:
        """Read batches for a fetch; changes nothing.

        The answer has a diverging epoch in place of records if the reader's last epoch ends
        earlier here, or is unknown (Fetch 12, KIP-595). With ``at_least_one`` the first batch may
        exceed ``max_bytes``.
        """
        error = self.epoch_error(fetch.leader_epoch, needs_leader=needs_leader)
        if error:
            return self.failed_read(error)
        log = self.local_log
        offset, start, end = fetch.fetch_offset, log.start_offset, log.end_offset
        if fetch.last_fetched_epoch != NO_EPOCH:
            found = self.end_of_epoch(fetch.last_fetched_epoch)
            if found is None or offset < start:
                return self.failed_read(OFFSET_OUT_OF_RANGE)
            if found.epoch < fetch.last_fetched_epoch or found.end_offset < offset:
                return FetchedPartition(
                    fetch.id, NONE, self.high_watermark, start, diverging_epoch=found
                )
        if not start <= offset <= end:
            return self.failed_read(OFFSET_OUT_OF_RANGE)
        bound = end if from_follower else self.high_watermark
        records = None
        if offset < bound:
            records = log.read(offset, min(max_bytes, fetch.max_bytes), bound)
            if not records.size or (
                not at_least_one and records.size > min(max_bytes, fetch.max_bytes)
            ):
                records = None
        return FetchedPartition(fetch.id, NONE, self.high_watermark, start, records)

    def failed_read(self, error: int) -> FetchedPartition:
        """Return the answer to a fetch with an error; it names the leader where that may help."""
        if error in (NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH):
            return FetchedPartition(
                self.id, error, leader_id=self.leader_id, leader_epoch=self.leader_epoch
            )
        return FetchedPartition(self.id, error)

    def redirected_read(self, replica_id: int) -> FetchedPartition:
        """Return the answer that sends a consumer to another replica."""
        return FetchedPartition(
            self.id,
            NONE,
            self.high_watermark,
            self.local_log.start_offset,
            preferred_read_replica=replica_id,
        )

    def list_offset(
        self,
        timestamp_ms: int,
        *,
        leader_epoch: int = NO_EPOCH,
        from_follower: bool = False,
        needs_leader: bool = True,
    ) -> ListedOffset:
        """Answer ListOffsets for one partition.

        A new leader does not name an end to consumers before its high watermark has reached the
        start of its epoch: it could be lower than one that its predecessor named (KIP-207).
        """
        error = self.epoch_error(leader_epoch, needs_leader=needs_leader)
        if error:
            return ListedOffset(error)
        log = self.local_log
        last = log.end_offset if from_follower else self.high_watermark
        lags = (
            not from_follower
            and self.leading is not None
            and self.leading.epoch_start > self.high_watermark
        )
        if timestamp_ms == LATEST:
            if lags:
                return ListedOffset(OFFSET_NOT_AVAILABLE)
            return ListedOffset(NONE, last, -1, self.leader_epoch)
        if timestamp_ms == EARLIEST:
            return ListedOffset(NONE, log.start_offset, -1, _epoch_at_start(log))
        record = (
            log.offset_of_largest_time()
            if timestamp_ms == MAX_TIMESTAMP
            else log.offset_at_time(timestamp_ms)
        )
        if record is not None and record.offset < last:
            return ListedOffset(NONE, record.offset, record.timestamp_ms, record.leader_epoch)
        return ListedOffset(OFFSET_NOT_AVAILABLE if lags else NONE)

    # -- followers' fetches

    def record_fetch(
        self,
        fetch: FetchPartition,
        replica_id: int,
        replica_epoch: int,
        context: ReplicationContext,
        now_ms: float,
    ) -> int:
        """Note a follower's fetch that was read without error; return an error, 0 if none.

        A fetch of an earlier incarnation of the follower is rejected (KIP-903).
        """
        leading = self.leading
        assert leading is not None
        progress = leading.followers[replica_id]
        if context.brokers.is_stale(replica_id, replica_epoch):
            return NOT_LEADER_OR_FOLLOWER
        progress.fetched(
            fetch.fetch_offset,
            fetch.log_start_offset,
            self.local_log.end_offset,
            replica_epoch,
            now_ms,
        )
        return NONE

    def follower_error(self, replica_id: int, leader_epoch: int) -> int:
        """Return the error of a fetch by a broker that is no replica, 0 if it is one."""
        if self.leading is None or replica_id in self.leading.followers:
            return NONE
        return NOT_LEADER_OR_FOLLOWER if leader_epoch == NO_EPOCH else UNKNOWN_LEADER_EPOCH

    # -- the ISR

    def expansion(self, id: int, context: ReplicationContext) -> IsrProposal | None:
        """Return a new pending proposal that adds a follower, None if it may not join now."""
        leading = self.leading
        if leading is None or not leading.may_join(id, self.high_watermark, context.brokers):
            return None
        return self._propose(context, added=frozenset((id,)))

    def shrinkage(self, context: ReplicationContext, now_ms: float) -> IsrProposal | None:
        """Return a new pending proposal without the followers that lag, None if none does."""
        leading, log = self.leading, self.log
        if leading is None or log is None:
            return None
        lagging = leading.lagging(context.broker_id, log.end_offset, now_ms, context.max_lag_ms)
        return self._propose(context, removed=lagging) if lagging else None

    def _propose(
        self,
        context: ReplicationContext,
        *,
        added: frozenset[int] = frozenset(),
        removed: frozenset[int] = frozenset(),
    ) -> IsrProposal:
        assert self.leading is not None
        return self.leading.propose(
            self.id,
            context.broker_id,
            context.broker_epoch,
            (self.leader_epoch, self.partition_epoch),
            added=added,
            removed=removed,
        )

    def isr_committed(self, proposal: IsrProposal, committed: CommittedIsr) -> bool:
        """Apply the controller's answer to a proposal; return whether the ISR is now this."""
        leading = self.leading
        if (
            leading is None
            or leading.proposal is not proposal
            or committed.leader_epoch != self.leader_epoch
            or committed.partition_epoch < self.partition_epoch
        ):
            return False
        leading.proposal = None
        leading.isr = frozenset(committed.isr)
        self.partition_epoch = committed.partition_epoch
        return True

    def isr_rejected(self, proposal: IsrProposal, error: int) -> bool:
        """Apply a proposal's error; return whether to send the same proposal again.

        If the controller surely rejected it, the committed ISR is in force again. After the errors
        that show this leader to be behind the metadata, the proposal stays pending until newer
        metadata arrives. Other errors may be transient.
        """
        leading = self.leading
        if leading is None or leading.proposal is not proposal:
            return False
        if error in (OPERATION_NOT_ATTEMPTED, INELIGIBLE_REPLICA):
            leading.proposal = None
            return False
        return error not in _AWAIT_METADATA

    # -- deleting records

    def delete_records(self, offset: int, context: ReplicationContext) -> tuple[int, int]:
        """Raise the log start offset; return the requested offset and the low watermark.

        Raises `RejectedOperationError`.
        """
        log, leading = self.local_log, self.leading
        if leading is None:
            raise RejectedOperationError(
                NOT_LEADER_OR_FOLLOWER, f"broker {context.broker_id} does not lead {self}"
            )
        if not context.topics.is_deleting(self.topic):
            raise RejectedOperationError(
                POLICY_VIOLATION, f"cleanup.policy of {self.topic} does not contain delete"
            )
        if offset == TO_HIGH_WATERMARK:
            offset = self.high_watermark
        if not 0 <= offset <= self.high_watermark:
            raise RejectedOperationError(
                OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not between 0 and the high watermark of {self}",
            )
        if offset > log.start_offset:
            log.raise_start_offset(offset)
        return offset, leading.low_watermark(log.start_offset, context.brokers)

    def deletion(self, requested: int, context: ReplicationContext) -> DeletedRecords | None:
        """Return the outcome of DeleteRecords once all live replicas have deleted; None: wait."""
        leading, log = self.leading, self.log
        if leading is None or log is None:
            return DeletedRecords(KAFKA_STORAGE_ERROR if log is None else NOT_LEADER_OR_FOLLOWER)
        low = leading.low_watermark(log.start_offset, context.brokers)
        return DeletedRecords(NONE, low) if low >= requested else None


def _epoch_at_start(log: ReplicatedLog) -> int:
    """Return the leader epoch of the record at the log's start, -1 without one."""
    if log.start_offset >= log.end_offset:
        return NO_EPOCH
    # The lowest epoch that ends after the start.
    low, high = 0, log.latest_epoch
    while low < high:
        middle = (low + high) // 2
        found = log.end_offset_of(middle)
        if found is not None and found.end_offset > log.start_offset:
            high = middle
        else:
            low = middle + 1
    found = log.end_offset_of(high)
    return NO_EPOCH if found is None else found.epoch
