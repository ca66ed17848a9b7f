"""Handlers of APIs that the listener does not pass to the raft node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from kraft.protocol.headers import Api, RequestHeader


@dataclass(frozen=True, slots=True)
class Handler:
    """Answers one API: header, body and client address of a request -> body of its response."""

    api: Api
    answer: Callable[[RequestHeader, bytes | memoryview, str], Awaitable[bytes]]
    #: Without this request brokers or controllers are taken for dead: it never waits for a free
    #: place among others, and its connection ranks as that of a replica.
    keeps_alive: bool = False
