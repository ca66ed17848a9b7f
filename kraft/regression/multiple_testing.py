"""Correct p values for many tests: Benjamini and Hochberg's false discovery rate.

Called by the analysis with the findings of all series, by `comparison`, and with all scaling laws.
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
    ScalingLaw,
    SeriesFinding,
    SeriesOutcome,
    VarianceChange,
)
from kraft.regression.settings import AnalysisSettings

#: A finding with a p value; the correction adds its q value.
Found = TypeVar("Found", ChangePoint, Drift, VarianceChange)


def q_values(p_values: NDArray[np.float64], tests: int) -> NDArray[np.float64]:
    """Return Benjamini and Hochberg's adjusted p values (1995) of ``p_values`` out of ``tests``
    tests.

    Tests without a given p value count as larger than all given ones. Same order, float64.
    """
    count = len(p_values)
    assert tests >= count, f"{count} p values of {tests} tests"
    order = np.argsort(p_values, kind="stable")
    raised = p_values[order] * tests / np.arange(1, count + 1)
    adjusted = np.empty(count)
    adjusted[order] = np.minimum(np.minimum.accumulate(raised[::-1])[::-1], 1.0)
    return adjusted


def splits(run_count: int) -> int:
    """Return the number of tests in one history: each split into before and after is one."""
    return max(run_count - 1, 0)


def correct(
    findings: Sequence[SeriesFinding], settings: AnalysisSettings
) -> tuple[SeriesFinding, ...]:
    """Return all series of an analysis with `q_value`s, without findings that chance explains.

    The p value of a change point is that of the best of run_count - 1 splits. So an analysis has as
    many tests as its series have splits; series with too little data have none. Benjamini and
    Hochberg's procedure is applied to all of them: splits that were not chosen have larger p
    values, and adjacent splits are positively dependent, for which the procedure holds (Benjamini
    and Yekutieli 2001). It is conservative, because only one of the many small p values around a
    true change is counted.

    Change points, drifts and changes of variance are separate families with that many tests each.

    When a change point is dropped, the levels beside it are not joined.
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
            outcome = SeriesOutcome.CHANGED if any(found) else SeriesOutcome.STABLE
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


def correct_laws(laws: Iterable[ScalingLaw], settings: AnalysisSettings) -> list[ScalingLaw]:
    """Return the scaling laws, corrected in the same way as a family of their own."""
    laws = list(laws)
    tests = sum(splits(each.run_count) for each in laws if each.run_count >= settings.min_runs)
    points = _corrected_each([each.change_points for each in laws], tests, settings)
    return [replace(each, change_points=found) for each, found in zip(laws, points, strict=True)]


_TOO_LITTLE = SeriesOutcome.TOO_LITTLE_DATA


def _corrected_each(
    found: Sequence[tuple[Found, ...]], tests: int, settings: AnalysisSettings
) -> list[tuple[Found, ...]]:
    """Return each tuple with q values, without the findings whose q value is too large."""
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
