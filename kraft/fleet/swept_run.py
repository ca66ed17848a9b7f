"""Carry out one run of a sweep on this machine: ``kraft lab fleet`` as a child process.

The child has a session of its own, so that Ctrl-C reaches only the sweep. Its standard input is a
pipe that it watches: it ends, and with it the controllers and light brokers, when this process
closes the pipe or is killed, as a cancelled task of Spark is. Its standard error is read for the
step it is in and for the reason of a failure.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import IO

from kraft.errors import FleetRunError
from kraft.fleet.run_slot import RunSlot, take_slot
from kraft.fleet.scenario import scenario_document
from kraft.fleet.sweep_grid import SweepSettings, SweptRun
from kraft.fleet.texts import STEP_PREFIX
from kraft.fleet.traces import BENCHMARK_FILE, RUN_FILE, TRACE_FILE, read_run

#: The report that ``kraft lab fleet --json`` printed.
REPORT_FILE = "report.json"
#: The files that it wrote.
_WRITTEN_FILES = (RUN_FILE, TRACE_FILE, BENCHMARK_FILE)
#: The reason of a run that did not finish, beside the files that it wrote.
ERROR_FILE = "error.txt"
#: ``kraft lab fleet`` ended, and its check found a problem (`kraft.cli.exit_codes.FAILED`).
_CHECK_FAILED = 4
#: How long a child may take to end its processes; it kills itself after 60 s.
_END_TIMEOUT_S = 75.0
_KEPT_LINES = 200


class SweptRunOutcome(StrEnum):
    """How a run of a sweep ended."""

    FINISHED = "finished"
    #: It was rejected, an error ended it, or its check found a problem.
    FAILED = "failed"
    TIMED_OUT = "timed out"
    #: No slot was free: the run has not begun.
    WAITING = "waiting"


@dataclass(frozen=True)
class SweptRunResult:
    """A run that has ended: its files by name, and why it failed."""

    run: SweptRun
    outcome: SweptRunOutcome
    reason: str = ""
    seconds: float = 0.0
    machine: str = ""
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)


def carry_out(
    run: SweptRun,
    settings: SweepSettings,
    work: Path,
    *,
    owner: str,
    runs_at_once: int = 1,
    wait_s: float = 0.0,
    program: Sequence[str] = (sys.executable, "-m", "kraft"),
) -> SweptRunResult:
    """Carry out a run in a slot below ``work``; wait for a free one up to ``wait_s``.

    Nothing of the run is left on the machine when this returns or raises, or when this process is
    killed, but for the files of the slot, which its next holder removes. ``program`` is the command
    ``kraft``. Raises StorageError where ``work`` cannot be used.
    """
    slot = take_slot(work, runs_at_once, owner, wait_s=wait_s)
    if slot is None:
        return SweptRunResult(run, SweptRunOutcome.WAITING)
    with slot:
        out, scenario = slot.directory / "run", slot.directory / "scenario.json"
        scenario.write_text(json.dumps(scenario_document(settings.scenario)), encoding="utf-8")
        begun_s = time.monotonic()
        command = [*program, *settings.arguments(run, scenario, out)]
        with _ChildRun(command, slot) as child:
            code = child.wait(settings.time_limit_s)
        outcome, reason = SweptRunOutcome.FINISHED, ""
        if code is None:
            outcome = SweptRunOutcome.TIMED_OUT
            reason = f"it did not end within {settings.time_limit_s:g} s ({child.step_text})"
        elif code:
            outcome, reason = SweptRunOutcome.FAILED, child.reason(code)
        else:
            try:
                read_run(out)
            except FleetRunError as error:
                outcome, reason = SweptRunOutcome.FAILED, str(error)
        files = {
            path.name: path.read_bytes()
            for path in (*(out / name for name in _WRITTEN_FILES), child.report)
            if path.is_file()
        }
        if outcome is not SweptRunOutcome.FINISHED:
            files[ERROR_FILE] = f"{reason}\n\n{child.said}\n".encode()
        seconds = time.monotonic() - begun_s
        return SweptRunResult(run, outcome, reason, seconds, os.uname().nodename, files)


class _ChildRun:
    """A child process with its pipes; it has ended when the context manager is left."""

    def __init__(self, command: Sequence[str], slot: RunSlot) -> None:
        self.report = slot.directory / REPORT_FILE
        self._step = ""
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        with self.report.open("wb") as report:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=report,
                stderr=subprocess.PIPE,
                start_new_session=True,
                # The slot is taken as long as the child runs, also if this process is killed.
                pass_fds=(slot.fd,),
            )
        assert self._process.stderr is not None
        self._reader = threading.Thread(
            target=self._read, args=(self._process.stderr,), daemon=True
        )
        self._reader.start()

    @property
    def step_text(self) -> str:
        """The step that it was in last, in words."""
        return f"in step {self._step}" if self._step else "before its first step"

    @property
    def said(self) -> str:
        """The end of its standard error."""
        return "\n".join(self._lines)

    def reason(self, code: int) -> str:
        """Return why it ended with this exit code."""
        errors = [line.removeprefix("error: ") for line in self._lines if line.startswith("error:")]
        if code == _CHECK_FAILED and errors:
            return "its check failed: " + "; ".join(errors)
        if errors:
            return f"{errors[-1]} ({self.step_text})" if self._step else errors[-1]
        last = self._lines[-1] if self._lines else "it printed nothing"
        return f"it ended with exit code {code} ({self.step_text}): {last}"

    def wait(self, timeout_s: float) -> int | None:
        """Return its exit code, None where it did not end in time: then it is ended."""
        code = None
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.end()
        # Its last lines say why it ended.
        self._reader.join(_END_TIMEOUT_S)
        return code

    def end(self) -> None:
        """Close its input, which ends it and its processes; kill it if that takes too long."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _read(self, errors: IO[bytes]) -> None:
        for line in errors:
            text = line.decode(errors="replace").rstrip("\n")
            if text.startswith(STEP_PREFIX):
                self._step = text.removeprefix(STEP_PREFIX)
            self._lines.append(text)

    def __enter__(self) -> _ChildRun:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()
        assert self._process.stderr is not None
        self._process.stderr.close()
