"""One partition's log: appends, duplicates, reads, cuts, retention, and files that open lazily."""

from __future__ import annotations

import gc
import os
from os import PathLike
from pathlib import Path

import pytest

from kraft._core.log.disk import OsDisk, OsFile
from kraft._core.log.segment import SegmentPool
from kraft.broker.log.partition_log import PartitionLog
from kraft.broker.log.settings import LogSettings
from kraft.broker.produce_validation import ProduceRules, check
from kraft.errors import (
    CorruptRecordError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    StorageError,
)
from kraft.simulation.memory_disk import MemoryDisk
from tests.harness.partition_logs import TOPIC_ID, Logs, produced
from tests.harness.partition_logs import follower_batch as batch
from tests.harness.produced_batches import NOW_MS


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path, settings=LogSettings(segment_bytes=1000, index_interval_bytes=100))


@pytest.fixture
def log(logs: Logs) -> PartitionLog:
    return logs.manager.create("t", 0, TOPIC_ID)


def fill(log: PartitionLog, count: int, epoch: int = 1) -> None:
    for _ in range(count):
        log.append_as_leader(produced(), epoch)


def test_a_leader_sets_offsets_and_epochs_of_batches(log: PartitionLog) -> None:
    assert log.append_as_leader(produced(3), 5)[:2] == (0, 2)
    assert log.append_as_leader(produced(2), 6)[:2] == (3, 4)
    assert (log.start_offset, log.end_offset, log.latest_epoch) == (0, 5, 6)
    assert log.end_offset_of(5) == (5, 3)
    second = log.read(4, 1 << 20, 5).read()
    assert int.from_bytes(second[:8], "big") == 3
    assert int.from_bytes(second[12:16], "big") == 6


def test_a_batch_that_may_not_be_changed_is_copied(log: PartitionLog) -> None:
    given = bytes(produced(2))
    log.append_as_leader(given, 5)
    log.append_as_leader(given, 6)
    assert given == bytes(produced(2))
    assert (log.end_offset, log.epochs) == (4, [(5, 0), (6, 2)])


def test_under_log_append_time_the_outcome_has_the_time(log: PartitionLog) -> None:
    rules = ProduceRules(append_time=True)
    given = bytes(produced(1, producer_id=7, sequence=0))
    first = check(bytearray(given), rules, "t-0", now_ms=NOW_MS + 9).data
    assert log.append_as_leader(first, 1).append_time_ms == NOW_MS + 9
    again = check(bytearray(given), rules, "t-0", now_ms=NOW_MS + 50).data
    assert log.append_as_leader(again, 1) == (0, 0, NOW_MS + 9, True)
    assert log.append_as_leader(produced(), 1).append_time_ms == -1


def test_a_repeated_batch_of_a_producer_is_answered_by_the_offsets_of_the_first(
    log: PartitionLog,
) -> None:
    log.append_as_leader(produced(2), 1)
    first = log.append_as_leader(produced(3, producer_id=7, sequence=0), 1)
    again = log.append_as_leader(produced(3, producer_id=7, sequence=0), 1)
    assert again == first._replace(is_duplicate=True)
    with pytest.raises(OutOfOrderSequenceError):
        log.append_as_leader(produced(1, producer_id=7, sequence=9), 1)
    assert log.end_offset == 5


def test_a_read_is_a_part_of_one_file_that_stays_when_the_segment_is_removed(
    logs: Logs, log: PartitionLog
) -> None:
    fill(log, 30)
    slices = [log.read(offset, 1, 30) for offset in range(30)]
    before = [one.read() for one in slices]
    assert [os.pread(one.fileno(), one.size, one.position) for one in slices] == before
    log.truncate_to(0)
    logs.now_ms += 60_000
    assert logs.manager.remove_due(logs.now_ms) > 0
    fill(log, 5, epoch=2)
    assert [one.read() for one in slices] == before


def test_a_read_ends_before_the_high_watermark(log: PartitionLog) -> None:
    fill(log, 9)
    size = log.read(0, 1, 9).size
    assert log.read(0, 10 * size, 3).size == 3 * size
    assert log.read(3, 10 * size, 3).size == 0
    assert log.read(9, 10 * size, 9).size == 0
    with pytest.raises(OffsetOutOfRangeError):
        log.read(10, 1, 9)


def test_a_follower_takes_gaps_and_batches_of_older_epochs(log: PartitionLog) -> None:
    log.append_as_follower(batch(0, epoch=3) + batch(20, epoch=3))
    log.append_as_follower(batch(50, epoch=2))
    assert log.epochs == [(2, 50)]
    assert log.end_offset == 60
    assert log.read(12, 1, 60).read() == batch(20, epoch=3)
    with pytest.raises(CorruptRecordError, match="begins with offset 50"):
        log.append_as_follower(batch(50, epoch=3))


def test_a_damaged_batch_of_a_leader_is_rejected(log: PartitionLog) -> None:
    damaged = bytearray(batch(0))
    damaged[-1] ^= 1
    with pytest.raises(CorruptRecordError, match="CRC"):
        log.append_as_follower(damaged)
    assert log.end_offset == 0


def test_a_truncation_rebuilds_producers_from_the_nearest_snapshot(log: PartitionLog) -> None:
    for sequence in range(30):
        log.append_as_leader(produced(1, producer_id=7, sequence=sequence), 1)
    log.flush()
    log.truncate_to(17)
    assert log.producers.producers[7].last_sequence == 16
    stray = [name for name in os.listdir(log.path) if name.endswith(".snapshot")]
    assert max(stray) == f"{17:020d}.snapshot"
    log.append_as_leader(produced(1, producer_id=7, sequence=17), 2)
    assert log.epochs == [(1, 0), (2, 17)]


def test_a_restart_drops_everything(log: PartitionLog) -> None:
    fill(log, 30)
    log.restart_at(100)
    assert (log.start_offset, log.end_offset, log.epochs) == (100, 100, [])
    fill(log, 1)
    assert log.end_offset == 101


def test_the_log_start_moves_without_a_change_of_segments(logs: Logs, log: PartitionLog) -> None:
    fill(log, 30)
    log.raise_start_offset(20)
    log.raise_start_offset(10)
    assert log.start_offset == 20
    with pytest.raises(OffsetOutOfRangeError):
        log.read(19, 1, 30)
    log.high_watermark = 30
    count = log.core.segment_count
    assert sum(logs.manager.apply_retention(NOW_MS)) > 0
    assert log.core.segment_count < count
    assert log.core.base_offsets[0] <= 20


def test_old_segments_expire_and_the_last_one_is_rolled(tmp_path: Path) -> None:
    logs = Logs(tmp_path, settings=LogSettings(segment_bytes=1000, retention_ms=1000))
    log = logs.manager.create("t", 0, TOPIC_ID)
    fill(log, 30)
    log.high_watermark = 30
    assert log.apply_retention(NOW_MS + 1000) == 0
    assert log.apply_retention(NOW_MS + 1001) > 0
    assert (log.start_offset, log.end_offset, log.size) == (30, 30, 0)
    fill(log, 1)
    log.high_watermark = 30
    assert log.apply_retention(NOW_MS + 9000) == 0, "the high watermark protects it"


def test_only_whole_segments_beyond_the_retained_size_go(tmp_path: Path) -> None:
    logs = Logs(tmp_path, settings=LogSettings(segment_bytes=1000, retention_bytes=2500))
    log = logs.manager.create("t", 0, TOPIC_ID)
    fill(log, 60)
    log.high_watermark = 60
    log.apply_retention(NOW_MS)
    assert 2500 <= log.size < 2500 + 1000


def test_times_are_found_in_every_segment(log: PartitionLog) -> None:
    for step in range(20):
        log.append_as_leader(produced(2, time_ms=NOW_MS + step * 10), 1)
    assert log.offset_at_time(0) == (NOW_MS, 0, 1)
    assert log.offset_at_time(NOW_MS + 101) == (NOW_MS + 110, 22, 1)
    assert log.offset_at_time(NOW_MS + 191) is None
    assert log.offset_of_largest_time() == (NOW_MS + 190, 38, 1)
    log.raise_start_offset(23)
    assert log.offset_at_time(0) == (NOW_MS + 110, 23, 1)


def test_an_empty_log_has_no_times(log: PartitionLog) -> None:
    assert log.offset_at_time(0) is None
    assert log.offset_of_largest_time() is None


def test_batches_without_timestamps_roll_by_the_clock(tmp_path: Path) -> None:
    logs = Logs(tmp_path, settings=LogSettings(segment_ms=1000))
    log = logs.manager.create("t", 0, TOPIC_ID)
    log.append_as_follower(batch(0, timestamp=-1))
    logs.now_ms = NOW_MS + 1000
    log.append_as_follower(batch(10, timestamp=-1))
    assert log.core.segment_count == 1
    logs.now_ms = NOW_MS + 1001
    log.append_as_follower(batch(20, timestamp=-1))
    assert log.core.base_offsets == (0, 20)


def test_a_segment_that_a_truncation_emptied_rolls_by_its_new_first_batch(tmp_path: Path) -> None:
    logs = Logs(tmp_path, settings=LogSettings(segment_ms=1000))
    log = logs.manager.create("t", 0, TOPIC_ID)
    # After a gap, as compaction leaves it: the segment does not end at its base offset.
    log.append_as_follower(batch(5, timestamp=NOW_MS))
    log.truncate_to(5)
    log.append_as_follower(batch(5, timestamp=NOW_MS))
    logs.now_ms = NOW_MS + 5000
    log.append_as_follower(batch(15, timestamp=NOW_MS + 1000))
    assert log.core.segment_count == 1
    log.append_as_follower(batch(25, timestamp=NOW_MS + 1001))
    assert log.core.base_offsets == (0, 25)


def test_flush_messages_makes_appends_durable(tmp_path: Path) -> None:
    logs = Logs(tmp_path, settings=LogSettings(flush_messages=3))
    log = logs.manager.create("t", 0, TOPIC_ID)
    recovery_points = []
    for _ in range(7):
        log.append_as_leader(produced(), 1)
        recovery_points.append(log.recovery_point)
    assert recovery_points == [0, 0, 3, 3, 3, 6, 6]


def test_rolled_segments_are_flushed_by_the_manager(logs: Logs, log: PartitionLog) -> None:
    fill(log, 30)
    assert log.recovery_point == 0
    assert logs.manager.flush_rolled() == 1
    assert log.recovery_point == log.core.base_offsets[-1]
    assert logs.manager.flush_rolled() == 0


def test_the_files_of_few_segments_are_open(tmp_path: Path) -> None:
    logs = Logs(
        tmp_path, settings=LogSettings(segment_bytes=1000, index_interval_bytes=100), most_open=4
    )
    # Logs of other tests.
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    logs_of = [logs.manager.create("t", number, TOPIC_ID) for number in range(10)]
    for log in logs_of:
        fill(log, 30)
    for offset in range(30):
        for log in logs_of:
            assert int.from_bytes(log.read(offset, 1, 30).read()[:8], "big") == offset
    assert len(logs.pool) == 4
    assert len(os.listdir("/proc/self/fd")) <= before + 4
    logs.manager.close()
    assert len(logs.pool) == 0
    assert len(os.listdir("/proc/self/fd")) == before


def test_logs_in_turn_find_most_files_open_where_few_too_many_are_in_use(tmp_path: Path) -> None:
    """A pool that closes what was used longest ago opens each file again in each round."""
    opened: list[str] = []

    class CountingDisk(OsDisk):
        def open(
            self, path: str | PathLike[str], *, create: bool = False, read_only: bool = False
        ) -> OsFile:
            opened.append(str(path))
            return super().open(path, create=create, read_only=read_only)

    logs = Logs(tmp_path, disk=CountingDisk(), most_open=95)
    logs_of = [logs.manager.create("t", number, TOPIC_ID) for number in range(100)]
    rounds = 10
    for number in range(rounds):
        if number == 2:
            opened.clear()
        for log in logs_of:
            log.append_as_leader(produced(), 1)
    assert len(logs.pool) == 95
    # Each time: the segment and its indexes.
    reopened = len([path for path in opened if path.endswith(".log")])
    assert reopened / (rounds - 2) < 30
    assert {log.end_offset for log in logs_of} == {rounds}


def test_at_least_one_segment_must_be_open() -> None:
    with pytest.raises(ValueError, match="at least one"):
        SegmentPool(0)


def test_an_index_that_is_missing_or_damaged_is_built_again(tmp_path: Path) -> None:
    settings = LogSettings(segment_bytes=5000, index_interval_bytes=100)
    logs = Logs(tmp_path, settings=settings)
    log = logs.manager.create("t", 0, TOPIC_ID)
    fill(log, 60)
    logs.manager.close()
    indexes = sorted(
        path for path in (tmp_path / "t-0").iterdir() if path.suffix in (".index", ".timeindex")
    )
    whole = [path.read_bytes() for path in indexes]
    indexes[0].unlink()
    indexes[2].write_bytes(bytes(80))
    indexes[-2].write_bytes(whole[-2][:-3])
    again = Logs(tmp_path, settings=settings).manager.get("t", 0)
    assert again is not None
    for offset in range(60):
        assert int.from_bytes(again.read(offset, 1, 60).read()[:8], "big") == offset
    assert [path.read_bytes() for path in indexes] == whole


def test_a_failed_write_takes_the_directory_offline() -> None:
    disk = MemoryDisk()
    disk.make_directory("/d")
    logs = Logs("/d", disk=disk)
    log = logs.manager.create("t", 0, TOPIC_ID)
    other = logs.manager.create("t", 1, TOPIC_ID)
    disk.refuse("write")
    with pytest.raises(StorageError, match="refused"):
        log.append_as_leader(produced(), 1)
    assert logs.failed == ["/d"]
    with pytest.raises(StorageError, match="/d is offline: cannot write"):
        other.append_as_leader(produced(), 1)
    assert logs.manager.get("t", 1) is None


def test_the_offsets_of_a_log_are_known_when_its_directory_is_offline() -> None:
    disk = MemoryDisk()
    disk.make_directory("/d")
    logs = Logs("/d", disk=disk)
    log = logs.manager.create("t", 0, TOPIC_ID)
    log.append_as_leader(produced(), 7)
    logs.directories[0].fail(StorageError("a failing disk"))
    assert (log.start_offset, log.end_offset, log.latest_epoch) == (0, 1, 7)
    with pytest.raises(StorageError, match="/d is offline: a failing disk"):
        log.read(0, 1, 1)
