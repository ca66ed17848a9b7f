"""Admission: the connections that a full listener keeps (voters, brokers, clients, others)."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from kraft.network.admission import (
    CONNECTIONS_OF_A_VOTER,
    NEWCOMERS,
    VOTER_CONNECTIONS,
    Admission,
    ConnectionLimits,
    Standing,
    standing_of,
)
from kraft.network.listener import Limits
from kraft.raft import rpc as m
from kraft.raft.voters import KRaftVersionRange, ReplicaKey
from tests.harness.raft_nodes import directory, dynamic, key, static

CLUSTER = "cluster"


@dataclass(eq=False)
class Peer:
    """A connection without a socket."""

    address: str = "10.0.0.1"
    last_active: float = 0.0
    listener_name: str = "CONTROLLER"
    is_open: bool = True

    def close_for_others(self) -> None:
        self.is_open = False


@dataclass
class Door:
    admission: Admission = field(default_factory=lambda: Admission(ConnectionLimits(100, 1000)))
    now: float = 0.0

    def connect(self, address: str = "10.0.0.1", listener: str = "CONTROLLER") -> Peer:
        self.now += 0.001
        peer = Peer(address, self.now, listener)
        peer.is_open = self.admission.admit(peer)
        return peer

    def ask(self, peer: Peer, standing: Standing, voter_id: int = -1) -> Peer:
        """Send a request on the connection, if it is open, and complete the request."""
        if peer.is_open:
            self.begin(peer, standing, voter_id)
            self.admission.end_work(peer)
        return peer

    def begin(self, peer: Peer, standing: Standing, voter_id: int = -1) -> Peer:
        self.now += 0.001
        peer.last_active = self.now
        self.admission.begin_work(peer)
        self.admission.promote(peer, standing, voter_id)
        return peer

    def come(self, standing: Standing, voter_id: int = -1, address: str = "10.0.0.1") -> Peer:
        """Connect a peer that sends ApiVersions first, as every peer does, and then a request."""
        peer = self.ask(self.connect(address), Standing.CLIENT)
        return self.ask(peer, standing, voter_id)


def open_ones(peers: list[Peer]) -> int:
    return sum(peer.is_open for peer in peers)


def test_a_thousand_brokers_of_one_host_get_in_with_five_connections_each() -> None:
    limits = Limits()
    door = Door(Admission(limits.of_connections()))
    brokers = [door.connect() for _ in range(5000)]
    for broker in brokers:
        door.ask(broker, Standing.REPLICA)
    tools = [door.come(Standing.CLIENT) for _ in range(50)]
    assert open_ones(brokers) == 5000
    assert open_ones(tools) == 50


def test_idle_connections_do_not_keep_brokers_or_voters_out() -> None:
    door = Door()
    strangers = [door.come(Standing.CLIENT) for _ in range(1000)]
    voters = [door.come(Standing.VOTER, id) for id in (2, 3)]
    brokers = [door.come(Standing.REPLICA) for _ in range(100)]
    more = [door.connect() for _ in range(1000)]
    assert open_ones(voters) == 2
    assert open_ones(brokers) == 100
    assert open_ones(strangers) == 0
    assert open_ones(more) <= NEWCOMERS
    assert len(door.admission) <= 100 + NEWCOMERS + 2


def test_the_oldest_silent_connections_are_closed_first() -> None:
    door = Door()
    silent = [door.connect() for _ in range(50)]
    clients = [door.come(Standing.CLIENT) for _ in range(50)]
    newcomers = [door.connect() for _ in range(10)]
    assert open_ones(clients) == 50
    assert [peer.is_open for peer in silent] == [False] * 10 + [True] * 40
    assert open_ones(newcomers) == 10


def test_a_connection_with_a_request_in_progress_is_never_closed() -> None:
    door = Door()
    waiting = [door.begin(door.connect(), Standing.CLIENT) for _ in range(100)]
    others = [door.come(Standing.REPLICA) for _ in range(200)]
    door.admission.trim(1e9)
    assert open_ones(waiting) == 100
    assert open_ones(others) == 0
    assert len(door.admission) == 100


def test_a_rejected_connection_is_forgotten() -> None:
    door = Door(Admission(ConnectionLimits(8, 1000)))
    for _ in range(8 + 2):
        door.begin(door.connect("10.0.0.2"), Standing.REPLICA)
    assert not door.connect("10.0.0.3").is_open
    assert set(door.admission._by_address) == {"10.0.0.2"}


def test_idle_connections_above_the_limit_are_closed_after_a_while() -> None:
    door = Door()
    peers = [door.come(Standing.CLIENT) for _ in range(110)]
    assert open_ones(peers) == 110
    door.admission.trim(door.now + 1)
    assert open_ones(peers) == 110
    door.admission.trim(door.now + 3)
    assert [peer.is_open for peer in peers] == [False] * 10 + [True] * 100


def test_idle_brokers_above_the_limit_are_closed_later() -> None:
    door = Door()
    brokers = [door.come(Standing.REPLICA) for _ in range(110)]
    door.admission.trim(door.now + 9)
    assert open_ones(brokers) == 110
    door.admission.trim(door.now + 11)
    assert open_ones(brokers) == 100


def test_an_address_has_its_own_limit() -> None:
    door = Door(Admission(ConnectionLimits(1000, 40)))
    first = [door.come(Standing.CLIENT, address="10.0.0.1") for _ in range(200)]
    others = [door.come(Standing.CLIENT, address="10.0.0.2") for _ in range(40)]
    assert open_ones(first) == 40 + 10
    assert open_ones(others) == 40


def test_many_connections_of_one_claimed_voter_have_their_own_limit() -> None:
    door = Door()
    real = door.begin(door.connect(), Standing.VOTER, 2)
    liars = [door.come(Standing.VOTER, 2) for _ in range(500)]
    other = door.come(Standing.VOTER, 3)
    assert real.is_open
    assert other.is_open
    assert open_ones(liars) == CONNECTIONS_OF_A_VOTER - 1
    door.admission.end_work(real)
    assert open_ones([door.come(Standing.VOTER, 2)]) == 1


def test_the_connections_of_all_voters_are_limited() -> None:
    door = Door(Admission(ConnectionLimits(10, 10)))
    for id in range(2 * VOTER_CONNECTIONS):
        door.begin(door.connect(), Standing.VOTER, id)
    assert len(door.admission) <= VOTER_CONNECTIONS + 12


def test_a_closed_connection_is_forgotten() -> None:
    door = Door()
    peers = [
        door.come(standing, 2, f"10.0.0.{place}")
        for place, standing in enumerate((*Standing, *Standing))
    ]
    peers += [door.connect(), door.begin(door.connect(), Standing.CLIENT)]
    for peer in (*peers, *peers):
        door.admission.leave(peer)
        door.admission.end_work(peer)
    admission = door.admission
    assert len(admission) == 0
    assert not admission._by_address
    assert not admission._voters
    assert not admission._voter_of
    assert admission._all.count == 0
    assert not any(admission._all.idle)


SNAPSHOT = m.OffsetAndEpoch(0, 0)


@pytest.mark.parametrize(
    ("request_", "standing", "id"),
    [
        (m.FetchRequest(CLUSTER, key(2), 5, 0, 0), Standing.VOTER, 2),
        (m.FetchRequest(None, key(2), 5, 0, 0), Standing.VOTER, 2),
        (m.FetchRequest("another", key(2), 5, 0, 0), Standing.CLIENT, 2),
        # A voter's id with another directory, an observer, a client.
        (m.FetchRequest(CLUSTER, key(2, 1), 5, 0, 0), Standing.REPLICA, 2),
        (m.FetchRequest(CLUSTER, key(9), 5, 0, 0), Standing.REPLICA, 9),
        (m.FetchRequest(CLUSTER, ReplicaKey(-1), 5, 0, 0), Standing.CLIENT, -1),
        (m.FetchSnapshotRequest(CLUSTER, key(3), 5, SNAPSHOT, 0), Standing.VOTER, 3),
        (m.VoteRequest(CLUSTER, 5, key(3), None, 4, 100), Standing.VOTER, 3),
        (m.VoteRequest(CLUSTER, 5, key(9), None, 4, 100), Standing.REPLICA, 9),
        (m.BeginQuorumEpochRequest(CLUSTER, 5, 2, None), Standing.VOTER, 2),
        (m.EndQuorumEpochRequest(CLUSTER, 5, 9, ()), Standing.REPLICA, 9),
        (
            m.UpdateRaftVoterRequest(CLUSTER, 5, key(2), (), KRaftVersionRange(0, 1)),
            Standing.VOTER,
            2,
        ),
        (m.DescribeQuorumRequest(), Standing.CLIENT, -1),
        (m.AddRaftVoterRequest(CLUSTER, 1000, key(9), ()), Standing.CLIENT, -1),
        (m.RemoveRaftVoterRequest(CLUSTER, key(2)), Standing.CLIENT, -1),
    ],
)
def test_the_standing_follows_from_the_requests(
    request_: m.Request, standing: Standing, id: int
) -> None:
    assert standing_of(request_, CLUSTER, dynamic(1, 2, 3)) == (standing, id)


def test_static_voters_have_no_directory() -> None:
    fetch = m.FetchRequest(CLUSTER, ReplicaKey(2, directory(2, 7)), 5, 0, 0)
    assert standing_of(fetch, CLUSTER, static(1, 2, 3)) == (Standing.VOTER, 2)


def test_an_address_and_a_listener_may_have_limits_of_their_own() -> None:
    limits = ConnectionLimits(100, 50, {"10.0.0.9": 4, "10.0.0.8": 0}, {"SMALL": 4})
    door = Door(Admission(limits))
    assert not door.connect("10.0.0.8").is_open
    for address, listener in (("10.0.0.9", "CONTROLLER"), ("10.0.0.7", "SMALL")):
        peers = [door.connect(address, listener) for _ in range(10)]
        # New connections replace others that have not sent a request yet.
        assert open_ones(peers) == open_ones(peers[-4:]) == 4
    assert open_ones([door.connect() for _ in range(30)]) == 30


def test_lower_limits_close_idle_connections() -> None:
    door = Door(Admission(ConnectionLimits(100, 1000)))
    peers = [door.come(Standing.CLIENT) for _ in range(20)]
    busy = door.begin(peers[0], Standing.CLIENT)
    door.admission.set_limits(ConnectionLimits(5, 1000))
    assert open_ones(peers) == 20
    door.admission.trim(door.now + 60)
    assert open_ones(peers) == 5
    assert busy.is_open
    door.admission.set_limits(ConnectionLimits(100, 3))
    door.admission.trim(door.now + 60)
    assert open_ones(peers) == 3
