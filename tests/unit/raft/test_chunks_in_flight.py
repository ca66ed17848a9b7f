"""Snapshot chunks that a node requests before the previous chunks have arrived."""

from __future__ import annotations

from typing import Any

from kraft.errors import POSITION_OUT_OF_RANGE, SNAPSHOT_NOT_FOUND
from kraft.raft.interface import (
    DropSnapshotDownload,
    InstallSnapshot,
    RequestFailed,
    SendRequest,
    StoreSnapshotChunk,
)
from kraft.raft.rpc import (
    FetchRequest,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    OffsetAndEpoch,
    UpdateRaftVoterRequest,
)
from kraft.raft.snapshot_download import MAX_CHUNKS_IN_FLIGHT
from kraft.raft.voters import KRaftVersionRange, VoterNode, VoterSet
from tests.harness.raft_nodes import EPOCH, Driver, answer, dynamic, fetched, follower, voter

SNAPSHOT = OffsetAndEpoch(20, 2)
SIZE = 100


def downloading(**given: Any) -> Driver:
    node = follower(fetch_snapshot_max_bytes=10, **given)
    fetched(node, answer(snapshot_id=SNAPSHOT))
    return node


def give(node: Driver, send: SendRequest, length: int = 10, **given: Any) -> Driver:
    """Answer a request for a chunk with at most ``length`` bytes, as the leader does."""
    request = send.request
    assert isinstance(request, FetchSnapshotRequest)
    data = bytes(min(length, SIZE - request.position))
    response = FetchSnapshotResponse(
        given.get("error", 0), EPOCH, 2, (), SNAPSHOT, SIZE, request.position, data
    )
    return node.reply(send, response)


def chunks(node: Driver) -> list[SendRequest]:
    return node.requests(FetchSnapshotRequest)


def positions(sends: list[SendRequest]) -> list[int]:
    return [send.request.position for send in sends]  # type: ignore[union-attr]


def under_way(**given: Any) -> tuple[Driver, list[SendRequest]]:
    """Return a node whose first chunk has arrived, and its next requests."""
    node = downloading(**given)
    (first,) = chunks(node)
    give(node, first)
    return node, chunks(node)


def test_after_the_first_chunk_several_are_requested_at_once() -> None:
    node, sent = under_way()
    assert positions(sent) == [10, 20, 30]
    assert len(sent) == MAX_CHUNKS_IN_FLIGHT
    stored, asked = [0], positions(sent)
    while sent:
        give(node, sent.pop(0))
        stored += [w.position for w in node.written if isinstance(w, StoreSnapshotChunk)]
        sent += chunks(node)
        asked += positions(chunks(node))
    assert stored == list(range(0, SIZE, 10))
    assert asked == list(range(10, SIZE, 10)), "each position is requested once, none after the end"
    assert node.written[-1] == InstallSnapshot(SNAPSHOT)


def test_a_short_chunk_is_continued_from_its_end() -> None:
    node, sent = under_way()
    give(node, sent[0], 4)
    assert chunks(node) == [], "the chunks in flight begin after the gap"
    give(node, sent[1])
    assert node.written == []
    give(node, sent[2])
    assert node.written == []
    assert positions(chunks(node)) == [14, 18, 22], "the steps equal the size of the short chunk"


def test_chunks_out_of_order_are_requested_again() -> None:
    node, (first, second, third) = under_way()
    give(node, second)
    assert node.written == []
    (fourth,) = chunks(node)
    give(node, first)
    assert [w.position for w in node.written if isinstance(w, StoreSnapshotChunk)] == [10]
    give(node, third)
    assert chunks(node) == [], "a chunk in flight begins after the gap"
    give(node, fourth)
    assert positions(chunks(node)) == [20, 30, 40]


def test_a_duplicated_chunk_is_ignored() -> None:
    node, (first, *_) = under_way()
    give(node, first)
    give(node, first)
    assert node.written == []


def test_no_chunk_is_awaited_after_the_connection_is_lost() -> None:
    node, sent = under_way()
    for send in sent:
        node.step(RequestFailed(send.correlation))
        assert chunks(node) == []
    # Meanwhile the node asks a server that may know a newer leader.
    (other,) = node.requests(FetchRequest)
    node.wait(node.config.retry_backoff_ms)
    assert positions(chunks(node)) == [10, 20, 30]
    assert other.destination != sent[0].destination


def test_a_deleted_snapshot_is_dropped_once_and_the_fetch_waits_for_the_other_chunks() -> None:
    node, sent = under_way()
    give(node, sent[0], 0, error=SNAPSHOT_NOT_FOUND)
    assert node.written == [DropSnapshotDownload(SNAPSHOT)]
    assert node.requests() == []
    give(node, sent[1], 0, error=SNAPSHOT_NOT_FOUND)
    assert node.written == []
    give(node, sent[2], 0, error=POSITION_OUT_OF_RANGE)
    assert node.written == []
    assert len(node.requests(FetchRequest)) == 1


def test_each_chunk_restarts_the_timeout_of_the_next() -> None:
    node, sent = under_way(fetch_timeout_ms=60_000)
    most = node.config.request_timeout_ms
    for _ in range(4):
        node.wait(most - 1)
        assert node.requests() == [], "no request has timed out"
        give(node, sent.pop(0))
        assert [type(write) for write in node.written] == [StoreSnapshotChunk]
        sent += chunks(node)


def test_bootstrap_servers_are_asked_once_no_chunk_of_a_silent_leader_is_in_flight() -> None:
    node, sent = under_way(fetch_timeout_ms=60_000)
    node.wait(node.config.request_timeout_ms)
    (elsewhere,) = node.requests()
    assert isinstance(elsewhere.request, FetchRequest)
    assert elsewhere.destination != sent[0].destination


def test_a_voter_sends_its_update_between_the_chunks() -> None:
    old = VoterNode(voter(1).key, voter(1).endpoints, KRaftVersionRange(0, 0))
    voters = VoterSet([old, *dynamic(2, 3)])
    node, sent = under_way(voters=voters, kraft_version=1, fetch_timeout_ms=1500)
    node.now_ms += 1499
    give(node, sent[0])
    sent = [*sent[1:], *chunks(node)]
    node.now_ms += 1
    for send in sent:
        assert node.requests(UpdateRaftVoterRequest) == []
        give(node, send)
    assert len(node.requests()) == 1
    assert len(node.requests(UpdateRaftVoterRequest)) == 1
