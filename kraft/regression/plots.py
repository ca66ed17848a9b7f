"""Data of the page's plots: thinned, scaled to their unit, and small enough to embed.

The functions return values for `json.dumps`: a history and the distributions of its levels
(`history_plot`), a scaling law (`scaling_plot`), all changes (`overview_plot`). ``page.js`` draws
them and chooses colours and layout.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kraft.regression import report_text
from kraft.regression.findings import ChangePoint, ScalingLaw, SeriesFinding, SeriesOutcome
from kraft.regression.points import Series
from kraft.regression.scaling import EXPONENT

#: Runs drawn per history. A longer one is divided into intervals; each shows its smallest and
#: largest run.
MOST_RUNS = 1000
#: Levels whose distributions are drawn: the newest ones.
MOST_LEVELS = 6
#: Round values used for a level's distribution: an even selection.
_MOST_ROUNDS = 20_000
_GRID = 160

_Floats = NDArray[np.floating[Any]]


def history_plot(finding: SeriesFinding, statistic: str) -> dict[str, Any]:
    """Return runs, levels and the distribution of each level of a finding that kept its series."""
    series = finding.series
    assert series is not None, f"{finding.key.name}: nothing was kept to draw"
    spans = _levels(finding)
    scale, unit = report_text.unit_of(
        statistic, float(np.median(np.abs(series.value))), series.metric
    )
    kept = _thinned(series.value, [level.start for level in spans])
    levels = []
    for level in spans:
        mean = report_text.value_text(level.mean, statistic, series.metric)
        # A level extends to the first run of the next one, so that the steps join.
        last = min(level.stop, len(series) - 1)
        levels.append(
            {
                "runs": [level.start + 1, last + 1],
                "times": [_seconds(series, level.start), _seconds(series, last)],
                "mean": _rounded(level.mean / scale),
                "kind": report_text.kind_text(level.change.kind) if level.change else "neutral",
                "change": report_text.change_text(level.change.ratio.value) if level.change else "",
                "label": f"{level.runs}: mean {mean}",
            }
        )
    plot: dict[str, Any] = {
        "unit": unit,
        "statistic": statistic,
        "run": [int(at) + 1 for at in kept],
        "time": [_seconds(series, int(at)) for at in kept],
        "value": [_rounded(series.value[at] / scale, 5) for at in kept],
        "id": [report_text.printable(str(series.run_id[at]))[:10] for at in kept],
        "commit": [report_text.commit_text(series.commit[at]) for at in kept],
        "levels": levels,
        "drifts": [
            {
                "runs": [drift.start_index + 1, drift.end_index + 1],
                "times": [_seconds(series, drift.start_index), _seconds(series, drift.end_index)],
                "values": [
                    _rounded(drift.mean_before / scale),
                    _rounded(drift.mean_after / scale),
                ],
                "kind": report_text.kind_text(drift.kind),
                "label": f"slow drift {report_text.change_text(drift.ratio.value)}",
            }
            for drift in finding.drifts
        ],
        "range": _range(series.value[kept] / scale),
        "thinned": len(kept) < len(series),
    }
    # With more runs, the bars would overlap.
    if series.rounds is not None and len(kept) <= 400:
        quartiles = [_quartiles(series.rounds[at], series.value[at]) for at in kept]
        plot["low"] = [_rounded(low / scale, 5) for low, _ in quartiles]
        plot["high"] = [_rounded(high / scale, 5) for _, high in quartiles]
    plot["distribution"] = _distribution(series, spans, scale)
    return plot


def scaling_plot(law: ScalingLaw, statistic: str) -> dict[str, Any]:
    """Return the newest value of each size, the fitted line with its interval, and a linear one."""
    sizes, values = np.array(law.sizes, dtype=float), np.array(law.values, dtype=float)
    drawn = (sizes > 0) & (values > 0)
    sizes, values = sizes[drawn], values[drawn]
    order = np.argsort(sizes)
    sizes, values = sizes[order], values[order]
    if not len(sizes):
        return {}
    # A fitted line passes through the mean of its points, whatever its slope.
    middle_size, middle = np.log(sizes).mean(), np.log(values).mean()
    line = np.geomspace(sizes[0] / 1.3, sizes[-1] * 1.3, 25)

    def along(exponent: float) -> list[float]:
        # With three sizes the interval is very wide: limit the band, because numbers must stay
        # finite.
        logarithms = middle + exponent * (np.log(line) - middle_size)
        return _list(np.exp(np.clip(logarithms, middle - 100, middle + 100)))

    low, high = (bound if math.isfinite(bound) else law.exponent for bound in (law.low, law.high))
    edges = np.array([along(low), along(high)])
    fit = along(law.exponent)
    least, most = min(fit[0], fit[-1], values.min()), max(fit[0], fit[-1], values.max())
    ticks = _log_ticks(float(least), float(most))
    return {
        "param": law.size_param,
        "statistic": statistic,
        "sizes": _list(sizes),
        "size_labels": [_size_text(size) for size in sizes],
        "values": _list(values),
        "labels": [report_text.value_text(value, statistic) for value in values],
        "line": _list(line),
        "fit": fit,
        "linear": along(1.0),
        "lower": _list(edges.min(axis=0)),
        "upper": _list(edges.max(axis=0)),
        "law": f"size ^ {law.exponent:z.2f}",
        "range": [_rounded(math.log10(least) - 0.15), _rounded(math.log10(most) + 0.15)],
        "ticks": ticks,
        "tick_labels": [report_text.value_text(tick, statistic, digits=1) for tick in ticks],
    }


def exponent_plot(law: ScalingLaw) -> dict[str, Any]:
    """Return the history of a law's exponent and its levels, as `history_plot`; the law has one."""
    assert law.history is not None
    finding = SeriesFinding(
        key=law.key,
        outcome=SeriesOutcome.CHANGED if law.change_points else SeriesOutcome.STABLE,
        run_count=len(law.history),
        first_time_us=int(law.history.time_us[0]),
        last_time_us=int(law.history.time_us[-1]),
        last_value=law.exponent,
        noise=math.nan,
        change_points=law.change_points,
        series=law.history,
    )
    plot = history_plot(finding, EXPONENT)
    del plot["distribution"]
    return plot


def overview_plot(
    points: Sequence[ChangePoint],
    span_us: tuple[int, int],
    name_of: Callable[[ChangePoint], str],
    section_of: Callable[[ChangePoint], str | None],
) -> dict[str, Any]:
    """Return every change with its time, how much worse it is, and the section that it links to.

    ``span_us`` holds the times of the first and the last run of the analysis.
    """
    margin_us = (span_us[1] - span_us[0]) // 50 + 1_000_000
    drawn = [point for point in points if 0 < point.ratio.value < math.inf]

    def bounds(point: ChangePoint) -> list[float]:
        ends = [
            value if 0 < value < math.inf else point.ratio.value
            for value in (point.ratio.low, point.ratio.high)
        ]
        return sorted(_rounded(point.metric.worsening(value)) for value in ends)

    return {
        "span": [
            report_text.iso_time(span_us[0] - margin_us)[:19],
            report_text.iso_time(span_us[1] + margin_us)[:19],
        ],
        "time": [report_text.iso_time(point.time_us)[:19] for point in drawn],
        "ratio": [_rounded(point.worsening) for point in drawn],
        "low": [bounds(point)[0] for point in drawn],
        "high": [bounds(point)[1] for point in drawn],
        "kind": [report_text.kind_text(point.kind) for point in drawn],
        "label": [
            f"{report_text.change_text(point.ratio.value)} {name_of(point)}" for point in drawn
        ],
        "section": [section_of(point) for point in drawn],
    }


@dataclass(frozen=True)
class _Level:
    """Runs from ``start`` to before ``stop``; ``change`` precedes them."""

    start: int
    stop: int
    mean: float
    change: ChangePoint | None

    @property
    def runs(self) -> str:
        many = self.stop - self.start > 1
        return f"runs {self.start + 1}-{self.stop}" if many else f"run {self.stop}"


def _levels(finding: SeriesFinding) -> list[_Level]:
    """Return the levels around all changes, oldest first; one level without changes.

    A finding may omit changes before a requested time, and then the levels before the first change
    in it are omitted as well.
    """
    series, points = finding.series, finding.change_points
    assert series is not None
    if not points:
        return [_Level(0, len(series), float(series.value.mean()), None)]
    first = points[0]
    levels = [_Level(first.index - first.count_before, first.index, first.mean_before, None)]
    for point in points:
        stop = point.index + point.count_after
        levels.append(_Level(point.index, stop, point.mean_after, point))
    for level in levels:
        assert 0 <= level.start < level.stop <= len(series), f"{finding.key.name}: {level}"
    return levels


def _distribution(series: Series, spans: Sequence[_Level], scale: float) -> dict[str, Any]:
    """Return the distribution of each level's rounds, or values if rounds were not saved."""
    drawn = spans[-MOST_LEVELS:]
    samples = [_sample(series, level.start, level.stop) / scale for level in drawn]
    low = min(float(np.quantile(sample, 0.005)) for sample in samples)
    high = max(float(np.quantile(sample, 0.995)) for sample in samples)
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    edges = np.linspace(low - margin, high + margin, _GRID + 1)
    return {
        "of": "one run" if series.rounds is None else "one round",
        "first": float((edges[0] + edges[1]) / 2),
        "step": float(edges[1] - edges[0]),
        "count": _GRID,
        "levels": [
            {
                "density": [round(float(height), 2) for height in _density(sample, edges)],
                "median": _rounded(float(np.median(sample))),
                "kind": report_text.kind_text(level.change.kind) if level.change else "neutral",
                "label": level.runs,
            }
            for sample, level in zip(samples, drawn, strict=True)
        ],
    }


def _sample(series: Series, start: int, stop: int) -> _Floats:
    """Return the finite rounds of a range of runs, an even selection if there are many."""
    pooled = series.value[start:stop]
    if series.rounds is not None:
        rounds = np.concatenate([np.asarray(each, float) for each in series.rounds[start:stop]])
        rounds = rounds[np.isfinite(rounds)]
        pooled = rounds if len(rounds) else pooled
    step = -(-len(pooled) // _MOST_ROUNDS)
    return pooled[::step]


def _density(sample: _Floats, edges: _Floats) -> _Floats:
    """Return a smoothed histogram with a peak of 1 (kernel width by Silverman's rule)."""
    # Values outside are not counted: they would form a peak at the edge of the plot.
    counts, _ = np.histogram(sample, bins=edges)
    quartile_range = float(np.subtract(*np.quantile(sample, [0.75, 0.25])))
    spread = min(float(sample.std()), quartile_range / 1.34) or float(sample.std())
    width = 0.9 * spread * len(sample) ** -0.2 / (edges[1] - edges[0])
    reach = min(max(int(4 * width), 1), _GRID)
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / max(width, 0.5)) ** 2)
    smooth = np.convolve(counts, kernel)[reach : reach + _GRID]
    peak = smooth.max()
    return smooth / peak if peak > 0 else smooth


def _thinned(values: _Floats, changes: Sequence[int]) -> NDArray[np.intp]:
    """Return the indices of the runs to draw.

    All runs, or the smallest and largest of each interval and both sides of every change.
    """
    count = len(values)
    if count <= MOST_RUNS:
        return np.arange(count)
    kept = {0, count - 1}
    for at in changes:
        kept |= {max(at - 1, 0), at}
    bounds = np.linspace(0, count, MOST_RUNS // 2 + 1).astype(int)
    for start, stop in pairwise(bounds):
        kept |= {start + int(values[start:stop].argmin()), start + int(values[start:stop].argmax())}
    return np.array(sorted(kept))


def _range(values: _Floats) -> list[float]:
    """Return the range of the axis; distant outliers, which would flatten the plot, are outside."""
    low, high = np.quantile(values, [0.01, 0.99])
    middle = (high - low) or abs(high) * 0.1 or 1.0
    least = max(float(values.min()), float(low - 1.5 * middle))
    most = min(float(values.max()), float(high + 1.5 * middle))
    return [_rounded(least - 0.08 * middle), _rounded(most + 0.18 * middle)]


def _quartiles(rounds: _Floats, value: float) -> tuple[float, float]:
    finite = np.asarray(rounds, float)
    finite = finite[np.isfinite(finite)]
    if not len(finite):
        return value, value
    low, high = np.quantile(finite, [0.25, 0.75])
    return float(low), float(high)


def _seconds(series: Series, at: int) -> int:
    """Return a run's time in seconds since 1970, UTC: a third of the length of an ISO text."""
    return int(series.time_us[at]) // 1_000_000


def _log_ticks(low: float, high: float) -> list[float]:
    """Return powers of ten around the values; also 2 and 5 times each for a small range."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    steps = (1, 2, 5) if last - first <= 2 else (1,)
    ticks = [step * 10.0**power for power in range(first, last + 1) for step in steps]
    return [_rounded(tick) for tick in ticks if low / 2 <= tick <= high * 2]


def _size_text(size: float) -> str:
    for scale, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= scale:
            return f"{size / scale:g}{unit}"
    return f"{size:g}"


def _list(values: _Floats) -> list[float]:
    return [_rounded(value) for value in values]


def _rounded(value: float, digits: int = 6) -> float:
    """Round to digits that a screen shows: half the bytes."""
    return float(f"{float(value):.{digits}g}")
