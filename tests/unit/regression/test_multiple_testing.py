"""Correction of p values for many tests."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import histories
from kraft.regression import multiple_testing, scaling, series_analysis
from kraft.regression.findings import SeriesFinding, SeriesOutcome
from kraft.regression.settings import AnalysisSettings

SETTINGS = AnalysisSettings(bootstrap_samples=100)


def finding(seed: int, step: float, runs: int = 60, name: str = "bench") -> SeriesFinding:
    random = np.random.default_rng(seed)
    values = histories.stepped(random, runs, histories.normal, 0.02, runs // 2, step)
    return series_analysis.analyse(histories.series(values, name), SETTINGS)


def test_q_values_are_those_of_the_procedure_by_hand() -> None:
    # 10 tests with four known p values: 0.001 * 10 / 1, 0.004 * 10 / 2, and 0.03 * 10 / 3, which is
    # more than 0.032 * 10 / 4 and so is replaced by it.
    found = multiple_testing.q_values(np.array([0.03, 0.001, 0.032, 0.004]), 10)
    assert found == pytest.approx([0.08, 0.01, 0.08, 0.02])
    assert multiple_testing.q_values(np.array([0.5]), 10) == [1.0]
    assert len(multiple_testing.q_values(np.array([]), 0)) == 0


def test_a_history_is_as_many_tests_as_it_has_splits() -> None:
    (corrected,) = multiple_testing.correct([finding(1, 0.2)], SETTINGS)
    (point,) = corrected.change_points
    assert point.q_value == pytest.approx(point.p_value * 59)


def test_a_weak_change_point_is_dropped_among_thousands_of_series() -> None:
    weak = finding(4, 0.026)
    (point,) = weak.change_points
    assert 1e-7 < point.p_value < 1e-5
    assert multiple_testing.correct([weak], SETTINGS)[0].outcome is SeriesOutcome.CHANGED
    stable = replace(finding(5, 0.0), run_count=1001)
    first, *others = multiple_testing.correct([weak, *[stable] * 500], SETTINGS)
    assert (first.outcome, first.change_points) == (SeriesOutcome.STABLE, ())
    assert {each.outcome for each in others} == {SeriesOutcome.STABLE}


def test_a_weak_change_point_stays_among_strong_ones() -> None:
    weak, strong = finding(4, 0.026), finding(6, 0.5)
    stable = replace(finding(5, 0.0), run_count=1001)
    kept, *_ = multiple_testing.correct([weak, *[strong] * 400, *[stable] * 500], SETTINGS)
    assert kept.outcome is SeriesOutcome.CHANGED


def test_series_with_too_little_data_are_no_tests() -> None:
    short = finding(1, 0.0, runs=5)
    assert short.outcome is SeriesOutcome.TOO_LITTLE_DATA
    alone, again = (
        multiple_testing.correct(findings, SETTINGS)
        for findings in ([finding(1, 0.2)], [finding(1, 0.2), *[short] * 100])
    )
    assert again[0] == alone[0]
    assert {each.outcome for each in again[1:]} == {SeriesOutcome.TOO_LITTLE_DATA}


def test_correcting_twice_corrects_once() -> None:
    once = multiple_testing.correct([finding(at, 0.03 * (at % 3)) for at in range(12)], SETTINGS)
    assert multiple_testing.correct(once, SETTINGS) == once


def test_correcting_no_findings_returns_none() -> None:
    assert multiple_testing.correct([], SETTINGS) == ()
    assert multiple_testing.correct_laws([], SETTINGS) == []


def test_exponents_are_a_family_of_their_own() -> None:
    random = np.random.default_rng(2)
    measured = [
        histories.series(
            histories.stepped(random, 40, histories.normal, 0.01, 20, step) * size,
            params=f'{{"size": {size}}}',
        )
        for size, step in ((10, 0.0), (100, 0.1), (1000, 0.2))
    ]
    (law,) = multiple_testing.correct_laws(scaling.laws(measured, SETTINGS), SETTINGS)
    (point,) = law.change_points
    assert point.q_value == pytest.approx(point.p_value * 39)
