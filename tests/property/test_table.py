"""For any log of topics and partitions, the table equals its slow twin, also after reverts."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraft._core.bytes.batch import BatchBuilder
from kraft._core.table.table import PartitionTable
from kraft.errors import (
    CorruptRecordError,
    OffsetOutOfRangeError,
    ReplayError,
    UnsupportedVersionError,
)
from kraft.records import Record, decode_value
from kraft.records.values import encode_value
from tests.harness.metadata_files import record_values
from tests.harness.table_records import LOGS, apply, batch_of, batches_of
from tests.reference.table_twin import TableTwin, accepted, history, partition_record, plain

SIZES = st.lists(st.integers(1, 8), max_size=12)
STRIDES = st.sampled_from([1, 2, 3, 3, 8])
some_logs = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)


def check_brokers(table: PartitionTable, twin: TableTwin) -> None:
    names = {
        row: (
            table.topic_name(int(table.column("topic")[row])),
            int(table.column("partition")[row]),
        )
        for row in table.live_rows().tolist()
    }
    for broker in [*range(10), 103, 131, 400]:
        rows = table.broker_rows(broker).tolist()
        assert rows == sorted(set(rows))
        assert {names[row] for row in rows} == twin.rows_of_broker(broker)


@some_logs
@given(log=LOGS, sizes=SIZES, stride=STRIDES, indexed_at=st.integers(0, 20), journal=st.booleans())
def test_the_table_equals_the_twin_after_every_batch(
    log: list[Record], sizes: list[int], stride: int, indexed_at: int, journal: bool
) -> None:
    log = accepted(log)
    table, twin = PartitionTable(stride=stride), TableTwin()
    if journal:
        table.start_journal(0)
    applied = 0
    for end, batch in batches_of(log, sizes):
        assert apply(table, batch) == end
        for record in log[applied:end]:
            twin.apply(record)
        applied = end
        assert plain(table) == twin.plain()
        if end >= indexed_at:
            check_brokers(table, twin)


@some_logs
@given(
    log=LOGS,
    sizes=SIZES,
    stride=STRIDES,
    turns=st.lists(st.tuples(st.integers(0, 45), st.integers(0, 45)), max_size=6),
    indexed_at=st.integers(0, 6),
)
def test_reverts_and_applies_equal_a_single_replay(
    log: list[Record], sizes: list[int], stride: int, turns: list[tuple[int, int]], indexed_at: int
) -> None:
    log = accepted(log)
    states = history(log)
    table = PartitionTable(stride=stride)
    table.start_journal(0)
    for _, batch in batches_of(log, sizes):
        apply(table, batch)
    reached = len(log)
    for number, (back, forth) in enumerate(turns):
        if number == indexed_at:
            table.ensure_index()
        reached = min(reached, back)
        table.revert(back)
        assert plain(table) == states[reached]
        forth = max(reached, min(forth, len(log)))
        if forth > reached:
            for _, batch in batches_of(log[:forth], sizes):
                apply(table, batch, start_offset=reached)
            reached = forth
        assert plain(table) == states[reached]
        twin = TableTwin()
        for record in log[:reached]:
            twin.apply(record)
        check_brokers(table, twin)


@some_logs
@given(log=LOGS, sizes=SIZES, forgotten=st.integers(0, 45), back=st.integers(0, 45))
def test_forgotten_offsets_are_unreachable_and_all_else_stays(
    log: list[Record], sizes: list[int], forgotten: int, back: int
) -> None:
    log = accepted(log)
    states = history(log)
    table = PartitionTable()
    table.start_journal(0)
    for end, batch in batches_of(log, sizes):
        apply(table, batch)
        table.forget(min(forgotten, end))
        assert plain(table) == states[end]
    if back < table.journal_start_offset:
        with pytest.raises(OffsetOutOfRangeError, match="reaches back to"):
            table.revert(back)
        assert plain(table) == states[-1]
    else:
        table.revert(back)
        assert plain(table) == states[min(back, len(log))]


@some_logs
@given(log=LOGS, rest=LOGS, stride=STRIDES, indexed=st.booleans())
def test_compaction_moves_rows_and_changes_nothing(
    log: list[Record], rest: list[Record], stride: int, indexed: bool
) -> None:
    everything = accepted(log + rest)
    before = len(accepted(log))
    table = PartitionTable(stride=stride)
    apply(table, batch_of(everything[:before]))
    if indexed:
        table.ensure_index()
    table.compact()
    assert table.row_count == table.partition_count
    states = history(everything)
    assert plain(table) == states[before]
    apply(table, batch_of(everything[before:], before))
    assert plain(table) == states[-1]


@some_logs
@given(log=LOGS, stride=STRIDES)
def test_a_snapshot_of_the_table_restores_it(log: list[Record], stride: int) -> None:
    table = PartitionTable(stride=stride)
    apply(table, batch_of(accepted(log)))
    builder = BatchBuilder(0, 1)
    table.encode_snapshot(builder, version=2)
    fresh = PartitionTable()
    fresh.apply(builder.finish())
    assert plain(fresh) == plain(table)
    assert fresh.row_count == fresh.partition_count


@some_logs
@given(log=LOGS, version=st.integers(0, 2))
def test_encoded_rows_are_the_bytes_of_the_typed_records(log: list[Record], version: int) -> None:
    table = PartitionTable()
    apply(table, batch_of(accepted(log)))
    rows = table.live_rows()
    builder = BatchBuilder(0, 1)
    table.encode_partitions(builder, rows, version=version)
    state = plain(table)
    expected = []
    for row in rows.tolist():
        name = table.topic_name(int(table.column("topic")[row]))
        key = name, int(table.column("partition")[row])
        expected.append(
            encode_value(
                partition_record(state["topics"][name], key[1], state["partitions"][key], version)
            )
        )
    assert record_values(bytes(builder.finish())) == expected


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    log=LOGS,
    flips=st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), max_size=3),
    cut=st.none() | st.integers(0, 10_000),
)
def test_damage_is_rejected_or_makes_another_valid_table(
    log: list[Record], flips: list[tuple[int, int]], cut: int | None
) -> None:
    log = accepted(log)
    half = len(log) // 2
    table = PartitionTable()
    apply(table, batch_of(log[:half]))
    before = plain(table)
    table.start_journal(half)
    batch = bytearray(batch_of(log[half:], half))
    for place, mask in flips:
        # After the fields that the batch's own tests damage: base offset, length, epoch, magic.
        if len(batch) > 21:
            batch[21 + place % (len(batch) - 21)] ^= mask
    if cut is not None:
        del batch[cut % (len(batch) + 1) :]
    refused = (CorruptRecordError, ReplayError, UnsupportedVersionError)
    with contextlib.suppress(*refused):
        table.apply(bytes(batch), verify_crc=False, on_record=lambda _, value: decode_value(value))
    plain(table)
    builder = BatchBuilder(0, 1)
    table.encode_snapshot(builder, version=2)
    table.revert(half)
    assert plain(table) == before
