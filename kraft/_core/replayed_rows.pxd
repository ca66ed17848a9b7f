# Rows that batches of records are applied to; see replayed_rows.pyx.

from libc.stdint cimport int64_t, uint8_t

from kraft._core.batch cimport BatchHeader
from kraft._core.partition_runs cimport PartitionRuns
from kraft._core.record_rows cimport ApplyCursor


cdef class ReplayedRows(PartitionRuns):
    cdef int64_t record_counts[64]

    cdef int apply_run(self, ApplyCursor *cursor) noexcept nogil
    cdef int64_t _rows_in(self, const uint8_t *data, int64_t size) noexcept nogil
    cdef int _stride_for(self, const uint8_t *data, int64_t size) noexcept nogil
    cdef object _control_batch(self, ApplyCursor *cursor, const BatchHeader *header, on_control,
                               path, const uint8_t *data, int64_t base_position)
    cdef object _data_batch(self, ApplyCursor *cursor, on_record, on_topic_removed, path,
                            const uint8_t *data, int64_t base_position)
    cdef object _refuse(self, int stop, ApplyCursor *cursor, path, int64_t position)
