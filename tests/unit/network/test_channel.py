"""Channels: answers in order, lost connections, peers that do not answer or do not serve an API."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

import pytest

from kraft.errors import UnsupportedVersionError
from kraft.network.authentication import ListenerSecurity
from kraft.network.channel import Channel
from kraft.network.handler import Handler, HandlerAnswer
from kraft.network.listener import Limits, Listener
from kraft.network.server_connection import accept_connection
from kraft.network.throttled_log import ThrottledLog
from kraft.protocol.api_versions import NodeFeatures
from kraft.protocol.broker_heartbeat import (
    BROKER_HEARTBEAT,
    BrokerHeartbeatRequestData,
    BrokerHeartbeatResponseData,
)
from kraft.protocol.broker_registration import (
    BROKER_REGISTRATION,
    BrokerRegistrationRequestData,
    BrokerRegistrationResponseData,
)
from kraft.protocol.headers import Body, RequestHeader
from kraft.raft.voters import Endpoint
from kraft.security.protocols import PeerIdentity
from tests.unit.network.scripted_peers import LOOPS

WARNINGS = ThrottledLog(logging.getLogger(__name__), time.monotonic)


class Node:
    """A listener without a raft node that answers heartbeats; it can hold them back."""

    def __init__(self) -> None:
        self.held: asyncio.Future[None] | None = None
        self.seen: list[int] = []
        handler = Handler(BROKER_HEARTBEAT, self._answer)
        self.listener = Listener(
            accept_connection,
            Limits(),
            NodeFeatures,
            {BROKER_HEARTBEAT.key: handler},
            WARNINGS,
            {},
        )
        self.endpoint = Endpoint("A", "127.0.0.1", 0)

    async def _answer(self, header: RequestHeader, body: Body, peer: PeerIdentity) -> HandlerAnswer:
        request = BrokerHeartbeatRequestData.decode(body, header.version)
        self.seen.append(request.broker_id)
        if self.held is not None:
            await self.held
        answer = BrokerHeartbeatResponseData(error_code=request.broker_id)
        return HandlerAnswer(answer.encode(header.version))

    async def start(self) -> None:
        (self.endpoint,) = await self.listener.start((self.endpoint,))


def play(loop: str, scenario: Callable[[Node, Channel], Awaitable[None]]) -> None:
    async def run() -> None:
        node = Node()
        await node.start()
        channel = Channel(node.endpoint, "test", ListenerSecurity(), WARNINGS)
        try:
            await scenario(node, channel)
        finally:
            channel.close()
            await node.listener.close()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(run())


async def beat(channel: Channel, id: int, timeout_ms: float = 20_000) -> int:
    response = await channel.call(
        BROKER_HEARTBEAT,
        BrokerHeartbeatRequestData(id),
        BrokerHeartbeatResponseData,
        timeout_ms=timeout_ms,
    )
    return response.error_code


def test_answers_come_to_their_requests_on_one_connection(loop: str) -> None:
    async def scenario(node: Node, channel: Channel) -> None:
        assert channel.versions is None
        assert await asyncio.gather(*(beat(channel, id) for id in range(20))) == [*range(20)]
        assert node.seen == [*range(20)]
        assert len(node.listener.connections) == 1
        assert channel.versions is not None
        assert [*channel.versions.ranges] == [17, 18, 36, BROKER_HEARTBEAT.key]

    play(loop, scenario)


def test_a_silent_peer_ends_the_request_in_time_and_the_next_one_connects_again(loop: str) -> None:
    async def scenario(node: Node, channel: Channel) -> None:
        node.held = asyncio.get_running_loop().create_future()
        with pytest.raises(ConnectionError, match="did not answer BrokerHeartbeat"):
            await beat(channel, 1, timeout_ms=50)
        node.held = None
        assert await beat(channel, 2) == 2

    play(loop, scenario)


def test_a_closed_channel_fails_what_waits(loop: str) -> None:
    async def scenario(node: Node, channel: Channel) -> None:
        node.held = asyncio.get_running_loop().create_future()
        waiting = [asyncio.ensure_future(beat(channel, id)) for id in range(3)]
        while not node.seen:
            await asyncio.sleep(0.001)
        channel.close()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(each) for each in outcomes] == [ConnectionError] * 3
        assert node.seen == [0]

    play(loop, scenario)


def test_an_api_that_the_peer_does_not_serve(loop: str) -> None:
    async def scenario(node: Node, channel: Channel) -> None:
        with pytest.raises(UnsupportedVersionError, match="does not serve BrokerRegistration"):
            await channel.call(
                BROKER_REGISTRATION,
                BrokerRegistrationRequestData(1, "c"),
                BrokerRegistrationResponseData,
                timeout_ms=20_000,
            )
        assert await beat(channel, 3) == 3

    play(loop, scenario)


def test_nobody_listens(loop: str) -> None:
    async def scenario(node: Node, channel: Channel) -> None:
        await node.listener.close()
        with pytest.raises(ConnectionError):
            await beat(channel, 1)

    play(loop, scenario)
