"""Send responses of memory and parts of files on non-blocking sockets, without the GIL.

A response is one block of C memory: its segments, then the bytes that were copied into it.
Segments of memory next to each other leave in one sendmsg, those of mapped files among them; other
segments of files leave by sendfile. Over a network sendfile copies nothing. On one machine it takes
longer than a copy: for each page the kernel looks it up, and counts its users on both sides.

Where something follows a sendfile, the socket is corked until the response is sent: each sendfile
would end with a small packet, and the few bytes after the records of a fetch would have one of
their own. For 1 MiB there are 26 packets in both directions in place of 39.

Only the thread of a `DataLoop` changes a response after it was submitted. No segment is empty:
after the bytes before an empty one the kernel would wait for more. Used by `data_loop` and `mover`.
"""

from libc.errno cimport EAGAIN, EBADF, EFAULT, EINTR, EINVAL, EIO, EOPNOTSUPP, EOVERFLOW, errno
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport malloc
from libc.string cimport memset
from posix.types cimport off_t

from kraft._core.sockets.system cimport (
    IPPROTO_TCP,
    MSG_MORE,
    MSG_NOSIGNAL,
    RWF_NOWAIT,
    TCP_CORK,
    TMPFS_MAGIC,
    c_statfs,
    fstatfs,
    iovec,
    msghdr,
    preadv2,
    sendfile,
    sendmsg,
    setsockopt,
)

cdef enum:
    MOST_VECTORS = 64       # buffers in one sendmsg; the kernel's bound (IOV_MAX) is 1024


cdef Outgoing *outgoing_new(int count, Py_ssize_t copied) noexcept nogil:
    """Return a response without content, or NULL if memory is exhausted."""
    cdef Outgoing *one = <Outgoing *>malloc(
        sizeof(Outgoing) + <size_t>count * sizeof(Segment) + <size_t>copied
    )
    if one != NULL:
        one.next = NULL
        one.count = count
        one.slices = 0
        one.first = 0
        one.is_corked = one.has_unmapped = False
        one.references = NULL
        one.segments = <Segment *>(one + 1)
    return one


cdef SendOutcome outgoing_send(
    int fd, Outgoing *one, int64_t most, Amount *sent
) noexcept nogil:
    cdef Segment *segment
    cdef Py_ssize_t now
    cdef off_t position
    cdef int code
    if one.has_unmapped and not one.is_corked and (
        one.slices > 1 or one.segments[one.count - 1].data != NULL
    ):
        set_cork(fd, one, 1)
    while one.first < one.count:
        segment = &one.segments[one.first]
        if most <= 0:
            return SEND_TURN_OVER
        if segment.data != NULL:
            now = send_memory(fd, one, most)
        else:
            position = segment.position
            now = sendfile(fd, segment.fd, &position, <size_t>min(segment.size, most))
            if now == 0:
                set_cork(fd, one, 0)
                return SEND_NO_FILE
        if now < 0:
            code = errno
            if code == EINTR:
                continue
            if code == EAGAIN:
                return SEND_FULL
            if (
                segment.data == NULL and code in (EBADF, EINVAL, EIO, EOVERFLOW)
                # Of mapped bytes: the file was truncated, or cannot be read.
                or segment.data != NULL and code == EFAULT
            ):
                set_cork(fd, one, 0)
                return SEND_NO_FILE
            return SEND_FAILED
        sent.size += now
        most -= now
        if segment.data == NULL:
            segment.position += now
            segment.size -= now
            if segment.size == 0:
                one.first += 1
        else:
            sent.memory += advance(one, now)
    sent.slices += one.slices
    if one.is_corked:
        set_cork(fd, one, 0)
    return SEND_DONE


cdef void set_cork(int fd, Outgoing *one, int is_corked) noexcept nogil:
    """Have the kernel keep, or send, what does not fill a packet; other sockets send at once."""
    one.is_corked = is_corked
    setsockopt(fd, IPPROTO_TCP, TCP_CORK, &is_corked, sizeof(is_corked))


cdef Py_ssize_t send_memory(int fd, Outgoing *one, int64_t most) noexcept nogil:
    """Send up to ``most`` bytes of the segments in memory; return the sent bytes, or -1."""
    cdef iovec vectors[MOST_VECTORS]
    cdef msghdr message
    cdef int at = one.first
    memset(&message, 0, sizeof(message))
    message.msg_iov = vectors
    while (
        at < one.count and most > 0 and one.segments[at].data != NULL
        and message.msg_iovlen < MOST_VECTORS
    ):
        vectors[message.msg_iovlen].iov_base = <void *>one.segments[at].data
        vectors[message.msg_iovlen].iov_len = <size_t>min(one.segments[at].size, most)
        most -= one.segments[at].size
        message.msg_iovlen += 1
        at += 1
    # More follows at once: the kernel need not send a small packet for these bytes.
    return sendmsg(fd, &message, MSG_NOSIGNAL | (MSG_MORE if at < one.count else 0))


cdef int64_t advance(Outgoing *one, Py_ssize_t sent) noexcept nogil:
    """Drop this many sent bytes from the segments in memory; return those of no file."""
    cdef Segment *segment
    cdef int64_t part, memory = 0
    while sent > 0:
        segment = &one.segments[one.first]
        part = min(<int64_t>sent, segment.size)
        segment.data += part
        segment.size -= part
        sent -= <Py_ssize_t>part
        if segment.fd < 0:
            memory += part
        else:
            segment.position += part
        if segment.size == 0:
            one.first += 1
    return memory


cdef bint outgoing_is_cached(const Outgoing *one, int64_t most) noexcept nogil:
    """Return whether both ends of each part of a file are in memory.

    The kernel reads ahead, so that what is between them is there too, or soon.
    """
    cdef const Segment *segment
    cdef int64_t part
    cdef int at
    for at in range(one.first, one.count):
        segment = &one.segments[at]
        part = min(segment.size, most)
        if segment.fd >= 0 and not (
            is_cached(segment.fd, segment.position)
            and is_cached(segment.fd, segment.position + part - 1)
        ):
            return False
        most -= part
        if most <= 0:
            break
    return True


cdef bint is_cached(int fd, int64_t position) noexcept nogil:
    cdef uint8_t byte
    cdef iovec vector
    cdef c_statfs system
    vector.iov_base = &byte
    vector.iov_len = 1
    if preadv2(fd, &vector, 1, position, RWF_NOWAIT) == 1:
        return True
    # A file system in memory needs no such flag, and does not know it.
    return (
        errno == EOPNOTSUPP and fstatfs(fd, &system) == 0 and system.f_type == TMPFS_MAGIC
    )


cdef void outgoing_count(const Outgoing *one, Amount *unsent) noexcept nogil:
    cdef int at
    unsent.slices += one.slices
    for at in range(one.first, one.count):
        unsent.size += one.segments[at].size
        if one.segments[at].fd < 0:
            unsent.memory += one.segments[at].size
