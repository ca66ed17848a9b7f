"""The data source: its rows, what it omits, and its stream over a watched folder."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema

from kraft.regression.points import POINTS
from tests.harness.result_documents import document, save

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(spark: SparkSession, *paths: Path, **options: Any) -> DataFrame:
    given = [str(path) for path in paths]
    return (
        spark.read.format("pytest-benchmark")
        .options(**options)
        .load(given if len(given) > 1 else given[0])
    )


def test_files_folders_and_globs_are_read_as_points(spark: SparkSession, tmp_path: Path) -> None:
    save(tmp_path / "a" / "1.json", document(at=0, values={"test_a": [1.0, 2.0]}))
    save(tmp_path / "a" / "deeper" / "2.json", document(at=1, values={"test_a": [3.0]}))
    save(tmp_path / "b-1.json", document(at=2, values={"test_b": [4.0], "test_c": [5.0]}))

    points = read(spark, tmp_path / "a", tmp_path / "b-*.json")

    assert points.schema == from_arrow_schema(POINTS)
    rows = points.orderBy("time", "benchmark").collect()
    assert [(row.benchmark, row["min"], row["values"]) for row in rows] == [
        ("test_a", 1.0, [1.0, 2.0]),
        ("test_a", 3.0, [3.0]),
        ("test_b", 4.0, [4.0]),
        ("test_c", 5.0, [5.0]),
    ]
    assert {row.source for row in rows} == {
        str(tmp_path / "a" / "1.json"),
        str(tmp_path / "a" / "deeper" / "2.json"),
        str(tmp_path / "b-1.json"),
    }


CONDITIONS = {
    "benchmark = 'test_a'": 3,
    "benchmark in ('test_b', 'test_c') and suite like 'bench%'": 3,
    "machine like 'other%'": 0,
    "commit is null": 2,
    "not (commit = 'c1')": 2,  # null for a run without a commit
    "time >= timestamp'2026-01-01 01:00:00'": 4,
    "time < timestamp'2026-01-01 01:00:00' and median > 1.5": 1,
}


def test_pushed_filters_equal_filters_after_reading(spark: SparkSession, tmp_path: Path) -> None:
    save(tmp_path / "0.json", document(at=0, values={"test_a": [1.0], "test_b": [2.0]}))
    save(tmp_path / "1.json", document(at=1, commit="c1", values={"test_a": [1], "test_b": [2]}))
    save(tmp_path / "2.json", document(at=2, commit=None, values={"test_a": [1], "test_c": [2]}))
    points = read(spark, tmp_path)
    sums = [f"cast(coalesce(sum(int({each})), 0) as int)" for each in CONDITIONS]
    (without_pushdown,) = points.selectExpr(*sums).collect()
    assert list(without_pushdown) == list(CONDITIONS.values())

    def pushed(condition: str) -> int:
        return read(spark, tmp_path, pushdown=True).where(condition).count()

    assert {each: pushed(each) for each in CONDITIONS} == CONDITIONS


def test_one_load_serves_several_queries(spark: SparkSession, tmp_path: Path) -> None:
    # Spark plans a Python source once per load, with the filters of the first query.
    save(tmp_path / "0.json", document(at=0, values={"test_a": [1.0], "test_b": [2.0]}))
    points = read(spark, tmp_path)
    assert points.where("benchmark = 'test_a'").count() == 1
    assert points.where("benchmark like 'test%'").count() == 2
    assert points.count() == 2


def test_filters_on_a_points_identity_are_fully_pushed_down(
    spark: SparkSession, tmp_path: Path
) -> None:
    save(tmp_path / "0.json", document(at=0, values={"test_a": [1.0]}))

    def plan(condition: str) -> str:
        kept = read(spark, tmp_path, pushdown=True).where(condition)
        return str(kept._jdf.queryExecution().executedPlan().toString())

    assert "Filter (" in plan("median > 1.5")
    assert "Filter (" not in plan("benchmark = 'test_a' and machine like 'b%'")


def test_fewer_columns_are_read_where_fewer_are_named(spark: SparkSession, tmp_path: Path) -> None:
    save(tmp_path / "0.json", document(at=0, values={"test_a": [1.0]}))
    narrow = spark.read.format("pytest-benchmark").schema("benchmark string, min double")
    assert narrow.load(str(tmp_path)).collect() == [("test_a", 1.0)]


def test_a_bad_file_fails_the_query_or_is_omitted_and_reported(
    spark: SparkSession, tmp_path: Path
) -> None:
    save(tmp_path / "good.json", document(at=0, values={"test_a": [1.0], "test_b": [0.0]}))
    (tmp_path / "cut.json").write_bytes((tmp_path / "good.json").read_bytes()[:200])

    with pytest.raises(PySparkException, match=r"(cut|good)\.json: "):
        read(spark, tmp_path).collect()
    rows = read(spark, tmp_path, mode="PERMISSIVE").collect()
    problems = read(spark, tmp_path, table="problems").collect()

    assert [row.benchmark for row in rows] == ["test_a"]
    assert sorted((os.path.basename(row.path), row.reason.split(":")[0]) for row in problems) == [
        ("cut.json", "not JSON"),
        ("good.json", "bench.py"),
    ]


def test_unknown_options_are_rejected(spark: SparkSession, tmp_path: Path) -> None:
    for options, said in [({"mode": "LAX"}, "LAX"), ({"table": "rows"}, "rows")]:
        with pytest.raises(PySparkException, match=said):
            read(spark, tmp_path, **options).collect()


class Watched:
    """A stream over a folder: one availableNow query after another with the same checkpoint."""

    def __init__(self, spark: SparkSession, root: Path, **options: Any) -> None:
        self.spark = spark
        self.folder = root / "watched"
        self.folder.mkdir()
        self.checkpoint = root / "checkpoint"
        self.options = options

    def batches(self) -> list[list[str]]:
        """Return the benchmarks of each batch of new files."""
        seen: list[list[str]] = []

        def take(rows: DataFrame, _: int) -> None:
            found = sorted(row.benchmark for row in rows.select("benchmark").collect())
            seen.append(found)

        query = (
            self.spark.readStream.format("pytest-benchmark")
            .options(**self.options)
            .load(str(self.folder))
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)
        return [batch for batch in seen if batch]


@pytest.fixture
def watched(spark: SparkSession, tmp_path: Path) -> Callable[..., Watched]:
    return lambda **options: Watched(spark, tmp_path, **options)


def test_a_stream_reads_each_file_once_whatever_its_times(
    watched: Callable[..., Watched],
) -> None:
    stream = watched(maxFilesPerTrigger=1)
    save(stream.folder / "1.json", document(at=0, values={"test_a": [1.0]}))
    save(stream.folder / "2.json", document(at=1, values={"test_b": [1.0]}))
    half = json.dumps(document(at=2, values={"test_c": [1.0]}))
    (stream.folder / "3.json").write_text(half[:300])
    assert stream.batches() == [["test_a"], ["test_b"]]

    (stream.folder / "3.json").write_text(half)
    save(stream.folder / "0.json", document(at=3, values={"test_d": [1.0]}))
    os.utime(stream.folder / "0.json", (1, 1))  # copied with its time: older than all others
    os.utime(stream.folder / "1.json")  # touched: it is the same file
    assert stream.batches() == [["test_d"], ["test_c"]]


def test_a_file_that_stays_incomplete_counts_as_damaged(
    watched: Callable[..., Watched],
) -> None:
    stream = watched(mode="PERMISSIVE", table="points", settleSeconds=1)
    save(stream.folder / "1.json", document(at=0, values={"test_a": [1.0]}))
    (stream.folder / "2.json").write_text('{"benchmarks": [')
    os.utime(stream.folder / "2.json", (1, 1))
    assert stream.batches() == [["test_a"]]
    offset = sorted((stream.checkpoint / "offsets").iterdir())[-1].read_text()
    assert len(json.loads(offset.splitlines()[-1])["files"]) == 2 * 11


@pytest.mark.parametrize("junk", [b"[" * 100_000, b'{"a":' * 100_000, b"\xff\x00", b"", b"NaN"])
def test_a_file_of_junk_does_not_end_a_stream_or_a_query(
    spark: SparkSession, watched: Callable[..., Watched], junk: bytes
) -> None:
    """A file of opening brackets once ended both with a RecursionError, even in PERMISSIVE."""
    stream = watched(mode="PERMISSIVE", settleSeconds=1)
    save(stream.folder / "1.json", document(at=0, values={"test_a": [1.0]}))
    (stream.folder / "2.json").write_bytes(junk)
    os.utime(stream.folder / "2.json", (1, 1))
    assert stream.batches() == [["test_a"]]
    (problem,) = read(spark, stream.folder, table="problems").collect()
    assert problem.path.endswith("2.json")


def test_unknown_options_are_rejected_by_batch_and_stream(
    spark: SparkSession, watched: Callable[..., Watched], tmp_path: Path
) -> None:
    with pytest.raises(PySparkException, match="pytest-benchmark has no option 'ignorenodes'"):
        read(spark, tmp_path, ignoreNodes=True).collect()
    with pytest.raises(PySparkException, match="ignoreNode is true or false, not 'yes'"):
        read(spark, tmp_path, ignoreNode="yes").collect()
    with pytest.raises(PySparkException, match="has no option 'maxfiles'"):
        watched(maxFiles=1).batches()
