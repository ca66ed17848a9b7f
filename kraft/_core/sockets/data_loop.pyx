"""The loop of a broker's plain connections: a thread without the GIL that moves their bytes.

The side of the event loop's thread, which holds the GIL; `mover` is the other thread, and says who
owns what. A `DataSocket` is one connection, and lives until the thread has reported it as lost.
Used by ``kraft.network.data_listener``. Linux only.
"""

import os

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.errno cimport errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free

cimport cython

from kraft._core.sockets.expected cimport ExpectedList, drop_expected, expected_of
from kraft._core.sockets.incoming cimport (
    API_COUNT,
    RECEIVE_EMPTY,
    RECEIVE_FRAME,
    SMALL_SIZE,
    FrameLimits,
    Incoming,
    ReceiveOutcome,
    frame_size,
    has_whole_frame,
    incoming_clear,
    incoming_receive,
)
from kraft._core.sockets.mover cimport (
    ABORT,
    EVENT_LOST,
    FINISH,
    Connection,
    Loop,
    is_above_full,
    kick,
    move,
    seconds,
    unlink,
    wake_up,
)
from kraft._core.sockets.outgoing cimport (
    SEND_DONE,
    Amount,
    Outgoing,
    SendOutcome,
    outgoing_count,
    outgoing_is_cached,
    outgoing_send,
)
from kraft._core.sockets.request_memory cimport RequestMemory
from kraft._core.sockets.responses cimport MOST_COPIED, release, response_of
from kraft._core.sockets.system cimport (
    EFD_CLOEXEC,
    EFD_NONBLOCK,
    EPOLL_CLOEXEC,
    EPOLL_CTL_ADD,
    EPOLLET,
    EPOLLIN,
    EPOLLOUT,
    EPOLLRDHUP,
    c_read,
    c_write,
    close,
    epoll_create1,
    epoll_ctl,
    epoll_event,
    eventfd,
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)

cdef enum:
    # The bytes of a response that this thread sends while the other wakes up.
    MOST_SENT_NOW = 256 * 1024
    # The parts of files in such a response: each takes some system calls.
    MOST_SLICES_NOW = 4
    # The bytes of the next request after which this thread leaves the rest to the other.
    MOST_RECEIVED_NOW = 32 * 1024

# What `DataSocket.events` says.
FRAME = 1
WRITABLE = 2
TOO_LARGE = 4
NO_MEMORY = 8
NO_FILE = 16
LOST = 32
FEW = 64


cdef class FrameBuffer:
    """The bytes of one large request; freed with the last view of them."""

    cdef uint8_t *_data
    cdef Py_ssize_t _size

    def __dealloc__(self):
        free(self._data)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self._data, self._size, 1, flags)


cdef class DataLoop:
    """See ``data_loop.pyi``."""

    cdef Loop _state
    cdef RequestMemory _memory
    cdef uint8_t _scratch[SMALL_SIZE]

    def __cinit__(self, RequestMemory memory not None, api_limits, int unknown_limit):
        cdef epoll_event event
        self._memory = memory
        self._state.memory = <void *>memory
        self._state.apis.unknown = unknown_limit
        for key in range(API_COUNT):
            self._state.apis.by_key[key] = api_limits.get(key, unknown_limit)
        pthread_mutex_init(&self._state.lock, NULL)
        self._state.poll = self._state.wake = self._state.signal = -1
        self._state.poll = epoll_create1(EPOLL_CLOEXEC)
        self._state.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
        self._state.signal = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
        # Edge-triggered: each write is an event, and nobody has to read the counter.
        event.events = EPOLLIN | EPOLLET
        event.data.ptr = NULL
        if (
            self._state.poll < 0 or self._state.wake < 0 or self._state.signal < 0
            or epoll_ctl(self._state.poll, EPOLL_CTL_ADD, self._state.wake, &event) < 0
        ):
            raise OSError(errno, os.strerror(errno))

    def __dealloc__(self):
        for fd in (self._state.poll, self._state.wake, self._state.signal):
            if fd >= 0:
                close(fd)
        pthread_mutex_destroy(&self._state.lock)

    def fileno(self):
        return self._state.signal

    @property
    def bytes_in(self):
        pthread_mutex_lock(&self._state.lock)
        count = self._state.bytes_in
        pthread_mutex_unlock(&self._state.lock)
        return count

    @property
    def bytes_out(self):
        pthread_mutex_lock(&self._state.lock)
        count = self._state.bytes_out
        pthread_mutex_unlock(&self._state.lock)
        return count

    def __len__(self):
        pthread_mutex_lock(&self._state.lock)
        count = self._state.connections
        pthread_mutex_unlock(&self._state.lock)
        return count

    # -- Python's side

    def add(
        self, int fd, owner, int largest, bint has_apis, int64_t most_memory, bint is_local=False
    ):
        cdef DataSocket socket = DataSocket.__new__(DataSocket)
        cdef Connection *one = <Connection *>calloc(1, sizeof(Connection))
        cdef epoll_event event
        cdef int code = 0
        cdef bint has_ended
        if one == NULL:
            close(fd)
            raise MemoryError
        one.fd = fd
        one.limits = FrameLimits(largest, has_apis, most_memory)
        one.is_local = is_local
        one.socket = <PyObject *>socket
        socket._one = one
        socket._loop = self
        socket.owner = owner
        event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET
        event.data.ptr = one
        Py_INCREF(socket)
        pthread_mutex_lock(&self._state.lock)
        has_ended = self._state.is_stopping
        if not has_ended:
            one.after = self._state.all
            if self._state.all != NULL:
                self._state.all.before = one
            self._state.all = one
            self._state.connections += 1
            # Under the lock: the thread may not report the connection before it is in the list.
            if epoll_ctl(self._state.poll, EPOLL_CTL_ADD, fd, &event) < 0:
                code = errno
                unlink(&self._state, one)
        if has_ended or code:
            one.is_lost = one.is_closing = True
        pthread_mutex_unlock(&self._state.lock)
        if has_ended or code:
            Py_DECREF(socket)
            if code:
                raise OSError(code, os.strerror(code))
            raise RuntimeError("the loop has stopped")
        return socket

    def take(self):
        cdef Connection *one
        cdef Connection *following
        cdef Outgoing *finished
        cdef Outgoing *sent
        cdef uint64_t count
        cdef DataSocket socket
        cdef list taken = []
        c_read(self._state.signal, &count, sizeof(count))
        pthread_mutex_lock(&self._state.lock)
        self._state.is_signalled = False
        finished = self._state.finished
        self._state.finished = NULL
        self._state.finished_count = 0
        one = self._state.ready
        self._state.ready = self._state.ready_last = NULL
        while one != NULL:
            following = one.next_ready
            one.next_ready = NULL
            one.is_ready = False
            socket = <DataSocket>one.socket
            socket.events = one.events
            one.events = 0
            taken.append(socket)
            one = following
        pthread_mutex_unlock(&self._state.lock)
        while finished != NULL:
            sent = finished
            finished = finished.next
            release(sent)
        for socket in taken:
            if socket.events & EVENT_LOST:
                socket._end()
                Py_DECREF(socket)
        return taken

    def stop(self):
        cdef uint64_t one = 1
        pthread_mutex_lock(&self._state.lock)
        self._state.is_stopping = True
        pthread_mutex_unlock(&self._state.lock)
        c_write(self._state.wake, &one, sizeof(one))

    def run(self):
        with nogil:
            move(&self._state)


# The end of a socket uses its loop: the garbage collector must not clear the reference before it.
@cython.no_gc_clear
cdef class DataSocket:
    """See ``data_loop.pyi``."""

    cdef Connection *_one
    cdef DataLoop _loop
    # To expect after the response that is written next.
    cdef ExpectedList _prepared
    cdef public object owner
    cdef readonly int events
    cdef readonly bint has_more

    def __dealloc__(self):
        cdef bint is_free
        if self._one == NULL:
            return
        self._end()
        pthread_mutex_lock(&self._loop._state.lock)
        # Its entry in the list `dirty` refers to it until the thread has seen it.
        is_free = not self._one.is_dirty
        self._one.is_orphan = True
        pthread_mutex_unlock(&self._loop._state.lock)
        if is_free:
            free(self._one)

    cdef void _end(self):
        """Free what a lost connection has: its bytes, its answers and its descriptor."""
        drop_expected(&self._one.expected)
        drop_expected(&self._prepared)
        incoming_clear(&self._one.incoming, <void *>self._loop._memory)
        if self._one.fd >= 0:
            close(self._one.fd)
            self._one.fd = -1

    @property
    def unsent(self):
        pthread_mutex_lock(&self._loop._state.lock)
        size = self._one.unsent.size
        pthread_mutex_unlock(&self._loop._state.lock)
        return size

    @property
    def frame_begun(self):
        pthread_mutex_lock(&self._loop._state.lock)
        begun = self._one.frame_begun
        pthread_mutex_unlock(&self._loop._state.lock)
        return begun or None

    @property
    def refused_size(self):
        return <int32_t>frame_size(&self._one.incoming)

    @property
    def is_closing(self):
        pthread_mutex_lock(&self._loop._state.lock)
        is_closing = self._one.is_closing
        pthread_mutex_unlock(&self._loop._state.lock)
        return is_closing

    def set_limits(self, int largest, bint has_apis, int64_t most_memory):
        pthread_mutex_lock(&self._loop._state.lock)
        self._one.limits = FrameLimits(largest, has_apis, most_memory)
        pthread_mutex_unlock(&self._loop._state.lock)

    # -- receiving

    def ask_frame(self):
        cdef bint has_frame
        pthread_mutex_lock(&self._loop._state.lock)
        has_frame = self._one.has_frame and not self._one.is_closing
        self._one.is_busy = has_frame
        pthread_mutex_unlock(&self._loop._state.lock)
        return has_frame

    def take_frame(self):
        cdef Incoming *incoming = &self._one.incoming
        cdef FrameBuffer large
        cdef int64_t counted = 0
        cdef Py_ssize_t begin, size
        if not self.ask_frame():
            return None
        self._drop_answers()
        size = <Py_ssize_t>frame_size(incoming)
        begin = incoming.begin + 4
        if incoming.counted:
            # Nothing else is in the buffer of a large frame.
            large = FrameBuffer.__new__(FrameBuffer)
            large._data = incoming.data
            large._size = incoming.capacity
            counted = incoming.counted
            incoming.data = NULL
            incoming.counted = 0
            incoming_clear(incoming, <void *>self._loop._memory)
            frame = memoryview(large)[begin:begin + size]
        else:
            frame = PyBytes_FromStringAndSize(<char *>incoming.data + begin, size)
            incoming.begin = begin + size
            if incoming.begin == incoming.end:
                incoming_clear(incoming, <void *>self._loop._memory)
        self.has_more = incoming.end > incoming.begin
        if not has_whole_frame(incoming, &self._one.limits, &self._loop._state.apis):
            self._receive_next()
        return frame, counted

    cdef void _receive_next(self):
        """Receive the next request where the other thread sleeps and its bytes are there.

        Waking the other thread, and being woken by it, would cost more than to receive a small
        request. Whatever else comes of it, the received bytes go back to the other thread, which
        looks at them again if it has to.
        """
        cdef Loop *loop = &self._loop._state
        cdef Connection *one = self._one
        cdef FrameLimits limits
        cdef ReceiveOutcome outcome = RECEIVE_EMPTY
        cdef int64_t received = 0
        cdef bint is_possible, has_more = True, must_wake = False
        pthread_mutex_lock(&loop.lock)
        # Nothing would announce the end of the stream again.
        is_possible = (
            loop.is_asleep and one.is_unread
            and not (one.is_end_announced or one.is_paused or one.is_closing)
        )
        if is_possible:
            # The other thread sets it again for bytes that come from now on.
            one.is_unread = False
        limits = one.limits
        pthread_mutex_unlock(&loop.lock)
        if is_possible:
            outcome = incoming_receive(
                one.fd, &one.incoming, &limits, &loop.apis, loop.memory, self._loop._scratch,
                MOST_RECEIVED_NOW, False, &has_more, &received,
            )
        pthread_mutex_lock(&loop.lock)
        loop.bytes_in += <uint64_t>received
        if outcome == RECEIVE_FRAME:
            one.is_unread |= has_more
        else:
            one.has_frame = False
            if is_possible and one.incoming.end > one.incoming.begin and one.frame_begun == 0:
                one.frame_begun = seconds()
            is_due = one.is_unread or outcome != RECEIVE_EMPTY
            if (is_due or self.has_more and not is_possible) and not one.is_lost:
                must_wake = kick(loop, one)
        pthread_mutex_unlock(&loop.lock)
        if must_wake:
            wake_up(loop)

    def pause_reading(self):
        pthread_mutex_lock(&self._loop._state.lock)
        self._one.is_paused = True
        pthread_mutex_unlock(&self._loop._state.lock)

    def resume_reading(self):
        cdef bint must_wake = False
        pthread_mutex_lock(&self._loop._state.lock)
        if self._one.is_paused and not self._one.is_lost:
            self._one.is_paused = False
            must_wake = kick(&self._loop._state, self._one)
        pthread_mutex_unlock(&self._loop._state.lock)
        if must_wake:
            wake_up(&self._loop._state)

    # -- sending

    def write(self, pieces):
        cdef Amount amount = Amount(0, 0, 0)
        cdef Outgoing *response = response_of(pieces, self._one.is_local, &amount)
        cdef bint is_small
        if response == NULL:
            return False
        is_small = amount.memory <= MOST_COPIED and response.slices <= MOST_SLICES_NOW
        if is_small and self._send_now(response):
            return False
        return self._submit(response)

    cdef bint _send_now(self, Outgoing *response):
        """Begin to send a response in this thread where the other sleeps and has nothing to send.

        Waking the other thread would cost as much as the system call that sends a small response.
        Of a larger one the peer receives the first bytes meanwhile, unless they have to be read
        from a device. Returns whether everything is sent.
        """
        cdef Loop *loop = &self._loop._state
        cdef bint is_possible
        cdef Amount sent = Amount(0, 0, 0)
        cdef SendOutcome outcome
        pthread_mutex_lock(&loop.lock)
        is_possible = loop.is_asleep and self._one.unsent.size == 0 and not self._one.is_closing
        pthread_mutex_unlock(&loop.lock)
        if not is_possible or not outgoing_is_cached(response, MOST_SENT_NOW):
            return False
        # The other thread sends nothing before this one submits a response. The GIL stays: the call
        # does not wait, and it could take milliseconds to get it back.
        outcome = outgoing_send(self._one.fd, response, MOST_SENT_NOW, &sent)
        pthread_mutex_lock(&loop.lock)
        loop.bytes_out += <uint64_t>sent.size
        if outcome == SEND_DONE:
            self._expect(&self._prepared)
        pthread_mutex_unlock(&loop.lock)
        if outcome == SEND_DONE:
            release(response)
        return outcome == SEND_DONE

    cdef bint _submit(self, Outgoing *response):
        """Have the other thread send a response; return whether the connection is full."""
        cdef Loop *loop = &self._loop._state
        cdef Connection *one = self._one
        cdef bint must_wake = False, is_full = False, is_dropped
        pthread_mutex_lock(&loop.lock)
        is_dropped = one.is_closing
        if not is_dropped:
            if one.submitted == NULL:
                one.submitted = response
            else:
                one.submitted_last.next = response
            one.submitted_last = response
            outgoing_count(response, &one.unsent)
            is_full = is_above_full(&one.unsent)
            if is_full:
                one.is_full = True
            else:
                self._expect(&self._prepared)
            must_wake = kick(loop, one)
        pthread_mutex_unlock(&loop.lock)
        if must_wake:
            wake_up(loop)
        if is_dropped:
            release(response)
        return is_full

    # -- answers to expected requests

    def prepare(self, requests):
        cdef ExpectedList found = expected_of(requests, self._one.is_local)
        drop_expected(&self._prepared)
        self._prepared = found

    def expect(self, requests):
        cdef ExpectedList found = expected_of(requests, self._one.is_local)
        cdef bint is_possible
        pthread_mutex_lock(&self._loop._state.lock)
        # What was prepared comes before it.
        is_possible = self._prepared.count == 0 and self._expect(&found)
        pthread_mutex_unlock(&self._loop._state.lock)
        drop_expected(&found)
        return is_possible

    cdef bint _expect(self, ExpectedList *more) noexcept:
        """Move answers behind those of before; return False if it is too late. Under the lock."""
        cdef Connection *one = self._one
        # A request that is there already belongs to Python's side, and others follow it.
        if one.has_frame or one.is_closing or one.is_end_announced:
            return False
        if more.count:
            if one.expected.count:
                one.expected.last.next = more.first
            else:
                one.expected.first = more.first
            one.expected.last = more.last
            one.expected.count += more.count
            one.few = one.expected.count // 2
            more[0] = ExpectedList(NULL, NULL, 0)
        return True

    def withdraw(self):
        self._drop_answers()
        return self.take_answered()

    def take_answered(self):
        pthread_mutex_lock(&self._loop._state.lock)
        answered = self._one.answered
        self._one.answered = 0
        pthread_mutex_unlock(&self._loop._state.lock)
        return answered

    cdef void _drop_answers(self):
        cdef ExpectedList expected
        pthread_mutex_lock(&self._loop._state.lock)
        expected = self._one.expected
        self._one.expected = ExpectedList(NULL, NULL, 0)
        pthread_mutex_unlock(&self._loop._state.lock)
        drop_expected(&expected)
        drop_expected(&self._prepared)

    # -- closing

    def abort(self):
        self._ask(ABORT)

    def close(self):
        self._ask(FINISH)

    cdef void _ask(self, int what):
        cdef bint must_wake = False
        pthread_mutex_lock(&self._loop._state.lock)
        if not self._one.is_lost:
            self._one.is_closing = True
            self._one.asked |= what
            must_wake = kick(&self._loop._state, self._one)
        pthread_mutex_unlock(&self._loop._state.lock)
        if must_wake:
            wake_up(&self._loop._state)
