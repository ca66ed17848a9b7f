"""The two sparse indexes of a segment: offset -> byte position, and timestamp -> offset.

Reads and writes `%020d.index` and `%020d.timeindex` beside a `%020d.log`, in Kafka's layout
(storage/.../internals/log/OffsetIndex.java, TimeIndex.java), big endian:

    .index       relative offset i32 | position i32         8 bytes an entry
    .timeindex   timestamp i64 | relative offset i32       12 bytes an entry

An offset entry has a batch's last offset and the position of its first byte. A time entry has the
largest timestamp so far in the segment and the last offset of the batch with that timestamp.
Offsets are relative to the segment's base offset.

Invariants: entries ascend in both columns. Until the segment is rolled or closed, the file has a
prefix of the entries in memory: they are written in bulk, because a full scan at the next open
rebuilds what a crash lost. Kafka maps the files of the active segment, so that they are 10 MiB of
mostly zeros; here, as in Kafka's rolled segments, they are exactly their entries.

Used by `segment`.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from kraft._core.bytes.wire cimport load_u32, load_u64, store_u32, store_u64
from kraft._core.log.disk cimport OsFile

from kraft._core.log.partition_directory import OFFSET_INDEX, TIME_INDEX, segment_file
from kraft.errors import StorageError

cdef enum:
    OFFSET_ENTRY_SIZE = 8
    TIME_ENTRY_SIZE = 12
    FIRST_CAPACITY = 64


cdef class SparseIndex:
    def __cinit__(self, str directory, int64_t base_offset):
        self.directory = directory
        self.base_offset = base_offset
        self.loaded = True

    @property
    def path(self):
        # Not kept: a broker has hundreds of thousands of indexes.
        suffix = OFFSET_INDEX if self._offset_within == 0 else TIME_INDEX
        return segment_file(self.directory, self.base_offset, suffix)

    def __dealloc__(self):
        if self._mapping is None:
            free(self._entries)

    def __len__(self):
        return self.entry_count

    cdef uint8_t *_next_entry(self) except NULL:
        cdef void *grown
        cdef int64_t capacity
        if self.entry_count == self._capacity:
            capacity = max(self._capacity * 2, <int64_t>FIRST_CAPACITY)
            grown = realloc(self._entries, <size_t>(capacity * self._entry_size))
            if grown == NULL:
                raise MemoryError
            self._entries = <uint8_t *>grown
            self._capacity = capacity
        self.entry_count += 1
        return self._entries + (self.entry_count - 1) * self._entry_size

    cdef bint load(self, disk, bint to_append) except -1:
        """Read or map the entries of the file; return whether they are sound.

        Entries are mapped unless the index is `to_append`: the indexes of many segments would take
        much memory. A file that is missing is unsound and has no entries.
        """
        cdef int64_t size
        cdef void *entries
        self.unload()
        self.loaded = True
        self.entry_count = self._written = 0
        try:
            file = disk.open(self.path, read_only=True)
        except StorageError:
            if disk.exists(self.path):
                raise
            return False
        try:
            size = file.size()
            self.entry_count = self._written = size // self._entry_size
            if self.entry_count and not to_append and type(file) is OsFile:
                self._mapping = (<OsFile>file).map_ahead(size, size)
                self._entries = <uint8_t *>self._mapping.data
            elif self.entry_count:
                content = file.read_at(0, size)
                entries = malloc(<size_t>size)
                if entries == NULL:
                    raise MemoryError
                memcpy(entries, PyBytes_AS_STRING(content), <size_t>size)
                self._entries = <uint8_t *>entries
                self._capacity = self.entry_count
        finally:
            file.close()
        return size % self._entry_size == 0 and self.is_sound()

    cdef int unload(self) noexcept:
        """Free the entries, which are all in the file."""
        if self._mapping is None:
            free(self._entries)
        self._mapping = None
        self._entries = NULL
        self._capacity = 0
        self.loaded = False
        return 0

    cdef bint is_sound(self) noexcept nogil:
        """Return whether the last entry may follow the first, as a file of zeros does not."""
        return self.entry_count == 0 or (
            self._relative_offset(self.entry_count - 1) >= 0
            and (
                self.entry_count == 1
                or self._relative_offset(self.entry_count - 1) > self._relative_offset(0)
            )
        )

    cdef int clear(self) noexcept:
        """Forget all entries; they are added again by a scan of the segment."""
        self.unload()
        self.loaded = True
        self.entry_count = self._written = 0
        return 0

    cdef int32_t _relative_offset(self, int64_t entry) noexcept nogil:
        return <int32_t>load_u32(self._entries + entry * self._entry_size + self._offset_within)

    def content(self):
        return PyBytes_FromStringAndSize(
            <const char *>self._entries, <Py_ssize_t>(self.entry_count * self._entry_size)
        )

    def restore(self, disk):
        wanted = self.content()
        file = disk.open(self.path, create=True)
        try:
            if file.size() != len(wanted) or file.read_at(0, len(wanted)) != wanted:
                file.truncate(0)
                file.append([wanted])
        finally:
            file.close()
        self._written = self.entry_count

    cdef int truncate_to(self, int64_t offset) except -1:
        """Remove the entries with `offset` or a larger one."""
        cdef int64_t relative = offset - self.base_offset
        while self.entry_count and self._relative_offset(self.entry_count - 1) >= relative:
            self.entry_count -= 1
        self._written = min(self._written, self.entry_count)
        return 0

    cdef int write_pending(self, disk, bint trim) except -1:
        """Append missing entries to the file; with `trim`, also cut the file after the entries."""
        # The index may grow during the write, if another thread closes the files of this segment.
        cdef int64_t count = self.entry_count
        cdef Py_ssize_t start = <Py_ssize_t>(self._written * self._entry_size)
        cdef Py_ssize_t stop = <Py_ssize_t>(count * self._entry_size)
        if start == stop and not trim:
            return 0
        file = disk.open(self.path, create=True)
        try:
            if stop > start:
                file.write_at(start, PyBytes_FromStringAndSize(
                    <const char *>self._entries + start, stop - start
                ))
            if trim and file.size() != stop:
                file.truncate(stop)
        finally:
            file.close()
        self._written = count
        return 0


cdef class OffsetIndex(SparseIndex):
    """Offset -> position, about one entry per index interval of bytes."""

    def __cinit__(self, str directory, int64_t base_offset):
        self._entry_size = OFFSET_ENTRY_SIZE
        self._offset_within = 0

    cdef int append(self, int64_t offset, int64_t position) except -1:
        cdef uint8_t *entry
        assert 0 <= offset - self.base_offset <= INT32_MAX and 0 <= position <= INT32_MAX
        entry = self._next_entry()
        store_u32(entry, <uint32_t>(offset - self.base_offset))
        store_u32(entry + 4, <uint32_t>position)
        return 0

    cdef int64_t position_at(self, int64_t offset) noexcept nogil:
        """Return the position of the last entry at or before `offset`, or 0 without one."""
        cdef int64_t low = 0, high = self.entry_count, middle
        cdef int64_t relative = offset - self.base_offset
        while low < high:
            middle = (low + high) >> 1
            if self._relative_offset(middle) <= relative:
                low = middle + 1
            else:
                high = middle
        if low == 0:
            return 0
        return load_u32(self._entries + (low - 1) * OFFSET_ENTRY_SIZE + 4)

    cdef int64_t last_position(self) noexcept nogil:
        """Return the position of the last entry, or 0 for an empty index."""
        if self.entry_count == 0:
            return 0
        return load_u32(self._entries + (self.entry_count - 1) * OFFSET_ENTRY_SIZE + 4)

    cdef int64_t boundary_at(self, int64_t position) noexcept nogil:
        """Return the largest indexed position at or below `position`, or 0 without one."""
        cdef int64_t low = 0, high = self.entry_count, middle
        while low < high:
            middle = (low + high) >> 1
            if load_u32(self._entries + middle * OFFSET_ENTRY_SIZE + 4) <= position:
                low = middle + 1
            else:
                high = middle
        if low == 0:
            return 0
        return load_u32(self._entries + (low - 1) * OFFSET_ENTRY_SIZE + 4)


cdef class TimeIndex(SparseIndex):
    """Timestamp -> offset; an entry only where the largest timestamp so far grew."""

    def __cinit__(self, str directory, int64_t base_offset):
        self._entry_size = TIME_ENTRY_SIZE
        self._offset_within = 8

    cdef int64_t last_timestamp(self) noexcept nogil:
        """Return the last timestamp in ms, or -1 for an empty index."""
        if self.entry_count == 0:
            return -1
        return <int64_t>load_u64(self._entries + (self.entry_count - 1) * TIME_ENTRY_SIZE)

    cdef int64_t last_offset(self) noexcept nogil:
        """Return the last offset, or the base offset for an empty index."""
        if self.entry_count == 0:
            return self.base_offset
        return self.base_offset + self._relative_offset(self.entry_count - 1)

    cdef int maybe_append(self, int64_t timestamp, int64_t offset) except -1:
        cdef uint8_t *entry
        if timestamp <= self.last_timestamp():
            return 0
        assert 0 <= offset - self.base_offset <= INT32_MAX
        entry = self._next_entry()
        store_u64(entry, <uint64_t>timestamp)
        store_u32(entry + 8, <uint32_t>(offset - self.base_offset))
        return 0

    cdef int64_t offset_at(self, int64_t timestamp) noexcept nogil:
        """Return the offset of the last entry at or before `timestamp`, else the base offset."""
        cdef int64_t low = 0, high = self.entry_count, middle
        while low < high:
            middle = (low + high) >> 1
            if <int64_t>load_u64(self._entries + middle * TIME_ENTRY_SIZE) <= timestamp:
                low = middle + 1
            else:
                high = middle
        return self.base_offset + (self._relative_offset(low - 1) if low else 0)
