"""Scaling laws: how time grows with size, and whether that growth changed.

This module fits value ~ size ** exponent to benchmarks with a size parameter, and analyses the
history of the exponent. The exponent may change although no single size does: small changes that
grow from size to size add up. `table_analysis` calls `laws` with the series of benchmarks;
`multiple_testing.correct_laws` then corrects the change points.

An exponent of 0 is constant time, 1 is linear time. The `findings.ChangePoint`s of a law have
exponents as means. Exponents near 0 have no useful ratio, so the ratio is the growth of the time
for ten times the size, relative to before: 10 ** (new - old).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kraft.regression import series_analysis
from kraft.regression.findings import ChangePoint, ScalingLaw
from kraft.regression.points import Series, SeriesKey
from kraft.regression.settings import AnalysisSettings

#: Two sizes fit any line. Three or more allow an error estimate.
FEWEST_SIZES = 3

#: `ChangePoint.statistic` of a change of an exponent.
EXPONENT = "exponent"


def laws(
    findings_series: Iterable[Series], settings: AnalysisSettings, size_param: str | None = None
) -> list[ScalingLaw]:
    """Return a law for each benchmark, machine and size parameter, sorted by them.

    A size is a numeric parameter above 0 with at least `FEWEST_SIZES` values while all other
    parameters are equal. ``size_param`` names the parameter; None accepts any. The law is fitted to
    the newest run with enough sizes; its history consists of the runs that have all sizes of that
    run.
    """
    return [
        law
        for key, name, sized in _sized(findings_series, size_param)
        for law in _law(key, name, sized, settings)
    ]


def sizes_of(law: ScalingLaw, keys: Iterable[SeriesKey]) -> list[SeriesKey]:
    """Return the series of a law among ``keys``: one for each of its sizes."""
    found = []
    for key in keys:
        if (key.suite, key.benchmark, *key[3:]) == (law.key.suite, law.key.benchmark, *law.key[3:]):
            params = json.loads(key.params)
            size = params.pop(law.size_param, None)
            if size in law.sizes and _canonical(params) == law.key.params:
                found.append(key)
    return found


def history(law: ScalingLaw, series: Iterable[Series]) -> Series | None:
    """Return the exponent in each run that has all sizes of a law; None if there is no such run.

    ``series`` has those of `sizes_of`. The runs are those of the law's change points.
    """
    for key, name, sized in _sized(series, law.size_param):
        if (key, name) == (law.key, law.size_param):
            runs = [run for run in _runs(sized) if run.values.keys() >= set(law.sizes)]
            if runs:
                return _history(key, runs, _exponents(np.array(law.sizes), runs))
    return None


def exponent(
    sizes: NDArray[np.float64], values: NDArray[np.float64], confidence: float
) -> tuple[float, float, float]:
    """Return exponent, low and high of values ~ sizes ** exponent, by least squares in logarithms.

    The interval is Student's with len(sizes) - 2 degrees of freedom, so it is wide for three sizes.
    It shows how well a power law fits the sizes.
    """
    from scipy.special import stdtrit

    x, y = np.log(sizes), np.log(values)
    spread = x - x.mean()
    slope = float(spread @ y / (spread @ spread))
    rest = y - y.mean() - slope * spread
    freedom = len(x) - 2
    error = float(np.sqrt(rest @ rest / freedom / (spread @ spread)))
    width = float(stdtrit(freedom, (1 + confidence) / 2)) * error
    return slope, slope - width, slope + width


def _sized(
    series: Iterable[Series], size_param: str | None
) -> Iterator[tuple[SeriesKey, str, dict[float, Series]]]:
    """Yield benchmarks with enough sizes: the key without the size, its name, and size -> series,
    sorted. A law describes costs: series where bigger is better have none.
    """
    found: dict[tuple[SeriesKey, str], dict[float, Series]] = {}
    for each in series:
        if each.metric.bigger_is_better:
            continue
        params = json.loads(each.key.params)
        for name, size in params.items():
            is_number = isinstance(size, int | float) and not isinstance(size, bool)
            if size_param not in (None, name) or not is_number or not 0 < size < np.inf:
                continue
            others = {other: value for other, value in params.items() if other != name}
            key = each.key._replace(params=_canonical(others))
            found.setdefault((key, name), {})[float(size)] = each
    for (key, name), sizes in sorted(found.items(), key=lambda item: item[0]):
        if len(sizes) >= FEWEST_SIZES:
            yield key, name, dict(sorted(sizes.items()))


def _law(
    key: SeriesKey, name: str, sized: dict[float, Series], settings: AnalysisSettings
) -> Iterator[ScalingLaw]:
    """Yield the law with its history, nothing if fewer than three sizes have a value."""
    newest = {size: _usable(each)[-1] for size, each in sized.items() if len(_usable(each))}
    runs = _runs(sized)
    complete = next((run for run in reversed(runs) if len(run.values) >= FEWEST_SIZES), None)
    # Sizes that were never measured in one run still form a law, without a history.
    values = newest if complete is None else complete.values
    if len(values) < FEWEST_SIZES:
        return
    sizes = np.array(list(values))
    whole = [] if complete is None else [run for run in runs if run.values.keys() >= values.keys()]
    found, low, high = exponent(sizes, np.array(list(values.values())), settings.confidence)
    yield ScalingLaw(
        key=key,
        size_param=name,
        sizes=tuple(values),
        values=tuple(values.values()),
        exponent=found,
        low=low,
        high=high,
        change_points=_changes(key, sizes, whole, settings),
        run_count=len(whole),
    )


@dataclass(frozen=True)
class _Run:
    """One run with the sizes that it measured, in their order."""

    place: int
    time_us: int
    run_id: str
    commit: str | None
    values: dict[float, float]


def _usable(series: Series) -> NDArray[np.float64]:
    """Return the values that have a logarithm."""
    return series.value[series.value > 0]


def _runs(sized: dict[float, Series]) -> list[_Run]:
    """Return every run, oldest first, with the time of any of its sizes: they share a file."""
    found: dict[str, _Run] = {}
    for size, series in sized.items():
        order = series.time_us if series.place is None else series.place
        columns = (order, series.time_us, series.run_id, series.commit, series.value)
        for place, time_us, run_id, commit, value in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            if value > 0:
                run = found.get(run_id)
                if run is None:
                    run = found[run_id] = _Run(place, time_us, run_id, commit, {})
                run.values[size] = value
    return sorted(found.values(), key=lambda run: (run.place, run.run_id))


def _changes(
    key: SeriesKey, sizes: NDArray[np.float64], runs: Sequence[_Run], settings: AnalysisSettings
) -> tuple[ChangePoint, ...]:
    """Return the change points of the exponents of ``runs``, each of which has all ``sizes``."""
    if len(runs) < settings.min_runs:
        return ()
    exponents = _exponents(sizes, runs)
    # The growth factor, unlike the exponent, is above 0 and so has ratios.
    growth = _history(key, runs, np.asarray(10**exponents, dtype=np.float64))
    points = series_analysis.find_change_points(growth, settings)
    levels = np.split(exponents, [point.index for point in points])
    return tuple(
        replace(
            point,
            statistic=EXPONENT,
            mean_before=float(before.mean()),
            mean_after=float(after.mean()),
            stddev_before=float(before.std()),
            stddev_after=float(after.std()),
        )
        for point, before, after in zip(points, levels, levels[1:], strict=False)
    )


def _exponents(sizes: NDArray[np.float64], runs: Sequence[_Run]) -> NDArray[np.float64]:
    """Return the exponent of each run, by least squares over ``sizes``."""
    spread = np.log(sizes) - np.log(sizes).mean()
    times = np.array([[run.values[float(size)] for size in sizes] for run in runs])
    found: NDArray[np.float64] = np.log(times) @ spread / (spread @ spread)
    return found


def _history(key: SeriesKey, runs: Sequence[_Run], values: NDArray[np.float64]) -> Series:
    return Series(
        key=key,
        run_id=np.array([run.run_id for run in runs], dtype=object),
        time_us=np.array([run.time_us for run in runs], dtype=np.int64),
        commit=np.array([run.commit for run in runs], dtype=object),
        value=values,
        place=np.array([run.place for run in runs], dtype=np.int64),
    )


def _canonical(params: dict[str, object]) -> str:
    return json.dumps(params, sort_keys=True, separators=(",", ":"))
