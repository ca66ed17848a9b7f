"""Helpers for the tests of logs: make small batches and logs, and read a directory's content."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kraft._core.log.log import Log
from tests.reference.log_twin import TwinBatch


def batch(
    base: int, count: int = 10, *, epoch: int = 1, timestamp: int = 1000, size: int = 239
) -> bytes:
    """Return a sealed batch of 61 + `size` bytes, 300 by default."""
    return TwinBatch(base, count, epoch, timestamp, bytes([base % 251]) * size).data


def filled(disk: Any, directory: Any, count: int, **options: Any) -> Log:
    """Return a log of `count` batches of 10 records and 300 bytes."""
    log = Log.open(directory, disk=disk, **options)
    for i in range(count):
        log.append(batch(i * 10))
    return log


def content(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in sorted(directory.iterdir())}


def base_offsets(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]
