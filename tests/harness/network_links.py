"""TCP proxies on loopback in front of the controllers of a quorum; they cut links in one direction.

Each controller has one proxy, whose port it advertises. The proxy learns the sender of a connection
from the client id of its first request: ``raft-client-ID`` of a controller or a broker that fetches
the log, ``ID`` of a broker's other requests. The sender of other clients is None.

Where each caller has a proxy of its own, as candidates on ZooKeeper, ``knows_senders`` is false:
every sender is None, and requests need no client id.

A cut link delivers no byte in its direction, of requests or responses, on old connections and new
ones. As after a real partition, the connections stay, and bytes that were sent meanwhile arrive
when the link is mended.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Self

from kraft.server.local_quorum import LOOPBACK

#: Bytes before the client id: size, API key, version, correlation id, length of the client id.
_CLIENT_ID_AT = 14
_PATIENCE_S = 30.0

#: (sender, receiver)
Link = tuple[int | None, int | None]


class NetworkLinks:
    """The proxies of nodes that listen at ``node_ports``; a context manager."""

    def __init__(
        self,
        proxy_ports: Mapping[int, int],
        node_ports: Mapping[int, int],
        *,
        knows_senders: bool = True,
    ) -> None:
        self.knows_senders = knows_senders
        self._proxy_ports = dict(proxy_ports)
        self._node_ports = dict(node_ports)
        self._cut: set[Link] = set()
        self._connections: set[_Connection] = set()
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(_PATIENCE_S)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._in_loop(self._close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE_S)
        self._loop.close()

    def cut(self, links: Iterable[Link]) -> None:
        """Cut these links, in addition to those that are cut; no byte passes once it returns."""
        wanted = set(links)
        self._in_loop(lambda: self._set_cut(self._cut | wanted))

    def mend(self) -> None:
        """Mend all links."""
        self._in_loop(lambda: self._set_cut(set()))

    def disconnect(self, receiver: int) -> None:
        """End all connections to a node; new ones pass."""

        def end() -> None:
            for connection in list(self._connections):
                if connection.receiver == receiver:
                    connection.end()

        self._in_loop(end)

    def is_cut(self, sender: int | None, receiver: int | None) -> bool:
        return (sender, receiver) in self._cut

    # -- within the loop

    def _in_loop(self, work: Callable[[], None]) -> None:
        async def run() -> None:
            work()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(_PATIENCE_S)

    async def _listen(self) -> None:
        for node, port in self._proxy_ports.items():
            accept = self._acceptor(node)
            self._servers.append(await self._loop.create_server(accept, LOOPBACK, port))

    def _acceptor(self, node: int) -> Callable[[], asyncio.Protocol]:
        def accept() -> asyncio.Protocol:
            connection = _Connection(self, node, self._node_ports[node])
            self._connections.add(connection)
            return connection.caller

        return accept

    def _set_cut(self, links: set[Link]) -> None:
        self._cut = links
        for connection in self._connections:
            connection.heed_cuts()

    def _close(self) -> None:
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.end()

    def forget(self, connection: _Connection) -> None:
        self._connections.discard(connection)


class _Connection:
    """A connection of a caller to a node: a socket of each, and bytes that wait for the second."""

    def __init__(self, links: NetworkLinks, receiver: int, port: int) -> None:
        self._links = links
        self.receiver = receiver
        self._port = port
        #: The node that sends the requests; None for other clients.
        self.sender: int | None = None
        self.caller = _Side(self)
        self.node = _Side(self)
        self._first = bytearray()
        self._opening: asyncio.Task[None] | None = None

    def received(self, side: _Side, data: bytes) -> None:
        if side is self.node:
            self.caller.send(data)
        elif self.node.transport is not None:
            self.node.send(data)
        else:
            self._first += data
            self._open_once_known()

    def _open_once_known(self) -> None:
        if self._opening is not None:
            return
        if self._links.knows_senders and not self._learn_sender():
            return
        self._opening = asyncio.get_running_loop().create_task(self._open())

    def _learn_sender(self) -> bool:
        """Return whether the first request has come as far as its client id, which is noted."""
        if len(self._first) < _CLIENT_ID_AT:
            return False
        size = int.from_bytes(self._first[_CLIENT_ID_AT - 2 : _CLIENT_ID_AT], "big", signed=True)
        end = _CLIENT_ID_AT + max(size, 0)
        if len(self._first) < end:
            return False
        client_id = self._first[_CLIENT_ID_AT:end].decode(errors="replace")
        if found := re.fullmatch(r"(?:raft-client-)?(\d+)", client_id):
            self.sender = int(found[1])
        return True

    async def _open(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: self.node, LOOPBACK, self._port)
        except OSError:
            self.end()
            return
        if self.caller.is_lost:
            self.end()
            return
        # The first request is sent when its link is whole: `heed_cuts` looks again later.
        self.heed_cuts()

    def heed_cuts(self) -> None:
        """Stop or resume reading, of the requests and of the responses."""
        if self.node.transport is None:
            return
        cuts_requests = self._links.is_cut(self.sender, self.receiver)
        if self._first and not cuts_requests:
            self.node.send(bytes(self._first))
            self._first.clear()
        self.caller.pause(cuts_requests)
        self.node.pause(self._links.is_cut(self.receiver, self.sender))

    def lost(self, side: _Side) -> None:
        """One socket has ended: send what is left to the other, and end it."""
        other = self.node if side is self.caller else self.caller
        if other.transport is not None:
            other.transport.close()
        self._links.forget(self)

    def end(self) -> None:
        for side in (self.caller, self.node):
            if side.transport is not None:
                side.transport.abort()
        self._links.forget(self)


class _Side(asyncio.Protocol):
    """One socket of a connection."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self.transport: asyncio.Transport | None = None
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._connection.received(self, data)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True
        self._connection.lost(self)

    def send(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def pause(self, is_cut: bool) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        if is_cut:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()
