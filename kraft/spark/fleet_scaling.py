"""Scaling laws of very many runs on Spark: each task reads a run, each group of measures is fitted.

The laws are those of `kraft.fleet.scaling_report.scaling_of`, which does the same in one process.
Executors need kraft installed and see the run directories under the same paths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  (its name everywhere)

from kraft.fleet.measures import WHOLE_RUN
from kraft.fleet.scaling import Point, PowerLaw, Refusal, corrected, group_laws
from kraft.fleet.scaling_report import DECIDED_BY_SCENARIO, ScalingReport
from kraft.fleet.traces import TraceProblem, interruption_text
from kraft.spark.finding_rows import from_rows, schema_of, to_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

#: The columns that identify a measure; those of runs and sizes are its points.
GROUP = Point._fields[:6]


@dataclass(frozen=True)
class FittedMeasure:
    """A law, or why there is none: exactly one of them."""

    law: PowerLaw | None
    refusal: Refusal | None


def scaling_on(
    spark: SparkSession, directories: Sequence[Path], *, skip_bad_lines: bool = False
) -> ScalingReport:
    """Return the laws of run directories.

    ``skip_bad_lines`` omits bad lines and lists them in the report; without it the first one fails
    the job. Raises Spark's exceptions if a job fails.
    """
    paths = [str(path) for path in directories]
    reader = spark.read.format("kraft-fleet")
    problems: list[TraceProblem] = []
    if skip_bad_lines:
        reader = reader.option("mode", "PERMISSIVE")
        rows = spark.read.format("kraft-fleet").option("table", "problems").load(paths)
        problems = [TraceProblem(*row) for row in rows.orderBy("path", "line").collect()]
    # A problem without a line is a run that was left out.
    runs = len(paths) - sum(problem.line == 0 for problem in problems)
    return scaling_of_measures(reader.option("table", "measures").load(paths), runs, problems)


def scaling_of_measures(
    measures: DataFrame, runs: int, problems: Sequence[TraceProblem] = ()
) -> ScalingReport:
    """Return the laws of a table of measures of so many runs.

    Raises Spark's exceptions if a job fails.
    """
    unfinished = measures.where(
        (F.col("name") == "step") & ~F.col("is_complete") & (F.col("step") != WHOLE_RUN)
    )
    interrupted = sorted(
        interruption_text(row.run, row.step) for row in unfinished.select("run", "step").collect()
    )
    fitted = fit_measures(measures)
    found = [each.law for each in fitted if each.law is not None]
    refused = [each.refusal for each in fitted if each.refusal is not None]
    return ScalingReport(
        runs, tuple(corrected(found)), tuple(refused), tuple(problems), tuple(interrupted)
    )


def fit_measures(measures: DataFrame) -> list[FittedMeasure]:
    """Return the law or the refusal of each measure in a table of ``kraft-fleet``, in its order.

    The knees are not corrected for the number of tests: `kraft.fleet.scaling.corrected` does that.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    def work(group: pa.Table) -> pa.Table:
        points = [Point(**row) for row in group.select(Point._fields).to_pylist()]
        return to_rows(FittedMeasure, map(_fitted, group_laws(points)))

    rows = (
        measures.where(F.col("is_complete"))
        .where(~F.col("name").isin(*sorted(DECIDED_BY_SCENARIO)))
        .groupBy(*GROUP)
        .applyInArrow(work, from_arrow_schema(schema_of(FittedMeasure)))
        .toArrow()
    )
    return sorted(from_rows(FittedMeasure, rows), key=_order)


def _fitted(found: PowerLaw | Refusal) -> FittedMeasure:
    if isinstance(found, PowerLaw):
        return FittedMeasure(found, None)
    return FittedMeasure(None, found)


def _order(fitted: FittedMeasure) -> tuple[str, ...]:
    found = fitted.law or fitted.refusal
    assert found is not None
    return (*(getattr(found, name) for name in GROUP), found.against)
