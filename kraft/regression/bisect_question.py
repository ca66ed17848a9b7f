"""The question of a bisection: which change, between which commits, with which values so far.

`find_change` selects a change of an analysis, `bounds` the commits around it, `posterior_of` makes
a `bisection.ChangePosterior` of the history, and `value_in` takes the value of a new result.
`kraft.cli.regress_bisect` calls them in this order.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kraft.errors import InvalidRequestError
from kraft.regression.bisection import ChangePosterior
from kraft.regression.change_position import MARGIN_RUNS
from kraft.regression.findings import Analysis, ChangeKind, ChangePoint, SeriesFinding
from kraft.regression.points import Series, SeriesKey
from kraft.regression.runs import STATISTIC_COLUMNS, BenchmarkRun


class FoundChange(NamedTuple):
    """One change point and the series that it is in."""

    series: Series
    point: ChangePoint


def find_change(analysis: Analysis, commit: str | None) -> FoundChange:
    """Return the newest regression of an analysis, or the change that begins at ``commit``.

    The findings have kept their series. ``commit`` is given by its first digits.

    Raises:
        InvalidRequestError: there is no such change, or several series have one.
    """
    found = [(each, point) for each in analysis.series for point in each.change_points]
    if commit is not None:
        found = [each for each in found if (each[1].commit_after or "").startswith(commit.lower())]
    else:
        found = [each for each in found if each[1].kind is ChangeKind.REGRESSION]
    wanted = "regression" if commit is None else f"change at {commit}"
    if not analysis.series:
        raise InvalidRequestError("no series matches: kraft regress --json lists the series")
    if not found:
        raise InvalidRequestError(
            f"no {wanted} in {len(analysis.series)} series: kraft regress shows the changes that "
            "there are; --change COMMIT selects one"
        )
    series = {each.key for each, _ in found}
    if len(series) > 1:
        names = ", ".join(sorted(key.name for key in series)[:3])
        raise InvalidRequestError(
            f"{len(series)} series have a {wanted}: {names}; name one with --benchmark, with its "
            "parameters in brackets, or --machine"
        )
    finding, point = max(found, key=lambda each: each[1].index)
    return FoundChange(_series(finding), point)


def _series(finding: SeriesFinding) -> Series:
    assert finding.series is not None, f"{finding.key.name}: the history was not kept"
    return finding.series


def bounds(change: FoundChange) -> tuple[str, str]:
    """Return a commit that is surely before the change, and one that surely has it.

    They are those of runs `MARGIN_RUNS` before and after the change point, because it may be off.

    Raises:
        InvalidRequestError: the runs name no commit.
    """
    series, point = change.series, change.point
    first = max(point.index - point.count_before, point.index - 1 - MARGIN_RUNS)
    last = min(point.index + point.count_after - 1, point.index + MARGIN_RUNS)
    old, new = series.commit[first], series.commit[last]
    if not old or not new:
        raise InvalidRequestError(
            f"{series.key.name}: its runs name no commit: name two with --old and --new"
        )
    return str(old), str(new)


def posterior_of(change: FoundChange, commits: Sequence[str]) -> ChangePosterior:
    """Return the posterior of the change's place among ``commits``, after the history.

    Runs of commits that are not among them belong to the last one before them.
    """
    posterior = ChangePosterior(len(commits))
    places = {commit: place for place, commit in enumerate(commits)}
    series, point = change.series, change.point
    place = 0
    for at in range(point.index - point.count_before, point.index + point.count_after):
        commit = str(series.commit[at] or "")
        place = places.get(commit, place)
        posterior.add_history(place, float(series.value[at]))
    return posterior


def commit_of(name: str, run: BenchmarkRun, commits: Sequence[str]) -> int | None:
    """Return the place of the commit of a result: that in its file's name, else in its content.

    None if it is none of ``commits``.
    """
    for text in (re.split(r"[^0-9a-fA-F]", name)[0], run.commit or ""):
        if len(text) >= 7:
            found = [at for at, commit in enumerate(commits) if commit.startswith(text.lower())]
            if len(found) == 1:
                return found[0]
    return None


def value_in(run: BenchmarkRun, key: SeriesKey, statistic: str) -> float:
    """Return the value of a benchmark in a result; the machine may be another.

    Raises:
        InvalidRequestError: the result lacks the benchmark, or a usable value of it.
    """
    for at in range(len(run)):
        if (run.suite[at], run.benchmark[at], run.params[at]) != key[:3]:
            continue
        value = (
            run.instructions[at]
            if statistic == "instructions"
            else float(run.statistics[at][STATISTIC_COLUMNS.index(statistic)])
        )
        if value is None or not np.isfinite(value) or value <= 0:
            raise InvalidRequestError(
                f"{run.source}: {key.name} has no usable {statistic}: {value}"
            )
        assert math.isfinite(value)
        return float(value)
    names = ", ".join(f"{run.suite[at]}::{run.benchmark[at]}" for at in range(min(len(run), 3)))
    raise InvalidRequestError(
        f"{run.source}: the result has no {key.name}; it has {names or 'no benchmarks'}"
    )
