"""Columns of a run as the data of its plots: counts over time, windows of percentiles.

Pure: a trace in, numpy arrays out. ``plots`` draws them. Long series are thinned here, so that a
page of a run of hours stays small.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kraft.fleet.traces import NAMES, TraceColumns

#: Points of one line, at most.
MOST_POINTS = 1500
#: Windows of percentiles of one run, at most; each is at least a second.
MOST_WINDOWS = 300

_Floats = NDArray[np.floating[Any]]


class Line(NamedTuple):
    """Values over time: ``seconds`` since the run's start."""

    seconds: _Floats
    values: _Floats

    def __len__(self) -> int:
        return len(self.seconds)


class Percentiles(NamedTuple):
    """Percentiles of the values of each window that has one; ``seconds`` is the window's middle."""

    seconds: _Floats
    p50: _Floats
    p99: _Floats
    worst: _Floats


class BrokerCounts(NamedTuple):
    """Brokers that are unfenced, and those that are fenced or have shut down, after each change."""

    seconds: _Floats
    unfenced: _Floats
    fenced: _Floats


def samples(trace: TraceColumns, name: str) -> Line:
    """Return the samples of one name, thinned to the smallest and largest of each interval."""
    rows = trace.rows(name)
    return _thinned(Line(trace.at_ms[rows] / 1000, trace.value[rows]))


def rates(trace: TraceColumns, name: str) -> Line:
    """Return the growth of a counter a second, at each sample but the first."""
    _, grown = trace.increments(name)
    seconds = trace.at_ms[trace.rows(name)] / 1000
    spent = np.diff(seconds)
    usable = spent > 0
    return _thinned(Line(seconds[1:][usable], grown[usable] / spent[usable]))


def percentiles(trace: TraceColumns, name: str) -> Percentiles:
    """Return the percentiles of a kind of event over windows of equal length."""
    rows = trace.rows(name)
    if not len(rows):
        empty = np.empty(0)
        return Percentiles(empty, empty, empty, empty)
    width_ms = max(trace.end_ms / MOST_WINDOWS, 1000.0)
    window = (trace.at_ms[rows] // width_ms).astype(np.int64)
    bounds = np.flatnonzero(np.diff(window)) + 1
    parts = np.split(trace.value[rows], bounds)
    quantiles = np.array(
        [np.quantile(part, (0.5, 0.99, 1.0), method="inverted_cdf") for part in parts]
    )
    middles = (window[np.r_[0, bounds]] + 0.5) * width_ms / 1000
    return Percentiles(middles, *quantiles.T)


def broker_counts(trace: TraceColumns) -> BrokerCounts:
    """Return how many brokers are unfenced and fenced, after each event and at the run's end.

    A broker is registered from its first event on. Repeated events of one state change nothing.
    """
    states = ("registered", "unfenced", "fenced", "stopped")
    kinds = {NAMES.index(f"broker_{state}"): state for state in states}
    unfenced: set[int] = set()
    known: set[int] = set()
    seconds, living, away = [], [], []
    for row in np.flatnonzero(np.isin(trace.name, list(kinds))):
        broker = int(trace.broker[row])
        known.add(broker)
        if kinds[int(trace.name[row])] == "unfenced":
            unfenced.add(broker)
        else:
            unfenced.discard(broker)
        seconds.append(trace.at_ms[row] / 1000)
        living.append(len(unfenced))
        away.append(len(known) - len(unfenced))
    if seconds:
        # The last state lasts until the run's end.
        seconds.append(trace.end_ms / 1000)
        living.append(living[-1])
        away.append(away[-1])
    times = np.array(seconds, float)
    kept = _kept(np.array(living, float))
    return BrokerCounts(times[kept], np.array(living, float)[kept], np.array(away, float)[kept])


def _thinned(line: Line) -> Line:
    kept = _kept(line.values)
    return Line(line.seconds[kept], line.values[kept])


def _kept(values: _Floats) -> NDArray[np.intp]:
    """Return the indexes to draw: all, or first, last, smallest and largest of each interval."""
    if len(values) <= MOST_POINTS:
        return np.arange(len(values))
    bounds = np.linspace(0, len(values), MOST_POINTS // 2).astype(int)
    kept = {0, len(values) - 1}
    for start, stop in pairwise(bounds):
        part = values[start:stop]
        kept |= {start + int(part.argmin()), start + int(part.argmax())}
    return np.array(sorted(kept))
