"""Findings as tables for a terminal, or as aligned columns for a pipe.

The order is summary, regressions, improvements, drifts, changes of variance, scaling laws,
problems; within a table the worst comes first. `report_text` provides the texts. A terminal that is
too narrow for a table gets records of a few lines; in a pipe each row is one line, never cut or
wrapped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kraft.regression import report_text, verdict_text
from kraft.regression.findings import (
    Analysis,
    ChangeKind,
    ChangePoint,
    Comparison,
    ScalingLaw,
    SeriesOutcome,
    is_alarm,
)

if TYPE_CHECKING:
    from rich.console import Console

    from kraft.regression.points import SeriesKey

# Colour-blind readers cannot distinguish red and green: sign and heading repeat the colour's
# meaning.
_STYLES = {ChangeKind.REGRESSION: "bold red", ChangeKind.IMPROVEMENT: "cyan"}
_NUMBERS = frozenset(
    {"runs", "old", "new", "base", "candidate", "change %", "interval", "p", "q"}
    | {"least", "most", "exponent", "10x the size", "per run", "noise before", "noise after"}
    | {"runs since"}
)
#: Series that are listed individually; the others are counted.
_MOST_LINES = 10
#: Wider than any row: measures the unconstrained width of a table.
_NO_EDGE = 100_000


def show(analysis: Analysis, console: Console) -> None:
    """Print all results of an analysis."""
    names = report_text.Names.of(analysis)
    _print_line(console, report_text.summary(analysis), "bold")
    points = analysis.change_points
    regressions = [point for point in points if point.kind is ChangeKind.REGRESSION]
    improvements = [point for point in points if point.kind is ChangeKind.IMPROVEMENT][::-1]
    alarms = [point for point in regressions if is_alarm(point)]
    quiet = [point for point in regressions if not is_alarm(point)]
    _change_points(console, "Regressions, worst first", alarms, names)
    _change_points(console, "Regressions covered by verdicts", quiet, names)
    _change_points(console, "Improvements, largest first", improvements, names)
    _trends(
        console,
        "Slow drifts, worst first",
        *verdict_text.drift_table(analysis.drifts),
        names,
    )
    _trends(
        console,
        "Changes of variance, noisier ones first",
        report_text.VARIANCE_COLUMNS,
        [(each.key, report_text.variance_cells(each)) for each in analysis.variance_changes],
        names,
    )
    _scaling_laws(console, analysis.scaling, names)
    for title, expected in (
        ("Expected changes that did not come", verdict_text.missed(analysis)),
        ("Expected changes", verdict_text.awaited(analysis)),
    ):
        cells = [(each.key, verdict_text.expectation_cells(each)) for each in expected]
        _trends(console, title, verdict_text.EXPECTATION_COLUMNS, cells, names)
    _ends(console, analysis, names)
    _too_little_data(console, analysis, names)
    _problems(console, analysis.problems)


def show_comparison(comparisons: Sequence[Comparison], console: Console) -> None:
    """Print a comparison: regressions, improvements, then the rest."""
    names = report_text.Names(each.key for each in comparisons)
    regressions = [each for each in comparisons if each.is_regression]
    improvements = [each for each in comparisons if each.is_improvement]
    rest = [each for each in comparisons if not (each.is_regression or each.is_improvement)]
    _print_line(console, report_text.comparison_summary(comparisons), "bold")
    _comparisons(console, "Regressions, worst first", regressions, names, ChangeKind.REGRESSION)
    _comparisons(
        console, "Improvements, largest first", improvements, names, ChangeKind.IMPROVEMENT
    )
    _comparisons(console, "No change beyond threshold and noise", rest, names, None)


def _change_points(
    console: Console, title: str, points: Sequence[ChangePoint], names: report_text.Names
) -> None:
    if not points:
        return
    several = len(names.machines) > 1
    columns = ["benchmark", *(["machine"] if several else [])]
    columns += ["since", "commits", "old", "new", "change %", "interval", "p", "q"]
    judged = verdict_text.has_verdict(points)
    columns += ["verdict"] if judged else []
    rows = []
    for point in points:
        old, new = report_text.pair_text(
            point.mean_before, point.mean_after, point.statistic, point.metric
        )
        rows.append(
            [
                names(point.key),
                *([report_text.machine_text(point.key.machine)] if several else []),
                report_text.date_text(point.time_us),
                report_text.commits_text(point),
                old,
                new,
                report_text.change_text(point.ratio.value),
                report_text.interval_text(point.ratio),
                report_text.p_text(point.p_value),
                report_text.p_text(point.q_value),
                *([verdict_text.applied_text(point.verdict)] if judged else []),
            ]
        )
    style = _STYLES[points[0].kind]
    _table(console, title, columns, rows, style)


def _trends(
    console: Console,
    title: str,
    columns: Sequence[str],
    found: Sequence[tuple[SeriesKey, list[str]]],
    names: report_text.Names,
) -> None:
    if not found:
        return
    several = len(names.machines) > 1
    rows = [
        [names(key), *([report_text.machine_text(key.machine)] if several else []), *cells]
        for key, cells in found
    ]
    _table(console, title, ["benchmark", *(["machine"] if several else []), *columns], rows, "")


def _comparisons(
    console: Console,
    title: str,
    comparisons: Sequence[Comparison],
    names: report_text.Names,
    kind: ChangeKind | None,
) -> None:
    if not comparisons:
        return
    several = len(names.machines) > 1
    noted = any(each.note for each in comparisons)
    columns = ["benchmark", *(["machine"] if several else []), "runs"]
    columns += ["base", "candidate", "change %", "interval", "p", "q"]
    columns += ["note"] if noted else []
    rows = []
    for each in report_text.worst_first(comparisons, reverse=kind is ChangeKind.IMPROVEMENT):
        base, candidate = report_text.pair_text(
            each.base, each.candidate, each.statistic, each.metric
        )
        rows.append(
            [
                names(each.key),
                *([report_text.machine_text(each.key.machine)] if several else []),
                f"{each.runs_base}, {each.runs_candidate}",
                base,
                candidate,
                report_text.change_text(report_text.comparison_ratio(each)),
                report_text.interval_text(each.ratio) if each.ratio else "",
                report_text.p_text(each.p_value),
                report_text.p_text(each.q_value),
                *([report_text.printable(each.note)] if noted else []),
            ]
        )
    _table(console, title, columns, rows, _STYLES[kind] if kind else "")


def _scaling_laws(console: Console, laws: Sequence[ScalingLaw], names: report_text.Names) -> None:
    if not laws:
        return
    several = len(names.machines) > 1
    columns = ["benchmark", *(["machine"] if several else [])]
    columns += ["size", "least", "most", "exponent", "interval", "10x the size", "changed"]
    rows = []
    for law in report_text.changed_first(laws):
        rows.append(
            [
                names(law.key),
                *([report_text.machine_text(law.key.machine)] if several else []),
                report_text.printable(law.size_param),
                f"{min(law.sizes):,.0f}",
                f"{max(law.sizes):,.0f}",
                f"{law.exponent:z.2f}",
                f"[{law.low:z.2f}, {law.high:z.2f}]",
                report_text.growth_text(law.exponent),
                "; ".join(map(verdict_text.exponent_change_text, law.change_points)) or "-",
            ]
        )
    _table(console, "Scaling laws: time ~ size ^ exponent", columns, rows, "")


def _ends(console: Console, analysis: Analysis, names: report_text.Names) -> None:
    """Print the series that newer, or older, runs of their suites do not contain."""
    series = analysis.series
    for title, found, text_of in (
        ("Ended", [each for each in series if each.ended], report_text.end_text),
        ("Began", [each for each in series if each.began], report_text.begin_text),
    ):
        if not found:
            continue
        console.print()
        _print_line(
            console, f"{title}: {report_text.counted(len(found), 'series', 'series')}", "bold"
        )
        for each in found[:_MOST_LINES]:
            _print_line(console, f"  {names(each.key)}: {text_of(each)}", "")
        if len(found) > _MOST_LINES:
            _print_line(console, f"  and {len(found) - _MOST_LINES:,} more", "dim")


def _too_little_data(console: Console, analysis: Analysis, names: report_text.Names) -> None:
    """Print the series with too little data: the first `_MOST_LINES`, then a count."""
    too_short = [each for each in analysis.series if each.outcome is SeriesOutcome.TOO_LITTLE_DATA]
    if not too_short:
        return
    console.print()
    few = f"fewer than {analysis.settings.min_runs} runs"
    _print_line(
        console,
        f"Too little data, {few}: {report_text.counted(len(too_short), 'series', 'series')}",
        "",
    )
    for each in too_short[:_MOST_LINES]:
        _print_line(
            console, f"  {names(each.key)}: {report_text.counted(each.run_count, 'run')}", "dim"
        )
    if len(too_short) > _MOST_LINES:
        _print_line(console, f"  and {len(too_short) - _MOST_LINES:,} more", "dim")


def _problems(console: Console, problems: Sequence[str]) -> None:
    if not problems:
        return
    console.print()
    _print_line(console, f"{report_text.counted(len(problems), 'problem')}:", "yellow")
    for problem in problems:
        _print_line(console, f"  {report_text.printable(problem)}", "")


def _print_line(console: Console, text: str, style: str) -> None:
    console.print(Text(text, style=style), soft_wrap=not console.is_terminal)


def _table(
    console: Console,
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    style: str,
) -> None:
    console.print()
    _print_line(console, title, style or "bold")
    if not console.is_terminal:
        _columns(console, columns, rows)
        return
    table = Table(box=box.SIMPLE_HEAD, header_style="bold")
    for column in columns:
        table.add_column(
            column,
            justify="right" if column in _NUMBERS else "left",
            no_wrap=True,
            style=style if column == "change %" else None,
        )
    for row in rows:
        table.add_row(*map(Text, row))
    if Measurement.get(console, console.options.update(width=_NO_EDGE), table).maximum <= (
        console.width
    ):
        console.print(table)
    else:
        _records(console, columns, rows, style)


def _columns(console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print one line per row, for a pipe."""
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    for row in [columns, *rows]:
        cells = [
            f"{cell:>{width}}" if column in _NUMBERS else f"{cell:<{width}}"
            for cell, width, column in zip(row, widths, columns, strict=True)
        ]
        _print_line(console, f"  {'  '.join(cells)}".rstrip(), "")


def _records(
    console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]], style: str
) -> None:
    """Print the name on one line and the other cells below it, for a narrow terminal."""
    for name, *cells in rows:
        given = {column: cell for column, cell in zip(columns[1:], cells, strict=True) if cell}
        main = next(
            each for each in ("change %", "exponent", "noise after", "expected") if each in given
        )
        change = f"{given.pop(main)} {given.pop('interval', '')}".strip()
        parts = [f"{column} {cell}" for column, cell in given.items()]
        below = Text.assemble((change, style), "  ", "  ".join(parts))
        console.print(Text(name, overflow="fold"))
        console.print(Padding(below, (0, 0, 0, 4)))
