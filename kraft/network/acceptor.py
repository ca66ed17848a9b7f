"""Accepts the connections of a node's listeners, many at a time.

A loop of libuv (uvloop) accepts one connection before it handles all other events again: a loop
that is busy with a thousand brokers would then accept a hundred connections a second, while their
clients give up and connect again. Kafka accepts them by a thread of their own
(``SocketServer.Acceptor``). Where descriptors are used up, accepting pauses. Created by
`kraft.network.listener`.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Any

from kraft.network.throttled_log import ThrottledLog

#: Connections that are accepted before events are handled again.
ACCEPTED_AT_ONCE = 64
#: Connections that the system completes before they are accepted, at most net.core.somaxconn. A
#: thousand brokers may connect at once. The system of a peer whose connection finds no place tries
#: again after one second, then after two more: longer than the interval of heartbeats.
BACKLOG = 4096
#: How long accepting pauses where the process has no descriptor left.
_RETRY_S = 1.0

#: Called with a connected socket, its peer's address, and the name of the listener.
Begin = Callable[[socket.socket, Any, str], None]


class Acceptor:
    """Accepts connections by the event loop, and gives them to ``begin`` functions.

    ``has_room`` is asked before each connection; where it returns False the connection waits for
    the next event of its listener.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        warnings: ThrottledLog,
        has_room: Callable[[], bool] = lambda: True,
    ) -> None:
        self._loop = loop
        self._warnings = warnings
        self._has_room = has_room
        self._listening: dict[socket.socket, tuple[str, Begin]] = {}
        self._retry: asyncio.TimerHandle | None = None

    def serve(self, name: str, server: asyncio.Server, begin: Begin) -> None:
        """Accept connections at the sockets of a server that is bound and does not serve."""
        for bound in server.sockets:
            listening = socket.socket(fileno=os.dup(bound.fileno()))
            listening.setblocking(False)
            listening.listen(BACKLOG)
            self._listening[listening] = name, begin
            if self._retry is None:
                self._watch(listening, name, begin)

    def stop(self) -> None:
        """Accept nothing any more, and close the listening sockets."""
        for listening in self._listening:
            self._loop.remove_reader(listening.fileno())
            listening.close()
        self._listening.clear()
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _watch(self, listening: socket.socket, name: str, begin: Begin) -> None:
        self._loop.add_reader(listening.fileno(), self._accept, listening, name, begin)

    def _accept(self, listening: socket.socket, name: str, begin: Begin) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            if not self._has_room():
                return
            try:
                accepted, peer = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError as error:
                self._warnings.warn(
                    "connections could not be accepted",
                    f"no connection can be accepted for {_RETRY_S:g} s: {error}",
                )
                self._pause()
                return
            accepted.setblocking(False)
            if accepted.family != socket.AF_UNIX:
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            begin(accepted, peer, name)

    def _pause(self) -> None:
        for listening in self._listening:
            self._loop.remove_reader(listening.fileno())
        if self._retry is None:
            self._retry = self._loop.call_later(_RETRY_S, self._go_on)

    def _go_on(self) -> None:
        self._retry = None
        for listening, (name, begin) in self._listening.items():
            self._watch(listening, name, begin)
