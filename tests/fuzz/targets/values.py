"""Record values: decode to a typed record and encode to the same bytes; also control records.

Valid bytes may differ from an encoder's (a varint may be longer than necessary, tagged fields may
have their default), but encoded bytes must decode to the same record and encode to the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

from kraft.errors import KraftError
from kraft.records import Record, decode_control, decode_value, encode_control, encode_value
from tests.fuzz import samples

PREFIX = 1
HOLDS_BATCHES = False


def seeds() -> Iterator[bytes]:
    for value in samples.values():
        yield b"\x00" + value
    for control_type in range(2, 7):
        yield bytes((control_type,)) + bytes(2) + b"\x00\x00\x00\x01\x02" + bytes(16)


def run(data: bytes) -> None:
    if not data:
        return
    control_type, value = data[0], data[1:]
    if control_type == 0:
        _metadata_value(value)
    else:
        _control_value(control_type - 1, value)


def _metadata_value(value: bytes) -> None:
    try:
        record = decode_value(value)
    except KraftError:
        return
    written = encode_value(record)
    again = decode_value(written)
    _same(again, record)
    assert encode_value(again) == written, "the decoded value has another encoding"
    # In the middle of a buffer it is the same record; with one byte less or more it is invalid.
    framed = b"\x01" + value + b"\x01"
    _same(decode_value(framed, 1, 1 + len(value)), record)
    for end in (len(value), len(value) + 2):
        try:
            decode_value(framed, 1, end)
        except KraftError:
            continue
        raise AssertionError("a record with a missing or extra byte is accepted")
    _other_versions(record)
    record.to_dict()
    repr(record)


def _other_versions(record: Record) -> None:
    """Check that a record in every other version is encoded and decoded as equal, or rejected."""
    schema = type(record).schema
    for version in range(schema.lowest_version, schema.highest_version + 1):
        try:
            written = encode_value(record, version)
        except KraftError:
            continue
        assert encode_value(decode_value(written)) == written


def _control_value(control_type: int, value: bytes) -> None:
    try:
        record = decode_control(control_type, value)
    except KraftError:
        return
    written = encode_control(record, record.version)
    _same(decode_control(control_type, written), record)
    assert encode_control(decode_control(control_type, written), record.version) == written


def _same(one: Record, other: Record) -> None:
    # NaN differs from itself, but prints equally.
    assert one == other or repr(one) == repr(other)
    assert one.version == other.version
