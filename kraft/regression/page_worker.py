"""Write the pages of some projects in a process of its own, for a server that shows them.

The process reads one `WorkerTask` from standard input and writes a `ProjectSummary` for each
project to standard output as soon as its pages are written, both pickled. It ends with its task, so
that the memory of an analysis is returned, and when the server has ended: the next write fails.
`live_store` starts it, in a session of its own: Ctrl-C in the server's terminal does not reach it.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from kraft.regression.page_parts import PageSite, comparisons_of
from kraft.regression.project_pages import INDEX, PagesRequest, write_project
from kraft.regression.project_summary import ProjectSummary
from kraft.regression.verdict_store import load_verdicts


@dataclass(frozen=True)
class WorkerTask:
    """Projects whose pages are written, each with its `project_pages.fingerprint`."""

    request: PagesRequest
    projects: tuple[tuple[ProjectSummary, str], ...]
    folder: Path


class PageWorker:
    """The process of one task, as the server sees it."""

    def __init__(self, task: WorkerTask) -> None:
        self._log = task.folder / "worker.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "kraft.regression.page_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._task = task

    def results(self) -> Iterator[ProjectSummary]:
        """Send the task; yield each project when its pages are written.

        Ends early if the process is stopped or fails.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            with self._process.stdin as pipe:
                pickle.dump(self._task, pipe)
            for _ in self._task.projects:
                yield pickle.load(self._process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError):
            return
        finally:
            self._process.stdout.close()
            self._process.wait()

    def stop(self) -> None:
        """End the process, from any thread."""
        self._process.kill()

    @property
    def failure(self) -> str:
        """Return the last line of what a failed process reported."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        said = lines[-1] if lines else "no message"
        return f"the analysis ended with exit code {self._process.returncode}: {said}"


def main() -> int:
    # What a library prints must not mix with the results.
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as results:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        _run(pickle.load(sys.stdin.buffer), results)
    return 0


def _run(task: WorkerTask, results: IO[bytes]) -> None:
    ledger = load_verdicts(task.request.store)
    for project, generation in task.projects:
        site = PageSite(
            has_plotly_file=True,
            home=f"{INDEX}.html",
            compare=comparisons_of(project.page),
            name=project.page,
            generation=generation,
        )
        done = write_project(task.request, project, ledger, task.folder, site)
        pickle.dump(done, results)
        results.flush()


if __name__ == "__main__":
    sys.exit(main())
