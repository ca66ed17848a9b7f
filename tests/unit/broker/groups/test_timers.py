"""Deadlines by key, beside a model that sorts them."""

from __future__ import annotations

import random

import pytest

from kraft.broker.groups.timers import Timers


def test_a_key_is_due_once_with_its_last_deadline_and_detail() -> None:
    timers: Timers[str] = Timers()
    timers.schedule("a", 10, "first")
    timers.schedule("a", 30, "second")
    timers.schedule("b", 20)
    assert timers.next_deadline_ms() == 20
    assert timers.pop_due(19) is None
    assert timers.pop_due(40) == ("b", None)
    assert timers.pop_due(29) is None
    assert timers.pop_due(30) == ("a", "second")
    assert timers.pop_due(40) is None
    assert timers.next_deadline_ms() is None


def test_heartbeats_leave_nothing_behind() -> None:
    timers: Timers[int] = Timers()
    for now_ms in range(1_000):
        for key in range(10):
            timers.schedule(key, now_ms + 10_000)
    assert len(timers._heap) == len(timers) == 10


def test_cancelled_keys_leave_little_behind() -> None:
    timers: Timers[int] = Timers()
    for key in range(10_000):
        timers.schedule(key, 1_000_000)
        timers.cancel(key)
    assert len(timers._heap) <= 65


@pytest.mark.parametrize("seed", range(20))
def test_keys_are_due_in_the_order_of_deadlines_and_scheduling(seed: int) -> None:
    dice = random.Random(seed)
    timers: Timers[int] = Timers()
    model: dict[int, tuple[int, int]] = {}
    for number in range(3_000):
        key, deadline_ms = dice.randrange(200), dice.randrange(1_000)
        match dice.randrange(4):
            case 0:
                timers.cancel(key)
                model.pop(key, None)
            case 1:
                now_ms = dice.randrange(300)
                due = min(model, key=lambda one: model[one], default=None)
                if due is not None and model[due][0] > now_ms:
                    due = None
                popped = timers.pop_due(now_ms)
                assert popped == (None if due is None else (due, model.pop(due)[1]))
            case _:
                timers.schedule(key, deadline_ms, number)
                model[key] = (deadline_ms, number)
        assert len(timers) == len(model)
        assert timers.next_deadline_ms() == min((one[0] for one in model.values()), default=None)
    timers.clear()
    assert timers.next_deadline_ms() is None
