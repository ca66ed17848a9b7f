"""A leader: its first records, its responses, the high watermark, its resignation."""

from typing import Any

import pytest

from kraft._core.bytes.batch_records import iterate
from kraft._core.log.epoch_cache import EpochEndOffset
from kraft.errors import INVALID_UPDATE_VERSION, NONE
from kraft.raft.interface import (
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
from kraft.raft.rpc import (
    BeginQuorumEpochRequest,
    DescribedReplica,
    DescribeQuorumRequest,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchSnapshotRequest,
    LogSlice,
    OffsetAndEpoch,
    RemoveRaftVoterRequest,
    SnapshotSlice,
    UpdateKRaftVersionRequest,
    UpdateRaftVoterRequest,
    VoteRequest,
    VoteResponse,
)
from kraft.raft.voters import KRaftVersionRange, ReplicaKey, VoterSet
from kraft.records import control
from tests.harness.raft_nodes import (
    EPOCH,
    Driver,
    candidate,
    driven,
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
    """Return node 1 as leader of these voters, elected by its own vote and two others."""
    voters = dynamic(*ids) if is_dynamic else static(*ids)
    node = driven(voters=voters, kraft_version=int(is_dynamic)).step().wait(2000)
    for role in (Role.CANDIDATE, Role.LEADER):
        for send in node.requests(VoteRequest)[:2]:
            assert isinstance(send.request, VoteRequest)
            node.reply(send, VoteResponse(0, send.request.epoch, is_granted=True))
        assert node.role is role
    return node


# -- the beginning of the epoch


def test_an_epoch_begins_with_a_leader_change_record() -> None:
    node = candidate().answer_votes(only=2)
    state, append = node.written
    assert state == WriteElectionState(EPOCH, 1, 1, key(1).directory_id, 0)
    assert isinstance(append, AppendBatches)
    assert (append.base_offset, append.end_offset) == (START, START + 1)
    (change,) = control_records(append.batches)
    assert (change.leader_id, [v.voter_id for v in change.voters]) == (1, [1, 2, 3])
    assert [v.voter_id for v in change.granting_voters] == [1, 2]


def test_the_next_leader_appends_the_voters_of_the_bootstrap_snapshot() -> None:
    """They share a batch with LeaderChange, as do voters whose entry of the leader is old."""
    node = candidate(voters=dynamic(1, 2, 3), kraft_version=1).answer_votes(only=2)
    assert isinstance(node.written[1], AppendBatches)
    change, version, voters = control_records(node.written[1].batches)
    assert isinstance(change, control.LeaderChange)
    assert version.kraft_version == 1
    assert VoterSet.from_record(voters) == dynamic(1, 2, 3)


def test_the_voters_of_a_later_snapshot_are_not_appended_again() -> None:
    """The log contained them: ``lastVoterSetOffset`` is -1 only for the snapshot 0-0."""
    voters = dynamic(1, 2, 3)
    node = candidate(voters=voters, kraft_version=1, start_offset=4, log=((2, 6),))
    node.answer_votes(only=2)
    assert isinstance(node.written[1], AppendBatches)
    (change,) = control_records(node.written[1].batches)
    assert isinstance(change, control.LeaderChange)


def test_a_leader_appends_its_own_new_endpoints_with_its_epoch() -> None:
    moved = candidate(voters=dynamic(1, 2, 3), kraft_version=1, endpoints=(endpoint(11),))
    moved.answer_votes(only=2)
    assert isinstance(moved.written[1], AppendBatches)
    *_, voters = control_records(moved.written[1].batches)
    (own,) = [voter for voter in VoterSet.from_record(voters) if voter.id == 1]
    assert own.endpoints == (endpoint(11),)


def test_a_leader_repeats_begin_quorum_epoch_to_voters_that_do_not_fetch() -> None:
    node = leader()
    begins = node.requests(BeginQuorumEpochRequest)
    assert [send.destination for send in begins] == [2, 3]
    fetched_by(node, 2)
    node.wait(999)
    assert node.requests(BeginQuorumEpochRequest) == []
    node.now_ms += 1
    fetched_by(node, 2)
    assert node.requests(BeginQuorumEpochRequest) == [], "node 3 has not answered yet"
    node.wait(1001)
    assert [s.destination for s in node.requests(BeginQuorumEpochRequest)] == [2, 3]


def test_a_vote_request_in_flight_does_not_delay_begin_quorum_epoch() -> None:
    """Node 3 has not answered a vote request; the change of role clears its connection."""
    node = leader()
    assert [s.destination for s in node.requests(BeginQuorumEpochRequest)] == [2, 3]


# -- appends


def test_an_append_of_an_older_epoch_is_rejected() -> None:
    node = committed()
    node.step(Append(7, EPOCH - 1, (b"a",)))
    (answer,) = node.ready.appended
    assert (answer.token, answer.error, answer.last_offset) == (7, 6, -1)
    assert node.written == []


def test_an_append_needs_records() -> None:
    """An empty append is an error, as in Kafka 4 (IllegalArgumentException)."""
    node = committed()
    for empty in (Append(1, EPOCH), Append(1, EPOCH, batches=bytearray())):
        with pytest.raises(ValueError, match="at least one record"):
            node.step(empty)
    node.append(b"a")
    assert node.ready.appended[0].last_offset == START + 1


def test_records_that_do_not_fit_one_batch_are_rejected() -> None:
    node = committed(max_batch_size=200)
    node.append(b"x" * 150)
    assert node.ready.appended[0].error == 10
    node.append(b"x" * 100)
    assert node.ready.appended[0].last_offset == START + 1


def test_appends_are_rejected_while_the_disk_is_behind() -> None:
    node = committed(max_unwritten_appends=2)
    node.is_disk_stalled = True
    for _ in range(3):
        node.append(b"a")
    assert node.ready.appended[0].error == 89


def test_a_resigning_leader_rejects_appends() -> None:
    node = committed()
    node.step(Resign(EPOCH))
    node.append(b"a")
    assert node.ready.appended[0].error == 6


# -- durable records and the high watermark


def test_only_durable_records_are_sent_and_counted() -> None:
    node = committed()
    node.is_disk_stalled = True
    node.append(b"a")
    assert not fetched_by(node, 2, START + 1).records
    node.sync()
    assert fetched_by(node, 2, START + 1).records == LogSlice(START + 1, START + 2, 8 << 20)


def test_the_high_watermark_is_the_durable_end_of_a_majority() -> None:
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
    """The high watermark must exceed the epoch's start (Raft paper 5.4.2, KAFKA-12619)."""
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


def test_a_fetch_without_replica_id_is_served_and_not_recorded() -> None:
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
    """A higher high watermark completes every waiting fetch, of any version (KIP-1166)."""
    node = committed()
    node.append(b"a")
    end = node.node.log.end_offset
    request = FetchRequest("cluster", key(9), EPOCH, end, EPOCH, 500, high_watermark=START + 1)
    assert node.ask(request) is None
    waiting = node._reply_to
    fetched_by(node, 2, end)
    assert node.answer(waiting).high_watermark == end


def test_a_fetch_with_a_lower_high_watermark_does_not_wait() -> None:
    node = committed()
    end = node.node.log.end_offset
    request = FetchRequest("cluster", key(2), EPOCH, end, EPOCH, 500, high_watermark=-1)
    assert node.ask(request).high_watermark == end


def test_a_fetch_waits_for_its_maximum_wait_at_most() -> None:
    node = committed()
    assert fetched_by(node, 2, max_wait_ms=300) is None
    waiting = node._reply_to
    node.wait(299)
    assert node.answer(waiting) is None
    assert node.ready.wake_at_ms == node.now_ms + 1
    node.wait(1)
    answer = node.answer(waiting)
    assert (answer.error, answer.records) == (0, b"")


def test_the_fetch_timeout_bounds_the_wait_of_a_fetch() -> None:
    node = committed()
    assert fetched_by(node, 9, max_wait_ms=2**31 - 1) is None
    waiting = node._reply_to
    node.wait(1999)
    assert node.answer(waiting) is None
    node.wait(1)
    assert node.answer(waiting).error == 0


def test_waiting_fetches_are_answered_when_the_leadership_ends() -> None:
    node = committed()
    fetched_by(node, 2, max_wait_ms=500)
    waiting = node._reply_to
    node.step(Resign(EPOCH))
    assert node.answer(waiting).error == 6


# -- validity of fetches


def with_snapshot(offset: int = 5, epoch: int = 2, start: int = 4) -> Driver:
    """Return a leader whose log has 4 records of epoch 1 and 2 of epoch 2, and snapshots."""
    node = committed()
    node.step(SnapshotStored(OffsetAndEpoch(4, 1), 50))
    node.step(SnapshotStored(OffsetAndEpoch(offset, epoch), 60))
    node.step(SnapshotsCleaned(start, OffsetAndEpoch(4, 1)))
    return node


@pytest.mark.parametrize(
    ("offset", "last_epoch", "is_snapshot"),
    [
        (0, 0, True),
        (3, 1, True),  # before the start of the log
        (4, 0, True),  # at the start, but not of the epoch of the snapshot there
        (4, 1, False),
        (5, 0, True),  # an epoch before that of the earliest snapshot
        (5, 2, False),
        (7, 3, False),
    ],
)
def test_which_fetches_need_a_snapshot(offset: int, last_epoch: int, is_snapshot: bool) -> None:
    node = with_snapshot()
    answer = node.ask(FetchRequest("cluster", key(2), EPOCH, offset, last_epoch))
    assert answer.snapshot_id == (OffsetAndEpoch(5, 2) if is_snapshot else None)
    assert answer.diverging_epoch is None
    assert bool(answer.records) == (not is_snapshot and offset < 7)
    assert answer.log_start_offset == 4


def test_an_empty_replica_begins_with_the_snapshot_although_the_log_is_complete() -> None:
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
def test_the_diverging_epoch_of_a_fetch(
    offset: int, last_epoch: int, diverging: EpochEndOffset | None
) -> None:
    answer = committed().ask(FetchRequest("cluster", key(2), EPOCH, offset, last_epoch))
    assert answer.diverging_epoch == diverging
    assert bool(answer.records) == (diverging is None)


def test_a_diverging_fetch_reports_no_progress() -> None:
    node = leader()
    node.ask(FetchRequest("cluster", key(2), EPOCH, 9, 2))
    assert node.node.log.high_watermark == -1
    (state,) = [s for s in node.ask(DescribeQuorumRequest()).voters if s.key.id == 2]
    assert state.log_end_offset == -1


def test_a_snapshot_chunk_has_the_requested_size_at_most() -> None:
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
def test_requests_that_restart_the_check_quorum_timer(what: str) -> None:
    node = with_snapshot()
    node.now_ms += 2000
    if what == "fetch":
        fetched_by(node, 2)
    elif what == "snapshot":
        node.ask(FetchSnapshotRequest("cluster", key(2), EPOCH, OffsetAndEpoch(5, 2), 0))
    else:
        node.ask(
            UpdateRaftVoterRequest(
                "cluster", EPOCH, key(2), (endpoint(2),), KRaftVersionRange(0, 1)
            )
        )
    node.wait(2999)
    assert node.role is Role.LEADER


@pytest.mark.parametrize("what", ["an observer", "an old fetch that waited"])
def test_requests_that_do_not_restart_the_check_quorum_timer(what: str) -> None:
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
    """Of four voters three are a majority: one follower that fetches is not enough."""
    node = leader_of(1, 2, 3, 4)
    node.now_ms += 2900
    fetched_by(node, 2)
    fetched_by(node, 2)
    node.wait(100)
    assert node.role is Role.RESIGNED


def test_a_removed_voter_does_not_restart_the_check_quorum_timer() -> None:
    node = leader_of(1, 2, 3, 4, 5, is_dynamic=True)
    for id in (2, 3):
        fetched_by(node, id)
    node.now_ms += 1000
    fetched_by(node, 5)
    assert node.ask(RemoveRaftVoterRequest("cluster", key(5))) is None
    node.now_ms += 1000
    fetched_by(node, 2)  # Four voters are left: two must fetch, and 5 does not count.
    node.wait(1000)
    assert node.role is Role.RESIGNED


def test_a_sole_voter_needs_no_fetches() -> None:
    node = driven(voters=static(1)).step()
    node.wait(100_000)
    assert node.role is Role.LEADER


# -- resignation


def test_preferred_candidates_are_sorted_by_their_log_ends() -> None:
    node = committed()
    node.append(b"a")
    fetched_by(node, 3)
    node.step(Resign(EPOCH))
    ends = node.requests(EndQuorumEpochRequest)
    assert [send.destination for send in ends] == [2, 3]
    request = ends[0].request
    assert isinstance(request, EndQuorumEpochRequest)
    assert [successor.id for successor in request.preferred_candidates] == [3, 2]


def test_end_quorum_epoch_is_not_repeated_after_its_response() -> None:
    node = committed()
    node.step(Resign(EPOCH))
    first, _ = node.requests(EndQuorumEpochRequest)
    node.reply(first, EndQuorumEpochResponse(0, EPOCH, 1))
    node.wait(500)
    assert node.requests() == []
    node.wait(1000)
    # The node enters the next epoch, so that it no longer names itself as leader, and starts a
    # pre-vote at once.
    assert (node.role, node.node.epoch) == (Role.PROSPECTIVE, EPOCH + 1)
    assert node.node.leader_id == -1


def test_the_controller_of_an_older_epoch_cannot_resign_for_this_one() -> None:
    node = committed()
    node.step(Resign(EPOCH - 1))
    assert node.role is Role.LEADER


def test_a_leader_that_shuts_down_waits_for_the_other_voters() -> None:
    node = committed()
    node.step(Shutdown(5000))
    assert not node.ready.is_shut_down
    for send in node.requests(EndQuorumEpochRequest):
        node.reply(send, EndQuorumEpochResponse(0, EPOCH, 1))
    assert node.ready.is_shut_down


def test_a_shutdown_ends_at_its_timeout() -> None:
    node = committed()
    node.step(Shutdown(5000))
    node.wait(4999)
    assert not node.ready.is_shut_down
    assert node.role is Role.RESIGNED
    node.wait(1)
    assert node.ready.is_shut_down


def test_a_sole_voter_shuts_down_at_once() -> None:
    node = driven(voters=static(1)).step()
    node.step(Shutdown())
    assert node.ready.is_shut_down


# -- DescribeQuorum


def test_the_leader_describes_voters_and_observers() -> None:
    node = committed()
    node.now_ms += 10
    node.append(b"a")
    fetched_by(node, 3, START)
    fetched_by(node, 9, 2)
    answer = node.ask(DescribeQuorumRequest())
    now = int(node.now_ms)
    voters = {state.key.id: state for state in answer.voters}
    assert voters[1] == DescribedReplica(ReplicaKey(1), START + 2, now, now)
    assert voters[2] == DescribedReplica(ReplicaKey(2), START + 1, now - 10, now - 10)
    assert voters[3] == DescribedReplica(ReplicaKey(3), START, now, -1)
    assert answer.observers == (DescribedReplica(key(9), 2, now, -1),)
    assert (answer.high_watermark, answer.leader_id) == (START + 1, 1)
    assert answer.nodes == {id: (endpoint(id),) for id in (1, 2, 3)}


def test_an_observer_that_is_silent_for_five_minutes_is_forgotten() -> None:
    node = driven(voters=static(1)).step()
    fetched_by(node, 9)
    node.wait(300_000)
    assert len(node.ask(DescribeQuorumRequest()).observers) == 1
    node.wait(1)
    assert node.ask(DescribeQuorumRequest()).observers == ()


def test_a_replica_was_caught_up_at_its_previous_fetch() -> None:
    """It now fetches from the log end at its previous fetch (the rule of Kafka's LeaderState)."""
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


# -- reports of static voters


def test_a_static_voter_with_a_new_directory_has_to_report_again() -> None:
    """A voter with a wiped disk fetches before it reports.

    An upgrade of kraft.version before the report would record its old directory.
    """
    node = committed()
    upgrade = UpdateKRaftVersionRequest(1, validate_only=True)

    def report(voter: ReplicaKey) -> None:
        versions = KRaftVersionRange(0, 1)
        request = UpdateRaftVoterRequest("cluster", EPOCH, voter, (endpoint(2),), versions)
        assert node.ask(request).error == NONE

    for voter in (key(2), key(3)):
        report(voter)
    fetched_by(node, 2)
    assert node.ask(upgrade).error == NONE
    fetched_by(node, 2, name=1)
    assert node.ask(upgrade).error == INVALID_UPDATE_VERSION
    report(key(2, 1))
    fetched_by(node, 2, name=1)
    assert node.ask(upgrade).error == NONE
