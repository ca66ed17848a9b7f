"""A candidate against its baseline where the two are too much for one process.

Owns how the points of both sides meet in Spark's workers. What is computed is
`kraft.regression.comparison`'s, so that the answer is the one that it gives without Spark. A
benchmark's runs on all machines go to one worker, as it has to see that a machine has no
counterpart; the correction for many tests needs all benchmarks and is done by the driver.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from kraft.regression import comparison
from kraft.regression.findings import Comparison
from kraft.regression.settings import Settings
from kraft.spark.finding_rows import from_rows, schema_of, to_rows
from kraft.spark.selection import refuse

_BENCHMARK = ["suite", "benchmark", "params"]


def compare(
    base: DataFrame, candidate: DataFrame, settings: Settings, threshold: float
) -> list[Comparison]:
    """`kraft.regression.comparison.compare` of two DataFrames of points.

    The order in which runs of a benchmark are read is that of time and run id.
    """
    needed = [
        *_BENCHMARK,
        "machine",
        "project",
        "run_id",
        "time",
        "mean",
        "stddev",
        "rounds",
        "values",
    ]
    columns = dict.fromkeys([*needed, settings.statistic])

    def side(points: pa.Table) -> pa.Table:
        return points.sort_by([("time", "ascending"), ("run_id", "ascending")])

    def look(old: pa.Table, new: pa.Table) -> pa.Table:
        found = comparison.compare(side(old), side(new), settings, threshold)
        return to_rows(Comparison, found)

    rows = (
        base.select(*columns)
        .groupBy(*_BENCHMARK)
        .cogroup(candidate.select(*columns).groupBy(*_BENCHMARK))
        .applyInArrow(look, from_arrow_schema(schema_of(Comparison)))
        .toArrow()
    )
    return comparison.correct(from_rows(Comparison, rows), settings, threshold)


def compare_files(
    spark: SparkSession,
    base: Sequence[str],
    candidate: Sequence[str],
    settings: Settings,
    threshold: float,
    *,
    strict: bool = False,
    ignore_node: bool = False,
) -> tuple[list[Comparison], list[str]]:
    """The comparison of what files hold, and what was skipped, with its path and why.

    Raises BenchmarkFileError where a side cannot be read at all, or ``strict`` and not all of it.
    """
    sides = []
    skipped: list[str] = []
    for paths in (base, candidate):
        reader = spark.read.format("pytest-benchmark").option("mode", "PERMISSIVE")
        reader = reader.option("ignoreNode", str(ignore_node))
        told = reader.option("table", "problems").load(list(paths)).toArrow().to_pylist()
        problems = sorted(f"{problem['path']}: {problem['reason']}" for problem in told)
        points = reader.option("table", "points").load(list(paths))
        is_doubtful = {problem["path"] for problem in told} >= set(paths)
        refuse(problems, count=len(points.take(1)) if is_doubtful else 1, strict=strict)
        skipped += problems
        sides.append(points)
    old, new = sides
    return compare(old, new, settings, threshold), skipped
