"""Bugs in the state machine that the simulation found, each with a minimal list of events."""

from typing import Any

from kraft.raft.config import RaftSettings
from kraft.raft.election_state import ElectionState
from kraft.raft.interface import (
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    Role,
    SendRequest,
    SendResponse,
    WriteElectionState,
)
from kraft.raft.log_view import LogView
from kraft.raft.rpc import (
    AddRaftVoterRequest,
    ApiVersionsResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    OffsetAndEpoch,
    VoteRequest,
    VoteResponse,
)
from kraft.raft.voters import Endpoint, KRaftVersionRange, ReplicaKey, VoterSet
from kraft.records.batches import encode_control_records
from tests.harness.raft_nodes import LISTENER, Driver, directory, dynamic, endpoint, static


def driven(
    id: int,
    log: LogView,
    election: ElectionState,
    static_voters: VoterSet | None = None,
    **settings: Any,
) -> Driver:
    """Return a node at time 0 with this log and a bootstrap server."""
    config = RaftSettings(
        node_id=id,
        directory_id=directory(id),
        cluster_id="c",
        endpoints=(endpoint(id),),
        static_voters=static_voters or VoterSet(),
        append_linger_ms=0,
        **{"bootstrap_servers": (Endpoint(LISTENER, "bootstrap", 9001),), **settings},
    )
    return Driver(config, log, election, draw=0.0, now_ms=0.0)


def test_a_leader_names_a_later_epoch_after_that_is_durable() -> None:
    """Responses to waiting fetches name the new epoch, so they wait for its write too."""
    both = static(1, 2)
    leader = driven(1, LogView(static_voters=both), ElectionState(), both)
    leader.wait(1000)
    leader.answer_votes()
    leader.answer_votes()
    assert leader.node.role is Role.LEADER
    fetch = FetchRequest("c", ReplicaKey(2), 1, leader.node.log.end_offset, 1, max_wait_ms=500)
    leader.step(RequestReceived(fetch, 1))
    leader.step(RequestReceived(fetch, 2))
    assert leader.sent == []

    vote = VoteRequest("c", 7, ReplicaKey(2), ReplicaKey(1), 0, 0)
    leader.is_disk_stalled = True
    ready = leader.step(RequestReceived(vote, 3)).ready

    assert [type(write) for write in ready.to_write] == [WriteElectionState]
    assert ready.to_send == []
    messages = leader.sync().sent
    answers = {send.reply_to: send.response for send in messages if isinstance(send, SendResponse)}
    assert sorted(answers) == [1, 2, 3]
    assert all(answer.epoch == 7 for answer in answers.values())


def test_an_observer_continues_an_interrupted_download() -> None:
    """After a lost chunk and the fetch timeout, the node accepts the leader's next response."""
    all_static = static(1)
    log = LogView(static_voters=all_static)
    observer = driven(4, log, ElectionState(1, 1), all_static)
    snapshot_id = OffsetAndEpoch(100, 1)
    to_snapshot = FetchResponse(0, 1, 1, high_watermark=120, snapshot_id=snapshot_id)
    observer.step()
    (fetch,) = observer.sent
    observer.step(ResponseReceived(fetch.correlation, to_snapshot))
    (chunk,) = observer.sent
    assert isinstance(chunk.request, FetchSnapshotRequest)
    observer.step(
        ResponseReceived(
            chunk.correlation,
            FetchSnapshotResponse(0, 1, 1, (), snapshot_id, size=10, position=0, data=b"12345"),
        )
    )
    assert [send.request.position for send in observer.requests()] == [5]

    observer.wait(2500)
    for _ in range(2):  # It asks two servers for the leader, which was silent for too long.
        (fetch,) = observer.sent
        assert isinstance(fetch.request, FetchRequest)
        observer.step(ResponseReceived(fetch.correlation, to_snapshot))

    assert [send.request.position for send in observer.requests()] == [5]


def test_a_leader_that_removed_itself_and_crashed_can_still_be_elected() -> None:
    """Only its log has the record of the removal; the other voter's log is too short to win.

    The node does not count its own vote, and resigns when the removal is committed.
    """
    log = LogView()
    log.load_snapshot_voters(dynamic(1, 3), 1)
    log.append(0, 1, 3)
    removal = encode_control_records([dynamic(3).to_record()], base_offset=1, epoch=3)
    log.append(1, 2, 3)
    log.replay_control_batch(removal)
    log.durable_end_offset = 2
    removed = driven(1, log, ElectionState(3, 1, ReplicaKey(1, directory(1))))
    assert removed.node.role is Role.RESIGNED
    removed.wait(1000)

    removed.wait(1000)  # Without answers it asks bootstrap servers, then the voters again.
    assert removed.node.role is Role.UNATTACHED
    removed.wait(1000)
    assert removed.node.role is Role.PROSPECTIVE
    assert [send.destination for send in removed.sent] == [3]
    removed.answer_votes()
    assert removed.node.role is Role.CANDIDATE
    removed.answer_votes()
    assert removed.node.role is Role.LEADER

    end_offset, epoch = removed.node.log.end_offset, removed.node.epoch
    fetch = FetchRequest("c", ReplicaKey(3, directory(3)), epoch, end_offset, epoch)
    removed.step(RequestReceived(fetch, 1))
    assert removed.node.log.high_watermark == end_offset
    assert removed.node.role is Role.RESIGNED


def test_a_removed_voter_never_skips_the_pre_vote() -> None:
    """Its elections would raise the epoch without the leader of the other voters knowing it."""
    log = LogView()
    log.load_snapshot_voters(dynamic(1, 3), 1)
    log.append(0, 1, 3)
    log.replay_control_batch(encode_control_records([dynamic(3).to_record()], epoch=3))
    log.durable_end_offset = 1
    removed = driven(1, log, ElectionState(3))
    removed.wait(1000)
    (ask,) = removed.sent
    assert ask.request.is_pre_vote
    removed.step(RequestFailed(ask.correlation, is_unsupported=True))
    assert removed.node.role is Role.PROSPECTIVE
    removed.wait(100)
    (ask,) = removed.sent
    removed.step(ResponseReceived(ask.correlation, VoteResponse(35)))
    assert (removed.node.role, removed.node.epoch) == (Role.PROSPECTIVE, 3)


def test_a_voter_does_not_stand_after_its_removal_is_committed() -> None:
    log = LogView()
    log.load_snapshot_voters(dynamic(1, 3), 1)
    log.append(0, 1, 3)
    log.replay_control_batch(encode_control_records([dynamic(3).to_record()], epoch=3))
    log.durable_end_offset, log.high_watermark = 1, 1
    removed = driven(1, log, ElectionState(3))
    removed.wait(10_000)
    assert removed.node.role is Role.UNATTACHED
    assert removed.node.is_electable is False


def test_a_follower_fetches_although_a_bootstrap_server_is_silent() -> None:
    """The leader has refused a connection once, and the bootstrap server never answers."""
    all_static = static(1, 2, 3)
    log = LogView(static_voters=all_static)
    follower = driven(2, log, ElectionState(1, 1), all_static)
    follower.step()
    (fetch,) = follower.sent
    assert fetch.destination == 1
    follower.step(RequestFailed(fetch.correlation))
    (elsewhere,) = follower.sent
    assert elsewhere.destination < 0

    follower.wait(20)

    (fetch,) = follower.sent
    assert fetch.destination == 1
    assert isinstance(fetch.request, FetchRequest)


def test_an_observer_grants_pre_votes_once_its_leader_is_silent() -> None:
    """In the candidate's longer log it is a voter; KIP-996 protects only live leaders."""
    log = LogView()
    log.load_snapshot_voters(dynamic(1, 2), 1)
    observer = driven(3, log, ElectionState(1, 1))
    observer.step()
    (fetch,) = observer.sent
    observer.step(ResponseReceived(fetch.correlation, FetchResponse(0, 1, 1, high_watermark=0)))
    assert observer.node.role is Role.FOLLOWER

    def is_granted() -> bool:
        ask = VoteRequest("c", 1, ReplicaKey(2, directory(2)), None, 1, 5, is_pre_vote=True)
        observer.step(RequestReceived(ask, 1))
        (answer,) = (send for send in observer.sent if isinstance(send, SendResponse))
        return bool(answer.response.is_granted)

    assert not is_granted()
    observer.wait(2000)
    assert is_granted()
    assert observer.node.role is Role.FOLLOWER


def test_a_joining_observer_looks_for_a_newer_leader_first() -> None:
    """Otherwise it would send only AddRaftVoter requests, all to the silent old leader."""
    log = LogView()
    log.load_snapshot_voters(dynamic(1, 2), 1)
    observer = driven(3, log, ElectionState(1, 2), auto_join=True)
    asked = []
    for _ in range(10):
        observer.wait(1000)
        asked += observer.sent
    assert {type(send.request) for send in asked} == {FetchRequest}
    assert {send.destination < 0 for send in asked} == {True, False}


def test_the_search_for_a_newer_leader_skips_the_silent_leader() -> None:
    """Static voters are bootstrap servers too; asking the silent one again costs two seconds."""
    all_static = static(1, 2)
    log = LogView(static_voters=all_static)
    observer = driven(3, log, ElectionState(1, 1), all_static, bootstrap_servers=())
    observer.step()
    assert [send.destination for send in observer.sent] == [1]
    observer.wait(2000)
    assert [send.destination for send in observer.sent] == [2]


def test_a_sole_bootstrap_server_is_asked_although_it_leads() -> None:
    all_static = static(1)
    log = LogView(static_voters=all_static)
    observer = driven(3, log, ElectionState(1, 1), all_static, bootstrap_servers=())
    observer.step()
    observer.wait(2000)
    assert [send.destination for send in observer.sent] == [1]


def test_a_bootstrap_server_that_failed_is_asked_again_after_all_others() -> None:
    """Each silent server costs two seconds; drawing one twice delays the others."""
    log = LogView()
    log.load_snapshot_voters(dynamic(1, 2, 4, 5), 1)
    servers = tuple(Endpoint(LISTENER, f"bootstrap{id}", 8000 + id) for id in range(4))
    observer = driven(3, log, ElectionState(1, 1), bootstrap_servers=servers)
    observer.step()
    assert [send.destination for send in observer.sent] == [1]

    asked = []
    for _ in range(8):
        observer.wait(2000)
        (fetch,) = observer.sent
        asked.append(fetch.destination)

    assert sorted(asked[:4]) == [-5, -4, -3, -2]
    assert asked[4:] == asked[:4]


def test_an_unattached_node_asks_each_bootstrap_server_in_turn() -> None:
    """The order survives a change of epoch, which forgets the requests in flight."""
    servers = tuple(Endpoint(LISTENER, f"bootstrap{id}", 8000 + id) for id in range(3))
    observer = driven(9, LogView(), ElectionState(1), bootstrap_servers=servers)
    observer.step()
    asked = [send.destination for send in observer.sent]
    for epoch in (2, 3):
        vote = VoteRequest("c", epoch, ReplicaKey(1, directory(1)), None, 0, 0, is_pre_vote=True)
        observer.step(RequestReceived(vote, epoch))
        asked += [send.destination for send in observer.sent if isinstance(send, SendRequest)]
    assert sorted(asked) == [-4, -3, -2]


def test_a_second_voter_has_a_whole_check_quorum_period() -> None:
    """No fetch restarts a sole voter's check-quorum timer: it has almost expired by then."""
    log = LogView()
    log.load_snapshot_voters(dynamic(1), 1)
    leader = driven(1, log, ElectionState())
    leader.step()
    assert leader.node.role is Role.LEADER
    end_offset, epoch = log.end_offset, leader.node.epoch
    second = ReplicaKey(2, directory(2))
    leader.wait(2990)
    fetch = FetchRequest("c", second, epoch, end_offset, epoch, max_wait_ms=500)
    leader.step(RequestReceived(fetch, 1))
    leader.step(RequestReceived(AddRaftVoterRequest("c", 100, second, (endpoint(2),)), 2))
    (ask,) = (send for send in leader.sent if isinstance(send, SendRequest))
    leader.step(ResponseReceived(ask.correlation, ApiVersionsResponse(0, KRaftVersionRange(0, 1))))
    assert set(log.voters.ids) == {1, 2}

    leader.wait(400)
    assert leader.node.role is Role.LEADER
    leader.wait(2600)
    assert leader.node.role is Role.RESIGNED
