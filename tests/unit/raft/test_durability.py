"""Nothing that speaks of what is not on disk leaves a node.

A node is stepped with a stalled disk; then the disk syncs, and what was held goes.
"""

from kraft.raft.election_state import ElectionState
from kraft.raft.messages import (
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    LogSlice,
    VoteRequest,
    VoteResponse,
)
from kraft.raft.ready import (
    AppendBatches,
    RequestReceived,
    ResponseReceived,
    Role,
    SendRequest,
    SendResponse,
    WriteElectionState,
    Written,
)
from tests.unit.raft.nodes import (
    EPOCH,
    Driver,
    batch,
    candidate,
    endpoint,
    fetched_by,
    follower,
    key,
    leader,
    prospective,
    static,
    unattached,
)


def test_a_candidate_asks_once_its_own_vote_is_on_disk() -> None:
    node = prospective()
    node.is_disk_stalled = True
    node.answer_votes(only=2)
    assert node.role is Role.CANDIDATE
    assert [type(write) for write in node.written] == [WriteElectionState]
    assert node.sent == []
    node.sync()
    assert [send.destination for send in node.requests(VoteRequest)] == [2, 3]


def test_a_leader_announces_itself_once_its_epoch_is_on_disk() -> None:
    node = candidate()
    node.is_disk_stalled = True
    node.answer_votes(only=2)
    assert node.role is Role.LEADER
    assert node.requests(BeginQuorumEpochRequest) == []
    node.sync()
    assert [s.destination for s in node.requests(BeginQuorumEpochRequest)] == [2, 3]


def test_a_follower_names_its_leader_once_that_is_on_disk() -> None:
    node = unattached()
    node.is_disk_stalled = True
    begin = BeginQuorumEpochRequest("cluster", EPOCH + 1, 2, key(1), (endpoint(2),))
    assert node.ask(begin) is None
    assert node.requests() == [], "not even a fetch goes out in the new epoch"
    node.sync()
    assert node.answer(1).epoch == EPOCH + 1
    assert [send.request.epoch for send in node.requests(FetchRequest)] == [EPOCH + 1]


def test_a_follower_fetches_on_once_what_it_has_is_on_disk() -> None:
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


def test_a_vote_is_refused_at_once_but_speaks_of_a_log_that_is_on_disk() -> None:
    """A refusal tells the epoch; with nothing unwritten it need not wait."""
    node = follower()
    node.is_disk_stalled = True
    answer = node.ask(VoteRequest("cluster", EPOCH, key(3), key(1), 0, 0))
    assert not answer.is_granted


def test_a_leader_answers_fetches_while_its_own_records_are_being_written() -> None:
    """Group commit: the next batch does not wait for the sync of the one before."""
    node = leader()
    fetched_by(node, 2)
    node.is_disk_stalled = True
    node.append(b"a")
    answer = fetched_by(node, 2, 6)
    assert answer.records == LogSlice(6, 7, 8 << 20), "what is synced is shown, and no more"
    assert (node.node.log.end_offset, node.node.log.durable_end_offset) == (8, 7)


def test_syncs_may_be_told_of_together_or_late() -> None:
    node = Driver(voters=static(1)).step()
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


def test_writes_are_in_the_order_in_which_they_must_be_done() -> None:
    """The epoch, then its records: a log of an epoch that quorum-state has forgotten is worse."""
    node = candidate()
    node.is_disk_stalled = True
    node.answer_votes(only=2)
    assert [type(write) for write in node.written] == [WriteElectionState, AppendBatches]


def test_what_was_written_and_cut_again_does_not_count_as_durable() -> None:
    """The sync of an append tells nothing of records that a truncation has taken back."""
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


def test_held_answers_go_in_the_order_in_which_they_were_given() -> None:
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


def test_a_request_that_waited_for_the_disk_is_answered_as_any_other() -> None:
    node = prospective()
    node.is_disk_stalled = True
    node.answer_votes(only=2)
    node.sync()
    first = node.requests(VoteRequest)[0]
    assert isinstance(first, SendRequest)
    granted = VoteResponse(0, node.node.epoch, is_granted=True)
    node.step(ResponseReceived(first.correlation, granted))
    assert node.role is Role.LEADER


def test_a_node_restarts_with_what_it_has_said() -> None:
    """Whatever left it before the sync that never came, the disk knows."""
    node = unattached()
    node.is_disk_stalled = True
    assert node.ask(VoteRequest("cluster", EPOCH, key(2), key(1), 2, 6)) is None
    again = Driver(ElectionState(EPOCH)).step()
    assert again.ask(VoteRequest("cluster", EPOCH, key(3), key(1), 2, 6)).is_granted
