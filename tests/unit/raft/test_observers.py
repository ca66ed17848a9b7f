"""A leader's observers: their number is bounded, and made-up ids do not evict real ones."""

from kraft.errors import REQUEST_TIMED_OUT
from kraft.protocol.raft_rpcs import encode_response
from kraft.raft.interface import RequestAbandoned, RequestFailed, SendResponse
from kraft.raft.observers import (
    ESTABLISHED_AFTER_MS,
    MAX_ESTABLISHED,
    MAX_NEWCOMERS,
    SILENT_AFTER_MS,
    Observers,
)
from kraft.raft.rpc import (
    AddRaftVoterRequest,
    ApiVersionsRequest,
    DescribeQuorumRequest,
    FetchRequest,
    RemoveRaftVoterRequest,
)
from kraft.raft.voters import ReplicaKey
from tests.counting import instructions_of
from tests.harness.raft_nodes import (
    Driver,
    dynamic,
    endpoint,
    fetched_by,
    key,
    leader,
    leader_state,
)

SESSION_MS = 300_000


def following(node: Driver) -> Driver:
    """Wait and fetch as voter 2, so that the leader does not resign."""
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
    leading = leader_state(node)
    assert len(leading.replicas.progress) <= MAX_NEWCOMERS + 2
    assert len(observed(node)) == MAX_NEWCOMERS


def test_a_describe_of_as_many_observers_as_there_can_be_costs_little_for_each() -> None:
    """No request may hold the event loop for more than 5 ms; 3,000 observers took 4.7 ms."""
    node = leader()
    leading = leader_state(node)
    for id in range(10_000, 10_000 + MAX_ESTABLISHED):
        made_up_fetch(node, id)
        leading.replicas.observers.establish(ReplicaKey(id), node.now_ms)
    for id in range(50_000, 50_000 + MAX_NEWCOMERS):
        made_up_fetch(node, id)

    def ask() -> None:
        described = node.ask(DescribeQuorumRequest())
        encode_response(described, 2, "CONTROLLER", lambda slice: memoryview(b""))
        assert len(described.observers) == MAX_ESTABLISHED + MAX_NEWCOMERS

    assert instructions_of(ask) < 150 * (MAX_ESTABLISHED + MAX_NEWCOMERS)


def test_silent_observers_are_forgotten_without_a_describe() -> None:
    node = leader()
    fetched_by(node, 2)
    fetched_by(node, 8)
    made_up_fetch(node, 9)
    leading = leader_state(node)
    for _ in range(SESSION_MS // 1000):
        following(node)
        fetched_by(node, 8)
    assert ReplicaKey(9) in leading.replicas.progress
    for _ in range(SESSION_MS // 1000 // 10):
        following(node)
        fetched_by(node, 8)
    assert set(leading.replicas.progress) == {ReplicaKey(2), key(8)}
    assert len(leading.replicas.observers) == 1


def test_an_established_observer_survives_a_flood() -> None:
    node = leader()
    fetched_by(node, 2)
    for _ in range(ESTABLISHED_AFTER_MS // 1000 + 1):
        fetched_by(node, 8)
        following(node)
    for id in range(10_000, 10_000 + 2 * MAX_NEWCOMERS):
        made_up_fetch(node, id)
    assert 8 in observed(node)


def test_a_long_flood_does_not_evict_established_observers() -> None:
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
            # The earlier made-up observers keep fetching, like the real one.
            for fake in (real, *fakes[: first + 500]):
                forgotten.add(observers.note_fetch(fake, now_ms))
    assert real not in forgotten
    assert real in observers
    assert len(observers) <= MAX_ESTABLISHED + MAX_NEWCOMERS


def test_a_silent_observer_is_evicted_when_all_places_are_taken() -> None:
    observers = Observers(SESSION_MS)
    for id in range(MAX_ESTABLISHED):
        observers.establish(ReplicaKey(id), 1000.0 + id)
    newcomer = key(8)
    at_ms = 1000.0 + SILENT_AFTER_MS
    assert observers.note_fetch(newcomer, at_ms - ESTABLISHED_AFTER_MS) is None
    assert observers.note_fetch(newcomer, at_ms) == ReplicaKey(0)
    # Observer 1 is not silent yet: it stays, and key(9) is not established.
    assert observers.note_fetch(key(9), at_ms - ESTABLISHED_AFTER_MS) is None
    assert observers.note_fetch(key(9), at_ms) is None
    assert ReplicaKey(1) in observers


def test_a_silent_newcomer_starts_over() -> None:
    observers = Observers(SESSION_MS)
    observers.note_fetch(key(8), 0)
    observers.note_fetch(key(8), SILENT_AFTER_MS + 1)
    for id in range(MAX_NEWCOMERS):
        observers.note_fetch(ReplicaKey(id), SILENT_AFTER_MS + 2)
    assert key(8) not in observers


def test_an_observer_that_became_a_voter_is_not_evicted_as_one() -> None:
    node = leader(voters=dynamic(1, 2, 3), kraft_version=1)
    fetched_by(node, 2)
    # The leader keeps the progress of an observer that becomes a voter.
    fetched_by(node, 4)
    leading = leader_state(node)
    leading.append_control_records([dynamic(1, 2, 3, 4).to_record()])
    assert node.node.voters.is_voter(key(4))
    for id in range(10_000, 10_000 + 2 * MAX_NEWCOMERS):
        made_up_fetch(node, id)
    assert key(4) in leading.replicas.progress


def test_a_removed_voter_is_forgotten_like_an_observer() -> None:
    node = leader(voters=dynamic(1, 2, 3), kraft_version=1)
    for id in (2, 3):
        fetched_by(node, id)
    assert node.ask(RemoveRaftVoterRequest("cluster", key(3))) is None
    fetched_by(node, 2)
    assert observed(node) == {3}
    for _ in range(SESSION_MS // 1000 + 1):
        following(node)
    assert observed(node) == set()


# -- waiting fetches


def test_a_step_costs_the_same_however_many_fetches_wait() -> None:
    """5,000 brokers may wait for records; each step once scanned all of their fetches twice."""

    def cost_of_a_step(waiting: int) -> int:
        node = leader()
        fetched_by(node, 2)
        for id in range(1000, 1000 + waiting):
            fetched_by(node, id % 200 + 10, max_wait_ms=500, name=id // 200)
        leading = leader_state(node)
        assert len(leading.observers_purgatory.waiting) == waiting
        return instructions_of(lambda: node.node.step(None, node.now_ms))

    assert cost_of_a_step(5000) < 1.2 * cost_of_a_step(10)


def test_each_waiting_fetch_is_answered_at_its_deadline() -> None:
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


def test_an_abandoned_fetch_does_not_wait() -> None:
    node = leader()
    fetched_by(node, 2)
    fetched_by(node, 8, max_wait_ms=300)
    leading = leader_state(node)
    assert len(leading.observers_purgatory.waiting) == 1
    node.step(RequestAbandoned(node._reply_to))
    assert not leading.observers_purgatory.waiting
    node.wait(400)
    assert not node.requests() or node.answer(node._reply_to) is None
    # An unknown request is ignored.
    node.step(RequestAbandoned(node._reply_to))


def test_made_up_voters_leave_no_connections_behind() -> None:
    """Each voter that could not be reached once kept a connection until the epoch ended."""
    node = leader(voters=dynamic(1, 2, 3), kraft_version=1)
    fetched_by(node, 2)
    before = len(node.node.connections)
    for id in range(100, 200):
        assert node.ask(AddRaftVoterRequest("cluster", 1000, key(id), (endpoint(id),))) is None
        (send,) = node.requests(ApiVersionsRequest)
        node.step(RequestFailed(send.correlation))
        (answer,) = (sent.response for sent in node.sent if isinstance(sent, SendResponse))
        assert answer.error == REQUEST_TIMED_OUT
    assert len(node.node.connections) == before
