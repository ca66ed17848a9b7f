"""A follower that takes its leader's snapshot: in chunks, whole or not at all, sound or refused."""

from typing import Any

import pytest

from kraft.raft.following import MAX_DOWNLOAD_AHEAD
from kraft.raft.messages import (
    BeginQuorumEpochRequest,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    OffsetAndEpoch,
    VoteRequest,
)
from kraft.raft.ready import (
    DropSnapshotDownload,
    InstallSnapshot,
    Role,
    SendRequest,
    SnapshotRefused,
    SnapshotStored,
    StoreSnapshotChunk,
)
from tests.unit.raft.nodes import (
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


def test_a_snapshot_comes_in_chunks_and_takes_the_place_of_the_log() -> None:
    node = downloading(voters=dynamic(1, 2, 3), kraft_version=1)
    request = chunk_request(node).request
    assert request == FetchSnapshotRequest("cluster", key(1), EPOCH, SNAPSHOT, 0)
    node.reply(chunk_request(node), chunk(0, b"12345"))
    assert node.written == [StoreSnapshotChunk(SNAPSHOT, 0, b"12345")]
    assert chunk_request(node).request.position == 5  # type: ignore[union-attr]
    node.is_disk_stalled = True
    node.reply(chunk_request(node), chunk(5, b"67890"))
    assert node.written[-1] == InstallSnapshot(SNAPSHOT)
    assert node.sent == [], "nothing is said until the snapshot is in its place"
    node.wait(5000)
    assert node.role is Role.FOLLOWER, "no election while the log is being replaced"
    node.step(SnapshotStored(SNAPSHOT, 10, is_installed=True))
    assert node.ready.committed == 20
    assert node.node.log.end_offset == node.node.log.start_offset == 20
    node.sync()
    assert (fetch_of(node).request.offset, fetch_of(node).request.last_fetched_epoch) == (20, 2)


def test_a_chunk_is_as_large_as_its_own_setting_says() -> None:
    node = downloading(fetch_max_bytes=10, fetch_snapshot_max_bytes=70)
    assert chunk_request(node).request.max_bytes == 70  # type: ignore[union-attr]


def test_chunks_are_asked_for_ahead_of_a_slow_disk_but_not_without_end() -> None:
    node = downloading(fetch_snapshot_max_bytes=MAX_DOWNLOAD_AHEAD // 3)
    node.is_disk_stalled = True
    node.reply(chunk_request(node), chunk(0, b"1"))
    second, third = node.requests(FetchSnapshotRequest)
    node.reply(second, chunk(1, b"1"))
    assert node.requests(FetchSnapshotRequest) == [], "two wait for the disk, one is on its way"
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
    """The snapshot that the leader gives is refused; how long it is left alone then, in ms."""
    at_ms = node.now_ms
    node.step(SnapshotRefused(SNAPSHOT, "a CRC is wrong"))
    assert node.node.download is None
    while not node.requests():
        assert node.ready.wake_at_ms > node.now_ms
        node.now_ms = node.ready.wake_at_ms
        node.step()
    return node.now_ms - at_ms


def test_a_rotten_snapshot_is_asked_for_again_later_each_time() -> None:
    node = installing()
    delays = []
    for _ in range(9):
        delays.append(refused(node))
        assert fetch_of(node).destination == 2, "the leader is asked what it has now"
        assert node.role is Role.FOLLOWER
        fetched(node, answer(snapshot_id=SNAPSHOT))
        node.reply(chunk_request(node), chunk(0, b"1234567890"))
    assert delays == [20, 40, 80, 160, 320, 640, 1000, 1000, 1000]
    assert node.node.log.end_offset == 6, "what it had it has still"
    # The sound one that comes then is taken, and the next rotten one is no old story.
    node.step(SnapshotStored(SNAPSHOT, 10, is_installed=True))
    assert node.node.log.end_offset == 20
    later = OffsetAndEpoch(30, 2)
    fetched(node, answer(snapshot_id=later))
    node.reply(chunk_request(node), chunk(0, b"1234567890", snapshot_id=later))
    node.step(SnapshotRefused(later, "a CRC is wrong"))
    assert node.ready.wake_at_ms == node.now_ms + 20


def test_a_disk_that_was_long_at_a_rotten_snapshot_costs_no_election() -> None:
    node = installing()
    node.now_ms += 5000
    assert refused(node) == 20
    assert node.role is Role.FOLLOWER


def test_another_leaders_snapshot_is_fetched_whatever_the_one_before_gave() -> None:
    node = installing()
    node.step(SnapshotRefused(SNAPSHOT, "a CRC is wrong"))
    assert node.requests() == []
    node.ask(BeginQuorumEpochRequest("cluster", EPOCH + 1, 3, key(1), (endpoint(3),)))
    assert fetch_of(node).destination == 3


def test_a_snapshot_is_refused_while_nobody_leads() -> None:
    node = installing()
    node.ask(VoteRequest("cluster", EPOCH + 1, key(3), key(1), 2, 6))
    assert node.role is Role.UNATTACHED
    node.step(SnapshotRefused(SNAPSHOT, "a CRC is wrong"))
    assert node.node.download is None
    node.wait(5000)
    assert node.role is Role.PROSPECTIVE


def test_a_snapshot_that_is_gone_is_asked_for_no_more_and_the_leader_lives() -> None:
    node = downloading()
    node.now_ms += 1500
    node.reply(chunk_request(node), chunk(0, b"", error=98))
    assert node.written == [DropSnapshotDownload(SNAPSHOT)]
    assert fetch_of(node).destination == 2, "the leader is asked at once what it has now"
    node.wait(1500)
    assert node.role is Role.FOLLOWER


def test_a_position_that_the_leader_does_not_have_begins_the_download_anew() -> None:
    node = downloading()
    node.reply(chunk_request(node), chunk(0, b"12345"))
    node.reply(chunk_request(node), chunk(5, b"", error=99))
    assert node.written == [DropSnapshotDownload(SNAPSHOT)]
    assert node.node.download is None


def test_what_is_committed_here_is_not_given_up_for_a_snapshot() -> None:
    node = follower()
    fetched(node, answer(high_watermark=6))
    fetched(node, answer(snapshot_id=OffsetAndEpoch(6, 2)))
    assert node.node.download is None


@pytest.mark.parametrize("snapshot_id", [OffsetAndEpoch(-1, 2), OffsetAndEpoch(20, -1)])
def test_a_snapshot_id_that_is_none_begins_no_download(snapshot_id: OffsetAndEpoch) -> None:
    node = follower()
    fetched(node, answer(snapshot_id=snapshot_id))
    assert node.node.download is None


def test_an_election_ends_the_download() -> None:
    node = downloading()
    node.wait(2000)
    assert node.role is Role.PROSPECTIVE
    assert node.written == [DropSnapshotDownload(SNAPSHOT)]
