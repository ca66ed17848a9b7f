# The C half of recovery: the scan of a whole log, and the check of one batch's CRC.

from libc.stdint cimport int32_t, int64_t, uint8_t

from kraft._core.bytes.batch cimport BatchHeader
from kraft._core.log.segment cimport Segment


cdef bint crc_matches(const uint8_t *batch, const BatchHeader *header) except -1


cdef class LogScan:
    cdef readonly list segments         # of Segment, ascending
    cdef readonly object epochs         # EpochCache
    cdef readonly object torn_tail      # TornTail or None
    cdef readonly list gaps             # of Gap
    cdef readonly int64_t next_offset   # the next batch's base offset; at last the log's end
    cdef readonly int32_t last_epoch    # the next batch's epoch must not be lower
    cdef object _disk
    cdef str _directory
    cdef int32_t _index_interval_bytes
    cdef bint _read_only
    cdef bint _salvage
    cdef bint _is_sparse                # a log of data: gaps are right, and all damage is cut
    cdef int64_t _synced_offset         # the log was on the device up to here, or -1
    cdef int64_t _position              # position of the scan in the segment
    cdef int64_t _total                 # bytes in the segment's file
    cdef int64_t _batches_of_epoch      # number of batches with `last_epoch`
    cdef int64_t _crc_budget            # bytes whose CRC searches may still compute

    cdef Segment _open_segment(self, int64_t base_offset)
    cdef str _scan_segment(self, Segment segment)
    cdef bint _rises_alone(self, const uint8_t *data, const BatchHeader *header) except -1
    cdef object _judge(self, Segment segment, list later, str reason)
    cdef object _find_behind(
        self, Segment segment, list later, int64_t least_offset, int32_t least_epoch,
        bint to_read_on,
    )
    cdef int64_t _find_batch(
        self, Segment segment, int64_t total, int64_t start, int64_t least_offset,
        int32_t least_epoch, int64_t lost_from, BatchHeader *header,
    ) except -2
    cdef int _cut_tail(self, Segment segment, list later, str reason) except -1
