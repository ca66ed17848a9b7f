"""``kraft.follow`` at Apache Kafka's controllers, compared with their logs at the same offset."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

import kraft
from kraft.admin import TopicSpec, connect_blocking
from kraft.errors import KraftError, OffsetOutOfRangeError
from kraft.network.quorum_client import QuorumUnreachableError
from kraft.records import Partition, RemoveTopic, Topic
from kraft.server.light_brokers import LightBrokers
from tests.harness.kafka_jars import KAFKA_3, KAFKA_4, MIXED_IN_CI, kafka
from tests.harness.metadata_files import read_log
from tests.interop.cluster import Cluster, Node, wait_for
from tests.interop.operations import in_full_size

pytestmark = pytest.mark.interop

CLUSTER_ID = "a3JhZnQgZm9sbG93IDAwMQ"
LOG = "__cluster_metadata-0"
# The light brokers send heartbeats for sessions of Kafka's default length.
SESSION = {"broker.session.timeout.ms": "9000"}


@contextmanager
def quorum(directory: Path, release: str, *ids: int) -> Iterator[Cluster]:
    """Run static controllers of this release with three registered brokers."""
    cluster = Cluster(kafka(release), directory, CLUSTER_ID, True, SESSION)
    cluster.reserve_controllers(*ids)
    with ExitStack() as stack:
        stack.callback(cluster.kill)
        for one in ids:
            node = cluster.add_controller(one)
            node.format(CLUSTER_ID)
            node.start()
        for node in cluster.nodes.values():
            node.wait_until_listening()
        addresses = [(node.address.partition(":")[0], node.port) for node in cluster.nodes.values()]
        light = LightBrokers(addresses, CLUSTER_ID, 3)
        stack.callback(light.stop)
        light.start()
        wait_for("unfenced brokers", lambda: light.unfenced_count == 3)
        yield cluster


def topics_in_log(node: Node, end_offset: int) -> dict[str, set[int]]:
    """Return topics and partition ids by a reader that shares no code with the package's."""
    names: dict[object, str] = {}
    found: dict[str, set[int]] = {}
    for logged in read_log(node.metadata_directory / LOG):
        record = logged.record
        if logged.offset >= end_offset:
            break
        if isinstance(record, Topic):
            names[record.topic_id] = record.name
            found[record.name] = set()
        elif isinstance(record, RemoveTopic):
            del found[names[record.topic_id]]
        elif isinstance(record, Partition):
            found[names[record.topic_id]].add(record.partition_id)
    return found


def assert_equal(live: kraft.LiveMetadata, cluster: Cluster) -> bool:
    """Compare with the log of a controller that has this offset; return False if none has."""
    for node in cluster.nodes.values():
        try:
            expected = kraft.open_metadata(node.metadata_directory, at=live.next_offset)
        except OffsetOutOfRangeError:
            continue
        assert list(kraft.diff(expected, live)) == []
        assert live.quorum.leader_epoch == expected.quorum.leader_epoch
        found = {
            topic.name: {live.partitions.row(int(row)).partition for row in topic.rows}
            for topic in live.topics.values()
        }
        assert found == topics_in_log(node, live.next_offset)
        return True
    return False


def test_the_state_is_that_of_kafkas_controllers_at_each_offset(tmp_path: Path) -> None:
    """Over new and removed topics, and a leader that is killed and comes back."""
    with quorum(tmp_path, KAFKA_4, 101, 102, 103) as cluster:
        bootstrap = ",".join(node.address for node in cluster.nodes.values())
        offsets, leaders, compared = [], set(), 0
        with kraft.follow(bootstrap) as live, connect_blocking(bootstrap) as admin:
            assert live.cluster_id == CLUSTER_ID
            assert len(live.brokers) == 3
            for step in range(16):
                if step == 6:
                    killed = cluster.nodes[live.quorum.leader_id]
                    killed.kill()
                if step == 10:
                    killed.start()
                end = time.monotonic() + 180
                while f"topic-{step}" not in live.topics:
                    assert time.monotonic() < end, live.trouble
                    # It may exist by an attempt before, or the next leader knows no broker yet.
                    with suppress(KraftError):
                        admin.create_topics([TopicSpec(f"topic-{step}", 7, 3)])
                    live.poll(0.5)
                    offsets.append(live.next_offset)
                if step % 3 == 2:
                    admin.delete_topics([f"topic-{step}"])
                    while f"topic-{step}" in live.topics:
                        assert time.monotonic() < end, live.trouble
                        live.poll(0.5)
                compared += assert_equal(live, cluster)
                leaders.add(live.quorum.leader_id)
        assert offsets == sorted(offsets)
        # A standstill of the machine may elect another one.
        assert len(leaders) >= 2
        assert compared >= 12


@in_full_size
@pytest.mark.parametrize("release", [MIXED_IN_CI[0], KAFKA_3])
def test_an_older_cluster_is_followed_and_a_brokers_port_is_named(
    tmp_path: Path, release: str
) -> None:
    with quorum(tmp_path, release, 101) as cluster:
        node = cluster.nodes[101]
        with kraft.follow(node.address) as live, connect_blocking(node.address) as admin:
            with suppress(KraftError):
                admin.create_topics([TopicSpec("old", 3, 3)])
            end = time.monotonic() + 120
            while "old" not in live.topics:
                assert time.monotonic() < end, live.trouble
                live.poll(0.5)
            assert assert_equal(live, cluster)
        broker = cluster.add_broker(1, None)
        broker.format(CLUSTER_ID)
        broker.start()
        broker.wait_until_listening()
        with pytest.raises(
            QuorumUnreachableError, match="this is a broker's listener: give the address"
        ):
            kraft.follow(broker.address, timeout_s=5)
