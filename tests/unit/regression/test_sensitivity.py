"""The bars of the analysis, at its default settings, on fewer histories than the study of
docs/regressions.md has (`benchmarks.sensitivity`, which measures here as well)."""

from __future__ import annotations

import numpy as np

from benchmarks import histories, sensitivity
from kraft.regression import history
from kraft.regression.settings import Settings

SETTINGS = Settings()
QUICK = Settings(bootstrap_samples=100)


def test_of_steps_of_5_percent_at_2_percent_noise_95_in_100_are_found_within_10_runs() -> None:
    found = sensitivity.recall("normal", 0.02, 0.05, 10, 400, seed=1, settings=SETTINGS)
    assert found.found_alone >= 95
    assert found.found >= 93, "as the only change among a thousand series"
    assert found.within_two >= 85
    assert found.other <= 1


def test_of_a_thousand_stable_series_of_100_runs_one_at_most_gives_a_false_alarm() -> None:
    found = sensitivity.alarms("normal", 0.02, 100, 1000, seed=1, settings=SETTINGS)
    assert found.together <= 1
    assert found.each_alone <= 1


def test_otavas_defaults_would_give_dozens() -> None:
    found = sensitivity.alarms("normal", 0.02, 100, 500, seed=1, settings=Settings.of_otava())
    assert found.each_alone >= 20


def test_temporary_regressions_are_visible() -> None:
    """+100 % for 7 of 48 runs was found in none of 100 histories, +25 % for 10 of 48 neither."""
    random = np.random.default_rng(1)
    for by, runs in ((1.0, 7), (0.25, 10)):
        found = 0
        for _ in range(100):
            at = int(random.integers(8, 40 - runs))
            values = histories.bumped(random, 48, histories.normal, 0.02, at, runs, by)
            points = history.find(histories.series(values), QUICK)
            indices = [point.index for point in points]
            found += all(any(abs(each - end) <= 1 for each in indices) for end in (at, at + runs))
        assert found >= 98, f"{by:+.0%} for {runs} of 48 runs"


def test_of_bumps_of_25_percent_for_10_runs_95_in_100_are_found() -> None:
    assert sensitivity.bumps(0.02, 0.25, 10, 200, seed=1) >= 95


def test_of_drifts_of_10_percent_over_50_runs_90_in_100_are_named_so() -> None:
    found = sensitivity.drifts(50, 0.10, "normal", 200, seed=1)
    assert found.named >= 90
    assert found.close >= 75
    assert found.as_steps <= 15


def test_of_a_noise_three_times_as_large_most_are_told_after_30_runs() -> None:
    assert sensitivity.variances(3.0, 30, "normal", 100, seed=1) >= 70


def test_a_missed_bar_is_told() -> None:
    results: dict[tuple[object, ...], object] = {
        ("power", 0.05, 0.02): sensitivity.Recall(98.0, 98.0, 98.0, 0.0),
        ("bumps", 0.25, 10): 94.9,
        ("drifts", 0.10, 50, "normal"): sensitivity.Drifts(90.0, 80.0, 10.0),
        ("alarms", "normal", "ours"): sensitivity.Alarms(0, 2, 1000),
    }
    assert [holds for _, _, holds in sensitivity.bars(results)] == [True, False, True, False]
