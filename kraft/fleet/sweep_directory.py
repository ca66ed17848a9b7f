"""The directory of a sweep: which runs have finished, and their files.

============================  =====================================================================
``sweep.json``                what all runs share (`SweepSettings.as_dict`)
``runs/NAME/``                the files of a finished run, as ``kraft lab fleet --out`` writes them,
                              and ``report.json``
``failed/NAME/``              ``error.txt`` and the files of a run that failed the last time
``tables/TABLE/NAME.parquet`` the rows of a finished run
``laws.json``                 the scaling laws of all finished runs
``scaling.html``              the same as a page
``benchmark.json``            the measures in pytest-benchmark's format, for ``kraft bench ingest``
============================  =====================================================================

A run is finished once its directory is in ``runs``, where it comes whole, by a rename. All other
files follow from these. One process at a time writes to a sweep.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kraft.errors import InvalidRequestError, StorageError
from kraft.fleet.sweep_grid import SweepSettings, SweptRun
from kraft.fleet.swept_run import SweptRunOutcome, SweptRunResult

SWEEP_FILE = "sweep.json"
RUNS, FAILED_RUNS, TABLES = "runs", "failed", "tables"
LAWS_FILE, PAGE_FILE, SWEEP_BENCHMARK_FILE = "laws.json", "scaling.html", "benchmark.json"
#: Holds the files of a run until they are complete.
_INCOMPLETE = "incomplete"


class SweepDirectory:
    """The files of a sweep, locked for this process. A context manager.

    Raises StorageError for a directory that cannot be used, InvalidRequestError for one of another
    sweep, or with other files.
    """

    def __init__(self, path: Path, settings: SweepSettings) -> None:
        self.path = path.resolve()
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise StorageError(f"cannot use {path}: {error}") from None
        try:
            self._lock()
            self._check(settings.as_dict())
        except BaseException:
            os.close(self._fd)
            raise

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StorageError(
                f"{self.path} is in use by another sweep: wait for its end, or name another "
                "directory (--out)"
            ) from None

    def _check(self, wanted: Mapping[str, Any]) -> None:
        """Write ``sweep.json``, or compare it with this sweep."""
        path = self.path / SWEEP_FILE
        if not path.exists():
            if any(self.path.iterdir()):
                raise InvalidRequestError(
                    f"{self.path} is not empty and holds no sweep: name a new directory (--out)"
                )
            _write(path, wanted)
            return
        try:
            found = json.loads(path.read_bytes())
        except ValueError as error:
            raise StorageError(f"{path}: not JSON: {error}") from None
        known = found if isinstance(found, dict) else {}
        names = [name for name, value in wanted.items() if known.get(name) != value]
        if names:
            raise InvalidRequestError(
                f"{self.path} holds a sweep with another {' and '.join(names)}: give the same "
                f"options ({path}), or name a new directory (--out)"
            )

    def finished(self) -> frozenset[str]:
        """Return the names of the finished runs."""
        folder = self.path / RUNS
        return frozenset(each.name for each in folder.iterdir()) if folder.is_dir() else frozenset()

    def left(self, runs: Sequence[SweptRun]) -> list[SweptRun]:
        """Return the runs that have not finished, in their order."""
        finished = self.finished()
        return [run for run in runs if run.name not in finished]

    def run_directory(self, name: str) -> Path:
        """Return the directory of a run once it has finished."""
        return self.path / RUNS / name

    def failed_directory(self, name: str) -> Path:
        """Return the directory of a run that has failed."""
        return self.path / FAILED_RUNS / name

    def table_directory(self, table: str) -> Path:
        """Return the directory of a table's files, created if it does not exist."""
        folder = self.path / TABLES / table
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def keep(self, result: SweptRunResult) -> None:
        """Keep the files of a run that has ended, and so mark it as finished or failed."""
        name = result.run.name
        fresh = self.path / _INCOMPLETE
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        for file, data in result.files.items():
            (fresh / file).write_bytes(data)
        is_finished = result.outcome is SweptRunOutcome.FINISHED
        shutil.rmtree(self.failed_directory(name), ignore_errors=True)
        place = self.run_directory(name) if is_finished else self.failed_directory(name)
        place.parent.mkdir(exist_ok=True)
        fresh.rename(place)

    def write_document(self, name: str, document: object) -> None:
        """Write a JSON document of all runs."""
        _write(self.path / name, document)

    def write_text(self, name: str, text: str) -> None:
        """Write a page of all runs."""
        _replace(self.path / name, text)

    def close(self) -> None:
        """Remove what is incomplete and give up the lock."""
        shutil.rmtree(self.path / _INCOMPLETE, ignore_errors=True)
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _write(path: Path, document: object) -> None:
    _replace(path, json.dumps(document, indent=1) + "\n")


def _replace(path: Path, text: str) -> None:
    """Write a file; a reader sees the old one or the new one."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)
