"""Find the split or segment of a level that differs most from its other runs.

A search split by split misses a temporary regression: a level that begins and ends inside a window
moves the mean of both sides of every single split. Circular binary segmentation (Olshen et al.,
Biostatistics 2004) instead compares each segment with the runs around it. `change_points` calls
this module with times, and for `variance_changes` with deviations.

A p value is that of Student's t test of the best split or segment, times the number of candidates
(Bonferroni), because the best one was selected.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

#: A segment is compared with this many runs on either side, and also with all runs of its level.
AROUND = 12

#: A longer level is searched in windows of this many runs, each overlapping half of the next.
MOST_RUNS = 400


class ChangedSegment(NamedTuple):
    """The runs ``start <= run < stop`` that differ from the others."""

    start: int
    stop: int
    p_value: float


def boundaries(
    values: NDArray[np.float64],
    ends: list[int],
    *,
    shortest: int,
    longest: int,
    max_p_value: float,
) -> list[int]:
    """Return the sorted indices that split the levels between ``ends`` into further levels.

    ``ends`` holds 0, the known change points, and ``len(values)``. A segment inside a level has
    ``shortest`` to ``longest`` runs. It is compared with all runs of the level and, because the
    level may contain other segments, with the `AROUND` runs around it. A split leaves at least
    ``shortest`` runs on either side. The best candidate is accepted if its p value is at most
    ``max_p_value``; then the parts of the level are searched in the same way.
    """
    levels = [window for start, stop in pairwise(ends) for window in _windows(start, stop)]
    limit = max_p_value / max(len(levels) - len(ends) + 2, 1)
    found: set[int] = set()
    while levels:
        start, stop = levels.pop()
        best = best_of(values[start:stop], shortest, longest)
        if best is None or best.p_value > limit:
            continue
        inner = [start + at for at in best[:2] if 0 < at < stop - start]
        found.update(inner)
        levels += pairwise([start, *inner, stop])
    return sorted(found)


def _windows(start: int, stop: int) -> list[tuple[int, int]]:
    if stop - start <= MOST_RUNS:
        return [(start, stop)]
    steps = range(start, stop - MOST_RUNS // 2, MOST_RUNS // 2)
    return [(at, min(at + MOST_RUNS, stop)) for at in steps]


def best_of(values: NDArray[np.float64], shortest: int, longest: int) -> ChangedSegment | None:
    """Return the split or segment of ``values`` with the smallest p value, or None."""
    tried = (
        best_split(values, shortest),
        best_segment(values, shortest, longest, len(values)),
        best_segment(values, shortest, longest, AROUND),
    )
    return min(
        (each for each in tried if each is not None), key=lambda each: each.p_value, default=None
    )


def best_split(values: NDArray[np.float64], shortest: int) -> ChangedSegment | None:
    """Return the runs after the split that separates ``values`` best.

    Either side has at least ``shortest`` runs. None if there are too few runs or all are equal.
    """
    count = len(values)
    if count < max(2 * shortest, 3):
        return None
    rest = values - values.mean()
    square, floor = float(rest @ rest), _rounding(values)
    if square <= floor:
        return None
    at = np.arange(shortest, count - shortest + 1)
    gains = np.square(np.cumsum(rest)[at - 1]) * count / (at * (count - at))
    best = int(np.argmax(gains))
    gain = float(gains[best])
    t_square = gain * (count - 2) / max(square - gain, floor)
    return ChangedSegment(int(at[best]), count, _student(t_square, count - 2, len(at)))


def best_segment(
    values: NDArray[np.float64], shortest: int, longest: int, around: int
) -> ChangedSegment | None:
    """Return the segment of ``shortest`` to ``longest`` runs that differs most from the others.

    The others are the ``around`` runs before and after it, fewer at the ends, but at least
    ``shortest`` on either side. None if there are too few runs or all are equal.
    """
    count = len(values)
    longest = min(longest, count - 2 * shortest)
    if longest < shortest:
        return None
    rest = values - values.mean()
    sums = np.concatenate([[0.0], np.cumsum(rest)])
    squares = np.concatenate([[0.0], np.cumsum(np.square(rest))])
    each = _places(count, shortest, longest, around)
    # `take` gathers in half the time of an index in brackets.
    of_all = sums.take(each.last) - sums.take(each.first)
    of_segment = sums.take(each.stops) - sums.take(each.starts) - of_all * each.share
    gains = np.square(of_segment) * each.weight
    floor = _rounding(values)
    within = np.maximum(
        squares.take(each.last) - squares.take(each.first) - np.square(of_all) / each.total - gains,
        floor,
    )
    explained = gains / within
    # The numbers of other runs differ between segments; the likelihood makes them comparable.
    best = _largest_likelihood(each.total, explained)
    if gains[best] <= floor:
        return None
    freedom = int(np.broadcast_to(each.total, explained.shape)[best]) - 2
    p_value = _student(float(explained[best]) * freedom, freedom, len(each.starts))
    return ChangedSegment(int(each.starts[best]), int(each.stops[best]), p_value)


def _largest_likelihood(total: NDArray[np.int64], explained: NDArray[np.float64]) -> int:
    """Return the first index of the largest ``total * log1p(explained)``.

    Logarithms are half of the time of `best_segment`; as log1p(x) <= x, few of them are needed.
    """
    bounds = total * explained
    likely = int(np.argmax(bounds))
    total = np.broadcast_to(total, explained.shape)
    reached = total[likely] * np.log1p(explained[likely])
    # A margin far above rounding errors, so that the result is that of all logarithms.
    (rest,) = np.nonzero(bounds >= reached * (1 - 1e-9))
    return int(rest[np.argmax(total[rest] * np.log1p(explained[rest]))])


class _Places(NamedTuple):
    """All segments of a level; the runs compared with a segment are ``first <= run < last``.

    ``first``, ``last`` and ``total`` have one element if they are those of the level.
    """

    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    total: NDArray[np.int64]  # runs of the segment and of those compared with it
    share: NDArray[np.float64]  # of the segment in that total
    weight: NDArray[np.float64]  # factor of the squared sum of a segment's deviations


@lru_cache(maxsize=32)  # an analysis has few different lengths; at most 1 MB each
def _places(count: int, shortest: int, longest: int, around: int) -> _Places:
    starts, lengths = np.meshgrid(
        np.arange(shortest, count - 2 * shortest + 1),
        np.arange(shortest, longest + 1),
        indexing="ij",
    )
    inside = starts + lengths <= count - shortest
    starts, lengths = starts[inside], lengths[inside]
    stops = starts + lengths
    if around >= count:
        first, last = np.array([0]), np.array([count])
    else:
        first, last = np.maximum(starts - around, 0), np.minimum(stops + around, count)
    total = last - first
    weight = total / (lengths * (total - lengths))
    return _Places(starts, stops, first, last, total, lengths / total, weight)


def _student(t_square: float, freedom: int, tests: int) -> float:
    """Return the two-sided p value of the best of ``tests`` t tests."""
    from scipy.special import stdtr

    return float(min(2 * stdtr(freedom, -np.sqrt(t_square)) * tests, 1.0))


def _rounding(values: NDArray[np.float64]) -> float:
    """Return the sum of squares below which ``values`` differ only by rounding errors."""
    return max(len(values) * float(np.square(values).max()) * 1e-28, 1e-300)
