"""Spark reads result files into a store and reads stores, as this process does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs PySpark: pip install 'kraft[spark]'")

from kraft.errors import StorageError
from kraft.regression.ingest import ingest
from kraft.regression.store import list_runs, open_store, read_table
from kraft.spark.store_points import read_points
from kraft.spark.tasks import SparkTasks
from tests.harness.result_documents import document, save

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDER = [("time", "ascending"), ("benchmark", "ascending")]


def hourly(folder: Path, count: int, *, keep_values: bool = True) -> None:
    for hour in range(count):
        values = {"test_a": [1.0 + hour, 9.0], "test_b[7]": [2.0]}
        content = document(at=hour, commit=f"c{hour}", values=values, keep_values=keep_values)
        save(folder / f"{hour:04}.json", content)


def test_spark_reads_and_writes_the_same_store(spark: SparkSession, tmp_path: Path) -> None:
    hourly(tmp_path / "runs", 12)
    (tmp_path / "runs" / "bad.json").write_text("{")
    shares: list[float] = []
    report = ingest(
        [tmp_path / "runs"],
        tmp_path / "by-spark",
        tasks=SparkTasks(spark),
        on_progress=shares.append,
    )
    alone = ingest([tmp_path / "runs"], tmp_path / "alone")

    assert report.runs_added == 12
    assert [each.reason for each in report.problems] == [each.reason for each in alone.problems]
    assert len(open_store(tmp_path / "by-spark").files) > 1
    expected = read_table(tmp_path / "alone").sort_by(ORDER)
    assert read_table(tmp_path / "by-spark").sort_by(ORDER).equals(expected)
    points = read_points(spark, tmp_path / "by-spark").orderBy("time", "benchmark")
    assert points.toArrow().to_pylist() == expected.to_pylist()
    again = ingest([tmp_path / "runs"], tmp_path / "by-spark", tasks=SparkTasks(spark))
    assert again.duplicate_runs == 12


def test_of_duplicates_in_several_tasks_the_copy_with_rounds_is_stored(
    spark: SparkSession, tmp_path: Path
) -> None:
    for name, keep in [("a", False), ("b", True), ("c", False), ("d", True)]:
        hourly(tmp_path / "runs" / name, 3, keep_values=keep)
    report = ingest([tmp_path / "runs"], tmp_path / "store", tasks=SparkTasks(spark))
    assert (report.runs_added, report.points_added, report.duplicate_runs) == (3, 6, 9)
    table = read_table(tmp_path / "store")
    assert (table.num_rows, table["values"].null_count) == (6, 0)
    assert all("/b/" in run.source for run in list_runs(tmp_path / "store"))
    named = set(open_store(tmp_path / "store").files)
    assert {path.name for path in (tmp_path / "store").glob("*.parquet")} == named


def test_spark_reads_earlier_versions(spark: SparkSession, tmp_path: Path) -> None:
    for count in (1, 2):
        hourly(tmp_path / "runs", count)
        ingest([tmp_path / "runs"], tmp_path / "store")
    assert read_points(spark, tmp_path / "store", 0).count() == 2
    assert read_points(spark, tmp_path / "store").count() == 4
    with pytest.raises(StorageError, match="has no version 5; the newest is 1"):
        read_points(spark, tmp_path / "store", 5)
