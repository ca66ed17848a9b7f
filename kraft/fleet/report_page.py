"""The HTML report of a run of the fleet, or of two runs side by side.

One file that contains its plots and needs no network; document, tables and scripts are those of
`kraft.regression.page_parts`. `page` returns it as text. The caller reads the runs and writes the
file.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraft.errors import InvalidRequestError
from kraft.fleet import plots
from kraft.fleet.measures import NEUTRAL, WHOLE_RUN, Row, table_of
from kraft.fleet.texts import ratio_text, value_text
from kraft.fleet.traces import EVENTS, RecordedRun, RunDescription, run_labels
from kraft.regression.page_parts import cell, document, escaped, fields, figure, left_out, table

#: Runs on one page.
MOST_RUNS = 2
#: Problems that are listed.
_MOST_PROBLEMS = 200
#: A ratio between these is drawn without a colour: noise of one run.
_ALIKE = (0.95, 1.05)

_PANEL_PX, _STEPS_PX, _ROW_PX = 132, 150, 30

_STYLE = """
.runs { display: grid; gap: 1rem 1.5rem;
  grid-template-columns: repeat(auto-fit, minmax(min(30rem, 100%), 1fr)); }
.runs > section { min-width: 0; }
.runs h3 { display: flex; align-items: baseline; gap: .5rem; }
.key { width: .8rem; height: .8rem; border-radius: .2rem; align-self: center; flex: none; }
.cards dd { font-size: 1.3rem; white-space: nowrap; }
.cards.pair dd { font-size: 1.05rem; display: grid; gap: .1rem; }
.pair dd span { display: flex; gap: .45rem; }
.key.first { background: var(--faster); }
.key.second { background: var(--slower); }
.steps td, .steps th { padding: .25rem .6rem; }
"""


def page(runs: Sequence[RecordedRun], *, title: str = "") -> str:
    """Return the report of one or two runs as one HTML file.

    Raises InvalidRequestError for another number of runs, MissingPackageError without plotly.
    """
    if not 1 <= len(runs) <= MOST_RUNS:
        raise InvalidRequestError(f"a report has 1 or {MOST_RUNS} runs, not {len(runs)}")
    title = title or _title(runs)
    data: dict[str, object] = {}
    body = "\n".join(
        [
            f"<header>\n<h1>{escaped(title)}</h1>\n"
            f'<p class="quiet">{_subtitle(runs)}</p>\n</header>',
            _warnings(runs),
            _cards(runs),
            _timelines(runs, data),
            _times(runs, data),
            _measures(runs),
            _descriptions(runs),
            _problems(runs),
            _how_to_read(),
        ]
    )
    return document(title, body, data, style=_STYLE)


def _title(runs: Sequence[RecordedRun]) -> str:
    scenarios = list(dict.fromkeys(run.info.scenario for run in runs))
    return f"Fleet: {' and '.join(scenarios)}"


def _subtitle(runs: Sequence[RecordedRun]) -> str:
    return "<br>".join(escaped(run.info.title) for run in runs)


def _warnings(runs: Sequence[RecordedRun]) -> str:
    """Return warnings: a run was interrupted, or two runs did different work."""
    found = [
        (
            f"{name}: the run was interrupted in step",
            ", ".join(run.trace.unfinished_steps),
        )
        for name, run in zip(run_labels(runs), runs, strict=True)
        if run.trace.unfinished_steps
    ]
    differing = _differences(runs)
    if differing:
        found.append(("The runs differ in more than the quorum:", "; ".join(differing)))
    if not found:
        return ""
    shown = "".join(
        f'<li class="slower"><strong>{escaped(what)}</strong><span>{escaped(which)}</span></li>'
        for what, which in found
    )
    return f'<ul class="changes">{shown}</ul>'


def _differences(runs: Sequence[RecordedRun]) -> list[str]:
    """Return in what two runs differ, so that their figures do not compare."""
    if len(runs) < 2:
        return []
    first, second = (run.info for run in runs)
    differing = [
        f"{name.replace('_', ' ')} {getattr(first, name)} and {getattr(second, name)}"
        for name in ("scenario", "brokers", "partitions", "controllers", "seed", "processes")
        if getattr(first, name) != getattr(second, name)
    ]
    if dict(first.machine) != dict(second.machine):
        differing.append("machines")
    return differing


def _cards(runs: Sequence[RecordedRun]) -> str:
    """Return the measures that answer most questions, the runs' values below each other."""
    wanted = [
        ("first_write", "worst", "failover to first write"),
        ("fenced_after", "worst", "slowest fencing"),
        ("decided", "worst", "all leaders decided"),
        ("applied_everywhere", "worst", "applied everywhere"),
        ("applied", "p99", "commit to applied, p99"),
        ("controller_cpu", "mean", "controllers' CPU, mean"),
        ("controller_rss", "worst", "controllers' memory"),
    ]
    rows = {(row.name, row.statistic): row for row in table_of(runs) if row.step == WHOLE_RUN}
    shown = []
    for name, statistic, label in wanted:
        row = rows.get((name, statistic))
        if row is None:
            continue
        values = "".join(
            f"<span>{_key_of(place, len(runs))}{escaped(value_text(value, row.unit))}</span>"
            for place, value in enumerate(row.values)
        )
        shown.append(f"<div><dt>{label}</dt><dd>{values}</dd></div>")
    pair = " pair" if len(runs) > 1 else ""
    return f'<dl class="cards{pair}">{"".join(shown)}</dl>' if shown else ""


def _timelines(runs: Sequence[RecordedRun], data: dict[str, object]) -> str:
    if not any(len(run.trace) for run in runs):
        return "<h2>Timeline</h2>\n<p>The traces have no events.</p>"
    height = _STEPS_PX + _PANEL_PX * plots.panel_count(runs)
    sections = []
    for place, (run, plot) in enumerate(zip(runs, plots.timeline_plots(runs), strict=True)):
        name = f"timeline-{place}"
        data[name] = plot
        drawn = figure("figure", name, "", f"Timeline of {escaped(run.info.title)}")
        drawn = drawn.replace('class="plot"', f'class="plot" style="height:{height}px"')
        sections.append(f"<section>{_heading(runs, place)}{drawn}{_steps(run)}</section>")
    return (
        '<h2>Timeline</h2>\n<p class="quiet">Each band is a step of the scenario, each dotted line '
        "a fault. Drag to zoom, double-click to go back.</p>\n"
        f'<div class="runs">{"".join(sections)}</div>'
    )


def _heading(runs: Sequence[RecordedRun], place: int) -> str:
    return f"<h3>{_key_of(place, len(runs))}{escaped(run_labels(runs)[place])}</h3>"


def _key_of(place: int, count: int) -> str:
    """Return a square in the colour of a run; nothing for a run alone."""
    return f'<i class="key {("first", "second")[place]}"></i>' if count > 1 else ""


def _steps(run: RecordedRun) -> str:
    """Return a folded table of the steps with their numbers, lengths and faults."""
    numbers = plots.step_numbers(run)
    rows = []
    for span in run.trace.spans:
        faults = [
            fault for fault in run.trace.faults
            if fault.step == span.step and span.begin_ms <= fault.at_ms <= span.end_ms
        ]  # fmt: skip
        what = ", ".join(f"{fault.what} at {fault.at_ms / 1000:.1f} s" for fault in faults)
        length = value_text(span.seconds, "s") + ("" if span.is_complete else ", not ended")
        cells = [
            cell(str(numbers[span.step]), key=numbers[span.step]),
            cell(escaped(span.step), key=span.step),
            cell(f"{span.begin_ms / 1000:.1f} s", key=span.begin_ms),
            cell(length, key=span.seconds),
            cell(escaped(what) or "-", key=what),
        ]
        rows.append(f"<tr>{''.join(cells)}</tr>")
    head = [("step", True), ("name", False), ("begins", True), ("length", True), ("faults", False)]
    return (
        f"<details><summary>{len(rows)} steps</summary>"
        f'<div class="steps">{table(head, "".join(rows))}</div></details>'
    )


def _times(runs: Sequence[RecordedRun], data: dict[str, object]) -> str:
    plot = plots.times_plot(runs)
    if not plot:
        return ""
    data["times"] = plot
    drawn = figure("figure", "times", "", "Percentiles of times by step")
    height = 90 + _ROW_PX * plots.times_rows(runs)
    drawn = drawn.replace('class="plot"', f'class="plot" style="height:{height}px"')
    return (
        '<h2>Times by step</h2>\n<p class="quiet">The median, the 99th percentile and the worst '
        f"value of each step. The axis is logarithmic.</p>\n{drawn}"
    )


def _measures(runs: Sequence[RecordedRun]) -> str:
    head = [("step", False), ("measure", False), ("statistic", False)]
    head += [(escaped(name), True) for name in run_labels(runs)]
    if len(runs) == 2:
        head.append(("second / first", True))
    rows = "\n".join(_row(row) for row in table_of(runs))
    search = '<input type="search" placeholder="Filter by step or measure" aria-label="Filter">'
    return f'<h2>Measures</h2>\n<div class="tools">{search}</div>\n{table(head, rows)}'


def _row(row: Row) -> str:
    measure = row.name.replace("_", " ")
    cells = [
        cell(escaped(row.step), key=row.step),
        cell(escaped(measure), key=measure),
        cell(row.statistic, key=row.statistic),
        *(cell(escaped(value_text(value, row.unit)), key=_key(value)) for value in row.values),
    ]
    if len(row.values) == 2:
        ratio, style = row.ratio, ""
        if ratio is not None and row.name not in NEUTRAL and row.name != "step":
            style = "slower" if ratio > _ALIKE[1] else "faster" if ratio < _ALIKE[0] else ""
        cells.append(cell(f'<span class="{style}">{ratio_text(ratio)}</span>', key=_key(ratio)))
    name = escaped(f"{row.step} {measure} {row.statistic}")
    return f'<tr data-name="{name}">{"".join(cells)}</tr>'


def _key(value: float | None) -> float:
    """Return a key that sorts missing values first."""
    return -1.0 if value is None else value


def _descriptions(runs: Sequence[RecordedRun]) -> str:
    blocks = "".join(
        f"<section>{_heading(runs, place)}{fields(_facts(run.info))}</section>"
        for place, run in enumerate(runs)
    )
    return f'<h2>Runs</h2>\n<div class="runs">{blocks}</div>'


def _facts(info: RunDescription) -> list[tuple[str, str]]:
    facts = [
        (name.replace("_", " "), f"{value:,}" if type(value) is int else str(value))
        for name, value in info.as_dict().items()
        if name != "machine"
    ]
    return facts + [(f"machine: {name}", str(value)) for name, value in info.machine.items()]


def _problems(runs: Sequence[RecordedRun]) -> str:
    found = [str(problem) for run in runs for problem in run.problems]
    if not found:
        return ""
    shown = "\n".join(f"<li>{escaped(each)}</li>" for each in found[:_MOST_PROBLEMS])
    return (
        f'<h2>Lines that were not read</h2>\n<ul class="problems">{shown}</ul>\n'
        f"{left_out(len(found) - _MOST_PROBLEMS, 'lines')}"
    )


def _how_to_read() -> str:
    pairs = [
        (name.replace("_", " "), f"{kind.meaning}{f', {kind.unit}' if kind.unit else ''}")
        for name, kind in EVENTS.items()
    ]
    return (
        "<h2>What is measured</h2>\n<details><summary>The events of a trace</summary>"
        f"{fields(pairs)}</details>"
    )
