"""Sensitivity of the regression analysis: detected changes and false alarms on known histories.

Each function measures one kind of change at the default settings, end to end through
`series_analysis.analyse` and `multiple_testing.correct`; `cells` lists all measurements of
`benchmarks.sensitivity_page`. Every cell has a seed made of the run's seed and its own name, so
that the results are equal on every machine, with any number of processes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from benchmarks import histories
from benchmarks.bisection_sensitivity import (
    BISECTED_COMMITS,
    BISECTED_STEPS,
    bisected,
    fewest_plain,
)
from benchmarks.histories import NOISES, Values
from kraft.regression import comparison, multiple_testing, scaling, series_analysis
from kraft.regression.findings import SeriesFinding, SeriesOutcome
from kraft.regression.points import POINTS
from kraft.regression.settings import AnalysisSettings

STEPS = (0.01, 0.02, 0.03, 0.05, 0.10, 0.20)
SIZES = (0.005, 0.01, 0.02, 0.05)
AFTER = (1, 2, 3, 5, 10, 20)

BUMPS = (0.03, 0.05, 0.10, 0.25, 1.0)
BUMP_RUNS = (3, 5, 7, 10, 20)
DRIFTS = (0.05, 0.10, 0.20)
DRIFT_RUNS = (20, 50, 100)
VARIANCES = (0.33, 2.0, 3.0, 5.0)
VARIANCE_RUNS = (10, 20, 30, 50)

#: A change point at most this many runs from the step counts as the step.
NEAR = 5

#: Series of the analysis in which the step is the only change: the number of tests to correct for.
ANALYSED = 1000


def generator(*names: object) -> np.random.Generator:
    digest = hashlib.blake2b(repr(names).encode(), digest_size=16).digest()
    return np.random.default_rng(int.from_bytes(digest, "little"))


def quick(settings: AnalysisSettings) -> AnalysisSettings:
    """Return the settings without time spent on intervals; the findings are the same."""
    return replace(settings, bootstrap_samples=100)


def stable_series(runs: int) -> SeriesFinding:
    """Return the other series of an analysis as one: only their splits are counted."""
    splits = (ANALYSED - 1) * multiple_testing.splits(runs)
    others = series_analysis.analyse(histories.series(np.ones(8)), quick(AnalysisSettings()))
    return replace(others, outcome=SeriesOutcome.STABLE, run_count=splits + 1)


@dataclass(frozen=True)
class Recall:
    """How often a step was found in ``series`` histories; the shares are percents."""

    found: float  # as the only change among `ANALYSED` series
    found_alone: float  # if its series is analysed alone
    within_two: float  # of those found: the change point is at most two runs off
    other: float  # histories with a change point that is not the step


def recall(
    noise: str,
    size: float,
    step: float,
    after: int,
    series: int,
    seed: int,
    settings: AnalysisSettings,
) -> Recall:
    """Measure histories that end ``after`` runs after a step.

    100 to 124 runs precede it, so that its position in E-divisive's windows varies.
    """
    random = generator(seed, "recall", noise, size, step, after)
    settings = quick(settings)
    found = alone = close = other = 0
    for _ in range(series):
        at = int(random.integers(100, 125))
        values = histories.stepped(random, at + after, NOISES[noise], size, at, step)
        finding = series_analysis.analyse(histories.series(values), settings)
        (corrected,) = multiple_testing.correct([finding], settings)
        off = [abs(point.index - at) for point in corrected.change_points]
        alone += any(each <= NEAR for each in off)
        other += any(each > NEAR for each in off)
        among, _ = multiple_testing.correct([finding, stable_series(at + after)], settings)
        off = [abs(point.index - at) for point in among.change_points]
        found += any(each <= NEAR for each in off)
        close += any(each <= 2 for each in off)
    return Recall(
        100 * found / series,
        100 * alone / series,
        100 * close / max(found, 1),
        100 * other / series,
    )


@dataclass(frozen=True)
class Alarms:
    """Stable series, out of ``series``, with a change of any kind (false alarms)."""

    together: int  # all of them one analysis
    each_alone: int  # each analysed separately
    series: int


def alarms(
    noise: str, size: float, runs: int, series: int, seed: int, settings: AnalysisSettings
) -> Alarms:
    random = generator(seed, "alarms", noise, size, runs)
    settings = quick(settings)
    findings = [
        series_analysis.analyse(
            histories.series(histories.stable(random, runs, NOISES[noise], size)), settings
        )
        for _ in range(series)
    ]
    together = multiple_testing.correct(findings, settings)
    alone = [multiple_testing.correct([each], settings)[0] for each in findings]
    return Alarms(
        sum(each.outcome is SeriesOutcome.CHANGED for each in together),
        sum(each.outcome is SeriesOutcome.CHANGED for each in alone),
        series,
    )


def bumps(size: float, by: float, runs: int, series: int, seed: int) -> float:
    """Return the percentage found of temporary regressions of ``runs`` of 100 runs.

    Each is the only change among `ANALYSED` series; both ends must be at most two runs off.
    """
    random = generator(seed, "bumps", size, by, runs)
    settings = quick(AnalysisSettings())
    found = 0
    for _ in range(series):
        at = int(random.integers(10, 90 - runs))
        values = histories.bumped(random, 100, NOISES["normal"], size, at, runs, by)
        indices = [point.index for point in _among_stable(values, settings).change_points]
        found += all(any(abs(each - end) <= 2 for each in indices) for end in (at, at + runs))
    return 100 * found / series


@dataclass(frozen=True)
class Drifts:
    """Results for ``series`` slow rises, in percent."""

    named: float  # reported as a drift to slower
    close: float  # of these, start and end are at most a quarter of the rise off
    as_steps: float  # reported as one or more steps, with or without a drift


def drifts(runs: int, rise: float, noise: str, series: int, seed: int) -> Drifts:
    """Measure a rise spread evenly over ``runs`` runs, at 2 % noise.

    50 to 74 stable runs precede it, 0 to 24 follow; it is the only change among `ANALYSED` series.
    """
    random = generator(seed, "drifts", runs, rise, noise)
    settings = quick(AnalysisSettings())
    named = close = steps = 0
    for _ in range(series):
        at, behind = int(random.integers(50, 75)), int(random.integers(0, 25))
        values = histories.drifting(random, at + runs + behind, NOISES[noise], 0.02, at, runs, rise)
        found = _among_stable(values, settings)
        rises = [each for each in found.drifts if each.ratio.value > 1]
        named += bool(rises)
        off = runs / 4
        close += any(
            abs(each.start_index - at) <= off and abs(each.end_index - at - runs + 1) <= off
            for each in rises
        )
        steps += bool(found.change_points)
    return Drifts(100 * named / series, 100 * close / max(named, 1), 100 * steps / series)


def variances(factor: float, runs: int, noise: str, series: int, seed: int) -> float:
    """Return the percentage found of changes of the noise from 2 % to ``factor`` times as much.

    Found is at most 10 runs off. 100 to 124 runs precede the change, ``runs`` follow; it is the
    only change among `ANALYSED` series.
    """
    random = generator(seed, "variances", factor, runs, noise)
    settings = quick(AnalysisSettings())
    found = 0
    for _ in range(series):
        at = int(random.integers(100, 125))
        values = histories.scattering(random, at + runs, NOISES[noise], 0.02, at, factor)
        changes = _among_stable(values, settings).variance_changes
        found += any(abs(each.index - at) <= 10 for each in changes)
    return 100 * found / series


def _among_stable(values: Values, settings: AnalysisSettings) -> SeriesFinding:
    """Return the finding of these values as one of `ANALYSED` series, the others stable."""
    finding = series_analysis.analyse(histories.series(values), settings)
    among, _ = multiple_testing.correct([finding, stable_series(len(values))], settings)
    return among


def coverage(noise: str, size: float, within: float, after: int, series: int, seed: int) -> float:
    """Return the percentage of intervals that contain the true ratio, 1.05.

    50 runs before, ``after`` after, ten rounds each that differ by ``within`` in a run.
    """
    from kraft.regression import bootstrap

    random = generator(seed, "coverage", noise, size, within, after)
    held = 0
    for at in range(series):
        values = histories.stepped(random, 50 + after, NOISES[noise], size, 50, 0.05)
        made = histories.with_rounds(random, values, within, 10)
        assert made.rounds is not None
        ratio = bootstrap.ratio(
            made.value[:50],
            made.value[50:],
            made.rounds[:50],
            made.rounds[50:],
            AnalysisSettings(),
            at,
        )
        held += ratio.low <= 1.05 <= ratio.high
    return 100 * held / series


@dataclass(frozen=True)
class Compared:
    """Percent of benchmarks that a comparison reports as regressions."""

    stable: float
    slower: float


def compared(runs_base: int, runs: int, threshold: float, series: int, seed: int) -> Compared:
    """Compare files of 100 benchmarks (2 % between runs, 1 % within, ten rounds): all stable, or
    every tenth of them 10 % slower.
    """
    random = generator(seed, "compared", runs_base, runs, threshold)
    wrong = right = benchmarks = slower = 0
    while benchmarks < series:
        steps = np.where(np.arange(100) % 10 == 0, 0.10, 0.0)
        base = points(random, runs_base, np.zeros(100), "base")
        candidate = points(random, runs, steps, "candidate")
        for each in comparison.compare(base, candidate, quick(AnalysisSettings()), threshold):
            is_slower = steps[int(each.key.benchmark)] > 0
            right += each.is_regression and is_slower
            wrong += each.is_regression and not is_slower
            slower += is_slower
        benchmarks += 100
    return Compared(100 * wrong / (benchmarks - slower), 100 * right / slower)


def points(random: np.random.Generator, runs: int, steps: Values, name: str) -> pa.Table:
    """Return the points of ``runs`` runs of a benchmark for each of ``steps``."""
    rows = []
    for run in range(runs):
        for number, step in enumerate(steps):
            level = (1 + step) * (1 + 0.02 * random.standard_normal())
            rounds = level * (1 + 0.01 * random.standard_normal(10))
            rows.append(
                {
                    "run_id": f"{name}{run}",
                    "machine": "machine",
                    "suite": "bench_synthetic.py",
                    "benchmark": str(number),
                    "params": "{}",
                    "time": 0,
                    "rounds": 10,
                    "median": float(np.median(rounds)),
                    "values": rounds.tolist(),
                    "extra_info": "{}",
                    "machine_info": "{}",
                    "source": name,
                }
            )
    return pa.Table.from_pylist(rows, schema=POINTS)


@dataclass(frozen=True)
class Exponents:
    """Percent of benchmarks of several sizes in which a change was found."""

    exponent: float
    any_size: float


def exponents(change: float, series: int, seed: int) -> Exponents:
    """Measure four sizes from 10,000 to 10 million, 2 % noise, 30 runs before and after the
    exponent changes by ``change`` around the middle size.
    """
    random = generator(seed, "exponents", change)
    settings = quick(AnalysisSettings())
    by_law = by_size = 0
    decades = np.arange(4) - 1.5
    for _ in range(series):
        measured = []
        for size, decade in zip((10_000, 100_000, 1_000_000, 10_000_000), decades, strict=True):
            step = 10 ** (change * decade) - 1
            values = histories.stepped(random, 60, NOISES["normal"], 0.02, 30, step)
            params = f'{{"partitions":{size}}}'
            measured.append(histories.series(np.multiply(values, size), params=params))
        found = [series_analysis.analyse(each, settings) for each in measured]
        by_size += any(each.change_points for each in multiple_testing.correct(found, settings))
        laws = multiple_testing.correct_laws(scaling.laws(measured, settings), settings)
        by_law += any(law.change_points for law in laws)
    return Exponents(100 * by_law / series, 100 * by_size / series)


# ---------------------------------------------------------------------------------------------
# All measurements

Cell = Callable[[], object]


def cells(series: int, seed: int) -> dict[tuple[object, ...], Cell]:
    """Return all measurements, by kind and parameters."""
    ours, otava = AnalysisSettings(), AnalysisSettings.of_otava()
    strict = AnalysisSettings.of_otava(max_p_value=ours.max_p_value)
    clipped = replace(ours, clip_outliers=4.0)
    fewer, few = max(series // 2, 1), max(series // 4, 1)
    made: dict[tuple[object, ...], Cell] = {}
    for step in STEPS:
        for size in SIZES:
            made["power", step, size] = partial(
                recall, "normal", size, step, 10, series, seed, ours
            )
    for step in (0.03, 0.05, 0.10, 0.20):
        for after in AFTER:
            made["after", step, after] = partial(
                recall, "normal", 0.02, step, after, fewer, seed, ours
            )
    for noise in NOISES:
        for name, settings in (
            ("otava", otava),
            ("strict", strict),
            ("ours", ours),
            ("clipped", clipped),
        ):
            made["alarms", noise, name] = partial(alarms, noise, 0.02, 100, series, seed, settings)
        for step in (0.05, 0.10):
            made["kinds", noise, step] = partial(recall, noise, 0.02, step, 10, fewer, seed, ours)
        made["clipped", noise] = partial(recall, noise, 0.02, 0.05, 10, fewer, seed, clipped)
    for name, settings in (("otava", otava), ("ours", ours)):
        made["long", name] = partial(
            alarms, "normal", 0.02, 10_000, max(series // 20, 1), seed, settings
        )
    for by in BUMPS:
        for runs in BUMP_RUNS:
            made["bumps", by, runs] = partial(bumps, 0.02, by, runs, fewer, seed)
    for rise in DRIFTS:
        for runs in DRIFT_RUNS:
            made["drifts", rise, runs, "normal"] = partial(
                drifts, runs, rise, "normal", fewer, seed
            )
    for noise in NOISES:
        made["drifts", noise] = partial(drifts, 50, 0.10, noise, max(series // 4, 1), seed)
        made["variances", noise] = partial(variances, 3.0, 30, noise, max(series // 4, 1), seed)
    for factor in VARIANCES:
        for runs in VARIANCE_RUNS:
            made["variances", factor, runs] = partial(
                variances, factor, runs, "normal", fewer, seed
            )
    for noise in ("normal", "skewed (exponential above a floor)"):
        for after in (1, 2, 5, 10, 30):
            made["coverage", noise, after] = partial(
                coverage, noise, 0.02, 0.02, after, fewer, seed
            )
    for base, runs in ((1, 1), (5, 1), (20, 1), (3, 3), (5, 5)):
        for threshold in (0.0, 0.05):
            made["compared", base, runs, threshold] = partial(
                compared, base, runs, threshold, series, seed
            )
    for commits in BISECTED_COMMITS:
        for step in BISECTED_STEPS:
            made["bisected", commits, step] = partial(
                bisected,
                "normal",
                0.02,
                step,
                commits,
                fewer if step == 0.05 else few,
                seed,
            )
    for step in BISECTED_STEPS:
        made["plain", step] = partial(fewest_plain, "normal", 0.02, step, 64, series, seed)
    for noise in NOISES:
        made["bisected", noise] = partial(bisected, noise, 0.02, 0.05, 64, few, seed)
    for change in (0.0, 0.005, 0.01, 0.02):
        made["exponents", change] = partial(exponents, change, max(series // 4, 1), seed)
    return made
