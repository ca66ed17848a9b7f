"""``kraft topics`` prints the same at Apache Kafka's controller as at a kraft controller.

Each of the two is the only controller of its cluster, with three registered brokers. The same
command lines run against both. Kafka's broker endpoints are not needed: the metadata comes from the
quorum.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from kraft.network.quorum_client import QuorumClient
from kraft.server.light_brokers import LightBrokers
from tests.harness.commands import kraft
from tests.harness.kafka_jars import KAFKA_4, kafka
from tests.interop.cluster import Cluster, wait_for
from tests.interop.kraft_node import add_kraft_controller

pytestmark = pytest.mark.interop

ID = 101
#: In this order: some need the topics of others. Placement is random, so it is given or hidden.
COMMANDS = (
    ("create", "--topic", "a", "--partitions", 4, "--replication-factor", 3),
    ("create", "--topic", "a", "--partitions", 4),
    ("create", "--topic", "a", "--partitions", 4, "--if-not-exists"),
    ("create", "--topic", "b", "--replica-assignment", "1001:1002,1002:1003",
     "--config", "retention.ms=5000", "--config", "cleanup.policy=compact"),
    ("create", "--topic", "c", "--replication-factor", 4),
    ("create", "--topic", "c", "--config", "retention.ms=much"),
    ("create", "--topic", "c", "--config", "no.such=1"),
    ("create", "--topic", "no/name"),
    ("create", "--topic", "c", "--replica-assignment", "1001:1001"),
    ("create", "--topic", "c", "--replica-assignment", "1001:7"),
    ("create", "--topic", "c", "--partitions", 2, "--validate-only"),
    ("create", "--topic", "c", "--topic", "a", "--topic", "d", "--partitions", 1),
    ("create", "--count", 120, "--name-pattern", "bulk-{:03}", "--partitions", 3),
    ("list",),
    ("list", "--json"),
    ("describe", "--topic", "b"),
    ("describe", "--unavailable-partitions"),
    ("alter", "--topic", "b", "--partitions", 3, "--replica-assignment", "1003:1001"),
    ("alter", "--topic", "b", "--partitions", 2),
    ("alter", "--topic", "b", "--partitions", 3),
    ("alter", "--topic", "x", "--partitions", 3),
    ("alter", "--topic", "x", "--partitions", 3, "--if-exists"),
    ("alter", "--topic", "a", "--partitions", 9, "--validate-only"),
    ("describe", "--topic", "b", "--json"),
    ("delete", "--topic", "d", "--topic", "x"),
    ("delete", "--topic", "x", "--if-exists"),
    ("delete", "--count", 120, "--name-pattern", "bulk-{:03}"),
    ("list",),
)  # fmt: skip


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Cluster]]:
    started: list[Cluster] = []
    brokers: list[LightBrokers] = []
    try:
        for kind in ("kraft", "kafka"):
            cluster = Cluster(
                kafka(KAFKA_4), tmp_path_factory.mktemp(kind), "a3JhZnQgdG9waWNzIHRvbw", True
            )
            started.append(cluster)
            cluster.reserve_controllers(ID)
            # The light brokers send heartbeats for sessions of Kafka's default length.
            cluster.settings = {"broker.session.timeout.ms": "9000"}
            add = add_kraft_controller if kind == "kraft" else Cluster.add_controller
            node = add(cluster, ID)
            node.format(cluster.cluster_id)
            node.start()
        for cluster in started:
            node = cluster.nodes[ID]
            node.wait_until_listening()
            host, _, port = node.address.partition(":")
            light = LightBrokers([(host, int(port))], cluster.cluster_id, 3)
            brokers.append(light)
            light.start()
            wait_for("unfenced brokers", lambda light=light: light.unfenced_count == 3)
        yield started
    finally:
        for light in brokers:
            light.stop()
        for cluster in started:
            cluster.kill()


def answer(cluster: Cluster, words: tuple[object, ...]) -> tuple[int, str, list[str]]:
    """Return the exit code and the output without ids, times and the wording of messages."""
    at = ("--bootstrap-controller", cluster.nodes[ID].address)
    ran = kraft("topics", *words, *at)
    out = re.sub(r"in \d+\.\d\d s", "in TIME", ran.stdout)
    out = re.sub(r'(TopicId: |"(topicId|directories)": \[?)"?[\w-]{22}', r"\1ID", out)
    errors = [line.partition(" (")[0] for line in ran.stderr.splitlines()]
    return ran.returncode, out, errors


def test_commands_print_the_same(clusters: list[Cluster]) -> None:
    ours, kafkas = clusters
    failed = 0
    for words in COMMANDS:
        expected = answer(kafkas, words)
        assert answer(ours, words) == expected, words
        failed += expected[0] != 0
    assert failed == 12


def test_kraft_topics_reads_the_metadata_of_kafka_and_of_kraft(clusters: list[Cluster]) -> None:
    from kraft.metadata.quorum_reader import read_metadata

    for cluster in clusters:
        host, _, port = cluster.nodes[ID].address.partition(":")
        with QuorumClient([(host, int(port))]) as client:
            metadata = read_metadata(client)
        assert sorted(metadata.brokers) == [1001, 1002, 1003]
        assert not any(broker.fenced for broker in metadata.brokers.values())
