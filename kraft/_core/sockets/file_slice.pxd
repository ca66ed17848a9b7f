# The C half of file_slice: the descriptor and the range of a slice.

from libc.stdint cimport int64_t


cdef class SharedFile:
    cdef int _fd
    cdef readonly str path


cdef class FileSlice:
    cdef readonly SharedFile file
    cdef readonly int64_t position
    cdef readonly int64_t size
