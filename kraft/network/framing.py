"""Read size-delimited frames from a socket, and write them.

Responsible for the receive buffer of one connection:

- Small frames share a buffer of 64 KiB, or less where a subclass has many connections. They are
  passed on as copies.
- A larger frame gets its own buffer and is passed on without a copy. The buffer grows with the
  bytes that arrive, and starts with the size of earlier large frames of the connection. The size
  that the frame claims never decides an allocation.
- While a connection is held (a request has no response yet), it reads on until a whole frame waits,
  so that it notices a closed peer. Then reading pauses, and the peer's socket buffer fills.

Subclassed in `listener` and `connections`. ``wire`` documents the layout of a frame.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import cast

from kraft._core.bytes.receive_buffer import ReceiveBuffer

SMALL_BUFFER_SIZE = 64 * 1024
# The first size of a buffer for a large frame; it grows fourfold.
_LARGE_BUFFER_SIZE = 256 * 1024
# The bytes of a message around a chunk of a round size: with this surplus, the bytes after the
# chunk need no further buffer, and no further copy.
_ENVELOPE_SIZE = 4096
# The largest first size: after a large frame the next is likely to be as large, up to a chunk of a
# snapshot.
_MAX_FIRST_SIZE = 1024 * 1024 + _ENVELOPE_SIZE
# Responses up to this size are joined and written at once: the copy is cheaper than a system call.
_JOINED_SIZE = 64 * 1024

_read_size = struct.Struct(">i").unpack_from

Buffer = bytes | memoryview


class FrameProtocol(ABC, asyncio.BufferedProtocol):
    """The frames of one connection; a subclass handles them."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        max_frame_size: int,
        small_buffer_size: int = SMALL_BUFFER_SIZE,
    ) -> None:
        self._loop = loop
        self._max_frame_size = max_frame_size
        self.transport: asyncio.Transport | None = None
        self.last_active = loop.time()
        #: When the first byte of an incomplete frame arrived, else None.
        self.frame_begun: float | None = None
        self._small_view = memoryview(bytearray(small_buffer_size))
        self._view = self._small_view
        self._first_large_size = _LARGE_BUFFER_SIZE + _ENVELOPE_SIZE
        self._begin = 0
        self._end = 0
        self._is_held = False
        self._is_taking = False
        self._is_reading_paused = False
        #: Whether `pause` was called, and not `release` since.
        self._is_muted = False

    # -- for subclasses

    @abstractmethod
    def frame_received(self, frame: Buffer) -> None:
        """Handle a frame, without its size field; the callee owns ``frame``."""

    @abstractmethod
    def frame_refused(self, reason: str) -> None:
        """Handle bytes that are not an acceptable frame; no further frame is read."""

    def size_limit(self, start: memoryview) -> int:
        """Return the largest allowed frame that begins with ``start`` (0 to 2 bytes)."""
        return self._max_frame_size

    def may_grow(self, capacity: int) -> bool:
        """Return whether a large frame may have a buffer of this size; else close."""
        return True

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        raw = transport.get_extra_info("socket")
        if raw is not None and raw.family != getattr(socket, "AF_UNIX", None):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        self.last_active = self._loop.time()
        self._take_frames()

    def eof_received(self) -> bool:
        return False

    # -- holding

    def hold(self) -> None:
        """Pass on no more frames until `release`."""
        self._is_held = True

    def pause(self) -> None:
        """Read nothing until `release`; also a closed peer is noticed only then."""
        self.hold()
        self._is_muted = True
        assert self.transport is not None
        if not self._is_reading_paused and not self.transport.is_closing():
            self._is_reading_paused = True
            self.transport.pause_reading()

    def release(self) -> None:
        """Pass on frames again, from the event loop and never within this call."""
        self._is_held = self._is_muted = False
        if self._end > self._begin or self._is_reading_paused:
            self._loop.call_soon(self._take_frames)

    @property
    def has_more(self) -> bool:
        """Whether bytes of the peer wait behind the frame that was passed on last."""
        return self._end > self._begin

    def close(self) -> None:
        """Close at once; unsent bytes are dropped."""
        if self.transport is not None:
            self.transport.abort()

    def finish(self) -> None:
        """Close once everything is sent; read nothing more."""
        if self.transport is not None:
            self.transport.close()

    def write(self, pieces: Sequence[Buffer]) -> None:
        """Send the buffers one after the other; large ones are not copied."""
        assert self.transport is not None
        if self.transport.is_closing():
            return
        if len(pieces) > 1 and sum(map(len, pieces)) > _JOINED_SIZE:
            for piece in pieces:
                self.transport.write(piece)
        else:
            self.transport.write(b"".join(pieces))

    # -- frames

    def _take_frames(self) -> None:
        if self._is_taking:
            return
        self._is_taking = True
        try:
            while self._take_frame():
                pass
        finally:
            self._is_taking = False

    def _take_frame(self) -> bool:
        """Pass on the next frame; return False where there is none, or it must wait."""
        assert self.transport is not None
        if self.transport.is_closing():
            return False
        begin, available = self._begin, self._end - self._begin
        if available < 4:
            self._wait_for(4, available)
            return False
        view = self._view
        (size,) = _read_size(view, begin)
        if not 0 <= size <= self.size_limit(view[begin + 4 : min(self._end, begin + 6)]):
            self.frame_refused(f"a frame of {size} bytes")
            return False
        if available < 4 + size:
            self._wait_for(4 + size, available)
            return False
        if self._is_held:
            if not self._is_reading_paused:
                self._is_reading_paused = True
                self.transport.pause_reading()
            return False
        self.frame_begun = None
        self.frame_received(self._extract(begin + 4, begin + 4 + size))
        return self._end > self._begin or self._is_reading_paused

    def _extract(self, begin: int, end: int) -> Buffer:
        """Return the frame at these positions and remove it from the buffer."""
        if self._view is self._small_view:
            frame: Buffer = bytes(self._view[begin:end])
            self._begin = end
            if end == self._end:
                self._begin = self._end = 0
            return frame
        # A buffer for a large frame holds that frame and nothing else.
        frame = self._view[begin:end].toreadonly()
        self._first_large_size = max(self._first_large_size, min(end, _MAX_FIRST_SIZE))
        self._view = self._small_view
        self._begin = self._end = 0
        return frame

    def _wait_for(self, size: int, available: int) -> None:
        """Prepare the buffer for the rest of a frame with ``available`` bytes so far."""
        if self._is_reading_paused and not self._is_muted:
            self._is_reading_paused = False
            assert self.transport is not None
            self.transport.resume_reading()
        if available == 0:
            self._begin = self._end = 0
            self.frame_begun = None
            return
        if self.frame_begun is None:
            self.frame_begun = self.last_active
        capacity = len(self._view)
        if size > capacity:
            if self._end == capacity or self._view is self._small_view:
                wanted = max(self._first_large_size, 4 * available + _ENVELOPE_SIZE)
                capacity = min(wanted, size)
                if self.may_grow(capacity):
                    self._enlarge(capacity, available)
        elif self._begin + size > capacity:
            self._view[:available] = bytes(self._view[self._begin : self._end])
            self._begin, self._end = 0, available

    def _enlarge(self, capacity: int, available: int) -> None:
        """Move the incomplete frame into a larger buffer."""
        view = memoryview(ReceiveBuffer(capacity))
        view[:available] = self._view[self._begin : self._begin + available]
        self._view = view
        self._begin, self._end = 0, available
