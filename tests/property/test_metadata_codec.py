"""The metadata codec against its slow twin, on generated records and on damaged bytes.

The twin reads schemas as Kafka's own classes print them, so that the two share no table.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraft.errors import CorruptRecordError, UnsupportedVersionError
from kraft.records import (
    RECORD_TYPES,
    RECORD_TYPES_BY_KEY,
    Record,
    Struct,
    UnregisterController,
    decode_value,
    encode_value,
)
from tests.reference import record_twin
from tests.reference.generated_structs import structs

CORPUS = Path(__file__).parents[1] / "data" / "record-corpus-4.3.jsonl.gz"
LINES = [json.loads(line) for line in gzip.decompress(CORPUS.read_bytes()).decode().splitlines()]
SCHEMAS: dict[tuple[int, int], record_twin.Kind] = {
    (line["key"], line["version"]): record_twin.parse(line["fields"])
    for line in LINES
    if line.get("kind") == "record"
}
VALUES = [bytes.fromhex(line["value"]) for line in LINES if "record" in line]


@st.composite
def records(draw: st.DrawFn) -> tuple[Record, int]:
    key, version = draw(st.sampled_from(sorted(SCHEMAS)))
    return draw(structs(RECORD_TYPES_BY_KEY[key], version)), version


def as_twin(value: Any, kind: record_twin.Kind) -> Any:
    """Return a typed object as the twin's dict, without tagged fields at their default."""
    if not isinstance(value, Struct):
        if isinstance(value, list) and kind.element is not None:
            return [as_twin(e, kind.element) for e in value]
        return value
    made = {}
    specs = type(value).schema.specs
    assert kind.fields is not None
    for tag, name, field in kind.fields:
        own = getattr(value, name)
        if tag is None or own != specs[name].default:
            made[name] = as_twin(own, field)
    if value.unknown_tagged_fields:
        made["unknown_tagged_fields"] = value.unknown_tagged_fields
    return made


@settings(max_examples=300, deadline=None)
@given(records())
def test_codec_and_twin_write_the_same_bytes_and_read_them_back(
    made: tuple[Record, int],
) -> None:
    record, version = made
    kind = SCHEMAS[type(record).schema.api_key, version]
    value = encode_value(record, version=version)
    body = value[3:]
    assert value[:3] == bytes((1, type(record).schema.api_key, version))
    assert body == record_twin.encode(kind, as_twin(record, kind))
    read = decode_value(value)
    assert read == record
    assert read.version == version
    assert as_twin(read, kind) == record_twin.decode(kind, body)
    assert encode_value(read) == value


def check_like_the_twin(value: bytes) -> None:
    """Check that codec and twin agree whether these bytes are a record, and on its content."""
    try:
        record = decode_value(value)
    except UnsupportedVersionError:
        return
    except CorruptRecordError as error:
        if not 0 <= error.position <= len(value):
            pytest.fail(f"position {error.position} of {len(value)} bytes")
        if len(value) >= 3 and (value[1], value[2]) in SCHEMAS and value[0] == 1:
            with pytest.raises(record_twin.TwinError):
                twin_of(SCHEMAS[value[1], value[2]], RECORD_TYPES_BY_KEY[value[1]], value)
        return
    if isinstance(record, UnregisterController):
        return
    kind = SCHEMAS[type(record).schema.api_key, record.version]
    body = value[len(value) - body_size(value) :]
    # NaN is not equal to itself; its text is.
    assert repr(with_defaults(record_twin.decode(kind, body), type(record))) == repr(
        with_defaults(as_twin(record, kind), type(record))
    )


def body_size(value: bytes) -> int:
    """Return the size after the three varints of the frame."""
    position = 0
    for _ in range(3):
        while value[position] & 0x80:
            position += 1
        position += 1
    return len(value) - position


def twin_of(kind: record_twin.Kind, type: type[Record], value: bytes) -> None:
    """Raise TwinError also for bytes that only the codec rejects, not Kafka's schema text."""
    made = record_twin.decode(kind, value[3:])
    known = {spec.tag for spec in type.schema.specs.values()}
    if known & set(made.get("unknown_tagged_fields", ())):
        raise record_twin.TwinError("a tag of a later version")


def with_defaults(made: Any, type: type[Struct]) -> Any:
    """Return the object without tagged fields that were encoded at their default."""
    specs = type.schema.specs
    shown = {}
    for name in sorted(made):
        value = made[name]
        spec = specs.get(name)
        if spec is not None and spec.of is not None and isinstance(value, list):
            value = [with_defaults(e, spec.of) for e in value]
        elif isinstance(value, bytes):
            value = bytes(value)
        elif isinstance(value, list):
            value = [bytes(e) if isinstance(e, bytes) else e for e in value]
        if spec is None or spec.tag < 0 or value != spec.default:
            shown[name] = value
    return shown


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_damaged_records_are_rejected_or_read_as_the_twin_reads_them(data: st.DataObject) -> None:
    value = bytearray(data.draw(st.sampled_from(VALUES)))
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(value) - 1))
        value[position] ^= 1 << data.draw(st.integers(0, 7))
    check_like_the_twin(bytes(value))


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(sorted(RECORD_TYPES)),
    st.integers(0, 4),
    st.lists(st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0xFF]) | st.integers(0, 255), max_size=60),
)
def test_random_bytes_are_rejected_or_read_as_the_twin_reads_them(
    name: str, version: int, body: list[int]
) -> None:
    key = RECORD_TYPES[name].schema.api_key
    check_like_the_twin(bytes([1, key, version, *body]))
    check_like_the_twin(bytes(body))


def test_every_truncation_of_a_record_is_corrupt() -> None:
    for value in VALUES:
        steps = range(len(value)) if len(value) < 200 else range(0, len(value), 37)
        for size in steps:
            with pytest.raises(CorruptRecordError):
                decode_value(value[:size])
