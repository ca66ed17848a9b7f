"""Apache ZooKeeper, started from the wheel pyspark: by the library and by `kraft zk start`."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft.errors import ZooKeeperError
from kraft.zookeeper.kazoo_port import KazooPort
from kraft.zookeeper.port import CreateZnode, FindZnode, ZooKeeperPort
from kraft.zookeeper.sequential_port import SequentialPort
from kraft.zookeeper.server import (
    LocalZooKeeper,
    ZooKeeperAddress,
    close_client,
    four_letters,
    open_client,
)
from tests.harness.commands import Foreground, eventually, is_gone, kraft

pytestmark = [pytest.mark.interop, pytest.mark.zookeeper]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LocalZooKeeper]:
    with LocalZooKeeper(tmp_path / "zookeeper", heap_mb=64) as started:
        yield started


def test_a_client_writes_below_its_chroot(server: LocalZooKeeper) -> None:
    address = ZooKeeperAddress.parse(f"{server.endpoint}/kafka")
    with pytest.raises(ZooKeeperError, match="has no /kafka"):
        open_client(address)
    client = open_client(address, creates_chroot=True)
    client.create("/a", b"1")
    close_client(client)
    plain = open_client(ZooKeeperAddress.parse(server.endpoint))
    assert plain.get("/kafka/a")[0] == b"1"
    close_client(plain)


def test_a_znode_may_be_larger_than_a_mebibyte(server: LocalZooKeeper) -> None:
    client = open_client(ZooKeeperAddress.parse(server.endpoint))
    client.create("/large", b"x" * (3 << 20))
    assert len(client.get("/large")[0]) == 3 << 20
    close_client(client)


@pytest.mark.parametrize("pipelines", [True, False])
def test_operations_are_pipelined_or_sent_one_by_one(
    server: LocalZooKeeper, monkeypatch: pytest.MonkeyPatch, pipelines: bool
) -> None:
    port = KazooPort(ZooKeeperAddress.parse(server.endpoint))
    used: ZooKeeperPort = port if pipelines else SequentialPort(port)
    steps: list[str] = []
    for step in ("send", "result", "call"):
        real = getattr(port, f"_{step}")
        monkeypatch.setattr(
            port,
            f"_{step}",
            lambda *given, step=step, real=real: steps.append(step) or real(*given),
        )
    paths = [f"/{number}" for number in range(3)]
    created = used.run([CreateZnode(path) for path in paths])
    assert [one.path for one in created] == paths
    one_by_one = ["send", "result"] * 3
    assert steps == (["call"] if pipelines else one_by_one)
    steps.clear()
    assert all(one.is_ok for one in used.run([FindZnode(path) for path in paths]))
    assert steps == (["send"] * 3 + ["result"] * 3 if pipelines else one_by_one)
    port.close()


def test_acknowledged_writes_survive_a_kill(server: LocalZooKeeper) -> None:
    client = open_client(ZooKeeperAddress.parse(server.endpoint))
    client.create("/a", b"1")
    close_client(client)
    server.kill()
    assert not server.is_running
    assert four_letters("127.0.0.1", server.port, "ruok") == ""
    server.start()
    later = open_client(ZooKeeperAddress.parse(server.endpoint))
    assert later.get("/a")[0] == b"1"
    close_client(later)


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ZooKeeperError, match=f"port {port} of 127.0.0.1 is not free"):
            LocalZooKeeper(tmp_path, port=port).start()


def test_a_server_that_ends_shows_its_log(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "myid").write_text("1")
    (data / "version-2").write_text("a file, where the server wants a directory")
    with pytest.raises(
        ZooKeeperError, match=r"ended with exit code \d+; its log is .*zookeeper.log"
    ):
        LocalZooKeeper(tmp_path).start()


def test_the_command_prints_the_address_and_stops_on_ctrl_c(tmp_path: Path) -> None:
    port = LocalZooKeeper(tmp_path).port
    command = Foreground(
        ("zk", "start", "--port", port, "--dir", tmp_path / "data", "--json"), tmp_path / "err"
    )
    started = command.announced()
    assert started["zookeeper"] == f"127.0.0.1:{port}"
    assert four_letters("127.0.0.1", port, "ruok") == "imok"
    ran = kraft("zk", "start", "--port", port)
    assert ran.returncode == 1
    assert f"port {port} of 127.0.0.1 is not free" in ran.stderr
    assert command.end(signal.SIGINT) == 130
    assert command.text == ""
    assert is_gone(started["pid"])


def test_the_server_ends_with_a_killed_parent(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path\n"
        "from kraft.zookeeper.server import LocalZooKeeper\n"
        "server = LocalZooKeeper(Path(sys.argv[1])); server.start()\n"
        "print(server.process.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        os.kill(parent.pid, signal.SIGKILL)
    assert eventually(lambda: is_gone(pid))
