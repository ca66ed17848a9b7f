"""Many tests at once: what is left of small p values when thousands of series are looked at.

Owns the correction. Fed by `history` (all series of an analysis, wherever each was analysed),
`comparison` and `scaling`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from kraft.regression.findings import (
    ChangePoint,
    Drift,
    Outcome,
    ScalingLaw,
    SeriesFinding,
    VarianceChange,
)
from kraft.regression.settings import Settings

#: What has a p value and gets a q value.
Found = TypeVar("Found", ChangePoint, Drift, VarianceChange)


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

    Change points, drifts and changes of variance are a family each: as many tests again.

    The sides of a change point that stays are not joined with those of one that goes.
    """
    tests = sum(splits(each.run_count) for each in findings if each.outcome != _TOO_LITTLE)
    points, drifts, variances = (
        _corrected_each([getattr(each, name) for each in findings], tests, settings)
        for name in ("change_points", "drifts", "variance_changes")
    )
    corrected = []
    for each, *found in zip(findings, points, drifts, variances, strict=True):
        outcome = each.outcome
        if outcome != _TOO_LITTLE:
            outcome = Outcome.CHANGED if any(found) else Outcome.STABLE
        change_points, drifting, scattering = found
        corrected.append(
            replace(
                each,
                change_points=change_points,
                drifts=drifting,
                variance_changes=scattering,
                outcome=outcome,
            )
        )
    return tuple(corrected)


def correct_laws(laws: Iterable[ScalingLaw], settings: Settings) -> list[ScalingLaw]:
    """The same for the histories of exponents, which are a family of their own."""
    laws = list(laws)
    tests = sum(splits(each.run_count) for each in laws if each.run_count >= settings.min_runs)
    points = _corrected_each([each.change_points for each in laws], tests, settings)
    return [replace(each, change_points=found) for each, found in zip(laws, points, strict=True)]


_TOO_LITTLE = Outcome.TOO_LITTLE_DATA


def _corrected_each(
    found: Sequence[tuple[Found, ...]], tests: int, settings: Settings
) -> list[tuple[Found, ...]]:
    """Each tuple with the q values of its findings, without those whose q value is too large."""
    p_values = np.array([each.p_value for inner in found for each in inner], dtype=np.float64)
    adjusted = map(float, q_values(p_values, tests))
    return [
        tuple(
            replace(each, q_value=q)
            for each, q in zip(inner, adjusted, strict=False)
            if q <= settings.false_discovery_rate
        )
        for inner in found
    ]
