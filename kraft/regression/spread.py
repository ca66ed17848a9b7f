"""Changes of variance: runs that scatter more, or less, than before around the same level.

Owns `find`. Called by `history` with what levels and drifts leave of a series; calls
`change_points` with deviations instead of times.

The test is Levene's (1960) with square roots of the deviations, which for normal noise are nearly
normal themselves, so that an outlier does not make a change: a level of deviations that differs
from the others, for a while or for good.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kraft.regression import change_points
from kraft.regression.settings import Settings

#: Fewer runs do not know how much they scatter.
SHORTEST = 10


@dataclass(frozen=True)
class Scatter:
    """Run ``index`` is the first that scatters differently."""

    index: int
    before: float  # standard deviation / level, back to the change of variance before
    after: float
    p_value: float


def find(rest: NDArray[np.float64], settings: Settings) -> list[Scatter]:
    """Return where ``rest`` (deviations relative to the level, one a run) scatters differently.

    Nothing is found if `Settings.find_variance_changes` is off, or if a level is 0, which has no
    relative deviations.
    """
    if (
        not settings.find_variance_changes
        or len(rest) < 2 * SHORTEST
        or not np.isfinite(rest).all()
    ):
        return []
    asked = replace(
        settings, min_temporary_runs=SHORTEST, min_level_runs=SHORTEST, min_magnitude=0.0
    )
    roots = np.sqrt(np.abs(rest))
    found = change_points.trusted(roots, change_points.completed(roots, [], asked), asked)
    ends = [0, *(each.index for each in found), len(rest)]
    return [
        Scatter(each.index, float(rest[start:at].std()), float(rest[at:stop].std()), each.p_value)
        for each, (start, at, stop) in zip(
            found, zip(ends, ends[1:], ends[2:], strict=False), strict=True
        )
    ]
