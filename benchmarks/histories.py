"""Synthetic histories of benchmarks with known changes: noise of several kinds, steps, slopes.

`benchmarks.sensitivity` and the tests of ``kraft.regression`` use these generators. Every history
depends only on the ``numpy.random.Generator`` that is passed.

Noise has a mean of about 0 and a standard deviation of 1, which the histories scale. For `outliers`
the standard deviation is that of the undisturbed runs.
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
    """Return exponential noise above a floor: times that disturbances can only increase."""
    return np.asarray(random.exponential(1.0, count) - 1, dtype=np.float64)


def heavy_tailed(random: np.random.Generator, count: int) -> Values:
    """Return noise of Student's t with 3 degrees of freedom."""
    return np.asarray(random.standard_t(3, count) / np.sqrt(3), dtype=np.float64)


def outliers(random: np.random.Generator, count: int) -> Values:
    """Return normal noise; every twentieth run is slower by 8 times the noise on average."""
    noise = random.standard_normal(count)
    disturbed = random.random(count) < 0.05
    noise[disturbed] += random.exponential(8.0, int(disturbed.sum()))
    return noise


def two_modes(random: np.random.Generator, count: int) -> Values:
    """Return noise with two levels, chosen at random per run: memory layout, processor boost."""
    mode = random.choice((-0.95, 0.95), count)
    return np.asarray(mode + 0.3 * random.standard_normal(count), dtype=np.float64)


def lagging(of_before: float) -> Noise:
    """Return noise with first-order autocorrelation ``of_before``."""

    def noise(random: np.random.Generator, count: int) -> Values:
        fresh = random.standard_normal(count + 100) * np.sqrt(1 - of_before**2)
        values = np.empty(count + 100)
        values[0] = random.standard_normal()
        for at in range(1, count + 100):
            values[at] = of_before * values[at - 1] + fresh[at]
        return values[100:]

    return noise


#: Kinds of noise, by their names in tables.
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
    """Return a history of ``count`` runs around 1 without a change; ``size`` is relative."""
    return np.asarray(1 + size * noise(random, count), dtype=np.float64)


def stepped(
    random: np.random.Generator, count: int, noise: Noise, size: float, at: int, step: float
) -> Values:
    """Return one that is ``step`` slower (0.05: 5 %) from run ``at`` on; its noise scales too."""
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
    """Return one that is slower by ``by`` for ``runs`` runs from run ``at`` on, then as before."""
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
    """Return one that slows for ``runs`` runs from ``at`` on, by ``by`` in total."""
    ramp = 1 + by * np.clip((np.arange(count) - at) / (runs - 1), 0, 1)
    return np.asarray(stable(random, count, noise, size) * ramp, dtype=np.float64)


def scattering(
    random: np.random.Generator, count: int, noise: Noise, size: float, at: int, factor: float
) -> Values:
    """Return one whose noise is ``factor`` times as large from run ``at`` on."""
    values = stable(random, count, noise, size)
    values[at:] = 1 + (values[at:] - 1) * factor
    return values


def sloped(
    random: np.random.Generator, count: int, noise: Noise, size: float, rise: float
) -> Values:
    """Return one that slows by the same amount from run to run, by ``rise`` in total."""
    slope = np.linspace(1, 1 + rise, count)
    return np.asarray(stable(random, count, noise, size) * slope, dtype=np.float64)


def series(
    values: Values, name: str = "bench", rounds: list[Values] | None = None, params: str = "{}"
) -> Series:
    """Return these values as the history of a benchmark: one run and commit per day."""
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
    """Return a history of medians whose runs have normal rounds around the run's level."""
    drawn = values[:, None] * (1 + size * random.standard_normal((len(values), rounds)))
    return series(np.median(drawn, axis=1), name, list(drawn))
