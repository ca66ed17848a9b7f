"""The HTML page of a comparison: a log-log plot of each measure, its exponents, and all values.

One file that needs no network; document and scripts are those of `kraft.regression.page_parts`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kraft.fleet.scaling import FEWEST_SIZES
from kraft.fleet.texts import number_text, value_text
from kraft.generations.comparison import ComparisonReport
from kraft.generations.curves import Curve
from kraft.generations.measures import MEASURES, Outcome, RunResult, ScriptStep
from kraft.generations.modes import MODES
from kraft.regression.page_parts import cell, document, escaped, fields, figure, table

#: A colour and a marker for each mode, also for readers who see no colours; the marker as text.
_STYLES = (
    ("#0b6bcb", "circle", "●"),
    ("#c2410c", "square", "■"),
    ("#15803d", "diamond", "◆"),
    ("#a21caf", "triangle-up", "▲"),
    ("#b45309", "cross", "✚"),
    ("#0e7490", "triangle-down", "▼"),
    ("#be123c", "star", "★"),
    ("#6b7684", "hexagon", "⬢"),
)


def page(report: ComparisonReport) -> str:
    """Return the report as one HTML file. Raises MissingPackageError without plotly."""
    data: dict[str, object] = {}
    request = report.request
    body = "\n".join(
        [
            "<header>\n<h1>Three generations of Kafka's controller</h1>\n"
            f'<p class="quiet">{request.brokers} brokers, replication factor '
            f"{request.replication_factor}, {request.partitions_per_topic:,} partitions a topic, "
            f"ZooKeeper's session timeout {request.session_timeout_ms:,} ms. One run of each mode "
            "and size, all on one machine.</p>\n</header>",
            _plots(report.curves, data),
            _exponents(report.curves),
            _values(report.runs),
            _incomplete(report.runs),
            "<h2>What is measured</h2>\n"
            + fields(
                [(f"{step.value} {name}".replace("_", " "), f"seconds {text}")
                 for (step, name), text in MEASURES.items()]
            ),
            "<h2>Machine</h2>\n"
            + fields([(str(name), str(value)) for name, value in report.machine.items()]),
        ]
    )  # fmt: skip
    return document("Three generations of Kafka's controller", body, data)


def measure_plot(curves: Sequence[Curve]) -> dict[str, Any]:
    """Return the log-log plot of one measure, a line for each mode, as values for ``page.js``.

    A dashed line and hollow markers are extrapolated.
    """
    traces: list[dict[str, Any]] = []
    for curve in curves:
        colour, symbol, _ = _style_of(curve.mode)
        sizes = [size for size, value in zip(curve.sizes, curve.seconds, strict=True) if value > 0]
        values = [value for value in curve.seconds if value > 0]
        if not values:
            continue
        traces.append(
            {
                "x": sizes, "y": values, "mode": "lines+markers",
                "line": {"color": colour, "width": 2},
                "marker": {"color": colour, "symbol": symbol, "size": 9},
                "hovertemplate": f"{curve.mode}: %{{x:,}} partitions, %{{y:.3g}} s<extra></extra>",
            }
        )  # fmt: skip
        if curve.beyond:
            traces.append(
                {
                    "x": [sizes[-1], *(size for size, _ in curve.beyond)],
                    "y": [values[-1], *(value for _, value in curve.beyond)],
                    "mode": "lines+markers",
                    "line": {"color": colour, "width": 1.5, "dash": "dash"},
                    "marker": {"color": colour, "symbol": f"{symbol}-open", "size": 9},
                    "hovertemplate": f"{curve.mode}: %{{x:,}} partitions, extrapolated "
                    "%{y:.3g} s<extra></extra>",
                }
            )  # fmt: skip
    # At least a decade: noise of a flat curve must not look like growth.
    heights = [math.log10(value) for trace in traces for value in trace["y"]] or [0.0]
    middle = (min(heights) + max(heights)) / 2
    half = max((max(heights) - min(heights)) / 2, 0.5) + 0.1
    return {
        "traces": traces,
        "layout": {
            "xaxis": {"type": "log", "title": {"text": "partitions"}, "dtick": 1},
            "yaxis": {"type": "log", "title": {"text": "seconds"},
                      "range": [middle - half, middle + half]},
        },
    }  # fmt: skip


def _plots(curves: Sequence[Curve], data: dict[str, object]) -> str:
    sections = []
    for step, measure in MEASURES:
        own = [curve for curve in curves if (curve.step, curve.measure) == (step, measure)]
        if not own:
            continue
        name = f"{step.value}-{measure}"
        data[name] = measure_plot(own)
        title = escaped(own[0].title)
        sections.append(
            f'<section class="series" id="{name}"><header><h3 class="name">{title}</h3>'
            f'<p class="quiet">Seconds {escaped(MEASURES[step, measure])}.</p></header>'
            f"{figure('figure', name, '', f'Plot of {title}')}{_key(own)}</section>"
        )
    if not sections:
        return "<p>No run has a measure.</p>"
    return (
        '<h2>Plots</h2>\n<p class="quiet">Both axes are logarithmic: a line that rises by one '
        "decade a decade is proportional to the partitions. Dashed lines and hollow markers are "
        "extrapolated from the last three sizes, not measured. Below each plot stand the modes "
        "with their exponents, of all sizes and of the last three.</p>\n"
        f'<div class="laws">{"".join(sections)}</div>'
    )


def _key(curves: Sequence[Curve]) -> str:
    """Return the list of a plot's lines. As a legend of plotly, eight modes take half the plot."""
    items = []
    for curve in curves:
        colour, _, marker = _style_of(curve.mode)
        exponents = [] if curve.law is None else [f"{curve.law.exponent:z.2f}"]
        if curve.tail is not None and len(curve.sizes) > FEWEST_SIZES:
            exponents.append(f"{curve.tail:.2f}")
        items.append(
            f'<li><span style="color:{colour}">{marker}</span> {escaped(curve.mode)} '
            f'<span class="quiet">{" · ".join(exponents)}</span></li>'
        )
    return f'<ul class="key">{"".join(items)}</ul>'


def _style_of(mode: str) -> tuple[str, str, str]:
    return _STYLES[list(MODES).index(mode) % len(_STYLES)]


def exponent_text(curve: Curve) -> str:
    """Return ``0.98 [0.90, 1.06]``; ``-`` where there are too few sizes."""
    law = curve.law
    return "-" if law is None else f"{law.exponent:z.2f} [{law.low:z.2f}, {law.high:z.2f}]"


def tail_text(curve: Curve) -> str:
    """Return the exponent of the last three sizes; ``-`` where there are fewer."""
    return "-" if curve.tail is None else f"{curve.tail:.2f}"


def _exponents(curves: Sequence[Curve]) -> str:
    rows = "\n".join(
        "<tr>"
        + cell(escaped(curve.title), key=curve.title)
        + cell(escaped(curve.mode), key=curve.mode)
        + cell(exponent_text(curve), key=curve.law.exponent if curve.law else -9.0)
        + cell(tail_text(curve), key=-9.0 if curve.tail is None else curve.tail)
        + cell(str(len(curve.sizes)), key=len(curve.sizes))
        + cell(
            ", ".join(
                f"{number_text(size)}: {value_text(value, 's')}" for size, value in curve.beyond
            )
            or "-",
            key=len(curve.beyond),
        )
        + "</tr>"
        for curve in curves
    )
    head = [("measure", False), ("mode", False), ("exponent, all sizes [95 %]", True)]
    head += [("exponent, last 3 sizes", True), ("sizes", True), ("extrapolated", True)]
    return f"<h2>Exponents</h2>\n{table(head, rows)}"


def _values(runs: Sequence[RunResult]) -> str:
    head = [("mode", False), ("partitions", True)]
    head += [(f"{step.value} {name}".replace("_", " "), True) for step, name in MEASURES]
    head += [(f"CPU of {step.value}", True) for step in ScriptStep]
    rows = []
    for run in runs:
        if run.outcome is Outcome.SKIPPED:
            continue
        cells = [cell(escaped(run.mode), key=run.mode)]
        cells.append(cell(f"{run.partitions:,}", key=run.partitions))
        seconds = [run.seconds.get(key) for key in MEASURES]
        seconds += [run.cpu_s.get(step) for step in ScriptStep]
        for value in seconds:
            shown = "-" if value is None else value_text(value, "s")
            cells.append(cell(shown, key=-1.0 if value is None else value))
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return (
        '<h2>Values</h2>\n<p class="quiet">CPU is that of the controllers and of ZooKeeper which '
        f"ran through the step.</p>\n{table(head, ''.join(rows))}"
    )


def _incomplete(runs: Sequence[RunResult]) -> str:
    found = [run for run in runs if run.outcome is not Outcome.MEASURED]
    if not found:
        return ""
    items = "".join(
        f"<li>{escaped(run.mode)}, {run.partitions:,} partitions: {run.outcome.value}: "
        f"{escaped(run.reason)}</li>"
        for run in found
    )
    return f"<h2>Runs without all measures</h2>\n<ul>{items}</ul>"
