# The C half of cleaned_segment, for data_log.

from kraft._core.log.segment cimport Segment


cdef class CleanedSegment(Segment):
    # Gives the files the suffix SWAP in place of CLEANED.
    cdef int begin_swap(self) except -1
    # Gives the files their names; those of the segments that they replace are free.
    cdef int end_swap(self) except -1
