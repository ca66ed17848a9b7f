"""Comparison of states: row and topic numbers do not count, and the first difference is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kraft import Metadata, records
from kraft.lab.state_comparison import COLUMNS, StateColumns
from kraft.records import Record, Uuid
from kraft.records.batches import encode_records

ORDERS, CLICKS = Uuid(b"o" * 16), Uuid(b"c" * 16)
DIRECTORIES = [Uuid(bytes([0x40 + number]) * 16) for number in range(5)]


def partition(topic_id: Uuid, number: int, replicas: list[int], isr: list[int]) -> Record:
    return records.Partition(
        partition_id=number,
        topic_id=topic_id,
        replicas=replicas,
        isr=isr,
        leader=isr[0],
        leader_epoch=3,
        partition_epoch=7,
        directories=[DIRECTORIES[broker] for broker in replicas],
    )


VERSION = records.FeatureLevel(name="metadata.version", feature_level=21)
ORDERS_RECORDS = [
    records.Topic(name="orders", topic_id=ORDERS),
    partition(ORDERS, 0, [1, 2, 3], [1, 2, 3]),
    partition(ORDERS, 1, [2, 3, 1], [3, 2]),
]
CLICKS_RECORDS = [
    records.Topic(name="clicks", topic_id=CLICKS),
    partition(CLICKS, 0, [3, 4], [4, 3]),
]
SETTING = records.Config(resource_type=2, resource_name="orders", name="a", value="b")


def state(*all_records: Record) -> Metadata:
    metadata = Metadata()
    metadata.apply(encode_records([VERSION, *all_records], metadata_version=21))
    return metadata


def test_states_with_different_rows_and_numbers_are_equal() -> None:
    one = state(*ORDERS_RECORDS, *CLICKS_RECORDS, SETTING)
    other = state(*CLICKS_RECORDS, SETTING, *ORDERS_RECORDS)
    assert one.partitions.topic.tolist() == [0, 0, 1]
    assert other.partitions.topic.tolist() == [0, 1, 1]
    assert one.partitions.directories.tolist() != other.partitions.directories.tolist()

    assert StateColumns.take(one).first_difference(StateColumns.take(other)) is None


def test_rows_of_a_removed_topic_are_ignored() -> None:
    gone = records.Topic(name="gone", topic_id=Uuid(b"g" * 16))
    one = state(gone, *ORDERS_RECORDS, records.RemoveTopic(topic_id=gone.topic_id))
    other = state(records.NoOp(), *ORDERS_RECORDS, records.NoOp())
    assert StateColumns.take(one).first_difference(StateColumns.take(other)) is None


def test_the_order_of_an_isr_counts() -> None:
    turned = [ORDERS_RECORDS[0], ORDERS_RECORDS[1], partition(ORDERS, 1, [2, 3, 1], [2, 3])]
    turned[2].leader = 3
    difference = StateColumns.take(state(*ORDERS_RECORDS)).first_difference(
        StateColumns.take(state(*turned))
    )
    assert difference is not None
    assert difference.column == "isr"
    assert difference.where.startswith("orders-1 ")
    assert (difference.before, difference.after) == ([3, 2, -1], [2, 3, -1])


def test_a_reassignment_in_flight_is_compared_too() -> None:
    def moving(adding: list[int]) -> Metadata:
        change = records.PartitionChange(
            partition_id=0,
            topic_id=ORDERS,
            replicas=[1, 2, 3, 4],
            adding_replicas=adding,
            directories=DIRECTORIES[1:],
        )
        return state(*ORDERS_RECORDS, change)

    one, same, two = moving([4]), moving([4]), moving([3])
    assert len(one.partitions.irregular_rows) == 1
    assert StateColumns.take(one).first_difference(StateColumns.take(same)) is None
    difference = StateColumns.take(one).first_difference(StateColumns.take(two))
    assert difference is not None
    assert difference.column == "adding_replicas"


@pytest.mark.parametrize("column", COLUMNS)
def test_one_tampered_value_of_any_column_is_found(column: str, tmp_path: Path) -> None:
    metadata = state(*ORDERS_RECORDS, *CLICKS_RECORDS)
    dropped = StateColumns.take(metadata, tmp_path)
    loaded = StateColumns.take(metadata)
    values = loaded.columns[column]
    last = tuple(np.array(values.shape) - 1)
    values[last] = 77 if column != "directories" else 0

    difference = dropped.first_difference(loaded)

    assert difference is not None
    assert difference.column == column
    # Topics are ordered by id: "ooo…" comes after "ccc…".
    assert difference.where.startswith("orders-")
    assert str(difference).endswith(f": dropped {difference.before}, loaded {difference.after}")


def test_saved_columns_outlive_the_state(tmp_path: Path) -> None:
    metadata = state(*ORDERS_RECORDS)
    aside = StateColumns.take(metadata, tmp_path)
    del metadata
    assert {path.stem for path in tmp_path.iterdir()} == set(COLUMNS)
    assert aside.first_difference(StateColumns.take(state(*ORDERS_RECORDS))) is None


def test_topics_offsets_and_everything_else_count() -> None:
    base = StateColumns.take(state(*ORDERS_RECORDS, SETTING))
    cases = {
        "next_offset": state(*ORDERS_RECORDS, SETTING, records.NoOp()),
        "topics": state(*ORDERS_RECORDS, records.Topic(name="z", topic_id=Uuid(b"z" * 16))),
        "topic": state(*CLICKS_RECORDS, records.NoOp(), SETTING),
        "a": state(
            *ORDERS_RECORDS,
            records.Config(resource_type=2, resource_name="orders", name="a", value="c"),
        ),
    }
    for column, other in cases.items():
        difference = base.first_difference(StateColumns.take(other))
        assert difference is not None
        assert difference.column == column
