"""A log on disk: written, read, cut, and opened again after whatever happened to it."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from kraft._core.disk import OsDisk
from kraft._core.log import Log
from kraft._core.partition_directory import EMPTY_PRODUCER_SNAPSHOT, METADATA_TOPIC_ID
from kraft.errors import (
    CorruptRecordError,
    DamagedLogError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    StorageError,
)
from tests.reference.log_twin import TwinBatch
from tests.reference.memory_disk import MemoryDisk

DATA = Path(__file__).parents[2] / "data" / "kafka-4.3"
REAL = [
    DATA / "controller-101" / "__cluster_metadata-0",
    DATA / "broker-1" / "__cluster_metadata-0",
]


def batch(
    base: int, count: int = 10, *, epoch: int = 1, timestamp: int = 1000, size: int = 239
) -> bytes:
    """A sealed batch of 61 + `size` bytes: 300 by default."""
    return TwinBatch(base, count, epoch, timestamp, bytes([base % 251]) * size).data


def filled(disk: Any, directory: Any, count: int, **options: Any) -> Log:
    """A log of `count` batches of 10 records and 300 bytes."""
    log = Log.open(directory, disk=disk, **options)
    for i in range(count):
        log.append(batch(i * 10))
    return log


def content(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in sorted(directory.iterdir())}


# Kafka's own directories


@pytest.mark.parametrize("directory", REAL, ids=["controller", "broker"])
def test_a_directory_of_kafka_opens_with_its_epochs_and_every_batch(directory: Path) -> None:
    before = content(directory)
    log = Log.open(directory, read_only=True)
    assert log.torn_tail is None
    assert log.topic_id == METADATA_TOPIC_ID
    lines = (directory / "leader-epoch-checkpoint").read_text().splitlines()[2:]
    assert log.epochs == [tuple(map(int, line.split())) for line in lines]
    stored = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
    assert b"".join(entry.data for entry in log.batches()) == stored
    for snapshot in directory.glob("*.snapshot"):
        assert snapshot.read_bytes() == EMPTY_PRODUCER_SNAPSHOT
    for segment in log.segments:
        assert segment.offset_index.content() == Path(segment.offset_index.path).read_bytes()
    log.close()
    assert content(directory) == before


@pytest.mark.parametrize("directory", REAL, ids=["controller", "broker"])
def test_a_directory_of_kafka_can_be_written_on(directory: Path, tmp_path: Path) -> None:
    copy = tmp_path / "__cluster_metadata-0"
    shutil.copytree(directory, copy)
    with Log.open(copy) as log:
        end, epoch = log.log_end_offset, log.last_epoch
        log.append(batch(end, epoch=epoch + 1, timestamp=1 << 41))
    for path in directory.iterdir():
        # A restart in mid segment left Kafka one time entry that the batches alone do not call for.
        if path.suffix in (".log", ".index", ".snapshot", ".checkpoint"):
            assert (copy / path.name).read_bytes().startswith(path.read_bytes())
    with Log.open(copy, read_only=True) as log:
        assert log.log_end_offset == end + 10
        assert log.epochs[-1] == (epoch + 1, end)


# Writing and reading


def test_a_new_log_has_kafkas_files(tmp_path: Path) -> None:
    with Log.open(tmp_path / "part-0") as log:
        assert log.append(batch(0, epoch=7), sync=True) == (0, 9)
        log.roll()
        assert log.append(batch(10, epoch=8)) == (10, 19)
    files = {path.name: path.read_bytes() for path in (tmp_path / "part-0").iterdir()}
    assert files == {
        "00000000000000000000.log": batch(0, epoch=7),
        "00000000000000000000.index": b"",
        "00000000000000000000.timeindex": struct.pack(">qi", 1000, 9),
        "00000000000000000010.log": batch(10, epoch=8),
        "00000000000000000010.index": b"",
        "00000000000000000010.timeindex": struct.pack(">qi", 1000, 9),
        "00000000000000000010.snapshot": bytes.fromhex("000148674bc700000000"),
        "leader-epoch-checkpoint": b"0\n2\n7 0\n8 10\n",
        "partition.metadata": b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ",
    }


def test_a_fetch_gives_whole_batches_from_the_one_that_holds_the_offset(tmp_path: Path) -> None:
    log = filled(OsDisk(), tmp_path, 100)
    assert log.fetch(425, 1) == batch(420)
    assert log.fetch(420, 899) == batch(420) + batch(430)
    assert log.fetch(420, 900) == batch(420) + batch(430) + batch(440)
    assert len(log.fetch(0, 1 << 30)) == 100 * 300
    assert log.fetch(1000, 1 << 20) == b""
    for offset in (-1, 1001):
        with pytest.raises(OffsetOutOfRangeError, match="between 0 and 1000"):
            log.fetch(offset, 100)


def test_a_fetch_copies_nothing(tmp_path: Path) -> None:
    log = filled(OsDisk(), tmp_path, 10)
    view = log.fetch(0, 300)
    with open(log.segments[0].path, "r+b") as file:
        file.seek(100)
        file.write(b"seen")
    assert bytes(view[100:104]) == b"seen"
    assert view.readonly


def test_slices_stay_what_they_were_when_the_log_is_cut_and_written_on(tmp_path: Path) -> None:
    log = filled(OsDisk(), tmp_path, 100)
    views = [log.fetch(i * 10, 300) for i in range(100)]
    log.truncate_to(50)
    log.append(batch(50, 3, epoch=2))
    log.truncate_fully_and_start_at(7)
    log.close()
    assert [bytes(view) for view in views] == [batch(i * 10) for i in range(100)]


def test_a_cut_without_slices_keeps_the_file_and_one_with_slices_replaces_it(
    tmp_path: Path,
) -> None:
    log = filled(OsDisk(), tmp_path, 10)
    path = Path(log.segments[0].path)
    inode = path.stat().st_ino
    assert bytes(log.fetch(0, 1)) == batch(0)
    log.truncate_to(90)
    assert path.stat().st_ino == inode
    view = log.fetch(80, 1)
    log.truncate_to(80)
    assert path.stat().st_ino != inode
    assert view == batch(80)
    log.append(batch(80, epoch=2))
    log.close()
    assert path.read_bytes() == b"".join(batch(i * 10) for i in range(8)) + batch(80, epoch=2)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (batch(11), "begins with offset 11, the log ends with 10"),
        (batch(10) + batch(30), "begins with offset 30, the log ends with 20"),
        (batch(10, epoch=0), "leader epoch 0 follows 1"),
        (batch(10)[:-1], "cut short"),
        (batch(10) + b"\0" * 60, "cut short"),
        (batch(10) + b"\0" * 100, "length"),
        (batch(10)[:57] + struct.pack(">i", 9) + batch(10)[61:], "9 records span 10 offsets"),
    ],
)
def test_what_does_not_continue_the_log_is_refused_and_leaves_it_as_it_was(
    tmp_path: Path, data: bytes, reason: str
) -> None:
    log = filled(OsDisk(), tmp_path, 1)
    with pytest.raises(CorruptRecordError, match=reason):
        log.append(data)
    assert (log.log_end_offset, log.size, log.failed) == (10, 300, False)
    log.append(batch(10))


def test_a_wrong_crc_is_found_where_one_asks_for_it(tmp_path: Path) -> None:
    log = filled(OsDisk(), tmp_path, 1)
    data = batch(10) + batch(20)[:-1] + b"?"
    with pytest.raises(CorruptRecordError, match="CRC") as refusal:
        log.append(data, verify_crc=True)
    assert (refusal.value.offset, refusal.value.position) == (20, 300)
    assert log.append(batch(10), verify_crc=True) == (10, 19)


def test_nothing_to_append_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no batch"):
        Log.open(tmp_path).append(b"")


# Rolling


def base_offsets(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_a_full_segment_is_rolled_and_a_large_append_is_spread(tmp_path: Path) -> None:
    log = Log.open(tmp_path, segment_bytes=1000)
    for i in range(4):
        log.append(batch(i * 10))
    assert base_offsets(log) == [0, 30]
    log.append(b"".join(batch(i * 10) for i in range(4, 14)))
    assert base_offsets(log) == [0, 30, 40, 70, 100, 130]
    with pytest.raises(RecordTooLargeError, match="1061 bytes"):
        log.append(batch(140, size=1000))
    assert log.log_end_offset == 140


def test_a_segment_is_rolled_once_its_first_batch_is_old(tmp_path: Path) -> None:
    log = Log.open(tmp_path, segment_ms=5000)
    for i, timestamp in enumerate((1000, 6000, 6001, 6002)):
        log.append(batch(i * 10, timestamp=timestamp))
    assert base_offsets(log) == [0, 20]


def test_a_segment_is_rolled_before_an_offset_outgrows_its_index(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    far = bytearray(batch(0, 1))
    log.append(far)
    log.truncate_fully_and_start_at(5)
    log.append(batch(5, 10))
    wide = batch(15, 1)
    head = bytearray(wide)
    # A compressed batch may span many offsets; the log trusts its header.
    struct.pack_into(">h", head, 21, 1)
    struct.pack_into(">i", head, 23, (1 << 31) - 6)
    struct.pack_into(">i", head, 57, (1 << 31) - 5)
    log.append(head)
    assert base_offsets(log) == [5, 15]
    assert log.log_end_offset == 15 + (1 << 31) - 5


def test_a_segment_is_rolled_when_an_index_is_full(tmp_path: Path) -> None:
    log = filled(OsDisk(), tmp_path, 9, index_interval_bytes=0, index_max_bytes=24)
    assert base_offsets(log) == [0, 20, 40, 60, 80]
    with pytest.raises(ValueError, match="at least 24"):
        Log.open(tmp_path, index_max_bytes=23)


def test_an_index_of_many_entries_reaches_its_file_before_the_log_is_closed(
    tmp_path: Path,
) -> None:
    log = filled(OsDisk(), tmp_path, 700, index_interval_bytes=0)
    path = Path(log.segments[0].offset_index.path)
    assert path.stat().st_size == 512 * 8
    log.close()
    entries = [struct.pack(">ii", i * 10 + 9, i * 300) for i in range(1, 700)]
    assert path.read_bytes() == b"".join(entries)


# Opening what a crash left


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        (batch(50)[:40], "ends inside a batch"),
        (batch(50)[:-1], "ends inside a batch"),
        (batch(50)[:-1] + b"?", "CRC"),
        (b"\0" * 4096, "length"),
        (b"\x02" * 500, ""),
    ],
)
def test_a_torn_tail_is_cut_in_memory_when_reading_and_on_disk_when_writing(
    tmp_path: Path, tail: bytes, reason: str
) -> None:
    filled(OsDisk(), tmp_path, 5).close()
    path = tmp_path / "00000000000000000000.log"
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    before = content(tmp_path)
    with Log.open(tmp_path, read_only=True) as log:
        assert log.torn_tail[:4] == (str(path), 50, 1500, len(tail))
        assert reason in log.torn_tail.reason
        assert log.log_end_offset == 50
        assert log.fetch(40, 10_000) == batch(40)
    assert content(tmp_path) == before
    with Log.open(tmp_path) as log:
        assert log.torn_tail[:4] == (str(path), 50, 1500, len(tail))
        log.append(batch(50))
    assert path.read_bytes() == whole + batch(50)
    assert Log.open(tmp_path, read_only=True).torn_tail is None


def test_empty_segments_behind_a_torn_one_go_with_its_tail(tmp_path: Path) -> None:
    filled(OsDisk(), tmp_path, 4, segment_bytes=600).close()
    (tmp_path / "00000000000000000020.log").write_bytes(batch(20) + batch(30)[:99])
    for name in ("00000000000000000040.log", "00000000000000000040.index"):
        (tmp_path / name).write_bytes(b"")
    with Log.open(tmp_path, read_only=True) as log:
        assert (log.log_end_offset, base_offsets(log)) == (30, [0, 20])
        assert log.torn_tail.position == 300
    with Log.open(tmp_path) as log:
        assert (log.log_end_offset, base_offsets(log)) == (30, [0, 20])
    assert not list(tmp_path.glob("00000000000000000040.*"))


def test_a_lost_end_before_an_empty_segment_is_a_torn_tail_too(tmp_path: Path) -> None:
    filled(OsDisk(), tmp_path, 4, segment_bytes=600).close()
    (tmp_path / "00000000000000000020.log").write_bytes(batch(20))
    (tmp_path / "00000000000000000040.log").write_bytes(b"")
    log = Log.open(tmp_path, read_only=True)
    assert log.log_end_offset == 30
    assert "begins with offset 40 in place of 30" in log.torn_tail.reason


def damaged(tmp_path: Path, name: str, data: bytes) -> DamagedLogError:
    """What opening says of a log of 6 batches in 3 segments, one of them overwritten."""
    filled(OsDisk(), tmp_path, 6, segment_bytes=600).close()
    (tmp_path / f"{name}.log").write_bytes(data)
    before = content(tmp_path)
    for read_only in (True, False):
        with pytest.raises(DamagedLogError) as refusal:
            Log.open(tmp_path, read_only=read_only)
    assert content(tmp_path) == before
    return refusal.value


def test_damage_that_whole_batches_follow_is_refused_and_salvage_reads_on(tmp_path: Path) -> None:
    error = damaged(tmp_path, "0" * 20, b"?" * 300 + batch(10))
    assert (error.offset, error.position) == (0, 0)
    log = Log.open(tmp_path, read_only=True, salvage=True)
    (gap,) = log.gaps
    assert (gap.offset, gap.position, gap.next_offset, gap.next_position) == (0, 0, 10, 300)
    assert [entry.base_offset for entry in log.batches()] == [10, 20, 30, 40, 50]
    assert log.fetch(0, 10_000) == batch(10)


def test_damage_at_the_end_of_a_segment_is_told_by_the_next(tmp_path: Path) -> None:
    error = damaged(tmp_path, "0" * 20, batch(0) + batch(10)[:-7])
    assert (error.offset, error.position) == (10, 300)
    log = Log.open(tmp_path, read_only=True, salvage=True)
    assert log.gaps[0].next_path.endswith("20.log")
    assert log.fetch(5, 10_000) == batch(0)
    assert log.fetch(12, 10_000) == batch(20) + batch(30)


def test_a_missing_segment_is_damage(tmp_path: Path) -> None:
    filled(OsDisk(), tmp_path, 6, segment_bytes=600).close()
    (tmp_path / "00000000000000000020.log").unlink()
    with pytest.raises(DamagedLogError, match="begins with offset 40 in place of 20"):
        Log.open(tmp_path)
    log = Log.open(tmp_path, read_only=True, salvage=True)
    assert [entry.base_offset for entry in log.batches()] == [0, 10, 40, 50]
    assert log.fetch(25, 10_000) == batch(40) + batch(50)


def test_a_whole_batch_out_of_place_is_no_torn_tail(tmp_path: Path) -> None:
    # Offset and epoch lie outside the CRC: a batch that is whole otherwise was not torn.
    for i, strange in enumerate((batch(20), batch(50, epoch=0), batch(51))):
        directory = tmp_path / str(i)
        damaged(directory, "00000000000000000040", batch(40) + strange)
        log = Log.open(directory, read_only=True, salvage=True)
        assert log.gaps[0].offset == 50
        assert (log.log_end_offset, log.gaps[0].next_offset) == ((61, 51) if i == 2 else (50, -1))


def test_segments_that_overlap_are_damage(tmp_path: Path) -> None:
    error = damaged(tmp_path, "00000000000000000010", batch(10) + batch(20))
    assert "begins with offset 10 in place of 20" in str(error)


def test_salvage_reads_past_several_gaps_across_segments(tmp_path: Path) -> None:
    filled(OsDisk(), tmp_path, 6, segment_bytes=600).close()
    for name, data in (
        ("00000000000000000000", b"?" * 99 + batch(10)),
        ("00000000000000000020", b"?" * 600),
        ("00000000000000000040", b"?" * 7 + batch(40) + b"??" + batch(50) + batch(60)[:99]),
    ):
        (tmp_path / f"{name}.log").write_bytes(data)
    log = Log.open(tmp_path, read_only=True, salvage=True)
    assert [(gap.offset, gap.next_offset) for gap in log.gaps] == [(0, 10), (20, 40), (50, 50)]
    assert log.torn_tail.offset == 60
    assert [bytes(entry.data) for entry in log.batches()] == [batch(10), batch(40), batch(50)]
    assert log.fetch(15, 10_000) == batch(10)
    assert log.fetch(20, 10_000) == batch(40)
    assert log.fetch(45, 10_000) == batch(40)
    assert log.fetch(50, 10_000) == batch(50)
    with pytest.raises(ValueError, match="read_only"):
        Log.open(tmp_path, salvage=True)


def test_bytes_made_to_look_like_endless_batches_are_refused_in_bounded_work() -> None:
    disk = MemoryDisk()
    disk.make_directory("part-0")
    # 32,768 headers in 2 MiB, each of a batch that seems to reach to the end of the file.
    size = 1 << 21
    fake = bytearray()
    for position in range(0, size, 64):
        fake += struct.pack(">qiib", 5, size - position - 12, 1, 2)
        fake += struct.pack(">Ihiqqqhii", 0, 0, 0, 0, 0, -1, -1, -1, 0) + bytes(3)
    disk.files["part-0/00000000000000000000.log"] = fake
    with pytest.raises(DamagedLogError):
        Log.open("part-0", disk=disk, read_only=True)
    log = Log.open("part-0", disk=disk, read_only=True, salvage=True)
    assert (log.log_end_offset, log.gaps[0].next_offset) == (0, -1)


def test_lost_and_corrupt_indexes_are_made_anew_and_orphans_removed(tmp_path: Path) -> None:
    filled(OsDisk(), tmp_path, 6, segment_bytes=900, index_interval_bytes=100).close()
    wanted = {name: data for name, (data, _) in content(tmp_path).items()}
    (tmp_path / "00000000000000000000.index").unlink()
    (tmp_path / "00000000000000000000.timeindex").write_bytes(bytes(10 << 20))
    (tmp_path / "00000000000000000030.index").write_bytes(b"?" * 11)
    (tmp_path / "leader-epoch-checkpoint").write_bytes(b"nonsense")
    (tmp_path / "00000000000000000099.index").write_bytes(b"orphan")
    before = content(tmp_path)
    shape = {"segment_bytes": 900, "index_interval_bytes": 100}
    with Log.open(tmp_path, read_only=True, **shape) as log:
        assert log.fetch(45, 300) == batch(40)
    assert content(tmp_path) == before
    Log.open(tmp_path, **shape).close()
    assert {name: data for name, (data, _) in content(tmp_path).items()} == wanted


def test_the_other_files_of_the_directory_are_left_alone(tmp_path: Path) -> None:
    names = ["00000000000000000042-0000000001.checkpoint", "quorum-state", "x.log", "1.log"]
    for name in names:
        (tmp_path / name).write_bytes(b"as it is")
    filled(OsDisk(), tmp_path, 3).close()
    assert all((tmp_path / name).read_bytes() == b"as it is" for name in names)


def test_a_directory_that_is_not_there_is_an_error_when_reading(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="missing"):
        Log.open(tmp_path / "missing", read_only=True)
    log = Log.open(tmp_path, read_only=True)
    assert (log.log_end_offset, log.segments, log.fetch(0, 10)) == (0, (), b"")
    with pytest.raises(StorageError, match="reading only"):
        log.append(batch(0))
    log.close()
    with pytest.raises(StorageError, match="closed"):
        log.fetch(0, 10)


# Durability


def test_a_segment_is_synced_before_anything_goes_into_the_next() -> None:
    """A crash that keeps what is behind and loses what is before would look like damage."""
    disk = MemoryDisk()
    log = filled(disk, "part-0", 2)
    log.sync()
    assert log.synced_offset == 20
    disk.synced.clear()
    log.append(batch(20))
    log.roll()
    assert disk.synced == ["part-0/00000000000000000000.log"]
    log.append(batch(30))
    assert log.synced_offset == 20
    log.sync()
    assert log.synced_offset == 40
    assert disk.synced[1:] == ["part-0/00000000000000000030.log", "part-0"]
    disk.synced.clear()
    log.sync()
    assert disk.synced == []


@pytest.mark.parametrize("is_asked_for", [True, False])
def test_a_log_whose_segment_cannot_be_synced_takes_no_more(is_asked_for: bool) -> None:
    disk = MemoryDisk()
    log = filled(disk, "part-0", 2, segment_bytes=700)
    disk.refuse("sync")
    with pytest.raises(StorageError):
        log.roll() if is_asked_for else log.append(batch(20))
    assert log.failed
    with pytest.raises(StorageError):
        log.append(batch(20))


def test_opening_for_writing_makes_durable_what_it_found() -> None:
    disk = MemoryDisk()
    filled(disk, "part-0", 2)
    disk.synced.clear()
    log = Log.open("part-0", disk=disk)
    assert disk.synced == ["part-0/00000000000000000000.log", "part-0"]
    assert log.synced_offset == log.log_end_offset == 20


@pytest.mark.parametrize("operation", ["sync", "write"])
def test_after_the_disk_refused_the_log_takes_no_more_writes(operation: str) -> None:
    disk = MemoryDisk()
    log = filled(disk, "part-0", 2)
    log.sync()
    disk.refuse(operation)
    with pytest.raises(StorageError, match="refused"):
        log.append(batch(20), sync=True)
    assert log.failed
    assert log.synced_offset == 20
    for change in (log.sync, lambda: log.append(batch(20)), lambda: log.truncate_to(0)):
        with pytest.raises(StorageError, match="open it anew"):
            change()
    assert bytes(log.fetch(10, 1)) == batch(10)
    log.close()
    assert Log.open("part-0", disk=disk).log_end_offset >= 20


def test_segments_are_removed_one_by_one_so_that_a_crash_leaves_no_hole() -> None:
    for cut in (lambda log: log.advance_log_start(60), lambda log: log.truncate_to(20)):
        for survivors in range(4):
            disk = MemoryDisk()
            log = filled(disk, "part-0", 8, segment_bytes=600)
            for _ in range(survivors):
                disk.sync_directory("part-0")
            disk.refuse("remove") if survivors == 0 else disk.refuse("sync_directory")
            with pytest.raises(StorageError):
                cut(log)
            reopened = Log.open("part-0", disk=disk, segment_bytes=600)
            assert reopened.gaps == ()
            assert reopened.torn_tail is None


# Cutting


def test_truncation_in_the_middle_of_a_batch_cuts_the_whole_batch(tmp_path: Path) -> None:
    log = filled(OsDisk(), tmp_path, 6, segment_bytes=600)
    assert log.truncate_to(100) == 60
    assert log.truncate_to(35) == 30
    assert base_offsets(log) == [0, 20]
    assert log.append(batch(30, epoch=4)) == (30, 39)
    assert log.epochs == [(1, 0), (4, 30)]
    assert log.end_offset_for_epoch(3) == (1, 30)
    assert log.epoch_at(35) == 4


def test_retention_gives_up_whole_segments_only(tmp_path: Path) -> None:
    log = filled(OsDisk(), tmp_path, 6, segment_bytes=600)
    assert log.advance_log_start(39) == 1
    assert (log.log_start_offset, base_offsets(log)) == (39, [20, 40])
    assert log.epochs == [(1, 39)]
    assert log.fetch(39, 1) == batch(30)
    with pytest.raises(OffsetOutOfRangeError):
        log.fetch(38, 1)
    assert log.advance_log_start(30) == 0
    assert log.advance_log_start(60) == 1
    with pytest.raises(OffsetOutOfRangeError, match="behind the log's end"):
        log.advance_log_start(61)
    assert not list(tmp_path.glob("00000000000000000020.*"))
    log.close()
    assert Log.open(tmp_path, read_only=True).log_start_offset == 40


def test_a_log_emptied_for_a_snapshot_goes_on_at_its_end(tmp_path: Path) -> None:
    log = filled(OsDisk(), tmp_path, 6, segment_bytes=600)
    log.truncate_fully_and_start_at(1234)
    assert (log.log_start_offset, log.log_end_offset, log.last_epoch) == (1234, 1234, -1)
    log.close()
    with Log.open(tmp_path) as log:
        assert (log.log_start_offset, log.log_end_offset) == (1234, 1234)
        assert log.append(batch(1234, epoch=9)) == (1234, 1243)
    assert [path.name for path in tmp_path.glob("*.log")] == ["00000000000000001234.log"]


# Appends by another hand


def write_staged(log: Log, batches: list[bytes]) -> None:
    """Does what a group writer does: append to the file as it is told, and sync."""
    file, position = log.staging_file
    with open(file.path, "r+b") as other:
        other.seek(position)
        for data in batches:
            other.write(data)
    for data in batches:
        log.take_in(data)


def test_a_log_that_another_appends_to_is_the_same_log(tmp_path: Path) -> None:
    appended, staged = Log.open(tmp_path / "appended"), Log.open(tmp_path / "staged")
    for log in (appended, staged):
        log.append(batch(0))
        log.sync()
    for group in range(20):
        batches = [batch(10 + group * 30 + i * 10, timestamp=1000 + group) for i in range(3)]
        assert all(staged.stage(data) for data in batches)
        # What is on its way is not there yet.
        assert staged.log_end_offset == appended.log_end_offset
        assert not len(staged.fetch(staged.log_end_offset, 1 << 20))
        write_staged(staged, batches)
        appended.append(b"".join(batches))
        assert staged.log_end_offset == staged.synced_offset == appended.log_end_offset
        assert staged.fetch(5, 1 << 20) == appended.fetch(5, 1 << 20)
    for log in (appended, staged):
        log.append(batch(610, epoch=2))
        log.close()
    contents = [
        {name: data for name, (data, _) in content(tmp_path / name).items()}
        for name in ("appended", "staged")
    ]
    assert contents[0] == contents[1]


def test_only_plain_appends_are_left_to_another(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log", segment_bytes=1000)
    assert not log.stage(batch(0)), "the first batch of a segment"
    log.append(batch(0))
    assert not log.stage(batch(10)), "something is not synced"
    log.sync()
    assert not log.stage(batch(10, epoch=2)), "a new epoch"
    assert log.stage(batch(10))
    assert log.stage(batch(20))
    assert not log.stage(batch(30)), "what is staged counts for the segment's size"
    with pytest.raises(CorruptRecordError, match="begins with offset 50, the log ends with 30"):
        log.stage(batch(50, size=10))
    with pytest.raises(CorruptRecordError, match="leader epoch 0 follows 1"):
        log.stage(batch(30, epoch=0, size=10))
    with pytest.raises(CorruptRecordError):
        log.stage(b"no batch")
    assert not Log.open("/m", disk=MemoryDisk()).stage(batch(0)), "another disk"
