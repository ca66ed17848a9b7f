"""The store of benchmark results: a Delta table of points, at its newest or an earlier version.

Any engine that reads Delta tables reads a store. This module opens versions and commits changes;
`ingest` decides what is added, `data_files` defines the files, `store_location` says where they
are.

- A commit names its data files all at once: a process that is killed at any moment leaves a
  complete version and perhaps files that no version names.
- A commit is based on one version and fails if another one exists already, whoever wrote it. So a
  writer that knows all runs of its version cannot add one twice.
- Files that a version no longer names are kept for 30 days, for readers of earlier versions.
- A store that lacks a column of `points.POINTS` gets it with the next ingest; columns that other
  programs or later versions added are kept.
"""

from __future__ import annotations

import errno
import os
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kraft.errors import MissingPackageError, StorageError
from kraft.regression.data_files import (
    STORED,
    DataFile,
    RunEntry,
    read_files,
    runs_of_file,
    write_file,
)
from kraft.regression.store_location import StoreLocation, message_of

try:
    from deltalake import CommitProperties, DeltaTable, Schema, Transaction
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
    from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions
except ImportError as error:
    raise MissingPackageError(
        f"the store of results needs deltalake: pip install 'kraft[regress]' ({error})"
    ) from None

_CONFIGURATION: dict[str, str | None] = {
    "delta.deletedFileRetentionDuration": "interval 30 days",
    "delta.logRetentionDuration": "interval 30 days",
}
#: Delta's name for a writer; two commits of one name and number conflict.
_WRITER = "kraft"
#: Data files with fewer points are small; this many small files are merged into one.
_SMALL_FILE_POINTS = 50_000
_MOST_SMALL_FILES = 32
_MERGED_POINTS = 500_000
#: The same for files of middle size. Every task of an analysis reads a part of every file, and both
#: numbers grow with the points: 400 tasks of 100 million points took 2,930 CPU seconds to read them
#: from files of 70,000 points, and 470 from files of a million. To merge a million needs 1.2 GiB.
_MIDDLE_FILE_POINTS = 500_000
_MOST_MIDDLE_FILES = 32
_MERGED_MIDDLE_POINTS = 1_000_000
#: Footers that are read at once from an object store, where each takes a round trip.
_PARALLEL_READS = 16


class CommitConflictError(Exception):
    """Another writer committed first; reload the state."""


class StoreState(msgspec.Struct):
    """A store as of one version; an immutable value that can be sent to workers."""

    location: StoreLocation
    version: int = -1  # -1 if the store does not exist
    files: dict[str, DataFile] = {}
    runs_of: dict[str, list[RunEntry]] = {}  # data file -> its runs
    schema: pa.Schema = STORED

    @property
    def points(self) -> int:
        return sum(file.rows for file in self.files.values())

    @property
    def runs(self) -> Iterable[RunEntry]:
        return (run for runs in self.runs_of.values() for run in runs)

    def without_runs(self) -> StoreState:
        """Return what a worker needs to read points."""
        return msgspec.structs.replace(self, runs_of={})

    def read(
        self,
        *,
        columns: Sequence[str] | None = None,
        filters: Any = None,
        series: tuple[int, int] | None = None,
    ) -> pa.Table:
        """Return points of this version; `data_files.read_files` describes the arguments."""
        return read_files(
            self.location, list(self.files), columns=columns, filters=filters, series=series
        )


def open_store(store: str | os.PathLike[str], version: int | str | None = None) -> StoreState:
    """Return the newest state of a store, or the one at a version or time.

    ``version`` is a number, or an ISO 8601 date or time (UTC by default): the newest version that
    existed then. Raises StorageError if there is no store, or no such version.
    """
    state = load_state(StoreLocation.of(store), version)
    if state.version < 0:
        raise StorageError(
            f"{os.fspath(store)}: this folder is not a store of results; fill it with "
            f"`kraft bench ingest FILES --store {os.fspath(store)}`"
        )
    return state


def newest_version(store: str | os.PathLike[str]) -> int:
    """Return the number of a store's newest version, -1 without a store; takes milliseconds.

    Raises StorageError if the table cannot be read.
    """
    location = StoreLocation.of(store)
    try:
        return DeltaTable(location.uri).version()
    except TableNotFoundError:
        return -1
    except (DeltaError, OSError) as error:
        raise StorageError(f"{location.uri}: {error}") from None


def list_runs(store: str | os.PathLike[str], version: int | str | None = None) -> list[RunEntry]:
    """Return the runs of a store, oldest first."""
    return sorted(open_store(store, version).runs, key=lambda run: (run.time_us, run.run_id))


def read_table(
    store: str | os.PathLike[str],
    *,
    version: int | str | None = None,
    columns: Sequence[str] | None = None,
    filters: Any = None,
) -> pa.Table:
    """Return points of a store; `data_files.read_files` describes the arguments."""
    return open_store(store, version).read(columns=columns, filters=filters)


def load_state(
    location: StoreLocation, version: int | str | None = None, known: StoreState | None = None
) -> StoreState:
    """Return a store at a version, by default the newest; version -1 if it does not exist.

    The runs of files in ``known``, another version of this store, are not read again. Raises
    StorageError for a table that is damaged, has another layout, or uses features of Delta that
    this module does not read, and for a file and an unknown version.
    """
    if location.is_local and os.path.exists(location.uri) and not os.path.isdir(location.uri):
        raise StorageError(f"{location.uri}: this is a file; a store of results is a folder")
    try:
        table = _table_at(location, version)
    except TableNotFoundError:
        if location.is_local and Path(location.uri, "commits", "00000001.json").exists():
            raise StorageError(
                f"{location.uri}: a store of an earlier kraft; copy it to a new one with "
                f"`kraft bench convert {location.uri} --store NEW`"
            ) from None
        return StoreState(location)
    except (DeltaError, OSError) as error:
        at = "" if version is None else f" at version {version}"
        if isinstance(version, int) or (version or "").isdecimal():
            newest = DeltaTable(location.uri).version()
            if int(version or 0) > newest:
                raise StorageError(
                    f"{location.uri}: the store has no version {version}; the newest is {newest}"
                ) from None
        raise StorageError(f"{location.uri}{at}: {message_of(error)}") from None
    _check(location, table)
    files = {}
    actions = pa.table(table.get_add_actions(flatten=True))
    for path, size, rows in zip(
        *(actions[name].to_pylist() for name in ("path", "size_bytes", "num_records")), strict=True
    ):
        files[path] = DataFile(path, rows, size)
    read = {} if known is None else known.runs_of
    runs_of = {path: read[path] for path in files if path in read}
    rest = [path for path in files if path not in read]
    if location.is_local:
        runs_of |= {path: runs_of_file(location, path) for path in rest}
    else:
        with ThreadPoolExecutor(_PARALLEL_READS) as pool:
            found = pool.map(lambda path: runs_of_file(location, path), rest)
            runs_of |= dict(zip(rest, found, strict=True))
    for path in files:
        if files[path].rows is None:  # another program wrote it, without statistics
            rows = sum(run.points for run in runs_of[path])
            files[path] = msgspec.structs.replace(files[path], rows=rows)
    return StoreState(location, table.version(), files, runs_of, _schema_of(table))


def commit(
    state: StoreState, *, add: Sequence[DataFile], remove: Collection[str], new: bool = True
) -> None:
    """Commit data files and the removal of others, atomically and durably.

    ``state`` is the version on which the change is based. ``new`` is whether the points change:
    false if the files contain the same points in another arrangement. Raises CommitConflictError
    if a newer version exists.
    """
    now = int(time.time() * 1000)
    adds = [
        AddAction(
            path=file.path,
            size=file.bytes,
            partition_values={},
            modification_time=now,
            data_change=new,
            stats=f'{{"numRecords":{file.rows}}}',
        )
        for file in add
    ]
    removes = [RemoveAction(name, new, now, state.files[name].bytes, {}) for name in remove]
    version = state.version + 1
    properties = CommitProperties(
        # No retry by deltalake: it would add the files to a version whose runs nobody compared.
        max_commit_retries=0,
        app_transactions=[Transaction(_WRITER, version)],
    )
    uri = state.location.uri
    if version == 0:
        _or_conflict(
            state,
            lambda: create_table_with_add_actions(
                uri,
                Schema.from_arrow(STORED),
                adds,
                configuration=_CONFIGURATION,
                commit_properties=properties,
            ),
        )
    else:
        table = DeltaTable(uri, version=state.version)
        _or_conflict(
            state,
            lambda: table.create_write_transaction(
                [*adds, *removes],
                "append",
                Schema.from_arrow(state.schema),
                commit_properties=properties,
            ),
        )
    state.location.sync(f"_delta_log/{version:020}.json")


def add_missing_columns(state: StoreState) -> None:
    """Add the columns of this kraft that a store lacks; does nothing if it has all.

    Raises CommitConflictError if another writer committed meanwhile.
    """
    missing = [field for field in STORED if field.name not in state.schema.names]
    if missing:
        table = DeltaTable(state.location.uri, version=state.version)
        fields = Schema.from_arrow(pa.schema([field.with_nullable(True) for field in missing]))
        _or_conflict(state, lambda: table.alter.add_columns(fields.fields))


def merge_small_files(state: StoreState) -> None:
    """Merge the small files of a store, and those of middle size, while there are many; then remove
    the files of expired versions.

    Stops if another writer commits meanwhile: its own merge follows.
    """
    has_merged = False
    while merged := _files_to_merge(state):
        file = rewritten(state, merged)
        assert file is not None, "small files without runs"
        try:
            commit(state, add=[file], remove=merged, new=False)
        except CommitConflictError:
            # The commit may have succeeded, and only its answer been lost.
            if file.path not in load_state(state.location, known=state).files:
                state.location.remove([file.path])
            return
        has_merged = True
        state = load_state(state.location, known=state)
    if has_merged:
        table = DeltaTable(state.location.uri)
        if table.vacuum(full=True):  # a dry run: a vacuum without work would still commit
            table.vacuum(full=True, dry_run=False)


def _files_to_merge(state: StoreState) -> list[str]:
    for below, most, points in (
        (_SMALL_FILE_POINTS, _MOST_SMALL_FILES, _MERGED_POINTS),
        (_MIDDLE_FILE_POINTS, _MOST_MIDDLE_FILES, _MERGED_MIDDLE_POINTS),
    ):
        files = sorted(
            (file for file in state.files.values() if file.rows < below), key=lambda file: file.rows
        )
        if len(files) >= most:
            sums = accumulate(file.rows for file in files)
            return [file.path for file, sum_ in zip(files, sums, strict=True) if sum_ <= points]
    return []


def rewritten(
    state: StoreState, files: Sequence[str], without: Collection[str] = ()
) -> DataFile | None:
    """Merge data files into one, without some runs; None if no run is left."""
    kept = [run for name in files for run in state.runs_of[name] if run.run_id not in without]
    if not kept:
        return None
    table = read_files(
        state.location,
        files,
        columns=state.schema.names,
        filters=~pc.field("run_id").isin(sorted(without)) if without else None,
        schema=state.schema,
        categorical=True,
    )
    return write_file(table, state.location, kept)


def _or_conflict(state: StoreState, change: Callable[[], object]) -> None:
    """Make a commit; raise CommitConflictError if it fails and a newer version exists.

    Raises StorageError for another failure: a full disk, or a file system without hard links.
    """
    try:
        change()
    except (CommitFailedError, DeltaError, OSError) as error:
        try:
            newest = DeltaTable(state.location.uri).version()
        except TableNotFoundError:
            newest = -1
        if newest > state.version:
            raise CommitConflictError from None
        if state.location.is_local and not _has_hard_links(state.location.uri):
            raise StorageError(
                f"{state.location.uri}: this file system has no hard links, by which one of two "
                "writers wins; use a local file system, NFS or an object store"
            ) from None
        raise StorageError(
            f"{state.location.uri}: the commit failed: {message_of(error)}"
        ) from None


def _has_hard_links(folder: str) -> bool:
    try:
        with tempfile.TemporaryDirectory(prefix=".kraft-", dir=folder) as place:
            file = Path(place, "file")
            file.touch()
            os.link(file, Path(place, "link"))
    except OSError as error:
        return error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
    return True


def _table_at(location: StoreLocation, version: int | str | None) -> DeltaTable:
    if version is None or isinstance(version, int):
        return DeltaTable(location.uri, version=version)
    if version.isdecimal():
        return DeltaTable(location.uri, version=int(version))
    table = DeltaTable(location.uri)
    at = _time_of(version)
    # Without this check a time before the first version would mean the first version.
    if at.timestamp() * 1000 < (table.metadata().created_time or 0):
        raise StorageError(f"{location.uri}: the store did not exist at {at.isoformat()}")
    table.load_as_version(at)
    return table


def _time_of(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise StorageError(
            f"{text!r} is neither a version (12) nor a date (2026-11-21, 2026-11-21T14:30)"
        ) from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _check(location: StoreLocation, table: DeltaTable) -> None:
    protocol = table.protocol()
    if protocol.min_reader_version > 1:
        features = ", ".join(protocol.reader_features or []) or "column mapping"
        raise StorageError(
            f"{location.uri}: this Delta table uses {features}, which kraft does not read"
        )
    names = {field.name for field in table.schema().fields}
    missing = sorted({"run_id", "series", "time", "values"} - names)
    if missing:
        raise StorageError(
            f"{location.uri}: a Delta table, but not a store of results: it has no column "
            f"{missing[0]!r}"
        )


def _schema_of(table: DeltaTable) -> pa.Schema:
    return pa.schema(table.schema().to_arrow())
