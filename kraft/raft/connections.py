"""Connections of a raft node to other nodes: requests in flight, timeouts and backoff.

`NodeState.send_request` sends one request at a time to each node, unless the caller allows more.
A request without a response is given up after the request timeout; after a failure nothing is sent
to that node for the retry backoff. Source: Kafka's ``RequestManager``.
"""

from __future__ import annotations

from typing import NamedTuple

from kraft.raft.rpc import Request

NEVER = float("inf")


class InFlight(NamedTuple):
    """A request that waits for its response."""

    destination: int
    request: Request
    deadline_ms: float


class ConnectionState:
    """The state of the connection to one other node."""

    __slots__ = ("backoff_until_ms", "has_timed_out", "in_flight")

    def __init__(self) -> None:
        #: The number of requests that wait for their responses.
        self.in_flight = 0
        self.backoff_until_ms = 0.0
        self.has_timed_out = False


class Connections:
    """The connections of one node by destination id, and its requests in flight by correlation."""

    __slots__ = (
        "_peers",
        "_request_timeout_ms",
        "_retry_backoff_ms",
        "in_flight",
        "last_correlation",
    )

    def __init__(self, request_timeout_ms: int, retry_backoff_ms: int) -> None:
        self._request_timeout_ms = request_timeout_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._peers: dict[int, ConnectionState] = {}
        #: The requests that wait for their responses, by correlation.
        self.in_flight: dict[int, InFlight] = {}
        self.last_correlation = 0

    def __len__(self) -> int:
        return len(self._peers)

    def get(self, destination: int) -> ConnectionState | None:
        return self._peers.get(destination)

    def is_reachable(self, destination: int, now_ms: float) -> bool:
        """Whether a request may be sent now: none is in flight and no backoff runs."""
        peer = self._peers.get(destination)
        return peer is None or (not peer.in_flight and peer.backoff_until_ms <= now_ms)

    def add(self, destination: int, request: Request, now_ms: float) -> int:
        """Register a request as in flight; return its correlation."""
        peer = self._peers.setdefault(destination, ConnectionState())
        peer.in_flight += 1
        peer.has_timed_out = False
        self.last_correlation += 1
        deadline_ms = now_ms + self._request_timeout_ms
        self.in_flight[self.last_correlation] = InFlight(destination, request, deadline_ms)
        return self.last_correlation

    def take(self, correlation: int) -> InFlight | None:
        """Remove and return the request of a response; None if it was given up before."""
        in_flight = self.in_flight.pop(correlation, None)
        if in_flight is not None:
            self._peers[in_flight.destination].in_flight -= 1
        return in_flight

    def requests_to(self, destination: int) -> list[Request]:
        """Return the requests in flight to a node, in the order in which they were sent."""
        return [sent.request for sent in self.in_flight.values() if sent.destination == destination]

    def renew_deadlines(self, destination: int, now_ms: float) -> None:
        """Restart the timeout of the requests that wait behind one that was just answered."""
        deadline_ms = now_ms + self._request_timeout_ms
        for correlation, sent in self.in_flight.items():
            if sent.destination == destination:
                self.in_flight[correlation] = sent._replace(deadline_ms=deadline_ms)

    def back_off(self, destination: int, now_ms: float) -> None:
        peer = self._peers.setdefault(destination, ConnectionState())
        peer.backoff_until_ms = now_ms + self._retry_backoff_ms

    def give_up_late(self, now_ms: float) -> None:
        """Give up the requests whose deadline has passed."""
        for correlation, in_flight in list(self.in_flight.items()):
            if in_flight.deadline_ms <= now_ms:
                self.take(correlation)
                self._peers[in_flight.destination].has_timed_out = True

    def forget(self, destination: int) -> None:
        """Forget the connection to a node, unless a request is in flight there."""
        peer = self._peers.get(destination)
        if peer is not None and not peer.in_flight:
            del self._peers[destination]

    def clear(self) -> None:
        """Forget all requests in flight and every backoff (``RequestManager.resetAll``)."""
        self.in_flight.clear()
        self._peers.clear()

    def next_timer_ms(self, now_ms: float, *, with_backoffs: bool) -> float:
        """Return when the next request times out or backoff ends; infinity if none does."""
        timer = NEVER
        for sent in self.in_flight.values():
            if sent.deadline_ms < timer:
                timer = sent.deadline_ms
        if with_backoffs:
            for peer in self._peers.values():
                if now_ms < peer.backoff_until_ms < timer:
                    timer = peer.backoff_until_ms
        return timer
