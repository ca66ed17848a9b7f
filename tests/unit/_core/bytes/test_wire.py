"""Reader and Writer: exact bytes, and the errors for malformed bytes."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from kraft._core.bytes.wire import Reader, Writer, uuid_from_text, uuid_to_text
from kraft.errors import BudgetExceededError, CorruptRecordError, InvalidRequestError


def test_numbers_are_big_endian_and_varints_as_kafka_writes_them() -> None:
    writer = Writer()
    writer.write_int16(-2)
    writer.write_uint16(65535)
    writer.write_int64(1)
    writer.write_float64(1.5)
    writer.write_uvarint(300)
    writer.write_varint(-300)
    expected = "fffe" "ffff" "0000000000000001" "3ff8000000000000" "ac02" "d704"  # fmt: skip
    assert writer.getvalue().hex() == expected


def test_strings_are_read_in_the_classic_and_the_compact_form() -> None:
    writer = Writer()
    writer.write_string("ab")
    writer.write_nullable_string(None)
    writer.write_compact_string("ab")
    writer.write_compact_nullable_string(None)
    writer.write_compact_bytes(b"")
    assert writer.getvalue() == b"\x00\x02ab\xff\xff\x03ab\x00\x01"


def test_a_mapped_file_is_read_in_place(tmp_path: Path) -> None:
    path = tmp_path / "values"
    path.write_bytes(b"....\x00\x00\x00\x07rest")
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    reader = Reader(mapped, 4)
    assert reader.read_int32() == 7
    view = reader.read_view(4)
    assert bytes(view) == b"rest"
    with pytest.raises(BufferError):
        mapped.close()


def test_a_slice_ends_where_it_should_and_keeps_positions() -> None:
    reader = Reader(b"\x00\x01\x02\x03\x04")
    reader.seek(1)
    inner = reader.slice(2)
    assert (inner.position, inner.remaining(), reader.position) == (1, 2, 3)
    assert inner.read_int16() == 0x0102
    with pytest.raises(CorruptRecordError) as caught:
        inner.read_int8()
    assert caught.value.position == 3


@pytest.mark.parametrize(
    ("raw", "read", "position"),
    [
        (b"\x80\x80\x80\x80\x10", "read_uvarint", 0),
        (b"\x80\x80\x80\x80\x80\x01", "read_uvarint", 0),
        (b"\x80" * 9 + b"\x02", "read_uvarlong", 0),
        (b"\xff\xff", "read_string", 0),
        (b"\xff\xfe", "read_nullable_string", 0),
        (b"\x00", "read_compact_string", 0),
        (b"\x03a\xff", "read_compact_string", 2),
        (b"\x02", "read_bool", 0),
        (b"\x02\x01\x00\x01\x00", "read_tagged", 3),
        (b"\x02\x05\x00\x01\x00", "read_tagged", 3),
        (b"\xff\xff\xff\xfe", "read_nullable_array_count", 0),
        (b"\x00\x00", "read_int32", 0),
    ],
)
def test_malformed_values_are_rejected_with_their_position(
    raw: bytes, read: str, position: int
) -> None:
    with pytest.raises(CorruptRecordError) as caught:
        getattr(Reader(raw), read)()
    assert caught.value.position == position


@pytest.mark.parametrize(
    ("raw", "read"),
    [
        (b"\x7f\xff\xff\xff", "read_array_count"),
        (b"\xff\xff\xff\xff\x0f", "read_compact_array_count"),
        (b"\x7f\xff\xff\xffx", "read_bytes"),
        (b"\x7f\xffx", "read_string"),
        (b"\xff\xff\xff\xff\x0fx", "read_compact_bytes"),
        (b"\xff\xff\xff\xff\x0fx", "read_tagged"),
        (b"\x01\x00\xff\xff\xff\xff\x0fx", "read_tagged"),
    ],
)
def test_a_claim_beyond_the_bytes_left_is_rejected(raw: bytes, read: str) -> None:
    with pytest.raises(BudgetExceededError):
        getattr(Reader(raw), read)()


def test_a_count_is_checked_against_the_least_size_of_its_elements() -> None:
    raw = b"\x00\x00\x00\x02" + bytes(31)
    assert Reader(raw).read_array_count(15) == 2
    with pytest.raises(BudgetExceededError):
        Reader(raw).read_array_count(16)


def test_the_budget_counts_all_elements_of_a_reader() -> None:
    reader = Reader(b"\x03\x03" + bytes(10), budget=3)
    assert reader.read_compact_array_count() == 2
    assert reader.budget == 1
    with pytest.raises(BudgetExceededError) as caught:
        reader.read_compact_array_count()
    assert caught.value.position == 1


def test_tags_are_written_ascending() -> None:
    writer = Writer()
    writer.write_tagged({9: b"z", 2: b"a"})
    assert writer.getvalue() == b"\x02\x02\x01a\x09\x01z"


def test_what_kafka_could_not_read_is_not_written() -> None:
    writer = Writer()
    with pytest.raises(InvalidRequestError):
        writer.write_compact_string("x" * 32768)
    with pytest.raises(InvalidRequestError):
        writer.write_uuid(b"short")
    with pytest.raises(OverflowError):
        writer.write_int8(200)


def test_the_text_of_a_uuid_is_kafkas() -> None:
    assert uuid_to_text(bytes(15) + b"\x01") == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert uuid_from_text("AAAAAAAAAAAAAAAAAAAAAQ") == bytes(15) + b"\x01"


@pytest.mark.parametrize("text", ["", "AAAAAAAAAAAAAAAAAAAAAR", "A" * 23, "+" * 22, "é" * 22])
def test_malformed_text_of_a_uuid_is_rejected(text: str) -> None:
    with pytest.raises(InvalidRequestError):
        uuid_from_text(text)
