# What one partition record does to the rows; see record_rows.pyx.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kraft._core.batch cimport RecordFrame
from kraft._core.partition_codec cimport ChangeView, PartitionState, PartitionView
from kraft._core.rows cimport TableRows

cdef enum:
    # A new partition, and no room for its row: the record is to be tried again.
    NEEDS_ROWS = 3


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
    int64_t topic               # the number of the topic that a RemoveTopic took away
    const uint8_t *last_topic_id
    int64_t last_topic
    bint is_whole               # every record lies within start_offset and end_offset
    int64_t next_delta          # the lowest offset delta that the next record may have
    int64_t last_delta          # the highest
    int32_t next_partition      # of last_topic, whose row would be the next; -1: not known


cdef class RecordRows(TableRows):
    cdef uint64_t *directory_cache      # see record_views
    # How many irregular rows there must be before a wider stride is thought of again.
    cdef int64_t worth_a_look

    cdef int64_t find_topic(self, ApplyCursor *cursor, const uint8_t *topic_id) noexcept nogil
    cdef int64_t intern_directory(self, const uint8_t *uuid) noexcept nogil
    cdef int apply_partition(self, ApplyCursor *cursor, const PartitionView *view) noexcept nogil
    cdef void expect_next(self, ApplyCursor *cursor) noexcept nogil
    cdef int apply_change(self, ApplyCursor *cursor, const ChangeView *view) noexcept nogil
    cdef int store_view(self, int64_t row, const PartitionView *view) noexcept nogil
    cdef int spread_view(self, const PartitionView *view, PartitionState *state) noexcept nogil
