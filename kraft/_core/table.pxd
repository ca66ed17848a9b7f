# The partition table: rows that records are applied to and encoded from; see table.pyx.

from libc.stdint cimport int32_t, int64_t, uint8_t

from kraft._core.batch cimport BatchBuilder
from kraft._core.replayed_rows cimport ReplayedRows


cdef class PartitionTable(ReplayedRows):
    cdef int64_t encode_run(
        self, BatchBuilder builder, const int32_t *rows, int64_t first, int64_t index,
        int64_t count, int32_t version,
    ) noexcept nogil
    cdef int encode_rows(self, BatchBuilder builder, const int32_t *rows, int64_t first,
                         int64_t count, int32_t version) noexcept nogil
    cdef int encode_topic(self, BatchBuilder builder, int64_t topic) noexcept nogil
    cdef object _check_rows(self, int32_t[::1] rows)
    cdef object _check_topic(self, int64_t topic)
    cdef bint _appears(self, int64_t row, int32_t broker) noexcept nogil
    cdef void prefetch_rows(
        self, const int32_t *rows, int64_t first, int64_t index, int64_t count
    ) noexcept nogil
    cdef int32_t size_of_tags(self, int64_t row, int32_t version) noexcept nogil
    cdef void put_tags(self, uint8_t *p, int64_t row, int32_t version) noexcept nogil
    cdef void prefetch_lines(self, int64_t row) noexcept nogil
