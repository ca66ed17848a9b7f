"""Rows of every shape, encoded into any state of a batch: the same bytes as typed records."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraft import records
from kraft._core.bytes.batch import BatchBuilder
from kraft._core.table.table import PartitionTable
from kraft.errors import RecordTooLargeError
from kraft.records import Uuid
from kraft.records.values import encode_value
from tests.harness.table_records import apply, batch_of

TOPIC = records.Topic(name="t", topic_id=Uuid(b"t" * 16))
# The bounds of the widths of an offset delta's varint, with a value on each side.
DELTAS = st.sampled_from([0, 0, 1, 60, 63, 64, 8188, 8191, 8192, 2**20 - 3, 2**27 - 2, 2**27])
EPOCHS = st.sampled_from([-1, 0, 1, 255, 2**31 - 1])
many_cases = settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow], deadline=None)


@st.composite
def partitions(draw: st.DrawFn, number: int) -> records.Partition:
    """Return a partition: mostly three replicas in sync, else none to ten, in any order."""
    count = draw(st.sampled_from([3, 3, 3, 3, *range(11)]))
    first = draw(st.integers(0, 2**31 - 12))
    replicas = list(range(first, first + count))
    isr = replicas
    if draw(st.booleans()):
        isr = list(draw(st.permutations(replicas)))[: draw(st.integers(0, count))]
    tagged = draw(st.integers(0, 4)) == 4
    elr = list(draw(st.permutations(replicas)))[: draw(st.integers(0, count))] if tagged else []
    known = replicas[: draw(st.integers(0, count))] if tagged else []
    return records.Partition(
        partition_id=number,
        topic_id=TOPIC.topic_id,
        replicas=replicas,
        isr=isr,
        adding_replicas=replicas[:1] if draw(st.integers(0, 9)) == 9 else [],
        leader=isr[0] if isr else -1,
        leader_recovery_state=int(tagged and draw(st.booleans())),
        leader_epoch=draw(EPOCHS),
        partition_epoch=draw(EPOCHS),
        directories=[Uuid(bytes([n]) * 16) for n in draw(st.permutations(range(9, 19)))[:count]],
        eligible_leader_replicas=elr or None,
        last_known_elr=known or None,
        version=2,
    )


@st.composite
def tables(draw: st.DrawFn) -> list[records.Partition]:
    count = draw(st.sampled_from([1, 2, 5, 40]))
    return [draw(partitions(number)) for number in range(count)]


def as_version(record: records.Partition, version: int) -> bytes:
    """Return the value of the record without the fields that the version does not have."""
    if version < 2:
        record = record.replace(eligible_leader_replicas=None, last_known_elr=None)
    if version < 1:
        record = record.replace(directories=[])
    return encode_value(record.replace(version=version))


@many_cases
@given(
    rows=tables(),
    stride=st.integers(1, 8),
    version=st.integers(0, 2),
    delta=DELTAS,
    opened_at=st.none() | st.sampled_from([-5, 0, 5]),
    horizon=st.sampled_from([-1, -1, 1_000, 7]),
    limits=st.tuples(st.sampled_from([1, 2, 3, 30, 10_000]), st.sampled_from([500, 1_999, 2**23])),
    capacity=st.sampled_from([0, 600, 2**20]),
    data=st.data(),
)
def test_batches_of_rows_equal_those_of_the_typed_records(
    rows: list[records.Partition], stride: int, version: int, delta: int, opened_at: int | None,
    horizon: int, limits: tuple[int, int], capacity: int, data: st.DataObject,
) -> None:  # fmt: skip
    table = PartitionTable(stride=stride)
    apply(table, batch_of([TOPIC, *rows]))
    order = data.draw(
        st.just(list(range(len(rows)))) | st.lists(st.integers(0, len(rows) - 1), max_size=60)
    )
    built: list[bytes] = []
    for by_value in (True, False):
        builder = BatchBuilder(
            10, 1, 1_000, max_batch_records=limits[0], max_batch_size=limits[1],
            delete_horizon_ms=horizon, capacity=capacity,
        )  # fmt: skip
        if opened_at is not None:
            # The open batch has its own time, and a gap before the next offset.
            builder.append(b"first", timestamp_ms=1_000 + opened_at)
            builder.append(b"second", offset=max(11, 10 + delta))
        if by_value:
            for row in order:
                builder.append(as_version(rows[row], version))
        else:
            table.encode_partitions(builder, order, version=version)
        assert builder.record_count == len(order) + (2 if opened_at is not None else 0)
        builder.append(b"last")
        built.append(bytes(builder.finish()))
    assert built[0] == built[1]


@many_cases
@given(rows=tables(), stride=st.integers(1, 8), version=st.integers(0, 2))
def test_a_snapshot_is_the_topic_and_its_partitions(
    rows: list[records.Partition], stride: int, version: int
) -> None:
    table = PartitionTable(stride=stride)
    apply(table, batch_of([TOPIC, *rows]))
    expected, builder = BatchBuilder(0, 1), BatchBuilder(0, 1)
    for value in (encode_value(TOPIC), *(as_version(row, version) for row in rows)):
        expected.append(value)
    table.encode_snapshot(builder, version=version)
    assert bytes(builder.finish()) == bytes(expected.finish())


def full_rows(count: int) -> list[Any]:
    return [
        records.Partition(
            partition_id=number, topic_id=TOPIC.topic_id, replicas=[1, 2, 3], isr=[1, 2, 3],
            leader=1, directories=[Uuid(bytes([n]) * 16) for n in (1, 2, 3)], version=2,
        )
        for number in range(count)
    ]  # fmt: skip


def test_ten_thousand_records_of_a_batch_use_every_width_of_a_delta() -> None:
    rows = full_rows(20)
    table = PartitionTable()
    apply(table, batch_of([TOPIC, *rows]))
    order = [number % 20 for number in range(10_500)]
    expected, builder = BatchBuilder(0, 1), BatchBuilder(0, 1)
    for row in order:
        expected.append(as_version(rows[row], 2))
    table.encode_partitions(builder, order, version=2)
    assert bytes(builder.finish()) == bytes(expected.finish())
    assert builder.batch_count == 2


def test_a_record_larger_than_a_batch_is_rejected_as_before() -> None:
    table = PartitionTable()
    apply(table, batch_of([TOPIC, *full_rows(20)]))
    builder = BatchBuilder(0, 1, max_batch_size=150)
    with pytest.raises(RecordTooLargeError):
        table.encode_partitions(builder, version=2)
    assert builder.record_count == 0
