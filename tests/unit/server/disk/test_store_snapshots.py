"""The snapshots of a store: from the leader, its own, cleaned, and checked after a start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kraft._core.snapshot.snapshot_file import snapshot_name
from kraft.errors import CorruptRecordError, InvalidRequestError, StorageError
from kraft.raft.interface import (
    AppendBatches,
    DropSnapshotDownload,
    InstallSnapshot,
    SnapshotRejected,
    SnapshotStored,
    StoreSnapshotChunk,
    TruncateLog,
)
from kraft.raft.rpc import OffsetAndEpoch, SnapshotSlice
from kraft.records.classes import NoOp
from kraft.server.disk import snapshots as store_snapshots
from kraft.server.disk.store import MetadataStore
from kraft.simulation.memory_disk import MemoryDisk
from tests.harness.metadata_store import (
    DYNAMIC,
    NOW_MS,
    append,
    begin_epoch,
    make_snapshot,
    metadata_dir,
    open_store,
    snapshot_bytes,
    stamped,
)


def download(store: MetadataStore, id: OffsetAndEpoch, content: bytes) -> None:
    for start in range(0, len(content), 1000):
        store.perform(StoreSnapshotChunk(id, start, content[start : start + 1000]))


# Truncations and snapshots from the leader


def test_no_snapshot_ends_before_the_log(store: MetadataStore, tmp_path: Path) -> None:
    id = OffsetAndEpoch(50, 3)
    download(store, id, snapshot_bytes(tmp_path / "other", id, None))
    store.perform(InstallSnapshot(id))
    with pytest.raises(InvalidRequestError, match="the log holds offsets 50 to 50"):
        make_snapshot(store, OffsetAndEpoch(40, 3))


def test_a_truncation_is_durable_at_once(tmp_path: Path) -> None:
    store = open_store(tmp_path, segment_bytes=300)
    begin_epoch(store, 1)
    for _ in range(5):
        append(store)
    store.sync()
    store.perform(TruncateLog(11))
    begin_epoch(store, 2)
    store.close()
    store = open_store(tmp_path)
    assert store.view.epochs.entries == [(1, 0), (2, 11)]
    assert store.view.end_offset == 12
    store.close()


def test_a_log_truncated_to_its_start_opens_again(tmp_path: Path) -> None:
    """The node once failed to start: epochs before the log start were deleted, batches were not."""
    store = open_store(tmp_path)
    begin_epoch(store, 1)
    append(store)
    id = OffsetAndEpoch(store.log.log_end_offset, 1)
    make_snapshot(store, id)
    store.add_snapshot(id)
    assert store.clean(NOW_MS, max_bytes=0, max_ms=-1) is None
    append(store)
    later = OffsetAndEpoch(store.log.log_end_offset, 1)
    make_snapshot(store, later)
    store.add_snapshot(later)
    assert store.clean(NOW_MS, max_bytes=0, max_ms=-1) is not None
    begin_epoch(store, 2)
    store.sync()
    store.perform(TruncateLog(later.offset))
    store.close()
    store = open_store(tmp_path)
    assert store.view.end_offset == later.offset
    assert store.view.epochs.entries[-1] == (1, 0)
    store.close()


@pytest.mark.parametrize("is_late", [False, True], ids=["before", "after"])
def test_an_own_snapshot_older_than_an_installed_one_is_dropped(
    is_late: bool, store: MetadataStore, tmp_path: Path
) -> None:
    """A thread finishes the own snapshot before or after the leader's is installed."""
    begin_epoch(store, 1)
    append(store)
    own, leaders = OffsetAndEpoch(11, 1), OffsetAndEpoch(100, 7)
    download(store, leaders, snapshot_bytes(tmp_path / "other", leaders, None))
    if is_late:
        store.perform(InstallSnapshot(leaders))
        snapshot_bytes(metadata_dir(tmp_path), own, None)
    else:
        make_snapshot(store, own)
        store.perform(InstallSnapshot(leaders))
    assert store.add_snapshot(own) is None
    assert store.snapshot(own) is None
    (file,) = metadata_dir(tmp_path).glob("*.checkpoint*")
    assert file.name == snapshot_name(*leaders)


def test_an_installed_snapshot_replaces_the_log(tmp_path: Path) -> None:
    id = OffsetAndEpoch(100, 7)
    content = snapshot_bytes(tmp_path / "other", id, DYNAMIC)
    store = open_store(tmp_path, segment_bytes=300)
    begin_epoch(store, 1)
    for _ in range(4):
        append(store)
    store.sync()
    make_snapshot(store, OffsetAndEpoch(11, 1))
    store.add_snapshot(OffsetAndEpoch(11, 1))
    download(store, id, content)
    stored = store.perform(InstallSnapshot(id))
    assert isinstance(stored, SnapshotStored)
    assert (stored.snapshot_id, stored.size, stored.is_installed) == (id, len(content), True)
    assert (stored.voters, stored.kraft_version) == (DYNAMIC, 1)
    assert bytes(store.read(SnapshotSlice(id, 0, 1 << 20))) == content
    data = stamped([NoOp()], 100, 7, is_control=False)
    store.perform(AppendBatches(100, 101, data))
    store.close()
    names = {path.name for path in metadata_dir(tmp_path).iterdir()}
    assert {name for name in names if "checkpoint" in name and name[0] == "0"} == {
        snapshot_name(*id)
    }
    store = open_store(tmp_path)
    assert (store.view.start_offset, store.view.end_offset) == (100, 101)
    store.close()


def test_a_snapshot_is_checked_in_parts(
    tmp_path: Path, store: MetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_snapshots, "CHECK_SIZE", 100)
    id = OffsetAndEpoch(100, 7)
    content = snapshot_bytes(tmp_path / "other", id, DYNAMIC)
    download(store, id, content)
    stored = store.perform(InstallSnapshot(id))
    assert isinstance(stored, SnapshotStored)
    assert (stored.voters, stored.kraft_version) == (DYNAMIC, 1)
    damaged = bytearray(snapshot_bytes(tmp_path / "third", OffsetAndEpoch(200, 8), DYNAMIC))
    damaged[-100] ^= 1
    download(store, OffsetAndEpoch(200, 8), bytes(damaged))
    refused = store.perform(InstallSnapshot(OffsetAndEpoch(200, 8)))
    assert isinstance(refused, SnapshotRejected)
    assert "byte" in refused.reason


def damaged_bytes(content: bytes) -> bytes:
    return content[:-100] + bytes([content[-100] ^ 1]) + content[-99:]


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (damaged_bytes, "CRC"),
        (lambda content: content[:-10], "snapshot"),
        (lambda content: content + b"more", "snapshot"),
        (lambda content: b"no snapshot at all", "snapshot"),
    ],
    ids=["one bit", "ends early", "ends late", "something else"],
)
def test_an_invalid_download_changes_nothing(
    spoil: Callable[[bytes], bytes],
    reason: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    id = OffsetAndEpoch(200, 8)
    content = snapshot_bytes(tmp_path / "other", id, DYNAMIC)
    store = open_store(tmp_path)
    begin_epoch(store, 1)
    append(store)
    store.sync()
    download(store, id, spoil(content))
    refused = store.perform(InstallSnapshot(id))
    assert isinstance(refused, SnapshotRejected)
    assert refused.snapshot_id == id
    assert refused.reason in caplog.text
    assert not [p for p in metadata_dir(tmp_path).iterdir() if snapshot_name(*id) in p.name]
    assert (store.log.log_start_offset, store.log.log_end_offset) == (0, 11)
    # Appends continue, and the leader's next snapshot is installed.
    append(store)
    download(store, id, content)
    assert isinstance(store.perform(InstallSnapshot(id)), SnapshotStored)
    store.close()


def test_a_snapshot_of_a_later_kafka_is_rejected(store: MetadataStore, tmp_path: Path) -> None:
    id = OffsetAndEpoch(200, 8)
    download(store, id, snapshot_bytes(tmp_path / "other", id, DYNAMIC, (99, b"\0\0")))
    refused = store.perform(InstallSnapshot(id))
    assert isinstance(refused, SnapshotRejected)
    assert "type 99" in refused.reason


def test_a_disk_failure_during_a_download_is_not_a_rejected_snapshot(tmp_path: Path) -> None:
    id = OffsetAndEpoch(200, 8)
    content = snapshot_bytes(tmp_path / "other", id, DYNAMIC)
    memory = MemoryDisk()
    store = MetadataStore.open("/node", disk=memory)
    download(store, id, content)
    memory.refuse("sync")
    with pytest.raises(StorageError):
        store.perform(InstallSnapshot(id))


def test_a_restarted_download_drops_its_earlier_chunks(
    tmp_path: Path, store: MetadataStore
) -> None:
    id = OffsetAndEpoch(100, 7)
    content = snapshot_bytes(tmp_path / "other", id, None)
    download(store, id, content[:1500])
    download(store, id, content)
    assert store.perform(InstallSnapshot(id)) is not None


def test_a_dropped_download_leaves_no_file(tmp_path: Path, store: MetadataStore) -> None:
    id = OffsetAndEpoch(100, 7)
    store.perform(StoreSnapshotChunk(id, 0, b"half"))
    store.perform(DropSnapshotDownload(id))
    store.perform(DropSnapshotDownload(id))
    assert not list(metadata_dir(tmp_path).glob("*.part"))


# Cleaning


def test_retention_by_size_deletes_the_oldest_but_never_the_last_snapshot(tmp_path: Path) -> None:
    store = open_store(tmp_path, segment_bytes=300)
    begin_epoch(store, 1)
    ids = []
    for _ in range(4):
        append(store)
        append(store)
        id = OffsetAndEpoch(store.log.log_end_offset, 1)
        make_snapshot(store, id)
        store.add_snapshot(id)
        ids.append(id)
    store.sync()
    size = store.log.size + sum((one.size if (one := store.snapshot(id)) else 0) for id in ids)
    assert store.clean(NOW_MS, max_bytes=size, max_ms=-1) is None
    cleaned = store.clean(NOW_MS, max_bytes=size - 1, max_ms=-1)
    assert cleaned is not None
    assert (cleaned.log_start_offset, cleaned.earliest_snapshot_id) == (ids[1].offset, ids[1])
    cleaned = store.clean(NOW_MS, max_bytes=0, max_ms=-1)
    assert cleaned is not None
    assert cleaned.earliest_snapshot_id == ids[-1]
    assert store.clean(NOW_MS, max_bytes=0, max_ms=-1) is None
    store.close()
    store = open_store(tmp_path)
    assert list(store.view.snapshots) == [ids[-1]]
    store.close()


def test_retention_by_time_uses_the_last_record_of_the_snapshot(store: MetadataStore) -> None:
    begin_epoch(store, 1)
    for offset in (1, 11):
        make_snapshot(store, OffsetAndEpoch(offset, 1))
        store.add_snapshot(OffsetAndEpoch(offset, 1))
        append(store)
    assert store.clean(NOW_MS + 1000, max_bytes=-1, max_ms=1000) is None
    cleaned = store.clean(NOW_MS + 1001, max_bytes=-1, max_ms=1000)
    assert cleaned is not None
    assert cleaned.earliest_snapshot_id == (11, 1)


# Snapshots before the latest


def store_with_two_snapshots(tmp_path: Path) -> list[OffsetAndEpoch]:
    """Create a log with two snapshots; return their ids."""
    store = open_store(tmp_path)
    begin_epoch(store, 1)
    ids = []
    for _ in range(2):
        append(store)
        store.sync()
        ids.append(OffsetAndEpoch(store.log.log_end_offset, 1))
        make_snapshot(store, ids[-1])
    store.close()
    return ids


def test_a_start_checks_the_latest_snapshot_and_serves_the_others_once_checked(
    tmp_path: Path,
) -> None:
    older, latest = store_with_two_snapshots(tmp_path)
    store = open_store(tmp_path)
    assert list(store.view.snapshots) == [older, latest]
    assert list(store.unchecked_snapshots) == [older]
    assert len(store.read(SnapshotSlice(latest, 0, 10))) == 10
    assert len(store.read(SnapshotSlice(older, 0, 10))) == 0
    store.resolve_snapshot(older, store.check_snapshot(older))
    assert not store.unchecked_snapshots
    assert len(store.read(SnapshotSlice(older, 0, 10))) == 10
    assert len(store.read(SnapshotSlice(older, 0, 1 << 30))) == store.view.snapshots[older]
    store.close()


def test_a_damaged_snapshot_before_the_latest_is_never_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    older, _ = store_with_two_snapshots(tmp_path)
    path = metadata_dir(tmp_path) / snapshot_name(*older)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 16
    path.write_bytes(content)
    store = open_store(tmp_path)
    with pytest.raises(CorruptRecordError, match=snapshot_name(*older)):
        store.snapshot(older)
    store.resolve_snapshot(older, store.check_snapshot(older))
    assert f"the snapshot of offset {older.offset}, epoch 1 is not served" in caplog.text
    assert len(store.read(SnapshotSlice(older, 0, 10))) == 0
    assert store.latest_snapshot() is not None
    # Retention removes it with the log before the latest snapshot.
    append(store)
    store.sync()
    newest = OffsetAndEpoch(store.log.log_end_offset, 1)
    make_snapshot(store, newest)
    store.add_snapshot(newest)
    assert store.clean(0.0, max_bytes=0) is not None
    assert not path.exists()
    store.close()


def test_a_snapshot_that_is_removed_before_its_check_is_not_served(tmp_path: Path) -> None:
    older, _ = store_with_two_snapshots(tmp_path)
    store = open_store(tmp_path)
    checked = store.check_snapshot(older)
    assert checked is not None
    assert store.clean(0.0, max_bytes=0) is not None
    assert not store.unchecked_snapshots
    store.resolve_snapshot(older, checked)
    assert len(store.read(SnapshotSlice(older, 0, 10))) == 0
    store.close()
