# Applying runs of partition records, straight from bytes to rows; see partition_runs.pyx.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kraft._core.table.record_rows cimport ApplyCursor
from kraft._core.table.rows cimport TableRows


# The position in a run of a topic's partitions, and the expected next record.
cdef struct PartitionRun:
    const uint8_t *p
    const uint8_t *end
    const uint8_t *topic_id
    int64_t topic
    int64_t next_delta          # the offset delta of the next record
    int64_t last_delta
    int64_t row                 # the row of the next record
    int64_t partition           # the partition id of the next record
    int32_t left                # records left in the batch
    int32_t version             # of the previous record
    int32_t replica_count       # of the previous record
    uint64_t *directory_cache   # see record_views
    int result                  # the result of the run: 0, or a negative Refusal


cdef int apply_partitions(TableRows rows, ApplyCursor *cursor) noexcept nogil
