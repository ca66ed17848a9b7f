"""Slow reference implementation of the metadata codec: bytes <-> plain dicts, by a schema text.

The text comes from Kafka's own Schema objects for a record in one version (see
``tests/interop/java/RecordCorpus.java``): ``{name:type,...,tag=name:type,...}`` with ``[]`` before
an array and ``?`` after a nullable type. So it shares nothing with the schemas under test.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from typing import Any

FIXED = {
    "bool": ">?",
    "int8": ">b",
    "int16": ">h",
    "uint16": ">H",
    "int32": ">i",
    "int64": ">q",
    "float64": ">d",
}


class TwinError(Exception):
    """The bytes are not a struct of the schema."""


@dataclass
class Kind:
    """A type: a scalar's name, an array's element, or a struct's fields."""

    name: str = ""
    element: Kind | None = None
    fields: list[tuple[int | None, str, Kind]] | None = None
    nullable: bool = False


def parse(text: str) -> Kind:
    kind, rest = _parse_kind(text)
    assert rest == "", rest
    return kind


def _parse_kind(text: str) -> tuple[Kind, str]:
    if text.startswith("[]"):
        element, text = _parse_kind(text[2:])
        # The mark after an array's element applies to the array.
        nullable, element.nullable = element.nullable, False
        return Kind(element=element, nullable=nullable), text
    if text.startswith("{"):
        fields = []
        text = text[1:]
        while not text.startswith("}"):
            name, _, text = text.partition(":")
            tag, equals, tagged_name = name.partition("=")
            kind, text = _parse_kind(text)
            fields.append((int(tag), tagged_name, kind) if equals else (None, name, kind))
            text = text.removeprefix(",")
        kind, text = Kind(fields=fields), text[1:]
    else:
        name = text[: next((i for i, c in enumerate(text) if c in ",}?"), len(text))]
        kind, text = Kind(name=name), text[len(name) :]
    if text.startswith("?"):
        kind.nullable, text = True, text[1:]
    return kind, text


# ---------------------------------------------------------------- bytes -> dicts


def take(data: io.BytesIO, size: int) -> bytes:
    made = data.read(size)
    if len(made) != size:
        raise TwinError("ends early")
    return made


def take_uvarint(data: io.BytesIO) -> int:
    value = 0
    for shift in range(0, 35, 7):
        byte = take(data, 1)[0]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= 1 << 32:
                raise TwinError("a varint above 32 bits")
            return value
    raise TwinError("a varint of more than 5 bytes")


def decode(kind: Kind, data: bytes) -> dict[str, Any]:
    """Decode all of ``data`` as a struct; absent tagged fields are absent from the result."""
    stream = io.BytesIO(data)
    made = _decode(kind, stream)
    if stream.read():
        raise TwinError("bytes are left over")
    return made


def _decode(kind: Kind, data: io.BytesIO) -> Any:
    if kind.fields is not None:
        made: dict[str, Any] = {}
        for tag, name, field in kind.fields:
            if tag is None:
                made[name] = _decode(field, data)
        known = {tag: (name, field) for tag, name, field in kind.fields if tag is not None}
        unknown = {}
        previous = -1
        for _ in range(take_uvarint(data)):
            tag = take_uvarint(data)
            if tag <= previous:
                raise TwinError("tags do not ascend")
            previous = tag
            payload = take(data, take_uvarint(data))
            if tag in known:
                name, field = known[tag]
                inner = io.BytesIO(payload)
                made[name] = _decode(field, inner)
                if inner.read():
                    raise TwinError("a tagged field is shorter than its size")
            else:
                unknown[tag] = payload
        if unknown:
            made["unknown_tagged_fields"] = unknown
        return made
    if kind.element is None and kind.name in FIXED:
        if kind.name == "bool":
            return take(data, 1) != b"\0"
        layout = FIXED[kind.name]
        return struct.unpack(layout, take(data, struct.calcsize(layout)))[0]
    if kind.name == "uuid":
        return take(data, 16)
    size = take_uvarint(data) - 1
    if size < 0:
        if kind.nullable:
            return None
        raise TwinError("null")
    if kind.element is not None:
        if size > len(data.getbuffer()) - data.tell():
            raise TwinError("more elements than bytes")
        return [_decode(kind.element, data) for _ in range(size)]
    payload = take(data, size)
    if kind.name == "bytes":
        return payload
    if size > 0x7FFF:
        raise TwinError("a string of more than 32767 bytes")
    try:
        return payload.decode()
    except UnicodeDecodeError:
        raise TwinError("not UTF-8") from None


# ---------------------------------------------------------------- dicts -> bytes


def uvarint(value: int) -> bytes:
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


def encode(kind: Kind, value: Any) -> bytes:
    """Encode ``value``; a tagged field is written if and only if ``value`` has it."""
    if kind.fields is not None:
        regular = [encode(field, value[name]) for tag, name, field in kind.fields if tag is None]
        tagged = {
            tag: encode(field, value[name])
            for tag, name, field in kind.fields
            if tag is not None and name in value
        }
        tagged |= value.get("unknown_tagged_fields") or {}
        section = [uvarint(tag) + uvarint(len(p)) + p for tag, p in sorted(tagged.items())]
        return b"".join([*regular, uvarint(len(section)), *section])
    if value is None:
        return uvarint(0)
    if kind.element is not None:
        return uvarint(len(value) + 1) + b"".join(encode(kind.element, e) for e in value)
    if kind.name in FIXED:
        return struct.pack(FIXED[kind.name], value)
    if kind.name == "uuid":
        return bytes(value)
    payload = value.encode() if kind.name == "string" else value
    return uvarint(len(payload) + 1) + payload
