# The C half of time_search, for data_log. The segment is in use.

from libc.stdint cimport int64_t

from kraft._core.log.segment cimport Segment


# Returns the TimedOffset of the first record at or after a time and an offset, or None.
cdef object first_at_or_after(Segment segment, int64_t timestamp_ms, int64_t start_offset)

# Returns the TimedOffset of the first record with the segment's largest timestamp, or None.
cdef object first_with_largest_time(Segment segment)
