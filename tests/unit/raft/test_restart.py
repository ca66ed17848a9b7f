"""The role in which a node starts with its disk (Kafka's ``QuorumState.initialize``)."""

import pytest

from kraft.raft.election_state import ElectionState
from kraft.raft.interface import Role, RoleChange, WriteElectionState
from kraft.raft.log_view import LogView
from kraft.raft.rpc import EndQuorumEpochRequest, FetchRequest, VoteRequest
from kraft.raft.voters import ReplicaKey
from tests.harness.raft_nodes import EPOCH, driven, dynamic, key, static


@pytest.mark.parametrize(
    ("election", "role", "leader_id", "voted"),
    [
        (ElectionState(EPOCH), Role.UNATTACHED, -1, None),
        (ElectionState(EPOCH, -1, key(2)), Role.UNATTACHED, -1, key(2)),
        (ElectionState(EPOCH, 2), Role.FOLLOWER, 2, None),
        (ElectionState(EPOCH, 2, key(3)), Role.FOLLOWER, 2, key(3)),
        # A leader without a known endpoint cannot be followed.
        (ElectionState(EPOCH, 9), Role.UNATTACHED, 9, None),
        (ElectionState(EPOCH, 9, key(3)), Role.UNATTACHED, 9, key(3)),
        (ElectionState(EPOCH, 1), Role.RESIGNED, 1, None),
        (ElectionState(EPOCH, 1, key(1)), Role.RESIGNED, 1, key(1)),
        (ElectionState(EPOCH, -1, key(1)), Role.CANDIDATE, -1, key(1)),
        (ElectionState(EPOCH, -1, ReplicaKey(1)), Role.CANDIDATE, -1, ReplicaKey(1)),
        # The vote names this id with another directory: another replica.
        (ElectionState(EPOCH, -1, key(1, 7)), Role.UNATTACHED, -1, key(1, 7)),
        # It voted for itself, then another node led: the vote decides, as in Kafka.
        (ElectionState(EPOCH, 2, key(1)), Role.CANDIDATE, -1, key(1)),
    ],
)
def test_a_node_begins_in_the_role_of_its_quorum_state(
    election: ElectionState, role: Role, leader_id: int, voted: ReplicaKey | None
) -> None:
    node = driven(election).node
    assert (node.role, node.epoch, node.leader_id, node.voted) == (role, EPOCH, leader_id, voted)
    assert node.log.high_watermark == -1, "the node learns it from the leader"


def test_a_later_epoch_of_the_log_overrides_the_file() -> None:
    """The quorum-state file was lost or is an old copy: its vote and leader are obsolete."""
    node = driven(ElectionState(1, 1, key(1)), log=((1, 4), (5, 6)))
    assert (node.role, node.node.epoch, node.node.voted) == (Role.UNATTACHED, 5, None)
    node.step()
    assert node.written[0] == WriteElectionState(5, -1, -1, None, 0)


def test_a_node_starts_without_quorum_state_and_log() -> None:
    node = driven(ElectionState(), log=())
    assert (node.role, node.node.epoch) == (Role.UNATTACHED, 0)
    (send,) = node.step().requests(FetchRequest)
    assert (send.request.epoch, send.request.offset) == (0, 0)


def test_a_restarted_candidate_requests_votes_without_pre_votes() -> None:
    node = driven(ElectionState(EPOCH, -1, key(1))).step()
    asked = [send.request for send in node.requests(VoteRequest)]
    assert [(request.epoch, request.is_pre_vote) for request in asked] == [(EPOCH, False)] * 2


def test_a_restarted_leader_resigns_and_is_not_announced() -> None:
    node = driven(ElectionState(EPOCH, 1)).step()
    assert [send.destination for send in node.requests(EndQuorumEpochRequest)] == [2, 3]
    assert node.ready.role_change == RoleChange(Role.RESIGNED, EPOCH, -1)


@pytest.mark.parametrize(
    ("election", "epoch"),
    [
        (ElectionState(EPOCH), EPOCH + 1),
        (ElectionState(EPOCH, 1, key(1)), EPOCH + 1),
        (ElectionState(EPOCH, 9), EPOCH + 1),
        (ElectionState(EPOCH, -1, key(2)), EPOCH + 1),
        # A candidate that was stopped before it led can still win its epoch.
        (ElectionState(EPOCH, -1, key(1)), EPOCH),
    ],
)
def test_a_sole_voter_leads_without_waiting(election: ElectionState, epoch: int) -> None:
    node = driven(election, voters=static(1)).step()
    assert (node.role, node.node.epoch) == (Role.LEADER, epoch)
    assert node.node.log.high_watermark == node.node.log.end_offset, "a sole voter is a majority"


def test_a_sole_voter_that_was_a_follower_leads_without_waiting() -> None:
    """The other voters were removed while it was down."""
    node = driven(ElectionState(EPOCH, 2), voters=static(1, 2), draw=0.0)
    assert node.role is Role.FOLLOWER
    alone = driven(ElectionState(EPOCH, 2), voters=dynamic(1), kraft_version=1).step()
    assert (alone.role, alone.node.epoch) == (Role.LEADER, EPOCH + 1)


@pytest.mark.parametrize(
    "election",
    [
        ElectionState(EPOCH),
        ElectionState(EPOCH, -1, key(1)),
        ElectionState(EPOCH, 9),
    ],
)
def test_an_observer_has_no_election_timer(election: ElectionState) -> None:
    node = driven(election, voters=static(2, 3)).step()
    assert node.role is Role.UNATTACHED
    node.wait(100_000)
    assert node.role is Role.UNATTACHED
    assert node.node.epoch == EPOCH


def test_a_broker_never_stands_for_election() -> None:
    node = driven(ElectionState(EPOCH), voters=static(1, 2, 3), can_vote=False).step()
    node.wait(100_000)
    assert (node.role, node.node.epoch) == (Role.UNATTACHED, EPOCH)


def test_a_node_starts_with_the_voters_of_its_log() -> None:
    view = LogView(static_voters=static(1, 2, 3))
    assert view.voters == static(1, 2, 3)
    view.load_snapshot_voters(dynamic(4), 1)
    assert (view.voters, view.kraft_version, view.voters_offset) == (dynamic(4), 1, -1)
