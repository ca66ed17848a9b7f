"""Counted works of the core: batches, the log, the table, checkpoints, placement.

Each is the inner loop of a benchmark of the same name at a twentieth of its size, so that an added
cost appears as a share of the whole.
"""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import generate, generate_changes
from benchmarks.checks import assert_holds
from benchmarks.counted.work import PARTITIONS, Work, counted
from kraft._core.bytes.batch import BatchBuilder, scan
from kraft._core.bytes.batch_columns import BatchColumns, build
from kraft._core.bytes.batch_records import iterate
from kraft._core.decide.placement import (
    JavaRandom,
    PlacementSpec,
    StripedPlacer,
    UsableBroker,
    UsableBrokers,
    default_directories,
)
from kraft._core.log.log import Log
from kraft._core.snapshot.column_checkpoint import ColumnCheckpoint, load_columns, save_columns
from kraft._core.snapshot.snapshot_file import read_snapshot, write_snapshot
from kraft._core.table.table import PartitionTable
from kraft.image.replay import MetadataState

SCRATCH = Path(__file__).resolve().parents[3] / "build" / "counted" / "scratch"
APPENDS = 256  # of 16 KiB
PIECE = 16 * generate.RECORDS_PER_BATCH
VALUES = [bytes([number % 256]) * 100 for number in range(1000)]


def scratch(name: str) -> Path:
    """Return an empty directory, the same each time."""
    directory = SCRATCH / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


def decoded(raw: bytes) -> PartitionTable:
    table = PartitionTable()
    table.apply(raw)
    return table


# -- batches


def build_objects() -> bytes:
    builder = BatchBuilder(0, 0, 1000)
    append = builder.append
    for value in VALUES:
        append(value)
    return bytes(builder.finish())


@counted
def batch_build() -> Work:
    def run(_: None) -> bytes:
        return [build_objects() for _turn in range(20)][-1]

    def check(_: None, made: bytes) -> None:
        assert [record.value for batch in iterate(made) for record in batch] == VALUES

    return Work("records", 20 * len(VALUES), lambda: None, run, check)


@counted
def batch_build_columns() -> Work:
    blob, size = b"".join(VALUES), len(VALUES[0])
    positions = np.arange(len(VALUES), dtype=np.int64) * size
    lengths = np.full(len(VALUES), size, np.int32)

    def run(_: None) -> bytes:
        for _turn in range(50):
            made = build(blob, positions, lengths, partition_leader_epoch=0, timestamp_ms=1000)
        return bytes(made)

    def check(_: None, made: bytes) -> None:
        assert made == build_objects()

    return Work("records", 50 * len(VALUES), lambda: None, run, check)


@counted
def batch_read() -> Work:
    raw = build_objects()

    def run(_: None) -> list[Any]:
        for _turn in range(10):
            made = [(each.offset, each.value) for batch in iterate(raw) for each in batch]
        return made

    def check(_: None, made: list[Any]) -> None:
        assert made == list(enumerate(VALUES))

    return Work("records", 10 * len(VALUES), lambda: None, run, check)


@counted
def batch_read_columns() -> Work:
    raw = build_objects()

    def run(_: None) -> BatchColumns:
        for _turn in range(100):
            columns = BatchColumns.read(raw)
        return columns

    def check(_: None, columns: BatchColumns) -> None:
        assert columns.offsets.tolist() == list(range(len(VALUES)))
        assert set(columns.value_lengths.tolist()) == {len(VALUES[0])}

    return Work("records", 100 * len(VALUES), lambda: None, run, check)


@counted
def batch_scan() -> Work:
    """Read headers alone, without CRC: the leader's work on batches that it sealed itself."""
    path, expected = generate.make("mixed", PARTITIONS)
    raw = path.read_bytes()

    def run(_: None) -> int:
        return sum(len(scan(raw, verify_crc=False)) for _turn in range(50))

    def check(_: None, seen: int) -> None:
        assert seen == 50 * expected.batches

    return Work("batches", 50 * expected.batches, lambda: None, run, check)


# -- the log


def write_batches(log: Log, verify_crc: bool) -> None:
    batch = bytearray(generate.make_data_batch().read_bytes())
    (count,) = struct.unpack_from(">i", batch, 57)
    for number in range(APPENDS):
        struct.pack_into(">q", batch, 0, number * count)
        log.append(batch, verify_crc=verify_crc)


def appending(name: str, verify_crc: bool) -> Work:
    size = len(generate.make_data_batch().read_bytes())

    def run(log: Log) -> None:
        write_batches(log, verify_crc)

    def check(log: Log, _: None) -> None:
        assert log.size == APPENDS * size
        log.close()

    return Work("appends", APPENDS, lambda: Log.open(scratch(name) / "part-0"), run, check)


@counted
def log_append() -> Work:
    return appending("log_append", verify_crc=False)


@counted
def log_append_verified() -> Work:
    return appending("log_append_verified", verify_crc=True)


@counted
def log_lookup() -> Work:
    """Fetch one batch each at many offsets of the log: look up the index, then search from there
    for the batch.
    """

    def prepare() -> Log:
        log = Log.open(scratch("log_lookup") / "part-0")
        write_batches(log, verify_crc=False)
        return log

    def run(log: Log) -> int:
        end, fetch = log.log_end_offset, log.fetch
        return sum(len(fetch(number * 7919 % end, 1)) for number in range(1000))

    def check(log: Log, seen: int) -> None:
        assert seen == 1000 * (log.size // APPENDS)
        log.close()

    return Work("fetches", 1000, prepare, run, check)


# -- the table


def decoding(kind: str) -> Work:
    path, expected = generate.make(kind, PARTITIONS)
    raw = path.read_bytes()

    def check(table: PartitionTable, _: Any) -> None:
        assert_holds(table, expected)

    return Work(
        "records",
        expected.records,
        lambda: PartitionTable(capacity=PARTITIONS, stride=5, populate=True),
        lambda table: table.apply(raw),
        check,
    )


@counted
def decode_mixed() -> Work:
    return decoding("mixed")


@counted
def decode_uniform() -> Work:
    return decoding("uniform")


@counted
def decode_changes() -> Work:
    raw = generate.make("uniform", PARTITIONS)[0].read_bytes()
    path, expected = generate_changes.make_changes(PARTITIONS)
    tail = path.read_bytes()

    def check(table: PartitionTable, _: Any) -> None:
        assert_holds(table, expected)

    return Work(
        "records", expected.records, lambda: decoded(raw), lambda table: table.apply(tail), check
    )


@counted
def encode() -> Work:
    path, expected = generate.make("mixed", PARTITIONS)
    table = decoded(path.read_bytes())
    versions = generate.mixed_rows(0, PARTITIONS, expected.brokers).version
    by_version = [np.flatnonzero(versions == version).astype(np.int32) for version in range(3)]

    def run(_: None) -> int:
        size = 0
        for version, rows in enumerate(by_version):
            for first in range(0, len(rows), PIECE):
                builder = BatchBuilder(
                    first,
                    generate.LEADER_EPOCH,
                    generate.TIMESTAMP_MS,
                    max_batch_records=generate.RECORDS_PER_BATCH,
                    capacity=PIECE * 160,
                )
                table.encode_partitions(builder, rows[first : first + PIECE], version=version)
                size += len(builder.finish())
        return size

    def check(_: None, size: int) -> None:
        assert size > expected.partition_record_bytes

    return Work("records", PARTITIONS, lambda: None, run, check)


@counted
def broker_index() -> Work:
    raw = generate.make("uniform", PARTITIONS)[0].read_bytes()

    def check(table: PartitionTable, _: Any) -> None:
        assert len(table.broker_rows(0)) == generate.HELD_PER_BROKER

    return Work(
        "partitions", PARTITIONS, lambda: decoded(raw), lambda table: table.ensure_index(), check
    )


# -- checkpoints


@counted
def load() -> Work:
    """Load a checkpoint's bytes into a queryable cluster: all records, not only partitions."""
    path, expected = generate.make("mixed", PARTITIONS)
    raw = path.read_bytes()

    def run(cluster: MetadataState) -> int:
        cluster.apply_snapshot(raw, end_offset=expected.records + 2)
        table = cluster.table
        return table.row_of(table.topic_number(generate.topic_name(expected.topics - 1)), 0)

    def check(cluster: MetadataState, row: int) -> None:
        assert row >= 0
        assert len(cluster.state.brokers) == expected.brokers
        assert_holds(cluster.table, expected)

    return Work("partitions", PARTITIONS, MetadataState, run, check)


def write(table: PartitionTable, directory: Path, end_offset: int) -> str:
    return write_snapshot(
        str(directory),
        end_offset,
        generate.LEADER_EPOCH,
        table,
        partition_version=2,
        last_contained_log_timestamp_ms=generate.TIMESTAMP_MS,
        timestamp_ms=generate.TIMESTAMP_MS,
    )


def columns(name: str, verify: bool, times: int) -> Work:
    source, expected = generate.make("mixed", PARTITIONS)
    table = decoded(source.read_bytes())
    path = write(table, scratch(name), expected.records + 2)
    save_columns(path, table)
    topic = table.topic_name(0)

    def run(_: None) -> ColumnCheckpoint:
        for _turn in range(times):
            found = load_columns(path, verify=verify)
            assert isinstance(found, ColumnCheckpoint), found
            assert found.table.row_of(found.table.topic_number(topic), 0) >= 0
        return found

    def check(_: None, found: ColumnCheckpoint) -> None:
        assert_holds(found.table, expected)

    return Work("partitions", times * PARTITIONS, lambda: None, run, check)


@counted
def column_map() -> Work:
    return columns("column_map", verify=False, times=10)


@counted
def column_verify() -> Work:
    return columns("column_verify", verify=True, times=1)


@counted
def snapshot_write() -> Work:
    source, expected = generate.make("mixed", PARTITIONS)
    table = decoded(source.read_bytes())

    def run(directory: Path) -> str:
        return write(table, directory, expected.records + 2)

    def check(_: Path, path: str) -> None:
        found = PartitionTable()
        read_snapshot(path, found)
        assert_holds(found, expected)

    return Work("partitions", PARTITIONS, lambda: scratch("snapshot_write"), run, check)


# -- placement


def placing(partitions: int, times: int) -> Work:
    brokers = [
        UsableBroker(id, f"rack-{id % 3}", False, (id.to_bytes(16, "big"),)) for id in range(300)
    ]
    cluster, spec = UsableBrokers(brokers), PlacementSpec(0, partitions, 3)

    def run(placer: StripedPlacer) -> Any:
        for _turn in range(times):
            replicas = placer.place(spec, cluster)
            default_directories(replicas, cluster)
        return replicas

    def check(_: StripedPlacer, replicas: Any) -> None:
        assert replicas.shape == (partitions, 3)
        assert (np.diff(np.sort(replicas, axis=1), axis=1) > 0).all()

    return Work("partitions", times * partitions, lambda: StripedPlacer(JavaRandom(42)), run, check)


@counted
def place() -> Work:
    return placing(PARTITIONS, 1)


@counted
def place_small() -> Work:
    """Place topics of ten partitions: the cost of each call besides its random draws."""
    return placing(10, 1000)
