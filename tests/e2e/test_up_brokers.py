"""``kraft up --brokers``: clients use the brokers, nodes stop and start, the directory is kept."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from kraft.broker.log.checkpoint_files import CLEAN_SHUTDOWN
from tests.harness.commands import PATIENCE_S, Foreground, eventually, is_gone, kraft
from tests.harness.confluent_records import consumed, produce

#: A broker that is killed may register again after its session.
QUICK = (
    "--setting",
    "broker.session.timeout.ms=2000",
    "--setting",
    "broker.heartbeat.interval.ms=500",
)


def up(tmp_path: Path, *arguments: object) -> Foreground:
    command = ["up", "--json", "--dir", tmp_path / "home", *QUICK, *arguments]
    return Foreground(command, tmp_path / "up.err", is_typed=True)


def typed(quorum: Foreground, line: str) -> None:
    assert quorum.process.stdin is not None
    quorum.process.stdin.write(line + "\n")
    quorum.process.stdin.flush()


def status(quorum: Foreground) -> Any:
    typed(quorum, "status")
    return quorum.announced()


def process_ids(document: Any) -> dict[int, int | None]:
    """Return the process of each node; of a combined cluster a node is named twice."""
    return {one["nodeId"]: one["pid"] for one in (*document["controllers"], *document["brokers"])}


def assert_interrupt_ends_it_cleanly(quorum: Foreground, document: Any) -> None:
    # A terminal signals the whole foreground group.
    os.killpg(quorum.process.pid, signal.SIGINT)
    assert quorum.process.wait(PATIENCE_S) == 130
    assert all(pid is not None and is_gone(pid) for pid in process_ids(document).values())
    for one in document["brokers"]:
        assert (Path(one["config"]).parent / "data" / CLEAN_SHUTDOWN).exists(), one
    assert "ended with exit code" not in quorum.text


def test_a_combined_node_keeps_its_records_in_its_directory(tmp_path: Path) -> None:
    arguments = ("--controllers", 1, "--brokers", 1, "--combined")
    values = [b"%d" % number for number in range(100)]
    with up(tmp_path, *arguments) as quorum:
        first = quorum.announced()
        assert [one["nodeId"] for one in first["brokers"]] == [1]
        # The topic is created by its use.
        produce(first["bootstrapServers"], "records", values)
        assert_interrupt_ends_it_cleanly(quorum, first)
    other = kraft("up", "--controllers", 1, "--brokers", 2, "--dir", tmp_path / "home")
    assert other.returncode == 1
    assert "holds 1 controllers and 1 brokers, not 1 and 2" in other.stderr
    with up(tmp_path, *arguments) as quorum:
        second = quorum.announced()
        servers = second["bootstrapServers"]
        assert servers == first["bootstrapServers"]
        produce(servers, "records", [b"later"])
        read = consumed(servers, "records")
        assert read[0] == list(enumerate([*values, b"later"]))
        assert_interrupt_ends_it_cleanly(quorum, second)


def test_brokers_stop_and_start_by_typed_commands(tmp_path: Path) -> None:
    arguments = ("--controllers", 3, "--brokers", 3)
    with up(tmp_path, *arguments) as quorum:
        document = quorum.announced()
        servers = document["bootstrapServers"]
        ids = [one["nodeId"] for one in document["brokers"]]
        assert len(servers.split(",")) == len(ids) == 3
        assert all(process_ids(document).values())
        produce(servers, "records", [b"with all"])
        stopped = document["brokers"][0]
        typed(quorum, f"stop {ids[0]}")
        assert process_ids(status(quorum))[ids[0]] is None
        assert (Path(stopped["config"]).parent / "data" / CLEAN_SHUTDOWN).exists()
        rest = ",".join(one["endpoint"] for one in document["brokers"][1:])
        produce(rest, "records", [b"with two"])
        typed(quorum, f"start {ids[0]}")
        started = status(quorum)
        assert process_ids(started)[ids[0]] not in (None, process_ids(document)[ids[0]])
        # The node that was stopped serves clients again.
        produce(stopped["endpoint"], "records", [b"with all again"])
        read = consumed(stopped["endpoint"], "records")
        assert read[0] == list(enumerate([b"with all", b"with two", b"with all again"]))
        typed(quorum, "stop 9")
        eventually(lambda: "there is no node 9; there are 1, 2, 3, 1001" in quorum.text)
        assert_interrupt_ends_it_cleanly(quorum, started)


def test_ctrl_c_waits_for_the_session_of_a_dead_broker_and_says_so(tmp_path: Path) -> None:
    """As in Kafka a stopping broker waits until the others have the metadata, or are fenced."""
    # With several partitions both brokers lead some; a broker that leads none stops at once.
    slow = ("--setting", "broker.session.timeout.ms=8000", "--setting", "num.partitions=8")
    with up(tmp_path, "--controllers", 1, "--brokers", 2, *slow) as quorum:
        document = quorum.announced()
        dead, last = document["brokers"]
        produce(document["bootstrapServers"], "records", [b"kept"])
        typed(quorum, f"kill {dead['nodeId']}")
        assert process_ids(status(quorum))[dead["nodeId"]] is None
        os.killpg(quorum.process.pid, signal.SIGINT)
        assert quorum.process.wait(PATIENCE_S) == 130
        assert f"waiting for node {last['nodeId']} to stop" in quorum.text
        assert "broker.session.timeout.ms" in quorum.text
        assert "killing" not in quorum.text
        assert (Path(last["config"]).parent / "data" / CLEAN_SHUTDOWN).exists()


def test_a_second_ctrl_c_ends_at_once_and_the_directories_recover(tmp_path: Path) -> None:
    """One broker hangs, and the others have not stopped either when they are killed."""
    arguments = ("--controllers", 1, "--brokers", 2)
    values = [b"%d" % number for number in range(50)]
    with up(tmp_path, *arguments) as quorum:
        document = quorum.announced()
        produce(document["bootstrapServers"], "records", values)
        pids = process_ids(document)
        hanging = pids[document["brokers"][0]["nodeId"]]
        assert hanging is not None
        os.kill(hanging, signal.SIGSTOP)
        os.killpg(quorum.process.pid, signal.SIGINT)
        eventually(lambda: "waiting for node" in quorum.text)
        assert not any(pid is None or is_gone(pid) for id, pid in pids.items() if id == 1)
        os.killpg(quorum.process.pid, signal.SIGINT)
        assert quorum.process.wait(PATIENCE_S) == 130
        assert all(pid is not None and is_gone(pid) for pid in pids.values())
        assert "Traceback" not in quorum.text
    with up(tmp_path, *arguments) as quorum:
        again = quorum.announced()
        produce(again["bootstrapServers"], "records", [b"later"])
        read = consumed(again["bootstrapServers"], "records")
        assert read[0] == list(enumerate([*values, b"later"]))
        assert_interrupt_ends_it_cleanly(quorum, again)


def test_all_brokers_serve_once_the_quorum_is_announced(tmp_path: Path) -> None:
    """After a kill the controller still takes the brokers of before for alive, for a session."""
    arguments = ("--controllers", 1, "--brokers", 2)
    with up(tmp_path, *arguments) as quorum:
        pids = process_ids(quorum.announced())
        for pid in (quorum.process.pid, *pids.values()):
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: all(pid is not None and is_gone(pid) for pid in pids.values()))
    with up(tmp_path, *arguments) as quorum:
        document = quorum.announced()
        for address in document["bootstrapServers"].split(","):
            host, _, port = address.rpartition(":")
            socket.create_connection((host, int(port))).close()
        assert_interrupt_ends_it_cleanly(quorum, document)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--brokers", 1, "--light-brokers", 1), "--light-brokers with --brokers"),
        (("--brokers", 51), "less than or equal to 50"),
    ],
)
def test_wrong_options(arguments: tuple[object, ...], message: str, tmp_path: Path) -> None:
    ran = kraft("up", "--dir", tmp_path / "home", *arguments)
    assert ran.returncode == 2
    assert message in ran.stderr
    assert not (tmp_path / "home").exists()
