"""The physical floors, measured in the same run: memory and page cache alone.

``memcpy``      copy as many bytes as the mixed checkpoint has, between warm buffers
``memcpy_cached``  the same for the bytes of a batch, which stay in the processor's caches
``crc32c``      the checksum of the same bytes by the `crc32c` package
``writev``      bare `os.writev` of the same 16 KiB batches to a fresh file, no fsync
``pread``       bare `os.preadv` of 1 MiB slices into a warm buffer
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from crc32c import crc32c

from benchmarks import generate
from benchmarks.conftest import Sizes

SLICE = 1 << 20


def bench_memcpy(benchmark: Any, measured: Callable[..., None], sizes: Sizes) -> None:
    _, expected = generate.make("mixed", sizes.partitions)
    source = np.full(expected.bytes, 7, np.uint8)
    target = np.zeros_like(source)
    benchmark.pedantic(np.copyto, (target, source), rounds=sizes.rounds, warmup_rounds=sizes.warmup)
    assert target[-1] == 7
    measured("memcpy", unit="bytes", count=expected.bytes, bytes=expected.bytes)


def bench_memcpy_cached(benchmark: Any, measured: Callable[..., None]) -> None:
    size = 112 * 1024
    source = np.full(size, 7, np.uint8)
    target = np.zeros_like(source)
    benchmark.pedantic(np.copyto, (target, source), rounds=200, iterations=50, warmup_rounds=5)
    assert target[-1] == 7
    measured("memcpy_cached", unit="bytes", count=size, bytes=size)


def bench_crc32c(benchmark: Any, measured: Callable[..., None], sizes: Sizes) -> None:
    path, expected = generate.make("mixed", sizes.partitions)
    raw = path.read_bytes()
    benchmark.pedantic(crc32c, (raw,), rounds=sizes.rounds, warmup_rounds=sizes.warmup)
    measured("crc32c", unit="bytes", count=expected.bytes, bytes=expected.bytes)


def bench_writev(
    benchmark: Any, measured: Callable[..., None], sizes: Sizes, tmp_path: Path
) -> None:
    batch = generate.make_data_batch().read_bytes()
    path = tmp_path / "bare"

    def fresh() -> tuple[tuple[int], dict[str, Any]]:
        if path.exists():
            path.unlink()
        return (os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND),), {}

    def write(descriptor: int) -> None:
        for _ in range(sizes.appends):
            os.writev(descriptor, (batch,))
        os.close(descriptor)

    benchmark.pedantic(write, setup=fresh, rounds=sizes.rounds, warmup_rounds=sizes.warmup)
    total = sizes.appends * len(batch)
    assert path.stat().st_size == total
    measured("writev", unit="appends", count=sizes.appends, bytes=total)


@pytest.fixture
def cached_file(sizes: Sizes, tmp_path: Path) -> Path:
    """Return a file of the log benchmark's size, just written and so in the page cache."""
    path = tmp_path / "cached"
    path.write_bytes(generate.make_data_batch().read_bytes() * sizes.appends)
    return path


def bench_pread(
    benchmark: Any, measured: Callable[..., None], sizes: Sizes, cached_file: Path
) -> None:
    size = cached_file.stat().st_size
    buffer = bytearray(SLICE)

    def read() -> int:
        with cached_file.open("rb") as file:
            return sum(
                os.preadv(file.fileno(), (buffer,), place) for place in range(0, size, SLICE)
            )

    assert benchmark.pedantic(read, rounds=sizes.rounds, warmup_rounds=sizes.warmup) == size
    measured("pread", unit="slices", count=size // SLICE, bytes=size)
