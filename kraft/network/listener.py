"""The controller listener: accept connections of peers, brokers and tools, and answer requests.

A request goes from its frame and header to the raft node, or to a `Handler` (the controller's
APIs), or is answered at once (ApiVersions, a malformed request to the raft node). As in Kafka's
``SocketServer``, a connection has one request in progress: the next is decoded after the response
is written. Responses therefore keep their order, and no peer can queue more than one request.

A misbehaving peer loses at most its own connection: for a malformed or too large frame, for an API
or version that is not served, for a frame or response that makes no progress, after a long idle
time. All limits are finite by default.
"""

from __future__ import annotations

import asyncio
import os
import time
import traceback
from collections import deque
from collections.abc import Callable, Container, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kraft._core.codec.fetch import decode_request_header
from kraft.errors import (
    CLUSTER_AUTHORIZATION_FAILED,
    IllegalSaslStateError,
    KraftError,
    SaslAuthenticationError,
)
from kraft.network.admission import Admission, ConnectionLimits, Standing
from kraft.network.authentication import (
    SASL_APIS,
    GateAnswer,
    ListenerSecurity,
    SaslGate,
    illegal_state,
)
from kraft.network.creation_rates import CreationRates, RateLimits
from kraft.network.framing import Buffer, FrameProtocol
from kraft.network.handler import Handler
from kraft.network.throttled_log import ThrottledLog
from kraft.network.tls_context import TlsContexts
from kraft.network.tls_transport import HandshakeQueue, TlsTransport
from kraft.network.traffic import Traffic
from kraft.protocol.api_versions import API_VERSIONS, NodeFeatures, answer_api_versions
from kraft.protocol.common import Rejected
from kraft.protocol.headers import Api, RequestHeader, response_header
from kraft.protocol.raft_rpcs import RAFT_APIS, decode_request, encode_response, error_response
from kraft.protocol.sasl_handshake import SASL_HANDSHAKE
from kraft.raft.interface import Event, RequestAbandoned, RequestReceived
from kraft.raft.rpc import LogSlice, Request, Response, SnapshotSlice
from kraft.raft.voters import Endpoint
from kraft.security.hosts import java_host
from kraft.security.protocols import PeerIdentity

#: Connections that the system completes before the event loop accepts them.
BACKLOG = 128
# How long `close` waits until peers have read their responses.
_CLOSE_TIMEOUT_S = 0.5
# Most requests are small; the buffer of a larger one grows with the bytes that arrive.
_SMALL_BUFFER_SIZE = 4096
# Requests of unknown APIs: enough to log their API key and version.
_MAX_UNKNOWN_REQUEST_SIZE = 4096
# Checking ten thousand connections at once would block the loop for 10 ms.
_CHECKED_AT_ONCE = 500
_SLICE_PAUSE_S = 0.005


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a listener; times in milliseconds, sizes in bytes."""

    #: socket.request.max.bytes
    max_request_size: int = 100 * 1024 * 1024
    #: The largest request to the raft node.
    max_raft_request_size: int = 1024 * 1024
    #: max.connections; Kafka's default is unlimited. `Admission` allows a few more.
    max_connections: int = 10_000
    #: max.connections.per.ip; Kafka's default is unlimited. A thousand brokers of one host, with
    #: five connections each, are below it.
    max_connections_per_ip: int = 6000
    #: max.connections.per.ip.overrides: the limits of single addresses.
    max_connections_of_ips: Mapping[str, int] = field(default_factory=dict)
    #: max.connections of single listeners, by name.
    max_connections_of_listeners: Mapping[str, int] = field(default_factory=dict)
    #: max.connection.creation.rate, of the node and of listeners.
    creation_rates: RateLimits = field(default_factory=RateLimits)
    #: connections.max.idle.ms
    max_idle_ms: int = 600_000
    #: A connection must have sent its first valid request within this time, which includes its TLS
    #: handshake and authentication.
    first_request_timeout_ms: int = 10_000
    #: A request must be complete within this time after its first byte.
    request_read_timeout_ms: int = 30_000
    #: A connection whose peer reads none of a response for this long is closed.
    response_write_timeout_ms: int = 30_000
    #: Handlers' requests in progress on all connections together; further ones wait for a response.
    #: Requests to the raft node and those that keep brokers alive are not counted: each connection
    #: has one at a time, and bulk work must not delay them.
    max_requests: int = 4000
    #: Memory of large requests in progress on all connections together.
    max_request_memory: int = 256 * 1024 * 1024

    def of_connections(self) -> ConnectionLimits:
        return ConnectionLimits(
            self.max_connections,
            self.max_connections_per_ip,
            self.max_connections_of_ips,
            self.max_connections_of_listeners,
        )


class Listener:
    """The server side of a node's transport."""

    def __init__(
        self,
        limits: Limits,
        deliver: Callable[[Event], None],
        resolve: Callable[[LogSlice | SnapshotSlice], memoryview],
        features: Callable[[], NodeFeatures],
        handlers: Mapping[int, Handler],
        warnings: ThrottledLog,
        standing_of: Callable[[Request], tuple[Standing, int]],
        is_allowed: Callable[[Api, PeerIdentity], bool],
        security: Mapping[str, ListenerSecurity],
        traffic: Traffic | None = None,
    ) -> None:
        self.limits = limits
        self.traffic = Traffic() if traffic is None else traffic
        self.warnings = warnings
        self.standing_of = standing_of
        self.is_allowed = is_allowed
        #: By listener; a listener without an entry is PLAINTEXT.
        self.security = security
        self.admission = Admission(limits.of_connections())
        self.rates = CreationRates(limits.creation_rates)
        #: Bytes of large requests in progress.
        self.request_memory = 0
        self.deliver = deliver
        self.resolve = resolve
        self.features = features
        self.handlers = handlers
        self.apis = {
            API_VERSIONS.key: API_VERSIONS,
            **SASL_APIS,
            **RAFT_APIS,
            **{key: handler.api for key, handler in handlers.items()},
        }
        self.flexible_since = {key: api.flexible_since for key, api in self.apis.items()}
        self.connections: set[ServerConnection] = set()
        self.stalled: deque[ServerConnection] = deque()
        self.request_count = 0
        self._answerable: dict[int, ServerConnection] = {}
        self._next_reply_to = 0
        self._servers: list[asyncio.Server] = []
        #: Servers that are bound and do not accept connections yet.
        self._waiting_servers: list[asyncio.Server] = []
        self._handshakes: HandshakeQueue | None = None
        self._token_thread: ThreadPoolExecutor | None = None
        self._sweep: asyncio.TimerHandle | None = None
        #: Connections that the current sweep has still to check.
        self._unchecked: list[ServerConnection] = []

    async def start(
        self, endpoints: tuple[Endpoint, ...], waiting: Container[str] = ()
    ) -> tuple[Endpoint, ...]:
        """Listen at the endpoints and return the bound ones; port 0 binds a free port.

        The listeners with a name in ``waiting`` refuse connections until `open_waiting`. Raises
        OSError where an address is not available.
        """
        loop = asyncio.get_running_loop()
        self._handshakes = HandshakeQueue(loop)
        bound = []
        try:
            for endpoint in endpoints:
                try:
                    server = await loop.create_server(
                        partial(self._accept, endpoint.name, loop),
                        endpoint.host or None,
                        endpoint.port,
                        backlog=BACKLOG,
                        start_serving=endpoint.name not in waiting,
                    )
                except OSError as error:
                    # The error number of a failed name resolution is below 0.
                    reason = os.strerror(number) if (number := error.errno or 0) > 0 else error
                    raise OSError(f"cannot listen at {endpoint!r}: {reason}") from error
                self._servers.append(server)
                if endpoint.name in waiting:
                    self._waiting_servers.append(server)
                bound.append(endpoint._replace(port=server.sockets[0].getsockname()[1]))
        except OSError:
            await self.close()
            raise
        self._sweep_later()
        return tuple(bound)

    def set_limits(self, limits: Limits) -> None:
        """Apply other limits of connections, to open connections too."""
        self.limits = limits
        self.admission.set_limits(limits.of_connections())
        self.rates.limits = limits.creation_rates

    async def open_waiting(self) -> None:
        """Accept connections at the listeners that have waited so far."""
        servers, self._waiting_servers = self._waiting_servers, []
        for server in servers:
            await server.start_serving()

    def _accept(self, name: str, loop: asyncio.AbstractEventLoop) -> asyncio.BufferedProtocol:
        """Return the protocol of a new connection."""
        security = self.security.get(name) or ListenerSecurity()
        connection = ServerConnection(self, name, loop, security)
        if security.tls is None:
            return connection
        return TlsTransport(
            loop,
            connection,
            lambda incoming, outgoing: _tls_of(security).server.wrap_bio(
                incoming, outgoing, server_side=True
            ),
            connection.handshake_failed,
            self._handshakes,
        )

    def token_executor(self) -> Executor:
        """Return the thread that derives the keys of delegation tokens."""
        if self._token_thread is None:
            self._token_thread = ThreadPoolExecutor(1, "tokens")
        return self._token_thread

    def stop_accepting(self) -> None:
        for server in self._servers:
            server.close()

    async def close(self) -> None:
        """Close every connection; wait briefly until written responses are sent."""
        self.stop_accepting()
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for connection in self.connections:
            connection.finish()
        loop = asyncio.get_running_loop()
        end = loop.time() + _CLOSE_TIMEOUT_S
        while self.connections and loop.time() < end:
            await asyncio.sleep(0.001)
        for connection in list(self.connections):
            connection.close()
        self.warnings.flush(is_over=True)
        if self._token_thread is not None:
            self._token_thread.shutdown(wait=False, cancel_futures=True)
        servers, self._servers = self._servers, []
        for server in servers:
            await server.wait_closed()

    def respond(self, reply_to: int, response: Response) -> None:
        """Answer the request with this ``reply_to``; do nothing where its connection is closed."""
        connection = self._answerable.pop(reply_to, None)
        if connection is not None:
            connection.respond(response)

    def await_answer(self, connection: ServerConnection) -> int:
        reply_to = self._next_reply_to
        self._next_reply_to += 1
        self._answerable[reply_to] = connection
        return reply_to

    def forget(self, reply_to: int) -> None:
        """Deliver RequestAbandoned where the raft node has not answered this closed connection."""
        if self._answerable.pop(reply_to, None) is not None:
            self.deliver(RequestAbandoned(reply_to))

    def request_done(self) -> None:
        """Count a completed or dropped request of a handler; resume a stalled connection."""
        self.request_count -= 1
        free = self.limits.max_requests - self.request_count
        while self.stalled and free > 0:
            self.stalled.popleft().resume_soon()
            free -= 1

    # -- time

    def _sweep_later(self) -> None:
        limits = self.limits
        shortest = min(
            limits.max_idle_ms,
            limits.first_request_timeout_ms,
            limits.request_read_timeout_ms,
            limits.response_write_timeout_ms,
        )
        loop = asyncio.get_running_loop()
        self._sweep = loop.call_later(min(shortest / 4, 1000) / 1000, self._sweep_connections)

    def _sweep_connections(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        if not self._unchecked:
            self._unchecked = list(self.connections)
            self.admission.trim(now)
            self.warnings.flush()
        for connection in self._unchecked[-_CHECKED_AT_ONCE:]:
            if connection in self.connections:
                connection.check_time(now)
        del self._unchecked[-_CHECKED_AT_ONCE:]
        if self._unchecked:
            self._sweep = loop.call_later(_SLICE_PAUSE_S, self._sweep_connections)
        else:
            self._sweep_later()


class ServerConnection(FrameProtocol):
    """One connection of a peer, with at most one request in progress."""

    def __init__(
        self,
        owner: Listener,
        name: str,
        loop: asyncio.AbstractEventLoop,
        security: ListenerSecurity,
    ) -> None:
        super().__init__(loop, owner.limits.max_request_size, _SMALL_BUFFER_SIZE)
        self._owner = owner
        self.listener_name = name
        self._security = security
        self._gate = SaslGate(security.sasl) if security.sasl is not None else None
        #: The peer, from its first request or its authentication on.
        self._identity: PeerIdentity | None = None
        #: Whether a SASL token is being checked, or was rejected.
        self._is_authenticating = False
        self.address = ""
        self._arrived = 0.0
        self._request_memory = 0
        self._header: RequestHeader | None = None
        self._traffic = owner.traffic.listeners[name]
        #: When the request in progress was complete, and its size.
        self._began_s = 0.0
        self._request_size = 0
        self._reply_to = -1
        #: Whether the request in progress counts against max_requests.
        self._is_counted = False
        self._task: asyncio.Task[None] | None = None
        self._is_stalled = False
        self._stalled_frame: Buffer = b""
        self._writing_since: float | None = None
        self._unwritten = 0
        #: Ends the time for which a quota mutes the connection.
        self._unmute: asyncio.TimerHandle | None = None

    # -- life and limits

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        owner = self._owner
        peer = transport.get_extra_info("peername")
        self.address = java_host(str(peer[0])) if peer else ""
        self._arrived = self._loop.time()
        delay = owner.rates.accept(self.listener_name, self.address, 1000 * self._arrived)
        if not owner.admission.admit(self):
            self.close_for_others()
            return
        owner.connections.add(self)
        self._traffic.opened += 1
        if delay.wait_ms:
            self._arrived += delay.wait_ms / 1000
            self._mute(delay.wait_ms, self.close if delay.is_rejected else self._unmuted)

    def close_for_others(self) -> None:
        """Close this connection because there are too many."""
        count = len(self._owner.connections)
        self._owner.warnings.warn(
            "too many connections", f"closed one of {self.address}; {count} are open"
        )
        self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        owner = self._owner
        if self not in owner.connections:
            return
        owner.connections.discard(self)
        self._traffic.closed += 1
        owner.admission.leave(self)
        self._release_memory()
        self._is_stalled = False
        if self in owner.stalled:
            owner.stalled.remove(self)
        if self._task is not None:
            self._task.cancel()
        if self._unmute is not None:
            self._unmute.cancel()
        if self._header is not None:
            self._header = None
            if self._is_counted:
                self._is_counted = False
                owner.request_done()
            if self._reply_to >= 0:
                owner.forget(self._reply_to)

    def frame_refused(self, reason: str) -> None:
        self._owner.warnings.warn(
            "frames were rejected", f"{self.address} sent {reason}: the connection is closed"
        )
        self.close()

    def handshake_failed(self, reason: str) -> None:
        """Log a failed TLS handshake; the transport closes the connection."""
        self._owner.warnings.warn(
            "TLS handshakes failed", f"the TLS handshake with {self.address} failed: {reason}"
        )

    def size_limit(self, start: memoryview) -> int:
        if self._gate is not None and (limit := self._gate.size_limit) is not None:
            return min(limit, self._max_frame_size)
        if len(start) < 2:
            return self._max_frame_size
        owner = self._owner
        key = int.from_bytes(start, "big", signed=True)
        if key in owner.handlers:
            return self._max_frame_size
        if key in owner.apis:
            return min(owner.limits.max_raft_request_size, self._max_frame_size)
        return _MAX_UNKNOWN_REQUEST_SIZE

    def may_grow(self, capacity: int) -> bool:
        owner = self._owner
        more = capacity - self._request_memory
        if owner.request_memory + more > owner.limits.max_request_memory:
            self.frame_refused(
                f"a large request while others take {owner.request_memory} bytes of memory"
            )
            return False
        owner.request_memory += more
        self._request_memory = capacity
        return True

    def _release_memory(self) -> None:
        self._owner.request_memory -= self._request_memory
        self._request_memory = 0

    def check_time(self, now: float) -> None:
        """Close the connection if it is idle or makes no progress for too long."""
        limits = self._owner.limits
        if self._writing_since is not None:
            assert self.transport is not None
            unwritten = self.transport.get_write_buffer_size()
            if unwritten < self._unwritten:
                self._unwritten, self._writing_since = unwritten, now
            elif now - self._writing_since > limits.response_write_timeout_ms / 1000:
                self.frame_refused("no sign that it reads its responses")
        elif self._header is not None or self._is_stalled:
            return
        elif (
            now - self._arrived > limits.first_request_timeout_ms / 1000
            and self._owner.admission.is_silent(self)
        ):
            self.frame_refused(f"no {self._missing} within {limits.first_request_timeout_ms} ms")
        elif self.frame_begun is not None and self._unmute is None:
            if now - self.frame_begun > limits.request_read_timeout_ms / 1000:
                self.frame_refused("an incomplete frame for too long")
        elif now - self.last_active > limits.max_idle_ms / 1000:
            self.close()

    @property
    def _missing(self) -> str:
        """The next step that a silent peer has not done."""
        if isinstance(self.transport, TlsTransport) and not self.transport.is_open:
            return "complete TLS handshake"
        if self._gate is not None and self._gate.principal is None:
            return "complete SASL authentication"
        return "request"

    def pause_writing(self) -> None:
        assert self.transport is not None
        self.hold()
        self._writing_since = self._loop.time()
        self._unwritten = self.transport.get_write_buffer_size()

    def resume_writing(self) -> None:
        self._writing_since = None
        self.last_active = self._loop.time()
        self._release_if_free()

    def _mute(self, throttle_ms: float, then: Callable[[], None]) -> None:
        """Read nothing for a time, so that the client's requests wait in its own buffers."""
        self.pause()
        self._unmute = self._loop.call_later(throttle_ms / 1000, then)

    def _unmuted(self) -> None:
        self._unmute = None
        self.last_active = self._loop.time()
        self._release_if_free()

    def _release_if_free(self) -> None:
        """Take the next frame unless a request, its response or a quota is in the way."""
        is_busy = self._header is not None or self._is_stalled or self._is_authenticating
        if not is_busy and self._writing_since is None and self._unmute is None:
            self.release()

    # -- requests

    def frame_received(self, frame: Buffer) -> None:
        self._began_s, self._request_size = time.monotonic(), len(frame)
        self._handle_frame(frame)

    def _handle_frame(self, frame: Buffer) -> None:
        try:
            self._begin_request(frame)
        except IllegalSaslStateError as error:
            self.frame_refused(f"an illegal request ({error})")
        except SaslAuthenticationError as error:
            self.frame_refused(f"an unacceptable certificate ({error})")
        except KraftError as error:
            self.frame_refused(f"a malformed request ({error})")
        if self._header is None and not self._is_stalled:
            self._release_memory()

    def _stall(self, frame: Buffer) -> None:
        """Keep the frame, and read no further, until other requests are done."""
        self.hold()
        self._is_stalled = True
        self._stalled_frame = frame
        self._owner.stalled.append(self)

    def resume_soon(self) -> None:
        """Handle the kept frame, from the event loop."""
        self._loop.call_soon(self._resume)

    def _resume(self) -> None:
        if not self._is_stalled:
            return
        self._is_stalled = False
        frame, self._stalled_frame = self._stalled_frame, b""
        self._handle_frame(frame)
        self._release_if_free()

    def _begin_request(self, frame: Buffer) -> None:
        owner, gate = self._owner, self._gate
        if gate is not None and gate.takes_bare_tokens:
            self._begin_token(gate, None, frame, 0)
            return
        key, version, correlation, client_id, body_at = decode_request_header(
            frame, owner.flexible_since
        )
        api = owner.apis.get(key)
        if api is None or (version not in api and api is not API_VERSIONS):
            self.frame_refused(f"API {key} in version {version}, which is not served")
            return
        header = RequestHeader(api, version, correlation, client_id)
        if gate is not None and gate.takes(header):
            self._authenticate(gate, header, frame, body_at)
            return
        if self._identity is None:
            self._identity = self._identify()
        if key in SASL_APIS:
            self.write(illegal_state(header))
            return
        if api is API_VERSIONS:
            said, body = answer_api_versions(
                version, frame, body_at, owner.apis.values(), owner.features()
            )
            owner.admission.begin_work(self)
            owner.admission.promote(self, Standing.CLIENT)
            self._write_answer(header._replace(version=said), [body])
            owner.admission.end_work(self)
            return
        handler = owner.handlers.get(key)
        if handler is not None:
            if not handler.keeps_alive:
                if owner.request_count >= owner.limits.max_requests:
                    self._stall(frame)
                    return
                owner.request_count += 1
            self._begin_work(header)
            self._is_counted = not handler.keeps_alive
            standing = Standing.REPLICA if handler.keeps_alive else Standing.CLIENT
            owner.admission.promote(self, standing)
            self._task = self._loop.create_task(self._handle(handler, header, frame, body_at))
            return
        if not owner.is_allowed(api, self._identity):
            denied = error_response(api, CLUSTER_AUTHORIZATION_FAILED)
            self._write_answer(
                header, encode_response(denied, version, self.listener_name, owner.resolve)
            )
            return
        request = decode_request(api, version, frame, body_at)
        if isinstance(request, Rejected):
            self._write_answer(header, [request.body])
            return
        self._begin_work(header)
        owner.admission.promote(self, *owner.standing_of(request))
        self._reply_to = owner.await_answer(self)
        owner.deliver(RequestReceived(request, self._reply_to))

    # -- authentication

    def _identify(self) -> PeerIdentity:
        """Return the peer of a connection without SASL. Raises SaslAuthenticationError."""
        transport = self.transport
        certificate = transport.peer_certificate if isinstance(transport, TlsTransport) else None
        return self._security.identity(self.address, self.listener_name, certificate)

    def _authenticate(
        self, gate: SaslGate, header: RequestHeader, frame: Buffer, body_at: int
    ) -> None:
        if header.api is API_VERSIONS:
            owner = self._owner
            said, body = answer_api_versions(
                header.version, frame, body_at, owner.apis.values(), owner.features()
            )
            gate.note_versions(is_answered=body[:2] == b"\0\0")
            self._write_answer(header._replace(version=said), [body])
        elif header.api is SASL_HANDSHAKE:
            self._write_gate_answer(gate.answer_handshake(header, frame, body_at))
        else:
            self._begin_token(gate, header, frame, body_at)

    def _begin_token(
        self, gate: SaslGate, header: RequestHeader | None, frame: Buffer, body_at: int
    ) -> None:
        self.hold()
        self._is_authenticating = True
        self._task = self._loop.create_task(self._answer_token(gate, header, frame, body_at))

    async def _answer_token(
        self, gate: SaslGate, header: RequestHeader | None, frame: Buffer, body_at: int
    ) -> None:
        try:
            answer = await gate.answer_token(header, frame, body_at, self._owner.token_executor)
        except KraftError as error:
            self.frame_refused(f"an illegal request ({error})")
            return
        self._task = None
        self._write_gate_answer(answer)
        if gate.principal is not None and not answer.is_final:
            self._identity = PeerIdentity(
                self.address, gate.principal, self._security.protocol, self.listener_name
            )
        if not answer.is_final:
            self._is_authenticating = False
            self._release_if_free()

    def _write_gate_answer(self, answer: GateAnswer) -> None:
        self.last_active = self._loop.time()
        if not answer.is_final:
            self.write(answer.pieces)
            return
        self._owner.warnings.warn(
            "SASL authentications failed",
            f"the SASL authentication of {self.address} failed: {answer.failure}",
        )
        self.hold()
        self._is_authenticating = True
        self._loop.call_later(
            self._security.failure_delay_ms / 1000, self._end_rejected, answer.pieces
        )

    def _end_rejected(self, pieces: list[Buffer]) -> None:
        """Write the last response and close."""
        if pieces:
            self.write(pieces)
        self.finish()

    # -- answers

    def _begin_work(self, header: RequestHeader) -> None:
        self.hold()
        self._header = header
        self._reply_to = -1
        self._owner.admission.begin_work(self)

    async def _handle(
        self, handler: Handler, header: RequestHeader, frame: Buffer, body_at: int
    ) -> None:
        assert self._identity is not None
        try:
            answer = await handler.answer(header, memoryview(frame)[body_at:], self._identity)
        except KraftError as error:
            self.frame_refused(f"an invalid {header.api.name} request ({error})")
        except Exception:
            self._owner.warnings.warn(
                "requests failed",
                f"{header.api.name} failed; the connection is closed\n{traceback.format_exc()}",
            )
            self.close()
        else:
            self._task = None
            if answer.throttle_ms:
                self._mute(answer.throttle_ms, self._unmuted)
            self._answer([answer.body])

    def respond(self, response: Response) -> None:
        """Write the raft node's response to the request in progress."""
        header = self._header
        assert header is not None
        self._owner.traffic.errors[header.api.name, response.error] += 1
        self._answer(
            encode_response(response, header.version, self.listener_name, self._owner.resolve)
        )

    def _answer(self, pieces: list[Any]) -> None:
        header, self._header = self._header, None
        if header is None:
            return
        self._write_answer(header, pieces)
        self._release_memory()
        self._owner.admission.end_work(self)
        self._release_if_free()
        if self._is_counted:
            self._is_counted = False
            self._owner.request_done()

    def _write_answer(self, header: RequestHeader, pieces: list[Buffer]) -> None:
        size = sum(map(len, pieces))
        start = response_header(header.api, header.version, header.correlation, size)
        self.last_active = self._loop.time()
        self.write([start, *pieces])
        taken_ms = (time.monotonic() - self._began_s) * 1000
        self._owner.traffic.note(self._traffic, header, self._request_size, size, taken_ms)


def _tls_of(security: ListenerSecurity) -> TlsContexts:
    """Return the present contexts: a reload may have replaced them since the connection began."""
    assert security.tls is not None
    return security.tls
