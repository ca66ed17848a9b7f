"""Generated histories, thousands of them, of every shape that a benchmark's history may have.

A history is a level with steps or drifts, times noise, with outliers. Suites of 20 histories share
their runs; half of the suites miss some. The same seed produces the same histories.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tests.otava.suites import Suite

Values = NDArray[np.float64]

#: Histories per suite.
TOGETHER = 20


def suites(count: int, seed: int) -> list[Suite]:
    """Yield ``count`` histories in suites, from 2 to 400 runs long."""
    made: list[Suite] = []
    for first in range(0, count, TOGETHER):
        random = np.random.default_rng([seed, first])
        number = len(made)
        runs = np.arange(_length(number, random))
        if number % 2:
            runs = _missing(runs, random)
        together = min(TOGETHER, count - first)
        # If one benchmark misses a value, Otava's CSV can only omit the row: such a benchmark forms
        # its own suite there.
        made.append(
            Suite(
                f"generated_{number:03}",
                runs,
                {
                    f"history_{first + at:04}": _history(first + at, len(runs), random)
                    for at in range(together)
                },
            )
        )
    return made


def _length(number: int, random: np.random.Generator) -> int:
    """Return a length, mostly around Otava's window; a few tiny, a few long."""
    if number % 10 == 0:
        return int(random.integers(2, 12))
    return int(random.integers(150, 400) if number % 5 == 0 else random.integers(12, 150))


def _missing(runs: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
    """Return the runs without the suite: single ones, or a whole range."""
    there = random.random(len(runs)) > random.choice([0.02, 0.1, 0.3])
    if random.random() < 0.5:
        start = int(random.integers(0, len(runs)))
        there[start : start + len(runs) // 5] = False
    there[:2] = True
    return runs[there]


def _history(number: int, count: int, random: np.random.Generator) -> Values:
    """Return one history; its number determines the kind of noise and level."""
    level = _LEVELS[number % len(_LEVELS)](count, random)
    noise = _NOISES[number // len(_LEVELS) % len(_NOISES)](count, random)
    values = level * noise
    if random.random() < 0.3:
        where = random.random(count) < random.choice([0.01, 0.05])
        values = np.where(where, values * random.uniform(1.5, 20, count), values)
    scaled: Values = np.abs(values) * 10.0 ** random.uniform(-4, 3)
    if random.random() < 0.1:  # a coarse timer: many values are equal
        tick = float(np.median(scaled)) / random.choice([4, 20])
        scaled = np.maximum(np.round(scaled / tick), 1) * tick
    if random.random() < 0.03:
        scaled[random.random(count) < 0.05] = np.nan
    return scaled


def _flat(count: int, random: np.random.Generator) -> Values:
    return np.ones(count)


def _step(count: int, random: np.random.Generator) -> Values:
    at = int(random.integers(1, max(count, 2)))
    return np.where(np.arange(count) < at, 1.0, 1 + random.choice([-1, 1]) * random.choice(_SIZES))


def _steps(count: int, random: np.random.Generator) -> Values:
    """Return several steps, some of them reverted."""
    changes = np.zeros(count)
    for at in random.integers(0, count, int(random.integers(2, 7))):
        changes[at] += random.choice([-1, 1]) * random.choice(_SIZES)
    return np.exp(np.cumsum(changes))


def _drift(count: int, random: np.random.Generator) -> Values:
    return 1 + random.uniform(-0.5, 1.0) * np.arange(count) / count


def _waves(count: int, random: np.random.Generator) -> Values:
    return 1 + 0.1 * np.sin(np.arange(count) / random.uniform(3, 40))


_SIZES = (0.01, 0.03, 0.05, 0.1, 0.3, 0.6)


def _normal(count: int, random: np.random.Generator) -> Values:
    return random.normal(1, random.choice([0.002, 0.02, 0.1]), count)


def _skewed(count: int, random: np.random.Generator) -> Values:
    return random.lognormal(0, random.choice([0.02, 0.2]), count)


def _uniform(count: int, random: np.random.Generator) -> Values:
    return random.uniform(0.95, 1.05, count)


def _heavy_tailed(count: int, random: np.random.Generator) -> Values:
    return 1 + 0.02 * random.standard_t(2, count)


def _two_modes(count: int, random: np.random.Generator) -> Values:
    return random.choice([1.0, 1.15], count) + random.normal(0, 0.005, count)


def _remembering(count: int, random: np.random.Generator) -> Values:
    """Return autocorrelated noise."""
    steps = random.normal(0, 0.01, count)
    for at in range(1, count):
        steps[at] += 0.8 * steps[at - 1]
    return 1 + steps


def _growing(count: int, random: np.random.Generator) -> Values:
    """Return noise that increases with time."""
    return 1 + random.normal(0, 1, count) * np.linspace(0.001, 0.1, count)


def _none(count: int, random: np.random.Generator) -> Values:
    """Return no noise, as for a counter."""
    return np.ones(count)


_LEVELS: tuple[Callable[[int, np.random.Generator], Values], ...] = (
    _flat, _step, _steps, _drift, _waves, _step
)  # fmt: skip
_NOISES: tuple[Callable[[int, np.random.Generator], Values], ...] = (
    _normal, _skewed, _uniform, _heavy_tailed, _two_modes, _remembering, _growing, _none
)  # fmt: skip
