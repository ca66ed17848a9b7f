"""The data files of a store: points as Parquet, sorted by series.

This module defines the layout of a file. The columns are those of `points.POINTS` and ``series``, a
hash of the series. Rows are sorted by this hash, the series and time, in row groups of some
thousand rows. So a range of hashes is a part of the series: reading it from all files reads little
else and returns each of its series completely. A reader divides the hashes into as many ranges as
it has tasks, whatever the number of series and files is.

The footer of a file also describes its runs (`RunEntry`), so that the runs of a store are known
without reading its points. In a file that another program rewrote, the columns say it.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import Any
from uuid import uuid4

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from numpy.typing import NDArray

from kraft.regression.points import POINTS
from kraft.regression.runs import BenchmarkRun
from kraft.regression.store_location import StoreLocation

#: The columns of a data file.
STORED = POINTS.append(pa.field("series", pa.int64(), nullable=False))
#: Hashes of series are below this.
HASH_LIMIT = 1 << 62
#: Columns that identify a series, in sort order.
_SERIES = ("suite", "benchmark", "params", "machine")
_STRINGS = [field.name for field in POINTS if pa.types.is_string(field.type)]
_ROW_GROUP_ROWS = 8_192
#: A file with fewer rows is one row group; otherwise its metadata would be larger than its data.
_SMALL_FILE_ROWS = 16_384
_RUNS = b"kraft.runs"
#: Files of one Arrow dataset, which keeps the metadata of all its files: 38 KB for a row group, so
#: that a worker would need more memory for a larger store.
_FILES_AT_ONCE = 16


class DataFile(msgspec.Struct, frozen=True):
    """One Parquet file."""

    path: str  # relative to the store
    rows: int
    bytes: int


class RunEntry(msgspec.Struct, frozen=True, array_like=True):
    """One run of a data file. New fields go to the end and have a default."""

    run_id: str
    digest: str  # hash of the result file's bytes; "" if unknown
    source: str
    machine: str
    time_us: int
    points: int
    has_values: bool
    project: str | None = None
    branch: str | None = None
    commit: str | None = None
    commit_time_us: int | None = None
    dirty: bool | None = None
    parents: list[str] | None = None

    @classmethod
    def of(cls, run: BenchmarkRun, digest: str) -> RunEntry:
        return cls(
            run_id=run.run_id,
            digest=digest,
            source=run.source,
            machine=run.machine,
            time_us=run.time_us,
            points=len(run),
            has_values=run.has_values,
            project=run.project,
            branch=run.branch,
            commit=run.commit,
            commit_time_us=run.commit_time_us,
            dirty=run.dirty,
            parents=run.parents,
        )


_decode_runs = msgspec.json.Decoder(list[RunEntry]).decode


def write_file(table: pa.Table, location: StoreLocation, runs: Sequence[RunEntry]) -> DataFile:
    """Write the points of ``runs``, in any order, as a data file with a new name.

    The table has the columns of `POINTS`, and may have others, which are kept. The file is durable
    on return, but no version of the store names it yet.
    """
    table = table.unify_dictionaries().combine_chunks()
    if "series" in table.column_names:
        table = table.drop_columns("series")
    series, order = _order(table)
    table = table.append_column(STORED.field("series"), pa.array(series)).take(pa.array(order))
    target = f"part-{uuid4().hex}.parquet"
    small = table.num_rows <= _SMALL_FILE_ROWS
    with (
        location.filesystem.open_output_stream(target) as file,
        pq.ParquetWriter(
            file,
            table.schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=[*_STRINGS, "rounds", "iterations", "dirty"],
            store_schema=False,  # readers get plain strings
        ) as writer,
    ):
        writer.write_table(table, row_group_size=_SMALL_FILE_ROWS if small else _ROW_GROUP_ROWS)
        writer.add_key_value_metadata({_RUNS: msgspec.json.encode(runs)})
    location.sync(target)
    return DataFile(target, table.num_rows, location.filesystem.get_file_info(target).size)


def runs_of_file(location: StoreLocation, file: str) -> list[RunEntry]:
    """Return the runs whose points are in a data file."""
    with location.filesystem.open_input_file(file) as source:
        metadata = pq.ParquetFile(source).metadata.metadata or {}
        if _RUNS in metadata:
            return _decode_runs(metadata[_RUNS])
        return _runs_in_columns(pq.ParquetFile(source))


def _runs_in_columns(file: pq.ParquetFile) -> list[RunEntry]:
    names = ("machine", "source", "project", "branch", "commit", "dirty", "parents")
    rows = file.read(columns=["run_id", "time", "commit_time", "values", *names])
    ids = rows["run_id"].combine_chunks().dictionary_encode()
    codes = ids.indices.to_numpy()
    _, first, counts = np.unique(codes, return_index=True, return_counts=True)
    has_values = np.zeros(len(first), bool)
    has_values[codes[rows["values"].is_valid().to_numpy()]] = True
    entries = rows.drop_columns("values").take(pa.array(first)).to_pylist()
    times = {
        name: rows[name].take(pa.array(first)).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        for name in ("time", "commit_time")
        if name in rows.column_names
    }
    commit_times = times.get("commit_time", pa.nulls(len(first)))
    return [
        RunEntry(
            run_id=entry["run_id"],
            digest="",
            time_us=times["time"][at].as_py(),
            commit_time_us=commit_times[at].as_py(),
            points=int(counts[at]),
            has_values=bool(has_values[at]),
            **{name: entry.get(name) for name in names},
        )
        for at, entry in enumerate(entries)
    ]


def read_files(
    location: StoreLocation,
    files: Sequence[str],
    *,
    columns: Sequence[str] | None = None,
    filters: Any = None,
    series: tuple[int, int] | None = None,
    schema: pa.Schema = STORED,
    categorical: bool = False,
) -> pa.Table:
    """Return points of data files.

    ``columns`` of the ``schema``, by default all of `POINTS`; a column that a file lacks is null.
    ``filters`` is an expression of pyarrow.compute. ``series`` is a range of hashes
    (`hash_ranges`), whose series are read completely. ``categorical`` returns strings as
    dictionaries. Rows are ordered by file, then by series and time.
    """
    names = list(columns) if columns is not None else POINTS.names
    if not files:
        return pa.schema([schema.field(name) for name in names]).empty_table()
    if series is not None:
        begin, end = series
        wanted = (ds.field("series") >= begin) & (ds.field("series") < end)
        filters = wanted if filters is None else wanted & filters
    read: Any = ds.ParquetFileFormat()
    if categorical:
        strings = {field.name for field in schema if pa.types.is_string(field.type)}
        read = ds.ParquetFileFormat(read_options=ds.ParquetReadOptions(dictionary_columns=strings))
        schema = pa.schema(
            [
                field.with_type(pa.dictionary(pa.int32(), pa.string()))
                if field.name in strings
                else field
                for field in schema
            ]
        )
    tables = []
    for first in range(0, len(files), _FILES_AT_ONCE):
        some = list(files[first : first + _FILES_AT_ONCE])
        dataset = ds.dataset(some, schema=schema, format=read, filesystem=location.filesystem)
        tables.append(dataset.to_table(columns=names, filter=filters))
    return pa.concat_tables(tables)


def series_hash(suite: str, benchmark: str, params: str, machine: str) -> int:
    """Return the hash of a series, equal in every file and on every machine."""
    key = "\x1f".join((suite, benchmark, params, machine)).encode()
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "little") % HASH_LIMIT


def hash_ranges(count: int) -> list[tuple[int, int]]:
    """Divide all hashes into ranges, each with its first hash and the one after its last."""
    bounds = [HASH_LIMIT * number // count for number in range(count + 1)]
    return list(pairwise(bounds))


def _order(table: pa.Table) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return each row's hash, and the order of the rows in a file."""
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
    hashes = np.array(
        [series_hash(*(words[at] for words, at in zip(texts, key, strict=True))) for key in keys],
        np.int64,
    )[of_series]
    time_us = table.column("time").combine_chunks().cast(pa.int64()).to_numpy(zero_copy_only=False)
    # `np.unique` sorts, and ravelled ranks have the sort order of the columns.
    return hashes, np.lexsort((time_us, of_series, hashes))
