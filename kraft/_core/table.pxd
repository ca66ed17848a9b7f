# The partition table: rows that records are applied to and encoded from; see table.pyx.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kraft._core.batch cimport BatchBuilder, BatchHeader, RecordFrame
from kraft._core.partition_codec cimport ChangeView, PartitionState, PartitionView
from kraft._core.rows cimport TableRows


# Where applying stands inside one batch, and why it stopped.
cdef struct ApplyCursor:
    const uint8_t *p
    const uint8_t *end
    int64_t base_offset
    int64_t start_offset        # records below are passed over
    int64_t end_offset          # records from here on are not applied
    int64_t offset              # of the record that stopped it
    int32_t records_left
    const uint8_t *record       # where that record begins
    RecordFrame frame
    int64_t topic               # REMOVED: the topic's number
    const uint8_t *last_topic_id
    int64_t last_topic
    bint is_whole               # every record lies within start_offset and end_offset
    int64_t next_delta          # the lowest offset delta that the next record may have
    int64_t last_delta          # the highest
    int32_t next_partition      # of last_topic, whose row would be the next; -1: not known


cdef class PartitionTable(TableRows):
    cdef uint32_t *directory_cache      # directory number + 1 by bits of the uuid; 0: empty
    cdef int64_t record_counts[64]
    cdef int64_t worth_a_look       # how many irregular rows must be there before a wider stride is thought of again

    cdef int64_t intern_directory(self, const uint8_t *uuid) noexcept nogil
    cdef int apply_run(self, ApplyCursor *cursor) noexcept nogil
    cdef int apply_partition(self, ApplyCursor *cursor, const PartitionView *view) noexcept nogil
    cdef int apply_change(self, ApplyCursor *cursor, const ChangeView *view) noexcept nogil
    cdef int apply_like_last(self, ApplyCursor *cursor) noexcept nogil
    cdef void expect_next(self, ApplyCursor *cursor) noexcept nogil
    cdef uint8_t *encode_regular(self, BatchBuilder builder, int64_t row,
                                 int32_t version) noexcept nogil
    cdef int64_t find_topic(self, ApplyCursor *cursor, const uint8_t *topic_id) noexcept nogil
    cdef int store_view(self, int64_t row, const PartitionView *view) noexcept nogil
    cdef int spread_view(self, const PartitionView *view, PartitionState *state) noexcept nogil
    cdef int encode_rows(self, BatchBuilder builder, const int32_t *rows, int64_t first,
                         int64_t count, int32_t version) noexcept nogil
    cdef int encode_topic(self, BatchBuilder builder, int64_t topic) noexcept nogil
    cdef int64_t _rows_in(self, const uint8_t *data, int64_t size) noexcept nogil
    cdef object _control_batch(self, ApplyCursor *cursor, const BatchHeader *header, on_control,
                               path, const uint8_t *data, int64_t base_position)
    cdef object _data_batch(self, ApplyCursor *cursor, on_record, on_topic_removed, path,
                            const uint8_t *data, int64_t base_position)
    cdef object _refuse(self, int stop, ApplyCursor *cursor, path, int64_t position)
    cdef object _check_rows(self, int32_t[::1] rows)
    cdef object _check_topic(self, int64_t topic)
    cdef bint _appears(self, int64_t row, int32_t broker) noexcept nogil
