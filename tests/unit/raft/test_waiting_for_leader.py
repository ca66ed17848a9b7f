"""Fetches of observers that wait for a leader: when they wait, and what ends it."""

from typing import Any

import pytest

from kraft.errors import FENCED_LEADER_EPOCH, NONE, NOT_LEADER_OR_FOLLOWER, UNKNOWN_LEADER_EPOCH
from kraft.raft.interface import RequestAbandoned, RequestFailed, SendResponse, Shutdown
from kraft.raft.rpc import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
)
from tests.harness.raft_nodes import (
    EPOCH,
    Driver,
    answer,
    candidate,
    fetch_of,
    fetched_by,
    follower,
    key,
    leader,
    prospective,
    resigned,
    unattached,
)

OBSERVER, WAIT_MS = 7, 500


def without_leader() -> Driver:
    """Return a follower of node 2 whose connection to it has failed."""
    node = follower()
    return node.step(RequestFailed(fetch_of(node).correlation))


def waits(node: Driver, id: int = OBSERVER) -> bool:
    return fetched_by(node, id, max_wait_ms=WAIT_MS) is None


def answers(node: Driver) -> list[Any]:
    return [send.response for send in node.sent if isinstance(send, SendResponse)]


@pytest.mark.parametrize("make", [unattached, prospective, candidate, without_leader])
def test_a_node_without_a_leader_lets_observers_wait(make: Any) -> None:
    node = make()
    assert waits(node)
    assert node.ready.wake_at_ms <= node.now_ms + WAIT_MS


@pytest.mark.parametrize("make", [follower, resigned, leader])
def test_other_nodes_answer_at_once(make: Any) -> None:
    node = make()
    response = fetched_by(node, OBSERVER, 0, max_wait_ms=WAIT_MS)
    assert response.error == (NONE if make is leader else NOT_LEADER_OR_FOLLOWER)
    assert response.leader_id == node.node.leader_id


def test_voters_do_not_wait_so_that_they_can_send_votes() -> None:
    response = fetched_by(unattached(), 3, max_wait_ms=WAIT_MS)
    assert response.error == NOT_LEADER_OR_FOLLOWER


def test_who_does_not_want_to_wait_does_not() -> None:
    assert fetched_by(unattached(), OBSERVER).error == NOT_LEADER_OR_FOLLOWER


def test_the_epoch_of_a_lost_leader_waits_for_the_next_leader_too() -> None:
    node = unattached(EPOCH)
    assert node.ask(FetchRequest("cluster", key(OBSERVER), EPOCH - 1, 0, 0, WAIT_MS)) is None
    later = node.ask(FetchRequest("cluster", key(OBSERVER), EPOCH + 1, 0, 0, WAIT_MS))
    assert later.error == UNKNOWN_LEADER_EPOCH


def test_the_wait_ends_after_its_time() -> None:
    node = unattached(draw=0.9)
    assert waits(node)
    assert not answers(node.wait(WAIT_MS - 1))
    (response,) = answers(node.wait(1))
    assert (response.error, response.leader_id) == (NOT_LEADER_OR_FOLLOWER, -1)
    assert not answers(node.wait(WAIT_MS))


def test_no_wait_is_longer_than_the_fetch_timeout() -> None:
    node = unattached(draw=0.9)
    node.ask(FetchRequest("cluster", key(OBSERVER), EPOCH, 0, 0, 1 << 30))
    limit_ms = node.node.config.fetch_timeout_ms
    assert node.node.waiting_for_leader.next_deadline_ms == node.now_ms + limit_ms


def test_observers_learn_the_next_leader_when_the_node_does() -> None:
    node = unattached()
    assert waits(node)
    node.ask(BeginQuorumEpochRequest("cluster", EPOCH + 1, 2, key(1)))
    (response,) = [each for each in answers(node) if isinstance(each, FetchResponse)]
    assert (response.error, response.epoch, response.leader_id) == (
        FENCED_LEADER_EPOCH,
        EPOCH + 1,
        2,
    )


@pytest.mark.parametrize("behind", [0, 1])
def test_a_candidate_that_wins_answers_as_the_leader(behind: int) -> None:
    node = prospective(EPOCH - 1)
    node.answer_votes(only=2)
    votes = list(node.sent)
    assert node.ask(FetchRequest("cluster", key(OBSERVER), EPOCH - behind, 0, 0, WAIT_MS)) is None
    node.sent = votes
    (response,) = answers(node.answer_votes(only=2))
    error = FENCED_LEADER_EPOCH if behind else NONE
    assert (response.error, response.epoch, response.leader_id) == (error, EPOCH, 1)


def test_a_leader_that_answers_again_is_a_leader() -> None:
    node = without_leader()
    assert waits(node)
    node.wait(node.node.config.retry_backoff_ms)
    fetch = next(send for send in node.requests(FetchRequest) if send.destination == 2)
    (response,) = answers(node.reply(fetch, answer()))
    assert (response.error, response.leader_id) == (NOT_LEADER_OR_FOLLOWER, 2)
    assert not waits(node)


def test_a_resigned_leader_is_no_leader() -> None:
    node = follower(has_fetched=True)
    node.ask(EndQuorumEpochRequest("cluster", EPOCH, 2, (key(3), key(1))))
    assert waits(node)


def test_a_node_that_shuts_down_answers() -> None:
    node = unattached()
    assert waits(node)
    (response,) = answers(node.step(Shutdown()))
    assert response.error == NOT_LEADER_OR_FOLLOWER
    assert not waits(node)


def test_a_closed_connection_waits_no_longer() -> None:
    node = unattached(draw=0.9)
    assert waits(node)
    (reply_to,) = node.node.waiting_for_leader.waiting
    node.step(RequestAbandoned(reply_to))
    assert not node.node.waiting_for_leader.waiting
    assert not answers(node.wait(WAIT_MS))


def test_a_leader_known_at_the_end_of_the_wait_is_an_answer_too() -> None:
    node = prospective(EPOCH - 1)
    node.answer_votes(only=2)
    votes = list(node.sent)
    assert fetched_by(node, OBSERVER, 0, max_wait_ms=WAIT_MS) is None
    node.sent = votes
    node.now_ms += WAIT_MS
    (response,) = answers(node.answer_votes(only=2))
    # Records, as of a leader, and not an empty response.
    assert (response.error, response.leader_id, bool(response.records)) == (NONE, 1, True)
