"""Connections to other nodes, one for each destination, made when there is something to send.

Owns the client side of a node's transport. A connection begins with ApiVersions; what the peer said
then decides the version of every request, until the connection ends. One request is in flight at a
time, as the raft layer wants it; more wait in a short queue. Only requests for the next chunks of a
snapshot follow each other without waiting: a Kafka server reads the next request of a connection
when it has answered the one before, so that answers keep their order.

Every request ends in exactly one `ResponseReceived` or `RequestFailed`, told from the event loop
and never from within `send`: after the request timeout, counted from `send` or, behind others, from
the answer to the one before, at the latest. Whoever wants to try again, with which pause, is the
raft node's business.

Names are resolved by the loop's own resolver, off the loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from kraft import __version__
from kraft.errors import KraftError, UnsupportedVersionError
from kraft.raft.messages import (
    NONE,
    UNSUPPORTED_VERSION,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchSnapshotRequest,
)
from kraft.raft.messages import Request as RaftRequest
from kraft.raft.messages import Response as RaftResponse
from kraft.raft.ready import Event, RequestFailed, ResponseReceived
from kraft.raft.voters import Endpoint
from kraft.server.network.framing import FrameProtocol, Piece
from kraft.server.network.throttled_log import ThrottledLog
from kraft.server.rpc.api_versions import (
    PeerVersions,
    decode_api_versions_response,
    encode_api_versions_request,
    version_to_retry,
)
from kraft.server.rpc.requests import KRAFT_VERSION, encode_request
from kraft.server.rpc.responses import decode_response
from kraft.server.rpc.wire import (
    API_OF_REQUEST,
    API_VERSIONS,
    Api,
    newest_common_version,
    read_response_header,
    request_frame,
)

log = logging.getLogger(__name__)

# Kafka's own responses are far below this: a Fetch and a snapshot chunk have 8 MiB.
MAX_RESPONSE_SIZE = 100 * 1024 * 1024
_MAX_WAITING = 64


@dataclass(slots=True)
class _Pending:
    """A request that is not answered yet."""

    request: RaftRequest
    correlation: int
    timeout_s: float
    deadline: float
    api: Api = field(init=False)
    version: int = -1

    def __post_init__(self) -> None:
        self.api = API_OF_REQUEST[type(self.request)]


class Peer:
    """A destination: the connection to it, if there is one, and what waits for it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        endpoint: Endpoint,
        client_id: str,
        deliver: Callable[[Event], None],
        warnings: ThrottledLog,
    ) -> None:
        self.endpoint = endpoint
        self.warnings = warnings
        self._loop = loop
        self._client_id = client_id
        self._deliver = deliver
        self._waiting: deque[_Pending] = deque()
        self._in_flight: deque[_Pending] = deque()
        self._connection: PeerConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        #: A node that stays away is asked many times a second: it is told of once.
        self._is_absence_told = False

    @property
    def is_busy(self) -> bool:
        return bool(self._in_flight or self._waiting)

    def send(self, request: RaftRequest, correlation: int, timeout_s: float) -> None:
        """Send as soon as the connection is free; it fails after so many seconds."""
        if len(self._waiting) >= _MAX_WAITING:
            self._fail_later(correlation)
            return
        deadline = self._loop.time() + timeout_s
        self._waiting.append(_Pending(request, correlation, timeout_s, deadline))
        self._go_on()

    def close(self) -> None:
        """Drop the connection; what is not answered fails."""
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        self._fail_all()

    def check_time(self, now: float) -> None:
        """Give up what is past its deadline, and with it the connection it hangs on."""
        if not self.is_busy:
            return
        first = (self._in_flight or self._waiting)[0]
        if now >= first.deadline:
            log.info("%r did not answer in time", self.endpoint)
            self.close()

    # -- what the connection tells

    def opened(self, connection: PeerConnection) -> None:
        self._connection = connection

    def ready(self, connection: PeerConnection) -> None:
        """The handshake is over."""
        if connection is self._connection:
            if self._is_absence_told:
                self._is_absence_told = False
                log.info("connected to %r again", self.endpoint)
            self._go_on()

    def received(self, connection: PeerConnection, response: RaftResponse) -> None:
        pending = self._in_flight.popleft()
        if self._in_flight:
            # The peer is at work: the one behind has its time from now on.
            behind = self._in_flight[0]
            behind.deadline = self._loop.time() + behind.timeout_s
        self._go_on()
        self._deliver(ResponseReceived(pending.correlation, response))

    def lost(self, connection: PeerConnection) -> None:
        if connection is self._connection:
            self._connection = None
            self._fail_all()

    # -- sending

    def _go_on(self) -> None:
        if not self._may_start() or self._connecting is not None:
            return
        if self._connection is None:
            self._connecting = self._loop.create_task(self._connect())
            return
        if self._connection.peer is None:
            return
        while self._may_start():
            pending = self._waiting.popleft()
            if self._connection.start(pending):
                self._in_flight.append(pending)
            else:
                self._fail_later(pending.correlation, is_unsupported=True)

    def _may_start(self) -> bool:
        """Whether the request that has waited longest need not wait for an answer."""
        if not self._waiting or not self._in_flight:
            return bool(self._waiting)
        return isinstance(self._waiting[0].request, FetchSnapshotRequest) and isinstance(
            self._in_flight[-1].request, FetchSnapshotRequest
        )

    async def _connect(self) -> None:
        connection = PeerConnection(self._loop, self, self._client_id)
        try:
            await self._loop.create_connection(
                lambda: connection, self.endpoint.host, self.endpoint.port
            )
        except (OSError, UnicodeError) as error:
            # UnicodeError: a host that is no name at all.
            if not self._is_absence_told:
                self.warnings.warn(
                    "nodes were not reached", f"no connection to {self.endpoint!r}: {error}"
                )
            self._is_absence_told = True
            self._connecting = None
            self._fail_all()
            return
        self._connecting = None
        self._go_on()

    def _fail_later(self, correlation: int, *, is_unsupported: bool = False) -> None:
        self._loop.call_soon(self._deliver, RequestFailed(correlation, is_unsupported))

    def _fail_all(self) -> None:
        for pending in (*self._in_flight, *self._waiting):
            self._fail_later(pending.correlation)
        self._in_flight.clear()
        self._waiting.clear()


class PeerConnection(FrameProtocol):
    """One connection to a peer: first the handshake, then requests and answers in one order."""

    def __init__(self, loop: asyncio.AbstractEventLoop, owner: Peer, client_id: str) -> None:
        super().__init__(loop, MAX_RESPONSE_SIZE)
        self._owner = owner
        self._client_id = client_id
        #: What the peer said of itself; None until the handshake is over.
        self.peer: PeerVersions | None = None
        self._correlation = 0
        #: API, version and correlation of what is not answered yet.
        self._asked: deque[tuple[Api, int, int]] = deque()
        self._is_raft_request = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._owner.opened(self)
        self._ask_versions(API_VERSIONS.highest)

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.lost(self)

    def frame_refused(self, reason: str) -> None:
        self._owner.warnings.warn(
            "answers were refused",
            f"{self._owner.endpoint!r} answered with {reason}: the connection is closed",
        )
        self.close()

    def start(self, pending: _Pending) -> bool:
        """Send the request; False where the peer knows no version that can say it."""
        assert self.peer is not None
        version = newest_common_version(pending.api, self.peer.ranges)
        if version is None:
            return False
        self._is_raft_request = True
        if isinstance(pending.request, ApiVersionsRequest):
            self._ask_versions(version)
            return True
        try:
            body = encode_request(pending.request, version)
        except UnsupportedVersionError:
            return False
        self._send(pending.api, version, body)
        return True

    def _ask_versions(self, version: int) -> None:
        self._send(API_VERSIONS, version, encode_api_versions_request(version, __version__))

    def _send(self, api: Api, version: int, body: bytes) -> None:
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        self._asked.append((api, version, self._correlation))
        self.write([request_frame(api, version, self._correlation, self._client_id, body)])

    def frame_received(self, frame: Piece) -> None:
        try:
            self._read(frame)
        except KraftError as error:
            self.frame_refused(f"a malformed response ({error})")

    def _read(self, frame: Piece) -> None:
        if not self._asked:
            self.frame_refused("something that nobody asked for")
            return
        api, version, asked = self._asked.popleft()
        correlation, body_at = read_response_header(frame, api, version)
        if correlation != asked:
            self.frame_refused(f"correlation id {correlation} instead of {asked}")
        elif api is API_VERSIONS:
            self._versions_received(version, decode_api_versions_response(version, frame, body_at))
        else:
            listener = self._owner.endpoint.name
            self._owner.received(self, decode_response(api, version, frame, body_at, listener))

    def _versions_received(self, version: int, peer: PeerVersions) -> None:
        if self._is_raft_request:
            if peer.error == NONE:
                self.peer = peer
            levels = peer.supported.get(KRAFT_VERSION)
            self._owner.received(self, ApiVersionsResponse(peer.error, levels))
        elif peer.error == NONE:
            self.peer = peer
            self._owner.ready(self)
        elif peer.error == UNSUPPORTED_VERSION and version_to_retry(peer) < version:
            self._ask_versions(version_to_retry(peer))
        else:
            self.frame_refused(f"error {peer.error} to ApiVersions {version}")
