"""A client with one given controller finds the leader, or its error says why not."""

from __future__ import annotations

import random
import socket
import threading
import time

import pytest

from kraft import errors
from kraft.errors import UnsupportedVersionError
from kraft.network import controller_connection, quorum_client
from kraft.network.quorum_client import (
    QuorumClient,
    QuorumRefusedError,
    QuorumUnreachableError,
)
from kraft.raft import rpc as m
from kraft.raft.voters import Endpoint, KRaftVersionRange, ReplicaKey
from tests.harness.running_nodes import CLUSTER_ID, DIRECTORIES, RunningNodes, done

VOTER = ReplicaKey(4, DIRECTORIES[4])
ENDPOINTS = (Endpoint("CONTROLLER", "host", 9093),)
REMOVAL = m.RemoveRaftVoterRequest(None, VOTER)


def test_a_follower_names_the_leader_which_describes_the_quorum() -> None:
    with RunningNodes() as nodes, QuorumClient(nodes.addresses(0)) as client:
        assert client.describe_quorum() == nodes_as_seen(nodes)
        assert [id for id, _ in nodes.asked] == [0, 1]
        # The client remembers the leader and asks it directly.
        client.describe_quorum()
        assert [id for id, _ in nodes.asked] == [0, 1, 1]


def nodes_as_seen(nodes: RunningNodes) -> m.DescribeQuorumResponse:
    described = nodes.description()
    described.leader_endpoints = nodes.endpoints(nodes.leader_id)
    return described


def test_kafkas_followers_name_the_leader_in_describe_cluster() -> None:
    with RunningNodes(names_leader=False) as nodes, QuorumClient(nodes.addresses(2)) as client:
        assert client.describe_quorum() == nodes_as_seen(nodes)
        assert client.describe_cluster().cluster_id == CLUSTER_ID


def test_a_fetch_finds_a_leader_that_is_not_registered() -> None:
    """DescribeCluster of Kafka's controllers omits a leader that is not registered."""
    with (
        RunningNodes(names_leader=False, unregistered=(1,)) as nodes,
        QuorumClient(nodes.addresses(2)) as client,
    ):
        assert client.describe_quorum() == nodes_as_seen(nodes)
        assert [id for id, _ in nodes.asked] == [2, 2, 1]


def test_the_leader_describes_the_cluster_where_a_controller_has_just_started() -> None:
    with RunningNodes(starting=(2,)) as nodes, QuorumClient(nodes.addresses(2)) as client:
        assert client.describe_cluster().controllers == dict(enumerate(nodes.addresses(0, 1, 2)))


def test_a_cluster_that_is_too_old_to_describe_is_an_error() -> None:
    with RunningNodes(starting=(0, 1, 2)) as nodes, QuorumClient(nodes.addresses(2)) as client:
        with pytest.raises(QuorumRefusedError, match="Raise metadata") as refused:
            client.describe_cluster()
        assert refused.value.kafka_code == errors.UNSUPPORTED_VERSION


def test_another_controller_is_asked_where_one_names_no_leader() -> None:
    with RunningNodes(leader_id=-1) as blind, RunningNodes() as nodes:
        servers = [*blind.addresses(0), *nodes.addresses(0)]
        with QuorumClient(servers) as client:
            assert client.describe_quorum() == nodes_as_seen(nodes)


def test_a_stopped_controller_is_skipped() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with RunningNodes() as nodes:
        servers = [("127.0.0.1", port), *nodes.addresses(1)]
        with QuorumClient(servers) as client:
            assert client.describe_quorum().leader_id == 1


def test_an_error_has_its_name_and_message() -> None:
    def refuse(request: m.Request) -> m.Response:
        return m.AddRaftVoterResponse(errors.DUPLICATE_VOTER, "4 is a voter already")

    with RunningNodes(answer=refuse) as nodes, QuorumClient(nodes.addresses(1)) as client:
        with pytest.raises(QuorumRefusedError) as refused:
            client.ask_leader(m.AddRaftVoterRequest(None, 9000, VOTER, ENDPOINTS), "adding")
        assert refused.value.kafka_code == errors.DUPLICATE_VOTER
        assert "DUPLICATE_VOTER (4 is a voter already)" in str(refused.value)


def test_without_a_leader_it_retries_and_then_fails() -> None:
    with (
        RunningNodes(leader_id=-1) as nodes,
        QuorumClient(nodes.addresses(0, 1), timeout_s=2) as hasty,
        QuorumClient(nodes.addresses(0, 1), timeout_s=20) as patient,
    ):
        with pytest.raises(QuorumUnreachableError, match="does not lead, and names no leader"):
            hasty.describe_quorum()
        assert len(nodes.asked) > 1
        elected = threading.Timer(0.2, setattr, (nodes, "leader_id", 2))
        elected.start()
        assert patient.describe_quorum().leader_id == 2
        elected.join()


def test_without_a_majority_the_error_has_the_number_that_answered() -> None:
    """The controller that answers names the other voters, whose port refuses connections."""
    with RunningNodes(leader_id=-1) as nodes:
        asked = nodes.addresses(0)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            dead = taken.getsockname()[1]
        nodes.ports[1] = nodes.ports[2] = dead
        begun = time.monotonic()
        with (
            QuorumClient(asked, timeout_s=300, leader_wait_s=1) as client,
            pytest.raises(QuorumUnreachableError) as refused,
        ):
            client.describe_quorum()
        assert time.monotonic() - begun < 60
        assert "DescribeQuorum: 1 of 2 controllers answered (127.0.0.1:" in str(refused.value)
        assert "no controller leads: a majority of the voters must run" in str(refused.value)
        assert f"127.0.0.1:{dead}: " in str(refused.value)
        assert "refused" in str(refused.value)


def test_a_controller_that_never_answers_leaves_time_for_the_others() -> None:
    with (
        RunningNodes(leader_id=-1) as nodes,
        socket.create_server(("127.0.0.1", 0)) as mute,
    ):
        begun = time.monotonic()
        servers = [mute.getsockname()[:2], *nodes.addresses(0)]
        with (
            QuorumClient(servers, timeout_s=300, leader_wait_s=2) as client,
            pytest.raises(QuorumUnreachableError, match="3 of 4 controllers answered"),
        ):
            client.describe_quorum()
        assert time.monotonic() - begun < 60


def test_an_unreachable_address_fails_at_once_and_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with (
        QuorumClient([("127.0.0.1", port)], timeout_s=300) as client,
        pytest.raises(QuorumUnreachableError, match=f"127.0.0.1:{port}: .*refused"),
    ):
        client.describe_quorum()


def test_a_server_that_never_answers_times_out() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as mute,
        QuorumClient([mute.getsockname()[:2]], timeout_s=0.2) as client,
        pytest.raises(QuorumUnreachableError, match="no controller answers"),
    ):
        client.describe_quorum()


def test_the_last_attempt_has_time_for_a_busy_controller() -> None:
    """The client has 50 ms left when it connects; the controller answers after 300 ms."""
    with RunningNodes() as nodes, socket.create_server(("127.0.0.1", 0)) as slow:
        port = slow.getsockname()[1]

        def forward() -> None:
            client, _ = slow.accept()
            time.sleep(0.3)
            with client, socket.create_connection(("127.0.0.1", nodes.ports[1])) as leader:
                for _ in range(2):
                    leader.sendall(client.recv(1 << 16))
                    client.sendall(leader.recv(1 << 16))

        thread = threading.Thread(target=forward)
        thread.start()
        with QuorumClient([("127.0.0.1", port)], timeout_s=30, leader_wait_s=0.05) as client:
            assert client.describe_quorum().leader_id == 1
        thread.join()


def test_a_leader_that_hangs_leaves_time_to_find_the_next() -> None:
    """The leader's port still accepts connections, and a follower still names this leader."""
    with RunningNodes() as nodes, socket.create_server(("127.0.0.1", 0)) as stopped:
        port = nodes.ports[1]
        nodes.ports[1] = stopped.getsockname()[1]
        elected = threading.Timer(0.3, nodes.ports.update, ({1: port},))
        elected.start()
        with QuorumClient(nodes.addresses(0), timeout_s=8) as client:
            assert client.describe_quorum().leader_id == 1
        elected.join()


@pytest.mark.parametrize("names_leader", [True, False], ids=["kraft", "Kafka"])
def test_a_request_moves_to_the_next_leader_while_its_own_leader_hangs(names_leader: bool) -> None:
    """The timeout is 300 s: a command must not wait for it."""
    begun = time.monotonic()

    def hang(request: m.Request) -> None:
        nodes.leader_id, nodes.epoch, nodes.answer = 2, 8, done

    with (
        RunningNodes(answer=hang, names_leader=names_leader) as nodes,
        QuorumClient(nodes.addresses(1), timeout_s=300) as client,
    ):
        client.describe_quorum()
        client.ask_leader(REMOVAL, "removing")
        changes = [id for id, each in nodes.asked if isinstance(each, m.RemoveRaftVoterRequest)]
        assert changes == [1, 2]
        assert client.describe_quorum().leader_id == 2
    assert time.monotonic() - begun < 60


def test_a_leader_that_hangs_during_the_handshake_is_left_once_another_leads() -> None:
    begun = time.monotonic()
    with RunningNodes(answer=done) as nodes, socket.create_server(("127.0.0.1", 0)) as stopped:
        port = nodes.ports[1]
        nodes.ports[1] = stopped.getsockname()[1]
        accepted = []

        def elect() -> None:
            accepted.append(stopped.accept()[0])
            nodes.ports[1] = port
            nodes.leader_id, nodes.epoch = 2, 8

        elected = threading.Thread(target=elect)
        elected.start()
        with QuorumClient(nodes.addresses(0), timeout_s=600) as client:
            assert client.describe_quorum().leader_id == 2
        elected.join()
        accepted[0].close()
    assert time.monotonic() - begun < 60


@pytest.mark.parametrize(("epoch", "leader_id"), [(7, 1), (6, 2), (8, 1)])
def test_a_slow_leader_is_waited_for_unless_another_leads_a_later_epoch(
    epoch: int, leader_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second request could repeat a change that the leader carries out."""
    monkeypatch.setattr(controller_connection, "WATCH_S", 0.05)
    with (
        RunningNodes(epoch=epoch, leader_id=leader_id) as others,
        # The leader answers some time after the client has asked another.
        RunningNodes(answer=done, delay_s=0.5, may_answer=lambda: others.asked) as nodes,
        QuorumClient([*nodes.addresses(1), *others.addresses(0)], timeout_s=60) as client,
    ):
        client.describe_quorum()
        client.ask_leader(REMOVAL, "removing")
        changes = [id for id, each in nodes.asked if isinstance(each, m.RemoveRaftVoterRequest)]
        assert changes == [1]
        assert 0 in [id for id, _ in others.asked]


def test_a_server_that_hangs_does_not_hold_up_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quorum_client, "_CONNECT_S", 100.0)
    begun = time.monotonic()
    with RunningNodes() as nodes, socket.create_server(("127.0.0.1", 0)) as mute:
        servers = [mute.getsockname()[:2], *nodes.addresses(1)]
        with QuorumClient(servers, timeout_s=300) as client:
            assert client.describe_quorum().leader_id == 1
    assert time.monotonic() - begun < 60


def test_a_busy_server_has_more_time_in_the_second_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quorum_client, "_FIRST_CONNECT_S", 0.05)
    with (
        RunningNodes() as nodes,
        socket.create_server(("127.0.0.1", 0)) as slow,
        socket.create_server(("127.0.0.1", 0)) as mute,
    ):

        def forward() -> None:
            _abandoned, _ = slow.accept()
            client, _ = slow.accept()
            time.sleep(0.3)
            with client, socket.create_connection(("127.0.0.1", nodes.ports[1])) as leader:
                for _ in range(2):
                    leader.sendall(client.recv(1 << 16))
                    client.sendall(leader.recv(1 << 16))

        thread = threading.Thread(target=forward)
        thread.start()
        servers = [slow.getsockname()[:2], mute.getsockname()[:2]]
        with QuorumClient(servers, timeout_s=60) as client:
            assert client.describe_quorum().leader_id == 1
        thread.join()


def test_an_unsupported_request_is_an_error() -> None:
    with (
        RunningNodes(serves_describe_cluster=False) as nodes,
        QuorumClient(nodes.addresses(0)) as client,
    ):
        versions = client.api_versions()
        assert versions.ranges[52] == (0, 2)
        assert versions.supported == {"kraft.version": KRaftVersionRange(0, 1)}
        with pytest.raises(UnsupportedVersionError, match="does not serve DescribeCluster"):
            client.describe_cluster()


def part_request(position: int) -> m.FetchSnapshotRequest:
    return m.FetchSnapshotRequest(None, ReplicaKey(-1), 7, m.OffsetAndEpoch(9, 7), position)


def part_of(request: m.Request, size: int = 1000) -> m.Response:
    assert isinstance(request, m.FetchSnapshotRequest)
    data = random.Random(request.position).randbytes(size)
    return m.FetchSnapshotResponse(
        0, 7, 1, (), request.snapshot_id, 1 << 30, request.position, data
    )


def parts_asked(nodes: RunningNodes) -> list[tuple[int, int]]:
    """Return the nodes that were asked for parts of the snapshot, with the positions."""
    return [
        (id, each.position) for id, each in nodes.asked if isinstance(each, m.FetchSnapshotRequest)
    ]


def test_a_request_sent_ahead_is_answered_while_the_client_does_something_else() -> None:
    with RunningNodes(answer=part_of) as nodes, QuorumClient(nodes.addresses(0)) as client:
        first, second, third = map(part_request, (1, 2, 3))
        assert client.ask(first) == part_of(first)
        client.ask_ahead(second)
        client.ask_ahead(third)
        end = time.monotonic() + 20
        while (1, 2) not in parts_asked(nodes):
            assert time.monotonic() < end
            time.sleep(0.01)
        assert client.ask(second) == part_of(second)
        assert client.ask(third) == part_of(third)
        assert parts_asked(nodes) == [(0, 1), (1, 1), (1, 2), (1, 3)]


def test_the_response_of_a_request_sent_ahead_is_dropped_for_another_request() -> None:
    with RunningNodes(answer=part_of) as nodes, QuorumClient(nodes.addresses(1)) as client:
        client.describe_quorum()
        second = part_request(2)
        client.ask_ahead(second)
        assert client.ask(part_request(1)) == part_of(part_request(1))
        client.ask_ahead(part_request(3))
        assert client.describe_quorum().leader_id == 1
        assert client.ask(second) == part_of(second)
        assert parts_asked(nodes) == [(1, 2), (1, 1), (1, 3), (1, 2)]


def test_a_request_sent_ahead_moves_to_the_next_leader() -> None:
    with RunningNodes(answer=part_of) as nodes, QuorumClient(nodes.addresses(0, 1)) as client:
        client.describe_quorum()
        nodes.leader_id = 2
        second = part_request(2)
        client.ask_ahead(second)
        assert client.ask(second) == part_of(second)
        assert parts_asked(nodes) == [(1, 2), (2, 2)]


def test_without_a_connection_nothing_is_sent_ahead() -> None:
    with RunningNodes(answer=part_of) as nodes, QuorumClient(nodes.addresses(1)) as client:
        second = part_request(2)
        client.ask_ahead(second)
        assert not nodes.asked
        assert client.ask(second) == part_of(second)
        client.abort()
        client.ask_ahead(second)
        with pytest.raises(QuorumUnreachableError, match="the client was closed"):
            client.ask(second)


@pytest.mark.parametrize("size", [1, 65_000, 66_000, 1 << 20, 5_000_000])
def test_responses_of_any_size_are_received_whole(size: int) -> None:
    with (
        RunningNodes(answer=lambda request: part_of(request, size)) as nodes,
        QuorumClient(nodes.addresses(1)) as client,
    ):
        for position in range(3):
            request = part_request(position)
            assert client.ask(request) == part_of(request, size)
