"""Downloads of snapshots: checked as the chunks arrive, in chunks of any size."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from kraft._core.bytes.batch import BatchBuilder
from kraft._core.log.disk import OsDisk
from kraft._core.snapshot.snapshot_file import SnapshotWriter
from kraft.errors import CorruptRecordError
from kraft.raft.rpc import OffsetAndEpoch
from kraft.raft.voters import Endpoint, KRaftVersionRange, ReplicaKey, VoterNode, VoterSet
from kraft.records import Uuid, control
from kraft.server.disk import snapshots
from kraft.server.disk.snapshots import RecordsCheck, SnapshotFiles, read_stored_snapshot
from kraft.simulation.memory_disk import MemoryDisk

ID = OffsetAndEpoch(100, 3)
VOTERS = VoterSet(
    [
        VoterNode(
            ReplicaKey(1, Uuid(bytes(range(16)))),
            (Endpoint("CONTROLLER", "one", 9093),),
            KRaftVersionRange(0, 1),
        )
    ]
)


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    """Return a snapshot with batches of many sizes."""
    head = [control.KRaftVersion(kraft_version=1), VOTERS.to_record()]
    with SnapshotWriter(
        tmp_path,
        *ID,
        last_contained_log_timestamp_ms=7,
        timestamp_ms=7,
        control_records=[(control.control_type(r), control.encode_control(r)) for r in head],
        max_batch_records=3,
    ) as writer:
        builder = BatchBuilder()
        random = Random(1)
        for _ in range(60):
            builder.append(bytes(random.randrange(1, 400)))
        writer.append_batches(builder.finish())
        path = writer.finish()
    return Path(path).read_bytes()


def store(files: SnapshotFiles, content: bytes, size: int) -> None:
    for position in range(0, len(content), size):
        files.store_chunk(ID, position, content[position : position + size])


@pytest.mark.parametrize("size", [1, 7, 100, 1000, 1 << 20])
def test_chunks_may_have_any_extent(content: bytes, size: int) -> None:
    check = RecordsCheck()
    for position in range(0, len(content), size):
        assert not check.has_passed(len(content))
        check.check_chunk(content[position : position + size])
    assert check.has_passed(len(content))
    assert (check.voters, check.kraft_version) == (VOTERS, 1)


def test_checked_chunks_are_not_checked_again(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = SnapshotFiles(OsDisk(), str(tmp_path))
    store(files, content, 500)
    monkeypatch.setattr(snapshots, "validate", lambda *given, **more: pytest.fail("once more"))
    stored = files.finish_download(ID)
    assert bytes(stored.data) == content
    assert (stored.voters, stored.kraft_version) == (VOTERS, 1)


@pytest.mark.parametrize("size", [1, 333, 1 << 20])
def test_damage_is_reported_for_chunks_of_any_size(content: bytes, size: int) -> None:
    random = Random(size)
    for _ in range(40):
        disk = MemoryDisk()
        files = SnapshotFiles(disk, "/d")
        position = random.randrange(len(content))
        damaged = bytearray(content)
        damaged[position] ^= 1 << random.randrange(8)
        disk.open(files.path(ID), create=True).append([damaged])
        try:
            read_stored_snapshot(disk, files.path(ID), ID)
        except CorruptRecordError as whole:
            expected = str(whole).replace(files.path(ID), "")
        else:
            expected = ""
        disk.remove(files.path(ID))
        store(files, bytes(damaged), size)
        if not expected:
            # Only damage to an epoch, which the CRC does not cover, can stay undetected.
            assert bytes(files.finish_download(ID).data) == damaged
            continue
        with pytest.raises(CorruptRecordError) as caught:
            files.finish_download(ID)
        assert str(caught.value).replace(files.path(ID) + ".part", "") == expected
        assert not disk.exists(files.path(ID))


def test_an_incomplete_download_is_rejected(content: bytes, tmp_path: Path) -> None:
    for end in (len(content) - 1, len(content) // 2, 5):
        files = SnapshotFiles(OsDisk(), str(tmp_path))
        store(files, content[:end], 300)
        with pytest.raises(CorruptRecordError):
            files.finish_download(ID)


def test_a_batch_too_large_to_assemble_is_checked_at_the_end(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "MAX_ASSEMBLED_SIZE", 300)
    check = RecordsCheck()
    for position in range(0, len(content), 100):
        check.check_chunk(content[position : position + 100])
    assert not check.has_passed(len(content))
    files = SnapshotFiles(OsDisk(), str(tmp_path))
    store(files, content, 100)
    assert files.finish_download(ID).voters == VOTERS


def test_a_restarted_download_is_checked_from_its_start(content: bytes, tmp_path: Path) -> None:
    files = SnapshotFiles(OsDisk(), str(tmp_path))
    files.store_chunk(ID, 0, b"no snapshot at all" * 20)
    store(files, content, 700)
    assert files.finish_download(ID).voters == VOTERS


def test_the_sync_begins_during_the_download(
    content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = []

    class Disk(MemoryDisk):
        def open(self, path: str, *, create: bool = False, read_only: bool = False):  # type: ignore[no-untyped-def]
            file = super().open(path, create=create, read_only=read_only)
            file.begin_sync = lambda position, size: begun.append((position, size))  # type: ignore[method-assign]
            return file

    monkeypatch.setattr(snapshots, "SYNC_SIZE", 1000)
    files = SnapshotFiles(Disk(), "/d")
    store(files, content, 300)
    end = len(content) - len(content) % 1000
    assert [position for position, _ in begun] == list(range(0, end, 1000))
    assert {size for _, size in begun} == {1000}
