"""The page of one run or two: complete, without network access, every foreign text escaped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kraft.errors import InvalidRequestError
from kraft.fleet import plots
from kraft.fleet.report_page import page
from kraft.fleet.traces import RecordedRun, read_run
from tests.harness.fleet_runs import STEPS, Planted, interrupted, write_run
from tests.harness.fleet_traces import line
from tests.harness.html_pages import Page

HOSTILE = "<script>alert(1)</script>%{x}"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[RecordedRun]:
    folder = tmp_path_factory.mktemp("runs")
    law = Planted(factor=4)
    return [
        read_run(write_run(folder / "a")),
        read_run(write_run(folder / "b", quorum="kafka-4.3.1", planted=law)),
    ]


def times(figure: dict[str, Any]) -> list[float]:
    return [value for trace in figure["traces"] for value in trace["x"] if value is not None]


def test_one_run_has_timeline_times_and_measures(pair: list[RecordedRun]) -> None:
    parsed = Page(page(pair[:1]))
    assert [each.text for each in parsed.all("h2")] == [
        "Timeline", "Times by step", "Measures", "Runs", "What is measured",
    ]  # fmt: skip
    assert len(parsed.all("div", **{"data-kind": "figure"})) == 2
    measures = parsed.elements[[e.tag for e in parsed.elements].index("table")]
    assert measures is not None
    assert "second / first" not in "".join(each.text for each in parsed.all("th"))
    timeline: Any = parsed.data("timeline-0")
    bars = [trace for trace in timeline["traces"] if trace.get("type") == "bar"]
    assert [bar["hovertemplate"].split("<br>")[0] for bar in bars] == [
        f"{number} {step}" for number, step in enumerate(STEPS, 1)
    ]
    assert {trace["name"] for trace in timeline["traces"] if "name" in trace} >= {
        "fault", "controller elected", "unfenced", "fenced", "controllers", "fleet", "p99", "lag",
    }  # fmt: skip


def test_two_runs_share_the_ranges_of_their_axes(pair: list[RecordedRun]) -> None:
    parsed = Page(page(pair))
    first: Any = parsed.data("timeline-0")["layout"]
    second: Any = parsed.data("timeline-1")["layout"]
    axes = [name for name in first if "axis" in name]
    assert len(axes) == 2 + plots.panel_count(pair)
    assert [first[name]["range"] for name in axes] == [second[name]["range"] for name in axes]
    rows = [
        each
        for each in parsed.all("tr")
        if each.attributes.get("data-name", "").startswith("rack lost decided")
    ]
    assert "x4" in rows[0].text
    assert "The runs differ" not in "".join(each.text for each in parsed.all("li"))


def test_runs_of_one_quorum_are_told_apart_by_their_ids(tmp_path: Path) -> None:
    runs = [read_run(write_run(tmp_path / str(seed), seed=seed)) for seed in (1, 2)]
    parsed = Page(page(runs))
    names = ["kraft kraft-30-10000-1", "kraft kraft-30-10000-2"]
    assert [each.text for each in parsed.all("h3")] == names * 2
    assert set(names) <= {each.text for each in parsed.all("th")}


def test_a_line_is_interrupted_where_no_values_are(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "a")
    lines = [
        line(at_ms=at * 1000.0, name="fleet_cpu", broker=None, value=1)
        for at in (*range(1, 20), *range(40, 60))
    ]
    (directory / "trace.jsonl").write_bytes(b"\n".join(lines))
    (plot,) = plots.timeline_plots([read_run(directory)])
    (cpu,) = [trace for trace in plot["traces"] if trace["name"] == "fleet"]
    assert [cpu["x"][at] for at, value in enumerate(cpu["y"]) if value is None] == [40]
    assert len(cpu["x"]) == len(cpu["y"]) == 40
    json.dumps(plot, allow_nan=False)


def test_times_are_drawn_in_milliseconds_by_step(pair: list[RecordedRun]) -> None:
    figure = plots.times_plot(pair)
    assert "rack lost: decided" in figure["layout"]["yaxis"]["ticktext"]
    assert len(figure["layout"]["yaxis"]["ticktext"]) == plots.times_rows(pair)
    decided = [trace for trace in figure["traces"] if trace.get("name") == "kafka-4.3.1 worst"]
    assert any("decided worst" in text for text in decided[0]["text"])
    low, high = figure["layout"]["xaxis"]["range"]
    assert all(10**low <= value <= 10**high for value in times(figure))


def test_runs_of_other_sizes_are_said_to_differ(tmp_path: Path, pair: list[RecordedRun]) -> None:
    other = read_run(write_run(tmp_path / "c", quorum="kafka-4.3.1", partitions=99, seed=2))
    text = page([pair[0], other])
    assert "The runs differ in more than the quorum" in text
    assert "partitions 10000 and 99" in text
    assert "seed 1 and 2" in text


def test_an_interrupted_run_is_said_to_be_so(tmp_path: Path) -> None:
    assert "interrupted in step" not in page([read_run(write_run(tmp_path / "whole"))])
    text = page([read_run(interrupted(tmp_path / "cut"))])
    assert "kraft: the run was interrupted in step</strong><span>rack lost" in text
    assert "not ended" in text


def test_foreign_texts_are_escaped_everywhere(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "a", scenario=HOSTILE, extra_lines=("{bad <b>",))
    trace = directory / "trace.jsonl"
    renamed = trace.read_text().replace('"rack lost"', json.dumps(HOSTILE))
    trace.write_text(renamed)
    run = read_run(directory, skip_bad_lines=True)
    text = page([run])
    assert "<script>alert" not in text
    parsed = Page(text)
    assert parsed.all("title")[0].text == f"Fleet: {HOSTILE}"
    drawn = json.dumps(parsed.data("timeline-0")) + json.dumps(parsed.data("times"))
    assert "<script" not in drawn
    assert "%{x}" not in drawn.replace("at %{x:", "")
    assert "Lines that were not read" in text
    assert f"{trace}:" in "".join(each.text for each in parsed.all("li"))


def test_a_trace_without_samples_has_no_empty_panels(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "a")
    trace = directory / "trace.jsonl"
    trace.write_bytes(line(name="applied", value=0.0) + b"\n")
    run = read_run(directory)
    assert plots.panel_count([run]) == 1
    assert plots.times_plot([run]) == {}
    assert "Timeline" in page([run])
    trace.write_bytes(b"")
    assert "The traces have no events" in page([read_run(directory)])


def test_another_number_of_runs_is_rejected(pair: list[RecordedRun]) -> None:
    for runs in ([], [*pair, pair[0]]):
        with pytest.raises(InvalidRequestError, match="1 or 2 runs"):
            page(runs)
