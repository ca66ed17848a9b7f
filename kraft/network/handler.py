"""Handlers of APIs that the listener does not pass to the raft node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

from kraft._core.bytes.file_slice import FileSlice
from kraft.protocol.headers import Api, RequestHeader
from kraft.security.protocols import PeerIdentity


class ExpectedRequest(NamedTuple):
    """The body of a request that a peer will probably send, and of its response."""

    body: bytes
    answer: Sequence[bytes | memoryview | FileSlice]


class AnswersAhead(Protocol):
    """The answers to the requests that will probably follow one, from the same peer.

    A connection may give them without the handler, to requests that equal the expected ones but
    for their correlation ids. See `answers_ahead`.
    """

    def begin(self, most: int, withdraw: Callable[[], None]) -> Sequence[ExpectedRequest]:
        """Return up to ``most`` requests in their order; called at most once.

        If there are any, ``withdraw`` is called when an answer is not right any more: before the
        event loop does anything else.
        """

    def more(self, most: int) -> Sequence[ExpectedRequest]:
        """Return up to ``most`` requests that follow those of before; of no more if none do."""

    def answered(self, count: int) -> None:
        """Count the next answers, which were given."""

    def end(self) -> None:
        """Do not call ``withdraw`` any more: no further answer will be given."""


class HandlerAnswer(NamedTuple):
    """The body of a response; the connection's next request is read after ``throttle_ms``.

    A body of several pieces is sent in their order. Slices of files are sent without a copy of
    their bytes where the connection belongs to a data loop (`data_listener`). An empty body means
    that the request has no response at all (Produce with acks=0).
    """

    body: bytes | Sequence[bytes | memoryview | FileSlice]
    throttle_ms: int = 0
    #: Of a peer that will probably go on in the same way.
    ahead: AnswersAhead | None = None

    @property
    def pieces(self) -> Sequence[bytes | memoryview | FileSlice]:
        return (self.body,) if isinstance(self.body, bytes) else self.body


class Handler(NamedTuple):
    """Answers one API: header, body and sender of a request -> its response."""

    api: Api
    answer: Callable[[RequestHeader, bytes | memoryview, PeerIdentity], Awaitable[HandlerAnswer]]
    #: Without this request a broker is fenced or a controller counts as failed. It is therefore
    #: never queued behind other requests, and its connection has the priority of a replica's.
    keeps_alive: bool = False
    #: The request may wait some milliseconds while the node has nothing else to do, so that several
    #: are handled together.
    is_gathered: bool = False
