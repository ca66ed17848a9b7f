"""Findings as one HTML file that contains its plots and needs no network.

This module writes the markup and limits the content for a large analysis: every change in a table,
plots of the series that the analysis kept (changed ones first), tables for the rest. The document,
its tables and its scripts are those of ``page_parts``; every text of a result is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kraft.regression import page_parts, plots, report_text, verdict_text
from kraft.regression.findings import (
    Analysis,
    ChangeKind,
    ChangePoint,
    Drift,
    ScalingLaw,
    SeriesFinding,
    SeriesOutcome,
    VarianceChange,
)
from kraft.regression.page_parts import cell as _cell
from kraft.regression.page_parts import escaped as _text
from kraft.regression.page_parts import fields as _fields
from kraft.regression.page_parts import figure as _figure
from kraft.regression.page_parts import left_out as _left_out
from kraft.regression.page_parts import table as _table
from kraft.regression.points import SeriesKey

#: Limits: series drawn, scaling laws drawn; rows of a table.
MOST_DRAWN = 200
MOST_LAWS = 100
MOST_ROWS = 5000
#: Runs that an analysis keeps for a page at most; some hundred bytes each.
KEPT_RUNS = 200_000


def page(
    analysis: Analysis,
    *,
    title: str = "Benchmarks",
    repository_url: str | None = None,
    site: page_parts.PageSite = page_parts.ALONE,
) -> str:
    """Return the whole file as text; write it as UTF-8. About 2 MB of it are plotly.js.

    ``repository_url`` (``https://github.com/owner/name``) makes the commits links. ``site`` is the
    page's place among others.

    Raises:
        InvalidConfigError: ``repository_url`` is not a repository URL.
        MissingPackageError: plotly is not installed (``pip install 'kraft[report]'``).
    """
    return _Page(analysis, title, repository_url, site).text()


def sections_of(analysis: Analysis) -> dict[SeriesKey, str]:
    """Return the section of each series that a page draws, worst regression first."""
    drawable = [each for each in analysis.series if each.series is not None and each.run_count]
    drawable.sort(key=lambda each: -max(each.worsenings, default=-1))
    return {each.key: f"series-{place}" for place, each in enumerate(drawable[:MOST_DRAWN])}


def law_sections(analysis: Analysis) -> dict[tuple[SeriesKey, str], str]:
    """Return the section of each scaling law that a page draws, by its key and size parameter."""
    drawn = report_text.changed_first(analysis.scaling)[:MOST_LAWS]
    return {(law.key, law.size_param): f"law-{place}" for place, law in enumerate(drawn)}


class _Page:
    """Builder of one page: names, links and the data of its plots."""

    def __init__(
        self,
        analysis: Analysis,
        title: str,
        repository_url: str | None,
        site: page_parts.PageSite,
    ) -> None:
        self.analysis = analysis
        self.title = title
        self.site = site
        self.statistic = analysis.settings.statistic
        self.repository = report_text.Repository(repository_url) if repository_url else None
        self.names = report_text.Names.of(analysis)
        self.points = analysis.change_points
        self.has_verdicts = verdict_text.has_verdict(self.points)
        self.data: dict[str, dict[str, Any]] = {}
        self.sections = sections_of(analysis)
        by_key = {each.key: each for each in analysis.series}
        self.drawn = [by_key[key] for key in self.sections]
        drawable = sum(each.series is not None and each.run_count > 0 for each in analysis.series)
        self.left_out = drawable - len(self.drawn)
        self.laws = report_text.changed_first(analysis.scaling)

    def text(self) -> str:
        analysis = self.analysis
        body = "\n".join(
            [
                self.heading(),
                self.changes(),
                self.trends(
                    "Expected changes",
                    "What people said would change; a change that came is among the changes.",
                    verdict_text.EXPECTATION_COLUMNS,
                    [
                        (each.key, verdict_text.expectation_cells(each))
                        for each in (
                            *verdict_text.missed(analysis),
                            *verdict_text.awaited(analysis),
                        )
                    ],
                ),
                self.trends(
                    "Slow drifts",
                    "A value that changes slightly from run to run; no single run is responsible.",
                    *verdict_text.drift_table(analysis.drifts),
                ),
                self.trends(
                    "Changes of variance",
                    "Runs that scatter more, or less, than before, whatever their level.",
                    report_text.VARIANCE_COLUMNS,
                    [
                        (each.key, report_text.variance_cells(each))
                        for each in analysis.variance_changes
                    ],
                ),
                *self.histories(),
                *self.scaling(),
                self.all_series(),
                self.machines(),
                self.problems(),
                self.settings(),
            ]
        )
        return page_parts.document(self.title, body, self.data, site=self.site)

    def heading(self) -> str:
        series = self.analysis.series
        outcomes = [each.outcome for each in series]
        regressions = sum(point.kind is ChangeKind.REGRESSION for point in self.points)
        improvements = len(self.points) - regressions
        machines = {each.key.machine for each in series}
        cards: list[tuple[str, int, str]] = [
            ("series", len(series), ""),
            ("changed", outcomes.count(SeriesOutcome.CHANGED), ""),
            (_plural("regression", regressions), regressions, "slower" if regressions else ""),
            (_plural("improvement", improvements), improvements, "faster" if improvements else ""),
            ("too little data", outcomes.count(SeriesOutcome.TOO_LITTLE_DATA), ""),
            (_plural("machine", len(machines)), len(machines), ""),
        ]
        for word, found in (
            ("slow drift", self.analysis.drifts),
            ("variance changed", self.analysis.variance_changes),
        ):
            if found:
                cards.insert(4, (word, len(found), ""))
        changed = sum(bool(law.change_points) for law in self.laws)
        if changed:
            steeper = any(map(report_text.is_steeper, self.laws))
            cards.insert(4, ("scaling changed", changed, "slower" if steeper else "faster"))
        quiet = len(self.analysis.regressions) - len(self.analysis.alarms)
        if quiet:
            cards.insert(3, ("covered by verdicts", quiet, ""))
        if self.analysis.problems:
            problems = len(self.analysis.problems)
            cards.append((_plural("problem", problems), problems, ""))
        shown = "".join(
            f'<div><dt>{label}</dt><dd class="{style}">{number:,}</dd></div>'
            for label, number, style in cards
        )
        span = "No runs."
        if any(each.run_count for each in series):
            first, last = map(report_text.time_text, self.span_us())
            of = "" if self.statistic == "instructions" else " of their rounds"
            span = f"Runs from {first} to {last} UTC, judged by the {self.statistic}{of}."
        return (
            f"{page_parts.site_line(self.site)}"
            f'<header>\n<h1>{_text(self.title)}</h1>\n<p class="quiet">{span}</p>\n'
            f'<dl class="cards">{shown}</dl>\n</header>'
        )

    def span_us(self) -> tuple[int, int]:
        """Return the times of the first and the last run."""
        held = [each for each in self.analysis.series if each.run_count]
        return min(each.first_time_us for each in held), max(each.last_time_us for each in held)

    def changes(self) -> str:
        if not self.points:
            return "<h2>Changes</h2>\n<p>No series changed from one run to the next.</p>"
        self.data["overview"] = plots.overview_plot(
            self.points[:MOST_ROWS],
            self.span_us(),
            lambda point: self.names(point.key),
            lambda point: self.sections.get(point.key),
        )
        head = [("benchmark", False), ("change", True), ("old → new", True), ("since", False)]
        head += [("commits", False), ("p", True), ("q", True)]
        head += [("verdict", False)] if self.has_verdicts else []
        rows = "\n".join(self.change_row(point) for point in self.points[:MOST_ROWS])
        return (
            '<section class="overview">\n<h2>Changes</h2>\n<p class="quiet">Each change at '
            "the time of its first run; above the line is worse. A click leads to its history."
            "</p>\n"
            '<div class="plot" data-kind="overview" data-of="overview" role="img" '
            'aria-label="Every change over time"></div>\n'
            f"{_tools(has_search=True)}\n{_table(head, rows)}\n"
            f"{_left_out(len(self.points) - MOST_ROWS, 'changes')}</section>"
        )

    def change_row(self, point: ChangePoint) -> str:
        old, new = report_text.pair_text(
            point.mean_before, point.mean_after, point.statistic, point.metric
        )
        kind = report_text.kind_text(point.kind)
        cells = [
            self.name_cell(point.key),
            _cell(
                f'<strong class="{kind}">{report_text.change_text(point.ratio.value)}</strong> '
                f'<span class="quiet">{report_text.interval_text(point.ratio)}</span>',
                key=point.ratio.value,
            ),
            _cell(f"{_text(old)} → {_text(new)}", key=point.mean_after),
            _cell(report_text.date_text(point.time_us), key=str(point.time_us).zfill(20)),
            _cell(self.commits(point), key=point.commit_after or ""),
            _cell(_text(report_text.p_text(point.p_value)), key=point.p_value),
            _cell(_text(report_text.p_text(point.q_value)), key=point.q_value),
        ]
        if self.has_verdicts:
            said = verdict_text.applied_text(point.verdict)
            cells.append(_cell(_text(said), key=said, style="said"))
        return f"<tr data-name>{''.join(cells)}</tr>"

    def trends(
        self,
        title: str,
        facts: str,
        columns: Sequence[str],
        found: Sequence[tuple[SeriesKey, list[str]]],
    ) -> str:
        """Return a table of drifts or changes of variance; nothing without findings."""
        if not found:
            return ""
        head = [("benchmark", False), *((column, False) for column in columns)]
        rows = "\n".join(
            f"<tr data-name>{self.name_cell(key)}"
            f"{''.join(_cell(_text(cell), key=cell) for cell in cells)}</tr>"
            for key, cells in found[:MOST_ROWS]
        )
        return (
            f'<section>\n<h2>{title}</h2>\n<p class="quiet">{facts}</p>\n{_table(head, rows)}\n'
            f"{_left_out(len(found) - MOST_ROWS, 'rows')}</section>"
        )

    def name_cell(self, key: SeriesKey) -> str:
        """Return a cell with a benchmark's name, linked to its section, and the machine if there
        are several.
        """
        name, section = self.names(key), self.sections.get(key)
        shown = f'<a href="#{section}">{_text(name)}</a>' if section else _text(name)
        if len(self.names.machines) > 1:
            shown += f'<br><span class="quiet">{_text(key.machine)}</span>'
        return _cell(shown, key=name, style="name")

    def commits(self, point: ChangePoint) -> str:
        """Return the pair of commits, linked to their comparison."""
        if point.same_commit:
            return f'<span class="badge">{report_text.SAME_CODE}</span>'
        text = f'<span class="commits">{_text(report_text.commits_text(point))}</span>'
        url = self.repository and self.repository.comparison(
            point.commit_before, point.commit_after
        )
        return _link(url, text) if url else text

    def histories(self) -> Iterable[str]:
        if not self.drawn:
            return
        yield (
            '<h2>Histories</h2>\n<p class="quiet">Each point is a run, its faint bar the '
            "middle half of the run's rounds; the lines are the levels between changes. Beside "
            "it, how the rounds of each level are spread, with their medians. Drag to zoom, "
            "double-click to go back.</p>"
        )
        yield _tools(has_search=not self.points, has_axis=True)
        for each in self.drawn:
            yield self.history(each)
        yield _left_out(self.left_out, "series with smaller changes or none")

    def history(self, finding: SeriesFinding) -> str:
        section = self.sections[finding.key]
        plot = plots.history_plot(finding, self.statistic)
        self.data[section] = plot
        facts = [
            finding.key.suite,
            finding.key.machine,
            report_text.counted(finding.run_count, "run"),
            f"last {report_text.value_text(finding.last_value, self.statistic, finding.metric)}",
            *filter(None, [report_text.direction_text(finding.metric)]),
        ]
        if finding.noise == finding.noise:
            facts.append(f"noise {finding.noise * 100:.2g} %")
        if plot["thinned"]:
            facts.append(
                f"{len(plot['run']):,} of them drawn: the smallest and largest of each interval"
            )
        if finding.outcome is not SeriesOutcome.CHANGED:
            facts.append(finding.outcome.value)
        changes = "\n".join(
            [
                *(self.change(point) for point in finding.change_points),
                *(self.drift(each) for each in finding.drifts),
                *(self.variance_change(each) for each in finding.variance_changes),
            ]
        )
        saved = finding.series is not None and finding.series.rounds is not None
        spread = "Rounds of each level" if saved else "Values of each level"
        name = _text(self.names(finding.key))
        listed = f'<ul class="changes">{changes}</ul>\n' if changes else ""
        return (
            f'<section class="series" id="{section}" data-name="{name}">\n<header>'
            f'<h3 class="name">{name}</h3>\n'
            f'<p class="quiet">{" · ".join(map(_text, facts))}</p></header>\n{listed}'
            '<div class="plots">\n'
            f"{_figure('history', section, 'History', f'History of {name}')}\n"
            f"{_figure('distribution', section, spread, f'Distribution of {name}')}\n"
            "</div>\n</section>"
        )

    def change(self, point: ChangePoint) -> str:
        old, new = report_text.pair_text(
            point.mean_before, point.mean_after, point.statistic, point.metric
        )
        kind = report_text.kind_text(point.kind)
        sign = "▲" if point.kind is ChangeKind.REGRESSION else "▼"
        return (
            f'<li class="{kind}"><strong>{sign} {report_text.change_text(point.ratio.value)} '
            f"{report_text.change_word(point.kind, point.metric)}</strong>"
            f"<span>{report_text.interval_text(point.ratio)}</span>"
            f"<span>{_text(old)} → {_text(new)}</span>"
            f"<span>since {report_text.time_text(point.time_us)}, run {point.index + 1}</span>"
            f"<span>{self.commits(point)}</span>"
            f'<span class="quiet">p {_text(report_text.p_text(point.p_value))}, '
            f"q {_text(report_text.p_text(point.q_value))}</span>{_said(point)}</li>"
        )

    def drift(self, drift: Drift) -> str:
        kind = report_text.kind_text(drift.kind)
        start, end, commits, old, new, change, interval, slope, q = map(
            _text, report_text.drift_cells(drift)
        )
        return (
            f'<li class="{kind}"><strong>slow drift {change} '
            f"{report_text.change_word(drift.kind, drift.metric)}</strong><span>{interval}</span>"
            f"<span>{old} → {new}, {slope} per run</span><span>{start} to {end}, runs "
            f"{drift.start_index + 1}-{drift.end_index + 1}</span>"
            f'<span class="commits">{commits}</span><span class="quiet">q {q}</span>'
            f"{_said(drift)}</li>"
        )

    def variance_change(self, change: VarianceChange) -> str:
        since, commits, before, after, q = map(_text, report_text.variance_cells(change))
        return (
            f"<li><strong>noise {before} → {after}</strong><span>since {since}, "
            f'run {change.index + 1}</span><span class="commits">{commits}</span>'
            f'<span class="quiet">q {q}</span></li>'
        )

    def scaling(self) -> Iterable[str]:
        if not self.laws:
            return
        yield (
            '<h2>Scaling</h2>\n<p class="quiet">How time grows with size: value ~ size ^ exponent, '
            "the newest run of each size. The band is the exponent's interval, the dotted line "
            "growth in step with the size. Below it, the exponent of each run and its "
            "levels.</p>"
        )
        head = [("benchmark", False), ("size", False), ("exponent", True), ("10x the size", True)]
        rows = "\n".join(self.law_row(law) for law in self.laws[:MOST_ROWS])
        yield _table(
            [*head, ("changed", False)],
            rows,
        )
        yield '<div class="laws">'
        sections = law_sections(self.analysis)
        for law in self.laws[:MOST_LAWS]:
            section = sections[law.key, law.size_param]
            plot = plots.scaling_plot(law, self.statistic)
            if not plot:
                continue
            self.data[section] = plot
            name = _text(self.names(law.key))
            yield (
                f'<section class="series" id="{section}" data-name="{name}"><header>'
                f'<h3 class="name">{name}</h3><p class="quiet">'
                f"{_text(report_text.exponent_text(law))} · {_text(law.key.machine)}</p></header>"
                f"{_figure('scaling', section, '', f'Scaling of {name}')}"
                f"{self.exponents(law, section)}</section>"
            )
        yield "</div>"
        yield _left_out(len(self.laws) - MOST_LAWS, "scaling laws in the table only")

    def exponents(self, law: ScalingLaw, section: str) -> str:
        """Return the history of a law's exponent; nothing without one."""
        if law.history is None:
            return ""
        self.data[f"{section}-history"] = plots.exponent_plot(law)
        label = f"History of the exponent of {_text(self.names(law.key))}"
        runs = report_text.counted(len(law.history), "run")
        return _figure("history", f"{section}-history", f"Exponent in {runs} of all sizes", label)

    def law_row(self, law: ScalingLaw) -> str:
        name = self.names(law.key)
        changed = "<br>".join(
            f"{' → '.join(report_text.exponent_pair(point))} since "
            f"{report_text.date_text(point.time_us)} {self.commits(point)} {_said(point)}"
            for point in law.change_points
        )
        cells = [
            _cell(_text(name), key=name, style="name"),
            _cell(_text(law.size_param), key=law.size_param),
            _cell(
                f"<strong>{law.exponent:z.2f}</strong> "
                f'<span class="quiet">[{law.low:z.2f}, {law.high:z.2f}]</span>',
                key=law.exponent,
            ),
            _cell(report_text.growth_text(law.exponent), key=law.exponent),
            _cell(changed or "-", key=str(len(law.change_points))),
        ]
        return f"<tr data-name>{''.join(cells)}</tr>"

    def all_series(self) -> str:
        """Return a folded table with the outcome of every series."""
        head = [("benchmark", False), ("outcome", False), ("runs", True), ("last", True)]
        head += [("noise", True)]
        rows = "\n".join(self.series_row(each) for each in self.analysis.series[:MOST_ROWS])
        if not rows:
            return ""
        count = report_text.counted(len(self.analysis.series), "series", "series")
        return (
            f"<h2>All series</h2>\n<details><summary>{count} and their outcomes</summary>\n"
            f"{_table(head, rows)}\n</details>\n"
            f"{_left_out(len(self.analysis.series) - MOST_ROWS, 'series')}"
        )

    def series_row(self, finding: SeriesFinding) -> str:
        noise = report_text.noise_text(finding.noise)
        ended = f", ended: {report_text.end_text(finding)}" if finding.ended else ""
        began = f", began: {report_text.begin_text(finding)}" if finding.began else ""
        facts = f"{finding.outcome.value}{began}{ended}"
        cells = [
            self.name_cell(finding.key),
            _cell(_text(facts), key=facts),
            _cell(f"{finding.run_count:,}", key=finding.run_count),
            _cell(
                report_text.value_text(finding.last_value, self.statistic, finding.metric),
                key=finding.last_value,
            ),
            _cell(noise, key=finding.noise),
        ]
        return f"<tr data-name>{''.join(cells)}</tr>"

    def machines(self) -> str:
        described = self.analysis.machines or {}
        found = sorted({each.key.machine for each in self.analysis.series} | set(described))
        if not found:
            return ""
        blocks = []
        for machine in found:
            fields = report_text.machine_fields(described.get(machine))
            inside = _fields(fields) if fields else "<p>No description.</p>"
            opened = " open" if len(found) == 1 else ""
            blocks.append(
                f"<details{opened}><summary>{_text(machine)}</summary>\n{inside}</details>"
            )
        return "<h2>Machines</h2>\n" + "\n".join(blocks)

    def problems(self) -> str:
        if not self.analysis.problems:
            return ""
        shown = "\n".join(f"<li>{_text(each)}</li>" for each in self.analysis.problems[:MOST_ROWS])
        return (
            f'<h2>Problems</h2>\n<ul class="problems">{shown}</ul>\n'
            f"{_left_out(len(self.analysis.problems) - MOST_ROWS, 'problems')}"
        )

    def settings(self) -> str:
        given = [(name, str(value)) for name, value in vars(self.analysis.settings).items()]
        return (
            "<h2>Method and settings</h2>\n<details><summary>Change points by E-divisive means, "
            "ratios by bootstrap, corrected for many tests: the settings</summary>\n"
            f"{_fields(given)}</details>"
        )


def _tools(*, has_search: bool, has_axis: bool = False) -> str:
    """Return a name filter, and for plots the choice between run numbers and time as axis."""
    search = '<input type="search" placeholder="Filter by name" aria-label="Filter by name">'
    choices = "".join(
        f'<label><input type="radio" name="axis" value="{value}"{checked}> {label}</label>'
        for value, label, checked in (("run", "runs", " checked"), ("time", "time", ""))
    )
    along = f"<fieldset><legend>Along</legend>{choices}</fieldset>"
    return f'<div class="tools">{search if has_search else ""}{along if has_axis else ""}</div>'


def _said(change: ChangePoint | Drift) -> str:
    """Return the verdict on a change; nothing without one."""
    text = verdict_text.applied_text(change.verdict)
    return f'<span class="badge">{_text(text)}</span>' if text else ""


def _plural(word: str, number: int) -> str:
    return word if number == 1 else f"{word}s"


def _link(url: str, content: str) -> str:
    return f'<a href="{_text(url)}" rel="noopener noreferrer" target="_blank">{content}</a>'
