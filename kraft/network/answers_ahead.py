"""Answers ahead: a connection leaves the answers to a peer's next requests to its data loop.

A handler that can foresee requests gives `AnswersAhead` with its answer. `RunAhead` asks for as
many as the peer has used so far, has the loop's thread give them, and counts those that were given:
when the peer sends another request, when an answer is withdrawn, and in each check of the
connection's time. No answer is left longer than two such checks.

Called by `data_connection`, on the event loop.
"""

from __future__ import annotations

from kraft._core.bytes.file_slice import size_of
from kraft._core.sockets.data_loop import DataSocket
from kraft.errors import NONE, StorageError
from kraft.network.handler import AnswersAhead
from kraft.network.traffic import ListenerTraffic, Traffic
from kraft.protocol.headers import RequestHeader, response_header

#: The answers of a connection's first run, and the most of any run. With 32 of 1 MiB the handler's
#: time is a few per cent of that of sending.
_FIRST, _MOST = 2, 32
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
        #: The sizes of the requests that were not answered yet and of their responses, in reverse.
        self._sizes: list[tuple[int, int]] = []
        self._count = _FIRST
        #: Answers of this run that were given.
        self._used = 0
        #: Requests without a run after one that was of no use, and how many of them are left.
        self._pause = self._pause_left = 0
        #: Whether the connection's time was checked during this run.
        self._is_old = False

    def begin(self, ahead: AnswersAhead, header: RequestHeader, start: bytes) -> None:
        """Leave answers to the loop; ``start`` is what precedes the body in each request."""
        if self._pause_left:
            self._pause_left -= 1
            return
        foreseen = ahead.begin(self._count, self.end)
        if not foreseen:
            return
        self._ahead, self._header = ahead, header
        self._used, self._is_old = 0, False
        expected, sizes = [], []
        for body, answer in foreseen:
            size = sum(map(size_of, answer))
            head = response_header(header.api, header.version, 0, size)
            expected.append((start + body, [head, *answer]))
            sizes.append((len(start) + len(body), size))
        self._sizes = sizes[::-1]
        try:
            is_expected = self._socket.expect(expected)
        except (StorageError, ValueError):
            # A file was closed, or the request is too large.
            is_expected = False
        if not is_expected:
            self.end()

    def note(self) -> bool:
        """Count the requests that the loop answered since the last call; return if there are any.

        Ends a run that the last check of the connection's time has seen.
        """
        if self._ahead is None:
            return False
        used = self._used
        if self._is_old:
            self.end()
        else:
            self._is_old = True
            self._note(self._ahead, self._socket.take_answered())
        return self._used > used

    def end(self) -> None:
        """Withdraw the answers that were not given."""
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return
        self._note(ahead, self._socket.withdraw())
        ahead.end()
        if self._used:
            self._count = self._used if self._sizes else min(2 * self._used, _MOST)
            self._pause = 0
        else:
            self._pause = min(2 * self._pause + 1, _LONGEST_PAUSE)
        self._pause_left = self._pause
        self._sizes = []

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
            self._traffic.note(self._listener, header, *self._sizes.pop(), 0.0)
