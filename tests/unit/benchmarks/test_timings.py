"""CPU time, measured beside wall time, of this process and of processes that it started."""

from __future__ import annotations

import os
import subprocess
import sys
from time import process_time, sleep

from benchmarks import timings
from benchmarks.machine import cpu_seconds_of

SPIN = "import time\nwhile time.process_time() < 0.3: pass\nprint('done', flush=True)\ninput()"


def spin(seconds: float) -> None:
    end = process_time() + seconds
    while process_time() < end:
        pass


def test_a_round_counts_work_and_neither_sleep_nor_set_up() -> None:
    timings.begin_cpu_samples()
    for _ in range(3):
        spin(0.1)  # the set-up of a round must not count
        begin = timings.wall_clock()
        spin(0.01)
        sleep(0.02)
        assert timings.wall_clock() - begin >= 0.03
    assert 0.01 <= timings.cpu_seconds_a_round(3) < 0.1


def test_warm_up_rounds_do_not_count() -> None:
    timings.begin_cpu_samples()
    for seconds in (0.3, 0.01, 0.01):
        timings.wall_clock()
        spin(seconds)
        timings.wall_clock()
    assert 0.01 <= timings.cpu_seconds_a_round(2) < 0.15


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
