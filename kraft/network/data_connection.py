"""A plain connection whose bytes a compiled loop moves: `ServerConnection` over a `DataSocket`.

Authentication, quotas, limits and the order of service are those of `ServerConnection`. Only the
receiving and sending of frames differs: the loop delivers whole frames, and takes responses with
slices of files. Everything here runs on the event loop. Created by `data_listener`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from kraft._core.sockets.data_loop import (
    FEW,
    FRAME,
    LOST,
    NO_FILE,
    NO_MEMORY,
    TOO_LARGE,
    WRITABLE,
    DataSocket,
)
from kraft.errors import StorageError
from kraft.network.answers_ahead import RunAhead
from kraft.network.authentication import ListenerSecurity
from kraft.network.file_copies import Piece
from kraft.network.framing import Buffer
from kraft.network.handler import AnswersAhead
from kraft.network.listener import Listener
from kraft.network.server_connection import ServerConnection
from kraft.protocol.headers import RequestHeader


class DataTransport(asyncio.Transport):
    """What a `FrameProtocol` needs of its transport, over a `DataSocket`."""

    __slots__ = ("_peer", "socket")

    def __init__(self, socket: DataSocket, peer: Any) -> None:
        super().__init__()
        self.socket = socket
        self._peer = peer

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._peer if name == "peername" else default

    def get_write_buffer_size(self) -> int:
        return self.socket.unsent

    def is_closing(self) -> bool:
        return self.socket.is_closing

    def pause_reading(self) -> None:
        self.socket.pause_reading()

    def resume_reading(self) -> None:
        self.socket.resume_reading()

    def abort(self) -> None:
        self.socket.abort()

    def close(self) -> None:
        self.socket.close()


class DataConnection(ServerConnection):
    """One connection of a peer; its bytes are moved by a `DataLoop`."""

    _small_buffer_size = 0

    def __init__(
        self,
        owner: Listener,
        name: str,
        loop: asyncio.AbstractEventLoop,
        security: ListenerSecurity,
        closing: set[DataConnection],
    ) -> None:
        super().__init__(owner, name, loop, security)
        #: The connections that are closed and not lost yet: they still have descriptors.
        self._closing = closing
        self._socket: DataSocket | None = None
        #: None until a handler foresees requests.
        self._ahead: RunAhead | None = None
        self._present_limits = self.frame_limits()

    # -- the loop's side

    def attach(self, socket: DataSocket, peer: Any) -> None:
        """Begin: the loop has the socket of the peer at this address."""
        self._socket = socket
        self.connection_made(DataTransport(socket, peer))

    def handle(self, events: int) -> None:
        """Handle the events of the socket."""
        if events & LOST:
            assert self._socket is not None
            self._socket.owner = None
            self._closing.discard(self)
            if self._ahead is not None:
                self._ahead.end()
            self.connection_lost(None)
            return
        if events & TOO_LARGE:
            assert self._socket is not None
            self.frame_refused(f"a frame of {self._socket.refused_size} bytes")
        elif events & NO_MEMORY:
            self.memory_refused()
        elif events & NO_FILE:
            self.file_failed("a file ended within its slice, or cannot be read")
        else:
            if events & WRITABLE:
                self.resume_writing()
            if events & FRAME:
                self._pass_on_frame()
            elif events & FEW and self._ahead is not None:
                self.last_active = self._loop.time()
                self._ahead.go_on()

    def frame_limits(self) -> tuple[int, bool, int]:
        """Return the limits of the next frames, see `DataSocket.set_limits`."""
        gate = self._gate
        limit = None if gate is None else gate.size_limit
        if limit is None:
            return self._max_frame_size, True, self._most_request_memory
        return min(limit, self._max_frame_size), False, self._most_request_memory

    # -- frames

    @property
    def has_more(self) -> bool:
        assert self._socket is not None
        return self._socket.has_more

    def pause(self) -> None:
        self.hold()
        self._is_muted = True
        assert self._socket is not None
        self._socket.pause_reading()

    def release(self) -> None:
        assert self._socket is not None
        self._is_held = False
        if self._is_muted:
            self._is_muted = False
            self._socket.resume_reading()
        if not self._is_taking:
            self._pass_on_later()

    def _pass_on_later(self) -> None:
        """Pass on the next frame, if it is there, after the events of other connections."""
        assert self._socket is not None
        if not self._is_held and self._socket.ask_frame():
            self._loop.call_soon(self._pass_on_frame)

    def _pass_on_frame(self) -> None:
        assert self._socket is not None
        if self._is_held or (taken := self._socket.take_frame()) is None:
            return
        if self._ahead is not None:
            self._ahead.end()
        frame, memory = taken
        self._request_memory += memory
        self.last_active = self._loop.time()
        self._is_taking = True
        try:
            self.frame_received(frame)
        finally:
            self._is_taking = False
        self._pass_on_later()

    def _run_ahead(
        self, ahead: AnswersAhead, header: RequestHeader, frame: Buffer, body_at: int
    ) -> None:
        # A quota delays the next request. A gate looks at each: an authenticated session ends.
        if self._is_muted or self._gate is not None:
            return
        if self._ahead is None:
            assert self._socket is not None
            self._ahead = RunAhead(self._socket, self._owner.traffic, self._traffic)
        self._ahead.begin(ahead, header, bytes(frame[:body_at]))

    def _start_in_turn(self, work: Coroutine[Any, Any, None]) -> None:
        # `_pass_on_later` lets other connections go between pipelined requests.
        self._start(work)

    def write(self, pieces: Sequence[Piece]) -> None:
        assert self._socket is not None
        if self._gate is not None and self._present_limits != (limits := self.frame_limits()):
            self._present_limits = limits
            self._socket.set_limits(*limits)
        try:
            is_full = self._socket.write(pieces)
        except StorageError as error:
            self.file_failed(str(error))
            return
        if is_full:
            self.pause_writing()

    # -- closing and time

    def close(self) -> None:
        super().close()
        if self._socket is not None and self._socket.owner is self:
            self._closing.add(self)

    def check_time(self, now: float) -> None:
        assert self._socket is not None
        if self._ahead is not None and self._ahead.note():
            self.last_active = now
            self._owner.admission.begin_work(self)
            self._owner.admission.end_work(self)
        self.frame_begun = self._socket.frame_begun
        super().check_time(now)
