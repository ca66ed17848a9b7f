"""The sockets of a node's listeners without TLS, and the thread that moves their bytes.

The event loop accepts connections, so that admission decides before a byte is read; a `DataLoop`
then owns their sockets. Its thread raises an eventfd, and the event loop handles all events since
the last time together. Where descriptors are used up, or closed connections wait for the thread,
accepting pauses. Created by `kraft.network.listener`; Linux only.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

from kraft._core.sockets.data_loop import DataLoop
from kraft.network.authentication import ListenerSecurity
from kraft.network.data_connection import DataConnection
from kraft.network.listener import Listener
from kraft.network.server_connection import MAX_UNKNOWN_REQUEST_SIZE

#: Connections that are accepted before events are handled again.
_ACCEPTED_AT_ONCE = 64
#: Closed connections that still have a descriptor; with more of them accepting pauses.
_MOST_CLOSING = 64
#: How long accepting pauses where the process has no descriptor left.
_RETRY_S = 1.0
#: How long the files of a sent response stay open at most, if no other event comes.
_RELEASE_S = 1.0


class DataListener:
    """Accepts plain connections, and handles what the loop's thread reports about them."""

    def __init__(self, owner: Listener, loop: asyncio.AbstractEventLoop) -> None:
        self._owner = owner
        self._loop = loop
        largest = owner.limits.max_request_size
        raft_limit = min(owner.limits.max_raft_request_size, largest)
        self.data = DataLoop(
            owner.memory,
            {key: largest if key in owner.handlers else raft_limit for key in owner.apis},
            MAX_UNKNOWN_REQUEST_SIZE,
        )
        self._thread = threading.Thread(target=self.data.run, name="data loop", daemon=True)
        self._thread.start()
        #: Connections since the start.
        self.accepted_count = 0
        self._listening: dict[socket.socket, str] = {}
        self._closing: set[DataConnection] = set()
        self._retry: asyncio.TimerHandle | None = None
        loop.add_reader(self.data.fileno(), self._take)
        self._release = loop.call_later(_RELEASE_S, self._release_files)

    def serve(self, name: str, fd: int, backlog: int) -> None:
        """Accept connections of the listener with this name; take over its bound socket."""
        listening = socket.socket(fileno=fd)
        listening.setblocking(False)
        listening.listen(backlog)
        self._listening[listening] = name
        if self._retry is None:
            self._loop.add_reader(listening.fileno(), self._accept, listening, name)

    def stop_accepting(self) -> None:
        for listening in self._listening:
            self._loop.remove_reader(listening.fileno())
            listening.close()
        self._listening.clear()
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def close(self) -> None:
        """Close every connection and end the thread."""
        self.stop_accepting()
        self._release.cancel()
        self.data.stop()
        self._thread.join()
        self._loop.remove_reader(self.data.fileno())
        self._take()

    # -- accepting

    def _accept(self, listening: socket.socket, name: str) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            if len(self._closing) >= _MOST_CLOSING:
                return
            try:
                accepted, peer = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError as error:
                self._owner.warnings.warn(
                    "connections could not be accepted",
                    f"no connection can be accepted for {_RETRY_S:g} s: {error}",
                )
                self._pause_accepting()
                return
            self._begin(accepted, peer, name)

    def _begin(self, accepted: socket.socket, peer: Any, name: str) -> None:
        owner = self._owner
        self.accepted_count += 1
        accepted.setblocking(False)
        if accepted.family != socket.AF_UNIX:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        security = owner.security.get(name) or ListenerSecurity()
        connection = DataConnection(owner, name, self._loop, security, self._closing)
        added = self.data.add(accepted.detach(), connection, *connection.frame_limits())
        connection.attach(added, peer)

    def _pause_accepting(self) -> None:
        for listening in self._listening:
            self._loop.remove_reader(listening.fileno())
        if self._retry is None:
            self._retry = self._loop.call_later(_RETRY_S, self._accept_again)

    def _accept_again(self) -> None:
        self._retry = None
        for listening, name in self._listening.items():
            self._loop.add_reader(listening.fileno(), self._accept, listening, name)

    # -- events

    def _take(self) -> None:
        for one in self.data.take():
            try:
                one.owner.handle(one.events)
            except Exception as error:
                self._loop.call_exception_handler(
                    {"message": "a connection could not be served", "exception": error}
                )
                one.abort()

    def _release_files(self) -> None:
        self._release = self._loop.call_later(_RELEASE_S, self._release_files)
        self._take()
