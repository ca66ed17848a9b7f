"""The controller listener: what all connections of a node share, and its sockets.

Responsible for the limits, the served APIs, the requests in progress, and the times of all
connections. ``kraft.network.server_connection`` is one of them. All limits are finite by default.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from kraft._core.sockets.request_memory import RequestMemory
from kraft.network.acceptor import Acceptor, Begin
from kraft.network.admission import Admission, ConnectionLimits, Standing
from kraft.network.authentication import SASL_APIS, ListenerSecurity
from kraft.network.creation_rates import CreationRates, RateLimits
from kraft.network.framing import Buffer
from kraft.network.handler import Handler
from kraft.network.paced_answers import PacedAnswers
from kraft.network.throttled_log import ThrottledLog
from kraft.network.tls_transport import HandshakeQueue
from kraft.network.traffic import Traffic
from kraft.protocol.api_versions import API_VERSIONS, NodeFeatures
from kraft.protocol.headers import Api
from kraft.protocol.raft_rpcs import RAFT_APIS, encode_response
from kraft.raft.interface import Event, RequestAbandoned, RequestReceived, RequestsReceived
from kraft.raft.rpc import LogSlice, Request, Response, SnapshotSlice
from kraft.raft.voters import Endpoint
from kraft.security.protocols import PeerIdentity

# How long `close` waits until peers have read their responses.
_CLOSE_TIMEOUT_S = 0.5
# Checking ten thousand connections at once would block the loop for 10 ms.
_CHECKED_AT_ONCE = 500
_SLICE_PAUSE_S = 0.005
#: How long a node with no other request gathers heartbeats. Each one wakes the process, and most of
#: its cost is that caches are cold: 500 a second, handled together, take a third less CPU time.
GATHER_S = 0.01


class Limits(NamedTuple):
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
    max_connections_of_ips: Mapping[str, int] = MappingProxyType({})
    #: max.connections of single listeners, by name.
    max_connections_of_listeners: Mapping[str, int] = MappingProxyType({})
    #: max.connection.creation.rate, of the node and of listeners.
    creation_rates: RateLimits = RateLimits()
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
    #: Memory of large requests in progress on all connections together. Peers that are not
    #: authenticated get no more while half of it is taken.
    max_request_memory: int = 256 * 1024 * 1024
    #: Memory of handlers' responses that peers have not read; above it the slowest reader is
    #: disconnected. The log and snapshots are mapped and take none.
    max_response_memory: int = 256 * 1024 * 1024
    #: Slices of files in responses that peers have not read, each of which may keep a file open;
    #: above it the slowest reader is disconnected.
    max_response_slices: int = 4000

    def of_connections(self) -> ConnectionLimits:
        return ConnectionLimits(
            self.max_connections,
            self.max_connections_per_ip,
            self.max_connections_of_ips,
            self.max_connections_of_listeners,
        )


class OpenConnection(Protocol):
    """What the listener does with a connection: `ServerConnection`."""

    def respond(self, response: Response) -> None: ...
    def resume(self) -> None: ...
    def check_time(self, now: float) -> None: ...
    def frame_refused(self, reason: str) -> None: ...
    def finish(self) -> None: ...
    def close(self) -> None: ...


class PlainListener(Protocol):
    """Serves connections without TLS in place of the event loop: `DataListener`."""

    @property
    def has_room(self) -> bool: ...
    def begin(self, accepted: socket.socket, peer: Any, name: str) -> None: ...
    def close(self) -> None: ...


class RaftService(NamedTuple):
    """The raft node that answers the requests of the quorum; its functions are `Transport`'s."""

    deliver: Callable[[Event], None]
    resolve: Callable[[LogSlice | SnapshotSlice], memoryview]
    standing_of: Callable[[Request], tuple[Standing, int]]
    denial_of: Callable[[Api, PeerIdentity], int]


class Listener:
    """The server side of a node: what all its connections share. Without ``raft`` it serves only
    the APIs of its handlers. ``advertised`` returns those of the served APIs, and their versions,
    that an ApiVersions response names.

    ``accept`` returns the protocol of a new connection, from this object, the name of the listener
    and the event loop. With a ``data_listener`` the connections without TLS belong to it instead.
    """

    def __init__(
        self,
        accept: Callable[[Listener, str, asyncio.AbstractEventLoop], asyncio.BufferedProtocol],
        limits: Limits,
        features: Callable[[], NodeFeatures],
        handlers: Mapping[int, Handler],
        warnings: ThrottledLog,
        security: Mapping[str, ListenerSecurity],
        traffic: Traffic | None = None,
        raft: RaftService | None = None,
        advertised: Callable[[Iterable[Api]], Iterable[Api]] = lambda served: served,
        data_listener: Callable[[Listener, asyncio.AbstractEventLoop], PlainListener] | None = None,
    ) -> None:
        self._accept = accept
        self._make_data_listener = data_listener
        self.data_listener: PlainListener | None = None
        self.limits = limits
        self.traffic = Traffic() if traffic is None else traffic
        self.warnings = warnings
        self.raft = raft
        self._advertised = advertised
        #: By listener; a listener without an entry is PLAINTEXT.
        self.security = security
        self.admission = Admission(limits.of_connections())
        self.rates = CreationRates(limits.creation_rates)
        self.memory = RequestMemory()
        #: The bytes in memory and the slices of files of handlers' responses that are not read, the
        #: oldest first, and their sums.
        self._unread: dict[OpenConnection, tuple[int, int]] = {}
        self._unread_memory = self._unread_slices = 0
        self.features = features
        self.handlers = handlers
        self.apis = {
            API_VERSIONS.key: API_VERSIONS,
            **SASL_APIS,
            **({} if raft is None else RAFT_APIS),
            **{key: handler.api for key, handler in handlers.items()},
        }
        self.flexible_since = {key: api.flexible_since for key, api in self.apis.items()}
        self.connections: set[OpenConnection] = set()
        #: Connections with a kept frame: those above the limit of requests, and heartbeats.
        self.stalled: deque[OpenConnection] = deque()
        self._gathered: list[OpenConnection] = []
        self.gathered_apis = frozenset(key for key, one in handlers.items() if one.is_gathered)
        self.request_count = 0
        self._answerable: dict[int, OpenConnection] = {}
        #: The response that was encoded last in this turn of the event loop, with its version and
        #: listener.
        self._encoded: tuple[Response, int, str, list[Buffer]] | None = None
        #: Requests of observers that came in this turn of the event loop.
        self._observers_requests: list[RequestReceived] = []
        #: The answers to fetches of observers, which must not delay what keeps a cluster alive.
        self.paced = PacedAnswers()
        self._next_reply_to = 0
        self._servers: list[asyncio.Server] = []
        #: Servers that are bound and do not accept connections yet.
        self._waiting_servers: list[tuple[str, asyncio.Server]] = []
        self._acceptor: Acceptor | None = None
        #: Accepted connections that the event loop has not made yet.
        self._beginning: set[asyncio.Task[None]] = set()
        self.handshakes: HandshakeQueue | None = None
        self._token_thread: ThreadPoolExecutor | None = None
        self._sweep: asyncio.TimerHandle | None = None
        #: Connections that the current sweep has still to check.
        self._unchecked: list[OpenConnection] = []

    async def start(
        self,
        endpoints: tuple[Endpoint, ...],
        waiting: Container[str] = (),
    ) -> tuple[Endpoint, ...]:
        """Listen at the endpoints and return the bound ones; port 0 binds a free port.

        The listeners with a name in ``waiting`` refuse connections until `open_waiting`. Raises
        OSError where an address is not available.
        """
        loop = asyncio.get_running_loop()
        self.handshakes = HandshakeQueue(loop)
        bound = []
        self._acceptor = Acceptor(loop, self.warnings, self._has_room)
        if self._make_data_listener is not None:
            self.data_listener = self._make_data_listener(self, loop)
        try:
            for endpoint in endpoints:
                try:
                    # Only binds the addresses of the host: connections go to the acceptor.
                    server = await loop.create_server(
                        partial(self._accept, self, endpoint.name, loop),
                        endpoint.host or None,
                        endpoint.port,
                        start_serving=False,
                    )
                except OSError as error:
                    # The error number of a failed name resolution is below 0.
                    reason = os.strerror(number) if (number := error.errno or 0) > 0 else error
                    raise OSError(f"cannot listen at {endpoint!r}: {reason}") from error
                self._servers.append(server)
                if endpoint.name in waiting:
                    self._waiting_servers.append((endpoint.name, server))
                else:
                    self._serve(endpoint.name, server)
                bound.append(endpoint._replace(port=server.sockets[0].getsockname()[1]))
        except OSError:
            await self.close()
            raise
        self._sweep_later()
        return tuple(bound)

    def advertised_apis(self) -> Iterable[Api]:
        """Return the APIs of an ApiVersions response."""
        return self._advertised(self.apis.values())

    def set_limits(self, limits: Limits) -> None:
        """Apply other limits of connections, to open connections too."""
        self.limits = limits
        self.admission.set_limits(limits.of_connections())
        self.rates.limits = limits.creation_rates

    def open_waiting(self) -> None:
        """Accept connections at the listeners that have waited so far."""
        servers, self._waiting_servers = self._waiting_servers, []
        for name, server in servers:
            self._serve(name, server)

    def _serve(self, name: str, server: asyncio.Server) -> None:
        """Accept the connections of a bound server."""
        assert self._acceptor is not None
        security = self.security.get(name)
        is_plain = security is None or security.tls is None
        begin: Begin = self._begin
        if self.data_listener is not None and is_plain:
            begin = self.data_listener.begin
        self._acceptor.serve(name, server, begin)

    def _has_room(self) -> bool:
        return self.data_listener is None or self.data_listener.has_room

    def _begin(self, accepted: socket.socket, peer: Any, name: str) -> None:
        """Serve a connection of the listener with this name on the event loop."""
        loop = asyncio.get_running_loop()
        begun = loop.create_task(self._connect(loop, accepted, name))
        self._beginning.add(begun)
        begun.add_done_callback(self._beginning.discard)

    async def _connect(
        self, loop: asyncio.AbstractEventLoop, accepted: socket.socket, name: str
    ) -> None:
        try:
            await loop.connect_accepted_socket(partial(self._accept, self, name, loop), accepted)
        except OSError as error:
            self.warnings.warn("connections could not be accepted", f"a connection ended: {error}")
            accepted.close()

    @property
    def request_memory(self) -> int:
        """The bytes of large requests in progress."""
        return self.memory.taken

    def token_executor(self) -> Executor:
        """Return the thread that derives the keys of delegation tokens."""
        if self._token_thread is None:
            self._token_thread = ThreadPoolExecutor(1, "tokens")
        return self._token_thread

    def stop_accepting(self) -> None:
        for server in self._servers:
            server.close()
        if self._acceptor is not None:
            self._acceptor.stop()

    async def close(self) -> None:
        """Close every connection; wait briefly until written responses are sent."""
        self.stop_accepting()
        self.paced.close()
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
        if self.data_listener is not None:
            self.data_listener.close()
            self.data_listener = None
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

    def encoded(self, response: Response, version: int, listener: str) -> list[Buffer]:
        """Return the body of a response; once for those observers that get the same one."""
        last = self._encoded
        if last is None:
            # A slice of the log that is kept longer would have the log copied to truncate it.
            asyncio.get_running_loop().call_soon(self._forget_encoded)
        if last is None or last[0] is not response or last[1:3] != (version, listener):
            assert self.raft is not None
            pieces = encode_response(response, version, listener, self.raft.resolve)
            last = self._encoded = response, version, listener, pieces
        return last[3]

    def _forget_encoded(self) -> None:
        self._encoded = None

    def await_answer(self, connection: OpenConnection) -> int:
        reply_to = self._next_reply_to
        self._next_reply_to += 1
        self._answerable[reply_to] = connection
        return reply_to

    def deliver_together(self, received: RequestReceived) -> None:
        """Deliver an observer's request with the others of this turn of the event loop."""
        self._observers_requests.append(received)
        if len(self._observers_requests) == 1:
            asyncio.get_running_loop().call_soon(self._deliver_requests)

    def _deliver_requests(self) -> None:
        requests, self._observers_requests = self._observers_requests, []
        if requests and self.raft is not None:
            self.raft.deliver(RequestsReceived(requests))

    def forget(self, reply_to: int) -> None:
        """Deliver RequestAbandoned where the raft node has not answered this closed connection."""
        if self._answerable.pop(reply_to, None) is not None and self.raft is not None:
            self._deliver_requests()
            self.raft.deliver(RequestAbandoned(reply_to))

    def request_done(self) -> None:
        """Count a completed or dropped request of a handler; resume a stalled connection."""
        self.request_count -= 1
        free = self.limits.max_requests - self.request_count
        while self.stalled and free > 0:
            asyncio.get_running_loop().call_soon(self.stalled.popleft().resume)
            free -= 1

    def gather(self, connection: OpenConnection) -> None:
        """Have the connection resumed together with others that come within `GATHER_S`."""
        self._gathered.append(connection)
        if len(self._gathered) == 1:
            asyncio.get_running_loop().call_later(GATHER_S, self._resume_gathered)

    def _resume_gathered(self) -> None:
        gathered, self._gathered = self._gathered, []
        for connection in gathered:
            connection.resume()

    def note_unread(self, connection: OpenConnection, size: int, slices: int) -> None:
        """Count a response that its peer does not read; disconnect the slowest above a limit."""
        self._unread[connection] = (size, slices)
        self._unread_memory += size
        self._unread_slices += slices
        limits = self.limits
        while len(self._unread) > 1 and (
            self._unread_memory > limits.max_response_memory
            or self._unread_slices > limits.max_response_slices
        ):
            slowest = next(iter(self._unread))
            self.forget_unread(slowest)
            slowest.frame_refused("requests whose large responses it does not read")

    def forget_unread(self, connection: OpenConnection) -> None:
        size, slices = self._unread.pop(connection, (0, 0))
        self._unread_memory -= size
        self._unread_slices -= slices

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
