"""Metadata records to columns and back: part of every replay, load and decision.

``decode``   batches of partition (and topic) records, CRC checked -> the columns of a new table
             in resident memory, like memcpy's target
``encode``   columns -> partition records in batches of 1,024 with CRC, each in the record version
             in which it was read; in chunks of 16 batches, as a controller passes them to its log
``changes``  as many partition changes at the end of a log, CRC checked -> merged into the columns

Scenario: the ``mixed`` cluster of `generate`, all bytes in memory, one thread. Physical floor: the
same bytes through memcpy. Peers: Kafka's serde on the same file (`bench_peers`: values alone; with
batches and CRC, ``MemoryRecordsBuilder``, raft's ``BatchBuilder``). Every round's result is
compared once with the sums that the generator of the file recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from benchmarks import generate, generate_changes
from benchmarks.checks import assert_holds
from benchmarks.clusters import decoded
from benchmarks.conftest import Sizes
from kraft._core.bytes.batch import BatchBuilder
from kraft._core.bytes.batch_columns import BatchColumns
from kraft._core.table.table import PartitionTable

PIECE = 16 * generate.RECORDS_PER_BATCH


@pytest.mark.partitions(10_000, 100_000, 1_000_000, 10_000_000)
def bench_decode(
    benchmark: Any, measured: Callable[..., None], sizes: Sizes, partitions: int
) -> None:
    path, expected = generate.make("mixed", partitions)
    raw = path.read_bytes()
    tables: list[PartitionTable] = []

    def made_room() -> tuple[tuple[PartitionTable, bytes], dict[str, Any]]:
        # One table at a time, in resident memory, like memcpy's target and the JVM's heap.
        tables.clear()
        tables.append(PartitionTable(capacity=expected.partitions, stride=5, populate=True))
        return (tables[0], raw), {}

    benchmark.pedantic(
        PartitionTable.apply,
        setup=made_room,
        rounds=sizes.rounds_at(partitions),
        warmup_rounds=sizes.warmup,
    )
    assert_holds(tables[0], expected)
    measured(
        "decode", unit="records", count=expected.records, bytes=expected.bytes, total=partitions
    )


def encoded(table: PartitionTable, rows_by_version: list[np.ndarray], keep: list[Any]) -> int:
    """Encode all rows in chunks; append the chunks to `keep` if it is a list."""
    size = 0
    for version, rows in enumerate(rows_by_version):
        for first in range(0, len(rows), PIECE):
            builder = BatchBuilder(
                first,
                generate.LEADER_EPOCH,
                generate.TIMESTAMP_MS,
                max_batch_records=generate.RECORDS_PER_BATCH,
                capacity=PIECE * 160,
            )
            table.encode_partitions(builder, rows[first : first + PIECE], version=version)
            batches = builder.finish()
            size += len(batches)
            if keep is not None:
                keep.append(batches)
    return size


def partition_values(batches: list[Any]) -> set[bytes]:
    """Return the values of all partition records; each is unique, since it contains topic and
    partition.
    """
    values = set()
    for part in batches:
        columns = BatchColumns.read(part)
        raw = bytes(columns.buffer)
        for at, size in zip(
            columns.value_positions.tolist(), columns.value_lengths.tolist(), strict=True
        ):
            if raw[at : at + 2] == b"\x01\x03":
                values.add(raw[at : at + size])
    return values


def bench_encode(
    benchmark: Any, measured: Callable[..., None], sizes: Sizes, partitions: int
) -> None:
    path, expected = generate.make("mixed", partitions)
    raw = path.read_bytes()
    table = decoded(raw)
    versions = generate.mixed_rows(0, partitions, expected.brokers).version
    rows = [np.flatnonzero(versions == version).astype(np.int32) for version in range(3)]
    size = benchmark.pedantic(
        encoded,
        (table, rows, None),
        rounds=sizes.rounds_at(partitions),
        warmup_rounds=sizes.warmup,
    )
    made: list[Any] = []
    encoded(table, rows, made)
    assert partition_values(made) == partition_values([raw])
    measured("encode", unit="records", count=expected.partitions, bytes=size, total=partitions)


def bench_changes(
    benchmark: Any, measured: Callable[..., None], sizes: Sizes, partitions: int
) -> None:
    path, _ = generate.make("uniform", partitions)
    tail_path, expected = generate_changes.make_changes(partitions)
    raw, tail = path.read_bytes(), tail_path.read_bytes()
    tables: list[PartitionTable] = []

    def fresh() -> tuple[tuple[PartitionTable, bytes], dict[str, Any]]:
        tables[:] = [decoded(raw)]
        return (tables[0], tail), {}

    benchmark.pedantic(
        PartitionTable.apply,
        setup=fresh,
        rounds=sizes.rounds_at(partitions),
        warmup_rounds=sizes.warmup,
    )
    assert_holds(tables[0], expected)
    measured(
        "changes", unit="records", count=expected.records, bytes=expected.bytes, total=partitions
    )
