"""Curves: exponents of known laws, and what is extrapolated."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kraft.generations.curves import Curve, curves_of
from kraft.generations.measures import Outcome, RunResult, ScriptStep

SIZES = (100, 1000, 10_000, 50_000, 200_000)
KEY = ScriptStep.FAILOVER, "known"


def runs(
    value: Callable[[int], float], *, measured: int = len(SIZES), mode: str = "kraft"
) -> list[RunResult]:
    found = []
    for place, size in enumerate(SIZES):
        run = RunResult(mode, size)
        if place < measured:
            run.seconds[KEY] = value(size)
        else:
            run.outcome = Outcome.SKIPPED
        found.append(run)
    return found


def curve(results: list[RunResult]) -> Curve:
    (found,) = curves_of(results, 10)
    return found


def test_the_exponent_of_a_power_law() -> None:
    found = curve(runs(lambda size: 2e-3 * size**0.9))
    assert found.law is not None
    assert found.law.exponent == pytest.approx(0.9)
    assert found.tail == pytest.approx(0.9)
    assert (found.sizes, found.beyond) == (SIZES, ())
    assert found.title == "failover known"


def test_the_last_sizes_show_what_a_constant_hides() -> None:
    found = curve(runs(lambda size: 1.0 + 1e-4 * size))
    assert found.law is not None
    assert found.tail is not None
    assert found.law.exponent < 0.5 < found.tail < 1


def test_missing_sizes_are_extrapolated_from_the_last_three() -> None:
    # Flat at first: the exponent of all sizes would say too little.
    found = curve(runs(lambda size: max(0.1, 1e-4 * size), measured=4))
    assert found.sizes == SIZES[:4]
    ((size, seconds),) = found.beyond
    assert size == 200_000
    assert seconds == pytest.approx(20.0)


def test_two_sizes_have_no_exponent() -> None:
    found = curve(runs(lambda size: 1.0 * size, measured=2))
    assert (found.law, found.tail, found.beyond) == (None, None, ())
    assert found.as_dict()["exponent"] is None


def test_a_measure_of_zero_has_no_logarithm() -> None:
    found = curve(runs(lambda size: 0.0 if size == 100 else size**0.5, measured=3))
    assert (found.law, found.tail) == (None, None)
    assert found.seconds[0] == 0.0


def test_modes_have_their_own_curves() -> None:
    both = runs(lambda size: size**0.5) + runs(lambda size: size**1.0, mode="zk-2018")
    first, second = curves_of(both, 10)
    assert (first.mode, second.mode) == ("kraft", "zk-2018")
    assert first.tail == pytest.approx(0.5)
    assert second.tail == pytest.approx(1.0)
