"""Synthetic histories of benchmarks whose truth is known: noise of several kinds, steps, slopes.

Owns the generators that `benchmarks.sensitivity` and the tests of ``kraft.regression`` share. Every
history is drawn from the ``numpy.random.Generator`` that it is given, and from nothing else.

Noise has a mean of about 0 and a size of 1, which the histories scale: where it has a standard
deviation, that is 1; of `outliers` that of the undisturbed runs.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from kraft.regression.points import Series, SeriesKey

Values = NDArray[np.float64]
Noise = Callable[[np.random.Generator, int], Values]

DAY_US = 86_400_000_000


def normal(random: np.random.Generator, count: int) -> Values:
    return random.standard_normal(count)


def skewed(random: np.random.Generator, count: int) -> Values:
    """Exponential above a floor: what a time does that can only be disturbed upwards."""
    return np.asarray(random.exponential(1.0, count) - 1, dtype=np.float64)


def heavy_tailed(random: np.random.Generator, count: int) -> Values:
    """Student's t with 3 degrees of freedom."""
    return np.asarray(random.standard_t(3, count) / np.sqrt(3), dtype=np.float64)


def outliers(random: np.random.Generator, count: int) -> Values:
    """Normal, but every twentieth run is disturbed, by eight times the noise on average."""
    noise = random.standard_normal(count)
    disturbed = random.random(count) < 0.05
    noise[disturbed] += random.exponential(8.0, int(disturbed.sum()))
    return noise


def two_modes(random: np.random.Generator, count: int) -> Values:
    """Two levels, each run on one of them by chance: a layout of memory, a boost."""
    mode = random.choice((-0.95, 0.95), count)
    return np.asarray(mode + 0.3 * random.standard_normal(count), dtype=np.float64)


def lagging(of_before: float) -> Noise:
    """Runs that resemble the run before: first-order autocorrelation ``of_before``."""

    def noise(random: np.random.Generator, count: int) -> Values:
        fresh = random.standard_normal(count + 100) * np.sqrt(1 - of_before**2)
        values = np.empty(count + 100)
        values[0] = random.standard_normal()
        for at in range(1, count + 100):
            values[at] = of_before * values[at - 1] + fresh[at]
        return values[100:]

    return noise


#: What the runs of one benchmark may be like, by the name that tables give it.
NOISES: dict[str, Noise] = {
    "normal": normal,
    "skewed (exponential above a floor)": skewed,
    "heavy tails (t, 3 degrees of freedom)": heavy_tailed,
    "outliers (5 % of the runs, +8 x noise)": outliers,
    "two modes": two_modes,
    "autocorrelated, 0.3": lagging(0.3),
    "autocorrelated, 0.5": lagging(0.5),
    "autocorrelated, 0.8 (slow drift)": lagging(0.8),
}


def stable(random: np.random.Generator, count: int, noise: Noise, size: float) -> Values:
    """A history of ``count`` runs around 1 in which nothing happens; ``size`` is relative."""
    return np.asarray(1 + size * noise(random, count), dtype=np.float64)


def stepped(
    random: np.random.Generator, count: int, noise: Noise, size: float, at: int, step: float
) -> Values:
    """One that is ``step`` slower (0.05: 5 %) from run ``at`` on; its noise is relative, too."""
    values = stable(random, count, noise, size)
    values[at:] *= 1 + step
    return values


def bumped(
    random: np.random.Generator,
    count: int,
    noise: Noise,
    size: float,
    at: int,
    runs: int,
    by: float,
) -> Values:
    """One that is slower by ``by`` for ``runs`` runs from run ``at`` on, and then as before."""
    values = stable(random, count, noise, size)
    values[at : at + runs] *= 1 + by
    return values


def drifting(
    random: np.random.Generator,
    count: int,
    noise: Noise,
    size: float,
    at: int,
    runs: int,
    by: float,
) -> Values:
    """One that gets slower from run to run for ``runs`` runs from ``at`` on, by ``by`` in all."""
    ramp = 1 + by * np.clip((np.arange(count) - at) / (runs - 1), 0, 1)
    return np.asarray(stable(random, count, noise, size) * ramp, dtype=np.float64)


def scattering(
    random: np.random.Generator, count: int, noise: Noise, size: float, at: int, factor: float
) -> Values:
    """One whose noise is ``factor`` times as large from run ``at`` on."""
    values = stable(random, count, noise, size)
    values[at:] = 1 + (values[at:] - 1) * factor
    return values


def sloped(
    random: np.random.Generator, count: int, noise: Noise, size: float, rise: float
) -> Values:
    """One that gets slower by the same little from run to run, by ``rise`` in all."""
    slope = np.linspace(1, 1 + rise, count)
    return np.asarray(stable(random, count, noise, size) * slope, dtype=np.float64)


def series(
    values: Values, name: str = "bench", rounds: list[Values] | None = None, params: str = "{}"
) -> Series:
    """These values as the history of a benchmark: a run and a commit a day."""
    count = len(values)
    return Series(
        key=SeriesKey("bench_synthetic.py", name, params, "machine"),
        run_id=np.array([f"run{at}" for at in range(count)], dtype=object),
        time_us=np.arange(count, dtype=np.int64) * DAY_US,
        commit=np.array([f"{at:040x}" for at in range(count)], dtype=object),
        value=np.asarray(values, dtype=np.float64),
        rounds=rounds,
    )


def with_rounds(
    random: np.random.Generator, values: Values, size: float, rounds: int, name: str = "bench"
) -> Series:
    """A history whose runs have rounds, normal around the run's level; medians are looked at."""
    drawn = values[:, None] * (1 + size * random.standard_normal((len(values), rounds)))
    return series(np.median(drawn, axis=1), name, list(drawn))
