"""The data of the plots: thinned without hiding anything, always finite."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from kraft.regression import plots
from kraft.regression.findings import Ratio
from tests.unit.regression import examples


def test_a_long_history_keeps_its_extremes_and_both_sides_of_a_change() -> None:
    long = examples.series("Bench::long", [(4000, 0.001), (2000, 0.0012)], rounds=None)
    found = examples.finding(long)
    long.value[1234], long.value[4321] = 0.5, 1e-7
    plot = plots.history_plot(found, "median")
    assert plot["thinned"]
    assert len(plot["run"]) <= plots.MOST_RUNS + 4
    assert plot["run"] == sorted(set(plot["run"]))
    assert {1, 1235, 4000, 4001, 4322, 6000} <= set(plot["run"])
    assert plot["value"][plot["run"].index(1235)] == 500
    low, high = plot["range"]
    assert 0.3 < low < high < 2, "one odd run does not flatten all others"


def test_changes_before_since_are_drawn_without_their_levels() -> None:
    steps = examples.series("Bench::steps", [(30, 0.01), (30, 0.02), (30, 0.03)])
    found = examples.finding(steps)
    later = replace(found, change_points=found.change_points[1:])
    plot = plots.history_plot(later, "median")
    assert [level["runs"] for level in plot["levels"]] == [[31, 61], [61, 90]]
    assert plot["levels"][0]["mean"] == pytest.approx(20, rel=0.05)
    assert [each["label"] for each in plot["distribution"]["levels"]] == [
        "runs 31-60",
        "runs 61-90",
    ]
    assert len(plot["run"]) == 90, "all runs are drawn"


def test_every_run_of_a_short_history_is_drawn_with_its_rounds() -> None:
    short = examples.series("Bench::short", [(30, 0.01)])
    plot = plots.history_plot(examples.finding(short), "median")
    assert plot["run"] == list(range(1, 31))
    assert plot["value"] == pytest.approx(short.value * 1000, rel=1e-4)
    for low, value, high in zip(plot["low"], plot["value"], plot["high"], strict=True):
        assert low <= value <= high
    assert plot["commit"][3] == examples.commit(3)[:10]
    assert len(plot["levels"]) == 1


def test_a_distribution_peaks_where_its_rounds_are() -> None:
    steps = examples.series("Bench::steps", [(30, 0.010), (30, 0.020)], rounds=50)
    distribution = plots.history_plot(examples.finding(steps), "median")["distribution"]
    grid = distribution["first"] + distribution["step"] * np.arange(distribution["count"])
    for level, mean in zip(distribution["levels"], (10, 20), strict=True):
        peak = grid[int(np.argmax(level["density"]))]
        assert peak == pytest.approx(mean, rel=0.04)
        assert max(level["density"]) == 1
        assert level["median"] == pytest.approx(mean, rel=0.04)


@pytest.mark.parametrize("value", [0.0, 1.0, 123_456_789.0])
@pytest.mark.parametrize("runs", [1, 2, 20])
def test_a_history_without_any_variation_is_drawn(value: float, runs: int) -> None:
    same = examples.series("Bench::same", [(runs, 1.0)], rounds=None)
    same.value[:] = value
    plot = plots.history_plot(examples.finding(same), "instructions")
    json.dumps(plot, allow_nan=False)
    assert plot["range"][0] < plot["value"][0] < plot["range"][1]
    (level,) = plot["distribution"]["levels"]
    assert max(level["density"]) == 1


def test_rounds_that_are_not_finite_are_omitted() -> None:
    odd = examples.series("Bench::odd", [(10, 0.01)], rounds=5)
    assert odd.rounds is not None
    odd.rounds[3][:] = np.nan
    odd.rounds[4][2] = np.inf
    json.dumps(plots.history_plot(examples.finding(odd), "median"), allow_nan=False)


def test_a_fitted_line_goes_through_the_middle_of_its_points() -> None:
    law = examples.law("Bench::law", 1.3)
    plot = plots.scaling_plot(law, "median")
    slope = np.diff(np.log(plot["fit"])) / np.diff(np.log(plot["line"]))
    assert slope == pytest.approx(1.3, abs=1e-3)
    errors = np.log(plot["values"]) - np.interp(
        np.log(plot["sizes"]), np.log(plot["line"]), np.log(plot["fit"])
    )
    assert errors.mean() == pytest.approx(0, abs=1e-3)
    assert (np.array(plot["lower"]) <= np.array(plot["upper"])).all()
    assert plot["size_labels"] == ["10k", "100k", "1M", "10M"]
    assert plots.scaling_plot(replace(law, values=(0.0,) * 4), "median") == {}


def test_a_very_wide_interval_of_an_exponent_keeps_the_plot_finite() -> None:
    open_wide = replace(examples.law("Bench::law", 1.0), low=-900.0, high=900.0)
    plot = plots.scaling_plot(open_wide, "median")
    json.dumps(plot, allow_nan=False)
    low, high = plot["range"]
    assert low < np.log10(plot["values"]).min() < np.log10(plot["values"]).max() < high
    assert high - low < 4


def test_an_overview_has_every_change_with_finite_bounds() -> None:
    points = examples.analysis().change_points
    points[0] = replace(points[0], ratio=Ratio(1.5, float("nan"), float("inf")))
    points[1] = replace(points[1], ratio=Ratio(float("inf"), 1.0, float("inf")))
    plot = plots.overview_plot(points, (0, 10**15), lambda each: each.key.name, lambda each: None)
    json.dumps(plot, allow_nan=False)
    assert len(plot["ratio"]) == len(points) - 1, "a change with an infinite ratio is left out"
    assert (plot["low"][0], plot["high"][0]) == (1.5, 1.5)
