"""Units and directions: a metric where bigger is better, through analysis and reports."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from kraft.regression import html, json_report, markdown, report_text, series_analysis
from kraft.regression.findings import Analysis, ChangeKind
from kraft.regression.plots import overview_plot
from kraft.regression.points import SECONDS, BenchmarkMetric, SeriesKey
from kraft.regression.series import series_of
from tests.unit.regression import examples

RATE = BenchmarkMetric("ops/s", bigger_is_better=True)
MEMORY = BenchmarkMetric("B")


def analysis(metric: BenchmarkMetric, before: float, after: float) -> Analysis:
    """Return the analysis of one step of a benchmark with this metric."""
    history = examples.series("Load::serve", [(20, before), (20, after)])
    history = replace(history, metric=metric)
    finding = series_analysis.analyse(history, examples.SETTINGS)
    return Analysis(examples.SETTINGS, (replace(finding, series=history),))


def test_less_throughput_is_a_regression_and_more_an_improvement() -> None:
    (worse,) = analysis(RATE, 2e6, 1e6).change_points
    assert worse.ratio.value == pytest.approx(0.5, rel=0.05)
    assert worse.kind is ChangeKind.REGRESSION
    assert worse.worsening == pytest.approx(2, rel=0.05)
    (better,) = analysis(RATE, 1e6, 2e6).change_points
    assert better.kind is ChangeKind.IMPROVEMENT
    (slower,) = analysis(SECONDS, 1.0, 2.0).change_points
    assert slower.kind is ChangeKind.REGRESSION


def test_the_worst_regression_is_first_whatever_its_direction() -> None:
    several = [
        analysis(SECONDS, 1.0, 1.5),
        analysis(RATE, 4e6, 1e6),
        analysis(RATE, 1e6, 4e6),
        analysis(SECONDS, 1.0, 3.0),
    ]
    joined = Analysis(examples.SETTINGS, tuple(each.series[0] for each in several))
    assert [round(point.worsening, 1) for point in joined.change_points] == pytest.approx(
        [4.0, 3.0, 1.5, 0.2], abs=0.1
    )


def test_the_page_and_the_comment_have_units_and_direction() -> None:
    found = analysis(RATE, 2e6, 1e6)
    page = html.page(found)
    assert "bigger is better" in page
    assert "M ops/s" in page
    assert "slower</strong>" in page
    text = markdown.comment(found)
    assert "1 regression" in text.splitlines()[0]
    assert "M ops/s" in text
    (point,) = found.change_points
    plot = overview_plot([point], (0, 1), lambda each: "name", lambda each: None)
    assert plot["ratio"][0] > 1  # worse is above the line
    assert plot["low"][0] <= plot["ratio"][0] <= plot["high"][0]


def test_json_has_the_metric() -> None:
    document = json_report.as_json(analysis(RATE, 2e6, 1e6))
    for each in (*document["change_points"], *document["series"]):
        assert (each["unit"], each["bigger_is_better"]) == ("ops/s", True)


@pytest.mark.parametrize(
    ("value", "metric", "text"),
    [
        (1_230_000.0, RATE, "1.23 M ops/s"),
        (8056.0, MEMORY, "8.06 kB"),
        (12.5, BenchmarkMetric("percent"), "12.5 percent"),
        (0.0123, SECONDS, "12.3 ms"),
        (800.0, BenchmarkMetric(""), "800"),
        (3e9, BenchmarkMetric("B/s"), "3.00 GB/s"),
    ],
)
def test_values_have_their_unit(value: float, metric: BenchmarkMetric, text: str) -> None:
    assert report_text.value_text(value, "median", metric) == text


def test_words_fit_the_unit() -> None:
    words = [
        report_text.change_word(ChangeKind.REGRESSION, metric) for metric in (SECONDS, RATE, MEMORY)
    ]
    assert words == ["slower", "slower", "worse"]


def test_runs_in_another_unit_are_omitted_and_zero_is_a_value_of_a_count() -> None:
    rows = pa.table(
        {
            "run_id": ["a", "b", "c", "d"],
            "time": pa.array([1, 2, 3, 4], pa.timestamp("us", tz="UTC")),
            "commit": ["a", "b", "c", "d"],
            "value": [0.5, 0.0, 7.0, 8.0],
            "unit": pa.array([None, "B", "B", "B"], pa.string()),
            "bigger_is_better": pa.array([None] * 4, pa.bool_()),
        }
    )
    series, left_out = series_of(SeriesKey("s", "b", "{}", "m"), rows, "median")
    assert (list(series.value), left_out) == ([0.0, 7.0, 8.0], 1)
    assert series.metric == MEMORY
    counted, _ = series_of(SeriesKey("s", "b", "{}", "m"), rows, "instructions")
    assert (len(counted), counted.metric) == (4, BenchmarkMetric(""))


def test_old_rows_have_no_unit() -> None:
    rows = pa.table(
        {
            "run_id": ["a", "b"],
            "time": pa.array([1, 2], pa.timestamp("us", tz="UTC")),
            "commit": ["a", "b"],
            "value": [0.5, 0.0],
        }
    )
    series, left_out = series_of(SeriesKey("s", "b", "{}", "m"), rows, "median")
    assert (list(series.value), left_out, series.metric) == ([0.5], 1, SECONDS)
    assert np.isfinite(series.value).all()


def test_the_direction_follows_from_the_unit_unless_it_is_given() -> None:
    assert BenchmarkMetric.of(None, None) == SECONDS
    assert BenchmarkMetric.of("ops/s", None) == RATE
    assert BenchmarkMetric.of("MB/s", False) == BenchmarkMetric("MB/s")
    assert BenchmarkMetric.of("score", True).worsening(0.5) == 2
    assert BenchmarkMetric.of("score", True).worsening(0.0) == float("inf")
