"""A partition's log of data: a `Log` with lazily opened files, and the rules of a broker.

It differs from the metadata log in these rules, which are those of Kafka's UnifiedLog, LocalLog and
LogLoader:

- Offsets may have gaps, between batches and inside of them: compaction removes records. Epochs are
  the leader's; a batch of a lower epoch ends the later epochs in the cache.
- A load after a clean stop trusts all files and reads the end of the last segment only. After any
  other stop it checks every batch from the recovery point on, and cuts the log at the first damaged
  one: the leader still has the records.
- After an unclean stop a segment that ends before the next one begins is the log's end: the crash
  lost batches between them. No roll leaves such a gap; compaction must work below the recovery
  point on disk.
- A rolled segment is not synced at once. `sync` makes it durable, and `synced_offset` is the
  recovery point, below which a load need not check. A checkpoint of it must be written after a
  truncation and before the next append.
- Removed files get the suffix `.deleted`; the caller removes them later (file.delete.delay.ms).
- The files of segments are open while they are used, as a `SegmentPool` decides.
- Reads return a part of a file, which is sent without copying.

One thread changes a log at a time; reads and `sync` may run in others.

Used by `kraft.broker.log`; uses `log`, `segment`, `cleaned_segment`,
`data_recovery` and `time_search`.
"""

from bisect import bisect_left, bisect_right
from typing import NamedTuple

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t

from kraft._core.bytes.batch cimport LOG_OVERHEAD, BatchHeader
from kraft._core.log.cleaned_segment cimport CleanedSegment
from kraft._core.log.data_recovery cimport recover_segments
from kraft._core.log.log cimport Log
from kraft._core.log.segment cimport Segment, SegmentPool
from kraft._core.log.time_search cimport first_at_or_after, first_with_largest_time

from kraft._core.bytes.file_slice import NO_RECORDS, FileSlice
from kraft._core.log.epoch_cache import FILE_NAME as EPOCHS_FILE
from kraft._core.log.epoch_cache import EpochCache
from kraft._core.log.log import (
    DEFAULT_INDEX_INTERVAL_BYTES, DEFAULT_INDEX_MAX_BYTES, DEFAULT_SEGMENT_BYTES,
    DEFAULT_SEGMENT_MS, LogBatch,
)
from kraft._core.log.partition_directory import read_small_file, tidy_segments
from kraft.errors import CorruptRecordError, OffsetOutOfRangeError, StorageError


cdef enum:
    FARTHEST_FIRST_BATCH = 1 << 30      # offsets after the base offset, which an index must hold


class SegmentFacts(NamedTuple):
    base_offset: int
    next_offset: int
    size: int
    max_timestamp: int
    first_timestamp: int
    offset_index_bytes: int
    time_index_bytes: int


cdef class DataLog(Log):
    """See ``data_log.pyi``."""

    cdef SegmentPool _pool
    cdef Segment _held                  # the segment that an append uses
    cdef list _removed                  # paths with `.deleted` that the caller has not taken
    cdef object _on_roll
    cdef int64_t _now_ms                # of the append
    cdef int64_t _active_since_ms       # when the last segment was created or loaded
    cdef readonly int64_t cuts          # truncations and restarts since the load

    @classmethod
    def load(
        cls, directory, *, SegmentPool pool not None, disk=None,
        int64_t segment_bytes=DEFAULT_SEGMENT_BYTES, int64_t segment_ms=DEFAULT_SEGMENT_MS,
        int32_t index_interval_bytes=DEFAULT_INDEX_INTERVAL_BYTES,
        int64_t index_max_bytes=DEFAULT_INDEX_MAX_BYTES, int64_t start_offset=0,
        int64_t recovery_point=0, bint is_clean=False, int64_t now_ms=0, on_roll=None,
    ):
        cdef DataLog log = cls.__new__(cls)
        log._set_up(
            directory, disk, segment_bytes, segment_ms, index_interval_bytes, index_max_bytes
        )
        log._is_sparse = True
        log._pool = pool
        log._removed = []
        log._on_roll = on_roll
        log._now_ms = log._active_since_ms = now_ms
        try:
            log._load(start_offset, recovery_point, is_clean)
        except BaseException:
            for segment in log._segments:
                segment.close()
            raise
        return log

    def _load(self, int64_t start_offset, int64_t recovery_point, bint is_clean):
        cdef Segment segment
        cdef Py_ssize_t first
        if not is_clean and not self.disk.exists(self.directory):
            self.disk.make_directory(self.directory)
        bases, names, self._names_changed = tidy_segments(self.disk, self.directory)
        known = EPOCHS_FILE not in names or self._load_epochs()
        if not known:
            recovery_point = 0
            is_clean = False
        for base_offset in bases:
            segment = Segment(
                self.disk, self.directory, base_offset, self._index_interval_bytes, False,
                self._pool,
            )
            if self._segments:
                (<Segment>self._segments[len(self._segments) - 1]).end_offset = base_offset
            self._segments.append(segment)
        self._base_offsets = bases
        if bases:
            self._active = self._segments[len(bases) - 1]
            self._active._is_last = True
            first = max(bisect_right(bases, recovery_point) - 1, 0)
            if is_clean:
                try:
                    self._active.use()
                    self._active.done()
                except CorruptRecordError:
                    first = len(bases) - 1
                    is_clean = False
            if not is_clean:
                self._recover(first)
            self.log_end_offset = self._active.end_offset
        if not self._segments or self.log_end_offset < start_offset:
            self._restart(max(start_offset, 0))
        self.log_start_offset = max(start_offset, <int64_t>self._base_offsets[0])
        self.synced_offset = (
            self.log_end_offset if is_clean else min(recovery_point, self.log_end_offset)
        )
        before = self._epochs.entries
        self._epochs.truncate_from_end(self.log_end_offset)
        self._epochs.truncate_from_start(self.log_start_offset)
        self.last_epoch = self._epochs.last_epoch
        if self._epochs.entries != before:
            self._has_new_epoch = True

    def _load_epochs(self):
        """Read `leader-epoch-checkpoint`; return False if it is damaged."""
        path = f"{self.directory}/{EPOCHS_FILE}"
        try:
            self._epochs = EpochCache.from_bytes(read_small_file(self.disk, path), path=path)
        except CorruptRecordError:
            return False
        return True

    def _recover(self, Py_ssize_t first):
        """Check every batch of the segments from the one at index `first` on."""
        found = recover_segments(
            self.disk, self.directory, self._index_interval_bytes, self._pool, self._segments,
            self._base_offsets, first, self._epochs,
        )
        if found.torn_tail is not None:
            self.torn_tail = found.torn_tail
        self._has_new_epoch = self._has_new_epoch or found.has_new_epoch
        if found.doomed:
            self._delete(reversed(found.doomed))
        self._active = self._segments[len(self._segments) - 1]
        self._active.become_last()
        self._names_changed = True

    def configure(
        self, *, int64_t segment_bytes, int64_t segment_ms, int32_t index_interval_bytes,
        int64_t index_max_bytes,
    ):
        self._segment_bytes = segment_bytes
        self._segment_ms = segment_ms
        self._index_interval_bytes = index_interval_bytes
        self._index_max_bytes = index_max_bytes

    # Writing ----------------------------------------------------------------------------------

    def write(self, batches, *, int64_t now_ms=0, bint verify_crc=False):
        cdef Py_buffer view
        cdef int64_t first_offset = self.log_end_offset
        self._check_writable()
        self._now_ms = now_ms
        PyObject_GetBuffer(batches, &view, PyBUF_SIMPLE)
        try:
            self._held = self._active
            self._held.use()
            try:
                self._append(<const uint8_t *>view.buf, view.len, verify_crc)
            finally:
                self._held.done()
                self._held = None
        finally:
            PyBuffer_Release(&view)
        return first_offset, self.log_end_offset - 1

    cdef bint _fits(self, int64_t size, int64_t last_offset, int64_t max_timestamp) noexcept:
        cdef Segment active = self._active
        if (
            active.size > 0 and active.first_timestamp < 0
            and self._now_ms - self._active_since_ms > self._segment_ms
        ):
            return False
        return active.fits(
            size, last_offset, max_timestamp,
            self._segment_bytes, self._segment_ms, self._index_max_bytes,
        )

    cdef int _roll(self, int64_t base_offset) except -1:
        cdef Segment old = self._active
        # Kafka names a segment by its first batch. Here it begins at the log's end, so that after a
        # crash a segment that ends before the next one begins has lost batches: see `_recover`.
        if base_offset - self.log_end_offset < FARTHEST_FIRST_BATCH:
            base_offset = self.log_end_offset
        old.use()
        try:
            old.become_inactive()
        finally:
            old.done()
        old._is_last = False
        old.indexes_dirty = True
        old.end_offset = base_offset
        self.log_end_offset = base_offset
        self._add_segment(base_offset)
        if self._held is not None:
            self._held.done()
            self._held = self._active
            self._held.use()
        if self._on_roll is not None:
            self._on_roll(base_offset)
        return 0

    cdef int _add_segment(self, int64_t base_offset) except -1:
        cdef Segment added = Segment.create(
            self.disk, self.directory, base_offset, self._index_interval_bytes
        )
        added.join(self._pool, True)
        with self._segments_lock:
            self._segments.append(added)
            self._base_offsets.append(base_offset)
            self._active = added
        self._active_since_ms = self._now_ms
        # A crash must not keep a later segment and lose this one.
        self.disk.sync_directory(self.directory)
        return 0

    def sync(self):
        self._sync(self._segments[:], self.log_end_offset)

    def sync_rolled(self):
        self._sync(self._segments[: len(self._segments) - 1], self._active.base_offset)

    def _sync(self, list segments, int64_t end_offset):
        cdef Segment segment
        # The checkpoint of the epochs first: below the recovery point no load looks for epochs.
        self.write_epochs()
        self._check_writable()
        try:
            for segment in segments:
                try:
                    self._sync_segment(segment)
                except StorageError:
                    # Another thread may have removed it meanwhile.
                    if not segment.is_removed:
                        raise
            if self._names_changed:
                self._names_changed = False
                self.disk.sync_directory(self.directory)
        except StorageError:
            self.failed = True
            raise
        self.synced_offset = max(self.synced_offset, min(end_offset, self.log_end_offset))

    def _sync_segment(self, Segment segment):
        if segment.dirty:
            segment.use()
            try:
                segment.sync()
            finally:
                segment.done()
        # Not those of the segment with the recovery point, which a load scans.
        if segment.indexes_dirty:
            segment.sync_indexes()

    # Reading ----------------------------------------------------------------------------------

    def read(self, int64_t offset, int64_t max_size, int64_t end_offset=INT64_MAX):
        cdef int64_t start, stop
        cdef Segment segment
        with self._segments_lock:
            for segment in self._segments_from(offset):
                segment.use()
                try:
                    if segment.locate(offset, max_size, end_offset, &start, &stop):
                        return FileSlice(
                            segment._file, start, stop - start, segment._mapping.slice(start, stop)
                        )
                finally:
                    segment.done()
        return NO_RECORDS

    cdef object _fetch(self, int64_t offset, int64_t max_size, int64_t end_offset):
        cdef Segment segment
        for segment in self._segments_from(offset):
            segment.use()
            try:
                found = segment.read(offset, max_size, end_offset)
            finally:
                segment.done()
            if found is not None:
                return found
        return memoryview(b"")

    def _segments_from(self, int64_t offset):
        """Return the segments that may have the offset or a later one."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} is not between {self.log_start_offset} and {self.log_end_offset}"
            )
        if self._closed:
            raise StorageError(f"{self.directory}: the log is closed")
        if offset >= self._active.base_offset:
            return (self._active,)
        return self._segments[max(bisect_right(self._base_offsets, offset) - 1, 0):]

    def batches(self, since=None):
        cdef BatchHeader header
        cdef int64_t position, stop, first = self.log_start_offset if since is None else since
        cdef Segment segment
        for segment in self._segments[:]:
            if segment._is_ready and segment.end_offset <= first:
                continue
            segment.use()
            try:
                position = segment.position_of(first)
                while 0 <= position < segment.size:
                    segment.mapped()
                    position = segment.batch_at(position, &header)
                    stop = position + LOG_OVERHEAD + header.batch_length
                    yield LogBatch(
                        segment.path, position, header.base_offset,
                        header.base_offset + header.last_offset_delta,
                        header.partition_leader_epoch, segment._mapping.slice(position, stop),
                    )
                    position = stop
            finally:
                segment.done()

    def offset_at_time(self, int64_t timestamp_ms):
        cdef Segment segment
        for segment in self._segments[:]:
            if not self._use_if_present(segment):
                continue
            try:
                if segment.max_timestamp >= timestamp_ms:
                    found = first_at_or_after(segment, timestamp_ms, self.log_start_offset)
                    if found is not None:
                        return found
            finally:
                segment.done()
        return None

    cdef bint _use_if_present(self, Segment segment) except -1:
        """Return whether the segment is in use now, and not removed by another thread."""
        try:
            segment.use()
        except StorageError:
            if segment.is_removed:
                return False
            raise
        return True

    def offset_of_largest_time(self):
        cdef Segment segment, latest = None
        for segment in self._segments[:]:
            if not self._use_if_present(segment):
                continue
            segment.done()
            if latest is None or segment.max_timestamp > latest.max_timestamp:
                latest = segment
        if latest is None or not self._use_if_present(latest):
            return None
        try:
            return first_with_largest_time(latest)
        finally:
            latest.done()

    @property
    def size(self):
        return sum(self.segment_sizes)

    @property
    def base_offsets(self):
        return tuple(self._base_offsets)

    @property
    def segment_count(self):
        return len(self._segments)

    def segment_facts(self, Py_ssize_t index):
        cdef Segment segment
        if not 0 <= index < len(self._segments):
            raise IndexError(f"the log has {len(self._segments)} segments, and none {index}")
        segment = self._segments[index]
        segment.use()
        segment.done()
        following = self._base_offsets[index + 1: index + 2] or (self.log_end_offset,)
        return SegmentFacts(
            segment.base_offset, following[0], segment.size, segment.max_timestamp,
            segment.first_timestamp, segment.offset_index.entry_count * 8,
            segment.time_index.entry_count * 12,
        )

    @property
    def segment_sizes(self):
        cdef Segment segment
        return [
            segment.size if segment.size >= 0 else self.disk.size(segment.path)
            for segment in self._segments[:]
        ]

    # Cutting ----------------------------------------------------------------------------------

    def truncate_to(self, int64_t offset):
        cdef Segment segment
        self._check_writable()
        if offset < 0:
            raise ValueError(f"offset {offset} is negative")
        if offset < self._base_offsets[0]:
            self.restart_at(offset)
            return offset
        self.cuts += 1
        try:
            if offset < self.log_end_offset:
                # The newest first: after a crash the log ends earlier.
                self._delete(
                    reversed(self._take_out(bisect_right(self._base_offsets, offset), None))
                )
                segment = self._active
                segment.become_last()
                segment.use()
                try:
                    with self._segments_lock:
                        segment.truncate_to(offset)
                finally:
                    segment.done()
                self.log_end_offset = segment.end_offset
                self.synced_offset = min(self.synced_offset, self.log_end_offset)
                self.log_start_offset = min(self.log_start_offset, self.log_end_offset)
            before = len(self._epochs.epochs)
            self._epochs.truncate_from_end(self.log_end_offset)
            self.last_epoch = self._epochs.last_epoch
            if len(self._epochs.epochs) != before:
                self._has_new_epoch = True
        except StorageError:
            self.failed = True
            raise
        return self.log_end_offset

    def restart_at(self, int64_t offset):
        self._check_writable()
        if offset < 0:
            raise ValueError(f"offset {offset} is negative")
        try:
            self._restart(offset)
            self.write_epochs()
        except StorageError:
            self.failed = True
            raise

    def _restart(self, int64_t offset):
        self.cuts += 1
        doomed = self._take_out(0, None)
        self._delete(reversed(doomed))
        self._epochs.clear()
        self._has_new_epoch = bool(doomed)
        self.last_epoch = -1
        self.log_start_offset = self.log_end_offset = self.synced_offset = offset
        self._add_segment(offset)

    def raise_start_offset(self, int64_t offset):
        self._check_writable()
        if offset > self.log_end_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} is after the log's end, {self.log_end_offset}"
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        before = self._epochs.entries
        self._epochs.truncate_from_start(offset)
        if self._epochs.entries != before:
            self._has_new_epoch = True
        return True

    def remove_oldest(self, Py_ssize_t count):
        self._check_writable()
        if not 0 < count < len(self._segments):
            raise ValueError(f"{count} of {len(self._segments)} segments cannot be removed")
        try:
            # The log starts later before the files are gone: no reader looks for them.
            self.raise_start_offset(
                max(self.log_start_offset, <int64_t>self._base_offsets[count])
            )
            self._delete(self._take_out(0, count))
        except StorageError:
            self.failed = True
            raise

    # Compaction -------------------------------------------------------------------------------

    def batches_at(self, int64_t base_offset, int64_t position, int64_t max_size):
        cdef Segment segment
        with self._segments_lock:
            index = bisect_left(self._base_offsets, base_offset)
            if index == len(self._segments) or self._base_offsets[index] != base_offset:
                raise OffsetOutOfRangeError(f"no segment begins with offset {base_offset}")
            if self._closed:
                raise StorageError(f"{self.directory}: the log is closed")
            segment = self._segments[index]
            segment.use()
        try:
            return segment.batches_from(position, max_size)
        finally:
            segment.done()

    def replace_segments(self, list base_offsets, CleanedSegment cleaned not None, int64_t cuts):
        cdef Segment added
        cdef Py_ssize_t first, stop
        self._check_writable()
        first = bisect_left(self._base_offsets, base_offsets[0])
        stop = first + len(base_offsets)
        if (
            cuts != self.cuts or self._base_offsets[first:stop] != base_offsets
            or stop >= len(self._segments)
        ):
            return False
        if self.synced_offset < self._base_offsets[stop]:
            raise ValueError("segments after the recovery point cannot be replaced")
        added = Segment(
            self.disk, self.directory, base_offsets[0], self._index_interval_bytes, False,
            self._pool,
        )
        added.end_offset = self._base_offsets[stop]
        try:
            with self._segments_lock:
                cleaned.begin_swap()
                for segment in self._segments[first:stop]:
                    self._removed += segment.mark_deleted(segment.base_offset == base_offsets[0])
                # None of them may return once the suffix of the replacement is gone.
                self.disk.sync_directory(self.directory)
                cleaned.end_swap()
                self._segments[first:stop] = [added]
                self._base_offsets[first:stop] = [base_offsets[0]]
        except StorageError:
            self.failed = True
            raise
        return True

    cdef int _delete(self, segments) except -1:
        cdef Segment segment
        for segment in segments:
            self._removed += segment.mark_deleted()
            self.disk.sync_directory(self.directory)
        return 0

    def take_removed(self):
        removed, self._removed = self._removed, []
        return removed

    def move_to(self, str directory):
        cdef Segment segment
        self.disk.rename(self.directory, directory)
        with self._segments_lock:
            self.directory = directory
            for segment in self._segments:
                segment.move_to(directory)

    def close(self):
        cdef Segment active = self._active
        if self._closed:
            return
        try:
            if not self.failed:
                active.use()
                try:
                    active.become_inactive()
                    active.indexes_dirty = True
                finally:
                    active.done()
                self.sync()
        finally:
            self.abandon()

    def abandon(self):
        with self._segments_lock:
            self._closed = True
        for segment in self._segments:
            segment.close()
