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

A level that begins and ends inside a window is in most cases found by no single split of it, so
Otava alone misses temporary regressions; `completed` adds these (`segments`).

Nor does Otava do what `trusted` does: Student's test takes runs for independent and normal. A
single outlier as the last run is a level of its own to it, and machines whose runs resemble the
run before (a warm day, a noisy neighbour) change level all the time. Nor does it clip outliers
(`clipped`), which is done where it is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kraft.errors import InvalidRequestError
from kraft.regression import segments
from kraft.regression.settings import Settings

#: A level of fewer runs does not show whether they resemble each other.
_SHORTEST = 3

#: However alike runs are, Student's distribution is taken with so many degrees of freedom (where
#: there are as many runs): a handful of runs knows too little of its resemblance to go by it alone.
_LEAST_FREEDOM = 6

#: Runs whose median says where an outlier should have been.
AROUND = 11


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


def clipped(values: NDArray[np.float64], settings: Settings) -> NDArray[np.float64]:
    """``values`` without odd ones, where `Settings.clip_outliers` asks for it: none is further than
    so many robust standard deviations from the median of the `AROUND` runs around it.

    The standard deviation is 1.4826 times the median distance from those medians, as of normal
    noise (Hampel 1974). A step stays, but its first runs are clipped, too, until they are half of
    what is around them, so that it takes a few runs more to be found. Counters of which more than
    half do not vary at all are left as they are.
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


def completed(
    values: NDArray[np.float64], found: Sequence[Candidate], settings: Settings
) -> list[Candidate]:
    """Return ``found`` and the levels that single splits miss, all tested anew, oldest first.

    A temporary level has `Settings.min_temporary_runs` to `Settings.window` runs; 0 leaves
    ``found`` as it is. The result still has to pass `trusted`.
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


def trusted(
    values: NDArray[np.float64], found: Sequence[Candidate], settings: Settings
) -> list[Candidate]:
    """Those of ``found`` that stand up to what Student's test leaves out, oldest first.

    Taken out, the weakest first, are a change point that makes a level of fewer than
    `Settings.min_level_runs` (unless nothing varies but it), one that is smaller than
    `Settings.min_magnitude`, and one whose p value is above `Settings.max_p_value` once runs that
    resemble the run before count for less (`Settings.autocorrelation`). The levels that it parted
    become one, and the change points beside it are tested anew, as Otava does where it takes one
    out. The statistics of those that stay are
    those of Otava's test, without that adjustment.
    """
    kept = list(found)
    alike = resemblance(values, [each.index for each in kept]) if settings.autocorrelation else 0.0
    while kept:
        ends = [0, *(each.index for each in kept), len(values)]
        doubts = [
            (_doubt(each, start, stop, alike, settings), at)
            for at, (each, start, stop) in enumerate(zip(kept, ends, ends[2:], strict=False))
        ]
        doubt, weakest = max(doubts)
        if doubt <= settings.max_p_value:
            return kept
        del kept[weakest], ends[weakest + 1]
        for at in range(max(weakest - 1, 0), min(weakest + 1, len(kept))):
            kept[at] = _tested(values, ends[at], ends[at + 1], ends[at + 2])
    return kept


def resemblance(values: NDArray[np.float64], indices: Sequence[int]) -> float:
    """How much a run tells of the next, 0 to below 1: the autocorrelation at lag 1 within each of
    the levels that ``indices`` part, on average over their runs.

    Each level goes by its own variance, so that one in which a step was missed, which resembles
    itself very much, does not speak for all others.
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


def _doubt(each: Candidate, start: int, stop: int, alike: float, settings: Settings) -> float:
    """The p value that a change point has when all is said: 1 and its own where it is too short."""
    before, after = each.index - start, stop - each.index
    if each.stddev_before == 0 and each.stddev_after == 0:
        is_change = each.mean_before != each.mean_after
        return each.p_value if is_change and _magnitude(each) >= settings.min_magnitude else 1.0
    if min(before, after) < settings.min_level_runs or _magnitude(each) < settings.min_magnitude:
        return 1.0 + each.p_value
    if alike == 0:
        return each.p_value
    from scipy.special import stdtr

    # Of n runs with an autocorrelation of r, n (1 - r) / (1 + r) are as good as independent.
    share = (1 - alike) / (1 + alike)
    count = before + after
    squares = (before - 1) * each.stddev_before**2 + (after - 1) * each.stddev_after**2
    variance = squares / (count - 2) * (1 / before + 1 / after) / share
    t = abs(each.mean_after - each.mean_before) / variance**0.5
    freedom = max(count * share - 2, min(count - 2, _LEAST_FREEDOM))
    return float(2 * stdtr(freedom, -t))


def _magnitude(each: Candidate) -> float:
    """Return the relative change, up or down, as Otava measures it: from 0 it is 0."""
    old, new = each.mean_before, each.mean_after
    return max(abs(new / old - 1) if old else 0.0, abs(old / new - 1) if new else 0.0)


def _tested(values: NDArray[np.float64], start: int, index: int, stop: int) -> Candidate:
    """A change point between two others, by Otava's own test."""
    from otava.analysis import TTestSignificanceTester

    stats = TTestSignificanceTester(1.0).compare(values[start:index], values[index:stop])
    return Candidate(
        index,
        float(stats.pvalue),
        float(stats.mean_1),
        float(stats.mean_2),
        float(stats.std_1),
        float(stats.std_2),
    )
