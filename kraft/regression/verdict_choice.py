"""Choose changes of an analysis and make verdicts on them; the commands' part without a terminal.

`verdicts_on_changes` is for accept and watch, `expectations_of` for expect, `reopenings_of` for
reopen. None of them writes: `verdict_store.add_verdicts` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import uuid4

from kraft.errors import InvalidRequestError
from kraft.regression.findings import (
    Analysis,
    ChangeKind,
    ChangePoint,
    Drift,
    worsening_interval,
)
from kraft.regression.project_rules import BenchmarkRule
from kraft.regression.verdicts import Verdict, VerdictKind, in_force


class JudgedChange(NamedTuple):
    """A change of a series, or of the exponent over ``size_param``."""

    change: ChangePoint | Drift
    size_param: str | None = None


class Judgement(NamedTuple):
    """What a person says, without the changes it is about."""

    author: str
    reason: str
    limit: float | None = None  # worsening that is covered: 1.2 is 20 % worse
    until_us: int | None = None


def changes_of(analysis: Analysis, benchmark: str | None, commit: str | None) -> list[JudgedChange]:
    """Return the regressions of an analysis that match, in the order of the reports.

    ``benchmark`` is a glob for function, file::function or file::function[size=10]; ``commit`` the
    first digits of the commit at which the new level begins, or a drift begins or ends. With a
    ``commit``, improvements are returned as well.

    Raises:
        InvalidRequestError: nothing matches.
    """
    rule = None if benchmark is None else BenchmarkRule(benchmark)
    found = [JudgedChange(each) for each in analysis.change_points]
    found += [JudgedChange(each) for each in analysis.drifts]
    found += [
        JudgedChange(point, law.size_param)
        for law in analysis.scaling
        for point in law.change_points
    ]
    if rule is not None:
        found = [each for each in found if rule.applies_to(each.change.key)]
    if commit is None:
        found = [each for each in found if each.change.kind is ChangeKind.REGRESSION]
    else:
        found = [each for each in found if _begins_at(each.change, commit.lower())]
    if not found:
        what = "regression" if commit is None else f"change at {commit}"
        of = "" if benchmark is None else f" of {benchmark!r}"
        raise InvalidRequestError(
            f"no {what}{of} in {len(analysis.series)} series; `kraft regress` with the same "
            "options shows the changes and their commits"
        )
    return found


def _begins_at(change: ChangePoint | Drift, commit: str) -> bool:
    commits = (
        (change.commit_after,)
        if isinstance(change, ChangePoint)
        else (change.commit_start, change.commit_end)
    )
    return any((each or "").lower().startswith(commit) for each in commits)


def verdicts_on_changes(
    kind: VerdictKind, changes: Iterable[JudgedChange], judgement: Judgement
) -> list[Verdict]:
    """Return a verdict for each change that has no equal one yet.

    Without a limit in the judgement, a verdict covers what the interval of the change's ratio
    contains. The verdict on a change replaces the one that it has.
    """
    made = []
    for change, size_param in changes:
        before = change.verdict
        is_same = before is not None and before.is_quiet and before.verdict.kind is kind
        if is_same and judgement.limit is None and judgement.until_us is None:
            continue
        if isinstance(change, ChangePoint):
            runs = change.run_before, change.run_after
            commits = change.commit_before, change.commit_after
        else:
            runs = change.run_start, change.run_end
            commits = change.commit_start, change.commit_end
        made.append(
            Verdict(
                id=uuid4().hex,
                kind=kind,
                time_us=0,
                author=judgement.author,
                reason=judgement.reason,
                key=change.key,
                statistic=change.statistic,
                is_worse=change.kind is ChangeKind.REGRESSION,
                size_param=size_param,
                replaces=None if before is None else before.verdict.id,
                run_before=runs[0],
                run_after=runs[1],
                commit_before=commits[0],
                commit_after=commits[1],
                surely_old_run=change.surely_old_run,
                surely_new_run=change.surely_new_run,
                ratio=change.ratio.value,
                ratio_low=change.ratio.low,
                ratio_high=change.ratio.high,
                limit=_limit(change) if judgement.limit is None else judgement.limit,
                until_us=judgement.until_us,
            )
        )
    return made


def _limit(change: ChangePoint | Drift) -> float:
    _, most = worsening_interval(change)
    return most


def expectations_of(
    analysis: Analysis,
    benchmark: str,
    judgement: Judgement,
    *,
    is_worse: bool,
    within: int,
    within_commits: bool,
) -> list[Verdict]:
    """Return an expectation for each series that ``benchmark`` matches and that has not ended.

    Raises:
        InvalidRequestError: no series matches.
    """
    rule = BenchmarkRule(benchmark)
    made = []
    for each in analysis.series:
        if each.ended or each.last_run is None or not rule.applies_to(each.key):
            continue
        known = [(point.index, point.surely_new_run) for point in each.change_points]
        known += [(drift.end_index, drift.surely_new_run) for drift in each.drifts]
        made.append(
            Verdict(
                id=uuid4().hex,
                kind=VerdictKind.EXPECT,
                time_us=0,
                author=judgement.author,
                reason=judgement.reason,
                key=each.key,
                statistic=analysis.settings.statistic,
                is_worse=is_worse,
                run_before=each.last_run,
                surely_old_run=max(known)[1] if known else None,
                limit=judgement.limit,
                within=within,
                within_commits=within_commits,
            )
        )
    if not made:
        raise InvalidRequestError(
            f"no series matches {benchmark!r} and has not ended; `kraft regress --json` lists the "
            "series"
        )
    return made


def reopenings_of(
    verdicts: Sequence[Verdict], ids: Iterable[str], author: str, reason: str
) -> list[Verdict]:
    """Return a reopening for each id, which is given by its first digits.

    Raises:
        InvalidRequestError: an id names no verdict in force, or several.
    """
    left = in_force(verdicts)
    made = []
    for given in dict.fromkeys(ids):
        found = [each for each in left if given and each.id.startswith(given.lower())]
        if len(found) != 1:
            what = "no verdict in force has" if not found else f"{len(found)} verdicts have"
            raise InvalidRequestError(
                f"{what} the id {given!r}; `kraft regress verdicts` lists them"
            )
        (verdict,) = found
        made.append(
            Verdict(
                id=uuid4().hex,
                kind=VerdictKind.REOPEN,
                time_us=0,
                author=author,
                reason=reason,
                key=verdict.key,
                statistic=verdict.statistic,
                is_worse=verdict.is_worse,
                size_param=verdict.size_param,
                replaces=verdict.id,
                run_before=verdict.run_before,
                run_after=verdict.run_after,
                commit_before=verdict.commit_before,
                commit_after=verdict.commit_after,
            )
        )
    return made
