"""Record batches: compared with aiokafka and with bytes from Kafka, and damaged batches."""

from __future__ import annotations

import gc
import gzip
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiokafka.record._crecords import DefaultRecordBatch, DefaultRecordBatchBuilder

from kraft._core.bytes import batch_columns, batch_records, compression
from kraft._core.bytes.batch import (
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_LOG_APPEND_TIME,
    BatchBuilder,
    assign_offsets,
    deflate,
    inflate,
    scan,
    split,
)
from kraft._core.bytes.batch_check import validate
from kraft._core.bytes.batch_columns import BatchColumns
from kraft.errors import (
    BudgetExceededError,
    CorruptRecordError,
    InvalidRequestError,
    RecordTooLargeError,
    UnsupportedCompressionTypeError,
)

KAFKA = Path(__file__).parents[3] / "data" / "kafka-4.3"
SEGMENTS = sorted(
    path
    for path in KAFKA.rglob("*")
    if path.name.removesuffix(".gz").endswith((".log", ".checkpoint"))
)
RECORDS = [
    (b"key", b"value", [("a", b"1"), ("b", None)], 1000),
    (None, b"v" * 300, [], 1005),
    (b"k" * 70, None, [("\u00e9", b"")], 990),
]


def written_by_aiokafka(codec: int = 0, transactional: bool = False) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=transactional,
        producer_id=7,
        producer_epoch=2,
        base_sequence=11,
        batch_size=1 << 20,
    )
    for offset, (key, value, headers, timestamp) in enumerate(RECORDS):
        assert builder.append(offset, timestamp, key, value, headers) is not None
    return bytes(builder.build())


def ours(**options: Any) -> bytes:
    builder = BatchBuilder(**options)
    for key, value, headers, timestamp in RECORDS:
        builder.append(value, key, headers, timestamp_ms=timestamp)
    return bytes(builder.finish())


def seen(data: bytes) -> list[tuple[Any, ...]]:
    return [
        (r.key, r.value, [(name.decode(), value) for name, value in r.headers], r.timestamp_ms)
        for batch in batch_records.iterate(data)
        for r in batch
    ]


def read_segment(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def test_the_builder_writes_the_bytes_of_aiokafka() -> None:
    built = ours(attributes=0x10, producer_id=7, producer_epoch=2, base_sequence=11)
    # Brokers set the leader epoch, which the CRC does not cover; aiokafka leaves it at 0 or -1.
    theirs = bytearray(written_by_aiokafka(transactional=True))
    assign_offsets(theirs, 0, -1)
    assert built == theirs


def test_aiokafka_reads_what_the_builder_wrote() -> None:
    batch = DefaultRecordBatch(ours(base_offset=40))
    assert batch.validate_crc()
    assert [(r.offset, r.key, r.value, r.headers, r.timestamp) for r in batch] == [
        (40 + i, *record) for i, record in enumerate(RECORDS)
    ]


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_every_codec_of_aiokafka_is_read(codec: int) -> None:
    data = written_by_aiokafka(codec)
    assert seen(data) == RECORDS
    columns = batch_columns.BatchColumns.read(data)
    assert columns.value_lengths.tolist() == [5, 300, -1]
    assert columns.batches.producer_ids.tolist() == [7]
    (batch,) = batch_records.iterate(data)
    assert batch.codec == ("none", "gzip", "snappy", "lz4", "zstd")[codec]


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_aiokafka_reads_every_codec_of_the_builder(codec: int) -> None:
    batch = DefaultRecordBatch(ours(attributes=codec))
    assert batch.validate_crc()
    assert [(r.key, r.value, r.headers, r.timestamp) for r in batch] == RECORDS


@pytest.mark.parametrize("path", SEGMENTS, ids=lambda path: str(path.relative_to(KAFKA)))
def test_batches_of_kafka_are_valid_and_dense_and_rebuilt_to_the_same_bytes(path: Path) -> None:
    data = read_segment(path)
    table = validate(data, dense=True)
    assert table.tail_position == len(data)
    columns = batch_columns.BatchColumns.read(data)
    assert columns.build() == data
    records = [record for batch in batch_records.iterate(data) for record in batch.records()]
    assert columns.offsets.tolist() == [record.offset for record in records]
    assert columns.timestamps.tolist() == [record.timestamp_ms for record in records]
    values = [
        data[at : at + size]
        for at, size in zip(columns.value_positions, columns.value_lengths, strict=True)
    ]
    assert values == [record.value for record in records]
    control = [record.control_type for record in records if record.is_control]
    assert set(control) <= {2, 3, 4, 5, 6}
    for row in table.array:
        batch = DefaultRecordBatch(
            data[row["position"] : row["position"] + 12 + row["batch_length"]]
        )
        assert batch.validate_crc()
        assert batch.base_offset == row["base_offset"]


def test_the_kept_cluster_is_there() -> None:
    assert len(SEGMENTS) > 5


def test_a_batch_closes_at_its_limits() -> None:
    builder = BatchBuilder(10, 3, 5, max_batch_records=2)
    for i in range(5):
        builder.append(b"%d" % i)
    table = validate(builder.finish(), dense=True)
    assert table.base_offsets.tolist() == [10, 12, 14]
    assert table.record_counts.tolist() == [2, 2, 1]
    assert (builder.batch_count, builder.record_count, builder.next_offset) == (3, 5, 15)

    by_size = BatchBuilder(max_batch_size=61 + 2 * 17)
    for _ in range(3):
        by_size.append(b"0123456789")
    assert scan(by_size.finish()).sizes.tolist() == [61 + 34, 61 + 17]


def test_a_record_larger_than_a_batch_is_rejected_and_the_builder_continues() -> None:
    builder = BatchBuilder(max_batch_size=100)
    with pytest.raises(RecordTooLargeError):
        builder.append(bytes(100))
    builder.append(b"fits")
    assert [record[1] for record in seen(bytes(builder.finish()))] == [b"fits"]
    with pytest.raises(InvalidRequestError):
        builder.append(b"late")


def test_control_batches_name_their_type() -> None:
    builder = BatchBuilder(0, 1, 5, ATTRIBUTE_CONTROL)
    builder.append(b"\x00\x00", key=b"\x00\x00\x00\x03")
    (batch,) = batch_records.iterate(builder.finish())
    assert batch.is_control
    assert [record.control_type for record in batch] == [3]


def test_every_record_has_the_brokers_time_under_log_append_time() -> None:
    data = ours(attributes=ATTRIBUTE_LOG_APPEND_TIME, timestamp_ms=5000)
    assert [record[3] for record in seen(data)] == [5000] * 3
    columns = batch_columns.BatchColumns.read(data)
    assert columns.timestamps.tolist() == [5000] * 3
    assert columns.create_timestamps.tolist() == [1000, 1005, 990]
    assert columns.build() == data


def test_a_delete_horizon_replaces_the_base_timestamp() -> None:
    data = ours(delete_horizon_ms=700)
    (batch,) = batch_records.iterate(data)
    assert (batch.base_timestamp, batch.delete_horizon_ms) == (700, 700)
    assert [record[3] for record in seen(data)] == [1000, 1005, 990]


def test_compacted_gaps_are_read_but_are_not_dense() -> None:
    builder = BatchBuilder(100)
    builder.append(b"a")
    builder.append(b"b", offset=107)
    data = builder.finish()
    assert [r.offset for batch in batch_records.iterate(data) for r in batch] == [100, 107]
    with pytest.raises(CorruptRecordError) as caught:
        validate(data, dense=True)
    assert caught.value.position == 61 + 8
    with pytest.raises(InvalidRequestError):
        BatchBuilder(100).append(b"c", offset=99)


def test_a_torn_tail_is_found_where_it_begins() -> None:
    whole = ours()
    table = scan(whole * 2 + whole[:-1], base_position=1000)
    assert table.positions.tolist() == [1000, 1000 + len(whole)]
    assert table.tail_position == 1000 + 2 * len(whole)
    assert table.tail_reason == "a batch is cut short"
    assert scan(whole + whole[:60]).tail_reason == "a batch header is cut short"


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        (16, b"\x01", "magic"),
        (8, b"\x00\x00\x00\x30", "length"),
        (0, b"\xff", "offsets"),
        (57, b"\xff\xff\xff\xff", "negative number"),
        (57, b"\x7f\xff\xff\xff", "offsets"),
        (23, b"\x7f\xff\xff\xff" + bytes(30) + b"\x7f\xff\xff\xff", "more records"),
        (22, b"\x05", "codec"),
        (70, b"!", "CRC"),
    ],
)
def test_a_damaged_batch_is_rejected_with_its_position(
    place: int, value: bytes, reason: str
) -> None:
    good = ours()
    damaged = bytearray(good * 2)
    damaged[len(good) + place : len(good) + place + len(value)] = value
    assert len(scan(damaged)) == 1
    for read in (validate, batch_columns.BatchColumns.read, lambda data: list(iterate(data))):
        with pytest.raises(CorruptRecordError, match=reason) as caught:
            read(bytes(damaged))
        assert caught.value.position == len(good)


@pytest.mark.parametrize("codec", [0, 1])
def test_a_damaged_record_is_rejected_with_its_position_in_any_batch(codec: int) -> None:
    good = ours()
    data = bytearray(good + bytes(deflate(good, codec)) + good)
    assign_offsets(data, 0, 0)
    assert len(validate(data, dense=True)) == 3
    damaged = bytearray(data)
    last = len(data) - len(good)
    damaged[last + 61] += 2
    with pytest.raises(CorruptRecordError, match="record") as caught:
        validate(damaged, dense=True, verify_crc=False, base_position=1000)
    assert (caught.value.position, caught.value.offset) == (1000 + last + 61, 6)
    with pytest.raises(CorruptRecordError, match="offset 6 where 3 is next") as caught:
        validate(data[: len(good)] + data[last:], dense=True)
    assert caught.value.position == len(good)


iterate = batch_records.iterate


def test_offsets_are_assigned_in_place_or_not_at_all() -> None:
    buffer = bytearray(ours() * 2)
    assert assign_offsets(buffer, 500, 9) == 506
    table = validate(buffer, dense=True)
    assert table.base_offsets.tolist() == [500, 503]
    assert table.partition_leader_epochs.tolist() == [9, 9]
    unsound = buffer[:-1]
    before = bytes(unsound)
    with pytest.raises(CorruptRecordError):
        assign_offsets(unsound, 0, 1)
    assert unsound == before


def test_a_sealed_batch_gets_the_time_at_which_it_is_written() -> None:
    builder = BatchBuilder(timestamp_ms=1000)
    builder.append(b"first")
    builder.append(b"second", timestamp_ms=1025)
    buffer = builder.finish()
    assign_offsets(buffer, 7, 2, 5_000)
    (batch,) = iterate(buffer)
    assert [record.timestamp_ms for record in batch] == [5_000, 5_025]
    assert validate(buffer, dense=True).base_offsets.tolist() == [7]
    assign_offsets(buffer, 8, 2)
    assert [record.timestamp_ms for record in next(iter(iterate(buffer)))] == [5_000, 5_025]


def test_split_gives_whole_batches_without_copying() -> None:
    one = ours()
    data = bytearray(one * 3)
    pieces = split(data, 2 * len(one))
    assert [len(piece) for piece in pieces] == [2 * len(one), len(one)]
    assert [len(piece) for piece in split(data, 1)] == [len(one)] * 3
    data[0] = 0x7F
    assert pieces[0][0] == 0x7F


def test_columns_outlive_a_table_that_was_collected_in_a_cycle() -> None:
    """Regression: the cycle collector freed the rows under the columns, then freed them again."""
    data = ours() * 20
    columns = []
    for _ in range(50):
        cycle: list[Any] = [scan(data)]
        cycle.append(cycle)
        columns.append(cycle[0].positions)
        del cycle
    gc.collect()
    wanted = [number * len(ours()) for number in range(20)]
    assert all(column.tolist() == wanted for column in columns)


def test_build_refuses_rows_outside_the_buffer() -> None:
    for position, length in ((-1, 1), (3, 2), (5, 0), (0, -2), (2**62, 5)):
        with pytest.raises(InvalidRequestError):
            batch_columns.build(b"1234", [position], [length])
    with pytest.raises(InvalidRequestError):
        batch_columns.build(b"1234", [0, 1], [1])
    assert len(batch_columns.build(b"", np.empty(0, np.int64), np.empty(0, np.int32))) == 0


@pytest.mark.parametrize("size", [0, 100, 200_000])
def test_lz4_frames_have_independent_blocks(size: int) -> None:
    """Kafka rejects frames whose blocks depend on one another ("Dependent block stream ...")."""
    plain = b"0123456789" * (size // 10)
    frame = compression.compress(3, plain)
    assert frame[:4] == b"\x04\x22\x4d\x18"
    assert frame[4] & 0x20
    assert compression.decompress(3, memoryview(frame), size) == plain


def test_gzip_members_follow_each_other() -> None:
    texts = [b"", b"a" * 100, b"", bytes(range(256)) * 300, b"end"]
    payload = memoryview(b"".join(gzip.compress(text) for text in texts))
    plain = b"".join(texts)
    assert compression.decompress(1, payload, len(plain)) == plain
    with pytest.raises(BudgetExceededError):
        compression.decompress(1, payload, len(plain) - 1)
    for cut in (1, 8, len(payload) - 1):
        with pytest.raises(CorruptRecordError):
            compression.decompress(1, payload[:cut], len(plain))


def test_many_gzip_members_take_time_in_proportion_to_their_bytes() -> None:
    """50,000 members took 0.7 s in 1 MB, and 100 times that in 10 MB."""
    payload = memoryview(gzip.compress(b"") * 200_000)
    begun = time.process_time()
    assert compression.decompress(1, payload, 0) == b""
    assert time.process_time() - begun < 5


def test_a_decompression_bomb_exceeds_the_budget() -> None:
    builder = BatchBuilder()
    builder.append(bytes(4_000_000))
    plain = builder.finish()
    for codec in (1, 2, 3, 4):
        packed = deflate(plain, codec)
        with pytest.raises(BudgetExceededError):
            inflate(packed, budget=1_000_000)
        assert inflate(packed, budget=4_000_100) == plain


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_the_budget_is_that_of_all_batches_together(codec: int) -> None:
    builder = BatchBuilder()
    builder.append(bytes(600_000))
    packed = bytes(deflate(builder.finish(), codec))
    both = bytearray(packed + packed)
    assign_offsets(both, 0, 0)
    for read in (inflate, validate, BatchColumns.read):
        read(packed, budget=1_000_000)
        with pytest.raises(BudgetExceededError):
            read(both, budget=1_000_000)
        read(both, budget=1_300_000)


def test_a_missing_codec_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = deflate(ours(), 4)
    monkeypatch.setitem(__import__("sys").modules, "cramjam", None)
    with pytest.raises(UnsupportedCompressionTypeError, match="kraft\\[codecs\\]"):
        inflate(packed)


def test_a_bare_snappy_block_is_read() -> None:
    cramjam = pytest.importorskip("cramjam")
    block = memoryview(bytes(cramjam.snappy.compress_raw(b"plain" * 9)))
    assert compression.decompress(2, block, 1000) == b"plain" * 9


def test_records_outlive_the_batch_that_they_came_from() -> None:
    records = [r for batch in batch_records.iterate(bytearray(ours())) for r in batch.records()]
    views = [record.value_view for record in records]
    assert [None if view is None else bytes(view) for view in views] == [r[1] for r in RECORDS]
