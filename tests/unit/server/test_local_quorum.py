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


#: Gets ports, prints them, and runs on without binding them.
_HOLDER = """
import sys
from kraft.server.local_quorum import free_ports
print(*free_ports(3), flush=True)
sys.stdin.read()
"""


def test_a_port_that_another_process_has_got_is_not_returned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two clusters that were made at the same time could get one port."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        held = [int(word) for word in holder.stdout.readline().split()]
        free = free_ports(3)
        assert not set(held) & set(free)
        monkeypatch.setattr(local_quorum, "_ports_in_turn", cycle([*held, *free]))
        assert free_ports(3) == free
        holder.communicate("")
    # They are free again.
    monkeypatch.setattr(local_quorum, "_ports_in_turn", cycle(held))
    assert free_ports(3) == held


#: Ends some seconds after it is asked to, as a broker that waits for the session of a dead one.
_SLOW = """
import signal, sys, time
from pathlib import Path

def stop(*_):
    time.sleep(float(sys.argv[1]))
    Path("stopped").touch()
    sys.exit()

signal.signal(signal.SIGTERM, stop)
Path("ready").touch()
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("session_ms", "takes_s", "may_stop"), [(500, 300.0, False), (60_000, 1.0, True)]
)
def test_a_broker_may_stop_for_as_long_as_a_session(
    session_ms: int,
    takes_s: float,
    may_stop: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_quorum, "_PATIENCE_S", 0.1)
    monkeypatch.setattr(local_quorum, "STOP_TIMEOUT_S", 0.1)
    settings = {"broker.session.timeout.ms": str(session_ms)}
    with LocalQuorum(tmp_path / "quorum", 1, settings, brokers=1) as quorum:
        (broker,) = quorum.brokers
        program = [sys.executable, "-c", _SLOW, str(takes_s)]
        broker.process = subprocess.Popen(program, cwd=tmp_path)
        eventually((tmp_path / "ready").exists)
        quorum.stop()
    assert (tmp_path / "stopped").exists() == may_stop
