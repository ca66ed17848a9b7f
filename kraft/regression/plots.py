"""The numbers of a page's plots: thinned, scaled to their unit, and small enough to travel in it.

Owns what a plot shows of a history (`history_plot`), of its levels' distributions, of a scaling law
(`scaling_plot`) and of all changes together (`overview_plot`), as values that `json.dumps` takes.
``page.js`` draws them; its colours and layout are its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kraft.regression import wording
from kraft.regression.findings import ChangePoint, ScalingLaw, SeriesFinding
from kraft.regression.points import Series

#: Runs drawn of one history. Of a longer one each stretch shows its least and its largest run.
MOST_RUNS = 1000
#: Levels whose distributions are drawn, the newest.
MOST_LEVELS = 6
#: Round values that a level's distribution is made of, taken evenly from all of them.
_MOST_ROUNDS = 20_000
_GRID = 160

_Floats = NDArray[np.floating[Any]]


def history_plot(finding: SeriesFinding, statistic: str) -> dict[str, Any]:
    """Runs, levels and the distribution of each level. Takes a finding that kept its series."""
    series = finding.series
    assert series is not None, f"{finding.key.name}: nothing was kept to draw"
    spans = _levels(finding)
    scale, unit = wording.unit_of(statistic, float(np.median(np.abs(series.value))))
    kept = _thinned(series.value, [level.start for level in spans])
    levels = []
    for level in spans:
        # A level reaches to the first run of the next one, so that the steps join.
        last = min(level.stop, len(series) - 1)
        levels.append(
            {
                "runs": [level.start + 1, last + 1],
                "times": [_seconds(series, level.start), _seconds(series, last)],
                "mean": _rounded(level.mean / scale),
                "kind": wording.kind_text(level.change.kind) if level.change else "neutral",
                "change": wording.change_text(level.change.ratio.value) if level.change else "",
                "label": f"{level.runs}: mean {wording.value_text(level.mean, statistic)}",
            }
        )
    plot: dict[str, Any] = {
        "unit": unit,
        "statistic": statistic,
        "run": [int(at) + 1 for at in kept],
        "time": [_seconds(series, int(at)) for at in kept],
        "value": [_rounded(series.value[at] / scale) for at in kept],
        "id": [wording.printable(str(series.run_id[at]))[:10] for at in kept],
        "commit": [wording.commit_text(series.commit[at]) for at in kept],
        "levels": levels,
        "drifts": [
            {
                "runs": [drift.start_index + 1, drift.end_index + 1],
                "times": [_seconds(series, drift.start_index), _seconds(series, drift.end_index)],
                "values": [
                    _rounded(drift.mean_before / scale),
                    _rounded(drift.mean_after / scale),
                ],
                "kind": wording.kind_text(drift.kind),
                "label": f"slow drift {wording.change_text(drift.ratio.value)}",
            }
            for drift in finding.drifts
        ],
        "range": _range(series.value[kept] / scale),
        "thinned": len(kept) < len(series),
    }
    # Bars of more runs than this would be a smear.
    if series.rounds is not None and len(kept) <= 400:
        quartiles = [_quartiles(series.rounds[at], series.value[at]) for at in kept]
        plot["low"] = [_rounded(low / scale) for low, _ in quartiles]
        plot["high"] = [_rounded(high / scale) for _, high in quartiles]
    plot["distribution"] = _distribution(series, spans, scale)
    return plot


def scaling_plot(law: ScalingLaw, statistic: str) -> dict[str, Any]:
    """The newest value of each size, the fitted line with its interval, and a linear one."""
    sizes, values = np.array(law.sizes, dtype=float), np.array(law.values, dtype=float)
    drawn = (sizes > 0) & (values > 0)
    sizes, values = sizes[drawn], values[drawn]
    order = np.argsort(sizes)
    sizes, values = sizes[order], values[order]
    if not len(sizes):
        return {}
    # A fitted line goes through the middle of its points, whatever its slope.
    middle_size, middle = np.log(sizes).mean(), np.log(values).mean()
    line = np.geomspace(sizes[0] / 1.3, sizes[-1] * 1.3, 25)

    def along(exponent: float) -> list[float]:
        # Three sizes leave an exponent wide open: its band may leave the plot, not the numbers.
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
        "labels": [wording.value_text(value, statistic) for value in values],
        "line": _list(line),
        "fit": fit,
        "linear": along(1.0),
        "lower": _list(edges.min(axis=0)),
        "upper": _list(edges.max(axis=0)),
        "law": f"size ^ {law.exponent:.2f}",
        "range": [_rounded(math.log10(least) - 0.15), _rounded(math.log10(most) + 0.15)],
        "ticks": ticks,
        "tick_labels": [wording.value_text(tick, statistic, digits=1) for tick in ticks],
    }


def overview_plot(
    points: Sequence[ChangePoint],
    span_us: tuple[int, int],
    name_of: Callable[[ChangePoint], str],
    section_of: Callable[[ChangePoint], str | None],
) -> dict[str, Any]:
    """Every change at its time, with its ratio and the section that it leads to.

    ``span_us`` is when the first and the last run of the analysis were.
    """
    margin_us = (span_us[1] - span_us[0]) // 50 + 1_000_000
    drawn = [point for point in points if 0 < point.ratio.value < math.inf]

    def bound(value: float, point: ChangePoint) -> float:
        return _rounded(value if 0 < value < math.inf else point.ratio.value)

    return {
        "span": [
            wording.iso_time(span_us[0] - margin_us)[:19],
            wording.iso_time(span_us[1] + margin_us)[:19],
        ],
        "time": [wording.iso_time(point.time_us)[:19] for point in drawn],
        "ratio": [_rounded(point.ratio.value) for point in drawn],
        "low": [bound(point.ratio.low, point) for point in drawn],
        "high": [bound(point.ratio.high, point) for point in drawn],
        "kind": [wording.kind_text(point.kind) for point in drawn],
        "label": [f"{wording.change_text(point.ratio.value)} {name_of(point)}" for point in drawn],
        "section": [section_of(point) for point in drawn],
    }


@dataclass(frozen=True)
class _Level:
    """Runs between two changes: from ``start`` to before ``stop``, after ``change``."""

    start: int
    stop: int
    mean: float
    change: ChangePoint | None

    @property
    def runs(self) -> str:
        many = self.stop - self.start > 1
        return f"runs {self.start + 1}-{self.stop}" if many else f"run {self.stop}"


def _levels(finding: SeriesFinding) -> list[_Level]:
    """The levels on both sides of every change, oldest first; without any, all runs as one.

    Changes before the time that was asked for are left out of a finding, and with them go the
    levels before the first one that is told.
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
    """How the rounds (values, where rounds were not saved) of each level are spread."""
    drawn = spans[-MOST_LEVELS:]
    samples = [_sample(series, level.start, level.stop) / scale for level in drawn]
    low = min(float(np.quantile(sample, 0.005)) for sample in samples)
    high = max(float(np.quantile(sample, 0.995)) for sample in samples)
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    edges = np.linspace(low - margin, high + margin, _GRID + 1)
    return {
        "of": "one run" if series.rounds is None else "one round",
        "grid": _list((edges[:-1] + edges[1:]) / 2),
        "levels": [
            {
                "density": [round(float(height), 3) for height in _density(sample, edges)],
                "median": _rounded(float(np.median(sample))),
                "kind": wording.kind_text(level.change.kind) if level.change else "neutral",
                "label": level.runs,
            }
            for sample, level in zip(samples, drawn, strict=True)
        ],
    }


def _sample(series: Series, start: int, stop: int) -> _Floats:
    """The finite rounds of some runs, taken evenly where they are many."""
    pooled = series.value[start:stop]
    if series.rounds is not None:
        rounds = np.concatenate([np.asarray(each, float) for each in series.rounds[start:stop]])
        rounds = rounds[np.isfinite(rounds)]
        pooled = rounds if len(rounds) else pooled
    step = -(-len(pooled) // _MOST_ROUNDS)
    return pooled[::step]


def _density(sample: _Floats, edges: _Floats) -> _Floats:
    """A smooth histogram whose peak is 1 (Silverman's rule for the width of the kernel)."""
    # What lies outside is left out of the counts: it would be a peak at the edge of the plot.
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
    """The runs that are drawn: all, or the least and largest of each stretch and both sides of
    every change.
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
    """What the axis shows: everything but the odd run that is far out, which would flatten all."""
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
    """When a run was, in seconds since 1970, UTC: a third of the text that says it."""
    return int(series.time_us[at]) // 1_000_000


def _log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten around the values; 1, 2 and 5 of each where they are few."""
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


def _rounded(value: float) -> float:
    """Six digits: more than a screen shows, and half the bytes."""
    return float(f"{float(value):.6g}")
