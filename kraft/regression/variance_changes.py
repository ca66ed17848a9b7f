"""Changes of variance: runs that scatter more, or less, than before around the same level.

`series_analysis` calls `find` with the residuals of levels and drifts; `find` applies
`change_points` to transformed deviations instead of times.

The test is Levene's (1960) on the square roots of the absolute deviations. For normal noise these
roots are nearly normal, so that one outlier does not produce a change.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kraft.regression import change_points
from kraft.regression.settings import AnalysisSettings

#: Fewer runs do not determine a variance.
SHORTEST = 10


@dataclass(frozen=True)
class VarianceShift:
    """A change of variance: run ``index`` is the first with the new variance."""

    index: int
    before: float  # standard deviation / level, since the previous change
    after: float
    p_value: float


def find(rest: NDArray[np.float64], settings: AnalysisSettings) -> list[VarianceShift]:
    """Return the changes of variance in ``rest``: one deviation relative to the level per run.

    Return none if `AnalysisSettings.find_variance_changes` is off, or if a level is 0 and so has no
    relative deviations.
    """
    if (
        not settings.find_variance_changes
        or len(rest) < 2 * SHORTEST
        or not np.isfinite(rest).all()
    ):
        return []
    strict = replace(
        settings, min_temporary_runs=SHORTEST, min_level_runs=SHORTEST, min_magnitude=0.0
    )
    roots = np.sqrt(np.abs(rest))
    found = change_points.drop_doubtful(
        roots, change_points.add_missed_levels(roots, [], strict), strict
    )
    ends = [0, *(each.index for each in found), len(rest)]
    return [
        VarianceShift(
            each.index, float(rest[start:at].std()), float(rest[at:stop].std()), each.p_value
        )
        for each, (start, at, stop) in zip(
            found, zip(ends, ends[1:], ends[2:], strict=False), strict=True
        )
    ]
