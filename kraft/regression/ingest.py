"""Ingest: add the runs of result files to a store, each once however often it is given.

Tasks read result files and write data files, which no version of the store names yet. Then one
commit names those with new runs. If another writer commits first, the runs are compared with its
version and the commit is repeated. If an ingest is killed, its files are never named; a later
ingest removes them after 30 days.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

import msgspec

from kraft.errors import BenchmarkFileError
from kraft.regression.data_files import DataFile, RunEntry, write_file
from kraft.regression.result_files import find_files, group_files
from kraft.regression.results import read_run
from kraft.regression.runs import BenchmarkRun, Problem, points_table
from kraft.regression.store import (
    CommitConflictError,
    StoreState,
    add_missing_columns,
    commit,
    load_state,
    merge_small_files,
    rewritten,
)
from kraft.regression.store_location import StoreLocation
from kraft.regression.tasks import IN_PROCESS, Progress, TaskRunner, ignore_progress

#: Bytes of JSON per task and data file: about 70,000 points.
_GROUP_BYTES = 128 << 20


@dataclass(frozen=True)
class IngestReport:
    """Result of an ingest; each problem has a path and a reason."""

    files: int  # result files found
    bytes: int
    runs_added: int
    points_added: int
    runs_replaced: int  # known runs, given again with round values that the store lacked
    duplicate_runs: int
    without_value: int = 0  # benchmarks that another tool skipped, or whose code failed
    problems: list[Problem] = field(default_factory=list)
    seconds: float = 0.0


class StrictIngestError(BenchmarkFileError):
    """A strict ingest found problems and stored nothing; `problems` are all of them."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = list(problems)
        first = problems[0]
        more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
        super().__init__(
            f"{first.path}: {first.reason}{more}; nothing was stored because of --strict"
        )


class StagedRuns(msgspec.Struct):
    """Runs in a data file that no version of the store names yet."""

    runs: list[RunEntry]
    file: DataFile | None
    known: int = 0  # result files whose run is already in the store
    without_value: int = 0
    problems: list[Problem] = []


def ingest(
    paths: Sequence[str | os.PathLike[str]],
    store: str | os.PathLike[str],
    *,
    strict: bool = False,
    ignore_node: bool = False,
    tasks: TaskRunner = IN_PROCESS,
    on_progress: Progress = ignore_progress,
) -> IngestReport:
    """Add the runs of pytest-benchmark files to a store, which is created if it does not exist.

    ``paths`` are files, folders (all ``*.json`` below them) and globs. ``tasks`` reads them: this
    process by default, which for a few hundred files takes less time than starting Spark; all its
    machines need access to the paths and the store.

    Unreadable input is reported as problems and the rest is stored; a ``strict`` ingest with
    problems stores nothing and raises StrictIngestError. Runs with clocks that went back are
    problems, but are stored. Raises BenchmarkFileError if there is no file, StorageError for a path
    that is not a store.
    """
    began = time.perf_counter()
    files, problems = find_files(paths)
    if not files and not problems:
        raise BenchmarkFileError(f"no *.json in {', '.join(str(path) for path in paths)}")
    location = StoreLocation.of(store)
    state = load_state(location)
    groups = group_files(files, most_bytes=_GROUP_BYTES, at_least=tasks.wanted_tasks)
    digests = frozenset(run.digest for run in state.runs)
    known = {run.run_id: run.has_values for run in state.runs}

    def read(group: Sequence[str]) -> list[StagedRuns]:
        return [_stage(group, location, digests, known, ignore_node=ignore_node)]

    with staging_directory(location):
        staged = tasks.run(read, groups, on_progress)
        problems += [problem for each in staged for problem in each.problems]
        added = add_staged(staged, state, problems, strict=strict)
    return IngestReport(
        files=len(files),
        bytes=sum(size for _, size in files),
        runs_added=len(added.runs) - len(added.replaced),
        points_added=sum(run.points for run in added.runs if run.run_id not in added.replaced),
        runs_replaced=len(added.replaced),
        duplicate_runs=added.duplicates,
        without_value=sum(each.without_value for each in staged),
        problems=added.problems,
        seconds=time.perf_counter() - began,
    )


@dataclass(frozen=True)
class AddedRuns:
    """What a commit added."""

    runs: list[RunEntry]
    replaced: set[str]  # ids of those that replaced stored ones without round values
    duplicates: int
    problems: list[Problem]


def add_staged(
    staged: Sequence[StagedRuns],
    state: StoreState,
    problems: Sequence[Problem] = (),
    *,
    strict: bool = False,
) -> AddedRuns:
    """Commit the staged runs that the store lacks; remove the files that the commit does not need.

    ``state`` is the version that the caller knows. The problems of the result are the given ones
    and those of the clocks. Raises StrictIngestError if ``strict`` and there are any.
    """
    location = state.location
    written = {each.file.path for each in staged if each.file is not None}
    try:
        while True:
            change = _Change.of(staged, state)
            found = [*problems, *clock_problems(change.new, state.runs)]
            if strict and found:
                raise StrictIngestError(found)
            if not change.new:
                break
            try:
                if state.version >= 0:
                    add_missing_columns(state)
                add, remove = change.files(written)
                commit(state, add=add, remove=remove)
            except CommitConflictError:
                state = load_state(location, known=state)
                if written & state.files.keys():
                    break  # the commit succeeded, and only its answer was lost
                continue
            break
    finally:
        if written:
            state = load_state(location, known=state)
            location.remove(sorted(written - state.files.keys()))
    if change.new:
        merge_small_files(state)
    return AddedRuns(change.new, change.replaced, change.duplicates, found)


def clock_problems(new: Iterable[RunEntry], stored: Iterable[RunEntry]) -> list[Problem]:
    """Return problems for runs older than their commit, or not in the order of the commits.

    Histories are ordered by time, so the second kind also indicates a wrong order, for example if
    old commits were measured after new ones.
    """
    new = list(new)
    problems = [
        Problem(run.source, "the run is older than its commit: a clock went back")
        for run in new
        if run.commit_time_us is not None and run.time_us < run.commit_time_us
    ]
    fresh = {run.run_id for run in new}
    lines: dict[tuple[str, str | None, str | None], list[RunEntry]] = {}
    for run in [*(run for run in stored if run.run_id not in fresh), *new]:
        if run.commit_time_us is not None:
            lines.setdefault((run.machine, run.project, run.branch), []).append(run)
    for line in lines.values():
        line.sort(key=lambda run: (run.commit_time_us, run.time_us))
        newest = None
        back = []
        for run in line:
            if newest is None or run.time_us >= newest.time_us:
                newest = run
            elif run.commit != newest.commit and (run.run_id in fresh or newest.run_id in fresh):
                back.append((run, newest))
        if back:
            run, newest = back[0]
            count = f" ({len(back)} runs of {run.machine} are)" if len(back) > 1 else ""
            problems.append(
                Problem(
                    run.source,
                    f"the run is older than that of an earlier commit, {newest.source}{count}: "
                    "a clock went back, or old commits were measured late",
                )
            )
    return problems


@dataclass
class _Change:
    """The change of one commit, computed against one state of the store."""

    state: StoreState
    new: list[RunEntry]
    replaced: set[str]  # those of them that the store has without round values
    dropped: dict[str, set[str]]  # data file, staged or of the store -> runs to remove from it
    staged: StoreState  # the staged files and their runs
    duplicates: int

    @classmethod
    def of(cls, staged: Sequence[StagedRuns], state: StoreState) -> _Change:
        """Select the best copy of each run, unless the store has an equally good one."""
        files = {each.file.path: each.file for each in staged if each.file is not None}
        runs_of = {each.file.path: each.runs for each in staged if each.file is not None}
        stored = {run.run_id: (run, name) for name, runs in state.runs_of.items() for run in runs}
        best: dict[str, tuple[RunEntry, str]] = {}
        dropped: dict[str, set[str]] = {}
        duplicates = sum(each.known for each in staged)
        for name, run in ((name, run) for name, runs in runs_of.items() for run in runs):
            other = best.get(run.run_id) or stored.get(run.run_id)
            if other is not None and (other[0].has_values or not run.has_values):
                dropped.setdefault(name, set()).add(run.run_id)
                duplicates += 1
                continue
            if other is not None:
                dropped.setdefault(other[1], set()).add(run.run_id)
                duplicates += run.run_id in best
            best[run.run_id] = run, name
        return cls(
            state=state,
            new=[run for run, _ in best.values()],
            replaced=best.keys() & stored.keys(),
            dropped=dropped,
            staged=msgspec.structs.replace(state, files=files, runs_of=runs_of),
            duplicates=duplicates,
        )

    def files(self, written: set[str]) -> tuple[list[DataFile], list[str]]:
        """Return the data files to add and the names of those to remove.

        Rewrites the files from which runs are dropped, and adds the names to ``written``.
        """
        add = [file for name, file in self.staged.files.items() if name not in self.dropped]
        for name, run_ids in self.dropped.items():
            source = self.staged if name in self.staged.files else self.state
            file = rewritten(source, [name], without=run_ids)
            if file is not None:
                written.add(file.path)
                add.append(file)
        return add, [name for name in self.dropped if name in self.state.files]


def _stage(
    paths: Sequence[str],
    location: StoreLocation,
    known_digests: Collection[str],
    known_runs: dict[str, bool],
    *,
    ignore_node: bool,
) -> StagedRuns:
    """Read result files and write one data file with their new runs.

    ``known_runs`` maps the store's runs to whether they have round values; a file with a known run
    is skipped unless it adds missing round values.
    """
    runs: dict[str, tuple[BenchmarkRun, str]] = {}
    problems: list[Problem] = []
    known = without_value = 0
    with _garbage_collection_disabled():
        for path in paths:
            try:
                data = Path(path).read_bytes()
                digest = blake2b(data, digest_size=16).hexdigest()
                if digest in known_digests:
                    known += 1
                    continue
                run = read_run(data, path, ignore_node=ignore_node)
            except BenchmarkFileError as error:
                problems.append(Problem(path, str(error).removeprefix(f"{path}: ")))
                continue
            except OSError as error:
                problems.append(Problem(path, f"cannot be read: {error.strerror or error}"))
                continue
            has_values = known_runs.get(run.run_id)
            if has_values is not None and (has_values or not run.has_values):
                known += 1
                continue
            problems += run.problems
            without_value += run.without_value
            if not len(run):
                continue
            before = runs.get(run.run_id)
            if before is not None:
                known += 1
                if before[0].has_values or not run.has_values:
                    continue
            runs[run.run_id] = run, digest
        entries = [RunEntry.of(run, digest) for run, digest in runs.values()]
        file = None
        if runs:
            table = points_table([run for run, _ in runs.values()])
            file = write_file(table, location, entries)
    return StagedRuns(entries, file, known, without_value, problems)


@contextmanager
def staging_directory(location: StoreLocation) -> Iterator[None]:
    """Make the directory of a store for staged files; remove it if it stays empty."""
    if not location.is_local:
        yield
        return
    os.makedirs(location.uri, exist_ok=True)
    try:
        yield
    finally:
        # It is not empty if it contains a store, or if another ingest writes to it.
        with suppress(OSError):
            os.rmdir(location.uri)


@contextmanager
def _garbage_collection_disabled() -> Iterator[None]:
    """Disable garbage collection: with millions of floats and no cycles it doubles the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
