"""Votes: which requests each role grants (the table of KIP-996), and the effects of a grant."""

from typing import Any

import pytest

from kraft.raft.election_state import ElectionState
from kraft.raft.interface import Role, WriteElectionState
from kraft.raft.rpc import VoteRequest
from kraft.raft.voters import ReplicaKey
from kraft.records.batches import encode_control_records
from tests.harness.raft_nodes import (
    EPOCH,
    LOG,
    MAKERS,
    Driver,
    directory,
    driven,
    dynamic,
    election_of,
    key,
    unattached,
)

END = LOG[-1][1]
BEHIND, EQUAL, AHEAD = "behind", "equal", "ahead"


def vote(node: Driver, log: str, *, is_pre_vote: bool, by: ReplicaKey | None = None) -> Any:
    own = node.node.log
    offset = own.end_offset + {BEHIND: -1, EQUAL: 0, AHEAD: 5}[log]
    last_epoch = own.last_epoch
    epoch = node.node.epoch
    if last_epoch >= epoch and not is_pre_vote:
        # The leader's log has records of its epoch; no candidate of that epoch can have them.
        last_epoch = epoch - 1
    return node.ask(
        VoteRequest("cluster", epoch, by or key(2), key(1), last_epoch, offset, is_pre_vote)
    )


UP_TO_DATE = {BEHIND: False, EQUAL: True, AHEAD: True}
NEVER = dict.fromkeys(UP_TO_DATE, False)
ALWAYS = dict.fromkeys(UP_TO_DATE, True)

CELLS = {
    # role and known leader or vote: (pre-vote, real vote)
    ("UNATTACHED", "nothing"): (UP_TO_DATE, UP_TO_DATE),
    ("UNATTACHED", "voted for the sender"): (UP_TO_DATE, ALWAYS),
    ("UNATTACHED", "voted for another"): (UP_TO_DATE, NEVER),
    ("UNATTACHED", "a leader"): (UP_TO_DATE, NEVER),
    ("PROSPECTIVE", "nothing"): (UP_TO_DATE, UP_TO_DATE),
    ("PROSPECTIVE", "voted for the sender"): (UP_TO_DATE, ALWAYS),
    ("PROSPECTIVE", "voted for another"): (UP_TO_DATE, NEVER),
    ("PROSPECTIVE", "a leader"): (UP_TO_DATE, NEVER),
    ("CANDIDATE", "nothing"): (UP_TO_DATE, NEVER),
    ("RESIGNED", "nothing"): (UP_TO_DATE, NEVER),
    ("LEADER", "nothing"): (NEVER, NEVER),
    ("FOLLOWER", "nothing"): (UP_TO_DATE, NEVER),
    ("FOLLOWER", "voted for the sender"): (UP_TO_DATE, NEVER),
    ("FOLLOWER", "a good answer"): (NEVER, NEVER),
}
KNOWN: dict[str, dict[str, Any]] = {
    "nothing": {},
    "voted for the sender": {"voted": key(2)},
    "voted for another": {"voted": key(3)},
    "a leader": {"leader_id": 9},
    "a good answer": {"has_fetched": True},
}


@pytest.mark.parametrize("log", [BEHIND, EQUAL, AHEAD])
@pytest.mark.parametrize("is_pre_vote", [True, False], ids=["pre", "real"])
@pytest.mark.parametrize(("role", "known"), list(CELLS))
def test_which_votes_are_granted(role: str, known: str, is_pre_vote: bool, log: str) -> None:
    node = MAKERS[Role[role]](**KNOWN[known])
    expected = CELLS[role, known][0 if is_pre_vote else 1][log]
    before = node.election

    answer = vote(node, log, is_pre_vote=is_pre_vote)

    assert answer.error == 0
    assert answer.is_granted is expected
    assert node.role is Role[role]
    if is_pre_vote or not expected:
        # A pre-vote or a rejection changes nothing.
        assert node.election == before
        assert not any(isinstance(write, WriteElectionState) for write in node.written)
    else:
        assert node.node.voted == key(2)


def test_a_later_epoch_beats_a_longer_log() -> None:
    """Logs compare by the epoch of their last record, then by their end."""
    node = unattached()
    request = VoteRequest("cluster", EPOCH, key(2), key(1), 1, 100)
    assert not node.ask(request).is_granted
    request = VoteRequest("cluster", EPOCH + 1, key(2), key(1), EPOCH, 1)
    assert node.ask(request).is_granted


def test_a_vote_includes_the_directory() -> None:
    """The same id with another directory is another replica; a vote without one matches both."""
    node = unattached(voted=key(2))
    assert not vote(node, AHEAD, is_pre_vote=False, by=key(2, 7)).is_granted
    assert vote(node, AHEAD, is_pre_vote=False, by=key(2)).is_granted
    node = unattached(voted=ReplicaKey(2))
    assert vote(node, AHEAD, is_pre_vote=False, by=key(2, 7)).is_granted


def test_the_sender_need_not_be_a_voter() -> None:
    """This node's voter set may be older than the sender's (KIP-853)."""
    assert vote(unattached(), EQUAL, is_pre_vote=False, by=key(77)).is_granted


def test_a_granted_vote_is_durable_before_the_response() -> None:
    node = unattached()
    node.is_disk_stalled = True
    assert vote(node, EQUAL, is_pre_vote=False) is None
    (write,) = node.written
    assert write == WriteElectionState(EPOCH, -1, 2, directory(2), 0)
    node.sync()
    assert node.answer(1).is_granted
    # The same request again needs no write.
    assert vote(node, BEHIND, is_pre_vote=False).is_granted
    assert node.written == []


def test_a_granted_vote_draws_a_new_timeout() -> None:
    node = unattached()
    node.wait(1400)
    vote(node, EQUAL, is_pre_vote=False)
    assert node.node.election_deadline_ms == node.now_ms + 1500


def test_a_prospective_node_that_grants_restarts_its_pre_votes() -> None:
    node = MAKERS[Role.PROSPECTIVE]()
    node.answer_votes(is_granted=False, only=3)
    vote(node, EQUAL, is_pre_vote=False)
    election = election_of(node)
    assert election.rejected == set()
    assert election.granted == {1}


def test_a_prospective_node_asks_a_voter_again_that_stands_with_a_shorter_log() -> None:
    """The voter rejected while it followed the leader. Now it follows nobody, and cannot win."""
    node = MAKERS[Role.PROSPECTIVE]()
    node.answer_votes(is_granted=False, only=3)
    assert election_of(node).rejected == {3}
    assert not vote(node, BEHIND, is_pre_vote=True, by=key(3)).is_granted
    assert election_of(node).rejected == set()
    assert 3 in [send.destination for send in node.requests(VoteRequest)]


@pytest.mark.parametrize("log", [EQUAL, AHEAD])
def test_a_prospective_node_does_not_ask_a_voter_again_whose_pre_vote_it_grants(log: str) -> None:
    node = MAKERS[Role.PROSPECTIVE]()
    node.answer_votes(is_granted=False, only=3)
    assert vote(node, log, is_pre_vote=True, by=key(3)).is_granted
    assert election_of(node).rejected == {3}


def test_a_prospective_node_does_not_ask_a_voter_again_that_asks_for_a_vote() -> None:
    """A candidate of this epoch rejects pre-votes only for the log."""
    node = MAKERS[Role.PROSPECTIVE]()
    node.answer_votes(is_granted=False, only=3)
    assert not vote(node, BEHIND, is_pre_vote=False, by=key(3)).is_granted
    assert election_of(node).rejected == {3}


def test_a_removed_prospective_node_does_not_ask_a_voter_again() -> None:
    """It names an earlier log end than its own: both could reject each other without a pause."""
    node = driven(ElectionState(EPOCH), voters=dynamic(1, 2, 3, 4), kraft_version=1)
    record = encode_control_records([dynamic(2, 3, 4).to_record()], base_offset=6, epoch=EPOCH)
    log = node.node.log
    log.append(6, 7, EPOCH)
    log.replay_control_batch(memoryview(bytes(record)))
    assert node.node.is_electable
    assert not node.node.is_voter
    node.wait(2000)
    assert node.role is Role.PROSPECTIVE
    node.answer_votes(is_granted=False, only=3)
    assert not vote(node, BEHIND, is_pre_vote=True, by=key(3)).is_granted
    assert election_of(node).rejected == {3}


def test_a_later_pre_vote_response_replaces_the_first() -> None:
    node = MAKERS[Role.PROSPECTIVE]()
    election = election_of(node)
    election.record(2, False)
    election.record(2, True)
    assert (election.granted, election.rejected) == ({1, 2}, set())


@pytest.mark.parametrize("is_pre_vote", [True, False])
def test_a_higher_epoch_counts_although_the_vote_is_rejected(is_pre_vote: bool) -> None:
    for make in MAKERS.values():
        node = make()
        request = VoteRequest("cluster", EPOCH + 3, key(2), key(1), 0, 0, is_pre_vote)
        answer = node.ask(request)
        assert not answer.is_granted
        assert (answer.epoch, node.node.epoch) == (EPOCH + 3, EPOCH + 3)
        assert node.node.voted is None


def test_a_higher_epoch_counts_although_the_voter_key_is_wrong() -> None:
    node = unattached()
    answer = node.ask(VoteRequest("cluster", EPOCH + 3, key(2), key(5), 2, 6))
    assert (answer.error, answer.epoch) == (125, EPOCH + 3)


def test_a_candidate_with_this_nodes_id_is_rejected() -> None:
    """Only a misconfigured node sends such a request."""
    node = unattached()
    answer = node.ask(VoteRequest("cluster", EPOCH, key(1), key(1), 2, 6))
    assert (answer.error, answer.is_granted) == (42, False)
    assert node.node.voted is None
