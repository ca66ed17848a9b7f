"""The partition table's public interface: records, callbacks, columns, rejected input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kraft import records
from kraft._core.bytes.batch import BatchBuilder
from kraft._core.table.table import PartitionTable
from kraft.errors import (
    CorruptRecordError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    ReplayError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from kraft.records import Record, Uuid, decode_value
from kraft.records.batches import encode_control_records
from tests.harness.table_records import batch_of

A = Uuid(b"a" * 16)
TOPIC = records.Topic(name="a", topic_id=A)
DIRECTORIES = [Uuid(n.to_bytes(16, "big")) for n in (70, 71, 72)]
FIRST = records.Partition(
    partition_id=0,
    topic_id=A,
    replicas=[1, 2, 3],
    isr=[2, 1],
    leader=2,
    leader_epoch=4,
    partition_epoch=5,
    directories=DIRECTORIES,
    eligible_leader_replicas=[3],
    version=2,
)


def change(**fields: object) -> Record:
    return records.PartitionChange(partition_id=0, topic_id=A, version=2).replace(**fields)


def table_of(*log: Record, stride: int = 3) -> PartitionTable:
    table = PartitionTable(stride=stride)
    table.apply(batch_of(log))
    return table


def test_a_partition_fills_its_columns() -> None:
    table = table_of(TOPIC, FIRST)
    columns = {name: table.column(name)[0].tolist() for name in ("leader", "leader_epoch", "topic")}
    assert columns == {"leader": 2, "leader_epoch": 4, "topic": 0}
    assert table.column("replicas").tolist() == [[1, 2, 3]]
    # Four bits a member, lowest first: its index in the replicas plus one. The ISR is [2, 1].
    assert hex(table.column("isr")[0]) == "0x12"
    assert hex(table.column("elr")[0]) == "0x3"
    ids = [table.directory_id(int(n)) for n in table.column("directories")[0]]
    assert ids == [bytes(each) for each in DIRECTORIES]
    with pytest.raises(ValueError, match="read-only"):
        table.column("leader")[0] = 1


def test_a_change_increments_epochs() -> None:
    table = table_of(TOPIC, FIRST, change(isr=[1]), change(leader=1), change(leader=-1))
    state = table.state_of(0)
    assert (state["leader"], state["leader_epoch"], state["partition_epoch"]) == (-1, 6, 8)
    assert state["isr"] == [1]


def test_a_reassignment_uses_the_side_table_until_it_completes() -> None:
    table = table_of(
        TOPIC, FIRST, change(replicas=[1, 2, 3, 4], adding_replicas=[4], removing_replicas=[1],
                             directories=[*DIRECTORIES, DIRECTORIES[0]])
    )  # fmt: skip
    assert table.irregular_count == 1
    assert table.column("replicas").tolist() == [[1, 2, 3]]
    assert table.state_of(0)["replicas"] == [1, 2, 3, 4]
    done = change(
        replicas=[4, 2, 3],
        adding_replicas=[],
        removing_replicas=[],
        isr=[4, 2],
        directories=DIRECTORIES,
        eligible_leader_replicas=[],
    )
    table.apply(batch_of([done], 3))
    assert table.irregular_count == 0
    assert table.column("replicas").tolist() == [[4, 2, 3]]
    assert table.state_of(0)["isr"] == [4, 2]


def test_unknown_directories_follow_the_replicas() -> None:
    # Records below version 1 have no directories: the row has an unknown one for each replica.
    unknown = FIRST.replace(directories=[], eligible_leader_replicas=None)
    table = table_of(TOPIC, unknown, change(replicas=[1, 2]))
    assert table.state_of(0)["directories"] == [0, 0]
    table.apply(batch_of([change(directories=[Uuid(bytes(16))])], 3))
    assert table.state_of(0)["directories"] == [0, 0]
    with pytest.raises(CorruptRecordError, match="as many directories"):
        table.apply(batch_of([change(directories=DIRECTORIES)], 4))
    known = table_of(TOPIC, FIRST)
    with pytest.raises(CorruptRecordError, match="as many directories"):
        known.apply(batch_of([change(replicas=[1, 2])], 2))


def test_many_wide_rows_widen_the_stride_and_a_journal_survives_it() -> None:
    wide = [FIRST.replace(partition_id=n, replicas=[1, 2, 3, 4, 5], isr=[5, 1], directories=[],
                          eligible_leader_replicas=None) for n in range(1, 40)]  # fmt: skip
    table = PartitionTable()
    table.start_journal(0)
    table.apply(batch_of([TOPIC, FIRST, change(isr=[1])]))
    table.apply(batch_of(wide, 3))
    assert (table.stride, table.irregular_count) == (3, 39)
    table.apply(batch_of([change(isr=[3])], 42))
    assert (table.stride, table.irregular_count) == (5, 0)
    assert table.column("replicas")[7].tolist() == [1, 2, 3, 4, 5]
    assert table.column("replicas")[0].tolist() == [1, 2, 3, -1, -1]
    assert table.state_of(7)["isr"] == [5, 1]
    assert table.state_of(0)["isr"] == [3]
    table.revert(2)
    assert table.state_of(0)["isr"] == [2, 1]
    assert table.partition_count == 1


def test_a_cold_load_chooses_the_stride_first() -> None:
    wide = [FIRST.replace(partition_id=n, replicas=[1, 2, 3, 4, 5], isr=[5, 1], directories=[],
                          eligible_leader_replicas=None) for n in range(1, 40)]  # fmt: skip
    table = PartitionTable()
    table.apply(batch_of([TOPIC, FIRST, *wide]))
    assert (table.stride, table.irregular_count) == (5, 0)
    assert table.state_of(7)["isr"] == [5, 1]
    assert table.state_of(0)["replicas"] == FIRST.replicas


def test_other_records_go_to_the_callback_in_order() -> None:
    setting = records.Config(resource_type=2, resource_name="a", name="x", value="1")
    log = [setting, TOPIC, FIRST, setting, records.RemoveTopic(topic_id=A), records.NoOp(), setting]
    seen: list[object] = []
    table = PartitionTable()
    table.apply(
        batch_of(log, 100),
        on_record=lambda offset, value: seen.append((offset, decode_value(value))),
        on_topic_removed=lambda offset, name: seen.append((offset, name, table.topic_count)),
    )
    assert seen == [(100, setting), (103, setting), (104, "a", 0), (106, setting)]
    assert table.counts_by_key == {2: 1, 3: 1, 4: 3, 9: 1, 20: 1}


def test_control_records_go_to_the_callback_with_their_epoch() -> None:
    header = encode_control_records(
        [records.SnapshotHeader(last_contained_log_timestamp=5)], base_offset=7, epoch=3
    )
    seen: list[tuple[int, int, int]] = []
    table = PartitionTable()
    end = table.apply(
        header, on_control=lambda offset, epoch, key, value: seen.append((offset, epoch, key))
    )
    assert (end, seen) == (8, [(7, 3, 3)])


def test_an_error_of_a_callback_propagates() -> None:
    def refuse(offset: int, value: bytes) -> None:
        raise ReplayError("not this one")

    with pytest.raises(ReplayError, match="not this one"):
        PartitionTable().apply(batch_of([records.FenceBroker(id=1)]), on_record=refuse)


def test_a_range_of_offsets_is_applied_within_batches_too() -> None:
    log = [TOPIC, *(FIRST.replace(partition_id=n) for n in range(5))]
    table = PartitionTable()
    assert table.apply(batch_of(log, 10), end_offset=13) == 13
    assert table.partition_count == 2
    assert table.apply(batch_of(log, 10), start_offset=13) == 16
    assert table.partition_count == 5
    assert table.apply(b"") == -1


def test_errors_of_damaged_bytes_have_their_position() -> None:
    first, second = bytes(batch_of([TOPIC])), bytearray(batch_of([FIRST], 1))
    second[-3] ^= 1
    with pytest.raises(CorruptRecordError, match="CRC") as caught:
        PartitionTable().apply(first + second, path="x.log", base_position=50)
    error = caught.value
    assert (error.path, error.offset, error.position) == ("x.log", 1, 50 + len(first))
    with pytest.raises(CorruptRecordError):
        PartitionTable().apply(first[:40])


def test_a_compressed_batch_is_rejected() -> None:
    builder = BatchBuilder(0, 1, attributes=1)
    builder.append(b"x")
    with pytest.raises(UnsupportedVersionError, match="compressed"):
        PartitionTable().apply(builder.finish())


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ([TOPIC, TOPIC], "of this name exists"),
        ([TOPIC, TOPIC.replace(name="b")], "of this id exists"),
        ([FIRST], "no topic has this id"),
        ([change()], "no topic has this id"),
        ([records.RemoveTopic(topic_id=A)], "no topic has this id"),
        ([TOPIC, change()], "no such partition"),
        ([TOPIC, FIRST.replace(partition_id=-1)], "must not be negative"),
    ],
)
def test_a_record_that_contradicts_the_table_is_rejected(log: list[Record], words: str) -> None:
    with pytest.raises(ReplayError, match=words) as caught:
        table_of(*log)
    assert f"offset {len(log) - 1}" in str(caught.value)


def test_invalid_queries_are_errors() -> None:
    table = table_of(TOPIC, FIRST)
    builder = BatchBuilder(0, 1)
    for rows in ([1], [-1]):
        with pytest.raises(InvalidRequestError, match="holds no partition"):
            table.encode_partitions(builder, rows, version=2)
    for version in (-1, 3):
        with pytest.raises(UnsupportedVersionError):
            table.encode_partitions(builder, version=version)
        with pytest.raises(UnsupportedVersionError):
            table.encode_snapshot(builder, version=version)
    for question in (table.topic_rows, lambda topic: table.row_of(topic, 0),
                     lambda topic: table.encode_topic_record(builder, topic),
                     lambda topic: table.encode_topic_removal(builder, topic)):  # fmt: skip
        for topic in (-1, 1):
            with pytest.raises(UnknownTopicOrPartitionError):
                question(topic)
    for row in (-1, 1):
        with pytest.raises(OffsetOutOfRangeError):
            table.state_of(row)
    with pytest.raises(KeyError):
        table.column("name")
    with pytest.raises(IndexError):
        table.directory_id(99)


def test_a_view_from_before_growth_stays_readable() -> None:
    table = table_of(TOPIC, FIRST)
    early = table.column("leader")
    table.apply(batch_of([FIRST.replace(partition_id=n) for n in range(1, 500)], 2))
    assert early.tolist() == [2]
    assert np.array_equal(table.column("leader"), np.full(500, 2))


def test_a_large_table_grows_in_place() -> None:
    table = PartitionTable(capacity=100_000)
    table.apply(batch_of([TOPIC, FIRST], 0))
    before = table.column("leader").ctypes.data
    size = table.memory_sizes["columns"]
    table.reserve(1_000_000)
    table.apply(batch_of([FIRST.replace(partition_id=1)], 2))
    assert table.column("leader").ctypes.data == before, "growing would copy a million rows"
    assert table.column("replicas").tolist() == [[1, 2, 3]] * 2
    assert table.column("leader").tolist() == [2, 2]
    # Address space that is only reserved does not count as memory.
    assert 100_000 * 57 <= size < 101_000 * 57
    assert 1_000_000 * 57 <= table.memory_sizes["columns"] < 1_010_000 * 57


@pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="the kernel has no huge pages"
)
def test_rows_that_are_copied_in_steps_are_not_written_to_huge_pages() -> None:
    """The kernel zeroes a huge page at the first write, one in each column: 20 ms."""
    assert asks_for_huge_pages(PartitionTable(capacity=1 << 18))
    assert not asks_for_huge_pages(PartitionTable(capacity=1 << 18, huge_pages=False))


def asks_for_huge_pages(table: PartitionTable) -> bool:
    address = table.column("leader").ctypes.data
    is_here = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if "-" in first and ":" not in first:
            begin, end = (int(each, 16) for each in first.split("-"))
            is_here = begin <= address < end
        elif is_here and first == "VmFlags:":
            return "hg" in rest
    raise AssertionError("the column has no address")


def test_memory_sizes_by_part() -> None:
    table = table_of(TOPIC, *(FIRST.replace(partition_id=n) for n in range(1000)))
    table.ensure_index()
    sizes = table.memory_sizes
    assert set(sizes) == {"columns", "topics", "directories", "broker_index", "journal"}
    assert sizes["columns"] >= 1000 * 57
    assert sizes["broker_index"] >= 3 * 4 * 1000
    assert sizes["journal"] == 0


def test_the_journal_counts_the_whole_rows_that_it_keeps() -> None:
    sizes = []
    for last in (change(isr=[1]), change(replicas=list(range(32)), directories=[])):
        table = PartitionTable()
        table.start_journal(0)
        table.apply(batch_of([TOPIC, FIRST, last]))
        sizes.append(table.memory_sizes["journal"])
    # A row has ten numbers, three replicas, three directories, two ISR members and one ELR member.
    assert sizes[1] - sizes[0] == 4 * (10 + 2 * 3 + 2 + 1)


@pytest.mark.parametrize("journaling", [False, True])
@pytest.mark.parametrize("between", ["change", "partition"])
def test_records_of_another_topic_in_between_end_a_run(between: str, journaling: bool) -> None:
    # A run of records is one topic's: a record of another topic must end it.
    other = Uuid(b"b" * 16)
    plain_one = FIRST.replace(directories=[], eligible_leader_replicas=None, version=0)
    of_other = plain_one.replace(topic_id=other)
    middle = of_other if between == "partition" else change(topic_id=other, leader=7)
    table = PartitionTable()
    if journaling:
        table.start_journal(0)
    log = [TOPIC.replace(name="b", topic_id=other), of_other, TOPIC, plain_one, middle]
    log += [of_other.replace(partition_id=1, leader=8), plain_one.replace(partition_id=1, leader=9)]
    table.apply(batch_of(log))
    assert table.topic_rows(0).tolist() == [0, 2]
    assert table.topic_rows(1).tolist() == [1, 3]
    assert table.column("leader").tolist()[2:] == [8, 9]


@pytest.mark.parametrize("delta", [-1, 0, 9])
@pytest.mark.parametrize("journaling", [False, True])
def test_offsets_within_a_batch_ascend_and_stay_within_it(delta: int, journaling: bool) -> None:
    log = [TOPIC, *(FIRST.replace(partition_id=n) for n in range(4))]
    good = bytes(batch_of(log, 100))
    # The last record starts with length (2 bytes), attributes, timestamp delta and offset delta.
    place = good.rindex(b"\x00\x00\x08\x01")
    bad = good[: place + 2] + bytes([((delta << 1) ^ (delta >> 7)) & 0xFF]) + good[place + 3 :]
    table = PartitionTable()
    if journaling:
        table.start_journal(100)
    with pytest.raises(CorruptRecordError, match="offset delta"):
        table.apply(bad, verify_crc=False)
    assert table.partition_count == 3


def test_reserving_rows_allocates_once() -> None:
    table = table_of(TOPIC, FIRST)
    before = table.column("leader").tolist()
    table.reserve(1_000)
    room = table.column_memory_size
    table.apply(batch_of([FIRST.replace(partition_id=id) for id in range(1, 1_000)], base_offset=2))
    assert table.column_memory_size == room
    assert table.column("leader").tolist() == before + [2] * 999
    with pytest.raises(MemoryError):
        table.reserve(1 << 31)
    with pytest.raises(ValueError, match="cannot reserve -1 rows: reserve 0 or more"):
        table.reserve(-1)
