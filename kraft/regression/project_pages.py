"""A folder with the pages of a store: the dashboard, and of each project its page and its document.

`write_dashboard` writes all of it once. `page_worker` writes the pages of some projects for a
server (`live_store`). The files:

``index.html``, ``projects.json``  the dashboard
``NAME.html``, ``NAME.json``       a project: `html.page` and `json_report.as_json`
``plotly.js``                      once for all pages

Each project is analysed by itself, as ``kraft regress --project`` does, so that memory depends on
the largest project and one project's runs do not change another one's results. Files are replaced
atomically: a reader sees the old or the new one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

from kraft.errors import KraftError
from kraft.regression import dashboard, html, json_report, page_parts, project_summary
from kraft.regression.analysis import MAIN, NO_RULES, analyse_store
from kraft.regression.commit_order import RunLike, Scope, runs_in_scope
from kraft.regression.data_files import RunEntry
from kraft.regression.page_parts import PLOTLY_FILE, PageSite
from kraft.regression.project_rules import ProjectRules
from kraft.regression.project_summary import ProjectSummary
from kraft.regression.report_text import Repository, counted
from kraft.regression.settings import AnalysisSettings
from kraft.regression.store import open_store
from kraft.regression.verdict_store import load_verdicts
from kraft.regression.verdicts import VerdictLedger

#: The name of the dashboard, without ``.html``.
INDEX = "index"


@dataclass(frozen=True)
class PagesRequest:
    """What is analysed, and how; can be sent to a worker.

    ``version`` is that of `store.open_store`.
    """

    store: str
    settings: AnalysisSettings
    scope: Scope = MAIN
    rules: ProjectRules = NO_RULES
    machine: str | None = None
    version: int | str | None = None
    repository_url: str | None = None

    def __post_init__(self) -> None:
        if self.repository_url is not None:
            Repository(self.repository_url)  # raises InvalidConfigError


def projects_of(runs: Iterable[RunEntry], scope: Scope) -> dict[str, list[RunEntry]]:
    """Return the runs of each project of ``scope``, of all branches; "" has runs without one."""
    found: dict[str, list[RunEntry]] = {}
    for run in runs:
        found.setdefault(run.project or "", []).append(run)
    every = replace(scope, branch="*", include_dirty=True)
    return {
        project: inside
        for project, inside in sorted(found.items())
        if runs_in_scope(inside[:1], every)[0]
    }


def waiting_projects(
    projects: Mapping[str, Sequence[RunEntry]], scope: Scope
) -> list[ProjectSummary]:
    """Return what is known of the projects before their analysis."""
    waiting = []
    for project, runs in projects.items():
        analysed: Sequence[RunLike] = runs_in_scope(runs, replace(scope, only=project))[0]
        waiting.append(project_summary.waiting_for(project, analysed or runs))
    return waiting


def fingerprint(project: str, runs: Iterable[RunEntry], ledger: VerdictLedger) -> str:
    """Return 16 digits that change with the results of a project's analysis.

    They are those of its runs, of the verdicts on it, and of the watches that are over.
    """
    digest = blake2b(digest_size=8)
    for line in sorted(f"{run.run_id} {run.digest} {run.points} {run.has_values}" for run in runs):
        digest.update(f"{line}\n".encode())
    for verdict in ledger.verdicts:
        if verdict.key.project == project:
            is_over = verdict.until_us is not None and ledger.now_us >= verdict.until_us
            digest.update(f"{verdict.id} {is_over}\n".encode())
    return digest.hexdigest()


def write_dashboard(
    request: PagesRequest,
    folder: Path,
    on_project: Callable[[ProjectSummary, int, int], None],
) -> list[ProjectSummary]:
    """Write the whole folder; return the projects.

    ``on_project`` is called with each project, its number from 1 and the number of all. A project
    that cannot be analysed has an `ProjectSummary.error`.

    Raises StorageError if there is no store, MissingPackageError without plotly.
    """
    state = open_store(request.store, request.version)
    request = replace(request, version=state.version)
    waiting = waiting_projects(projects_of(state.runs, request.scope), request.scope)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / PLOTLY_FILE, page_parts.plotly_script())
    ledger = load_verdicts(request.store)
    site = PageSite(has_plotly_file=True, home=f"{INDEX}.html")
    done = []
    for project in waiting:
        done.append(write_project(request, project, ledger, folder, site))
        on_project(done[-1], len(done), len(waiting))
    page = dashboard.page(
        done,
        title=title_of(request.store),
        facts=facts_of(request.store, state.version),
        site=replace(site, home=""),
    )
    write_text(folder / f"{INDEX}.html", page)
    write_text(folder / "projects.json", projects_document(state.version, done))
    return done


def write_project(
    request: PagesRequest,
    waiting: ProjectSummary,
    ledger: VerdictLedger,
    folder: Path,
    site: PageSite,
) -> ProjectSummary:
    """Analyse a project and write its page and document; return its results.

    If the analysis rejects something (`KraftError`), the page says so.
    """
    title = f"Benchmarks of {waiting.name}"
    try:
        analysis = analyse_store(
            request.store,
            request.settings,
            version=request.version,
            machine=request.machine,
            kept_runs=html.KEPT_RUNS,
            scope=replace(request.scope, only=waiting.project),
            rules=request.rules,
            verdicts=ledger,
        )
    except KraftError as error:
        failed = replace(waiting, error=str(error))
        write_text(folder / f"{waiting.page}.html", message_page(title, str(error), site))
        write_text(folder / f"{waiting.page}.json", json.dumps({"error": str(error)}))
        return failed
    page = html.page(analysis, title=title, repository_url=request.repository_url, site=site)
    write_text(folder / f"{waiting.page}.html", page)
    write_text(folder / f"{waiting.page}.json", json.dumps(json_report.as_json(analysis)))
    return project_summary.summary_of(waiting, analysis)


def message_page(title: str, message: str, site: PageSite) -> str:
    """Return a page that only says something, such as that the analysis runs."""
    body = (
        f"{page_parts.site_line(site)}<header>\n<h1>{page_parts.escaped(title)}</h1>\n</header>\n"
        f"<p>{page_parts.escaped(message)}</p>"
    )
    return page_parts.document(title, body, {}, site=site)


def projects_document(version: int, projects: Sequence[ProjectSummary]) -> str:
    """Return ``projects.json``: the store's version, and each project (`project_summary`)."""
    described = [project_summary.as_json(each) for each in projects]
    return json.dumps({"version": version, "projects": described})


def title_of(store: str) -> str:
    """Return the title of a dashboard: the last part of the store's address."""
    return f"Benchmarks in {store.rstrip('/').rpartition('/')[2] or store}"


def facts_of(store: str, version: int) -> str:
    """Return the line below the title."""
    return f"Version {version} of the store {store}. Times are UTC."


def analysis_message(done: int, count: int) -> str:
    """Return what a page says while projects are analysed."""
    return f"The analysis runs: {done} of {counted(count, 'project')} done"


def write_text(path: Path, text: str) -> None:
    """Replace a file atomically."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)
