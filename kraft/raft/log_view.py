"""Log view: offsets, epochs, snapshots and voters of a node's log, without its bytes.

A node changes the view together with the writes that it requests, so that the view is ahead of the
disk; ``durable_end_offset`` is the end of what is durable. Messages about the log wait in `outbox`
until the disk has caught up.

Voter sets and kraft.version are in force from the offset where they are appended, committed or not,
and a truncation undoes them (Kafka's ``KRaftControlRecordStateMachine``, ``VoterSetHistory``,
KIP-853).

Invariants: start <= durable end <= end; epochs ascend; snapshots ascend; the high watermark never
falls, and no truncation goes below it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from kraft._core.bytes.batch_records import iterate
from kraft._core.log.epoch_cache import EpochCache, EpochEndOffset
from kraft.raft.rpc import OffsetAndEpoch
from kraft.raft.voters import ReplicaKey, VoterSet
from kraft.records import control

BOOTSTRAP_SNAPSHOT = OffsetAndEpoch(0, 0)


class VotersAt(NamedTuple):
    """The voters from the record at ``offset`` on; -1: of a snapshot, or static voters."""

    offset: int
    voters: VoterSet


class LevelAt(NamedTuple):
    """The kraft.version from the record at ``offset`` on."""

    offset: int
    level: int


@dataclass(slots=True)
class LogView:
    """See the module's docstring; offsets are log offsets, ends exclusive."""

    static_voters: VoterSet = field(default_factory=VoterSet)
    start_offset: int = 0
    end_offset: int = 0
    durable_end_offset: int = 0
    epochs: EpochCache = field(default_factory=EpochCache)
    #: Ids of the snapshots on disk, ascending, with their sizes in bytes.
    snapshots: dict[OffsetAndEpoch, int] = field(default_factory=dict)
    high_watermark: int = -1
    _voters: list[VotersAt] = field(default_factory=list)
    _levels: list[LevelAt] = field(default_factory=list)

    # -- voters

    @property
    def voters(self) -> VoterSet:
        return self._voters[-1].voters if self._voters else self.static_voters

    @property
    def voters_offset(self) -> int:
        """The offset of the record that names the voters; -1 if no record of the log does."""
        return self._voters[-1].offset if self._voters else -1

    @property
    def kraft_version(self) -> int:
        return self._levels[-1].level if self._levels else 0

    def load_snapshot_voters(self, voters: VoterSet | None, kraft_version: int) -> None:
        """Start with the voters and kraft.version of the snapshot that the log begins with."""
        self._voters = [VotersAt(-1, voters)] if voters is not None else []
        self._levels = [LevelAt(-1, kraft_version)] if kraft_version else []

    def replay_control_batch(self, batch: memoryview | bytes | bytearray) -> None:
        """Apply the voters and kraft.version of a control batch in the log."""
        for record_batch in iterate(batch, verify_crc=False):
            for record in record_batch:
                if record.control_type not in (5, 6):
                    continue
                value = record.value
                assert value is not None
                decoded = control.decode_control(record.control_type, value)
                if isinstance(decoded, control.KRaftVersion):
                    self._levels.append(LevelAt(record.offset, decoded.kraft_version))
                elif isinstance(decoded, control.KRaftVoters):
                    self._voters.append(VotersAt(record.offset, VoterSet.from_record(decoded)))

    @staticmethod
    def check_control_batches(batches: list[memoryview]) -> None:
        """Check that `replay_control_batch` can apply batches.

        Raises CorruptRecordError, or UnsupportedVersionError, if it cannot.
        """
        for batch in batches:
            LogView().replay_control_batch(batch)

    def is_voters_committed(self) -> bool:
        return self.voters_offset < self.high_watermark or self.voters_offset == -1

    def removal_offset(self, key: ReplicaKey) -> int | None:
        """Return the offset of the record that removed ``key`` from the voters.

        None if the latest voters include ``key``, if the voters before the last change did not
        include it either, or if the removal is known to be committed. Only the last change matters:
        a leader makes the next one after the last one is committed.
        """
        latest, found = self.voters, None
        for at in reversed(self._voters):
            if at.voters.is_voter(key):
                return found
            if at.offset < max(self.high_watermark, 0) or at.voters != latest:
                return None
            found = at.offset
        return found if self.static_voters.is_voter(key) else None

    def end_before(self, offset: int) -> OffsetAndEpoch:
        """Return the end of the log without the records from ``offset`` on."""
        epoch = self.epochs.epoch_at(offset - 1)
        if epoch < 0:
            # The log begins at ``offset``: after a snapshot, or with its first record.
            latest = self.latest_snapshot
            epoch = latest.epoch if latest is not None else 0
        return OffsetAndEpoch(offset, epoch)

    # -- the log's ends

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record; of an empty log that of its snapshot, or 0."""
        if self.epochs.epochs:
            return self.epochs.last_epoch
        latest = self.latest_snapshot
        return latest.epoch if latest is not None else 0

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        return next(reversed(self.snapshots)) if self.snapshots else None

    @property
    def earliest_snapshot(self) -> OffsetAndEpoch | None:
        return next(iter(self.snapshots)) if self.snapshots else None

    def append(self, base_offset: int, end_offset: int, epoch: int) -> None:
        """Note that batches of one epoch were appended at the end of the log."""
        assert base_offset == self.end_offset < end_offset, (base_offset, self.end_offset)
        assert epoch >= self.last_epoch, (epoch, self.last_epoch)
        if epoch > self.epochs.last_epoch:
            self.epochs.assign(epoch, base_offset)
        self.end_offset = end_offset

    def truncate(self, end_offset: int) -> None:
        """Note that the log was truncated.

        Raises AssertionError below the high watermark (KAFKA-12460), or below a snapshot: its
        records are committed although a restarted node knows no high watermark.
        """
        latest = self.latest_snapshot
        kept = max(self.start_offset, latest.offset if latest is not None else 0)
        assert max(self.high_watermark, kept) <= end_offset <= self.end_offset, (
            f"truncation to {end_offset} below high watermark {self.high_watermark} "
            f"or below {kept}, which a snapshot covers"
        )
        self.end_offset = end_offset
        self.durable_end_offset = min(self.durable_end_offset, end_offset)
        # Epochs that were left would contradict the next leader's (KAFKA-10706).
        self.epochs.truncate_from_end(end_offset)
        while self._voters and self._voters[-1].offset >= end_offset:
            self._voters.pop()
        while self._levels and self._levels[-1].offset >= end_offset:
            self._levels.pop()

    def begin_at(self, snapshot_id: OffsetAndEpoch, size: int) -> None:
        """Note that a downloaded snapshot has replaced the log and all other snapshots."""
        self.start_offset = self.end_offset = self.durable_end_offset = snapshot_id.offset
        self.epochs.clear()
        self.snapshots = {snapshot_id: size}
        self.high_watermark = max(self.high_watermark, snapshot_id.offset)

    def add_snapshot(self, snapshot_id: OffsetAndEpoch, size: int) -> None:
        assert snapshot_id.offset <= self.high_watermark, (snapshot_id, self.high_watermark)
        self.snapshots[snapshot_id] = size
        self.snapshots = dict(sorted(self.snapshots.items()))

    def clean(self, log_start_offset: int, earliest: OffsetAndEpoch) -> None:
        """Note that snapshots before ``earliest`` and the log before its start were removed.

        Only snapshots move the start of the log (KAFKA-14238).
        """
        assert earliest in self.snapshots, earliest
        assert log_start_offset <= earliest.offset, (log_start_offset, earliest)
        self.snapshots = {id: size for id, size in self.snapshots.items() if id >= earliest}
        if log_start_offset > self.start_offset:
            self.start_offset = log_start_offset
            self.epochs.truncate_from_start(log_start_offset)

    # -- reconciliation

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset:
        """Return the largest epoch of the log at or below ``epoch``, and its end offset.

        As in Kafka's ``KafkaMetadataLog.endOffsetForEpoch``, the result for an epoch before the
        first of the log is epoch and end of the oldest snapshot.
        """
        found = self.epochs.end_offset_for(epoch, self.end_offset)
        if found is None:
            return EpochEndOffset(self.last_epoch, self.end_offset)
        earliest = self.earliest_snapshot
        if earliest is not None and earliest.offset == found.end_offset and found.epoch == epoch:
            return EpochEndOffset(earliest.epoch, earliest.offset)
        return found

    def is_snapshot_needed(self, offset: int, last_fetched_epoch: int) -> bool:
        """Return whether a fetch needs a snapshot first (``validateOffsetAndEpoch``)."""
        earliest = self.earliest_snapshot
        if earliest is None or (offset == 0 and self.start_offset == 0):
            return False
        return (
            offset < self.start_offset
            or (offset == self.start_offset and last_fetched_epoch != earliest.epoch)
            or last_fetched_epoch < earliest.epoch
        )
