"""The monitoring server's requests, limits and errors, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import pytest

from kraft.server.observation.http_server import (
    MAX_CONNECTIONS,
    MAX_REQUEST_SIZE,
    HttpResponse,
    HttpServer,
)

PATIENCE_S = 20.0


async def page() -> HttpResponse:
    return HttpResponse(HTTPStatus.OK, "text/plain", b"a page")


async def broken() -> HttpResponse:
    raise ValueError("no page")


def served(scenario: Callable[[int], Awaitable[None]], *, timeout_s: float = PATIENCE_S) -> None:
    async def run() -> None:
        server = HttpServer({"/page": page, "/broken": broken}, timeout_s=timeout_s)
        port = await server.start("127.0.0.1", 0)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await scenario(port)
        finally:
            await server.close()

    asyncio.run(run())


async def send(port: int, request: bytes) -> bytes:
    """Send these bytes and return the whole response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        return await reader.read()
    finally:
        writer.close()


def get(path: str, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (get("/page"), b"200 OK"),
        (get("/page?a=b"), b"200 OK"),
        (b"GET /page HTTP/1.0\r\n\r\n", b"200 OK"),
        (get("/other"), b"404 Not Found"),
        (get("/page", "POST"), b"405 Method Not Allowed"),
        (get("/page", "HEAD"), b"405 Method Not Allowed"),
        (b"GET /page\r\n\r\n", b"400 Bad Request"),
        (b"GET /page HTTP/2.0\r\n\r\n", b"400 Bad Request"),
        (b"\x00\xff\r\n\r\n", b"400 Bad Request"),
        (get("/broken"), b"500 Internal Server Error"),
        (b"GET /" + b"x" * MAX_REQUEST_SIZE, b"431 Request Header Fields Too Large"),
    ],
)
def test_a_request_gets_its_status(request_: bytes, status: bytes) -> None:
    async def scenario(port: int) -> None:
        head, _, body = (await send(port, request_)).partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        assert lines[0] == b"HTTP/1.1 " + status
        assert b"Content-Length: %d" % len(body) in lines
        assert (b"Allow: GET" in lines) == status.startswith(b"405")
        if status == b"200 OK":
            assert body == b"a page"

    served(scenario)


def test_a_peer_that_sends_no_request_is_dropped() -> None:
    async def scenario(port: int) -> None:
        assert await send(port, b"GET /page HTT") == b""

    served(scenario, timeout_s=0.05)


def test_connections_above_the_limit_are_closed() -> None:
    async def scenario(port: int) -> None:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MAX_CONNECTIONS)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        # The server still serves the earlier connections.
        for reader, writer in idle:
            writer.write(get("/page"))
            assert (await reader.read()).endswith(b"a page")
            writer.close()
        # The server accepts a new connection as soon as it notices that one was closed.
        while not (await send(port, get("/page"))).endswith(b"a page"):
            await asyncio.sleep(0.01)

    served(scenario)


def test_closing_ends_open_connections() -> None:
    async def run() -> None:
        server = HttpServer({"/page": page})
        port = await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.sleep(0)
        async with asyncio.timeout(PATIENCE_S):
            await server.close()
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()

    asyncio.run(run())
