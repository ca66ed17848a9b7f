# A response on its way out: segments of memory and of files; see outgoing.pyx.

from libc.stdint cimport int64_t, uint8_t

cdef enum SendOutcome:
    SEND_DONE = 0           # everything is sent
    SEND_FULL = 1           # the socket takes no more now
    SEND_TURN_OVER = 2      # the bytes of this turn are sent; there are more
    SEND_FAILED = 3         # the peer is gone
    SEND_NO_FILE = 4        # a file ended early or cannot be read

cdef struct Segment:
    const uint8_t *data     # in memory, also where a file is mapped; else NULL
    int fd                  # of the file that the segment is a part of, or -1
    int64_t position
    int64_t size            # bytes left to send

cdef struct Amount:
    int64_t size            # bytes
    int64_t memory          # those of them that are in memory
    int64_t slices          # segments of files in responses that are not sent completely

cdef struct Outgoing:
    Outgoing *next
    int count
    int slices              # the segments of files among them
    int first               # the first segment with bytes left
    bint has_unmapped       # a segment of a file is not in memory
    bint is_corked          # the kernel keeps what does not fill a packet
    void *references        # the Python object to release when all is sent, or NULL
    Segment *segments


cdef Outgoing *outgoing_new(int count, Py_ssize_t copied) noexcept nogil
cdef inline uint8_t *outgoing_copies(Outgoing *one) noexcept nogil:
    """Return the memory for the bytes that are copied into the response."""
    return <uint8_t *>(one.segments + one.count)

# Sends up to `most` bytes, and adds what is sent to `sent`.
cdef SendOutcome outgoing_send(
    int fd, Outgoing *one, int64_t most, Amount *sent
) noexcept nogil
# Whether sending the first `most` bytes does not wait for a device.
cdef bint outgoing_is_cached(const Outgoing *one, int64_t most) noexcept nogil
# Adds what is not sent yet.
cdef void outgoing_count(const Outgoing *one, Amount *unsent) noexcept nogil
