# The C half of segment: one segment's log file, its two indexes, and its mapped bytes.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kraft._core.bytes.batch cimport BatchHeader
from kraft._core.log.disk cimport Mapping, OsFile
from kraft._core.log.segment_index cimport OffsetIndex, TimeIndex


cdef class SegmentPool


cdef class Segment:
    cdef readonly object disk
    cdef readonly str directory
    cdef readonly int64_t base_offset
    cdef readonly int64_t end_offset            # after the last batch
    cdef readonly int64_t size                  # bytes of whole batches and of gaps; -1 unknown
    cdef readonly int64_t max_timestamp         # in ms, -1 if no batch has one
    cdef readonly int64_t first_timestamp       # of the first batch, -1 without one
    cdef readonly bint read_only
    cdef readonly list gaps                     # damaged (start, stop) positions read past
    cdef public bint dirty                      # written since the last sync
    cdef readonly bint is_removed               # its files have `.deleted` names
    cdef public bint indexes_dirty              # complete in their files, and not synced
    cdef readonly OffsetIndex offset_index
    cdef readonly TimeIndex time_index
    cdef int64_t _offset_of_max_timestamp
    cdef int64_t _last_entry_position
    cdef int32_t _index_interval_bytes
    cdef object _file
    cdef OsFile _os_file                        # _file if it is the operating system's
    cdef Mapping _mapping
    cdef SegmentPool _pool                      # or None: the files are always open
    cdef Py_ssize_t _place                      # in the pool's list, or -1
    cdef int _users                             # while they are more than 0, the files stay open
    cdef bint _is_ready                         # the files are open and the indexes loaded
    cdef bint _is_recent                        # used since the pool last looked for unused ones
    cdef bint _is_last                          # of its log: batches may be appended

    cdef int use(self) except -1
    cdef int done(self) noexcept
    cdef int load(self) except -1
    cdef int unload(self) noexcept
    cdef int rebuild_indexes(self) except -1
    cdef bint locate(
        self, int64_t offset, int64_t max_size, int64_t end_offset, int64_t *start, int64_t *stop
    ) except -1
    cdef Mapping mapped(self)
    cdef int append(self, const uint8_t *data, Py_ssize_t size) except -1
    cdef int note_batch(self, const BatchHeader *header, int64_t position) except -1
    cdef int skip_damage(self, int64_t start, int64_t stop) except -1
    cdef bint fits(
        self, int64_t size, int64_t last_offset, int64_t max_timestamp,
        int64_t segment_bytes, int64_t segment_ms, int64_t index_max_bytes,
    ) noexcept
    cdef int64_t batch_at(self, int64_t position, BatchHeader *header) except -1
    cdef int64_t position_of(self, int64_t offset) except -2
    cdef object batches_from(self, int64_t position, int64_t max_size)
    cdef object read(self, int64_t offset, int64_t max_size, int64_t end_offset)
    cdef int cut(self, int64_t position) except -1
    cdef int write_many_pending(self) except -1


cdef class SegmentPool:
    cdef readonly Py_ssize_t most_open
    cdef list _open                             # segments with open files
    cdef uint64_t _dice                         # chooses where the search for an unused one begins
    cdef object _lock

    cdef int open(self, Segment segment) except -1
    cdef int add(self, Segment segment) except -1
    cdef int forget(self, Segment segment) except -1
    cdef bint _close_one(self) except -1
