# The connections of a DataLoop and the thread that moves their bytes; see mover.pyx.

from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint64_t

from kraft._core.sockets.expected cimport ExpectedList
from kraft._core.sockets.incoming cimport SMALL_SIZE, ApiLimits, FrameLimits, Incoming
from kraft._core.sockets.outgoing cimport Amount, Outgoing
from kraft._core.sockets.system cimport pthread_mutex_t

# What a connection reports.
cdef enum:
    EVENT_FRAME = 1
    EVENT_WRITABLE = 2
    EVENT_TOO_LARGE = 4
    EVENT_NO_MEMORY = 8
    EVENT_NO_FILE = 16
    EVENT_LOST = 32
    EVENT_FEW = 64

cdef enum:
    # A connection is full above one of these unsent amounts, until it has at most a part of each.
    FULL_MEMORY = 64 * 1024
    FULL_FILES = 2 * 1024 * 1024
    FULL_SLICES = 16
    DRAINED_PART = 4
    # What Python's side asks for.
    ABORT = 1
    FINISH = 2

cdef struct Connection:
    int fd
    PyObject *socket            # the DataSocket; the loop has a reference until it is lost
    bint is_local               # the peer is on this machine; never changes
    # The thread's alone.
    Outgoing *sending
    Outgoing *sending_last
    bint is_readable            # the socket may have bytes, or its end
    bint is_writable
    bint is_ending              # the peer's end of the stream has been announced
    bint is_over                # nothing more is received
    bint is_stuck               # nothing more is sent: a file failed
    # Of Python's side while `has_frame`, else the thread's.
    Incoming incoming
    # Under the lock.
    bint has_frame
    bint is_busy                # Python's side asks for the next frame: it is not reported
    bint is_unread              # there may be bytes in the socket that nobody has received
    bint is_end_announced       # as `is_ending`
    bint is_paused
    bint is_closing
    bint is_full
    bint is_lost
    bint is_orphan              # its DataSocket is gone: free it with its entry in `dirty`
    bint is_dirty
    bint is_ready
    int asked                   # ABORT, FINISH
    int events
    Amount unsent
    double frame_begun          # 0: there is no incomplete frame
    FrameLimits limits
    Outgoing *submitted
    Outgoing *submitted_last
    ExpectedList expected       # the answers to the next requests
    int few                     # report that no more than these are left; -1: it is reported
    int64_t answered            # how many of them were given since Python's side asked
    Connection *next_dirty
    Connection *next_ready
    Connection *before          # in the list of all connections
    Connection *after

cdef struct Loop:
    pthread_mutex_t lock
    int poll
    int wake                    # wakes the thread
    int signal                  # wakes the event loop
    void *memory                # a RequestMemory
    ApiLimits apis
    uint8_t scratch[SMALL_SIZE]
    double now                  # the thread's
    # Under the lock.
    bint is_stopping
    bint is_asleep              # the thread waits, or is about to
    bint is_signalled           # the event loop will take what is reported
    Connection *dirty
    Connection *dirty_last
    Connection *ready
    Connection *ready_last
    Connection *all
    Outgoing *finished          # sent, with references
    int finished_count          # with their slices
    uint64_t bytes_in
    uint64_t bytes_out
    uint64_t connections


# The thread: moves bytes until `is_stopping`, then reports every connection as lost.
cdef void move(Loop *loop) noexcept nogil
cdef double seconds() noexcept nogil
# Whether so much unsent makes a connection full.
cdef inline bint is_above_full(const Amount *unsent) noexcept nogil:
    return (
        unsent.memory > FULL_MEMORY or unsent.size > FULL_FILES or unsent.slices > FULL_SLICES
    )

# For Python's side, under the lock.
cdef bint kick(Loop *loop, Connection *one) noexcept nogil
cdef void unlink(Loop *loop, Connection *one) noexcept nogil
# Without the lock, where `kick` returned True.
cdef void wake_up(Loop *loop) noexcept nogil
