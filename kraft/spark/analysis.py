"""Regression analysis of any number of results: every history looked at where its points lie.

Owns what an analysis is made of and what the driver does with it. What is computed of a table is
`looking`'s; where tables come from is a `Source`: a store, whose buckets hold series whole and are
read by whoever looks at them (`point_buckets`), or any DataFrame of points, which Spark has to
group first (`point_frames`). Feeds reports.

Findings are small and come to the driver; the correction for many tests needs all of them. Scaling
laws take a second pass, over benchmarks that have sizes alone, and so do the histories that a
report draws. Results do not depend on partitions, workers or the order of rows: a history is put in
order before it is looked at, and findings are sorted by their keys.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import inf, log
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from kraft.errors import InvalidRequestError
from kraft.regression import multiplicity
from kraft.regression.findings import Analysis, ChangePoint, Outcome, ScalingLaw, SeriesFinding
from kraft.regression.lineage import RunLike, Scope, chosen, graph_of, ordered, with_ends
from kraft.regression.points import Series, SeriesKey
from kraft.regression.settings import Settings
from kraft.spark.looking import Benchmark, Looked, sized

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


#: The main branch of every project.
MAIN = Scope()


class Source(Protocol):
    """Points, looked at by whoever is near them."""

    def runs(self) -> Sequence[RunLike]:
        """All runs, in any order."""

    def looked(self, settings: Settings, order: pa.Array) -> Iterable[Looked]:
        """Every series of the runs in ``order`` (ids, oldest first), in any order."""

    def laws(
        self,
        of: dict[Benchmark, list[SeriesKey]],
        settings: Settings,
        size_param: str | None,
        order: pa.Array,
    ) -> Iterable[ScalingLaw]:
        """The laws of these benchmarks, in any order."""

    def histories(
        self, keys: Sequence[SeriesKey], settings: Settings, order: pa.Array
    ) -> dict[SeriesKey, Series]:
        """The histories of these series, on the driver."""

    def machines(self) -> dict[str, str]:
        """Each machine as its newest run describes it: a JSON object."""

    def first_run_of(self, commit: str) -> datetime | None:
        """When a commit that begins so was first measured."""


def analyse(
    points: DataFrame,
    settings: Settings,
    *,
    benchmark: str | None = None,
    machine: str | None = None,
    since: datetime | str | None = None,
    size_param: str | None = None,
    kept_runs: int = 0,
    scope: Scope = MAIN,
) -> Analysis:
    """Every history in a DataFrame of points: where it changed, by how much, how certain that is.

    ``benchmark`` is a glob (`looking.glob_pattern`) for ``suite::benchmark`` or the benchmark
    alone, ``machine`` one for the machine. ``since``, a time or what `time_of` understands, leaves
    out change points before it; the runs before it are looked at all the same, as without them
    nothing could be said of the first ones after it. ``size_param`` names the parameter that
    scaling laws go by. ``kept_runs`` is how many runs' histories may come to the driver for a
    report that draws them, largest changes first. ``scope`` says which projects and branches are
    looked at, and by which commits they are ordered: each project's main branch by default.
    """
    from kraft.spark.point_frames import FrameSource

    source = FrameSource(points, benchmark=benchmark, machine=machine)
    return analyse_source(source, settings, since, size_param, kept_runs, scope)


def analyse_store(
    spark: SparkSession | None,
    store: str | os.PathLike[str],
    settings: Settings,
    *,
    benchmark: str | None = None,
    machine: str | None = None,
    since: datetime | str | None = None,
    size_param: str | None = None,
    kept_runs: int = 0,
    scope: Scope = MAIN,
) -> Analysis:
    """`analyse` of a store, bucket by bucket and without a shuffle; the same findings.

    The store is a path that all of Spark's workers see. ``spark`` None looks at it in this process,
    which for a small store is over before a session has started.

    Raises StorageError where there is no store.
    """
    from kraft.spark.point_buckets import StoreSource

    source = StoreSource(spark, store, benchmark=benchmark, machine=machine)
    return analyse_source(source, settings, since, size_param, kept_runs, scope)


def analyse_source(
    source: Source,
    settings: Settings,
    since: datetime | str | None,
    size_param: str | None,
    kept_runs: int,
    scope: Scope,
) -> Analysis:
    """What `analyse` says, of any source."""
    if isinstance(since, str):
        since = time_of(source, since)
    runs, left_out = chosen(source.runs(), scope)
    order = ordered(runs, graph_of(runs, scope.repository))
    ids = pa.array(order, pa.string())
    looked = sorted(source.looked(settings, ids), key=lambda each: each.finding.key)
    findings = multiplicity.correct([each.finding for each in looked], settings)
    findings = with_ends(findings, order, runs)
    of = sized([each.key for each in findings], size_param)
    laws = sorted(
        source.laws(of, settings, size_param, ids) if of else [],
        key=lambda each: (each.key, each.size_param),
    )
    laws = multiplicity.correct_laws(laws, settings)
    if since is not None:
        findings = tuple(_since(each, since) for each in findings)
        laws = [replace(each, change_points=_after(each.change_points, since)) for each in laws]
    machines = source.machines()
    return Analysis(
        settings=settings,
        series=_with_histories(source, findings, settings, kept_runs, ids),
        scaling=tuple(laws),
        machines={name: machines[name] for name in sorted({each.key.machine for each in findings})},
        problems=(*left_out, *_problems(looked, settings)),
    )


def time_of(source: Source, text: str) -> datetime:
    """When ``text`` was: a date or time in ISO 8601 (UTC unless it says otherwise), or the first
    run of the commit that begins like it.

    Raises InvalidRequestError where it is neither.
    """
    # Eight digits may be either; a commit that was measured is meant.
    if re.fullmatch("[0-9a-fA-F]{4,64}", text):
        found = source.first_run_of(text.lower())
        if found is not None:
            return found
    try:
        at = datetime.fromisoformat(text)
        return at if at.tzinfo else at.replace(tzinfo=UTC)
    except ValueError:
        raise InvalidRequestError(
            f"{text!r} is neither a date (2026-11-21, 2026-11-21T14:30) nor a commit of any run"
        ) from None


def _since(finding: SeriesFinding, since: datetime) -> SeriesFinding:
    """A finding without what changed, or ceased to drift, before ``since``."""
    at = round(since.timestamp() * 1e6)
    points = _after(finding.change_points, since)
    drifts = tuple(each for each in finding.drifts if each.end_time_us >= at)
    variances = tuple(each for each in finding.variance_changes if each.time_us >= at)
    outcome = finding.outcome
    if outcome is Outcome.CHANGED and not (points or drifts or variances):
        outcome = Outcome.STABLE
    return replace(
        finding,
        change_points=points,
        drifts=drifts,
        variance_changes=variances,
        outcome=outcome,
    )


def _after(points: tuple[ChangePoint, ...], since: datetime) -> tuple[ChangePoint, ...]:
    at = round(since.timestamp() * 1e6)
    return tuple(point for point in points if point.time_us >= at)


def _problems(looked: Sequence[Looked], settings: Settings) -> Iterable[str]:
    """What was left out."""
    for each in looked:
        if each.left_out:
            runs = "1 run" if each.left_out == 1 else f"{each.left_out:,} runs"
            key = each.finding.key
            left_out = f"{runs} left out, without a usable {settings.statistic}"
            yield f"{key.name} on {key.machine}: {left_out}"


def _with_histories(
    source: Source,
    findings: tuple[SeriesFinding, ...],
    settings: Settings,
    kept_runs: int,
    order: pa.Array,
) -> tuple[SeriesFinding, ...]:
    """The findings, the worst of them with their histories: ``kept_runs`` runs in all."""
    wanted: list[SeriesKey] = []
    for each in sorted(findings, key=lambda each: (-_largest_change(each), each.key)):
        if 0 < each.run_count <= kept_runs:
            kept_runs -= each.run_count
            wanted.append(each.key)
    kept = source.histories(wanted, settings, order) if wanted else {}
    return tuple(
        replace(each, series=kept[each.key]) if each.key in kept else each for each in findings
    )


def _largest_change(finding: SeriesFinding) -> float:
    """How far a history ever went, up or down, in logarithms: twice as fast counts as twice as
    slow does."""
    return max((abs(log(each)) if 0 < each < inf else inf for each in finding.ratios), default=-1.0)
