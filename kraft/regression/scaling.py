"""How time grows with size, and whether that changed.

Owns the fit value ~ size ** exponent of benchmarks that are parametrised by a size, and the history
of the exponent, which may change where no single size does: a little more at each size, in the
order of the sizes, is a lot more of an exponent. Fed by `kraft.spark` with the series of one
benchmark on one machine or of many; the change points are still to be corrected for many tests
(`multiplicity.correct_laws`).

An exponent of 0 is a constant time, 1 linear. Its `findings.ChangePoint`s have exponents as means;
their ratio is how many times longer ten times the size takes, compared with before: 10 ** (new -
old), as exponents around 0 have no ratio of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kraft.regression import history
from kraft.regression.findings import ChangePoint, ScalingLaw
from kraft.regression.points import Series, SeriesKey
from kraft.regression.settings import Settings

#: Two sizes fit any line; from three on a fit can be wrong, and have an interval.
FEWEST_SIZES = 3

#: What `ChangePoint.statistic` says of an exponent's change point.
EXPONENT = "exponent"


def laws(
    findings_series: Iterable[Series], settings: Settings, size_param: str | None = None
) -> list[ScalingLaw]:
    """A law for each benchmark, machine and size parameter, ordered by them.

    A size is a parameter that is a number above 0 and has `FEWEST_SIZES` values or more while all
    other parameters are the same; ``size_param`` names the one to look at, None takes any. The law
    itself is fitted to the newest run that has so many sizes, and its history is the runs that have
    all the sizes of that one.
    """
    return [
        law
        for key, name, sized in _sized(findings_series, size_param)
        for law in _law(key, name, sized, settings)
    ]


def exponent(
    sizes: NDArray[np.float64], values: NDArray[np.float64], confidence: float
) -> tuple[float, float, float]:
    """Exponent, low and high of values ~ sizes ** exponent, by least squares in logarithms.

    The interval is Student's with as many degrees of freedom as there are sizes less two: with
    three sizes it is wide. It says how well a power law describes the sizes, and how surely.
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
    """Benchmarks with the sizes that they are measured at: key without the size, its name, size ->
    series in the order of the sizes."""
    found: dict[tuple[SeriesKey, str], dict[float, Series]] = {}
    for each in series:
        params = json.loads(each.key.params)
        for name, size in params.items():
            is_number = isinstance(size, int | float) and not isinstance(size, bool)
            if size_param not in (None, name) or not is_number or not 0 < size < np.inf:
                continue
            others = {other: value for other, value in params.items() if other != name}
            text = json.dumps(others, sort_keys=True, separators=(",", ":"))
            key = each.key._replace(params=text)
            found.setdefault((key, name), {})[float(size)] = each
    for (key, name), sizes in sorted(found.items(), key=lambda item: item[0]):
        if len(sizes) >= FEWEST_SIZES:
            yield key, name, dict(sorted(sizes.items()))


def _law(
    key: SeriesKey, name: str, sized: dict[float, Series], settings: Settings
) -> Iterator[ScalingLaw]:
    """One law with its history; none where no three sizes have a value."""
    newest = {size: _usable(each)[-1] for size, each in sized.items() if len(_usable(each))}
    runs = _runs(sized)
    complete = next((run for run in reversed(runs) if len(run.values) >= FEWEST_SIZES), None)
    # Sizes that were never measured in one run still make a law, but it has no history.
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
    """One run of all sizes that it has, in the order of the sizes."""

    place: int
    time_us: int
    run_id: str
    commit: str | None
    values: dict[float, float]


def _usable(series: Series) -> NDArray[np.float64]:
    """What has a logarithm."""
    return series.value[series.value > 0]


def _runs(sized: dict[float, Series]) -> list[_Run]:
    """Every run, oldest first. The time of a run is that of any of its sizes: they share a file."""
    found: dict[str, _Run] = {}
    for size, series in sized.items():
        for at, run_id in enumerate(series.run_id):
            order = series.time_us if series.place is None else series.place
            run = _Run(int(order[at]), int(series.time_us[at]), run_id, series.commit[at], {})
            value = float(series.value[at])
            if value > 0:
                found.setdefault(run_id, run).values[size] = value
    return sorted(found.values(), key=lambda run: (run.place, run.run_id))


def _changes(
    key: SeriesKey, sizes: NDArray[np.float64], runs: Sequence[_Run], settings: Settings
) -> tuple[ChangePoint, ...]:
    """Change points of the exponents of ``runs``, which have all ``sizes``."""
    if len(runs) < settings.min_runs:
        return ()
    spread = np.log(sizes) - np.log(sizes).mean()
    times = np.array([[run.values[float(size)] for size in sizes] for run in runs])
    exponents = np.log(times) @ spread / (spread @ spread)
    # Growth, unlike the exponent, is above 0 and has ratios.
    growth = Series(
        key=key,
        run_id=np.array([run.run_id for run in runs], dtype=object),
        time_us=np.array([run.time_us for run in runs], dtype=np.int64),
        commit=np.array([run.commit for run in runs], dtype=object),
        value=10**exponents,
        place=np.array([run.place for run in runs], dtype=np.int64),
    )
    points = history.find(growth, settings)
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
