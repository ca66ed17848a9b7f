"""``kraft regress serve`` shows a store live on loopback; ``dashboard`` writes the same pages."""

from __future__ import annotations

import os
import signal
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.cli.option_groups import takes_groups
from kraft.cli.options import AsOfOption, JsonOption
from kraft.cli.regress_options import (
    DetectionOptions,
    RunOptions,
    refusing_bad_input,
    rules_of,
)

if TYPE_CHECKING:
    from kraft.regression.project_pages import PagesRequest
    from kraft.regression.project_summary import ProjectSummary

EPILOG = (
    "[bold]Exit codes[/bold]: 0 done · 2 bad input or wrong usage: no store, a port that is taken "
    "(stderr says why) · 130 Ctrl-C"
)
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PORT = 8600

StoreArgument = Annotated[
    str,
    typer.Argument(
        metavar="STORE",
        help="The store of results, filled by `kraft bench ingest`: a directory, or an address of "
        "an object store.",
        show_default=False,
    ),
]
RepositoryUrlOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Link commits to this repository: https://github.com/owner/name.",
        show_default=False,
    ),
]


@takes_groups
def serve(
    *,
    store: StoreArgument,
    port: Annotated[
        int,
        typer.Option(
            metavar="PORT", min=0, max=65535, help="Listen on this port; 0 takes a free one."
        ),
    ] = _PORT,
    interval_s: Annotated[
        float,
        typer.Option(
            "--interval-s",
            metavar="SECONDS",
            min=0.1,
            max=3600,
            help="Look for a new version of the store this often.",
        ),
    ] = 5.0,
    runs: RunOptions,
    detection: DetectionOptions,
    repository_url: RepositoryUrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a store in the browser, and keep the pages up to date while results come in.

    The first page has all projects: last run, new regressions, what is watched, accepted and expected, and the level over time. Each project has the page of kraft regress --html, the document of --json, and a page that compares any two of its commits or runs. Listens on 127.0.0.1 only. A new version of the store, or a new verdict, is analysed by a process in the background; projects without new runs are not analysed again.

    [bold]Examples[/bold]

      kraft regress serve results

      kraft regress serve results --port 0 --repository-url https://github.com/owner/name

      kraft regress serve s3://bucket/results --interval-s 60 --rules kraft-regress.toml
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.cli.output import Output

    with (
        refusing_bad_input(),
        tempfile.TemporaryDirectory(prefix="kraft-serve-") as temporary,
    ):
        from kraft.regression.live_store import LiveStore
        from kraft.regression.page_server import PageServer

        request = _request(store, runs, detection, repository_url)
        folder = Path(temporary)
        live = LiveStore(request, folder, interval_s=interval_s)
        server = PageServer(live, folder, store, port)
        try:
            # SIGTERM, and a terminal that is closed, end the server as Ctrl-C does.
            for number in _INTERRUPTS[1:]:
                signal.signal(number, signal.default_int_handler)
            live.start()
            if as_json:
                Output(as_json=True).document(
                    {"url": server.url, "store": store, "pid": os.getpid()}
                )
            else:
                print(f"{server.url} shows {store}; Ctrl-C stops it", flush=True)
            server.serve_forever()
        finally:
            # Repeated Ctrl-C must leave neither a process nor a temporary directory.
            for number in _INTERRUPTS:
                signal.signal(number, signal.SIG_IGN)
            server.server_close()
            live.stop()


@takes_groups
def dashboard(
    *,
    store: StoreArgument,
    html: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="Write the pages to this directory; it is created, and pages in it are replaced. "
            "Required.",
            show_default=False,
        ),
    ],
    as_of: AsOfOption = None,
    runs: RunOptions,
    detection: DetectionOptions,
    repository_url: RepositoryUrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the pages of serve to a directory, for a web server or to open as files.

    DIR/index.html is the first page; projects.json has the same as JSON. Each project is analysed by itself.

    [bold]Examples[/bold]

      kraft regress dashboard results --html site

      kraft regress dashboard results --html site --project 'team-*' --as-of 2026-11-01
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.cli.output import Output, progress

    output = Output(as_json=as_json)
    with refusing_bad_input(), progress("Projects", total=None) as advance:
        from kraft.regression.project_pages import projects_document, write_dashboard

        def report(project: ProjectSummary, number: int, count: int) -> None:
            advance(number)
            if project.error:
                output.note(f"{project.name}: {project.error}")

        request = replace(_request(store, runs, detection, repository_url), version=as_of)
        projects = write_dashboard(request, html, report)
    if as_json:
        import json

        from kraft.regression.store import open_store

        version = open_store(store, as_of).version
        output.document(json.loads(projects_document(version, projects)))
        return
    output.table(
        "",
        ["project", "last run", "new", "watched", "accepted", "expected", "series", "runs"],
        [_row(each) for each in projects],
        numbers=["new", "watched", "accepted", "expected", "series", "runs"],
    )
    output.note(f"wrote {html / 'index.html'}")


def _row(project: ProjectSummary) -> list[object]:
    from kraft.regression.report_text import time_text

    counts = [project.new, project.watched, project.accepted, project.expected, project.series]
    return [project.name, time_text(project.last_run_us), *counts, project.runs]


def _request(
    store: str, runs: RunOptions, detection: DetectionOptions, repository_url: str | None
) -> PagesRequest:
    from kraft.regression.project_pages import PagesRequest

    rules = rules_of(runs.rules, runs.repository)
    return PagesRequest(
        store=store,
        settings=detection.settings(rules.threshold),
        scope=runs.scope,
        rules=rules,
        machine=runs.machine,
        repository_url=repository_url,
    )
