# The C half of segment_index: the two sparse indexes of a segment, kept as their file's bytes.

from libc.stdint cimport int32_t, int64_t, uint8_t

from kraft._core.log.disk cimport Mapping


cdef class SparseIndex:
    cdef public str directory
    cdef readonly int64_t base_offset
    cdef readonly int64_t entry_count   # known while the entries are not in memory too
    cdef readonly bint loaded           # the entries are in memory, or mapped
    cdef int _entry_size
    cdef int _offset_within         # where an entry has its relative offset
    cdef uint8_t *_entries
    cdef int64_t _capacity          # in entries; 0 while they are mapped
    cdef int64_t _written           # entries that are in the file
    cdef Mapping _mapping           # of the file, if the entries are mapped
    cdef uint8_t *_next_entry(self) except NULL
    cdef int32_t _relative_offset(self, int64_t entry) noexcept nogil
    cdef int write_pending(self, disk, bint trim) except -1
    cdef int truncate_to(self, int64_t offset) except -1
    cdef bint load(self, disk, bint to_append) except -1
    cdef int unload(self) noexcept
    cdef bint is_sound(self) noexcept nogil
    cdef int clear(self) noexcept


cdef class OffsetIndex(SparseIndex):
    cdef int append(self, int64_t offset, int64_t position) except -1
    cdef int64_t position_at(self, int64_t offset) noexcept nogil
    cdef int64_t boundary_at(self, int64_t position) noexcept nogil
    cdef int64_t last_position(self) noexcept nogil


cdef class TimeIndex(SparseIndex):
    cdef int64_t last_timestamp(self) noexcept nogil
    cdef int64_t last_offset(self) noexcept nogil
    cdef int maybe_append(self, int64_t timestamp, int64_t offset) except -1
    cdef int64_t offset_at(self, int64_t timestamp) noexcept nogil
