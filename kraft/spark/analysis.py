"""Regression analysis of a store of any size: every history looked at where Spark has put it.

Owns which rows and columns are read, how they are grouped, what comes back to the driver. What is
computed of a group is `kraft.regression`'s, the same functions that need no Spark. Fed by `store`
or by anything else that gives `points.POINTS` as a DataFrame; feeds reports.

One pass over the points makes the findings: grouped by series, a group analysed whole in a Python
worker, a small row each sent back. The correction for many tests needs all of them and is done by
the driver. A second pass, over the benchmarks that have a size alone, makes scaling laws; a third
fetches the histories that a report draws. Results do not depend on partitions, workers or the order
of rows: a group is put in order before it is looked at, and findings are sorted by their keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (its name everywhere)
from pyspark.sql.pandas.types import from_arrow_schema

from kraft.errors import InvalidRequestError
from kraft.regression import history, multiplicity, scaling
from kraft.regression.findings import Analysis, ChangePoint, Outcome, ScalingLaw, SeriesFinding
from kraft.regression.points import Series, SeriesKey
from kraft.regression.series import gather
from kraft.regression.settings import Settings
from kraft.spark.finding_rows import from_rows, schema_of, to_rows

#: Round values of a run that are looked at. A fast function has 100,000 of them, and 10,000 runs of
#: it would not fit into a worker; an even selection says as much of how they vary.
MOST_ROUNDS = 256

_KEY = list(SeriesKey._fields)
_BENCHMARK = ["suite", "benchmark", "machine"]


@dataclass(frozen=True)
class _Looked:
    """What a worker tells of one series."""

    finding: SeriesFinding
    left_out: int


def analyse(
    points: DataFrame,
    settings: Settings,
    *,
    benchmark: str | None = None,
    machine: str | None = None,
    since: datetime | None = None,
    size_param: str | None = None,
    kept_runs: int = 0,
) -> Analysis:
    """Every history in ``points``: where it changed, by how much, how certain that is.

    ``benchmark`` is a glob (`glob_pattern`) for ``suite::benchmark`` or the benchmark alone,
    ``machine`` one for the machine. ``since`` leaves out change points before it; the runs before
    it are looked at all the same, as without them nothing could be said of the first ones after
    it. ``size_param`` names the parameter that scaling laws go by. ``kept_runs`` is how many runs'
    histories may come to the driver for a report that draws them, worst changes first.
    """
    chosen = select(points, benchmark=benchmark, machine=machine)
    looked = _findings(chosen, settings)
    findings = multiplicity.correct([each.finding for each in looked], settings)
    laws = _scaling_laws(chosen, [each.key for each in findings], settings, size_param)
    if since is not None:
        findings = tuple(_since(each, since) for each in findings)
        laws = [_law_since(each, since) for each in laws]
    return Analysis(
        settings=settings,
        series=_with_histories(chosen, findings, settings, kept_runs),
        scaling=tuple(laws),
        machines=_machines(chosen),
        problems=tuple(_problems(looked, settings)),
    )


def select(points: DataFrame, *, benchmark: str | None, machine: str | None) -> DataFrame:
    """The points of the benchmarks and machines that these globs name."""
    if benchmark is not None:
        pattern = glob_pattern(benchmark)
        full = F.concat_ws("::", "suite", "benchmark")
        points = points.where(F.col("benchmark").rlike(pattern) | full.rlike(pattern))
    if machine is not None:
        points = points.where(F.col("machine").rlike(glob_pattern(machine)))
    return points


def glob_pattern(glob: str) -> str:
    """A glob as a regular expression, the same to Python, Java and Arrow.

    ``*`` is any text, ``?`` one character; everything else is itself, brackets included, as they
    are part of parametrised names.
    """
    special = {"*": ".*", "?": "."}
    return "^" + "".join(special.get(each) or re.escape(each) for each in glob) + "$"


def time_of(points: DataFrame, text: str) -> datetime:
    """When ``text`` was: a date or time in ISO 8601 (UTC unless it says otherwise), or the first
    run of the commit that begins like it.

    Raises InvalidRequestError where it is neither.
    """
    try:
        at = datetime.fromisoformat(text)
        return at if at.tzinfo else at.replace(tzinfo=UTC)
    except ValueError:
        pass
    if re.fullmatch("[0-9a-fA-F]{4,}", text):
        first = points.where(F.col("commit").startswith(text.lower())).agg(
            F.unix_micros(F.min("time"))
        )
        found = first.collect()[0][0]
        if found is not None:
            return datetime.fromtimestamp(found / 1e6, UTC)
    raise InvalidRequestError(
        f"{text!r} is neither a date (2026-11-21, 2026-11-21T14:30) nor a commit of any run here"
    )


def histories(
    points: DataFrame, keys: Sequence[SeriesKey], settings: Settings
) -> dict[SeriesKey, Series]:
    """The histories of these series, on the driver."""
    if not keys:
        return {}
    wanted = points.sparkSession.createDataFrame(
        [tuple(key) for key in keys], ", ".join(f"{name} string" for name in _KEY)
    )
    rows = _columns(points.join(F.broadcast(wanted), _KEY, "left_semi"), settings).toArrow()
    return {key: gather(key, group, settings.statistic)[0] for key, group in _groups(rows, _KEY)}


# ---------------------------------------------------------------------------------------------
# Findings


def _columns(points: DataFrame, settings: Settings, *, rounds: bool = True) -> DataFrame:
    """What is read of the points: keys, order, value; the round values where they are of use."""
    columns = [*map(F.col, _KEY), *map(F.col, ("run_id", "time", "commit"))]
    columns.append(F.col(settings.statistic).alias("value"))
    if rounds and settings.statistic != "instructions":
        saved = F.col("values")
        columns.append(
            F.when(F.size(saved) <= MOST_ROUNDS, saved)
            .otherwise(
                F.transform(
                    F.sequence(F.lit(0), F.lit(MOST_ROUNDS - 1)),
                    lambda i: F.get(saved, F.floor(i * F.size(saved) / MOST_ROUNDS).cast("int")),
                )
            )
            .alias("rounds")
        )
    return points.select(*columns)


def _findings(points: DataFrame, settings: Settings) -> list[_Looked]:
    """Each series looked at by itself, in the order of the keys."""

    def look(group: pa.Table) -> pa.Table:
        return _look(group, settings)

    rows = (
        _columns(points, settings)
        .groupBy(*_KEY)
        .applyInArrow(look, from_arrow_schema(schema_of(_Looked)))
        .toArrow()
    )
    return sorted(from_rows(_Looked, rows), key=lambda each: each.finding.key)


def _look(group: pa.Table, settings: Settings) -> pa.Table:
    """One series in a worker."""
    ((key, rows),) = _groups(group, _KEY)
    series, left_out = gather(key, rows, settings.statistic)
    return to_rows(_Looked, [_Looked(history.analyse(series, settings), left_out)])


def _groups(rows: pa.Table, by: list[str]) -> Iterable[tuple[SeriesKey, pa.Table]]:
    """The series in these rows, each with its rows; ``by`` may leave out what all share."""
    if rows.num_rows == 0:
        return
    rows = rows.combine_chunks().sort_by([(name, "ascending") for name in by])
    keys = [rows[name] for name in by]
    changes = np.zeros(rows.num_rows - 1, dtype=bool)
    for column in keys:
        codes = column.combine_chunks().dictionary_encode().indices.to_numpy()
        changes |= codes[1:] != codes[:-1]
    inner = [int(at) + 1 for at in np.flatnonzero(changes)]
    starts = [0, *inner, rows.num_rows]
    for start, end in pairwise(starts):
        yield (
            SeriesKey(*(rows[name][start].as_py() for name in _KEY)),
            rows.slice(start, end - start),
        )


def _since(finding: SeriesFinding, since: datetime) -> SeriesFinding:
    """A finding without the change points before ``since``."""
    points = _after(finding.change_points, since)
    outcome = finding.outcome
    if outcome is Outcome.CHANGED and not points:
        outcome = Outcome.STABLE
    return replace(finding, change_points=points, outcome=outcome)


def _law_since(law: ScalingLaw, since: datetime) -> ScalingLaw:
    return replace(law, change_points=_after(law.change_points, since))


def _after(points: tuple[ChangePoint, ...], since: datetime) -> tuple[ChangePoint, ...]:
    at = round(since.timestamp() * 1e6)
    return tuple(point for point in points if point.time_us >= at)


def _problems(looked: Sequence[_Looked], settings: Settings) -> Iterable[str]:
    """What was left out."""
    for each in looked:
        if each.left_out:
            runs = "1 run" if each.left_out == 1 else f"{each.left_out:,} runs"
            key = each.finding.key
            left_out = f"{runs} left out, without a usable {settings.statistic}"
            yield f"{key.name} on {key.machine}: {left_out}"


# ---------------------------------------------------------------------------------------------
# Scaling laws, histories, machines


def _scaling_laws(
    points: DataFrame, keys: Sequence[SeriesKey], settings: Settings, size_param: str | None
) -> list[ScalingLaw]:
    """The laws of those benchmarks that have several sizes."""
    sized = _sized(keys, size_param)
    if not sized:
        return []

    def fit(group: pa.Table) -> pa.Table:
        series = [gather(key, rows, settings.statistic)[0] for key, rows in _groups(group, _KEY)]
        return to_rows(ScalingLaw, scaling.laws(series, settings, size_param))

    wanted = points.sparkSession.createDataFrame(
        sized, ", ".join(f"{name} string" for name in _BENCHMARK)
    )
    rows = (
        _columns(points.join(F.broadcast(wanted), _BENCHMARK, "left_semi"), settings, rounds=False)
        .groupBy(*_BENCHMARK)
        .applyInArrow(fit, from_arrow_schema(schema_of(ScalingLaw)))
        .toArrow()
    )
    laws = sorted(from_rows(ScalingLaw, rows), key=lambda each: (each.key, each.size_param))
    return multiplicity.correct_laws(laws, settings)


def _sized(keys: Iterable[SeriesKey], size_param: str | None) -> list[tuple[str, str, str]]:
    """The benchmarks with a parameter that has enough different numbers to fit a law to."""
    numbers: dict[tuple[str, str, str], dict[str, set[float]]] = {}
    for key in keys:
        of_benchmark = numbers.setdefault((key.suite, key.benchmark, key.machine), {})
        for name, value in json.loads(key.params).items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                of_benchmark.setdefault(name, set()).add(value)
    return [
        each
        for each, params in numbers.items()
        if any(
            len(values) >= scaling.FEWEST_SIZES
            for name, values in params.items()
            if size_param in (None, name)
        )
    ]


def _with_histories(
    points: DataFrame,
    findings: tuple[SeriesFinding, ...],
    settings: Settings,
    kept_runs: int,
) -> tuple[SeriesFinding, ...]:
    """The findings, the worst of them with their histories: ``kept_runs`` runs in all."""
    by_size = sorted(findings, key=lambda each: (-_largest_change(each), each.key))
    wanted: list[SeriesKey] = []
    for each in by_size:
        if each.run_count <= kept_runs:
            kept_runs -= each.run_count
            wanted.append(each.key)
    kept = histories(points, wanted, settings)
    return tuple(
        replace(each, series=kept[each.key]) if each.key in kept else each for each in findings
    )


def _largest_change(finding: SeriesFinding) -> float:
    """How far a history ever went, up or down, in logarithms: twice as fast counts as twice as
    slow does."""
    ratios = [point.ratio.value for point in finding.change_points]
    return max((abs(float(np.log(each))) if each > 0 else np.inf for each in ratios), default=-1.0)


def _machines(points: DataFrame) -> dict[str, str]:
    """Each machine as its newest run describes it."""
    newest = points.groupBy("machine").agg(
        F.max(F.struct("time", "run_id", "machine_info")).alias("newest")
    )
    rows = newest.select("machine", "newest.machine_info").collect()
    return {row["machine"]: row["machine_info"] for row in sorted(rows)}
