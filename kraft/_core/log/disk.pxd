# The C half of disk, for logs and snapshots: mapped bytes, and OsFile's methods and descriptor.

from libc.stdint cimport int64_t, uint8_t


cdef class Mapping:
    """Read-only bytes that stay valid while any slice of them exists."""
    cdef const uint8_t *data
    cdef readonly int64_t size      # bytes that may be read
    cdef readonly int64_t capacity  # bytes that are mapped: the file may grow up to here
    cdef void *_pages               # for munmap, or NULL where the bytes belong to _owner
    cdef object _owner
    cdef Py_ssize_t _shape[1]
    cdef Py_ssize_t _strides[1]

    # Returns a memoryview of data[start : stop] that keeps this mapping; the caller checks both.
    cdef object slice(self, int64_t start, int64_t stop)


cdef class MappedSlice:
    cdef Mapping _mapping
    cdef const uint8_t *_data
    cdef Py_ssize_t _size


# Returns the bytes of any buffer as a Mapping that keeps the buffer.
cdef Mapping mapping_of_buffer(object buffer)


cdef class OsFile:
    cdef int _fd
    cdef readonly str path
    cdef readonly bint read_only
    cdef int64_t _size

    # Appends `size` bytes in one pwrite (more only if the kernel writes less).
    cdef int append_bytes(self, const uint8_t *data, Py_ssize_t size) except -1
    # Maps `capacity` bytes: `size` may be read now, the rest once they are written.
    cdef Mapping map_ahead(self, int64_t size, int64_t capacity)
    cdef int _write(self, const uint8_t *data, Py_ssize_t size, int64_t position) except -1
    cdef int _check_open(self) except -1
    cdef int _check_writable(self) except -1
    cdef int _failed(self, str verb, int code) except -1
