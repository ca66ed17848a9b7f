"""A backup restored into a static quorum of Apache Kafka's controllers and kraft's.

One controller starts from the backup, and the others with empty disks.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft.metadata.backup import write_backup
from kraft.metadata.facade import open_metadata
from tests.harness.commands import printed
from tests.harness.kafka_jars import kafka
from tests.interop.cluster import Cluster, wait_for
from tests.interop.kraft_node import add_kraft_controller
from tests.interop.mixed_quorum import MixedQuorum
from tests.interop.operations import cases

pytestmark = pytest.mark.interop

SAVED = Path(__file__).parents[1] / "data" / "kafka-4.3" / "controller-101"
CLUSTER_ID = "YmFja2VkIHVwIHN0YXRpYw"
KAFKAS = (101, 102)
KRAFT = 103


@pytest.mark.parametrize(
    ("restored", "joins_first", "joins_later"),
    cases((101, KRAFT, 102), (101, 102, KRAFT), (KRAFT, 101, 102)),
)
def test_kafkas_controllers_join_a_restored_static_quorum(
    restored: int, joins_first: int, joins_later: int, tmp_path: Path
) -> None:
    saved = open_metadata(SAVED)
    backup = write_backup(saved, tmp_path / "backup", cluster_id=CLUSTER_ID, created_ms=1)
    cluster = Cluster(kafka(), tmp_path / "cluster", CLUSTER_ID, is_static=True)
    cluster.reserve_controllers(*KAFKAS, KRAFT)
    try:
        for one in KAFKAS:
            cluster.add_controller(one)
        add_kraft_controller(cluster, KRAFT)
        quorum = MixedQuorum(cluster)
        node = quorum.nodes[restored]
        node.write_properties()
        for one in (joins_first, joins_later):
            quorum.nodes[one].format(CLUSTER_ID)
        to = ("--to", node.metadata_directory)
        printed("restore", backup.path, *to, "-c", node.properties)

        # Two empty controllers of three would be a majority without the backup.
        quorum.start(restored, joins_first)
        began = quorum.wait_for_leader(restored)
        assert began.epoch > saved.epoch + 1000
        quorum.start(joins_later)
        quorum.commit(5)
        for one in quorum.nodes:
            fetched = open_metadata(quorum.log_of(one))
            assert set(fetched.topics) == set(saved.topics)
            assert fetched.scram_credentials == saved.scram_credentials
        quorum.wait_until_all_have_all()
        node.kill()
        quorum.wait_for_leader(joins_first, joins_later)
        quorum.commit(5)
        quorum.start(restored)
        # A Kafka controller that is stopped while it still loads its metadata logs a fatal fault.
        wait_for("its image", lambda: set(quorum.endpoints_at(restored)) == set(quorum.nodes))
        quorum.check_equal_logs(quorum.stop())
        printed("verify", *(quorum.log_of(one) for one in quorum.nodes))
    finally:
        cluster.kill()
