# Runs of partition records straight from bytes to rows; see partition_runs.pyx.

from libc.stdint cimport int32_t, int64_t, uint8_t

from kraft._core.record_rows cimport ApplyCursor, RecordRows


# Where a run of a topic's partitions stands, and what its next record is expected to be.
cdef struct PartitionRun:
    const uint8_t *p
    const uint8_t *end
    const uint8_t *topic_id
    int64_t topic
    int64_t next_delta          # the offset delta of the next record
    int64_t last_delta
    int64_t row                 # the row it gets
    int64_t partition           # its partition id
    int32_t left                # records left in the batch
    int32_t version             # of the record before it
    int32_t replica_count       # likewise
    int result                  # why no record was taken: 0, or a negative Refusal


cdef class PartitionRuns(RecordRows):
    cdef int apply_partitions(self, ApplyCursor *cursor) noexcept nogil
    cdef bint take_regular(self, PartitionRun *run) noexcept nogil
    cdef int commit_run(self, ApplyCursor *cursor, const PartitionRun *run) noexcept nogil
