"""Compare a candidate with its baseline in Spark, for inputs that are too large for one process.

Spark's workers call `kraft.regression.comparison`, so the result equals that without Spark. The
runs of one benchmark on all machines go to one worker, which detects machines without a
counterpart. The driver applies the correction for many tests, which needs all benchmarks.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from kraft.regression import comparison
from kraft.regression.findings import Comparison
from kraft.regression.points import METRIC_COLUMNS
from kraft.regression.run_selection import raise_on_problems
from kraft.regression.settings import AnalysisSettings
from kraft.spark.finding_rows import from_rows, schema_of, to_rows

_BENCHMARK = ["suite", "benchmark", "params"]


def compare(
    base: DataFrame, candidate: DataFrame, settings: AnalysisSettings, threshold: float
) -> list[Comparison]:
    """Compare two DataFrames of points; see `kraft.regression.comparison.compare`.

    The runs of a benchmark are read in the order of time and run id.
    """
    needed = [
        *_BENCHMARK,
        *METRIC_COLUMNS,
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
    settings: AnalysisSettings,
    threshold: float,
    *,
    strict: bool = False,
    ignore_node: bool = False,
) -> tuple[list[Comparison], list[str]]:
    """Return the comparison of the runs in files, and the skipped input with path and reason.

    Raises BenchmarkFileError if a side has no readable run, or if ``strict`` and any input is
    skipped.
    """
    sides = []
    skipped: list[str] = []
    for paths in (base, candidate):
        reader = spark.read.format("pytest-benchmark").option("mode", "PERMISSIVE")
        reader = reader.option("ignoreNode", str(ignore_node))
        rows = reader.option("table", "problems").load(list(paths)).toArrow().to_pylist()
        problems = sorted(f"{problem['path']}: {problem['reason']}" for problem in rows)
        points = reader.option("table", "points").load(list(paths))
        # Each unreadable file has a problem; of a converted one it names the original.
        is_doubtful = len(rows) >= len(paths)
        raise_on_problems(problems, count=len(points.take(1)) if is_doubtful else 1, strict=strict)
        skipped += problems
        sides.append(points)
    old, new = sides
    return compare(old, new, settings, threshold), skipped
