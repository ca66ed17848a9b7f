"""Ports of local quorums, which listen on loopback."""

from __future__ import annotations

import socket

from kraft.server.local_quorum import LOOPBACK, free_ports


def test_ports_are_below_the_ephemeral_ports() -> None:
    """Otherwise a connection could take a stopped node's port, or connect to itself."""
    ports = free_ports(5)
    assert len(set(ports)) == 5
    with socket.socket() as connection:
        connection.bind((LOOPBACK, 0))
        assert max(ports) < connection.getsockname()[1]


def test_a_port_in_use_is_not_returned() -> None:
    ports = free_ports(3)
    with socket.socket() as listener:
        listener.bind((LOOPBACK, ports[0]))
        listener.listen()
        assert ports[0] not in free_ports(200)
