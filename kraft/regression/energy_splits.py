"""Splits of a history by energy distance, and the t test of two levels: the first part of Otava's
method.

`change_points` calls `splits` and `level_test`. Both are pure functions of their arguments, equal
to Apache Otava's to the last bit: a test compares them with the ``otava`` package. They are written
here because Otava builds the same coefficients again for every window and imports scipy.stats: with
its functions, 200 series of 500 runs take twice as long.

The energy statistic of the runs ``start <= i < at`` and ``at <= j < stop`` is the mean distance
between the two parts minus the mean distances within them, scaled by their sizes (Székely and
Rizzo 2004; Matteson and James, JASA 2014). Cumulative sums of the distances of a window give it for
all ``at`` and ``stop`` at once. The order of the additions and divisions is that of Otava, because
the largest of nearly equal values depends on their last bits.
"""

from __future__ import annotations

from bisect import insort
from functools import lru_cache
from itertools import pairwise
from math import nan, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class LevelTest(NamedTuple):
    """Student's t test of two levels, and their statistics."""

    p_value: float  # two-sided; NaN if both are constant and equal
    mean_before: float
    mean_after: float
    stddev_before: float  # of the population, 0 for a single value
    stddev_after: float


def splits(values: Floats, window: int, max_p_value: float) -> list[int]:
    """Return the sorted indices of the runs that begin a new level, float64[runs] in.

    Windows of ``window`` runs begin half a window after the one before, or at its last split if
    that is later. A window is divided at its largest energy statistic as long as `level_test`
    gives a p value of at most ``max_p_value``, then the parts in the same way.
    """
    found: set[int] = set()
    start = 0
    while start < len(values):
        inner = _splits_of_window(values[start : start + window], max_p_value)
        found.update(start + at for at in inner)
        start += max([*inner[-1:], window // 2])
    return sorted(found)


def level_test(before: Floats, after: Floats) -> LevelTest:
    """Return Student's t test, for equal variances, of two levels with a run each or more.

    The variances are those of the population, as in Otava. The p value of two single runs is 1.
    """
    from scipy.special import stdtr

    n_before, n_after = len(before), len(after)
    mean_before, stddev_before = _moments(before)
    mean_after, stddev_after = _moments(after)
    freedom = n_before + n_after - 2.0
    if freedom == 0:
        return LevelTest(1.0, mean_before, mean_after, stddev_before, stddev_after)
    squares = (n_before - 1) * (stddev_before * stddev_before)
    squares += (n_after - 1) * (stddev_after * stddev_after)
    error = sqrt(squares / freedom * (1.0 / n_before + 1.0 / n_after))
    change = mean_before - mean_after
    if error > 0:
        p_value = float(2 * stdtr(freedom, -abs(change / error)))
    else:
        p_value = 0.0 if change else nan
    return LevelTest(p_value, mean_before, mean_after, stddev_before, stddev_after)


def _moments(values: Floats) -> tuple[float, float]:
    """Return what ``values.mean()`` and ``values.std()`` return, in a third of their time."""
    count = len(values)
    mean = np.add.reduce(values) / count
    rest = values - mean
    return float(mean), sqrt(np.add.reduce(rest * rest) / count)


def _splits_of_window(values: Floats, max_p_value: float) -> list[int]:
    """Return the sorted indices at which one window is divided."""
    count = len(values)
    found: list[int] = []
    if count < 2:
        return found
    distances = _Distances(values)
    best: dict[tuple[int, int], tuple[float, int]] = {}  # part -> its statistic and split
    while True:
        parts = [part for part in pairwise([0, *found, count]) if part[1] - part[0] > 1]
        if not parts:
            return found
        for part in parts:
            if part not in best:
                best[part] = distances.best_split(*part)
        start, stop = max(parts, key=lambda part: best[part][0])
        at = best[start, stop][1]
        # A p value of NaN, of a constant part, is not significant.
        if not level_test(values[start:at], values[at:stop]).p_value <= max_p_value:
            return found
        insort(found, at)


class _Distances:
    """The distances between all runs of one window, and their sums."""

    def __init__(self, values: Floats) -> None:
        self._between = np.abs(values[:, None] - values[None, :])
        # Row i, column j: the distance between run i and the later run j + 1.
        later = np.where(_factors(len(values)).is_later, self._between[:-1, 1:], 0.0)
        self._to_earlier = later.sum(axis=0)  # of run j + 1 to all earlier ones
        self._to_later = later.cumsum(axis=1)  # of run i to those after it, up to j + 1

    def best_split(self, start: int, stop: int) -> tuple[float, int]:
        """Return the largest energy statistic of a part of two runs or more, and its index."""
        inside = slice(start, stop - 1)
        to_later = self._to_later[inside, inside]
        to_earlier = self._to_earlier[inside]
        if start:
            to_earlier = to_earlier - self._between[:start, start + 1 : stop].sum(axis=0)
        within_before = np.cumsum(to_earlier)[:-1, None]
        factors = _factors(stop - start)
        # Row i, column j: the split before run i + 1 of the part, whose first j + 2 runs are used.
        energy = np.cumsum(to_later, axis=0)
        energy[1:] -= within_before
        energy *= factors.between
        energy[1:] -= factors.before[1:] * within_before
        within_after = np.cumsum(to_later[:0:-1, 1:], axis=0)[::-1]
        energy[:-1, 1:] -= factors.after[:-1, 1:] * within_after
        best = int(energy.argmax())
        return float(energy.flat[best]), start + best // (stop - start - 1) + 1


class _Factors(NamedTuple):
    """Factors of the sums in the energy statistic, 0 where a split is not before the last run."""

    is_later: NDArray[np.bool_]
    between: Floats
    before: Floats
    after: Floats


@lru_cache(maxsize=256)  # a window has few different lengths of parts; 60 kB for 50 runs
def _factors(count: int) -> _Factors:
    """Return the factors of a part with ``count`` runs, each float64[count - 1, count - 1]."""
    before = np.arange(1, count)[:, None]
    runs = np.arange(2, count + 1)[None, :]
    after = runs - before
    is_later = after > 0
    return _Factors(
        is_later,
        np.where(is_later, 2 / runs, 0.0),
        _quotients(2 * after, runs * (before - 1), is_later),
        _quotients(2 * before, runs * (after - 1), is_later),
    )


def _quotients(of: NDArray[np.int64], by: NDArray[np.int64], where: NDArray[np.bool_]) -> Floats:
    """Return the quotients, 0 for a divisor of 0 and outside of ``where``."""
    return np.divide(of, by, out=np.zeros(where.shape), where=where & (by != 0))
