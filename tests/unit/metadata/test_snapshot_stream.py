"""A snapshot that is loaded part by part, beside the reader of whole files."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraft._core.bytes.batch import BatchBuilder, scan
from kraft._core.snapshot.snapshot_file import read_snapshot, write_snapshot
from kraft._core.table.table import PartitionTable
from kraft.errors import CorruptRecordError, KraftError
from kraft.metadata.snapshot_stream import SnapshotStream
from kraft.records.control import SnapshotFooter, SnapshotHeader, control_type, encode_control
from tests.reference.random_tables import meaning, random_table

DATA = Path(__file__).parents[2] / "data"
EPOCH = 7
FLIPS = 1000

Records = list[tuple[object, ...]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return a snapshot of several batches."""
    path = write_snapshot(
        tmp_path_factory.mktemp("snapshot"),
        5000,
        EPOCH,
        random_table(6, topics=700),
        partition_version=2,
        last_contained_log_timestamp_ms=1,
        timestamp_ms=2,
    )
    return Path(path).read_bytes()


def noting(records: Records) -> dict[str, Any]:
    return {
        "on_record": lambda *record: records.append(record),
        "on_control": lambda *record: records.append(record),
        "on_topic_removed": lambda *record: records.append(record),
    }


def stream(
    data: bytes, sizes: Callable[[], int], epoch: int = EPOCH
) -> tuple[PartitionTable, Records]:
    """Load the bytes in parts of these sizes."""
    table, records, position = PartitionTable(), Records(), 0
    loading = SnapshotStream(table, noting(records), epoch)
    while position < len(data):
        end = min(position + sizes(), len(data))
        loading.add(memoryview(data)[position:end], len(data))
        position = end
    loading.finish()
    return table, records


@pytest.mark.parametrize("most", [3, 50, 1000, 30_000, 1 << 20])
def test_the_parts_do_not_change_the_state(whole: bytes, most: int) -> None:
    expected, expected_records = PartitionTable(), Records()
    read_snapshot(whole, expected, **noting(expected_records))
    chance = random.Random(most)
    table, records = stream(whole, lambda: chance.randint(1, most))
    assert meaning(table) == meaning(expected)
    assert records == expected_records


def test_snapshots_of_kafka_are_loaded() -> None:
    paths = sorted(DATA.glob("kafka-*/**/*.checkpoint"))
    assert len(paths) > 5
    for path in paths:
        data = path.read_bytes()
        expected, expected_records = PartitionTable(), Records()
        info = read_snapshot(data, expected, **noting(expected_records))
        table, records = stream(data, lambda: 777, info.epoch)
        assert meaning(table) == meaning(expected)
        assert records == expected_records


def test_no_more_rows_are_reserved_than_the_size_suggests(whole: bytes) -> None:
    table, _ = stream(whole, lambda: 1 << 16)
    exact = PartitionTable()
    read_snapshot(whole, exact)
    sizes = table.memory_sizes["columns"], exact.memory_sizes["columns"]
    assert sizes[0] < 2 * sizes[1]


def test_every_truncation_is_an_error(whole: bytes) -> None:
    for size in [*range(1, len(whole), 4999), len(whole) - 1, len(whole) - 75]:
        with pytest.raises(CorruptRecordError):
            stream(whole[:size], lambda: 10_000)
    with pytest.raises(CorruptRecordError, match="without a SnapshotFooter"):
        stream(whole[: int(scan(whole).positions[-1])], lambda: 10_000)
    with pytest.raises(CorruptRecordError, match="within a batch"):
        stream(whole[:-1], lambda: 10_000)
    for behind in (b"\0", whole[-75:], b"garbage" * 30, b"\0" * 100, b"\xff" * 100):
        for part in (64, 10_000, 1 << 20):
            with pytest.raises(CorruptRecordError):
                stream(whole + behind, lambda part=part: part)  # type: ignore[misc]


def test_a_gap_and_another_epoch_are_errors(whole: bytes) -> None:
    table = scan(whole)
    start, end = int(table.positions[3]), int(table.positions[4])
    with pytest.raises(CorruptRecordError, match="a snapshot has no gaps"):
        stream(whole[:start] + whole[end:], lambda: 10_000)
    with pytest.raises(CorruptRecordError, match=r"epoch 7 in a snapshot of epoch 8"):
        stream(whole, lambda: 10_000, epoch=8)


def test_a_footer_or_header_out_of_place_is_an_error(whole: bytes) -> None:
    def control(offset: int, *made: SnapshotHeader | SnapshotFooter) -> bytes:
        builder = BatchBuilder(offset, EPOCH, 0, 32)
        for each in made:
            builder.append(encode_control(each), b"\0\0" + control_type(each).to_bytes(2, "big"))
        return bytes(builder.finish())

    first, last = SnapshotHeader(), SnapshotFooter()
    stream(control(0, first) + control(1, last), lambda: 50)
    for between in (first, last):
        with pytest.raises(CorruptRecordError, match="in the middle"):
            stream(control(0, first, between) + control(2, last), lambda: 50)
    with pytest.raises(CorruptRecordError, match="does not begin"):
        stream(control(0, last) + control(1, first), lambda: 50)
    data = BatchBuilder(0, EPOCH, 0)
    data.append(b"\1\x14\0\0")
    with pytest.raises(CorruptRecordError, match="does not begin"):
        stream(bytes(data.finish()) + control(1, last), lambda: 50)
    with pytest.raises(CorruptRecordError, match="without a SnapshotFooter"):
        stream(control(0, first), lambda: 50)


def test_flipped_bits_are_found(whole: bytes) -> None:
    chance = random.Random(5)
    for _ in range(FLIPS):
        damaged = bytearray(whole)
        damaged[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        with pytest.raises(KraftError):
            stream(bytes(damaged), lambda: 100_000)
