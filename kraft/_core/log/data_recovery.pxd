# The C half of data_recovery, for data_log.

from kraft._core.log.segment cimport SegmentPool


# Checks the segments from the one at index `first` on, and drops those after the log's end from
# both lists. Returns RecoveredSegments.
cdef object recover_segments(
    disk, str directory, int index_interval_bytes, SegmentPool pool, list segments,
    list base_offsets, Py_ssize_t first, epochs,
)
