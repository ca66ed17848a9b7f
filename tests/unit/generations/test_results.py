"""The files of a comparison: numbers for analyses, and the page."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from kraft.generations.comparison import ComparisonReport, ComparisonRequest
from kraft.generations.curves import curves_of
from kraft.generations.measures import MEASURES, Outcome, RunResult, ScriptStep
from kraft.generations.modes import parse_modes
from kraft.generations.page import measure_plot
from kraft.generations.results import benchmark_document, write_results
from kraft.regression.results import read_run
from tests.harness.html_pages import Page

SIZES = (100, 1000, 10_000)


@pytest.fixture
def report() -> ComparisonReport:
    """Two modes: kraft at three sizes, and one whose last size timed out in its first step."""
    runs = []
    for mode in ("kraft", "zk-2018"):
        for size in (*SIZES, 50_000):
            run = RunResult(mode, size)
            if size <= SIZES[-1]:
                run.seconds = dict.fromkeys(MEASURES, size * 0.001)
                run.cpu_s = {ScriptStep.CREATE: 0.25}
            else:
                run.outcome, run.reason = Outcome.TIMED_OUT, "create: <the time limit> is over"
            runs.append(run)
    request = ComparisonRequest(parse_modes("kraft,zk-2018"), (*SIZES, 50_000))
    curves = tuple(curves_of(runs, request.brokers))
    return ComparisonReport("abc", request, tuple(runs), curves, {"cpu": {"count": 2}})


def test_measured_values_are_benchmark_results(report: ComparisonReport) -> None:
    document = benchmark_document(report)
    results = read_run(json.dumps(document).encode(), "benchmark.json")
    assert results.problems == ()
    # An extrapolated value is no result.
    assert len(results.benchmark) == 2 * len(SIZES) * len(MEASURES)
    entry = document["benchmarks"][0]
    assert entry["fullname"] == "compare/create::create_known[kraft-100-10]"
    assert entry["stats"]["data"] == [0.1]
    assert entry["extra_info"]["controller_cpu_s"] == 0.25
    assert json.loads(results.params[0]) == {"mode": "kraft", "partitions": 100, "brokers": 10}


def test_the_files(report: ComparisonReport, tmp_path: Path) -> None:
    write_results(report, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        *("results.json", "benchmark.json", "compare.html")
    }
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["runs"][3]["outcome"] == "timed out"
    curve = results["curves"][0]
    assert curve["exponent"] == pytest.approx(1.0)
    assert curve["extrapolated"] == [{"partitions": 50_000, "seconds": pytest.approx(50.0)}]
    page = (tmp_path / "compare.html").read_text()
    assert list(Page(page).plots) == [f"{step.value}-{name}" for step, name in MEASURES]
    assert "<the time limit>" not in page
    assert "create: &lt;the time limit&gt; is over" in page
    assert page.count('</span> kraft <span class="quiet">1.00</span></li>') == len(MEASURES)


def test_extrapolated_values_are_dashed_and_hollow(report: ComparisonReport) -> None:
    plot = measure_plot([report.curves[0]])
    measured, beyond = plot["traces"]
    assert measured["x"] == list(SIZES)
    assert "dash" not in measured["line"]
    assert beyond["x"] == [10_000, 50_000]
    assert beyond["line"]["dash"] == "dash"
    assert beyond["marker"]["symbol"].endswith("-open")
    low, high = plot["layout"]["yaxis"]["range"]
    assert low < math.log10(0.1) < math.log10(50.0) < high
    flat = replace(report.curves[0], seconds=(2.0, 2.1, 2.0), beyond=())
    low, high = measure_plot([flat])["layout"]["yaxis"]["range"]
    assert high - low >= 1.0
    assert plot["layout"]["xaxis"]["type"] == plot["layout"]["yaxis"]["type"] == "log"
