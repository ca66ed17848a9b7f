"""A slow, obvious reader of the batches that Kafka wrote: typed records with offset and epoch."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from kraft import records
from kraft.records import Record
from kraft.records.control import decode_control, decode_control_key
from kraft.records.values import decode_value

HEADER = struct.Struct(">qiibIhiqqqhii")
CONTROL = 0x20


class Logged(NamedTuple):
    offset: int
    epoch: int
    is_control: bool
    record: Record


def read_records(path: Path) -> Iterator[Logged]:
    data = path.read_bytes()
    position = 0
    while position < len(data):
        base, length, epoch, _, _, attributes, _, *_, count = HEADER.unpack_from(data, position)
        cursor = position + HEADER.size
        for _ in range(count):
            size, cursor = varint(data, cursor)
            end = cursor + size
            _, cursor = varint(data, cursor + 1)
            offset_delta, cursor = varint(data, cursor)
            key, cursor = sized(data, cursor)
            value, cursor = sized(data, cursor)
            is_control = bool(attributes & CONTROL)
            record = (
                decode_control(decode_control_key(key), value)
                if is_control
                else decode_value(value)
            )
            yield Logged(base + offset_delta, epoch, is_control, record)
            cursor = end
        position += 12 + length


def read_log(directory: Path) -> Iterator[Logged]:
    for path in sorted(directory.glob("*.log")):
        yield from read_records(path)


def sized(data: bytes, cursor: int) -> tuple[bytes, int]:
    length, cursor = varint(data, cursor)
    length = max(length, 0)
    return data[cursor : cursor + length], cursor + length


def varint(data: bytes, cursor: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[cursor]
        cursor += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), cursor
        shift += 7


def record_values(data: bytes) -> list[bytes]:
    """Return the values of all records in these batches, in order."""
    values = []
    position = 0
    while position < len(data):
        _, length, *_, count = HEADER.unpack_from(data, position)
        cursor = position + HEADER.size
        for _ in range(count):
            size, cursor = varint(data, cursor)
            end = cursor + size
            _, cursor = varint(data, cursor + 1)
            _, cursor = varint(data, cursor)
            _, cursor = sized(data, cursor)
            value, cursor = sized(data, cursor)
            values.append(value)
            cursor = end
        position += 12 + length
    return values


def canonical(record: Record) -> tuple[int, str]:
    """Return a record with sorted listeners and features: Kafka writes them in HashMap order."""
    if isinstance(record, records.RegisterBroker | records.RegisterController):
        record = record.replace(
            end_points=sorted(record.end_points, key=lambda point: point.name),
            features=sorted(record.features, key=lambda feature: feature.name),
        )
    return record.version, repr(record)


def kinds(made: list[Record]) -> list[str]:
    return [kind for kind, _ in groupby(type(record).__name__ for record in made)]


def read_text(path: Path) -> str:
    """Return a kept output of Kafka's tools, gzipped or not."""
    if path.exists():
        return path.read_text()
    return gzip.decompress(path.with_name(path.name + ".gz").read_bytes()).decode()


def overwrite(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)
