# The partition table, which applies and encodes records; see table.pyx.

from libc.stdint cimport int32_t, int64_t

from kraft._core.table.replayed_rows cimport Replayer
from kraft._core.table.rows cimport TableRows


cdef class PartitionTable(TableRows):
    cdef Replayer replayer

    cdef object _check_rows(self, int32_t[::1] rows)
    cdef object _check_topic(self, int64_t topic)
    cdef bint _appears(self, int64_t row, int32_t broker) noexcept nogil
