"""Records out of batches, one by one, for people: the log dump, ``Metadata.records``.

Owns the walk over batches and the filter by type that decodes only what is asked for. The bulk path
from batches to columns is ``PartitionTable.apply``.
"""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from typing import NamedTuple

from kraft._core.batch_records import RecordBatch, iterate
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
    """A record and where it stands. ``record`` is a control record where ``is_control``."""

    offset: int
    epoch: int
    timestamp_ms: int
    is_control: bool
    record: Record


def record_type_named(name: str) -> type[Record]:
    """A record type by Kafka's name, with or without ``Record`` at its end, in any case.

    Raises :class:`InvalidRequestError`, naming those that there are.
    """
    wanted = text(name, "type").replace("_", "").lower().removesuffix("record")
    for known in (RECORD_TYPES, _CONTROL_NAMES):
        for candidate, made in known.items():
            if candidate.lower() == wanted:
                return made
    names = ", ".join(sorted([*RECORD_TYPES, *_CONTROL_NAMES]))
    raise InvalidRequestError(f"there is no record type {name!r}; there are: {names}")


def record_type_of(wanted: str | type[Record]) -> type[Record]:
    """Return the record type that a name or a class stands for.

    Raise :class:`InvalidRequestError` for a name, and for anything else, that is none.
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
    """Every record of ``buffer`` from offset ``since`` on; only those of one type where one is
    given.

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
    """The records of one batch, as :func:`read_records`."""
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
                    # Both are single bytes, so that a record of another type is not decoded.
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
