"""The files of a run, as the analyses read them."""

from __future__ import annotations

import json
from pathlib import Path

from kraft.fleet.trace import FleetRun, FleetTrace
from kraft.regression.results import read_run


def a_run() -> FleetRun:
    return FleetRun("abc", "kraft", 3, 50, 5000, "rack-loss", 7, 2)


def test_a_run_has_three_files(tmp_path: Path) -> None:
    with FleetTrace(tmp_path, a_run()) as trace:
        trace.step = "lose"
        trace.event("step_started")
        trace.event("fenced_after", broker=1001, value=9000.0, at_s=trace.begun_s + 9)
        trace.event("fenced_after", broker=1002, value=9500.0)
        trace.event("decided", value=9600.0)
        trace.event("step_ended", value=9.7)
    run = json.loads((tmp_path / "run.json").read_text())
    assert set(run) == {
        *("run", "quorum", "controllers", "brokers", "partitions", "scenario", "seed"),
        *("processes", "kraft_version", "started_at", "machine"),
    }
    lines = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    assert lines[1] == {
        "at_ms": 9000.0,
        "step": "lose",
        "name": "fenced_after",
        "broker": 1001,
        "value": 9000.0,
    }
    assert lines[0]["broker"] is None
    assert lines[0]["value"] is None
    results = read_run((tmp_path / "benchmark.json").read_bytes(), "benchmark.json")
    assert results.problems == ()
    assert results.benchmark == ["lose_fencing", "lose_decided", "lose_seconds"]
    assert results.rounds == [2, 1, 1]
    assert json.loads(results.params[0])["brokers"] == 50


def test_a_value_of_zero_is_the_shortest_time(tmp_path: Path) -> None:
    with FleetTrace(tmp_path, a_run()) as trace:
        trace.step = "steady"
        trace.event("applied", broker=1001, value=0.0)
    results = read_run((tmp_path / "benchmark.json").read_bytes(), "benchmark.json")
    assert results.problems == ()


def test_an_interrupted_run_keeps_its_events(tmp_path: Path) -> None:
    trace = FleetTrace(tmp_path, a_run())
    trace.event("step_started")
    trace.flush()
    assert len((tmp_path / "trace.jsonl").read_text().splitlines()) == 1
    trace.__exit__(None, None, None)
