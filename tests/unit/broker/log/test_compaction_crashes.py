"""Compaction on a disk that crashes anywhere: the latest value of each key survives.

Each case appends keyed records and compacts the log in small steps, stops the disk at one boundary,
loses unsynced work in one of the ways of the crash disk, and opens what is left. Whatever records
compaction removed, the log must say the same about every key as the uncompacted one up to its end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from random import Random

import pytest

from kraft._core.bytes.batch_records import iterate
from kraft._core.log.segment import SegmentPool
from kraft.broker.log.log_cleaner import LogCleaner
from kraft.broker.log.log_directory import LogDirectory
from kraft.broker.log.log_manager import LogManager
from kraft.broker.log.partition_log import PartitionLog
from kraft.broker.log.settings import LogSettings
from tests.harness.crash_disk import CrashDisk, Loss
from tests.harness.partition_logs import TOPIC_ID
from tests.harness.produced_batches import NOW_MS, RawBatch, RawRecord

SETTINGS = LogSettings(
    segment_bytes=500,
    index_interval_bytes=100,
    compacts=True,
    deletes=False,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=50,
    file_delete_delay_ms=100,
)
CASES = 400

#: Offset, key and value.
KeyedRecord = tuple[int, bytes, bytes | None]


class StopError(Exception):
    """The disk stops here."""


class Node:
    """A log directory with a cleaner, as a process opens it."""

    def __init__(self, disk: CrashDisk, now_ms: int = NOW_MS) -> None:
        self.now_ms = now_ms
        self.directory = LogDirectory(
            "/d", now_ms=lambda: self.now_ms, disk=disk, pool=SegmentPool(2), random=Random(1)
        )
        self.manager = LogManager([self.directory], lambda topic: SETTINGS)
        self.manager.load()
        self.cleaner = LogCleaner(self.manager, memory=24 * 60, step_bytes=300)

    @property
    def log(self) -> PartitionLog:
        return self.directory.partitions["t", 0]


def records_of(log: PartitionLog) -> Iterator[KeyedRecord]:
    for batch in log.core.batches(log.start_offset):
        for record in next(iter(iterate(batch.data))):
            assert record.key is not None
            yield record.offset, record.key, record.value


def values(records: Iterable[KeyedRecord]) -> dict[bytes, bytes]:
    """Return the latest value of each key that was not deleted."""
    found = {key: value for _, key, value in records}
    return {key: value for key, value in found.items() if value is not None}


class CompactionWorkload:
    """Random appends and steps of the cleaner on one log."""

    def __init__(self, disk: CrashDisk, dice: Random) -> None:
        self.dice = dice
        self.disk = disk
        self.node = Node(disk)
        self.history: list[KeyedRecord] = []
        self.flushed = 0
        self.rounds = 0

    def run(self, steps: int) -> None:
        self.node.directory.create("t", 0, TOPIC_ID, SETTINGS)
        works = {self.append: 50, self.clean: 40, self.flush: 6, self.reopen: 2, self.tidy: 4}
        for _ in range(steps):
            (work,) = self.dice.choices(list(works), list(works.values()))
            work()
            self.node.now_ms += self.dice.choice((0, 1, 20))

    def append(self) -> None:
        end = len(self.history)
        records = [
            (
                end + place,
                b"%d" % self.dice.randrange(12),
                None
                if self.dice.random() < 0.25
                else b"%d" % (end + place) * self.dice.randrange(20),
            )
            for place in range(self.dice.choice((1, 1, 3)))
        ]
        batch = RawBatch([RawRecord(key=key, value=value) for _, key, value in records])
        # Before the append, which the disk may interrupt.
        self.history += records
        self.node.log.append_as_leader(bytearray(batch.encoded()), 1)
        self.node.log.high_watermark = self.node.log.end_offset

    def clean(self) -> None:
        cleaner = self.node.cleaner
        if cleaner.current is None:
            self.node.manager.flush_rolled()
            self.node.manager.write_checkpoints()
        for _ in range(self.dice.choice((1, 3, 20))):
            current = cleaner.current
            cleaner.step(self.node.now_ms)
            self.rounds += current is not None and current.is_complete

    def flush(self) -> None:
        self.node.log.flush()
        self.flushed = len(self.history)

    def tidy(self) -> None:
        self.node.manager.remove_due(self.node.now_ms)

    def reopen(self) -> None:
        self.node.cleaner.abandon()
        self.node.manager.close()
        self.flushed = len(self.history)
        self.node = Node(self.disk, self.node.now_ms)


@pytest.mark.parametrize("part", range(5))
def test_the_latest_values_survive_a_crash_at_any_boundary(part: int) -> None:
    rounds = 0
    for case in range(CASES // 5):
        seed = part * CASES + case
        dice = Random(seed)
        disk = CrashDisk()
        disk.make_directory("/d")
        disk.sync_directory("/")
        left = dice.randrange(2_000)

        def stop() -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise StopError

        workload = CompactionWorkload(disk, dice)
        disk.on_boundary = stop
        with contextlib.suppress(StopError):
            workload.run(150)
        disk.on_boundary = lambda: None
        rounds += workload.rounds
        node = Node(disk.after_crash(dice.choice(list(Loss)), dice), workload.node.now_ms)
        if ("t", 0) not in node.directory.partitions:
            assert workload.flushed == 0, f"seed {seed}: the log is lost"
            continue
        check(node.log, workload, seed)
        assert not [
            name
            for name in node.directory.disk.list("/d/t-0")
            if name.endswith((".cleaned", ".swap"))
        ]
        # It goes on: later records, and rounds to the end.
        end = node.log.end_offset
        workload.node = node
        del workload.history[end:]
        for _ in range(10):
            workload.append()
        node.manager.flush_rolled()
        node.manager.write_checkpoints()
        while node.cleaner.step(node.now_ms):
            pass
        check(node.log, workload, seed)
    assert rounds > CASES // 5


def check(log: PartitionLog, workload: CompactionWorkload, seed: int) -> None:
    """Compare the log with all records that were appended before its end."""
    found = list(records_of(log))
    assert set(found) <= set(workload.history), f"seed {seed}: other records"
    offsets = [offset for offset, *_ in found]
    assert offsets == sorted(set(offsets)), f"seed {seed}: a replaced segment is back"
    assert log.end_offset >= workload.flushed, f"seed {seed}: flushed records are lost"
    expected = values(workload.history[: log.end_offset])
    assert values(found) == expected, f"seed {seed}: other values"
