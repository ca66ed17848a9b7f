"""A log on disk: append, fetch, roll and truncate.

test_log_recovery.py tests how a log is opened after a crash.
"""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from kraft._core.codec.fetch import METADATA_TOPIC_ID
from kraft._core.log.disk import OsDisk
from kraft._core.log.log import Log
from kraft._core.log.partition_directory import EMPTY_PRODUCER_SNAPSHOT
from kraft.errors import (
    CorruptRecordError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
)
from kraft.simulation.memory_disk import MemoryDisk
from tests.unit._core.log.logs import base_offsets, batch, content, filled

DATA = Path(__file__).parents[3] / "data" / "kafka-4.3"
REAL = [
    DATA / "controller-101" / "__cluster_metadata-0",
    DATA / "broker-1" / "__cluster_metadata-0",
]


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
def test_a_log_of_kafka_can_be_continued(directory: Path, tmp_path: Path) -> None:
    copy = tmp_path / "__cluster_metadata-0"
    shutil.copytree(directory, copy)
    with Log.open(copy) as log:
        end, epoch = log.log_end_offset, log.last_epoch
        log.append(batch(end, epoch=epoch + 1, timestamp=1 << 41))
    for path in directory.iterdir():
        # Time indexes differ: Kafka added an entry at a restart in the middle of a segment.
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


def test_slices_keep_their_bytes_when_the_log_is_truncated_and_continued(tmp_path: Path) -> None:
    log = filled(OsDisk(), tmp_path, 100)
    views = [log.fetch(i * 10, 300) for i in range(100)]
    log.truncate_to(50)
    log.append(batch(50, 3, epoch=2))
    log.truncate_fully_and_start_at(7)
    log.close()
    assert [bytes(view) for view in views] == [batch(i * 10) for i in range(100)]


def test_a_truncation_replaces_the_file_only_if_slices_of_it_are_in_use(
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
def test_batches_that_do_not_continue_the_log_are_rejected_without_a_change(
    tmp_path: Path, data: bytes, reason: str
) -> None:
    log = filled(OsDisk(), tmp_path, 1)
    with pytest.raises(CorruptRecordError, match=reason):
        log.append(data)
    assert (log.log_end_offset, log.size, log.failed) == (10, 300, False)
    log.append(batch(10))


def test_a_wrong_crc_is_found_with_verify_crc(tmp_path: Path) -> None:
    log = filled(OsDisk(), tmp_path, 1)
    data = batch(10) + batch(20)[:-1] + b"?"
    with pytest.raises(CorruptRecordError, match="CRC") as refusal:
        log.append(data, verify_crc=True)
    assert (refusal.value.offset, refusal.value.position) == (20, 300)
    assert log.append(batch(10), verify_crc=True) == (10, 19)


def test_an_empty_append_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no batch"):
        Log.open(tmp_path).append(b"")


# Rolling


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


def test_a_segment_truncated_to_nothing_gets_its_age_from_its_next_batch(tmp_path: Path) -> None:
    log = Log.open(tmp_path, segment_ms=5000)
    log.append(batch(0, timestamp=1000))
    log.truncate_to(0)
    for i, timestamp in enumerate((100_000, 105_000, 105_001)):
        log.append(batch(i * 10, timestamp=timestamp))
    assert base_offsets(log) == [0, 20]
    log.truncate_to(20)
    for i, timestamp in enumerate((3000, 8000, 8001), 2):
        log.append(batch(i * 10, timestamp=timestamp))
    assert base_offsets(log) == [0, 20, 40]


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


# Truncation


def test_truncation_in_the_middle_of_a_batch_cuts_the_whole_batch(tmp_path: Path) -> None:
    log = filled(OsDisk(), tmp_path, 6, segment_bytes=600)
    assert log.truncate_to(100) == 60
    assert log.truncate_to(35) == 30
    assert base_offsets(log) == [0, 20]
    assert log.append(batch(30, epoch=4)) == (30, 39)
    assert log.epochs == [(1, 0), (4, 30)]
    assert log.end_offset_for_epoch(3) == (1, 30)
    assert log.epoch_at(35) == 4


def test_a_log_truncated_to_its_start_knows_the_epoch_before_it(tmp_path: Path) -> None:
    """Regression: the log accepted a batch of an older epoch, and then the next open failed."""
    log = filled(OsDisk(), tmp_path, 2)
    log.advance_log_start(10)
    assert log.truncate_to(10) == 10
    assert (log.log_start_offset, log.last_epoch, log.epochs) == (10, 1, [(1, 10)])
    with pytest.raises(CorruptRecordError, match="epoch"):
        log.append(batch(10, epoch=0))
    log.append(batch(10, epoch=1))
    log.close()
    with Log.open(tmp_path) as again:
        assert (again.log_end_offset, again.last_epoch) == (20, 1)


def test_retention_removes_only_whole_segments(tmp_path: Path) -> None:
    log = filled(OsDisk(), tmp_path, 6, segment_bytes=600)
    assert log.advance_log_start(39) == 1
    assert (log.log_start_offset, base_offsets(log)) == (39, [20, 40])
    assert log.epochs == [(1, 39)]
    assert log.fetch(39, 1) == batch(30)
    with pytest.raises(OffsetOutOfRangeError):
        log.fetch(38, 1)
    assert log.advance_log_start(30) == 0
    assert log.advance_log_start(60) == 1
    with pytest.raises(OffsetOutOfRangeError, match="after the log's end"):
        log.advance_log_start(61)
    assert not list(tmp_path.glob("00000000000000000020.*"))
    log.close()
    assert Log.open(tmp_path, read_only=True).log_start_offset == 40


def test_a_log_emptied_for_a_snapshot_continues_at_its_end(tmp_path: Path) -> None:
    log = filled(OsDisk(), tmp_path, 6, segment_bytes=600)
    log.truncate_fully_and_start_at(1234)
    assert (log.log_start_offset, log.log_end_offset, log.last_epoch) == (1234, 1234, -1)
    log.close()
    with Log.open(tmp_path) as log:
        assert (log.log_start_offset, log.log_end_offset) == (1234, 1234)
        assert log.append(batch(1234, epoch=9)) == (1234, 1243)
    assert [path.name for path in tmp_path.glob("*.log")] == ["00000000000000001234.log"]


# Staged appends, which a group writer writes to the file


def write_staged(log: Log, batches: list[bytes]) -> None:
    """Write batches to the staging file and sync it, as a group writer does."""
    file, position = log.staging_file
    with open(file.path, "r+b") as other:
        other.seek(position)
        for data in batches:
            other.write(data)
    for data in batches:
        log.add_staged(data)


def test_a_log_with_staged_appends_equals_one_with_direct_appends(tmp_path: Path) -> None:
    appended, staged = Log.open(tmp_path / "appended"), Log.open(tmp_path / "staged")
    for log in (appended, staged):
        log.append(batch(0))
        log.sync()
    for group in range(20):
        batches = [batch(10 + group * 30 + i * 10, timestamp=1000 + group) for i in range(3)]
        assert all(staged.stage(data) for data in batches)
        # Staged batches are not part of the log before `add_staged`.
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


def test_only_plain_appends_may_be_staged(tmp_path: Path) -> None:
    """`stage` returns False after unsynced bytes, and for a new segment, epoch or MemoryDisk."""
    log = Log.open(tmp_path / "log", segment_bytes=1000)
    assert not log.stage(batch(0)), "the first batch of a segment cannot be staged"
    log.append(batch(0))
    assert not log.stage(batch(10)), "the segment has bytes that are not synced"
    log.sync()
    assert not log.stage(batch(10, epoch=2)), "a batch of a new epoch cannot be staged"
    assert log.stage(batch(10))
    assert log.stage(batch(20))
    assert not log.stage(batch(30)), "staged batches count towards the segment's size"
    with pytest.raises(CorruptRecordError, match="begins with offset 50, the log ends with 30"):
        log.stage(batch(50, size=10))
    with pytest.raises(CorruptRecordError, match="leader epoch 0 follows 1"):
        log.stage(batch(30, epoch=0, size=10))
    with pytest.raises(CorruptRecordError):
        log.stage(b"no batch")
    assert not Log.open("/m", disk=MemoryDisk()).stage(batch(0)), "only OsDisk can stage batches"
