"""Regression analysis of any number of results.

`analyse_source` runs in one process. An `AnalysisSource` provides the points: a store, whose tasks
read and analyse ranges of series (`store_source`), or any DataFrame, whose rows Spark must group
first (`kraft.spark.frame_source`). `table_analysis` analyses a table. The reports use the result.

Findings are small and return to that process, because the correction for many tests needs all of
them. Scaling laws need a second pass over the benchmarks with sizes; so do the histories that a
report draws. Results do not depend on partitions, workers or the order of rows: each history is
sorted before it is analysed, and findings are sorted by key.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import inf, log
from typing import Protocol

import pyarrow as pa

from kraft.errors import InvalidRequestError
from kraft.regression import multiple_testing, scaling
from kraft.regression.commit_order import (
    RunLike,
    Scope,
    commit_graph,
    mark_ended,
    order_runs,
    runs_in_scope,
)
from kraft.regression.findings import (
    Analysis,
    ChangePoint,
    ScalingLaw,
    SeriesFinding,
    SeriesOutcome,
)
from kraft.regression.points import Series, SeriesKey
from kraft.regression.project_rules import ProjectRules
from kraft.regression.report_text import changed_first
from kraft.regression.settings import AnalysisSettings
from kraft.regression.table_analysis import AnalysedSeries, Benchmark, benchmarks_with_sizes
from kraft.regression.tasks import IN_PROCESS, TaskRunner
from kraft.regression.verdict_matching import with_verdicts
from kraft.regression.verdicts import VerdictLedger

#: The main branch of every project.
MAIN = Scope()
#: Without a ``kraft-regress.toml``.
NO_RULES = ProjectRules()
#: Without verdicts of people.
NO_VERDICTS = VerdictLedger()


class AnalysisSource(Protocol):
    """Points, analysed where they are stored."""

    def runs(self) -> Sequence[RunLike]:
        """Return all runs, in any order."""

    def analysed(self, settings: AnalysisSettings, order: pa.Array) -> Iterable[AnalysedSeries]:
        """Return the finding of every series of the runs in ``order`` (ids, oldest first), in any
        order.
        """

    def laws(
        self,
        of: dict[Benchmark, list[SeriesKey]],
        settings: AnalysisSettings,
        size_param: str | None,
        order: pa.Array,
    ) -> Iterable[ScalingLaw]:
        """Return the laws of these benchmarks, in any order."""

    def histories(
        self, keys: Sequence[SeriesKey], settings: AnalysisSettings, order: pa.Array
    ) -> dict[SeriesKey, Series]:
        """Return the histories of these series, on the driver."""

    def machines(self) -> dict[str, str]:
        """Return the description of each machine in its newest run: a JSON object."""

    def first_run_of(self, commit: str) -> datetime | None:
        """Return when a commit with this prefix was first measured."""


def analyse_store(
    store: str | os.PathLike[str],
    settings: AnalysisSettings,
    *,
    version: int | str | None = None,
    benchmark: str | None = None,
    machine: str | None = None,
    since: datetime | str | None = None,
    size_param: str | None = None,
    kept_runs: int = 0,
    scope: Scope = MAIN,
    rules: ProjectRules = NO_RULES,
    verdicts: VerdictLedger = NO_VERDICTS,
    tasks: TaskRunner = IN_PROCESS,
) -> Analysis:
    """Return the findings of every history in a store.

    ``version`` is that of `store.open_store`. ``benchmark`` is a glob (`commit_order.glob_pattern`)
    for ``suite::benchmark`` or the benchmark alone, ``machine`` one for the machine. ``since``, a
    time or a text for `time_of`, omits change points before it; earlier runs are analysed
    nevertheless, because the first later runs need them as baseline. ``size_param`` names the size
    parameter of scaling laws. ``kept_runs`` limits the total runs of the histories that are kept
    for a report, largest changes first. ``scope`` selects projects and branches and the commit
    order; the default is each project's main branch. ``rules`` are those of the project's
    ``kraft-regress.toml``. ``verdicts`` are those of people, from
    `verdict_store.load_verdicts`. ``tasks`` runs the parts; its machines need access to the store.

    Raises StorageError if there is no store.
    """
    from kraft.regression.store_source import StoreSource

    named = None if rules.rename else benchmark
    source = StoreSource(store, version=version, benchmark=named, machine=machine, tasks=tasks)
    return analyse_source(
        source,
        settings,
        since,
        size_param,
        kept_runs,
        scope,
        rules,
        benchmark=benchmark,
        verdicts=verdicts,
    )


def analyse_source(
    source: AnalysisSource,
    settings: AnalysisSettings,
    since: datetime | str | None,
    size_param: str | None,
    kept_runs: int,
    scope: Scope,
    rules: ProjectRules = NO_RULES,
    benchmark: str | None = None,
    verdicts: VerdictLedger = NO_VERDICTS,
) -> Analysis:
    """Analyse any source; see `analyse_store`.

    With ``rules.rename``, ``source`` has all benchmarks, and ``benchmark`` selects new names.
    """
    without_effect: list[str] = []
    if rules:
        from kraft.regression.ruled_source import RuledSource

        source = ruled = RuledSource(source, rules, benchmark)
        without_effect = ruled.problems
    if isinstance(since, str):
        since = time_of(source, since)
    runs, left_out = runs_in_scope(source.runs(), scope)
    order = order_runs(runs, commit_graph(runs, scope.repository))
    ids = pa.array(order, pa.string())
    analysed = sorted(source.analysed(settings, ids), key=lambda each: each.finding.key)
    findings = multiple_testing.correct([each.finding for each in analysed], settings)
    findings = mark_ended(findings, order, runs)
    of = benchmarks_with_sizes([each.key for each in findings], size_param)
    laws = sorted(
        source.laws(of, settings, size_param, ids) if of else [],
        key=lambda each: (each.key, each.size_param),
    )
    if size_param is not None and not laws:
        without_effect.append(
            f"size parameter {size_param!r}: no benchmark has three numeric sizes of it"
        )
    laws = multiple_testing.correct_laws(laws, settings)
    findings, laws, expectations = with_verdicts(
        findings,
        laws,
        verdicts,
        order,
        lambda keys: source.histories(keys, settings, ids),
        rules,
        settings.statistic,
    )
    if since is not None:
        findings = tuple(_since(each, since) for each in findings)
        laws = [replace(each, change_points=_after(each.change_points, since)) for each in laws]
    machines = source.machines()
    findings = _with_histories(source, findings, settings, kept_runs, ids)
    return Analysis(
        settings=settings,
        series=findings,
        scaling=_with_exponents(source, laws, findings, settings, kept_runs, ids),
        machines={name: machines[name] for name in sorted({each.key.machine for each in findings})},
        problems=(*left_out, *without_effect, *_problems(analysed, settings)),
        expectations=expectations,
    )


def time_of(source: AnalysisSource, text: str) -> datetime:
    """Return the time of ``text``: an ISO 8601 date or time (UTC by default), or a commit's first
    run.

    A commit may be given by its first digits. Raises InvalidRequestError for other texts.
    """
    # Eight digits may be a date or a commit; a measured commit takes precedence.
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
    """Return a finding without changes before ``since`` and drifts that ended before it."""
    at = round(since.timestamp() * 1e6)
    points = _after(finding.change_points, since)
    drifts = tuple(each for each in finding.drifts if each.end_time_us >= at)
    variances = tuple(each for each in finding.variance_changes if each.time_us >= at)
    outcome = finding.outcome
    if outcome is SeriesOutcome.CHANGED and not (points or drifts or variances):
        outcome = SeriesOutcome.STABLE
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


def _problems(analysed: Sequence[AnalysedSeries], settings: AnalysisSettings) -> Iterable[str]:
    """Yield a line for each series with omitted runs."""
    for each in analysed:
        if each.left_out:
            runs = "1 run" if each.left_out == 1 else f"{each.left_out:,} runs"
            key = each.finding.key
            left_out = f"{runs} omitted, without a usable {settings.statistic}"
            yield f"{key.name} on {key.machine}: {left_out}"


def _with_histories(
    source: AnalysisSource,
    findings: tuple[SeriesFinding, ...],
    settings: AnalysisSettings,
    kept_runs: int,
    order: pa.Array,
) -> tuple[SeriesFinding, ...]:
    """Return the findings; those with the largest changes keep their series, ``kept_runs`` runs in
    total.
    """
    wanted: list[SeriesKey] = []
    for each in sorted(findings, key=lambda each: (-_largest_change(each), each.key)):
        if 0 < each.run_count <= kept_runs:
            kept_runs -= each.run_count
            wanted.append(each.key)
    kept = source.histories(wanted, settings, order) if wanted else {}
    return tuple(
        replace(each, series=kept[each.key]) if each.key in kept else each for each in findings
    )


def _with_exponents(
    source: AnalysisSource,
    laws: Sequence[ScalingLaw],
    findings: Sequence[SeriesFinding],
    settings: AnalysisSettings,
    kept_runs: int,
    order: pa.Array,
) -> tuple[ScalingLaw, ...]:
    """Return the laws; those that a report shows first keep the history of their exponents, of
    ``kept_runs`` runs in total.
    """
    of_benchmark: dict[tuple[str, str, str], list[SeriesKey]] = {}
    for each in findings:
        key = each.key
        of_benchmark.setdefault((key.suite, key.benchmark, key.machine), []).append(key)
    wanted: dict[int, list[SeriesKey]] = {}
    for law in changed_first(laws):
        runs = law.run_count * len(law.sizes)
        if 0 < runs <= kept_runs:
            kept_runs -= runs
            alike = of_benchmark.get((law.key.suite, law.key.benchmark, law.key.machine), [])
            wanted[id(law)] = scaling.sizes_of(law, alike)
    kept = {each.key: each.series for each in findings if each.series is not None}
    missing = {key for keys in wanted.values() for key in keys} - kept.keys()
    if missing:
        kept |= source.histories(sorted(missing), settings, order)
    return tuple(
        replace(law, history=scaling.history(law, [kept[key] for key in keys if key in kept]))
        if (keys := wanted.get(id(law)))
        else law
        for law in laws
    )


def _largest_change(finding: SeriesFinding) -> float:
    """Return the largest change, up or down, in logarithms: twice as fast equals twice as slow."""
    return max(
        (abs(log(each)) if 0 < each < inf else inf for each in finding.worsenings), default=-1.0
    )
