"""A small HTTP server for monitoring: GET requests of a few paths.

The server answers one request per connection. It limits the number of connections, the size of a
request, the time to receive the request and the time to send the response. It has neither TLS nor
authentication, and is meant for loopback or a protected network. It runs on the event loop of the
node. Called by `routes`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple

logger = logging.getLogger(__name__)

#: Connections at a time; further ones are closed at once.
MAX_CONNECTIONS = 16
MAX_REQUEST_SIZE = 8192
#: For the request, and again for the response.
TIMEOUT_S = 10.0
_END = b"\r\n\r\n"


class HttpResponse(NamedTuple):
    """The response to a GET request."""

    status: HTTPStatus
    content_type: str
    body: bytes


Route = Callable[[], Awaitable[HttpResponse]]


class HttpServer:
    """The server; ``routes`` has the handler of each path."""

    def __init__(self, routes: Mapping[str, Route], *, timeout_s: float = TIMEOUT_S) -> None:
        self._routes = routes
        self._timeout_s = timeout_s
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the bound port; port 0 binds a free one. Raises OSError."""
        self._server = await asyncio.start_server(
            self._accept, host, port, limit=MAX_REQUEST_SIZE, backlog=MAX_CONNECTIONS
        )
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def close(self) -> None:
        """Stop listening and close every connection."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                response = await self._answer(reader)
                async with asyncio.timeout(self._timeout_s):
                    writer.write(_encode(response))
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
        finally:
            # After a timeout, the unread rest of the response is dropped.
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader) -> HttpResponse:
        """Read a request and return its response. Raises TimeoutError, IncompleteReadError."""
        try:
            async with asyncio.timeout(self._timeout_s):
                head = await reader.readuntil(_END)
        except asyncio.LimitOverrunError:
            return _text(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        line = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
        if len(line) != 3 or not line[2].startswith("HTTP/1."):
            return _text(HTTPStatus.BAD_REQUEST)
        method, target, _ = line
        route = self._routes.get(target.partition("?")[0])
        if route is None:
            return _text(HTTPStatus.NOT_FOUND, f"the paths are {', '.join(self._routes)}")
        if method != "GET":
            return _text(HTTPStatus.METHOD_NOT_ALLOWED)
        try:
            return await route()
        except Exception:
            logger.exception("GET %s failed: answering with status 500", target.partition("?")[0])
            return _text(HTTPStatus.INTERNAL_SERVER_ERROR)


def _text(status: HTTPStatus, detail: str = "") -> HttpResponse:
    body = f"{status.phrase}: {detail}\n" if detail else f"{status.phrase}\n"
    return HttpResponse(status, "text/plain; charset=utf-8", body.encode())


def _encode(response: HttpResponse) -> bytes:
    status = response.status
    allow = "Allow: GET\r\n" if status is HTTPStatus.METHOD_NOT_ALLOWED else ""
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        f"Content-Type: {response.content_type}\r\n"
        f"Content-Length: {len(response.body)}\r\n"
        f"{allow}Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + response.body
