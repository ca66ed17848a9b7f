"""Reading run directories: columns, steps, faults, and errors that name file and line."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kraft.errors import FleetRunError
from kraft.fleet import trace as written
from kraft.fleet.traces import (
    EVENTS,
    NAMES,
    parse_info,
    parse_trace,
    read_or_report,
    read_run,
    run_directories,
)
from tests.harness.fleet_runs import STEPS, write_run
from tests.harness.fleet_traces import ended, line, started


@pytest.fixture
def info() -> dict[str, Any]:
    return {
        "run": "a", "quorum": "kraft", "controllers": 3, "brokers": 5, "partitions": 10,
        "scenario": "idle", "seed": 0, "kraft_version": "0.1.0", "processes": 1,
        "started_at": "2026-11-26T10:00:00", "machine": {},
    }  # fmt: skip


def test_a_run_is_read_whole(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "a", brokers=9, partitions=500, seed=3))
    assert (run.info.quorum, run.info.brokers, run.info.partitions) == ("kraft", 9, 500)
    assert run.info.started_at == datetime(2026, 11, 26, 10, 3, tzinfo=UTC)
    assert run.benchmark == tmp_path / "a" / "benchmark.json"
    assert [span.step for span in run.trace.spans] == list(STEPS)
    assert [span.seconds for span in run.trace.spans] == list(STEPS.values())
    assert len(run.trace.rows("broker_registered")) == 9
    assert (np.diff(run.trace.at_ms) >= 0).all()
    assert not run.problems


def test_columns_hold_every_key_and_nulls() -> None:
    trace = parse_trace(line() + b"\n" + started("steady", 0) + b"\n\n", "t")
    assert len(trace) == 2
    assert trace.at_ms.tolist() == [0, 1.5]
    assert trace.broker.tolist() == [-1, 7]
    assert np.isnan(trace.value[0])
    assert trace.value[1] == 2.0
    assert [NAMES[code] for code in trace.name] == ["step_started", "applied"]
    assert trace.to_arrow().to_pylist() == [
        {"at_ms": 0.0, "step": "steady", "name": "step_started", "broker": None, "value": None},
        {"at_ms": 1.5, "step": "steady", "name": "applied", "broker": 7, "value": 2.0},
    ]


def test_lines_of_several_processes_are_sorted_by_time() -> None:
    data = b"\n".join(line(at_ms=at, value=at) for at in (5, 1, 3, 1))
    trace = parse_trace(data, "t")
    assert trace.at_ms.tolist() == [1, 1, 3, 5]
    assert trace.values("applied").tolist() == [1, 1, 3, 5]
    assert not len(trace.values("applied", "another step"))


def test_a_step_may_repeat_and_may_not_end() -> None:
    lines = [started("flap", 0), ended("flap", 1000), started("flap", 2000), ended("flap", 2500),
             started("killed", 2500), line(at_ms=4000, step="killed")]  # fmt: skip
    spans = parse_trace(b"\n".join(lines), "t").spans
    assert [(span.step, span.begin_ms, span.end_ms, span.is_complete) for span in spans] == [
        ("flap", 0, 1000, True), ("flap", 2000, 2500, True), ("killed", 2500, 4000, False),
    ]  # fmt: skip


def test_faults_are_the_times_that_events_measure_from() -> None:
    lines = [
        line(at_ms=12_000, step="loss", name="fenced_after", value=9_000),
        line(at_ms=12_700, step="loss", name="fenced_after", value=9_600),
        line(at_ms=13_000, step="loss", name="decided", value=10_000, broker=None),
        line(at_ms=30_000, step="loss", name="fenced_after", value=9_000),
        line(at_ms=40_900, step="kill", name="first_write", value=900, broker=None),
    ]
    faults = parse_trace(b"\n".join(lines), "t").faults
    assert [(fault.at_ms, fault.step, fault.what) for fault in faults] == [
        (3_000, "loss", "brokers lost"),
        (21_000, "loss", "brokers lost"),
        (40_000, "kill", "controller lost"),
    ]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"{", "not JSON"),
        (b"[1]", "expected a JSON object"),
        (b"{}", "'at_ms' is missing; expected the keys at_ms, step, name, broker, value"),
        (line(extra=1), 'unknown key "extra"'),
        (line(at_ms="1"), "'at_ms' is \"1\"; expected milliseconds"),
        (line(at_ms=-1), "'at_ms' is -1"),
        (line(at_ms=True), "'at_ms' is true"),
        (line(at_ms=float("nan")), "'at_ms' is NaN"),
        (line(step=None), "'step' is null"),
        (line(step="\ud800"), "printable name of a step"),
        (line(step="a\nb"), "printable name of a step"),
        (line(name="aplied"), "'name' is \"aplied\"; expected one of step_started"),
        (line(name=["applied"]), "'name' is"),
        (line(broker=-1), "'broker' is -1; expected a broker id or null"),
        (line(broker=1.0), "'broker' is 1.0"),
        (line(broker=True), "'broker' is true"),
        (line(broker=1 << 31), "'broker' is 2147483648"),
        (line(name="broker_fenced", broker=None), "broker_fenced needs the id of a broker"),
        (line(value=None), "applied needs a number of ms"),
        (line(value="x" * 500), "..."),
        (line(value=-0.5), "expected a number from 0 on"),
        (line(value=float("inf")), "'value' is Infinity"),
        (line(value=10**400), "expected a number from 0 on"),
        (b"[" * 100_000, "not JSON"),
        (b"\xff\xfe", "not JSON"),
    ],
)
def test_a_bad_line_is_named_with_what_was_expected(bad: bytes, reason: str) -> None:
    data = line() + b"\n" + bad + b"\n" + line() + b"\n"
    with pytest.raises(FleetRunError) as raised:
        parse_trace(data, "runs/a/trace.jsonl")
    assert str(raised.value).startswith("runs/a/trace.jsonl:2: ")
    assert reason in str(raised.value)
    assert len(str(raised.value)) < 600
    problems: list[Any] = []
    trace = parse_trace(data, "t", problems)
    assert len(trace) == 2
    assert [(problem.path, problem.line) for problem in problems] == [("t", 2)]
    assert reason in problems[0].reason


def test_a_killed_run_says_so() -> None:
    with pytest.raises(FleetRunError, match=r"t:2: not JSON.*the run was killed"):
        parse_trace(line() + b"\n" + line()[:20], "t")


@pytest.mark.parametrize("name", [name for name, kind in EVENTS.items() if kind.unit is None])
def test_events_without_a_unit_need_no_value(name: str) -> None:
    assert len(parse_trace(line(name=name, value=None), "t")) == 1


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"quorum": "a\nb"}, "'quorum' is \"a\\nb\"; expected a printable text"),
        ({"brokers": 0}, "'brokers' is 0; expected a whole number from 1 on"),
        ({"brokers": 1.5}, "'brokers' is 1.5"),
        ({"controllers": True}, "'controllers' is true"),
        ({"partitions": -1}, "'partitions' is -1; expected a whole number from 0 on"),
        ({"run": "a\nb"}, "expected a printable text"),
        ({"machine": []}, "'machine' is []; expected a JSON object"),
        ({"started_at": "yesterday"}, "'started_at' is \"yesterday\"; expected an ISO 8601 time"),
    ],
)
def test_a_bad_description_is_named(
    info: dict[str, Any], changed: dict[str, Any], reason: str
) -> None:
    assert parse_info(json.dumps(info).encode(), "run.json").brokers == 5
    with pytest.raises(FleetRunError) as raised:
        parse_info(json.dumps({**info, **changed}).encode(), "a/run.json")
    assert str(raised.value).startswith("a/run.json: ")
    assert reason in str(raised.value)


def test_a_missing_key_is_named_and_an_unknown_one_ignored(info: dict[str, Any]) -> None:
    assert parse_info(json.dumps({**info, "new": 1}).encode(), "r").run == "a"
    for name in info:
        left = {key: value for key, value in info.items() if key != name}
        with pytest.raises(FleetRunError, match=f"r: '{name}' is missing"):
            parse_info(json.dumps(left).encode(), "r")
    for bad in (b"", b"[]", b"\xff", b"[" * 100_000):
        with pytest.raises(FleetRunError, match=r"^r: "):
            parse_info(bad, "r")


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(FleetRunError, match="not a directory"):
        read_run(tmp_path / "none")
    with pytest.raises(FleetRunError, match=r"run\.json: no such file"):
        read_run(tmp_path)
    run = write_run(tmp_path / "a")
    (run / "trace.jsonl").unlink()
    with pytest.raises(FleetRunError, match=r"trace\.jsonl: no such file"):
        read_run(run)
    (run / "trace.jsonl").mkdir()
    with pytest.raises(FleetRunError, match=r"trace\.jsonl: cannot be read"):
        read_run(run)


def test_a_run_that_cannot_be_read_is_a_problem_only_if_asked(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a")
    (run / "run.json").write_text("{}")
    with pytest.raises(FleetRunError):
        read_or_report(run, skip_bad_lines=False)
    none, problems = read_or_report(run, skip_bad_lines=True)
    assert none is None
    assert [problem.line for problem in problems] == [0]
    assert "'run' is missing" in str(problems[0])


def test_runs_are_found_below_folders_each_once(tmp_path: Path) -> None:
    first = write_run(tmp_path / "x" / "a")
    second = write_run(tmp_path / "x" / "b", seed=2)
    assert run_directories([tmp_path, first]) == [first, second]
    (tmp_path / "empty").mkdir()
    for path in ("empty", "none"):
        with pytest.raises(FleetRunError, match="no run is here"):
            run_directories([tmp_path / path])


def test_the_reader_knows_every_name_that_the_writer_has() -> None:
    assert {*written.EVENTS, *written.SAMPLES} <= EVENTS.keys()
    for name, meaning in written.SAMPLES.items():
        assert EVENTS[name].is_counter == ("so far" in meaning or name == "metadata_offset"), name


def test_a_run_that_the_fleet_wrote_is_read(tmp_path: Path) -> None:
    description = written.FleetRun(
        run="a", quorum="kraft", controllers=3, brokers=2, partitions=8, scenario="idle", seed=1,
        processes=1,
    )  # fmt: skip
    with written.FleetTrace(tmp_path / "a", description) as trace:
        trace.step = "steady"
        trace.event("step_started")
        for name in written.SAMPLES:
            trace.event(name, value=1.0)
        trace.event("controller_elected", value=3.0)
        trace.event("broker_stopped", broker=1)
        trace.event("applied", broker=1, value=2.5)
        trace.event("step_ended", value=0.5)
    run = read_run(tmp_path / "a")
    assert run.info.brokers == 2
    assert run.trace.values("applied").tolist() == [2.5]
    assert run.benchmark is not None
    assert not run.interruptions()
