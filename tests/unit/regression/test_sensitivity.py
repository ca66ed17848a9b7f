"""The two bars of the analysis, at its default settings, on fewer histories than the study of
docs/regressions.md has (`benchmarks.sensitivity`, which measures here as well)."""

from __future__ import annotations

from benchmarks import sensitivity
from kraft.regression.settings import Settings

SETTINGS = Settings()


def test_of_steps_of_5_percent_at_2_percent_noise_95_in_100_are_found_within_10_runs() -> None:
    found = sensitivity.recall("normal", 0.02, 0.05, 10, 400, seed=1, settings=SETTINGS)
    assert found.found_alone >= 95
    assert found.found >= 93, "as the only change among a thousand series"
    assert found.within_two >= 85
    assert found.other <= 1


def test_of_a_thousand_stable_series_of_100_runs_one_at_most_gives_a_false_alarm() -> None:
    found = sensitivity.alarms("normal", 0.02, 100, 1000, seed=1, settings=SETTINGS)
    assert found.together <= 1
    assert found.each_alone <= 3


def test_otavas_defaults_would_give_dozens() -> None:
    found = sensitivity.alarms("normal", 0.02, 100, 500, seed=1, settings=Settings.of_otava())
    assert found.each_alone >= 20
