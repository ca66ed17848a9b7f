"""The view ``records``: every record of logs and snapshots as Arrow batches.

This module defines the schema, divides files into ranges and orders the work: filters on batch
headers run first, then filters on the resource a record names; only the remaining records become
JSON. It reads ``MetadataSource`` and ``kraft.metadata.record_columns``.

Invariant: every record of every complete batch of a file is in exactly one range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from os import fspath
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.datasource import InputPartition

from kraft import records
from kraft._core.bytes.batch import scan, split
from kraft._core.log.disk import OsDisk
from kraft.errors import CorruptRecordError
from kraft.image.configs import TOPIC
from kraft.metadata.arrow import uuid_texts
from kraft.metadata.directory import SnapshotFile
from kraft.metadata.kafka_json import data_of
from kraft.metadata.record_columns import RecordColumns, TransactionSpan, transaction_spans
from kraft.metadata.snapshots import map_snapshot
from kraft.metadata.source import MetadataSource, Slice
from kraft.records import Record
from kraft.spark.pushdown import Pushdown
from kraft.spark.source_options import columns, log

#: ``kind`` is log, snapshot or bootstrap; ``position`` is the byte in ``file`` at which the
#: record's batch begins. ``topic``, ``topic_id``, ``partition`` and ``broker`` are those in the
#: record itself; ``transaction`` is ended, aborted or open, null outside of one. ``value`` is JSON.
RECORDS = columns(
    "source string, file string, kind string, position bigint, offset bigint, epoch int, "
    "timestamp timestamp, type string, version smallint, is_control boolean, topic string, "
    "topic_id string, partition int, broker int, transaction string, value string"
)

#: Columns whose value requires a record's first fields, not only batch headers and record frames.
_ABOUT = ("topic", "topic_id", "partition", "broker")
_BATCH_ROWS = 1 << 15
_SLICE_BYTES = 4 << 20


@dataclass
class RecordRange(InputPartition):
    """Complete batches: bytes ``begin`` to ``end`` of one file."""

    source: str
    file: str
    kind: str
    begin: int
    end: int
    transactions: list[TransactionSpan] = field(default_factory=list)


def record_ranges(
    source: MetadataSource,
    path: str,
    range_bytes: int,
    *,
    with_transactions: bool,
    pushdown: Pushdown,
    is_strict: bool,
) -> Iterator[RecordRange]:
    """Yield the files at ``path`` in ranges of at most ``range_bytes`` (or one batch).

    Files and ranges that no filter accepts are omitted. Raises :class:`CorruptRecordError` for a
    damaged snapshot; without ``is_strict`` its valid beginning is read.
    """
    directory = source.directory
    pieces = [("log", each) for each in source.slices()]
    spans: list[TransactionSpan] = []
    if with_transactions:
        spans = transaction_spans(each.data for _, each in pieces)
    for snapshot in directory.snapshots:
        pieces.append(("snapshot", _whole(snapshot, is_strict=is_strict)))
    if directory.bootstrap_checkpoint is not None:
        pieces.append(("bootstrap", _whole(directory.bootstrap_checkpoint, is_strict=is_strict)))
    for kind, (data, file, position) in pieces:
        if not pushdown.passes(source=path, file=file, kind=kind):
            continue
        for run in split(data, range_bytes):
            headers = scan(run, verify_crc=False)
            first, last = int(headers.base_offsets[0]), int(headers.last_offsets[-1])
            if pushdown.overlaps("offset", first, last):
                here = [span for span in spans if span.begin <= last and span.end > first]
                yield RecordRange(
                    path,
                    file,
                    kind,
                    position,
                    position + len(run),
                    here if kind == "log" else [],
                )
            position += len(run)


def _whole(snapshot: SnapshotFile, *, is_strict: bool) -> Slice:
    """Return the valid batches of a snapshot as bytes."""
    data = map_snapshot(snapshot)
    found = scan(data)
    if found.tail_position < len(data):
        error = CorruptRecordError(
            found.tail_reason or "the last batch is cut short",
            path=snapshot.path,
            position=found.tail_position,
        )
        if is_strict:
            raise error
        log.warning("the rest of the file is omitted: %s", error)
    return Slice(data[: found.tail_position], fspath(snapshot.path), 0)


def read_records(
    part: RecordRange, schema: pa.Schema, pushdown: Pushdown, *, show_secrets: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range that pass the filters.

    Raises :class:`CorruptRecordError` with file and position.
    """
    disk = OsDisk()
    file = disk.open(part.file, read_only=True)
    try:
        data = memoryview(file.map(part.end))[part.begin :]
    finally:
        file.close()
    try:
        position = part.begin
        for piece in split(data, _SLICE_BYTES):
            found = RecordColumns(piece, base_position=position)
            yield from _RecordSlice(part, found, show_secrets).batches(schema, pushdown)
            position += len(piece)
    except CorruptRecordError as error:
        raise error.at(path=part.file) from None


class _RecordSlice:
    """Some batches of a range; computes columns by name for selected rows."""

    def __init__(self, part: RecordRange, columns: RecordColumns, show_secrets: bool) -> None:
        self._part = part
        self._columns = columns
        self._show_secrets = show_secrets
        self._decoded: dict[int, Record | None] = {}

    def batches(self, schema: pa.Schema, pushdown: Pushdown) -> Iterator[pa.RecordBatch]:
        rows: NDArray[Any] = np.arange(len(self._columns))
        # Cheap filters run first, so that the others have fewer rows to test.
        for name in sorted(pushdown.columns, key=lambda name: name in _ABOUT):
            if name == "type":
                passed = pushdown.mask(name, pa.array(self._columns.type_names, pa.string()))
                rows = rows[passed[self._columns.type_numbers[rows]]]
            else:
                rows = rows[pushdown.mask(name, self._column(name, rows))]
        for first in range(0, len(rows), _BATCH_ROWS):
            here = rows[first : first + _BATCH_ROWS]
            self._decoded.clear()
            arrays = [self._column(each.name, here).cast(each.type) for each in schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _column(self, name: str, rows: NDArray[Any]) -> pa.Array:
        there, part = self._columns, self._part
        match name:
            case "source" | "file" | "kind":
                return pa.repeat(pa.scalar(getattr(part, name), pa.string()), len(rows))
            case "position":
                return pa.array(there.positions[rows])
            case "offset":
                return pa.array(there.offsets[rows])
            case "epoch":
                return pa.array(there.epochs[rows])
            case "timestamp":
                times_ms = there.timestamps_ms[rows]
                made = pa.array(times_ms * 1000, mask=times_ms < 0)
                return made.cast(pa.timestamp("us", "UTC"))
            case "type":
                names = pa.array(there.type_names, pa.string())
                return names.take(pa.array(there.type_numbers[rows]))
            case "version":
                return self._versions(rows)
            case "is_control":
                return pa.array(there.is_control[rows])
            case "transaction":
                return self._transactions(there.offsets[rows])
            case "value":
                values = [self._json(int(row)) for row in rows]
                return pa.array(values, pa.string())
        return self._about(name, rows)

    def _versions(self, rows: NDArray[Any]) -> pa.Array:
        """Return the versions; a control record has its version in its value."""
        versions = self._columns.versions[rows].copy()
        for place in np.flatnonzero(self._columns.is_control[rows]):
            record = self._record(int(rows[place]))
            versions[place] = -1 if record is None else record.version
        return pa.array(versions, mask=versions < 0)

    def _transactions(self, offsets: NDArray[np.int64]) -> pa.Array:
        outcomes = ["", *dict.fromkeys(span.outcome for span in self._part.transactions)]
        numbers = np.zeros(len(offsets), np.int32)
        for span in self._part.transactions:
            inside = (offsets >= span.begin) & (offsets < span.end)
            numbers[inside] = outcomes.index(span.outcome)
        taken = pa.array(numbers, mask=numbers == 0)
        return pa.array(outcomes, pa.string()).take(taken)

    def _about(self, name: str, rows: NDArray[Any]) -> pa.Array:
        """Return the resource that records name: from bytes for hot records, else decoded."""
        ids, partitions, known = self._columns.topic_partitions(rows)
        others = np.flatnonzero(~known)
        if name == "partition":
            # Some hot records have no partition; no other record has one.
            return pa.array(partitions, mask=partitions < 0)
        if name == "topic_id":
            present = known.copy()
            for place in others:
                topic_id = getattr(self._record(int(rows[place])), "topic_id", None)
                if topic_id is not None:
                    ids[place] = np.frombuffer(topic_id, np.uint8)
                    present[place] = True
            return uuid_texts(ids, present)
        value_of, kind = _RECORD_FIELDS[name]
        values: list[Any] = [None] * len(rows)
        for place in others:
            values[place] = value_of(self._record(int(rows[place])))
        return pa.array(values, kind)

    def _record(self, row: int) -> Record | None:
        if row not in self._decoded:
            self._decoded[row] = self._columns.record(row)
        return self._decoded[row]

    def _json(self, row: int) -> str:
        record = self._record(row)
        if record is None:
            return _encode({"size": len(self._columns.value(row))})
        return _encode(data_of(record, show_secrets=self._show_secrets))


def _encode(value: dict[str, Any]) -> str:
    return msgspec.json.encode(value).decode()


def _topic_of(record: Record | None) -> str | None:
    """Return the topic name in a record; most records contain its id instead."""
    match record:
        case records.Topic():
            return record.name
        case records.Config() if record.resource_type == TOPIC:
            return record.resource_name
        case records.ClearElr():
            # An empty name means every topic.
            return record.topic_name or None
    return None


def _broker_of(record: Record | None) -> int | None:
    match record:
        case (
            records.RegisterBroker()
            | records.UnregisterBroker()
            | records.BrokerRegistrationChange()
            | records.ProducerIds()
        ):
            return int(record.broker_id)
        case records.FenceBroker() | records.UnfenceBroker():
            return int(record.id)
    return None


_RECORD_FIELDS: dict[str, tuple[Callable[[Record | None], Any], pa.DataType]] = {
    "topic": (_topic_of, pa.string()),
    "broker": (_broker_of, pa.int32()),
}
