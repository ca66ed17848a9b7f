"""The log of one partition: appends, reads, lookups, truncation, and the state of its producers.

`PartitionLog` joins a `DataLog` of the core, the partition's idempotent producers and Kafka's files
beside the segments. It opens its files when they are needed: after a clean shutdown the checkpoints
of the directory tell where the log ends, and a partition that nobody uses costs no system call.

Invariants:
- The event loop's thread changes a log; reads and `flush` may run in other threads.
- A failed write or sync takes the whole log directory offline. Afterwards every call raises
  `StorageError`.
- Producers' snapshot files never reflect more than the log: a truncation removes later ones before
  the next append.

Rules: ``storage/.../log/UnifiedLog.java``, ``LocalLog.java``, ``ProducerStateManager.java``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from typing_extensions import Buffer

from kraft._core.bytes.batch import assign_offsets, scan
from kraft._core.bytes.produced_batch import ProducedBatch
from kraft._core.log.data_log import DataLog, FileSlice, TimedOffset
from kraft._core.log.disk import write_atomically
from kraft._core.log.epoch_cache import EpochEndOffset
from kraft._core.log.partition_directory import read_topic_id
from kraft.broker.log.retention import count_before_start, count_beyond_size, count_expired
from kraft.broker.log.settings import LogSettings
from kraft.broker.producer_snapshots import ProducerSnapshots, encode_snapshot
from kraft.broker.producer_state import ProducerStates, SequencedBatch
from kraft.errors import CorruptRecordError, StorageError
from kraft.records import Uuid

if TYPE_CHECKING:
    from kraft.broker.log.log_directory import LogDirectory

_REPLAY_BYTES = 1 << 20


class Appended(NamedTuple):
    """Where a produced batch is in the log; of a duplicate, where the first one is."""

    first_offset: int
    last_offset: int
    #: The time of LogAppendTime in ms, else -1.
    append_time_ms: int = -1
    is_duplicate: bool = False


class PartitionLog:
    """The log of a partition in one log directory."""

    __slots__ = (
        *("topic", "partition", "settings", "high_watermark", "last_flush_ms"),
        *("_owner", "_name", "_log", "_producers", "_snapshots_to_write"),
        *("_known_end", "_known_start", "_is_start_known", "_recovery_point", "_is_clean"),
        "_pending_epoch",
    )

    def __init__(
        self,
        owner: LogDirectory,
        topic: str,
        partition: int,
        settings: LogSettings,
        *,
        name: str,
        start_offset: int = 0,
        recovery_point: int = 0,
        is_clean: bool = False,
        is_start_known: bool = False,
        high_watermark: int = 0,
    ) -> None:
        """Describe the log in directory ``name`` of ``owner``, which a log directory has found.

        ``start_offset`` and ``recovery_point`` are those of its checkpoints. After a clean shutdown
        (``is_clean``) the recovery point is the log's end; ``start_offset`` is the log's start if
        ``is_start_known``, else the first segment may begin later.
        """
        self.topic = topic
        self.partition = partition
        self.settings = settings
        #: Of the replication; the directory keeps it in a checkpoint.
        self.high_watermark = high_watermark
        self.last_flush_ms = 0
        self._owner = owner
        self._name = name
        self._log: DataLog | None = None
        self._producers: ProducerStates | None = None
        #: (offset, content) of snapshots of rolled segments, which `flush` writes.
        self._snapshots_to_write: list[tuple[int, bytes]] = []
        self._known_end = recovery_point if is_clean else -1
        self._known_start = start_offset
        self._is_start_known = is_start_known
        self._recovery_point = recovery_point
        self._is_clean = is_clean
        #: The epoch begun before the files were opened, or -1.
        self._pending_epoch = -1

    def __repr__(self) -> str:
        return f"<PartitionLog {self.path}>"

    # Facts ------------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        return f"{self._owner.path}/{self._name}"

    @property
    def name(self) -> str:
        """The name of the directory."""
        return self._name

    @property
    def directory(self) -> LogDirectory:
        """The log directory that holds the log."""
        return self._owner

    @property
    def is_open(self) -> bool:
        """Whether the log has been used since the start."""
        return self._log is not None

    @property
    def start_offset(self) -> int:
        if self._log is None and self._is_start_known and self._is_clean:
            return self._known_start
        return self._opened().log_start_offset

    @property
    def known_start_offset(self) -> int | None:
        """The log's start if it is known without opening the log, else None."""
        if self._log is not None:
            return self._log.log_start_offset
        return self._known_start if self._is_start_known else None

    @property
    def is_clean(self) -> bool:
        """Whether a log that is not open needs no check when it is opened."""
        return self._is_clean

    @property
    def end_offset(self) -> int:
        if self._log is None and self._is_clean:
            return self._known_end
        return self._opened().log_end_offset

    @property
    def latest_epoch(self) -> int:
        """The largest leader epoch that was begun, -1 without one."""
        if self._log is None and self._pending_epoch >= 0:
            return self._pending_epoch
        return self._opened().last_epoch

    @property
    def epochs(self) -> list[tuple[int, int]]:
        """(epoch, start offset) of every epoch in the log, ascending."""
        return self._opened().epochs

    @property
    def recovery_point(self) -> int:
        """The offset before which all is on the device."""
        return self._recovery_point if self._log is None else self._log.synced_offset

    @property
    def size(self) -> int:
        """Bytes in all segments."""
        return self._opened().size

    @property
    def topic_id(self) -> Uuid | None:
        """The topic id of `partition.metadata`, None without the file."""
        with self._storage():
            return read_topic_id(self._owner.disk, self.path)

    @property
    def producers(self) -> ProducerStates:
        """The producers of the partition, up to the log's end."""
        log = self._opened()
        if self._producers is None:
            with self._storage():
                self._producers = self._load_producers(log)
        return self._producers

    @property
    def core(self) -> DataLog:
        """The opened log of the core, for the upkeep of this package."""
        return self._opened()

    # Opening ----------------------------------------------------------------------------------

    def _opened(self) -> DataLog:
        if self._log is not None:
            if self._owner.failure is None:
                return self._log
            raise self._owner.offline_error()
        owner = self._owner
        settings = self.settings
        with self._storage():
            log = DataLog.load(
                self.path,
                disk=owner.disk,
                pool=owner.pool,
                segment_bytes=settings.segment_bytes,
                segment_ms=settings.segment_time_ms(owner.random),
                index_interval_bytes=settings.index_interval_bytes,
                index_max_bytes=settings.segment_index_bytes,
                start_offset=self._known_start,
                recovery_point=self._recovery_point,
                is_clean=self._is_clean,
                now_ms=owner.now_ms(),
                on_roll=self._on_roll,
            )
            self._log = log
        if self._pending_epoch >= 0:
            log.begin_epoch(self._pending_epoch)
            self._pending_epoch = -1
        self._remove_later(log)
        return log

    def open(self) -> None:
        """Open the log, and check it after an unclean stop. Raises `StorageError`."""
        self._opened()

    @contextmanager
    def _storage(self) -> Iterator[None]:
        """Take the log directory offline if the disk fails."""
        if self._owner.failure is not None:
            raise self._owner.offline_error()
        try:
            yield
        except StorageError as error:
            self._owner.fail(error)
            raise

    # Writing ----------------------------------------------------------------------------------

    def append_as_leader(
        self, batch: ProducedBatch | Buffer, epoch: int, *, now_ms: int, from_client: bool = True
    ) -> Appended:
        """Append a validated batch at the log's end; return its offsets.

        A `ProducedBatch` is checked against its producer's earlier batches: of a duplicate the
        offsets of the first are returned. Any other buffer holds one or more whole batches of the
        broker itself. Both get their offsets and the leader epoch in place, so they are writable.

        Raises `OutOfOrderSequenceError`, `InvalidProducerEpochError`, `InvalidTxnStateError`,
        `RecordTooLargeError` and `StorageError`; then the log is unchanged.
        """
        log = self._opened()
        first = log.log_end_offset
        entry = None
        append_time_ms = -1
        if not isinstance(batch, ProducedBatch):
            data: Buffer = batch
        else:
            data = batch.data
            append_time_ms = batch.append_time_ms
            if batch.producer_id >= 0:
                producers = self.producers
                known = producers.duplicate_of(
                    batch.producer_id,
                    batch.producer_epoch,
                    batch.base_sequence,
                    batch.record_count,
                )
                if known is not None and from_client:
                    time_ms = known.timestamp_ms if append_time_ms >= 0 else -1
                    return Appended(known.first_offset, known.last_offset, time_ms, True)
                entry = producers.next_entry(
                    SequencedBatch.of(batch, first), from_client=from_client
                )
        end = assign_offsets(data, first, epoch)
        self._write(log, data, now_ms, verify_crc=False)
        if self._producers is not None:
            if entry is not None:
                self._producers.put(entry, end)
            self._producers.end_offset = end
        return Appended(first, end - 1, append_time_ms)

    def append_as_follower(
        self, batches: Buffer, *, now_ms: int = 0, leader_epoch: int | None = None
    ) -> int:
        """Append batches of the leader, with its offsets and epochs; return the new end offset.

        Batches of an epoch above ``leader_epoch``, the epoch in which they were fetched, and those
        after them are left out, as by Kafka (KAFKA-18723).

        Raises `CorruptRecordError` for damaged batches or such that do not follow the log's end,
        `StorageError`; then the log is unchanged.
        """
        log = self._opened()
        if leader_epoch is not None:
            batches = _of_epochs_up_to(leader_epoch, batches)
            if not len(memoryview(batches)):
                return log.log_end_offset
        self._write(log, batches, now_ms, verify_crc=True)
        if self._producers is not None:
            try:
                self._producers.replay(batches)
            except Exception:
                self._producers = None
                raise
        return log.log_end_offset

    def _write(self, log: DataLog, data: Buffer, now_ms: int, *, verify_crc: bool) -> None:
        # Not by `_storage`, which takes longer than a small append's other work.
        try:
            log.write(data, now_ms=now_ms, verify_crc=verify_crc)
        except StorageError as error:
            self._owner.fail(error)
            raise
        if log.log_end_offset - log.synced_offset >= self.settings.flush_messages:
            self.flush()

    def begin_epoch(self, epoch: int) -> None:
        """Note that a leader epoch begins at the log's end, when this broker becomes the leader."""
        if self._log is None and self._is_clean:
            self._pending_epoch = max(self._pending_epoch, epoch)
        else:
            self._opened().begin_epoch(epoch)

    def roll(self) -> None:
        """Begin a new segment at the log's end, unless the last one is empty."""
        log = self._opened()
        with self._storage():
            log.roll()

    def _on_roll(self, base_offset: int) -> None:
        log = self._log
        if log is None:
            return
        if self._producers is None:
            self._producers = self._load_producers(log)
        # A follower's append may have batches before the new segment.
        self._replay(log, self._producers)
        content = encode_snapshot(self._producers.producers.values())
        self._snapshots_to_write.append((base_offset, content))
        log.configure(
            segment_bytes=self.settings.segment_bytes,
            segment_ms=self.settings.segment_time_ms(self._owner.random),
            index_interval_bytes=self.settings.index_interval_bytes,
            index_max_bytes=self.settings.segment_index_bytes,
        )

    def change_settings(self, settings: LogSettings) -> None:
        """Use other settings from the next append on."""
        self.settings = settings
        if self._log is not None:
            self._log.configure(
                segment_bytes=settings.segment_bytes,
                segment_ms=settings.segment_time_ms(self._owner.random),
                index_interval_bytes=settings.index_interval_bytes,
                index_max_bytes=settings.segment_index_bytes,
            )

    # Durability -------------------------------------------------------------------------------

    @property
    def needs_flush(self) -> bool:
        """Whether bytes, epochs or snapshots wait for `flush`."""
        log = self._log
        return log is not None and (
            log.synced_offset < log.log_end_offset or bool(self._snapshots_to_write)
        )

    @property
    def has_unflushed_segments(self) -> bool:
        """Whether rolled segments, or their producers' snapshots, wait for `flush_rolled`."""
        log = self._log
        return log is not None and (
            log.synced_offset < log.base_offsets[-1] or bool(self._snapshots_to_write)
        )

    def flush(self) -> None:
        """Make everything appended before the call durable; may run in another thread."""
        if self._log is not None:
            with self._storage():
                self._write_snapshots()
                self._log.sync()
            self.last_flush_ms = self._owner.now_ms()

    def flush_rolled(self) -> None:
        """Make rolled segments durable, as Kafka does after a roll; may run in another thread."""
        if self._log is not None:
            with self._storage():
                self._write_snapshots()
                self._log.sync_rolled()

    def _write_snapshots(self) -> None:
        waiting = self._snapshots_to_write
        while waiting:
            offset, content = waiting[0]
            write_atomically(self._owner.disk, self._snapshots.path(offset), content)
            waiting.pop(0)

    def close(self) -> None:
        """Write what a clean shutdown needs, and close the files. Raises `StorageError`."""
        log = self._log
        if log is None:
            return
        with self._storage():
            self._write_snapshots()
            self._take_snapshot(log)
            log.close()
        self._known_end = log.log_end_offset
        self._known_start = log.log_start_offset
        self._is_start_known = True
        self._recovery_point = log.synced_offset
        self._is_clean = True
        self._log = self._producers = None

    def abandon(self) -> None:
        """Close the files and write nothing, after a failure of the directory."""
        if self._log is not None:
            self._log.abandon()

    # Reading ----------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, end: int) -> FileSlice:
        """Return whole batches from the one with ``offset`` on, as a part of a segment's file.

        At least one batch, and otherwise at most ``max_bytes``; none that ends after offset
        ``end``, which is the high watermark for consumers and the log's end for followers. Raises
        `OffsetOutOfRangeError`, `StorageError`.
        """
        log = self._opened()
        try:
            return log.read(offset, max_bytes, end)
        except StorageError as error:
            self._owner.fail(error)
            raise

    def read_mapped(self, offset: int, max_bytes: int, end: int) -> memoryview:
        """Return the batches of `read` as mapped bytes, for a connection that encrypts them."""
        log = self._opened()
        with self._storage():
            return log.fetch(offset, max_bytes, end)

    def end_offset_of(self, epoch: int) -> EpochEndOffset | None:
        """Return the largest epoch at or below ``epoch``, and the offset at which the next begins.

        None if ``epoch`` is above every known one (OffsetForLeaderEpoch, KIP-101 and KIP-279).
        """
        return self._opened().end_offset_for_epoch(epoch)

    def offset_at_time(self, timestamp_ms: int) -> TimedOffset | None:
        """Return the first record with this timestamp or a later one, or None.

        The caller leaves out a record at or after the high watermark.
        """
        log = self._opened()
        with self._storage():
            return log.offset_at_time(timestamp_ms)

    def offset_of_largest_time(self) -> TimedOffset | None:
        """Return the first record with the largest timestamp, None in a log without timestamps."""
        log = self._opened()
        with self._storage():
            return log.offset_of_largest_time()

    def earliest_offset(self) -> TimedOffset:
        """Return the log's start, without a timestamp and with its epoch (-1 if unknown)."""
        log = self._opened()
        epochs = log.epochs
        known = bool(epochs) and epochs[0][1] <= log.log_start_offset
        return TimedOffset(-1, log.log_start_offset, epochs[0][0] if known else -1)

    def latest_offset(self) -> TimedOffset:
        """Return the log's end, without a timestamp and with the last epoch (-1 if unknown)."""
        return TimedOffset(-1, self.end_offset, self.latest_epoch)

    # Cutting ----------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> int:
        """Remove the batch with ``offset`` and all after it; return the new end offset."""
        log = self._opened()
        before, start = log.log_end_offset, log.log_start_offset
        with self._storage():
            # Appends of before may wait for their snapshots.
            self._write_snapshots()
            end = log.truncate_to(offset)
            if end < before:
                self._forget_producers(end)
                # As in Kafka: batches before the log's start may be the only ones of a producer.
                self._take_snapshot(log)
        self._after_cut(log, start)
        return end

    def restart_at(self, offset: int) -> None:
        """Remove everything; the log is then empty and begins at ``offset``."""
        log = self._opened()
        start = log.log_start_offset
        with self._storage():
            self._snapshots_to_write.clear()
            log.restart_at(offset)
            self._forget_producers(-1)
        self._after_cut(log, start)

    def raise_start_offset(self, offset: int) -> bool:
        """Let the log begin at ``offset`` (DeleteRecords); return whether it began before.

        Retention removes the segments later. Raises `OffsetOutOfRangeError` after the log's end.
        """
        return self._opened().raise_start_offset(offset)

    def _after_cut(self, log: DataLog, start_before: int) -> None:
        self.high_watermark = min(self.high_watermark, log.log_end_offset)
        # Before the next append: a load would not check segments below an old recovery point, and
        # would drop records below an old start.
        self._owner.write_recovery_points()
        if log.log_start_offset < start_before:
            self._owner.write_start_offsets()
        self._remove_later(log)

    def apply_retention(self, now_ms: int) -> int:
        """Remove the segments that the log's start, size and time let go; return their number."""
        log = self._opened()
        settings = self.settings
        with self._storage():
            watermark = self.high_watermark
            removed = self._remove_oldest(
                log,
                count_before_start(
                    log.segment_facts, log.segment_count, watermark, log.log_start_offset
                ),
            )
            if settings.deletes:
                removed += self._remove_oldest(
                    log,
                    count_beyond_size(
                        *(log.segment_facts, log.segment_count, watermark),
                        log.size if settings.retention_bytes >= 0 else 0,
                        settings.retention_bytes,
                    ),
                )
                removed += self._remove_oldest(
                    log,
                    count_expired(
                        *(log.segment_facts, log.segment_count, watermark),
                        now_ms,
                        settings.retention_ms,
                    ),
                )
        self._remove_later(log)
        return removed

    def _remove_oldest(self, log: DataLog, count: int) -> int:
        if count:
            if count == log.segment_count:
                log.roll()
            log.remove_oldest(count)
            first = log.base_offsets[0]
            self._snapshots_to_write = [one for one in self._snapshots_to_write if one[0] >= first]
        return count

    def _remove_later(self, log: DataLog) -> None:
        removed = log.take_removed()
        if removed:
            self._owner.remove_later(removed, self.settings.file_delete_delay_ms)

    # Producers --------------------------------------------------------------------------------

    @property
    def _snapshots(self) -> ProducerSnapshots:
        return ProducerSnapshots(self._owner.disk, self.path)

    def _load_producers(self, log: DataLog) -> ProducerStates:
        states = ProducerStates(
            f"{self.topic}-{self.partition}", expiration_ms=self._owner.producer_expiration_ms
        )
        self._write_snapshots()
        self._snapshots.load(
            states, log.log_start_offset, log.log_end_offset, now_ms=self._owner.now_ms()
        )
        self._replay(log, states)
        return states

    def _replay(self, log: DataLog, states: ProducerStates) -> None:
        """Bring the state to the log's end."""
        while states.end_offset < log.log_end_offset:
            batches = log.fetch(states.end_offset, _REPLAY_BYTES)
            if not len(batches):
                break
            states.replay(batches)
        states.end_offset = log.log_end_offset

    def _take_snapshot(self, log: DataLog) -> None:
        """Write a snapshot at the log's end, unless there is one."""
        end = log.log_end_offset
        if end > 0 and self._snapshots.offsets()[-1:] != [end]:
            content = encode_snapshot(self.producers.producers.values())
            self._snapshots_to_write.append((end, content))
            self._write_snapshots()

    def _forget_producers(self, end_offset: int) -> None:
        """Remove snapshots after ``end_offset``, and build the state again when it is needed."""
        self._producers = None
        snapshots = self._snapshots
        stray = [offset for offset in snapshots.offsets() if offset > end_offset]
        for offset in stray:
            self._owner.disk.remove(snapshots.path(offset))
        if stray:
            self._owner.disk.sync_directory(self.path)

    # Names ------------------------------------------------------------------------------------

    def move_to(self, name: str) -> None:
        """Rename the log's directory; for the log directory."""
        with self._storage():
            if self._log is not None:
                self._write_snapshots()
                self._log.move_to(f"{self._owner.path}/{name}")
            else:
                self._owner.disk.rename(self.path, f"{self._owner.path}/{name}")
            self._name = name


def _of_epochs_up_to(leader_epoch: int, batches: Buffer) -> memoryview:
    """Return the batches before the first one of a later epoch. Raises `CorruptRecordError`."""
    table = scan(batches, verify_crc=False)
    if table.tail_reason is not None:
        raise CorruptRecordError(table.tail_reason, position=table.tail_position)
    later = (table.partition_leader_epochs > leader_epoch).nonzero()[0]
    view = memoryview(batches).cast("B")
    return view[: int(table.positions[later[0]])] if len(later) else view
