"""Blocking frames on plain sockets, and a small server of requests, for the controller's RPCs.

A peer that sends a malformed or too large frame is disconnected; the log says why.
"""

from __future__ import annotations

import logging
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress

from kraft.errors import CorruptRecordError, KraftError
from kraft.server.local_quorum import LOOPBACK

_log = logging.getLogger(__name__)

#: Kafka's default of ``socket.request.max.bytes``.
LARGEST_FRAME = 100 * 1024 * 1024
_REQUEST = struct.Struct(">hhih")
_REQUEST_WITHOUT_CLIENT = struct.Struct(">hhi")
#: ControlledShutdown 0, of Kafka 0.8: the only request without a client id.
_WITHOUT_CLIENT = (7, 0)

#: API key, version and body -> the body of the response.
Answer = Callable[[int, int, memoryview], bytes]


def read_frame(connection: socket.socket) -> memoryview | None:
    """Return the next frame without its size; None at the end of the connection.

    Raises CorruptRecordError for a size that is not positive or above `LARGEST_FRAME`.
    """
    start = _read_exactly(connection, 4)
    if start is None:
        return None
    size = int.from_bytes(start, "big", signed=True)
    if not 0 < size <= LARGEST_FRAME:
        raise CorruptRecordError(f"a frame has a size of {size} bytes")
    return _read_exactly(connection, size)


def _read_exactly(connection: socket.socket, size: int) -> memoryview | None:
    # Memory follows what has arrived, not what the peer claims.
    received = bytearray()
    while len(received) < size:
        some = connection.recv(min(size - len(received), 1 << 20))
        if not some:
            return None
        received += some
    return memoryview(received)


class RequestServer:
    """Answers requests on loopback, one thread a connection, until `stop`.

    ``answer`` is called in these threads; a KraftError from it disconnects the client.
    """

    def __init__(self, port: int, answer: Answer, *, name: str) -> None:
        self._answer = answer
        self._name = name
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._is_stopping = False
        self._listener = socket.create_server((LOOPBACK, port))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close the listener and all connections."""
        with self._lock:
            self._is_stopping = True
            open_ones = list(self._connections)
        # Closing alone does not wake a thread that waits in accept or recv.
        for one in (self._listener, *open_ones):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if self._is_stopping:
                    connection.close()
                    return
                self._connections.add(connection)
            threading.Thread(
                target=self._serve, args=(connection,), name=self._name, daemon=True
            ).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            while (frame := read_frame(connection)) is not None:
                key, version, correlation, body = _split_request(frame)
                response = self._answer(key, version, body)
                connection.sendall(struct.pack(">ii", 4 + len(response), correlation) + response)
        except KraftError as error:
            _log.warning("%s disconnects a client: %s", self._name, error)
        except OSError:
            # The client is gone.
            pass
        finally:
            with self._lock:
                self._connections.discard(connection)
            connection.close()


def _split_request(frame: memoryview) -> tuple[int, int, int, memoryview]:
    """Return key, version, correlation id and body of a request. Raises CorruptRecordError."""
    if len(frame) < _REQUEST.size:
        raise CorruptRecordError("a request header ends early", position=len(frame))
    key, version, correlation, client_size = _REQUEST.unpack_from(frame)
    if (key, version) == _WITHOUT_CLIENT:
        return key, version, correlation, frame[_REQUEST_WITHOUT_CLIENT.size :]
    end = _REQUEST.size + max(client_size, 0)
    if end > len(frame):
        raise CorruptRecordError("a client id ends early", position=len(frame))
    return key, version, correlation, frame[end:]
