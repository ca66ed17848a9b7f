"""Receive size-delimited frames from non-blocking sockets, without the GIL.

The counterpart of ``kraft.network.framing`` for the connections of a `DataLoop`, with its rules:

- An idle connection has no buffer. Bytes arrive in the loop's scratch buffer, and move to one of at
  most `SMALL_SIZE` bytes.
- A larger frame has a buffer of its own, which holds nothing else. It grows with the bytes that
  arrive, and is counted in the listener's `RequestMemory`. The size that a frame claims never
  decides an allocation.

A size field with the highest bit set claims 2 GiB or more, above every limit. Used by `data_loop`.
"""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove

from kraft._core.sockets.request_memory cimport RequestMemory
from kraft._core.sockets.system cimport recv

cdef enum:
    # The first capacity of a large frame, and the largest one after another large frame; both with
    # the bytes of a message around a chunk of a round size.
    ENVELOPE_SIZE = 4096
    FIRST_LARGE = 64 * 1024 + ENVELOPE_SIZE
    MOST_FIRST_LARGE = 1024 * 1024 + ENVELOPE_SIZE


cdef void incoming_clear(Incoming *one, void *memory) noexcept nogil:
    """Free the buffer."""
    free(one.data)
    if one.counted:
        (<RequestMemory>memory).give_back_bytes(one.counted)
    one.data = NULL
    one.capacity = one.begin = one.end = 0
    one.counted = 0


cdef ReceiveOutcome incoming_receive(
    int fd, Incoming *one, const FrameLimits *limits, const ApiLimits *apis, void *memory,
    uint8_t *scratch, int64_t most, bint is_ending, bint *has_more,
    int64_t *received
) noexcept nogil:
    cdef Py_ssize_t now, room
    cdef int64_t size
    cdef uint8_t *target
    cdef ReceiveOutcome refused
    while True:
        size = frame_size(one)
        if size >= 0:
            if not is_allowed(one, size, limits, apis):
                return RECEIVE_TOO_LARGE
            if size <= one.end - one.begin - 4:
                return RECEIVE_FRAME
        if not has_more[0]:
            return RECEIVE_EMPTY
        if most <= 0:
            return RECEIVE_TURN_OVER
        if one.data == NULL:
            target, room = scratch, SMALL_SIZE
        else:
            refused = make_room(one, size, limits, memory)
            if refused:
                return refused
            target, room = one.data + one.end, one.capacity - one.end
        now = recv(fd, target, <size_t>room, 0)
        if now == 0:
            return RECEIVE_END
        if now < 0:
            if errno == EINTR:
                continue
            if errno != EAGAIN:
                return RECEIVE_FAILED
            has_more[0] = False
            return RECEIVE_EMPTY
        received[0] += now
        most -= now
        if one.data == NULL:
            one.data = <uint8_t *>malloc(<size_t>now)
            if one.data == NULL:
                return RECEIVE_NO_MEMORY
            memcpy(one.data, scratch, <size_t>now)
            one.capacity = now
        one.end += now
        # Less than asked for: the socket is empty, and the next byte will be another event. Only
        # the end of the stream may have come with the last event already.
        has_more[0] = is_ending or now == room


cdef ReceiveOutcome make_room(
    Incoming *one, int64_t size, const FrameLimits *limits, void *memory
) noexcept nogil:
    """Make room for more bytes of the frame at the front, whose size may be unknown (-1).

    Returns RECEIVE_NO_MEMORY where there is none, else RECEIVE_EMPTY.
    """
    cdef Py_ssize_t available = one.end - one.begin
    cdef Py_ssize_t wanted = <Py_ssize_t>size + 4 if size >= 0 else 4
    cdef Py_ssize_t capacity
    cdef uint8_t *data
    if wanted <= SMALL_SIZE:
        if one.begin:
            memmove(one.data, one.data + one.begin, <size_t>available)
            one.begin, one.end = 0, available
        capacity = SMALL_SIZE
    else:
        if one.counted and one.end < one.capacity:
            return RECEIVE_EMPTY
        capacity = max(one.first_large, FIRST_LARGE)
        capacity = min(wanted, max(capacity, 4 * available))
        if not (<RequestMemory>memory).take_bytes(capacity - one.counted, limits.most_memory):
            return RECEIVE_NO_MEMORY
        one.counted = capacity
        one.first_large = min(max(one.first_large, capacity), MOST_FIRST_LARGE)
    if capacity == one.capacity:
        return RECEIVE_EMPTY
    if one.begin:
        data = <uint8_t *>malloc(<size_t>capacity)
        if data != NULL:
            memcpy(data, one.data + one.begin, <size_t>available)
            free(one.data)
    else:
        data = <uint8_t *>realloc(one.data, <size_t>capacity)
    if data == NULL:
        return RECEIVE_NO_MEMORY
    one.data = data
    one.capacity = capacity
    one.begin, one.end = 0, available
    return RECEIVE_EMPTY
