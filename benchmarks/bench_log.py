"""The log, bare syscalls and, under the same work's name, Kafka's UnifiedLog.

``append``           16 KiB batches, each assigned its offset, to a fresh log; no fsync, no CRC
                     check (this process sealed the batches)
``append_verified``  the same with a CRC check of each batch, as Kafka's log does
``fetch``            1 MiB slices from start to end, located only, as for sendfile
``fetch_read``       the same with every byte copied into one buffer, as the peer does; the pages
                     are in the log's mapping since the first round
``fetch_first_read``  the same for a log that was just written: the first access to each page causes
                     a page fault; the page cache holds the log in folios of one append

Physical floors: `os.writev` of the same batches to the same file system, `preadv` of the same bytes
into one buffer (both in bench_floors). Files are in pytest's temporary directory. One thread, warm
page cache. Not included: fsync (`bench_log_sync`), rolling (the log has one segment), readers of
other processes.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import generate
from benchmarks.conftest import Sizes
from kraft._core.log.log import Log

SLICE = 1 << 20


def write_batches(log: Log, batch: bytearray, appends: int, verify_crc: bool = False) -> None:
    """Append the batch repeatedly; set its base offset each time, as the peer does."""
    (count,) = struct.unpack_from(">i", batch, 57)
    stamp = struct.Struct(">q").pack_into
    append = log.append
    for offset in range(0, appends * count, count):
        stamp(batch, 0, offset)
        append(batch, verify_crc=verify_crc)


def read_slices(log: Log, batch: bytearray, look: Callable[[memoryview], object] = len) -> int:
    """Fetch the whole log in slices; return the bytes seen."""
    (count,) = struct.unpack_from(">i", batch, 57)
    size, offset, seen = len(batch), 0, 0
    while offset < log.log_end_offset:
        view = log.fetch(offset, SLICE)
        look(view)
        seen += len(view)
        offset += len(view) // size * count
    return seen


@pytest.fixture
def batch() -> bytearray:
    return bytearray(generate.make_data_batch().read_bytes())


@pytest.fixture
def fresh_log(tmp_path: Path) -> Callable[[], Log]:
    """Open an empty log; close and remove the previous one."""
    logs: list[Log] = []

    def fresh() -> Log:
        if logs:
            logs.pop().close()
        shutil.rmtree(tmp_path / "part-0", ignore_errors=True)
        logs.append(Log.open(tmp_path / "part-0"))
        return logs[-1]

    return fresh


@pytest.mark.parametrize("verify_crc", [False, True], ids=["sealed", "verified"])
def bench_append(
    benchmark: Any,
    measured: Callable[..., None],
    sizes: Sizes,
    fresh_log: Callable[[], Log],
    batch: bytearray,
    verify_crc: bool,
) -> None:
    logs: list[Log] = []

    def setup() -> tuple[tuple[Any, ...], dict[str, Any]]:
        logs[:] = [fresh_log()]
        return (logs[0], batch, sizes.appends, verify_crc), {}

    benchmark.pedantic(write_batches, setup=setup, rounds=sizes.rounds, warmup_rounds=sizes.warmup)
    assert logs[0].size == sizes.appends * len(batch)
    measured(
        "append_verified" if verify_crc else "append",
        unit="appends",
        count=sizes.appends,
        bytes=logs[0].size,
    )


def bench_fetch(
    benchmark: Any,
    measured: Callable[..., None],
    sizes: Sizes,
    fresh_log: Callable[[], Log],
    batch: bytearray,
) -> None:
    log = fresh_log()
    write_batches(log, batch, sizes.appends)
    seen = benchmark.pedantic(
        read_slices, args=(log, batch), rounds=sizes.rounds, warmup_rounds=sizes.warmup
    )
    assert seen == log.size
    measured("fetch", unit="slices", count=log.size // SLICE, bytes=log.size)


def copy_into(buffer: bytearray) -> Callable[[memoryview], None]:
    """Return a reader of slices that copies their bytes into the buffer."""
    target = memoryview(buffer)

    def copy(view: memoryview) -> None:
        target[: len(view)] = view

    return copy


def bench_fetch_read(
    benchmark: Any,
    measured: Callable[..., None],
    sizes: Sizes,
    fresh_log: Callable[[], Log],
    batch: bytearray,
) -> None:
    log = fresh_log()
    write_batches(log, batch, sizes.appends)
    buffer = bytearray(SLICE)
    seen = benchmark.pedantic(
        read_slices,
        args=(log, batch, copy_into(buffer)),
        rounds=sizes.rounds,
        warmup_rounds=sizes.warmup,
    )
    assert seen == log.size
    assert buffer[-len(batch) + 8 :] == batch[8:]
    measured("fetch_read", unit="slices", count=seen // SLICE, bytes=seen)


def bench_fetch_first_read(
    benchmark: Any,
    measured: Callable[..., None],
    sizes: Sizes,
    fresh_log: Callable[[], Log],
    batch: bytearray,
) -> None:
    buffer = bytearray(SLICE)

    def setup() -> tuple[tuple[Any, ...], dict[str, Any]]:
        log = fresh_log()
        write_batches(log, batch, sizes.appends)
        return (log, batch, copy_into(buffer)), {}

    seen = benchmark.pedantic(
        read_slices, setup=setup, rounds=sizes.rounds, warmup_rounds=sizes.warmup
    )
    assert seen == sizes.appends * len(batch)
    measured("fetch_first_read", unit="slices", count=seen // SLICE, bytes=seen)
