"""The log of one partition: appends, reads, lookups, truncation and retention.

`PartitionLog` joins a `DataLog` of the core, the partition's idempotent producers
(``partition_producers``) and Kafka's files beside the segments. It is the log that
``kraft.broker.replication.ports`` describes. It opens its files when they are needed: after a clean
shutdown the checkpoints of the directory tell where the log ends, and a partition that nobody uses
costs no system call.

Invariants:
- The event loop's thread changes a log; reads and `flush` may run in other threads.
- A failed write or sync takes the whole log directory offline. Afterwards every call raises
  `StorageError`.

Rules: ``storage/.../log/UnifiedLog.java``, ``LocalLog.java``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from typing_extensions import Buffer

from kraft._core.bytes.batch import (
    ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TRANSACTIONAL,
    assign_offsets,
)
from kraft._core.bytes.file_slice import FileSlice
from kraft._core.log.cleaned_segment import CleanedSegment
from kraft._core.log.data_log import DataLog
from kraft._core.log.epoch_cache import EpochEndOffset
from kraft._core.log.partition_directory import read_topic_id, write_topic_id
from kraft.broker.log.partition_producers import PartitionProducers
from kraft.broker.log.retention import count_before_start, count_beyond_size, count_expired
from kraft.broker.log.settings import LogSettings
from kraft.broker.producer_state import ProducerStates, SequencedBatch
from kraft.broker.replication.messages import OffsetAtTime
from kraft.errors import CorruptRecordError, StorageError
from kraft.records import Uuid

if TYPE_CHECKING:
    from kraft.broker.log.log_directory import LogDirectory

#: Attributes, last offset delta, base and largest timestamp, producer id and epoch, base sequence
#: and count of records in the header of a batch.
_SEQUENCES = struct.Struct(">hiqqqhii")
_SEQUENCES_POSITION = 21


class AppendedOffsets(NamedTuple):
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
        *("_owner", "_name", "_log", "_producers"),
        *("_known_end", "_known_start", "_is_start_known", "_recovery_point", "_is_clean"),
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
        #: None until the log is opened.
        self._producers: PartitionProducers | None = None
        self._known_end = recovery_point if is_clean else -1
        self._known_start = start_offset
        self._is_start_known = is_start_known
        self._recovery_point = recovery_point
        self._is_clean = is_clean

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

    # The offsets of an opened log are known after its directory has failed too: the replication
    # hears of the failure only after the call in which it happens.

    @property
    def start_offset(self) -> int:
        if self._log is not None:
            return self._log.log_start_offset
        if self._is_start_known and self._is_clean:
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
        if self._log is not None:
            return self._log.log_end_offset
        if self._is_clean:
            return self._known_end
        return self._opened().log_end_offset

    @property
    def latest_epoch(self) -> int:
        """The leader epoch of the last batch, -1 without one."""
        return (self._log or self._opened()).last_epoch

    @property
    def epochs(self) -> list[tuple[int, int]]:
        """(epoch, start offset) of every epoch in the log, ascending."""
        return self._opened().epochs

    @property
    def recovery_point(self) -> int:
        """The offset before which all is on the device."""
        return self._recovery_point if self._log is None else self._log.synced_offset

    @property
    def checkpointed_recovery_point(self) -> int:
        """The recovery point in the directory's checkpoint file, which is never after the other."""
        return self._recovery_point

    def recovery_point_written(self, offset: int) -> None:
        """Note that the checkpoint file has this recovery point; for the log directory."""
        self._recovery_point = offset

    @property
    def size(self) -> int:
        """Bytes in all segments."""
        return self._opened().size

    @property
    def topic_id(self) -> Uuid | None:
        """The topic id of `partition.metadata`, None without the file. Raises `StorageError`."""
        with self._storage():
            try:
                return read_topic_id(self._owner.disk, self.path)
            except CorruptRecordError as error:
                raise StorageError(str(error)) from error

    def set_topic_id(self, topic_id: Uuid) -> None:
        """Write `partition.metadata` if there is none. Raises `StorageError`."""
        with self._storage():
            write_topic_id(self._owner.disk, self.path, topic_id)

    @property
    def producers(self) -> ProducerStates:
        """The producers of the partition, up to the log's end."""
        producers = self._opened_producers()
        with self._storage():
            return producers.states

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
            self._producers = PartitionProducers(owner, log, f"{self.topic}-{self.partition}")
        self._remove_later(log)
        return log

    def _opened_producers(self) -> PartitionProducers:
        self._opened()
        assert self._producers is not None
        return self._producers

    def open(self) -> None:
        """Open the log, and check it after an unclean stop. Raises `StorageError`."""
        self._opened()

    @contextmanager
    def _storage(self, log: DataLog | None = None) -> Iterator[None]:
        """Take the log directory offline if the disk fails; ignore it if ``log`` was closed."""
        if self._owner.failure is not None:
            raise self._owner.offline_error()
        try:
            yield
        except StorageError as error:
            if log is not None and self._log is not log:
                return
            self._owner.fail(error)
            raise

    # Writing ----------------------------------------------------------------------------------

    def append_as_leader(self, batch: Buffer, epoch: int) -> AppendedOffsets:
        """Append a validated batch at the log's end; return its offsets.

        The batch gets its offsets and the leader epoch in place if it is writable, else in a copy.
        It is checked against its producer's earlier batches: of a duplicate the offsets of the
        first are returned. The broker's own batches may be several, without producers.

        Raises `CorruptRecordError` for malformed bytes, `OutOfOrderSequenceError`,
        `InvalidProducerEpochError`, `InvalidTxnStateError`, `RecordTooLargeError` and
        `StorageError`; then the log is unchanged.
        """
        log = self._opened()
        if memoryview(batch).readonly:
            batch = bytearray(batch)
        first = log.log_end_offset
        end = assign_offsets(batch, first, epoch)
        attributes, last_delta, _, timestamp, id, producer_epoch, sequence, count = (
            _SEQUENCES.unpack_from(batch, _SEQUENCES_POSITION)
        )
        append_time_ms = timestamp if attributes & ATTRIBUTE_LOG_APPEND_TIME else -1
        entry = states = None
        if id >= 0:
            states = self.producers
            known = states.duplicate_of(id, producer_epoch, sequence, count)
            if known is not None:
                time_ms = known.timestamp_ms if append_time_ms >= 0 else -1
                return AppendedOffsets(known.first_offset, known.last_offset, time_ms, True)
            entry = states.next_entry(
                SequencedBatch(
                    *(id, producer_epoch, sequence, first, first + last_delta, timestamp),
                    is_transactional=bool(attributes & ATTRIBUTE_TRANSACTIONAL),
                )
            )
        self._write(log, batch, verify_crc=False)
        assert self._producers is not None
        states = states or self._producers.loaded
        if states is not None:
            if entry is not None:
                states.put(entry, end)
            states.end_offset = end
        return AppendedOffsets(first, end - 1, append_time_ms)

    def append_as_follower(self, batches: Buffer) -> None:
        """Append batches of the leader, with its offsets and epochs.

        The caller leaves out batches of epochs after the one in which they were fetched
        (KAFKA-18723). Raises `CorruptRecordError` for damaged batches or such that do not follow
        the log's end, `StorageError`; then the log is unchanged.
        """
        log = self._opened()
        self._write(log, batches, verify_crc=True)
        assert self._producers is not None
        states = self._producers.loaded
        if states is not None:
            try:
                states.replay(batches)
            except Exception:
                self._producers.forget()
                raise

    def _write(self, log: DataLog, data: Buffer, *, verify_crc: bool) -> None:
        # Not by `_storage`, which takes longer than a small append's other work.
        try:
            log.write(data, now_ms=self._owner.now_ms(), verify_crc=verify_crc)
        except StorageError as error:
            self._owner.fail(error)
            raise
        if log.log_end_offset - log.synced_offset >= self.settings.flush_messages:
            self.flush()

    def roll(self) -> None:
        """Begin a new segment at the log's end, unless the last one is empty."""
        log = self._opened()
        with self._storage():
            log.roll()

    def _on_roll(self, base_offset: int) -> None:
        log, producers = self._log, self._producers
        if log is None or producers is None:
            return
        producers.rolled(base_offset)
        self._configure(log)

    def change_settings(self, settings: LogSettings) -> None:
        """Use other settings from the next append on."""
        self.settings = settings
        if self._log is not None:
            self._configure(self._log)

    def _configure(self, log: DataLog) -> None:
        settings = self.settings
        log.configure(
            segment_bytes=settings.segment_bytes,
            segment_ms=settings.segment_time_ms(self._owner.random),
            index_interval_bytes=settings.index_interval_bytes,
            index_max_bytes=settings.segment_index_bytes,
        )

    # Durability -------------------------------------------------------------------------------

    @property
    def needs_flush(self) -> bool:
        """Whether bytes, epochs or snapshots wait for `flush`."""
        return self._is_waiting(lambda log: log.log_end_offset)

    @property
    def has_unflushed_segments(self) -> bool:
        """Whether rolled segments, or their producers' snapshots, wait for `flush_rolled`."""
        return self._is_waiting(lambda log: log.base_offsets[-1])

    def _is_waiting(self, end_of: Callable[[DataLog], int]) -> bool:
        log, producers = self._log, self._producers
        return (
            log is not None
            and producers is not None
            and (log.synced_offset < end_of(log) or producers.are_waiting)
        )

    def flush(self) -> None:
        """Make everything appended before the call durable; may run in another thread."""
        self._sync(DataLog.sync)
        self.last_flush_ms = self._owner.now_ms()

    def flush_rolled(self) -> None:
        """Make rolled segments durable, as Kafka does after a roll; may run in another thread."""
        self._sync(DataLog.sync_rolled)

    def _sync(self, sync: Callable[[DataLog], None]) -> None:
        """Write the waiting snapshots, and sync files.

        If the event loop closes and renames the log meanwhile, not to find a file is no failure.
        """
        log, producers = self._log, self._producers
        if log is not None and producers is not None:
            with self._storage(log):
                producers.write_waiting()
                sync(log)

    def close(self) -> None:
        """Write what a clean shutdown needs, and close the files. Raises `StorageError`."""
        log, producers = self._log, self._producers
        if log is None or producers is None:
            return
        with self._storage():
            producers.write_at_end()
            log.close()
        self._known_end = log.log_end_offset
        self._known_start = log.log_start_offset
        self._is_start_known = True
        self._recovery_point = log.synced_offset
        self._is_clean = True
        self._log = self._producers = None

    def discard(self) -> None:
        """Close the files of a log that will be removed; what was not synced may be lost."""
        log = self._log
        if log is None:
            return
        self._known_start = log.log_start_offset
        self._is_start_known = True
        self._recovery_point = log.synced_offset
        self._is_clean = False
        # First: `_sync` in another thread may meet the closed files.
        self._log = self._producers = None
        log.abandon()

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

    def end_offset_of(self, epoch: int) -> EpochEndOffset | None:
        """Return the largest epoch at or below ``epoch``, and the offset at which the next begins.

        None if ``epoch`` is above every known one (OffsetForLeaderEpoch, KIP-101 and KIP-279).
        """
        return self._opened().end_offset_for_epoch(epoch)

    def offset_at_time(self, timestamp_ms: int) -> OffsetAtTime | None:
        """Return the first record with this timestamp or a later one, or None.

        The caller leaves out a record at or after the high watermark.
        """
        log = self._opened()
        with self._storage():
            found = log.offset_at_time(timestamp_ms)
        return None if found is None else OffsetAtTime(*found)

    def offset_of_largest_time(self) -> OffsetAtTime | None:
        """Return the first record with the largest timestamp, None in a log without timestamps."""
        log = self._opened()
        with self._storage():
            found = log.offset_of_largest_time()
        return None if found is None else OffsetAtTime(*found)

    # Cutting ----------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Remove the batch with ``offset`` and all after it."""
        producers = self._opened_producers()
        log = self._opened()
        before, start = log.log_end_offset, log.log_start_offset
        with self._storage():
            # Appends of before may wait for their snapshots.
            producers.write_waiting()
            end = log.truncate_to(offset)
            if end < before:
                producers.cut(end)
                # As in Kafka: batches before the log's start may be the only ones of a producer.
                producers.write_at_end()
        self._after_cut(log, start)

    def restart_at(self, offset: int) -> None:
        """Remove everything; the log is then empty and begins at ``offset``."""
        producers = self._opened_producers()
        log = self._opened()
        start = log.log_start_offset
        with self._storage():
            log.restart_at(offset)
            producers.cut(-1)
        self._after_cut(log, start)

    def raise_start_offset(self, offset: int) -> None:
        """Let the log begin at ``offset`` or later (DeleteRecords).

        Retention removes the segments later. Raises `OffsetOutOfRangeError` after the log's end.
        """
        self._opened().raise_start_offset(offset)

    def _after_cut(self, log: DataLog, start_before: int) -> None:
        self.high_watermark = min(self.high_watermark, log.log_end_offset)
        # Before the next append: a load would not check segments below an old recovery point, and
        # would drop records below an old start; compaction would take new records for clean ones.
        self._owner.write_recovery_points()
        self._owner.cut_cleaner_offset((self.topic, self.partition), log.base_offsets[-1])
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

    def uses(self, log: DataLog) -> bool:
        """Return whether the log of the core was not closed, and opened again, since."""
        return self._log is log

    def replace_segments(
        self, log: DataLog, base_offsets: list[int], cleaned: CleanedSegment, cuts: int
    ) -> bool:
        """Let a cleaned segment take the place of others; see `DataLog.replace_segments`.

        Return False if ``log`` was closed meanwhile. Raises `StorageError`.
        """
        if not self.uses(log):
            return False
        with self._storage():
            is_done = log.replace_segments(base_offsets, cleaned, cuts)
        self._remove_later(log)
        return is_done

    def _remove_oldest(self, log: DataLog, count: int) -> int:
        if count:
            if count == log.segment_count:
                log.roll()
            log.remove_oldest(count)
            self._opened_producers().drop_waiting_before(log.base_offsets[0])
        return count

    def _remove_later(self, log: DataLog) -> None:
        removed = log.take_removed()
        if removed:
            self._owner.remove_later(removed, self.settings.file_delete_delay_ms)

    # Names ------------------------------------------------------------------------------------

    def move_to(self, name: str) -> None:
        """Rename the log's directory; for the log directory."""
        with self._storage():
            if self._log is not None:
                self._opened_producers().write_waiting()
                self._log.move_to(f"{self._owner.path}/{name}")
            else:
                self._owner.disk.rename(self.path, f"{self._owner.path}/{name}")
            self._name = name
