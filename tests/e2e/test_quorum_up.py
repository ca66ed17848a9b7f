"""``kraft up``: a whole quorum by one command, which leaves no files or processes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraft.network.quorum_client import QuorumClient
from kraft.server.local_quorum import STOP_TIMEOUT_S
from tests.harness.commands import (
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
    """Return a function that starts ``kraft up`` with its own temporary directory."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setitem(PLAIN, "TMPDIR", str(place))

    def start(*arguments: object, is_typed: bool = False) -> Foreground:
        return Foreground(["up", *arguments], tmp_path / "up.err", is_typed=is_typed)

    return start


def process_ids(document: Any) -> list[int]:
    return [one["pid"] for one in document["controllers"]]


def all_gone(pids: list[int]) -> bool:
    return all(map(is_gone, pids))


def test_the_text_has_the_endpoints_and_the_next_command(
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
        # A terminal signals the whole foreground group.
        os.killpg(quorum.process.pid, signal.SIGINT)
        assert quorum.process.wait(PATIENCE_S) == 130
        assert all_gone([int(row[3]) for row in rows])
    assert "error" not in quorum.text
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_directory_keeps_its_quorum(up: Callable[..., Foreground], tmp_path: Path) -> None:
    home = tmp_path / "home"
    arguments = ("--controllers", 1, "--dir", home, "--json")
    setting = "controller.quorum.append.linger.ms=0"
    with up(*arguments, "--setting", setting) as quorum:
        first = quorum.announced()
        assert quorum.end(signal.SIGTERM) == 130
        assert all_gone(process_ids(first))
    assert setting in (home / "controller-1" / "controller.properties").read_text()
    with up(*arguments) as quorum:
        second = quorum.announced()
        assert second["bootstrapControllers"] == first["bootstrapControllers"]
        assert second["leaderEpoch"] > first["leaderEpoch"]
        taken = kraft("up", *arguments)
        assert taken.returncode == 1
        assert f"{home / 'controller-1' / 'data'} is in use" in taken.stderr
        other = kraft("up", "--controllers", 3, "--dir", home)
        assert other.returncode == 1
        assert "holds 1 controllers and 0 brokers, not 3 and 0" in other.stderr
        assert quorum.end(signal.SIGINT) == 130
    assert list((tmp_path / "temporary").iterdir()) == []


def test_five_nodes_survive_two_frozen_ones_and_exit_with_node_stops_all_at_the_first_end(
    up: Callable[..., Foreground],
) -> None:
    with up("--controllers", 5, "--json", "--exit-with-node") as quorum:
        document = quorum.announced()
        assert len(document["controllers"]) == 5
        pids = process_ids(document)
        # A frozen node has not ended: the command continues, and so does the quorum.
        frozen = [one for one in document["controllers"] if one["nodeId"] == document["leaderId"]]
        frozen += [one for one in document["controllers"] if one not in frozen][:1]
        for one in frozen:
            os.kill(one["pid"], signal.SIGSTOP)
        rest = [one["endpoint"].split(":") for one in document["controllers"] if one not in frozen]
        try:
            with QuorumClient([(host, int(port)) for host, port in rest], timeout_s=60) as client:
                assert client.describe_quorum().epoch > document["leaderEpoch"]
        finally:
            for one in frozen:
                os.kill(one["pid"], signal.SIGCONT)
        os.kill(pids[2], signal.SIGKILL)
        assert quorum.process.wait(PATIENCE_S) == 1
        assert "error: controller 3 ended with exit code -9" in quorum.text
        assert all_gone(pids)


def await_text(quorum: Foreground, text: str) -> None:
    eventually(lambda: text in quorum.text)


def typed(quorum: Foreground, line: str) -> None:
    assert quorum.process.stdin is not None
    quorum.process.stdin.write(line + "\n")
    quorum.process.stdin.flush()


def test_typed_commands_stop_kill_and_start_nodes(
    up: Callable[..., Foreground], tmp_path: Path
) -> None:
    with up(is_typed=True) as quorum:
        assert quorum.process.stdout is not None
        lines = iter(quorum.process.stdout.readline, "")

        def until(*parts: str) -> list[str]:
            """Return the lines up to the one after which all parts were seen, in any order."""
            seen = []
            for line in lines:
                seen.append(line)
                if all(any(part in each for each in seen) for part in parts):
                    return seen
            raise AssertionError(seen)

        rows = [line.split() for line in until("Commands here: stop N, kill N")]
        pids = {row[0]: int(row[3]) for row in rows[2:5]}
        leader = next(row[0] for row in rows[2:5] if row[2] == "Leader")
        typed(quorum, f"kill {leader}")
        until(f"controller {leader} killed")
        assert is_gone(pids[leader])
        until("leads epoch")
        other = next(id for id in pids if id != leader)
        typed(quorum, f"stop {other}")
        until(f"controller {other} stopped")
        # The last node may lead until its check-quorum timeout.
        states: list[str] = []
        for _ in range(600):
            typed(quorum, "status")
            states = sorted(line.split()[2] for line in until("  3  ")[-3:])
            if states == ["Down", "Down", "Running"]:
                break
            time.sleep(0.1)
        until("no leader: 1 of 3 controllers run")
        for id in (leader, other):
            typed(quorum, f"start {id}")
        # The first two may elect a leader before the third has started.
        until(*(f"controller {id} started" for id in (leader, other)), "leads epoch")
        for wrong in ("stop 7", "start 1", "stop", "explode 1", "status 1"):
            typed(quorum, wrong)
        await_text(quorum, "there is no node 7; there are 1, 2, 3")
        await_text(quorum, "controller 1 is already running")
        await_text(quorum, "unknown command 'explode 1'; commands are stop N, kill N")
        typed(quorum, "status")
        rows = [line.split() for line in until("  3  ")][-3:]
        assert [row[0] for row in rows] == ["1", "2", "3"]
        now = [int(row[3]) for row in rows]
        typed(quorum, f"stop {other}")
        until(f"controller {other} stopped")
        assert quorum.end(signal.SIGINT) == 130
        assert all_gone([*pids.values(), *now])
    assert "ended with exit code" not in quorum.text
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_node_that_dies_is_reported_and_the_others_continue(
    up: Callable[..., Foreground], tmp_path: Path
) -> None:
    with up("--json", is_typed=True) as quorum:
        document = quorum.announced()
        pids = process_ids(document)
        lost = document["leaderId"]
        os.kill(pids[lost - 1], signal.SIGKILL)
        await_text(quorum, f"error: controller {lost} ended with exit code -9")
        await_text(quorum, f"To start it again, type: start {lost}")
        assert quorum.process.poll() is None
        rest = [
            one["endpoint"].split(":") for one in document["controllers"] if one["nodeId"] != lost
        ]
        with QuorumClient([(host, int(port)) for host, port in rest]) as client:
            assert client.describe_quorum().leader_id != lost
        typed(quorum, f"start {lost}")

        def is_back() -> bool:
            typed(quorum, "status")
            return quorum.announced()["controllers"][lost - 1]["pid"] is not None

        eventually(is_back)
        # All nodes are lost, and Ctrl-C still ends the command.
        typed(quorum, "status")
        for pid in process_ids(quorum.announced()):
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: quorum.text.count("ended with exit code -9") == 4)
        assert quorum.end(signal.SIGINT) == 130
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_second_ctrl_c_does_not_wait_for_a_node_that_hangs(
    up: Callable[..., Foreground], tmp_path: Path
) -> None:
    with up("--json") as quorum:
        pids = process_ids(quorum.announced())
        os.kill(pids[0], signal.SIGSTOP)
        quorum.process.send_signal(signal.SIGINT)
        eventually(lambda: all_gone(pids[1:]))
        for _ in range(5):
            quorum.process.send_signal(signal.SIGINT)
        assert quorum.process.wait(STOP_TIMEOUT_S - 2) == 130
        assert all_gone(pids)
    assert list((tmp_path / "temporary").iterdir()) == []
    assert "Traceback" not in quorum.text


def test_a_running_quorum_is_not_started_again(
    up: Callable[..., Foreground], tmp_path: Path
) -> None:
    """The error comes before any process starts and any table is printed."""
    home = tmp_path / "home"
    with up("--json", "--dir", home) as quorum:
        pids = process_ids(quorum.announced())
        again = kraft("up", "--dir", home)
        assert (again.returncode, again.stdout) == (1, "")
        assert again.stderr.startswith("error: ")
        assert f"{home / 'controller-1' / 'data'} is in use" in again.stderr
        assert len(again.stderr.splitlines()) == 1
        assert quorum.end(signal.SIGINT) == 130
        assert all_gone(pids)


def test_a_closed_terminal_leaves_nothing_behind(
    up: Callable[..., Foreground], tmp_path: Path
) -> None:
    with up("--json") as quorum:
        pids = process_ids(quorum.announced())
        assert quorum.end(signal.SIGHUP) == 130
        assert all_gone(pids)
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_killed_command_leaves_no_orphan(up: Callable[..., Foreground]) -> None:
    with up("--json") as quorum:
        pids = process_ids(quorum.announced())
        quorum.process.kill()
        quorum.process.wait()
        eventually(lambda: all_gone(pids))


def test_ctrl_c_before_any_output(up: Callable[..., Foreground], tmp_path: Path) -> None:
    with up("--json") as quorum:
        pids = eventually(lambda: children_of(quorum.process.pid))
        # Python ends by the signal itself if it came during an import; a shell calls both 130.
        assert quorum.end(signal.SIGINT) in (130, -signal.SIGINT)
        assert all_gone(pids)
    assert list((tmp_path / "temporary").iterdir()) == []
    assert "Traceback" not in quorum.text


def children_of(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_invalid_options_of_up_are_errors(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("not yours")
    refused = kraft("up", "--dir", tmp_path)
    assert refused.returncode == 1
    assert "is not empty and holds no quorum of kraft up" in refused.stderr
    home = tmp_path / "home"
    wrong = kraft("up", "--dir", home, "--setting", "controller.quorum.append.linger.ms=soon")
    assert wrong.returncode == 1
    assert "controller.quorum.append.linger.ms" in wrong.stderr
    # A directory with one node would be taken for a quorum of one the next time.
    assert list(home.iterdir()) == []
