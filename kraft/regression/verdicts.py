"""Verdicts of people on changes: accepted, expected, watched, reopened; by whom, when and why.

Values without behaviour, one a row of the ledger (`verdict_store`). A verdict is never changed: a
later one replaces it. `verdict_matching` finds the changes of an analysis to which the verdicts in
force belong; `verdict_choice` makes new ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from kraft.regression.points import SeriesKey


class VerdictKind(StrEnum):
    """What a person said about a change."""

    ACCEPT = "accept"
    EXPECT = "expect"
    WATCH = "watch"
    REOPEN = "reopen"


class VerdictState(StrEnum):
    """What a verdict means for a change that an analysis found."""

    ACCEPTED = "accepted"
    EXPECTED = "expected"
    WATCHED = "watched"
    EXCEEDED = "worse than its verdict"
    EXPIRED = "no longer watched"


class ExpectationState(StrEnum):
    """Whether an expected change came."""

    AWAITED = "awaited"
    CAME = "came"
    DID_NOT_COME = "did not come"


@dataclass(frozen=True)
class Verdict:
    """One verdict on one change of one series; times are microseconds since 1970, UTC.

    The change begins after ``surely_old_run`` and at ``surely_new_run`` at the latest. An expected
    change begins within ``within`` runs or commits after ``run_before``, the newest run when it was
    expected; ``surely_old_run`` is then the end of the newest change that was known, or None.
    """

    id: str  # 32 hex digits
    kind: VerdictKind
    time_us: int
    author: str
    reason: str
    key: SeriesKey  # as the series was named then
    statistic: str
    is_worse: bool  # whether the change is a regression
    size_param: str | None = None  # of a scaling law
    replaces: str | None = None  # id of the verdict that is no longer in force
    run_before: str | None = None
    run_after: str | None = None  # where the change was estimated to begin
    commit_before: str | None = None
    commit_after: str | None = None
    surely_old_run: str | None = None
    surely_new_run: str | None = None
    ratio: float | None = None  # new / old, with its interval
    ratio_low: float | None = None
    ratio_high: float | None = None
    limit: float | None = None  # the worsening that is covered: 1.2 is 20 % worse; None: any
    within: int | None = None
    within_commits: bool = False  # whether ``within`` counts commits
    until_us: int | None = None  # end of a watch


@dataclass(frozen=True)
class AppliedVerdict:
    """A verdict on a change that an analysis found."""

    verdict: Verdict
    state: VerdictState

    @property
    def is_quiet(self) -> bool:
        """Return whether the change is no alarm."""
        return self.state not in (VerdictState.EXCEEDED, VerdictState.EXPIRED)


@dataclass(frozen=True)
class ExpectationOutcome:
    """An expected change, and whether it came."""

    verdict: Verdict
    key: SeriesKey  # as the series is named now
    state: ExpectationState
    runs_since: int  # runs of the series since it was expected


@dataclass(frozen=True)
class VerdictLedger:
    """All verdicts of a store, oldest first, as of a moment."""

    verdicts: tuple[Verdict, ...] = ()
    now_us: int = 0

    def __bool__(self) -> bool:
        return bool(self.verdicts)

    @property
    def in_force(self) -> list[Verdict]:
        """Return the verdicts that none replaces, newest first; a reopening is none."""
        return in_force(self.verdicts)


def in_force(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Return the verdicts that none of ``verdicts`` replaces, newest first; a reopening is none."""
    verdicts = list(verdicts)
    replaced = {each.replaces for each in verdicts}
    left = [
        each for each in verdicts if each.id not in replaced and each.kind is not VerdictKind.REOPEN
    ]
    return sorted(left, key=lambda each: (each.time_us, each.id), reverse=True)
