"""The checker of histories accepts what an order explains, and nothing else."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.harness.linearizability import (
    Operation,
    RegisterModel,
    Topic,
    TopicModel,
    Violation,
    check,
)


def op(invoked: float, responded: float, kind: str, argument: Any, *result: Any) -> Operation:
    return Operation(invoked, responded, kind, argument, result or None)


def topic_violation(*history: Operation) -> Violation | None:
    return check(history, TopicModel(history))


def create(at: float, end: float, *result: Any) -> Operation:
    return op(at, end, "create", (f"?{at}", 1), *result)


def read(at: float, seen: Topic | None) -> Operation:
    return op(at, at + 0.5, "read", None, "ok", seen)


def test_a_topic_is_created_once() -> None:
    assert topic_violation(create(0, 2, "ok", "a"), create(1, 3, "exists")) is None
    assert topic_violation(create(0, 2, "ok", "a"), create(1, 3, "ok", "b")) is not None
    # Both refused: nobody created it.
    assert topic_violation(create(0, 2, "exists")) is not None


def test_overlapping_operations_take_effect_in_any_order() -> None:
    first, second = create(0, 9, "exists"), create(1, 2, "ok", "a")
    assert topic_violation(first, second) is None
    # The refusal came before the creation was requested.
    assert topic_violation(create(0, 1, "exists"), create(2, 3, "ok", "a")) is not None


def test_an_acknowledged_topic_that_is_gone_is_a_violation() -> None:
    found = topic_violation(create(0, 1, "ok", "a"), read(5, None))
    assert found is not None
    assert found.operation.kind == "read"
    assert "('ok', None)" in str(found)
    assert topic_violation(create(0, 1, "ok", "a"), read(5, Topic("a", 1))) is None
    assert topic_violation(create(0, 1, "ok", "a"), read(5, Topic("a", 2))) is not None
    assert topic_violation(create(0, 1, "ok", "a"), read(5, Topic("b", 1))) is not None


def test_an_operation_without_a_response_takes_effect_later_or_never() -> None:
    lost = create(0, 0)
    for seen in (None, Topic("a", 1)):
        assert topic_violation(lost, read(5, seen)) is None
    late = topic_violation(lost, read(5, None), read(6, Topic("a", 1)))
    assert late is None
    assert topic_violation(lost, read(5, Topic("a", 1)), read(6, None)) is not None
    # It happens once.
    deleted = op(2, 3, "delete", None, "ok", "a")
    assert topic_violation(lost, deleted, read(5, Topic("b", 1))) is not None


def test_a_deletion_names_the_topic_that_it_deleted() -> None:
    made = create(0, 1, "ok", "a")
    assert topic_violation(made, op(2, 3, "delete", None, "ok", "a"), read(4, None)) is None
    assert topic_violation(made, op(2, 3, "delete", None, "ok", "b")) is not None
    assert topic_violation(made, op(2, 3, "delete", None, "unknown")) is not None
    assert topic_violation(op(2, 3, "delete", None, "unknown")) is None
    assert topic_violation(made, op(2, 0, "delete", None), read(4, None)) is None
    # "a" was told by a creation's response: an open creation cannot have made it.
    again = op(4, 5, "delete", None, "ok", "a")
    gone = op(2, 3, "delete", None, "ok", "a")
    assert topic_violation(create(0.1, 0), made, gone, again) is not None


def test_partitions_only_grow() -> None:
    made = create(0, 1, "ok", "a")
    grown = op(2, 3, "extend", 5, "ok")
    assert topic_violation(made, grown, read(4, Topic("a", 5))) is None
    assert topic_violation(made, grown, read(4, Topic("a", 1))) is not None
    assert topic_violation(made, grown, op(4, 5, "extend", 5, "invalid")) is None
    assert topic_violation(made, grown, op(4, 5, "extend", 5, "ok")) is not None
    assert topic_violation(made, op(2, 3, "extend", 5, "invalid")) is not None
    assert topic_violation(op(2, 3, "extend", 5, "unknown")) is None
    assert topic_violation(made, op(2, 3, "extend", 5, "unknown")) is not None
    assert topic_violation(made, op(2, 0, "extend", 5), read(4, Topic("a", 5))) is None


def test_the_last_write_of_a_register_stays() -> None:
    def violation(*history: Operation) -> Violation | None:
        return check(history, RegisterModel())

    one, two = op(0, 1, "write", 1, "ok"), op(2, 3, "write", 2, "ok")
    assert violation(one, two, op(4, 5, "read", None, "ok", 2)) is None
    assert violation(one, two, op(4, 5, "read", None, "ok", 1)) is not None
    overlapping = op(0.5, 3, "write", 2, "ok")
    for value in (1, 2):
        assert violation(one, overlapping, op(4, 5, "read", None, "ok", value)) is None
    lost = op(0, 0, "write", 3)
    assert violation(one, lost, op(4, 5, "read", None, "ok", 3)) is None


@pytest.mark.parametrize("seed", range(5))
def test_histories_of_a_real_object_pass_and_fail_when_a_result_is_changed(seed: int) -> None:
    """Operations take effect at a random moment of their interval; the model runs them."""
    draw = random.Random(seed)
    moments = sorted(
        (place * 0.4 + draw.random(), draw.choice(["create", "delete", "extend", "read"]))
        for place in range(60)
    )
    state: Topic | None = None
    history = []
    for number, (moment, kind) in enumerate(moments):
        argument: Any = (f"?{number}", 1) if kind == "create" else draw.randint(2, 9)
        result: tuple[Any, ...]
        if kind == "create":
            result = ("exists",) if state else ("ok", f"id-{number}")
            state = state or Topic(f"id-{number}", 1)
        elif kind == "delete":
            result = ("ok", state.id) if state else ("unknown",)
            state = None
        elif kind == "extend" and state:
            result = ("invalid",) if state.partitions >= argument else ("ok",)
            state = Topic(state.id, max(argument, state.partitions))
        else:
            result = ("ok", state) if kind == "read" else ("unknown",)
        begin, end = moment - draw.random(), moment + draw.random()
        is_lost = kind != "read" and draw.random() < 0.1
        history.append(Operation(begin, end, kind, argument, None if is_lost else result))
    assert topic_violation(*history) is None
    reads = [n for n, each in enumerate(history) if each.kind == "read" and each.result]
    changed = draw.choice(reads)
    wrong = history[changed]._replace(result=("ok", Topic("of nobody", 99)))
    assert topic_violation(*history[:changed], wrong, *history[changed + 1 :]) is not None
