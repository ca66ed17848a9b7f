"""Comparisons: requests that are rejected before anything starts, and which runs take place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kraft.errors import InvalidConfigError, InvalidRequestError
from kraft.generations import comparison
from kraft.generations.comparison import ComparisonRequest, check_request, compare
from kraft.generations.measures import Outcome, RunResult, ScriptStep
from kraft.generations.modes import parse_modes

KRAFT = ComparisonRequest(parse_modes("kraft"), (100,))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"modes": ()}, "at least one mode"),
        ({"sizes": ()}, "at least one mode and one number of partitions"),
        ({"brokers": 2}, "at least 3 are needed, not 2"),
        ({"brokers": 501}, "501 brokers are too many"),
        ({"brokers": 5, "replication_factor": 6}, "replication factor of 6 does not fit"),
        ({"replication_factor": 1}, "leaders can only move with 2 or more"),
        ({"time_limit_s": 0.0}, "above 0 s"),
        ({"partitions_per_topic": 0}, "at least 1 partition"),
        ({"session_timeout_ms": 3999}, "4000 to 40000 ms, not 3999"),
        ({"session_timeout_ms": 40001}, "not 40001"),
    ],
)
def test_a_request_that_cannot_be_carried_out(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        check_request(replace(KRAFT, **changes))


@pytest.mark.parametrize("heap", ["", "2x", "0g"])
def test_a_heap_that_is_none(heap: str) -> None:
    with pytest.raises(InvalidConfigError, match="heap"):
        check_request(replace(KRAFT, heap=heap))


def test_more_partitions_than_the_machine_carries(monkeypatch: pytest.MonkeyPatch) -> None:
    needs = []
    monkeypatch.setattr(comparison, "check_limits", lambda need, place: needs.append(need))
    check_request(replace(KRAFT, sizes=(100, 1_000_000, 2_000_000)))
    # What is only extrapolated needs nothing.
    assert [(need.partitions, need.own_controllers, need.heap) for need in needs] == [
        (1_000_000, 3, "")
    ]


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A directory that looks like Apache Kafka 1.1.1."""
    libs = tmp_path / "kafka" / "libs"
    libs.mkdir(parents=True)
    (libs / "kafka-clients-1.1.1.jar").touch()
    return libs.parent


def test_a_mode_needs_its_release(release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_HOME", raising=False)
    request = replace(KRAFT, modes=parse_modes("kafka-4.3"))
    with pytest.raises(InvalidConfigError, match=r"needs Apache Kafka 4\.3: .*--kafka-home 4\.3=D"):
        check_request(request)
    with pytest.raises(InvalidConfigError, match=r"needs Apache Kafka 4\.3, and .* has 1\.1\.1: "):
        check_request(replace(request, homes={"4.3": release}))
    with pytest.raises(InvalidConfigError, match="holds no release of Apache Kafka"):
        check_request(replace(request, homes={"4.3": release / "bin"}))
    monkeypatch.setenv("KAFKA_HOME", str(release))
    with pytest.raises(InvalidConfigError, match=r"and KAFKA_HOME has 1\.1\.1"):
        check_request(request)
    check_request(replace(request, modes=parse_modes("kafka-1.1.1")))


def test_results_of_others_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "results.json").touch()
    with pytest.raises(InvalidRequestError, match="is not empty"):
        check_request(replace(KRAFT, out=tmp_path))


def test_sizes_after_a_time_limit_are_extrapolated(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(request: Any, mode: Any, result: RunResult, *_: object) -> None:
        result.seconds[ScriptStep.CREATE, "known"] = result.partitions / 100
        if mode.name == "zk-2018" and result.partitions >= 10_000:
            result.outcome = Outcome.TIMED_OUT
            result.reason = "failover: the time limit of 9 s is over"

    monkeypatch.setattr(comparison, "_run", run)
    monkeypatch.setattr(comparison, "check_request", lambda request: None)
    sizes = (100, 1000, 10_000, 100_000, 500_000, 2_000_000)
    ended: list[RunResult] = []
    report = compare(ComparisonRequest(parse_modes("kraft,zk-2018"), sizes), on_run=ended.append)
    assert ended == list(report.runs)
    outcomes = {(run.mode, run.partitions): run.outcome for run in report.runs}
    assert [outcomes["kraft", size] for size in sizes] == [Outcome.MEASURED] * 5 + [Outcome.SKIPPED]
    assert [outcomes["zk-2018", size] for size in sizes] == [
        *(Outcome.MEASURED, Outcome.MEASURED, Outcome.TIMED_OUT),
        *(Outcome.SKIPPED, Outcome.SKIPPED, Outcome.SKIPPED),
    ]
    reasons = {(run.mode, run.partitions): run.reason for run in report.runs}
    assert reasons["zk-2018", 100_000] == "10,000 partitions took longer than the time limit"
    assert reasons["zk-2018", 500_000] == "this mode is measured up to 200,000 partitions"
    quorum, zookeeper = report.curves
    ((size, seconds),) = quorum.beyond
    assert size == 2_000_000
    assert seconds == pytest.approx(20_000.0)
    assert [size for size, _ in zookeeper.beyond] == [100_000, 500_000, 2_000_000]
