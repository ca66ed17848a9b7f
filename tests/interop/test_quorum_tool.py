"""Kafka's `kafka-metadata-quorum` and `kraft quorum` at a kraft listener.

Kafka's Admin client finds the leader through a follower, and both tools print the same.
"""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from kraft.cli.commands import app
from kraft.raft import rpc as m
from kraft.raft.voters import ReplicaKey
from tests.harness.kafka_jars import Jars
from tests.harness.running_nodes import DIRECTORIES, RunningNodes

pytestmark = pytest.mark.interop

TOOL = "org.apache.kafka.tools.MetadataQuorumCommand"


def kafka_says(jars: Jars, nodes: RunningNodes, *words: str) -> str:
    follower = ("--bootstrap-controller", f"127.0.0.1:{nodes.ports[0]}")
    return jars.run(TOOL, *follower, *words, timeout_s=180).stdout


def kraft_says(nodes: RunningNodes, *words: str) -> str:
    follower = ("--bootstrap-controller", f"127.0.0.1:{nodes.ports[0]}")
    result = CliRunner().invoke(app, ["quorum", *words, *follower])
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_both_tools_print_the_same_status(jars: Jars) -> None:
    with RunningNodes() as nodes:
        said = kafka_says(jars, nodes, "describe", "--status")
        assert kraft_says(nodes, "describe", "--status") == said
    assert "LeaderId:               1\n" in said


def test_both_tools_print_the_same_replication(jars: Jars) -> None:
    """Kafka's tool pads its columns with tabs."""
    with RunningNodes() as nodes:
        said = kafka_says(jars, nodes, "describe", "--replication").split("\n")
        ours = kraft_says(nodes, "describe", "--replication").split("\n")
    rows = [line.split() for line in said if line.strip()]
    assert [line.split() for line in ours if line.strip()] == rows
    assert len(rows) == 5


def test_kafkas_tool_removes_a_voter(jars: Jars) -> None:
    voter = ReplicaKey(2, DIRECTORIES[2])
    directory = str(DIRECTORIES[2])

    def removed(request: m.Request) -> m.Response:
        return m.RemoveRaftVoterResponse(0)

    with RunningNodes(answer=removed) as nodes:
        kafka_says(jars, nodes, "remove-controller", "-i", "2", "-d", directory)
        assert nodes.asked == [(1, m.RemoveRaftVoterRequest(None, voter))]
        ours = kraft_says(nodes, "remove-controller", "-i", "2", "-d", directory)
    assert ours == f"Removed KRaft controller 2 with directory id {directory}\n"
