"""The analysis of one series."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import histories
from kraft.errors import InvalidConfigError, InvalidRequestError
from kraft.regression import series_analysis
from kraft.regression.findings import ChangeKind, SeriesOutcome
from kraft.regression.settings import AnalysisSettings

SETTINGS = AnalysisSettings()


def made(step: float, count: int = 60, at: int = 40, seed: int = 1) -> histories.Values:
    return histories.stepped(np.random.default_rng(seed), count, histories.normal, 0.02, at, step)


def test_a_slowdown_has_its_commits_levels_and_ratio() -> None:
    random = np.random.default_rng(7)
    series = histories.with_rounds(random, made(0.2), 0.01, 10)
    finding = series_analysis.analyse(series, SETTINGS)
    (point,) = finding.change_points
    assert finding.outcome is SeriesOutcome.CHANGED
    assert (point.kind, point.index, point.statistic) == (ChangeKind.REGRESSION, 40, "median")
    assert (point.run_before, point.run_after) == ("run39", "run40")
    assert (point.commit_before, point.commit_after) == (f"{39:040x}", f"{40:040x}")
    assert not point.same_commit
    assert point.time_us == series.time_us[40]
    assert (point.count_before, point.count_after) == (40, 20)
    assert point.mean_before == pytest.approx(series.value[:40].mean())
    assert point.mean_after == pytest.approx(series.value[40:].mean())
    assert point.ratio.value == pytest.approx(point.mean_after / point.mean_before)
    assert point.ratio.low < 1.2 < point.ratio.high
    assert point.ratio.high - point.ratio.low < 0.04
    assert point.p_value == point.q_value < 1e-20
    assert finding.noise == pytest.approx(0.02, rel=0.3)
    assert finding.last_value == series.value[-1]
    assert (finding.first_time_us, finding.last_time_us) == tuple(series.time_us[[0, -1]])


def test_a_speed_up_is_an_improvement() -> None:
    (point,) = series_analysis.analyse(histories.series(made(-0.2)), SETTINGS).change_points
    assert point.kind is ChangeKind.IMPROVEMENT
    assert point.ratio.high < 1


def test_several_changes_each_have_the_levels_beside_them() -> None:
    values = made(0.3, 100, 30)
    values[70:] *= 0.5
    first, second = series_analysis.analyse(histories.series(values), SETTINGS).change_points
    assert (first.index, second.index) == (30, 70)
    assert (first.count_before, first.count_after) == (30, 40)
    assert (second.count_before, second.count_after) == (40, 30)
    assert first.mean_after == second.mean_before


def test_too_few_runs_are_reported_as_too_little_data() -> None:
    finding = series_analysis.analyse(histories.series(made(1.0, 7, 4)), SETTINGS)
    assert (finding.outcome, finding.run_count) == (SeriesOutcome.TOO_LITTLE_DATA, 7)
    assert finding.change_points == ()
    empty = series_analysis.analyse(histories.series(np.zeros(0)), SETTINGS)
    assert empty.outcome is SeriesOutcome.TOO_LITTLE_DATA
    assert np.isnan(empty.last_value)
    assert np.isnan(empty.noise)


def test_a_stable_history_is_stable() -> None:
    finding = series_analysis.analyse(histories.series(made(0.0, 200)), SETTINGS)
    assert (finding.outcome, finding.change_points) == (SeriesOutcome.STABLE, ())


def test_counts_of_instructions_need_no_noise() -> None:
    counts = np.array([1_234_567.0] * 20 + [1_240_000.0] * 5)
    settings = AnalysisSettings(statistic="instructions")
    finding = series_analysis.analyse(histories.series(counts), settings)
    (point,) = finding.change_points
    ratio = 1_240_000 / 1_234_567
    assert (point.index, point.p_value, finding.noise) == (20, 0.0, 0.0)
    assert point.ratio.low == point.ratio.value == point.ratio.high == pytest.approx(ratio)


def test_the_unit_of_time_changes_nothing_but_the_means() -> None:
    values = made(0.1)
    here = series_analysis.analyse(histories.series(values), SETTINGS)
    there = series_analysis.analyse(histories.series(values * 2.0**-20), SETTINGS)
    (point,), (scaled,) = here.change_points, there.change_points
    assert scaled.ratio.low == pytest.approx(point.ratio.low)
    assert (
        replace(
            scaled,
            mean_before=point.mean_before,
            mean_after=point.mean_after,
            stddev_before=point.stddev_before,
            stddev_after=point.stddev_after,
            ratio=point.ratio,
            p_value=point.p_value,
            q_value=point.q_value,
        )
        == point
    )
    assert there.noise == pytest.approx(here.noise)


def test_noise_is_measured_within_levels() -> None:
    values = np.concatenate([made(0.0, 400), 100 * made(0.0, 400, seed=2)])
    assert series_analysis.noise(values, [400]) == pytest.approx(0.02, rel=0.1)
    assert series_analysis.noise(values, []) > 0.9
    assert np.isnan(series_analysis.noise(np.zeros(10), []))


def test_a_clipped_outlier_loses_its_rounds() -> None:
    values = made(0.1)
    values[20] *= 5
    series = histories.with_rounds(np.random.default_rng(1), values, 0.01, 10)
    assert series.rounds is not None
    settings = AnalysisSettings(clip_outliers=4.0)
    (point,) = series_analysis.analyse(series, settings).change_points
    assert point.index == 40
    assert point.mean_before == pytest.approx(1, abs=0.02)
    assert point.ratio.low < 1.1 < point.ratio.high
    assert len(series.rounds[20]) == 10


def test_an_infinite_time_is_rejected() -> None:
    values = made(0.0)
    values[3] = np.inf
    with pytest.raises(InvalidRequestError, match="value 3"):
        series_analysis.analyse(histories.series(values), SETTINGS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("statistic", "fastest"),
        ("window", 1),
        ("max_p_value", 0.0),
        ("min_magnitude", -0.1),
        ("min_runs", 1),
        ("min_level_runs", 0),
        ("clip_outliers", -1.0),
        ("false_discovery_rate", 1.5),
        ("confidence", 1.0),
        ("bootstrap_samples", 10),
    ],
)
def test_a_setting_out_of_range_is_rejected_by_name(name: str, value: object) -> None:
    with pytest.raises(InvalidConfigError, match=f"^{name} is "):
        replace(SETTINGS, **{name: value})  # type: ignore[arg-type]


def test_otavas_settings_disable_all_corrections() -> None:
    settings = AnalysisSettings.of_otava(window=30, max_p_value=0.01, min_magnitude=0.1)
    assert (settings.window, settings.max_p_value, settings.min_magnitude) == (30, 0.01, 0.1)
    assert (settings.min_level_runs, settings.autocorrelation, settings.clip_outliers) == (
        1,
        False,
        0,
    )
    assert settings.false_discovery_rate == 1
