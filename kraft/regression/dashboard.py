"""The dashboard of a store as an HTML page: all projects, and their new regressions.

A function of `project_summary.ProjectSummary` values; it draws the small plots as SVG, so that the
page needs no plotly.js. `project_pages` writes it to a folder, `page_server` shows it live.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from kraft.regression import report_text
from kraft.regression.page_parts import (
    PageSite,
    cell,
    comparisons_of,
    document,
    escaped,
    left_out,
    site_line,
    table,
)
from kraft.regression.project_summary import OpenRegression, ProjectSummary

#: Rows of a table.
MOST_ROWS = 5000
_PLOT_WIDTH = 160
_PLOT_HEIGHT = 36
#: The smallest range of a small plot: 2 %, so that a change of one in a thousand stays flat.
_LEAST_RANGE = 0.02

_STYLE = """
div.level { display: flex; align-items: center; gap: .75rem; }
.level svg { width: 7.5rem; height: 2.25rem; overflow: visible; }
.level path { fill: none; stroke: var(--neutral); stroke-width: 1.5; }
.level .slower { fill: var(--slower); }
.level .faster { fill: var(--faster); }
.new { color: var(--slower); font-weight: 600; }
"""


def page(
    projects: Sequence[ProjectSummary], *, title: str, facts: str, site: PageSite, message: str = ""
) -> str:
    """Return the dashboard as a page.

    ``facts`` is the line below the title; ``message`` says what the server of a live page does, for
    readers without scripts.
    """
    ordered = sorted(projects, key=lambda each: (-each.new, each.name))
    body = "\n".join(
        [
            site_line(site, message),
            _heading(ordered, title, facts),
            _projects(ordered, is_live=bool(site.name)),
            _alarms(ordered),
        ]
    )
    return document(title, body, {}, style=_STYLE, site=site)


def _heading(projects: Sequence[ProjectSummary], title: str, facts: str) -> str:
    new = sum(each.new for each in projects)
    cards = [
        ("projects", len(projects), ""),
        ("series", sum(each.series for each in projects), ""),
        ("runs", sum(each.runs for each in projects), ""),
        ("new regressions", new, "slower" if new else ""),
        ("watched", sum(each.watched for each in projects), ""),
        ("accepted", sum(each.accepted + each.expected for each in projects), ""),
        ("improvements", sum(each.improvements for each in projects), ""),
    ]
    shown = "".join(
        f'<div><dt>{label}</dt><dd class="{style}">{number:,}</dd></div>'
        for label, number, style in cards
    )
    return (
        f'<header>\n<h1>{escaped(title)}</h1>\n<p class="quiet">{escaped(facts)}</p>\n'
        f'<dl class="cards">{shown}</dl>\n</header>'
    )


def _projects(projects: Sequence[ProjectSummary], *, is_live: bool) -> str:
    if not projects:
        return (
            "<h2>Projects</h2>\n<p>The store has no runs yet. Add results with <code>kraft bench "
            "ingest FILES --store STORE</code>; this page shows them then.</p>"
        )
    head = [("project", False), ("level", False), ("last run", False), ("new", True)]
    head += [("watched", True), ("accepted", True), ("improved", True), ("series", True)]
    head += [("runs", True)]
    rows = "\n".join(_row(each, is_live=is_live) for each in projects[:MOST_ROWS])
    return (
        '<h2>Projects</h2>\n<p class="quiet">New regressions are those that nobody accepted, '
        "expected or watches. The level is the geometric mean of all benchmarks of a project, "
        "relative to its first run: up is worse.</p>\n"
        '<div class="tools"><input type="search" placeholder="Filter by name" '
        f'aria-label="Filter by name"></div>\n{table(head, rows)}\n'
        f"{left_out(len(projects) - MOST_ROWS, 'projects')}"
    )


def _row(project: ProjectSummary, *, is_live: bool) -> str:
    name = escaped(project.name)
    facts = ""
    if project.error:
        facts = f'<br><span class="slower">{escaped(project.error)}</span>'
    elif not project.is_analysed:
        facts = '<br><span class="quiet">the analysis runs</span>'
    elif project.missed:
        expected = report_text.counted(project.missed, "expected change")
        facts = f'<br><span class="quiet">{expected} did not come</span>'
    commit = report_text.commit_text(project.last_commit)
    last = report_text.time_text(project.last_run_us)
    compare = f' <a href="{comparisons_of(project.page)}">compare</a>' if is_live else ""
    cells = [
        cell(f'<a href="{project.page}.html">{name}</a>{facts}', key=project.name, style="name"),
        cell(_level_plot(project), key=str(project.level), style="level"),
        cell(
            f'{last}<br><span class="commits quiet">{escaped(commit)}</span>{compare}',
            key=str(project.last_run_us).zfill(20),
        ),
    ]
    counts = [project.new, project.watched, project.accepted + project.expected]
    counts += [project.improvements, project.series]
    for place, count in enumerate(counts):
        shown = f"{count:,}" if project.is_analysed else "-"
        is_alarm = place == 0 and count > 0
        cells.append(cell(f'<span class="new">{shown}</span>' if is_alarm else shown, key=count))
    cells.append(cell(f"{project.runs:,}", key=project.runs))
    return f'<tr data-name="{name}">{"".join(cells)}</tr>'


def _level_plot(project: ProjectSummary) -> str:
    """Return a project's level now, and over time as a step line; a dot is a change."""
    steps = project.steps
    if not steps:
        return "-"
    first, last = steps[0].time_us, steps[-1].time_us
    low, high = min(each.level for each in steps), max(each.level for each in steps)
    middle = (low + high) / 2
    range_ = max(high - low, _LEAST_RANGE)

    def x(time_us: int) -> float:
        return (time_us - first) / max(last - first, 1) * _PLOT_WIDTH

    def y(level: float) -> float:
        return _PLOT_HEIGHT / 2 - (level - middle) / range_ * (_PLOT_HEIGHT - 8)

    path = [f"M0 {y(steps[0].level):.1f}"]
    dots = []
    for before, after in pairwise(steps):
        path.append(f"H{x(after.time_us):.1f}V{y(after.level):.1f}")
        if after.level != before.level:
            kind = "slower" if after.level > before.level else "faster"
            dots.append(
                f'<circle class="{kind}" cx="{x(after.time_us):.1f}" cy="{y(after.level):.1f}" '
                'r="2.2"/>'
            )
    change = report_text.change_text(project.level)
    label = escaped(f"Level of {project.name} since {report_text.date_text(first)}: {change}")
    return (
        f'<div class="level"><svg viewBox="0 0 {_PLOT_WIDTH} {_PLOT_HEIGHT}" '
        f'preserveAspectRatio="none" role="img" aria-label="{label}">'
        f'<path d="{"".join(path)}"/>{"".join(dots)}</svg><span>{change}</span></div>'
    )


def _alarms(projects: Sequence[ProjectSummary]) -> str:
    found = [(project, each) for project in projects for each in project.alarms]
    if not found:
        return ""
    found.sort(key=lambda pair: -pair[1].worsening)
    head = [("benchmark", False), ("project", False), ("change", True), ("since", False)]
    head += [("commits", False), ("verdict", False)]
    rows = "\n".join(_alarm_row(project, each) for project, each in found[:MOST_ROWS])
    omitted = sum(each.new for each in projects) - min(len(found), MOST_ROWS)
    return (
        f"<h2>New regressions</h2>\n{table(head, rows)}\n"
        f"{left_out(omitted, 'regressions, which the pages of their projects list,')}"
    )


def _alarm_row(project: ProjectSummary, alarm: OpenRegression) -> str:
    name = escaped(alarm.benchmark)
    section = f"#{alarm.section}" if alarm.section else ""
    cells = [
        cell(
            f'<a href="{project.page}.html{section}">{name}</a>', key=alarm.benchmark, style="name"
        ),
        cell(escaped(project.name), key=project.name),
        cell(f'<strong class="slower">{escaped(alarm.change)}</strong>', key=alarm.worsening),
        cell(report_text.date_text(alarm.time_us), key=str(alarm.time_us).zfill(20)),
        cell(f'<span class="commits">{escaped(alarm.commits)}</span>', key=alarm.commits),
        cell(escaped(alarm.verdict or "-"), key=alarm.verdict, style="said"),
    ]
    return f'<tr data-name="{escaped(project.name)} {name}">{"".join(cells)}</tr>'
