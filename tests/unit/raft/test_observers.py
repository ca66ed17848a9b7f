"""A leader's observers: bounded, forgotten in time; made-up ids do not evict real observers."""

import time

from kraft.raft.messages import (
    REQUEST_TIMED_OUT,
    AddRaftVoterRequest,
    ApiVersionsRequest,
    DescribeQuorumRequest,
    FetchRequest,
    RemoveRaftVoterRequest,
)
from kraft.raft.observers import (
    ESTABLISHED_AFTER_MS,
    MAX_ESTABLISHED,
    MAX_NEWCOMERS,
    SILENT_AFTER_MS,
    Observers,
)
from kraft.raft.ready import RequestAbandoned, RequestFailed, SendResponse
from kraft.raft.voters import ReplicaKey
from kraft.server.rpc.responses import encode_response
from tests.unit.raft.nodes import Driver, dynamic, endpoint, fetched_by, key, leader

SESSION_MS = 300_000


def following(node: Driver) -> Driver:
    """Time passes and voter 2 fetches, so that the leader stays one."""
    node.wait(1000)
    fetched_by(node, 2)
    return node


def observed(node: Driver) -> set[int]:
    return {state.key.id for state in node.ask(DescribeQuorumRequest()).observers}


def made_up_fetch(node: Driver, id: int) -> None:
    end = node.node.log.end_offset
    last_epoch = node.node.log.epochs.epoch_at(end - 1)
    node.ask(FetchRequest("cluster", ReplicaKey(id), node.node.epoch, end, last_epoch))


def test_made_up_replica_ids_leave_a_bounded_number_of_observers() -> None:
    node = leader()
    for id in range(10_000, 10_000 + 3 * (MAX_NEWCOMERS + MAX_ESTABLISHED)):
        made_up_fetch(node, id)
    leadership = node.node.leadership
    assert leadership is not None
    assert len(leadership.replicas) <= MAX_NEWCOMERS + 2
    assert len(observed(node)) == MAX_NEWCOMERS


def test_a_describe_of_as_many_observers_as_there_can_be_takes_under_5_ms() -> None:
    node = leader()
    leadership = node.node.leadership
    assert leadership is not None
    for id in range(10_000, 10_000 + MAX_ESTABLISHED):
        made_up_fetch(node, id)
        leadership.observers.establish(ReplicaKey(id), node.now_ms)
    for id in range(50_000, 50_000 + MAX_NEWCOMERS):
        made_up_fetch(node, id)
    took_ms = []
    for _ in range(5):
        start = time.process_time()
        described = node.ask(DescribeQuorumRequest())
        encode_response(described, 2, "CONTROLLER", lambda slice: memoryview(b""))
        took_ms.append(1000 * (time.process_time() - start))
    assert len(described.observers) == MAX_ESTABLISHED + MAX_NEWCOMERS
    assert min(took_ms) < 5


def test_observers_are_forgotten_in_time_without_being_asked_for() -> None:
    node = leader()
    fetched_by(node, 2)
    fetched_by(node, 8)
    made_up_fetch(node, 9)
    leadership = node.node.leadership
    assert leadership is not None
    for _ in range(SESSION_MS // 1000):
        following(node)
        fetched_by(node, 8)
    assert ReplicaKey(9) in leadership.replicas
    for _ in range(SESSION_MS // 1000 // 10):
        following(node)
        fetched_by(node, 8)
    assert set(leadership.replicas) == {ReplicaKey(2), key(8)}
    assert len(leadership.observers) == 1


def test_an_observer_that_has_fetched_for_long_outlives_a_flood() -> None:
    node = leader()
    fetched_by(node, 2)
    for _ in range(ESTABLISHED_AFTER_MS // 1000 + 1):
        fetched_by(node, 8)
        following(node)
    for id in range(10_000, 10_000 + 2 * MAX_NEWCOMERS):
        made_up_fetch(node, id)
    assert 8 in observed(node)


def test_a_flood_that_fetches_for_long_does_not_evict_who_was_there_before() -> None:
    observers = Observers(SESSION_MS)
    real = key(8)
    forgotten = set()
    for now_ms in range(0, ESTABLISHED_AFTER_MS + 1, 1000):
        forgotten.add(observers.note_fetch(real, now_ms))
    fakes = [ReplicaKey(id) for id in range(10_000, 10_000 + MAX_ESTABLISHED + 500)]
    now_ms = 20_000
    for first in range(0, len(fakes), 500):
        for _ in range(ESTABLISHED_AFTER_MS // 1000 + 1):
            now_ms += 1000
            # Those before keep their places as the real one does.
            for fake in (real, *fakes[: first + 500]):
                forgotten.add(observers.note_fetch(fake, now_ms))
    assert real not in forgotten
    assert real in observers
    assert len(observers) <= MAX_ESTABLISHED + MAX_NEWCOMERS


def test_a_silent_observer_gives_way_where_all_places_are_taken() -> None:
    observers = Observers(SESSION_MS)
    for id in range(MAX_ESTABLISHED):
        observers.establish(ReplicaKey(id), 1000.0 + id)
    newcomer = key(8)
    at_ms = 1000.0 + SILENT_AFTER_MS
    assert observers.note_fetch(newcomer, at_ms - ESTABLISHED_AFTER_MS) is None
    assert observers.note_fetch(newcomer, at_ms) == ReplicaKey(0)
    # The next has been heard lately: it stays, and the newcomer waits among the newcomers.
    assert observers.note_fetch(key(9), at_ms - ESTABLISHED_AFTER_MS) is None
    assert observers.note_fetch(key(9), at_ms) is None
    assert ReplicaKey(1) in observers


def test_a_newcomer_that_was_silent_begins_anew() -> None:
    observers = Observers(SESSION_MS)
    observers.note_fetch(key(8), 0)
    observers.note_fetch(key(8), SILENT_AFTER_MS + 1)
    for id in range(MAX_NEWCOMERS):
        observers.note_fetch(ReplicaKey(id), SILENT_AFTER_MS + 2)
    assert key(8) not in observers


def test_an_observer_that_became_a_voter_is_not_evicted_as_one() -> None:
    node = leader(voters=dynamic(1, 2, 3), kraft_version=1)
    fetched_by(node, 2)
    # What a replica told as an observer counts once it votes.
    fetched_by(node, 4)
    leadership = node.node.leadership
    assert leadership is not None
    node.node.append_control_records([dynamic(1, 2, 3, 4).to_record()])
    assert node.node.voters.is_voter(key(4))
    for id in range(10_000, 10_000 + 2 * MAX_NEWCOMERS):
        made_up_fetch(node, id)
    assert key(4) in leadership.replicas


def test_a_voter_that_was_removed_is_forgotten_as_observers_are() -> None:
    node = leader(voters=dynamic(1, 2, 3), kraft_version=1)
    for id in (2, 3):
        fetched_by(node, id)
    assert node.ask(RemoveRaftVoterRequest("cluster", key(3))) is None
    fetched_by(node, 2)
    assert observed(node) == {3}
    for _ in range(SESSION_MS // 1000 + 1):
        following(node)
    assert observed(node) == set()


# -- fetches that wait


def test_a_step_costs_the_same_however_many_fetches_wait() -> None:
    """5,000 brokers may wait for records at once; each step went over all of them, twice."""

    def best_step_us(waiting: int) -> float:
        node = leader()
        fetched_by(node, 2)
        for id in range(1000, 1000 + waiting):
            fetched_by(node, id % 200 + 10, max_wait_ms=500, name=id // 200)
        leadership = node.node.leadership
        assert leadership is not None
        assert len(leadership.waiting) == waiting
        took = []
        for _ in range(50):
            start = time.process_time()
            for _ in range(20):
                node.node.step(None, node.now_ms)
            took.append((time.process_time() - start) / 20)
        return min(took) * 1e6

    few, many = best_step_us(10), best_step_us(5000)
    assert many < 5 * few + 20


def test_waiting_fetches_are_answered_each_at_its_own_time() -> None:
    node = leader()
    fetched_by(node, 2)
    fetched_by(node, 8, max_wait_ms=300)
    fetched_by(node, 9, max_wait_ms=100)
    assert node.ready.wake_at_ms == node.now_ms + 100
    node.wait(100)
    assert [send.reply_to for send in node.sent] == [node._reply_to]
    assert node.ready.wake_at_ms == node.now_ms + 200
    node.wait(200)
    assert [send.reply_to for send in node.sent] == [node._reply_to - 1]


def test_a_fetch_whose_sender_is_gone_waits_no_more() -> None:
    node = leader()
    fetched_by(node, 2)
    fetched_by(node, 8, max_wait_ms=300)
    leadership = node.node.leadership
    assert leadership is not None
    assert len(leadership.waiting) == 1
    node.step(RequestAbandoned(node._reply_to))
    assert not leadership.waiting
    node.wait(400)
    assert not node.requests() or node.answer(node._reply_to) is None
    # A request that is not known any more is no matter.
    node.step(RequestAbandoned(node._reply_to))


def test_made_up_voters_leave_no_connections_behind() -> None:
    """Each had an entry of its own until the epoch's end."""
    node = leader(voters=dynamic(1, 2, 3), kraft_version=1)
    fetched_by(node, 2)
    before = len(node.node._connections)
    for id in range(100, 200):
        assert node.ask(AddRaftVoterRequest("cluster", 1000, key(id), (endpoint(id),))) is None
        (send,) = node.requests(ApiVersionsRequest)
        node.step(RequestFailed(send.correlation))
        (answer,) = (sent.response for sent in node.sent if isinstance(sent, SendResponse))
        assert answer.error == REQUEST_TIMED_OUT
    assert len(node.node._connections) == before
