"""A log directory on a disk that crashes anywhere: flushed batches survive, in the same order.

Each case runs one workload, stops the disk at one boundary, loses unsynced work in one of the ways
of the crash disk, and opens what is left.
"""

from __future__ import annotations

import contextlib
from random import Random

import pytest

from kraft._core.log.segment import SegmentPool
from kraft.broker.log.log_directory import LogDirectory
from kraft.broker.log.partition_log import PartitionLog
from kraft.broker.log.settings import LogSettings
from tests.harness.crash_disk import CrashDisk, Loss
from tests.harness.partition_logs import TOPIC_ID, produced
from tests.harness.produced_batches import NOW_MS

SETTINGS = LogSettings(segment_bytes=700, index_interval_bytes=100)
CASES = 250


class StopError(Exception):
    """The disk stops here."""


def opened(disk: CrashDisk) -> LogDirectory:
    directory = LogDirectory(
        "/d", now_ms=lambda: NOW_MS, disk=disk, pool=SegmentPool(2), random=Random(1)
    )
    directory.load(lambda topic: SETTINGS)
    assert directory.failure is None
    return directory


#: Base offset, leader epoch and bytes of each batch.
Batches = list[tuple[int, int, bytes]]


def content(log: PartitionLog) -> Batches:
    return [
        (batch.base_offset, batch.epoch, bytes(batch.data))
        for batch in log.core.batches(log.start_offset)
    ]


class Workload:
    """Random operations on one log, and the batches that it had."""

    def __init__(self, disk: CrashDisk, dice: Random) -> None:
        self.disk = disk
        self.dice = dice
        self.directory = opened(disk)
        #: All batches of the log, removed ones included, since the last flush; the flushed first.
        self.histories: list[Batches] = [[]]
        self.start_offset = 0
        self.epoch = 1
        self.sequence = 0

    @property
    def log(self) -> PartitionLog:
        return self.directory.partitions["t", 0]

    def run(self, steps: int) -> None:
        self.directory.create("t", 0, TOPIC_ID, SETTINGS)
        works = {
            self.append: 60,
            self.flush: 6,
            self.flush_rolled: 4,
            self.truncate: 4,
            self.checkpoint: 4,
            self.retain: 3,
            self.reopen: 2,
        }
        for _ in range(steps):
            (work,) = self.dice.choices(list(works), list(works.values()))
            work()
            start = self.log.start_offset
            assert content(self.log) == [one for one in self.histories[-1] if one[0] + 1 >= start]

    def append(self) -> None:
        producer_id = self.dice.choice((-1, 5))
        batch = produced(
            2,
            size=self.dice.randrange(150),
            producer_id=producer_id,
            sequence=self.sequence if producer_id == 5 else -1,
        )
        self.sequence += 2 if producer_id == 5 else 0
        end = self.log.end_offset
        data = bytearray(batch)
        data[:8] = end.to_bytes(8, "big")
        data[12:16] = self.epoch.to_bytes(4, "big")
        # Before the append, which the disk may interrupt.
        self.histories.append([*self.histories[-1], (end, self.epoch, bytes(data))])
        self.log.append_as_leader(batch, self.epoch)

    def flush(self) -> None:
        self.log.flush()
        self.histories = self.histories[-1:]

    def flush_rolled(self) -> None:
        self.log.flush_rolled()

    def truncate(self) -> None:
        offset = self.dice.choice([*(base for base, *_ in content(self.log)), self.log.end_offset])
        self.histories.append([one for one in self.histories[-1] if one[0] < offset])
        self.log.truncate_to(offset)
        self.start_offset = min(self.start_offset, self.log.start_offset)
        self.epoch += 1
        entry = self.log.producers.producers.get(5)
        self.sequence = entry.last_sequence + 1 if entry else 0

    def checkpoint(self) -> None:
        self.directory.write_recovery_points()
        self.directory.write_start_offsets()

    def retain(self) -> None:
        log = self.log
        log.high_watermark = log.end_offset
        self.start_offset = self.dice.randint(log.start_offset, log.end_offset)
        log.raise_start_offset(self.start_offset)
        log.apply_retention(NOW_MS)

    def reopen(self) -> None:
        self.directory.close()
        self.histories = self.histories[-1:]
        self.directory = opened(self.disk)


@pytest.mark.parametrize("part", range(5))
def test_what_was_flushed_survives_a_crash_at_any_boundary(part: int) -> None:
    for case in range(CASES // 5):
        seed = part * CASES + case
        dice = Random(seed)
        disk = CrashDisk()
        disk.make_directory("/d")
        disk.sync_directory("/")
        left = dice.randrange(900)

        def stop() -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise StopError

        workload = Workload(disk, dice)
        disk.on_boundary = stop
        with contextlib.suppress(StopError):
            workload.run(80)
        disk.on_boundary = lambda: None
        survivor = disk.after_crash(dice.choice(list(Loss)), dice)
        directory = opened(survivor)
        log = directory.partitions.get(("t", 0))
        flushed = [one for one in workload.histories[0] if one[0] >= workload.start_offset]
        if log is None:
            assert not flushed, f"seed {seed}: the log is lost"
            continue
        found = content(log)
        check_batches(found, workload, log.start_offset, seed)
        # The state of producers is that of the batches.
        before = sorted(log.producers.producers.items())
        again = opened(survivor).partitions["t", 0]
        assert content(again) == found
        assert sorted(again.producers.producers.items()) == before
        log.append_as_leader(produced(1), 99)
        assert content(log)[: len(found)] == found


def check_batches(found: Batches, workload: Workload, start: int, seed: int) -> None:
    """Check that the log has a beginning of one of its contents, and what all of them share."""
    assert start <= workload.start_offset, f"seed {seed}: the log starts too late"
    first = found[0][0] if found else start
    histories = [[one for one in each if one[0] >= first] for each in workload.histories]
    assert any(found == each[: len(found)] for each in histories), f"seed {seed}: other batches"
    for index, batch in enumerate(histories[0]):
        if any(each[index : index + 1] != [batch] for each in histories):
            break
        assert found[index : index + 1] == [batch], f"seed {seed}: a flushed batch is lost"
