"""Responses with slices of files: on the event loop, behind TLS, and sent by a data loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from kraft._core.bytes.file_slice import FileSlice
from kraft._core.log.disk import OsDisk
from kraft.network.file_copies import COPIED_AT_ONCE, grouped, read
from kraft.network.listener import Limits
from kraft.protocol.fetch import FetchedPartitionData, FetchedTopicData, FetchResponseData
from kraft.protocol.headers import request_frame
from tests.harness.standstills import despite_standstills
from tests.unit.network import tls_peers
from tests.unit.network.listening import (
    CREATE_TOPICS,
    Client,
    Node,
    play,
    resident_bytes,
    shorten,
    until,
)

__all__ = ["play"]

CONTENT = random.Random(3).randbytes(3 << 20)
REQUEST = request_frame(CREATE_TOPICS, 2, 8, "x", b"abc")
#: Before the body: the size field and the correlation id.
HEAD_SIZE = 8
SLOW = Limits(response_write_timeout_ms=400)

protocols = pytest.mark.parametrize("has_tls", [False, True], ids=["plain", "TLS"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "segment"
    made.write_bytes(CONTENT)
    return made


def security(has_tls: bool) -> dict[str, object]:
    return {"security": tls_peers.secured()} if has_tls else {}


async def connected(node: Node, has_tls: bool) -> Client:
    return await node.client(tls_peers.trusting() if has_tls else None)


def is_called(node: Node, times: int) -> bool:
    return len(node.senders) == times


def is_open(path: Path) -> bool:
    """Return whether this process has the file open."""
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{fd}").startswith(str(path)):
                return True
    return False


@protocols
def test_slices_arrive_in_order(play: Callable[..., None], has_tls: bool, path: Path) -> None:
    async def scenario(node: Node) -> None:
        client = await connected(node, has_tls)
        file = OsDisk().open(path)
        node.pieces = [
            *(b"start", FileSlice(file, 5, len(CONTENT) - 5), memoryview(b"middle")),
            *(FileSlice(file, 9, 0), FileSlice(file, 1000, 1), FileSlice(file, 0, 300_000)),
            b"end",
        ]
        expected = b"start" + CONTENT[5:] + b"middle" + CONTENT[1000:1001] + CONTENT[:300_000]
        # The second request is received meanwhile, and answered after the first.
        await client.send(REQUEST * 2)
        for _ in range(2):
            assert (await client.frame())[HEAD_SIZE - 4 :] == expected + b"end"
        node.pieces = None
        await client.echo()

    play(scenario, **security(has_tls))


@protocols
@pytest.mark.parametrize("size", [0, 100, 2 << 20])
def test_a_file_that_ends_early_closes_the_connection(
    play: Callable[..., None],
    has_tls: bool,
    size: int,
    path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(node: Node) -> None:
        client = await connected(node, has_tls)
        node.pieces = [b"start", FileSlice(OsDisk().open(path), 0, len(CONTENT))]
        os.truncate(path, size)
        await client.send(REQUEST)
        received = bytearray()
        with contextlib.suppress(ConnectionError):
            while data := await client.reader.read(1 << 20):
                received += data
        promised = 4 + len(b"start") + len(CONTENT)
        assert (promised.to_bytes(4) + REQUEST[8:12] + b"start" + CONTENT[:size]).startswith(
            received
        )
        node.pieces = None
        await (await connected(node, has_tls)).echo()

    play(scenario, **security(has_tls))
    (line,) = [record.getMessage() for record in caplog.records]
    assert "a response to 127.0.0.1 ends early, the connection is closed" in line


@protocols
def test_a_peer_that_reads_nothing_is_disconnected(
    play: Callable[..., None], has_tls: bool, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Files that it does not read take no memory, and are closed with its connection."""
    with path.open("r+b") as file:
        file.truncate(200 << 20)

    async def scenario(node: Node) -> None:
        client = await connected(node, has_tls)
        node.pieces = [FileSlice(OsDisk().open(path), 0, 200 << 20)]
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(REQUEST)
        await until(lambda: node.senders)
        before = resident_bytes()
        node.pieces = None
        (await connected(node, has_tls)).writer.close()
        assert is_open(path)
        shorten(node, response_write_timeout_ms=SLOW.response_write_timeout_ms)
        await until(lambda: "no sign that it reads its responses" in caplog.text)
        assert resident_bytes() - before < 16 << 20
        await until(lambda: not is_open(path))

    play(scenario, **security(has_tls))


@protocols
def test_a_slow_reader_keeps_its_connection(
    play: Callable[..., None], has_tls: bool, path: Path
) -> None:
    """Reading anything at all renews its time."""
    with path.open("r+b") as file:
        file.truncate(40 << 20)

    async def scenario(node: Node) -> None:
        client = await connected(node, has_tls)
        node.pieces = [FileSlice(OsDisk().open(path), 0, 40 << 20)]
        await client.send(REQUEST)
        size = int.from_bytes(await client.reader.readexactly(4), "big")
        loop = asyncio.get_running_loop()
        end = loop.time() + 4 * SLOW.response_write_timeout_ms / 1000
        while loop.time() < end:
            data = await client.reader.readexactly(size // 64)
            size -= len(data)
            await asyncio.sleep(SLOW.response_write_timeout_ms / 1000 / 8)
        assert len(await client.reader.readexactly(size)) == size

    despite_standstills(lambda: play(scenario, SLOW, **security(has_tls)), 0.2)


@protocols
def test_a_peer_that_leaves_in_the_midst(
    play: Callable[..., None], has_tls: bool, path: Path
) -> None:
    async def scenario(node: Node) -> None:
        node.pieces = [FileSlice(OsDisk().open(path), 0, len(CONTENT))] * 10
        for size in (1, 1000, 1 << 20):
            client = await connected(node, has_tls)
            await client.send(REQUEST * 2)
            await client.reader.readexactly(size)
            client.writer.transport.abort()
        await until(lambda: not node.transport.listener.connections)
        node.pieces = None
        await until(lambda: not is_open(path))

    play(scenario, **security(has_tls))


@protocols
def test_the_listener_closes_in_the_midst(
    play: Callable[..., None], has_tls: bool, path: Path
) -> None:
    async def scenario(node: Node) -> None:
        node.pieces = [FileSlice(OsDisk().open(path), 0, len(CONTENT))] * 10
        client = await connected(node, has_tls)
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(REQUEST)
        await until(lambda: node.senders)
        node.pieces = None
        await node.transport.close()
        assert not node.transport.listener.connections
        await until(lambda: not is_open(path))
        # asyncio's TLS would wait for an answer that it does not read.
        client.writer.transport.abort()

    play(scenario, **security(has_tls))


def test_slices_do_not_count_as_memory_of_responses(play: Callable[..., None], path: Path) -> None:
    async def scenario(node: Node) -> None:
        node.pieces = [b"x" * 1000, FileSlice(OsDisk().open(path), 0, len(CONTENT))] * 10
        slow = [await node.client() for _ in range(4)]
        for client in slow:
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await client.send(REQUEST)
        await until(lambda: len(node.senders) == 4)
        for client in slow:
            client.writer.transport.resume_reading()  # type: ignore[attr-defined]
            assert len(await client.frame()) == 4 + 10 * (len(CONTENT) + 1000)

    play(scenario, Limits(max_response_memory=1 << 20))


@protocols
def test_the_files_of_unread_responses_are_limited(
    play: Callable[..., None], has_tls: bool, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A response of small slices of many files takes a descriptor for each until it is read."""

    async def scenario(node: Node) -> None:
        large = FileSlice(OsDisk().open(path), 0, len(CONTENT))
        node.pieces = [*(FileSlice(OsDisk().open(path), 0, 1) for _ in range(30)), *[large] * 10]
        before = len(os.listdir("/proc/self/fd"))
        slow = []
        for number in range(5):
            slow.append(await connected(node, has_tls))
            slow[-1].writer.transport.pause_reading()  # type: ignore[attr-defined]
            await slow[-1].send(REQUEST)
            await until(partial(is_called, node, number + 1))
        # Two fit: the slowest three are disconnected.
        await until(lambda: len(node.transport.listener.connections) == 2)
        for client in slow[:3]:
            client.writer.transport.abort()
        node.pieces = None
        for client in slow[3:]:
            client.writer.transport.resume_reading()  # type: ignore[attr-defined]
            assert len(await client.frame()) == 4 + 30 + 10 * len(CONTENT)
            await client.echo()
        assert large.read() == CONTENT
        await until(lambda: len(os.listdir("/proc/self/fd")) < before)

    play(scenario, Limits(max_response_slices=100), **security(has_tls))
    assert "requests whose large responses it does not read" in caplog.text


@protocols
def test_a_message_of_segments(play: Callable[..., None], has_tls: bool, path: Path) -> None:
    """`Message.encode_segments` returns a body that a handler may answer with."""

    def fetched(records: Sequence[bytes | FileSlice]) -> FetchResponseData:
        partitions = [
            FetchedPartitionData(number, 0, 9, 9, 0, records=one)
            for number, one in enumerate(records)
        ]
        return FetchResponseData(responses=[FetchedTopicData("t", partitions=partitions)])

    async def scenario(node: Node) -> None:
        client = await connected(node, has_tls)
        file = OsDisk().open(path)
        ranges = [*((7 * number, 700) for number in range(500)), (9, 1 << 20)]
        parts, size = fetched([FileSlice(file, *one) for one in ranges]).encode_segments(12)
        node.pieces = parts
        await client.send(REQUEST)
        body = (await client.frame())[HEAD_SIZE - 4 :]
        assert len(body) == size
        expected = [CONTENT[start : start + count] for start, count in ranges]
        assert body == fetched(expected).encode(12)

    play(scenario, **security(has_tls))


@protocols
def test_a_removed_file_is_sent(play: Callable[..., None], has_tls: bool, path: Path) -> None:
    """Retention may delete a segment while a response with a slice of it waits."""

    async def scenario(node: Node) -> None:
        client = await connected(node, has_tls)
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        node.pieces = [FileSlice(OsDisk().open(path), 0, len(CONTENT))] * 10
        await client.send(REQUEST)
        await until(lambda: node.senders)
        node.pieces = None
        OsDisk().remove(str(path))
        assert is_open(path)
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert (await client.frame())[HEAD_SIZE - 4 :] == CONTENT * 10
        await until(lambda: not is_open(path))

    play(scenario, **security(has_tls))


@protocols
def test_a_closed_file_closes_the_connection(
    play: Callable[..., None], has_tls: bool, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(node: Node) -> None:
        client = await connected(node, has_tls)
        file = OsDisk().open(path)
        node.pieces = [b"start", FileSlice(file, 0, 100)]
        file.close()
        await client.send(REQUEST)
        assert await client.is_closed()
        node.pieces = None
        await (await connected(node, has_tls)).echo()

    play(scenario, **security(has_tls))
    assert "the file is closed" in caplog.text


@pytest.mark.parametrize("seed", range(20))
def test_pieces_are_read_in_groups(seed: int, path: Path) -> None:
    choose = random.Random(seed)
    file = OsDisk().open(path)
    pieces: list[bytes | memoryview | FileSlice] = []
    expected = b""
    for _ in range(choose.randrange(1, 60)):
        size = choose.choice((0, 1, 100, 10_000, COPIED_AT_ONCE, choose.randrange(1 << 20)))
        start = choose.randrange(len(CONTENT) - size)
        content = CONTENT[start : start + size]
        pieces.append(choose.choice((content, memoryview(content), FileSlice(file, start, size))))
        expected += content
    read_at_once = [read(group) for group in grouped(pieces)]
    assert b"".join(read_at_once) == expected
    assert all(len(one) == COPIED_AT_ONCE for one in read_at_once[:-1])
    assert all(0 < len(one) <= COPIED_AT_ONCE for one in read_at_once)
