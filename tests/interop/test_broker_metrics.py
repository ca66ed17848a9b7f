"""The metrics of a broker beside the MBeans of a running broker of Apache Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft.broker.observed_broker import BROKER_METRICS
from tests.harness.kafka_jars import KAFKA_4, kafka
from tests.interop import mbeans
from tests.interop.cluster import Cluster

pytestmark = pytest.mark.interop
CONTROLLER_ID, BROKER_ID = 1, 1001


def test_every_metric_of_a_kafka_broker_is_exported_or_excluded_with_a_reason(
    tmp_path: Path,
) -> None:
    """Of the MBeans of kinds that kraft has."""
    cluster = Cluster(kafka(KAFKA_4), tmp_path, "a3JhZnQgbWV0cmljcyBoZQ", True)
    try:
        cluster.reserve_controllers(CONTROLLER_ID)
        cluster.add_controller(CONTROLLER_ID)
        broker = cluster.add_broker(BROKER_ID, None)
        for node in cluster.nodes.values():
            node.format(cluster.cluster_id)
        cluster.start()
        registered = mbeans.attributes_of(broker)
    finally:
        cluster.kill()
    exported = mbeans.exported(BROKER_METRICS)
    assert not exported - registered, "\n".join(sorted(map(str, exported - registered)))
    kinds = {mbeans.type_of(each.mbean) for each in exported}
    missing = {
        each
        for each in registered - exported
        if mbeans.type_of(each.mbean) in kinds and mbeans.reason_to_exclude_of_broker(each) is None
    }
    assert not missing, "\n".join(sorted(map(str, missing)))
    twice = {each for each in exported if mbeans.reason_to_exclude_of_broker(each) is not None}
    assert not twice, "\n".join(sorted(map(str, twice)))
