"""A leader: what it writes first, whom it answers, what it counts as committed, how it leaves."""

from typing import Any

import pytest

from kraft._core.batch_records import iterate
from kraft._core.epoch_cache import EpochEndOffset
from kraft.raft.messages import (
    INVALID_UPDATE_VERSION,
    NONE,
    BeginQuorumEpochRequest,
    DescribeQuorumRequest,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchSnapshotRequest,
    LogSlice,
    OffsetAndEpoch,
    RemoveRaftVoterRequest,
    ReplicaState,
    SnapshotSlice,
    UpdateKRaftVersionRequest,
    UpdateRaftVoterRequest,
    VoteRequest,
    VoteResponse,
)
from kraft.raft.ready import (
    Append,
    AppendBatches,
    Resign,
    Role,
    RoleChange,
    Shutdown,
    SnapshotsCleaned,
    SnapshotStored,
    WriteElectionState,
)
from kraft.raft.voters import ReplicaKey, VersionRange, VoterSet
from kraft.records import control
from tests.unit.raft.nodes import (
    EPOCH,
    Driver,
    candidate,
    dynamic,
    endpoint,
    fetched_by,
    key,
    leader,
    static,
)

START = 6  #: where the leader's epoch begins in its log


def control_records(data: Any) -> list[Any]:
    return [
        control.decode_control(record.control_type, record.value)
        for record_batch in iterate(data)
        for record in record_batch
        if record.control_type is not None and record.value is not None
    ]


def committed(**given: Any) -> Driver:
    node = leader(**given)
    fetched_by(node, 2)
    assert node.ready.role_change == RoleChange(Role.LEADER, EPOCH, 1, True)
    return node


def leader_of(*ids: int, is_dynamic: bool = False) -> Driver:
    """Elected by itself, 2 and 3."""
    voters = dynamic(*ids) if is_dynamic else static(*ids)
    node = Driver(voters=voters, kraft_version=int(is_dynamic)).step().wait(2000)
    for role in (Role.CANDIDATE, Role.LEADER):
        for send in node.requests(VoteRequest)[:2]:
            assert isinstance(send.request, VoteRequest)
            node.reply(send, VoteResponse(0, send.request.epoch, is_granted=True))
        assert node.role is role
    return node


# -- the epoch's begin


def test_an_epoch_begins_with_its_leader_voters_and_who_granted() -> None:
    node = candidate().answer_votes(only=2)
    state, append = node.written
    assert state == WriteElectionState(EPOCH, 1, 1, key(1).directory_id, 0)
    assert isinstance(append, AppendBatches)
    assert (append.base_offset, append.end_offset) == (START, START + 1)
    (change,) = control_records(append.batches)
    assert (change.leader_id, [v.voter_id for v in change.voters]) == (1, [1, 2, 3])
    assert [v.voter_id for v in change.granting_voters] == [1, 2]


def test_voters_of_a_snapshot_are_written_down_by_the_next_leader() -> None:
    """As are those whose entry of the leader is old: in one batch with LeaderChange."""
    node = candidate(voters=dynamic(1, 2, 3), kraft_version=1).answer_votes(only=2)
    assert isinstance(node.written[1], AppendBatches)
    change, version, voters = control_records(node.written[1].batches)
    assert isinstance(change, control.LeaderChange)
    assert version.kraft_version == 1
    assert VoterSet.from_record(voters) == dynamic(1, 2, 3)


def test_voters_of_a_later_snapshot_need_not_be_written_again() -> None:
    """The log that it was made of had them (``lastVoterSetOffset`` is -1 for 0-0 alone)."""
    voters = dynamic(1, 2, 3)
    node = candidate(voters=voters, kraft_version=1, start_offset=4, log=((2, 6),))
    node.answer_votes(only=2)
    assert isinstance(node.written[1], AppendBatches)
    (change,) = control_records(node.written[1].batches)
    assert isinstance(change, control.LeaderChange)


def test_the_leaders_own_move_is_written_with_its_epoch() -> None:
    moved = candidate(voters=dynamic(1, 2, 3), kraft_version=1, endpoints=(endpoint(11),))
    moved.answer_votes(only=2)
    assert isinstance(moved.written[1], AppendBatches)
    *_, voters = control_records(moved.written[1].batches)
    (own,) = [voter for voter in VoterSet.from_record(voters) if voter.id == 1]
    assert own.endpoints == (endpoint(11),)


def test_it_tells_every_voter_and_again_those_that_do_not_fetch() -> None:
    node = leader()
    told = node.requests(BeginQuorumEpochRequest)
    assert [send.destination for send in told] == [2, 3]
    fetched_by(node, 2)
    node.wait(999)
    assert node.requests(BeginQuorumEpochRequest) == []
    node.now_ms += 1
    fetched_by(node, 2)
    assert node.requests(BeginQuorumEpochRequest) == [], "3 still owes an answer"
    node.wait(1001)
    assert [s.destination for s in node.requests(BeginQuorumEpochRequest)] == [2, 3]


def test_an_unanswered_vote_does_not_keep_the_new_leader_from_telling() -> None:
    """Node 3 was asked for its vote and is silent; its connection begins anew."""
    node = leader()
    assert [s.destination for s in node.requests(BeginQuorumEpochRequest)] == [2, 3]


# -- appends


def test_an_append_of_an_older_epoch_is_refused() -> None:
    node = committed()
    node.step(Append(7, EPOCH - 1, (b"a",)))
    (answer,) = node.ready.appended
    assert (answer.token, answer.error, answer.last_offset) == (7, 6, -1)
    assert node.written == []


def test_an_append_needs_records() -> None:
    """As in Kafka 4, where an empty list is an IllegalArgumentException."""
    node = committed()
    for empty in (Append(1, EPOCH), Append(1, EPOCH, batches=bytearray())):
        with pytest.raises(ValueError, match="no records"):
            node.step(empty)
    node.append(b"a")
    assert node.ready.appended[0].last_offset == START + 1


def test_records_that_do_not_fit_one_batch_are_refused() -> None:
    node = committed(max_batch_size=200)
    node.append(b"x" * 150)
    assert node.ready.appended[0].error == 10
    node.append(b"x" * 100)
    assert node.ready.appended[0].last_offset == START + 1


def test_a_slow_disk_holds_appends_back() -> None:
    node = committed(max_unwritten_appends=2)
    node.is_disk_stalled = True
    for _ in range(3):
        node.append(b"a")
    assert node.ready.appended[0].error == 89


def test_a_resigning_leader_takes_no_records() -> None:
    node = committed()
    node.step(Resign(EPOCH))
    node.append(b"a")
    assert node.ready.appended[0].error == 6


# -- what is shown, and what is counted


def test_only_synced_records_are_shown_and_counted() -> None:
    node = committed()
    node.is_disk_stalled = True
    node.append(b"a")
    assert not fetched_by(node, 2, START + 1).records
    node.sync()
    assert fetched_by(node, 2, START + 1).records == LogSlice(START + 1, START + 2, 8 << 20)


def test_the_high_watermark_is_what_a_majority_has_synced() -> None:
    node = leader_of(1, 2, 3, 4, 5)
    for _ in range(3):
        node.append(b"a")
    end = node.node.log.end_offset
    fetched_by(node, 2, end)
    assert node.node.log.high_watermark == -1
    fetched_by(node, 3, end - 2)
    assert node.ready.committed == end - 2
    fetched_by(node, 4, end - 1)
    assert node.ready.committed == end - 1
    fetched_by(node, 5, end)
    assert node.ready.committed == end


def test_records_of_earlier_epochs_alone_are_not_committed() -> None:
    """Section 5.4.2 of the Raft paper; KAFKA-12619: strictly above the epoch's start."""
    node = leader()
    fetched_by(node, 2, START)
    assert node.node.log.high_watermark == -1
    answer = fetched_by(node, 3, START)
    assert answer.high_watermark == -1
    fetched_by(node, 2, START + 1)
    assert node.ready.committed == START + 1


def test_a_fetch_from_further_back_does_not_lower_the_high_watermark() -> None:
    node = committed()
    fetched_by(node, 2, 4)
    assert node.node.log.high_watermark == START + 1
    assert node.ready.committed is None


def test_an_observer_is_served_and_not_counted() -> None:
    node = leader()
    assert fetched_by(node, 9, START).records
    fetched_by(node, 9)
    assert node.node.log.high_watermark == -1


def test_a_voters_id_on_another_disk_is_an_observer() -> None:
    node = leader(voters=dynamic(1, 2, 3), kraft_version=1)
    fetched_by(node, 2, name=7)
    assert node.node.log.high_watermark == -1
    fetched_by(node, 2)
    assert node.node.log.high_watermark == node.node.log.end_offset


def test_who_asks_without_an_id_is_served_and_not_remembered() -> None:
    node = committed()
    request = FetchRequest("cluster", ReplicaKey(-1), EPOCH, 4, 1)
    assert node.ask(request).records
    described = node.ask(DescribeQuorumRequest())
    assert [state.key.id for state in described.observers] == []


# -- long polls


def test_a_fetch_waits_for_records() -> None:
    node = committed()
    assert fetched_by(node, 2, max_wait_ms=500) is None
    waiting = node._reply_to
    node.append(b"a")
    assert node.answer(waiting).records == LogSlice(START + 1, START + 2, 8 << 20)


def test_a_fetch_waits_for_the_high_watermark() -> None:
    """KIP-1166: it completes every waiting fetch, whatever its version."""
    node = committed()
    node.append(b"a")
    end = node.node.log.end_offset
    request = FetchRequest("cluster", key(9), EPOCH, end, EPOCH, 500, high_watermark=START + 1)
    assert node.ask(request) is None
    waiting = node._reply_to
    fetched_by(node, 2, end)
    assert node.answer(waiting).high_watermark == end


def test_a_fetch_that_knows_less_of_the_high_watermark_does_not_wait() -> None:
    node = committed()
    end = node.node.log.end_offset
    request = FetchRequest("cluster", key(2), EPOCH, end, EPOCH, 500, high_watermark=-1)
    assert node.ask(request).high_watermark == end


def test_a_fetch_waits_no_longer_than_it_says() -> None:
    node = committed()
    assert fetched_by(node, 2, max_wait_ms=300) is None
    waiting = node._reply_to
    node.wait(299)
    assert node.answer(waiting) is None
    assert node.ready.wake_at_ms == node.now_ms + 1
    node.wait(1)
    answer = node.answer(waiting)
    assert (answer.error, answer.records) == (0, b"")


def test_a_fetch_that_would_wait_for_days_waits_for_a_fetch_timeout() -> None:
    node = committed()
    assert fetched_by(node, 9, max_wait_ms=2**31 - 1) is None
    waiting = node._reply_to
    node.wait(1999)
    assert node.answer(waiting) is None
    node.wait(1)
    assert node.answer(waiting).error == 0


def test_who_waits_is_told_when_leadership_ends() -> None:
    node = committed()
    fetched_by(node, 2, max_wait_ms=500)
    waiting = node._reply_to
    node.step(Resign(EPOCH))
    assert node.answer(waiting).error == 6


# -- validity of fetches


def with_snapshot(offset: int = 5, epoch: int = 2, start: int = 4) -> Driver:
    """A log of 4 records of epoch 1 and 2 of epoch 2, cut off below a snapshot."""
    node = committed()
    node.step(SnapshotStored(OffsetAndEpoch(4, 1), 50))
    node.step(SnapshotStored(OffsetAndEpoch(offset, epoch), 60))
    node.step(SnapshotsCleaned(start, OffsetAndEpoch(4, 1)))
    return node


@pytest.mark.parametrize(
    ("offset", "last_epoch", "is_snapshot"),
    [
        (0, 0, True),
        (3, 1, True),  # before the log's start
        (4, 0, True),  # at its start, of another epoch than the snapshot there
        (4, 1, False),
        (5, 0, True),  # an epoch before the earliest snapshot's
        (5, 2, False),
        (7, 3, False),
    ],
)
def test_who_is_sent_to_a_snapshot(offset: int, last_epoch: int, is_snapshot: bool) -> None:
    node = with_snapshot()
    answer = node.ask(FetchRequest("cluster", key(2), EPOCH, offset, last_epoch))
    assert answer.snapshot_id == (OffsetAndEpoch(5, 2) if is_snapshot else None)
    assert answer.diverging_epoch is None
    assert bool(answer.records) == (not is_snapshot and offset < 7)
    assert answer.log_start_offset == 4


def test_an_empty_replica_begins_with_the_snapshot_though_the_log_is_whole() -> None:
    node = committed()
    assert fetched_by(node, 2, 0).records
    node.step(SnapshotStored(OffsetAndEpoch(4, 1), 50))
    assert fetched_by(node, 2, 0).snapshot_id == OffsetAndEpoch(4, 1)


@pytest.mark.parametrize(
    ("offset", "last_epoch", "diverging"),
    [
        (6, 1, EpochEndOffset(1, 4)),
        (5, 2, None),
        (6, 2, None),
        (7, 2, EpochEndOffset(2, 6)),
        (8, 3, EpochEndOffset(3, 7)),
        (3, 0, EpochEndOffset(0, 0)),
        (4, 1, None),
    ],
)
def test_where_a_fetcher_left_the_leaders_log(
    offset: int, last_epoch: int, diverging: EpochEndOffset | None
) -> None:
    answer = committed().ask(FetchRequest("cluster", key(2), EPOCH, offset, last_epoch))
    assert answer.diverging_epoch == diverging
    assert bool(answer.records) == (diverging is None)


def test_a_fetcher_that_diverges_is_not_counted() -> None:
    node = leader()
    node.ask(FetchRequest("cluster", key(2), EPOCH, 9, 2))
    assert node.node.log.high_watermark == -1
    (state,) = [s for s in node.ask(DescribeQuorumRequest()).voters if s.key.id == 2]
    assert state.log_end_offset == -1


def test_a_chunk_of_a_snapshot_is_at_most_what_was_asked_for() -> None:
    node = with_snapshot()
    request = FetchSnapshotRequest("cluster", key(2), EPOCH, OffsetAndEpoch(5, 2), 10, 20)
    answer = node.ask(request)
    assert answer.data == SnapshotSlice(OffsetAndEpoch(5, 2), 10, 20)
    assert (answer.size, answer.position) == (60, 10)


# -- check quorum


def test_a_leader_that_a_majority_does_not_fetch_from_resigns() -> None:
    node = committed()
    node.wait(2999)
    assert node.role is Role.LEADER
    node.wait(1)
    assert node.role is Role.RESIGNED
    assert node.ready.role_change == RoleChange(Role.RESIGNED, EPOCH, -1)


@pytest.mark.parametrize("what", ["fetch", "snapshot", "update"])
def test_what_counts_as_heard(what: str) -> None:
    node = with_snapshot()
    node.now_ms += 2000
    if what == "fetch":
        fetched_by(node, 2)
    elif what == "snapshot":
        node.ask(FetchSnapshotRequest("cluster", key(2), EPOCH, OffsetAndEpoch(5, 2), 0))
    else:
        node.ask(
            UpdateRaftVoterRequest("cluster", EPOCH, key(2), (endpoint(2),), VersionRange(0, 1))
        )
    node.wait(2999)
    assert node.role is Role.LEADER


@pytest.mark.parametrize("what", ["an observer", "an old fetch that waited"])
def test_what_does_not_count_as_heard(what: str) -> None:
    node = committed()
    if what == "an observer":
        node.now_ms += 2000
        fetched_by(node, 9)
        node.wait(1000)
    else:
        fetched_by(node, 2, max_wait_ms=2000)
        node.wait(2000)
        node.wait(1000)
    assert node.role is Role.RESIGNED


def test_half_of_an_even_number_is_enough_beside_the_leader() -> None:
    """Of four voters three are a majority: the leader and two that fetch."""
    node = leader_of(1, 2, 3, 4)
    node.now_ms += 2900
    fetched_by(node, 2)
    fetched_by(node, 2)
    node.wait(100)
    assert node.role is Role.RESIGNED


def test_a_voter_that_was_removed_is_not_counted_as_heard() -> None:
    node = leader_of(1, 2, 3, 4, 5, is_dynamic=True)
    for id in (2, 3):
        fetched_by(node, id)
    node.now_ms += 1000
    fetched_by(node, 5)
    assert node.ask(RemoveRaftVoterRequest("cluster", key(5))) is None
    node.now_ms += 1000
    fetched_by(node, 2)  # Of four voters two are needed, and 5 is none of them.
    node.wait(1000)
    assert node.role is Role.RESIGNED


def test_a_sole_voter_need_not_hear_anybody() -> None:
    node = Driver(voters=static(1)).step()
    node.wait(100_000)
    assert node.role is Role.LEADER


# -- stepping down


def test_successors_are_named_by_how_far_they_are() -> None:
    node = committed()
    node.append(b"a")
    fetched_by(node, 3)
    node.step(Resign(EPOCH))
    told = node.requests(EndQuorumEpochRequest)
    assert [send.destination for send in told] == [2, 3]
    request = told[0].request
    assert isinstance(request, EndQuorumEpochRequest)
    assert [successor.id for successor in request.preferred_candidates] == [3, 2]


def test_who_knows_of_the_end_is_not_told_again() -> None:
    node = committed()
    node.step(Resign(EPOCH))
    first, _ = node.requests(EndQuorumEpochRequest)
    node.reply(first, EndQuorumEpochResponse(0, EPOCH, 1))
    node.wait(500)
    assert node.requests() == []
    node.wait(1000)
    # In the next epoch, so that it no longer names itself; and at once on the way to lead it.
    assert (node.role, node.node.epoch) == (Role.PROSPECTIVE, EPOCH + 1)
    assert node.node.leader_id == -1


def test_the_controller_of_an_older_epoch_cannot_resign_for_this_one() -> None:
    node = committed()
    node.step(Resign(EPOCH - 1))
    assert node.role is Role.LEADER


def test_a_leader_that_shuts_down_waits_until_the_others_know() -> None:
    node = committed()
    node.step(Shutdown(5000))
    assert not node.ready.is_shut_down
    for send in node.requests(EndQuorumEpochRequest):
        node.reply(send, EndQuorumEpochResponse(0, EPOCH, 1))
    assert node.ready.is_shut_down


def test_but_no_longer_than_it_may() -> None:
    node = committed()
    node.step(Shutdown(5000))
    node.wait(4999)
    assert not node.ready.is_shut_down
    assert node.role is Role.RESIGNED
    node.wait(1)
    assert node.ready.is_shut_down


def test_a_sole_leader_leaves_at_once() -> None:
    node = Driver(voters=static(1)).step()
    node.step(Shutdown())
    assert node.ready.is_shut_down


# -- describing


def test_the_quorum_is_described_as_the_leader_sees_it() -> None:
    node = committed()
    node.now_ms += 10
    node.append(b"a")
    fetched_by(node, 3, START)
    fetched_by(node, 9, 2)
    answer = node.ask(DescribeQuorumRequest())
    now = int(node.now_ms)
    voters = {state.key.id: state for state in answer.voters}
    assert voters[1] == ReplicaState(ReplicaKey(1), START + 2, now, now)
    assert voters[2] == ReplicaState(ReplicaKey(2), START + 1, now - 10, now - 10)
    assert voters[3] == ReplicaState(ReplicaKey(3), START, now, -1)
    assert answer.observers == (ReplicaState(key(9), 2, now, -1),)
    assert (answer.high_watermark, answer.leader_id) == (START + 1, 1)
    assert answer.nodes == {id: (endpoint(id),) for id in (1, 2, 3)}


def test_an_observer_that_is_silent_for_five_minutes_is_forgotten() -> None:
    node = Driver(voters=static(1)).step()
    fetched_by(node, 9)
    node.wait(300_000)
    assert len(node.ask(DescribeQuorumRequest()).observers) == 1
    node.wait(1)
    assert node.ask(DescribeQuorumRequest()).observers == ()


def test_being_caught_up_is_remembered_from_the_fetch_before() -> None:
    """Who fetches what was the end at its last fetch had caught up then (Kafka's LeaderState)."""
    node = committed()
    end = node.node.log.end_offset
    fetched_by(node, 3, START)
    at_fetch = int(node.now_ms)
    node.now_ms += 100
    node.append(b"a")
    fetched_by(node, 3, end)
    (state,) = [s for s in node.ask(DescribeQuorumRequest()).voters if s.key.id == 3]
    assert state.last_caught_up_timestamp_ms == at_fetch
    assert state.last_fetch_timestamp_ms == at_fetch + 100


# -- what static voters tell


def test_a_static_voter_with_another_directory_has_to_tell_of_it_anew() -> None:
    """A wiped voter fetches before it tells: until then an upgrade would name who is gone."""
    node = committed()
    upgrade = UpdateKRaftVersionRequest(1, validate_only=True)

    def tell(voter: ReplicaKey) -> None:
        versions = VersionRange(0, 1)
        told = UpdateRaftVoterRequest("cluster", EPOCH, voter, (endpoint(2),), versions)
        assert node.ask(told).error == NONE

    for voter in (key(2), key(3)):
        tell(voter)
    fetched_by(node, 2)
    assert node.ask(upgrade).error == NONE
    fetched_by(node, 2, name=1)
    assert node.ask(upgrade).error == INVALID_UPDATE_VERSION
    tell(key(2, 1))
    fetched_by(node, 2, name=1)
    assert node.ask(upgrade).error == NONE
