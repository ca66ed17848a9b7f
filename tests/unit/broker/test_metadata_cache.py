"""What a client reads of a broker's metadata cache in the cases that operators meet."""

from __future__ import annotations

import pytest

from kraft import records
from kraft.broker.metadata_cache import MetadataCache, MetadataCacheSettings
from kraft.errors import InvalidRequestError
from kraft.image.publishing import ImagePublishing, Phase
from kraft.image.replay import MetadataState
from kraft.protocol.describe_cluster import DescribeClusterRequestData
from kraft.protocol.describe_topic_partitions import (
    DescribeTopicPartitionsRequestData,
    DescribeTopicPartitionsResponseData,
    TopicPartitionsCursor,
    TopicPartitionsRequestTopic,
)
from kraft.protocol.metadata import (
    MetadataRequestData,
    MetadataRequestTopic,
    MetadataResponseData,
)
from kraft.records import Record, Uuid
from kraft.records.batches import encode_records

TOPIC = Uuid(b"t" * 16)
DIRECTORY = Uuid(b"d" * 16)


def broker(id: int, *listeners: str) -> Record:
    return records.RegisterBroker(
        broker_id=id,
        broker_epoch=id,
        fenced=False,
        end_points=[
            records.EndpointData(name=name, host=f"{name.lower()}-{id}", port=9092)
            for name in listeners
        ],
        log_dirs=[DIRECTORY],
    )


def partition(index: int, leader: int, *replicas: int) -> Record:
    return records.Partition(
        partition_id=index,
        topic_id=TOPIC,
        replicas=list(replicas),
        isr=list(replicas),
        leader=leader,
        directories=[DIRECTORY] * len(replicas),
    )


class Cluster:
    """A metadata cache that follows records."""

    def __init__(self, settings: MetadataCacheSettings | None = None) -> None:
        self.cache = MetadataCache("cluster", settings, choose=max)
        self._state = MetadataState(journaling=True)
        self._publishing = ImagePublishing(self._state)
        self._publishing.register(self.cache, Phase.METADATA_CACHE)

    def apply(self, *log: Record) -> None:
        batches = encode_records(log, base_offset=self._state.next_offset)
        self._state.apply(batches)
        self._publishing.publish(self._state.next_offset)
        assert self._publishing.fault_counts == {}

    def metadata(self, *names: str, listener: str = "PLAIN") -> MetadataResponseData:
        topics = [MetadataRequestTopic(name=name) for name in names] or None
        body = self.cache.metadata(MetadataRequestData(topics), 13, listener).body
        return MetadataResponseData.decode(body, 13)


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.apply(
        broker(0, "PLAIN"),
        broker(1, "PLAIN", "TLS"),
        records.Topic(name="orders", topic_id=TOPIC),
        partition(0, 0, 0, 1),
        partition(1, 1, 1, 0),
    )
    return cluster


def test_a_broker_without_metadata_has_no_brokers_and_no_topics() -> None:
    response = Cluster().metadata("orders")
    assert (response.brokers, response.controller_id) == ([], -1)
    assert [topic.error_code for topic in response.topics] == [3]


def test_a_fenced_broker_is_left_out_and_its_replicas_are_offline(cluster: Cluster) -> None:
    assert [one.offline_replicas for one in cluster.metadata().topics[0].partitions] == [[], []]
    cluster.apply(records.FenceBroker(id=0, epoch=0))
    response = cluster.metadata()
    assert [one.node_id for one in response.brokers] == [1]
    assert [one.offline_replicas for one in response.topics[0].partitions] == [[0], [0]]
    cluster.apply(records.UnfenceBroker(id=0, epoch=0))
    assert [one.node_id for one in cluster.metadata().brokers] == [0, 1]


def test_a_replica_in_a_failed_directory_is_offline(cluster: Cluster) -> None:
    cluster.apply(
        records.BrokerRegistrationChange(broker_id=1, broker_epoch=1, log_dirs=[Uuid(b"e" * 16)])
    )
    assert [one.offline_replicas for one in cluster.metadata().topics[0].partitions] == [[1], [1]]


def test_only_a_lost_directory_and_one_that_the_broker_lacks_are_offline(cluster: Cluster) -> None:
    """Without the assignment of a directory a replica counts as online (KIP-858)."""
    migrating, unassigned, lost, unknown = (Uuid(n.to_bytes(16, "big")) for n in (0, 1, 2, 77))
    directories = [migrating, unassigned, lost, unknown, DIRECTORY]
    cluster.apply(
        *(broker(id, "PLAIN") for id in (2, 3, 4)),
        partition(2, 0, 0, 1, 2, 3, 4).replace(directories=directories),
    )
    assert cluster.metadata().topics[0].partitions[2].offline_replicas == [2, 3]


def test_before_version_6_no_error_names_the_listener(cluster: Cluster) -> None:
    for version, error in ((5, 5), (6, 72)):
        body = cluster.cache.metadata(MetadataRequestData(None), version, "TLS").body
        (topic,) = MetadataResponseData.decode(body, version).topics
        assert [one.error_code for one in topic.partitions] == [error, 0]


def test_a_leader_without_the_listener_is_an_error_of_its_partition(cluster: Cluster) -> None:
    response = cluster.metadata(listener="TLS")
    assert [(one.node_id, one.host) for one in response.brokers] == [(1, "tls-1")]
    assert [(one.error_code, one.leader_id) for one in response.topics[0].partitions] == [
        (72, -1),
        (0, 1),
    ]


def test_a_partition_without_a_leader_is_listed_with_an_error(cluster: Cluster) -> None:
    cluster.apply(records.PartitionChange(partition_id=0, topic_id=TOPIC, leader=-1))
    assert [(one.error_code, one.leader_id) for one in cluster.metadata().topics[0].partitions] == [
        (5, -1),
        (0, 1),
    ]


@pytest.mark.parametrize(
    ("is_enabled", "is_allowed", "created"),
    [(True, True, ("new",)), (True, False, ()), (False, True, ())],
)
def test_an_unknown_topic_is_reported_for_creation_where_both_sides_want_it(
    is_enabled: bool, is_allowed: bool, created: tuple[str, ...]
) -> None:
    cluster = Cluster(MetadataCacheSettings(auto_create_topics_enable=is_enabled))
    names = [MetadataRequestTopic(name=name) for name in ("new", "not a name")]
    answer = cluster.cache.metadata(MetadataRequestData(names, is_allowed), 12, "PLAIN")
    assert answer.topics_to_create == created
    response = MetadataResponseData.decode(answer.body, 12)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("new", 3),
        ("not a name", 17),
    ]


def test_a_cursor_continues_where_the_limit_ended_a_page() -> None:
    cluster = Cluster(MetadataCacheSettings(max_request_partition_size_limit=3))
    other = Uuid(b"u" * 16)
    log: list[Record] = [
        records.Topic(name="a", topic_id=TOPIC),
        records.Topic(name="b", topic_id=other),
    ]
    log += [partition(index, 0, 0) for index in range(4)]
    log += [partition(index, 0, 0).replace(topic_id=other) for index in range(2)]
    cluster.apply(broker(0, "PLAIN"), *log)
    pages = []
    cursor = None
    while True:
        body = cluster.cache.describe_topic_partitions(
            DescribeTopicPartitionsRequestData(cursor=cursor), "PLAIN"
        )
        page = DescribeTopicPartitionsResponseData.decode(body, 0)
        pages.append(
            [
                (topic.name, partition.partition_index)
                for topic in page.topics
                for partition in topic.partitions
            ]
        )
        cursor = page.next_cursor
        if cursor is None:
            break
    assert pages == [[("a", 0), ("a", 1), ("a", 2)], [("a", 3), ("b", 0), ("b", 1)]]


def test_a_cursor_must_be_at_a_requested_topic(cluster: Cluster) -> None:
    request = DescribeTopicPartitionsRequestData(
        [TopicPartitionsRequestTopic("orders")], cursor=TopicPartitionsCursor("other", 0)
    )
    with pytest.raises(InvalidRequestError, match="'other', which is not requested"):
        cluster.cache.describe_topic_partitions(request, "PLAIN")


def test_describe_cluster_lists_fenced_brokers_on_request(cluster: Cluster) -> None:
    cluster.apply(records.FenceBroker(id=1, epoch=1))
    for is_wanted, listed in ((False, [(0, False)]), (True, [(0, False), (1, True)])):
        response = cluster.cache.describe_cluster(
            DescribeClusterRequestData(include_fenced_brokers=is_wanted), 2, "PLAIN"
        )
        assert [(node.broker_id, node.is_fenced) for node in response.brokers] == listed
        assert response.controller_id == 0
    # Broker 1 alone has this listener, and is not the random controller.
    response = cluster.cache.describe_cluster(
        DescribeClusterRequestData(include_fenced_brokers=True), 2, "TLS"
    )
    assert ([node.broker_id for node in response.brokers], response.controller_id) == ([1], -1)


def test_describe_cluster_describes_no_controllers(cluster: Cluster) -> None:
    response = cluster.cache.describe_cluster(
        DescribeClusterRequestData(endpoint_type=2), 1, "PLAIN"
    )
    assert (response.error_code, response.brokers) == (114, [])
