"""``spark.read.format("pytest-benchmark")``: results of pytest-benchmark as points in Spark.

This module is the data source and its stream over a watched folder; `regression.results` parses the
files. The source returns the content of all files: a run that was saved twice appears twice;
`store` removes duplicates. ``load`` accepts a file, a folder (all ``*.json`` below it), a glob, or
a list of them. A ``.schema(...)`` with fewer columns avoids sending the others to the JVM;
``machine_info`` alone is most of the bytes.

Options:

``mode``         ``FAILFAST`` (default): unreadable input fails the query; ``PERMISSIVE``: it is
                 omitted
``table``        ``points`` (default), the schema `points.POINTS`; ``problems``: path and reason of
                 all input that ``PERMISSIVE`` omits
``pushdown``     ``true`` filters runs and points before they are built; only for a DataFrame that
                 is loaded for one query (`source_options.takes_filters`)
``ignoreNode``   ``true`` ignores the host name when it identifies machines
``maxFilesPerTrigger``, ``settleSeconds``  for streams: files per batch at most; seconds (60)
                 without a change after which an incomplete file counts as damaged

A stream reads each file once, by its path. Its offset is the set of files read so far, eleven
characters per file, so that no file is missed or read twice, whatever the clocks, modification
times and restarts of the query. An incomplete file is not complete JSON and is read later.
"""

from __future__ import annotations

import json
import os
import time
from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter
from pyspark.sql.datasource import InputPartition as SparkPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from kraft.errors import BenchmarkFileError, InvalidRequestError
from kraft.regression.points import POINTS
from kraft.regression.result_files import find_files, group_files
from kraft.regression.results import read_run
from kraft.regression.runs import BenchmarkRun, Problem
from kraft.spark.pushdown import Pushdown
from kraft.spark.source_options import (
    FAILFAST,
    PERMISSIVE,
    arrow_schema,
    flag_of,
    mode_of,
    number_of,
    paths_of,
    refuse_unknown,
    takes_filters,
)

OPTIONS = ("ignoreNode", "maxFilesPerTrigger", "mode", "pushdown", "settleSeconds", "table")

PROBLEMS = pa.schema([("path", pa.string()), ("reason", pa.string())])

#: The columns whose filters this source evaluates: the columns that all points of a run share,
#: known before a row is built, and the columns that name a point.
_OF_RUN = {
    name: POINTS.field(name).type
    for name in ("run_id", "machine", "project", "branch", "commit", "dirty", "version", "source")
}
_TIMES = {name: POINTS.field(name).type for name in ("time", "commit_time")}
_OF_POINT = {name: POINTS.field(name).type for name in ("suite", "benchmark", "params", "group")}
_GROUP_BYTES = 32 << 20
_LEAST_GROUPS = 8
_MOST_PROBLEM_ROWS = 4096
_TOKEN_LENGTH = 11


@dataclass(frozen=True)
class _Settings:
    paths: tuple[str, ...]
    mode: str
    gives_problems: bool
    ignore_node: bool
    max_files: int | None
    settle_s: int

    @classmethod
    def of(cls, options: Mapping[str, str]) -> _Settings:
        """Read the options. Raises InvalidRequestError for unknown options and invalid values."""
        refuse_unknown("pytest-benchmark", options, OPTIONS)
        takes_filters(options)  # of a stream, too, the option is true or false
        table = options.get("table", "points").lower()
        if table not in ("points", "problems"):
            raise InvalidRequestError(f"table is points or problems, not {table!r}")
        gives_problems = table == "problems"
        limited = "maxFilesPerTrigger" in options
        return cls(
            paths=tuple(paths_of(options)),
            # A query for the problems does not fail because of them.
            mode=PERMISSIVE if gives_problems else mode_of(options),
            gives_problems=gives_problems,
            ignore_node=flag_of(options, "ignoreNode"),
            max_files=number_of(options, "maxFilesPerTrigger", 1) if limited else None,
            settle_s=number_of(options, "settleSeconds", 60),
        )

    @property
    def schema(self) -> pa.Schema:
        return PROBLEMS if self.gives_problems else POINTS

    def refuse(self, problems: Sequence[Problem]) -> None:
        """Raise BenchmarkFileError for the first problem in mode FAILFAST."""
        if problems and self.mode == FAILFAST:
            raise BenchmarkFileError(f"{problems[0].path}: {problems[0].reason}")


class _Files(SparkPartition):
    """The files that one task reads."""

    def __init__(self, paths: tuple[str, ...], problems: tuple[Problem, ...] = ()) -> None:
        self.paths = paths
        self.problems = problems  # found while listing files


class PytestBenchmarkSource(DataSource):
    """The data source; the module describes its options."""

    @classmethod
    def name(cls) -> str:
        return "pytest-benchmark"

    def schema(self) -> StructType:
        return from_arrow_schema(_Settings.of(self.options).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        settings = _Settings.of(self.options)
        made = _FilteringResultReader if takes_filters(self.options) else _Reader
        return made(settings, arrow_schema(schema, self.schema()))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        settings = _Settings.of(self.options)
        return _StreamReader(settings, arrow_schema(schema, self.schema()))


class _Reader(DataSourceReader):
    def __init__(self, settings: _Settings, columns: pa.Schema) -> None:
        self.settings = settings
        self.columns = columns
        self.pushdown = Pushdown({} if settings.gives_problems else _OF_RUN | _TIMES | _OF_POINT)

    def partitions(self) -> list[SparkPartition]:
        files, problems = find_files(self.settings.paths)
        self.settings.refuse(problems)
        files = [(path, size) for path, size in files if self.pushdown.passes(source=path)]
        return _tasks(files, problems)

    def read(self, partition: SparkPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Files)
        yield from _read(partition, self.settings, self.columns, self.pushdown)


class _FilteringResultReader(_Reader):
    """A reader that evaluates filters for Spark; `source_options.takes_filters` explains when."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Keep the filters on columns of runs and points; return the others to Spark."""
        return self.pushdown.take(filters)


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, settings: _Settings, columns: pa.Schema) -> None:
        self.settings = settings
        self.columns = columns
        self._whole: dict[str, tuple[int, int]] = {}  # complete files, as (mtime ns, size)
        self._last: frozenset[str] | None = None  # tokens of the files that availableNow reads

    def initialOffset(self) -> dict[str, str]:  # noqa: N802
        return {"files": ""}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self.settings.max_files
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._last = frozenset(_token(path) for path in self._ready())

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:  # noqa: N802
        taken = frozenset(_tokens(start))
        fresh = [_token(path) for path in self._ready(taken)]
        if self._last is not None:
            fresh = [token for token in fresh if token in self._last]
        if isinstance(limit, ReadMaxFiles):
            fresh = fresh[: limit.max_files]
        return {"files": start["files"] + "".join(fresh)}

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> list[SparkPartition]:
        wanted = set(_tokens(end)) - set(_tokens(start))
        files, _ = find_files(self.settings.paths)
        files = [(path, size) for path, size in files if _token(path) in wanted]
        problems = []
        if len(files) < len(wanted):
            gone = f"{len(wanted) - len(files)} files of this batch no longer exist"
            problems.append(Problem(", ".join(self.settings.paths), gone))
        self.settings.refuse(problems)
        return _tasks(files, problems)

    def read(self, partition: SparkPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Files)
        yield from _read(partition, self.settings, self.columns, Pushdown({}))

    def _ready(self, taken: Collection[str] = ()) -> list[str]:
        """Return the files that were not read yet and are complete, or count as damaged."""
        files, _ = find_files(self.settings.paths)
        return [path for path, _ in files if _token(path) not in taken and self._is_ready(path)]

    def _is_ready(self, path: str) -> bool:
        try:
            status = os.stat(path)
            looked_at = status.st_mtime_ns, status.st_size
            if self._whole.get(path) == looked_at:
                return True
            with open(path, "rb") as file:
                is_whole = _is_whole(file.read())
        except OSError:
            return True  # reading it reports the error
        if is_whole:
            self._whole[path] = looked_at
        return is_whole or time.time() - status.st_mtime > self.settings.settle_s


def _is_whole(data: bytes) -> bool:
    """Return whether no later byte can make these bytes valid JSON, or they already are (NaN
    allowed).
    """
    try:
        msgspec.json.decode(data)
        return True
    except RecursionError:
        return True  # no later byte makes it readable; reading it reports the error
    except msgspec.DecodeError:
        pass
    try:
        json.loads(data)
        return True
    except RecursionError:
        return True
    except ValueError:
        return False


def _token(path: str) -> str:
    name = os.path.abspath(path).encode(errors="surrogateescape")
    digest = blake2b(name, digest_size=8).digest()
    return urlsafe_b64encode(digest)[:_TOKEN_LENGTH].decode()


def _tokens(offset: dict[str, str]) -> list[str]:
    text = offset["files"]
    return [text[at : at + _TOKEN_LENGTH] for at in range(0, len(text), _TOKEN_LENGTH)]


def _tasks(files: list[tuple[str, int]], problems: list[Problem]) -> list[SparkPartition]:
    """Return groups of files as tasks, and one task for the problems of listing them."""
    groups = group_files(files, most_bytes=_GROUP_BYTES, at_least=_LEAST_GROUPS)
    tasks: list[SparkPartition] = [_Files(tuple(group)) for group in groups]
    if problems or not tasks:
        tasks.append(_Files((), tuple(problems)))
    return tasks


def _read(
    files: _Files, settings: _Settings, columns: pa.Schema, pushdown: Pushdown
) -> Iterator[pa.RecordBatch]:
    """Yield one batch of points per run, or the problems."""
    problems = list(files.problems)
    for path in files.paths:
        run: BenchmarkRun | None = None
        try:
            with open(path, "rb") as file:
                data = file.read()
            run = read_run(data, path, ignore_node=settings.ignore_node)
            problems += run.problems
        except BenchmarkFileError as error:
            problems.append(Problem(path, str(error).removeprefix(f"{path}: ")))
        except OSError as error:
            problems.append(Problem(path, f"cannot be read: {error.strerror or error}"))
        settings.refuse(problems)
        if run is not None and not settings.gives_problems:
            run = _filtered(run, pushdown)
            if len(run):
                yield _selected(run.batch, columns)
    if settings.gives_problems:
        for begin in range(0, len(problems), _MOST_PROBLEM_ROWS):
            rows = problems[begin : begin + _MOST_PROBLEM_ROWS]
            batch = pa.RecordBatch.from_pylist([row._asdict() for row in rows], schema=PROBLEMS)
            yield _selected(batch, columns)


def _selected(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Return the requested columns, nullable as requested."""
    return pa.RecordBatch.from_arrays(
        [batch.column(name) for name in columns.names], schema=columns
    )


def _filtered(run: BenchmarkRun, pushdown: Pushdown) -> BenchmarkRun:
    """Return the points of a run that pass the filters."""
    passes = pushdown.passes(
        **{name: getattr(run, name) for name in _OF_RUN},
        time=run.time_us,
        commit_time=run.commit_time_us,
    )
    if not passes:
        return run.only([])
    kept = np.ones(len(run), np.bool_)
    for name in _OF_POINT:
        if name in pushdown.columns:
            kept &= pushdown.mask(name, pa.array(getattr(run, name), _OF_POINT[name]))
    return run if kept.all() else run.only([int(at) for at in np.flatnonzero(kept)])
