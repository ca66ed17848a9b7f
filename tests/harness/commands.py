"""The ``kraft`` command as a process: to its end, or in the foreground until a signal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from tests.harness.command_server import CommandServer

KRAFT = (sys.executable, "-m", "kraft")
PLAIN = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}
#: Far above the time of any step on a busy machine.
PATIENCE_S = 120.0

T = TypeVar("T")


def heed_interrupts() -> None:
    """For ``preexec_fn``: restore SIGINT's default action, as in a terminal's foreground.

    A shell starts background jobs with Ctrl-C ignored, and child processes inherit this.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)


_SERVER = CommandServer(PLAIN)


def kraft(
    *arguments: object,
    program: Sequence[str] | None = None,
    timeout_s: float = 2 * PATIENCE_S,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; ``program`` is another one than ``kraft``."""
    words = list(map(str, arguments))
    if program is None:
        return _SERVER.run(words, timeout_s)
    return subprocess.run(
        [*program, *words],
        capture_output=True,
        text=True,
        env=PLAIN,
        timeout=timeout_s,
        check=False,
    )


def printed(*arguments: object) -> str:
    """Return the output of a command that must succeed."""
    ran = kraft(*arguments)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def eventually(look: Callable[[], T], *, until: Callable[[T], object] = bool) -> T:
    """Repeat ``look`` until its result is true, and return that."""
    deadline = time.monotonic() + PATIENCE_S
    while not until(seen := look()):
        assert time.monotonic() < deadline, seen
        time.sleep(0.02)
    return seen


def is_gone(pid: int) -> bool:
    """Return whether there is no process with this id, or only a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state in "ZX"


def logged(
    command: Sequence[object],
    log: Path,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    has_input: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a process whose output is appended to a file; its standard input may be a pipe."""
    with log.open("ab") as output:
        return subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.PIPE if has_input else subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=cwd,
            env=env,
            start_new_session=True,
        )


class Foreground:
    """A command that runs until a signal; its output goes to a file.

    ``program`` is that of another version of kraft.
    """

    def __init__(
        self,
        command: Sequence[object],
        output: Path,
        *,
        preexec: Callable[[], None] = heed_interrupts,
        is_typed: bool = False,
        program: Sequence[str] = KRAFT,
    ) -> None:
        self.output = output
        self.process = subprocess.Popen(
            [*program, *map(str, command)],
            stdin=subprocess.PIPE if is_typed else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=output.open("ab"),
            env=PLAIN,
            text=True,
            preexec_fn=preexec,
            start_new_session=True,
        )

    @property
    def text(self) -> str:
        return self.output.read_text()

    def announced(self) -> Any:
        """Return the ``--json`` document as soon as it is printed."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def end(self, number: int) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        if self.process.stdin is not None:
            self.process.stdin.close()
