"""A comparison of a candidate with its baseline as an HTML page: a plot of the ratios, a table.

The document, its table and its scripts are those of ``page_parts``; texts are those of the other
reports of a comparison (`report_text`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kraft.regression import page_parts, report_text
from kraft.regression.findings import Comparison
from kraft.regression.page_parts import (
    ALONE,
    PageSite,
    cell,
    escaped,
    figure,
    left_out,
    site_line,
    table,
)

#: Benchmarks that are drawn, those that differ most; the table has all, up to `MOST_ROWS`.
MOST_DRAWN = 60
MOST_ROWS = 5000
_ROW_PX = 22

#: Of the form above a page that is served live.
FORM_STYLE = """
form.tools input, form.tools button { font: inherit; color: inherit; background: var(--ground);
  border: 1px solid var(--line); border-radius: .3rem; padding: .3rem .6rem; }
form.tools button { cursor: pointer; }
"""
_STYLE = """
.ratios .plot { height: HEIGHTpx; }
"""


def page(
    comparisons: Sequence[Comparison],
    threshold: float,
    *,
    title: str = "Comparison",
    site: PageSite = ALONE,
    above: str = "",
) -> str:
    """Return the whole file as text; write it as UTF-8. About 2 MB of it are plotly.js.

    ``threshold`` is the allowed change: 0.05 is 5 %. ``site`` is the page's place; ``above`` is
    markup below its title. Raises MissingPackageError without plotly.
    """
    ordered = report_text.worst_first(comparisons)
    names = report_text.Names(each.key for each in comparisons)
    drawn = _drawn(ordered)
    data: dict[str, object] = {}
    plot = ""
    if drawn:
        data["ratios"] = _ratios(drawn, names, threshold)
        omitted = len(ordered) - len(drawn)
        plot = (
            '<section class="ratios">\n<h2>Ratios</h2>\n<p class="quiet">How much worse the '
            "candidate is, with its interval; right of the line is worse. The dotted lines are the "
            f"threshold, {threshold * 100:.3g} %.</p>\n"
            f"{figure('figure', 'ratios', '', 'Ratio of each benchmark')}\n"
            f"{left_out(omitted, 'benchmarks with smaller differences or without an interval')}"
            "</section>"
        )
    head = [("benchmark", False), ("result", False), ("change", True), ("base", True)]
    head += [("candidate", True), ("runs", True), ("p", True), ("q", True), ("note", False)]
    rows = "\n".join(_row(each, names) for each in ordered[:MOST_ROWS])
    search = '<input type="search" placeholder="Filter by name" aria-label="Filter by name">'
    body = (
        f"{site_line(site)}"
        f'<header>\n<h1>{escaped(title)}</h1>\n<p class="quiet">'
        f"{escaped(report_text.comparison_summary(comparisons))}</p>\n</header>\n"
        f"{above}{plot}\n"
        f'<h2>Benchmarks</h2>\n<div class="tools">{search}</div>\n{table(head, rows)}\n'
        f"{left_out(len(ordered) - MOST_ROWS, 'benchmarks')}"
    )
    style = _STYLE.replace("HEIGHT", str(90 + _ROW_PX * len(drawn)))
    style += FORM_STYLE if above else ""
    return page_parts.document(title, body, data, style=style, site=site)


def _drawn(ordered: Sequence[Comparison]) -> list[Comparison]:
    """Return the comparisons that differ most, worst first."""
    usable = [each for each in ordered if each.ratio is not None and _is_drawable(each)]
    largest = sorted(usable, key=lambda each: -abs(math.log(_worsening(each))))[:MOST_DRAWN]
    return report_text.worst_first(largest)


def _is_drawable(each: Comparison) -> bool:
    assert each.ratio is not None
    return all(0 < end < math.inf for end in (each.ratio.value, each.ratio.low, each.ratio.high))


def _worsening(each: Comparison) -> float:
    return each.metric.worsening(report_text.comparison_ratio(each))


def _kind(each: Comparison) -> str:
    if each.is_regression:
        return "slower"
    return "faster" if each.is_improvement else "neutral"


def _result(each: Comparison) -> str:
    if each.is_regression:
        return "regression"
    if each.is_improvement:
        return "improvement"
    return "undecided" if each.ratio is None else "no change"


def _ratios(
    drawn: Sequence[Comparison], names: report_text.Names, threshold: float
) -> dict[str, Any]:
    """Return a plot with a line for each benchmark, the worst at the top, in percent."""
    traces = []
    for kind in ("slower", "faster", "neutral"):
        places = [place for place, each in enumerate(drawn) if _kind(each) == kind]
        values, above, below, labels = [], [], [], []
        for place in places:
            each = drawn[place]
            assert each.ratio is not None
            value = _worsening(each)
            ends = [each.metric.worsening(end) for end in (each.ratio.low, each.ratio.high)]
            values.append(_percent(value))
            above.append(max(_percent(max(ends)) - _percent(value), 0.0))
            below.append(max(_percent(value) - _percent(min(ends)), 0.0))
            labels.append(f"{_label(each, names)}: {report_text.ratio_text(each.ratio)}")
        if places:
            traces.append(
                {
                    "x": values,
                    "y": places,
                    "mode": "markers",
                    "text": [escaped(label) for label in labels],
                    "hovertemplate": "%{text}<extra></extra>",
                    "marker": {"color": f"@{kind}", "size": 9},
                    "error_x": {
                        "type": "data",
                        "symmetric": False,
                        "array": above,
                        "arrayminus": below,
                        "color": f"@{kind}/0.6",
                        "thickness": 1.5,
                        "width": 0,
                    },
                }
            )
    bounds = [_percent(1.0), _percent(1 + threshold), _percent(1 / (1 + threshold))]
    lines = [
        {
            "type": "line",
            "yref": "paper",
            "x0": at,
            "x1": at,
            "y0": 0,
            "y1": 1,
            "layer": "below",
            "line": {"color": "@neutral", "width": 1.5, "dash": "solid" if place == 0 else "dot"},
        }
        for place, at in enumerate(bounds)
    ]
    return {
        "traces": traces,
        "layout": {
            "shapes": lines,
            "xaxis": {"title": {"text": "worse by, %"}},
            "yaxis": {
                "tickvals": list(range(len(drawn))),
                "ticktext": [escaped(_label(each, names)) for each in drawn],
                "range": [len(drawn) - 0.5, -0.5],
                "showgrid": False,
            },
        },
    }


def _percent(ratio: float) -> float:
    return float(f"{(ratio - 1) * 100:.5g}")


def _label(each: Comparison, names: report_text.Names) -> str:
    """Return a benchmark's name, short enough to stand beside a plot."""
    name = names(each.key)
    return name if len(name) <= 60 else f"{name[:30]}…{name[-29:]}"


def _row(each: Comparison, names: report_text.Names) -> str:
    base, candidate = report_text.pair_text(each.base, each.candidate, each.statistic, each.metric)
    name = names(each.key)
    shown = escaped(name)
    if len(names.machines) > 1:
        shown += f'<br><span class="quiet">{escaped(each.key.machine)}</span>'
    ratio = report_text.comparison_ratio(each)
    change = report_text.change_text(ratio)
    interval = "" if each.ratio is None else report_text.interval_text(each.ratio)
    result = _result(each)
    cells = [
        cell(shown, key=name, style="name"),
        cell(f'<span class="{_kind(each)}">{result}</span>', key=result),
        cell(f'<strong>{change}</strong> <span class="quiet">{interval}</span>', key=ratio),
        cell(escaped(base), key=each.base),
        cell(escaped(candidate), key=each.candidate),
        cell(f"{each.runs_base:,} : {each.runs_candidate:,}", key=each.runs_candidate),
        cell(escaped(report_text.p_text(each.p_value)), key=_number(each.p_value)),
        cell(escaped(report_text.p_text(each.q_value)), key=_number(each.q_value)),
        cell(escaped(each.note) or "-", key=each.note, style="said"),
    ]
    return f"<tr data-name>{''.join(cells)}</tr>"


def _number(value: float | None) -> float:
    return 2.0 if value is None else value
