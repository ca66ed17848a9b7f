"""What a dashboard says about one project: its last run, its open regressions, its level over time.

Values, made from the entries of a project's runs (`waiting_for`) and from its analysis
(`summary_of`). `project_pages` makes them, `dashboard` shows them.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

from kraft.regression import report_text, verdict_text
from kraft.regression.commit_order import RunLike
from kraft.regression.findings import (
    Analysis,
    ChangeKind,
    ChangePoint,
    Drift,
    is_alarm,
)
from kraft.regression.html import law_sections, sections_of
from kraft.regression.verdicts import VerdictState

#: New regressions of one project that the dashboard lists, worst first.
MOST_ALARMS = 20
#: Points of the small plot of a project's level.
_MOST_STEPS = 120
_LONGEST_FILE_NAME = 40


@dataclass(frozen=True)
class OpenRegression:
    """A regression that no verdict covers, as a line of the dashboard."""

    benchmark: str
    change: str  # +12.3 % [10.1, 14.2]
    worsening: float  # 1.123
    time_us: int  # of the first run of the new level
    commits: str
    section: str | None  # of the project's page that draws the series
    verdict: str  # of a regression that became worse, or is no longer watched


@dataclass(frozen=True)
class LevelStep:
    """The level of a project from a time on: 1.02 is 2 % worse than at its first run."""

    time_us: int
    level: float


@dataclass(frozen=True)
class ProjectSummary:
    """One project of a store. Without an analysis only the fields up to `last_commit` are known."""

    project: str  # "" if the results have none
    runs: int
    first_run_us: int
    last_run_us: int
    last_commit: str | None
    is_analysed: bool = False
    error: str = ""  # why there is no analysis
    series: int = 0
    machines: int = 0
    branches: tuple[str, ...] = ()
    alarms: tuple[OpenRegression, ...] = ()  # `MOST_ALARMS` at most
    new: int = 0  # all alarms
    watched: int = 0
    accepted: int = 0
    expected: int = 0
    improvements: int = 0
    missed: int = 0  # expected changes that did not come
    problems: int = 0
    steps: tuple[LevelStep, ...] = ()

    @property
    def name(self) -> str:
        """Return the name that is shown."""
        return report_text.printable(self.project) or "unknown project"

    @property
    def page(self) -> str:
        """Return the name of the project's page, without ``.html``."""
        return page_name(self.project)

    @property
    def level(self) -> float:
        """Return the newest level relative to the first one: 1.02 is 2 % worse."""
        return self.steps[-1].level if self.steps else 1.0


def page_name(project: str) -> str:
    """Return the name of a project's page: lower-case letters, digits and dashes, unique."""
    short = re.sub(r"[^a-z0-9]+", "-", project.lower()).strip("-")[:_LONGEST_FILE_NAME]
    digest = blake2b(project.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"{short or 'unknown'}-{digest}"


def waiting_for(project: str, runs: Sequence[RunLike]) -> ProjectSummary:
    """Return what is known of a project before its analysis; it has a run at least."""
    newest = max(runs, key=lambda run: (run.time_us, run.run_id))
    return ProjectSummary(
        project=project,
        runs=len(runs),
        first_run_us=min(run.time_us for run in runs),
        last_run_us=newest.time_us,
        last_commit=newest.commit,
    )


def summary_of(waiting: ProjectSummary, analysis: Analysis) -> ProjectSummary:
    """Return a project with the results of its analysis."""
    alarms = sorted(_alarms(analysis), key=lambda each: -each.worsening)
    states = Counter(each.verdict.state for each in analysis.regressions if each.verdict)
    return replace(
        waiting,
        is_analysed=True,
        series=len(analysis.series),
        machines=len({each.key.machine for each in analysis.series}),
        branches=tuple(sorted({each.key.branch for each in analysis.series})),
        alarms=tuple(alarms[:MOST_ALARMS]),
        new=len(alarms),
        watched=states[VerdictState.WATCHED],
        accepted=states[VerdictState.ACCEPTED],
        expected=states[VerdictState.EXPECTED],
        improvements=sum(each.kind is ChangeKind.IMPROVEMENT for each in _changes(analysis)),
        missed=len(verdict_text.missed(analysis)),
        problems=len(analysis.problems),
        steps=_steps(analysis),
    )


def as_json(summary: ProjectSummary) -> dict[str, Any]:
    """Return a project as a value for `json.dumps`; ``page`` and ``document`` are file names."""
    return {
        "project": summary.project or None,
        "page": f"{summary.page}.html",
        "document": f"{summary.page}.json",
        "runs": summary.runs,
        "first_run": report_text.iso_time(summary.first_run_us),
        "last_run": report_text.iso_time(summary.last_run_us),
        "last_commit": summary.last_commit,
        "analysed": summary.is_analysed,
        "error": summary.error or None,
        "series": summary.series,
        "machines": summary.machines,
        "branches": [branch or None for branch in summary.branches],
        "regressions": {
            "new": summary.new,
            "watched": summary.watched,
            "accepted": summary.accepted,
            "expected": summary.expected,
        },
        "improvements": summary.improvements,
        "did_not_come": summary.missed,
        "problems": summary.problems,
        "level": summary.level,
        "alarms": [
            {
                "benchmark": each.benchmark,
                "worsening": each.worsening if math.isfinite(each.worsening) else None,
                "time": report_text.iso_time(each.time_us),
                "commits": each.commits,
                "verdict": each.verdict or None,
            }
            for each in summary.alarms
        ],
    }


def _alarms(analysis: Analysis) -> Iterator[OpenRegression]:
    """Yield the regressions that no verdict covers: of series, then of exponents."""
    names = report_text.Names.of(analysis)
    sections, laws = sections_of(analysis), law_sections(analysis)
    found: list[tuple[str, str | None, ChangePoint | Drift]] = [
        (names(each.key), sections.get(each.key), each) for each in _changes(analysis)
    ]
    found += [
        (
            f"{names(law.key)}, exponent of {law.size_param}",
            laws.get((law.key, law.size_param)),
            point,
        )
        for law in analysis.scaling
        for point in law.change_points
    ]
    for name, section, each in found:
        if is_alarm(each):
            yield OpenRegression(
                benchmark=name,
                change=report_text.ratio_text(each.ratio),
                worsening=each.worsening,
                time_us=each.time_us if isinstance(each, ChangePoint) else each.end_time_us,
                commits=_commits(each),
                section=section,
                verdict=verdict_text.applied_text(each.verdict),
            )


def _changes(analysis: Analysis) -> list[ChangePoint | Drift]:
    return [*analysis.change_points, *analysis.drifts]


def _commits(change: ChangePoint | Drift) -> str:
    if isinstance(change, ChangePoint):
        return report_text.commits_text(change)
    return report_text.between_text(change.commit_start, change.commit_end)


def _steps(analysis: Analysis) -> tuple[LevelStep, ...]:
    """Return the geometric mean of the levels of all series over time, relative to the first run.

    A level is the mean between two changes, so that noise does not move the line; a drift moves it
    from its start to its end. Changes of exponents are those of their series.
    """
    held = [each for each in analysis.series if each.run_count]
    if not held:
        return ()
    moves: defaultdict[int, float] = defaultdict(float)
    for each in held:
        for point in each.change_points:
            moves[point.time_us] += _logarithm(point.worsening)
        for drift in each.drifts:
            half = _logarithm(drift.worsening) / 2
            moves[drift.start_time_us] += half
            moves[drift.end_time_us] += half
    level = 0.0
    steps = [LevelStep(min(each.first_time_us for each in held), 1.0)]
    for time_us, move in sorted(moves.items()):
        level += move / len(held)
        steps.append(LevelStep(time_us, math.exp(level)))
    kept = steps[:: -(-len(steps) // _MOST_STEPS)]
    end = LevelStep(max(each.last_time_us for each in held), math.exp(level))
    return (*kept, end)


def _logarithm(worsening: float) -> float:
    return math.log(worsening) if 0 < worsening < math.inf else 0.0
