"""``kraft.verify`` on a Kafka snapshot that contradicts its log."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import kraft
from kraft._core.log.log import Log
from kraft.metadata.known_kafka_faults import KEPT_SETTINGS, KEPT_TRANSACTION
from kraft.metadata.verification_findings import Severity
from kraft.records import Config, RemoveTopic, Topic, Uuid
from tests.harness.kafka_jars import kafka
from tests.interop import keep
from tests.interop.cluster import Cluster, wait_for

pytestmark = pytest.mark.interop

DATA = Path(__file__).resolve().parent.parent / "data"
CLUSTER_ID = "Q0vYpQe8T9C3p1dB8mYxXg"
ORDERS = Uuid(b"orders----------")


def test_known_contradictions_of_a_kafka_snapshot_are_recognised(tmp_path: Path) -> None:
    """A single controller loads a log with an aborted metadata transaction and a topic that is
    created, configured and deleted. The aborted changes and the configuration stay in its snapshot.
    """
    cluster = Cluster(kafka(), tmp_path, CLUSTER_ID)
    cluster.reserve_controllers(201)
    node = cluster.add_controller(201, metadata__log__max__snapshot__interval__ms="1000")
    node.write_properties()
    shutil.copytree(DATA / "kafka-4.3-transaction" / "controller-201", node.metadata_directory)
    metadata = kraft.open_metadata(node.metadata_directory)
    metadata.apply(
        [Topic("orders", ORDERS), Config(2, "orders", "retention.ms", "1"), RemoveTopic(ORDERS)]
    )
    directory = node.metadata_directory / keep.METADATA_LOG
    with Log.open(directory) as log:
        metadata.append(log)
    assert metadata.configs.topic("orders") == {}
    try:
        node.start()
        node.wait_until_listening()
        end = metadata.next_offset
        wait_for(
            "a snapshot",
            lambda: [each for each in directory.glob("*.checkpoint") if int(each.name[:20]) >= end],
        )
        node.stop()
    finally:
        cluster.kill()

    found = kraft.verify(node.metadata_directory)

    assert {each.severity for each in found.findings} == {Severity.KNOWN}
    assert {each.path.suffix for each in found.findings} == {".checkpoint"}
    reasons = {each.message.partition(" is ")[0]: each.reason for each in found.findings}
    assert reasons == {
        "topic never-committed": KEPT_TRANSACTION,
        "config (2, 'never-committed') retention.ms": KEPT_TRANSACTION,
        "config (2, 'orders') retention.ms": KEPT_SETTINGS,
    }
