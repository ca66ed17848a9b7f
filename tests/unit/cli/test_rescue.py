"""``kraft rescue`` on recorded directories of Apache Kafka."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path

import pytest

from kraft.server.disk.directory_lock import DirectoryLock
from tests.harness.command_line import Ran, run_command

DATA = Path(__file__).parents[2] / "data" / "kafka-4.3"
LEFT = (DATA / "controller-103", DATA / "broker-1")


def rescue(*arguments: object) -> Ran:
    return run_command("rescue", *arguments, "--offline")


def test_nothing_changes_without_an_option() -> None:
    done = rescue(*LEFT)
    assert done.code == 0, done.err
    assert "What a rescue would do" in done.out
    assert "Whether the lost voters (101, 102) committed records after offset 2622" in done.out


def test_json(tmp_path: Path) -> None:
    done = rescue(*LEFT, "--to", tmp_path / "new", "--json")
    assert done.code == 0, done.err
    made = json.loads(done.out)
    assert (made["newVoter"], made["lastEpoch"], made["newEpoch"]) == (103, 2, 1002)
    assert made["committedOffset"] == 2605
    assert made["isDone"]
    assert made["newEndOffset"] == made["endOffset"] + 3
    (report,) = (tmp_path / "new").glob("rescue-report-*.txt")
    assert "What to do" in report.read_text()


def test_in_place_keeps_the_old_files(tmp_path: Path) -> None:
    directory = tmp_path / "metadata"
    shutil.copytree(LEFT[0], directory)
    done = rescue(directory, "--in-place")
    assert done.code == 0, done.err
    (kept,) = tmp_path.glob("metadata.before-rescue-*")
    for path in LEFT[0].rglob("*"):
        if path.is_file():
            assert (kept / path.relative_to(LEFT[0])).read_bytes() == path.read_bytes()
    again = rescue(directory)
    assert again.code == 1
    assert "node 103 is the only voter" in again.err


def test_a_majority_is_refused() -> None:
    done = rescue(*LEFT, DATA / "controller-101")
    assert done.code == 1
    assert "nodes 101, 103 are a majority of the voters 101, 102, 103" in done.err


def test_several_clusters_are_refused() -> None:
    done = rescue(*LEFT, DATA.parent / "kafka-4.2" / "controller-101")
    assert done.code == 1
    assert "different clusters" in done.err


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    shutil.copytree(LEFT[0], tmp_path / "used")
    with DirectoryLock(tmp_path / "used"):
        done = rescue(tmp_path / "used")
    assert done.code == 1
    assert "is in use" in done.err


def test_a_broker_alone_needs_the_configuration_of_a_controller(tmp_path: Path) -> None:
    done = rescue(LEFT[1])
    assert done.code == 1
    assert "-c FILE" in done.err

    config = tmp_path / "controller.properties"
    config.write_text(
        "node.id=104\nprocess.roles=controller\ncontroller.listener.names=CONTROLLER\n"
        "listeners=CONTROLLER://localhost:19093\nlog.dirs=/nowhere\n"
        "controller.quorum.bootstrap.servers=localhost:19093\n"
    )
    done = rescue(LEFT[1], "-c", config, "--to", tmp_path / "new", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["newVoter"] == 104
    assert "node.id=104" in (tmp_path / "new" / "meta.properties").read_text()


def test_an_address_that_answers_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        done = rescue(*LEFT, "--check-bootstrap", f"127.0.0.1:{port}")
    assert done.code == 1
    assert f"a process answers at 127.0.0.1:{port}" in done.err


def test_to_and_in_place_exclude_each_other(tmp_path: Path) -> None:
    assert rescue(*LEFT, "--to", tmp_path / "new", "--in-place").code == 2


@pytest.mark.parametrize("name", ["meta.properties", "__cluster_metadata-0/quorum-state"])
def test_a_damaged_directory_is_refused(name: str, tmp_path: Path) -> None:
    shutil.copytree(LEFT[0], tmp_path / "damaged")
    (tmp_path / "damaged" / name).write_text("{")
    done = rescue(tmp_path / "damaged")
    assert done.code == 1
    assert "kraft salvage" in done.err


def test_a_missing_directory_is_not_called_damaged(tmp_path: Path) -> None:
    done = rescue(tmp_path / "mistyped")
    assert done.code == 1
    assert f"no such file or directory: {tmp_path / 'mistyped'}" in done.err
    assert "kraft salvage" not in done.err
