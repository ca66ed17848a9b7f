"""kraft's commands at a controller of Apache Kafka 3.7, the oldest that serves DescribeCluster.

What the controller lacks, a command says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft.cli.exit_codes import OK, REFUSED
from kraft.server.light_brokers import LightBrokers
from tests.harness.command_line import run_command
from tests.harness.kafka_jars import kafka
from tests.interop.cluster import HOST, Cluster, Node, wait_for

pytestmark = pytest.mark.interop

OLDEST = "3.7.2"
ACCEPTED = (
    "quorum describe --status",
    "topics create --topic a --partitions 2",
    "topics list",
    "topics describe",
    "topics alter --topic a --partitions 3",
    "configs alter --topic a --add-config retention.ms=5",
    "configs describe --topic a",
    "acls add --allow-principal User:a --operation Read --topic a",
    "acls list",
    "features describe",
    "quotas alter --user a --add-config producer_byte_rate=5",
    "quotas describe",
    "users alter --user a --add-config SCRAM-SHA-256=[password=a]",
    "users describe",
    "tokens describe",
    "brokers list",
    "elect --election-type preferred --all-topic-partitions",
    "reassign list",
    "topics delete --topic a",
)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    directory = tmp_path_factory.mktemp("older")
    cluster = Cluster(kafka(OLDEST), directory, "a3JhZnQgb2xkZXIgcXVvcg", True)
    cluster.reserve_controllers(1)
    # The light brokers send heartbeats for sessions of Kafka's default length.
    cluster.settings = {"broker.session.timeout.ms": "9000"}
    node = cluster.add_controller(1)
    brokers = LightBrokers([(HOST, node.port)], cluster.cluster_id, 2)
    try:
        node.format(cluster.cluster_id)
        node.start()
        node.wait_until_listening()
        brokers.start()
        wait_for("unfenced brokers", lambda: brokers.unfenced_count == 2)
        yield node
    finally:
        brokers.stop()
        cluster.kill()


def test_commands_work(node: Node) -> None:
    for words in ACCEPTED:
        ran = run_command(*words.split(), "--bootstrap-controller", node.address)
        assert ran.code == OK, (words, ran.err)
    assert run_command("quotas", "describe", "--bootstrap-controller", node.address).lines == [
        "Quota configs for user-principal 'a' are producer_byte_rate=5.0"
    ]


def test_what_the_controller_lacks(node: Node, tmp_path: Path) -> None:
    at = ("--bootstrap-controller", node.address)
    assert run_command("topics", "create", "--topic", "b", "--partitions", 1, *at).code == OK
    move = tmp_path / "move.json"
    entry = {"topic": "b", "partition": 0, "replicas": [1001, 1002]}
    move.write_text(json.dumps({"version": 1, "partitions": [entry]}))
    execute = f"reassign execute --reassignment-json-file {move}"
    directory = "klVvYdfZghyvkFx9vVHmug"
    for words, reason in (
        (
            f"quorum remove-controller --controller-id 5 --controller-directory-id {directory}",
            "does not serve RemoveRaftVoter in a version that kraft supports; it needs controllers "
            "of Apache Kafka 3.9 or newer",
        ),
        (
            "quorum unregister-controller --controller-id 5",
            "it needs controllers of Apache Kafka 4.4 or newer",
        ),
        (
            f"{execute} --disallow-replication-factor-change",
            "only controllers of Apache Kafka 4.1 or newer can reject a change of the",
        ),
        (
            "features upgrade --feature kraft.version=1",
            "1 out of 1 operation(s) failed",
        ),
    ):
        ran = run_command(*words.split(), *at)
        assert ran.code == REFUSED, words
        assert reason in ran.err, (words, ran.err)
