"""The transition table: events cause every row, and no other transition is possible."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from kraft.raft.election_state import ElectionState
from kraft.raft.interface import Resign, Role, WriteElectionState
from kraft.raft.rpc import BeginQuorumEpochRequest, VoteRequest
from kraft.raft.transitions import TRANSITIONS, Timer, TransitionCause
from tests.harness.raft_nodes import MAKERS, Driver, driven, endpoint, key, static


def see_a_higher_epoch(node: Driver) -> None:
    # The candidate's log is too short: the node adopts the epoch and rejects the vote.
    node.ask(VoteRequest("cluster", node.node.epoch + 4, key(2), key(1), 0, 0))


def learn_the_leader(node: Driver) -> None:
    # A present or former leader learns another leader by a later epoch only; a follower learns more
    # endpoints of the same leader.
    epoch = node.node.epoch + (node.role in (Role.LEADER, Role.RESIGNED))
    endpoints = (endpoint(2), endpoint(22))
    node.ask(BeginQuorumEpochRequest("cluster", epoch, 2, key(1), endpoints))


def grant_a_vote(node: Driver) -> None:
    assert node.ask(VoteRequest("cluster", node.node.epoch, key(2), key(1), 2, 6)).is_granted


def let_the_election_time_out(node: Driver) -> None:
    node.wait(node.node.election_deadline_ms - node.now_ms)


def let_the_fetch_time_out(node: Driver) -> None:
    node.wait(2000)


def win(node: Driver) -> None:
    node.answer_votes(only=2)


def lose(node: Driver) -> None:
    node.answer_votes(is_granted=False)


def resign(node: Driver) -> None:
    node.step(Resign(node.node.epoch))


WAYS: dict[TransitionCause, Callable[[Driver], None]] = {
    TransitionCause.HIGHER_EPOCH: see_a_higher_epoch,
    TransitionCause.LEADER_LEARNED: learn_the_leader,
    TransitionCause.VOTE_GRANTED: grant_a_vote,
    TransitionCause.ELECTION_TIMEOUT: let_the_election_time_out,
    TransitionCause.FETCH_TIMEOUT: let_the_fetch_time_out,
    TransitionCause.WON: win,
    TransitionCause.LOST: lose,
    TransitionCause.LEADER_GONE: let_the_election_time_out,
    TransitionCause.RESIGNED: resign,
    TransitionCause.RESIGNATION_OVER: let_the_election_time_out,
}


def made(role: Role, cause: TransitionCause) -> Driver:
    if (role, cause) == (Role.RESIGNED, TransitionCause.ELECTION_TIMEOUT):
        # A restarted sole voter, before its first step.
        return driven(ElectionState(3, 1), voters=static(1))
    return MAKERS[role]()


def rows() -> list[Any]:
    return [pytest.param(*row, id=f"{row[0].name}-{row[1].name}") for row in TRANSITIONS]


@pytest.mark.parametrize(("role", "cause"), rows())
def test_every_row_of_the_table_of_transitions_occurs(role: Role, cause: TransitionCause) -> None:
    """The role, the quorum-state file and the election timer change as the row says."""
    driver = made(role, cause)
    node, rule = driver.node, TRANSITIONS[role, cause]
    walked: list[tuple[Role, TransitionCause, Role]] = []
    transition = node.transition

    def watch(why: TransitionCause, **what: Any) -> None:
        before, deadline_ms = node.role, node.election_deadline_ms
        transition(why, **what)
        walked.append((before, why, node.role))
        if (before, why) == (role, cause):
            timers = {
                Timer.DRAWN: driver.now_ms + 1500,
                Timer.KEPT: deadline_ms,
                Timer.NONE: float("inf"),
            }
            assert node.election_deadline_ms == timers[rule.timer]

    node.transition = watch  # type: ignore[method-assign]
    WAYS[cause](driver)
    assert walked[0] == (role, cause, rule.target)
    is_persisted = any(isinstance(write, WriteElectionState) for write in driver.written)
    if len(walked) == 1:
        assert is_persisted == rule.persists


@pytest.mark.parametrize(
    ("role", "cause"),
    [
        pytest.param(*row, id=f"{row[0].name}-{row[1].name}")
        for row in product(Role, TransitionCause)
        if row not in TRANSITIONS
    ],
)
def test_other_causes_raise_an_error(role: Role, cause: TransitionCause) -> None:
    driver = MAKERS[role]()
    with pytest.raises(AssertionError, match="no transition from"):
        driver.node.transition(cause)
    assert driver.role is role


def test_only_prospective_becomes_candidate_and_only_candidate_leader() -> None:
    into = {
        target: {role for (role, _), rule in TRANSITIONS.items() if rule.target is target}
        for target in Role
    }
    assert into[Role.CANDIDATE] == {Role.PROSPECTIVE}
    assert into[Role.LEADER] == {Role.CANDIDATE}
    assert into[Role.RESIGNED] == {Role.LEADER}


def test_only_prospective_and_resigned_write_no_quorum_state() -> None:
    """Every other transition is durable before it is visible (Kafka's ``durableTransitionTo``)."""
    unwritten = {rule.target for rule in TRANSITIONS.values() if not rule.persists}
    assert unwritten == {Role.PROSPECTIVE, Role.RESIGNED}
    assert all(
        rule.persists != (rule.target in unwritten)
        for (role, cause), rule in TRANSITIONS.items()
        if cause is not TransitionCause.VOTE_GRANTED
    )
