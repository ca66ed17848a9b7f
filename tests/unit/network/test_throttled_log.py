"""Warnings that peers cause: at most one line of each kind in an interval, with a count."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import pytest

from kraft.network.throttled_log import DEAD_NODE_INTERVAL_S, ThrottledLog


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_first_warning_is_logged_at_once_and_the_others_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    throttled = ThrottledLog(logging.getLogger("kraft.test"), clock)

    def logged() -> list[str]:
        lines = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return lines

    throttled.warn("frames", "a sent 1")
    throttled.warn("answers", "b answered")
    assert logged() == ["a sent 1", "b answered"]
    for number in range(2, 1002):
        throttled.warn("frames", f"a sent {number}")
    throttled.flush()
    assert logged() == []
    clock.now += 1
    throttled.flush()
    assert logged() == ["frames: 1000 more, the last: a sent 1001"]
    # A warning in the next second is counted; after a second without one it is logged at once.
    throttled.warn("frames", "c sent 1")
    assert logged() == []
    clock.now += 1
    throttled.warn("frames", "c sent 2")
    assert logged() == ["frames: 2 more, the last: c sent 2"]
    throttled.flush()
    clock.now += 1
    throttled.warn("frames", "c sent 3")
    assert logged() == ["c sent 3"]
    throttled.warn("frames", "c sent 4")
    throttled.flush(is_over=True)
    assert logged() == ["frames: 1 more, the last: c sent 4"]


def test_warnings_of_a_dead_node_are_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    throttled = ThrottledLog(logging.getLogger("kraft.test"), clock, DEAD_NODE_INTERVAL_S)
    for second in range(130):
        clock.now = 100.0 + second
        throttled.warn("broker 3", f"no answer at {second}")
    assert [record.getMessage() for record in caplog.records] == [
        "no answer at 0",
        "broker 3: 60 more, the last: no answer at 60",
        "broker 3: 60 more, the last: no answer at 120",
    ]
