"""The pages of a store, kept up to date while the store changes.

A thread looks at the numbers of the store's and the ledger's newest versions, which takes
milliseconds. Only when one of them changed, or a watch is over, does it read the new runs and
compare each project's `project_pages.fingerprint`; a process (`page_worker`) then analyses the
projects that differ and writes their pages to a folder. So a page is never blocked by an analysis,
and this process holds the list of runs and the summaries, but no points and no pages.

`page_server` shows the folder by `LiveStore.state`, an immutable value that the thread replaces.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from kraft.errors import KraftError
from kraft.regression import page_parts, project_pages
from kraft.regression.page_worker import PageWorker, WorkerTask
from kraft.regression.project_pages import INDEX, PagesRequest
from kraft.regression.project_summary import ProjectSummary
from kraft.regression.report_text import counted
from kraft.regression.store import StoreState, load_state, newest_version, open_store
from kraft.regression.verdict_store import ledger_version, load_verdicts
from kraft.regression.verdicts import VerdictLedger

#: Pages are analysed again this long after a failure, if the store does not change meanwhile.
RETRY_S = 60.0


@dataclass(frozen=True)
class LiveState:
    """What is shown now."""

    version: int  # of the store, as last read
    projects: Mapping[str, ProjectSummary] = field(default_factory=dict)  # by name of the page
    generations: Mapping[str, str] = field(default_factory=dict)  # of the pages in the folder
    changes: int = 0  # counts changes of this value, for the dashboard's own generation
    analysed: int = 0
    to_analyse: int = 0  # 0 if no analysis runs
    error: str = ""

    @property
    def message(self) -> str:
        """Return what every page says about the store now."""
        if self.error:
            return self.error
        if self.to_analyse:
            return project_pages.analysis_message(self.analysed, self.to_analyse)
        return f"Version {self.version}, {counted(len(self.projects), 'project')}"

    def pages(self) -> dict[str, str]:
        """Return the generation of each page, by its name."""
        return {**self.generations, INDEX: str(self.changes)}


class LiveStore:
    """The thread that watches a store; `state` may be read from any thread."""

    def __init__(self, request: PagesRequest, folder: Path, *, interval_s: float = 5.0) -> None:
        """Open the store. Raises StorageError if there is none."""
        self.request = request
        self._folder = folder
        self._interval_s = interval_s
        self._runs: StoreState = open_store(request.store)
        self._ledger = VerdictLedger()
        self._seen: tuple[int, int] | None = None  # versions of the store and of the ledger
        self._next_end_us: int | None = None  # of a watch
        self._retry_at: float | None = None
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._worker: PageWorker | None = None
        self._thread = threading.Thread(target=self._watch, name="kraft-live-store", daemon=True)
        self.state = LiveState(version=self._runs.version)

    def start(self) -> None:
        """Write plotly.js to the folder, and begin to watch. Raises MissingPackageError."""
        plotly = self._folder / page_parts.PLOTLY_FILE
        project_pages.write_text(plotly, page_parts.plotly_script())
        self._thread.start()

    def stop(self) -> None:
        """End the thread and the analysis; return when both have ended."""
        self._stopping.set()
        with self._lock:
            if self._worker is not None:
                self._worker.stop()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopping.is_set():
            try:
                self._check()
            except (KraftError, OSError) as error:
                self._change(error=f"the store cannot be read: {error}")
            except Exception as error:  # the pages must say it, whatever it is
                self._change(error=f"the store cannot be shown: {type(error).__name__}: {error}")
            self._stopping.wait(self._interval_s)

    def _check(self) -> None:
        """Look for a new version; analyse the projects that changed."""
        store = self.request.store
        seen = newest_version(store), ledger_version(store)
        is_over = self._next_end_us is not None and _now_us() >= self._next_end_us
        is_retry = self._retry_at is not None and time.monotonic() >= self._retry_at
        if seen == self._seen and not is_over and not is_retry:
            if self._retry_at is None:
                self._change(error="")
            return
        # Read the verdicts first: the worker may use newer ones, and then the next look finds them.
        self._ledger = load_verdicts(store, now_us=_now_us())
        ends = [
            each.until_us
            for each in self._ledger.in_force
            if each.until_us is not None and each.until_us > self._ledger.now_us
        ]
        self._runs = load_state(self._runs.location, known=self._runs)
        self._analyse()
        self._seen, self._next_end_us = seen, min(ends, default=None)

    def _analyse(self) -> None:
        """Bring the pages to the state that was read."""
        scope = self.request.scope
        runs = project_pages.projects_of(self._runs.runs, scope)
        wanted = {
            each.page: (
                each,
                project_pages.fingerprint(each.project, runs[each.project], self._ledger),
            )
            for each in project_pages.waiting_projects(runs, scope)
        }
        known = self.state
        changed = {
            name: pair for name, pair in wanted.items() if known.generations.get(name) != pair[1]
        }
        # Until its new page is written, a project is shown with its earlier results.
        shown = {name: known.projects.get(name, pair[0]) for name, pair in wanted.items()}
        kept = {name: each for name, each in known.generations.items() if name in wanted}
        self._retry_at = None
        self._change(
            version=self._runs.version,
            projects=shown,
            generations=kept,
            to_analyse=len(changed),
            analysed=0,
            error="",
        )
        for name in known.projects.keys() - wanted.keys():
            for suffix in ("html", "json"):
                (self._folder / f"{name}.{suffix}").unlink(missing_ok=True)
        if changed:
            self._run_worker(changed)

    def _run_worker(self, changed: Mapping[str, tuple[ProjectSummary, str]]) -> None:
        """Let a process analyse projects, and publish each when it is done."""
        request = replace(self.request, version=self._runs.version)
        with self._lock:
            if self._stopping.is_set():
                return
            worker = PageWorker(WorkerTask(request, tuple(changed.values()), self._folder))
            self._worker = worker
        done = 0
        for project in worker.results():
            done += 1
            name = project.page
            self._change(
                projects={**self.state.projects, name: project},
                generations={**self.state.generations, name: changed[name][1]},
                analysed=done,
            )
        self._worker = None
        if done < len(changed) and not self._stopping.is_set():
            self._retry_at = time.monotonic() + RETRY_S
            self._change(to_analyse=0, error=worker.failure)
        else:
            self._change(to_analyse=0)

    def _change(self, **fields: object) -> None:
        changed = replace(self.state, **fields)  # type: ignore[arg-type]
        if changed != self.state:
            self.state = replace(changed, changes=self.state.changes + 1)


def _now_us() -> int:
    return time.time_ns() // 1000
