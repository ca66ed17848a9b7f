"""The error codes of invalid requests.

The order of the checks is Kafka's: cluster id, field values, epoch, role, shutdown.
"""

from dataclasses import replace
from typing import Any

import pytest

from kraft.raft.interface import Role, Shutdown, SnapshotStored
from kraft.raft.rpc import (
    AddRaftVoterRequest,
    BeginQuorumEpochRequest,
    DescribeQuorumRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    OffsetAndEpoch,
    RemoveRaftVoterRequest,
    Request,
    UpdateKRaftVersionRequest,
    UpdateRaftVoterRequest,
    VoteRequest,
)
from kraft.raft.voters import Endpoint, KRaftVersionRange, ReplicaKey
from tests.harness.raft_nodes import (
    EPOCH,
    MAKERS,
    Driver,
    driven,
    dynamic,
    endpoint,
    fetched_by,
    follower,
    key,
    leader,
    unattached,
)

NONE, NOT_LEADER, BROKER_NOT_AVAILABLE, UNSUPPORTED_VERSION, INVALID_REQUEST = 0, 6, 8, 35, 42
TIMED_OUT, FENCED, UNKNOWN_EPOCH = 7, 74, 75
SNAPSHOT_NOT_FOUND, POSITION_OUT_OF_RANGE = 98, 99
INCONSISTENT_CLUSTER_ID, INVALID_VOTER_KEY, DUPLICATE_VOTER, VOTER_NOT_FOUND = 104, 125, 126, 127

VOTE = VoteRequest("cluster", EPOCH, key(2), key(1), 2, 6)
BEGIN = BeginQuorumEpochRequest("cluster", EPOCH, 2, key(1), (endpoint(2),))
END = EndQuorumEpochRequest("cluster", EPOCH, 2, (key(1), key(3)), (endpoint(2),))
FETCH = FetchRequest("cluster", key(2), EPOCH, 6, 2)
SNAPSHOT = OffsetAndEpoch(6, 2)
FETCH_SNAPSHOT = FetchSnapshotRequest("cluster", key(2), EPOCH, SNAPSHOT, 0)
ADD = AddRaftVoterRequest("cluster", 1000, key(4), (endpoint(4),))
REMOVE = RemoveRaftVoterRequest("cluster", key(3))
UPDATE = UpdateRaftVoterRequest("cluster", EPOCH, key(3), (endpoint(3),), KRaftVersionRange(0, 1))


@pytest.mark.parametrize(
    "request_",
    [VOTE, BEGIN, END, FETCH, FETCH_SNAPSHOT, ADD, REMOVE, UPDATE],
    ids=lambda request: type(request).__name__,
)
@pytest.mark.parametrize("role", Role)
def test_a_foreign_cluster_is_rejected_and_changes_nothing(role: Role, request_: Any) -> None:
    node = MAKERS[role]()
    before = node.election
    changes = {"epoch": EPOCH + 5} if hasattr(request_, "epoch") else {}
    foreign = replace(request_, cluster_id="another", **changes)
    assert node.ask(foreign).error == INCONSISTENT_CLUSTER_ID
    assert node.election == before


def test_a_request_without_cluster_id_is_accepted() -> None:
    assert unattached().ask(replace(VOTE, cluster_id=None)).error == NONE


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({}, NONE),
        ({"voter": None}, NONE),
        ({"voter": ReplicaKey(1)}, NONE),
        ({"epoch": EPOCH - 1, "last_epoch": 1}, FENCED),
        # The field values are checked before the epoch.
        ({"epoch": EPOCH - 1, "last_epoch": EPOCH - 1}, INVALID_REQUEST),
        ({"last_offset": -1}, INVALID_REQUEST),
        ({"last_epoch": -1}, INVALID_REQUEST),
        ({"last_epoch": EPOCH}, INVALID_REQUEST),
        ({"last_epoch": EPOCH, "is_pre_vote": True}, NONE),
        ({"last_epoch": EPOCH + 1, "is_pre_vote": True}, INVALID_REQUEST),
        ({"candidate": ReplicaKey(-1)}, INVALID_REQUEST),
        ({"voter": key(2)}, INVALID_VOTER_KEY),
        ({"voter": key(1, 9)}, INVALID_VOTER_KEY),
    ],
)
def test_the_errors_of_vote(changes: dict[str, Any], error: int) -> None:
    assert unattached().ask(replace(VOTE, **changes)).error == error


@pytest.mark.parametrize("request_", [BEGIN, END], ids=["begin", "end"])
@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({}, NONE),
        ({"epoch": EPOCH - 1}, FENCED),
        # The epoch is checked before the leader id.
        ({"epoch": EPOCH - 1, "leader_id": -1}, FENCED),
        ({"leader_id": -1}, INVALID_REQUEST),
    ],
)
def test_the_errors_of_begin_and_end_quorum_epoch(
    request_: Any, changes: dict[str, Any], error: int
) -> None:
    answer = unattached().ask(replace(request_, **changes))
    assert answer.error == error
    assert answer.epoch == EPOCH


def test_a_leader_is_followed_although_its_voter_key_is_wrong() -> None:
    for voter in (key(2), key(1, 9)):
        node = unattached()
        assert node.ask(replace(BEGIN, voter=voter)).error == INVALID_VOTER_KEY
        assert node.role is Role.FOLLOWER


def leading(**given: Any) -> Driver:
    """Return a leader with a committed LeaderChange and a snapshot of 100 bytes."""
    node = leader(**given)
    fetched_by(node, 2)
    return node.step(SnapshotStored(SNAPSHOT, 100))


@pytest.mark.parametrize("request_", [FETCH, FETCH_SNAPSHOT, UPDATE], ids=["f", "s", "u"])
def test_the_errors_of_requests_to_the_leader(request_: Any) -> None:
    """The checks have this order: fenced epoch, unknown epoch, not the leader."""
    for role in Role:
        node = MAKERS[role]()
        is_leader = role is Role.LEADER
        assert node.ask(replace(request_, epoch=EPOCH - 1)).error == FENCED
        assert node.ask(replace(request_, epoch=EPOCH + 1)).error == UNKNOWN_EPOCH
        assert node.node.epoch == EPOCH, "the node does not adopt the epoch of the request"
        if not is_leader:
            assert node.ask(request_).error == NOT_LEADER


def test_a_leader_that_shuts_down_has_resigned() -> None:
    node = leading()
    node.step(Shutdown())
    for request in (FETCH, FETCH_SNAPSHOT, ADD, REMOVE, UPDATE):
        assert node.ask(request).error == NOT_LEADER


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({}, NONE),
        ({"max_wait_ms": -1}, INVALID_REQUEST),
        ({"offset": -1}, INVALID_REQUEST),
        ({"last_fetched_epoch": -1}, INVALID_REQUEST),
        ({"last_fetched_epoch": EPOCH + 1}, INVALID_REQUEST),
        # The field values are checked before the epoch.
        ({"last_fetched_epoch": EPOCH + 2, "epoch": EPOCH + 1}, INVALID_REQUEST),
        ({"replica": ReplicaKey(-1)}, NONE),
    ],
)
def test_the_errors_of_fetch(changes: dict[str, Any], error: int) -> None:
    assert leading().ask(replace(FETCH, **changes)).error == error


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({}, NONE),
        ({"position": 99}, NONE),
        ({"position": -1}, POSITION_OUT_OF_RANGE),
        ({"position": 100}, POSITION_OUT_OF_RANGE),
        ({"snapshot_id": OffsetAndEpoch(6, 1)}, SNAPSHOT_NOT_FOUND),
        ({"snapshot_id": OffsetAndEpoch(5, 2)}, SNAPSHOT_NOT_FOUND),
    ],
)
def test_the_errors_of_fetch_snapshot(changes: dict[str, Any], error: int) -> None:
    assert leading().ask(replace(FETCH_SNAPSHOT, **changes)).error == error


@pytest.mark.parametrize(("asked", "given"), [(50, 50), (1000, 70), (-1, 0)])
def test_the_leaders_setting_bounds_the_chunk_size(asked: int, given: int) -> None:
    node = leading(fetch_max_bytes=10, fetch_snapshot_max_bytes=70)
    response = node.ask(replace(FETCH_SNAPSHOT, max_bytes=asked))
    assert response.data.max_size == given


def test_the_bootstrap_snapshot_is_not_sent() -> None:
    """Every node got its own bootstrap snapshot (0-0) when it was formatted."""
    node = leading(voters=dynamic(1, 2, 3), kraft_version=1)
    node.node.log.snapshots[OffsetAndEpoch(0, 0)] = 10
    request = replace(FETCH_SNAPSHOT, snapshot_id=OffsetAndEpoch(0, 0))
    assert node.ask(request).error == SNAPSHOT_NOT_FOUND


def test_only_the_leader_describes_the_quorum() -> None:
    for role in Role:
        error = MAKERS[role]().ask(DescribeQuorumRequest()).error
        assert error == (NONE if role is Role.LEADER else NOT_LEADER)


ELSEWHERE = (Endpoint("ANOTHER", "host4", 9004),)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (replace(ADD, voter=ReplicaKey(-1)), INVALID_REQUEST),
        (replace(ADD, voter=ReplicaKey(4)), INVALID_REQUEST),
        (replace(ADD, endpoints=ELSEWHERE), INVALID_REQUEST),
        (replace(ADD, voter=key(3)), DUPLICATE_VOTER),
        (replace(ADD, voter=key(3, 7)), DUPLICATE_VOTER),
        (replace(REMOVE, voter=ReplicaKey(3)), INVALID_REQUEST),
        (replace(REMOVE, voter=ReplicaKey(-1)), INVALID_REQUEST),
        (replace(REMOVE, voter=key(3, 7)), VOTER_NOT_FOUND),
        (replace(REMOVE, voter=key(4)), VOTER_NOT_FOUND),
        (replace(UPDATE, voter=ReplicaKey(3)), INVALID_REQUEST),
        (replace(UPDATE, endpoints=ELSEWHERE), INVALID_REQUEST),
        (replace(UPDATE, kraft_versions=KRaftVersionRange(-1, 1)), INVALID_REQUEST),
        (replace(UPDATE, kraft_versions=KRaftVersionRange(1, 0)), INVALID_REQUEST),
        (replace(UPDATE, kraft_versions=KRaftVersionRange(0, 0)), INVALID_REQUEST),
        (replace(UPDATE, voter=key(4)), VOTER_NOT_FOUND),
        (replace(UPDATE, voter=key(3, 7)), VOTER_NOT_FOUND),
        (UPDATE, NONE),
    ],
)
def test_the_errors_of_voter_changes(request_: Any, error: int) -> None:
    node = leading(voters=dynamic(1, 2, 3), kraft_version=1)
    assert node.ask(request_).error == error


@pytest.mark.parametrize("request_", [ADD, REMOVE, UPDATE], ids=["add", "remove", "update"])
def test_a_voter_change_needs_the_high_watermark_and_the_last_change(request_: Request) -> None:
    """In both cases the error asks the client to try again."""
    node = leader(voters=dynamic(1, 2, 3), kraft_version=1)
    assert node.ask(request_).error == TIMED_OUT
    fetched_by(node, 2)
    assert node.ask(RemoveRaftVoterRequest("cluster", key(2))) is None
    assert node.ask(request_).error == TIMED_OUT


def test_the_last_voter_cannot_be_removed() -> None:
    node = driven(voters=dynamic(1), kraft_version=1).step()
    assert node.role is Role.LEADER
    assert node.ask(RemoveRaftVoterRequest("cluster", key(1))).error == VOTER_NOT_FOUND


@pytest.mark.parametrize("request_", [ADD, REMOVE], ids=["add", "remove"])
def test_static_voters_cannot_be_changed(request_: Request) -> None:
    assert leading().ask(request_).error == UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    "request_",
    [
        replace(ADD, voter=ReplicaKey(-1)),
        replace(REMOVE, voter=ReplicaKey(3)),
        replace(UPDATE, voter=ReplicaKey(3)),
        UpdateKRaftVersionRequest(1),
    ],
    ids=["add", "remove", "update", "upgrade"],
)
def test_a_node_that_does_not_lead_says_so_first(request_: Request) -> None:
    assert follower().ask(request_).error == NOT_LEADER
