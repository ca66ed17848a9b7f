"""The HTML page of scaling laws: a table of exponents, a plot of each law, what was refused."""

from __future__ import annotations

from kraft.fleet import plots
from kraft.fleet.scaling import PowerLaw
from kraft.fleet.scaling_report import ScalingReport
from kraft.fleet.texts import number_text, ratio_text
from kraft.regression.page_parts import cell, document, escaped, figure, left_out, table

#: Laws that are drawn; the table has all.
MOST_DRAWN = 120
_MOST_ROWS = 5000


def page(report: ScalingReport, *, title: str = "Scaling of the fleet") -> str:
    """Return the report as one HTML file. Raises MissingPackageError without plotly."""
    data: dict[str, object] = {}
    ordered = sorted(report.laws, key=lambda law: (law.knee is None, -law.exponent))
    body = "\n".join(
        [
            f"<header>\n<h1>{escaped(title)}</h1>\n"
            f'<p class="quiet">{report.runs:,} runs. value ~ size ^ exponent, by least squares in '
            "logarithms; the interval is one of 95 %. A knee is a size above which the exponent "
            "differs.</p>\n</header>",
            _table(ordered),
            _drawn(ordered, data),
            _refused(report),
            _problems(report),
        ]
    )
    return document(title, body, data)


def growth_text(exponent: float) -> str:
    """Return an exponent as the growth for ten times the size: ``x10``."""
    return ratio_text(10.0**exponent)


def knee_text(law: PowerLaw) -> str:
    """Return ``^0.50 below 1,000, ^1.52 above``; ``-`` without a knee."""
    knee = law.knee
    if knee is None:
        return "-"
    size = number_text(float(f"{knee.size:.3g}"))
    return f"^{knee.before:z.2f} below {size}, ^{knee.after:z.2f} above"


def _table(laws: list[PowerLaw]) -> str:
    if not laws:
        return "<p>No law could be fitted.</p>"
    head = [("law", False), ("against", False), ("exponent", True), ("10x the size", True)]
    head += [("sizes", True), ("runs", True), ("R²", True), ("knee", False)]
    rows = "\n".join(_row(place, law) for place, law in enumerate(laws[:_MOST_ROWS]))
    search = '<input type="search" placeholder="Filter by name" aria-label="Filter by name">'
    return (
        f'<h2>Laws</h2>\n<div class="tools">{search}</div>\n{table(head, rows)}\n'
        f"{left_out(len(laws) - _MOST_ROWS, 'laws')}"
    )


def _row(place: int, law: PowerLaw) -> str:
    name = escaped(law.title)
    shown = f'<a href="#law-{place}">{name}</a>' if place < MOST_DRAWN else name
    cells = [
        cell(shown, key=law.title, style="name"),
        cell(law.against, key=law.against),
        cell(
            f"<strong>{law.exponent:z.3f}</strong> "
            f'<span class="quiet">[{law.low:z.3f}, {law.high:z.3f}]</span>',
            key=law.exponent,
        ),
        cell(growth_text(law.exponent), key=law.exponent),
        cell(f"{len(set(law.sizes))}", key=len(set(law.sizes))),
        cell(f"{len(law.sizes)}", key=len(law.sizes)),
        cell(f"{law.r_squared:.3f}", key=law.r_squared),
        cell(escaped(knee_text(law)), key=knee_text(law)),
    ]
    return f'<tr data-name="{name} {law.against}">{"".join(cells)}</tr>'


def _drawn(laws: list[PowerLaw], data: dict[str, object]) -> str:
    if not laws:
        return ""
    sections = []
    for place, law in enumerate(laws[:MOST_DRAWN]):
        data[f"law-{place}"] = plots.law_plot(law)
        name = escaped(law.title)
        facts = f"exponent {law.exponent:z.3f} ± {law.error:.3f} against {law.against}"
        if law.knee is not None:
            facts += f"; knee: {escaped(knee_text(law))} (q {law.knee.q_value:.1g})"
        sections.append(
            f'<section class="series" id="law-{place}" data-name="{name} {law.against}"><header>'
            f'<h3 class="name">{name}</h3><p class="quiet">{facts}</p></header>'
            f"{figure('figure', f'law-{place}', '', f'Scaling of {name}')}</section>"
        )
    return (
        f'<h2>Plots</h2>\n<div class="laws">{"".join(sections)}</div>\n'
        f"{left_out(len(laws) - MOST_DRAWN, 'laws in the table only')}"
    )


def _refused(report: ScalingReport) -> str:
    if not report.refusals:
        return ""
    rows = "".join(
        f"<li>{count:,} measures: {escaped(reason)}</li>"
        for reason, count in report.refusal_counts()
    )
    return f"<h2>Without a law</h2>\n<ul>{rows}</ul>"


def _problems(report: ScalingReport) -> str:
    """Return lists of interrupted runs and of lines that were not read."""
    found = ""
    for title, texts in (
        ("Interrupted runs", list(report.interrupted)),
        ("Lines that were not read", [str(each) for each in report.problems]),
    ):
        if texts:
            shown = "".join(f"<li>{escaped(each)}</li>" for each in texts[:_MOST_ROWS])
            found += f'<h2>{title}</h2>\n<ul class="problems">{shown}</ul>\n'
    return found
