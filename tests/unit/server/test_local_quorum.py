"""Ports of local quorums, which listen on loopback, and how long a stop waits for brokers."""

from __future__ import annotations

import socket
import subprocess
import sys
from itertools import cycle
from pathlib import Path

import pytest

from kraft.server import local_quorum
from kraft.server.local_quorum import LOOPBACK, LocalQuorum, free_ports
from tests.harness.commands import eventually


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


#: Ends a second after it is asked to, as a broker that waits for the session of a dead one.
_SLOW = """
import signal, sys, time
from pathlib import Path

def stop(*_):
    time.sleep(1)
    Path("stopped").touch()
    sys.exit()

signal.signal(signal.SIGTERM, stop)
Path("ready").touch()
time.sleep(60)
"""


@pytest.mark.parametrize("session_ms", [500, 5000])
def test_a_broker_may_stop_for_as_long_as_a_session(
    session_ms: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_quorum, "_PATIENCE_S", 0.1)
    monkeypatch.setattr(local_quorum, "STOP_TIMEOUT_S", 0.1)
    settings = {"broker.session.timeout.ms": str(session_ms)}
    with LocalQuorum(tmp_path / "quorum", 1, settings, brokers=1) as quorum:
        (broker,) = quorum.brokers
        broker.process = subprocess.Popen([sys.executable, "-c", _SLOW], cwd=tmp_path)
        eventually((tmp_path / "ready").exists)
        quorum.stop()
    assert (tmp_path / "stopped").exists() == (session_ms > 1000)
