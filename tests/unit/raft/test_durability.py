"""Messages wait until the writes that they depend on are durable.

The tests step a node with a stalled disk; then the disk syncs, and the held messages are sent.
"""

import pytest

from kraft.raft.election_state import ElectionState
from kraft.raft.interface import (
    AppendBatches,
    RequestReceived,
    ResponseReceived,
    Role,
    SendRequest,
    SendResponse,
    WriteElectionState,
    Written,
)
from kraft.raft.rpc import (
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    LogSlice,
    VoteRequest,
    VoteResponse,
)
from kraft.raft.voters import ReplicaKey
from tests.harness.raft_nodes import (
    EPOCH,
    batch,
    candidate,
    driven,
    endpoint,
    fetched_by,
    follower,
    key,
    leader,
    prospective,
    static,
    unattached,
)


def test_a_candidate_requests_votes_after_its_own_vote_is_durable() -> None:
    node = prospective()
    node.is_disk_stalled = True
    node.answer_votes(only=2)
    assert node.role is Role.CANDIDATE
    assert [type(write) for write in node.written] == [WriteElectionState]
    assert node.sent == []
    node.sync()
    assert [send.destination for send in node.requests(VoteRequest)] == [2, 3]


def test_a_leader_announces_itself_at_once_and_answers_fetches_after_its_epoch_is_durable() -> None:
    """The votes for it are durable; that it leads must be, before others have its records."""
    node = candidate()
    node.is_disk_stalled = True
    node.answer_votes(only=2)
    assert node.role is Role.LEADER
    assert [s.destination for s in node.requests(BeginQuorumEpochRequest)] == [2, 3]
    assert fetched_by(node, 2, 6) is None
    sent = node.node.step(Written(node.ready.write_sequence), node.now_ms).to_send
    assert any(isinstance(each, SendResponse) for each in sent)


def test_a_follower_names_its_leader_after_a_new_epoch_is_durable() -> None:
    node = unattached()
    node.is_disk_stalled = True
    begin = BeginQuorumEpochRequest("cluster", EPOCH + 1, 2, key(1), (endpoint(2),))
    assert node.ask(begin) is None
    assert node.requests() == [], "the node sends no request, not even a fetch, of the new epoch"
    node.sync()
    assert node.answer(1).epoch == EPOCH + 1
    assert [send.request.epoch for send in node.requests(FetchRequest)] == [EPOCH + 1]


@pytest.mark.parametrize("voted", [None, key(2), key(3)])
def test_a_follower_fetches_at_once_from_the_leader_of_an_epoch_that_is_durable(
    voted: ReplicaKey | None,
) -> None:
    """After a crash it may have forgotten the leader, but neither the epoch nor its vote."""
    node = unattached(voted=voted)
    node.is_disk_stalled = True
    begin = BeginQuorumEpochRequest("cluster", EPOCH, 2, key(1), (endpoint(2),))
    assert node.ask(begin).epoch == EPOCH
    assert [send.request.epoch for send in node.requests(FetchRequest)] == [EPOCH]
    (write,) = node.written
    assert isinstance(write, WriteElectionState)
    assert (write.epoch, write.leader_id) == (EPOCH, 2)


def test_a_follower_waits_for_the_vote_before_the_name_of_its_leader() -> None:
    node = unattached()
    node.is_disk_stalled = True
    assert node.ask(VoteRequest("cluster", EPOCH, key(2), key(1), 2, 6)) is None
    vote = node.ready.write_sequence
    begin = BeginQuorumEpochRequest("cluster", EPOCH, 2, key(1), (endpoint(2),))
    assert node.ask(begin) is None
    sent = node.node.step(Written(vote), node.now_ms).to_send
    assert [type(s.request) for s in sent if isinstance(s, SendRequest)] == [FetchRequest]
    assert len([s for s in sent if isinstance(s, SendResponse)]) == 2


def test_a_follower_fetches_again_after_its_records_are_durable() -> None:
    node = follower()
    (fetch,) = node.requests()
    node.is_disk_stalled = True
    node.reply(fetch, FetchResponse(0, EPOCH, 2, records=batch(6, EPOCH)))
    assert node.sent == []
    assert (node.node.log.end_offset, node.node.log.durable_end_offset) == (7, 6)
    node.sync()
    (fetch,) = node.requests(FetchRequest)
    assert fetch.request.offset == 7
    assert node.node.log.durable_end_offset == 7


def test_a_rejected_vote_needs_no_write() -> None:
    """The response names an epoch that is durable already, so it need not wait."""
    node = follower()
    node.is_disk_stalled = True
    answer = node.ask(VoteRequest("cluster", EPOCH, key(3), key(1), 0, 0))
    assert not answer.is_granted


def test_a_leader_answers_fetches_while_its_own_records_are_being_written() -> None:
    """Group commit: an append does not wait for the sync of the previous append."""
    node = leader()
    fetched_by(node, 2)
    node.is_disk_stalled = True
    node.append(b"a")
    answer = fetched_by(node, 2, 6)
    assert answer.records == LogSlice(6, 7, 8 << 20), "only durable records are sent"
    assert (node.node.log.end_offset, node.node.log.durable_end_offset) == (8, 7)


def test_several_writes_may_be_reported_at_once_or_late() -> None:
    node = driven(voters=static(1)).step()
    node.is_disk_stalled = True
    sequences = []
    for value in (b"a", b"b", b"c"):
        node.append(value)
        sequences.append(node.ready.write_sequence)
    assert sequences == sorted(set(sequences))
    end = node.node.log.end_offset
    assert node.node.step(Written(sequences[0]), node.now_ms).committed == end - 2
    assert node.node.step(Written(sequences[2]), node.now_ms).committed == end
    late = node.node.step(Written(sequences[1]), node.now_ms)
    assert (late.committed, node.node.log.durable_end_offset) == (None, end)


def test_a_leader_writes_its_epoch_before_its_records() -> None:
    """Otherwise the log could contain an epoch that quorum-state lost in a crash."""
    node = candidate()
    node.is_disk_stalled = True
    node.answer_votes(only=2)
    assert [type(write) for write in node.written] == [WriteElectionState, AppendBatches]


def test_truncated_records_do_not_count_as_durable() -> None:
    """The sync of an append does not make records durable that were truncated meanwhile."""
    node = follower()
    (fetch,) = node.requests()
    node.is_disk_stalled = True
    node.reply(fetch, FetchResponse(0, EPOCH, 2, records=batch(6, EPOCH, b"a", b"b", b"c")))
    first = node.ready.write_sequence
    node.node.truncate_log(7)
    node.step()
    second = node.ready.write_sequence
    node.node.step(Written(first), node.now_ms)
    assert node.node.log.durable_end_offset == 7
    node.node.step(Written(second), node.now_ms)
    assert node.node.log.durable_end_offset == node.node.log.end_offset == 7


def test_held_responses_keep_their_order() -> None:
    node = unattached()
    node.is_disk_stalled = True
    node.step(RequestReceived(VoteRequest("cluster", EPOCH, key(2), key(1), 2, 6), 1))
    sequence = node.ready.write_sequence
    node.step(RequestReceived(VoteRequest("cluster", EPOCH, key(3), key(1), 2, 6), 2))
    assert node.sent == []
    sent = node.node.step(Written(sequence), node.now_ms).to_send
    answers = [(s.reply_to, s.response) for s in sent if isinstance(s, SendResponse)]
    assert [(at, type(r) is VoteResponse and r.is_granted) for at, r in answers] == [
        (1, True),
        (2, False),
    ]


def test_a_response_to_a_held_request_is_handled() -> None:
    node = prospective()
    node.is_disk_stalled = True
    node.answer_votes(only=2)
    node.sync()
    first = node.requests(VoteRequest)[0]
    assert isinstance(first, SendRequest)
    granted = VoteResponse(0, node.node.epoch, is_granted=True)
    node.step(ResponseReceived(first.correlation, granted))
    assert node.role is Role.LEADER


def test_a_restarted_node_remembers_what_it_has_sent() -> None:
    """Every message waits for its writes, so after a crash the node contradicts none it sent."""
    node = unattached()
    node.is_disk_stalled = True
    assert node.ask(VoteRequest("cluster", EPOCH, key(2), key(1), 2, 6)) is None
    again = driven(ElectionState(EPOCH)).step()
    assert again.ask(VoteRequest("cluster", EPOCH, key(3), key(1), 2, 6)).is_granted
