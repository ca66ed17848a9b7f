"""The ``kraft`` command in real processes, with pipes and a terminal."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import commands
from tests.harness.commands import heed_interrupts

DATA = Path(__file__).parents[1] / "data" / "kafka-4.3"
CONTROLLER, BROKER = DATA / "controller-101", DATA / "broker-1"
KRAFT = [sys.executable, "-c", "from kraft.cli import main; main()"]
PLAIN = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}


def kraft(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [*KRAFT, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=PLAIN, check=False)


def on_a_terminal(*arguments: object, **environment: str) -> str:
    """Return the command's output where stdout and stderr are a terminal."""
    ours, theirs = pty.openpty()
    env = {**PLAIN, "TERM": "xterm-256color", "COLUMNS": "200", **environment}
    command = [*KRAFT, *map(str, arguments)]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        printed = b""
        while True:
            try:
                piece = os.read(ours, 1 << 16)
            except OSError:
                # The terminal's other end is closed.
                break
            if not piece:
                break
            printed += piece
        assert process.wait() == 0
    os.close(ours)
    return printed.decode()


def fingerprint(directory: Path) -> dict[str, tuple[str, int]]:
    return {
        str(path.relative_to(directory)): (
            hashlib.sha256(path.read_bytes()).hexdigest(),
            path.stat().st_mtime_ns,
        )
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def test_help_lists_the_commands_and_exit_codes() -> None:
    ran = kraft("--help")
    assert ran.returncode == 0
    for command in ("open", "log", "topics", "brokers", "snapshot", "storage", "lab"):
        assert f" {command} " in ran.stdout
    assert "Exit codes" in ran.stdout


@pytest.mark.parametrize(
    "command",
    [
        *(["open"], ["log", "dump"], ["topics", "describe"], ["brokers", "list"]),
        *(["snapshot", "write"], ["snapshot", "verify"], ["snapshot", "diff"]),
        *(["storage", "format"], ["storage", "info"], ["storage", "version-mapping"]),
    ],
    ids=" ".join,
)
def test_each_command_has_help_with_examples(command: list[str]) -> None:
    ran = kraft(*command, "--help")
    assert ran.returncode == 0
    assert "Examples" in ran.stdout
    assert f"kraft {' '.join(command)} " in ran.stdout
    assert "--json" in ran.stdout


def test_version_prints_the_version_of_the_package() -> None:
    from kraft import __version__

    assert kraft("--version").stdout == f"kraft {__version__}\n"


def test_no_command_changes_what_it_opens() -> None:
    before = fingerprint(CONTROLLER)
    assert kraft("open", CONTROLLER).returncode == 0
    assert kraft("log", "dump", CONTROLLER, "--batches").returncode == 0
    assert kraft("topics", "describe", "--from", CONTROLLER).returncode == 0
    assert kraft("snapshot", "verify", CONTROLLER).returncode == 0
    assert kraft("snapshot", "diff", CONTROLLER, "--at-a", 600).returncode == 3
    assert fingerprint(CONTROLLER) == before


def test_errors_are_one_line_on_stderr() -> None:
    ran = kraft("open", "/nowhere/at/all")
    assert ran.returncode == 1
    assert ran.stdout == ""
    assert ran.stderr == "error: no such file or directory: /nowhere/at/all\n"


def test_wrong_usage_has_exit_code_2() -> None:
    assert kraft("nonsense").returncode == 2
    assert kraft("open").returncode == 2
    assert kraft("topics", "describe").returncode == 2


def test_an_unknown_operation_lists_the_known_ones() -> None:
    what = ("--allow-principal", "User:a", "--operation", "fly", "--topic", "t")
    ran = kraft("acls", "add", *what, "--bootstrap-controller", "localhost:1")
    assert ran.returncode == 2
    assert "describe_configs" in ran.stderr


@pytest.mark.parametrize("words", [["--help"], ["open", "nothing"], ["topics", "list", "--wrong"]])
def test_a_forked_command_is_like_a_process(words: list[str]) -> None:
    """The tests fork their commands from a process that has imported them."""
    forked, process = commands.kraft(*words), commands.kraft(*words, program=commands.KRAFT)
    assert forked.returncode == process.returncode
    assert (forked.stdout, forked.stderr) == (process.stdout, process.stderr)


def test_a_closed_pipe_ends_a_command_without_an_error() -> None:
    command = [*KRAFT, "log", "dump", str(BROKER)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"Dumping ")
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


def test_ctrl_c_ends_a_command_with_exit_code_130() -> None:
    command = [*KRAFT, "log", "dump", str(BROKER)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=heed_interrupts
    ) as process:
        assert process.stdout is not None
        # The dump is larger than a pipe's buffer, so the command waits for a reader when the
        # signal arrives.
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
        assert process.returncode == 130
        assert errors == b""


def test_a_pipe_gets_plain_text() -> None:
    ran = kraft("open", CONTROLLER)
    assert "\x1b" not in ran.stdout
    assert "│" not in ran.stdout
    assert "ClusterId" in ran.stdout


def test_a_terminal_gets_tables_and_colours() -> None:
    printed = on_a_terminal("open", CONTROLLER)
    assert "╭─ Cluster " in printed
    assert "\x1b[" in printed


def test_no_color_is_respected() -> None:
    for command in (["open", CONTROLLER], ["log", "dump", CONTROLLER, "--until", 5]):
        printed = on_a_terminal(*command, NO_COLOR="1")
        assert "\x1b[3" not in printed


def test_a_dumb_terminal_gets_plain_text() -> None:
    printed = on_a_terminal("brokers", "list", "--from", CONTROLLER, TERM="dumb")
    assert printed.split()[:2] == ["ID", "RACK"]


def test_json_on_a_terminal_is_plain_json() -> None:
    document = json.loads(on_a_terminal("open", CONTROLLER, "--json"))
    described = json.loads(kraft("topics", "describe", "--from", CONTROLLER, "--json").stdout)
    assert document["topics"]["count"] == len(described)
