"""Differences of two states, compared with a slow reference implementation, and their causes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import kraft
from kraft import Metadata
from kraft.metadata.change_causes import ChangeCause
from kraft.metadata.diff import Difference, TopicShape
from kraft.metadata.partitions import PartitionInfo
from kraft.records import (
    AbortTransaction,
    BeginTransaction,
    ClearElr,
    Config,
    EndTransaction,
    FeatureLevel,
    Partition,
    PartitionChange,
    Record,
    RemoveTopic,
    Topic,
    Uuid,
)
from kraft.records.batches import encode_records
from tests.reference.diff_twin import slow_partition_differences

DATA = Path(__file__).parents[2] / "data" / "kafka-4.3"
ORDERS, OTHER, D1, D2 = (Uuid(bytes([each]) * 16) for each in (10, 11, 101, 102))


@pytest.fixture(scope="module")
def kafka() -> Metadata:
    return kraft.open_metadata(DATA / "controller-101")


def made(*batches: list[Record]) -> Metadata:
    """Return the state after a record that sets metadata.version and these batches."""
    metadata = Metadata()
    metadata.apply(encode_records([FeatureLevel("metadata.version", 30)]))
    for each in batches:
        metadata.apply(each)
    return metadata


def partition(number: int, topic: Uuid = ORDERS, **changes: object) -> Partition:
    record = Partition(
        number, topic, [1, 2], [1, 2], leader=1, leader_epoch=0, partition_epoch=0,
        directories=[D1, D2],
    )  # fmt: skip
    return record.replace(**changes)


def pairs(kafka: Metadata) -> list[tuple[int, int]]:
    chosen = random.Random(3)
    end = kafka.next_offset
    return [(0, end), *(tuple(sorted(chosen.sample(range(end), 2))) for _ in range(12))]  # type: ignore[misc]


def test_partitions_differ_where_the_slow_comparison_says(kafka: Metadata) -> None:
    for a, b in pairs(kafka):
        before, after = kafka.at(a), kafka.at(b)
        found = [each for each in kraft.diff(before, after) if each.kind == "partition"]
        listed = {(each.key, each.field, each.before, each.after) for each in found}
        assert listed == slow_partition_differences(before, after)
        assert len(listed) == len(found)


def test_every_difference_of_a_real_cluster_has_a_cause_between_the_two(kafka: Metadata) -> None:
    for a, b in pairs(kafka):
        for each in kraft.diff(kafka.at(a), kafka.at(b)):
            assert each.cause is not None, each
            assert a <= each.cause.offset < b


def test_a_difference_appears_with_its_cause(kafka: Metadata) -> None:
    a, b = 600, 1800
    differences = kraft.diff(kafka.at(a), kafka.at(b))
    for each in random.Random(5).sample(differences, 25):
        assert each.cause is not None
        just_after = kafka.at(each.cause.offset + 1)
        left = [
            (other.kind, other.key, other.field) for other in kraft.diff(just_after, kafka.at(b))
        ]
        assert (each.kind, each.key, each.field) not in left
        just_before = kafka.at(each.cause.offset)
        still = [
            (other.kind, other.key, other.field) for other in kraft.diff(just_before, kafka.at(b))
        ]
        assert (each.kind, each.key, each.field) in still or each.kind == "topic"


def test_swapped_sides_swap_before_and_after(kafka: Metadata) -> None:
    before, after = kafka.at(500), kafka.at(1500)
    there = {(e.kind, repr(e.key), e.field, e.before, e.after) for e in kraft.diff(before, after)}
    back = {(e.kind, repr(e.key), e.field, e.after, e.before) for e in kraft.diff(after, before)}
    assert repr(sorted(there, key=repr)) == repr(sorted(back, key=repr))


def test_a_recreated_topic_is_two_differences() -> None:
    before = made([Topic("orders", ORDERS), partition(0)])
    after = made([Topic("orders", OTHER), partition(0, OTHER), partition(1, OTHER)])
    assert kraft.diff(before, after) == [
        Difference("topic", "orders", "", TopicShape(ORDERS, 1), None),
        Difference("topic", "orders", "", None, TopicShape(OTHER, 2)),
    ]


def test_an_added_partition_is_one_difference() -> None:
    before = made([Topic("orders", ORDERS), partition(0)])
    after = made([Topic("orders", ORDERS), partition(0)], [partition(1)])
    (only,) = kraft.diff(before, after)
    assert (only.kind, only.key, only.before) == ("partition", ("orders", 1), None)
    assert isinstance(only.after, PartitionInfo)


def test_the_creation_order_of_topics_is_ignored() -> None:
    topics: list[list[Record]] = [
        [Topic("orders", ORDERS), partition(0), partition(1)],
        [Topic("other", OTHER), partition(0, OTHER, directories=[D2, D1])],
    ]
    assert kraft.diff(made(*topics), made(*reversed(topics))) == []


def test_directories_are_compared_by_their_ids() -> None:
    before = made([Topic("orders", ORDERS), partition(0)])
    after = made([Topic("orders", ORDERS), partition(0, directories=[D2, D1])])
    (only,) = kraft.diff(before, after)
    assert (only.field, only.before, only.after) == ("directories", (D1, D2), (D2, D1))


def test_tables_of_different_stride_are_compared() -> None:
    before = made([Topic("orders", ORDERS), partition(0)])
    wide = partition(0, replicas=[1, 2, 3, 4, 5], directories=[D1, D2, D1, D2, D1])
    after = made([Topic("orders", ORDERS), wide])
    found = {each.field: each.after for each in kraft.diff(before, after)}
    assert found == {"replicas": (1, 2, 3, 4, 5), "directories": (D1, D2, D1, D2, D1)}


def written(tmp_path: Path, *batches: list[Record]) -> Metadata:
    from kraft._core.log.log import Log

    metadata = made(*batches)
    with Log.open(tmp_path / "__cluster_metadata-0") as log:
        metadata.append(log)
    return kraft.open_metadata(tmp_path)


def test_the_removal_of_a_topic_causes_the_loss_of_its_partitions_and_configs(
    tmp_path: Path,
) -> None:
    metadata = written(
        tmp_path,
        [Topic("orders", ORDERS), partition(0), Config(2, "orders", "retention.ms", "1")],
        [RemoveTopic(ORDERS)],
    )
    topic, config = kraft.diff(metadata.at(4), metadata)
    assert topic.cause == config.cause == ChangeCause(4, "RemoveTopic")
    assert str(config).endswith("[RemoveTopic at offset 4]")


def test_a_clear_elr_record_causes_the_cleared_elr(tmp_path: Path) -> None:
    metadata = written(
        tmp_path,
        [Topic("orders", ORDERS), partition(0, isr=[1], eligible_leader_replicas=[2])],
        [Topic("other", OTHER), partition(0, OTHER)],
        [ClearElr("other")],
        [ClearElr("")],
    )
    (only,) = [each for each in kraft.diff(metadata.at(3), metadata) if each.field == "elr"]
    assert only.cause == ChangeCause(6, "ClearElr")


def test_records_of_an_aborted_transaction_cause_nothing(tmp_path: Path) -> None:
    metadata = written(
        tmp_path,
        [Topic("orders", ORDERS), partition(0), Config(2, "orders", "retention.ms", "1")],
        [BeginTransaction(), Config(2, "orders", "retention.ms", "2"), EndTransaction()],
        [BeginTransaction(), Config(2, "orders", "retention.ms", "3"), AbortTransaction()],
        [BeginTransaction(), PartitionChange(0, ORDERS, leader=2)],
    )
    (only,) = kraft.diff(metadata.at(4), metadata)
    assert (only.field, only.before, only.after) == ("retention.ms", "1", "2")
    assert only.cause == ChangeCause(5, "Config")


def test_states_of_two_clusters_have_no_causes(kafka: Metadata, tmp_path: Path) -> None:
    other = written(tmp_path, [Topic("orders", ORDERS), partition(0)])
    assert not any(each.cause for each in kraft.diff(other, kafka))


def test_differences_do_not_change_when_a_state_changes() -> None:
    start: list[Record] = [Topic("orders", ORDERS), partition(0), partition(1)]
    before = made(start)
    after = made(start, [PartitionChange(0, ORDERS, leader=2), PartitionChange(1, ORDERS, isr=[1])])
    expected = list(kraft.diff(before, after))
    at_once, under_way = kraft.diff(before, after), kraft.diff(before, after)
    position = iter(under_way)
    begun = [next(position)]
    offset = after.apply([PartitionChange(0, ORDERS, leader=1)])
    assert list(at_once) == expected
    assert begun + list(position) == expected
    newest = kraft.diff(before, after)
    length, columns = len(newest), newest.partitions
    after.revert(offset)
    assert len(newest) == length == len(list(newest))
    assert newest != expected
    assert len(columns) == 2
    assert kraft.diff(before, after) == expected


def test_columns_hold_rows_and_fields() -> None:
    start: list[Record] = [Topic("orders", ORDERS), partition(0), partition(1), partition(2)]
    before = made(start)
    after = made(start, [PartitionChange(1, ORDERS, leader=2), partition(3)])
    columns = kraft.diff(before, after).partitions
    assert columns.before_rows.tolist() == [1, -1]
    assert columns.after_rows.tolist() == [1, 3]
    assert columns.where("leader").tolist() == [True, False]
    assert columns.where("isr").tolist() == [False, False]
    assert columns.counts().tolist() == [3, 1]
    moved = columns.after_rows[columns.where("leader")]
    assert after.partitions.leader[moved].tolist() == [2]
    with pytest.raises(kraft.KraftError, match="field must be one of leader"):
        columns.where("rack")
    with pytest.raises(ValueError, match="read-only"):
        columns.fields[0] = 0


def test_records_applied_to_an_earlier_state_are_not_searched_in_the_log(kafka: Metadata) -> None:
    earlier = kraft.open_metadata(DATA / "controller-101", at=1000)
    earlier.apply([Config(2, "payments", "made.up", str(each)) for each in range(300)])
    (only,) = kraft.diff(earlier.at(1000), earlier)
    assert (only.field, only.after, only.cause) == ("made.up", "299", None)
    assert kraft.diff(earlier.at(900), earlier.at(1000))[0].cause is not None


def test_a_comparison_changes_neither_state(tmp_path: Path) -> None:
    before = made([Topic("orders", ORDERS), partition(0)])
    after = made([Topic("orders", ORDERS), partition(0, directories=[D2, D2])])
    assert len(kraft.diff(before, after)) == 1
    with pytest.raises(IndexError):
        after.cluster.table.directory_id(4)


def test_lists_are_compared_by_broker_where_the_replicas_are_in_another_order() -> None:
    topic = Topic("orders", ORDERS)
    before = made([topic, partition(0, isr=[1]), partition(1, isr=[2], leader=2)])
    turned = {"replicas": [2, 1], "directories": [D2, D1]}
    after = made(
        [topic, partition(0, isr=[2], **turned), partition(1, isr=[2], leader=2, **turned)]
    )
    found = {(each.key[1], each.field, each.after) for each in kraft.diff(before, after)}
    assert found == {
        *((number, "replicas", (2, 1)) for number in (0, 1)),
        *((number, "directories", (D2, D1)) for number in (0, 1)),
        (0, "isr", (2,)),
    }
