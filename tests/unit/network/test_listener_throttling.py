"""Connections that a quota mutes: the listener reads their next request after the delay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kraft.protocol.headers import request_frame
from tests.unit.network.listening import BROKER_HEARTBEAT, CREATE_TOPICS, Node, play, settle

__all__ = ["play"]

_FOREVER_MS = 3_600_000


def create_topics(correlation: int) -> bytes:
    return request_frame(CREATE_TOPICS, 7, correlation, "client", b"12")


def test_a_muted_connection_gets_its_response_and_is_read_after_the_delay(
    play: Callable[..., None],
) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        loop = asyncio.get_running_loop()
        begin = loop.time()
        await client.send(create_topics(1) + create_topics(2) + create_topics(3))
        for _ in range(3):
            await client.frame()
        # uvloop's clock counts whole milliseconds: each of the two delays may look 1 ms shorter.
        assert round(1000 * (loop.time() - begin)) >= 2 * 100 - 2

    play(scenario, throttle_ms=100)


def test_a_muted_connection_is_not_read_and_does_not_delay_others(
    play: Callable[..., None],
) -> None:
    async def scenario(node: Node) -> None:
        muted = await node.client()
        await muted.send(create_topics(1))
        await muted.frame()
        # 32 MiB exceed all buffers on the way: bytes stay in the client until the listener reads.
        muted.writer.write(b"\0\x20\0\0" + bytes(32 << 20))
        await settle()
        assert muted.writer.transport.get_write_buffer_size() > 0
        assert node.transport.listener.request_memory == 0
        broker = await node.client()
        await broker.send(request_frame(BROKER_HEARTBEAT, 2, 1, "broker", b"beat"))
        await broker.frame()
        await broker.send(create_topics(2))
        await broker.frame()
        # Abort, because a close would wait until the listener has read everything.
        muted.writer.transport.abort()

    play(scenario, throttle_ms=_FOREVER_MS)


def test_a_muted_connection_with_half_of_the_next_request_is_not_read(
    play: Callable[..., None],
) -> None:
    """Of a heartbeat: the quota mutes the connection while its bytes are being read."""

    async def scenario(node: Node) -> None:
        muted = await node.client()
        beat = request_frame(BROKER_HEARTBEAT, 2, 1, "broker", b"muted")
        await muted.send(beat + (32 << 20).to_bytes(4, "big"))
        await muted.frame()
        muted.writer.write(bytes(32 << 20))
        await settle()
        assert muted.writer.transport.get_write_buffer_size() > 0
        assert node.transport.listener.request_memory == 0
        muted.writer.transport.abort()

    play(scenario, throttle_ms=_FOREVER_MS)


def test_a_muted_connection_closes_with_its_listener(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        await client.send(create_topics(1))
        await client.frame()
        await node.transport.close()
        assert await client.is_closed()

    play(scenario, throttle_ms=_FOREVER_MS)
