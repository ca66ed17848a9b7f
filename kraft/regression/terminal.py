"""Findings as tables for a terminal, or as plain aligned columns for a pipe.

Owns what is shown in which order: the summary, regressions, improvements, scaling laws, problems;
in a table the worst first. The words are those of `wording`. A terminal too narrow for
a table gets records of a few lines; into a pipe each row is one line, never cut or wrapped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kraft.regression import wording
from kraft.regression.findings import (
    Analysis,
    ChangePoint,
    Comparison,
    Kind,
    Outcome,
    ScalingLaw,
)

if TYPE_CHECKING:
    from rich.console import Console

    from kraft.regression.points import SeriesKey

# Red and green are one colour to many: the sign and the heading say the same as the colour.
_STYLES = {Kind.REGRESSION: "bold red", Kind.IMPROVEMENT: "cyan"}
_NUMBERS = frozenset(
    {"runs", "old", "new", "base", "candidate", "change %", "interval", "p", "q"}
    | {"least", "most", "exponent", "10x the size", "a run", "noise before", "noise after"}
)
#: Series that are listed in a line each; the others are counted.
_MOST_LINES = 10
#: Wider than any row: what a table would take if it could.
_NO_EDGE = 100_000


def show(analysis: Analysis, console: Console) -> None:
    """Prints everything that an analysis found."""
    names = wording.Names.of(analysis)
    _say(console, wording.summary(analysis), "bold")
    points = analysis.change_points
    regressions = [point for point in points if point.kind is Kind.REGRESSION]
    improvements = [point for point in points if point.kind is Kind.IMPROVEMENT][::-1]
    _change_points(console, "Regressions, worst first", regressions, names)
    _change_points(console, "Improvements, largest first", improvements, names)
    _trends(
        console,
        "Slow drifts, worst first",
        wording.DRIFT_COLUMNS,
        [(each.key, wording.drift_cells(each)) for each in analysis.drifts],
        names,
    )
    _trends(
        console,
        "Changes of variance, noisier ones first",
        wording.VARIANCE_COLUMNS,
        [(each.key, wording.variance_cells(each)) for each in analysis.variance_changes],
        names,
    )
    _scaling_laws(console, analysis.scaling, names)
    _ended(console, analysis, names)
    _too_little_data(console, analysis, names)
    _problems(console, analysis.problems)


def show_comparison(comparisons: Sequence[Comparison], console: Console) -> None:
    """Prints a candidate beside its baseline: what got worse, what got better, and the rest."""
    names = wording.Names(each.key for each in comparisons)
    regressions = [each for each in comparisons if each.is_regression]
    improvements = [each for each in comparisons if each.is_improvement]
    rest = [each for each in comparisons if not (each.is_regression or each.is_improvement)]
    _say(console, wording.comparison_summary(comparisons), "bold")
    _comparisons(console, "Regressions, worst first", regressions, names, Kind.REGRESSION)
    _comparisons(console, "Improvements, largest first", improvements, names, Kind.IMPROVEMENT)
    _comparisons(console, "No change that counts", rest, names, None)


def _change_points(
    console: Console, title: str, points: Sequence[ChangePoint], names: wording.Names
) -> None:
    if not points:
        return
    several = len(names.machines) > 1
    columns = ["benchmark", *(["machine"] if several else [])]
    columns += ["since", "commits", "old", "new", "change %", "interval", "p", "q"]
    rows = []
    for point in points:
        old, new = wording.pair_text(point.mean_before, point.mean_after, point.statistic)
        rows.append(
            [
                names(point.key),
                *([wording.machine_text(point.key.machine)] if several else []),
                wording.date_text(point.time_us),
                wording.commits_text(point),
                old,
                new,
                wording.change_text(point.ratio.value),
                wording.interval_text(point.ratio),
                wording.p_text(point.p_value),
                wording.p_text(point.q_value),
            ]
        )
    style = _STYLES[points[0].kind]
    _table(console, title, columns, rows, style)


def _trends(
    console: Console,
    title: str,
    columns: Sequence[str],
    found: Sequence[tuple[SeriesKey, list[str]]],
    names: wording.Names,
) -> None:
    if not found:
        return
    several = len(names.machines) > 1
    rows = [
        [names(key), *([wording.machine_text(key.machine)] if several else []), *cells]
        for key, cells in found
    ]
    _table(console, title, ["benchmark", *(["machine"] if several else []), *columns], rows, "")


def _comparisons(
    console: Console,
    title: str,
    comparisons: Sequence[Comparison],
    names: wording.Names,
    kind: Kind | None,
) -> None:
    if not comparisons:
        return
    several = len(names.machines) > 1
    noted = any(each.note for each in comparisons)
    columns = ["benchmark", *(["machine"] if several else []), "runs"]
    columns += ["base", "candidate", "change %", "interval", "p", "q"]
    columns += ["note"] if noted else []
    rows = []
    for each in wording.worst_first(comparisons, reverse=kind is Kind.IMPROVEMENT):
        base, candidate = wording.pair_text(each.base, each.candidate, each.statistic)
        rows.append(
            [
                names(each.key),
                *([wording.machine_text(each.key.machine)] if several else []),
                f"{each.runs_base}, {each.runs_candidate}",
                base,
                candidate,
                wording.change_text(wording.comparison_ratio(each)),
                wording.interval_text(each.ratio) if each.ratio else "",
                wording.p_text(each.p_value),
                wording.p_text(each.q_value),
                *([wording.printable(each.note)] if noted else []),
            ]
        )
    _table(console, title, columns, rows, _STYLES[kind] if kind else "")


def _scaling_laws(console: Console, laws: Sequence[ScalingLaw], names: wording.Names) -> None:
    if not laws:
        return
    several = len(names.machines) > 1
    columns = ["benchmark", *(["machine"] if several else [])]
    columns += ["size", "least", "most", "exponent", "interval", "10x the size", "changed"]
    rows = []
    for law in wording.changed_first(laws):
        rows.append(
            [
                names(law.key),
                *([wording.machine_text(law.key.machine)] if several else []),
                wording.printable(law.size_param),
                f"{min(law.sizes):,.0f}",
                f"{max(law.sizes):,.0f}",
                f"{law.exponent:.2f}",
                f"[{law.low:.2f}, {law.high:.2f}]",
                wording.growth_text(law.exponent),
                "; ".join(map(wording.exponent_change_text, law.change_points)) or "-",
            ]
        )
    _table(console, "Scaling laws: time ~ size ^ exponent", columns, rows, "")


def _ended(console: Console, analysis: Analysis, names: wording.Names) -> None:
    """Those that newer runs of their suites are without, in a line each."""
    ended = [each for each in analysis.series if each.ended]
    if not ended:
        return
    console.print()
    _say(console, f"Ended: {wording.counted(len(ended), 'series', 'series')}", "bold")
    for each in ended[:_MOST_LINES]:
        _say(console, f"  {names(each.key)}: {wording.end_text(each)}", "")
    if len(ended) > _MOST_LINES:
        _say(console, f"  and {len(ended) - _MOST_LINES:,} more", "dim")


def _too_little_data(console: Console, analysis: Analysis, names: wording.Names) -> None:
    """Those of which nothing can be said, in a line each; many of them as a number."""
    silent = [each for each in analysis.series if each.outcome is Outcome.TOO_LITTLE_DATA]
    if not silent:
        return
    console.print()
    few = f"fewer than {analysis.settings.min_runs} runs"
    _say(console, f"Too little data, {few}: {wording.counted(len(silent), 'series', 'series')}", "")
    for each in silent[:_MOST_LINES]:
        _say(console, f"  {names(each.key)}: {wording.counted(each.run_count, 'run')}", "dim")
    if len(silent) > _MOST_LINES:
        _say(console, f"  and {len(silent) - _MOST_LINES:,} more", "dim")


def _problems(console: Console, problems: Sequence[str]) -> None:
    if not problems:
        return
    console.print()
    _say(console, f"{wording.counted(len(problems), 'problem')}:", "yellow")
    for problem in problems:
        _say(console, f"  {wording.printable(problem)}", "")


def _say(console: Console, text: str, style: str) -> None:
    console.print(Text(text, style=style), soft_wrap=not console.is_terminal)


def _table(
    console: Console,
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    style: str,
) -> None:
    console.print()
    _say(console, title, style or "bold")
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
    """For a pipe: a line a row."""
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    for row in [columns, *rows]:
        cells = [
            f"{cell:>{width}}" if column in _NUMBERS else f"{cell:<{width}}"
            for cell, width, column in zip(row, widths, columns, strict=True)
        ]
        _say(console, f"  {'  '.join(cells)}".rstrip(), "")


def _records(
    console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]], style: str
) -> None:
    """For a narrow terminal: the name on a line of its own, everything else below it."""
    for name, *cells in rows:
        given = {column: cell for column, cell in zip(columns[1:], cells, strict=True) if cell}
        main = next(each for each in ("change %", "exponent", "noise after") if each in given)
        change = f"{given.pop(main)} {given.pop('interval', '')}".strip()
        said = [f"{column} {cell}" for column, cell in given.items()]
        below = Text.assemble((change, style), "  ", "  ".join(said))
        console.print(Text(name, overflow="fold"))
        console.print(Padding(below, (0, 0, 0, 4)))
