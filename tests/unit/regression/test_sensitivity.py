"""Required sensitivity at the default settings, on fewer histories than `benchmarks.sensitivity`.

docs/regressions.md has the full tables.
"""

from __future__ import annotations

import numpy as np

from benchmarks import histories, sensitivity, sensitivity_page
from benchmarks.bisection_sensitivity import Bisected
from kraft.regression import series_analysis
from kraft.regression.settings import AnalysisSettings

SETTINGS = AnalysisSettings()
QUICK = AnalysisSettings(bootstrap_samples=100)


def test_of_steps_of_5_percent_at_2_percent_noise_95_in_100_are_found_within_10_runs() -> None:
    found = sensitivity.recall("normal", 0.02, 0.05, 10, 400, seed=1, settings=SETTINGS)
    assert found.found_alone >= 95
    assert found.found >= 93, "as the only change among a thousand series"
    assert found.within_two >= 85
    assert found.other <= 1


def test_at_most_one_of_1000_stable_series_of_100_runs_is_a_false_alarm() -> None:
    found = sensitivity.alarms("normal", 0.02, 100, 1000, seed=1, settings=SETTINGS)
    assert found.together <= 1
    assert found.each_alone <= 1


def test_otavas_defaults_produce_dozens_of_false_alarms() -> None:
    found = sensitivity.alarms(
        "normal", 0.02, 100, 500, seed=1, settings=AnalysisSettings.of_otava()
    )
    assert found.each_alone >= 20


def test_temporary_regressions_are_visible() -> None:
    """Without `segments`, +100 % for 7 of 48 runs and +25 % for 10 of 48 were found in 0 of 100
    histories.
    """
    random = np.random.default_rng(1)
    for by, runs in ((1.0, 7), (0.25, 10)):
        found = 0
        for _ in range(100):
            at = int(random.integers(8, 40 - runs))
            values = histories.bumped(random, 48, histories.normal, 0.02, at, runs, by)
            points = series_analysis.find_change_points(histories.series(values), QUICK)
            indices = [point.index for point in points]
            found += all(any(abs(each - end) <= 1 for each in indices) for end in (at, at + runs))
        assert found >= 98, f"{by:+.0%} for {runs} of 48 runs"


def test_of_bumps_of_25_percent_for_10_runs_95_in_100_are_found() -> None:
    assert sensitivity.bumps(0.02, 0.25, 10, 200, seed=1) >= 95


def test_of_drifts_of_10_percent_over_50_runs_90_in_100_are_reported_as_drifts() -> None:
    found = sensitivity.drifts(50, 0.10, "normal", 200, seed=1)
    assert found.named >= 90
    assert found.close >= 75
    assert found.as_steps <= 15


def test_most_increases_of_noise_by_a_factor_of_3_are_found_after_30_runs() -> None:
    assert sensitivity.variances(3.0, 30, "normal", 100, seed=1) >= 70


def test_a_missed_requirement_is_reported() -> None:
    results: dict[tuple[object, ...], object] = {
        ("power", 0.05, 0.02): sensitivity.Recall(98.0, 98.0, 98.0, 0.0),
        ("bumps", 0.25, 10): 94.9,
        ("drifts", 0.10, 50, "normal"): sensitivity.Drifts(90.0, 80.0, 10.0),
        ("alarms", "normal", "ours"): sensitivity.Alarms(0, 2, 1000),
        ("bisected", 64, 0.05): Bisected(wrong=5.1, unnamed=0.0, runs=17.0, most=30.0),
    }
    holds = [holds for _, _, holds in sensitivity_page.bars(results)]
    assert holds == [True, False, True, False, False]
