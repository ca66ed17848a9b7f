"""A data loop behind a listener with few descriptors, and peers that flood, idle and leave."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from kraft.network.data_connection import DataConnection
from kraft.network.data_listener import DataListener
from kraft.network.listener import Limits
from kraft.protocol.headers import request_frame
from tests.unit.network.listening import CREATE_TOPICS, Node, on_data_loops, play, until

__all__ = ["play"]

REQUEST = request_frame(CREATE_TOPICS, 2, 8, "x", b"abc")


def data_of(node: Node) -> DataListener:
    found = node.transport.listener.data_listener
    assert isinstance(found, DataListener)
    return found


@contextlib.contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """Let this process open only so many further descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = []
    for _ in range(count):
        opened.append(os.open("/dev/null", os.O_RDONLY))
    for fd in opened:
        os.close(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, (opened[-1] + 1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@on_data_loops
def test_accepting_goes_on_once_descriptors_are_free(
    play: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(node: Node) -> None:
        served = await node.client()
        await served.echo()
        at = node.transport.endpoints[0]
        # The system completes the connections; nobody has accepted them yet.
        waiting = [socket.create_connection((at.host, at.port)) for _ in range(20)]
        with descriptors_left(5):
            await until(lambda: "no connection can be accepted" in caplog.text)
            await served.echo()
        for one in waiting[:10]:
            one.close()
        for one in waiting[10:]:
            one.setblocking(False)
            await asyncio.get_running_loop().sock_sendall(one, REQUEST)
            assert await asyncio.get_running_loop().sock_recv(one, 4) == b"\0\0\0\7"
            one.close()

    play(scenario)


def flood(address: tuple[str, int], seed: int, stop: threading.Event) -> None:
    """Connect again and again; send garbage, parts of requests or floods of them; leave anyhow."""
    choose = random.Random(seed)
    while not stop.is_set():
        with contextlib.suppress(OSError), socket.create_connection(address) as peer:
            peer.settimeout(0.2)
            kind = choose.randrange(6)
            if kind == 0:
                peer.sendall(choose.randbytes(100))
            elif kind == 1:
                peer.sendall(REQUEST[: choose.randrange(len(REQUEST))])
            elif kind == 2:
                peer.sendall(REQUEST * 500)
            elif kind == 3:
                peer.sendall(struct.pack(">ih", 1 << 26, CREATE_TOPICS.key) + bytes(100_000))
            elif kind == 4:
                peer.sendall(REQUEST * 3)
                peer.recv(5)
            if choose.randrange(2):
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@on_data_loops
def test_hostile_peers_under_few_descriptors(play: Callable[..., None]) -> None:
    """The node serves its clients throughout, and keeps nothing of the others."""

    async def scenario(node: Node) -> None:
        at = node.transport.endpoints[0]
        listener, data = node.transport.listener, data_of(node)
        good = await node.client()
        await good.echo()
        stop = threading.Event()
        threads = [
            threading.Thread(target=flood, args=((at.host, at.port), seed, stop))
            for seed in range(8)
        ]
        with descriptors_left(100):
            for one in threads:
                one.start()
            try:
                while data.accepted_count < 1500:
                    await good.echo(b"x" * 1000)
            finally:
                stop.set()
                for one in threads:
                    await asyncio.to_thread(one.join)
        await until(lambda: len(listener.connections) == len(data.data) == 1)
        assert listener.request_memory == 0
        assert listener.request_count == 0
        assert len(listener.admission) == 1
        await good.echo()

    play(scenario, Limits(max_connections=20, max_request_memory=4 << 20))


@on_data_loops
def test_a_connection_that_is_held_passes_on_no_request(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        await client.echo()
        data = data_of(node).data
        (held,) = node.transport.listener.connections
        assert isinstance(held, DataConnection)
        other = await node.client()
        held.hold()
        received = data.bytes_in + len(REQUEST)
        await client.send(REQUEST)
        await until(lambda: data.bytes_in == received)
        # The loop reports the events of the first connection before those of the second.
        await other.echo()
        assert len(node.senders) == 2
        held.release()
        assert await client.frame() == (8).to_bytes(4, "big") + b"cba"

    play(scenario)


@on_data_loops
def test_bytes_are_counted(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        await client.echo(b"a" * 100_000)
        data = data_of(node).data
        assert data.bytes_in == len(request_frame(CREATE_TOPICS, 2, 8, "x", b"a" * 100_000))
        await until(lambda: data.bytes_out == 8 + 100_000)

    play(scenario)


@on_data_loops
def test_closing_leaves_nothing_behind(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        threads = threading.active_count()
        descriptors = len(os.listdir("/proc/self/fd"))
        node.pieces = [bytes(40 << 20)]
        for _ in range(5):
            client = await node.client()
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await client.send(REQUEST)
        await until(lambda: len(node.senders) == 5)
        await node.transport.close()
        assert threading.active_count() == threads - 1
        for client in node.clients:
            client.writer.transport.abort()
        await until(lambda: len(os.listdir("/proc/self/fd")) < descriptors)

    play(scenario)
