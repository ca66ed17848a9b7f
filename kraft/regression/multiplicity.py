"""Many tests at once: what is left of small p values when thousands of series are looked at.

Owns the correction. Fed by `history` (all series of an analysis, wherever each was analysed),
`comparison` and `scaling`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kraft.regression.findings import ChangePoint, Outcome, ScalingLaw, SeriesFinding
from kraft.regression.settings import Settings


def q_values(p_values: NDArray[np.float64], tests: int) -> NDArray[np.float64]:
    """Benjamini and Hochberg's adjusted p values (1995) for ``p_values`` out of ``tests`` tests.

    The tests whose p values are not given count as larger than all that are. Same order, float64.
    """
    count = len(p_values)
    assert tests >= count, f"{count} p values of {tests} tests"
    order = np.argsort(p_values, kind="stable")
    raised = p_values[order] * tests / np.arange(1, count + 1)
    adjusted = np.empty(count)
    adjusted[order] = np.minimum(np.minimum.accumulate(raised[::-1])[::-1], 1.0)
    return adjusted


def splits(run_count: int) -> int:
    """The tests that one history is: each of its splits into before and after was looked at."""
    return max(run_count - 1, 0)


def correct(findings: Sequence[SeriesFinding], settings: Settings) -> tuple[SeriesFinding, ...]:
    """All series of an analysis, with `q_value`s, without the change points that chance explains.

    The p value of a change point is the one of the best split, out of as many as there are runs
    less one. So an analysis is as many tests as its series have splits (those with too little data
    have none), and Benjamini and Hochberg's procedure runs over all of them: the p values of the
    splits that were not chosen are larger, and splits side by side are positively dependent, for
    which the procedure holds (Benjamini and Yekutieli 2001). It is conservative, as of the many
    small p values around a true change only one is counted.

    The sides of a change point that stays are not joined with those of one that goes.
    """
    tests = sum(splits(each.run_count) for each in findings if each.outcome != _TOO_LITTLE)
    points = [point for each in findings for point in each.change_points]
    kept = iter(_corrected(points, tests, settings))
    corrected = []
    for each in findings:
        left = tuple(point for point in (next(kept) for _ in each.change_points) if point)
        outcome = each.outcome
        if outcome != _TOO_LITTLE:
            outcome = Outcome.CHANGED if left else Outcome.STABLE
        corrected.append(replace(each, change_points=left, outcome=outcome))
    return tuple(corrected)


def correct_laws(laws: Iterable[ScalingLaw], settings: Settings) -> list[ScalingLaw]:
    """The same for the histories of exponents, which are a family of their own."""
    laws = list(laws)
    tests = sum(splits(each.run_count) for each in laws if each.run_count >= settings.min_runs)
    kept = iter(
        _corrected([point for each in laws for point in each.change_points], tests, settings)
    )
    return [
        replace(
            each,
            change_points=tuple(
                point for point in (next(kept) for _ in each.change_points) if point
            ),
        )
        for each in laws
    ]


_TOO_LITTLE = Outcome.TOO_LITTLE_DATA


def _corrected(
    points: list[ChangePoint], tests: int, settings: Settings
) -> list[ChangePoint | None]:
    """Each point with its q value, None where that is too large."""
    found = q_values(np.array([point.p_value for point in points], dtype=np.float64), tests)
    return [
        replace(point, q_value=float(q)) if q <= settings.false_discovery_rate else None
        for point, q in zip(points, found, strict=True)
    ]
