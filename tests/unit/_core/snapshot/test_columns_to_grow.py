"""Large column checkpoints, loaded where rows can be added: a running node copies nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from kraft._core.snapshot.column_checkpoint import (
    COMPACT_FORMAT,
    PAGED_FORMAT,
    ColumnCheckpoint,
    ColumnsRejected,
    columns_path,
    load_columns,
    save_columns,
)
from kraft._core.snapshot.snapshot_file import write_snapshot
from kraft._core.table.table import PartitionTable
from kraft.records.values import encode_value
from tests.reference.random_tables import batches_of, meaning, random_records, random_table

TOPICS = 12_000
FLIPS = 60


@pytest.fixture(scope="module")
def large() -> PartitionTable:
    table = random_table(3, TOPICS)
    assert table.partition_count >= 1 << 15
    return table


@pytest.fixture
def snapshot(large: PartitionTable, tmp_path: Path) -> str:
    path = write_snapshot(
        tmp_path, 5000, 7, large, partition_version=2,
        last_contained_log_timestamp_ms=1, timestamp_ms=2,
    )  # fmt: skip
    save_columns(path, large)
    return path


def load(path: str) -> PartitionTable:
    found = load_columns(path, to_grow=True)
    assert isinstance(found, ColumnCheckpoint), found
    return found.table


def address(table: PartitionTable, name: str) -> int:
    return int(table.column(name).ctypes.data)


def format_of(path: str) -> int:
    data = Path(columns_path(path)).read_bytes()
    return data[data.index(b"\xa6format") + 7]


def test_a_large_table_is_the_same_however_its_columns_are_loaded(
    large: PartitionTable, snapshot: str
) -> None:
    assert format_of(snapshot) == PAGED_FORMAT
    lent = load_columns(snapshot)
    assert isinstance(lent, ColumnCheckpoint)
    assert meaning(load(snapshot)) == meaning(lent.table) == meaning(large)


def test_a_journal_and_new_topics_leave_the_columns_where_they_are(snapshot: str) -> None:
    table = load(snapshot)
    names = ("leader", "topic", "replicas", "leader_recovery_state")
    rows, before = table.row_count, [address(table, name) for name in names]
    table.start_journal(0)
    more = batches_of([encode_value(each) for each in random_records(5, 3000, first=TOPICS)])
    table.apply(more)
    assert [address(table, name) for name in names] == before
    twin = random_table(3, TOPICS)
    twin.apply(more)
    assert meaning(table) == meaning(twin)
    assert table.row_count > rows + 8192


def test_changes_and_copied_pages_leave_the_file_as_it_is(snapshot: str) -> None:
    whole = Path(columns_path(snapshot)).read_bytes()
    table = load(snapshot)
    expected = meaning(table)
    table.copy_shared_pages()
    table.copy_shared_pages()
    # Then nothing of it is needed any more.
    with Path(columns_path(snapshot)).open("r+b") as file:
        file.write(bytes(len(whole)))
    assert meaning(table) == expected
    Path(columns_path(snapshot)).write_bytes(whole)
    table = load(snapshot)
    table.start_journal(0)
    table.apply(batches_of([encode_value(each) for each in random_records(5, 50, first=TOPICS)]))
    assert Path(columns_path(snapshot)).read_bytes() == whole


def test_a_small_table_keeps_the_compact_format_of_earlier_versions(tmp_path: Path) -> None:
    small = random_table(3)
    path = write_snapshot(
        tmp_path, 5000, 7, small, partition_version=2,
        last_contained_log_timestamp_ms=1, timestamp_ms=2,
    )  # fmt: skip
    save_columns(path, small)
    assert format_of(path) == COMPACT_FORMAT
    table = load(path)
    table.start_journal(0)
    table.apply(batches_of([encode_value(each) for each in random_records(5, 5, first=12)]))
    assert table.partition_count > small.partition_count


@pytest.mark.parametrize("damage", ["flip", "cut"])
def test_damage_is_rejected_or_changes_nothing(
    large: PartitionTable, snapshot: str, damage: str
) -> None:
    path, chance = Path(columns_path(snapshot)), random.Random(11)
    whole, expected = path.read_bytes(), meaning(large)
    harm: dict[str, Callable[[int], bytes]] = {
        "flip": lambda at: whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :],
        "cut": lambda at: whole[:at],
    }
    rejected = 0
    for _ in range(FLIPS):
        path.write_bytes(harm[damage](chance.randrange(len(whole))))
        found = load_columns(snapshot, to_grow=True)
        rejected += isinstance(found, ColumnsRejected)
        if isinstance(found, ColumnCheckpoint):
            assert meaning(found.table) == expected
    assert rejected > FLIPS * 9 // 10
