"""The plots of a fleet's report, as values for `json.dumps` that ``page.js`` draws.

Each function returns ``{"traces": …, "layout": …}`` of plotly. Colours are names of the page's
styles (``"@faster"``, with opacity ``"@faster/0.2"``): a page follows a dark or light theme.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kraft.fleet import timelines
from kraft.fleet.measures import Measure, measures_of
from kraft.fleet.scaling import Fit, PowerLaw
from kraft.fleet.texts import number_text, value_text
from kraft.fleet.traces import RecordedRun, TraceColumns, run_labels

#: Colours of the first and the second run.
RUN_COLOURS = ("@faster", "@slower")

#: Height of the plot in units of one panel, and of the bar of steps.
_STEPS_HEIGHT = 0.35
_GAP = 0.32
#: A bar of a step shows its name where this share of the width has room for each character.
_CHARACTER_SHARE = {1: 0.0056, 2: 0.0118}
#: A line is interrupted where no value follows for this many usual distances and seconds.
_GAP_SPACINGS, _LEAST_GAP_S = 3.0, 4.0
#: Times whose percentiles are drawn by step.
_TIMES = ("applied", "first_write", "fenced_after", "decided", "applied_everywhere")


class _Series(NamedTuple):
    name: str
    x: NDArray[np.floating[Any]]
    y: NDArray[np.floating[Any]]
    colour: str
    unit: str
    is_step: bool = False


class _Panel(NamedTuple):
    """One row of a timeline: its title, its lines, and whether its axis is logarithmic."""

    title: str
    series: list[_Series]
    is_log: bool = False


def timeline_plots(runs: Sequence[RecordedRun]) -> list[dict[str, Any]]:
    """Return the timeline of each run; all have the same panels and ranges, to compare by eye."""
    panels = [_panels(run.trace) for run in runs]
    titles = list(dict.fromkeys(panel.title for each in panels for panel in each))
    end = max(run.trace.end_ms for run in runs) / 1000 or 1.0
    ranges = {
        title: _range_of([p for each in panels for p in each if p.title == title])
        for title in titles
    }
    return [
        _timeline(run, {panel.title: panel for panel in each}, ranges, end, len(runs))
        for run, each in zip(runs, panels, strict=True)
    ]


def panel_count(runs: Sequence[RecordedRun]) -> int:
    """Return how many panels the timelines of these runs have: it decides about their height."""
    return len({panel.title for run in runs for panel in _panels(run.trace)})


def _panels(trace: TraceColumns) -> list[_Panel]:
    """Return the panels that this trace has data for."""
    counts = timelines.broker_counts(trace)
    applied = timelines.percentiles(trace, "applied")
    gib, mib = float(1 << 30), float(1 << 20)

    def sampled(name: str, label: str, colour: str, unit: str, scale: float = 1.0) -> _Series:
        line = timelines.samples(trace, name)
        return _Series(label, line.seconds, line.values / scale, colour, unit)

    def rate(name: str, label: str, colour: str) -> _Series:
        line = timelines.rates(trace, name)
        return _Series(label, line.seconds, line.values / mib, colour, "MiB/s")

    found = [
        _Panel(
            "brokers",
            [
                _Series("unfenced", counts.seconds, counts.unfenced, "@faster", "", True),
                _Series("fenced", counts.seconds, counts.fenced, "@slower", "", True),
            ],
        ),
        _Panel(
            "CPU, cores",
            [
                sampled("controller_cpu", "controllers", "@faster", "cores"),
                sampled("active_controller_cpu", "active controller", "@slower", "cores"),
                sampled("fleet_cpu", "fleet", "@neutral", "cores"),
            ],
        ),
        _Panel(
            "memory, GiB",
            [
                sampled("controller_rss", "controllers", "@faster", "GiB", gib),
                sampled("fleet_rss", "fleet", "@neutral", "GiB", gib),
            ],
        ),
        _Panel(
            "commit to applied, ms",
            [
                _Series("worst", applied.seconds, applied.worst, "@slower", "ms"),
                _Series("p99", applied.seconds, applied.p99, "@faster", "ms"),
                _Series("p50", applied.seconds, applied.p50, "@neutral", "ms"),
            ],
            is_log=True,
        ),
        _Panel(
            "lag of the slowest broker, records",
            [sampled("applied_lag_records", "lag", "@faster", "records")],
        ),
        _Panel(
            "controller's queue, p99 in ms",
            [sampled("queue_time_p99", "queue", "@faster", "ms")],
        ),
        _Panel(
            "the fleet's own delay, ms",
            [sampled("fleet_delay", "delay", "@neutral", "ms")],
        ),
        _Panel(
            "bytes, MiB/s",
            [
                rate("network_bytes", "network", "@faster"),
                rate("disk_bytes", "disk", "@neutral"),
            ],
        ),
    ]
    kept = [
        panel._replace(series=[each for each in panel.series if len(each.x)]) for panel in found
    ]
    return [panel for panel in kept if panel.series]


def _range_of(panels: Sequence[_Panel]) -> list[float]:
    """Return the range of an axis over the same panel of all runs."""
    values = np.concatenate([each.y for panel in panels for each in panel.series])
    most = float(values.max())
    if panels[0].is_log:
        positive = values[values > 0]
        if not len(positive):
            return [-1.0, 1.0]
        low = math.floor(math.log10(float(positive.min())))
        return [float(low), max(math.log10(float(positive.max())) + 0.15, low + 1.0)]
    return [0.0, _rounded(most * 1.12) or 1.0]


def _timeline(
    run: RecordedRun,
    panels: dict[str, _Panel],
    ranges: dict[str, list[float]],
    end: float,
    columns: int,
) -> dict[str, Any]:
    """Return steps above the panels, which share the time axis."""
    total = _STEPS_HEIGHT + len(ranges) * (1 + _GAP)
    traces, layout = _steps(run, end, columns, total)
    bottom = 1 - _STEPS_HEIGHT / total
    for place, (title, span) in enumerate(ranges.items(), 2):
        top = bottom - _GAP / total
        bottom = max(top - 1 / total, 0.0)
        axis, legend = f"y{place}", f"legend{place}"
        panel = panels.get(title)
        layout[f"yaxis{place}"] = {
            "domain": [_rounded(bottom), _rounded(top)],
            "range": span,
            "nticks": 4,
            **(
                {"type": "log", "dtick": 1, "tickformat": "~g"}
                if panel and panel.is_log
                else {"tickformat": "~r"}
            ),
        }
        layout[legend] = {
            "x": 1, "xanchor": "right", "y": _rounded(top), "yanchor": "bottom",
            "orientation": "h", "bgcolor": "@ground/0.75", "font": {"size": 11},
            "itemclick": False, "itemdoubleclick": False,
        }  # fmt: skip
        layout["annotations"].append(
            {
                "text": title, "x": 0, "xref": "paper", "xanchor": "left", "y": _rounded(top),
                "yref": "paper", "yanchor": "bottom", "showarrow": False,
                "font": {"size": 12, "color": "@text"}, "bgcolor": "@ground/0.75",
            }
        )  # fmt: skip
        series = panel.series if panel else []
        traces += [_line_trace(each, axis, legend, is_alone=len(series) == 1) for each in series]
    layout["xaxis"]["anchor"] = f"y{len(ranges) + 1}" if ranges else "y"
    return {"traces": traces, "layout": layout}


def _line_trace(series: _Series, axis: str, legend: str, *, is_alone: bool) -> dict[str, Any]:
    unit = f" {series.unit}" if series.unit else ""
    x, y = _with_gaps(series)
    return {
        "x": x,
        "y": y,
        "mode": "lines" if len(series.x) > 1 else "markers",
        "name": series.name,
        "yaxis": axis,
        "legend": legend,
        "showlegend": not is_alone,
        "line": {
            "color": series.colour,
            "width": 1.75,
            **({"shape": "hv"} if series.is_step else {}),
        },
        "hovertemplate": f"{series.name} %{{y:.4~g}}{unit}<br>at %{{x:.1f}} s<extra></extra>",
    }


def _with_gaps(series: _Series) -> tuple[list[float], list[float | None]]:
    """Return a line's points, with a point of None where it has no values for long.

    A line over the gap would look like values between. A count keeps its value until it changes.
    """
    x: list[float] = _list(series.x)
    y: list[float | None] = [*_list(series.y)]
    if series.is_step or len(x) < 2:
        return x, y
    spent = np.diff(series.x)
    longest = max(float(np.median(spent)) * _GAP_SPACINGS, _LEAST_GAP_S)
    for at in np.flatnonzero(spent > longest)[::-1]:
        x.insert(int(at) + 1, _rounded(float(series.x[at + 1])))
        y.insert(int(at) + 1, None)
    return x, y


def _steps(
    run: RecordedRun, end: float, columns: int, total: float
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the bar of steps with bands below it, and the faults with lines below them."""
    spans, faults = run.trace.spans, run.trace.faults
    numbers = step_numbers(run)
    traces: list[dict[str, Any]] = []
    shapes: list[dict[str, Any]] = []
    for place, span in enumerate(spans):
        begin, stop = span.begin_ms / 1000, span.end_ms / 1000
        share = (stop - begin) / end
        number = str(numbers[span.step])
        label = f"{number} {span.step}"
        if share < _CHARACTER_SHARE[columns] * len(label):
            label = number if share > _CHARACTER_SHARE[columns] * 2 else ""
        is_even = place % 2 == 0
        traces.append(
            {
                "type": "bar", "orientation": "h", "base": [_rounded(begin)],
                "x": [_rounded(stop - begin)], "y": [0], "width": [0.9], "text": [_plain(label)],
                "textposition": "inside", "insidetextanchor": "start", "textangle": 0,
                "textfont": {"size": 11, "color": "@text"}, "showlegend": False,
                "marker": {"color": "@faster/0.30" if is_even else "@faster/0.16",
                           "line": {"width": 0}},
                "hovertemplate": f"{number} {_plain(span.step)}<br>"
                f"{value_text(span.seconds, 's')}, from {begin:.1f} s on<extra></extra>",
            }
        )  # fmt: skip
        if is_even:
            shapes.append(_vertical(begin, stop, fillcolor="@faster/0.06", line={"width": 0}))
    for fault in faults:
        at = _rounded(fault.at_ms / 1000)
        shapes.append(_vertical(at, at, line={"color": "@slower", "width": 1.25, "dash": "dot"}))
    if faults:
        traces.append(
            {
                "x": [_rounded(fault.at_ms / 1000) for fault in faults], "y": [0.62] * len(faults),
                "mode": "markers", "name": "fault", "legend": "legend", "cliponaxis": False,
                "text": [f"{fault.what}<br>step {_plain(fault.step)}" for fault in faults],
                "marker": {"symbol": "triangle-down", "size": 11, "color": "@slower"},
                "hovertemplate": "%{text}<br>at %{x:.2f} s<extra></extra>",
            }
        )  # fmt: skip
    elected = run.trace.at_ms[run.trace.rows("controller_elected")] / 1000
    if len(elected):
        traces.append(
            {
                "x": _list(elected), "y": [0.62] * len(elected), "mode": "markers",
                "name": "controller elected", "legend": "legend", "cliponaxis": False,
                "marker": {"symbol": "star", "size": 10, "color": "@text"},
                "hovertemplate": "controller elected<br>at %{x:.2f} s<extra></extra>",
            }
        )  # fmt: skip
    layout: dict[str, Any] = {
        "showlegend": True,
        "barmode": "overlay",
        "shapes": shapes,
        "annotations": [],
        "legend": {
            "x": 1, "xanchor": "right", "y": 1.004, "yanchor": "bottom", "orientation": "h",
            "bgcolor": "@ground/0.75", "font": {"size": 11},
            "itemclick": False, "itemdoubleclick": False,
        },
        "margin": {"l": 48, "r": 10, "t": 34, "b": 44},
        "xaxis": {
            "range": [0, _rounded(end * 1.005)],
            "title": {"text": "seconds since the run's start"},
            "tickformat": "~r",
        },
        "yaxis": {
            "domain": [_rounded(1 - _STEPS_HEIGHT / total), 1],
            "range": [-0.5, 0.85], "visible": False, "fixedrange": True,
        },
    }  # fmt: skip
    return traces, layout


def _vertical(begin: float, stop: float, **style: Any) -> dict[str, Any]:
    """Return a shape over the whole height, below the lines."""
    return {
        "type": "line" if begin == stop else "rect", "xref": "x", "yref": "paper",
        "x0": _rounded(begin), "x1": _rounded(stop), "y0": 0, "y1": 1, "layer": "below", **style,
    }  # fmt: skip


def step_numbers(run: RecordedRun) -> dict[str, int]:
    """Return the number of each step, from 1 on in the order of their first start."""
    return {
        step: place for place, step in enumerate(dict.fromkeys(s.step for s in run.trace.spans), 1)
    }


def times_plot(runs: Sequence[RecordedRun]) -> dict[str, Any]:
    """Return p50, p99 and worst of every time, by step and run; empty where there is none.

    One row for each step and kind of time, the runs below each other in it.
    """
    by_run = [_times(run) for run in runs]
    names = run_labels(runs)
    rows = list(dict.fromkeys(key for times in by_run for key in times))
    if not rows:
        return {}
    numbers: dict[str, int] = {}
    for run in runs:
        for step in step_numbers(run):
            numbers.setdefault(step, len(numbers) + 1)
    rows.sort(key=lambda key: (numbers[key[0]], _TIMES.index(key[1])))
    traces: list[dict[str, Any]] = []
    values: list[float] = []
    for place, times in enumerate(by_run):
        colour = RUN_COLOURS[place % len(RUN_COLOURS)]
        shift = 0.0 if len(runs) == 1 else 0.18 * (1 - 2 * place)
        for statistic, symbol in (
            ("p50", "circle-open"),
            ("p99", "circle"),
            ("worst", "triangle-right"),
        ):
            x, y, shown = [], [], []
            for level, key in enumerate(reversed(rows)):
                measure = times.get(key, {}).get(statistic)
                if measure is None or measure.value <= 0:
                    continue
                x.append(_rounded(measure.value))
                y.append(level + shift)
                shown.append(
                    f"{_plain(names[place])}: {measure.name} {statistic} "
                    f"{value_text(measure.value, 'ms')}<br>{measure.events:,} values"
                )
            values += x
            traces.append(
                {
                    "x": x, "y": y, "text": shown, "mode": "markers", "legendgroup": statistic,
                    "name": f"{_plain(names[place])} {statistic}",
                    "marker": {"symbol": symbol, "size": 10, "color": colour,
                               "line": {"color": colour, "width": 2 if "open" in symbol else 0}},
                    "hovertemplate": "%{text}<extra></extra>",
                }
            )  # fmt: skip
        traces.insert(0, _ranges(times, rows, colour, shift))
    low, high = math.log10(min(values)), math.log10(max(values))
    ticks, labels = _log_ticks(low, high)
    return {
        "traces": traces,
        "layout": {
            "showlegend": True,
            "legend": {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom",
                       "bgcolor": "rgba(0,0,0,0)"},
            "margin": {"l": 60, "r": 16, "t": 34, "b": 40},
            "xaxis": {"type": "log", "range": [low - 0.12, high + 0.12], "tickvals": ticks,
                      "ticktext": labels},
            "yaxis": {
                "range": [-0.6, len(rows) - 0.4],
                "tickvals": list(range(len(rows))),
                "ticktext": [
                    f"{_plain(step)}: {name.replace('_', ' ')}" for step, name in reversed(rows)
                ],
            },
        },
    }  # fmt: skip


def times_rows(runs: Sequence[RecordedRun]) -> int:
    """Return how many rows `times_plot` has."""
    return len({key for run in runs for key in _times(run)})


def _times(run: RecordedRun) -> dict[tuple[str, str], dict[str, Measure]]:
    found: dict[tuple[str, str], dict[str, Measure]] = {}
    steps = step_numbers(run)
    for each in measures_of(run.trace):
        if each.name in _TIMES and each.step in steps:
            found.setdefault((each.step, each.name), {})[each.statistic] = each
    return found


def _ranges(
    times: dict[tuple[str, str], dict[str, Measure]],
    rows: Sequence[tuple[str, str]],
    colour: str,
    shift: float,
) -> dict[str, Any]:
    """Return lines from p50 to worst of each row."""
    x: list[float | None] = []
    y: list[float | None] = []
    for level, key in enumerate(reversed(rows)):
        measured = [each.value for each in times.get(key, {}).values() if each.value > 0]
        if measured:
            x += [_rounded(min(measured)), _rounded(max(measured)), None]
            y += [level + shift, level + shift, None]
    return {
        "x": x, "y": y, "mode": "lines", "hoverinfo": "skip", "showlegend": False,
        "line": {"color": f"{colour}/0.35", "width": 4},
    }  # fmt: skip


def law_plot(law: PowerLaw) -> dict[str, Any]:
    """Return the values of a law by size, its fitted line, and its knee if it has one."""
    sizes, values = np.array(law.sizes), np.array(law.values)
    line = np.geomspace(sizes.min() / 1.2, sizes.max() * 1.2, 60)
    traces: list[dict[str, Any]] = []

    def add(fit: Fit, label: str, colour: str, dash: str) -> None:
        traces.append(
            {
                "x": _list(line), "y": _list(fit.at(line)), "mode": "lines", "name": label,
                "line": {"color": colour, "width": 2.5, "dash": dash},
                "hovertemplate": f"{label}<extra></extra>",
            }
        )  # fmt: skip

    label = f"~ {law.against} ^ {law.exponent:z.2f}"
    if law.knee is None:
        add(law.fit, label, "@faster", "solid")
    else:
        add(law.fit, f"{label}, one law", "@neutral", "dot")
        knee = f"^ {law.knee.before:.2f}, then ^ {law.knee.after:.2f}"
        add(law.knee.fit, knee, "@faster", "solid")
    traces.append(
        {
            "x": _list(sizes), "y": _list(values), "mode": "markers", "name": "runs",
            "marker": {"color": "@text", "size": 8, "line": {"color": "@ground", "width": 1}},
            "text": [value_text(value, law.unit) for value in values], "showlegend": False,
            "hovertemplate": f"%{{x:,}} {law.against}<br><b>%{{text}}</b><extra></extra>",
        }
    )  # fmt: skip
    shapes = []
    if law.knee is not None:
        at = _rounded(law.knee.size)
        shapes.append(_vertical(at, at, line={"color": "@slower", "width": 1.5, "dash": "dot"}))
    low, high = math.log10(float(values.min())), math.log10(float(values.max()))
    middle, half = (low + high) / 2, max((high - low) / 2, 0.25) + 0.15
    ticks = _ticks_of(law.unit, middle - half, middle + half)
    distinct = sorted(set(law.sizes))
    return {
        "traces": traces,
        "layout": {
            "showlegend": True,
            "legend": {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom",
                       "bgcolor": "rgba(0,0,0,0)"},
            "margin": {"l": 56, "r": 12, "t": 30, "b": 44},
            "shapes": shapes,
            "xaxis": {"type": "log", "title": {"text": law.against}, "tickvals": _apart(distinct),
                      "ticktext": [_size_text(size) for size in _apart(distinct)]},
            "yaxis": {"type": "log", "range": [middle - half, middle + half], "tickvals": ticks,
                      "ticktext": [value_text(tick, law.unit, digits=1) for tick in ticks]},
        },
    }  # fmt: skip


def _apart(sizes: Sequence[float]) -> list[float]:
    """Return the sizes whose labels have room: each at least 8 % of the axis after the last."""
    least = (math.log(sizes[-1]) - math.log(sizes[0])) * 0.08
    kept = [sizes[0]]
    for size in sizes[1:]:
        if math.log(size) - math.log(kept[-1]) >= least:
            kept.append(size)
    return kept


def _ticks_of(unit: str, low: float, high: float) -> list[float]:
    """Return ticks of a logarithmic axis: of bytes powers of two, so that labels are round."""
    if unit != "bytes":
        return _log_ticks(low, high)[0]
    powers = range(math.ceil(low / math.log10(2)), math.floor(high / math.log10(2)) + 1)
    return [2.0**power for power in powers[:: max(len(powers) // 6, 1)]]


def _log_ticks(low: float, high: float) -> tuple[list[float], list[str]]:
    """Return ticks in milliseconds between two powers of ten, and their texts."""
    steps = (1, 2, 5) if high - low <= 2.5 else (1,)
    ticks = [
        step * 10.0**power
        for power in range(math.floor(low) - 1, math.ceil(high) + 1)
        for step in steps
    ]
    kept = [tick for tick in ticks if low - 0.1 <= math.log10(tick) <= high + 0.1]
    return kept, [value_text(tick, "ms", digits=1) for tick in kept]


def _size_text(size: float) -> str:
    for scale, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= scale:
            return f"{size / scale:g}{unit}"
    return number_text(size)


def _plain(text: str) -> str:
    """Return a foreign text without the tags and templates that plotly interprets."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped.replace("%{", "% {")


def _list(values: NDArray[np.floating[Any]]) -> list[float]:
    return [_rounded(value) for value in values]


def _rounded(value: float) -> float:
    """Round to six digits: more than a screen shows, and half the bytes."""
    return float(f"{float(value):.6g}")
