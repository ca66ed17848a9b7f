# The C half of disk, for log and checkpoint: mapped bytes, and a file's descriptor behind a vtable.

from libc.stdint cimport int64_t, uint8_t


cdef class Mapping:
    """Read-only bytes that stay valid for as long as any slice of them lives."""
    cdef const uint8_t *data
    cdef readonly int64_t size      # bytes that may be read
    cdef readonly int64_t capacity  # bytes that are mapped: the file may grow up to here
    cdef void *_pages               # what munmap takes, or NULL where the bytes belong to _owner
    cdef object _owner
    cdef Py_ssize_t _shape[1]
    cdef Py_ssize_t _strides[1]

    # A memoryview of data[start : stop], which keeps this mapping; the caller has checked both.
    cdef object slice(self, int64_t start, int64_t stop)


cdef class MappedSlice:
    cdef Mapping _mapping
    cdef const uint8_t *_data
    cdef Py_ssize_t _size


# The bytes of any buffer as a Mapping that keeps the buffer.
cdef Mapping mapping_of_buffer(object buffer)


cdef class OsFile:
    cdef int _fd
    cdef readonly str path
    cdef readonly bint read_only
    cdef int64_t _size

    # Appends `size` bytes in one pwrite (more only where the kernel wrote less).
    cdef int append_bytes(self, const uint8_t *data, Py_ssize_t size) except -1
    # A mapping of `capacity` bytes, of which `size` may be read now and the rest once written.
    cdef Mapping map_ahead(self, int64_t size, int64_t capacity)
    cdef int _write(self, const uint8_t *data, Py_ssize_t size, int64_t position) except -1
    cdef int _check_open(self) except -1
    cdef int _check_writable(self) except -1
    cdef int _failed(self, str verb, int code) except -1
