"""A broker names the finalized features whose work it does not do."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft import records
from kraft.broker.lacking_features import LackingFeatures
from kraft.records.versions import LACKED_BY_BROKER, SUPPORTED_FEATURES
from kraft.server.config.loading import ServerConfig
from kraft.server.controller import load_bootstrap
from kraft.server.local_quorum import LocalQuorum
from tests.harness.publishing import BASE, PublishedCluster


def test_each_level_of_a_lacked_feature_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    cluster = PublishedCluster()
    cluster.append(*BASE, records.FeatureLevel("group.version", 1))
    cluster.publishing.register(LackingFeatures())

    def warnings(**levels: int) -> list[str]:
        """Set levels; return the warnings of that."""
        caplog.clear()
        for name, level in levels.items():
            cluster.append(records.FeatureLevel(name.replace("_", "."), level))
        cluster.publish()
        assert cluster.faults == []
        return [record.getMessage() for record in caplog.records]

    assert warnings() == [
        "the cluster has group.version=1, but this broker has no groups of KIP-848: clients that "
        "ask it for them get an error. Assign all partitions of __consumer_offsets to Apache "
        "Kafka's brokers, or turn the feature off: kafka-features.sh downgrade --feature "
        "group.version=0"
    ]
    (two,) = warnings(transaction_version=2)
    assert "transaction.version=2, but this broker has no transactions" in two
    assert "__transaction_state" in two
    assert warnings(eligible_leader_replicas_version=1) == []
    (one,) = warnings(transaction_version=1)
    assert "transaction.version=1" in one
    assert warnings(transaction_version=0, group_version=0) == []
    assert len(warnings(group_version=1)) == 1


@pytest.mark.parametrize("brokers", [0, 1])
def test_a_local_cluster_with_brokers_is_formatted_without_them(
    tmp_path: Path, brokers: int
) -> None:
    layout = LocalQuorum(tmp_path / "cluster", 1, brokers=brokers, is_combined=True)
    config = ServerConfig.load(layout.nodes[0].config_path)
    written = {
        record.name: record.feature_level
        for record in load_bootstrap(config.metadata_log_dir)
        if isinstance(record, records.FeatureLevel)
    }
    assert "metadata.version" in written
    assert (LACKED_BY_BROKER.keys() & written.keys() == set()) == bool(brokers)
    assert LACKED_BY_BROKER.keys() < SUPPORTED_FEATURES.keys()
