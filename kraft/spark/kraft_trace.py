"""``spark.read.format("kraft-trace")`` and ``spark.readStream``: event traces as rows.

This module defines the columns of an event, divides files into tasks (ranges of frames) and tracks
the position of a stream. ``kraft.lab.trace`` defines the file format.

Invariants: every event of a complete block is read once; an incomplete block is not read, and a
stream reads it once it is complete.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from kraft.errors import CorruptRecordError, KraftError, StorageError
from kraft.lab.trace import Trace, TraceBlock, TraceHeader, UnfinishedTraceError
from kraft.spark.pushdown import Pushdown
from kraft.spark.source_options import (
    FAILFAST,
    arrow_schema,
    columns,
    expanded,
    log,
    mode_of,
    number_of,
    paths_of,
    refuse_unknown,
    takes_filters,
)

#: One row per event; ``began_ns`` equals ``began``, in nanoseconds of Unix time.
EVENTS = columns(
    "what string, began timestamp, began_ns bigint, duration_ns bigint, count bigint, "
    "scenario string, run_id string, machine string, commit string, file string"
)
#: Bytes of one file per task; an event takes 26 bytes.
_RANGE_BYTES = 16 << 20
_BATCH_BLOCKS = 16
_SUFFIX = ".trace"
OPTIONS = ("maxFilesPerTrigger", "maxPartitionBytes", "mode", "pushdown")


@dataclass
class _Range(InputPartition):
    """The frames of one file that begin at bytes ``begin`` to ``end`` (exclusive)."""

    path: str
    begin: int
    end: int


class KraftTraceSource(DataSource):
    """The data source. Options: ``mode`` (FAILFAST, PERMISSIVE), ``maxPartitionBytes``,
    ``pushdown``, ``maxFilesPerTrigger``.

    A path is a file, a pattern, or a folder; of a folder all ``*.trace`` files are read.
    """

    @classmethod
    def name(cls) -> str:
        return "kraft-trace"

    def schema(self) -> StructType:
        return EVENTS

    def reader(self, schema: StructType) -> _TraceReader:
        made = _FilteringTraceReader if takes_filters(self.options) else _TraceReader
        return made(self.options, schema)

    def streamReader(self, schema: StructType) -> _TraceStream:  # noqa: N802  (Spark's name)
        return _TraceStream(self.options, schema)


class _Events:
    """The common part of both readers: paths -> files -> ranges -> batches."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        refuse_unknown("kraft-trace", options, OPTIONS)
        takes_filters(options)  # of a stream, too, the option is true or false
        self.paths = paths_of(options)
        self.mode = mode_of(options)
        self.range_bytes = number_of(options, "maxPartitionBytes", _RANGE_BYTES)
        self.schema = arrow_schema(schema, EVENTS)
        self.pushdown = Pushdown(dict(_columns_of(to_arrow_schema(EVENTS, timezone="UTC"))))

    def files(self) -> list[str]:
        """Return the files that exist now; those of a folder sorted by name."""
        found: list[str] = []
        for path in expanded(self.paths):
            if os.path.isdir(path):
                names = sorted(name for name in os.listdir(path) if name.endswith(_SUFFIX))
                found += [os.path.join(path, name) for name in names]
            else:
                found.append(path)
        return found

    def ranges(self, trace: Trace, begin: int = 0, end: int | None = None) -> Iterator[_Range]:
        """Yield the frames that begin between two bytes of a file, divided into tasks."""
        stop = trace.end if end is None else end
        frames = [position for position in trace.frames if begin <= position < stop]
        while frames:
            first = frames[0]
            count = int(np.searchsorted(frames, first + self.range_bytes))
            rest = frames[count:]
            yield _Range(trace.path, first, rest[0] if rest else stop)
            frames = rest

    def read(self, part: _Range) -> Iterator[pa.RecordBatch]:
        """Yield the events of a range that pass the filters."""
        trace = Trace(part.path, begin=part.begin)
        waiting: list[pa.RecordBatch] = []
        for block in trace.blocks(part.begin, part.end):
            waiting.append(self._batch(trace.header, part.path, block))
            if len(waiting) == _BATCH_BLOCKS:
                yield pa.concat_batches(waiting)
                waiting.clear()
        if waiting:
            yield pa.concat_batches(waiting)

    def _batch(self, header: TraceHeader, path: str, block: TraceBlock) -> pa.RecordBatch:
        rows: NDArray[Any] = np.arange(len(block.what))
        for name in self.pushdown.columns:
            # The filter on `what` tests its few distinct names, not each event.
            if name == "what":
                passed = self.pushdown.mask(name, pa.array(block.names, pa.string()))
                rows = rows[passed[block.what[rows]]]
            else:
                rows = rows[self.pushdown.mask(name, _column(name, header, path, block, rows))]
        arrays = [
            _column(field.name, header, path, block, rows).cast(field.type) for field in self.schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


class _TraceReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._events = _Events(options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        """Return ranges of frames; reject or omit an unreadable file before anything is read."""
        events, parts = self._events, []
        for path in events.files():
            try:
                trace = Trace(path)
            except (CorruptRecordError, StorageError) as error:
                if events.mode == FAILFAST:
                    raise
                log.warning("the file is omitted: %s", error)
                continue
            if trace.torn is not None:
                torn = trace.torn
                log.warning("%s is cut short at byte %d (%s)", path, torn.position, torn.reason)
            header = trace.header
            if events.pushdown.passes(
                file=path,
                scenario=header.scenario,
                run_id=header.run_id,
                machine=header.machine,
                commit=header.commit,
            ):
                parts += list(events.ranges(trace))
        # For an empty list Spark would read a partition that does not exist.
        return parts or [_Range("", 0, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Range)
        if not partition.path:
            return
        try:
            yield from self._events.read(partition)
        except KraftError as error:
            if self._events.mode == FAILFAST:
                raise
            log.warning("the rest of the file is omitted: %s", error)


class _FilteringTraceReader(_TraceReader):
    """A reader that evaluates filters for Spark; see ``takes_filters``."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        return self._events.pushdown.take(filters)


class _TraceStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream whose offset is the position in each file: ``{path: byte}``."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._events = _Events(options, schema)
        self._files_limit = (
            number_of(options, "maxFilesPerTrigger", 1) if "maxFilesPerTrigger" in options else None
        )
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable() if self._files_limit is None else ReadMaxFiles(self._files_limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._ends({})

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        ends = self._ends(start) if self._target is None else self._target
        grown = [path for path, end in ends.items() if end > start.get(path, 0)]
        if isinstance(limit, ReadMaxFiles):
            grown = grown[: limit.max_files]
        return {**start, **{path: ends[path] for path in grown}}

    def _ends(self, start: Mapping[str, int]) -> dict[str, int]:
        """Return the byte after the last complete frame of each file that has one."""
        ends: dict[str, int] = {}
        for path in self._events.files():
            try:
                trace = Trace(path, begin=start.get(path, 0))
            except UnfinishedTraceError:
                continue  # the writer has just begun
            except CorruptRecordError as error:
                if self._events.mode == FAILFAST:
                    raise
                log.warning("the file is omitted: %s", error)
                continue
            ends[path] = trace.end
        return ends

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        parts: list[_Range] = []
        for path, stop in end.items():
            begin = start.get(path, 0)
            if stop > begin:
                parts += self._events.ranges(Trace(path, begin=begin), begin, stop)
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Range)
        return self._events.read(partition)


def _column(name: str, header: TraceHeader, path: str, block: TraceBlock, rows: Any) -> pa.Array:
    """Return one column of some events of a block."""
    match name:
        case "what":
            return pa.array(block.names, pa.string()).take(pa.array(block.what[rows]))
        case "began":
            began_us = (header.started_ns + block.began_ns[rows]) // 1000
            return pa.array(began_us).cast(pa.timestamp("us", "UTC"))
        case "began_ns":
            return pa.array(header.started_ns + block.began_ns[rows])
        case "duration_ns":
            return pa.array(block.duration_ns[rows])
        case "count":
            return pa.array(block.counts[rows])
        case "file":
            return pa.repeat(pa.scalar(path, pa.string()), len(rows))
    return pa.repeat(pa.scalar(getattr(header, name), pa.string()), len(rows))


def _columns_of(schema: pa.Schema) -> Iterator[tuple[str, pa.DataType]]:
    for field in schema:
        yield field.name, field.type
