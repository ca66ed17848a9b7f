"""One segment of a log, `%020d.log` and its two indexes: append, search, truncate.

Manages a segment's open file, its mapping for reads, its indexes in memory, and Kafka's rules on
when an index entry is added (storage/.../internals/log/LogSegment.java):

- a batch gets an offset entry if it begins more than the index interval after the batch of the last
  entry (after byte 0 at first), and then a time entry too, if the largest timestamp grew;
- a segment that is rolled or closed gets a time entry for its largest timestamp;
- a segment is rolled if an append would exceed its largest size, has a timestamp more than
  `segment_ms` after that of its first batch, an index is full, or an offset does not fit in an i32
  relative to the base offset.

Invariants: `size` counts whole, checked batches only (and damage that a salvaging open skipped, see
`gaps`); the mapping covers `size` at each use. Returned bytes never change: a segment with live
slices is not truncated in place but replaced by a copy of the rest, and the old file exists until
its last slice is gone.

A broker has more segments than it may open files. Its segments have a `SegmentPool`: files and
indexes are opened by `use` and stay open until `done`; then the pool may close them.

Used by `log`, `data_log` and `recovery`; uses `disk`, `batch` and `segment_index`.
"""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t

from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.object cimport PyObject

from kraft._core.bytes.batch cimport LOG_OVERHEAD, BatchHeader, read_batch_header, sound_end
from kraft._core.log.disk cimport Mapping, OsFile, mapping_of_buffer
from kraft._core.log.segment_index cimport OffsetIndex, TimeIndex

from threading import Lock

from kraft._core.log.disk import write_atomically
from kraft._core.log.partition_directory import (
    BESIDE_LOG,
    DELETED,
    LOG,
    PRODUCER_SNAPSHOT,
    segment_file,
)
from kraft.errors import CorruptRecordError, StorageError

cdef extern from "Python.h":
    enum:
        PyBUF_READ
    Py_ssize_t Py_REFCNT(PyObject *o)

cdef enum:
    OFFSET_ENTRY_SIZE = 8
    TIME_ENTRY_SIZE = 12
    MAP_AHEAD_BYTES = 1 << 20
    PENDING_ENTRIES = 512       # offset entries that wait before a write: 4 KiB

# Of Knuth's linear congruential generator (MMIX).
cdef uint64_t MULTIPLIER = 6364136223846793005u


cdef class Segment:
    """A segment; made by `Segment.create` and `Segment.load`, used by `Log` only."""

    @staticmethod
    def create(disk, str directory, int64_t base_offset, int32_t index_interval_bytes):
        """Create an empty segment; existing files are emptied."""
        segment = Segment(disk, directory, base_offset, index_interval_bytes, False)
        if segment.size:
            segment.cut(0)
        segment.write_indexes(True)
        segment.dirty = True
        return segment

    def __init__(
        self, disk, str directory, int64_t base_offset, int32_t index_interval_bytes,
        bint read_only, SegmentPool pool=None,
    ):
        self.disk = disk
        self.directory = directory
        self.base_offset = self.end_offset = base_offset
        self.read_only = read_only
        self.gaps = []
        self.max_timestamp = self.first_timestamp = -1
        self._offset_of_max_timestamp = base_offset
        self._index_interval_bytes = index_interval_bytes
        self.offset_index = OffsetIndex(directory, base_offset)
        self.time_index = TimeIndex(directory, base_offset)
        self._pool = pool
        self._place = -1
        self.size = -1
        if pool is None:
            self._open()
            self.size = self._file.size()

    @property
    def path(self):
        return segment_file(self.directory, self.base_offset, LOG)

    def _open(self, *, create=True):
        self._file = self.disk.open(
            self.path, create=create and not self.read_only, read_only=self.read_only
        )
        self._os_file = self._file if type(self._file) is OsFile else None

    def __repr__(self):
        return (
            f"<Segment {self.path!r}, offsets {self.base_offset} to {self.end_offset}, "
            f"{self.size} bytes>"
        )

    cdef Mapping mapped(self):
        """Return the mapping; map again if the segment has outgrown it."""
        cdef int64_t capacity
        if self._mapping is not None and self.size <= self._mapping.capacity:
            return self._mapping
        if self._os_file is None:
            self._mapping = mapping_of_buffer(self._file.map(self.size))
        elif self.read_only:
            self._mapping = self._os_file.map_ahead(self.size, self.size)
        else:
            # Pages after the end of the file are mapped too: they fill as the file grows.
            capacity = max(self.size + (self.size >> 1), <int64_t>MAP_AHEAD_BYTES)
            self._mapping = self._os_file.map_ahead(self.size, capacity)
        return self._mapping

    cdef int append(self, const uint8_t *data, Py_ssize_t size) except -1:
        """Write after the end. The caller notes the batches after this has succeeded."""
        if self._os_file is not None:
            self._os_file.append_bytes(data, size)
        else:
            self._file.append([PyMemoryView_FromMemory(<char *>data, size, PyBUF_READ)])
        self.dirty = True
        return 0

    cdef int note_batch(self, const BatchHeader *header, int64_t position) except -1:
        """Count the batch at `position`, the end so far, and add its index entries."""
        cdef int64_t last_offset = header.base_offset + header.last_offset_delta
        # After a truncation an empty segment may end after its base offset.
        if self.first_timestamp < 0 and (position == 0 or self.end_offset == self.base_offset):
            self.first_timestamp = header.max_timestamp
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
            self._offset_of_max_timestamp = last_offset
        if position - self._last_entry_position > self._index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(self.max_timestamp, self._offset_of_max_timestamp)
            self._last_entry_position = position
        self.size = position + LOG_OVERHEAD + header.batch_length
        self.end_offset = last_offset + 1
        return 0

    cdef int skip_damage(self, int64_t start, int64_t stop) except -1:
        """Skip damage: the next batch begins at `stop`."""
        self.gaps.append((start, stop))
        return 0

    cdef bint fits(
        self, int64_t size, int64_t last_offset, int64_t max_timestamp,
        int64_t segment_bytes, int64_t segment_ms, int64_t index_max_bytes,
    ) noexcept:
        """Return whether `size` more bytes up to `last_offset` fit, without rolling the segment.

        Kafka rolls by the wall clock if the first batch has no timestamp; this does not.
        """
        return (
            self.size + size <= segment_bytes
            and (
                self.size == 0
                or self.first_timestamp < 0
                or max_timestamp - self.first_timestamp <= segment_ms
            )
            and self.offset_index.entry_count < index_max_bytes // OFFSET_ENTRY_SIZE
            and self.time_index.entry_count < index_max_bytes // TIME_ENTRY_SIZE - 1
            and last_offset - self.base_offset <= INT32_MAX
        )

    cdef int64_t batch_at(self, int64_t position, BatchHeader *header) except -1:
        """Read the header of the batch at `position`, or after the gap that begins there.

        Returns the batch's own position, or `size` if there is none. The mapping must cover
        `size`. Raises CorruptRecordError if the bytes changed since they were checked.
        """
        for start, stop in self.gaps:
            if position == start:
                position = stop
        if position >= self.size:
            return self.size
        if read_batch_header(
            self._mapping.data + position, <size_t>(self.size - position), header
        ):
            raise CorruptRecordError(
                "a batch changed after it was checked", path=self.path, position=position
            )
        return position

    cdef int64_t position_of(self, int64_t offset) except -2:
        """Return the position of the first batch that ends at or after `offset`, or -1."""
        cdef BatchHeader header
        cdef int64_t position
        if offset >= self.end_offset:
            return -1
        self.mapped()
        position = self.batch_at(self.offset_index.position_at(offset), &header)
        while position < self.size:
            if header.base_offset + header.last_offset_delta >= offset:
                return position
            position = self.batch_at(position + LOG_OVERHEAD + header.batch_length, &header)
        return -1

    cdef object batches_from(self, int64_t position, int64_t max_size):
        """Return whole batches from a position on, at least one, as a slice of the mapping."""
        cdef BatchHeader header
        cdef int64_t stop = position, next_stop
        self.mapped()
        while self.batch_at(stop, &header) < self.size:
            next_stop = stop + LOG_OVERHEAD + header.batch_length
            if next_stop - position > max_size and stop > position:
                break
            stop = next_stop
        return self._mapping.slice(position, stop)

    cdef object read(self, int64_t offset, int64_t max_size, int64_t end_offset):
        """Return the batches of `locate` as a slice of the mapping, or None."""
        cdef int64_t start, stop
        if not self.locate(offset, max_size, end_offset, &start, &stop):
            return None
        return self._mapping.slice(start, stop)

    cdef bint locate(
        self, int64_t offset, int64_t max_size, int64_t end_offset, int64_t *first, int64_t *end
    ) except -1:
        """Find the positions of whole batches from the one with `offset` on.

        At least one and otherwise at most `max_size` bytes, none that ends after `end_offset`.
        Returns False if the segment ends before `offset`.
        """
        cdef BatchHeader header
        cdef int64_t start, stop, bound, position
        start = self.position_of(offset)
        if start < 0:
            return False
        first[0] = start
        bound = self.size
        for gap, _ in self.gaps:
            if start < gap:
                bound = min(bound, <int64_t>gap)
                break
        if end_offset < self.end_offset:
            position = self.position_of(end_offset)
            if position >= 0:
                bound = min(bound, position)
            if bound <= start:
                end[0] = start
                return True
        if bound - start <= max_size:
            end[0] = bound
            return True
        bound = min(bound, start + max_size)
        stop = max(start, self.offset_index.boundary_at(bound))
        position = stop
        while True:
            self.batch_at(position, &header)
            position += LOG_OVERHEAD + header.batch_length
            if position > bound and stop > start:
                end[0] = stop
                return True
            stop = position
            if position >= bound:
                end[0] = stop
                return True

    cdef int cut(self, int64_t position) except -1:
        """Make the log file end at `position`, durably."""
        # A slice holds a reference to the mapping too: the segment alone is one reference.
        cdef bint shared = (
            self._os_file is not None and self._mapping is not None
            and Py_REFCNT(<PyObject *>self._mapping) > 1
        )
        # `_file` and `_os_file` are two references; others are slices that are to be sent.
        shared = shared or (
            self._pool is not None and self._os_file is not None
            and Py_REFCNT(<PyObject *>self._os_file) > 2
        )
        kept = self.mapped().slice(0, position) if shared else None
        # Before the file shrinks, so that a reader in another thread maps no byte of the rest.
        self._mapping = None
        self.size = position
        if shared:
            write_atomically(self.disk, self.path, kept)
            if self._pool is None:
                self._file.close()
            # Else a slice's file stays open until the slice is gone.
            self._open()
        else:
            self._file.truncate(position)
            self._file.sync()
        return 0

    def truncate_to(self, int64_t offset):
        """Remove the batch with `offset` and all after it."""
        cdef BatchHeader header
        cdef int64_t position = self.position_of(offset)
        if position < 0:
            self.end_offset = min(self.end_offset, offset)
            return
        self.batch_at(position, &header)
        # A compacted log may have no batch with the offset, and the next one begins after it.
        self.end_offset = min(header.base_offset, offset)
        self.cut(position)
        self.offset_index.truncate_to(self.end_offset)
        self.time_index.truncate_to(self.end_offset)
        self.write_indexes(True)
        # As in Kafka, the next entry comes an interval after the new end.
        self._last_entry_position = position
        self.max_timestamp = self.time_index.last_timestamp()
        self._offset_of_max_timestamp = self.time_index.last_offset()
        if position == 0:
            self.first_timestamp = -1
        self._find_max_timestamp()

    def _find_max_timestamp(self):
        # The last time entry may be older than the batches between it and the end.
        cdef BatchHeader header
        cdef int64_t position
        self.mapped()
        position = self.batch_at(
            self.offset_index.position_at(self._offset_of_max_timestamp), &header
        )
        while position < self.size:
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp = header.max_timestamp
                self._offset_of_max_timestamp = header.base_offset + header.last_offset_delta
            position = self.batch_at(position + LOG_OVERHEAD + header.batch_length, &header)

    cdef int write_many_pending(self) except -1:
        """Write the index entries if enough of them wait to be worth the system calls."""
        if self.offset_index.entry_count - self.offset_index._written >= PENDING_ENTRIES:
            self.write_indexes(False)
        return 0

    def write_indexes(self, bint trim):
        """Append missing entries to the index files; with `trim`, set their exact size."""
        self.offset_index.write_pending(self.disk, trim)
        self.time_index.write_pending(self.disk, trim)

    def restore_indexes(self):
        """Make the index files equal to the entries of a full scan, if they differ."""
        self.finish_time_index()
        self.offset_index.restore(self.disk)
        self.time_index.restore(self.disk)

    def finish_time_index(self):
        """Add the entry for the largest timestamp at the end of a rolled or closed segment."""
        self.time_index.maybe_append(self.max_timestamp, self._offset_of_max_timestamp)

    def become_inactive(self):
        """Complete the indexes of a rolled segment."""
        self.finish_time_index()
        self.write_indexes(True)

    def sync(self):
        """fdatasync the log file. The indexes are not synced: an open rebuilds them."""
        self.dirty = False
        self._file.sync()

    def sync_indexes(self):
        """fdatasync the index files of a data log: a load trusts them before the recovery point."""
        for index in (self.offset_index, self.time_index):
            file = self.disk.open(index.path)
            try:
                file.sync()
            finally:
                file.close()
        self.indexes_dirty = False

    def close(self):
        """Close the file; bytes read from the segment stay valid."""
        if self._pool is not None:
            self._pool.forget(self)
            self.unload()
            return
        self._file.close()
        self._mapping = None

    def delete(self):
        """Remove the segment's files, the log file first."""
        self.close()
        self.disk.remove(self.path)
        for suffix in BESIDE_LOG:
            path = segment_file(self.directory, self.base_offset, suffix)
            if self.disk.exists(path):
                self.disk.remove(path)

    # Segments of a pool ------------------------------------------------------------------------

    cdef int use(self) except -1:
        """Open the files if the pool has closed them; they stay open until `done`."""
        self._users += 1
        self._is_recent = True
        if self._pool is not None and not self._is_ready:
            try:
                self._pool.open(self)
            except BaseException:
                self._users -= 1
                raise
        return 0

    cdef int done(self) noexcept:
        self._users -= 1
        return 0

    cdef int load(self) except -1:
        """Open the log file, and load the indexes; rebuild them if their files are unsound."""
        cdef bint is_first = self.size < 0
        cdef bint is_sound
        self._open(create=is_first)
        if is_first:
            self.size = self._file.size()
        elif self._file.size() < self.size:
            # Access to a mapping after the end of its file would end the process.
            raise StorageError(f"{self.path} has lost bytes while the log was in use")
        is_sound = self.offset_index.load(self.disk, self._is_last)
        is_sound = self.time_index.load(self.disk, self._is_last) and is_sound
        if not is_sound or self.offset_index.last_position() >= max(self.size, <int64_t>1):
            self.rebuild_indexes()
        elif is_first:
            self._find_end()
        self._is_ready = True
        return 0

    cdef int unload(self) noexcept:
        """Close the files and free the indexes, whose entries are all in their files."""
        self._is_ready = False
        self._file = None
        self._os_file = None
        self._mapping = None
        self.offset_index.unload()
        self.time_index.unload()
        return 0

    def _find_end(self):
        """Find the end offset of a log's last segment, and the largest timestamp of any."""
        cdef BatchHeader header
        cdef int64_t position
        if self.size == 0:
            return
        self.mapped()
        self.batch_at(0, &header)
        self.first_timestamp = header.max_timestamp
        self.max_timestamp = self.time_index.last_timestamp()
        self._offset_of_max_timestamp = self.time_index.last_offset()
        if not self._is_last:
            return
        position = self.batch_at(self.offset_index.last_position(), &header)
        while position < self.size:
            self.end_offset = header.base_offset + header.last_offset_delta + 1
            position = self.batch_at(position + LOG_OVERHEAD + header.batch_length, &header)
        self._find_max_timestamp()
        self._last_entry_position = self.size

    cdef int rebuild_indexes(self) except -1:
        """Rebuild the indexes from the batches; cut off what follows the last whole batch."""
        cdef BatchHeader header
        cdef int64_t total = self.size, sound, end_offset = self.end_offset
        cdef const uint8_t *data = self.mapped().data
        with nogil:
            sound = sound_end(data, total)
        self.offset_index.clear()
        self.time_index.clear()
        self.size = self._last_entry_position = 0
        self.end_offset = self._offset_of_max_timestamp = self.base_offset
        self.max_timestamp = self.first_timestamp = -1
        while self.size < sound:
            read_batch_header(data + self.size, <size_t>(total - self.size), &header)
            if header.base_offset + header.last_offset_delta - self.base_offset > INT32_MAX:
                break
            self.note_batch(&header, self.size)
        if self.size < total:
            self.cut(self.size)
        self.restore_indexes()
        self.sync_indexes()
        if not self._is_last:
            self.end_offset = max(self.end_offset, end_offset)
        return 0

    def join(self, SegmentPool pool, bint is_last):
        """Let the pool close the files of a segment that was opened without one."""
        self._is_last = is_last
        self._is_ready = self._is_recent = True
        # As in Kafka, the next entry comes an interval after the end.
        self._last_entry_position = self.size
        self._pool = pool
        pool.admit(self)

    def become_last(self):
        """Prepare the newest segment that a truncation left for appends."""
        if not self._is_last:
            self._is_last = True
            if self._is_ready:
                self.offset_index.load(self.disk, True)
                self.time_index.load(self.disk, True)

    def mark_deleted(self, bint keeps_snapshot=False):
        """Add `.deleted` to the names of the segment's files; return the new paths.

        With `keeps_snapshot` the producers' snapshot stays: another segment takes its place.
        """
        paths = []
        self.is_removed = True
        if self._pool is not None:
            self._pool.forget(self)
        for suffix in (LOG, *BESIDE_LOG):
            if keeps_snapshot and suffix == PRODUCER_SNAPSHOT:
                continue
            path = segment_file(self.directory, self.base_offset, suffix)
            if self.disk.exists(path):
                self.disk.rename(path, path + DELETED)
                paths.append(path + DELETED)
        return paths

    def move_to(self, str directory):
        """Use the files in `directory`, which was renamed; open files stay open."""
        self.directory = self.offset_index.directory = self.time_index.directory = directory


cdef class SegmentPool:
    """See ``segment.pyi``."""

    def __init__(self, Py_ssize_t most_open):
        if most_open < 1:
            raise ValueError("at least one segment must be open")
        self.most_open = most_open
        self._open = []
        self._lock = Lock()

    def __len__(self):
        return len(self._open)

    cdef int open(self, Segment segment) except -1:
        with self._lock:
            if segment._is_ready:
                return 0
            while len(self._open) >= self.most_open and self._close_one():
                pass
            try:
                segment.load()
            except BaseException:
                segment.unload()
                raise
            self.add(segment)
        return 0

    def admit(self, Segment segment):
        with self._lock:
            while len(self._open) >= self.most_open and self._close_one():
                pass
            self.add(segment)

    cdef int add(self, Segment segment) except -1:
        segment._place = len(self._open)
        self._open.append(segment)
        return 0

    cdef int forget(self, Segment segment) except -1:
        cdef Segment moved
        if segment._place >= 0:
            moved = self._open.pop()
            if moved is not segment:
                self._open[segment._place] = moved
                moved._place = segment._place
            segment._place = -1
        return 0

    cdef bint _close_one(self) except -1:
        """Close the files of a segment that was not used lately; return whether there is one."""
        cdef Segment segment
        cdef Py_ssize_t _step, at
        # From a random place on. In order, producers that write to all partitions in turn, and to a
        # few more than may be open, would find each one closed: it was used longest ago.
        self._dice = self._dice * MULTIPLIER + 1
        at = <Py_ssize_t>((self._dice >> 33) % <uint64_t>len(self._open))
        # Two rounds: the first one clears the marks of recent use.
        for _step in range(2 * len(self._open)):
            if at >= len(self._open):
                at = 0
            segment = self._open[at]
            if segment._users == 0 and not segment._is_recent:
                if segment._is_last:
                    # Without the GIL for a moment: the segment may come into use.
                    segment._users += 1
                    try:
                        segment.write_indexes(True)
                    except StorageError:
                        # The entries are hints, and the log will notice the failure itself.
                        pass
                    segment._users -= 1
                if segment._users == 0 and segment._place >= 0:
                    self.forget(segment)
                    segment.unload()
                    return True
                continue
            segment._is_recent = False
            at += 1
        return False
