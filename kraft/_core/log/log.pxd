# The C half of log: a log's state, and the steps that a partition of data does in another way.

from libc.stdint cimport int32_t, int64_t, uint8_t

from kraft._core.bytes.batch cimport BatchHeader
from kraft._core.log.recovery cimport LogScan
from kraft._core.log.segment cimport Segment


cdef class Log:
    cdef readonly str directory
    cdef readonly object disk
    cdef readonly bint read_only
    cdef readonly bint failed               # a write or sync failed: no more writes
    cdef readonly int64_t log_start_offset
    cdef readonly int64_t log_end_offset
    cdef readonly int64_t synced_offset     # the log's end at the last sync
    cdef readonly int32_t last_epoch        # of the last batch or epoch known, -1 without one
    cdef readonly object torn_tail          # TornTail or None
    cdef readonly tuple gaps                # of a salvaging open
    cdef object _epochs
    cdef list _segments
    cdef list _base_offsets
    cdef Segment _active
    cdef object _segments_lock              # held while reading, and to remove segments
    cdef int64_t _staged_size               # bytes staged for another writer, and their end offset
    cdef int64_t _staged_end_offset
    cdef bint _names_changed                # the directory has entries that are not synced
    cdef bint _has_new_epoch                # leader-epoch-checkpoint lacks the last epoch
    cdef bint _closed
    cdef int64_t _segment_bytes
    cdef int64_t _segment_ms
    cdef int32_t _index_interval_bytes
    cdef int64_t _index_max_bytes
    cdef bint _is_sparse                    # offsets may have gaps, and epochs may decrease

    cdef int _set_up(
        self, directory, disk, int64_t segment_bytes, int64_t segment_ms,
        int32_t index_interval_bytes, int64_t index_max_bytes,
    ) except -1
    cdef int _append(self, const uint8_t *data, Py_ssize_t size, bint verify_crc) except -1
    cdef bint _fits(self, int64_t size, int64_t last_offset, int64_t max_timestamp) noexcept
    cdef Py_ssize_t _stop_of_run(
        self, const uint8_t *data, Py_ssize_t position, Py_ssize_t size
    ) except -1
    cdef int _append_run(self, const uint8_t *data, Py_ssize_t size) except -1
    cdef int _roll(self, int64_t base_offset) except -1
    cdef int _add_segment(self, int64_t base_offset) except -1
    cdef int _write_epochs(self) except -1
    cdef int _check_writable(self) except -1
    cdef object _fetch(self, int64_t offset, int64_t max_size, int64_t end_offset)
    cdef int _set_end(self, int64_t offset) except -1
    cdef list _take_out(self, start, stop)
    cdef int _delete(self, segments) except -1
    cdef int _take_scan(self, LogScan scan) except -1
