# Parts that the hot RPC bodies share: the start of decoding and its errors, the leader in a
# response, and the sections that are encoded alike.

from libc.stdint cimport int32_t

from kraft._core.codec.rpc_cursor cimport Cursor, Span


cdef struct Leader:
    int32_t id
    int32_t epoch
    bint is_found           # one of the endpoints: host and port are set
    Span host
    int32_t port


cdef int open_cursor(object buffer, Py_ssize_t position, Py_buffer *view, Cursor *c) except -1
cdef int fail(Cursor *c, str what) except -1
cdef void take_endpoints(Cursor *c, bint is_fetch, Leader *leader) noexcept nogil
cdef object endpoint_of(Cursor *c, Leader *leader)

cdef int32_t records_size_of(Py_ssize_t size) except -1
cdef bytes endpoints_tag(int32_t node, tuple endpoint, bint is_fetch)
