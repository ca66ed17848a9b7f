"""Confidence intervals of ratios: percentile bootstrap over runs and over the rounds within them.

`series_analysis`, `scaling` and `comparison` call `ratio` with the runs of two levels.

The rounds of one run are not independent: they share a process, a memory layout, a temperature. So
runs are drawn first, with replacement; each drawn run then takes one of its own resamplings of its
rounds. Resampling both levels makes the interval slightly too wide rather than too narrow, and
produces one for a single run per side. A level of few runs draws its deviations from both levels,
because resampling two runs would underestimate the variance. docs/regressions.md measures how often
the interval contains the true ratio.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from kraft.regression.findings import Ratio
from kraft.regression.settings import AnalysisSettings

Rounds = Sequence[NDArray[np.float64]]

#: Resamplings of the rounds of one run; each draw of the run takes one of them.
REPLICAS = 32

#: With this many runs, the mean of a level is normally distributed (central limit theorem).
#: Resampling thousands of runs would produce the same interval and take a second.
LARGE_LEVEL = 100

#: A run with more rounds is reduced to an even selection of them.
MOST_ROUNDS = 256

#: A level of fewer runs draws from the deviations of both levels.
FEW_RUNS = 10

_REDUCTIONS: dict[str, Callable[..., NDArray[np.float64]]] = {
    "min": np.min,
    "median": np.median,
    "mean": np.mean,
    "max": np.max,
}


def generator(settings: AnalysisSettings, *names: object) -> np.random.Generator:
    """Return a random generator that depends only on `AnalysisSettings.seed` and ``names``.

    So the results depend neither on the order in which series are analysed nor on the machine.
    """
    text = repr((settings.seed, *(str(name) for name in names)))
    digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little")))


def level_means(
    values: NDArray[np.float64],
    rounds: Rounds | None,
    deviations: NDArray[np.float64],
    settings: AnalysisSettings,
    random: np.random.Generator,
) -> NDArray[np.float64]:
    """Return `AnalysisSettings.bootstrap_samples` draws of the mean of a level, float64[samples].

    ``values`` has one entry per run, at least one; ``rounds`` holds the finite round values of each
    run, an empty array if they were not saved. Rounds are ignored for a statistic that is not
    computed from them (`instructions`). ``deviations`` are those of `_deviations`; a level of fewer
    than `FEW_RUNS` runs draws from them.
    """
    count, samples = len(values), settings.bootstrap_samples
    assert count > 0, "a level without runs has no mean"
    mean = float(values.mean())
    if count < FEW_RUNS and len(deviations):
        chosen = random.integers(0, len(deviations), (samples, count))
        return np.asarray(mean * (1 + _row_means(deviations[chosen])), dtype=np.float64)
    if count >= LARGE_LEVEL:
        return random.normal(mean, float(values.std(ddof=1)) / count**0.5, samples)
    pool = _replicas(values, rounds, settings, random)
    if (pool == pool[0, 0]).all():
        return np.full(samples, pool[0, 0])
    drawn = random.integers(0, pool.size, (samples, count), dtype=np.uint32)
    return _row_means(pool.ravel()[drawn])


def _row_means(draws: NDArray[np.float64]) -> NDArray[np.float64]:
    means: NDArray[np.float64] = draws.mean(axis=1)
    return means


def _replicas(
    values: NDArray[np.float64],
    rounds: Rounds | None,
    settings: AnalysisSettings,
    random: np.random.Generator,
) -> NDArray[np.float64]:
    """Return `REPLICAS` values of each run, float64[runs, replicas].

    Each is the statistic of the run's rounds, drawn with replacement, or the value itself if the
    run has no rounds.
    """
    pool = np.repeat(values[:, None], REPLICAS, axis=1)
    reduction = _REDUCTIONS.get(settings.statistic)
    if rounds is None or reduction is None:
        return pool
    thinned = [each[:: 1 + max(len(each) - 1, 0) // MOST_ROUNDS] for each in rounds]
    for size in sorted({len(each) for each in thinned if len(each) > 1}):
        rows = np.array([at for at, each in enumerate(thinned) if len(each) == size])
        saved = np.stack([thinned[at] for at in rows])
        drawn = random.integers(0, size, (len(rows), REPLICAS, size))
        pool[rows] = reduction(saved[np.arange(len(rows))[:, None, None], drawn], axis=2)
    return pool


def _deviations(before: NDArray[np.float64], after: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the relative deviations of runs from the mean of their level, in both levels.

    They are scaled up for the degrees of freedom that the means use. Empty if no level has two
    runs.
    """
    levels = [level for level in (before, after) if len(level) > 1 and level.mean() > 0]
    if not levels:
        return np.zeros(0)
    rest = np.concatenate([level / level.mean() - 1 for level in levels])
    wider: NDArray[np.float64] = rest * (len(rest) / (len(rest) - len(levels))) ** 0.5
    return wider


def interval(draws: NDArray[np.floating], settings: AnalysisSettings) -> tuple[float, float]:
    """Return the middle `AnalysisSettings.confidence` of ``draws``."""
    tail = (1 - settings.confidence) / 2
    low, high = np.quantile(draws, (tail, 1 - tail))
    return float(low), float(high)


def quotient(new: float, old: float) -> float:
    """Return new / old of values where smaller is better; infinite if only ``old`` is 0."""
    if old == 0:
        return 1.0 if new == 0 else float(np.copysign(np.inf, new))
    return new / old


def ratio(
    before: NDArray[np.float64],
    after: NDArray[np.float64],
    rounds_before: Rounds | None,
    rounds_after: Rounds | None,
    settings: AnalysisSettings,
    *names: object,
) -> Ratio:
    """Return mean(after) / mean(before) with its interval; takes a few milliseconds.

    ``before`` and ``after`` have one value per run, the rounds one array per run or are None.
    ``names`` identify the ratio (the series' key, the index) and so select its random draws. If the
    old level may be 0, the interval is 0 to infinity.
    """
    random = generator(settings, *names)
    value = quotient(float(after.mean()), float(before.mean()))
    # With few runs, the variance is estimated from both sides, as in Student's test.
    deviations = _deviations(before, after)
    old = level_means(before, rounds_before, deviations, settings, random)
    new = level_means(after, rounds_after, deviations, settings, random)
    if (old <= 0).any():
        return Ratio(value, 0.0, float("inf"))
    low, high = interval(new / old, settings)
    # For few, skewed rounds the mean of the medians may lie outside the means of the resamplings.
    return Ratio(value, min(low, value), max(high, value))
