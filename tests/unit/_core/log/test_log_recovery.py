"""Opening a log after a crash or damage, and the order of its syncs."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from kraft._core.bytes.checksum import crc32c
from kraft._core.log.disk import OsDisk
from kraft._core.log.log import Log
from kraft.errors import DamagedLogError, StorageError
from kraft.simulation.memory_disk import MemoryDisk
from tests.unit._core.log.logs import base_offsets, batch, content, filled

# Opening after a crash


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


def test_empty_segments_after_a_torn_tail_are_removed_with_it(tmp_path: Path) -> None:
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


def test_a_lost_end_before_an_empty_segment_is_a_torn_tail(tmp_path: Path) -> None:
    filled(OsDisk(), tmp_path, 4, segment_bytes=600).close()
    (tmp_path / "00000000000000000020.log").write_bytes(batch(20))
    (tmp_path / "00000000000000000040.log").write_bytes(b"")
    log = Log.open(tmp_path, read_only=True)
    assert log.log_end_offset == 30
    assert "begins with offset 40 in place of 30" in log.torn_tail.reason


def damaged(tmp_path: Path, name: str, data: bytes) -> DamagedLogError:
    """Overwrite one segment of a log of 6 batches in 3 segments; return the error of opening it."""
    filled(OsDisk(), tmp_path, 6, segment_bytes=600).close()
    (tmp_path / f"{name}.log").write_bytes(data)
    before = content(tmp_path)
    for read_only in (True, False):
        with pytest.raises(DamagedLogError) as refusal:
            Log.open(tmp_path, read_only=read_only)
    assert content(tmp_path) == before
    return refusal.value


def test_damage_that_whole_batches_follow_is_rejected_and_salvage_reads_on(tmp_path: Path) -> None:
    error = damaged(tmp_path, "0" * 20, b"?" * 300 + batch(10))
    assert (error.offset, error.position) == (0, 0)
    log = Log.open(tmp_path, read_only=True, salvage=True)
    (gap,) = log.gaps
    assert (gap.offset, gap.position, gap.next_offset, gap.next_position) == (0, 0, 10, 300)
    assert [entry.base_offset for entry in log.batches()] == [10, 20, 30, 40, 50]
    assert log.fetch(0, 10_000) == batch(10)


def emptied(base: int, epoch: int = 1) -> bytes:
    """Return a batch that compaction emptied: the 61 bytes of its header."""
    header = bytearray(batch(base, 1, epoch=epoch)[:61])
    header[8:12], header[57:61] = struct.pack(">i", 61 - 12), struct.pack(">i", 0)
    header[17:21] = struct.pack(">I", crc32c(bytes(header[21:])))
    return bytes(header)


@pytest.mark.parametrize("start", [70, 71, 239])
@pytest.mark.parametrize("epoch", [1, 2])
def test_damage_that_only_a_batch_of_61_bytes_at_the_end_follows_is_rejected(
    tmp_path: Path, start: int, epoch: int
) -> None:
    # The last byte of an epoch of 2 looks like the magic of a batch that begins one byte earlier.
    error = damaged(tmp_path, f"{40:020d}", b"?" * start + emptied(50, epoch))
    assert (error.offset, error.position) == (40, 0)
    log = Log.open(tmp_path, read_only=True, salvage=True)
    assert [entry.base_offset for entry in log.batches()] == [0, 10, 20, 30, 50]


def test_a_later_segment_of_older_whole_batches_is_no_torn_tail(tmp_path: Path) -> None:
    # An interrupted write never leaves whole batches in a later segment, whatever their offsets.
    # So the log is not truncated: an operator has to decide.
    segments = batch(0), batch(0) + batch(10), b"?" * 70 + emptied(0), emptied(0), emptied(20)
    for i, older in enumerate(segments):
        directory = tmp_path / str(i)
        filled(OsDisk(), directory, 4, segment_bytes=600).close()
        (directory / f"{20:020d}.log").write_bytes(older)
        (directory / f"{0:020d}.log").write_bytes(batch(0) + batch(10)[:-7])
        before = content(directory)
        with pytest.raises(DamagedLogError, match="ends inside a batch, and whole batches follow"):
            Log.open(directory)
        assert content(directory) == before


@pytest.mark.parametrize("last", [batch(49, 1)[:-1], batch(49, 1)[:-1] + b"?", b"", b"?"])
def test_a_log_that_ends_one_record_before_its_synced_offset_is_rejected_and_left_unchanged(
    tmp_path: Path, last: bytes
) -> None:
    filled(OsDisk(), tmp_path, 4).close()
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(path.read_bytes() + batch(40, 9) + last)
    before = content(tmp_path)
    for read_only in (True, False):
        with pytest.raises(DamagedLogError, match="synced up to offset 50") as refusal:
            Log.open(tmp_path, read_only=read_only, synced_offset=50)
        assert refusal.value.offset == 49
        assert content(tmp_path) == before
    assert Log.open(tmp_path, synced_offset=49).log_end_offset == 49


def test_damage_at_the_end_of_a_segment_is_found_by_the_next(tmp_path: Path) -> None:
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
    # The CRC covers neither offset nor epoch, but a batch with a valid CRC was written completely.
    for i, strange in enumerate((batch(20), batch(50, epoch=0), batch(51))):
        directory = tmp_path / str(i)
        damaged(directory, "00000000000000000040", batch(40) + strange)
        log = Log.open(directory, read_only=True, salvage=True)
        assert log.gaps[0].offset == 50
        # No byte is missing before the batch at offset 51, so no batch at offset 50 was lost.
        assert (log.log_end_offset, log.gaps[0].next_offset) == (50, -1)


def overwritten(directory: Path, position: int, data: bytes) -> Log:
    """Overwrite bytes in a segment of six batches of ten offsets and 300 bytes; salvage the log."""
    filled(OsDisk(), directory, 6).close()
    (path,) = directory.glob("*.log")
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)
    return Log.open(directory, read_only=True, salvage=True)


@pytest.mark.parametrize("offset", [11, 60, 10 + (1 << 20), 10 + (1 << 33), 0, (1 << 63) - 1])
def test_salvage_loses_one_batch_to_a_corrupt_base_offset(tmp_path: Path, offset: int) -> None:
    log = overwritten(tmp_path, 300, offset.to_bytes(8, "big"))
    assert [entry.base_offset for entry in log.batches()] == [0, 20, 30, 40, 50]
    assert [(gap.offset, gap.next_offset) for gap in log.gaps] == [(10, 20)]
    assert log.log_end_offset == 60


@pytest.mark.parametrize("number", [0, 1, 4])
@pytest.mark.parametrize("epoch", [2, 1 << 30])
def test_salvage_loses_one_batch_to_a_leader_epoch_that_is_too_high(
    tmp_path: Path, number: int, epoch: int
) -> None:
    log = overwritten(tmp_path, number * 300 + 12, epoch.to_bytes(4, "big"))
    expected = [0, 10, 20, 30, 40, 50]
    expected.remove(number * 10)
    assert [entry.base_offset for entry in log.batches()] == expected
    assert [gap.offset for gap in log.gaps] == [number * 10]


def test_salvage_loses_one_batch_to_a_leader_epoch_that_is_too_low(tmp_path: Path) -> None:
    log = overwritten(tmp_path, 312, bytes(4))
    assert [entry.base_offset for entry in log.batches()] == [0, 20, 30, 40, 50]


def test_salvage_reads_on_after_a_segment_that_ends_in_too_high_an_epoch(tmp_path: Path) -> None:
    filled(OsDisk(), tmp_path, 6, segment_bytes=600).close()
    content = bytearray((tmp_path / "00000000000000000020.log").read_bytes())
    content[312:316] = b"\x7f\0\0\0"
    (tmp_path / "00000000000000000020.log").write_bytes(content)
    log = Log.open(tmp_path, read_only=True, salvage=True)
    assert [entry.base_offset for entry in log.batches()] == [0, 10, 20, 30, 40, 50]
    assert [(gap.offset, gap.next_offset) for gap in log.gaps] == [(40, 40)]
    assert log.last_epoch < 10


def test_segments_that_overlap_are_damage(tmp_path: Path) -> None:
    error = damaged(tmp_path, "00000000000000000010", batch(10) + batch(20))
    assert "begins with offset 10 in place of 20" in str(error)


def test_salvage_skips_several_gaps_across_segments(tmp_path: Path) -> None:
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


def test_bytes_made_to_look_like_endless_batches_are_rejected_in_bounded_work() -> None:
    disk = MemoryDisk()
    disk.make_directory("part-0")
    # 32,768 headers in 2 MiB; each claims a batch that ends at the end of the file.
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


def test_lost_and_corrupt_indexes_are_rebuilt_and_orphans_removed(tmp_path: Path) -> None:
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


def test_a_missing_directory_is_an_error_when_reading(tmp_path: Path) -> None:
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
    """A crash that keeps later bytes and loses earlier ones would look like damage."""
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
def test_a_log_whose_segment_cannot_be_synced_accepts_no_more_writes(is_asked_for: bool) -> None:
    disk = MemoryDisk()
    log = filled(disk, "part-0", 2, segment_bytes=700)
    disk.refuse("sync")
    with pytest.raises(StorageError):
        log.roll() if is_asked_for else log.append(batch(20))
    assert log.failed
    with pytest.raises(StorageError):
        log.append(batch(20))


def test_segments_after_a_torn_one_are_removed_one_by_one() -> None:
    disk = MemoryDisk()
    log = filled(disk, "part-0", 6, segment_bytes=600)
    assert base_offsets(log) == [0, 20, 40]
    disk.files[f"part-0/{0:020d}.log"][500:] = b""
    disk.synced.clear()
    # Nothing after offset 10 was synced, so whole batches after a torn one do not mean damage.
    reopened = Log.open("part-0", disk=disk, synced_offset=10)
    assert (reopened.log_end_offset, base_offsets(reopened)) == (10, [0])
    # Two segments are removed, then the first one is truncated; each step is synced by itself.
    assert disk.synced[:3] == ["part-0", "part-0", f"part-0/{0:020d}.log"]


def test_opening_for_writing_syncs_the_files_that_it_found() -> None:
    disk = MemoryDisk()
    filled(disk, "part-0", 2)
    disk.synced.clear()
    log = Log.open("part-0", disk=disk)
    assert disk.synced == ["part-0/00000000000000000000.log", "part-0"]
    assert log.synced_offset == log.log_end_offset == 20


@pytest.mark.parametrize("operation", ["sync", "write"])
def test_after_a_disk_failure_the_log_accepts_no_more_writes(operation: str) -> None:
    disk = MemoryDisk()
    log = filled(disk, "part-0", 2)
    log.sync()
    disk.refuse(operation)
    with pytest.raises(StorageError, match="refused"):
        log.append(batch(20), sync=True)
    assert log.failed
    assert log.synced_offset == 20
    for change in (log.sync, lambda: log.append(batch(20)), lambda: log.truncate_to(0)):
        with pytest.raises(StorageError, match="after a failed write or sync: reopen it"):
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
