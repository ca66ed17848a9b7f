"""Answers ahead: a connection leaves the answers to a peer's next requests to its data loop.

A handler that can foresee requests gives `AnswersAhead` with its answer. `RunAhead` has the loop's
thread give the first few from the moment on at which that answer is written. Each time half of them
are used, it leaves more behind them: twice as many as before, up to a bound. So Python's side runs
once for many requests, and beside the sending of answers, not between them.

The run ends with another request, when an answer is withdrawn, and at the second check of the
connection's time that an answer sees. Given answers are counted each time that Python's side runs.
Called by `data_connection`, on the event loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from kraft._core.bytes.file_slice import FileSlice, size_of
from kraft._core.sockets.data_loop import DataSocket
from kraft.errors import NONE, StorageError
from kraft.network.handler import AnswersAhead, ExpectedRequest
from kraft.network.traffic import ListenerTraffic, Traffic
from kraft.protocol.headers import RequestHeader, response_header

#: The answers of a connection's first run, the most at the begin of any run, before which the peer
#: waits, and the most of all. Python's caches are cold each time: with 64 in place of 32 it takes a
#: sixth less CPU for a fetch of 1 MiB; with 128 it takes as much as with 64.
_FIRST, _MOST_AT_ONCE, _MOST = 2, 4, 64
#: The most requests that are answered without a run, after runs of which nothing was used.
_LONGEST_PAUSE = 64


class RunAhead:
    """The answers ahead of one connection."""

    def __init__(self, socket: DataSocket, traffic: Traffic, listener: ListenerTraffic) -> None:
        self._socket = socket
        self._traffic = traffic
        self._listener = listener
        self._ahead: AnswersAhead | None = None
        self._header: RequestHeader | None = None
        #: The sizes of the requests that were not answered yet and of their responses.
        self._sizes: deque[tuple[int, int]] = deque()
        #: So many answers are left at most.
        self._count = _FIRST
        #: Answers of this run that were given.
        self._used = 0
        #: Those of them at the last check of the connection's time, and all there were then.
        self._checked_used = self._checked = 0
        #: Requests without a run after one that was of no use, and how many of them are left.
        self._pause = self._pause_left = 0
        #: What precedes the body in each request.
        self._start = b""

    def begin(self, ahead: AnswersAhead, header: RequestHeader, start: bytes) -> None:
        """Leave answers to the loop, which begins with them once this request is answered.

        ``start`` is what precedes the body in each request.
        """
        if self._pause_left:
            self._pause_left -= 1
            return
        foreseen = ahead.begin(min(self._count, _MOST_AT_ONCE), self.end)
        if not foreseen:
            return
        self._ahead, self._header, self._start = ahead, header, start
        self._used = self._checked_used = self._checked = 0
        try:
            self._socket.prepare(self._expected(foreseen))
        except (StorageError, ValueError):
            # A file was closed, or the request is too large.
            self.end()

    def go_on(self) -> None:
        """Leave more answers to the loop, behind those that it has not given yet."""
        if self._ahead is None:
            return
        self._note(self._ahead, self._socket.take_answered())
        self._count = min(2 * self._count, _MOST)
        foreseen = self._ahead.more(self._count - len(self._sizes))
        try:
            # Where it is too late, the request that has come ends the run.
            self._socket.expect(self._expected(foreseen))
        except (StorageError, ValueError):
            self.end()

    def note(self) -> bool:
        """Count the given answers; return if there are any since the last call.

        Called in each check of the connection's time. Ends the run where an answer from before the
        last check is left.
        """
        if self._ahead is None:
            return False
        self._note(self._ahead, self._socket.take_answered())
        is_active = self._used > self._checked_used
        if self._used < self._checked:
            self.end()
        self._checked_used, self._checked = self._used, self._used + len(self._sizes)
        return is_active

    def end(self) -> None:
        """Withdraw the answers that were not given."""
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return
        self._note(ahead, self._socket.withdraw())
        ahead.end()
        if self._used:
            self._count = min(self._used if self._sizes else 2 * self._used, _MOST)
            self._pause = 0
        else:
            self._pause = min(2 * self._pause + 1, _LONGEST_PAUSE)
        self._pause_left = self._pause
        self._sizes.clear()

    def _expected(
        self, foreseen: Sequence[ExpectedRequest]
    ) -> list[tuple[bytes, list[bytes | memoryview | FileSlice]]]:
        """Return whole requests and responses, and note their sizes."""
        header = self._header
        assert header is not None
        expected = []
        heads: dict[int, bytes] = {}
        for body, answer in foreseen:
            size = sum(map(size_of, answer))
            head = heads.get(size)
            if head is None:
                head = heads[size] = response_header(header.api, header.version, 0, size)
            expected.append((self._start + body, [head, *answer]))
            self._sizes.append((len(self._start) + len(body), size))
        return expected

    def _note(self, ahead: AnswersAhead, count: int) -> None:
        if not count:
            return
        header = self._header
        assert header is not None
        self._used += count
        ahead.answered(count)
        self._traffic.errors[header.api.name, NONE] += count
        for _ in range(count):
            # The loop's thread answers within microseconds.
            self._traffic.note(self._listener, header, *self._sizes.popleft(), 0.0)
