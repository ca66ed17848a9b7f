"""The controller listener: connections of peers, brokers and tools.

Owns accepting, limits, and the life of a request: frame -> header -> either the raft node, or a
`Handler` (the controller's APIs), or an answer on the spot (ApiVersions, a request of a wrong
shape). As in Kafka's ``SocketServer`` a connection has one request at a time: the next one is not
even decoded before the answer is out, so that answers keep their order and one peer can never
make more than one request's work wait.

Whatever a peer does costs at most its own connection: a frame that is too large or malformed, an
API or version that is not served, a frame that never ends, an answer that is never read, an idle
time that is too long. Everything is finite by default.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kraft._core.messages import decode_request_header
from kraft.errors import KraftError
from kraft.raft.messages import LogSlice, Response, SnapshotSlice
from kraft.raft.ready import Event, RequestReceived
from kraft.raft.voters import Endpoint
from kraft.server.network.framing import FrameProtocol, Piece
from kraft.server.rpc.api_versions import Features, answer_api_versions
from kraft.server.rpc.handler import Handler
from kraft.server.rpc.requests import Refused, decode_request
from kraft.server.rpc.responses import encode_response
from kraft.server.rpc.wire import API_VERSIONS, RAFT_APIS, RequestHeader, response_header

log = logging.getLogger(__name__)

# How long closing waits for answers to be taken.
_CLOSE_TIMEOUT_S = 0.5


@dataclass(frozen=True, slots=True)
class Limits:
    """What a listener bears; times in milliseconds, sizes in bytes."""

    #: socket.request.max.bytes
    max_request_size: int = 100 * 1024 * 1024
    #: Of requests to the raft node, which are small.
    max_raft_request_size: int = 1024 * 1024
    #: max.connections; Kafka's own default has no end.
    max_connections: int = 5000
    #: max.connections.per.ip; Kafka's own default has no end.
    max_connections_per_ip: int = 1000
    #: connections.max.idle.ms
    max_idle_ms: int = 600_000
    #: A request must be whole within this time from its first byte on.
    request_read_timeout_ms: int = 30_000
    #: An answer that makes no way to its reader for this long is given up, with the connection.
    response_write_timeout_ms: int = 30_000
    #: Requests at work in all connections together, waiting fetches included; the others are not
    #: read before one of these is answered.
    max_requests: int = 4000


class Listener:
    """The server side of a node's transport."""

    def __init__(
        self,
        limits: Limits,
        deliver: Callable[[Event], None],
        resolve: Callable[[LogSlice | SnapshotSlice], memoryview],
        features: Callable[[], Features],
        handlers: Mapping[int, Handler],
    ) -> None:
        self.limits = limits
        self.deliver = deliver
        self.resolve = resolve
        self.features = features
        self.handlers = handlers
        self.apis = {
            API_VERSIONS.key: API_VERSIONS,
            **RAFT_APIS,
            **{key: handler.api for key, handler in handlers.items()},
        }
        self.flexible_since = {key: api.flexible_since for key, api in self.apis.items()}
        self.connections: set[ServerConnection] = set()
        self.by_address: Counter[str] = Counter()
        self.stalled: deque[ServerConnection] = deque()
        self.request_count = 0
        self._answerable: dict[int, ServerConnection] = {}
        self._next_reply_to = 0
        self._servers: list[asyncio.Server] = []
        self._sweep: asyncio.TimerHandle | None = None

    async def start(self, endpoints: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
        """Listen; port 0 takes a free one. Returns the endpoints as they are bound.

        Raises OSError where an address cannot be had.
        """
        loop = asyncio.get_running_loop()
        bound = []
        try:
            for endpoint in endpoints:
                try:
                    server = await loop.create_server(
                        lambda name=endpoint.name: ServerConnection(self, name, loop),
                        endpoint.host or None,
                        endpoint.port,
                        backlog=128,
                    )
                except OSError as error:
                    # A name that cannot be resolved has a number of its own, below 0.
                    reason = os.strerror(number) if (number := error.errno or 0) > 0 else error
                    raise OSError(f"cannot listen at {endpoint!r}: {reason}") from error
                self._servers.append(server)
                bound.append(endpoint._replace(port=server.sockets[0].getsockname()[1]))
        except OSError:
            await self.close()
            raise
        self._sweep_later()
        return tuple(bound)

    def stop_accepting(self) -> None:
        for server in self._servers:
            server.close()

    async def close(self) -> None:
        """Close every connection: what is not answered yet is dropped, what is answered still goes
        out, to those who read it soon.
        """
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
        servers, self._servers = self._servers, []
        for server in servers:
            await server.wait_closed()

    def respond(self, reply_to: int, response: Response) -> None:
        """Answer the request that was delivered under ``reply_to``.

        Nothing where its connection is gone.
        """
        connection = self._answerable.pop(reply_to, None)
        if connection is not None:
            connection.respond(response)

    def await_answer(self, connection: ServerConnection) -> int:
        reply_to = self._next_reply_to
        self._next_reply_to += 1
        self._answerable[reply_to] = connection
        return reply_to

    def forget(self, reply_to: int) -> None:
        self._answerable.pop(reply_to, None)

    def request_done(self) -> None:
        """A request was answered or dropped: one that was held back may come in."""
        self.request_count -= 1
        free = self.limits.max_requests - self.request_count
        while self.stalled and free > 0:
            self.stalled.popleft().take_turn_soon()
            free -= 1

    # -- time

    def _sweep_later(self) -> None:
        limits = self.limits
        shortest = min(
            limits.max_idle_ms, limits.request_read_timeout_ms, limits.response_write_timeout_ms
        )
        loop = asyncio.get_running_loop()
        self._sweep = loop.call_later(min(shortest / 4, 1000) / 1000, self._sweep_connections)

    def _sweep_connections(self) -> None:
        now = asyncio.get_running_loop().time()
        for connection in list(self.connections):
            connection.check_time(now)
        self._sweep_later()


class ServerConnection(FrameProtocol):
    """One connection of a peer, with at most one request at work."""

    def __init__(self, owner: Listener, name: str, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop, owner.limits.max_request_size)
        self._owner = owner
        self._listener_name = name
        self._address = ""
        self._header: RequestHeader | None = None
        self._reply_to = -1
        self._task: asyncio.Task[None] | None = None
        self._is_stalled = False
        self._stalled_frame: Piece = b""
        self._writing_since: float | None = None
        self._unwritten = 0

    # -- life and limits

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        owner, limits = self._owner, self._owner.limits
        peer = transport.get_extra_info("peername")
        self._address = str(peer[0]) if peer else ""
        if (
            len(owner.connections) >= limits.max_connections
            or owner.by_address[self._address] >= limits.max_connections_per_ip
        ):
            log.warning("too many connections: one of %s is closed", self._address)
            self.close()
            return
        owner.connections.add(self)
        owner.by_address[self._address] += 1

    def connection_lost(self, exc: Exception | None) -> None:
        owner = self._owner
        if self not in owner.connections:
            return
        owner.connections.discard(self)
        owner.by_address[self._address] -= 1
        if not owner.by_address[self._address]:
            del owner.by_address[self._address]
        self._is_stalled = False
        if self in owner.stalled:
            owner.stalled.remove(self)
        if self._task is not None:
            self._task.cancel()
        if self._header is not None:
            self._header = None
            owner.forget(self._reply_to)
            owner.request_done()

    def frame_refused(self, reason: str) -> None:
        log.warning("%s sent %s: closed", self._address, reason)
        self.close()

    def size_limit(self, start: memoryview) -> int:
        key = int.from_bytes(start, "big", signed=True) if len(start) == 2 else None
        if key in RAFT_APIS and key not in self._owner.handlers:
            return self._owner.limits.max_raft_request_size
        return self._max_frame_size

    def check_time(self, now: float) -> None:
        """Close what has come to a stop."""
        limits = self._owner.limits
        if self._writing_since is not None:
            assert self.transport is not None
            unwritten = self.transport.get_write_buffer_size()
            if unwritten < self._unwritten:
                self._unwritten, self._writing_since = unwritten, now
            elif now - self._writing_since > limits.response_write_timeout_ms / 1000:
                self.frame_refused("no sign that it reads its answers")
        elif self._header is not None or self._is_stalled:
            return
        elif self.frame_begun is not None:
            if now - self.frame_begun > limits.request_read_timeout_ms / 1000:
                self.frame_refused("a frame that does not end")
        elif now - self.last_active > limits.max_idle_ms / 1000:
            self.close()

    def pause_writing(self) -> None:
        assert self.transport is not None
        self.hold()
        self._writing_since = self._loop.time()
        self._unwritten = self.transport.get_write_buffer_size()

    def resume_writing(self) -> None:
        self._writing_since = None
        self.last_active = self._loop.time()
        if self._header is None:
            self.release()

    # -- requests

    def frame_received(self, frame: Piece) -> None:
        owner = self._owner
        if owner.request_count >= owner.limits.max_requests:
            self._stall(frame)
            return
        try:
            self._begin_request(frame)
        except KraftError as error:
            self.frame_refused(f"a malformed request ({error})")

    def _stall(self, frame: Piece) -> None:
        """Keep the frame, and read no further, until others are done."""
        self.hold()
        self._is_stalled = True
        self._stalled_frame = frame
        self._owner.stalled.append(self)

    def take_turn_soon(self) -> None:
        """Go on with the frame that was kept, from the event loop."""
        self._loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        if not self._is_stalled:
            return
        self._is_stalled = False
        frame, self._stalled_frame = self._stalled_frame, b""
        self.frame_received(frame)
        if self._header is None and not self._is_stalled and self._writing_since is None:
            self.release()

    def _begin_request(self, frame: Piece) -> None:
        owner = self._owner
        key, version, correlation, client_id, body_at = decode_request_header(
            frame, owner.flexible_since
        )
        api = owner.apis.get(key)
        if api is None or (version not in api and api is not API_VERSIONS):
            self.frame_refused(f"API {key} in version {version}, which is not served")
            return
        header = RequestHeader(api, version, correlation, client_id)
        if api is API_VERSIONS:
            said, body = answer_api_versions(
                version, frame, body_at, owner.apis.values(), owner.features()
            )
            self._write_answer(header._replace(version=said), [body])
            return
        handler = owner.handlers.get(key)
        if handler is not None:
            self._begin_work(header)
            self._task = self._loop.create_task(self._handle(handler, header, frame, body_at))
            return
        request = decode_request(api, version, frame, body_at)
        if isinstance(request, Refused):
            self._write_answer(header, [request.body])
            return
        self._begin_work(header)
        self._reply_to = owner.await_answer(self)
        owner.deliver(RequestReceived(request, self._reply_to))

    def _begin_work(self, header: RequestHeader) -> None:
        self.hold()
        self._header = header
        self._reply_to = -1
        self._owner.request_count += 1

    async def _handle(
        self, handler: Handler, header: RequestHeader, frame: Piece, body_at: int
    ) -> None:
        try:
            body = await handler.answer(header, memoryview(frame)[body_at:])
        except KraftError as error:
            self.frame_refused(f"a {header.api.name} request that was refused ({error})")
        except Exception:
            log.exception("%s failed; the connection is closed", header.api.name)
            self.close()
        else:
            self._task = None
            self._answer([body])

    def respond(self, response: Response) -> None:
        """The raft node's answer to the request at work."""
        header = self._header
        assert header is not None
        self._answer(
            encode_response(response, header.version, self._listener_name, self._owner.resolve)
        )

    def _answer(self, pieces: list[Any]) -> None:
        header, self._header = self._header, None
        if header is None:
            return
        self._write_answer(header, pieces)
        if self._writing_since is None:
            self.release()
        self._owner.request_done()

    def _write_answer(self, header: RequestHeader, pieces: list[Piece]) -> None:
        size = sum(map(len, pieces))
        start = response_header(header.api, header.version, header.correlation, size)
        self.last_active = self._loop.time()
        self.write([start, *pieces])
