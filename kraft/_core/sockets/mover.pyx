"""Move the bytes of connections between sockets, requests and responses, without the GIL.

The thread of a `DataLoop`. Two threads share a connection, and each field has one owner at a time:

- This thread waits with epoll, receives whole requests, and sends responses. It never takes the
  GIL, and makes no system call while it holds the lock but to signal the other.
- The event loop's thread, with the GIL, decides: it takes requests, submits responses, mutes and
  closes connections (`data_loop`).

They meet under one mutex. Connections with something to do for this thread are in the list
``dirty``, those with something to report in the list ``ready``; an eventfd wakes the other side
only when it waits. At most one request is between the two: once a whole frame is there, the
received bytes belong to Python's side (``has_frame``), and this thread reads no more until that
side has taken it, and received the next one where this thread sleeps and its bytes are there.
Until that side asks for the next one (``is_busy``) none is reported: under load it asks after each
response, and no signal is needed.

Where Python's side knows what a peer will ask next, it leaves the answers here (``expected``). A
request that equals the first of them but for its correlation id is answered by this thread, and
Python's side learns of it later; another one is reported as ever. Once half of the answers are
given this thread reports it, and Python's side leaves more behind them. Taking a request withdraws
the answers that were not given: while Python's side has a request, nothing is expected.

This thread reports a connection as lost and does not touch it again. Only then Python's side closes
the descriptor: its number cannot come to mean another socket while one of the threads uses it. A
response with references is released by Python's side soon after it is sent.

Epoll is edge-triggered: no system call per request changes the awaited events. Linux only.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from kraft._core.sockets.expected cimport Expected
from kraft._core.sockets.incoming cimport (
    RECEIVE_EMPTY,
    RECEIVE_END,
    RECEIVE_FAILED,
    RECEIVE_FRAME,
    RECEIVE_NO_MEMORY,
    RECEIVE_TOO_LARGE,
    FrameLimits,
    ReceiveOutcome,
    frame_size,
    incoming_clear,
    incoming_receive,
)
from kraft._core.sockets.outgoing cimport (
    SEND_DONE,
    SEND_FAILED,
    SEND_FULL,
    SEND_NO_FILE,
    SEND_TURN_OVER,
    Amount,
    Outgoing,
    SendOutcome,
    outgoing_copies,
    outgoing_send,
)
from kraft._core.sockets.system cimport (
    EPOLL_CTL_DEL,
    EPOLLERR,
    EPOLLHUP,
    EPOLLIN,
    EPOLLOUT,
    EPOLLRDHUP,
    SIG_BLOCK,
    SIG_SETMASK,
    c_write,
    epoll_ctl,
    epoll_event,
    epoll_wait,
    pthread_mutex_lock,
    pthread_mutex_unlock,
    pthread_sigmask,
    sigfillset,
    sigset_t,
)

cdef enum:
    EVENTS_AT_ONCE = 256
    # The bytes of one connection before others have their turn.
    SEND_TURN = 2 * 1024 * 1024
    RECEIVE_TURN = 256 * 1024
    # Sent responses and their slices whose references wait for the next event of a connection.
    MOST_FINISHED = 64
    # The positions of the correlation id in a request, without its size field, and in a response,
    # with it; and its size.
    CORRELATION = 4
    CORRELATION_SIZE = 4


cdef double seconds() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <double>now.tv_sec + <double>now.tv_nsec * 1e-9


cdef bint kick(Loop *loop, Connection *one) noexcept nogil:
    """Have the thread serve a connection; return whether it must be woken. Under the lock."""
    cdef bint is_asleep = loop.is_asleep
    if not one.is_dirty:
        one.is_dirty = True
        one.next_dirty = NULL
        if loop.dirty == NULL:
            loop.dirty = one
        else:
            loop.dirty_last.next_dirty = one
        loop.dirty_last = one
    loop.is_asleep = False
    return is_asleep


cdef void wake_up(Loop *loop) noexcept nogil:
    cdef uint64_t one = 1
    c_write(loop.wake, &one, sizeof(one))


cdef void move(Loop *loop) noexcept nogil:
    cdef epoll_event events[EVENTS_AT_ONCE]
    cdef Connection *work
    cdef Connection *following
    cdef sigset_t signals, old
    cdef bint is_idle, is_stopping
    cdef int count, at
    # Signals go to Python's threads; a broken pipe is an error of sendfile.
    sigfillset(&signals)
    pthread_sigmask(SIG_BLOCK, &signals, &old)
    loop.now = seconds()
    while True:
        pthread_mutex_lock(&loop.lock)
        work = loop.dirty
        loop.dirty = loop.dirty_last = NULL
        is_stopping = loop.is_stopping
        pthread_mutex_unlock(&loop.lock)
        while work != NULL:
            following = work.next_dirty
            serve(loop, work, 0, True)
            work = following
        if is_stopping:
            break
        pthread_mutex_lock(&loop.lock)
        is_idle = loop.dirty == NULL and not loop.is_stopping
        loop.is_asleep = is_idle
        pthread_mutex_unlock(&loop.lock)
        count = epoll_wait(loop.poll, events, EVENTS_AT_ONCE, -1 if is_idle else 0)
        if is_idle:
            pthread_mutex_lock(&loop.lock)
            loop.is_asleep = False
            pthread_mutex_unlock(&loop.lock)
        loop.now = seconds()
        for at in range(count):
            if events[at].data.ptr != NULL:
                serve(loop, <Connection *>events[at].data.ptr, events[at].events, False)
    lose_all(loop)
    pthread_sigmask(SIG_SETMASK, &old, NULL)


cdef void lose_all(Loop *loop) noexcept nogil:
    cdef Connection *one
    cdef Connection *following
    while True:
        pthread_mutex_lock(&loop.lock)
        one = loop.all
        pthread_mutex_unlock(&loop.lock)
        if one == NULL:
            break
        lose(loop, one)
    pthread_mutex_lock(&loop.lock)
    one = loop.dirty
    loop.dirty = loop.dirty_last = NULL
    while one != NULL:
        following = one.next_dirty
        one.is_dirty = False
        if one.is_orphan:
            free(one)
        one = following
    pthread_mutex_unlock(&loop.lock)


cdef void serve(Loop *loop, Connection *one, uint32_t events, bint is_dirty) noexcept nogil:
    """Do what the connection can do now: send, receive, close; report it."""
    cdef FrameLimits limits
    cdef int asked
    cdef bint may_receive, may_send, is_again, is_drained
    cdef bint is_answered = False, must_signal = False
    cdef Amount sent = Amount(0, 0, 0)
    cdef int64_t received = 0
    cdef SendOutcome sending = SEND_DONE
    cdef ReceiveOutcome receiving = RECEIVE_EMPTY
    cdef int report = 0
    cdef Outgoing *finished = NULL

    pthread_mutex_lock(&loop.lock)
    if is_dirty:
        one.is_dirty = False
        if one.is_lost:
            pthread_mutex_unlock(&loop.lock)
            if one.is_orphan:
                free(one)
            return
    if one.submitted != NULL:
        if one.sending == NULL:
            one.sending = one.submitted
        else:
            one.sending_last.next = one.submitted
        one.sending_last = one.submitted_last
        one.submitted = one.submitted_last = NULL
    asked = one.asked
    may_receive = not (one.has_frame or one.is_paused or asked)
    limits = one.limits
    pthread_mutex_unlock(&loop.lock)

    if events & (EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP):
        one.is_readable = True
    if events & (EPOLLRDHUP | EPOLLERR | EPOLLHUP):
        one.is_ending = True
    if events & EPOLLOUT:
        one.is_writable = True
    if asked & ABORT or (events & (EPOLLERR | EPOLLHUP) and not may_receive):
        lose(loop, one)
        return

    may_send = one.is_writable and not one.is_stuck
    if may_send:
        send(one, &finished, &sending, &sent)
    # Also the bytes behind a request that Python's side has taken.
    if (
        may_receive and (one.is_readable or one.incoming.data != NULL) and not one.is_over
        and sending != SEND_FAILED
    ):
        receiving = incoming_receive(
            one.fd, &one.incoming, &limits, &loop.apis, loop.memory, loop.scratch,
            RECEIVE_TURN, one.is_ending, &one.is_readable, &received,
        )
        if receiving == RECEIVE_FRAME:
            is_answered = answer_expected(loop, one)
            if not is_answered:
                report |= EVENT_FRAME
            elif may_send and sending == SEND_DONE:
                send(one, &finished, &sending, &sent)
        elif receiving == RECEIVE_TOO_LARGE:
            one.is_over = True
            report |= EVENT_TOO_LARGE
        elif receiving == RECEIVE_NO_MEMORY:
            one.is_over = True
            report |= EVENT_NO_MEMORY
        elif receiving == RECEIVE_END:
            one.is_over = True
    if sending == SEND_FULL:
        one.is_writable = False
    elif sending == SEND_NO_FILE:
        one.is_stuck = True
        report |= EVENT_NO_FILE

    pthread_mutex_lock(&loop.lock)
    loop.bytes_in += <uint64_t>received
    loop.bytes_out += <uint64_t>sent.size
    one.unsent.size -= sent.size
    one.unsent.memory -= sent.memory
    one.unsent.slices -= sent.slices
    one.is_unread = one.is_readable and not one.is_over
    one.is_end_announced = one.is_ending
    if report & EVENT_FRAME:
        one.has_frame = True
        if one.is_busy:
            report &= ~EVENT_FRAME
    if is_answered and one.expected.count <= one.few:
        one.few = -1
        report |= EVENT_FEW
    if receiving == RECEIVE_END:
        # As asyncio's transports: what is written is sent, then the connection is closed.
        one.is_closing = True
        one.asked |= FINISH
    if is_answered or one.has_frame or one.incoming.end == one.incoming.begin:
        one.frame_begun = 0
    elif one.frame_begun == 0:
        one.frame_begun = loop.now
    is_drained = (
        one.unsent.memory <= FULL_MEMORY // DRAINED_PART
        and one.unsent.size <= FULL_FILES // DRAINED_PART
        and one.unsent.slices <= FULL_SLICES // DRAINED_PART
    )
    if one.is_full and is_drained:
        one.is_full = False
        report |= EVENT_WRITABLE
    asked = one.asked
    # No event comes for the bytes behind a request that was answered here.
    is_again = sending == SEND_TURN_OVER or (
        (one.is_unread or is_answered and one.incoming.data != NULL)
        and not (one.has_frame or one.is_paused or asked)
    )
    if finished != NULL:
        keep_finished(loop, finished)
        # A signal wakes a thread that may have nothing else to do.
        must_signal = loop.finished_count >= MOST_FINISHED and must_signal_now(loop)
    if report:
        must_signal |= report_events(loop, one, report)
    if is_again:
        kick(loop, one)
    is_drained = one.sending == NULL and one.submitted == NULL
    pthread_mutex_unlock(&loop.lock)
    if must_signal:
        signal_now(loop)
    if (
        sending == SEND_FAILED or receiving == RECEIVE_FAILED
        or asked & FINISH and is_drained
    ):
        lose(loop, one)


cdef void send(
    Connection *one, Outgoing **finished, SendOutcome *outcome, Amount *sent
) noexcept nogil:
    """Send responses in order; put those with references that are sent before ``finished``."""
    cdef Outgoing *first
    while one.sending != NULL:
        outcome[0] = outgoing_send(one.fd, one.sending, SEND_TURN - sent.size, sent)
        if outcome[0] != SEND_DONE:
            break
        first = one.sending
        one.sending = first.next
        if first.references == NULL:
            free(first)
        else:
            first.next = finished[0]
            finished[0] = first


cdef bint answer_expected(Loop *loop, Connection *one) noexcept nogil:
    """Queue the answer to the request at the front if it is the expected one; drop the request.

    Returns False, and changes nothing, for another request; also where responses of before are in
    the way: Python's side then waits for the peer, and bounds that time.
    """
    cdef Expected *first
    cdef Amount unsent
    cdef const uint8_t *request
    cdef Py_ssize_t rest
    if one.incoming.counted:
        return False
    request = one.incoming.data + one.incoming.begin + sizeof(int32_t)
    pthread_mutex_lock(&loop.lock)
    first = one.expected.first
    if first == NULL or first.size != frame_size(&one.incoming):
        pthread_mutex_unlock(&loop.lock)
        return False
    rest = CORRELATION + CORRELATION_SIZE
    unsent.size = one.unsent.size + first.amount.size
    unsent.memory = one.unsent.memory + first.amount.memory
    unsent.slices = one.unsent.slices + first.amount.slices
    if (
        one.submitted != NULL or is_above_full(&unsent)
        or memcmp(request, first.request, CORRELATION)
        or memcmp(request + rest, first.request + rest, <size_t>(first.size - rest))
    ):
        pthread_mutex_unlock(&loop.lock)
        return False
    one.expected.first = first.next
    one.expected.count -= 1
    one.answered += 1
    one.unsent = unsent
    pthread_mutex_unlock(&loop.lock)
    memcpy(outgoing_copies(first.answer) + CORRELATION, request + CORRELATION, CORRELATION_SIZE)
    if one.sending == NULL:
        one.sending = first.answer
    else:
        one.sending_last.next = first.answer
    one.sending_last = first.answer
    free(first)
    one.incoming.begin += <Py_ssize_t>sizeof(int32_t) + <Py_ssize_t>frame_size(&one.incoming)
    if one.incoming.begin == one.incoming.end:
        incoming_clear(&one.incoming, loop.memory)
    return True


cdef void lose(Loop *loop, Connection *one) noexcept nogil:
    """Stop watching a connection, and report it as lost; the thread is done with it."""
    cdef epoll_event event
    cdef Outgoing *unsent
    cdef bint must_signal
    epoll_ctl(loop.poll, EPOLL_CTL_DEL, one.fd, &event)
    pthread_mutex_lock(&loop.lock)
    unlink(loop, one)
    one.is_lost = one.is_closing = True
    one.unsent = Amount(0, 0, 0)
    if one.sending == NULL:
        one.sending = one.submitted
    else:
        one.sending_last.next = one.submitted
    one.submitted = one.submitted_last = NULL
    unsent = one.sending
    one.sending = NULL
    if unsent != NULL:
        keep_finished(loop, unsent)
    must_signal = report_events(loop, one, EVENT_LOST)
    pthread_mutex_unlock(&loop.lock)
    if must_signal:
        signal_now(loop)


cdef void unlink(Loop *loop, Connection *one) noexcept nogil:
    """Remove a connection from the list of all. Under the lock."""
    if one.before != NULL:
        one.before.after = one.after
    else:
        loop.all = one.after
    if one.after != NULL:
        one.after.before = one.before
    loop.connections -= 1


cdef void keep_finished(Loop *loop, Outgoing *first) noexcept nogil:
    """Keep responses until Python's side releases them. Under the lock."""
    cdef Outgoing *last = first
    loop.finished_count += 1 + last.slices
    while last.next != NULL:
        last = last.next
        loop.finished_count += 1 + last.slices
    last.next = loop.finished
    loop.finished = first


cdef bint report_events(Loop *loop, Connection *one, int events) noexcept nogil:
    """Report events to Python's side; return whether to signal. Under the lock."""
    one.events |= events
    if not one.is_ready:
        one.is_ready = True
        one.next_ready = NULL
        if loop.ready == NULL:
            loop.ready = one
        else:
            loop.ready_last.next_ready = one
        loop.ready_last = one
    return must_signal_now(loop)


cdef bint must_signal_now(Loop *loop) noexcept nogil:
    if loop.is_signalled:
        return False
    loop.is_signalled = True
    return True


cdef void signal_now(Loop *loop) noexcept nogil:
    cdef uint64_t one = 1
    c_write(loop.signal, &one, sizeof(one))
