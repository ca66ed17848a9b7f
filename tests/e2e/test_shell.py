"""``kraft shell`` as a process: arguments, a pipe, a terminal, a running quorum."""

from __future__ import annotations

import os
import pty
import subprocess
import time
from pathlib import Path

import pytest

import kraft as kraft_package
from kraft.testing.cluster import QuorumForTests
from tests.harness.commands import KRAFT, PATIENCE_S, PLAIN, eventually, kraft, printed

DIRECTORY = Path(__file__).parents[1] / "data" / "kafka-4.3" / "controller-101"


def test_one_command_of_the_arguments() -> None:
    assert printed("shell", "--from", DIRECTORY, "ls", "/image/cluster") == "brokers\ncontrollers\n"
    early = printed("shell", "--from", DIRECTORY, "--at", 700, "ls", "/image/topics/byName")
    assert early.split() == sorted(kraft_package.open_metadata(DIRECTORY, at=700).topics)
    missing = kraft("shell", "--from", DIRECTORY, "cat", "/image/nope")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr == "cat: /image/nope: No such file or directory.\n"
    wrong = kraft("shell", "--from", DIRECTORY, "ls", "-x")
    assert wrong.returncode == 2
    assert "unrecognized arguments: '-x'" in wrong.stderr
    assert kraft("shell", "ls").returncode == 2


def test_lines_of_a_pipe() -> None:
    def piped(text: str) -> tuple[int, str, str]:
        command = [*KRAFT, "shell", "--from", str(DIRECTORY)]
        ran = subprocess.run(
            command, input=text, capture_output=True, text=True, env=PLAIN, check=False
        )
        return ran.returncode, ran.stdout, ran.stderr

    assert piped("cd image/features\ncat metadataVersion\n") == (0, "Optional[4.3-IV0]\n", "")
    code, out, errors = piped("nope\npwd\nexit\npwd\n")
    assert (code, out) == (1, "/\n")
    assert errors.startswith("invalid choice: 'nope'")


@pytest.mark.kraft_cluster(controllers=1, light_brokers=1)
def test_a_running_quorum_stays_current(kraft_cluster: QuorumForTests) -> None:
    at = kraft_cluster.bootstrap_controllers
    command = [*KRAFT, "shell", "--bootstrap-controller", at]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=PLAIN
    ) as shell:
        assert shell.stdin is not None
        assert shell.stdout is not None

        def says(line: str) -> str:
            assert shell.stdin is not None
            assert shell.stdout is not None
            shell.stdin.write(f"{line}\npwd\n")
            shell.stdin.flush()
            lines = []
            while (said := shell.stdout.readline()) != "/\n":
                lines.append(said)
            return "".join(lines)

        assert says("ls /image/topics/byName") == ""
        kraft_cluster.create_topic("later", 3)
        eventually(lambda: says("ls /image/topics/byName"), until=lambda said: said == "later\n")
        assert says("ls /image/topics/byName/later") == "0\n1\n2\nid\nname\n"
        shell.stdin.close()
        assert shell.wait(PATIENCE_S) == 0
    refused = kraft("shell", "--bootstrap-controller", "localhost", "ls")
    assert refused.returncode == 2


def test_a_terminal_completes_paths_and_keeps_its_history(tmp_path: Path) -> None:
    """Tab completes a name, the arrow key brings back the last line."""
    parent, child = pty.openpty()
    environment = {**PLAIN, "HOME": str(tmp_path), "TERM": "xterm", "COLUMNS": "200"}
    command = [*KRAFT, "shell", "--from", str(DIRECTORY)]
    with subprocess.Popen(
        command, stdin=child, stdout=child, stderr=child, env=environment, start_new_session=True
    ) as shell:
        os.close(child)
        screen = b""

        def until(text: bytes) -> None:
            nonlocal screen
            deadline = time.monotonic() + PATIENCE_S
            while text not in screen:
                assert time.monotonic() < deadline, screen
                screen += os.read(parent, 4096)
            screen = screen.partition(text)[2]

        until(b">> ")
        os.write(parent, b"cat /im\tfea\tmeta\t\n")
        until(b"Optional[4.3-IV0]")
        until(b">> ")
        os.write(parent, b"\x1b[A\n")
        until(b"Optional[4.3-IV0]")
        until(b">> ")
        os.write(parent, b"exit\n")
        assert shell.wait(PATIENCE_S) == 0
        os.close(parent)
    history = (tmp_path / ".kraft_shell_history").read_text()
    assert "cat /image/features/metadataVersion" in history
