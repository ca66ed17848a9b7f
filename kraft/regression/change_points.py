"""Change points of a history: E-divisive in windows, as in Apache Otava.

`series_analysis`, `scaling` and `variance_changes` call this module. With equal settings, `find`
returns the indices and statistics of Otava's ``analysis.compute_change_points`` to the last bit;
`energy_splits` says why it does not call that function.

Otava's method (Fleming et al., "Hunter", ICPE 2023; Matteson and James, JASA 2014): it divides the
history into windows of `AnalysisSettings.window` runs, each overlapping half of the next. In a
window it takes the split with the largest energy distance, keeps it if Student's t test gives a p
value of at most ten times `AnalysisSettings.max_p_value`, and searches the parts in the same way.
Then it tests every split of the whole series between its neighbours, and removes the weakest until
all remaining ones are significant.

A counter that does not vary has no noise: a step in it has a p value of 0, and without a step the
test is undefined (Otava's value is 0 / 0, which is never a change).

This module adds three steps. `add_missed_levels` finds temporary regressions: in most cases no
single split of a window finds a level that begins and ends inside it (`segments`). `drop_doubtful`
corrects Student's test, which assumes independent, normal runs: without it, a single outlier as the
last run is a new level, and machines whose consecutive runs correlate (temperature, other load)
change level all the time. `clip_outliers` clips outliers if the settings ask for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kraft.errors import InvalidRequestError
from kraft.regression import energy_splits, segments
from kraft.regression.settings import AnalysisSettings

#: A shorter level does not determine an autocorrelation.
_SHORTEST = 3

#: Student's distribution always has at least this many degrees of freedom, or as many as there are
#: runs: a handful of runs does not determine the autocorrelation well enough to reduce them
#: further.
_LEAST_FREEDOM = 6

#: Size of the window of runs whose median is the reference for an outlier.
AROUND = 11


@dataclass(frozen=True)
class ChangeCandidate:
    """A possible change point, with the statistics of Otava's test of its two sides."""

    index: int  # of the first value of the new level
    p_value: float
    mean_before: float  # since the previous change point or the beginning
    mean_after: float  # up to the next change point or the end
    stddev_before: float  # of the population, 0 for a single value
    stddev_after: float


def find(values: NDArray[np.float64], settings: AnalysisSettings) -> list[ChangeCandidate]:
    """Return the change points of ``values`` (one per run, oldest first), oldest first.

    Raises:
        InvalidRequestError: a value is NaN or infinite.
    """
    if not np.isfinite(values).all():
        raise InvalidRequestError(
            f"value {int(np.argmin(np.isfinite(values)))} is not a finite number"
        )
    if len(values) < 2:
        return []
    limit = settings.max_p_value
    # Otava's limit of the first pass: a split that is weak in its window may be a clear one between
    # its neighbours.
    weak = limit * 10 if limit < 0.05 else limit * 2 if limit < 0.5 else limit
    ends = [0, *energy_splits.splits(values, settings.window, weak), len(values)]
    found = [_tested(values, *level) for level in zip(ends, ends[1:], ends[2:], strict=False)]
    while found:
        weakest = max(found, key=lambda each: each.p_value)
        if weakest.p_value < limit:
            weakest = min(found, key=_magnitude)
            if _magnitude(weakest) > settings.min_magnitude:
                return found
        place = found.index(weakest)
        # As Otava does, which leaves the change point before the removed one as it was.
        _remove(found, place, values, tested_again=(place, place + 1))
    return found


def clip_outliers(values: NDArray[np.float64], settings: AnalysisSettings) -> NDArray[np.float64]:
    """Return ``values`` clipped to `AnalysisSettings.clip_outliers` robust standard deviations, if
    set.

    The deviation is that from the median of the `AROUND` runs around the value. The standard
    deviation is 1.4826 times the median distance from those medians, as for normal noise (Hampel
    1974). A step remains, but its first runs are clipped until they are half of the runs around
    them, so that it is detected a few runs later. Counters of which more than half do not vary are
    returned unchanged.
    """
    if settings.clip_outliers == 0 or len(values) < AROUND:
        return values
    beyond = np.full(AROUND // 2, np.nan)
    around = np.lib.stride_tricks.sliding_window_view(
        np.concatenate([beyond, values, beyond]), AROUND
    )
    middle = np.nanmedian(around, axis=1)
    limit = settings.clip_outliers * 1.4826 * float(np.median(np.abs(values - middle)))
    return values if limit == 0 else np.clip(values, middle - limit, middle + limit)


def add_missed_levels(
    values: NDArray[np.float64], found: Sequence[ChangeCandidate], settings: AnalysisSettings
) -> list[ChangeCandidate]:
    """Return ``found`` and the levels that single splits miss, all tested again, oldest first.

    A temporary level has `AnalysisSettings.min_temporary_runs` to `AnalysisSettings.window` runs; 0
    returns ``found`` unchanged. Pass the result to `drop_doubtful`.
    """
    if settings.min_temporary_runs == 0:
        return list(found)
    ends = [0, *(each.index for each in found), len(values)]
    missed = segments.boundaries(
        values,
        ends,
        shortest=settings.min_temporary_runs,
        longest=settings.window,
        max_p_value=settings.max_p_value,
    )
    if not missed:
        return list(found)
    ends = sorted({*ends, *missed})
    return [_tested(values, *level) for level in zip(ends, ends[1:], ends[2:], strict=False)]


def drop_doubtful(
    values: NDArray[np.float64], found: Sequence[ChangeCandidate], settings: AnalysisSettings
) -> list[ChangeCandidate]:
    """Return those of ``found`` that remain significant under stricter assumptions, oldest first.

    Removed, the weakest first, are change points with

    * a level of fewer than `AnalysisSettings.min_level_runs` runs, unless both sides are constant;
    * a change smaller than `AnalysisSettings.min_magnitude`;
    * a p value above `AnalysisSettings.max_p_value` after the adjustment for autocorrelation
      (`AnalysisSettings.autocorrelation`).

    After each removal the two levels are joined and the neighbouring change points are tested
    again, as Otava does. The remaining ones keep the statistics of Otava's test, without the
    adjustment.
    """
    kept = list(found)
    correlation = (
        lag_one_autocorrelation(values, [each.index for each in kept])
        if settings.autocorrelation
        else 0.0
    )
    while kept:
        ends = [0, *(each.index for each in kept), len(values)]
        adjusted = [
            (_adjusted_p_value(each, start, stop, correlation, settings), at)
            for at, (each, start, stop) in enumerate(zip(kept, ends, ends[2:], strict=False))
        ]
        largest, weakest = max(adjusted)
        if largest <= settings.max_p_value:
            return kept
        _remove(kept, weakest, values, tested_again=(weakest - 1, weakest))
    return kept


def lag_one_autocorrelation(values: NDArray[np.float64], indices: Sequence[int]) -> float:
    """Return the autocorrelation at lag 1 within the levels delimited by ``indices``, 0 to below 1.

    It is the average over all runs. Each level uses its own variance, so that a level with a missed
    step, whose autocorrelation is very high, does not dominate the others.
    """
    found = runs = 0.0
    for level in np.split(values, indices):
        if len(level) < _SHORTEST:
            continue
        rest = level - level.mean()
        square = float(rest @ rest)
        runs += len(level)
        found += len(level) * float(rest[1:] @ rest[:-1]) / square if square > 0 else 0.0
    return max(found / runs, 0.0) if runs else 0.0


def _adjusted_p_value(
    each: ChangeCandidate, start: int, stop: int, correlation: float, settings: AnalysisSettings
) -> float:
    """Return a change point's adjusted p value; 1 plus its own if a level is too short."""
    before, after = each.index - start, stop - each.index
    if each.stddev_before == 0 and each.stddev_after == 0:
        is_change = each.mean_before != each.mean_after
        return each.p_value if is_change and _magnitude(each) >= settings.min_magnitude else 1.0
    if min(before, after) < settings.min_level_runs or _magnitude(each) < settings.min_magnitude:
        return 1.0 + each.p_value
    if correlation == 0:
        return each.p_value
    from scipy.special import stdtr

    # n runs with an autocorrelation of r carry as much information as n (1 - r) / (1 + r)
    # independent runs.
    share = (1 - correlation) / (1 + correlation)
    count = before + after
    squares = (before - 1) * each.stddev_before**2 + (after - 1) * each.stddev_after**2
    variance = squares / (count - 2) * (1 / before + 1 / after) / share
    t = abs(each.mean_after - each.mean_before) / variance**0.5
    freedom = max(count * share - 2, min(count - 2, _LEAST_FREEDOM))
    return float(2 * stdtr(freedom, -t))


def _magnitude(each: ChangeCandidate) -> float:
    """Return the relative change, up or down, as Otava defines it: 0 for a change from 0."""
    old, new = each.mean_before, each.mean_after
    return max(abs(new / old - 1) if old else 0.0, abs(old / new - 1) if new else 0.0)


def _tested(values: NDArray[np.float64], start: int, index: int, stop: int) -> ChangeCandidate:
    """Return the change point between two others, tested as Otava does."""
    test = energy_splits.level_test(values[start:index], values[index:stop])
    return ChangeCandidate(index, *test)


def _remove(
    found: list[ChangeCandidate],
    place: int,
    values: NDArray[np.float64],
    tested_again: tuple[int, int],
) -> None:
    """Remove a change point; then test those at these places between their new neighbours."""
    del found[place]
    ends = [0, *(each.index for each in found), len(values)]
    for at in tested_again:
        if 0 <= at < len(found):
            found[at] = _tested(values, *ends[at : at + 3])
