"""The store of a node: open, write and read; one process at a time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kraft._core.snapshot.snapshot_file import snapshot_name
from kraft.errors import CorruptRecordError, DamagedLogError, InvalidRequestError, StorageError
from kraft.raft.election_state import ElectionState
from kraft.raft.interface import (
    WriteElectionState,
)
from kraft.raft.rpc import LogSlice, OffsetAndEpoch, SnapshotSlice
from kraft.raft.voters import ReplicaKey
from kraft.records import Uuid, control
from kraft.server.disk.store import MetadataStore
from tests.harness.metadata_store import (
    DYNAMIC,
    STATIC,
    append,
    append_of,
    begin_epoch,
    make_snapshot,
    metadata_dir,
    open_store,
    snapshot_bytes,
)

DATA = Path(__file__).parents[3] / "data" / "kafka-4.3"


# Starting


def test_an_empty_directory_is_a_fresh_node(store: MetadataStore) -> None:
    assert store.election == ElectionState()
    assert (store.view.start_offset, store.view.end_offset) == (0, 0)
    assert store.view.voters == STATIC


def test_a_restart_finds_all_writes(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    directory = Uuid(b"\7" * 16)
    store.perform(WriteElectionState(3, -1, 5, directory, kraft_version=1))
    begin_epoch(store, 3, control.KRaftVersion(kraft_version=1), DYNAMIC.to_record())
    data = append(store, epoch=3)
    store.sync()
    store.close()
    store = open_store(tmp_path)
    assert store.election == ElectionState(3, -1, ReplicaKey(5, directory))
    assert (store.view.end_offset, store.view.last_epoch) == (13, 3)
    assert (store.view.voters, store.view.kraft_version) == (DYNAMIC, 1)
    assert store.view.voters_offset == 2
    assert bytes(store.read(LogSlice(3, 13, 1 << 20))) == data
    store.close()


def test_a_quorum_state_of_version_0_has_static_voters(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.perform(WriteElectionState(2, 1, -1, None, kraft_version=0))
    content = (metadata_dir(tmp_path) / "quorum-state").read_bytes()
    assert b'"currentVoters":[{"voterId":1}]' in content
    assert b'"data_version":0' in content
    store.close()


def test_the_first_checkpoint_names_the_voters_and_stays(tmp_path: Path) -> None:
    content = snapshot_bytes(tmp_path / "other", OffsetAndEpoch(0, 0), DYNAMIC)
    metadata_dir(tmp_path).mkdir(parents=True)
    (metadata_dir(tmp_path) / snapshot_name(0, 0)).write_bytes(content)
    store = open_store(tmp_path)
    assert (store.view.voters, store.view.kraft_version) == (DYNAMIC, 1)
    assert store.view.latest_snapshot == (0, 0)
    assert store.view.end_offset == 0
    store.close()


@pytest.mark.parametrize("node", ["controller-101", "broker-1"])
def test_the_directory_of_a_real_node_opens(node: str, tmp_path: Path) -> None:
    source = DATA / node / "__cluster_metadata-0"
    metadata_dir(tmp_path).mkdir()
    for path in source.iterdir():
        (metadata_dir(tmp_path) / path.name).write_bytes(path.read_bytes())
    store = open_store(tmp_path, segment_bytes=1 << 20)
    lines = (source / "leader-epoch-checkpoint").read_text().splitlines()[2:]
    assert store.view.epochs.entries == [tuple(map(int, line.split())) for line in lines]
    assert store.view.epochs.last_epoch <= store.election.epoch
    store.close()


def test_an_unsynced_torn_tail_is_truncated_and_a_synced_one_is_an_error(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    begin_epoch(store, 1)
    append(store)
    store.sync()
    store.close()
    segment = metadata_dir(tmp_path) / f"{0:020d}.log"
    whole = segment.read_bytes()
    segment.write_bytes(whole + b"\0" * 30)
    store = open_store(tmp_path)
    assert store.view.end_offset == 11
    store.close()
    assert segment.read_bytes() == whole
    segment.write_bytes(whole[:-1])
    with pytest.raises(DamagedLogError, match=r"synced up to offset 11.*remove-controller"):
        open_store(tmp_path)
    assert segment.read_bytes() == whole[:-1]


def test_without_the_synced_offset_a_torn_tail_is_truncated_as_in_kafka(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    begin_epoch(store, 1)
    append(store)
    store.close()
    (metadata_dir(tmp_path) / "synced-offset-checkpoint").unlink()
    segment = metadata_dir(tmp_path) / f"{0:020d}.log"
    segment.write_bytes(segment.read_bytes()[:-1])
    store = open_store(tmp_path)
    assert store.view.end_offset == 1
    store.close()


def test_the_synced_offset_is_ignored_after_kafka_wrote_last(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.perform(WriteElectionState(1, 1, -1, None, kraft_version=1))
    begin_epoch(store, 1)
    append(store)
    store.close()
    # Simulate Kafka, which follows a new leader, truncates the log, and stops.
    segment = metadata_dir(tmp_path) / f"{0:020d}.log"
    segment.write_bytes(segment.read_bytes()[: -len(append_of(10, 1, 1))])
    (metadata_dir(tmp_path) / "quorum-state").write_bytes(
        ElectionState(2, 3).to_bytes(kraft_version=1)
    )
    store = open_store(tmp_path)
    assert (store.view.end_offset, store.election.epoch) == (1, 2)
    store.close()


def test_the_synced_offset_is_written_at_the_first_start_after_kafka(tmp_path: Path) -> None:
    """Even before kraft writes its first election state, a power loss may tear unsynced batches
    and leave later ones intact.
    """
    store = open_store(tmp_path)
    begin_epoch(store, 1)
    store.close()
    content = ElectionState(1, 3).to_bytes(kraft_version=1)
    (metadata_dir(tmp_path) / "quorum-state").write_bytes(content + b"\n")
    store = open_store(tmp_path)
    assert store.election == ElectionState(1, 3)
    append(store)
    store.sync()
    segment = metadata_dir(tmp_path) / f"{0:020d}.log"
    synced_size = segment.stat().st_size
    append(store)
    append(store)
    torn = bytearray(segment.read_bytes())
    torn[synced_size : synced_size + 8] = bytes(8)
    segment.write_bytes(torn)
    # Simulate a killed process: its lock is released, no file is closed.
    store._lock.release()
    store = open_store(tmp_path)
    assert (store.view.end_offset, store.election) == (11, ElectionState(1, 3))
    store.close()


def test_a_damaged_log_is_left_unchanged(tmp_path: Path) -> None:
    """The log may end at or in any batch, or any batch may be damaged, even a last record."""
    store = open_store(tmp_path)
    begin_epoch(store, 1)
    for count in (10, 3, 1):
        append(store, count=count)
    store.sync()
    store.close()
    segment = metadata_dir(tmp_path) / f"{0:020d}.log"
    whole = segment.read_bytes()
    position = 0
    while position < len(whole):
        size = 12 + int.from_bytes(whole[position + 8 : position + 12], "big")
        flipped = bytearray(whole)
        flipped[position + size - 1] ^= 1
        for content in (whole[:position], whole[: position + size - 1], bytes(flipped)):
            segment.write_bytes(content)
            with pytest.raises(DamagedLogError):
                open_store(tmp_path)
            assert segment.read_bytes() == content
        position += size


def test_damage_in_the_middle_is_an_error(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    begin_epoch(store, 1)
    append(store)
    append(store)
    store.close()
    segment = metadata_dir(tmp_path) / f"{0:020d}.log"
    content = bytearray(segment.read_bytes())
    content[-len(append_of(10, 11, 1)) - 1] ^= 1
    segment.write_bytes(content)
    with pytest.raises(DamagedLogError, match="CRC"):
        open_store(tmp_path)
    # Without a synced offset, valid batches after the damage prove it (known bug 26).
    (metadata_dir(tmp_path) / "synced-offset-checkpoint").unlink()
    with pytest.raises(DamagedLogError, match="whole batches follow"):
        open_store(tmp_path)


def test_a_corrupted_epoch_is_detected_though_it_is_outside_the_crc(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    begin_epoch(store, 1)
    append(store)
    begin_epoch(store, 4)
    store.close()
    segment = metadata_dir(tmp_path) / f"{0:020d}.log"
    content = bytearray(segment.read_bytes())
    second = 12 + int.from_bytes(content[8:12], "big")
    content[second + 15] = 3
    segment.write_bytes(content)
    with pytest.raises(DamagedLogError, match="leader epoch 3 follows 1 without a LeaderChange"):
        open_store(tmp_path)


def test_a_log_without_its_beginning_needs_a_snapshot(tmp_path: Path) -> None:
    store = open_store(tmp_path, segment_bytes=300)
    begin_epoch(store, 1)
    for _ in range(5):
        append(store)
    store.close()
    (metadata_dir(tmp_path) / f"{0:020d}.log").unlink()
    with pytest.raises(StorageError, match="no snapshot has the records before it"):
        open_store(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{}", b'{"leaderId":1', b"\xff\xfe"])
def test_a_malformed_quorum_state_is_an_error(content: bytes, tmp_path: Path) -> None:
    open_store(tmp_path).close()
    (metadata_dir(tmp_path) / "quorum-state").write_bytes(content)
    with pytest.raises(CorruptRecordError, match="could vote twice"):
        open_store(tmp_path)


def test_a_corrupted_vote_is_an_error(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.perform(WriteElectionState(2, -1, 1, None, kraft_version=1))
    store.close()
    path = metadata_dir(tmp_path) / "quorum-state"
    path.write_bytes(path.read_bytes().replace(b'"votedId":1', b'"votedId":3'))
    with pytest.raises(CorruptRecordError, match="checksum"):
        open_store(tmp_path)


def test_unfinished_files_are_removed(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    left = [
        f"{snapshot_name(5, 1)}.part",
        "00000000000000000005-0000000001-4711.checkpoint.part",
        f"{snapshot_name(3, 1)}.deleted",
        "quorum-state.tmp",
    ]
    for name in left:
        (metadata_dir(tmp_path) / name).write_bytes(b"half")
    store = open_store(tmp_path)
    assert not [name for name in left if (metadata_dir(tmp_path) / name).exists()]
    store.close()


def test_a_snapshot_ahead_of_the_log_empties_it(tmp_path: Path) -> None:
    content = snapshot_bytes(tmp_path / "other", OffsetAndEpoch(50, 3), DYNAMIC)
    store = open_store(tmp_path, segment_bytes=300)
    begin_epoch(store, 1)
    for _ in range(3):
        append(store)
    store.sync()
    store.close()
    # Simulate a crash between the snapshot's rename and the truncation of the old log.
    (metadata_dir(tmp_path) / snapshot_name(50, 3)).write_bytes(content)
    store = open_store(tmp_path)
    assert (store.view.start_offset, store.view.end_offset) == (50, 50)
    assert store.view.last_epoch == 3
    assert store.view.voters == DYNAMIC
    store.close()


def test_a_damaged_snapshot_is_an_error(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    begin_epoch(store, 1)
    append(store)
    store.sync()
    make_snapshot(store, OffsetAndEpoch(11, 1))
    store.close()
    path = metadata_dir(tmp_path) / snapshot_name(11, 1)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 16
    path.write_bytes(content)
    with pytest.raises(CorruptRecordError, match=snapshot_name(11, 1)):
        open_store(tmp_path)


# Reading


def test_a_slice_ends_at_a_batch_and_before_its_end_offset(store: MetadataStore) -> None:
    begin_epoch(store, 1)
    first, second = append(store), append(store)
    assert bytes(store.read(LogSlice(1, 21, 1 << 20))) == first + second
    assert bytes(store.read(LogSlice(1, 20, 1 << 20))) == first
    assert bytes(store.read(LogSlice(5, 21, 1))) == first
    assert bytes(store.read(LogSlice(1, 10, 1 << 20))) == b""
    assert bytes(store.read(LogSlice(21, 21, 1 << 20))) == b""
    # Offsets outside the log return no bytes.
    assert bytes(store.read(LogSlice(100, 200, 1 << 20))) == b""
    assert bytes(store.read(SnapshotSlice(OffsetAndEpoch(9, 9), 0, 100))) == b""


def test_a_snapshot_is_served_once_it_was_added(tmp_path: Path, store: MetadataStore) -> None:
    begin_epoch(store, 1)
    append(store)
    id = OffsetAndEpoch(11, 1)
    make_snapshot(store, id)
    assert bytes(store.read(SnapshotSlice(id, 0, 10))) == b""
    stored = store.add_snapshot(id)
    assert stored is not None
    content = (metadata_dir(tmp_path) / snapshot_name(*id)).read_bytes()
    assert (stored.size, stored.is_installed) == (len(content), False)
    assert bytes(store.read(SnapshotSlice(id, 5, 100))) == content[5:105]
    assert bytes(store.read(SnapshotSlice(id, len(content) - 3, 100))) == content[-3:]


@pytest.mark.parametrize(
    ("offset", "epoch", "reason"),
    [
        (5, 1, "within the batch that begins at offset 1"),
        (20, 1, "within the batch that begins at offset 11"),
        (22, 1, "the log holds offsets 0 to 21"),
        (11, 2, "the record before it is of epoch 1"),
    ],
    ids=["mid-batch", "mid-batch at the end", "above the log", "another epoch"],
)
def test_bug_09_kafka_17713_no_snapshot_ends_within_a_batch(
    offset: int, epoch: int, reason: str, tmp_path: Path
) -> None:
    store = open_store(tmp_path)
    begin_epoch(store, 1)
    append(store)
    append(store)
    id = OffsetAndEpoch(offset, epoch)
    with pytest.raises(InvalidRequestError, match=reason):
        make_snapshot(store, id)
    assert not list(metadata_dir(tmp_path).glob("*.checkpoint*"))
    # A snapshot file that the store did not write is rejected too.
    snapshot_bytes(metadata_dir(tmp_path), id, None)
    with pytest.raises(InvalidRequestError, match=reason):
        store.add_snapshot(id)
    assert store.snapshot(id) is None
    for offset in (0, 1, 11, 21):
        at = OffsetAndEpoch(offset, 1 if offset else 0)
        make_snapshot(store, at)
        stored = store.add_snapshot(at)
        assert stored is not None
        assert stored.snapshot_id == at
    store.close()


# One process


def test_a_directory_has_one_process_at_a_time(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with pytest.raises(StorageError, match="in use"):
        open_store(tmp_path)
    script = (
        "import sys; from kraft.server.disk.store import MetadataStore\n"
        "try: MetadataStore.open(sys.argv[1])\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout.startswith("StorageError")
    assert "in use" in done.stdout
    store.close()
    open_store(tmp_path).close()
