"""A leader answers the waiting fetches of its observers in rounds, and those of voters at once."""

from dataclasses import replace
from typing import Any

import pytest

from kraft.errors import NOT_LEADER_OR_FOLLOWER
from kraft.raft.interface import Resign, ResponseReceived
from kraft.raft.observer_purgatory import ANSWER_MS, BURST_MS, MAX_DELAY_MS
from kraft.raft.rpc import (
    AddRaftVoterRequest,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchRequest,
    LogSlice,
    RemoveRaftVoterRequest,
)
from kraft.raft.voters import KRaftVersionRange
from tests.harness.raft_nodes import (
    EPOCH,
    Driver,
    dynamic,
    endpoint,
    fetched_by,
    key,
    leader,
)

START = 6  #: where the leader's epoch begins in its log
WAIT_MS = 500
FIRST_OBSERVER = 10


def quiet_leader(**given: Any) -> Driver:
    """Return a leader whose log is committed, and was quiet for a while."""
    node = leader(**given)
    following(node, 0)
    following(node, BURST_MS)
    return node


def following(node: Driver, ms: float) -> None:
    """Let time pass and the voters fetch, so that the leader does not resign."""
    node.wait(ms)
    for id in (2, 3):
        fetched_by(node, id)


def wait_as(node: Driver, id: int, offset: int | None = None) -> int:
    """Fetch from the log's end, or ``offset``, as a replica that knows the high watermark; return
    the number of the fetch, which has to wait.
    """
    high_watermark = node.node.log.high_watermark
    at = node.node.log.end_offset if offset is None else offset
    request = FetchRequest("cluster", key(id), EPOCH, at, EPOCH, WAIT_MS)
    assert node.ask(replace(request, high_watermark=high_watermark)) is None
    return node._reply_to


def commit(node: Driver) -> None:
    """Let voter 2 have the log on its disk."""
    before = node.node.log.high_watermark
    fetched_by(node, 2)
    assert node.node.log.high_watermark == node.node.log.end_offset > before


def test_an_observer_gets_a_change_in_one_answer_once_it_is_committed() -> None:
    node = quiet_leader()
    observer, voter = wait_as(node, 9), wait_as(node, 3)
    node.append(b"a")
    assert node.answer(voter).records, "voters get what is durable: a commit waits for them"
    assert node.answer(observer) is None
    commit(node)
    answer = node.answer(observer)
    assert answer.records == LogSlice(START + 1, START + 2, 8 << 20)
    assert answer.high_watermark == START + 2


def test_observers_that_wait_at_the_same_place_get_one_response() -> None:
    """Encoding it once is a tenth of the work of a leader with a thousand observers."""
    node = quiet_leader()
    end = node.node.log.end_offset
    node.append(b"a")
    same = [wait_as(node, FIRST_OBSERVER + each, end) for each in range(3)]
    ahead = wait_as(node, FIRST_OBSERVER + 3, end + 1)
    commit(node)
    first, *others = [node.answer(each) for each in same]
    assert first.records == LogSlice(end, end + 1, 8 << 20)
    assert all(each is first for each in others)
    assert not node.answer(ahead).records
    assert node.answer(ahead).high_watermark == end + 1


def test_a_fetch_that_arrives_before_the_commit_waits_for_it() -> None:
    node = quiet_leader()
    node.append(b"a")
    observer = wait_as(node, 9, START + 1)
    assert fetched_by(node, 3, START + 1, max_wait_ms=WAIT_MS).records
    commit(node)
    assert node.answer(observer).high_watermark == START + 2


def test_records_that_are_not_committed_in_time_are_sent_at_the_deadline() -> None:
    """As in Kafka: a leader without a majority still shows its log to observers."""
    node = quiet_leader()
    node.append(b"a")
    observer = wait_as(node, 9, START + 1)
    node.wait(WAIT_MS)
    assert node.answer(observer).records == LogSlice(START + 1, START + 2, 8 << 20)
    assert node.answer(observer).high_watermark == START + 1


def answer_the_burst(node: Driver) -> None:
    """Answer an observer that is behind, until the next round has to wait."""
    for _ in range(int(BURST_MS / ANSWER_MS)):
        assert fetched_by(node, 8, START, max_wait_ms=WAIT_MS).records


def test_a_few_changes_after_each_other_are_announced_at_once() -> None:
    node = quiet_leader()
    for _ in range(5):
        observer = wait_as(node, 9)
        node.append(b"a")
        commit(node)
        assert node.answer(observer).records


def test_commits_that_follow_each_other_are_announced_together() -> None:
    observers = range(FIRST_OBSERVER, FIRST_OBSERVER + 50)
    node = quiet_leader()
    answer_the_burst(node)
    for id in observers:
        wait_as(node, id)
    node.append(b"a")
    commit(node)
    begin_ms = node.now_ms
    assert len(node.sent) == len(observers) + 1

    waiting = [wait_as(node, id) for id in observers]
    for _ in range(3):
        node.append(b"b")
        commit(node)
        node.wait(1)
        assert not any(node.answer(each) for each in waiting)
    assert node.ready.wake_at_ms == pytest.approx(begin_ms + ANSWER_MS * len(observers))
    node.wait(node.ready.wake_at_ms - node.now_ms)
    for each in waiting:
        assert node.answer(each).records == LogSlice(START + 2, START + 5, 8 << 20)


def test_voters_wait_for_no_round() -> None:
    node = quiet_leader()
    for id in range(FIRST_OBSERVER, FIRST_OBSERVER + 50):
        wait_as(node, id)
    for _ in range(3):
        voter = wait_as(node, 3)
        node.append(b"a")
        assert node.answer(voter).records
        commit(node)


def test_an_observer_that_missed_a_round_is_answered_at_once() -> None:
    node = quiet_leader()
    request = FetchRequest("cluster", key(9), EPOCH, START + 1, EPOCH, WAIT_MS)
    wait_as(node, 8)
    node.append(b"a")
    commit(node)
    assert node.ask(replace(request, high_watermark=START + 1)).records
    behind = replace(request, offset=START + 2, high_watermark=START + 1)
    assert node.ask(behind).high_watermark == START + 2
    assert node.ask(replace(behind, high_watermark=START + 2)) is None


def test_no_commit_waits_longer_for_its_round_than_the_bound() -> None:
    node = quiet_leader()
    for _ in range(3):
        answer_the_burst(node)
    observer = wait_as(node, 9)
    node.append(b"a")
    commit(node)
    assert node.answer(observer) is None
    node.wait(MAX_DELAY_MS - 1)
    assert node.answer(observer) is None
    node.wait(1)
    assert node.answer(observer).records


def test_after_a_quiet_time_a_change_is_announced_at_once_again() -> None:
    node = quiet_leader()
    answer_the_burst(node)
    answer_the_burst(node)
    following(node, BURST_MS + MAX_DELAY_MS)
    observer = wait_as(node, 9)
    node.append(b"a")
    commit(node)
    assert node.answer(observer).records


def test_records_of_earlier_epochs_do_not_wait_for_the_first_commit() -> None:
    node = leader()
    assert fetched_by(node, 9, START - 1, max_wait_ms=WAIT_MS).records
    node.wait(1)
    observer = wait_as(node, 9, START)
    commit(node)
    assert node.answer(observer).high_watermark == START + 1


def test_an_old_fetch_without_a_high_watermark_is_answered_in_the_next_round() -> None:
    """Before Fetch v18 a leader cannot know whether its sender knows the high watermark."""
    node = quiet_leader()
    node.append(b"a")
    assert fetched_by(node, 9, max_wait_ms=WAIT_MS) is None
    observer = node._reply_to
    commit(node)
    assert node.answer(observer).high_watermark == START + 2


# -- voters that were observers, and the reverse


def test_the_fetch_of_an_observer_that_becomes_a_voter_gets_what_is_durable() -> None:
    """It may be needed to commit the record that adds it."""
    node = leader(voters=dynamic(1, 2, 3), kraft_version=1)
    fetched_by(node, 2)
    fetched_by(node, 4)
    assert node.ask(AddRaftVoterRequest("cluster", 1000, key(4), (endpoint(4),))) is None
    (ask,) = node.requests(ApiVersionsRequest)
    waiting = wait_as(node, 4)
    node.step(ResponseReceived(ask.correlation, ApiVersionsResponse(0, KRaftVersionRange(0, 1))))
    assert node.node.voters.is_voter(key(4))
    assert node.answer(waiting).records


def test_the_fetch_of_a_voter_that_is_removed_waits_as_that_of_an_observer() -> None:
    node = quiet_leader(voters=dynamic(1, 2, 3), kraft_version=1)
    waiting = wait_as(node, 3)
    assert node.ask(RemoveRaftVoterRequest("cluster", key(3))) is None
    assert node.answer(waiting) is None
    commit(node)
    assert node.answer(waiting).high_watermark == node.node.log.end_offset


@pytest.mark.parametrize("id", [3, 9])
def test_a_leader_that_resigns_answers_the_fetches_of_voters_and_observers(id: int) -> None:
    node = quiet_leader()
    waiting = wait_as(node, id)
    node.step(Resign(EPOCH))
    assert node.answer(waiting).error == NOT_LEADER_OR_FOLLOWER
