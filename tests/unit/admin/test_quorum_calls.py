"""The calls about the quorum itself, answered by fake raft nodes behind real listeners."""

from __future__ import annotations

import asyncio
import time

import pytest

from kraft import errors
from kraft.admin import (
    Endpoint,
    QuorumRefusedError,
    QuorumUnreachableError,
    ReplicaKey,
    connect,
    connect_blocking,
)
from kraft.raft import rpc as m
from tests.harness.running_nodes import CLUSTER_ID, DIRECTORIES, RunningNodes, done

VOTER = ReplicaKey(4, DIRECTORIES[4])
ENDPOINTS = (Endpoint("CONTROLLER", "host", 9093),)


def at(nodes: RunningNodes, *ids: int) -> str:
    return ",".join(f"{host}:{port}" for host, port in nodes.addresses(*ids))


def test_the_leader_is_asked_through_a_follower() -> None:
    with RunningNodes() as nodes, connect_blocking(at(nodes, 0)) as admin:
        assert admin.describe_metadata_quorum().leader_id == 1
        cluster = admin.describe_cluster()
        assert (cluster.cluster_id, cluster.leader_id) == (CLUSTER_ID, 1)
        assert cluster.controllers == {id: ("127.0.0.1", port) for id, port in nodes.ports.items()}
        features = admin.describe_features()
        assert features.supported == {"kraft.version": (0, 1)}
        assert features.finalized_epoch == 5


def test_a_voter_is_added_and_removed_at_the_leader() -> None:
    properties = {"request.timeout.ms": "10000"}
    with RunningNodes(answer=done) as nodes, connect_blocking(at(nodes, 2), properties) as admin:
        admin.add_raft_voter(VOTER, ENDPOINTS)
        admin.remove_raft_voter(VOTER, cluster_id="the-cluster")
        changes = [
            (id, request)
            for id, request in nodes.asked
            if not isinstance(request, m.DescribeQuorumRequest)
        ]
        # The controller's timeout is shorter than the client's, so that its error arrives in time.
        added = m.AddRaftVoterRequest(None, 9000, VOTER, ENDPOINTS)
        assert changes == [
            (2, added),
            (1, added),
            (1, m.RemoveRaftVoterRequest("the-cluster", VOTER)),
        ]


def test_an_error_has_its_name_and_message() -> None:
    def refuse(request: m.Request) -> m.Response:
        return m.RemoveRaftVoterResponse(errors.VOTER_NOT_FOUND, "4 is no voter")

    with (
        RunningNodes(answer=refuse) as nodes,
        connect_blocking(at(nodes, 1)) as admin,
        pytest.raises(QuorumRefusedError, match=r"VOTER_NOT_FOUND \(4 is no voter\)"),
    ):
        admin.remove_raft_voter(VOTER)


def test_calls_of_the_asynchronous_client_run_at_the_same_time() -> None:
    async def scenario() -> float:
        async with connect(at(nodes, 1)) as admin:
            await admin.describe_metadata_quorum()
            begun = time.monotonic()
            await asyncio.gather(*(admin.remove_raft_voter(VOTER) for _ in range(6)))
            return time.monotonic() - begun

    with RunningNodes(answer=done, delay_s=2.0) as nodes:
        assert asyncio.run(scenario()) < 10
    assert sum(isinstance(each, m.RemoveRaftVoterRequest) for _, each in nodes.asked) == 6


def test_a_cancelled_call_ends_at_once_and_frees_its_thread() -> None:
    async def scenario() -> None:
        async with connect(at(nodes, 1)) as admin:
            await admin.describe_metadata_quorum()
            for _ in range(12):
                begun = time.monotonic()
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await admin.remove_raft_voter(VOTER)
                assert time.monotonic() - begun < 5
            # More calls were cancelled than the client has threads: the threads have ended.
            assert (await admin.describe_metadata_quorum()).leader_id == 1

    with RunningNodes(answer=lambda _: None) as nodes:
        asyncio.run(scenario())


def test_closing_ends_the_calls_in_progress() -> None:
    async def scenario() -> None:
        async with connect(at(nodes, 1)) as admin:
            await admin.describe_metadata_quorum()
            waiting = asyncio.create_task(admin.remove_raft_voter(VOTER))
            while not any(isinstance(each, m.RemoveRaftVoterRequest) for _, each in nodes.asked):
                await asyncio.sleep(0.01)
        with pytest.raises(QuorumUnreachableError, match="the client was closed"):
            async with asyncio.timeout(30):
                await waiting

    with RunningNodes(answer=lambda _: None) as nodes:
        asyncio.run(scenario())


def test_a_call_has_the_time_of_the_api_and_an_attempt_that_of_the_request() -> None:
    """The leader never answers: each attempt ends after 0.3 s, and the call after 6 s.

    A standstill of the machine may take the time of several attempts.
    """
    properties = {"request.timeout.ms": "300", "default.api.timeout.ms": "6000"}
    with (
        RunningNodes(answer=lambda _: None) as nodes,
        connect_blocking(at(nodes, 1), properties) as admin,
    ):
        admin.describe_metadata_quorum()
        begun = time.monotonic()
        with pytest.raises(QuorumUnreachableError, match="removing controller 4"):
            admin.remove_raft_voter(VOTER)
        assert 4.0 < time.monotonic() - begun < 60
        attempts = sum(isinstance(each, m.RemoveRaftVoterRequest) for _, each in nodes.asked)
        assert attempts >= 3
