"""CPU time, measured beside wall time, of this process and of processes that it started."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from time import process_time

import pytest

from benchmarks import timings
from benchmarks.machine import cpu_seconds_of

SPIN = "import time\nwhile time.process_time() < 0.3: pass\nprint('done', flush=True)\ninput()"


@dataclass
class Clocks:
    """Clocks that only the test moves: a busy machine adds to the real ones."""

    cpu_s: float = 0.0
    wall_s: float = 0.0

    def spin(self, seconds: float) -> None:
        self.cpu_s += seconds
        self.wall_s += seconds

    def sleep(self, seconds: float) -> None:
        self.wall_s += seconds


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    made = Clocks()
    monkeypatch.setattr(timings, "cpu_seconds", lambda: made.cpu_s)
    monkeypatch.setattr(timings, "perf_counter", lambda: made.wall_s)
    timings.begin_cpu_samples()
    return made


def test_a_round_counts_work_and_neither_sleep_nor_set_up(clocks: Clocks) -> None:
    for _ in range(3):
        clocks.spin(0.5)  # the set-up of a round must not count
        begin = timings.wall_clock()
        clocks.spin(0.25)
        clocks.sleep(1.0)
        assert timings.wall_clock() - begin == 1.25
    assert timings.cpu_seconds_a_round(3) == 0.25


def test_warm_up_rounds_do_not_count(clocks: Clocks) -> None:
    for seconds in (8.0, 0.25, 0.5):
        timings.wall_clock()
        clocks.spin(seconds)
        timings.wall_clock()
    assert timings.cpu_seconds_a_round(2) == 0.375


def test_work_and_ended_children_use_cpu_time() -> None:
    before, end = timings.cpu_seconds(), process_time() + 0.05
    while process_time() < end:
        pass
    worked = timings.cpu_seconds()
    assert worked - before >= 0.05
    subprocess.run([sys.executable, "-c", SPIN], input=b"\n", stdout=subprocess.DEVNULL, check=True)
    assert timings.cpu_seconds() - worked >= 0.3


def test_a_process_counts_with_its_running_children() -> None:
    before = cpu_seconds_of(os.getpid())
    command = [sys.executable, "-c", SPIN]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"done\n"
        assert cpu_seconds_of(child.pid) >= 0.25
        assert cpu_seconds_of(os.getpid()) - before >= 0.25
        child.communicate(b"\n")
    assert cpu_seconds_of(child.pid) == 0
