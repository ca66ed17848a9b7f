"""Metrics and readiness of a running broker: what `/metrics` and `/readyz` show."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kraft.broker.lifecycle import BrokerState
from kraft.broker.observed_broker import BROKER_METRICS
from kraft.broker.replication.replica_counts import ReplicaStates
from kraft.errors import NONE
from kraft.server.observation.catalog import table_of
from kraft.server.observation.exposition import exposition
from kraft.server.observation.health import readiness
from kraft.server.observation.observed_node import ObservedNode
from tests.harness.controller_nodes import until
from tests.unit.broker.broker_nodes import Client, LocalNodes, controller_of, play, running

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "watch-a-broker.md"


def observed(nodes: LocalNodes, id: int) -> ObservedNode:
    quorum = nodes.broker(id).quorum
    assert quorum.driver is not None
    assert quorum.controller is not None
    return ObservedNode(
        quorum.config,
        quorum.identity.cluster_id,
        quorum.driver,
        quorum.writer,
        quorum.controller,
        quorum.transport.listener,
        parts=quorum.observed_parts,
    )


async def samples(node: ObservedNode) -> dict[str, float]:
    """Return the samples of the page by name, with the values of their labels."""
    families = text_string_to_metric_families((await exposition(node)).decode())
    return {
        " ".join((one.name, *one.labels.values())): one.value
        for family in families
        for one in family.samples
    }


def states(nodes: LocalNodes, id: int) -> ReplicaStates:
    return running(nodes, id).replicas.manager.counts.states(0, lambda _: 1)


def test_the_metrics_show_what_clients_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = LocalNodes(tmp_path, 1, 2)

    async def scenario() -> None:
        await nodes.start()
        client = Client(nodes.node(1001))
        leader = await client.leader("t")
        follower = 2003 - leader
        clients = {id: Client(nodes.node(id)) for id in (leader, follower)}
        # A request before it has heard of the topic would count as failed.
        await until(
            lambda: (
                running(nodes, leader).replicas.manager.counts.states(0, lambda _: 1).leaders == 1
            )
        )
        assert await clients[leader].produce("t", b"a", b"b") == (NONE, 0)
        assert await clients[leader].fetch("t") == [b"a", b"b"]
        shown = await samples(observed(nodes, leader))
        assert shown["kafka_server_kafkaserver_brokerstate"] == BrokerState.RUNNING
        assert shown["kafka_server_replicamanager_partitioncount"] == 1
        assert shown["kafka_server_replicamanager_leadercount"] == 1
        assert shown["kafka_server_replicamanager_underreplicatedpartitions"] == 0
        assert shown["kafka_server_brokertopicmetrics_messagesin_total"] == 2
        size = shown["kafka_server_brokertopicmetrics_bytesin_total"]
        assert size > 60
        assert shown["kafka_server_brokertopicmetrics_bytesout_total"] == size
        assert shown["kafka_server_brokertopicmetrics_replicationbytesout_total"] == size
        assert shown["kafka_server_brokertopicmetrics_totalproducerequests_total"] >= 1
        assert shown["kafka_server_brokertopicmetrics_failedproducerequests_total"] == 0
        assert shown["kafka_log_logmanager_offlinelogdirectorycount"] == 0
        assert shown["kafka_server_broker_metadata_metrics_metadata_apply_error_count"] == 0
        image = controller_of(nodes, leader).publishing.images.image
        assert image is not None
        offset = shown["kafka_server_broker_metadata_metrics_last_applied_record_offset"]
        assert offset <= image.offset - 1
        assert offset > 0
        followed = await samples(observed(nodes, follower))
        assert followed["kafka_server_brokertopicmetrics_replicationbytesin_total"] == size
        assert followed["kafka_server_replicafetchermanager_maxlag Replica"] == 0
        assert followed["kafka_server_replicamanager_leadercount"] == 0
        # Of controllers only.
        assert not any(name.startswith("kafka_controller_") for name in followed)
        await nodes.stop(follower)
        await until(
            lambda: (
                running(nodes, leader)
                .replicas.manager.counts.states(0, lambda _: 1)
                .under_replicated
                == 1
            )
        )
        shown = await samples(observed(nodes, leader))
        assert shown["kafka_server_replicamanager_underreplicatedpartitions"] == 1
        assert shown["kafka_server_replicamanager_atminisrpartitioncount"] == 1
        for each in (client, *clients.values()):
            each.close()

    play(nodes, scenario, monkeypatch)
    assert nodes.ended == []


def test_a_broker_says_why_it_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = LocalNodes(tmp_path, 1, 1)

    async def scenario() -> None:
        await nodes.start()
        node = observed(nodes, 1001)
        await until(lambda: not readiness(node)[0])
        details = readiness(node)[1]
        assert details["broker_state"] == "running"
        assert details["offline_log_dirs"] == []
        lifecycle = running(nodes, 1001).lifecycle
        assert lifecycle is not None
        lifecycle.facts.is_loaded = False
        assert readiness(node)[0] == ["the broker loads its partitions"]
        lifecycle.facts.is_loaded = True
        lifecycle.facts.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
        assert readiness(node)[0] == ["the broker is stopping"]
        lifecycle.facts.state = BrokerState.RUNNING
        # Without heartbeats the controller fences it.
        lifecycle.close()
        await until(lambda: "the controller has fenced broker 1001" in readiness(node)[0])
        await nodes.stop(1001)
        assert "the broker loads its logs" in readiness(node)[0]

    play(nodes, scenario, monkeypatch)
    assert nodes.ended == []


def test_the_page_has_the_table_of_all_metrics() -> None:
    assert table_of(BROKER_METRICS) in PAGE.read_text(encoding="utf-8")
