"""Peers that break TLS: damaged, endless or early ended streams, bad certificates, key updates.

The listener closes their connections, serves the others, keeps its buffers small, logs which step
failed, and tells the peer no more than a TLS alert.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import ctypes.util
import logging
import random
import re
import socket
import ssl
import struct
import time
from collections.abc import Callable

import pytest

from kraft.network.server_connection import ServerConnection
from kraft.network.tls_context import ClientAuth
from tests.harness.certificates import authority
from tests.unit.network.listening import Node, play, shorten, until
from tests.unit.network.tls_peers import AS_ALICE, STRANGER, secured, trusting

__all__ = ["play"]

EXPIRED = authority().issue("alice", is_expired=True)
#: A ClientHello and an incomplete one, and records that no handshake begins with.
HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
GARBAGE = {
    "random": random.Random(1).randbytes(5000),
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a long record": b"\x16\x03\x01\xff\xff" + b"\x01" * 70_000,
    "a wrong version": b"\x16\x09\x09\x00\x05\x01\x00\x00\x01\x00",
    "application data": b"\x17\x03\x03\x00\x20" + bytes(32),
    "an alert": b"\x15\x03\x03\x00\x02\x02\x28",
    "a hello of zeros": HELLO + bytes(600),
}
#: Bytes that the listener may hold for one peer: a record to each side, and what a turn received.
MOST_BUFFERED = 256 * 1024
KEY_UPDATES = 30_000
LIBRARY = ctypes.util.find_library("ssl")


@pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_instead_of_a_handshake(
    play: Callable[..., None], data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        with contextlib.suppress(ConnectionError):
            await client.send(data)
        with contextlib.suppress(ConnectionError):
            assert len(await client.reader.read()) <= 7
        await (await node.client(trusting())).echo()
        assert len(node.senders) == 1

    play(scenario, security=secured())
    assert "the TLS handshake with 127.0.0.1 failed: " in caplog.text


def test_garbage_after_the_handshake(play: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client(trusting())
        await client.echo()
        raw = client.writer.get_extra_info("socket")
        # Behind the back of the client's TLS.
        with socket.socket(fileno=socket.dup(raw.fileno())) as own:
            own.send(b"\x17\x03\x03\x00\x40" + bytes(64))
        assert await client.is_closed()
        await (await node.client(trusting())).echo()

    play(scenario, security=secured())


def test_a_stream_that_ends_at_any_byte(play: Callable[..., None]) -> None:
    """The client's bytes of a whole exchange are cut everywhere; nothing is left behind."""

    async def scenario(node: Node) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        side = trusting().wrap_bio(incoming, outgoing, server_hostname="localhost")
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
        hello = outgoing.read()
        for end in (*range(1, 60), *range(60, len(hello), 37)):
            client = await node.client()
            await client.send(hello[:end])
            client.writer.transport.abort()
        listener = node.transport.listener
        await until(lambda: not listener.connections)
        assert listener.request_memory == 0
        await (await node.client(trusting())).echo()

    play(scenario, security=secured())


BAD = {
    "expired": (EXPIRED, "certificate has expired"),
    "of a stranger": (STRANGER, "unable to get local issuer certificate|self-signed certificate"),
    "missing": (None, "peer did not return a certificate"),
}


@pytest.mark.parametrize(("pair", "reason"), BAD.values(), ids=BAD.keys())
def test_a_bad_certificate_is_named_in_the_log_only(
    play: Callable[..., None], pair: object, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    own = {}
    if pair is not None:
        own = {"certificates": pair.certificate_pem, "key": pair.key_pem}  # type: ignore[attr-defined]

    async def scenario(node: Node) -> None:
        for _ in range(12):
            with pytest.raises((ssl.SSLError, ConnectionError)) as failure:
                await connected(node, trusting(**own))
            assert "issuer" not in str(failure.value)
        assert not node.received
        await (await node.client(trusting(**AS_ALICE))).echo()

    began = time.monotonic()
    with caplog.at_level(logging.WARNING):
        play(scenario, security=secured(ClientAuth.REQUIRED))
    most = 3 + time.monotonic() - began
    lines = [record.getMessage() for record in caplog.records]
    assert all(
        re.search(f"the TLS handshake with 127.0.0.1 failed: .*({reason})", one) for one in lines
    )
    # One line at once, then one line a second with the count of the others.
    assert 2 <= len(lines) <= most


async def connected(node: Node, tls: ssl.SSLContext) -> None:
    """Connect and read a response: in TLS 1.3 a client learns only then that it is rejected."""
    client = await node.client(tls)
    await client.vote()
    await client.frame()


@pytest.mark.skipif(LIBRARY is None, reason="OpenSSL's library has no known name here")
def test_key_updates_without_end_fill_no_buffer(play: Callable[..., None]) -> None:
    """Each update asks for an answer, which the peer never reads; the answers once piled up."""

    async def scenario(node: Node) -> None:
        at = node.transport.endpoints[0]
        flood = asyncio.create_task(asyncio.to_thread(send_key_updates, at.host, at.port))
        listener = node.transport.listener
        await until(lambda: listener.connections)
        (connection,) = listener.connections
        assert isinstance(connection, ServerConnection)
        transport = connection.transport
        assert transport is not None
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        most = 0
        while not flood.done():
            most = max(most, transport.get_write_buffer_size())
            await asyncio.sleep(0.001)
        assert await flood > 1000
        assert most < MOST_BUFFERED
        shorten(node, response_write_timeout_ms=1500)
        await (await node.client(trusting())).echo()
        # A peer that reads nothing is disconnected like any other that makes no progress.
        await until(lambda: connection not in listener.connections)

    play(scenario, security=secured())


def send_key_updates(host: str, port: int) -> int:
    """Ask for key updates until the peer takes no more; return their number.

    Python's ssl has no function for it.
    """
    library = ctypes.CDLL(LIBRARY)
    for name in ("TLS_client_method", "SSL_CTX_new", "SSL_new"):
        getattr(library, name).restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.SSL_CTX_new(ctypes.c_void_p(library.TLS_client_method())))
    tls = ctypes.c_void_p(library.SSL_new(context))
    with socket.socket() as own:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 200_000))
        own.connect((host, port))
        library.SSL_set_fd(tls, own.fileno())
        assert library.SSL_connect(tls) == 1
        count = 0
        while count < KEY_UPDATES and library.SSL_key_update(tls, 1) == 1:
            if library.SSL_do_handshake(tls) != 1:
                break
            count += 1
    library.SSL_free(tls)
    library.SSL_CTX_free(context)
    return count
