"""Snapshots and column checkpoints: from a file to a queryable table, and from a table to a file.

``load``            a checkpoint's bytes -> a queryable cluster: partitions, topics, brokers,
                    features; each round gets fresh memory from the system
``column_map``      map the column checkpoint until topics and rows can be looked up
``column_verify``   the same with a CRC-32C check of every section and a check of every row
``column_save``     the table -> the column checkpoint, synced and renamed
``snapshot_read``   Kafka's snapshot, mapped and replayed -> the table; CRC of every batch
``snapshot_write``  the table -> Kafka's snapshot, in chunks of 4 MiB, synced and renamed

The files are in the page cache; one thread. Physical floors: for loads, the same bytes through
memcpy; for the verified load, through CRC-32C. Peer of ``load``: Kafka's images of the same file
(`bench_peers`). Every result is compared with the sums that the generator of the input recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import generate
from benchmarks.checks import assert_holds
from benchmarks.clusters import loaded
from benchmarks.conftest import Sizes
from kraft._core.snapshot.column_checkpoint import (
    ColumnCheckpoint,
    columns_path,
    load_columns,
    save_columns,
)
from kraft._core.snapshot.snapshot_file import read_snapshot, write_snapshot
from kraft._core.table.table import PartitionTable


def replayed(path: Path | str) -> PartitionTable:
    table = PartitionTable()
    read_snapshot(path, table)
    return table


@pytest.fixture(scope="module")
def written(
    partitions: int, tmp_path_factory: pytest.TempPathFactory
) -> tuple[PartitionTable, str, generate.Expected]:
    """Return the mixed cluster's table, its snapshot by kraft, and its column checkpoint."""
    source, expected = generate.make("mixed", partitions)
    table = replayed(source)
    path = write(table, str(tmp_path_factory.mktemp("checkpoint")), expected)
    save_columns(path, table)
    return table, path, expected


def write(table: PartitionTable, directory: str, expected: generate.Expected) -> str:
    return write_snapshot(
        directory,
        expected.records + 2,
        generate.LEADER_EPOCH,
        table,
        partition_version=2,
        last_contained_log_timestamp_ms=generate.TIMESTAMP_MS,
        timestamp_ms=generate.TIMESTAMP_MS,
    )


def queryable(path: str, verify: bool, topic: str) -> ColumnCheckpoint:
    """Return a loaded table after two queries: a topic by name, and the state of its first row."""
    found = load_columns(path, verify=verify)
    assert isinstance(found, ColumnCheckpoint), found
    number = found.table.topic_number(topic)
    assert found.table.state_of(found.table.row_of(number, 0))["replicas"]
    return found


@pytest.mark.partitions(10_000, 100_000, 1_000_000, 10_000_000)
def bench_load(
    benchmark: Any, measured: Callable[..., None], sizes: Sizes, partitions: int
) -> None:
    path, expected = generate.make("mixed", partitions)
    raw = path.read_bytes()
    cluster = benchmark.pedantic(
        loaded, (raw, expected), rounds=sizes.rounds_at(partitions), warmup_rounds=sizes.warmup
    )
    assert_holds(cluster.table, expected)
    name = generate.topic_name(expected.topics - 1)
    assert cluster.table.row_of(cluster.table.topic_number(name), 0) >= 0
    assert len(cluster.state.brokers) == expected.brokers
    measured(
        "load",
        unit="partitions",
        count=expected.partitions,
        bytes=expected.bytes,
        total=partitions,
    )


@pytest.mark.partitions(10_000, 100_000, 1_000_000, 10_000_000)
def bench_column_map(
    benchmark: Any,
    measured: Callable[..., None],
    sizes: Sizes,
    partitions: int,
    written: tuple[PartitionTable, str, generate.Expected],
) -> None:
    table, path, expected = written
    found = benchmark.pedantic(
        queryable,
        (path, False, table.topic_name(0)),
        rounds=sizes.rounds_at(partitions),
        warmup_rounds=sizes.warmup,
    )
    assert_holds(found.table, expected)
    measured("column_map", unit="partitions", count=expected.partitions, total=partitions)


@pytest.mark.partitions(10_000, 100_000, 1_000_000, 10_000_000)
def bench_column_verify(
    benchmark: Any,
    measured: Callable[..., None],
    sizes: Sizes,
    partitions: int,
    written: tuple[PartitionTable, str, generate.Expected],
) -> None:
    table, path, expected = written
    found = benchmark.pedantic(
        queryable,
        (path, True, table.topic_name(0)),
        rounds=sizes.rounds_at(partitions),
        warmup_rounds=sizes.warmup,
    )
    assert_holds(found.table, expected)
    size = Path(columns_path(path)).stat().st_size
    measured(
        "column_verify", unit="partitions", count=expected.partitions, bytes=size, total=partitions
    )


def bench_column_save(
    benchmark: Any,
    measured: Callable[..., None],
    sizes: Sizes,
    partitions: int,
    written: tuple[PartitionTable, str, generate.Expected],
) -> None:
    table, path, expected = written
    saved = benchmark.pedantic(
        save_columns, (path, table), rounds=sizes.rounds_at(partitions), warmup_rounds=sizes.warmup
    )
    assert_holds(queryable(path, True, table.topic_name(0)).table, expected)
    size = Path(saved).stat().st_size
    measured(
        "column_save", unit="partitions", count=expected.partitions, bytes=size, total=partitions
    )


def bench_snapshot_read(
    benchmark: Any,
    measured: Callable[..., None],
    sizes: Sizes,
    partitions: int,
    written: tuple[PartitionTable, str, generate.Expected],
) -> None:
    _, path, expected = written
    table = benchmark.pedantic(
        replayed, (path,), rounds=sizes.rounds_at(partitions), warmup_rounds=sizes.warmup
    )
    assert_holds(table, expected)
    size = Path(path).stat().st_size
    measured(
        "snapshot_read", unit="partitions", count=expected.partitions, bytes=size, total=partitions
    )


def bench_snapshot_write(
    benchmark: Any,
    measured: Callable[..., None],
    sizes: Sizes,
    partitions: int,
    written: tuple[PartitionTable, str, generate.Expected],
    tmp_path: Path,
) -> None:
    table, _, expected = written
    path = benchmark.pedantic(
        write,
        (table, str(tmp_path), expected),
        rounds=sizes.rounds_at(partitions),
        warmup_rounds=sizes.warmup,
    )
    assert_holds(replayed(path), expected)
    size = Path(path).stat().st_size
    measured(
        "snapshot_write", unit="partitions", count=expected.partitions, bytes=size, total=partitions
    )
