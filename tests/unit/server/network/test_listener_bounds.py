"""What many strangers together can take of a listener: connections, memory, time, log lines."""

from __future__ import annotations

import asyncio
import resource
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kraft.server.network.listener import Limits
from kraft.server.rpc.wire import (
    API_VERSIONS,
    request_frame,
)
from tests.unit.server.network.listening import (
    CREATE_TOPICS,
    FETCH_FRAME,
    Node,
    play,
    settle,
)

__all__ = ["play"]

LIMITS = {"all": Limits(max_connections=40), "an address": Limits(max_connections_per_ip=40)}


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS.keys())
def test_connections_have_an_end(
    play: Callable[..., None], limits: Limits, caplog: pytest.LogCaptureFixture
) -> None:
    """Those that have said nothing for longest go first, then those that are idle longest."""

    async def story(node: Node) -> None:
        clients = [await node.client() for _ in range(40)]
        for client in clients:
            await client.describe()
        silent = [await node.client() for _ in range(30)]
        for client in silent[:20]:
            assert await client.is_closed()
        await settle()
        # Ten places above the limit go round among those that have not said what they are.
        assert len(node.transport.listener.connections) == 50
        for client in (*clients, *silent[20:]):
            await client.describe()
        newest = [await node.client() for _ in range(5)]
        for client in clients[:5]:
            assert await client.is_closed()
        for client in (*clients[5:], *newest):
            await client.describe()
        assert len(node.transport.listener.connections) == 50

    play(story, limits)
    # However many are closed: a line at once, and one with the count of the others.
    assert [record.getMessage() for record in caplog.records] == [
        "closed one of 127.0.0.1; 50 are open",
        "too many connections: 24 more, the last: closed one of 127.0.0.1; 50 are open",
    ]


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS.keys())
def test_voters_and_brokers_get_in_where_others_idle(
    play: Callable[..., None], limits: Limits
) -> None:
    async def story(node: Node) -> None:
        for _ in range(60):
            await (await node.client()).describe()
        # Each says what it is after its handshake, as peers and brokers do.
        voters = []
        for _ in range(4):
            voters.append(await node.client())
            await voters[-1].describe()
            await voters[-1].vote()
            await voters[-1].answer()
        brokers = []
        for _ in range(45):
            brokers.append(await node.client())
            await brokers[-1].describe()
            await brokers[-1].fetch()
        # Strangers come and go meanwhile.
        for _ in range(100):
            await node.client()
        for client in voters:
            await client.vote()
            assert (await client.answer())[0] == 1
        for client in brokers[:40]:
            await client.fetch()
        assert len(node.transport.listener.connections) <= 40 + 10 + 4

    play(story, limits)


def test_a_connection_without_a_request_is_closed_in_time(play: Callable[..., None]) -> None:
    async def story(node: Node) -> None:
        asking = await node.client()
        await asking.describe()
        silent = await node.client()
        slow = await node.client()
        for _ in range(2):
            await slow.send(b"\0")
            await asyncio.sleep(0.02)
        assert await silent.is_closed()
        assert await slow.is_closed()
        await asking.describe()

    play(story, Limits(first_request_timeout_ms=100))


def test_idle_connections_take_little_memory(play: Callable[..., None]) -> None:
    """A thousand of them took 64 KiB each for what they might send."""

    async def story(node: Node) -> None:
        before = resident_bytes()
        clients = [await node.client() for _ in range(1000)]
        for client in clients:
            await client.describe()
        # Both ends are in this process.
        assert resident_bytes() - before < 40 * 1024 * 1024

    play(story)


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def test_requests_of_handlers_have_an_end_and_the_rest_waits(play: Callable[..., None]) -> None:
    async def story(node: Node) -> None:
        clients = [await node.client() for _ in range(5)]
        for client in clients:
            await client.send(request_frame(CREATE_TOPICS, 7, 1, "a", b"topics"))
        await settle()
        # One of those that wait gives up: the others do not wait for it.
        listener = node.transport.listener
        assert (listener.request_count, len(listener.stalled)) == (2, 3)
        await clients[4].close()
        node.may_echo.set()
        for client in clients[:4]:
            assert await client.frame() == b"\0\0\0\1\0scipot"
        assert node.transport.listener.request_count == 0

    play(story, Limits(max_requests=2), is_quick=False)


def test_requests_that_wait_hold_up_neither_votes_nor_fetches(play: Callable[..., None]) -> None:
    """Fetches that wait counted, and the votes behind them were not even read."""

    async def story(node: Node) -> None:
        waiting = [await node.client() for _ in range(20)]
        for client in waiting[:10]:
            await client.send(FETCH_FRAME)
        for client in waiting[10:]:
            await client.send(request_frame(CREATE_TOPICS, 7, 1, "a", b"topics"))
        while len(node.received) < 10:
            await asyncio.sleep(0)
        node.is_quick = True
        await node.still_serves()

    play(story, Limits(max_requests=2), is_quick=False)


def test_large_requests_in_the_making_have_a_bound_together(play: Callable[..., None]) -> None:
    async def story(node: Node) -> None:
        large = request_frame(CREATE_TOPICS, 7, 1, "a", b"t" * 500_000)
        begun = []
        for _ in range(2):
            client = await node.client()
            await client.send(large[:-1])
            begun.append(client)
        await settle()
        too_many = await node.client()
        await too_many.send(large[:-1])
        assert await too_many.is_closed()
        await node.still_serves()
        for client in begun:
            await client.send(large[-1:])
            assert len(await client.frame()) == 500_005
        assert node.transport.listener.request_memory == 0
        await node.client()
        await begun[0].send(large)
        await begun[0].frame()

    play(story, Limits(max_request_memory=1_100_000))


def test_a_request_that_is_not_served_is_refused_before_it_is_read(
    play: Callable[..., None],
) -> None:
    async def story(node: Node) -> None:
        for key in (999, API_VERSIONS.key):
            client = await node.client()
            await client.send(struct.pack(">ih", 90_000_000, key))
            assert await client.is_closed()

    play(story)


def test_a_thousand_refused_frames_are_two_lines_in_the_log(
    play: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    async def story(node: Node) -> None:
        for _ in range(1000):
            client = await node.client()
            await client.send(b"GET / HTTP/1.1\r\n\r\n")
            assert await client.is_closed()
            await client.close()

    began = time.monotonic()
    play(story)
    most = 2 + time.monotonic() - began
    told = [record.getMessage() for record in caplog.records]
    assert told[0].startswith("127.0.0.1 sent a frame of 1195725856 bytes")
    assert 2 <= len(told) <= most
    counts = [int(told[place].split()[3]) for place in range(1, len(told))]
    assert sum(counts) == 999
