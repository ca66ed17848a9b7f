# Writing by a schema, for metadata_codec; see message_writing.pyx.

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t

from kraft._core.codec.message_schema cimport StructSchema


cdef struct Buffer:
    uint8_t *data
    Py_ssize_t size
    Py_ssize_t capacity
    # The encoding is older than flexible versions.
    bint is_classic
    # Borrowed: the list of segments before `data`, records among them. NULL: records are copied.
    PyObject *segments
    # The bytes of those segments.
    int64_t segments_size
    # `data` points here until the value outgrows it.
    uint8_t[1024] first


cdef void open_buffer(Buffer *b) noexcept
cdef void close_buffer(Buffer *b) noexcept
cdef int end_segment(Buffer *b) except -1
cdef int encode_struct(StructSchema schema, int version, object owner, Buffer *b) except -1
