"""The store of benchmark results: ingest runs, each once however often it is given, and read them.

`store_manifest` manages the manifests, `store_files` the data files.

A store is a folder::

    STORE/commits/00000001.json       manifests, one per commit
    STORE/data/<ingest>/00000.parquet points; ignored unless a manifest names the file

An ingest writes into its own folder, whose lock it holds while it runs, and then commits. If two
commit at once, the later one reloads the known runs and continues. If an ingest is killed, no
manifest names its files; the next ingest removes them.

Workers write Parquet themselves: otherwise the values that all points of a run share would be sent
to the JVM once per point. So the store must be a path that all of Spark's machines can access.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds

from kraft.errors import BenchmarkFileError, SparkError, StorageError
from kraft.regression.points import POINTS
from kraft.regression.runs import Problem
from kraft.spark.result_files import find_files, group_files
from kraft.spark.store_files import GroupResult, read_files, store_group, write_file
from kraft.spark.store_manifest import (
    CommitConflictError,
    DataFile,
    RunEntry,
    StoreState,
    clean,
    commit,
    load_state,
    sync_directory,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Bytes of JSON per task and data file: about 70,000 points.
_GROUP_BYTES = 128 << 20
#: Data files with fewer points are small; this many small files are merged into one.
_SMALL_FILE_POINTS = 50_000
_MOST_SMALL_FILES = 32
_MERGED_POINTS = 500_000
#: A folder without a lock whose ingest died is recognised by this age.
_UNLOCKED_S = 3600.0
_PROGRESS_S = 0.25


@dataclass(frozen=True)
class IngestReport:
    """Result of an ingest; each problem has a path and a reason."""

    files: int  # result files found
    bytes: int
    runs_added: int
    points_added: int
    runs_replaced: int  # known runs, given again with round values that the store lacked
    duplicate_runs: int
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


def ingest(
    spark: SparkSession | None,
    paths: Sequence[str | os.PathLike[str]],
    store: str | os.PathLike[str],
    *,
    strict: bool = False,
    ignore_node: bool = False,
    on_progress: Callable[[float], None] | None = None,
) -> IngestReport:
    """Add the runs of pytest-benchmark files to a store, which is created if it does not exist.

    ``paths`` are files, folders (all ``*.json`` below them) and globs. ``spark`` None reads in this
    process, which for a few hundred files takes less time than starting a session. ``on_progress``
    is called with the share of the work done, 0 to 1.

    Unreadable input is reported as problems and the rest is stored; a ``strict`` ingest with
    problems stores nothing and raises StrictIngestError. Runs with clocks that went back are
    problems, but are stored. Raises BenchmarkFileError if there is no file, StorageError for a path
    that is not a store.
    """
    began = time.perf_counter()
    files, problems = find_files(paths)
    if not files and not problems:
        raise BenchmarkFileError(f"no *.json in {', '.join(str(path) for path in paths)}")
    root = Path(os.path.abspath(store))
    state = load_state(root)
    with _ingest_folder(root, state) as folder:
        groups = group_files(
            files,
            most_bytes=_GROUP_BYTES,
            at_least=1 if spark is None else 2 * spark.sparkContext.defaultParallelism,
        )
        results = _read_groups(
            spark, groups, state, folder, ignore_node, on_progress or (lambda share: None)
        )
        problems += [problem for result in results for problem in result.problems]
        while True:
            change = _Change.of(results, state)
            found = problems + clock_problems(change.new, state.runs.values())
            if strict and found:
                raise StrictIngestError(found)
            if not change.new:
                break
            try:
                added = change.write(folder)
                sync_directory(root / folder)
                sync_directory(root / "data")
                state = commit(state, add=added.add, remove=added.remove, runs=added.runs)
                break
            except CommitConflictError:
                state = load_state(root)
    return IngestReport(
        files=len(files),
        bytes=sum(size for _, size in files),
        runs_added=len(change.new) - len(change.replaced),
        points_added=sum(run.points for run in change.new if run.run_id not in change.replaced),
        runs_replaced=len(change.replaced),
        duplicate_runs=change.duplicates,
        problems=found,
        seconds=time.perf_counter() - began,
    )


def open_store(store: str | os.PathLike[str]) -> StoreState:
    """Return the current state of a store, which can be sent to workers and read with `read_files`.

    Raises StorageError if there is no store.
    """
    state = load_state(store)
    if not state.number:
        raise StorageError(f"{os.fspath(store)}: this folder is not a store of results")
    return state


def read_points(spark: SparkSession, store: str | os.PathLike[str]) -> DataFrame:
    """Return all points of a store as a DataFrame of `POINTS`, read by Spark's Parquet reader."""
    from pyspark.sql.pandas.types import from_arrow_schema

    state = open_store(store)
    schema = from_arrow_schema(POINTS)
    if not state.files:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*[state.absolute(name) for name in state.files])


def read_table(
    store: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    filters: Any = None,
    categorical: bool = False,
) -> pa.Table:
    """Return points of a store without Spark; `store_files.read_files` describes the arguments."""
    return read_files(open_store(store), columns=columns, filters=filters, categorical=categorical)


def list_runs(store: str | os.PathLike[str]) -> list[RunEntry]:
    """Return the runs of a store, oldest first."""
    return sorted(open_store(store).runs.values(), key=lambda run: (run.time_us, run.run_id))


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


# ---------------------------------------------------------------------------------------------
# An ingest


@dataclass
class _Change:
    """The change of one commit, computed against one state of the store."""

    state: StoreState
    new: list[RunEntry]
    replaced: set[str]  # those of them that the store has without round values
    dropped: dict[str, set[str]]  # new data file -> unneeded runs in it
    files: dict[str, DataFile]  # new data files
    duplicates: int

    @classmethod
    def of(cls, results: Sequence[GroupResult], state: StoreState) -> _Change:
        """Select the best copy of each run, unless the store has an equally good one."""
        best: dict[str, RunEntry] = {}
        dropped: dict[str, set[str]] = {}
        duplicates = sum(result.known for result in results)
        for run in (run for result in results for run in result.runs):
            other = best.get(run.run_id) or state.runs.get(run.run_id)
            if other is not None and (other.has_values or not run.has_values):
                dropped.setdefault(run.file, set()).add(run.run_id)
                duplicates += 1
                continue
            if run.run_id in best:
                dropped.setdefault(best[run.run_id].file, set()).add(run.run_id)
                duplicates += 1
            best[run.run_id] = run
        return cls(
            state=state,
            new=list(best.values()),
            replaced=set(best) & set(state.runs),
            dropped=dropped,
            files={result.file.path: result.file for result in results if result.file},
            duplicates=duplicates,
        )

    def write(self, folder: str) -> _Written:
        """Write the additional data files that the commit needs."""
        drop = {file: set(runs) for file, runs in self.dropped.items()}
        for run_id in self.replaced:
            drop.setdefault(self.state.runs[run_id].file, set()).add(run_id)
        written = _Written(
            add=[file for name, file in self.files.items() if name not in drop],
            remove=[name for name in drop if name in self.state.files],
            runs=list(self.new),
        )
        every = StoreState(
            path=self.state.path,
            buckets=self.state.buckets,
            files=self.state.files | self.files,
            runs=self.state.runs | {run.run_id: run for run in self.new},
        )
        for name, run_ids in drop.items():
            self._rewrite(written, every, folder, [name], run_ids)
        small = [file for file in written.add if file.rows < _SMALL_FILE_POINTS]
        small += [
            file
            for name, file in self.state.files.items()
            if file.rows < _SMALL_FILE_POINTS and name not in written.remove
        ]
        if len(small) >= _MOST_SMALL_FILES:
            small.sort(key=lambda file: file.rows)
            sums = accumulate(file.rows for file in small)
            small = [file for file, sum_ in zip(small, sums, strict=True) if sum_ <= _MERGED_POINTS]
            names = [file.path for file in small]
            written.add = [file for file in written.add if file.path not in names]
            written.remove += [name for name in names if name in self.state.files]
            every.files |= {file.path: file for file in small}
            every.runs |= {run.run_id: run for run in written.runs}
            self._rewrite(written, every, folder, names, set())
        return written

    def _rewrite(
        self,
        written: _Written,
        every: StoreState,
        folder: str,
        names: list[str],
        without: set[str],
    ) -> None:
        """Merge data files into one, without the runs in ``without``.

        A run that is dropped from one file and kept in another keeps its entry, which names the
        file that is used.
        """
        table = read_files(
            every,
            names,
            filters=~ds.field("run_id").isin(sorted(without)) if without else None,
            categorical=True,
        )
        moved = [run for run in every.runs.values() if run.file in names]
        assert not any(run.run_id in without for run in moved), "an entry names a dropped copy"
        if not table.num_rows:
            assert not moved, "a run would be lost"
            return
        target = f"{folder}/{uuid4().hex[:12]}.parquet"
        file = write_file(table, every.path, target, buckets=every.buckets)
        written.add.append(file)
        runs = {run.run_id: run for run in written.runs}
        for run in moved:
            runs[run.run_id] = msgspec.structs.replace(run, file=target)
        written.runs = list(runs.values())


@dataclass
class _Written:
    add: list[DataFile]
    remove: list[str]
    runs: list[RunEntry]


@contextmanager
def _ingest_folder(root: Path, state: StoreState) -> Iterator[str]:
    """Create a folder for the data files of one ingest, locked for the length of the block.

    Removes leftovers of ingests that died at the beginning, and files that no manifest names at the
    end; a store that did not exist is not left empty.
    """
    made = not root.exists()
    folder = f"data/{uuid4().hex}"
    (root / "data").mkdir(parents=True, exist_ok=True)
    # Locked before it gets its name, so that no process sees the folder with a free lock.
    unnamed = root / f"{folder}.lock"
    with open(unnamed, "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (root / folder).mkdir()
        unnamed.rename(root / folder / ".lock")
        try:
            _remove_leftovers(root, keep=folder)
            clean(state)
            yield folder
        finally:
            named = load_state(root).files
            for file in (root / folder).glob("*.parquet"):
                if f"{folder}/{file.name}" not in named:
                    file.unlink()
            if not any(name.startswith(f"{folder}/") for name in named):
                shutil.rmtree(root / folder, ignore_errors=True)
            if made and not load_state(root).number:
                shutil.rmtree(root, ignore_errors=True)


def _remove_leftovers(root: Path, keep: str) -> None:
    """Remove the folders of ingests that died before they committed."""
    for folder in (root / "data").iterdir():
        name = f"data/{folder.name}"
        if name == keep:
            continue
        try:
            lock = open(folder / ".lock", "rb")  # noqa: SIM115  (closed below)
        except (FileNotFoundError, NotADirectoryError):
            _remove_old(folder)  # being created or removed, or its ingest died
            continue
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue  # its ingest is running
            # Loaded only now: the ingest may have committed after any earlier load.
            state = load_state(root)
            known = [*state.files, *state.removed]
            if not any(file.startswith(f"{name}/") for file in known):
                shutil.rmtree(folder, ignore_errors=True)


def _remove_old(path: Path) -> None:
    try:
        if time.time() - path.stat().st_mtime < _UNLOCKED_S:
            return
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()
    except FileNotFoundError:
        return  # another process removed it


def _read_groups(
    spark: SparkSession | None,
    groups: list[list[str]],
    state: StoreState,
    folder: str,
    ignore_node: bool,
    on_progress: Callable[[float], None],
) -> list[GroupResult]:
    """Read and store every group, in this process or in Spark's workers."""
    digests = frozenset(run.digest for run in state.runs.values())
    known = {run.run_id: run.has_values for run in state.runs.values()}
    store, buckets = state.path, state.buckets

    def read(number: int) -> GroupResult:
        return store_group(
            groups[number],
            store,
            f"{folder}/{number:05}.parquet",
            digests,
            known,
            buckets=buckets,
            ignore_node=ignore_node,
        )

    if spark is None:
        results = []
        for number in range(len(groups)):
            results.append(read(number))
            on_progress((number + 1) / len(groups))
        return results

    def read_in_worker(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                result = msgspec.json.encode(read(number))
                yield pa.RecordBatch.from_pydict({"result": [result]})

    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    if not groups:
        return []
    numbers = spark.range(0, len(groups), 1, len(groups))
    try:
        with _reporting_progress(spark, on_progress):
            rows = numbers.mapInArrow(read_in_worker, "result binary").collect()
    except (PySparkException, Py4JError) as error:
        raise SparkError(f"Spark gave up: {str(error).strip()}") from error
    return [msgspec.json.decode(row.result, type=GroupResult) for row in rows]


@contextmanager
def _reporting_progress(
    spark: SparkSession, on_progress: Callable[[float], None]
) -> Iterator[None]:
    """Report the share of finished tasks of the running stage, from a thread."""
    tracker = spark.sparkContext.statusTracker()
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(_PROGRESS_S):
            for stage_id in tracker.getActiveStageIds():
                stage = tracker.getStageInfo(stage_id)
                if stage is not None and stage.numTasks:
                    on_progress(stage.numCompletedTasks / stage.numTasks)

    watcher = threading.Thread(target=watch, name="ingest-progress", daemon=True)
    watcher.start()
    try:
        yield
    except BaseException:
        spark.sparkContext.cancelAllJobs()
        raise
    finally:
        is_over.set()
        watcher.join()
