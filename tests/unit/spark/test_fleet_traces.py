"""Runs of the fleet in Spark: tables, bad rows, and the laws of one process."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kraft.errors import FleetRunError
from kraft.fleet.measures import measures_of
from kraft.fleet.scaling_report import scaling_of
from kraft.fleet.traces import read_run, run_directories
from kraft.spark.fleet_scaling import scaling_on
from kraft.spark.fleet_traces import TABLES
from tests.harness.fleet_runs import Planted, interrupted, write_run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def load(spark: SparkSession, path: Any, **options: Any) -> DataFrame:
    return spark.read.format("kraft-fleet").options(**options).load(path)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write runs of six sizes and two quorums; return their folder."""
    folder = tmp_path_factory.mktemp("fleet")
    for quorum, law in (
        ("kraft", Planted(noise=0.02)),
        ("kafka-4.3.1", Planted(noise=0.02, factor=3, knee=40, after_knee=1.6)),
    ):
        for brokers in (10, 20, 40, 80, 160, 320):
            for seed in (1, 2):
                write_run(folder / f"{quorum}-{brokers}-{seed}", quorum=quorum, brokers=brokers,
                          seed=seed, planted=law)  # fmt: skip
    return folder


def test_every_event_is_a_row_with_its_run(spark: SparkSession, runs: Path) -> None:
    run = read_run(runs / "kraft-20-1")
    rows = load(spark, str(run.directory)).orderBy("at_ms", "name", "broker", "value").collect()
    assert len(rows) == len(run.trace)
    expected = sorted(
        run.trace.to_arrow().to_pylist(),
        key=lambda row: (row["at_ms"], row["name"],
                         -1 if row["broker"] is None else row["broker"],
                         -1 if row["value"] is None else row["value"]),
    )  # fmt: skip
    assert [(row.at_ms, row.step, row.name, row.broker, row.value) for row in rows] == [
        (row["at_ms"], row["step"], row["name"], row["broker"], row["value"]) for row in expected
    ]
    assert {(row.run, row.quorum, row.brokers, row.partitions, row.seed) for row in rows} == {
        (run.info.run, "kraft", 20, 10_000, 1)
    }


def test_a_folder_has_all_runs_and_a_task_each(spark: SparkSession, runs: Path) -> None:
    found = load(spark, str(runs), table="runs")
    assert found.schema == TABLES["runs"]
    assert found.rdd.getNumPartitions() == 24
    assert found.select("run").distinct().count() == 24
    (row,) = found.where("brokers = 320 and quorum = 'kraft' and seed = 2").collect()
    assert row.directory == str(runs / "kraft-320-2")
    assert json.loads(row.machine) == {"cores": 2, "cpu": "generated"}
    assert row.started_at.isoformat() == "2026-11-26T10:02:00"


def test_measures_are_those_of_the_report(spark: SparkSession, runs: Path) -> None:
    run = read_run(runs / "kraft-40-1")
    rows = load(spark, str(run.directory), table="measures").collect()
    names = ("step", "name", "statistic", "unit", "value", "events", "is_complete")
    assert {tuple(row[name] for name in names) for row in rows} == {
        tuple(asdict(each).values()) for each in measures_of(run.trace)
    }


def test_few_columns_may_be_asked_for(spark: SparkSession, runs: Path) -> None:
    few = spark.read.format("kraft-fleet").schema("value double, name string").load(str(runs))
    assert few.columns == ["value", "name"]
    assert few.where("name = 'decided'").count() == 24


def test_bad_lines_fail_or_are_reported(spark: SparkSession, tmp_path: Path) -> None:
    good = write_run(tmp_path / "good")
    bad = write_run(tmp_path / "bad", extra_lines=("{", '{"at_ms": 1}'))
    worse = write_run(tmp_path / "worse")
    (worse / "run.json").write_text("{}")
    events = len(read_run(good).trace)
    with pytest.raises(Exception, match=r"bad/trace\.jsonl:\d+: not JSON") as raised:
        load(spark, [str(good), str(bad)]).count()
    assert not isinstance(raised.value, FleetRunError)
    lenient = load(spark, str(tmp_path), mode="PERMISSIVE")
    assert lenient.count() == 2 * events
    problems = load(spark, str(tmp_path), table="problems").orderBy("path", "line").collect()
    lines = len((bad / "trace.jsonl").read_text().splitlines())
    assert [(row.path, row.line) for row in problems] == [
        (str(bad / "trace.jsonl"), lines - 1),
        (str(bad / "trace.jsonl"), lines),
        (str(worse), 0),
    ]
    assert "'run' is missing" in problems[2].reason


def test_wrong_options_and_paths_are_rejected(spark: SparkSession, tmp_path: Path) -> None:
    for options, reason in (
        ({"table": "rows"}, "table is events, measures, runs, problems"),
        ({"mode": "LENIENT"}, "mode is FAILFAST or PERMISSIVE"),
        ({"tabel": "runs"}, "no option 'tabel'"),
    ):
        with pytest.raises(Exception, match=reason):
            load(spark, str(tmp_path), **options).count()
    with pytest.raises(Exception, match="no run is here"):
        load(spark, str(tmp_path)).count()


def test_the_laws_are_those_of_one_process(spark: SparkSession, runs: Path, tmp_path: Path) -> None:
    bad = write_run(tmp_path / "bad", brokers=30, extra_lines=("{",))
    cut = interrupted(tmp_path / "cut", brokers=5)
    directories = run_directories([runs, bad, cut])
    here = scaling_of(directories, skip_bad_lines=True)
    there = scaling_on(spark, directories, skip_bad_lines=True)
    assert there.runs == here.runs == 26
    assert there.interrupted == here.interrupted
    assert len(here.interrupted) == 1
    assert there.problems == here.problems
    assert there.refusals == here.refusals
    assert len(there.laws) == len(here.laws) > 50
    for one, two in zip(there.laws, here.laws, strict=True):
        assert (one.title, one.against) == (two.title, two.against)
        assert one.exponent == pytest.approx(two.exponent, rel=1e-9, abs=1e-12)
        assert one.sizes == two.sizes
        assert (one.knee is None) == (two.knee is None)
    assert any(law.knee is not None and law.quorum == "kafka-4.3.1" for law in there.laws)
