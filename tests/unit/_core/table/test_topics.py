"""Find the row of a topic's partition: extents, gaps, any order of partitions, removed topics.

The tests use the C tables through ``PartitionTable``, their only caller.
"""

from __future__ import annotations

import random

from kraft import records
from kraft._core.table.table import PartitionTable
from kraft.records import Record, Uuid
from tests.harness.table_records import apply, batch_of

A, B = Uuid(b"a" * 16), Uuid(b"b" * 16)
TOPICS = [records.Topic(name="a", topic_id=A), records.Topic(name="b", topic_id=B)]


def partition(topic_id: Uuid, number: int) -> Record:
    return records.Partition(
        partition_id=number, topic_id=topic_id, replicas=[1], isr=[1], leader=number % 100
    )


def table_of(numbers: list[tuple[Uuid, int]]) -> PartitionTable:
    table = PartitionTable()
    apply(table, batch_of([*TOPICS, *(partition(*each) for each in numbers)]))
    return table


def leaders(table: PartitionTable, topic: int) -> list[int]:
    return [table.state_of(row)["leader"] for row in table.topic_rows(topic).tolist()]


def test_partitions_in_order_are_one_extent() -> None:
    table = table_of([(A, n) for n in range(50)] + [(B, n) for n in range(50)])
    assert table.topic_rows(1).tolist() == list(range(50, 100))
    assert table.row_of(1, 49) == 99
    assert table.row_of(1, 50) == table.row_of(1, -1) == -1
    assert table.is_compact


def test_partitions_in_any_order_are_found_and_listed_by_id() -> None:
    numbers = [(topic, n) for topic in (A, B) for n in range(200)]
    random.Random(3).shuffle(numbers)
    table = table_of(numbers)
    for topic in (0, 1):
        assert leaders(table, topic) == [n % 100 for n in range(200)]
    assert not table.is_compact
    table.compact()
    assert table.is_compact
    assert table.topic_rows(1).tolist() == list(range(200, 400))
    for topic in (0, 1):
        assert leaders(table, topic) == [n % 100 for n in range(200)]


def test_wide_gaps_in_ids_cost_no_search_of_every_id() -> None:
    numbers = [2**31 - 1, 5, 10**9, 0, 77]
    table = table_of([(A, n) for n in numbers])
    assert leaders(table, 0) == [n % 100 for n in sorted(numbers)]
    assert [table.row_of(0, n) for n in numbers] == list(range(5))
    assert table.row_of(0, 6) == -1
    table.compact()
    assert leaders(table, 0) == [n % 100 for n in sorted(numbers)]


def test_a_revert_of_scattered_partitions_keeps_the_others() -> None:
    table = PartitionTable()
    table.start_journal(0)
    chance = random.Random(9)
    numbers = list(range(300))
    chance.shuffle(numbers)
    apply(table, batch_of([TOPICS[0], *(partition(A, n) for n in numbers)]))
    for kept in (250, 120, 7, 1, 0):
        table.revert(1 + kept)
        assert leaders(table, 0) == [n % 100 for n in sorted(numbers[:kept])]
    apply(table, batch_of([partition(A, 9), partition(A, 10), partition(A, 8)], 1))
    assert table.topic_rows(0).tolist() == [2, 0, 1]


def test_numbers_of_removed_topics_are_reused_only_after_compaction() -> None:
    table = table_of([(A, 0), (B, 0)])
    apply(table, batch_of([records.RemoveTopic(topic_id=A)], 10))
    assert (table.topic_numbers(), table.topic_count) == ([1], 1)
    assert (table.topic_name(0), table.topic_id_of(0)) == ("a", bytes(A))
    assert table.topic_number("a") == table.topic_number_by_id(A) == -1
    apply(table, batch_of([TOPICS[0]], 11))
    assert table.topic_number("a") == 2
    table.compact()
    assert table.topic_numbers() == [0, 1]
    assert table.row_count == table.partition_count == 1


def test_scattered_partitions_are_found_while_their_map_grows() -> None:
    # Every partition of `b` except the first is outside of the topic's extent, so a map has its
    # row. Beyond 4,096 slots the map grows by moving a few entries at a time.
    table = PartitionTable()
    table.start_journal(0)
    apply(table, batch_of(TOPICS))
    for first in range(0, 7_000, 50):
        pairs = [(topic, n) for n in range(first, first + 50) for topic in (A, B)]
        apply(table, batch_of([partition(*each) for each in pairs], 2 + 2 * first))
        if first % 350 == 0:
            assert [table.row_of(1, n) for n in range(first + 50)] == [
                2 * n + 1 for n in range(first + 50)
            ]
            assert table.row_of(1, first + 50) == -1
    for kept in (4_600, 4_200, 4_090, 10):
        table.revert(2 + 2 * kept)
        assert [table.row_of(0, n) for n in range(kept)] == list(range(0, 2 * kept, 2))
        assert [table.row_of(1, n) for n in range(kept)] == list(range(1, 2 * kept, 2))
        assert table.row_of(0, kept) == table.row_of(1, kept) == -1
