"""Limits of a listener under many clients: connections, memory, time, log lines."""

from __future__ import annotations

import asyncio
import re
import struct
import time
from collections.abc import Callable

import pytest

from kraft.network.listener import Limits
from kraft.protocol.api_versions import API_VERSIONS
from kraft.protocol.headers import request_frame
from tests.unit.network.listening import (
    BROKER_HEARTBEAT,
    CREATE_TOPICS,
    FETCH_FRAME,
    Node,
    play,
    resident_bytes,
    shorten,
    until,
)

__all__ = ["play"]

LIMITS = {"all": Limits(max_connections=40), "an address": Limits(max_connections_per_ip=40)}


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS.keys())
def test_connections_are_limited(
    play: Callable[..., None], limits: Limits, caplog: pytest.LogCaptureFixture
) -> None:
    """The listener closes the oldest connections without a request first, then the longest idle."""

    async def scenario(node: Node) -> None:
        clients = [await node.client() for _ in range(40)]
        for client in clients:
            await client.describe()
        silent = [await node.client() for _ in range(30)]
        for client in silent[:20]:
            assert await client.is_closed()
        # Silent connections replace each other: ten of them stay open above the limit.
        await until(lambda: len(node.transport.listener.connections) == 50)
        for client in (*clients, *silent[20:]):
            await client.describe()
        newest = [await node.client() for _ in range(5)]
        for client in clients[:5]:
            assert await client.is_closed()
        for client in (*clients[5:], *newest):
            await client.describe()
        assert len(node.transport.listener.connections) == 50

    play(scenario, limits)
    # The first closing is logged at once; then one line a second has the count of the others.
    first, *others = [record.getMessage() for record in caplog.records]
    assert first == "closed one of 127.0.0.1; 50 are open"
    # A data loop may have some closed connections left.
    last = first.replace("50", "5[0-9]")
    pattern = f"too many connections: (.*) more, the last: {last}"
    counts = [match[1] for line in others if (match := re.fullmatch(pattern, line))]
    assert len(counts) == len(others)
    assert sum(map(int, counts)) == 24


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS.keys())
def test_voters_and_brokers_replace_idle_connections(
    play: Callable[..., None], limits: Limits
) -> None:
    async def scenario(node: Node) -> None:
        for _ in range(60):
            await (await node.client()).describe()
        # Each sends its own kind of request after the handshake, as peers and brokers do.
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
        # Meanwhile 100 other clients connect.
        for _ in range(100):
            await node.client()
        for client in voters:
            await client.vote()
            assert (await client.answer())[0] == 1
        for client in brokers[:40]:
            await client.fetch()
        assert len(node.transport.listener.connections) <= 40 + 10 + 4

    play(scenario, limits)


def test_a_connection_without_a_request_is_closed_in_time(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        asking = await node.client()
        await asking.describe()
        silent = await node.client()
        slow = await node.client()
        for _ in range(2):
            await slow.send(b"\0")
            await asyncio.sleep(0.02)
        shorten(node, first_request_timeout_ms=50)
        assert await silent.is_closed()
        assert await slow.is_closed()
        await asking.describe()

    play(scenario)


def test_idle_connections_take_little_memory(play: Callable[..., None]) -> None:
    """A thousand idle connections once had a receive buffer of 64 KiB each."""

    async def scenario(node: Node) -> None:
        before = resident_bytes()
        clients = [await node.client() for _ in range(1000)]
        for client in clients:
            await client.describe()
        # The figure includes the clients, which run in this process too.
        assert resident_bytes() - before < 40 * 1024 * 1024

    play(scenario)


def test_requests_of_handlers_are_limited_and_further_ones_wait(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        clients = [await node.client() for _ in range(5)]
        for client in clients:
            await client.send(request_frame(CREATE_TOPICS, 7, 1, "a", b"topics"))
        # One of the stalled clients disconnects: the others must not wait for it.
        listener = node.transport.listener
        await until(lambda: (listener.request_count, len(listener.stalled)) == (2, 3))
        await clients[4].close()
        node.may_echo.set()
        for client in clients[:4]:
            assert await client.frame() == b"\0\0\0\1\0scipot"
        await until(lambda: listener.request_count == 0)

    play(scenario, Limits(max_requests=2), is_quick=False)


def test_waiting_requests_delay_neither_votes_nor_fetches(play: Callable[..., None]) -> None:
    """Waiting fetches once counted against the limit, and the listener read no later votes."""

    async def scenario(node: Node) -> None:
        waiting = [await node.client() for _ in range(20)]
        for client in waiting[:10]:
            await client.send(FETCH_FRAME)
        for client in waiting[10:]:
            await client.send(request_frame(CREATE_TOPICS, 7, 1, "a", b"topics"))
        await until(lambda: len(node.received) == 10)
        node.is_quick = True
        await node.still_serves()

    play(scenario, Limits(max_requests=2), is_quick=False)


def test_a_heartbeat_does_not_wait_behind_bulk_requests(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        for _ in range(10):
            client = await node.client()
            await client.send(request_frame(CREATE_TOPICS, 7, 1, "a", b"topics"))
        listener = node.transport.listener
        await until(lambda: len(listener.stalled) == 8)
        broker = await node.client()
        for number in range(3):
            await broker.send(request_frame(BROKER_HEARTBEAT, 0, number, "b", b"beat"))
            assert await broker.frame() == number.to_bytes(4) + b"\0beat"
        assert (listener.request_count, len(listener.stalled)) == (2, 8)
        # A broker that disconnects during a heartbeat does not lower the count of other requests.
        await broker.send(request_frame(BROKER_HEARTBEAT, 0, 9, "b", b"beat"))
        await broker.close()
        await until(lambda: len(listener.connections) == 10)
        assert listener.request_count == 2

    play(scenario, Limits(max_requests=2), is_quick=False)


def test_the_memory_of_large_requests_is_limited(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        large = request_frame(CREATE_TOPICS, 7, 1, "a", b"t" * 500_000)
        begun = []
        for _ in range(2):
            client = await node.client()
            await client.send(large[:-1])
            begun.append(client)
        await until(lambda: node.transport.listener.request_memory >= 1_000_000)
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

    play(scenario, Limits(max_request_memory=1_100_000))


def test_the_memory_of_unread_responses_is_limited(
    play: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    """Each of a thousand connections could once keep a response of any size."""
    size = 5 << 20

    async def scenario(node: Node) -> None:
        connections = node.transport.listener.connections
        quick = await node.client()
        slow = []
        for number in range(4):
            slow.append(await node.client())
            slow[-1].writer.transport.pause_reading()  # type: ignore[attr-defined]
            await slow[-1].send(request_frame(CREATE_TOPICS, 7, 1, "a", bytes(size)))
            await until(lambda number=number: len(node.senders) == number + 1)
            await quick.echo(bytes(size))
            node.senders.pop()
        # Two fit, of which one is that of a quick reader: it never loses its connection.
        await until(lambda: len(connections) == 2)
        for client in slow[:3]:
            client.writer.transport.resume_reading()  # type: ignore[attr-defined]
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await client.frame()
        slow[3].writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert len(await slow[3].frame()) > size

    play(scenario, Limits(max_response_memory=5 * size // 2))
    assert "requests whose large responses it does not read" in caplog.text


def test_a_large_request_of_an_unknown_api_is_rejected_before_it_is_read(
    play: Callable[..., None],
) -> None:
    async def scenario(node: Node) -> None:
        for key in (999, API_VERSIONS.key):
            client = await node.client()
            await client.send(struct.pack(">ih", 90_000_000, key))
            assert await client.is_closed()

    play(scenario)


def test_a_thousand_rejected_frames_are_two_log_lines(
    play: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(node: Node) -> None:
        for _ in range(1000):
            client = await node.client()
            await client.send(b"GET / HTTP/1.1\r\n\r\n")
            assert await client.is_closed()
            await client.close()

    began = time.monotonic()
    play(scenario)
    most = 2 + time.monotonic() - began
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0].startswith("127.0.0.1 sent a frame of 1195725856 bytes")
    assert 2 <= len(lines) <= most
    counts = [int(lines[place].split()[3]) for place in range(1, len(lines))]
    assert sum(counts) == 999
