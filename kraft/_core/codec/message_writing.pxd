# Writing by a schema, for metadata_codec; see message_writing.pyx.

from libc.stdint cimport uint8_t

from kraft._core.codec.message_schema cimport StructSchema


cdef struct Buffer:
    uint8_t *data
    Py_ssize_t size
    Py_ssize_t capacity
    # The encoding is older than flexible versions.
    bint is_classic
    # `data` points here until the value outgrows it.
    uint8_t[1024] first


cdef void open_buffer(Buffer *b) noexcept
cdef void close_buffer(Buffer *b) noexcept
cdef int encode_struct(StructSchema schema, int version, object owner, Buffer *b) except -1
