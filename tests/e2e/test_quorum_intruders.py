"""Bad input at the port of a running node: the right error code or a closed connection.

The quorum is undisturbed: the same leader in the same epoch, no process lost.
"""

from __future__ import annotations

import contextlib
import random
import resource
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft import errors
from kraft.network.quorum_client import QuorumClient
from kraft.raft import rpc as m
from kraft.raft.voters import Endpoint, KRaftVersionRange, ReplicaKey
from kraft.records import Uuid
from kraft.server.local_quorum import LOOPBACK, LocalNode, LocalQuorum
from tests.e2e.quorum_intruder import Intruder, frame_of
from tests.harness.commands import eventually

pytestmark = pytest.mark.nodes

CONNECTIONS = 40
#: Longer than a standstill of the machine, which must not close the connections of a test.
IDLE_MS = 6000
SETTINGS = {
    "max.connections.per.ip": str(CONNECTIONS),
    "connections.max.idle.ms": str(IDLE_MS),
    # No election may happen during a slow test.
    "controller.quorum.fetch.timeout.ms": "120000",
}
NOT_LEADER = errors.NOT_LEADER_OR_FOLLOWER
FOREIGN = "AAAAAAAAAAAAAAAAAAAAAQ"
STRANGER = ReplicaKey(99, Uuid(b"\x63" * 16))
NOWHERE = (Endpoint("CONTROLLER", LOOPBACK, 1),)


class Target:
    """A quorum of three, with its leader and epoch, which must be the same afterwards."""

    def __init__(self, quorum: LocalQuorum) -> None:
        self.quorum = quorum
        with self.client() as client:
            self.before = client.describe_quorum()
            self.cluster_id = client.describe_cluster().cluster_id
        self.epoch = self.before.epoch
        self.leader = self.node(self.before.leader_id)
        self.follower = next(node for node in quorum.nodes if node is not self.leader)
        keys = {voter.key.id: voter.key for voter in self.before.voters}
        self.leader_key, self.follower_key = keys[self.leader.id], keys[self.follower.id]

    def client(self) -> QuorumClient:
        return QuorumClient([(LOOPBACK, node.port) for node in self.quorum.nodes])

    def node(self, id: int) -> LocalNode:
        return next(node for node in self.quorum.nodes if node.id == id)

    def check_undisturbed(self) -> None:
        with self.client() as client:
            now = client.describe_quorum()
        assert (now.leader_id, now.epoch) == (self.leader.id, self.epoch)
        assert {voter.key for voter in now.voters} == {voter.key for voter in self.before.voters}
        for node in self.quorum.nodes:
            assert node.is_running, node.log_path.read_text()
            assert "Traceback" not in node.log_path.read_text()


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with LocalQuorum(tmp_path_factory.mktemp("target"), 3, SETTINGS) as quorum:
        quorum.start()
        target = Target(eventually_described(quorum))
        yield target


def eventually_described(quorum: LocalQuorum) -> LocalQuorum:
    """Return the description, once all nodes listen and the client finds a leader."""

    def is_up() -> bool:
        with contextlib.suppress(Exception):
            Target(quorum)
            return all(is_answered(node.port) for node in quorum.nodes)
        return False

    eventually(is_up)
    return quorum


@pytest.fixture(autouse=True)
def _undisturbed(target: Target) -> Iterator[None]:
    yield
    target.check_undisturbed()


def test_requests_of_another_cluster_are_rejected(target: Target) -> None:
    epoch, leader, follower = target.epoch + 5, target.leader_key, target.follower_key
    requests: list[m.Request] = [
        m.VoteRequest(FOREIGN, epoch, STRANGER, leader, 0, 1 << 40),
        m.BeginQuorumEpochRequest(FOREIGN, epoch, STRANGER.id, leader, NOWHERE),
        m.EndQuorumEpochRequest(FOREIGN, epoch, STRANGER.id, (STRANGER,), NOWHERE),
        m.FetchRequest(FOREIGN, follower, target.epoch, 0, 0),
        m.FetchSnapshotRequest(FOREIGN, follower, target.epoch, m.OffsetAndEpoch(0, 0), 0),
        m.AddRaftVoterRequest(FOREIGN, 1000, STRANGER, NOWHERE),
        m.RemoveRaftVoterRequest(FOREIGN, follower),
        m.UpdateRaftVoterRequest(FOREIGN, target.epoch, follower, NOWHERE, KRaftVersionRange(0, 1)),
    ]
    for request in requests:
        with Intruder(target.leader.port) as intruder:
            assert intruder.ask(request).error == errors.INCONSISTENT_CLUSTER_ID, request


def test_requests_of_other_epochs_are_rejected(target: Target) -> None:
    cluster, epoch, follower = target.cluster_id, target.epoch, target.follower_key
    snapshot = m.OffsetAndEpoch(0, 0)
    expected: list[tuple[m.Request, int]] = [
        (m.VoteRequest(cluster, epoch - 1, follower, None, 0, 0), errors.INVALID_REQUEST),
        (m.BeginQuorumEpochRequest(cluster, epoch - 1, 2, None), errors.FENCED_LEADER_EPOCH),
        (m.EndQuorumEpochRequest(cluster, epoch - 1, 2, ()), errors.FENCED_LEADER_EPOCH),
        (m.FetchRequest(cluster, follower, epoch - 1, 0, 0), errors.FENCED_LEADER_EPOCH),
        (m.FetchRequest(cluster, follower, epoch + 1, 0, 0), errors.UNKNOWN_LEADER_EPOCH),
        (
            m.FetchSnapshotRequest(cluster, follower, epoch - 1, snapshot, 0),
            errors.FENCED_LEADER_EPOCH,
        ),
        (
            m.FetchSnapshotRequest(cluster, follower, epoch + 1, snapshot, 0),
            errors.UNKNOWN_LEADER_EPOCH,
        ),
    ]
    for request, error in expected:
        with Intruder(target.leader.port) as intruder:
            response = intruder.ask(request)
        assert response.error == error, (request, response)


def test_unknown_replicas_are_not_voters(target: Target) -> None:
    cluster, epoch, follower = target.cluster_id, target.epoch, target.follower_key
    update = m.UpdateRaftVoterRequest(cluster, epoch, STRANGER, NOWHERE, KRaftVersionRange(0, 1))
    # The errors of the leader, then of a follower.
    expected: list[tuple[m.Request, int, int]] = [
        (m.RemoveRaftVoterRequest(cluster, STRANGER), errors.VOTER_NOT_FOUND, NOT_LEADER),
        (update, errors.VOTER_NOT_FOUND, NOT_LEADER),
        # Its endpoint does not answer, so that its supported versions are unknown.
        (
            m.AddRaftVoterRequest(cluster, 500, STRANGER, NOWHERE),
            errors.REQUEST_TIMED_OUT,
            NOT_LEADER,
        ),
        (
            m.AddRaftVoterRequest(cluster, 500, follower, NOWHERE),
            errors.DUPLICATE_VOTER,
            NOT_LEADER,
        ),
        (
            m.VoteRequest(cluster, epoch, STRANGER, STRANGER, 0, 0),
            errors.INVALID_VOTER_KEY,
            errors.INVALID_VOTER_KEY,
        ),
        # Another leader of the same epoch.
        (
            m.BeginQuorumEpochRequest(cluster, epoch, STRANGER.id, None, NOWHERE),
            errors.INVALID_REQUEST,
            errors.INVALID_REQUEST,
        ),
        (
            m.EndQuorumEpochRequest(cluster, epoch, STRANGER.id, (STRANGER,), NOWHERE),
            errors.INVALID_REQUEST,
            errors.INVALID_REQUEST,
        ),
    ]
    for request, *codes in expected:
        for node, error in zip((target.leader, target.follower), codes, strict=True):
            with Intruder(node.port) as intruder:
                assert intruder.ask(request).error == error, (request, node)


def test_a_vote_request_of_an_unknown_replica_does_not_disturb_followers(target: Target) -> None:
    """The unknown replica requests a pre-vote in the current epoch, with the longest log."""
    for node in target.quorum.nodes:
        request = m.VoteRequest(
            target.cluster_id, target.epoch, STRANGER, None, target.epoch, 1 << 40, True
        )
        with Intruder(node.port) as intruder:
            response = intruder.ask(request)
        assert isinstance(response, m.VoteResponse)
        assert (response.error, response.is_granted) == (errors.NONE, False)


VOTE = frame_of(m.VoteRequest("cluster", 5, STRANGER, None, 4, 100))


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", (1 << 31) - 1),
        struct.pack(">i", 100 * 1024 * 1024 + 1) + b"\0" * 10,
        # Larger than the limit of a request to the raft node.
        struct.pack(">ihh", 1024 * 1024 + 1, 52, 2) + b"\0" * 100,
        struct.pack(">i", 0),
        struct.pack(">ihhih", 10, 52, 2, 1, 9999),
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, 1, 99, 1, -1),
        VOTE[:4] + VOTE[4:][::-1],
        struct.pack(">i", len(VOTE) - 14) + VOTE[4:-10],
        VOTE[:-12] + b"\xff" * 12,
        b"GET / HTTP/1.1\r\nHost: controller\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)) * 2,
    ],
    ids=[
        *("negative", "2-gigabytes", "above-the-bound", "above-the-rafts", "empty"),
        *("long-client-id", "unknown-api", "unknown-version", "backwards", "cut"),
        *("overwritten", "http", "tls"),
    ],
)
def test_a_malformed_request_closes_its_connection(data: bytes, target: Target) -> None:
    with Intruder(target.leader.port) as intruder:
        intruder.send(data)
        assert intruder.is_closed()


def test_a_request_with_random_bytes_is_answered_or_closes_its_connection(target: Target) -> None:
    """Each request has randomly changed bytes, and another cluster id, so that none is applied."""
    draw = random.Random(853)
    requests = [
        m.VoteRequest(FOREIGN, 9, STRANGER, target.leader_key, 0, 100),
        m.BeginQuorumEpochRequest(FOREIGN, 9, 99, target.leader_key, NOWHERE),
        m.EndQuorumEpochRequest(FOREIGN, 9, 99, (STRANGER,), NOWHERE),
        m.FetchRequest(FOREIGN, ReplicaKey(-1), 0, 0, 0),
        m.DescribeQuorumRequest(),
        m.AddRaftVoterRequest(FOREIGN, 0, STRANGER, NOWHERE),
    ]
    seen = set()
    for _ in range(300):
        frame = bytearray(frame_of(draw.choice(requests)))
        for _ in range(draw.randint(1, 4)):
            frame[draw.randrange(12, len(frame))] = draw.randrange(256)
        if FOREIGN.encode() not in frame and draw.random() < 0.95:
            continue
        with Intruder(draw.choice(target.quorum.nodes).port) as intruder:
            intruder.send(bytes(frame))
            # Send nothing more, so that a frame that claims more bytes ends here too.
            intruder.socket.shutdown(socket.SHUT_WR)
            seen.add(intruder.is_closed())
    assert seen == {True}


def test_silent_connections_and_partial_requests_delay_no_other_client(
    target: Target,
) -> None:
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(Intruder(target.leader.port)) for _ in range(15)]
        begun = [stack.enter_context(Intruder(target.leader.port)) for _ in range(15)]
        for place, intruder in enumerate(begun):
            intruder.send(VOTE[: place + 1])
        target.check_undisturbed()
        # Connections without a request are idle.
        assert all(intruder.is_closed() for intruder in silent)


def test_a_client_that_does_not_read_its_responses_loses_its_connection(target: Target) -> None:
    """The client sends until the socket is full: the node limits its buffers per connection."""
    assert target.leader.process is not None
    before = resident_bytes(target.leader.process.pid)
    frame = frame_of(m.DescribeQuorumRequest()) * 100
    with contextlib.ExitStack() as stack:
        intruders = [
            stack.enter_context(Intruder(target.leader.port, receive_buffer=4096)) for _ in range(3)
        ]
        sent = 0
        for intruder in intruders:
            intruder.socket.settimeout(0.2)
            with contextlib.suppress(TimeoutError, ConnectionError):
                for _ in range(5000):
                    intruder.send(frame)
                    sent += 100
        target.check_undisturbed()
        grown = resident_bytes(target.leader.process.pid) - before
    assert sent > 1000
    assert grown < 64 * 1024 * 1024


def test_a_flood_of_connections_is_limited_and_others_are_served(target: Target) -> None:
    port = target.leader.port
    with contextlib.ExitStack() as stack:
        intruders = [stack.enter_context(Intruder(port)) for _ in range(3 * CONNECTIONS)]
        target.check_undisturbed()
        served = 0
        for intruder in intruders:
            with contextlib.suppress(ConnectionError):
                response = intruder.ask(m.DescribeQuorumRequest())
                served += response.error == errors.NONE
        assert 0 < served <= CONNECTIONS
    # Their connections are closed, and new ones from there are accepted.
    eventually(lambda: is_answered_by_the_leader(port))


def is_answered(port: int) -> bool:
    with Intruder(port) as intruder:
        return intruder.ask(m.DescribeQuorumRequest()).error in (errors.NONE, NOT_LEADER)


def is_answered_by_the_leader(port: int) -> bool:
    with contextlib.suppress(ConnectionError), Intruder(port) as intruder:
        return intruder.ask(m.DescribeQuorumRequest()).error == errors.NONE
    return False


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def test_a_request_of_a_later_epoch_causes_elections_but_stops_no_node(tmp_path: Path) -> None:
    """Any client may send an epoch later than the quorum's. The quorum then elects a leader in a
    later epoch; it rejects the last possible epoch.
    """
    with LocalQuorum(tmp_path, 3) as quorum:
        quorum.start()
        target = Target(eventually_described(quorum))

        def ask_all(epoch: int, leader: m.Request) -> set[int]:
            vote = m.VoteRequest(target.cluster_id, epoch, STRANGER, None, 0, 0)
            errors = set()
            for node in quorum.nodes:
                for request in (vote, leader):
                    with Intruder(node.port) as intruder:
                        errors.add(intruder.ask(request).error)
            return errors

        def lie(epoch: int) -> m.Request:
            return m.BeginQuorumEpochRequest(target.cluster_id, epoch, 99, None, NOWHERE)

        last = (1 << 31) - 1
        assert ask_all(last, lie(last)) == {errors.INVALID_REQUEST}
        # The false epoch may be stale already, after a quick election.
        assert ask_all(1000, lie(1001)) <= {errors.NONE, errors.FENCED_LEADER_EPOCH}
        with target.client() as client:
            now = client.describe_quorum()
            assert now.leader_id != 99
            assert now.epoch > 1000

            def knows_all_that_was_committed() -> bool:
                # A leader reports no high watermark before a record of its epoch is committed.
                return client.describe_quorum().high_watermark >= target.before.high_watermark

            eventually(knows_all_that_was_committed)
        for node in quorum.nodes:
            assert node.is_running, node.log_path.read_text()
            assert "Traceback" not in node.log_path.read_text()
