"""Confidence intervals of ratios."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import histories, sensitivity
from kraft.regression import bootstrap
from kraft.regression.settings import AnalysisSettings

SETTINGS = AnalysisSettings()


def drawn(seed: int, count: int, level: float = 1.0) -> histories.Values:
    return histories.stable(np.random.default_rng(seed), count, histories.normal, 0.02) * level


def test_intervals_contain_the_true_value_at_their_confidence() -> None:
    for after in (2, 10, 40):
        held = sensitivity.coverage("normal", 0.02, 0.02, after, series=200, seed=1)
        assert 90 <= held <= 99.5, (after, held)


def test_equal_data_produce_equal_intervals_per_series() -> None:
    sides = drawn(1, 30), drawn(2, 30, 1.1)
    first = bootstrap.ratio(*sides, None, None, SETTINGS, "suite", "bench", 30)
    assert bootstrap.ratio(*sides, None, None, SETTINGS, "suite", "bench", 30) == first
    other = bootstrap.ratio(*sides, None, None, SETTINGS, "suite", "bench", 31)
    assert other.value == first.value
    assert other.low != first.low
    assert (
        bootstrap.ratio(*sides, None, None, AnalysisSettings(seed=1), "suite", "bench", 30) != first
    )


@given(st.integers(0, 1000), st.integers(2, 150), st.integers(2, 150))
@settings(max_examples=20, deadline=None)
def test_exchanged_sides_produce_the_inverse_ratio(seed: int, few: int, many: int) -> None:
    before, after = drawn(seed, few), drawn(seed + 1, many, 1.2)
    there = bootstrap.ratio(before, after, None, None, SETTINGS)
    back = bootstrap.ratio(after, before, None, None, SETTINGS)
    assert back.value == pytest.approx(1 / there.value)
    assert back.low == pytest.approx(1 / there.high, rel=0.01)
    assert back.high == pytest.approx(1 / there.low, rel=0.01)


@given(st.integers(0, 1000), st.sampled_from([1e-9, 1e-3, 1e6]))
@settings(max_examples=20, deadline=None)
def test_the_unit_of_time_does_not_matter(seed: int, unit: float) -> None:
    before, after = drawn(seed, 20), drawn(seed + 1, 20, 1.2)
    here = bootstrap.ratio(before, after, None, None, SETTINGS)
    there = bootstrap.ratio(before * unit, after * unit, None, None, SETTINGS)
    assert there.low == pytest.approx(here.low)
    assert there.high == pytest.approx(here.high)


def test_one_run_per_side_uses_the_variance_of_its_rounds() -> None:
    random = np.random.default_rng(5)
    calm, wild = (1 + size * random.standard_normal((2, 50)) for size in (0.01, 0.1))
    widths = []
    for rounds in (calm, wild):
        values = np.median(rounds, axis=1)
        ratio = bootstrap.ratio(values[:1], values[1:], [rounds[0]], [rounds[1]], SETTINGS)
        assert ratio.low < ratio.value < ratio.high
        widths.append(ratio.high - ratio.low)
    assert widths[1] > 5 * widths[0]


def test_a_single_new_run_uses_the_variance_of_earlier_runs() -> None:
    before = drawn(1, 50)
    ratio = bootstrap.ratio(before, np.array([1.1]), None, None, SETTINGS)
    assert ratio.high - ratio.low == pytest.approx(4 * 0.02 * 1.1, rel=0.3)


def test_rounds_are_ignored_for_instructions() -> None:
    counts = np.array([100.0] * 12), np.array([110.0] * 12)
    rounds = [np.linspace(1e-3, 2e-3, 10)] * 12
    ratio = bootstrap.ratio(*counts, rounds, rounds, AnalysisSettings(statistic="instructions"))
    assert (ratio.value, ratio.low, ratio.high) == (1.1, 1.1, 1.1)


def test_runs_with_and_without_rounds_can_be_mixed() -> None:
    random = np.random.default_rng(2)
    values = drawn(2, 24)
    rounds = [
        np.array([]) if at % 3 else value + random.normal(0, 0.01, 9 + at)
        for at, value in enumerate(values)
    ]
    ratio = bootstrap.ratio(values[:12], values[12:], rounds[:12], rounds[12:], SETTINGS)
    assert ratio.low < 1 < ratio.high


def test_many_runs_narrow_the_interval_by_the_root_of_their_number() -> None:
    widths = []
    for count in (90, 90 * 16):
        ratio = bootstrap.ratio(drawn(1, count), drawn(2, count), None, None, SETTINGS)
        widths.append(ratio.high - ratio.low)
    assert widths[0] / widths[1] == pytest.approx(4, rel=0.3)


def test_a_ratio_to_zero_is_unbounded() -> None:
    ratio = bootstrap.ratio(np.zeros(10), np.full(10, 5.0), None, None, SETTINGS)
    assert (ratio.value, ratio.low, ratio.high) == (np.inf, 0, np.inf)
