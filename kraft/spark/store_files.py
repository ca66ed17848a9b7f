"""The data files of a store: points as Parquet, in buckets of series, sorted.

This module defines the layout of a file. The columns are those of `points.POINTS` and ``bucket``, a
hash of the series. Rows are sorted by bucket, series and time, and row groups of large files never
mix buckets: reading one bucket of all files reads little else and returns every series in it
completely. So an analysis of any size needs no shuffle, with one task per bucket.

Runs in Spark's workers and without Spark.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from numpy.typing import NDArray

from kraft.errors import BenchmarkFileError
from kraft.regression.points import POINTS
from kraft.regression.results import read_run
from kraft.regression.runs import BenchmarkRun, Problem, points_table
from kraft.spark.store_manifest import DataFile, RunEntry, StoreState

#: The columns of a data file.
STORED = POINTS.append(pa.field("bucket", pa.int32(), nullable=False))
#: Columns that identify a series, in sort order.
_SERIES = ("suite", "benchmark", "params", "machine")
_STRINGS = [field.name for field in POINTS if pa.types.is_string(field.type)]
#: A file with fewer rows is one row group; otherwise its metadata would be larger than its data.
_SMALL_FILE_ROWS = 16_384


class GroupResult(msgspec.Struct):
    """Result of storing a group of result files."""

    runs: list[RunEntry]
    file: DataFile | None
    known: int  # files whose run is already in the store
    problems: list[Problem]


def store_group(
    paths: Sequence[str],
    store: str,
    target: str,
    known_digests: Collection[str],
    known_runs: dict[str, bool],
    *,
    buckets: int,
    ignore_node: bool,
) -> GroupResult:
    """Read result files and write one data file, ``target`` relative to the store; no manifest
    names it yet.

    ``known_runs`` maps the store's runs to whether they have round values; a file with a known run
    is skipped unless it adds missing round values.
    """
    runs: dict[str, tuple[BenchmarkRun, str]] = {}
    problems: list[Problem] = []
    known = 0
    with _garbage_collection_disabled():
        for path in paths:
            try:
                with open(path, "rb") as file:
                    data = file.read()
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
            if not len(run):
                continue
            before = runs.get(run.run_id)
            if before is not None:
                known += 1
                if before[0].has_values or not run.has_values:
                    continue
            runs[run.run_id] = run, digest
        written = None
        if runs:
            table = points_table([run for run, _ in runs.values()])
            written = write_file(table, store, target, buckets=buckets)
    entries = [_entry(run, digest, target) for run, digest in runs.values()]
    return GroupResult(entries, written, known, problems)


def write_file(table: pa.Table, store: str, target: str, *, buckets: int) -> DataFile:
    """Write points, in any order, as a data file; it is durable on return."""
    table = table.unify_dictionaries().combine_chunks()
    bucket, order = _order(table, buckets)
    table = table.select(POINTS.names).append_column(STORED.field("bucket"), pa.array(bucket))
    table = table.take(pa.array(order))
    path = os.path.join(store, target)
    ends = [table.num_rows]
    if table.num_rows > _SMALL_FILE_ROWS:
        found = np.searchsorted(bucket[order], np.arange(buckets), side="right")
        ends = [int(end) for end in found]
    with open(path, "wb") as file:
        with pq.ParquetWriter(
            file,
            table.schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=[*_STRINGS, "rounds", "iterations", "dirty", "bucket"],
            store_schema=False,  # readers get plain strings
        ) as writer:
            begin = 0
            for end in ends:
                if end > begin:
                    writer.write_table(table.slice(begin, end - begin))
                begin = end
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
    return DataFile(target, table.num_rows, size)


def read_files(
    state: StoreState,
    files: Sequence[str] | None = None,
    *,
    columns: Sequence[str] | None = None,
    filters: Any = None,
    bucket: int | None = None,
    categorical: bool = False,
) -> pa.Table:
    """Return points of a store, by default of all its files.

    ``columns`` of `POINTS`, by default all. ``filters`` is an expression of pyarrow.compute.
    ``bucket`` selects the series of one bucket, completely. ``categorical`` returns strings as
    dictionaries. Rows are ordered by file, then by series and time.
    """
    names = list(columns) if columns is not None else POINTS.names
    paths = [state.absolute(name) for name in (state.files if files is None else files)]
    if not paths:
        return pa.schema([POINTS.field(name) for name in names]).empty_table()
    if bucket is not None:
        wanted = ds.field("bucket") == bucket
        filters = wanted if filters is None else wanted & filters
    read: Any = ds.ParquetFileFormat()
    schema = STORED
    if categorical:
        read = ds.ParquetFileFormat(
            read_options=ds.ParquetReadOptions(dictionary_columns=set(_STRINGS))
        )
        schema = pa.schema(
            [
                field.with_type(pa.dictionary(pa.int32(), pa.string()))
                if field.name in _STRINGS
                else field
                for field in STORED
            ]
        )
    return ds.dataset(paths, schema=schema, format=read).to_table(columns=names, filter=filters)


def bucket_of(suite: str, benchmark: str, params: str, machine: str, *, buckets: int) -> int:
    """Return a series' bucket; equal in every file and on every machine."""
    key = "\x1f".join((suite, benchmark, params, machine)).encode()
    return int.from_bytes(blake2b(key, digest_size=4).digest(), "little") % buckets


def _entry(run: BenchmarkRun, digest: str, target: str) -> RunEntry:
    return RunEntry(
        run_id=run.run_id,
        digest=digest,
        source=run.source,
        machine=run.machine,
        time_us=run.time_us,
        points=len(run),
        has_values=run.has_values,
        file=target,
        project=run.project,
        branch=run.branch,
        commit=run.commit,
        commit_time_us=run.commit_time_us,
        dirty=run.dirty,
        parents=run.parents,
    )


def _order(table: pa.Table, buckets: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return each row's bucket, and the order of the rows in a file."""
    ranks = []
    texts = []
    for name in _SERIES:
        column = table.column(name).combine_chunks()
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        words = np.array(column.dictionary.to_pylist(), dtype=object)
        order = np.argsort(words)
        rank = np.empty(len(words), np.int64)
        rank[order] = np.arange(len(words))
        ranks.append(rank[column.indices.to_numpy(zero_copy_only=False)])
        texts.append(words[order])
    sizes = tuple(max(len(words), 1) for words in texts)
    series, of_series = np.unique(np.ravel_multi_index(ranks, sizes), return_inverse=True)
    keys = zip(*np.unravel_index(series, sizes), strict=True)
    bucket_of_series = np.array(
        [
            bucket_of(*(words[at] for words, at in zip(texts, key, strict=True)), buckets=buckets)
            for key in keys
        ],
        np.int32,
    )
    bucket = bucket_of_series[of_series]
    time = table.column("time").combine_chunks().cast(pa.int64()).to_numpy(zero_copy_only=False)
    # `np.unique` sorts, and ravelled ranks have the sort order of the columns.
    return bucket, np.lexsort((time, of_series, bucket))


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
