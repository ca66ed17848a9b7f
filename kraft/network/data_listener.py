"""The sockets of a node's listeners without TLS, and the thread that moves their bytes.

The event loop accepts connections, so that admission decides before a byte is read; a `DataLoop`
then owns their sockets. Its thread raises an eventfd, and the event loop handles all events since
the last time together. Where closed connections wait for the thread, accepting pauses. Created by
`kraft.network.listener`; Linux only.
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

#: Closed connections that still have a descriptor; with more of them accepting pauses.
_MOST_CLOSING = 64
#: How long the files of a sent response stay open at most, if no other event comes.
_RELEASE_S = 1.0


class DataListener:
    """Serves plain connections, and handles what the loop's thread reports about them."""

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
        self._closing: set[DataConnection] = set()
        loop.add_reader(self.data.fileno(), self._take)
        self._release = loop.call_later(_RELEASE_S, self._release_files)

    @property
    def has_room(self) -> bool:
        """Whether further connections may be accepted."""
        return len(self._closing) < _MOST_CLOSING

    def close(self) -> None:
        """Close every connection and end the thread."""
        self._release.cancel()
        self.data.stop()
        self._thread.join()
        self._loop.remove_reader(self.data.fileno())
        self._take()

    def begin(self, accepted: socket.socket, peer: Any, name: str) -> None:
        """Serve a connection of the listener with this name."""
        owner = self._owner
        self.accepted_count += 1
        security = owner.security.get(name) or ListenerSecurity()
        connection = DataConnection(owner, name, self._loop, security, self._closing)
        is_local = accepted.getsockname()[0] == peer[0]
        limits = connection.frame_limits()
        added = self.data.add(accepted.detach(), connection, *limits, is_local)
        connection.attach(added, peer)

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
