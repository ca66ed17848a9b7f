"""Where a change may lie: the runs around an estimated change point that could begin the new level.

The analysis places a change at one run, and later runs move this estimate. The interval here
contains the runs that the estimate may move to, so that a verdict (`verdicts`) on the change
stays attached to it. `series_analysis` computes it for every change point.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kraft.regression.bisection import ChangePosterior

#: A change point may be this many runs off (docs/regressions.md, "Steps found").
MARGIN_RUNS = 2
#: Probability that the first run of the new level is inside of the interval.
POSITION_CONFIDENCE = 0.99
#: Runs on either side that decide; farther ones add nothing but time.
_MOST_RUNS = 50


def position_interval(
    values: NDArray[np.float64], start: int, at: int, stop: int
) -> tuple[int, int]:
    """Return the first and last run that may begin the new level: indices of ``values``.

    The old level is ``start`` to ``at`` - 1, the new level ``at`` to ``stop`` - 1; neither becomes
    empty. The interval is at least `MARGIN_RUNS` wide on either side, because its model (normal
    noise in logarithms, `bisection.ChangePosterior`) knows no outliers. Values that are not above 0
    get this margin only.
    """
    assert start < at < stop, f"change point {at} outside of {start}..{stop}"
    first, last = at - MARGIN_RUNS, at + MARGIN_RUNS
    begin, end = max(start, at - _MOST_RUNS), min(stop, at + _MOST_RUNS)
    near = values[begin:end]
    if (near > 0).all() and np.isfinite(near).all():
        posterior = ChangePosterior(len(near))
        for place, value in enumerate(near):
            posterior.add_history(place, float(value))
        # Place 0 means no change at all.
        probabilities = posterior.probabilities()[1:]
        share = np.cumsum(probabilities / probabilities.sum())
        tail = (1 - POSITION_CONFIDENCE) / 2
        first = min(first, begin + 1 + int(np.searchsorted(share, tail)))
        last = max(last, begin + 1 + int(np.searchsorted(share, 1 - tail)))
    return max(first, start + 1), min(last, stop - 1)
