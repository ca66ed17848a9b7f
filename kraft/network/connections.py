"""Connections to other nodes: one for each destination, opened by the first request.

This is the client side of a node's transport. A connection begins with ApiVersions; the peer's
response decides the version of every request on it. One request is in flight at a time, as the raft
layer expects; more wait in a short queue. Only requests for the next chunks of a snapshot are sent
without waiting: a Kafka server reads the next request of a connection after it has answered the
previous one, so responses keep their order.

On a secured listener the TLS handshake comes before ApiVersions, and SASL after it. Where the peer
limits SASL sessions, the connection authenticates again before a request near the end of one. After
a failed authentication the next attempt waits, so that a wrong password does not keep both sides
busy.

Every request of the raft node ends in exactly one `ResponseReceived` or `RequestFailed`, and every
other `PeerCall` in one of its callbacks. They are called from the event loop, never within `send`,
at the latest after the request timeout. The timeout begins at `send`, or for a request behind
others, at the response to the previous one. The sender decides about retries.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import socket
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from kraft.errors import (
    NONE,
    UNSUPPORTED_VERSION,
    KraftError,
    SaslAuthenticationError,
    UnsupportedVersionError,
    error_name,
)
from kraft.network.authentication import ListenerSecurity
from kraft.network.framing import SMALL_BUFFER_SIZE, Buffer, FrameProtocol
from kraft.network.throttled_log import ThrottledLog
from kraft.network.tls_transport import TlsTransport
from kraft.protocol.api_versions import (
    API_VERSIONS,
    FIRST_SENT_VERSION,
    PeerVersions,
    decode_api_versions_response,
    encode_api_versions_request,
    version_to_retry,
)
from kraft.protocol.headers import Api, newest_common_version, read_response_header, request_frame
from kraft.protocol.raft_rpcs import API_OF_REQUEST, decode_response, encode_request
from kraft.protocol.sasl_authenticate import (
    SASL_AUTHENTICATE,
    SaslAuthenticateRequestData,
    SaslAuthenticateResponseData,
)
from kraft.protocol.sasl_handshake import (
    SASL_HANDSHAKE,
    SaslHandshakeRequestData,
    SaslHandshakeResponseData,
)
from kraft.protocol.update_features import KRAFT_VERSION
from kraft.raft.interface import Event, RequestFailed, ResponseReceived
from kraft.raft.rpc import ApiVersionsResponse, FetchSnapshotRequest
from kraft.raft.rpc import Request as RaftRequest
from kraft.raft.rpc import Response as RaftResponse
from kraft.raft.voters import Endpoint
from kraft.security.protocols import SecurityProtocol
from kraft.security.sasl.client import SaslClient
from kraft.version import VERSION

log = logging.getLogger(__name__)

# Kafka's responses are far smaller: a Fetch and a snapshot chunk have 8 MiB.
MAX_RESPONSE_SIZE = 100 * 1024 * 1024
_MAX_WAITING = 64
#: How long a destination waits after a failed TLS handshake or SASL authentication.
AUTHENTICATION_BACKOFF_S = 0.5
# The part of a SASL session after which a connection authenticates again, as in Kafka's clients.
_REAUTHENTICATION_PART = (0.85, 0.95)
# The version of SaslHandshake with which tokens are sent in SaslAuthenticate requests.
_HANDSHAKE_VERSION = 1


class PeerCall(NamedTuple):
    """A request to another node, and the receivers of its outcome.

    ``encode`` returns the body of a version, and raises UnsupportedVersionError where the version
    cannot carry the request. ``decode`` reads frame, version and position of the response's body.
    The outcome is one call: ``answered`` with the decoded response, or ``failed`` with True if the
    peer supports no version of the request, else with False. ``may_follow``: the request is sent
    without waiting for the response to another request of this kind.
    """

    api: Api
    encode: Callable[[int], bytes]
    decode: Callable[[Buffer, int, int], Any]
    answered: Callable[[Any], None]
    failed: Callable[[bool], None]
    may_follow: bool = False


@dataclass(slots=True)
class _PendingCall:
    """A call without a response yet."""

    call: PeerCall
    timeout_s: float
    deadline: float


class Peer:
    """A destination: its connection, if it has one, and its waiting requests.

    ``buffer_size``: the bytes that the connection keeps for small responses. ``decode`` decodes
    the responses to the raft node.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        endpoint: Endpoint,
        client_id: str,
        deliver: Callable[[Event], None],
        warnings: ThrottledLog,
        security: ListenerSecurity,
        buffer_size: int = SMALL_BUFFER_SIZE,
        decode: Callable[[Api, int, Buffer, int, str], RaftResponse] = decode_response,
    ) -> None:
        self.endpoint = endpoint
        self._decode = decode
        self.buffer_size = buffer_size
        self.warnings = warnings
        self.security = security
        self._loop = loop
        self._client_id = client_id
        self._deliver = deliver
        self._waiting: deque[_PendingCall] = deque()
        self._in_flight: deque[_PendingCall] = deque()
        self._connection: PeerConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        #: No connection is opened before this time of the loop.
        self._connect_after = 0.0
        #: Requests to an unreachable node may fail many times a second: only the first is logged.
        self._is_failure_logged = False

    @property
    def is_busy(self) -> bool:
        return bool(self._in_flight or self._waiting)

    @property
    def versions(self) -> PeerVersions | None:
        """The ApiVersions response of the present connection; None before it."""
        return None if self._connection is None else self._connection.peer

    def send(self, request: RaftRequest, correlation: int, timeout_s: float) -> None:
        """Send a request of the raft node; its outcome is delivered as an event."""
        api = API_OF_REQUEST[type(request)]

        def decode(frame: Buffer, version: int, body_at: int) -> RaftResponse:
            return self._decode(api, version, frame, body_at, self.endpoint.name)

        self.call(
            PeerCall(
                api,
                partial(encode_request, request),
                decode,
                lambda response: self._deliver(ResponseReceived(correlation, response)),
                lambda is_unsupported: self._deliver(RequestFailed(correlation, is_unsupported)),
                may_follow=isinstance(request, FetchSnapshotRequest),
            ),
            timeout_s,
        )

    def call(self, call: PeerCall, timeout_s: float) -> None:
        """Send the request as soon as the connection is free; it fails after ``timeout_s``."""
        if len(self._waiting) >= _MAX_WAITING:
            self._fail_later(call)
            return
        self._waiting.append(_PendingCall(call, timeout_s, self._loop.time() + timeout_s))
        self._go_on()

    def close(self) -> None:
        """Close the connection; requests without a response fail."""
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        self._fail_all()

    def check_time(self, now: float) -> None:
        """Close the connection if its oldest request is past its deadline."""
        if not self.is_busy:
            return
        first = (self._in_flight or self._waiting)[0]
        if now >= first.deadline:
            log.info("%r did not answer in time: closing the connection", self.endpoint)
            self.close()

    # -- called by the connection

    def opened(self, connection: PeerConnection) -> None:
        self._connection = connection

    def ready(self, connection: PeerConnection) -> None:
        """Send the waiting requests: the handshake is over."""
        if connection is self._connection:
            if self._is_failure_logged:
                self._is_failure_logged = False
                log.info("connected to %r again", self.endpoint)
            self._go_on()

    def received(self, response: Any) -> None:
        pending = self._in_flight.popleft()
        if self._in_flight:
            # The peer starts the next request now: its timeout begins.
            following = self._in_flight[0]
            following.deadline = self._loop.time() + following.timeout_s
        self._go_on()
        pending.call.answered(response)

    def authentication_failed(self, reason: str) -> None:
        """Log the failure, and wait with the next attempt."""
        self._connect_after = self._loop.time() + AUTHENTICATION_BACKOFF_S
        self.warnings.warn(
            "authentications with other nodes failed",
            f"this node and {self.endpoint!r} cannot authenticate each other: {reason}; the next "
            f"attempt is in {AUTHENTICATION_BACKOFF_S:g} s",
        )

    def lost(self, connection: PeerConnection) -> None:
        if connection is self._connection:
            self._connection = None
            is_early = not connection.is_ready and self._loop.time() >= self._connect_after
            if is_early and self.security.protocol is not SecurityProtocol.PLAINTEXT:
                self.authentication_failed("it closed the connection before this node could ask")
            self._fail_all()

    # -- sending

    def _go_on(self) -> None:
        if not self._may_start() or self._connecting is not None:
            return
        if self._connection is None:
            self._connecting = self._loop.create_task(self._connect())
            return
        if not self._connection.is_ready:
            return
        if not self._in_flight and self._connection.is_session_ending:
            self._connection.authenticate()
            return
        while self._may_start():
            pending = self._waiting.popleft()
            if self._connection.start(pending.call):
                self._in_flight.append(pending)
            else:
                self._fail_later(pending.call, is_unsupported=True)

    def _may_start(self) -> bool:
        """Return whether the first waiting request may be sent now."""
        if not self._waiting or not self._in_flight:
            return bool(self._waiting)
        return self._waiting[0].call.may_follow and self._in_flight[-1].call.may_follow

    async def _connect(self) -> None:
        connection = PeerConnection(self._loop, self, self._client_id)
        await asyncio.sleep(self._connect_after - self._loop.time())
        try:
            await self._open(connection)
        except (OSError, UnicodeError) as error:
            # UnicodeError: the host is not a valid host name.
            if not self._is_failure_logged:
                self.warnings.warn(
                    "connections to other nodes failed",
                    f"cannot connect to {self.endpoint!r}: {error}",
                )
            self._is_failure_logged = True
            self._connecting = None
            self._fail_all()
            return
        self._connecting = None
        self._go_on()

    async def _open(self, connection: PeerConnection) -> None:
        """Connect to the first address of the host that accepts. Raises OSError, UnicodeError.

        uvloop's create_connection would leave a failing resolution behind where it is cancelled.
        """
        endpoint = self.endpoint
        failure: OSError | None = None
        found = await self._loop.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
        for address in dict.fromkeys(str(each[4][0]) for each in found):
            try:
                await self._loop.create_connection(
                    lambda: self._secured(connection), address, endpoint.port
                )
            except OSError as error:
                failure = failure or error
            else:
                return
        raise failure or OSError("the host name has no address")

    def _secured(self, connection: PeerConnection) -> asyncio.BufferedProtocol:
        """Return the protocol of a socket for this connection."""
        tls = self.security.tls
        if tls is None:
            return connection

        def create(incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> ssl.SSLObject:
            return tls.client.wrap_bio(incoming, outgoing, server_hostname=self.endpoint.host)

        return TlsTransport(self._loop, connection, create, self.authentication_failed)

    def _fail_later(self, call: PeerCall, *, is_unsupported: bool = False) -> None:
        self._loop.call_soon(call.failed, is_unsupported)

    def _fail_all(self) -> None:
        for pending in (*self._in_flight, *self._waiting):
            self._fail_later(pending.call)
        self._in_flight.clear()
        self._waiting.clear()


class PeerConnection(FrameProtocol):
    """One connection to a peer: ApiVersions, SASL where it is used, then requests in order."""

    def __init__(self, loop: asyncio.AbstractEventLoop, owner: Peer, client_id: str) -> None:
        super().__init__(loop, MAX_RESPONSE_SIZE, owner.buffer_size)
        self._owner = owner
        self._client_id = client_id
        #: The peer's ApiVersions response; None before.
        self.peer: PeerVersions | None = None
        #: The exchange in progress.
        self._sasl: SaslClient | None = None
        self._sasl_step: asyncio.Task[None] | None = None
        self._is_authenticated = False
        #: When to authenticate again, by the loop's clock.
        self._session_ends = float("inf")
        self._correlation = 0
        #: API, version, correlation id and decoder of the requests without a response yet.
        self._asked: deque[tuple[Api, int, int, Callable[[Buffer, int, int], Any]]] = deque()
        self._is_handshake_over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._owner.opened(self)
        self._ask_versions(FIRST_SENT_VERSION)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._sasl_step is not None:
            self._sasl_step.cancel()
        self._owner.lost(self)

    @property
    def is_ready(self) -> bool:
        """Whether requests may be sent."""
        is_proven = self._is_authenticated or self._owner.security.credentials is None
        return self.peer is not None and is_proven and self._sasl is None

    @property
    def is_session_ending(self) -> bool:
        """Whether to authenticate again before the next request."""
        return self._loop.time() >= self._session_ends

    def frame_refused(self, reason: str) -> None:
        self._owner.warnings.warn(
            "responses were rejected",
            f"{self._owner.endpoint!r} answered with {reason}: the connection is closed",
        )
        self.close()

    def start(self, call: PeerCall) -> bool:
        """Send the request; return False where the peer supports no version that can carry it."""
        assert self.peer is not None
        version = newest_common_version(call.api, self.peer.ranges)
        if version is None:
            return False
        self._is_handshake_over = True
        if call.api is API_VERSIONS:
            self._ask_versions(version)
            return True
        try:
            body = call.encode(version)
        except UnsupportedVersionError:
            return False
        self._send(call.api, version, body, call.decode)
        return True

    def _ask_versions(self, version: int) -> None:
        body = encode_api_versions_request(version, VERSION)
        self._send(API_VERSIONS, version, body, _decode_versions)

    def _send(
        self, api: Api, version: int, body: bytes, decode: Callable[[Buffer, int, int], Any]
    ) -> None:
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        self._asked.append((api, version, self._correlation, decode))
        self.write([request_frame(api, version, self._correlation, self._client_id, body)])

    def frame_received(self, frame: Buffer) -> None:
        try:
            self._read(frame)
        except KraftError as error:
            self.frame_refused(f"a malformed response ({error})")

    def _read(self, frame: Buffer) -> None:
        if not self._asked:
            self.frame_refused("an unexpected response")
            return
        api, version, asked, decode = self._asked.popleft()
        correlation, body_at = read_response_header(frame, api, version)
        if correlation != asked:
            self.frame_refused(f"correlation id {correlation} instead of {asked}")
            return
        response = decode(frame, version, body_at)
        if api is API_VERSIONS:
            self._versions_received(version, response)
        elif api is SASL_HANDSHAKE:
            self._mechanism_chosen(response)
        elif api is SASL_AUTHENTICATE:
            self._sasl_step = self._loop.create_task(self._token_received(response))
        else:
            self._owner.received(response)

    def _versions_received(self, version: int, peer: PeerVersions) -> None:
        if self._is_handshake_over:
            if peer.error == NONE:
                self.peer = peer
            levels = peer.supported.get(KRAFT_VERSION)
            self._owner.received(ApiVersionsResponse(peer.error, levels))
        elif peer.error == NONE:
            self.peer = peer
            if self._owner.security.credentials is None:
                self._owner.ready(self)
            else:
                self.authenticate()
        elif peer.error == UNSUPPORTED_VERSION and version_to_retry(peer) < version:
            self._ask_versions(version_to_retry(peer))
        else:
            self.frame_refused(f"error {peer.error} to ApiVersions {version}")

    # -- SASL

    def authenticate(self) -> None:
        """Authenticate this node, for the first time or again; `Peer.ready` is called after it."""
        credentials = self._owner.security.credentials
        assert credentials is not None
        self._sasl = credentials.begin(secrets.token_urlsafe(24))
        body = SaslHandshakeRequestData(credentials.mechanism).encode(_HANDSHAKE_VERSION)
        self._send(SASL_HANDSHAKE, _HANDSHAKE_VERSION, body, SaslHandshakeResponseData.decode)

    def _mechanism_chosen(self, response: SaslHandshakeResponseData) -> None:
        assert self._sasl is not None
        if response.error_code != NONE:
            offered = ", ".join(response.mechanisms)
            self._fail(f"it does not accept the SASL mechanism; it has {offered:.200}")
            return
        self._send_token(self._sasl.first_message())

    def _send_token(self, token: bytes) -> None:
        assert self.peer is not None
        version = newest_common_version(SASL_AUTHENTICATE, self.peer.ranges)
        if version is None:
            self._fail("it does not support SaslAuthenticate")
            return
        body = SaslAuthenticateRequestData(token).encode(version)
        self._send(SASL_AUTHENTICATE, version, body, SaslAuthenticateResponseData.decode)

    async def _token_received(self, response: SaslAuthenticateResponseData) -> None:
        sasl = self._sasl
        assert sasl is not None
        if response.error_code != NONE:
            self._fail(f"{response.error_message or error_name(response.error_code):.300}")
            return
        try:
            # SCRAM's keys take milliseconds.
            token = await self._loop.run_in_executor(None, sasl.respond, response.auth_bytes)
        except SaslAuthenticationError as error:
            self._fail(str(error))
            return
        if token is not None:
            self._send_token(token)
            return
        self._sasl = None
        self._is_authenticated = True
        if response.session_lifetime_ms > 0:
            part = random.uniform(*_REAUTHENTICATION_PART)
            self._session_ends = self._loop.time() + response.session_lifetime_ms / 1000 * part
        else:
            self._session_ends = float("inf")
        self._owner.ready(self)

    def _fail(self, reason: str) -> None:
        self._sasl = None
        self._owner.authentication_failed(reason)
        self.close()


def _decode_versions(frame: Buffer, version: int, body_at: int) -> PeerVersions:
    return decode_api_versions_response(version, frame, body_at)
