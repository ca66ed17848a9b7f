"""Wire values and record batches against their slow twins, whole and damaged."""

from __future__ import annotations

import struct

import crc32c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraft._core.bytes import batch_columns, batch_records
from kraft._core.bytes.batch import BatchBuilder, assign_offsets, deflate, inflate, scan, split
from kraft._core.bytes.batch_check import validate
from kraft._core.bytes.wire import Reader, Writer, uuid_from_text, uuid_to_text
from kraft.errors import CorruptRecordError
from tests.reference import batch_twin
from tests.reference.batch_twin import TwinBatch, TwinError, TwinRecord

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
SMALL_BYTES = st.binary(max_size=200)
TIMESTAMPS = st.integers(0, 2**45)


@st.composite
def batches(draw: st.DrawFn) -> list[TwinBatch]:
    """Return batches one after the other, with gaps, headers, and any flags except the codec's."""
    made = []
    next_offset = draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(0, 3))):
        base_offset = next_offset + draw(st.integers(0, 5))
        base_timestamp = draw(TIMESTAMPS)
        records = []
        delta = -1
        for _ in range(draw(st.integers(0, 6))):
            delta += draw(st.integers(1, 200))
            records.append(
                TwinRecord(
                    base_offset + delta,
                    base_timestamp + draw(st.sampled_from([0, 0, 1, -1, 100_000, -(2**40)])),
                    draw(st.none() | SMALL_BYTES),
                    draw(st.none() | SMALL_BYTES),
                    draw(
                        st.lists(
                            st.tuples(st.binary(max_size=9), st.none() | st.binary(max_size=9)),
                            max_size=2,
                        )
                    ),
                    draw(st.sampled_from([0, 0, 0, 1, -128])),
                )
            )
        made.append(
            TwinBatch(
                base_offset,
                draw(INT32),
                draw(st.sampled_from([0, 8, 0x10, 0x20, 0x30, 0x40, 0x78])),
                max(delta, 0) + draw(st.integers(0, 3)),
                base_timestamp,
                draw(TIMESTAMPS),
                draw(INT64),
                draw(st.integers(-(2**15), 2**15 - 1)),
                draw(INT32),
                records,
            )
        )
        next_offset = base_offset + made[-1].last_offset_delta + 1
    return made


def as_seen(batch: TwinBatch, record: TwinRecord) -> tuple[object, ...]:
    timestamp = batch.max_timestamp if batch.attributes & 8 else record.timestamp_ms
    return (
        record.offset,
        timestamp,
        record.key,
        record.value,
        record.headers,
        record.attributes,
        bool(batch.attributes & 0x20),
    )


def one_by_one(data: bytes) -> list[tuple[object, ...]]:
    return [
        (r.offset, r.timestamp_ms, r.key, r.value, r.headers, r.attributes, r.is_control)
        for batch in batch_records.iterate(data)
        for r in batch
    ]


def by_columns(data: bytes) -> list[tuple[object, ...]]:
    columns = batch_columns.BatchColumns.read(data)

    def at(position: int, length: int) -> bytes | None:
        return None if length < 0 else data[position : position + length]

    seen: list[tuple[object, ...]] = []
    for i in range(len(columns)):
        reader = Reader(
            data,
            int(columns.header_positions[i]),
            int(columns.header_positions[i] + columns.header_lengths[i]),
        )
        headers = []
        for _ in range(columns.header_counts[i]):
            name = reader.read_raw(reader.read_varint())
            size = reader.read_varint()
            headers.append((name, None if size < 0 else reader.read_raw(size)))
        assert reader.remaining() == 0
        flags = int(columns.batches.attributes[columns.batch_indexes[i]])
        seen.append(
            (
                int(columns.offsets[i]),
                int(columns.timestamps[i]),
                at(int(columns.key_positions[i]), int(columns.key_lengths[i])),
                at(int(columns.value_positions[i]), int(columns.value_lengths[i])),
                headers,
                int(columns.attributes[i]),
                bool(flags & 0x20),
            )
        )
    return seen


@given(batches())
def test_batches_read_as_the_twin_wrote_them(made: list[TwinBatch]) -> None:
    data = b"".join(map(batch_twin.encode, made))
    expected = [as_seen(batch, record) for batch in made for record in batch.records]
    assert one_by_one(data) == expected
    assert by_columns(data) == expected
    table = validate(data)
    for name in ("base_offset", "partition_leader_epoch", "attributes", "last_offset_delta"):
        assert table.array[name].tolist() == [getattr(batch, name) for batch in made]
    for name in ("base_timestamp", "max_timestamp", "producer_id", "producer_epoch"):
        assert table.array[name].tolist() == [getattr(batch, name) for batch in made]
    assert table.base_sequences.tolist() == [batch.base_sequence for batch in made]
    assert table.record_counts.tolist() == [len(batch.records) for batch in made]


@given(batches())
def test_batches_rebuilt_from_columns_are_the_same_bytes(made: list[TwinBatch]) -> None:
    data = b"".join(map(batch_twin.encode, made))
    assert batch_columns.BatchColumns.read(data).build() == data


@given(batches(), st.integers(1, 4))
def test_compressed_batches_inflate_to_the_same_bytes(made: list[TwinBatch], codec: int) -> None:
    pytest.importorskip("cramjam")
    data = b"".join(map(batch_twin.encode, made))
    packed = deflate(data, codec)
    assert inflate(packed) == data
    assert one_by_one(packed) == one_by_one(data)
    assert batch_columns.BatchColumns.read(packed).build() == data
    assert len(validate(packed)) == len(made)


def outcome(read: object, data: bytes) -> object:
    assert callable(read)
    try:
        return read(data)
    except CorruptRecordError as error:
        where = error.position
    assert 0 <= where <= len(data)
    return CorruptRecordError


def reseal(data: bytearray) -> None:
    """Correct the CRC of the first batch, if there is one."""
    if len(data) >= 61:
        (length,) = struct.unpack_from(">i", data, 8)
        if 49 <= length <= len(data) - 12:
            struct.pack_into(">I", data, 17, crc32c.crc32c(data[21 : 12 + length]))


@settings(max_examples=120)
@given(batches(), st.data())
def test_damage_is_rejected_or_means_what_the_twin_says(
    made: list[TwinBatch], data: st.DataObject
) -> None:
    damaged = bytearray(b"".join(map(batch_twin.encode, made)))
    for _ in range(data.draw(st.integers(1, 3))):
        if damaged:
            place = data.draw(st.integers(0, len(damaged) - 1))
            damaged[place] ^= 1 << data.draw(st.integers(0, 7))
    if data.draw(st.booleans()):
        del damaged[data.draw(st.integers(0, len(damaged))) :]
    if data.draw(st.booleans()):
        reseal(damaged)
    raw = bytes(damaged)
    try:
        twin: object = [as_seen(b, record) for b in batch_twin.decode(raw) for record in b.records]
    except TwinError:
        twin = CorruptRecordError
    seen = outcome(one_by_one, raw)
    assert seen == outcome(by_columns, raw)
    if not any(int.from_bytes(raw[at : at + 2], "big") & 7 for at in (21,)):
        codecs = scan(raw, verify_crc=False).attributes & 7
        if not codecs.any():
            assert seen == twin
    table = scan(raw)
    assert table.tail_position <= len(raw)
    assert (table.tail_reason is None) == (table.tail_position == len(raw))
    outcome(validate, raw)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_rejected(raw: bytes) -> None:
    for read in (one_by_one, by_columns, validate, inflate, lambda data: split(data, 100)):
        outcome(read, raw)


@given(batches(), st.integers(0, 2**50), INT32)
def test_offsets_can_be_assigned_after_sealing(
    made: list[TwinBatch], base_offset: int, epoch: int
) -> None:
    buffer = bytearray(b"".join(map(batch_twin.encode, made)))
    expected = base_offset
    next_offset = assign_offsets(buffer, base_offset, epoch)
    table = scan(buffer)
    assert table.tail_reason is None
    for row, batch in zip(table.array, made, strict=True):
        assert row["base_offset"] == expected
        assert row["partition_leader_epoch"] == epoch
        expected += batch.last_offset_delta + 1
    assert next_offset == expected


@given(batches(), st.integers(1, 2000))
def test_split_keeps_every_byte_and_whole_batches(made: list[TwinBatch], max_size: int) -> None:
    data = b"".join(map(batch_twin.encode, made))
    pieces = split(data, max_size)
    assert b"".join(pieces) == data
    for piece in pieces:
        table = scan(piece)
        assert table.tail_reason is None
        assert len(piece) <= max_size or len(table) == 1


@given(
    st.lists(st.tuples(st.none() | SMALL_BYTES, st.none() | SMALL_BYTES, TIMESTAMPS), max_size=30),
    st.integers(1, 7),
    st.integers(700, 3000),
)
def test_the_builder_and_build_write_what_the_twin_writes(
    rows: list[tuple[bytes | None, bytes | None, int]], max_records: int, max_size: int
) -> None:
    builder = BatchBuilder(
        50, 3, 9, 0x10, producer_id=8, producer_epoch=2, base_sequence=100,
        max_batch_records=max_records, max_batch_size=max_size,
    )  # fmt: skip
    for key, value, timestamp in rows:
        builder.append(value, key, timestamp_ms=timestamp)
    built = bytes(builder.finish())
    decoded = batch_twin.decode(built)
    assert b"".join(map(batch_twin.encode, decoded)) == built
    records = [record for batch in decoded for record in batch.records]
    assert [(r.key, r.value, r.timestamp_ms) for r in records] == rows
    assert [r.offset for r in records] == list(range(50, 50 + len(rows)))
    sequence = 100
    for batch in decoded:
        assert len(batch.records) <= max_records
        assert len(batch_twin.encode(batch)) <= max_size
        assert batch.base_sequence == sequence
        assert batch.max_timestamp == max(r.timestamp_ms for r in batch.records)
        sequence += len(batch.records)

    blob = b"".join((key or b"") + (value or b"") for key, value, _ in rows)
    key_lengths = np.array([-1 if k is None else len(k) for k, _, _ in rows], dtype=np.int32)
    value_lengths = np.array([-1 if v is None else len(v) for _, v, _ in rows], dtype=np.int32)
    sizes = np.maximum(key_lengths, 0) + np.maximum(value_lengths, 0)
    key_positions = np.cumsum(sizes) - sizes
    by_columns = batch_columns.build(
        blob, key_positions + np.maximum(key_lengths, 0), value_lengths,
        key_positions=key_positions, key_lengths=key_lengths,
        timestamps=[timestamp for _, _, timestamp in rows],
        base_offset=50, partition_leader_epoch=3, timestamp_ms=9, attributes=0x10,
        producer_id=8, producer_epoch=2, base_sequence=100,
        max_batch_records=max_records, max_batch_size=max_size,
    )  # fmt: skip
    assert by_columns == built


WIRE_VALUES = st.one_of(
    st.tuples(st.just("int8"), st.integers(-128, 127)),
    st.tuples(st.just("int16"), st.integers(-(2**15), 2**15 - 1)),
    st.tuples(st.just("int32"), INT32),
    st.tuples(st.just("int64"), INT64),
    st.tuples(st.just("uint16"), st.integers(0, 2**16 - 1)),
    st.tuples(st.just("uint32"), st.integers(0, 2**32 - 1)),
    st.tuples(st.just("float64"), st.floats(allow_nan=False)),
    st.tuples(st.just("bool"), st.booleans()),
    st.tuples(st.just("uvarint"), st.integers(0, 2**32 - 1)),
    st.tuples(st.just("varint"), INT32),
    st.tuples(st.just("uvarlong"), st.integers(0, 2**64 - 1)),
    st.tuples(st.just("varlong"), INT64),
    st.tuples(st.just("string"), st.text(max_size=50)),
    st.tuples(st.just("nullable_string"), st.none() | st.text(max_size=50)),
    st.tuples(st.just("compact_string"), st.text(max_size=50)),
    st.tuples(st.just("compact_nullable_string"), st.none() | st.text(max_size=50)),
    st.tuples(st.just("bytes"), SMALL_BYTES),
    st.tuples(st.just("nullable_bytes"), st.none() | SMALL_BYTES),
    st.tuples(st.just("compact_bytes"), SMALL_BYTES),
    st.tuples(st.just("compact_nullable_bytes"), st.none() | SMALL_BYTES),
    st.tuples(st.just("uuid"), st.binary(min_size=16, max_size=16)),
    st.tuples(st.just("tagged"), st.dictionaries(st.integers(0, 2**32 - 1), SMALL_BYTES)),
)


@given(st.lists(WIRE_VALUES, max_size=20))
def test_wire_values_come_back_and_no_prefix_holds_them(values: list[tuple[str, object]]) -> None:
    writer = Writer(16)
    for kind, value in values:
        getattr(writer, f"write_{kind}")(value)
    raw = writer.getvalue()
    reader = Reader(raw)
    assert [(kind, getattr(reader, f"read_{kind}")()) for kind, _ in values] == values
    assert reader.remaining() == 0
    if raw:
        cut = Reader(raw, 0, len(raw) - 1)
        with pytest.raises(CorruptRecordError) as caught:
            [getattr(cut, f"read_{kind}")() for kind, _ in values]
        assert 0 <= caught.value.position < len(raw)


@given(
    st.binary(max_size=60), st.lists(st.sampled_from([k for k in dir(Reader) if k[:5] == "read_"]))
)
def test_reading_any_bytes_as_anything_stays_inside(raw: bytes, kinds: list[str]) -> None:
    reader = Reader(raw, budget=1000)
    refused_at = []
    for kind in kinds:
        try:
            if kind in ("read_raw", "read_view"):
                getattr(reader, kind)(3)
            else:
                getattr(reader, kind)()
        except CorruptRecordError as error:
            refused_at.append(error.position)
        assert 0 <= reader.position <= len(raw)
    assert all(0 <= position <= len(raw) for position in refused_at)


@given(st.binary(min_size=16, max_size=16))
def test_each_uuid_has_exactly_one_text(value: bytes) -> None:
    assert uuid_from_text(uuid_to_text(value)) == value
