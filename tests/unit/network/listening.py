"""A listener with a fake raft node, and clients that can send any bytes."""

from __future__ import annotations

import asyncio
import resource
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kraft._core.bytes.file_slice import FileSlice
from kraft.network.admission import Standing, standing_of
from kraft.network.authentication import ListenerSecurity
from kraft.network.handler import Handler, HandlerAnswer
from kraft.network.listener import Limits
from kraft.network.server_connection import ServerConnection
from kraft.network.transport import Transport, TransportConfig
from kraft.protocol.api_versions import NodeFeatures
from kraft.protocol.describe_quorum import DESCRIBE_QUORUM
from kraft.protocol.fetch import FETCH
from kraft.protocol.headers import Api, RequestHeader, read_response_header, request_frame
from kraft.protocol.raft_rpcs import decode_response, encode_request
from kraft.protocol.vote import VOTE
from kraft.raft import rpc as m
from kraft.raft.interface import (
    Event,
    RequestAbandoned,
    RequestReceived,
    RequestsReceived,
    SendResponse,
)
from kraft.raft.voters import Endpoint, KRaftVersionRange, ReplicaKey
from kraft.security.protocols import PeerIdentity
from tests.harness.commands import PATIENCE_S
from tests.harness.raft_nodes import dynamic

LISTENER = "CONTROLLER"
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
VOTE_REQUEST = m.VoteRequest("cluster", 5, ReplicaKey(2), None, 4, 100)
FETCH_FRAME = request_frame(
    *(FETCH, 18, 6, "broker"),
    encode_request(m.FetchRequest("cluster", ReplicaKey(1000), 5, 0, 0), 18),
)
CREATE_TOPICS = Api(19, "CreateTopics", 2, 7, 5)
BROKER_HEARTBEAT = Api(63, "BrokerHeartbeat", 0, 2, 0)


@dataclass
class Client:
    """A client that can send any bytes."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def vote(self, correlation: int = 1) -> None:
        body = encode_request(VOTE_REQUEST, 2)
        await self.send(request_frame(VOTE, 2, correlation, "someone", body))

    async def describe(self) -> None:
        """Send a DescribeQuorum request and check that its response arrives."""
        body = encode_request(m.DescribeQuorumRequest(), 1)
        await self.send(request_frame(DESCRIBE_QUORUM, 1, 5, "client", body))
        assert (await self.answer(DESCRIBE_QUORUM, 1))[0] == 5

    async def fetch(self) -> None:
        """Send a Fetch as a broker does, and check that its response arrives."""
        await self.send(FETCH_FRAME)
        assert (await self.answer(FETCH, 18))[0] == 6

    async def echo(self, body: bytes = b"abc") -> None:
        """Send a request to a handler; check that the response is the body in reverse order."""
        await self.send(request_frame(CREATE_TOPICS, 2, 8, "x", body))
        assert await self.frame() == (8).to_bytes(4, "big") + body[::-1]

    async def frame(self) -> bytes:
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        return await self.reader.readexactly(size)

    async def answer(self, api: Api = VOTE, version: int = 2) -> tuple[int, m.Response]:
        frame = await self.frame()
        correlation, body_at = read_response_header(frame, api, version)
        return correlation, decode_response(api, version, frame, body_at, LISTENER)

    async def is_closed(self) -> bool:
        try:
            return await self.reader.read(1) == b""
        except ConnectionError:
            return True

    async def close(self) -> None:
        self.writer.close()
        await asyncio.gather(self.writer.wait_closed(), return_exceptions=True)


@dataclass
class Node:
    """A listener with a fake raft node, which grants every vote or leaves requests waiting."""

    transport: Transport = field(init=False)
    #: Whether the raft node and the handlers answer requests at once.
    is_quick: bool = True
    #: Bytes of records in a Fetch response.
    fetch_size: int = 0
    received: list[RequestReceived] = field(default_factory=list)
    #: How many requests of observers came together, each time.
    together: list[int] = field(default_factory=list)
    abandoned: list[int] = field(default_factory=list)
    clients: list[Client] = field(default_factory=list)
    #: Handlers wait for this before they answer.
    may_echo: asyncio.Event = field(default_factory=asyncio.Event)
    #: How long handlers mute a connection after an echo.
    throttle_ms: int = 0
    security: ListenerSecurity = field(default_factory=ListenerSecurity)
    #: The senders of the requests to handlers.
    senders: list[PeerIdentity] = field(default_factory=list)
    #: The bodies of heartbeats in the order in which their handler began.
    beats: list[bytes] = field(default_factory=list)
    #: Heartbeats wait for this, if it is set, before they are answered.
    may_beat: asyncio.Event | None = None
    #: Whether heartbeats may wait for others, as those of the controller's handler.
    gathers_beats: bool = False
    #: Heartbeats whose handler was cancelled.
    cancelled_beats: int = 0
    #: What handlers answer instead of an echo.
    pieces: list[bytes | memoryview | FileSlice] | None = None

    async def echo(
        self, header: RequestHeader, body: bytes | memoryview, sender: PeerIdentity
    ) -> HandlerAnswer:
        self.senders.append(sender)
        await self.may_echo.wait()
        if self.pieces is not None:
            return HandlerAnswer(self.pieces, self.throttle_ms)
        return HandlerAnswer(bytes(body)[::-1], self.throttle_ms)

    async def beat(
        self, header: RequestHeader, body: bytes | memoryview, _: PeerIdentity
    ) -> HandlerAnswer:
        self.beats.append(bytes(body))
        if self.may_beat is not None:
            try:
                await self.may_beat.wait()
            except asyncio.CancelledError:
                self.cancelled_beats += 1
                raise
        if body == b"fault":
            raise RuntimeError("a fault of the handler")
        return HandlerAnswer(bytes(body), self.throttle_ms if body == b"muted" else 0)

    def deliver(self, event: Event) -> None:
        if isinstance(event, RequestAbandoned):
            self.abandoned.append(event.reply_to)
            return
        assert isinstance(event, (RequestReceived, RequestsReceived))
        if isinstance(event, RequestsReceived):
            self.together.append(len(event.requests))
        for each in event.requests if isinstance(event, RequestsReceived) else [event]:
            self.received.append(each)
            if self.is_quick:
                self.answer(each)

    def answer(self, event: RequestReceived) -> None:
        response: m.Response = m.VoteResponse(0, 5, is_granted=True)
        if isinstance(event.request, m.FetchRequest):
            response = m.FetchResponse(0, 5, 1, records=m.LogSlice(0, 1, 1))
        elif isinstance(event.request, m.DescribeQuorumRequest):
            response = m.DescribeQuorumResponse(0, 5, 1)
        self.transport.send(SendResponse(event.reply_to, response))

    def resolve(self, slice: m.LogSlice | m.SnapshotSlice) -> memoryview:
        return memoryview(b"\x2a" * self.fetch_size)

    async def client(self, tls: ssl.SSLContext | None = None) -> Client:
        at = self.transport.endpoints[0]
        self.clients.append(Client(*await asyncio.open_connection(at.host, at.port, ssl=tls)))
        return self.clients[-1]

    async def still_serves(self) -> None:
        client = await self.client()
        await client.vote(77)
        assert await client.answer() == (77, m.VoteResponse(0, 5, is_granted=True))


RunScenario = Callable[[Node], Awaitable[None]]


def standing(request: m.Request) -> tuple[Standing, int]:
    return standing_of(request, "cluster", dynamic(2, 3))


def features() -> NodeFeatures:
    return NodeFeatures(
        {"kraft.version": KRaftVersionRange(0, 1), "metadata.version": KRaftVersionRange(7, 29)},
        {"metadata.version": 29},
        1234,
    )


#: Event loops, and whether a compiled loop moves the bytes of plain connections.
KINDS = {
    "asyncio": (LOOPS["asyncio"], False),
    "uvloop": (LOOPS["uvloop"], False),
    "data loop, asyncio": (LOOPS["asyncio"], True),
    "data loop, uvloop": (LOOPS["uvloop"], True),
}

#: Runs a test on data loops alone.
on_data_loops = pytest.mark.parametrize(
    "play", [kind for kind, (_, has_data_loop) in KINDS.items() if has_data_loop], indirect=True
)


@pytest.fixture(params=KINDS)
def play(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Return a function that runs a scenario with a node, on each kind of loop."""
    loop_factory, has_data_loop = KINDS[request.param]

    async def run(scenario: RunScenario, limits: Limits, **options: object) -> None:
        node = Node(**options)  # type: ignore[arg-type]
        if node.is_quick:
            node.may_echo.set()
        config = TransportConfig(
            1,
            (Endpoint(LISTENER, "127.0.0.1", 0),),
            limits=limits,
            security={LISTENER: node.security},
            has_data_loop=has_data_loop,
        )
        handlers = {
            CREATE_TOPICS.key: Handler(CREATE_TOPICS, node.echo),
            BROKER_HEARTBEAT.key: Handler(
                BROKER_HEARTBEAT, node.beat, keeps_alive=True, is_gathered=node.gathers_beats
            ),
        }
        node.transport = Transport(config, node.deliver, node.resolve, features, handlers, standing)
        await node.transport.start()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await scenario(node)
        finally:
            for client in node.clients:
                await client.close()
            await node.transport.close()

    def play(scenario: RunScenario, limits: Limits | None = None, **options: object) -> None:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(run(scenario, limits or Limits(), **options))

    return play


def tasks_of_requests(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return a list that will have the task of each request, None where it needs none."""
    started: list[object] = []
    start = ServerConnection._start

    def noted(self: ServerConnection, work: Coroutine[Any, Any, None]) -> None:
        start(self, work)
        started.append(self._task)

    monkeypatch.setattr(ServerConnection, "_start", noted)
    return started


async def until(look: Callable[[], object]) -> None:
    """Let the loop and the peers run until ``look`` returns true."""
    while not look():
        await asyncio.sleep(0.001)


def shorten(node: Node, **limits_ms: int) -> None:
    """Set limits of time from now on: short ones must not end what a test does before.

    A test that a standstill of the machine holds up between two requests would lose its connection.
    """
    listener = node.transport.listener
    listener.set_limits(listener.limits._replace(**limits_ms))


async def settle() -> None:
    """Let the loop and the peers run for 50 ms; use it to check that nothing more happens."""
    await asyncio.sleep(0.05)


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
