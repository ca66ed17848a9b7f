"""``copy_rate``: how fast one process copies bytes to others through the loopback interface.

The floor of what a fleet on one machine can do: each broker receives its own copy of the log from
the active controller, which sends it from the page cache (sendfile). Here one process sends a file
to as many processes as the fleet has, a connection for each, and they drop what they receive.

``copy_receiver`` is such a process. Called by ``launch`` before the fleet starts.
"""

from __future__ import annotations

import os
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from kraft.errors import KraftError

#: As large as the largest response to an observer, and as what is sent at a time.
_FILE_BYTES = 8 << 20
_SENT_BYTES = 1 << 20
_RECEIVER = Path(__file__).with_name("copy_receiver.py")
#: The time before the measured one, in which buffers grow and receivers start.
_WARM_UP_S = 0.2
_ACCEPT_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 10.0


def copy_rate(processes: int, directory: Path, seconds: float = 0.5) -> float:
    """Return the bytes a second that all receivers together get.

    Raises KraftError where a receiver does not connect, OSError.
    """
    with ExitStack() as stack:
        file = stack.enter_context(tempfile.TemporaryFile(dir=directory))
        file.write(os.urandom(_FILE_BYTES))
        file.flush()
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        listener.settimeout(_ACCEPT_TIMEOUT_S)
        port = str(listener.getsockname()[1])
        for _ in range(processes):
            receiver = subprocess.Popen(
                [sys.executable, "-S", str(_RECEIVER), port],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            stack.callback(_end, receiver)
        connections = []
        try:
            for _ in range(processes):
                connection, _ = listener.accept()
                connections.append(stack.enter_context(connection))
        except TimeoutError:
            raise KraftError(
                f"{len(connections)} of {processes} receivers of the copying benchmark connected"
            ) from None
        _send(file.fileno(), connections, _WARM_UP_S)
        begun_s = time.monotonic()
        sent = _send(file.fileno(), connections, seconds)
        return sent / (time.monotonic() - begun_s)


def _send(file: int, connections: list[socket.socket], seconds: float) -> int:
    """Send the file again and again on every connection; return the bytes that were taken."""
    end_s = time.monotonic() + seconds
    positions = {connection.fileno(): 0 for connection in connections}
    total = 0
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            connection.setblocking(False)
            selector.register(connection, selectors.EVENT_WRITE)
        while not total or time.monotonic() < end_s:
            for key, _ in selector.select(_END_TIMEOUT_S):
                at = positions[key.fd]
                count = min(_SENT_BYTES, _FILE_BYTES - at)
                with suppress(BlockingIOError):
                    sent = os.sendfile(key.fd, file, at, count)
                    total += sent
                    positions[key.fd] = (at + sent) % _FILE_BYTES
    return total


def _end(receiver: subprocess.Popen[bytes]) -> None:
    """Wait until a receiver ends, as its connection is closed; kill it after ten seconds."""
    try:
        receiver.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        receiver.kill()
        receiver.wait()
