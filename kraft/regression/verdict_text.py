"""Texts about verdicts that all reports share: who said what about which change, and why.

As in `report_text`, which provides numbers and dates, the texts contain no markup; what people
wrote is made printable on one line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kraft.regression import report_text
from kraft.regression.findings import Analysis, ChangePoint, Drift
from kraft.regression.points import SeriesKey
from kraft.regression.verdicts import (
    AppliedVerdict,
    ExpectationOutcome,
    ExpectationState,
    Verdict,
    VerdictKind,
    VerdictState,
)

#: The columns of a table of expected changes, after the columns that identify the series.
EXPECTATION_COLUMNS = ("expected", "state", "runs since", "verdict")

_PAST = {
    VerdictKind.ACCEPT: "accepted",
    VerdictKind.EXPECT: "expected",
    VerdictKind.WATCH: "watched",
    VerdictKind.REOPEN: "reopened",
}


def said_text(verdict: Verdict) -> str:
    """Return ``accepted by ana on 2026-11-21 (7c31a9e0): checksums are verified``."""
    on = report_text.date_text(verdict.time_us)
    return report_text.printable(
        f"{_PAST[verdict.kind]} by {verdict.author} on {on} ({verdict.id[:8]}): {verdict.reason}"
    )


def applied_text(applied: AppliedVerdict | None) -> str:
    """Return what a verdict means for a change, "" without one."""
    if applied is None:
        return ""
    text = said_text(applied.verdict)
    if applied.state is VerdictState.EXPIRED:
        return f"no longer {text}"
    if applied.state is VerdictState.EXCEEDED:
        limit = applied.verdict.limit
        allowed = "" if limit is None else f" (at most {report_text.change_text(limit)})"
        return f"worse than {text}{allowed}"
    return text


def exponent_change_text(point: ChangePoint) -> str:
    """Return `report_text.exponent_change_text`, and the verdict on the change."""
    said = applied_text(point.verdict)
    return report_text.exponent_change_text(point) + (f", {said}" if said else "")


def judged_change_text(verdict: Verdict) -> str:
    """Return ``+12.3 %`` of a change, or ``slower, at most +15.0 %, within 10 runs``."""
    if verdict.within is None:
        return "" if verdict.ratio is None else report_text.change_text(verdict.ratio)
    unit = "commit" if verdict.within_commits else "run"
    parts = ["slower" if verdict.is_worse else "faster"]
    if verdict.limit is not None:
        parts.append(f"at most {report_text.change_text(verdict.limit)}")
    return ", ".join([*parts, f"within {report_text.counted(verdict.within, unit)}"])


def judged_commits_text(verdict: Verdict) -> str:
    """Return the commits between which the change was when the verdict was given."""
    if not (verdict.commit_before or verdict.commit_after):
        return ""
    return report_text.between_text(verdict.commit_before, verdict.commit_after)


def drift_table(
    drifts: Sequence[Drift],
) -> tuple[Sequence[str], list[tuple[SeriesKey, list[str]]]]:
    """Return the columns and the cells of drifts; the last column is that of verdicts, if any."""
    cells = [(each.key, report_text.drift_cells(each)) for each in drifts]
    if not has_verdict(drifts):
        return report_text.DRIFT_COLUMNS, cells
    for (_, texts), each in zip(cells, drifts, strict=True):
        texts.append(applied_text(each.verdict))
    return (*report_text.DRIFT_COLUMNS, "verdict"), cells


def expectation_cells(outcome: ExpectationOutcome) -> list[str]:
    """Return the texts of `EXPECTATION_COLUMNS`."""
    return [
        judged_change_text(outcome.verdict),
        outcome.state.value,
        f"{outcome.runs_since:,}",
        said_text(outcome.verdict),
    ]


def missed(analysis: Analysis) -> list[ExpectationOutcome]:
    """Return the expected changes that did not come."""
    wanted = ExpectationState.DID_NOT_COME
    return [each for each in analysis.expectations if each.state is wanted]


def awaited(analysis: Analysis) -> list[ExpectationOutcome]:
    """Return the expected changes that may still come."""
    return [each for each in analysis.expectations if each.state is ExpectationState.AWAITED]


def has_verdict(changes: Iterable[ChangePoint | Drift]) -> bool:
    """Return whether a table of these changes needs a column for verdicts."""
    return any(each.verdict is not None for each in changes)
