# The C half of request_memory: counting without the GIL.

from libc.stdint cimport int64_t


cdef class RequestMemory:
    cdef int64_t _taken

    # Counts `more` bytes and returns True, or returns False where more than `most` would be taken.
    cdef bint take_bytes(self, int64_t more, int64_t most) noexcept nogil
    cdef void give_back_bytes(self, int64_t size) noexcept nogil
