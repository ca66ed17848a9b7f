"""The transport of a raft node: its listener, and its connections to other nodes.

Converts received messages into events for ``Node.step``, and the node's messages into bytes; checks
the timeouts of requests. Everything runs on one event loop: call `Transport.send` on it; `deliver`
is called on it, and never within `send`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from kraft._core.codec.metadata_codec import Message
from kraft.errors import NONE
from kraft.network.admission import Standing
from kraft.network.authentication import ListenerSecurity
from kraft.network.channel import Answer, Channel
from kraft.network.connections import Peer
from kraft.network.data_loop import data_listener_type
from kraft.network.handler import Handler
from kraft.network.listener import Limits, Listener, RaftService
from kraft.network.server_connection import accept_connection
from kraft.network.throttled_log import ThrottledLog
from kraft.network.traffic import Traffic
from kraft.protocol.api_versions import NodeFeatures
from kraft.protocol.headers import Api
from kraft.raft.interface import Event, Send, SendRequest
from kraft.raft.rpc import LogSlice, Request, SnapshotSlice
from kraft.raft.voters import Endpoint
from kraft.security.protocols import PeerIdentity

log = logging.getLogger(__name__)

#: The largest number of destinations: voters and bootstrap servers. A request from an unknown peer
#: can name more, as leaders of later epochs or as voters to add.
MAX_PEERS = 64
_FASTEST_SWEEP_S = 0.02


class TransportConfig(NamedTuple):
    """The network settings of a node; times in milliseconds."""

    node_id: int
    #: The addresses to bind; empty for a node that only sends requests.
    listeners: tuple[Endpoint, ...] = ()
    #: controller.quorum.request.timeout.ms
    request_timeout_ms: int = 2000
    limits: Limits = Limits()
    #: By listener; a listener without an entry is PLAINTEXT.
    security: Mapping[str, ListenerSecurity] = MappingProxyType({})
    #: The listener whose protocol and credentials the connections to other nodes use.
    client_listener: str = ""
    #: Listeners that accept no connections before `Transport.open_waiting`.
    waiting: frozenset[str] = frozenset()
    #: Whether a compiled loop moves the bytes of connections without TLS (Linux; else ignored).
    has_data_loop: bool = False


def no_features() -> NodeFeatures:
    return NodeFeatures()


def clients_only(request: Request) -> tuple[Standing, int]:
    return Standing.CLIENT, -1


def no_denial(api: Api, peer: PeerIdentity) -> int:
    return NONE


class Transport:
    """The network of one node.

    ``deliver`` is called with events; ``resolve`` returns the bytes of a slice at the moment of
    sending; ``features`` returns the features in ApiVersions responses; ``handlers`` answer APIs
    other than the raft node's, by API key; ``standing_of`` is `admission.standing_of` for the
    node's cluster and voters; ``denial_of`` returns the error code for a peer that may not send
    requests of an API to the raft node, else 0; ``traffic`` counts the requests.
    """

    def __init__(
        self,
        config: TransportConfig,
        deliver: Callable[[Event], None],
        resolve: Callable[[LogSlice | SnapshotSlice], memoryview],
        features: Callable[[], NodeFeatures] = no_features,
        handlers: Mapping[int, Handler] | None = None,
        standing_of: Callable[[Request], tuple[Standing, int]] = clients_only,
        denial_of: Callable[[Api, PeerIdentity], int] = no_denial,
        traffic: Traffic | None = None,
    ) -> None:
        self._config = config
        self._deliver = deliver
        self._warnings = ThrottledLog(log, time.monotonic)
        self.listener = Listener(
            accept_connection,
            config.limits,
            features,
            handlers or {},
            self._warnings,
            config.security,
            traffic,
            RaftService(deliver, resolve, standing_of, denial_of),
            data_listener=data_listener_type() if config.has_data_loop else None,
        )
        self._client_security = config.security.get(config.client_listener) or ListenerSecurity()
        #: By destination; the most recently used one is last.
        self._peers: dict[int, Peer] = {}
        self._client_id = f"raft-client-{config.node_id}"
        self._timeout_s = config.request_timeout_ms / 1000
        self._sweep: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        #: The bound listeners, once started.
        self.endpoints: tuple[Endpoint, ...] = ()

    async def start(self) -> None:
        """Listen. Raises OSError where an address is not available."""
        self._loop = asyncio.get_running_loop()
        config = self._config
        self.endpoints = await self.listener.start(config.listeners, config.waiting)

    def open_waiting(self) -> None:
        """Accept connections at the listeners that have waited so far."""
        self.listener.open_waiting()

    async def close(self) -> None:
        """Close the listener and every connection; requests in flight fail."""
        self._loop = None
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()
        await self.listener.close()

    def send(self, send: Send) -> None:
        """Send a request or a response; never blocks, and never fails.

        A request ends in a `ResponseReceived` or a `RequestFailed`; after `close` it is dropped. A
        response is dropped where its connection is closed.
        """
        if not isinstance(send, SendRequest):
            self.listener.respond(send.reply_to, send.response)
            return
        if self._loop is None:
            return
        peer = self._peers.pop(send.destination, None)
        if peer is None or peer.endpoint != send.endpoint:
            if peer is not None:
                peer.close()
            elif len(self._peers) >= MAX_PEERS:
                self._peers.pop(next(iter(self._peers))).close()
            peer = Peer(
                self._loop,
                send.endpoint,
                self._client_id,
                self._deliver,
                self._warnings,
                self._client_security,
            )
        self._peers[send.destination] = peer
        peer.send(send.request, send.correlation, self._timeout_s)
        if self._sweep is None:
            self._sweep_later()

    async def call(
        self, endpoint: Endpoint, api: Api, request: Message, answer: type[Answer]
    ) -> Answer:
        """Send a request that is not the raft node's, and return the response.

        It has a connection of its own, so that it never delays a request of the raft node. Raises
        UnsupportedVersionError where the peer does not serve the API, ConnectionError where there
        is no response within the request timeout.
        """
        channel = Channel(endpoint, self._client_id, self._client_security, self._warnings)
        try:
            return await channel.call(api, request, answer, timeout_ms=self._timeout_s * 1000)
        finally:
            channel.close()

    def _sweep_later(self) -> None:
        assert self._loop is not None
        pause = max(_FASTEST_SWEEP_S, min(self._timeout_s / 10, 0.25))
        self._sweep = self._loop.call_later(pause, self._check_time)

    def _check_time(self) -> None:
        assert self._loop is not None
        self._sweep = None
        now = self._loop.time()
        for peer in self._peers.values():
            peer.check_time(now)
        if any(peer.is_busy for peer in self._peers.values()):
            self._sweep_later()
