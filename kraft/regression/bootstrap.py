"""How certain a ratio is: percentile bootstrap over runs, and over the rounds within them.

Owns resampling. Fed by `history`, `scaling` and `comparison` with the runs of two levels.

The rounds of one run are not independent of each other: they share a process, a layout of memory,
a temperature. So runs are drawn first, with replacement, and then each run that was drawn gets one
of its own resamplings of its rounds. Taking both levels makes the interval a little too wide rather
than too narrow, and gives one where there is a single run on either side. A level of few runs has
its deviations drawn from those of both levels: resampling two runs would say far too little.
docs/regressions.md measures how often the interval holds the truth.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from kraft.regression.findings import Ratio
from kraft.regression.settings import Settings

Rounds = Sequence[NDArray[np.float64]]

#: Resamplings of the rounds of one run, from which each draw of the run takes one.
REPLICAS = 32

#: From this many runs on, the mean of a level is normally distributed by the central limit theorem,
#: whatever one run is like; resampling thousands of runs would say the same and take a second.
LARGE_LEVEL = 100

#: Rounds of a run that are drawn from; of more than these an even selection.
MOST_ROUNDS = 256

#: A level of fewer runs draws from the deviations of both levels.
FEW_RUNS = 10

_REDUCTIONS: dict[str, Callable[..., NDArray[np.float64]]] = {
    "min": np.min,
    "median": np.median,
    "mean": np.mean,
    "max": np.max,
}


def generator(settings: Settings, *names: object) -> np.random.Generator:
    """Random numbers that depend on `Settings.seed` and on what they are for, and on nothing else:
    neither on the order in which series are analysed, nor on the machine that does it."""
    text = repr((settings.seed, *(str(name) for name in names)))
    digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little")))


def level_means(
    values: NDArray[np.float64],
    rounds: Rounds | None,
    deviations: NDArray[np.float64],
    settings: Settings,
    random: np.random.Generator,
) -> NDArray[np.float64]:
    """`Settings.bootstrap_samples` draws of the mean of a level, float64[samples].

    ``values`` has one entry a run, at least one; ``rounds`` the finite round values of each run, or
    an empty array for a run that did not save them. They are left out where the statistic is none
    of theirs (`instructions` counts something else than the rounds time). ``deviations`` are those
    of `_deviations`, from which a level of less than `FEW_RUNS` draws.
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
    settings: Settings,
    random: np.random.Generator,
) -> NDArray[np.float64]:
    """`REPLICAS` values of each run, float64[runs, replicas]: the statistic of its rounds, drawn
    with replacement, or the value itself where there are no rounds to draw from."""
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
    """How runs differ from the mean of their level, relative to it, in both levels; made as large
    as the degrees of freedom that the means took away. Empty where no level has two runs."""
    levels = [level for level in (before, after) if len(level) > 1 and level.mean() > 0]
    if not levels:
        return np.zeros(0)
    rest = np.concatenate([level / level.mean() - 1 for level in levels])
    wider: NDArray[np.float64] = rest * (len(rest) / (len(rest) - len(levels))) ** 0.5
    return wider


def interval(draws: NDArray[np.floating], settings: Settings) -> tuple[float, float]:
    """The middle `Settings.confidence` of ``draws``."""
    tail = (1 - settings.confidence) / 2
    low, high = np.quantile(draws, (tail, 1 - tail))
    return float(low), float(high)


def quotient(new: float, old: float) -> float:
    """new / old of values where smaller is better; from nothing to something is infinitely more."""
    if old == 0:
        return 1.0 if new == 0 else float(np.copysign(np.inf, new))
    return new / old


def ratio(
    before: NDArray[np.float64],
    after: NDArray[np.float64],
    rounds_before: Rounds | None,
    rounds_after: Rounds | None,
    settings: Settings,
    *names: object,
) -> Ratio:
    """mean(after) / mean(before) with its interval, a few milliseconds.

    ``before`` and ``after`` have one value a run, the rounds one array a run or None; ``names`` say
    whose ratio it is (the series' key, the index), so that the draws are its own. Where the old
    level may be 0, nothing bounds the ratio, and the interval says so: 0 to infinity.
    """
    random = generator(settings, *names)
    value = quotient(float(after.mean()), float(before.mean()))
    # Few runs do not know how much runs differ: like Student's test, they take it from both sides.
    deviations = _deviations(before, after)
    old = level_means(before, rounds_before, deviations, settings, random)
    new = level_means(after, rounds_after, deviations, settings, random)
    if (old <= 0).any():
        return Ratio(value, 0.0, float("inf"))
    low, high = interval(new / old, settings)
    # The mean of a median of few, skewed rounds need not lie among the means of its resamplings.
    return Ratio(value, min(low, value), max(high, value))
