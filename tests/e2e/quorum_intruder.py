"""A client that can send any bytes to a node's port, and Kafka's requests."""

from __future__ import annotations

import socket
from pathlib import Path
from types import TracebackType
from typing import Self

from kraft.protocol.headers import Api, read_response_header, request_frame
from kraft.protocol.raft_rpcs import API_OF_REQUEST, decode_response, encode_request
from kraft.raft.rpc import Request, Response
from kraft.server.local_quorum import LOOPBACK

#: Intruders connect from another loopback address than the nodes, so that the limits per address
#: do not count their connections as the nodes'.
ELSEWHERE = "127.0.0.2"
_PATIENCE_S = 60.0


class Intruder:
    """One connection to a port of loopback."""

    def __init__(self, port: int, *, source: str = ELSEWHERE, receive_buffer: int = 0) -> None:
        self.socket = socket.socket()
        self.socket.settimeout(_PATIENCE_S)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.bind((source, 0))
        self.socket.connect((LOOPBACK, port))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def ask(self, request: Request, version: int | None = None) -> Response:
        """Send a request and return the response; raise ConnectionError where there is none."""
        api = API_OF_REQUEST[type(request)]
        version = api.highest if version is None else version
        self.send(frame_of(request, version))
        frame = self.frame()
        correlation, at = read_response_header(frame, api, version)
        assert correlation == 7
        return decode_response(api, version, frame, at, "CONTROLLER")

    def frame(self) -> bytes:
        return self._receive(int.from_bytes(self._receive(4), "big"))

    def is_closed(self) -> bool:
        """Wait for the node to close the connection; skip responses before that."""
        try:
            while self.socket.recv(1 << 16):
                pass
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        return True

    def _receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            part = self.socket.recv(size - len(received))
            if not part:
                raise ConnectionResetError("closed by the node")
            received += part
        return bytes(received)


def frame_of(request: Request, version: int | None = None) -> bytes:
    api: Api = API_OF_REQUEST[type(request)]
    version = api.highest if version is None else version
    return request_frame(api, version, 7, "intruder", encode_request(request, version))


def closed_in(log: Path) -> int:
    """Return the number of connections that a node closed above its limit, from its log."""
    lines = [line for line in log.read_text().splitlines() if "closed one of 127.0.0.2" in line]
    return sum(
        int(line.split("too many connections: ")[1].split()[0]) if " more, " in line else 1
        for line in lines
    )
