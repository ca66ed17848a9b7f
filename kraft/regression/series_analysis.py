"""Analyse one series: its levels, change points, drifts, changes of variance and their certainty.

`table_analysis` calls `analyse` with one series at a time, in any process. The p values of the
result are not yet corrected for many tests; `multiple_testing` does that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kraft.regression import bootstrap, change_points, drifts, variance_changes
from kraft.regression.change_points import ChangeCandidate
from kraft.regression.change_position import MARGIN_RUNS, position_interval
from kraft.regression.drifts import Ramp
from kraft.regression.findings import (
    ChangePoint,
    Drift,
    Ratio,
    SeriesFinding,
    SeriesOutcome,
    VarianceChange,
)
from kraft.regression.points import Series
from kraft.regression.settings import AnalysisSettings
from kraft.regression.variance_changes import VarianceShift


def analyse(series: Series, settings: AnalysisSettings) -> SeriesFinding:
    """Return the finding of one series. Its `q_value`s are p values until they are corrected.

    Raises:
        InvalidRequestError: a value is infinite.
    """
    count = len(series)
    if count < settings.min_runs:
        return replace(_finding(series), outcome=SeriesOutcome.TOO_LITTLE_DATA)
    clipped = _clipped(series, settings)
    ramps, points = drifts.find(clipped.value, _change_points(clipped, settings), settings)
    rest = drifts.residuals(clipped.value, [each.index for each in points], ramps)
    finding = _finding(
        series,
        describe(clipped, points, settings),
        tuple(_drift(clipped, each, settings) for each in ramps),
        tuple(
            _variance_change(clipped, each, settings)
            for each in variance_changes.find(rest, settings)
        ),
    )
    # Levels do not describe a drift, so the noise is the deviation from the fitted ramps and
    # levels.
    return replace(finding, noise=float(rest.std())) if ramps else finding


def find_change_points(series: Series, settings: AnalysisSettings) -> tuple[ChangePoint, ...]:
    """Return the change points of a series of any length that `change_points.drop_doubtful` keeps.

    A slow drift is returned as the steps that describe it best.
    """
    clipped = _clipped(series, settings)
    return describe(clipped, _change_points(clipped, settings), settings)


def _change_points(series: Series, settings: AnalysisSettings) -> list[ChangeCandidate]:
    found = change_points.find(series.value, settings)
    found = change_points.add_missed_levels(series.value, found, settings)
    return change_points.drop_doubtful(series.value, found, settings)


def _clipped(series: Series, settings: AnalysisSettings) -> Series:
    """Return the series with its outliers clipped if the settings ask for it.

    A clipped run keeps its new value only; its rounds are removed.
    """
    values = change_points.clip_outliers(series.value, settings)
    if values is series.value or series.rounds is None:
        return replace(series, value=values)
    odd = values != series.value
    rounds = [each[:0] if is_odd else each for each, is_odd in zip(series.rounds, odd, strict=True)]
    return replace(series, value=values, rounds=rounds)


def describe(
    series: Series, found: Sequence[ChangeCandidate], settings: AnalysisSettings
) -> tuple[ChangePoint, ...]:
    """Return the change points of a series with their levels, commits and ratios."""
    ends = [0, *(each.index for each in found), len(series)]
    points = []
    for start, each, stop in zip(ends, found, ends[2:], strict=False):
        at = each.index
        assert start < at < stop, f"{series.key.name}: change point {at} outside of {start}..{stop}"
        rounds = series.rounds
        earliest, latest = position_interval(series.value, start, at, stop)
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
                metric=series.metric,
                surely_old_run=series.run_id[earliest - 1],
                surely_new_run=series.run_id[latest],
            )
        )
    return tuple(points)


def _drift(series: Series, ramp: Ramp, settings: AnalysisSettings) -> Drift:
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
        metric=series.metric,
        surely_old_run=series.run_id[max(ramp.start - MARGIN_RUNS, 0)],
        surely_new_run=series.run_id[min(ramp.stop + MARGIN_RUNS, len(series) - 1)],
    )


def _variance_change(
    series: Series, found: VarianceShift, settings: AnalysisSettings
) -> VarianceChange:
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
        outcome=SeriesOutcome.CHANGED if points or drifting or scattering else SeriesOutcome.STABLE,
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
        metric=series.metric,
    )


def noise(values: NDArray[np.float64], indices: Sequence[int]) -> float:
    """Return standard deviation / mean within the levels delimited by ``indices``, pooled.

    Each run counts relative to the mean of its own level, so that a high level does not dominate.
    NaN if no level has two runs, or if the mean of a level is 0.
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
