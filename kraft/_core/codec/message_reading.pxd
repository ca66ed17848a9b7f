# Reading by a schema, for metadata_codec; see message_reading.pyx.

from cpython.object cimport PyObject
from libc.stdint cimport uint8_t

from kraft._core.codec.message_schema cimport StructSchema


cdef struct Cursor:
    const uint8_t *start
    const uint8_t *at
    const uint8_t *end
    # The position of `start` in the caller's buffer, for error messages.
    Py_ssize_t position
    # The caller's buffer; borrowed.
    PyObject *source
    # The encoding is older than flexible versions.
    bint is_classic
    # Text that is not UTF-8 is read with U+FFFD in place of the malformed bytes.
    bint is_lenient


cdef int open_cursor(
    object buffer, Py_ssize_t position, object end, Py_buffer *view, Cursor *c
) except -1
cdef object corrupt(Cursor *c, const uint8_t *at, str reason, kind=*)
cdef int check_all_read(StructSchema schema, Cursor *c) except -1
cdef object decode_struct(StructSchema schema, int version, Cursor *c)
