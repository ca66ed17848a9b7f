"""A running cluster of Apache Kafka: each side reads and continues the other's files."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

import kraft
from kraft._core.log.log import Log
from kraft.metadata.log_records import read_records
from kraft.records import Config
from tests.harness.kafka_jars import KAFKA_4, kafka
from tests.harness.metadata_files import read_text
from tests.interop import agreement, keep, scenario
from tests.interop.cluster import SCRAM, Cluster, wait_for
from tests.interop.record import FILTERS, Recording, play, start
from tests.interop.tool_text import described

pytestmark = pytest.mark.interop

CONTROLLER = 101
NODES = {"controller-101": CONTROLLER, "broker-1": 1}


@pytest.fixture(scope="module")
def recorded_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recording]:
    """Run one controller and three brokers through the scenario, describe and stop them."""
    directory = tmp_path_factory.mktemp("cluster")
    cluster = Cluster(kafka(KAFKA_4), directory, "bGl2ZSBjbHVzdGVyIG5vdw")
    cluster.reserve_controllers(CONTROLLER)
    cluster.settings["metadata.log.max.record.bytes.between.snapshots"] = "10000"
    node = cluster.add_controller(CONTROLLER)
    node.format(cluster.cluster_id, "--standalone", "-S", SCRAM)
    try:
        recording = Recording(start(cluster), tmp_path_factory.mktemp("recorded"))
        play(recording.stage, scenario.create_topics, scenario.delete_topic)
        play(recording.stage, scenario.create_partitions, scenario.configure)
        play(recording.stage, scenario.configure_group, scenario.authorize, scenario.credentials)
        play(recording.stage, scenario.quotas, scenario.tokens, scenario.reassign)
        play(recording.stage, scenario.trouble)
        recording.moment("end", recording.describe_topics)
        cluster.freeze()
        recording.keep_nodes(NODES, ())
        yield recording
    finally:
        cluster.kill()


@pytest.mark.parametrize("name", NODES)
def test_the_package_reads_what_kafka_wrote(recorded_cluster: Recording, name: str) -> None:
    node, text = recorded_cluster.target / name, recorded_cluster.target / "text"
    metadata = kraft.open_metadata(node, at=recorded_cluster.moments["end"])
    agreement.check_topics(metadata, read_text(text / "end" / "topics.txt"))
    for one in FILTERS:
        agreement.check_filter(metadata, one, read_text(text / "end" / f"topics-{one}.txt"))

    for path in keep.dumpable(recorded_cluster.target, [name]):
        records = list(read_records(memoryview((recorded_cluster.target / path).read_bytes())))
        agreement.check_dump(records, read_text(text / f"{path}.txt"))
    for path in keep.shell_readable(node):
        where = path.relative_to(recorded_cluster.target)
        agreement.check_tree(kraft.open_metadata(path), read_text(text / f"{where}.tree.txt"))


def test_kafka_continues_from_files_of_the_package(recorded_cluster: Recording) -> None:
    """The controller's log is replaced by the package's snapshot and log, and Kafka starts."""
    cluster = recorded_cluster.stage.cluster
    directory = cluster.nodes[CONTROLLER].metadata_directory / keep.METADATA_LOG
    metadata = kraft.open_metadata(directory)
    aside = directory.rename(directory.with_name("aside"))
    directory.mkdir()
    metadata.write_snapshot(directory, columns=False)
    with Log.open(directory) as log:
        log.truncate_fully_and_start_at(metadata.next_offset)
        metadata.apply(Config(2, "orders", "retention.ms", "424242"))
        metadata.append(log)
    for name in ("quorum-state", "partition.metadata"):
        shutil.copyfile(aside / name, directory / name)
    shutil.rmtree(aside)

    cluster.start()
    ask = cluster.driver()
    wait_for("all brokers", lambda: ask("brokers") == [1, 2, 3])

    topics, partitions = described(
        recorded_cluster.tool("org.apache.kafka.tools.TopicCommand", "--describe")
    )
    assert topics["orders"].configs["retention.ms"] == "424242"
    assert {name: topic.topic_id for name, topic in topics.items()} == {
        name: str(topic.id) for name, topic in metadata.topics.items()
    }
    assert set(partitions) == {(one.topic, one.partition) for one in metadata.partitions}
    cluster.freeze()
    later = kraft.open_metadata(cluster.nodes[CONTROLLER].metadata_directory)
    assert later.next_offset > metadata.next_offset
    assert set(later.acls) == set(metadata.acls)
    assert later.topics["orders"].id == metadata.topics["orders"].id
