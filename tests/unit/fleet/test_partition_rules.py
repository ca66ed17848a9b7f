"""The rules of partitions: broken histories are found, ISRs follow the replicas, digests agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kraft import records
from kraft._core.table.table import PartitionTable
from kraft.fleet.partition_rules import (
    IsrTargets,
    RowCount,
    Rows,
    are_led_by,
    are_out_of_sync,
    breaches_of,
    changed_rows,
    check_rows,
    check_steps,
    isr_targets,
    table_digest,
)
from kraft.fleet.shared_metadata import SharedMetadata
from kraft.image.publishing import ImageDelta
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
    apply(table, batch_of([A, *log]))
    return table


def change(number: int, **fields: Any) -> Record:
    return records.PartitionChange(partition_id=number, topic_id=TOPIC, version=1, **fields)


ROWS = np.array([0, 1], np.int32)
A = records.Topic(name="a", topic_id=TOPIC, version=0)


def test_a_leader_outside_of_its_isr_is_found() -> None:
    table = table_of(partition(0, [1, 2], [1, 2], 1), partition(1, [2, 3], [3], 2))
    image = table.image(3)
    found = check_rows(image, ROWS)
    assert [(each.rule, each.rows.tolist()) for each in found] == [
        ("the leader is not in the ISR", [1])
    ]
    assert [str(each) for each in breaches_of(image, found, 20)] == [
        "a-1: the leader is not in the ISR"
    ]
    assert breaches_of(image, found, 0) == []


def test_a_partition_without_a_leader_breaks_no_rule() -> None:
    table = table_of(partition(0, [1, 2], [1, 2], 1), partition(1, [2, 3], [3], -1))
    assert check_rows(table.image(3), ROWS) == []


class Steps:
    """Two partitions in leader epoch 5 and partition epoch 9, and what `check_steps` says."""

    def __init__(self) -> None:
        self._offset = 0
        self._found: list[str] = []
        self._shared = SharedMetadata(lambda delta, size: self._check(delta))
        self.check(A, partition(0, [1, 2], [1, 2], 1), partition(1, [2, 3], [2, 3], 2))

    def _check(self, delta: ImageDelta) -> None:
        if not delta.is_full:
            found = check_steps(delta, changed_rows(delta))
            self._found = list(map(str, breaches_of(delta.image.table, found, 20)))

    def check(self, *log: Record) -> list[str]:
        """Apply records as one delta; return the broken rules."""
        self._found = []
        piece = self._shared.receive(self._offset, bytes(batch_of(log, self._offset)))
        self._offset += len(log)
        self._shared.commit(piece, self._offset)
        return self._found


def with_epochs(number: int, leader: int, leader_epoch: int, partition_epoch: int) -> Record:
    """Return a whole record of partition 0 or 1; Kafka writes it for a new partition only."""
    record = partition(number, [1, 2] if number == 0 else [2, 3], [], leader)
    assert isinstance(record, records.Partition)
    record.leader_epoch, record.partition_epoch = leader_epoch, partition_epoch
    return record


def test_changes_that_obey_the_rules_have_no_breach() -> None:
    steps = Steps()
    assert steps.check(change(0, leader=2, isr=[2])) == []
    # As when the ISR shrinks: the leader is named again, and its epoch rises.
    assert steps.check(change(0, leader=2), change(0, isr=[2, 1]), change(1, leader=3)) == []
    new = records.Partition(
        partition_id=2,
        topic_id=TOPIC,
        replicas=[1],
        isr=[1],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=[DIRECTORY],
        version=1,
    )
    assert steps.check(new, change(2, leader=-1), change(2, leader=1)) == []
    assert steps.check(change(0, isr=[2]), records.RemoveTopic(topic_id=TOPIC, version=0)) == []


@pytest.mark.parametrize(
    ("leader", "leader_epoch", "partition_epoch", "rule"),
    [
        (2, 4, 10, "the leader epoch fell"),
        (2, 7, 10, "the leader epoch rose by more than one"),
        (3, 5, 10, "the leader changed, and its epoch did not rise"),
        (2, 5, 9, "the partition epoch did not rise by one"),
        (2, 5, 11, "the partition epoch did not rise by one"),
    ],
)
def test_a_record_whose_epochs_do_not_rise_by_one_is_found(
    leader: int, leader_epoch: int, partition_epoch: int, rule: str
) -> None:
    steps = Steps()
    wrong = with_epochs(1, leader, leader_epoch, partition_epoch)
    assert steps.check(change(0, leader=2), wrong) == [f"a-1: {rule}"]


@pytest.mark.parametrize(
    ("first", "second", "rule"),
    [
        # Partition epoch 9, 11, 11; leader epoch 5, 7, 7.
        ((2, 5, 11), (2, 5, 11), "the partition epoch did not rise by one"),
        ((2, 7, 10), (2, 7, 11), "the leader epoch rose by more than one"),
        ((2, 4, 10), (2, 5, 11), "the leader epoch fell"),
        # The leader is the old one again, and its epoch as it was.
        ((3, 5, 10), (2, 5, 11), "the leader changed, and its epoch did not rise"),
    ],
)
def test_a_wrong_record_is_found_although_the_next_one_makes_up_for_it(
    first: tuple[int, int, int], second: tuple[int, int, int], rule: str
) -> None:
    assert Steps().check(with_epochs(1, *first), with_epochs(1, *second)) == [f"a-1: {rule}"]


def test_a_new_partition_in_a_later_epoch_is_found() -> None:
    new = partition(2, [1, 2], [1, 2], 1)
    assert Steps().check(new, change(2, isr=[1])) == [
        "a-2: a new partition does not begin with epoch 0"
    ]


def targets(
    table: PartitionTable, offset: int, **brokers: list[int]
) -> list[tuple[int, int, list[int]]]:
    """Return row, leader and ISR of each target."""
    given = {name: np.array(ids, np.int32) for name, ids in brokers.items()}
    found = isr_targets(table.image(offset), ROWS, **given)
    assert found.leader_epochs.tolist() == [5] * len(found.rows)
    assert found.partition_epochs.tolist() == [9] * len(found.rows)
    isrs = [[member for member in isr if member >= 0] for isr in found.isrs]
    return list(zip(found.rows, found.leaders, isrs, strict=True))


def test_replicas_that_keep_up_enter_the_isr_at_its_end() -> None:
    table = table_of(partition(0, [1, 2, 3], [3], 3), partition(1, [2, 3], [2, 3], 2))
    assert targets(table, 3, led_by=[2, 3], joining=[2, 3], leaving=[]) == [(0, 3, [3, 2])]


def test_a_lagging_replica_leaves_the_isr_but_not_its_leader() -> None:
    table = table_of(partition(0, [1, 2], [1, 2], 1), partition(1, [2, 3], [2, 3], 2))
    assert targets(table, 3, led_by=[1, 2], joining=[1, 3], leaving=[2]) == [(0, 1, [1])]
    assert targets(table, 3, led_by=[1, 2], joining=[], leaving=[1, 2]) == [(0, 1, [1])]


def test_a_replica_enters_while_another_leaves_and_the_order_stays() -> None:
    table = table_of(
        partition(0, [1, 2, 3, 4], [3, 2, 1], 3), partition(1, [3, 2, 4], [4, 3, 2], 4)
    )
    assert targets(table, 3, led_by=[3, 4], joining=[4], leaving=[2]) == [
        (0, 3, [3, 1, 4]),
        (1, 4, [4, 3]),
    ]


def test_only_a_leader_of_this_process_proposes() -> None:
    table = table_of(partition(0, [1, 2], [1], 1), partition(1, [2, 3], [2], 2))
    assert targets(table, 3, led_by=[2], joining=[2, 3], leaving=[]) == [(1, 2, [2, 3])]


def test_targets_are_chosen_by_mask() -> None:
    table = table_of(partition(0, [1, 2], [1], 1), partition(1, [2, 3], [2], 2))
    every = np.array([1, 2, 3], np.int32)
    found = isr_targets(
        table.image(3), ROWS, led_by=every, joining=every, leaving=np.empty(0, np.int32)
    )
    chosen = found.where(found.leaders == 2)
    assert isinstance(chosen, IsrTargets)
    assert (chosen.rows.tolist(), chosen.isrs[:, :2].tolist()) == ([1], [[2, 3]])


class Counted:
    """A shared state, a count of its rows, and how many rows were looked at for it."""

    def __init__(self, holds: Callable[[PartitionTable, Rows], NDArray[np.bool_]]) -> None:
        self.looked_at = 0

        def counted(table: PartitionTable, rows: Rows) -> NDArray[np.bool_]:
            self.looked_at += len(rows)
            return holds(table, rows)

        self._offset = 0
        self.shared = SharedMetadata(lambda delta, size: self._note(delta))
        self._rows = RowCount(counted, self.shared.state.table)

    def _note(self, delta: ImageDelta) -> None:
        self._rows.note(delta, changed_rows(delta), self.shared.state.table)

    def apply(self, *log: Record) -> int:
        """Return the count after these records; it is the one of a new count of all rows."""
        piece = self.shared.receive(self._offset, bytes(batch_of(log, self._offset)))
        self._offset += len(log)
        self.shared.commit(piece, self._offset)
        looked_at = self.looked_at
        assert self._rows.count == RowCount(self._rows._holds, self.shared.state.table).count
        self.looked_at = looked_at
        return self._rows.count


def test_partitions_out_of_sync_are_counted_until_they_are_removed() -> None:
    counted = Counted(are_out_of_sync)
    assert counted.apply(A, partition(0, [1, 2], [1], 1), partition(1, [2, 3], [3, 2], 2)) == 1
    moved = change(1, adding_replicas=[4], replicas=[2, 3, 4], directories=[DIRECTORY] * 3)
    assert counted.apply(moved) == 2
    assert counted.apply(change(0, isr=[2, 1])) == 1
    assert counted.apply(partition(2, [1, 2], [1], 1)) == 2
    assert counted.apply(records.RemoveTopic(topic_id=TOPIC, version=0)) == 0


def test_the_partitions_of_lost_leaders_are_counted() -> None:
    counted = Counted(are_led_by(np.array([2, 3], np.int32)))
    assert counted.apply(A, partition(0, [1, 2], [1], 1), partition(1, [2, 3], [3, 2], 2)) == 1
    assert counted.apply(change(0, leader=2, isr=[1, 2])) == 2
    assert counted.apply(change(1, leader=-1)) == 1
    assert counted.apply(records.RemoveTopic(topic_id=TOPIC, version=0)) == 0


def test_a_count_looks_at_changed_rows_only() -> None:
    counted = Counted(are_out_of_sync)
    counted.apply(A, *(partition(number, [1, 2], [1], 1) for number in range(1000)))
    counted.looked_at = 0
    for number in range(50):
        assert counted.apply(change(number, isr=[1, 2])) == 999 - number
    assert counted.looked_at == 50


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
