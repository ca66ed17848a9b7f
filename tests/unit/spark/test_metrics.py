"""Spark judges a change by the direction of its metric, as this process does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs PySpark: pip install 'kraft[spark]'")

from kraft.regression import comparison
from kraft.regression.analysis import analyse_store
from kraft.regression.findings import ChangeKind
from kraft.regression.ingest import ingest
from kraft.regression.points import METRIC_COLUMNS, BenchmarkMetric
from kraft.regression.run_selection import runs_of
from kraft.regression.settings import AnalysisSettings
from kraft.regression.sources.conversion import ResultReading, converted
from kraft.regression.sources.tables import TableMapping
from kraft.regression.store import read_table
from kraft.spark.analysis import analyse
from kraft.spark.frame_comparison import compare_files
from kraft.spark.store_points import read_points
from kraft.spark.tasks import SparkTasks
from tests.harness.command_line import run_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = AnalysisSettings(bootstrap_samples=100)
READING = ResultReading(mapping=TableMapping.parse([], "ops/s", None))


def load(path: Path, rates: list[int], begin: int = 1) -> Path:
    """Write a CSV file with one throughput a day."""
    lines = ["benchmark,value,time,machine,commit"]
    lines += [
        f"serve,{rate},2026-11-{day:02}T10:00:00,m1,{day:040x}"
        for day, rate in enumerate(rates, begin)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_fall_of_throughput_in_a_store_is_a_regression(
    spark: SparkSession, tmp_path: Path
) -> None:
    rates = [1000 + day % 3 for day in range(12)] + [800 + day % 3 for day in range(12)]
    store = tmp_path / "store"
    with converted([str(load(tmp_path / "load.csv", rates))], READING) as (files, problems):
        report = ingest(files, store, tasks=SparkTasks(spark))
    assert (report.runs_added, problems, report.problems) == (24, [], [])
    stored = read_table(store, columns=METRIC_COLUMNS).to_pylist()
    assert {BenchmarkMetric.of(**each) for each in stored} == {BenchmarkMetric("ops/s", True)}

    alone = analyse_store(store, SETTINGS)
    (change,) = alone.change_points
    assert (change.kind, change.index) == (ChangeKind.REGRESSION, 12)
    by_tasks = analyse_store(store, SETTINGS, tasks=SparkTasks(spark))
    assert by_tasks.change_points == alone.change_points
    assert analyse(read_points(spark, store), SETTINGS).change_points == alone.change_points


def test_a_candidate_with_less_throughput_is_a_regression(
    spark: SparkSession, tmp_path: Path
) -> None:
    base = str(load(tmp_path / "base.csv", [1000 + day % 3 for day in range(6)]))
    slow = str(load(tmp_path / "slow.csv", [800 + day % 3 for day in range(6)], 10))
    with converted([base], READING) as (old, _), converted([slow], READING) as (new, _):
        found, problems = compare_files(spark, old, new, SETTINGS, 0.05)
    expected = comparison.compare(
        runs_of([base], READING)[0], runs_of([slow], READING)[0], SETTINGS, 0.05
    )
    assert (found, problems) == (expected, [])
    assert [each.is_regression for each in found] == [True]
    command = ["regress", "compare", base, slow, "--unit", "ops/s", "--json"]
    for ran in (run_command(*command, *more) for more in ([], ["--master", "local[2]"])):
        assert (ran.code, ran.json["summary"]["regressions"]) == (1, 1)
    same = run_command("regress", "compare", base, base, *command[4:], "--master", "local[2]")
    assert (same.code, same.json["summary"]["compared"]) == (0, 1)
