"""``kraft up``: a whole quorum by one command, which leaves nothing behind however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraft.server.network.quorum_client import QuorumClient
from tests.e2e.quorum_shell import (
    PATIENCE_S,
    PLAIN,
    Foreground,
    eventually,
    is_gone,
    kraft,
    printed,
)


@pytest.fixture
def up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Foreground]:
    """Starts ``kraft up`` with temporary directories in a place of their own."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setitem(PLAIN, "TMPDIR", str(place))

    def start(*arguments: object) -> Foreground:
        return Foreground(["up", *arguments], tmp_path / "up.err")

    return start


def announced(process: subprocess.Popen[str]) -> Any:
    """What ``--json`` prints, as soon as it is printed."""
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def process_ids(document: Any) -> list[int]:
    return [one["pid"] for one in document["controllers"]]


def all_gone(pids: list[int]) -> bool:
    return all(map(is_gone, pids))


def test_people_get_the_endpoints_and_the_next_command(
    up: Callable[..., Foreground], tmp_path: Path
) -> None:
    with up() as quorum:
        assert quorum.process.stdout is not None
        lines = [quorum.process.stdout.readline() for _ in range(7)]
        assert lines[0].startswith("quorum of 3 controllers in ")
        assert lines[1].split() == ["NodeId", "Endpoint", "Status", "Process"]
        rows = [line.split() for line in lines[2:5]]
        assert [row[0] for row in rows] == ["1", "2", "3"]
        assert sorted(row[2] for row in rows) == ["Follower", "Follower", "Leader"]
        command = lines[6].split()
        assert command[:3] == ["kraft", "quorum", "describe"]
        leader = next(row[0] for row in rows if row[2] == "Leader")
        assert f"LeaderId:               {leader}\n" in printed(*command[1:])
        # As a terminal does it: to the whole group of the foreground.
        os.killpg(quorum.process.pid, signal.SIGINT)
        assert quorum.process.wait(PATIENCE_S) == 130
        assert all_gone([int(row[3]) for row in rows])
    assert quorum.told == ""
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_directory_keeps_its_quorum(up: Callable[..., Foreground], tmp_path: Path) -> None:
    home = tmp_path / "home"
    arguments = ("--controllers", 1, "--dir", home, "--json")
    setting = "controller.quorum.append.linger.ms=0"
    with up(*arguments, "--setting", setting) as quorum:
        first = announced(quorum.process)
        assert quorum.end(signal.SIGTERM) == 130
        assert all_gone(process_ids(first))
    assert setting in (home / "controller-1" / "controller.properties").read_text()
    with up(*arguments) as quorum:
        second = announced(quorum.process)
        assert second["bootstrapControllers"] == first["bootstrapControllers"]
        assert second["leaderEpoch"] > first["leaderEpoch"]
        taken = kraft("up", *arguments)
        assert taken.returncode == 1
        assert f"{home / 'controller-1' / 'data'} is in use" in taken.stderr
        other = kraft("up", "--controllers", 3, "--dir", home)
        assert other.returncode == 1
        assert "holds a quorum of 1 controllers, not 3" in other.stderr
        assert quorum.end(signal.SIGINT) == 130
    assert list((tmp_path / "temporary").iterdir()) == []


def test_five_survive_two_that_are_lost_and_one_that_is_lost_ends_it(
    up: Callable[..., Foreground],
) -> None:
    setting = "controller.quorum.fetch.timeout.ms=500"
    with up("--controllers", 5, "--json", "--setting", setting) as quorum:
        document = announced(quorum.process)
        assert len(document["controllers"]) == 5
        pids = process_ids(document)
        # What is frozen is not seen to have ended: the command goes on, and so does the quorum.
        frozen = [one for one in document["controllers"] if one["nodeId"] == document["leaderId"]]
        frozen += [one for one in document["controllers"] if one not in frozen][:1]
        for one in frozen:
            os.kill(one["pid"], signal.SIGSTOP)
        rest = [one["endpoint"].split(":") for one in document["controllers"] if one not in frozen]
        try:
            with QuorumClient([(host, int(port)) for host, port in rest], timeout_s=12) as client:
                assert client.describe_quorum().epoch > document["leaderEpoch"]
        finally:
            for one in frozen:
                os.kill(one["pid"], signal.SIGCONT)
        os.kill(pids[2], signal.SIGKILL)
        assert quorum.process.wait(PATIENCE_S) == 1
        assert "error: controller 3 ended with exit code -9" in quorum.told
        assert all_gone(pids)


def test_a_killed_command_leaves_no_orphan(up: Callable[..., Foreground]) -> None:
    with up("--json") as quorum:
        pids = process_ids(announced(quorum.process))
        quorum.process.kill()
        quorum.process.wait()
        eventually(lambda: all_gone(pids))


def test_ctrl_c_before_anything_is_shown(up: Callable[..., Foreground], tmp_path: Path) -> None:
    with up("--json") as quorum:
        pids = eventually(lambda: children_of(quorum.process.pid))
        # Python ends by the signal itself where that came in the midst of an import; a shell calls
        # both 130.
        assert quorum.end(signal.SIGINT) in (130, -signal.SIGINT)
        assert all_gone(pids)
    assert list((tmp_path / "temporary").iterdir()) == []
    assert "Traceback" not in quorum.told


def children_of(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_what_up_does_not_understand_is_said(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("not yours")
    refused = kraft("up", "--dir", tmp_path)
    assert refused.returncode == 1
    assert "is not empty and holds no quorum of kraft up" in refused.stderr
    wrong = kraft("up", "--setting", "controller.quorum.append.linger.ms=soon")
    assert wrong.returncode == 1
    assert "controller.quorum.append.linger.ms" in wrong.stderr
