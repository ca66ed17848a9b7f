"""Slow drifts: a value that changes by a little from run to run, with no single run responsible.

`series_analysis` calls `find` with the change points of a series; `find` decides between steps and
a ramp. E-divisive describes a ramp as several steps at positions that depend on the noise, or finds
nothing.

The model is a level, a straight line to another level, and that level (least squares; a search
finds the first and last run of the line). A ramp replaces the change points inside it if its
Bayesian information criterion (Schwarz 1978) is better than that of the levels by at least
`_EVIDENCE` (`_EVIDENCE_OF_SEVERAL` for several change points). It is a drift only if the F test
against a constant level has a p value of at most `AnalysisSettings.max_p_value`. Both tests
discount autocorrelated runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from kraft.regression import change_points
from kraft.regression.change_points import ChangeCandidate
from kraft.regression.settings import AnalysisSettings

#: A shorter ramp is a step with a few intermediate runs.
SHORTEST = 10

#: Difference of the information criterion from which a ramp is preferred to one step. With this
#: value, 1 in 100 steps of 5 % at 2 % noise is reported as a drift.
_EVIDENCE = 2.0

#: The same for several steps in one direction, which are rarer than drifts: of two steps of 5 %
#: that are 30 runs apart, 4 in 100 are reported as a drift; of drifts of 10 % over 50 runs, 3 in
#: 100 are missed.
_EVIDENCE_OF_SEVERAL = -2.0

#: Positions tried for a ramp's first and last run; then the search refines around the best.
_PLACES = 48

#: Consecutive change points in one direction are tried as a drift in groups of up to this many, and
#: all together.
_MOST_GROUPED = 12


@dataclass(frozen=True)
class Ramp:
    """A straight rise or fall from run ``start`` (the last of the old level) to run ``stop``."""

    start: int
    stop: int
    before: float  # the old level
    after: float  # the new level
    error: float  # standard error of after - before
    freedom: float  # its degrees of freedom
    p_value: float


def find(
    values: NDArray[np.float64], found: Sequence[ChangeCandidate], settings: AnalysisSettings
) -> tuple[list[Ramp], list[ChangeCandidate]]:
    """Return the drifts, oldest first, and those of ``found`` that no drift replaces.

    Return no drifts if `AnalysisSettings.find_drifts` is off.
    """
    kept = list(found)
    ramps: list[Ramp] = []
    if not settings.find_drifts:
        return ramps, kept
    while (best := _best(values, kept, ramps, settings)) is not None:
        ramp, first, last = best
        ramps.append(ramp)
        del kept[first:last]
    return sorted(ramps, key=lambda each: each.start), kept


def _best(
    values: NDArray[np.float64],
    kept: list[ChangeCandidate],
    ramps: list[Ramp],
    settings: AnalysisSettings,
) -> tuple[Ramp, int, int] | None:
    """Return the ramp with the most evidence and the range of change points that it replaces."""
    ends = [0, *(each.index for each in kept), len(values)]
    rises = [each.mean_after > each.mean_before for each in kept]
    best: tuple[float, Ramp, int, int] | None = None
    for first in range(len(kept) + 1):
        # Groups of a few change points in one direction, and all of them as one group.
        same = next((at for at in range(first, len(kept)) if rises[at] != rises[first]), len(kept))
        for last in sorted({*range(first, min(first + _MOST_GROUPED, same) + 1), same}):
            start, stop = ends[first], ends[last + 1]
            if any(start < each.stop and each.start < stop for each in ramps):
                continue
            fitted = _fitted(values[start:stop], [at - start for at in ends[first + 1 : last + 1]])
            if fitted is None:
                continue
            ramp, evidence = _judged(values[start:stop], fitted, settings)
            if ramp is None or (best is not None and evidence <= best[0]):
                continue
            moved = Ramp(start + ramp.start, start + ramp.stop, *_rest(ramp))
            best = evidence, moved, first, last
    return None if best is None else best[1:]


def _rest(ramp: Ramp) -> tuple[float, float, float, float, float]:
    return ramp.before, ramp.after, ramp.error, ramp.freedom, ramp.p_value


@dataclass(frozen=True)
class _Fit:
    start: int
    stop: int
    square: float  # sum of squared residuals of the ramp
    of_steps: float  # the same of the levels
    steps: int


def _fitted(values: NDArray[np.float64], steps: list[int]) -> _Fit | None:
    """Return the best ramp of ``values`` and the fit of levels split at ``steps``, None if too
    short.
    """
    count = len(values)
    if count < SHORTEST:
        return None
    levels = [level - level.mean() for level in np.split(values, steps)]
    of_steps = sum(float(level @ level) for level in levels)
    squares = _Squares(values)
    stride = max(1, -(-count // _PLACES))
    places = np.unique(np.append(np.arange(0, count, stride), count - 1))
    start, stop, square = squares.best(places, places)
    while stride > 1:
        around = np.arange(-stride, stride + 1, max(1, stride // 4))
        stride = max(1, stride // 4)
        start, stop, square = squares.best(
            np.unique(np.clip(start + around, 0, count - 1)),
            np.unique(np.clip(stop + around, 0, count - 1)),
        )
    return None if start == stop else _Fit(start, stop, square, of_steps, len(steps))


class _Squares:
    """Residual sums of squares of ramps over one stretch of runs, each in constant time."""

    def __init__(self, values: NDArray[np.float64]) -> None:
        self.count = len(values)
        rest = values - values.mean()
        self.square = float(rest @ rest)
        self.sums = np.concatenate([[0.0], np.cumsum(rest)])
        self.moments = np.concatenate([[0.0], np.cumsum(rest * np.arange(self.count))])

    def best(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> tuple[int, int, float]:
        """Return first run, last run and residual sum of squares; 0, 0 if no two are far enough
        apart.
        """
        first, last = np.meshgrid(starts, stops, indexing="ij")
        long = last - first >= SHORTEST - 1
        if not long.any():
            return 0, 0, self.square
        first, last = first[long], last[long]
        width = (last - first).astype(np.float64)
        behind = self.count - 1 - last
        # x is 0 up to the first run, 1 from the last run on, and linear in between.
        sum_x = (width + 1) / 2 + behind
        sum_xx = (width + 1) * (2 * width + 1) / (6 * width) + behind
        inside = self.moments[last + 1] - self.moments[first]
        sum_xy = (inside - first * (self.sums[last + 1] - self.sums[first])) / width
        sum_xy -= self.sums[last + 1]  # all deviations sum to 0
        explained = np.square(sum_xy) / (sum_xx - np.square(sum_x) / self.count)
        at = int(np.argmax(explained))
        return int(first[at]), int(last[at]), max(self.square - float(explained[at]), 0.0)


def _judged(
    values: NDArray[np.float64], fit: _Fit, settings: AnalysisSettings
) -> tuple[Ramp | None, float]:
    """Return the ramp, None unless it is a drift, and its evidence."""
    from scipy.special import fdtrc

    count = len(values)
    shape = np.clip((np.arange(count) - fit.start) / (fit.stop - fit.start), 0.0, 1.0)
    spread = shape - shape.mean()
    rise = float(spread @ values / (spread @ spread))
    before = float(values.mean() - rise * shape.mean())
    rest = values - before - rise * shape
    floor = max(count * float(np.square(values).max()) * 1e-28, 1e-300)
    square, of_steps = max(fit.square, floor), max(fit.of_steps, floor)
    is_exact = fit.square <= floor  # only rounding errors remain; they correlate
    is_corrected = settings.autocorrelation and not is_exact
    correlation = change_points.lag_one_autocorrelation(rest, []) if is_corrected else 0.0
    effective = count * (1 - correlation) / (1 + correlation)
    freedom = effective - 4  # two levels, the first run, the last run
    if freedom < 2 or before <= 0 or before + rise <= 0:
        return None, 0.0
    constant = max(float(np.square(values - values.mean()).sum()), floor)
    p_value = float(fdtrc(3, freedom, max(constant - square, 0.0) / square * freedom / 3))
    # Steps have one more level than positions as parameters; a ramp has 4 parameters.
    parameters = 2 * fit.steps + 1 - 4
    evidence = effective * np.log(of_steps / square) + parameters * np.log(max(effective, 2))
    wanted = _EVIDENCE if fit.steps < 2 else _EVIDENCE_OF_SEVERAL
    if p_value > settings.max_p_value or evidence < wanted:
        return None, 0.0
    if max((before + rise) / before, before / (before + rise)) - 1 < settings.min_magnitude:
        return None, 0.0
    error = float(np.sqrt(square / freedom / (spread @ spread) * count / effective))
    return Ramp(fit.start, fit.stop, before, before + rise, error, freedom, p_value), evidence


def residuals(
    values: NDArray[np.float64], indices: Sequence[int], ramps: Sequence[Ramp]
) -> NDArray[np.float64]:
    """Return the values relative to their levels and drifts, around 0: 0.02 is 2 % above.

    ``indices`` are the change points outside of drifts. NaN if a level is 0.
    """
    rest = np.empty(len(values))
    for start, stop in pairwise([0, *indices, len(values)]):
        inside = [each for each in ramps if start <= each.start and each.stop < stop]
        # Between two ramps of one level, the boundary is the middle between them.
        cuts = [(one.stop + other.start) // 2 for one, other in pairwise(inside)]
        fitted = np.full(stop - start, values[start:stop].mean())
        for (first, last), ramp in zip(pairwise([start, *cuts, stop]), inside, strict=False):
            shape = (np.arange(first, last) - ramp.start) / (ramp.stop - ramp.start)
            rise = (ramp.after - ramp.before) * np.clip(shape, 0.0, 1.0)
            fitted[first - start : last - start] = ramp.before + rise
        with np.errstate(divide="ignore", invalid="ignore"):
            rest[start:stop] = values[start:stop] / fitted - 1
    return rest
