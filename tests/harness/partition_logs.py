"""Log directories with a clock that tests set, and batches as the leader's producers send them."""

from __future__ import annotations

from random import Random
from typing import Any

from kraft._core.log.segment import SegmentPool
from kraft.broker.log.log_directory import LogDirectory
from kraft.broker.log.log_manager import LogManager
from kraft.broker.log.settings import LogSettings
from kraft.broker.produce_validation import ProduceRules, check
from kraft.records import Uuid
from tests.harness.produced_batches import NOW_MS, RawBatch, RawRecord
from tests.reference.log_twin import TwinBatch

TOPIC_ID = Uuid(b"\x07" * 16)


def directory_id(number: int) -> bytes:
    return b"d" * 15 + b"123456789"[number : number + 1]


class Logs:
    """A manager of log directories, and what its tests change."""

    def __init__(
        self,
        *paths: Any,
        settings: LogSettings | None = None,
        disk: Any = None,
        most_open: int = 10,
    ) -> None:
        self.now_ms = NOW_MS
        self.settings = LogSettings() if settings is None else settings
        self.failed: list[str] = []
        self.pool = SegmentPool(most_open)
        self.directories = [
            LogDirectory(
                str(path),
                id=directory_id(number),
                now_ms=lambda: self.now_ms,
                pool=self.pool,
                disk=disk,
                random=Random(1),
                on_failure=lambda directory: self.failed.append(directory.path),
            )
            for number, path in enumerate(paths)
        ]
        self.manager = LogManager(self.directories, lambda topic: self.settings)
        self.manager.load()


def produced(
    count: int = 1,
    *,
    size: int = 100,
    producer_id: int = -1,
    sequence: int = -1,
    time_ms: int = NOW_MS,
) -> memoryview:
    """Return the bytes of a checked batch of `count` records with values of `size` bytes."""
    batch = RawBatch(
        [RawRecord(key=b"k", value=bytes(size)) for _ in range(count)],
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence,
        base_timestamp=time_ms,
    )
    return check(bytearray(batch.encoded()), ProduceRules(), "t-0", now_ms=time_ms).data


def follower_batch(base: int, *, epoch: int = 1, timestamp: int = 1000) -> bytes:
    """Return a batch of 10 records and 300 bytes, as a leader's log has it."""
    return TwinBatch(base, 10, epoch, timestamp, bytes([base % 251]) * 239).data
