"""Record batches v2: kraft and aiokafka's Cython classes, the same records and bytes, CRC included.

Scenario: one batch of 1,000 records with a 100-byte value, no key and no headers, warm, one thread.
Physical floor: the bytes of the batch copied once and run through CRC-32C once. Peer:
`DefaultRecordBatch` and `DefaultRecordBatchBuilder` of `aiokafka.record._crecords`, in the same
run. "columns" does the same work without a Python object per record. aiokafka has no such
interface, so its peer is the same as for objects. Not included on either side: compression, keys,
headers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from aiokafka.record._crecords import DefaultRecordBatch, DefaultRecordBatchBuilder

from kraft._core.bytes.batch import BatchBuilder
from kraft._core.bytes.batch_columns import BatchColumns, build
from kraft._core.bytes.batch_records import iterate

pytestmark = pytest.mark.peer

COUNT = 1000
ROUNDS = 300
SIZE = 100
TIMESTAMP_MS = 1_000
VALUES = [bytes([i % 256]) * SIZE for i in range(COUNT)]
BLOB = b"".join(VALUES)
POSITIONS = np.arange(COUNT, dtype=np.int64) * SIZE
LENGTHS = np.full(COUNT, SIZE, dtype=np.int32)


def build_kraft() -> memoryview:
    builder = BatchBuilder(0, 0, TIMESTAMP_MS)
    append = builder.append
    for value in VALUES:
        append(value)
    return builder.finish()


def build_kraft_columns() -> memoryview:
    return build(BLOB, POSITIONS, LENGTHS, partition_leader_epoch=0, timestamp_ms=TIMESTAMP_MS)


def build_aiokafka() -> bytearray:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    append = builder.append
    for offset, value in enumerate(VALUES):
        append(offset, TIMESTAMP_MS, None, value, [])
    return builder.build()


BATCH = bytes(build_aiokafka())


def read_kraft() -> list[tuple[int, bytes | None, bytes | None]]:
    return [
        (record.offset, record.key, record.value) for batch in iterate(BATCH) for record in batch
    ]


def read_aiokafka() -> list[tuple[int, bytes | None, bytes | None]]:
    batch = DefaultRecordBatch(BATCH)
    assert batch.validate_crc()
    return [(record.offset, record.key, record.value) for record in batch]


def read_kraft_columns() -> tuple[np.ndarray, ...]:
    columns = BatchColumns.read(BATCH)
    return (
        columns.offsets,
        columns.timestamps,
        columns.key_positions,
        columns.key_lengths,
        columns.value_positions,
        columns.value_lengths,
    )


def same_batch(built: Any) -> bool:
    """Compare all but the leader epoch, which brokers assign and which the CRC does not cover."""
    raw = bytes(built)
    return raw[:12] + raw[16:] == BATCH[:12] + BATCH[16:]


WORKS: dict[str, Callable[[], Any]] = {
    work.__name__: work
    for work in (
        *(build_kraft, build_kraft_columns, build_aiokafka),
        *(read_kraft, read_kraft_columns, read_aiokafka),
    )
}


@pytest.mark.parametrize("work", ["build_kraft", "build_kraft_columns", "build_aiokafka"])
def bench_build(benchmark: Any, measured: Callable[..., None], work: str) -> None:
    build = WORKS[work]
    assert same_batch(build())
    benchmark.pedantic(build, rounds=ROUNDS, iterations=10, warmup_rounds=20)
    measured(work, unit="records", count=COUNT, bytes=len(BATCH))


@pytest.mark.parametrize("work", ["read_kraft", "read_kraft_columns", "read_aiokafka"])
def bench_read(benchmark: Any, measured: Callable[..., None], work: str) -> None:
    expected = [(i, None, value) for i, value in enumerate(VALUES)]
    read = WORKS[work]
    if work == "read_kraft_columns":
        offsets, _, _, _, positions, lengths = read_kraft_columns()
        values = [BATCH[at : at + size] for at, size in zip(positions, lengths, strict=True)]
        assert list(zip(offsets.tolist(), values, strict=True)) == [(i, v) for i, _, v in expected]
    else:
        assert read() == expected
    benchmark.pedantic(read, rounds=ROUNDS, iterations=10, warmup_rounds=20)
    measured(work, unit="records", count=COUNT, bytes=len(BATCH))
