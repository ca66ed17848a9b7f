"""Snapshots in Kafka's format and their column checkpoints: whole, damaged and cut short."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from numpy.typing import NDArray

from kraft._core.bytes.batch import BatchBuilder, scan
from kraft._core.bytes.checksum import crc32c
from kraft._core.snapshot.column_checkpoint import (
    SECTIONS,
    ColumnCheckpoint,
    ColumnsRejected,
    columns_path,
    load_columns,
    save_columns,
)
from kraft._core.snapshot.snapshot_file import (
    SnapshotReader,
    SnapshotWriter,
    parse_snapshot_name,
    read_snapshot,
    snapshot_name,
    write_snapshot,
)
from kraft._core.table.table import PartitionTable
from kraft.errors import CorruptRecordError, InvalidRequestError, KraftError, StorageError
from kraft.records import Partition, RemoveTopic, Topic, Uuid
from kraft.records.control import (
    KRaftVersion,
    KRaftVoters,
    SnapshotFooter,
    SnapshotHeader,
    control_type,
    encode_control,
)
from kraft.records.values import encode_value
from kraft.simulation.memory_disk import MemoryDisk
from tests.harness.metadata_files import read_records
from tests.reference.random_tables import batches_of, meaning, random_records, random_table

DATA = Path(__file__).parents[3] / "data" / "kafka-4.3"
KAFKA_SNAPSHOTS = sorted(DATA.glob("**/*.checkpoint"))
COLUMNS = [name for name, _, shape in SECTIONS if shape[0] == "rows"]
TIMES = {"last_contained_log_timestamp_ms": 1_700_000_000_000, "timestamp_ms": 1_700_000_000_500}
FLIPS = 2000


def write(directory: Path, table: PartitionTable, **more: object) -> str:
    return write_snapshot(directory, 5000, 7, table, partition_version=2, **TIMES, **more)


def loaded(path: str, *, verify: bool = True) -> ColumnCheckpoint:
    found = load_columns(path, verify=verify)
    assert isinstance(found, ColumnCheckpoint), found
    return found


def rejection(path: str, *, verify: bool = True) -> str:
    found = load_columns(path, verify=verify)
    assert isinstance(found, ColumnsRejected)
    return found.reason


# --- snapshots in Kafka's format


def test_the_name_says_where_a_snapshot_ends() -> None:
    assert snapshot_name(251, 1) == "00000000000000000251-0000000001.checkpoint"
    assert parse_snapshot_name(snapshot_name(251, 1)) == (251, 1)
    assert parse_snapshot_name("bootstrap.checkpoint") is None
    assert parse_snapshot_name("9" * 20 + "-0000000001.checkpoint") is None


@pytest.mark.parametrize("path", KAFKA_SNAPSHOTS, ids=lambda path: path.name)
def test_a_snapshot_of_kafka_is_read_and_written_again_record_by_record(
    path: Path, tmp_path: Path
) -> None:
    theirs = list(read_records(path))
    topics = [e.offset for e in theirs if isinstance(e.record, Topic | Partition)] or [0]
    before: list[bytes] = []
    after: list[bytes] = []
    control: list[tuple[int, bytes]] = []
    table = PartitionTable()
    info = read_snapshot(
        path,
        table,
        on_record=lambda offset, value: (before if offset < topics[0] else after).append(value),
        on_control=lambda _offset, _epoch, type_, value: control.append((type_, value)),
    )
    assert info.record_count == sum(not each.is_control for each in theirs)
    assert info.control_record_count == len(control)
    assert info.batch_count == len(scan(path.read_bytes()))
    header = theirs[0].record
    assert isinstance(header, SnapshotHeader)
    assert info.last_contained_log_timestamp_ms == header.last_contained_log_timestamp

    ours = write_snapshot(
        tmp_path,
        max(info.end_offset, 0),
        info.epoch,
        table,
        partition_version=2,
        before_topics=[batches_of(before)],
        after_topics=[batches_of(after)],
        control_records=control[1:-1],
        last_contained_log_timestamp_ms=info.last_contained_log_timestamp_ms,
        timestamp_ms=1,
    )
    assert list(read_records(Path(ours))) == theirs


def test_a_snapshot_has_kafkas_batches(tmp_path: Path) -> None:
    """Batches have 1,024 records, one epoch, offsets from 0 and control batches at both ends."""
    table = random_table(2, topics=700)
    voters = [KRaftVersion(kraft_version=1), KRaftVoters(voters=[])]
    path = write(
        tmp_path,
        table,
        before_topics=[batches_of([b"\1\x0b\0" + b"x" * 9] * 30)],
        control_records=[(control_type(each), encode_control(each)) for each in voters],
    )
    batches = scan(Path(path).read_bytes())
    assert batches.tail_reason is None
    assert batches.attributes.tolist()[:1] == [32]
    assert batches.attributes.tolist()[-1:] == [32]
    assert not batches.attributes[1:-1].any()
    assert batches.record_counts[0] == 3
    assert (batches.record_counts[1:-2] == 1024).all()
    assert batches.record_counts[-1] == 1
    assert batches.record_counts[1:-1].sum() == 30 + table.topic_count + table.partition_count
    assert set(batches.partition_leader_epochs) == {7}
    assert set(batches.base_timestamps) == {TIMES["timestamp_ms"]}
    assert set(batches.producer_ids) == {-1}
    assert (np.diff(batches.base_offsets) == batches.record_counts[:-1]).all()


@pytest.mark.parametrize("seed", range(6))
def test_writing_in_small_pieces_changes_no_byte(tmp_path: Path, seed: int) -> None:
    table = random_table(seed, topics=60)
    whole = Path(write(tmp_path, table)).read_bytes()
    with SnapshotWriter(tmp_path, 5000, 7, **TIMES, chunk_size=100) as writer:
        writer.append_table(table, version=2)
        small = Path(writer.finish()).read_bytes()
    assert small == whole
    again = PartitionTable()
    info = read_snapshot(small, again)
    assert meaning(again) == meaning(table)
    assert info.end_offset == -1


def test_an_unfinished_snapshot_leaves_nothing_under_its_name(tmp_path: Path) -> None:
    part = tmp_path / (snapshot_name(5000, 7) + ".part")
    part.write_bytes(b"left behind by a crash, and longer than what will be written" * 100)
    with SnapshotWriter(tmp_path, 5000, 7, **TIMES) as writer:
        writer.append_table(random_table(1), version=2)
    assert list(tmp_path.iterdir()) == []

    part.write_bytes(b"left behind by a crash, and longer than what will be written" * 100)
    path = write(tmp_path, random_table(1))
    assert list(tmp_path.iterdir()) == [Path(path)]
    SnapshotReader(path)


def test_a_disk_failure_is_reported_and_nothing_is_renamed() -> None:
    for operation in ("write", "sync", "rename"):
        disk = MemoryDisk()
        disk.make_directory("/log")
        disk.refuse(operation)
        with pytest.raises(StorageError):
            write_snapshot("/log", 1, 1, random_table(1), partition_version=2, disk=disk, **TIMES)
        assert not disk.exists("/log/" + snapshot_name(1, 1))


def test_snapshots_and_columns_use_the_given_disk() -> None:
    disk = MemoryDisk()
    disk.make_directory("/log")
    table = random_table(3)
    path = write_snapshot("/log", 1, 1, table, partition_version=2, disk=disk, **TIMES)
    again = PartitionTable()
    read_snapshot(path, again, disk=disk)
    assert meaning(again) == meaning(table)
    save_columns(path, table, records=b"abc", disk=disk)
    found = load_columns(path, disk=disk)
    assert isinstance(found, ColumnCheckpoint)
    assert meaning(found.table) == meaning(table)


def test_every_truncation_of_a_snapshot_is_an_error(tmp_path: Path) -> None:
    path = Path(write(tmp_path, random_table(4)))
    whole = path.read_bytes()
    for size in [*range(0, len(whole), 37), len(whole) - 1, len(whole) - 75]:
        with pytest.raises(CorruptRecordError):
            SnapshotReader(whole[:size])
    with pytest.raises(CorruptRecordError, match="without a SnapshotFooter"):
        SnapshotReader(whole[: scan(whole).positions[-1]])
    for behind in (b"\0", whole[-75:], b"garbage" * 30):
        with pytest.raises(CorruptRecordError):
            SnapshotReader(whole + behind)


def test_a_footer_or_header_in_the_middle_is_an_error() -> None:
    def control(offset: int, *made: SnapshotHeader | SnapshotFooter) -> bytes:
        builder = BatchBuilder(offset, 1, 0, 32)
        for each in made:
            builder.append(encode_control(each), b"\0\0" + control_type(each).to_bytes(2, "big"))
        return bytes(builder.finish())

    first, last = SnapshotHeader(), SnapshotFooter()
    assert SnapshotReader(control(0, first) + control(1, last)).info.record_count == 0
    for between in (first, last):
        with pytest.raises(CorruptRecordError, match="in the middle"):
            read_snapshot(control(0, first, between) + control(2, last), PartitionTable())
    with pytest.raises(CorruptRecordError, match="does not begin"):
        SnapshotReader(control(0, last) + control(1, first))


def test_flipped_bits_in_a_snapshot_are_found(tmp_path: Path) -> None:
    chance = random.Random(5)
    path = write(tmp_path, random_table(6))
    whole = Path(path).read_bytes()
    for _ in range(FLIPS):
        damaged = bytearray(whole)
        damaged[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        with pytest.raises(KraftError):
            read_snapshot(damaged, PartitionTable())


def test_only_data_batches_go_into_a_snapshot(tmp_path: Path) -> None:
    control = BatchBuilder(0, 1, 0, 32)
    control.append(b"\0\0\0", b"\0\0\0\4")
    with SnapshotWriter(tmp_path, 1, 1, **TIMES) as writer:
        with pytest.raises(InvalidRequestError):
            writer.append_batches(control.finish())
        with pytest.raises(CorruptRecordError):
            writer.append_batches(b"no batch")
        writer.finish()
        with pytest.raises(InvalidRequestError, match="is finished"):
            writer.append_batches(b"")


# --- column checkpoints


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_loaded_columns_are_a_compact_table(tmp_path: Path, seed: int, verify: bool) -> None:
    table = random_table(seed, topics=40)
    before = meaning(table)
    path = write(tmp_path, table)
    save_columns(path, table, records=b"the rest", kraft_version=1)
    assert meaning(table) == before

    found = loaded(path, verify=verify)
    assert bytes(found.records) == b"the rest"
    assert found[2:] == (5000, 7, TIMES["last_contained_log_timestamp_ms"], 1)
    assert meaning(found.table) == before
    table.compact()
    found.table.ensure_checked()
    for name in COLUMNS:
        assert np.array_equal(found.table.column(name), table.column(name)), name
    assert found.table.irregular_count == table.irregular_count
    assert found.table.partition_count == table.partition_count


def test_an_empty_table_has_columns_too(tmp_path: Path) -> None:
    path = write(tmp_path, PartitionTable())
    save_columns(path, PartitionTable())
    found = loaded(path)
    assert found.table.partition_count == 0
    assert meaning(found.table) == {}
    assert len(found.records) == 0


def test_a_mapped_table_is_changed_like_any_other_without_changing_its_file(tmp_path: Path) -> None:
    """Removals, growth, reverts and compaction give the same rows as in a table in memory."""
    table = random_table(9, topics=40)
    table.compact()
    path = write(tmp_path, table)
    save_columns(path, table)
    saved = Path(columns_path(path)).read_bytes()
    mapped = loaded(path, verify=False).table
    gone = [table.topic_id_of(topic) for topic in table.topic_numbers()[::3]]
    values = [encode_value(RemoveTopic(topic_id=Uuid(each))) for each in gone]
    builder = BatchBuilder(1000, 1)
    for record in random_records(1234, topics=20, first=100):
        builder.append(encode_value(record))
    for each in (table, mapped):
        each.apply(batches_of(values))
        each.start_journal(1000)
    more = builder.finish()
    for each in (table, mapped):
        each.apply(more)
        each.clear_elr(None, 2000)
    assert meaning(mapped) == meaning(table)
    for each in (table, mapped):
        each.revert(1000)
        each.forget_all()
        each.compact()
    assert meaning(mapped) == meaning(table)
    assert Path(columns_path(path)).read_bytes() == saved


def test_a_mapped_table_with_a_journal_owns_its_memory(tmp_path: Path) -> None:
    """Starting the journal copies the mapped memory, because a table with a journal grows."""
    table = random_table(9, topics=40)
    path = write(tmp_path, table)
    save_columns(path, table)
    mapped = loaded(path).table
    before, lent = meaning(mapped), [mapped.column(name) for name in COLUMNS]
    mapped.start_journal(1000)
    for name, view in zip(COLUMNS, lent, strict=True):
        assert not np.shares_memory(mapped.column(name), view)
        assert np.array_equal(mapped.column(name), view)
    assert meaning(mapped) == before == meaning(table)


def test_a_reverted_table_is_saved_like_one_that_never_changed(tmp_path: Path) -> None:
    """A revert leaves old values in the entries of topics; they must not be saved."""
    table = random_table(4)
    before = meaning(table)
    table.start_journal(1000)
    builder = BatchBuilder(1000, 1)
    for topic in table.topic_numbers():
        last = len(table.topic_rows(topic))
        added = Partition(
            partition_id=last, topic_id=Uuid(table.topic_id_of(topic)), replicas=[1], isr=[1]
        )
        builder.append(encode_value(added))
    table.apply(builder.finish())
    assert meaning(table) != before
    table.revert(1000)
    path = write(tmp_path, table)
    save_columns(path, table)
    assert meaning(loaded(path).table) == before


def test_columns_outlive_their_file(tmp_path: Path) -> None:
    table = random_table(2)
    path = write(tmp_path, table)
    save_columns(path, table)
    mapped = loaded(path, verify=False)
    Path(columns_path(path)).unlink()
    assert meaning(mapped.table) == meaning(table)
    assert rejection(path) == "no such file"


def test_columns_of_another_snapshot_are_rejected(tmp_path: Path) -> None:
    table = random_table(2)
    path = write(tmp_path, table)
    save_columns(path, table)
    write_snapshot(
        tmp_path, 5000, 7, table, partition_version=2, timestamp_ms=9,
        last_contained_log_timestamp_ms=9,
    )  # fmt: skip
    assert rejection(path) == "it belongs to another snapshot"
    other = write_snapshot(tmp_path, 5001, 7, table, partition_version=2, **TIMES)
    Path(columns_path(path)).rename(columns_path(other))
    assert rejection(other) == "it belongs to another snapshot"
    Path(other).unlink()
    assert "no such file" in rejection(other)


def test_columns_are_saved_only_beside_a_whole_snapshot(tmp_path: Path) -> None:
    table = random_table(2)
    with pytest.raises(InvalidRequestError):
        save_columns(tmp_path / "table", table)
    torn = tmp_path / snapshot_name(1, 1)
    torn.write_bytes(Path(write(tmp_path, table)).read_bytes()[:-1])
    with pytest.raises(CorruptRecordError):
        save_columns(torn, table)


@pytest.mark.parametrize("verify", [True, False])
def test_columns_cut_short_are_rejected(tmp_path: Path, verify: bool) -> None:
    table = random_table(3)
    path = write(tmp_path, table)
    columns = Path(save_columns(path, table))
    whole = columns.read_bytes()
    for size in [*range(0, len(whole), 61), len(whole) - 1]:
        columns.write_bytes(whole[:size])
        assert rejection(path, verify=verify)
    columns.write_bytes(whole + b"\0")
    assert "bytes long where its header requires" in rejection(path, verify=verify)
    Path(columns_path(path) + ".part").write_bytes(b"x" * 100_000)
    save_columns(path, table)
    assert columns.read_bytes() == whole


def use(table: PartitionTable) -> None:
    """Read every row of a table, and change some."""
    table.topic_number("orders-1")
    ids = []
    for topic in table.topic_numbers():
        table.topic_number(table.topic_name(topic))
        ids.append(table.topic_id_of(topic))
        for partition in range(10):
            table.row_of(topic, partition)
    for row in range(table.row_count):
        table.state_of(row)
    table.encode_snapshot(BatchBuilder(0, 1), version=2)
    for broker in (0, 5, 99):
        table.broker_rows(broker)
    table.apply(batches_of([encode_value(RemoveTopic(topic_id=Uuid(each))) for each in ids]))
    table.compact()


@pytest.mark.parametrize("seed", [6, 7])
def test_flipped_bits_in_columns_are_rejected_or_change_nothing(tmp_path: Path, seed: int) -> None:
    """A verified load rejects the file or returns the same table.

    An unverified load may reject the file, a later read may fail, or values may be wrong. No read
    goes outside the mapped memory.
    """
    chance = random.Random(seed)
    table = random_table(seed, topics=30)
    path = write(tmp_path, table)
    columns = Path(save_columns(path, table, records=b"records" * 9))
    whole = columns.read_bytes()
    expected = meaning(table)
    found = refused_late = 0
    with columns.open("r+b", buffering=0) as file:
        for _ in range(FLIPS):
            place = chance.choice(
                (chance.randrange(len(whole)), chance.randrange(8192, len(whole)))
            )
            file.seek(place)
            file.write(bytes([whole[place] ^ 1 << chance.randrange(8)]))
            checked = load_columns(path)
            if isinstance(checked, ColumnCheckpoint):
                assert meaning(checked.table) == expected
                assert bytes(checked.records) == b"records" * 9
            else:
                found += 1
            mapped = load_columns(path, verify=False)
            if isinstance(mapped, ColumnCheckpoint):
                try:
                    use(mapped.table)
                except KraftError:
                    refused_late += 1
            file.seek(place)
            file.write(whole[place : place + 1])
    assert found > FLIPS // 2
    assert refused_late > FLIPS // 20
    assert meaning(loaded(path).table) == expected


def reseal(columns: Path, name: str, damage: Callable[[NDArray[Any]], None]) -> None:
    """Change one section of a column checkpoint and update every CRC-32C."""
    raw = bytearray(columns.read_bytes())
    (size,) = struct.unpack_from("<I", raw, 8)
    header = msgpack.unpackb(raw[16 : 16 + size])
    section = next(section for section in header["sections"] if section[0] == name)
    _, dtype, shape, position, length, _ = section
    damage(np.ndarray(shape, dtype, raw, position))
    section[5] = crc32c(raw[position : position + length])
    packed = msgpack.packb(header)
    raw[:8192] = (raw[:8] + struct.pack("<II", len(packed), crc32c(packed)) + packed).ljust(
        8192, b"\0"
    )
    columns.write_bytes(raw)


def swap_two(slots: NDArray[Any]) -> None:
    first, second = np.flatnonzero(slots)[:2]
    slots[first], slots[second] = slots[second], slots[first]


def name_one_twice(slots: NDArray[Any]) -> None:
    first, second = np.flatnonzero(slots)[:2]
    slots[second] = slots[first]


def move_one_away(slots: NDArray[Any]) -> None:
    """Move an entry to the empty slot before its own, where no lookup finds it."""
    start = next(i for i in range(1, len(slots)) if slots[i] and not slots[i - 1])
    slots[start - 1], slots[start] = slots[start], 0


@pytest.mark.parametrize("damage", [swap_two, name_one_twice, move_one_away])
@pytest.mark.parametrize("slots", ["topic_name_slots", "topic_id_slots", "directory_id_slots"])
def test_slots_under_which_a_number_is_not_found_are_rejected_though_every_crc_fits(
    tmp_path: Path, slots: str, damage: Callable[[NDArray[Any]], None]
) -> None:
    table = random_table(11, topics=30)
    path = write(tmp_path, table)
    columns = Path(save_columns(path, table))
    reseal(columns, slots, lambda section: None)
    assert meaning(loaded(path).table) == meaning(table)
    reseal(columns, slots, damage)
    assert "not found" in rejection(path)
    mapped = load_columns(path, verify=False)
    if isinstance(mapped, ColumnCheckpoint):
        with pytest.raises(CorruptRecordError, match="not found"):
            mapped.table.ensure_checked()


def test_two_topics_of_one_name_are_rejected_though_every_crc_fits(tmp_path: Path) -> None:
    table = PartitionTable()
    ids = [Uuid(bytes([n]) * 16) for n in (1, 2)]
    table.apply(
        batches_of([encode_value(Topic(name, ids[n])) for n, name in enumerate(("ab", "cd"))])
    )
    path = write(tmp_path, table)
    columns = Path(save_columns(path, table))

    def rename(text: NDArray[Any]) -> None:
        text[2:] = text[:2]

    reseal(columns, "topic_name_text", rename)
    assert "not found" in rejection(path)
