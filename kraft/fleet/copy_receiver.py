"""A process that receives bytes and drops them, for ``copy_rate``.

``python copy_receiver.py PORT`` connects to a port of loopback. It runs by its path and imports
nothing of the package, so that it starts in a few milliseconds.
"""

from __future__ import annotations

import contextlib
import socket
import sys

_RECEIVED_BYTES = 1 << 20


def main() -> None:
    """Receive from the port of the first argument until the connection ends."""
    buffer = bytearray(_RECEIVED_BYTES)
    with (
        socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection,
        contextlib.suppress(ConnectionResetError),
    ):
        while connection.recv_into(buffer):
            pass


if __name__ == "__main__":
    main()
