"""Comparisons of runs of a store, as pages of the server.

`page_server` calls `LiveComparisons.page` for each request of ``/compare``. A comparison reads some
runs, not the store, and takes about a second; one at a time is computed, and the last ones are kept
until the store changes.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus

import pyarrow as pa
import pyarrow.compute as pc

from kraft.errors import InvalidRequestError, KraftError
from kraft.regression import comparison, comparison_page
from kraft.regression.page_parts import COMPARISONS, PageSite, document, escaped, site_line
from kraft.regression.project_pages import INDEX, PagesRequest
from kraft.regression.project_summary import ProjectSummary
from kraft.regression.run_selection import RunSelection, with_current_names

#: The baseline of a comparison that names none: as many runs as tell a step of twice the noise.
_BASE = "last:10"
#: Pages that are kept.
_MOST_KEPT = 16
_SITE = PageSite(has_plotly_file=True, home=f"{INDEX}.html")


class LiveComparisons:
    """The comparisons of one store; `page` may be called from any thread."""

    def __init__(self, request: PagesRequest) -> None:
        self._request = request
        self._lock = threading.Lock()
        self._kept: dict[tuple[object, ...], str] = {}

    def page(
        self, project: ProjectSummary, version: int, asked: Mapping[str, str]
    ) -> tuple[HTTPStatus, str]:
        """Return the page of a comparison.

        ``asked`` may have ``base`` and ``candidate``: a commit, a run or ``last:N``; by default
        the project's newest commit is compared with the ten runs before it. ``version`` is that of
        the store as last read.
        """
        base = asked.get("base", "").strip() or _BASE
        candidate = asked.get("candidate", "").strip() or project.last_commit or "last:1"
        above = _form(project, base, candidate)
        key = version, project.page, base, candidate
        try:
            with self._lock:
                if key not in self._kept:
                    page = self._compared(project, base, candidate, above)
                    recent = [each for each in self._kept.items() if each[0][0] == version]
                    self._kept = {**dict(recent[1 - _MOST_KEPT :]), key: page}
                return HTTPStatus.OK, self._kept[key]
        except KraftError as error:
            title = f"Comparison of runs of {project.name}"
            body = (
                f"{site_line(_SITE)}<header>\n<h1>{escaped(title)}</h1>\n</header>\n{above}"
                f"<p>{escaped(str(error))}</p>"
            )
            page = document(title, body, {}, style=comparison_page.FORM_STYLE, site=_SITE)
            return HTTPStatus.BAD_REQUEST, page

    def _compared(self, project: ProjectSummary, base: str, candidate: str, above: str) -> str:
        settings, rules = self._request.settings, self._request.rules
        columns = [settings.statistic, "mean", "stddev", "rounds", "values"]
        scope = replace(self._request.scope, only=project.project)

        def side(text: str, before: pa.Table | None = None) -> pa.Table:
            runs = RunSelection.parse(text).read(self._request.store, columns, before, scope, rules)
            # A commit may have been measured in several projects.
            inside = pc.equal(pc.fill_null(runs["project"].cast(pa.string()), ""), project.project)
            if not (found := runs.filter(inside)).num_rows:
                raise InvalidRequestError(f"{text}: the project has no such runs")
            return found

        new = side(candidate)
        old = with_current_names(side(base, new), rules)
        allowed = comparison.DEFAULT_THRESHOLD if rules.threshold is None else rules.threshold
        compared = comparison.compare(old, with_current_names(new, rules), settings, allowed)
        return comparison_page.page(
            comparison.with_rules(compared, rules, settings, allowed),
            allowed,
            title=f"{_short(candidate)} compared with {_short(base)}",
            site=_SITE,
            above=above,
        )


def _short(text: str) -> str:
    """Return a selection for a title, with the first digits of a whole commit."""
    return text if len(text) < 40 else text[:12]


def _form(project: ProjectSummary, base: str, candidate: str) -> str:
    """Return the way to the project's histories, and the form for another comparison."""
    name = escaped(project.name)
    fields = "".join(
        f'<label>{label} <input name="{field}" value="{escaped(value)}" size="14" required></label>'
        for label, field, value in (
            ("Base", "base", base),
            ("Candidate", "candidate", candidate),
        )
    )
    return (
        f'<p class="quiet">Runs of <a href="{project.page}.html">{name}</a>: a commit or a run by '
        "its first digits, or last:N for the last N runs of each benchmark.</p>\n"
        f'<form class="tools" action="{COMPARISONS}"><input type="hidden" name="project" '
        f'value="{project.page}">{fields}<button>Compare</button></form>\n'
    )
