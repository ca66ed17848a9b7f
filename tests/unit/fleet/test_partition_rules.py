"""The rules of partitions: broken histories are found, ISRs follow the replicas, digests agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kraft import records
from kraft._core.table.images import TableImage
from kraft._core.table.table import PartitionTable
from kraft.fleet.partition_rules import (
    IsrTarget,
    check_rows,
    isr_targets,
    rows_led_by,
    rows_out_of_sync,
    table_digest,
)
from kraft.records import Record, Uuid
from tests.harness.table_records import apply, batch_of

TOPIC = Uuid(bytes([1]) * 16)
OTHER = Uuid(bytes([2]) * 16)
DIRECTORY = Uuid(bytes([7]) * 16)


def partition(number: int, replicas: list[int], isr: list[int], leader: int) -> Record:
    return records.Partition(
        partition_id=number,
        topic_id=TOPIC,
        replicas=replicas,
        isr=isr,
        leader=leader,
        leader_epoch=5,
        partition_epoch=9,
        directories=[DIRECTORY] * len(replicas),
        version=1,
    )


def table_of(*log: Record) -> PartitionTable:
    table = PartitionTable()
    table.start_journal(0)
    apply(table, batch_of([records.Topic(name="a", topic_id=TOPIC, version=0), *log]))
    return table


def after(table: PartitionTable, offset: int, *log: Record) -> tuple[TableImage, TableImage]:
    """Apply records; return the images before and after them."""
    before = table.image(offset)
    apply(table, batch_of(log, offset))
    return before, table.image(offset + len(log))


def change(number: int, **fields: Any) -> Record:
    return records.PartitionChange(partition_id=number, topic_id=TOPIC, version=1, **fields)


ROWS = np.array([0, 1], np.int32)


def test_partitions_that_obey_the_rules_have_no_breach() -> None:
    table = table_of(partition(0, [1, 2], [1, 2], 1), partition(1, [2, 3], [3], -1))
    before, image = after(table, 3, change(0, leader=2, isr=[2]))
    assert check_rows(before, image, ROWS) == []
    assert check_rows(None, image, ROWS) == []


def test_a_leader_outside_of_its_isr_is_found() -> None:
    table = table_of(partition(0, [1, 2], [1, 2], 1), partition(1, [2, 3], [3], 2))
    found = check_rows(None, table.image(3), ROWS)
    assert [str(each) for each in found] == ["a-1: the leader is not in the ISR"]


def test_a_leader_epoch_that_falls_is_found() -> None:
    table = table_of(partition(0, [1, 2], [1, 2], 1), partition(1, [2, 3], [2, 3], 2))
    again = partition(0, [1, 2], [1, 2], 1)
    assert isinstance(again, records.Partition)
    again.leader_epoch = 4
    before, image = after(table, 3, again)
    assert [each.rule for each in check_rows(before, image, ROWS)] == ["the leader epoch fell"]


def test_a_new_leader_in_the_old_epoch_is_found() -> None:
    table = table_of(partition(0, [1, 2], [1, 2], 1), partition(1, [2, 3], [2, 3], 2))
    before, image = after(table, 3, partition(0, [1, 2], [1, 2], 2))
    assert [each.rule for each in check_rows(before, image, ROWS)] == [
        "the leader changed, and its epoch did not rise"
    ]


def targets(table: PartitionTable, offset: int, **brokers: list[int]) -> list[IsrTarget]:
    given = {name: np.array(ids, np.int32) for name, ids in brokers.items()}
    return isr_targets(table.image(offset), ROWS, **given)


def test_replicas_that_keep_up_enter_the_isr_at_its_end() -> None:
    table = table_of(partition(0, [1, 2, 3], [3], 3), partition(1, [2, 3], [2, 3], 2))
    assert targets(table, 3, led_by=[2, 3], joining=[2, 3], leaving=[]) == [IsrTarget(0, 3, [3, 2])]


def test_a_lagging_replica_leaves_the_isr_but_not_its_leader() -> None:
    table = table_of(partition(0, [1, 2], [1, 2], 1), partition(1, [2, 3], [2, 3], 2))
    assert targets(table, 3, led_by=[1, 2], joining=[1, 3], leaving=[2]) == [IsrTarget(0, 1, [1])]


def test_only_a_leader_of_this_process_proposes() -> None:
    table = table_of(partition(0, [1, 2], [1], 1), partition(1, [2, 3], [2], 2))
    assert targets(table, 3, led_by=[2], joining=[2, 3], leaving=[]) == [IsrTarget(1, 2, [2, 3])]


def test_partitions_out_of_sync_are_counted_until_they_are_removed() -> None:
    table = table_of(partition(0, [1, 2], [1], 1), partition(1, [2, 3], [3, 2], 2))
    assert rows_out_of_sync(table) == 1
    moved = change(1, adding_replicas=[4], replicas=[2, 3, 4], directories=[DIRECTORY] * 3)
    apply(table, batch_of([moved], 3))
    assert rows_out_of_sync(table) == 2
    apply(table, batch_of([records.RemoveTopic(topic_id=TOPIC, version=0)], 4))
    assert rows_out_of_sync(table) == 0


def test_the_partitions_of_lost_leaders_are_counted() -> None:
    table = table_of(partition(0, [1, 2], [1], 1), partition(1, [2, 3], [3, 2], 2))
    assert rows_led_by(table, np.array([2, 3], np.int32)) == 1
    assert rows_led_by(table, np.array([3], np.int32)) == 0
    apply(table, batch_of([records.RemoveTopic(topic_id=TOPIC, version=0)], 3))
    assert rows_led_by(table, np.array([1, 2, 3], np.int32)) == 0


def test_equal_tables_have_equal_digests_whatever_their_history() -> None:
    direct = PartitionTable()
    apply(
        direct,
        batch_of(
            [
                records.Topic(name="b", topic_id=OTHER, version=0),
                records.Topic(name="a", topic_id=TOPIC, version=0),
                partition(0, [1, 2], [2, 1], 1),
                partition(1, [2, 3], [2, 3], 2),
            ]
        ),
    )
    longer = PartitionTable()
    apply(
        longer,
        batch_of(
            [
                records.Topic(name="c", topic_id=Uuid(bytes([3]) * 16), version=0),
                records.Topic(name="a", topic_id=TOPIC, version=0),
                partition(1, [2, 3], [2, 3], 2),
                partition(0, [1, 2], [2, 1], 1),
                records.Topic(name="b", topic_id=OTHER, version=0),
                records.RemoveTopic(topic_id=Uuid(bytes([3]) * 16), version=0),
            ]
        ),
    )
    assert table_digest(direct) == table_digest(longer)
    assert table_digest(PartitionTable()) == table_digest(PartitionTable())


@pytest.mark.parametrize(
    "fields",
    [
        {"isr": [1, 2]},
        {"leader": 1},
        {"leader": 2},
        {"directories": [DIRECTORY, Uuid(bytes([8]) * 16)]},
        {"replicas": [1, 2, 3], "directories": [DIRECTORY] * 3},
    ],
)
def test_any_change_of_a_partition_changes_the_digest(fields: dict[str, Any]) -> None:
    table = table_of(partition(0, [1, 2], [2, 1], 1), partition(1, [2, 3], [2, 3], 2))
    before = table_digest(table)
    apply(table, batch_of([change(0, **fields)], 3))
    assert table_digest(table) != before
