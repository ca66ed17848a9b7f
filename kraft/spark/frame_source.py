"""`FrameSource`: points in any DataFrame; Spark groups the rows of a series, a worker analyses
them.

Findings need the rows grouped by series, scaling laws grouped by benchmark. For a store, use
`store_source`, which needs no shuffle.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (its name everywhere)
from pyspark.sql.pandas.types import from_arrow_schema

from kraft.regression.commit_order import RunInfo, RunLike, glob_pattern
from kraft.regression.findings import ScalingLaw
from kraft.regression.points import METRIC_COLUMNS, Series, SeriesKey
from kraft.regression.settings import AnalysisSettings
from kraft.regression.table_analysis import (
    BENCHMARK,
    KEY,
    MOST_ROUNDS,
    AnalysedSeries,
    Benchmark,
    analyse_rows,
    columns,
    fit_laws,
    histories,
)
from kraft.spark.finding_rows import from_rows, schema_of, to_rows


class FrameSource:
    """The points whose benchmarks and machines match the globs."""

    def __init__(
        self, points: DataFrame, *, benchmark: str | None = None, machine: str | None = None
    ) -> None:
        self._all = points
        if benchmark is not None:
            pattern = glob_pattern(benchmark)
            full = F.concat_ws("::", "suite", "benchmark")
            points = points.where(F.col("benchmark").rlike(pattern) | full.rlike(pattern))
        if machine is not None:
            points = points.where(F.col("machine").rlike(glob_pattern(machine)))
        for name in ("project", "branch"):
            points = points.withColumn(name, F.coalesce(F.col(name), F.lit("")))
        self._points = points

    def runs(self) -> list[RunLike]:
        names = [
            "run_id",
            "machine",
            "project",
            "branch",
            "commit",
            "commit_time",
            "time",
            "dirty",
            "parents",
        ]
        rows = self._all.select(*names).dropDuplicates(["run_id"]).toArrow()
        for name in ("commit_time", "time"):
            column = rows[name].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
            rows = rows.set_column(rows.column_names.index(name), f"{name}_us", column)
        return [RunInfo(**row) for row in rows.to_pylist()]

    def analysed(self, settings: AnalysisSettings, order: pa.Array) -> list[AnalysedSeries]:
        def work(group: pa.Table) -> pa.Table:
            return to_rows(AnalysedSeries, analyse_rows(group, settings, order))

        rows = (
            _selected(self._points, settings)
            .groupBy(*KEY)
            .applyInArrow(work, from_arrow_schema(schema_of(AnalysedSeries)))
            .toArrow()
        )
        return from_rows(AnalysedSeries, rows)

    def laws(
        self,
        of: dict[Benchmark, list[SeriesKey]],
        settings: AnalysisSettings,
        size_param: str | None,
        order: pa.Array,
    ) -> list[ScalingLaw]:
        def work(group: pa.Table) -> pa.Table:
            return to_rows(ScalingLaw, fit_laws(group, settings, size_param, order))

        rows = (
            _selected(self._only(BENCHMARK, list(of)), settings, rounds=False)
            .groupBy(*BENCHMARK)
            .applyInArrow(work, from_arrow_schema(schema_of(ScalingLaw)))
            .toArrow()
        )
        return from_rows(ScalingLaw, rows)

    def histories(
        self, keys: Sequence[SeriesKey], settings: AnalysisSettings, order: pa.Array
    ) -> dict[SeriesKey, Series]:
        rows = _selected(self._only(KEY, [tuple(key) for key in keys]), settings).toArrow()
        return histories(rows, settings, order)

    def machines(self) -> dict[str, str]:
        newest = F.max(F.struct("time", "run_id", "machine_info")).alias("newest")
        rows = self._all.groupBy("machine").agg(newest)
        return {row[0]: row[1] for row in rows.select("machine", "newest.machine_info").collect()}

    def first_run_of(self, commit: str) -> datetime | None:
        of_commit = self._all.where(F.lower("commit").startswith(commit))
        (row,) = of_commit.agg(F.unix_micros(F.min("time"))).collect()
        return None if row[0] is None else datetime.fromtimestamp(row[0] / 1e6, UTC)

    def _only(self, names: list[str], values: Sequence[tuple[str, ...]]) -> DataFrame:
        """Return the points whose columns ``names`` have one of these values."""
        schema = ", ".join(f"{name} string" for name in names)
        wanted = self._points.sparkSession.createDataFrame(values, schema)
        return self._points.join(F.broadcast(wanted), names, "left_semi")


def _selected(points: DataFrame, settings: AnalysisSettings, *, rounds: bool = True) -> DataFrame:
    """Return the needed columns, under the names that `table_analysis.analyse_rows` expects."""
    names = columns(settings, rounds=rounds)
    selected = [F.col(name) for name in [*KEY, "run_id", "time", "commit", *METRIC_COLUMNS]]
    selected.append(F.col(settings.statistic).alias("value"))
    if "values" in names:
        saved = F.col("values")
        size = F.size(saved)
        thinned = F.transform(
            F.sequence(F.lit(0), F.lit(MOST_ROUNDS - 1)),
            lambda i: F.get(saved, F.floor(i * size / MOST_ROUNDS).cast("int")),
        )
        selected.append(F.when(size <= MOST_ROUNDS, saved).otherwise(thinned).alias("rounds"))
    return points.select(*selected)
