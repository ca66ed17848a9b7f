"""Findings as JSON documents for other programs.

The keys are stable; new ones may be added. Times are ISO 8601 in UTC with microseconds, durations
are seconds, other values in their ``unit``; ratios are new / old. Unknown and non-finite values are
null.

An analysis:

``settings``           the settings, by the names of `settings.AnalysisSettings`
``summary``            ``series``, ``changed``, ``too_little_data``, ``regressions``,
                       ``improvements``, ``drifts``, ``variance_changes``, ``scaling_changed``,
                       ``ended``, ``began``, ``machines``, ``problems``: counts; ``alarms``
                       (regressions that no verdict covers, of drifts and scaling laws as well),
                       ``did_not_come`` (expected changes)
``change_points``      all change points, worst regression first; see below
``drifts``             slow drifts, worst first; see below
``variance_changes``   changes of variance, largest increase first; see below
``series``             ``suite``, ``benchmark``, ``params``, ``machine``, ``outcome`` ("stable",
                       "changed", "too little data"), ``runs``, ``first_time``, ``last_time``,
                       ``last_value``, ``noise``, ``ended`` (newer runs of its suite do
                       not contain it), ``renamed_to`` (or null), ``began`` (older runs do not
                       contain it), ``change_points``, ``drifts``, ``variance_changes`` (how many)
``scaling``            ``suite``, ``benchmark``, ``params``, ``machine``, ``size_param``, ``sizes``,
                       ``values``, ``exponent``, ``low``, ``high``, ``runs``, ``change_points``
``machines``           machine -> its description
``expectations``       expected changes: the keys of a series, ``state`` ("awaited", "came", "did
                       not come"), ``runs_since`` (since it was expected), ``verdict``
``problems``           skipped input with reasons: texts

Every object with a ``machine`` also has ``project`` and ``branch``, null if unknown. Change points,
drifts, series and comparisons also have ``unit`` ("s", "B", "ops/s"; "" for a count) and
``bigger_is_better``.

A change point: ``suite``, ``benchmark``, ``params``, ``machine``, ``statistic``, ``kind``
("regression" or "improvement"), ``index``, ``time``, ``run_before``, ``run_after``,
``commit_before``, ``commit_after``, ``same_commit``, ``count_before``, ``count_after``,
``mean_before``, ``mean_after``, ``stddev_before``, ``stddev_after``, ``ratio`` (``value``, ``low``,
``high``), ``p_value``, ``q_value``, ``surely_old_run`` and ``surely_new_run`` (the change begins
after the one and at the other at the latest), ``verdict``: null, or the person's verdict with its
``state`` ("accepted", "expected", "watched"; "worse than its verdict" and "no longer watched"
are alarms). One of a scaling law has the statistic "exponent".

A drift: ``suite``, ``benchmark``, ``params``, ``machine``, ``statistic``, ``kind``,
``start_index``, ``end_index``, ``start_time``, ``end_time``, ``run_start``, ``run_end``,
``commit_start``, ``commit_end``, ``ongoing`` (fewer than 10 runs since), ``mean_before``,
``mean_after``, ``slope`` (relative change per run), ``ratio``, ``p_value``, ``q_value``,
``surely_old_run``, ``surely_new_run``, ``verdict``.

A verdict: ``id``, ``kind`` ("accept", "expect", "watch", "reopen"), ``time``, ``by``, ``reason``,
the keys of the series as it was named then, ``statistic``, ``size_param`` (of a scaling law, or
null), ``direction`` ("regression" or "improvement"), ``run_before``, ``run_after``,
``commit_before``, ``commit_after``, ``surely_old_run``, ``surely_new_run``, ``ratio``, ``limit``
(the worsening that it covers, 1.2 is 20 %; null is any), ``within`` and ``within_unit`` ("runs" or
"commits") of an expectation, ``until`` (of a watch, or null), ``replaces`` (an id, or null).

A change of variance: ``suite``, ``benchmark``, ``params``, ``machine``, ``statistic``, ``index``,
``time``, ``run_before``, ``run_after``, ``commit_before``, ``commit_after``, ``noise_before``,
``noise_after`` (standard deviation / mean), ``p_value``, ``q_value``.

A comparison: ``summary`` (``compared``, ``regressions``, ``improvements``) and ``comparisons``,
worst first, each with ``suite``, ``benchmark``, ``params``, ``machine``, ``statistic``,
``runs_base``, ``runs_candidate``, ``base``, ``candidate``, ``ratio`` (or null), ``p_value``,
``q_value``, ``significant``, ``regression``, ``improvement``, ``note``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from kraft.regression import report_text
from kraft.regression.findings import (
    Analysis,
    ChangeKind,
    ChangePoint,
    Comparison,
    Drift,
    Ratio,
    ScalingLaw,
    SeriesFinding,
    SeriesOutcome,
    VarianceChange,
)
from kraft.regression.points import BenchmarkMetric, SeriesKey
from kraft.regression.verdicts import AppliedVerdict, ExpectationState, Verdict


def as_json(analysis: Analysis) -> dict[str, Any]:
    """Return an analysis as a value for `json.dumps`, also with ``allow_nan=False``."""
    points = analysis.change_points
    outcomes = [each.outcome for each in analysis.series]
    regressions = sum(point.kind is ChangeKind.REGRESSION for point in points)
    return {
        "settings": asdict(analysis.settings),
        "summary": {
            "series": len(analysis.series),
            "changed": outcomes.count(SeriesOutcome.CHANGED),
            "too_little_data": outcomes.count(SeriesOutcome.TOO_LITTLE_DATA),
            "regressions": regressions,
            "improvements": len(points) - regressions,
            "drifts": len(analysis.drifts),
            "variance_changes": len(analysis.variance_changes),
            "scaling_changed": sum(bool(law.change_points) for law in analysis.scaling),
            "ended": sum(each.ended for each in analysis.series),
            "began": sum(each.began for each in analysis.series),
            "machines": len({each.key.machine for each in analysis.series}),
            "alarms": len(analysis.alarms),
            "did_not_come": sum(
                each.state is ExpectationState.DID_NOT_COME for each in analysis.expectations
            ),
            "problems": len(analysis.problems),
        },
        "change_points": [_change_point(point) for point in points],
        "drifts": [_drift(each) for each in analysis.drifts],
        "variance_changes": [_variance_change(each) for each in analysis.variance_changes],
        "series": [_series(each) for each in analysis.series],
        "scaling": [_scaling(law) for law in analysis.scaling],
        "machines": {
            machine: _parsed(description)
            for machine, description in (analysis.machines or {}).items()
        },
        "expectations": [
            {
                **_key(each.key),
                "state": each.state.value,
                "runs_since": each.runs_since,
                "verdict": verdict_as_json(each.verdict),
            }
            for each in analysis.expectations
        ],
        "problems": list(analysis.problems),
    }


def comparison_as_json(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Return a comparison as a value for `json.dumps`."""
    return {
        "summary": {
            "compared": len(comparisons),
            "regressions": sum(each.is_regression for each in comparisons),
            "improvements": sum(each.is_improvement for each in comparisons),
        },
        "comparisons": [_comparison(each) for each in report_text.worst_first(comparisons)],
    }


def verdict_as_json(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as a value for `json.dumps`."""
    ratio = None
    if verdict.ratio is not None:
        names = {"value": "ratio", "low": "ratio_low", "high": "ratio_high"}
        ratio = {name: _number(getattr(verdict, field)) for name, field in names.items()}
    return {
        "id": verdict.id,
        "kind": verdict.kind.value,
        "time": report_text.iso_time(verdict.time_us) if verdict.time_us else None,
        "by": verdict.author,
        "reason": verdict.reason,
        **_key(verdict.key),
        "statistic": verdict.statistic,
        "size_param": verdict.size_param,
        "direction": (ChangeKind.REGRESSION if verdict.is_worse else ChangeKind.IMPROVEMENT).value,
        "run_before": verdict.run_before,
        "run_after": verdict.run_after,
        "commit_before": verdict.commit_before,
        "commit_after": verdict.commit_after,
        "surely_old_run": verdict.surely_old_run,
        "surely_new_run": verdict.surely_new_run,
        "ratio": ratio,
        "limit": _number(verdict.limit),
        "within": verdict.within,
        "within_unit": None
        if verdict.within is None
        else ("commits" if verdict.within_commits else "runs"),
        "until": None if verdict.until_us is None else report_text.iso_time(verdict.until_us),
        "replaces": verdict.replaces,
    }


def _applied(applied: AppliedVerdict | None) -> dict[str, Any] | None:
    if applied is None:
        return None
    return {**verdict_as_json(applied.verdict), "state": applied.state.value}


def _key(key: SeriesKey) -> dict[str, Any]:
    return {
        "suite": key.suite,
        "benchmark": key.benchmark,
        "params": _parsed(key.params),
        "machine": key.machine,
        "project": key.project or None,
        "branch": key.branch or None,
    }


def _metric(metric: BenchmarkMetric) -> dict[str, Any]:
    return {"unit": metric.unit, "bigger_is_better": metric.bigger_is_better}


def _change_point(point: ChangePoint) -> dict[str, Any]:
    return {
        **_key(point.key),
        **_metric(point.metric),
        "statistic": point.statistic,
        "kind": point.kind.value,
        "index": point.index,
        "time": report_text.iso_time(point.time_us),
        "run_before": point.run_before,
        "run_after": point.run_after,
        "commit_before": point.commit_before,
        "commit_after": point.commit_after,
        "same_commit": point.same_commit,
        "count_before": point.count_before,
        "count_after": point.count_after,
        "mean_before": _number(point.mean_before),
        "mean_after": _number(point.mean_after),
        "stddev_before": _number(point.stddev_before),
        "stddev_after": _number(point.stddev_after),
        "ratio": _ratio(point.ratio),
        "p_value": _number(point.p_value),
        "q_value": _number(point.q_value),
        "surely_old_run": point.surely_old_run,
        "surely_new_run": point.surely_new_run,
        "verdict": _applied(point.verdict),
    }


def _drift(drift: Drift) -> dict[str, Any]:
    return {
        **_key(drift.key),
        **_metric(drift.metric),
        "statistic": drift.statistic,
        "kind": drift.kind.value,
        "start_index": drift.start_index,
        "end_index": drift.end_index,
        "start_time": report_text.iso_time(drift.start_time_us),
        "end_time": report_text.iso_time(drift.end_time_us),
        "run_start": drift.run_start,
        "run_end": drift.run_end,
        "commit_start": drift.commit_start,
        "commit_end": drift.commit_end,
        "ongoing": drift.is_ongoing,
        "mean_before": _number(drift.mean_before),
        "mean_after": _number(drift.mean_after),
        "slope": _number(drift.slope),
        "ratio": _ratio(drift.ratio),
        "p_value": _number(drift.p_value),
        "q_value": _number(drift.q_value),
        "surely_old_run": drift.surely_old_run,
        "surely_new_run": drift.surely_new_run,
        "verdict": _applied(drift.verdict),
    }


def _variance_change(change: VarianceChange) -> dict[str, Any]:
    return {
        **_key(change.key),
        "statistic": change.statistic,
        "index": change.index,
        "time": report_text.iso_time(change.time_us),
        "run_before": change.run_before,
        "run_after": change.run_after,
        "commit_before": change.commit_before,
        "commit_after": change.commit_after,
        "noise_before": _number(change.noise_before),
        "noise_after": _number(change.noise_after),
        "p_value": _number(change.p_value),
        "q_value": _number(change.q_value),
    }


def _series(finding: SeriesFinding) -> dict[str, Any]:
    return {
        **_key(finding.key),
        **_metric(finding.metric),
        "outcome": finding.outcome.value,
        "runs": finding.run_count,
        "first_time": report_text.iso_time(finding.first_time_us) if finding.run_count else None,
        "last_time": report_text.iso_time(finding.last_time_us) if finding.run_count else None,
        "last_value": _number(finding.last_value),
        "noise": _number(finding.noise),
        "ended": finding.ended,
        "renamed_to": finding.renamed_to,
        "began": finding.began,
        "change_points": len(finding.change_points),
        "drifts": len(finding.drifts),
        "variance_changes": len(finding.variance_changes),
    }


def _scaling(law: ScalingLaw) -> dict[str, Any]:
    return {
        **_key(law.key),
        "size_param": law.size_param,
        "sizes": [_number(size) for size in law.sizes],
        "values": [_number(value) for value in law.values],
        "exponent": _number(law.exponent),
        "low": _number(law.low),
        "high": _number(law.high),
        "runs": law.run_count,
        "change_points": [_change_point(point) for point in law.change_points],
    }


def _comparison(comparison: Comparison) -> dict[str, Any]:
    return {
        **_key(comparison.key),
        **_metric(comparison.metric),
        "statistic": comparison.statistic,
        "runs_base": comparison.runs_base,
        "runs_candidate": comparison.runs_candidate,
        "base": _number(comparison.base),
        "candidate": _number(comparison.candidate),
        "ratio": _ratio(comparison.ratio),
        "p_value": _number(comparison.p_value),
        "q_value": _number(comparison.q_value),
        "significant": comparison.is_significant,
        "regression": comparison.is_regression,
        "improvement": comparison.is_improvement,
        "note": comparison.note,
    }


def _ratio(ratio: Ratio | None) -> dict[str, float | None] | None:
    if ratio is None:
        return None
    return {
        "value": _number(ratio.value),
        "low": _number(ratio.low),
        "high": _number(ratio.high),
    }


def _number(value: float | None) -> float | None:
    """Return a Python float; None for NaN and infinity, which JSON does not allow."""
    return float(value) if value is not None and math.isfinite(value) else None


def _parsed(text: str) -> Any:
    """Parse a JSON text of the store; return it unchanged if it is not JSON or contains NaN."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except ValueError:
        return text


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not valid JSON")
