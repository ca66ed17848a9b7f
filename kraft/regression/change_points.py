"""Where a history changed: E-divisive in windows, as Apache Otava does it.

Owns the call into Otava: its ``analysis.compute_change_points`` and nothing else of it (its
importers bring clients of databases). Fed by `history` and `scaling`. What comes back are Otava's
own indices and statistics at equal settings, so that a history reads the same in both programs.

What Otava does (Fleming et al., "Hunter", ICPE 2023; Matteson and James, JASA 2014): windows of
`Settings.window` runs, each overlapping half of the next; in a window the split that is furthest
apart by energy distance, kept where Student's t test gives a p value of ten times
`Settings.max_p_value` at most, and again in the parts; then all splits of the whole series are
tested once more, each between its neighbours, and the weakest is taken out until all that are left
are significant.

A counter that does not vary has no noise at all: a step in it has a p value of 0, and without a
step there is no test (Otava's is 0 / 0, which it never takes for a change).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kraft.errors import InvalidRequestError
from kraft.regression.settings import Settings


@dataclass(frozen=True)
class Candidate:
    """A change point in a row of values, with what Otava's test says of its two sides."""

    index: int  # of the first value of the new level
    p_value: float
    mean_before: float  # from the change point before, or the beginning
    mean_after: float  # up to the change point after, or the end
    stddev_before: float  # of the population, 0 for a single value
    stddev_after: float


def find(values: NDArray[np.float64], settings: Settings) -> list[Candidate]:
    """The change points of ``values`` (one a run, oldest first), oldest first.

    Raises:
        InvalidRequestError: a value is NaN or infinite; nothing can be said of the runs around it.
    """
    if not np.isfinite(values).all():
        raise InvalidRequestError(
            f"value {int(np.argmin(np.isfinite(values)))} is no finite number"
        )
    if len(values) < 2:
        return []
    # Imported here: it brings scipy.stats, and whoever compares two files needs none of it.
    from otava.analysis import compute_change_points

    # A list, not an array: of an array Otava's detector takes the whole where it means a window.
    found, _ = compute_change_points(
        values.tolist(),
        window_len=settings.window,
        max_pvalue=settings.max_p_value,
        min_magnitude=settings.min_magnitude,
    )
    return [
        Candidate(
            int(point.index),
            float(point.stats.pvalue),
            float(point.stats.mean_1),
            float(point.stats.mean_2),
            float(point.stats.std_1),
            float(point.stats.std_2),
        )
        for point in found
    ]
