"""Ctrl-C while the fleet waits for its processes."""

from __future__ import annotations

import random
import signal
import threading
from pathlib import Path

import pytest

from kraft.fleet.fleet import Fleet, FleetSettings
from kraft.fleet.trace import FleetRun, FleetTrace

INTERRUPTS = 100


def test_ctrl_c_in_a_wait_is_ctrl_c_whatever_the_threads_do(tmp_path: Path) -> None:
    """The wait of a threading.Condition raised "cannot release un-acquired lock" instead."""
    dice, is_over = random.Random(5), threading.Event()
    run = FleetRun("a", "kraft", 1, 3, 0, "none", 0, 1)
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    with (
        FleetTrace(tmp_path / "trace", run) as trace,
        Fleet(FleetSettings(3), "cluster", "127.0.0.1:1", tmp_path / "run", trace) as fleet,
    ):

        def look_often() -> None:
            while not is_over.is_set():
                fleet.take_delay()

        def wait_interrupted() -> None:
            # A wait is interrupted, and begins to take the lock again, at a random time. The timer
            # may end before the wait begins: the other threads may run meanwhile.
            signal.setitimer(signal.ITIMER_REAL, 0.001 + 0.002 * dice.random())
            fleet.wait(lambda: False, 60.0, str)

        threads = [threading.Thread(target=look_often) for _ in range(3)]
        for one in threads:
            one.start()
        try:
            for _ in range(INTERRUPTS):
                with pytest.raises(KeyboardInterrupt):
                    wait_interrupted()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            is_over.set()
            for one in threads:
                one.join()
            signal.signal(signal.SIGALRM, previous)
        fleet.wait(lambda: True, 1.0, str)
