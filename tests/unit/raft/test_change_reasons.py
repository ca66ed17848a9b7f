"""Every ``RoleChange`` has its reason: one line about why the role, epoch or leader changed."""

from collections.abc import Callable

import pytest

from kraft.raft.interface import Resign, Role, Shutdown
from kraft.raft.rpc import BeginQuorumEpochRequest, EndQuorumEpochRequest, VoteRequest
from tests.harness.raft_nodes import (
    EPOCH,
    Driver,
    candidate,
    driven,
    endpoint,
    follower,
    key,
    leader,
    prospective,
    static,
    unattached,
)


def fetch_timeout() -> Driver:
    return follower(has_fetched=True).wait(2000)


def resigned_leader() -> Driver:
    node = follower(has_fetched=True)
    node.ask(EndQuorumEpochRequest("cluster", EPOCH, 2, (key(1), key(3))))
    return node


def election_timeout() -> Driver:
    return unattached().wait(2000)


def requested_vote() -> Driver:
    node = follower(has_fetched=True)
    node.ask(VoteRequest("cluster", EPOCH + 1, key(3), key(1), 2, 6))
    return node


def announced_leader() -> Driver:
    node = unattached()
    node.ask(BeginQuorumEpochRequest("cluster", EPOCH + 1, 2, key(1), (endpoint(2),)))
    return node


def vote_before_the_leader() -> Driver:
    node = unattached()
    node.ask(VoteRequest("cluster", EPOCH, key(3), key(1), 2, 6))
    node.ask(BeginQuorumEpochRequest("cluster", EPOCH, 3, key(1), (endpoint(3),)))
    return node


def check_quorum() -> Driver:
    return leader().wait(60_000)


def asked_to_resign() -> Driver:
    return leader().step(Resign(EPOCH))


def shutting_down() -> Driver:
    return leader().step(Shutdown(5000))


def pre_votes_rejected() -> Driver:
    return prospective().answer_votes(is_granted=False)


def votes_unanswered() -> Driver:
    node = candidate()
    return node.wait(node.node.election_deadline_ms - node.now_ms)


def started() -> Driver:
    return driven().step()


def sole_voter() -> Driver:
    return driven(voters=static(1)).step()


@pytest.mark.parametrize(
    ("make", "role", "reason"),
    [
        (
            fetch_timeout,
            Role.PROSPECTIVE,
            "leader 2 sent no valid response within 2000 ms (fetch timeout)",
        ),
        (resigned_leader, Role.PROSPECTIVE, "leader 2 resigned"),
        (
            election_timeout,
            Role.PROSPECTIVE,
            f"no leader of epoch {EPOCH} was found within the election timeout",
        ),
        (
            requested_vote,
            Role.UNATTACHED,
            f"node 3 asked for a vote of epoch {EPOCH + 1}; voted for node 3",
        ),
        (
            announced_leader,
            Role.FOLLOWER,
            f"BeginQuorumEpochRequest of node 2 names leader 2 of epoch {EPOCH + 1}",
        ),
        (
            vote_before_the_leader,
            Role.FOLLOWER,
            f"voted for node 3; BeginQuorumEpochRequest of node 3 names leader 3 of epoch {EPOCH}",
        ),
        (candidate, Role.CANDIDATE, "pre-votes granted by 1 and 2, no answer from 3"),
        (leader, Role.LEADER, "elected: votes granted by 1 and 2, no answer from 3"),
        (
            pre_votes_rejected,
            Role.UNATTACHED,
            "not elected: pre-votes granted by 1, rejected by 2 and 3",
        ),
        (
            votes_unanswered,
            Role.PROSPECTIVE,
            "not elected within the election timeout: votes granted by 1, no answer from 2 and 3",
        ),
        (
            check_quorum,
            Role.RESIGNED,
            "no majority of the voters fetched within 3000 ms (check quorum)"
            "; preferred next leaders: 2, 3",
        ),
        (
            asked_to_resign,
            Role.RESIGNED,
            "the controller of this leader gave up; preferred next leaders: 2, 3",
        ),
        (shutting_down, Role.RESIGNED, "this leader shuts down; preferred next leaders: 2, 3"),
        (started, Role.UNATTACHED, "the node started"),
    ],
)
def test_every_role_change_has_its_reason(
    make: Callable[[], Driver], role: Role, reason: str
) -> None:
    change = make().ready.role_change
    assert change is not None
    assert (change.role, change.reason) == (role, reason)


def test_the_election_of_a_sole_voter_is_one_role_change() -> None:
    change = sole_voter().ready.role_change
    assert change is not None
    assert change.role is Role.LEADER
    assert change.reason == (
        "this node is the only voter; pre-votes granted by 1; elected: votes granted by 1"
    )
