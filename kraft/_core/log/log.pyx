"""A partition's log on disk: segments in Kafka's layout; append, fetch, truncate.

Manages a partition's directory in Kafka's names and formats, so that Kafka opens it and kraft opens
Kafka's: the segments (`segment`), `leader-epoch-checkpoint` (`epoch_cache`), `partition.metadata`
and the producers' `.snapshot` files (`partition_directory`). It ignores metadata snapshots
(`.checkpoint`) and `quorum-state` in the same directory.

Invariants:
- Offsets have no gaps from `log_start_offset` to `log_end_offset`; epochs never decrease. The log
  ends with its last whole batch.
- Opening scans every batch, like Kafka after an unclean stop, and trusts no index. A read-only open
  changes nothing on disk.
- After a failed write or sync the log accepts no more writes, because the bytes on disk are in
  doubt until it is reopened.
- A segment is synced before anything is written to the next.
- One thread writes; `sync` and reads may run in others. Segments leave the list under a lock that
  readers also hold, and are closed and removed afterwards.

Used by the raft layer, with sealed batches; uses `segment`, `recovery` and `following_batches`.
"""

from bisect import bisect_right
from threading import Lock
from typing import NamedTuple

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t

from kraft._core.bytes.batch cimport LOG_OVERHEAD, BatchHeader, read_batch_header
from kraft._core.log.following_batches cimport BatchRun, check_following, read_following
from kraft._core.log.recovery cimport LogScan
from kraft._core.log.segment cimport Segment

from kraft._core.codec.fetch import METADATA_TOPIC_ID
from kraft._core.log.disk import OsDisk, write_atomically
from kraft._core.log.epoch_cache import FILE_NAME as EPOCHS_FILE
from kraft._core.log.epoch_cache import EpochCache
from kraft._core.log.partition_directory import (
    base_offsets_of_logs,
    read_small_file,
    read_topic_id,
    remove_orphans,
    write_producer_snapshot,
    write_topic_id,
)
from kraft.errors import (
    DamagedLogError,
    OffsetOutOfRangeError,
    StorageError,
)

DEFAULT_SEGMENT_BYTES = 1 << 30
DEFAULT_SEGMENT_MS = 7 * 24 * 3600 * 1000
DEFAULT_INDEX_INTERVAL_BYTES = 4096
DEFAULT_INDEX_MAX_BYTES = 10 << 20
LEAST_INDEX_MAX_BYTES = 24      # one time entry, and one more for the end of the segment


class LogBatch(NamedTuple):
    path: str
    position: int
    base_offset: int
    last_offset: int
    epoch: int
    data: memoryview


cdef class Log:
    """See ``log.pyi``."""

    @classmethod
    def open(
        cls, directory, *, disk=None,
        int64_t segment_bytes=DEFAULT_SEGMENT_BYTES, int64_t segment_ms=DEFAULT_SEGMENT_MS,
        int32_t index_interval_bytes=DEFAULT_INDEX_INTERVAL_BYTES,
        int64_t index_max_bytes=DEFAULT_INDEX_MAX_BYTES,
        bint read_only=False, bint salvage=False, topic_id=METADATA_TOPIC_ID,
        int64_t synced_offset=-1,
    ):
        cdef Log log = cls.__new__(cls)
        if salvage and not read_only:
            raise ValueError("salvage requires read_only")
        log._set_up(
            directory, disk, segment_bytes, segment_ms, index_interval_bytes, index_max_bytes
        )
        log.read_only = read_only
        if not read_only:
            log.disk.make_directory(log.directory)
        base_offsets = base_offsets_of_logs(log.disk, log.directory)
        try:
            if base_offsets:
                scan = LogScan(
                    log.disk, log.directory, index_interval_bytes, read_only, salvage,
                    synced_offset,
                )
                scan.run(base_offsets)
                log._take_scan(scan)
            if log.log_end_offset < synced_offset and not salvage:
                raise DamagedLogError(
                    f"the log ends here, but was synced up to offset {synced_offset}",
                    path=log.directory, offset=log.log_end_offset,
                )
            if not read_only:
                log._prepare_directory(topic_id)
        except BaseException:
            for segment in log._segments:
                segment.close()
            raise
        return log

    cdef int _set_up(
        self, directory, disk, int64_t segment_bytes, int64_t segment_ms,
        int32_t index_interval_bytes, int64_t index_max_bytes,
    ) except -1:
        if not 0 < segment_bytes <= INT32_MAX:
            raise ValueError("segment_bytes must fit in a positive i32, as an index's positions do")
        if index_max_bytes < LEAST_INDEX_MAX_BYTES:
            raise ValueError(f"an index needs at least {LEAST_INDEX_MAX_BYTES} bytes")
        self.directory = str(directory)
        self.disk = OsDisk() if disk is None else disk
        self.last_epoch = -1
        self.gaps = ()
        self._epochs = EpochCache()
        self._segments = []
        self._base_offsets = []
        self._segments_lock = Lock()
        self._segment_bytes = segment_bytes
        self._segment_ms = segment_ms
        self._index_interval_bytes = index_interval_bytes
        self._index_max_bytes = index_max_bytes
        return 0

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def __repr__(self):
        return (
            f"<Log {self.directory!r}, offsets {self.log_start_offset} to {self.log_end_offset}, "
            f"{len(self._segments)} segments>"
        )

    # Writing ----------------------------------------------------------------------------------

    def append(
        self, batches, *, bint sync=False, bint verify_crc=False, bint write_epochs=True
    ):
        cdef Py_buffer view
        cdef int64_t first_offset = self.log_end_offset
        self._check_writable()
        PyObject_GetBuffer(batches, &view, PyBUF_SIMPLE)
        try:
            self._append(<const uint8_t *>view.buf, view.len, verify_crc)
        finally:
            PyBuffer_Release(&view)
        if write_epochs:
            self.write_epochs()
        if sync:
            self.sync()
        return first_offset, self.log_end_offset - 1

    cdef int _append(self, const uint8_t *data, Py_ssize_t size, bint verify_crc) except -1:
        cdef BatchRun run
        cdef Py_ssize_t position = 0, stop
        check_following(
            data, size, self.log_end_offset, self.last_epoch, self._segment_bytes, verify_crc,
            self._is_sparse, &run,
        )
        try:
            if self._active.size and not self._fits(size, run.last_offset, run.max_timestamp):
                self._roll(run.first_offset)
            while position < size:
                stop = size
                if not self._fits(size - position, run.last_offset, run.max_timestamp):
                    stop = self._stop_of_run(data, position, size)
                self._append_run(data + position, stop - position)
                position = stop
        except StorageError:
            self.failed = True
            raise
        return 0

    cdef bint _fits(self, int64_t size, int64_t last_offset, int64_t max_timestamp) noexcept:
        return self._active.fits(
            size, last_offset, max_timestamp,
            self._segment_bytes, self._segment_ms, self._index_max_bytes,
        )

    cdef Py_ssize_t _stop_of_run(
        self, const uint8_t *data, Py_ssize_t position, Py_ssize_t size
    ) except -1:
        """Return the end of the batches from `position` on that fit; roll if none does."""
        cdef BatchHeader header
        cdef Py_ssize_t stop = position
        while stop < size:
            if read_batch_header(data + stop, <size_t>(size - stop), &header):
                break
            if not self._fits(
                stop - position + LOG_OVERHEAD + header.batch_length,
                header.base_offset + header.last_offset_delta, header.max_timestamp,
            ):
                if stop > position:
                    break
                self._roll(header.base_offset)
            stop += LOG_OVERHEAD + header.batch_length
        return stop

    cdef int _append_run(self, const uint8_t *data, Py_ssize_t size) except -1:
        """Append checked batches to the active segment with one write."""
        cdef BatchHeader header
        cdef Segment active = self._active
        cdef int64_t start = active.size
        cdef Py_ssize_t position = 0
        active.append(data, size)
        while position < size:
            if read_batch_header(data + position, <size_t>(size - position), &header):
                break
            if header.partition_leader_epoch > self.last_epoch or (
                self._is_sparse and header.partition_leader_epoch != self.last_epoch
            ):
                self.last_epoch = header.partition_leader_epoch
                self._epochs.assign(self.last_epoch, header.base_offset)
                self._has_new_epoch = True
            active.note_batch(&header, start + position)
            position += LOG_OVERHEAD + header.batch_length
        self.log_end_offset = active.end_offset
        active.write_many_pending()
        return 0

    def write_epochs(self):
        if not self._has_new_epoch:
            return
        self._check_writable()
        try:
            self._write_epochs()
        except StorageError:
            self.failed = True
            raise

    def sync(self):
        cdef int64_t end_offset = self.log_end_offset
        self._check_writable()
        try:
            for segment in self._segments[:]:
                if (<Segment>segment).dirty:
                    segment.sync()
            if self._names_changed:
                self._names_changed = False
                self.disk.sync_directory(self.directory)
        except StorageError:
            self.failed = True
            raise
        self.synced_offset = max(self.synced_offset, min(end_offset, self.log_end_offset))

    def stage(self, batches):
        cdef Py_buffer view
        cdef BatchHeader header
        cdef Segment active = self._active
        cdef int64_t next_offset = self._staged_end_offset
        cdef int64_t max_timestamp = -1
        cdef Py_ssize_t position = 0
        cdef const uint8_t *data
        self._check_writable()
        if active._os_file is None or self._names_changed or active.dirty:
            return False
        if self._staged_size == 0:
            next_offset = self.log_end_offset
        PyObject_GetBuffer(batches, &view, PyBUF_SIMPLE)
        try:
            data = <const uint8_t *>view.buf
            while position < view.len:
                read_following(data, view.len, position, next_offset, self.last_epoch, &header)
                if header.partition_leader_epoch > self.last_epoch:
                    return False
                max_timestamp = max(max_timestamp, header.max_timestamp)
                next_offset = header.base_offset + header.last_offset_delta + 1
                position += LOG_OVERHEAD + header.batch_length
            # A segment's first batch sets its time, and staged batches are not counted yet.
            if active.size == 0 or position == 0 or not self._fits(
                self._staged_size + position, next_offset - 1, max_timestamp
            ):
                return False
        finally:
            PyBuffer_Release(&view)
        self._staged_size += position
        self._staged_end_offset = next_offset
        return True

    @property
    def staging_file(self):
        return self._active._os_file, self._active.size

    def add_staged(self, batches):
        cdef Py_buffer view
        cdef BatchHeader header
        cdef Segment active = self._active
        cdef Py_ssize_t position = 0
        PyObject_GetBuffer(batches, &view, PyBUF_SIMPLE)
        try:
            active._os_file._size = active.size + view.len
            while position < view.len:
                if read_batch_header(
                    <const uint8_t *>view.buf + position, <size_t>(view.len - position), &header
                ):
                    break
                active.note_batch(&header, active.size)
                position += LOG_OVERHEAD + header.batch_length
        finally:
            PyBuffer_Release(&view)
        self._staged_size -= position
        self.log_end_offset = self.synced_offset = active.end_offset

    def roll(self):
        self._check_writable()
        if self._active.size:
            try:
                self._roll(self.log_end_offset)
            except StorageError:
                self.failed = True
                raise

    cdef int _roll(self, int64_t base_offset) except -1:
        # A crash may keep later bytes and lose earlier ones: a segment that ends in a torn batch
        # while the next has whole ones would count as damage at the next open.
        self._active.sync()
        self._active.become_inactive()
        self._add_segment(base_offset)
        write_producer_snapshot(self.disk, self.directory, base_offset)
        return 0

    cdef int _add_segment(self, int64_t base_offset) except -1:
        self._active = Segment.create(
            self.disk, self.directory, base_offset, self._index_interval_bytes
        )
        self._segments.append(self._active)
        self._base_offsets.append(base_offset)
        self._names_changed = True
        return 0

    cdef int _write_epochs(self) except -1:
        write_atomically(
            self.disk, f"{self.directory}/{EPOCHS_FILE}", self._epochs.to_bytes()
        )
        self._has_new_epoch = False
        return 0

    cdef int _check_writable(self) except -1:
        if self.read_only or self._closed or self.failed:
            state = "closed" if self._closed else "open for reading only"
            if self.failed:
                state = "in doubt after a failed write or sync: reopen it"
            raise StorageError(f"{self.directory}: the log is {state}")
        return 0

    # Reading ----------------------------------------------------------------------------------

    def fetch(self, int64_t offset, int64_t max_size, int64_t end_offset=INT64_MAX):
        with self._segments_lock:
            return self._fetch(offset, max_size, end_offset)

    cdef object _fetch(self, int64_t offset, int64_t max_size, int64_t end_offset):
        cdef Py_ssize_t index
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} is not between {self.log_start_offset} and {self.log_end_offset}"
            )
        if self._closed:
            raise StorageError(f"{self.directory}: the log is closed")
        if self._active is not None and offset >= self._active.base_offset and not self.gaps:
            found = self._active.read(offset, max_size, end_offset)
            return memoryview(b"") if found is None else found
        index = max(bisect_right(self._base_offsets, offset) - 1, 0)
        # The segment may end before the offset where a salvaging open skipped damage.
        for segment in self._segments[index:]:
            found = (<Segment>segment).read(offset, max_size, end_offset)
            if found is not None:
                return found
        return memoryview(b"")

    def batches(self, since=None):
        cdef BatchHeader header
        cdef int64_t position, first = self.log_start_offset if since is None else since
        cdef Segment segment
        for segment in self._segments[:]:
            position = segment.position_of(first)
            while position >= 0:
                position = segment.batch_at(position, &header)
                if position == segment.size:
                    break
                stop = position + LOG_OVERHEAD + header.batch_length
                yield LogBatch(
                    segment.path, position, header.base_offset,
                    header.base_offset + header.last_offset_delta, header.partition_leader_epoch,
                    segment.mapped().slice(position, stop),
                )
                position = stop

    def end_offset_for_epoch(self, epoch):
        return self._epochs.end_offset_for(epoch, self.log_end_offset)

    def epoch_at(self, offset):
        return self._epochs.epoch_at(offset)

    @property
    def epochs(self):
        return self._epochs.entries

    @property
    def segments(self):
        return tuple(self._segments)

    @property
    def size(self):
        return sum(segment.size for segment in self._segments)

    @property
    def topic_id(self):
        return read_topic_id(self.disk, self.directory)

    # Cutting ----------------------------------------------------------------------------------

    def truncate_to(self, int64_t offset):
        cdef Segment segment
        self._check_writable()
        if offset < 0:
            raise ValueError(f"offset {offset} is negative")
        if offset >= self.log_end_offset:
            return self.log_end_offset
        if offset < self._base_offsets[0]:
            self.truncate_fully_and_start_at(offset)
            return offset
        try:
            # The newest first: after a crash the log ends earlier.
            self._delete(reversed(self._take_out(bisect_right(self._base_offsets, offset), None)))
            segment = self._active
            with self._segments_lock:
                segment.truncate_to(offset)
                self._set_end(segment.end_offset)
            self._write_epochs()
        except StorageError:
            self.failed = True
            raise
        return self.log_end_offset

    cdef int _set_end(self, int64_t offset) except -1:
        self.log_end_offset = offset
        self.synced_offset = min(self.synced_offset, offset)
        self._epochs.truncate_from_end(offset)
        if offset <= self.log_start_offset:
            # The epochs before the log's start were removed, but their batches are still there, and
            # the next append follows them.
            self.log_start_offset = offset
            for batch in self.batches(self._base_offsets[0]):
                if batch.epoch > self._epochs.last_epoch:
                    self._epochs.assign(batch.epoch, batch.base_offset)
            self._epochs.truncate_from_start(offset)
        self.last_epoch = self._epochs.last_epoch
        return 0

    def truncate_fully_and_start_at(self, int64_t offset):
        self._check_writable()
        if offset < 0:
            raise ValueError(f"offset {offset} is negative")
        try:
            doomed = self._take_out(0, None)
            self.log_start_offset = self.log_end_offset = offset
            self._epochs.clear()
            self._delete(reversed(doomed))
            self._add_segment(offset)
            self._set_end(offset)
            self._write_epochs()
            self.sync()
        except StorageError:
            self.failed = True
            raise

    def advance_log_start(self, int64_t offset):
        cdef Py_ssize_t count
        self._check_writable()
        if offset > self.log_end_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} is after the log's end, {self.log_end_offset}"
            )
        if offset <= self.log_start_offset:
            return 0
        try:
            self.log_start_offset = offset
            # The oldest first: after a crash the log begins later.
            count = max(bisect_right(self._base_offsets, offset) - 1, 0)
            self._delete(self._take_out(0, count))
            self._epochs.truncate_from_start(offset)
            self._write_epochs()
        except StorageError:
            self.failed = True
            raise
        return count

    cdef list _take_out(self, start, stop):
        """Remove segments from the list: from now on nobody reads in them."""
        with self._segments_lock:
            taken = self._segments[start:stop]
            del self._segments[start:stop]
            del self._base_offsets[start:stop]
            self._active = self._segments[len(self._segments) - 1] if self._segments else None
        return taken

    cdef int _delete(self, segments) except -1:
        for segment in segments:
            segment.delete()
            # For each segment: a crash must not leave a gap between segments.
            self.disk.sync_directory(self.directory)
        return 0

    def close(self):
        if self._closed:
            return
        try:
            if not (self.read_only or self.failed):
                self.write_epochs()
                self._active.become_inactive()
                self.sync()
        finally:
            with self._segments_lock:
                self._closed = True
            for segment in self._segments:
                segment.close()

    # Opening ----------------------------------------------------------------------------------

    cdef int _take_scan(self, LogScan scan) except -1:
        self._segments = scan.segments
        end_offset = -1
        for segment in self._segments:
            # With `salvage`, a segment's name may claim offsets of the segment before it.
            self._base_offsets.append(max(segment.base_offset, end_offset))
            end_offset = max(end_offset, segment.end_offset)
        self._epochs = scan.epochs
        self.torn_tail = scan.torn_tail
        self.gaps = tuple(scan.gaps)
        self.last_epoch = scan.last_epoch
        self.log_start_offset = self._base_offsets[0]
        self.log_end_offset = scan.next_offset
        self._active = self._segments[len(self._segments) - 1]
        return 0

    def _prepare_directory(self, topic_id):
        """Correct the files beside the segments, like Kafka when it loads a log."""
        if not self._segments:
            self._add_segment(0)
        for segment in self._segments:
            segment.restore_indexes()
            # Writes of another process that stopped may be in the page cache only.
            segment.dirty = True
        remove_orphans(self.disk, self.directory, self._base_offsets)
        if topic_id is not None:
            write_topic_id(self.disk, self.directory, topic_id)
        path = f"{self.directory}/{EPOCHS_FILE}"
        content = self._epochs.to_bytes()
        if not self.disk.exists(path) or read_small_file(self.disk, path) != content:
            self._write_epochs()
        self._names_changed = True
        self.sync()
