"""A follower that downloads its leader's snapshot in chunks, and installs it unless damaged."""

from typing import Any

import pytest

from kraft.raft.interface import (
    DropSnapshotDownload,
    InstallSnapshot,
    Role,
    SendRequest,
    SnapshotRejected,
    SnapshotStored,
    StoreSnapshotChunk,
)
from kraft.raft.rpc import (
    BeginQuorumEpochRequest,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    OffsetAndEpoch,
    VoteRequest,
)
from kraft.raft.snapshot_download import MAX_DOWNLOAD_AHEAD
from tests.harness.raft_nodes import (
    EPOCH,
    Driver,
    answer,
    dynamic,
    endpoint,
    fetch_of,
    fetched,
    follower,
    key,
)

SNAPSHOT = OffsetAndEpoch(20, 2)


def chunk(position: int, data: bytes, size: int = 10, **given: Any) -> FetchSnapshotResponse:
    snapshot_id = given.pop("snapshot_id", SNAPSHOT)
    return FetchSnapshotResponse(
        given.pop("error", 0), EPOCH, 2, (), snapshot_id, size, position, data
    )


def downloading(**given: Any) -> Driver:
    node = follower(**given)
    fetched(node, answer(snapshot_id=SNAPSHOT))
    return node


def chunk_request(node: Driver) -> SendRequest:
    (send,) = node.requests(FetchSnapshotRequest)
    return send


def test_a_snapshot_is_downloaded_in_chunks_and_replaces_the_log() -> None:
    node = downloading(voters=dynamic(1, 2, 3), kraft_version=1)
    request = chunk_request(node).request
    assert request == FetchSnapshotRequest("cluster", key(1), EPOCH, SNAPSHOT, 0)
    node.reply(chunk_request(node), chunk(0, b"12345"))
    assert node.written == [StoreSnapshotChunk(SNAPSHOT, 0, b"12345")]
    assert chunk_request(node).request.position == 5  # type: ignore[union-attr]
    node.is_disk_stalled = True
    node.reply(chunk_request(node), chunk(5, b"67890"))
    assert node.written[-1] == InstallSnapshot(SNAPSHOT)
    assert node.sent == [], "no message is sent before the snapshot is installed"
    node.wait(5000)
    assert node.role is Role.FOLLOWER, "no election while the log is being replaced"
    node.step(SnapshotStored(SNAPSHOT, 10, is_installed=True))
    assert node.ready.committed == 20
    assert node.node.log.end_offset == node.node.log.start_offset == 20
    node.sync()
    assert (fetch_of(node).request.offset, fetch_of(node).request.last_fetched_epoch) == (20, 2)


def test_the_chunk_size_has_its_own_setting() -> None:
    node = downloading(fetch_max_bytes=10, fetch_snapshot_max_bytes=70)
    assert chunk_request(node).request.max_bytes == 70  # type: ignore[union-attr]


def test_a_bounded_number_of_chunks_is_requested_ahead_of_a_slow_disk() -> None:
    node = downloading(fetch_snapshot_max_bytes=MAX_DOWNLOAD_AHEAD // 3)
    node.is_disk_stalled = True
    node.reply(chunk_request(node), chunk(0, b"1"))
    second, third = node.requests(FetchSnapshotRequest)
    node.reply(second, chunk(1, b"1"))
    assert node.requests(FetchSnapshotRequest) == [], "two chunks wait for the disk, one in flight"
    node.reply(third, chunk(2, b"1"))
    assert node.requests(FetchSnapshotRequest) == [], "three chunks wait for the disk"
    node.sync()
    asked = [send.request.position for send in node.requests(FetchSnapshotRequest)]  # type: ignore[union-attr]
    assert asked == [3, 4, 5]


@pytest.mark.parametrize(
    "response",
    [
        chunk(3, b"12345"),
        chunk(0, b"12345", size=4),
        chunk(0, b"", size=10),
        chunk(0, b"", size=0),
        chunk(0, b"", size=-1),
        chunk(0, b"12345", snapshot_id=OffsetAndEpoch(21, 2)),
        chunk(0, b"12345", snapshot_id=None),
    ],
    ids=["elsewhere", "too much", "nothing", "empty", "negative", "another", "none"],
)
def test_a_chunk_that_does_not_fit_ends_the_download(response: FetchSnapshotResponse) -> None:
    node = downloading()
    node.reply(chunk_request(node), response)
    assert node.written == [DropSnapshotDownload(SNAPSHOT)]
    assert node.node.download is None
    assert node.role is Role.FOLLOWER


def test_a_chunk_of_a_file_of_another_size_ends_the_download() -> None:
    node = downloading()
    node.reply(chunk_request(node), chunk(0, b"12345", size=10))
    node.reply(chunk_request(node), chunk(5, b"67890", size=11))
    assert node.written == [DropSnapshotDownload(SNAPSHOT)]
    assert node.node.download is None


def installing() -> Driver:
    node = downloading(voters=dynamic(1, 2, 3), kraft_version=1)
    node.reply(chunk_request(node), chunk(0, b"1234567890"))
    assert node.node.download is not None
    assert node.node.download.is_installing
    return node


def refused(node: Driver) -> float:
    """Report the downloaded snapshot as damaged; return the delay before the next request in ms."""
    at_ms = node.now_ms
    node.step(SnapshotRejected(SNAPSHOT, "a CRC is wrong"))
    assert node.node.download is None
    while not node.requests():
        assert node.ready.wake_at_ms > node.now_ms
        node.now_ms = node.ready.wake_at_ms
        node.step()
    return node.now_ms - at_ms


def test_a_damaged_snapshot_is_requested_again_with_growing_delay() -> None:
    node = installing()
    delays = []
    for _ in range(9):
        delays.append(refused(node))
        assert fetch_of(node).destination == 2, "the node sends its next fetch to the leader"
        assert node.role is Role.FOLLOWER
        fetched(node, answer(snapshot_id=SNAPSHOT))
        node.reply(chunk_request(node), chunk(0, b"1234567890"))
    assert delays == [20, 40, 80, 160, 320, 640, 1000, 1000, 1000]
    assert node.node.log.end_offset == 6, "the log is unchanged"
    # After a valid snapshot the delay of the next damaged one is short again.
    node.step(SnapshotStored(SNAPSHOT, 10, is_installed=True))
    assert node.node.log.end_offset == 20
    later = OffsetAndEpoch(30, 2)
    fetched(node, answer(snapshot_id=later))
    node.reply(chunk_request(node), chunk(0, b"1234567890", snapshot_id=later))
    node.step(SnapshotRejected(later, "a CRC is wrong"))
    assert node.ready.wake_at_ms == node.now_ms + 20


def test_a_slow_check_of_a_damaged_snapshot_causes_no_election() -> None:
    node = installing()
    node.now_ms += 5000
    assert refused(node) == 20
    assert node.role is Role.FOLLOWER


def test_the_next_leaders_snapshot_is_fetched_without_delay() -> None:
    node = installing()
    node.step(SnapshotRejected(SNAPSHOT, "a CRC is wrong"))
    assert node.requests() == []
    node.ask(BeginQuorumEpochRequest("cluster", EPOCH + 1, 3, key(1), (endpoint(3),)))
    assert fetch_of(node).destination == 3


def test_a_damaged_snapshot_is_reported_while_nobody_leads() -> None:
    node = installing()
    node.ask(VoteRequest("cluster", EPOCH + 1, key(3), key(1), 2, 6))
    assert node.role is Role.UNATTACHED
    node.step(SnapshotRejected(SNAPSHOT, "a CRC is wrong"))
    assert node.node.download is None
    node.wait(5000)
    assert node.role is Role.PROSPECTIVE


def test_a_deleted_snapshot_is_not_requested_again_and_the_leader_counts_as_alive() -> None:
    node = downloading()
    node.now_ms += 1500
    node.reply(chunk_request(node), chunk(0, b"", error=98))
    assert node.written == [DropSnapshotDownload(SNAPSHOT)]
    assert fetch_of(node).destination == 2, "the node sends a fetch to the leader at once"
    node.wait(1500)
    assert node.role is Role.FOLLOWER


def test_a_position_beyond_the_leaders_file_restarts_the_download() -> None:
    node = downloading()
    node.reply(chunk_request(node), chunk(0, b"12345"))
    node.reply(chunk_request(node), chunk(5, b"", error=99))
    assert node.written == [DropSnapshotDownload(SNAPSHOT)]
    assert node.node.download is None


def test_a_snapshot_does_not_replace_committed_records() -> None:
    node = follower()
    fetched(node, answer(high_watermark=6))
    fetched(node, answer(snapshot_id=OffsetAndEpoch(6, 2)))
    assert node.node.download is None


@pytest.mark.parametrize("snapshot_id", [OffsetAndEpoch(-1, 2), OffsetAndEpoch(20, -1)])
def test_an_invalid_snapshot_id_begins_no_download(snapshot_id: OffsetAndEpoch) -> None:
    node = follower()
    fetched(node, answer(snapshot_id=snapshot_id))
    assert node.node.download is None


def test_an_election_ends_the_download() -> None:
    node = downloading()
    node.wait(2000)
    assert node.role is Role.PROSPECTIVE
    assert node.written == [DropSnapshotDownload(SNAPSHOT)]
