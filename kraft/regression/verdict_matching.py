"""Find the changes of an analysis to which verdicts belong.

A later run moves the estimated first run of a change by one or two. Therefore a verdict keeps the
interval in which its change begins (`change_position`), and belongs to the change of the same
series, statistic and direction whose estimate is in this interval; of several, to the nearest one.
The interval is one of runs, so that old commits that are measured late do not move it.

- Each verdict belongs to one change at most: a second change beside it is new.
- The change is covered as long as it is not worse than the verdict allows: as long as the interval
  of its ratio reaches down to `Verdict.limit`. A further worsening that the analysis cannot
  separate from the change makes it larger, and so it alarms again.
- An expected change is the first one in its direction, within its runs or commits.
- Series are compared by their names of today: `ProjectRules.now` is applied to a verdict's key.

Pure; `analysis` calls `with_verdicts` before it drops changes older than ``since``, in the process
that has all findings, so that the answer does not depend on where series were analysed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from kraft.regression.change_position import MARGIN_RUNS
from kraft.regression.findings import (
    ChangeKind,
    ChangePoint,
    Drift,
    ScalingLaw,
    SeriesFinding,
    worsening_interval,
)
from kraft.regression.points import Series, SeriesKey
from kraft.regression.project_rules import ProjectRules
from kraft.regression.verdicts import (
    AppliedVerdict,
    ExpectationOutcome,
    ExpectationState,
    Verdict,
    VerdictKind,
    VerdictLedger,
    VerdictState,
)

#: A change or a drift.
Change = TypeVar("Change", ChangePoint, Drift)

_STATES = {
    VerdictKind.ACCEPT: VerdictState.ACCEPTED,
    VerdictKind.EXPECT: VerdictState.EXPECTED,
    VerdictKind.WATCH: VerdictState.WATCHED,
}


class JudgedFindings(NamedTuple):
    """Findings and laws whose changes have their verdicts, and what became of expectations."""

    findings: tuple[SeriesFinding, ...]
    laws: list[ScalingLaw]
    expectations: tuple[ExpectationOutcome, ...]


class _Line(NamedTuple):
    """What a verdict and a change must have in common."""

    key: SeriesKey
    statistic: str
    size_param: str | None
    is_worse: bool


def with_verdicts(
    findings: Sequence[SeriesFinding],
    laws: Sequence[ScalingLaw],
    ledger: VerdictLedger,
    order: Sequence[str],
    histories: Callable[[Sequence[SeriesKey]], Mapping[SeriesKey, Series]],
    rules: ProjectRules,
    statistic: str,
) -> JudgedFindings:
    """Return all findings with the verdicts that belong to them.

    ``order`` has the ids of the runs, oldest first. ``histories`` returns the series of some keys;
    it is called once, for the series with expectations. ``statistic`` is that of the findings.
    """
    place = {run: at for at, run in enumerate(order)}
    of_line: dict[_Line, list[Verdict]] = {}
    expected: list[tuple[Verdict, SeriesKey]] = []
    by_key = {each.key: each for each in findings}
    for verdict in ledger.in_force:
        key = rules.now(verdict.key)
        if verdict.kind is not VerdictKind.EXPECT:
            line = _Line(key, verdict.statistic, verdict.size_param, verdict.is_worse)
            of_line.setdefault(line, []).append(verdict)
        elif key in by_key and verdict.statistic == statistic:
            expected.append((verdict, key))
    applied: dict[tuple[_Line, int, int], Verdict] = {}

    def judge(changes: Sequence[ChangePoint | Drift], size_param: str | None) -> None:
        for is_worse in (True, False):
            alike = [each for each in changes if (each.kind is ChangeKind.REGRESSION) is is_worse]
            if not alike:
                continue
            line = _Line(alike[0].key, alike[0].statistic, size_param, is_worse)
            for verdict in of_line.get(line, ()):
                nearest = _nearest(verdict, alike, place)
                if nearest is not None:
                    # The newest verdict of a change decides; they come newest first.
                    applied.setdefault((line, *_span(nearest, place)), verdict)

    for each in findings:
        judge([*each.change_points, *each.drifts], None)
    for law in laws:
        judge(law.change_points, law.size_param)
    outcomes = []
    series = histories(sorted({key for _, key in expected})) if expected else {}
    for verdict, key in expected:
        if key not in series or verdict.run_before not in place:
            continue
        finding = by_key[key]
        outcome, change = _expected(verdict, finding, series[key])
        outcomes.append(outcome)
        if change is not None:
            line = _Line(key, statistic, None, verdict.is_worse)
            # A verdict on the change itself decides, however old it is.
            applied.setdefault((line, *_span(change, place)), verdict)

    def judged(change: Change, size_param: str | None) -> Change:
        is_worse = change.kind is ChangeKind.REGRESSION
        line = _Line(change.key, change.statistic, size_param, is_worse)
        verdict = applied.get((line, *_span(change, place)))
        if verdict is None:
            return change
        state = _state(verdict, change, ledger.now_us)
        return replace(change, verdict=AppliedVerdict(verdict, state))

    return JudgedFindings(
        tuple(
            replace(
                each,
                change_points=tuple(judged(point, None) for point in each.change_points),
                drifts=tuple(judged(drift, None) for drift in each.drifts),
            )
            for each in findings
        ),
        [
            replace(
                law,
                change_points=tuple(judged(point, law.size_param) for point in law.change_points),
            )
            for law in laws
        ],
        tuple(sorted(outcomes, key=lambda each: (each.key, each.verdict.time_us))),
    )


def _span(change: ChangePoint | Drift, place: Mapping[str, int]) -> tuple[int, int]:
    """Return the first and the last place at which a change may be said to begin."""
    if isinstance(change, ChangePoint):
        return place[change.run_after], place[change.run_after]
    return place[change.run_start] + 1, place[change.run_end]


def _nearest(
    verdict: Verdict, changes: Sequence[ChangePoint | Drift], place: Mapping[str, int]
) -> ChangePoint | Drift | None:
    """Return the change in the verdict's interval that is nearest to its own estimate."""
    if not {verdict.surely_old_run, verdict.surely_new_run, verdict.run_after} <= place.keys():
        return None
    old, at, new = (
        place[str(run)]
        for run in (verdict.surely_old_run, verdict.run_after, verdict.surely_new_run)
    )

    def distance(change: ChangePoint | Drift) -> tuple[int, int]:
        first, last = _span(change, place)
        return max(first - at, at - last, 0), first

    inside = [
        each for each in changes if _span(each, place)[0] <= new and _span(each, place)[1] > old
    ]
    return min(inside, key=distance, default=None)


def _expected(
    verdict: Verdict, finding: SeriesFinding, series: Series
) -> tuple[ExpectationOutcome, ChangePoint | Drift | None]:
    """Return whether an expected change came, and the change."""
    at = {run: index for index, run in enumerate(series.run_id)}
    assert verdict.within is not None, f"{verdict.id}: an expectation without its number of runs"
    if verdict.run_before not in at:
        awaited = ExpectationOutcome(verdict, finding.key, ExpectationState.AWAITED, 0)
        return awaited, None
    newest = at[verdict.run_before]
    since = len(series) - 1 - newest
    last = newest + _runs_within(verdict, series, newest) + MARGIN_RUNS
    # The estimate may be before the run at which the change was expected, but no change that was
    # known then is meant.
    first = max(newest + 1 - MARGIN_RUNS, at.get(verdict.surely_old_run, -1) + 1)
    changes: list[ChangePoint | Drift] = [*finding.change_points, *finding.drifts]
    candidates = [
        (begin, each)
        for each in changes
        for begin in [each.index if isinstance(each, ChangePoint) else each.start_index + 1]
        if first <= begin <= last and (each.kind is ChangeKind.REGRESSION) is verdict.is_worse
    ]
    if candidates:
        _, change = min(candidates, key=lambda each: each[0])
        return ExpectationOutcome(verdict, finding.key, ExpectationState.CAME, since), change
    state = ExpectationState.DID_NOT_COME if len(series) - 1 >= last else ExpectationState.AWAITED
    return ExpectationOutcome(verdict, finding.key, state, since), None


def _runs_within(verdict: Verdict, series: Series, newest: int) -> int:
    """Return how many runs after ``newest`` an expected change may begin."""
    assert verdict.within is not None
    if not verdict.within_commits:
        return verdict.within
    commits: set[str] = set()
    for number, commit in enumerate(series.commit[newest + 1 :]):
        commits.add(str(commit))
        if len(commits) > verdict.within:
            return number
    # The commits that are missing have at least one run each.
    return len(series) - 1 - newest + verdict.within - len(commits)


def _state(verdict: Verdict, change: ChangePoint | Drift, now_us: int) -> VerdictState:
    if verdict.until_us is not None and now_us >= verdict.until_us:
        return VerdictState.EXPIRED
    least, _ = worsening_interval(change)
    if verdict.is_worse and verdict.limit is not None and least > verdict.limit:
        return VerdictState.EXCEEDED
    return _STATES[verdict.kind]
