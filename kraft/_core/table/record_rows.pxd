# Applying one partition record to its row; see record_rows.pyx.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kraft._core.bytes.batch cimport RecordFrame
from kraft._core.codec.partition_codec cimport ChangeView, PartitionView
from kraft._core.table.rows cimport TableRows

cdef enum:
    # The record adds a partition, and no row is reserved: reserve rows and retry the record.
    NEEDS_ROWS = 3
    # The change made an eligible leader replica the leader (KIP-966).
    ELECTED_ELIGIBLE = 4


# The position inside a batch, and the record that stopped the walk.
cdef struct ApplyCursor:
    const uint8_t *p
    const uint8_t *end
    int64_t base_offset
    int64_t start_offset        # records below are skipped
    int64_t end_offset          # records from here on are not applied
    int64_t offset              # of the record that stopped it
    int32_t records_left
    const uint8_t *record       # the first byte of that record
    RecordFrame frame
    int64_t topic               # the number of the topic that a RemoveTopic removed
    const uint8_t *last_topic_id
    int64_t last_topic
    bint is_whole               # every record is between start_offset and end_offset
    int64_t next_delta          # the lowest offset delta that the next record may have
    int64_t last_delta          # the highest
    uint64_t *directory_cache   # see record_views
    int32_t next_partition      # the id of last_topic that would get the next row; -1: unknown


cdef int64_t intern_directory(
    TableRows rows, uint64_t *directory_cache, const uint8_t *uuid
) noexcept nogil
cdef void expect_next(TableRows rows, ApplyCursor *cursor) noexcept nogil
cdef int apply_partition(
    TableRows rows, ApplyCursor *cursor, const PartitionView *view
) noexcept nogil
cdef int apply_change(TableRows rows, ApplyCursor *cursor, const ChangeView *view) noexcept nogil
