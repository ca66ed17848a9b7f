"""Slow drifts and changes of variance, distinguished from steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import histories
from kraft.regression import series_analysis
from kraft.regression.findings import ChangeKind, SeriesFinding, SeriesOutcome
from kraft.regression.settings import AnalysisSettings

SETTINGS = AnalysisSettings(bootstrap_samples=100)


def analysed(values: histories.Values, settings: AnalysisSettings = SETTINGS) -> SeriesFinding:
    return series_analysis.analyse(histories.series(values), settings)


def drifting(at: int, runs: int, count: int, by: float, seed: int = 1) -> histories.Values:
    random = np.random.default_rng(seed)
    return histories.drifting(random, count, histories.normal, 0.01, at, runs, by)


def test_a_slow_rise_is_one_drift_and_no_step() -> None:
    finding = analysed(drifting(40, 50, 120, 0.1))
    (drift,) = finding.drifts
    assert (finding.outcome, finding.change_points) == (SeriesOutcome.CHANGED, ())
    assert drift.kind is ChangeKind.REGRESSION
    assert abs(drift.start_index - 40) <= 8
    assert abs(drift.end_index - 89) <= 8
    assert drift.mean_before == pytest.approx(1, abs=0.01)
    assert drift.ratio.low < 1.1 < drift.ratio.high
    assert drift.slope == pytest.approx(0.1 / 49, rel=0.3)
    assert not drift.is_ongoing
    assert (drift.run_start, drift.run_end) == (
        f"run{drift.start_index}",
        f"run{drift.end_index}",
    )
    assert finding.noise == pytest.approx(0.01, rel=0.3)


def test_a_drift_up_to_the_newest_run_is_ongoing() -> None:
    (drift,) = analysed(drifting(50, 50, 100, -0.1)).drifts
    assert drift.kind is ChangeKind.IMPROVEMENT
    assert drift.is_ongoing


def test_a_drift_over_thousands_of_runs_is_found_completely() -> None:
    (drift,) = analysed(drifting(500, 2000, 3000, 0.2)).drifts
    assert abs(drift.start_index - 500) <= 100
    assert abs(drift.end_index - 2499) <= 100


def test_a_step_beside_a_drift_stays_a_step() -> None:
    values = drifting(20, 50, 160, 0.1)
    values[120:] *= 1.3
    finding = analysed(values)
    assert [point.index for point in finding.change_points] == [120]
    assert len(finding.drifts) == 1


def test_counters_step_and_drift_without_any_noise() -> None:
    steps = np.repeat([100.0, 110.0, 120.0], 20)
    finding = analysed(steps, replace(SETTINGS, statistic="instructions"))
    assert [point.index for point in finding.change_points] == [20, 40]
    assert finding.drifts == ()
    ramp = np.concatenate([np.full(20, 1000.0), np.arange(1000.0, 1040.0), np.full(20, 1040.0)])
    finding = analysed(ramp, replace(SETTINGS, statistic="instructions"))
    assert (len(finding.drifts), finding.change_points) == (1, ())


def test_drifts_below_the_minimum_magnitude_are_omitted() -> None:
    values = drifting(40, 50, 120, 0.1)
    finding = analysed(values, replace(SETTINGS, min_magnitude=0.2))
    assert (finding.drifts, finding.change_points) == ((), ())


def test_runs_that_scatter_more_are_a_change_of_variance_alone() -> None:
    random = np.random.default_rng(5)
    values = histories.scattering(random, 160, histories.normal, 0.02, 100, 4.0)
    finding = analysed(values)
    (change,) = finding.variance_changes
    assert (finding.outcome, finding.change_points, finding.drifts) == (
        SeriesOutcome.CHANGED,
        (),
        (),
    )
    assert abs(change.index - 100) <= 6
    assert change.is_noisier
    assert change.noise_before == pytest.approx(0.02, rel=0.3)
    assert change.noise_after == pytest.approx(0.08, rel=0.3)


def test_a_level_ten_times_as_high_does_not_scatter_more() -> None:
    values = histories.stable(np.random.default_rng(6), 160, histories.normal, 0.02)
    values[80:] *= 10
    finding = analysed(values)
    assert [point.index for point in finding.change_points] == [80]
    assert finding.variance_changes == ()


def test_both_searches_can_be_disabled() -> None:
    off = replace(SETTINGS, find_drifts=False, find_variance_changes=False)
    assert analysed(drifting(40, 50, 120, 0.1), off).drifts == ()
    values = histories.scattering(np.random.default_rng(5), 160, histories.normal, 0.02, 100, 4.0)
    assert analysed(values, off).outcome is SeriesOutcome.STABLE
    ofotava = analysed(values, AnalysisSettings.of_otava())
    assert (ofotava.drifts, ofotava.variance_changes) == ((), ())


@pytest.mark.parametrize("level", [0.0, 1e-12, 1e12])
def test_levels_of_any_height_are_no_drift(level: float) -> None:
    finding = analysed(np.full(40, level))
    assert (finding.outcome, finding.drifts) == (SeriesOutcome.STABLE, ())
