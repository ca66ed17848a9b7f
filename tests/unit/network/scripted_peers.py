"""Peers that follow a script, and the transport that connects to them."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import uvloop

from kraft.network.transport import Transport, TransportConfig
from kraft.protocol.add_raft_voter import ADD_RAFT_VOTER
from kraft.protocol.api_versions import (
    API_VERSIONS,
    NodeFeatures,
    answer_api_versions,
)
from kraft.protocol.fetch import FETCH
from kraft.protocol.headers import Api, response_header
from kraft.protocol.raft_rpcs import encode_response
from kraft.protocol.vote import VOTE
from kraft.raft import rpc as m
from kraft.raft.interface import (
    Event,
    SendRequest,
)
from kraft.raft.voters import Endpoint, KRaftVersionRange, ReplicaKey
from tests.harness.commands import PATIENCE_S

LISTENER = "CONTROLLER"
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
VOTE_REQUEST = m.VoteRequest("cluster", 5, ReplicaKey(2), ReplicaKey(1), 4, 100)
GRANTED = m.VoteResponse(0, 5, is_granted=True)
OURS = (API_VERSIONS, VOTE, FETCH, ADD_RAFT_VOTER)
KRAFT_FEATURE = NodeFeatures({"kraft.version": KRaftVersionRange(0, 1)})

Requests = asyncio.StreamReader
Answers = asyncio.StreamWriter
Script = Callable[[Requests, Answers], Awaitable[None]]


@dataclass
class Sender:
    """A transport without listeners, and the events that it has delivered."""

    events: asyncio.Queue[Event] = field(default_factory=asyncio.Queue)
    transport: Transport = field(init=False)
    peer: Endpoint = field(init=False)
    _sent: int = 0

    def request(self, request: m.Request = VOTE_REQUEST, destination: int = 1) -> int:
        self._sent += 1
        send = SendRequest(destination, self.peer, request, self._sent)
        before = self.events.qsize()
        self.transport.send(send)
        assert self.events.qsize() == before, "the transport delivered an event within send"
        return self._sent


def play(
    loop: str,
    script: Script,
    scenario: Callable[[Sender], Awaitable[None]],
    timeout_ms: int = 20_000,
) -> None:
    """Run ``scenario`` with a sender; ``script`` serves each connection to its peer."""

    async def serve(reader: Requests, writer: Answers) -> None:
        try:
            await script(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def run() -> None:
        sender = Sender()
        config = TransportConfig(7, request_timeout_ms=timeout_ms)
        sender.transport = Transport(config, sender.events.put_nowait, memoryview)  # type: ignore
        await sender.transport.start()
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        sender.peer = Endpoint(LISTENER, "127.0.0.1", port)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await scenario(sender)
        finally:
            await sender.transport.close()
            server.close()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(run())


@dataclass
class Asked:
    """The header of a request, and its body."""

    key: int
    version: int
    correlation: int
    client_id: str
    body: bytes


async def next_request(reader: Requests) -> Asked:
    size = int.from_bytes(await reader.readexactly(4), "big")
    frame = await reader.readexactly(size)
    key, version, correlation, length = struct.unpack_from(">hhih", frame)
    return Asked(key, version, correlation, frame[10 : 10 + length].decode(), frame[10 + length :])


async def shake_hands(
    reader: Requests,
    writer: Answers,
    apis: tuple[Api, ...] = OURS,
    features: NodeFeatures | None = None,
) -> None:
    asked = await next_request(reader)
    assert asked.key == API_VERSIONS.key
    assert asked.client_id == "raft-client-7"
    said, body = answer_api_versions(asked.version, asked.body, 1, apis, features or KRAFT_FEATURE)
    assert said == asked.version
    writer.write(response_header(API_VERSIONS, said, asked.correlation, len(body)) + body)


async def grant(reader: Requests, writer: Answers) -> Asked:
    asked = await next_request(reader)
    assert asked.key == VOTE.key
    body = b"".join(encode_response(GRANTED, asked.version, LISTENER, memoryview))  # type: ignore
    writer.write(response_header(VOTE, asked.version, asked.correlation, len(body)) + body)
    return asked
