"""TLS between a socket and a `FrameProtocol`: handshakes in turns, little memory a connection.

asyncio's own TLS takes a buffer of 256 KiB for each connection, and begins a handshake as soon as a
peer connects: a thousand reconnecting brokers would block the loop for half a second. This layer

- does the handshakes of a listener in turns of `TURN_S` (`HandshakeQueue`); between two turns the
  loop serves established connections,
- creates OpenSSL's state at the first bytes of the peer, receives into one buffer for all
  connections, and decrypts into the buffer of the frames,
- encrypts at most `_WRITE_SIZE` bytes at once, and only as far as the socket takes them.

To the socket's transport an instance is the protocol; to the `FrameProtocol` it is the transport.
`FrameProtocol.connection_made` is called when the connection exists, before the handshake: what is
written before is sent after it. Frames arrive only after the handshake.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from kraft.network.framing import Buffer, FrameProtocol

#: How long the handshakes of a listener may block the loop at a time, in seconds. One step of a
#: handshake takes up to a millisecond (RSA-2048, with the check of a client's certificate).
TURN_S = 0.002
_STEPS_FOR_A_NEW_ONE = 4

# Handshake bytes that may wait; more stay in the socket. A client's certificate chain has at most
# 100 KiB, and OpenSSL takes it in parts.
_MAX_HANDSHAKE_BYTES = 64 * 1024
_RECEIVE_SIZE = 64 * 1024
_WRITE_SIZE = 256 * 1024
_RECORD_SIZE = 16 * 1024

# Bytes received but not yet passed to OpenSSL exist only within a callback of the loop, so that all
# connections share one buffer.
_received = memoryview(bytearray(_RECEIVE_SIZE))


class HandshakeQueue:
    """The handshakes of a listener that have received bytes; each turn does some of them.

    Those that have begun go before new ones: where a thousand peers connect at once, the first ones
    are served while the last ones wait, and the work on a handshake is not lost to the timeout of
    its connection. Every fourth step is for a new one, however many bytes the others send.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._begun: deque[TlsTransport] = deque()
        self._new: deque[TlsTransport] = deque()
        self._step_count = 0
        self._is_turn_due = False

    def add(self, connection: TlsTransport) -> None:
        (self._begun if connection.has_begun else self._new).append(connection)
        if not self._is_turn_due:
            self._is_turn_due = True
            self._loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        end = time.perf_counter() + TURN_S
        while self._begun or self._new:
            self._step_count += 1
            is_for_new = self._new and self._step_count % _STEPS_FOR_A_NEW_ONE == 0
            lane = self._new if is_for_new or not self._begun else self._begun
            lane.popleft().shake_hands()
            if time.perf_counter() >= end:
                break
        self._is_turn_due = bool(self._begun or self._new)
        if self._is_turn_due:
            self._loop.call_soon(self._take_turn)


class TlsTransport(asyncio.BufferedProtocol, asyncio.Transport):
    """The TLS of one connection.

    ``create`` returns OpenSSL's state over two buffers. Without a ``queue`` a step of the handshake
    is done at once (a client's). ``on_failure`` is called with the reason of a failed handshake.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        inner: FrameProtocol,
        create: Callable[[ssl.MemoryBIO, ssl.MemoryBIO], ssl.SSLObject],
        on_failure: Callable[[str], None],
        queue: HandshakeQueue | None = None,
    ) -> None:
        super().__init__()
        self._loop = loop
        self._inner = inner
        self._create = create
        self._on_failure = on_failure
        self._queue = queue
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._ssl: ssl.SSLObject | None = None
        self._raw: asyncio.Transport | None = None
        self.is_open = False
        self._is_queued = False
        self._is_closing = False
        self._is_reading_paused = False
        self._is_raw_full = False
        self._is_inner_paused = False
        self._is_write_due = False
        #: Bytes to encrypt.
        self._unsent: deque[Buffer] = deque()
        self._unsent_size = 0

    # -- the protocol of the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)
        self._inner.connection_made(self)
        if self._queue is None and not self._is_closing:
            # A client speaks first.
            self.shake_hands()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.is_open and not self._is_closing:
            self._on_failure(f"the peer closed the connection during the handshake ({exc})")
        self._is_closing = True
        self.is_open = False
        self._unsent.clear()
        self._inner.connection_lost(exc)
        # The protocol refers to this transport. A node never collects cycles of old objects, so
        # each closed connection would keep its TLS state of 90 KiB.
        del self._inner, self._on_failure, self._create
        self._ssl = None

    def get_buffer(self, sizehint: int) -> memoryview:
        return _received

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_closing:
            return
        self._incoming.write(_received[:nbytes])
        if self.is_open:
            self._read()
        elif self._queue is None:
            self.shake_hands()
        else:
            if self._incoming.pending > _MAX_HANDSHAKE_BYTES:
                self._pause_raw()
            if not self._is_queued:
                self._is_queued = True
                self._queue.add(self)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._is_raw_full = True
        # OpenSSL answers key updates by itself: a peer that reads no answers is not read either.
        self._pause_raw()
        self._pause_inner()

    def resume_writing(self) -> None:
        self._is_raw_full = False
        if not self._is_reading_paused:
            self._resume_raw()
        self._write_on()

    # -- the handshake

    def shake_hands(self) -> None:
        """Do the next step of the handshake, with the bytes received so far."""
        self._is_queued = False
        if self._is_closing:
            return
        assert self._raw is not None
        try:
            if self._ssl is None:
                self._ssl = self._create(self._incoming, self._outgoing)
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            if not self._is_reading_paused:
                self._resume_raw()
        except (ssl.SSLError, ValueError) as error:
            # The peer gets only the TLS alert, not the reason.
            self._flush()
            self._on_failure(_reason(error))
            self._is_closing = True
            self._raw.close()
        else:
            self._flush()
            self.is_open = True
            if not self._is_reading_paused:
                self._resume_raw()
            self._write_on()
            self._read()

    @property
    def has_begun(self) -> bool:
        """Whether the handshake's first step was done."""
        return self._ssl is not None

    @property
    def peer_certificate(self) -> bytes | None:
        """The peer's verified certificate in DER; None where it sent none."""
        return None if self._ssl is None else self._ssl.getpeercert(True)

    # -- reading

    def _read(self) -> None:
        """Decrypt the received bytes into the buffer of the frames."""
        assert self._ssl is not None
        inner = self._inner
        try:
            while not self._is_reading_paused and not self._is_closing:
                view = inner.get_buffer(-1)
                # With a buffer the result is a size; the stub says bytes.
                size = cast(int, self._ssl.read(len(view), view))
                if not size:
                    break
                inner.buffer_updated(size)
                if not self._incoming.pending and not self._ssl.pending():
                    # The usual case: asking OpenSSL again would cost as much as the first read.
                    self._flush()
                    return
            else:
                return
        except ssl.SSLWantReadError:
            # OpenSSL may have answered a key update.
            self._flush()
            return
        except ssl.SSLZeroReturnError:
            pass
        except ssl.SSLError:
            self.abort()
            return
        self.close()

    def pause_reading(self) -> None:
        self._is_reading_paused = True
        self._pause_raw()

    def resume_reading(self) -> None:
        if not self._is_reading_paused:
            return
        self._is_reading_paused = False
        if self._is_closing:
            return
        self._resume_raw()
        # Never within this call: the caller is in the middle of its frames.
        self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if self.is_open and not self._is_closing:
            self._read()

    def is_reading(self) -> bool:
        return not self._is_reading_paused

    def _pause_raw(self) -> None:
        if self._raw is not None and not self._raw.is_closing():
            self._raw.pause_reading()

    def _resume_raw(self) -> None:
        if self._raw is not None and not self._raw.is_closing() and not self._is_raw_full:
            self._raw.resume_reading()

    # -- writing

    def write(self, data: Any) -> None:
        if self._is_closing or not data:
            return
        is_behind = self._unsent or self._is_raw_full or self._is_inner_paused
        if self.is_open and not is_behind and len(data) <= _RECORD_SIZE:
            assert self._ssl is not None
            try:
                self._ssl.write(data)
            except ssl.SSLError:
                self.abort()
                return
            self._flush()
            return
        self._unsent.append(data)
        self._unsent_size += len(data)
        if not self._is_write_due:
            self._write_on()

    def _write_on(self) -> None:
        """Encrypt unsent bytes until the socket accepts no more."""
        self._is_write_due = False
        if not self.is_open:
            return
        assert self._ssl is not None
        written = 0
        while self._unsent and not self._is_raw_full:
            data = memoryview(self._unsent[0])
            try:
                size = self._ssl.write(data[:_RECORD_SIZE])
            except ssl.SSLError:
                self.abort()
                return
            written += size
            self._unsent_size -= size
            if size == len(data):
                self._unsent.popleft()
            else:
                self._unsent[0] = data[size:]
            if self._outgoing.pending >= _RECEIVE_SIZE:
                self._flush()
            if written >= _WRITE_SIZE and self._unsent:
                self._is_write_due = True
                self._loop.call_soon(self._write_on)
                break
        self._flush()
        if self._unsent or self._is_raw_full:
            self._pause_inner()
        elif self._is_closing:
            self._shut_down()
        elif self._is_inner_paused:
            self._is_inner_paused = False
            self._inner.resume_writing()

    def _flush(self) -> None:
        """Pass encrypted bytes to the socket."""
        assert self._raw is not None
        if self._outgoing.pending and not self._raw.is_closing():
            self._raw.write(self._outgoing.read())

    def _pause_inner(self) -> None:
        if not self._is_inner_paused and not self._is_closing:
            self._is_inner_paused = True
            self._inner.pause_writing()

    def get_write_buffer_size(self) -> int:
        raw = 0 if self._raw is None else self._raw.get_write_buffer_size()
        return raw + self._unsent_size

    # -- closing

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        """Close once everything is sent."""
        if self._is_closing:
            return
        self._is_closing = True
        if not self.is_open or not self._unsent:
            self._shut_down()

    def _shut_down(self) -> None:
        assert self._raw is not None
        if self._raw.is_closing():
            return
        if self.is_open:
            assert self._ssl is not None
            # Usual: the peer has not answered the end of the stream yet.
            with contextlib.suppress(ssl.SSLError):
                self._ssl.unwrap()
            self._flush()
        self._raw.close()

    def abort(self) -> None:
        self._is_closing = True
        if self._raw is not None:
            self._raw.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default if self._raw is None else self._raw.get_extra_info(name, default)


def _reason(error: Exception) -> str:
    """Return the reason of a failed handshake, for the log of this node."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is rejected: {error.verify_message}"
    reason = getattr(error, "reason", None)
    return str(reason).replace("_", " ").lower() if reason else str(error)
