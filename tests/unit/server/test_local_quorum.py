"""Ports of local quorums, which listen on loopback."""

from __future__ import annotations

import socket
from itertools import cycle

import pytest

from kraft.server import local_quorum
from kraft.server.local_quorum import LOOPBACK, free_ports


def test_ports_are_below_the_ephemeral_ports() -> None:
    """Otherwise a connection could take a stopped node's port, or connect to itself."""
    ports = free_ports(5)
    assert len(set(ports)) == 5
    with socket.socket() as connection:
        connection.bind((LOOPBACK, 0))
        assert max(ports) < connection.getsockname()[1]


def test_a_port_is_returned_once() -> None:
    """A broker of a test took the port that was chosen for another one, which then ended."""
    ports = [port for _ in range(300) for port in free_ports(2)]
    assert len(set(ports)) == 600


def test_a_port_in_use_is_not_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    used, *free = free_ports(4)
    monkeypatch.setattr(local_quorum, "_ports_in_turn", cycle([used, *free]))
    with socket.socket() as listener:
        listener.bind((LOOPBACK, used))
        listener.listen()
        assert free_ports(3) == free
