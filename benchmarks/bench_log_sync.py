"""Lower bound of a quorum's writes: `Log.append` with fsync, and a bare write with fdatasync.

``append_sync_*``   `Log.append` of one batch of 512 B or 1 MiB, then fdatasync
``write_sync_*``    a bare write and fdatasync of the same bytes, alternating with the above, so
                    that both use the same disk at the same time

Files are in pytest's temporary directory and grow as they are written: each sync also writes the
new size. Not included: rolling.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.conftest import Sizes
from benchmarks.timings import summary
from kraft._core.bytes.batch import BatchBuilder
from kraft._core.log.log import Log

MIB = 1 << 20
SYNCED = {"small": 512 - 61 - 12, "1MiB": MIB - 61 - 12}


def one_batch(size: int) -> bytearray:
    """Return a batch of one record whose value has `size` bytes."""
    builder = BatchBuilder(0, 1, 1000)
    builder.append(bytes(size))
    return bytearray(builder.finish())


@pytest.mark.parametrize("kind", SYNCED)
def bench_append_sync(figure: Callable[..., None], sizes: Sizes, tmp_path: Path, kind: str) -> None:
    data = one_batch(SYNCED[kind])
    descriptor = os.open(tmp_path / "bare", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    appends: list[float] = []
    writes: list[float] = []
    clock = time.perf_counter
    with Log.open(tmp_path / "part-0") as log:
        for _ in range(sizes.syncs + 10):
            begin = clock()
            os.write(descriptor, data)
            os.fdatasync(descriptor)
            between = clock()
            struct.pack_into(">q", data, 0, log.log_end_offset)
            log.append(data, sync=True)
            appends.append(clock() - between)
            writes.append(between - begin)
        assert log.synced_offset == log.log_end_offset == sizes.syncs + 10
    os.close(descriptor)
    for work, taken in (("append_sync", appends), ("write_sync", writes)):
        figure(f"{work}_{kind}", unit="appends", count=1, bytes=len(data), **summary(taken[10:]))
