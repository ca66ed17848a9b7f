"""One series from end to end: its levels, where they change or drift, how certain that is.

Owns `analyse`. Fed by `kraft.spark` with one series at a time, in whatever process; what it gives
is a value, and still to be corrected for many tests by `multiplicity`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kraft.regression import bootstrap, change_points, drifts, spread
from kraft.regression.change_points import Candidate
from kraft.regression.drifts import Ramp
from kraft.regression.findings import (
    ChangePoint,
    Drift,
    Outcome,
    Ratio,
    SeriesFinding,
    VarianceChange,
)
from kraft.regression.points import Series
from kraft.regression.settings import Settings
from kraft.regression.spread import Scatter


def analyse(series: Series, settings: Settings) -> SeriesFinding:
    """What can be said of one history. The `q_value`s are the p values until they are corrected.

    Raises:
        InvalidRequestError: a value is infinite.
    """
    count = len(series)
    if count < settings.min_runs:
        return replace(_finding(series), outcome=Outcome.TOO_LITTLE_DATA)
    looked = _clipped(series, settings)
    ramps, points = drifts.find(looked.value, _change_points(looked, settings), settings)
    rest = drifts.remainders(looked.value, [each.index for each in points], ramps)
    finding = _finding(
        series,
        describe(looked, points, settings),
        tuple(_drift(looked, each, settings) for each in ramps),
        tuple(_variance_change(looked, each, settings) for each in spread.find(rest, settings)),
    )
    # The steps of a drift are no levels: what it leaves is noise, the drift itself is not.
    return replace(finding, noise=float(rest.std())) if ramps else finding


def find(series: Series, settings: Settings) -> tuple[ChangePoint, ...]:
    """The change points of a series of any length that stand up to `change_points.trusted`; slow
    drifts are the steps that describe them best."""
    looked = _clipped(series, settings)
    return describe(looked, _change_points(looked, settings), settings)


def _change_points(series: Series, settings: Settings) -> list[Candidate]:
    found = change_points.find(series.value, settings)
    found = change_points.completed(series.value, found, settings)
    return change_points.trusted(series.value, found, settings)


def _clipped(series: Series, settings: Settings) -> Series:
    """The series without outliers, where that is asked for; a run that was clipped speaks by its
    new value alone, without its rounds."""
    values = change_points.clipped(series.value, settings)
    if values is series.value or series.rounds is None:
        return replace(series, value=values)
    odd = values != series.value
    rounds = [each[:0] if is_odd else each for each, is_odd in zip(series.rounds, odd, strict=True)]
    return replace(series, value=values, rounds=rounds)


def describe(
    series: Series, found: Sequence[Candidate], settings: Settings
) -> tuple[ChangePoint, ...]:
    """The change points of a series with their levels, commits and ratios."""
    ends = [0, *(each.index for each in found), len(series)]
    points = []
    for start, each, stop in zip(ends, found, ends[2:], strict=False):
        at = each.index
        assert start < at < stop, f"{series.key.name}: change point {at} outside of {start}..{stop}"
        rounds = series.rounds
        points.append(
            ChangePoint(
                key=series.key,
                statistic=settings.statistic,
                index=at,
                time_us=int(series.time_us[at]),
                run_before=series.run_id[at - 1],
                run_after=series.run_id[at],
                commit_before=series.commit[at - 1],
                commit_after=series.commit[at],
                count_before=at - start,
                count_after=stop - at,
                mean_before=each.mean_before,
                mean_after=each.mean_after,
                stddev_before=each.stddev_before,
                stddev_after=each.stddev_after,
                ratio=bootstrap.ratio(
                    series.value[start:at],
                    series.value[at:stop],
                    None if rounds is None else rounds[start:at],
                    None if rounds is None else rounds[at:stop],
                    settings,
                    *series.key[:4],
                    at,
                ),
                p_value=each.p_value,
                q_value=each.p_value,
            )
        )
    return tuple(points)


def _drift(series: Series, ramp: Ramp, settings: Settings) -> Drift:
    from scipy.special import stdtrit

    value = ramp.after / ramp.before
    width = float(stdtrit(ramp.freedom, (1 + settings.confidence) / 2)) * ramp.error / ramp.before
    return Drift(
        key=series.key,
        statistic=settings.statistic,
        start_index=ramp.start,
        end_index=ramp.stop,
        start_time_us=int(series.time_us[ramp.start]),
        end_time_us=int(series.time_us[ramp.stop]),
        run_start=series.run_id[ramp.start],
        run_end=series.run_id[ramp.stop],
        commit_start=series.commit[ramp.start],
        commit_end=series.commit[ramp.stop],
        is_ongoing=ramp.stop >= len(series) - drifts.SHORTEST,
        mean_before=ramp.before,
        mean_after=ramp.after,
        slope=(value - 1) / (ramp.stop - ramp.start),
        ratio=Ratio(value, max(value - width, 0.0), value + width),
        p_value=ramp.p_value,
        q_value=ramp.p_value,
    )


def _variance_change(series: Series, found: Scatter, settings: Settings) -> VarianceChange:
    at = found.index
    return VarianceChange(
        key=series.key,
        statistic=settings.statistic,
        index=at,
        time_us=int(series.time_us[at]),
        run_before=series.run_id[at - 1],
        run_after=series.run_id[at],
        commit_before=series.commit[at - 1],
        commit_after=series.commit[at],
        noise_before=found.before,
        noise_after=found.after,
        p_value=found.p_value,
        q_value=found.p_value,
    )


def _finding(
    series: Series,
    points: tuple[ChangePoint, ...] = (),
    drifting: tuple[Drift, ...] = (),
    scattering: tuple[VarianceChange, ...] = (),
) -> SeriesFinding:
    empty = len(series) == 0
    return SeriesFinding(
        key=series.key,
        outcome=Outcome.CHANGED if points or drifting or scattering else Outcome.STABLE,
        run_count=len(series),
        first_time_us=0 if empty else int(series.time_us.min()),
        last_time_us=0 if empty else int(series.time_us.max()),
        first_run=None if empty else series.run_id[0],
        last_run=None if empty else series.run_id[-1],
        last_value=float("nan") if empty else float(series.value[-1]),
        noise=noise(series.value, [point.index for point in points]),
        change_points=points,
        drifts=drifting,
        variance_changes=scattering,
    )


def noise(values: NDArray[np.float64], indices: Sequence[int]) -> float:
    """Standard deviation / mean within the levels that ``indices`` part, all levels together.

    Each run counts relative to the mean of its own level, so that a level ten times as high does
    not drown the others. NaN where no level has two runs, or a level's mean is 0.
    """
    levels = [level for level in np.split(values, indices) if len(level)]
    free = len(values) - len(levels)
    means = np.array([level.mean() for level in levels])
    if free <= 0 or (means == 0).any():
        return float("nan")
    squares = sum(
        float(np.square(level / mean - 1).sum()) for level, mean in zip(levels, means, strict=True)
    )
    return float(np.sqrt(squares / free))
