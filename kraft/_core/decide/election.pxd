# Leader elections and ISR changes over many rows; see election.pyx.

from libc.stdint cimport int8_t, int32_t, int64_t

from kraft._core.bytes.batch cimport BatchBuilder
from kraft._core.decide.election_rules cimport ElectionRules
from kraft._core.codec.partition_codec cimport PartitionChange, PartitionState


# Which of a broker's rows a removal affects.
cdef enum RemovalScope:
    IN_ISR = 1
    IN_ELR = 2
    IN_DIRECTORY = 4


cdef class ElectionContext(ElectionRules):
    cdef int emit(self, BatchBuilder builder, int64_t row, const PartitionState *after,
                  const PartitionChange *change) noexcept nogil
    cdef int settle(self, BatchBuilder builder, int64_t row, const PartitionState *before,
                    PartitionState *after, int election, int32_t recovery) noexcept nogil
    cdef void prefetch_decision(self, int64_t row) noexcept nogil
    cdef int shrink_row(self, BatchBuilder builder, int64_t row, int32_t broker) noexcept nogil
    cdef int remove_row(self, BatchBuilder builder, int64_t row, int scope,
                        int64_t directory) noexcept nogil
    cdef int remove_rows(self, BatchBuilder builder, const int32_t *rows, int64_t count,
                         int scope, int64_t directory, int32_t single) noexcept nogil
    cdef int elect_row(self, BatchBuilder builder, int64_t row, int election) noexcept nogil
    cdef int expand_row(self, BatchBuilder builder, int64_t row) noexcept nogil
    cdef bint may_need(self, int64_t first, int kind) noexcept nogil
    cdef bint cannot_move(self, int64_t row, int32_t preferred) noexcept nogil
    cdef bint stays_leaderless(self, int64_t row) noexcept nogil
    cdef int64_t visit_rows(self, BatchBuilder builder, const int32_t *rows, int64_t count,
                            int kind, int64_t limit, int8_t *outcomes) noexcept nogil
    cdef int _check(self, int64_t result, BatchBuilder builder) except -1
    cdef int64_t _live(self, int64_t row) except -1
    cdef object _remove(self, BatchBuilder builder, brokers, int scope, directory, bint unclean)
    cdef object _visit(self, BatchBuilder builder, rows, int kind, int64_t limit)
