"""Change points: Otava's own result, and those that remain after stricter tests."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from otava.analysis import compute_change_points

from benchmarks import histories
from kraft.errors import InvalidRequestError
from kraft.regression import change_points
from kraft.regression.change_points import ChangeCandidate
from kraft.regression.settings import AnalysisSettings

LAX = AnalysisSettings.of_otava()
STRICT = AnalysisSettings()


def indices(found: list[ChangeCandidate]) -> list[int]:
    return [each.index for each in found]


def trusted(values: histories.Values, asked: AnalysisSettings = STRICT) -> list[int]:
    return indices(change_points.drop_doubtful(values, change_points.find(values, asked), asked))


def equal_to_otavas(values: histories.Values, asked: AnalysisSettings) -> list[ChangeCandidate]:
    """Return the change points; fail if Otava's differ in any bit."""
    theirs, _ = compute_change_points(
        values.tolist(), asked.window, asked.max_p_value, asked.min_magnitude
    )
    found = change_points.find(values, asked)
    # As texts, because the p value of two equal, constant levels is NaN.
    assert [repr(each) for each in found] == [
        repr(
            ChangeCandidate(
                int(each.index),
                float(each.stats.pvalue),
                float(each.stats.mean_1),
                float(each.stats.mean_2),
                float(each.stats.std_1),
                float(each.stats.std_2),
            )
        )
        for each in theirs
    ]
    return found


@pytest.mark.parametrize("window", [10, 30, 50])
@pytest.mark.parametrize("noise", ["normal", "outliers (5 % of the runs, +8 x noise)", "two modes"])
def test_change_points_equal_otavas_to_the_last_bit(noise: str, window: int) -> None:
    random = np.random.default_rng(window)
    asked = AnalysisSettings.of_otava(window=window, min_magnitude=0.01)
    found_any = 0
    for count in (11, 49, 50, 51, 120, 333):
        values = histories.stepped(random, count, histories.NOISES[noise], 0.02, count // 2, 0.1)
        found_any += len(equal_to_otavas(values, asked))
    assert found_any >= 5


@st.composite
def odd_histories(draw: st.DrawFn) -> histories.Values:
    """Return histories with ties, constant parts, outliers, several steps and any magnitude."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    values = random.normal(
        1, draw(st.sampled_from([0.0, 0.001, 0.02, 0.2])), draw(st.integers(2, 200))
    )
    for factor in draw(st.lists(st.sampled_from([0.5, 0.95, 1.02, 1.1, 2]), max_size=5)):
        values[random.integers(0, len(values)) :] *= factor
    kind = draw(st.sampled_from(["plain", "rounded", "repeated", "outliers", "around zero"]))
    if kind == "rounded":
        values = np.round(values * 20)
    if kind == "repeated":
        values = np.repeat(values[::7], 7)[: len(values)]
    if kind == "outliers":
        values = np.where(random.random(len(values)) < 0.05, values * 5, values)
    if kind == "around zero":
        values = values - values.mean()
    return values * 10.0 ** draw(st.integers(-12, 12))


@given(
    odd_histories(),
    st.sampled_from([2, 3, 10, 50]),
    st.sampled_from([1e-4, 1e-3, 0.04, 0.1, 0.6, 1.0]),
    st.sampled_from([0.0, 0.01, 0.1]),
)
@settings(max_examples=60, deadline=None)
def test_change_points_of_odd_histories_equal_otavas(
    values: histories.Values, window: int, max_p_value: float, min_magnitude: float
) -> None:
    equal_to_otavas(values, AnalysisSettings.of_otava(window, max_p_value, min_magnitude))


def test_a_step_of_a_constant_counter_is_certain_without_warnings() -> None:
    values = np.array([1_000_000.0] * 30 + [1_000_001.0] * 30)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (found,) = change_points.find(values, STRICT)
        assert trusted(values) == [30]
    assert (found.index, found.p_value) == (30, 0.0)
    assert (found.mean_before, found.mean_after) == (1_000_000, 1_000_001)
    assert (found.stddev_before, found.stddev_after) == (0, 0)


@given(st.floats(1e-9, 1e12), st.integers(2, 130))
@settings(max_examples=50, deadline=None)
def test_a_constant_is_stable_whatever_its_last_bit(value: float, count: int) -> None:
    assert change_points.find(np.full(count, value), LAX) == []


def test_a_counters_step_is_reported_at_its_first_run() -> None:
    assert trusted(np.array([500.0] * 40 + [510.0])) == [40]


def test_one_outlier_as_last_run_is_not_a_level_but_two_are() -> None:
    random = np.random.default_rng(3)
    values = histories.stepped(random, 62, histories.normal, 0.01, 60, 0.3)
    assert indices(change_points.find(values[:61], STRICT)) == [60]
    assert trusted(values[:61]) == []
    assert trusted(values) == [60]


def test_an_outlier_beside_a_step_does_not_take_the_step_with_it() -> None:
    # At a boundary between windows, Otava may report a level of a single run.
    random = np.random.default_rng(1)
    values = histories.stepped(random, 100, histories.normal, 0.005, 50, 0.05)
    values[49] *= 1.1
    found = indices(change_points.find(values, STRICT))
    assert found == [49, 50]
    (left,) = trusted(values)
    assert left in (49, 50)


def test_autocorrelated_runs_are_not_levels() -> None:
    random = np.random.default_rng(8)
    drifting = histories.NOISES["autocorrelated, 0.8 (slow drift)"]
    every = [histories.stable(random, 100, drifting, 0.02) for _ in range(50)]
    without = AnalysisSettings(autocorrelation=False)
    assert sum(bool(trusted(values, without)) for values in every) >= 30
    assert sum(bool(trusted(values)) for values in every) <= 5


def test_autocorrelation_is_measured_within_levels() -> None:
    random = np.random.default_rng(0)
    white = histories.stepped(random, 1000, histories.normal, 0.02, 500, 0.5)
    assert change_points.lag_one_autocorrelation(white, []) > 0.9
    assert change_points.lag_one_autocorrelation(white, [500]) < 0.1
    alike = histories.stable(random, 1000, histories.lagging(0.5), 0.02)
    assert change_points.lag_one_autocorrelation(alike, []) == pytest.approx(0.5, abs=0.1)
    assert change_points.lag_one_autocorrelation(np.ones(20), []) == 0


def test_a_step_that_was_missed_does_not_hide_all_others() -> None:
    random = np.random.default_rng(1)
    levels = np.repeat(1 + 0.1 * random.standard_normal(100), 20)
    values = levels * histories.stable(random, 2000, histories.normal, 0.005)
    found = change_points.find(values, STRICT)
    assert 80 <= len(found) < 99
    left = change_points.drop_doubtful(values, found, STRICT)
    assert len(left) >= len(found) - 2


def test_a_dozen_runs_are_enough_for_a_large_step_even_if_they_resemble_each_other() -> None:
    random = np.random.default_rng(2)
    alike = histories.lagging(0.5)
    for _ in range(50):
        assert trusted(histories.stepped(random, 12, alike, 0.02, 6, 0.5)) == [6]


def test_dropping_a_change_point_joins_its_levels() -> None:
    random = np.random.default_rng(1)
    values = histories.stepped(random, 100, histories.normal, 0.005, 50, 0.05)
    values[49] *= 1.1
    (left,) = change_points.drop_doubtful(values, change_points.find(values, STRICT), STRICT)
    at = left.index
    assert left.mean_before == pytest.approx(values[:at].mean())
    assert left.mean_after == pytest.approx(values[at:].mean())
    assert left.stddev_after == pytest.approx(values[at:].std())


@given(st.integers(0, 10_000), st.sampled_from([2.0**-30, 2.0**-3, 4.0, 2.0**20]))
@settings(max_examples=25, deadline=None)
def test_the_unit_of_time_changes_no_index(seed: int, unit: float) -> None:
    random = np.random.default_rng(seed)
    values = histories.stepped(random, 90, histories.normal, 0.02, 45, 0.08)
    assert trusted(values * unit) == trusted(values)
    assert indices(change_points.find(values * unit, LAX)) == indices(
        change_points.find(values, LAX)
    )


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_nan_and_infinity_are_rejected_by_position(broken: float) -> None:
    with pytest.raises(InvalidRequestError, match="value 2 "):
        change_points.find(np.array([1.0, 2.0, broken, 3.0]), STRICT)


@pytest.mark.parametrize("count", [0, 1])
def test_nothing_changes_in_less_than_two_runs(count: int) -> None:
    assert change_points.find(np.ones(count), LAX) == []


def test_clipped_outliers_hide_no_step() -> None:
    clip = AnalysisSettings(clip_outliers=4.0)
    noise = histories.NOISES["outliers (5 % of the runs, +8 x noise)"]
    random = np.random.default_rng(4)
    found = {0.0: 0, 4.0: 0}
    for _ in range(40):
        values = histories.stepped(random, 110, noise, 0.02, 100, 0.05)
        for asked in (STRICT, clip):
            left = trusted(change_points.clip_outliers(values, asked), asked)
            found[asked.clip_outliers] += any(abs(at - 100) <= 5 for at in left)
    assert found[0.0] <= 15
    assert found[4.0] >= 28


def test_clipping_keeps_values_that_are_no_outliers() -> None:
    clip = AnalysisSettings(clip_outliers=6.0)
    step = histories.stepped(np.random.default_rng(4), 60, histories.normal, 0.02, 40, 1.0)
    middle = change_points.clip_outliers(step, clip)
    assert np.array_equal(np.delete(middle, range(36, 46)), np.delete(step, range(36, 46)))
    counters = np.array([10.0] * 30 + [11.0] * 30)
    assert np.array_equal(change_points.clip_outliers(counters, clip), counters)
    assert change_points.clip_outliers(step, STRICT) is step
