"""Metrics and health of running nodes, over their HTTP listener."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from kraft import records
from kraft._core.table.table import PartitionTable
from kraft.controller.brokers.sessions import Heartbeat
from kraft.controller.runtime import requests
from kraft.controller.runtime.event_queue import DurationHistogram
from kraft.records import Record, Uuid
from kraft.server.observation import observed_node
from kraft.server.observation.catalog import METRICS, metric_table
from kraft.server.observation.health import readiness
from kraft.server.observation.metric_names import prometheus_name
from kraft.server.observation.observed_node import ObservedNode, count_partitions
from kraft.server.observation.quantiles import RecentQuantiles
from kraft.server.observation.routes import routes
from kraft.server.process import QuorumNode
from kraft.server.recent_times import RecentRate, RecentTimes
from tests.harness.controller_nodes import Quorum, RunScenario, until
from tests.harness.table_records import batch_of

PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "watch-a-controller.md"
#: Timeouts so long that even a slow machine fences no broker and elects no new leader.
STEADY = {
    "broker.session.timeout.ms": "600000",
    "controller.quorum.fetch.timeout.ms": "600000",
}
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def observed(node: QuorumNode) -> ObservedNode:
    assert node.driver is not None
    assert node.controller is not None
    return ObservedNode(
        node.config,
        node.identity.cluster_id,
        node.driver,
        node.writer,
        node.controller,
        node.transport.listener,
    )


async def get(node: ObservedNode, path: str) -> tuple[int, bytes]:
    response = await routes(node)[path]()
    return response.status, response.body


async def check(node: ObservedNode, path: str) -> tuple[int, dict[str, Any]]:
    status, body = await get(node, path)
    return status, json.loads(body)


async def samples(node: ObservedNode) -> Samples:
    _, body = await get(node, "/metrics")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def value(found: Samples, name: str, **labels: str) -> float:
    return found[name, tuple(sorted(labels.items()))]


def test_the_metrics_show_the_state(run_scenario: RunScenario, tmp_path: Path) -> None:
    quorum = Quorum(tmp_path, 3, settings=STEADY)
    controller = "kafka_controller_kafkacontroller_"

    async def scenario() -> None:
        await quorum.start()
        await quorum.brokers(1, 2)
        await quorum.create("t", 5)
        await quorum.agree()
        active = await quorum.active()
        leader = observed(quorum.running[active])
        found = await samples(leader)
        assert value(found, controller + "activecontrollercount") == 1
        assert value(found, controller + "globaltopiccount") == 1
        assert value(found, controller + "globalpartitioncount") == 5
        assert value(found, controller + "offlinepartitionscount") == 0
        assert value(found, controller + "activebrokercount") == 2
        assert value(found, controller + "fencedbrokercount") == 0
        assert value(found, controller + "brokerregistrationstate", broker="1") == 30
        assert value(found, controller + "timesincelastheartbeatreceivedms", broker="2") >= 0
        assert value(found, controller + "lastappliedrecordlagms") == 0
        assert value(found, controller + "newactivecontrollerscount") >= 1
        offset = value(found, controller + "lastcommittedrecordoffset")
        assert value(found, controller + "lastappliedrecordoffset") >= offset > 0
        events = "kafka_controller_controllereventmanager_"
        assert value(found, events + "eventqueuetimems_count") > 0
        assert value(found, events + "eventqueuetimems", quantile="0.99") >= 0
        assert 0 <= value(found, events + "avgidleratio") <= 1
        raft = "kafka_server_raft_metrics_"
        assert value(found, raft + "current_state_info", state="leader") == 1
        assert value(found, raft + "current_leader") == active
        assert value(found, raft + "current_vote") == active
        assert value(found, raft + "number_of_voters") == 3
        assert value(found, raft + "number_of_observers") == 0
        assert value(found, raft + "uncommitted_voter_change") == 0
        assert value(found, raft + "high_watermark") == offset + 1
        assert value(found, raft + "commit_latency_max") > 0
        assert value(found, raft + "append_records_rate") > 0
        assert value(found, raft + "number_unknown_voter_connections") == 0
        apis = "kafka_network_requestmetrics_"
        fetches = sum(
            number
            for (name, labels), number in found.items()
            if name == apis + "requests_total" and ("request", "Fetch") in labels
        )
        assert fetches > 0
        assert value(found, apis + "errors_total", request="Fetch", error="NONE") > 0
        assert value(found, apis + "totaltimems_count", request="Fetch") == fetches
        assert value(found, apis + "requestbytes_sum", request="Fetch") > fetches
        sockets = "kafka_server_socket_server_metrics_"
        assert value(found, sockets + "connection_count", listener="CONTROLLER") >= 2
        assert value(found, sockets + "request_total", listener="CONTROLLER") >= fetches
        assert value(found, "process_open_fds") > 0
        standby = observed(next(node for id, node in quorum.running.items() if id != active))
        found = await samples(standby)
        assert value(found, controller + "activecontrollercount") == 0
        assert value(found, controller + "globalpartitioncount") == 5
        assert value(found, raft + "current_state_info", state="follower") == 1
        assert value(found, raft + "fetch_records_rate") > 0
        assert (raft + "number_of_observers", ()) not in found

    run_scenario(scenario, quorum)


def test_a_fenced_broker_leaves_partitions_without_a_leader(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path, settings=STEADY)
    controller = "kafka_controller_kafkacontroller_"

    async def scenario() -> None:
        await quorum.start()
        await quorum.brokers(1)
        await quorum.create("t", 5)
        active = await quorum.active()
        runner, node = quorum.runner(active), observed(quorum.running[active])
        epoch = runner.controller.cluster.state.brokers[1].epoch
        leave = Heartbeat(1, epoch, epoch, wants_fence=True)
        await runner.submit_heartbeat(requests.broker_heartbeat(leave), 1, epoch)
        found = await samples(node)
        assert value(found, controller + "fencedbrokercount") == 1
        assert value(found, controller + "activebrokercount") == 0
        assert value(found, controller + "offlinepartitionscount") == 5
        assert value(found, controller + "preferredreplicaimbalancecount") == 5
        assert value(found, controller + "brokerregistrationstate", broker="1") == 10

    run_scenario(scenario, quorum)


def test_a_node_is_ready_once_it_follows_the_quorum(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path, 3, settings=STEADY)

    async def scenario() -> None:
        first, *others = quorum.layout
        await quorum.start(first)
        alone = observed(quorum.running[first])
        status, document = await check(alone, "/readyz")
        assert (status, document["status"]) == (503, "not ready")
        assert "is known" in document["reasons"][0]
        # A node without a quorum is healthy: a restart would not help.
        assert (await check(alone, "/healthz"))[0] == 200
        await quorum.start(*others)
        active = await quorum.active()
        standby, other = (id for id in quorum.layout if id != active)
        nodes = [observed(quorum.running[id]) for id in (standby, active, other)]
        for node in nodes:

            async def ready(node: ObservedNode = node) -> bool:
                return (await check(node, "/readyz"))[0] == 200

            async with asyncio.timeout(60):
                while not await ready():
                    await asyncio.sleep(0.02)
        status, document = await check(nodes[0], "/readyz")
        assert document["is_voter"]
        assert document["reasons"] == []
        nodes[0].why_unregistered = lambda: "controller 1 is not registered"
        status, document = await check(nodes[0], "/readyz")
        assert (status, document["reasons"]) == (503, ["controller 1 is not registered"])
        nodes[0].why_unregistered = observed_node.no_registration
        # The leader stops last; then one of three voters is left.
        await quorum.stop(other, active)
        await until(lambda: readiness(nodes[0])[0])

    run_scenario(scenario, quorum)


def test_a_disk_that_stops_is_unhealthy(
    run_scenario: RunScenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quorum = Quorum(tmp_path)

    async def scenario() -> None:
        await quorum.start()
        node = observed(quorum.running[await quorum.active()])
        assert (await check(node, "/healthz"))[0] == 200
        monkeypatch.setattr(node.writer, "oldest_write_ms", lambda: 10_001.0)
        status, document = await check(node, "/healthz")
        assert status == 503
        assert document["reasons"] == ["the disk has not completed a write for 10001 ms"]
        assert (await check(node, "/readyz"))[0] == 503

    run_scenario(scenario, quorum)


def test_partitions_are_counted_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(7)
    table = PartitionTable()
    log: list[Record] = []
    expected = [0, 0]
    monkeypatch.setattr(observed_node, "ROWS_AT_ONCE", 7)
    for number in range(3):
        topic_id = Uuid(bytes([number + 1]) * 16)
        log.append(records.Topic(name=f"t{number}", topic_id=topic_id))
        for partition in range(11):
            replicas = [int(one) for one in generator.permutation(4)[:3]]
            leader = int(generator.choice([-1, *replicas]))
            log.append(
                records.Partition(
                    partition_id=partition,
                    topic_id=topic_id,
                    replicas=replicas,
                    isr=replicas,
                    leader=leader,
                )
            )
            is_removed = number == 1
            expected[0] += not is_removed and leader < 0
            expected[1] += not is_removed and leader != replicas[0]
    log.append(records.RemoveTopic(topic_id=Uuid(bytes([2]) * 16)))
    table.apply(batch_of(log))
    counted = asyncio.run(count_partitions(lambda: table))
    assert list(counted) == expected


def test_names_follow_the_rules_of_the_exporter() -> None:
    assert (
        prometheus_name(
            "kafka.controller:type=KafkaController,name=OfflinePartitionsCount", "Value"
        )
        == "kafka_controller_kafkacontroller_offlinepartitionscount"
    )
    assert (
        prometheus_name("kafka.server:type=raft-metrics", "high-watermark")
        == "kafka_server_raft_metrics_high_watermark"
    )
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)


def test_the_page_has_the_table_of_all_metrics() -> None:
    """``python -m kraft.server.observation.catalog`` prints the current table."""
    assert metric_table() in PAGE.read_text(encoding="utf-8")


def test_recent_times_forget_old_ones() -> None:
    times = RecentTimes()
    assert math.isnan(times.average_ms(0))
    assert math.isnan(times.maximum_ms(0))
    times.note(2, 1_000)
    times.note(4, 2_000)
    assert (times.average_ms(2_000), times.maximum_ms(2_000)) == (3, 4)
    times.note(1, 40_000)
    assert times.maximum_ms(40_000) == 4
    assert times.maximum_ms(71_000) == 1
    assert math.isnan(times.maximum_ms(200_000))


def test_a_rate_is_that_of_the_last_half_minute() -> None:
    rate = RecentRate(0)
    assert rate.read(0, 0) == 0
    assert rate.read(100, 10_000) == 10
    assert rate.read(100, 40_000) == pytest.approx(0)
    assert rate.read(160, 70_000) == pytest.approx(2)


def test_quantiles_are_of_the_last_minutes() -> None:
    histogram, quantiles = DurationHistogram(), RecentQuantiles()
    assert set(quantiles.read(histogram, 0).values()) == {0.0}
    for _ in range(100):
        histogram.note(8.0)
    assert 8 <= quantiles.read(histogram, 100_000)["0.50"] <= 16
    for _ in range(100):
        histogram.note(0.1)
    assert quantiles.read(histogram, 500_000)["0.99"] < 1
