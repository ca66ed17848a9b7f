# The bytes of one connection that are not a request yet; see incoming.pyx.

from libc.stdint cimport int32_t, int64_t, uint8_t

from kraft._core.sockets.request_memory cimport RequestMemory

cdef enum:
    # The bytes of a socket that are read at once, and the largest buffer that is not counted.
    SMALL_SIZE = 8 * 1024
    API_COUNT = 256

cdef enum ReceiveOutcome:
    RECEIVE_EMPTY = 0       # the socket has no more bytes now
    RECEIVE_FRAME = 1       # a whole frame is at the front
    RECEIVE_TURN_OVER = 2   # the bytes of this turn are read
    RECEIVE_END = 3         # the peer sends nothing more
    RECEIVE_FAILED = 4      # the connection is broken
    RECEIVE_TOO_LARGE = 5   # the frame at the front is larger than allowed
    RECEIVE_NO_MEMORY = 6   # others take the memory of large requests

cdef struct FrameLimits:
    int32_t largest         # of any frame
    bint has_apis           # whether `by_api` applies
    int64_t most_memory     # of all large requests together

cdef struct ApiLimits:
    int32_t unknown
    int32_t by_key[API_COUNT]

cdef struct Incoming:
    uint8_t *data           # NULL: no bytes
    Py_ssize_t capacity
    Py_ssize_t begin
    Py_ssize_t end
    int64_t counted         # bytes of RequestMemory that this buffer takes
    Py_ssize_t first_large  # the first capacity of the next large frame


# Reads until a whole frame is at the front, up to `most` bytes, which are added to `received`.
# `has_more` says whether the socket may have more bytes; `is_ending`: the end of the stream came.
cdef ReceiveOutcome incoming_receive(
    int fd, Incoming *one, const FrameLimits *limits, const ApiLimits *apis, void *memory,
    uint8_t *scratch, int64_t most, bint is_ending, bint *has_more,
    int64_t *received
) noexcept nogil
cdef void incoming_clear(Incoming *one, void *memory) noexcept nogil


cdef inline int64_t frame_size(const Incoming *one) noexcept nogil:
    """Return the size that the frame at the front claims, or -1 where it is not known yet."""
    cdef const uint8_t *start = one.data + one.begin
    if one.end - one.begin < 4:
        return -1
    return (<int64_t>start[0] << 24) | (start[1] << 16) | (start[2] << 8) | start[3]


cdef inline bint is_allowed(
    const Incoming *one, int64_t size, const FrameLimits *limits, const ApiLimits *apis
) noexcept nogil:
    """Return whether the frame at the front may have this size."""
    cdef const uint8_t *start = one.data + one.begin
    cdef int key
    cdef int64_t most = limits.largest
    if limits.has_apis and one.end - one.begin >= 6:
        key = (start[4] << 8) | start[5]
        most = min(most, apis.by_key[key] if key < API_COUNT else apis.unknown)
    return size <= most


cdef inline bint has_whole_frame(
    const Incoming *one, const FrameLimits *limits, const ApiLimits *apis
) noexcept nogil:
    """Return whether a whole, allowed frame is at the front."""
    cdef int64_t size = frame_size(one)
    return 0 <= size <= one.end - one.begin - 4 and is_allowed(one, size, limits, apis)
