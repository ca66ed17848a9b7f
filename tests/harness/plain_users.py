"""Connections of users that authenticate by SASL PLAIN, for requests as frames."""

from __future__ import annotations

import socket

from kraft.protocol.headers import Api, request_frame
from kraft.protocol.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequestData
from kraft.protocol.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequestData

PASSWORD = "password-of-a-throwaway-cluster"
_TIMEOUT_S = 60.0


def jaas_config(users: list[str], own: str = "") -> str:
    """Return the ``plain.sasl.jaas.config`` of a server with these users; ``own`` is its login."""
    options = [f'user_{name}="{PASSWORD}"' for name in users]
    if own:
        options += [f'username="{own}"', f'password="{PASSWORD}"']
    return f"org.apache.kafka.common.security.plain.PlainLoginModule required {' '.join(options)};"


class PlainUsers:
    """A connection for each user; the user "" does not authenticate."""

    def __init__(self) -> None:
        self._connections: dict[tuple[str, int], socket.socket] = {}

    def ask(self, user: str, address: tuple[str, int], frame: bytes) -> bytes:
        """Return the response without its size; b"" where the server closes the connection."""
        key = (user, address[1])
        connection = self._connections.get(key)
        if connection is None:
            connection = socket.create_connection(address, _TIMEOUT_S)
            self._connections[key] = connection
            if user:
                _authenticate(connection, user)
        response = _exchange(connection, frame)
        if not response:
            self._connections.pop(key).close()
        return response

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()


def _authenticate(connection: socket.socket, user: str) -> None:
    def send(api: Api, version: int, body: bytes) -> bytes:
        return _exchange(connection, request_frame(api, version, 1, "test", body))

    assert send(SASL_HANDSHAKE, 1, SaslHandshakeRequestData("PLAIN").encode(1))
    token = f"\0{user}\0{PASSWORD}".encode()
    answer = send(SASL_AUTHENTICATE, 1, SaslAuthenticateRequestData(token).encode(1))
    assert answer[4:6] == b"\0\0", answer


def _exchange(connection: socket.socket, frame: bytes) -> bytes:
    connection.sendall(frame)
    size = _receive(connection, 4)
    return _receive(connection, int.from_bytes(size, "big")) if size else b""


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            return b""
        received += part
    return bytes(received)
