"""Iterate over the records in batches, one by one: for the log dump and ``Metadata.records``.

A filter by type decodes only the records of that type. ``PartitionTable.apply`` is the bulk path
from batches to columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from typing import NamedTuple

from kraft._core.bytes.batch_records import RecordBatch, iterate
from kraft.errors import (
    CorruptRecordError,
    InvalidArgumentError,
    InvalidRequestError,
    KraftError,
)
from kraft.metadata.arguments import shown, text
from kraft.records import (
    CONTROL_TYPES,
    RECORD_TYPES,
    Record,
    decode_control,
    decode_control_key,
    decode_value,
)

_CONTROL_NAMES = {made.__name__: made for made in CONTROL_TYPES.values()}


class LogRecord(NamedTuple):
    """A record with offset, epoch and append time; ``record`` is a control record if
    ``is_control``.
    """

    offset: int
    epoch: int
    timestamp_ms: int
    is_control: bool
    record: Record


def record_type_named(name: str) -> type[Record]:
    """Return a record type by Kafka's name, with or without ``Record`` at its end, in any case.

    Raises :class:`InvalidRequestError`, listing the known types.
    """
    wanted = text(name, "type").replace("_", "").lower().removesuffix("record")
    for known in (RECORD_TYPES, _CONTROL_NAMES):
        for candidate, made in known.items():
            if candidate.lower() == wanted:
                return made
    names = ", ".join(sorted([*RECORD_TYPES, *_CONTROL_NAMES]))
    raise InvalidRequestError(f"unknown record type {name!r}; known are: {names}")


def record_type_of(wanted: str | type[Record]) -> type[Record]:
    """Return the record type for a name or a record class.

    Raises :class:`InvalidRequestError` for an unknown name, :class:`InvalidArgumentError` for
    anything else that is not a record class.
    """
    if isinstance(wanted, str):
        return record_type_named(wanted)
    if wanted in RECORD_TYPES.values() or wanted in _CONTROL_NAMES.values():
        return wanted
    raise InvalidArgumentError(f"type must be a record type or its name, not {shown(wanted)}")


def read_records(
    buffer: memoryview,
    *,
    record_type: type[Record] | None = None,
    since: int = 0,
    path: str | PathLike[str] | None = None,
    base_position: int = 0,
) -> Iterator[LogRecord]:
    """Yield the records of ``buffer`` from offset ``since`` on, with ``record_type`` only those of
    a type.

    Raises :class:`CorruptRecordError` with ``path`` and position.
    """
    for batch in iterate(buffer, base_position=base_position):
        if batch.last_offset >= since:
            yield from batch_records(batch, record_type=record_type, since=since, path=path)


def batch_records(
    batch: RecordBatch,
    *,
    record_type: type[Record] | None = None,
    since: int = 0,
    path: str | PathLike[str] | None = None,
) -> Iterator[LogRecord]:
    """Yield the records of one batch, as :func:`read_records` does."""
    key = None if record_type is None else record_type.schema.api_key
    if record_type is not None and batch.is_control != (record_type in _CONTROL_NAMES.values()):
        return
    for raw in batch.records():
        if raw.offset < since:
            continue
        try:
            value = raw.value_view
            if value is None:
                raise CorruptRecordError("a metadata record has no value")
            if batch.is_control:
                made: Record = decode_control(decode_control_key(raw.key or b""), value)
                if record_type is not None and type(made) is not record_type:
                    continue
            else:
                if key is not None and len(value) > 1 and value[0] == 1 and value[1] != key:
                    # Frame version and API key are one byte each: skip without decoding.
                    continue
                made = decode_value(value)
                if record_type is not None and type(made) is not record_type:
                    continue
        except CorruptRecordError as error:
            raise error.at(path=path, offset=raw.offset, position=batch.position) from None
        except KraftError as error:
            error.add_note(f"at offset {raw.offset} of {path}")
            raise
        yield LogRecord(
            raw.offset, batch.partition_leader_epoch, raw.timestamp_ms, batch.is_control, made
        )
