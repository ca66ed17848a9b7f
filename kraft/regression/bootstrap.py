"""How certain a ratio is: percentile bootstrap over runs, and over the rounds within them.

Owns resampling. Fed by `history`, `scaling` and `comparison` with the runs of two levels.

The rounds of one run are not independent of each other: they share a process, a layout of memory,
a temperature. So runs are drawn first, with replacement, and then each run that was drawn gets one
of its own resamplings of its rounds. Taking both levels makes the interval a little too wide rather
than too narrow (docs/regressions.md measures how often it holds the truth), and gives one where a
side has a single run.
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
    settings: Settings,
    random: np.random.Generator,
) -> NDArray[np.float64]:
    """`Settings.bootstrap_samples` draws of the mean of a level, float64[samples].

    ``values`` has one entry a run, at least one; ``rounds`` the round values of each run, or an
    empty array for a run that did not save them. They are left out where the statistic is none of
    theirs (`instructions` counts something else than the rounds time).
    """
    count, samples = len(values), settings.bootstrap_samples
    assert count > 0, "a level without runs has no mean"
    reduction = _REDUCTIONS.get(settings.statistic)
    if count >= LARGE_LEVEL:
        error = float(values.std(ddof=1)) / count**0.5
        return random.normal(float(values.mean()), error, samples)
    pool = np.repeat(values[:, None], REPLICAS, axis=1)
    if rounds is not None and reduction is not None:
        for size in {len(each) for each in rounds if len(each) > 1}:
            rows = np.array([at for at, each in enumerate(rounds) if len(each) == size])
            saved = np.stack([rounds[at] for at in rows])
            drawn = random.integers(0, size, (len(rows), REPLICAS, size))
            pool[rows] = reduction(saved[np.arange(len(rows))[:, None, None], drawn], axis=2)
    if (pool == pool[0, 0]).all():
        return np.full(samples, pool[0, 0])
    chosen = random.integers(0, pool.size, (samples, count), dtype=np.uint32)
    means: NDArray[np.float64] = pool.ravel()[chosen].mean(axis=1)
    return means


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
    whose ratio it is (the series' key, the index), so that the draws are its own.
    """
    random = generator(settings, *names)
    value = quotient(float(after.mean()), float(before.mean()))
    old = level_means(before, rounds_before, settings, random)
    new = level_means(after, rounds_after, settings, random)
    # A single run does not know how much runs differ, and takes it from the other side.
    if len(before) > 1 and len(after) == 1 and (old > 0).all():
        new = new * random.choice(before, len(new)) / before.mean()
    elif len(after) > 1 and len(before) == 1 and (new > 0).all():
        old = old * random.choice(after, len(old)) / after.mean()
    if (old <= 0).any():
        return Ratio(value, value if np.isfinite(value) else 0.0, float("inf"))
    low, high = interval(new / old, settings)
    # The mean of a median of few, skewed rounds need not lie among the means of its resamplings.
    return Ratio(value, min(low, value), max(high, value))
