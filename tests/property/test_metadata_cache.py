"""For any cluster and request, a broker answers as the slow twin of its metadata cache.

The cache reads an image while the table may be ahead of it. Responses are compared byte for byte.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraft import records
from kraft.broker.metadata_cache import (
    MetadataCache,
    MetadataCacheSettings,
    failed_description,
    failed_metadata,
)
from kraft.errors import KraftError
from kraft.image.publishing import Phase
from kraft.image.security import AclOperation, ResourceType
from kraft.protocol.describe_topic_partitions import (
    DescribeTopicPartitionsRequestData,
    TopicPartitionsCursor,
    TopicPartitionsRequestTopic,
)
from kraft.protocol.metadata import MetadataRequestData, MetadataRequestTopic
from kraft.records import ZERO_UUID, Record, Uuid
from tests.harness.table_records import BROKERS, DIRECTORIES, TOPIC_IDS
from tests.property.growing_clusters import LOGS, Growing
from tests.reference import metadata_cache_twin as twin
from tests.reference.metadata_cache_twin import PlainCluster, RejectedRequest

LISTENERS = ("PLAIN", "TLS")
NAMES = st.sampled_from(
    ["a", "b", "orders-é", "gone", "", "..", "no spaces", "\U0001f600", "\ufffd",
     "__consumer_offsets", "__share_group_state", "x" * 249, "x" * 250]
)  # fmt: skip
ENDPOINTS = st.lists(st.sampled_from(LISTENERS), unique=True).map(
    lambda names: [
        records.EndpointData(name=name, host=f"{name}.host", port=9000 + len(name))
        for name in names
    ]
)
NODES = st.one_of(
    st.builds(
        records.RegisterBroker,
        broker_id=BROKERS,
        fenced=st.sampled_from([False, False, False, True]),
        rack=st.sampled_from([None, "r1"]),
        end_points=ENDPOINTS,
        log_dirs=st.lists(DIRECTORIES.filter(lambda each: int.from_bytes(each) > 2), max_size=2),
    ),
    st.builds(records.FenceBroker, id=BROKERS, epoch=st.just(-1)),
    st.builds(records.UnfenceBroker, id=BROKERS, epoch=st.just(-1)),
    st.builds(records.UnregisterBroker, broker_id=BROKERS, broker_epoch=st.just(-1)),
    st.just(records.Topic(name="__consumer_offsets", topic_id=Uuid(b"\7" * 16))),
    st.builds(
        records.Partition,
        partition_id=st.integers(0, 3),
        topic_id=st.sampled_from([Uuid(b"\7" * 16), Uuid(b"\1" * 16)]),
        replicas=st.just([0, 1, 2]),
        isr=st.sampled_from([[0, 1, 2], [2, 0], []]),
        leader=st.integers(-1, 2),
        directories=st.just([Uuid((77).to_bytes(16, "big"))] * 3),
        version=st.just(1),
    ),
)


@st.composite
def metadata_requests(draw: st.DrawFn) -> tuple[int, MetadataRequestData]:
    version = draw(st.integers(0, 13))
    name = NAMES if version < 10 else st.none() | NAMES
    topic_id = st.just(ZERO_UUID) if version < 10 else st.just(ZERO_UUID) | TOPIC_IDS
    topics: st.SearchStrategy[Any] = st.lists(
        st.builds(MetadataRequestTopic, topic_id=topic_id, name=name), max_size=6
    )
    return version, MetadataRequestData(
        topics=draw(topics if version == 0 else topics | st.none()),
        allow_auto_topic_creation=version < 4 or draw(st.booleans()),
        include_cluster_authorized_operations=8 <= version <= 10 and draw(st.booleans()),
        include_topic_authorized_operations=version >= 8 and draw(st.booleans()),
    )


DESCRIPTIONS = st.builds(
    DescribeTopicPartitionsRequestData,
    topics=st.lists(st.builds(TopicPartitionsRequestTopic, name=NAMES), max_size=5),
    response_partition_limit=st.integers(-1, 8),
    cursor=st.none() | st.builds(TopicPartitionsCursor, NAMES, st.integers(-1, 4)),
)


class Acl:
    """Denies each (operation, type, name) that it was made with."""

    def __init__(self, denied: set[tuple[int, int, str]]) -> None:
        self._denied = denied

    def __call__(
        self,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        log_if_denied: bool = True,
    ) -> bool:
        return (operation, resource_type, name) not in self._denied


ACLS = st.none() | st.builds(
    Acl,
    st.sets(
        st.tuples(st.sampled_from([5, 8, 8]), st.just(2), NAMES)
        | st.tuples(st.sampled_from([5, 8, 9]), st.just(4), st.just("kafka-cluster")),
        max_size=12,
    ),
)


def middle(ids: Any) -> Any:
    return ids[len(ids) // 2]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    log=LOGS,
    nodes=st.lists(NODES, min_size=5, max_size=25),
    places=st.lists(st.integers(0, 60), min_size=25, max_size=25),
    stops=st.lists(st.tuples(st.integers(1, 30), st.integers(0, 8), st.booleans()), max_size=4),
    asked=st.lists(metadata_requests(), min_size=1, max_size=6),
    described=st.lists(DESCRIPTIONS, max_size=4),
    allows=ACLS,
    auto_create=st.booleans(),
    limit=st.integers(1, 6),
)
def test_every_answer_is_that_of_the_twin(
    log: list[Record],
    nodes: list[Record],
    places: list[int],
    stops: list[tuple[int, int, bool]],
    asked: list[tuple[int, MetadataRequestData]],
    described: list[DescribeTopicPartitionsRequestData],
    allows: Acl | None,
    auto_create: bool,
    limit: int,
) -> None:
    mixed = list(log)
    for node, place in zip(nodes, places, strict=False):
        mixed.insert(place, node)
    growing = Growing()
    cache = MetadataCache("the-cluster", MetadataCacheSettings(auto_create, limit), choose=middle)
    growing.publishing.register(cache, Phase.METADATA_CACHE)
    coming = iter(mixed)
    for count, ahead, compacts in [*stops, (100, 0, False)]:
        for record, _ in zip(coming, range(count), strict=False):
            growing.apply(record)
        if compacts:
            growing.compact()
        before = growing.publishing.image
        offset = max(0 if before is None else before.offset, growing.cluster.next_offset - ahead)
        growing.publishing.publish(offset)
        assert growing.publishing.fault_counts == {}
        image = growing.publishing.image
        if image is None:
            continue
        cluster = PlainCluster.of(image)
        for listener in (*LISTENERS, "NONE"):
            for version, request in asked:
                compare_metadata(cache, cluster, request, version, listener, allows, auto_create)
            for description in described:
                compare_description(cache, cluster, description, listener, allows, limit)


def compare_metadata(
    cache: MetadataCache,
    cluster: PlainCluster,
    request: MetadataRequestData,
    version: int,
    listener: str,
    allows: Acl | None,
    auto_create: bool,
) -> None:
    try:
        expected, to_create = twin.metadata(
            cluster, request, version, listener, allows, auto_create=auto_create, controller=middle
        )
    except RejectedRequest as rejected:
        code = rejected.code
    else:
        answer = cache.metadata(request, version, listener, allows)
        assert answer.body == expected.encode(version)
        assert list(answer.topics_to_create) == to_create
        return
    with pytest.raises(KraftError) as error:
        cache.metadata(request, version, listener, allows)
    assert error.value.kafka_code == code
    assert failed_metadata(request, error.value).encode(version)


def compare_description(
    cache: MetadataCache,
    cluster: PlainCluster,
    request: DescribeTopicPartitionsRequestData,
    listener: str,
    allows: Acl | None,
    limit: int,
) -> None:
    try:
        expected = twin.describe_topic_partitions(cluster, request, listener, allows, limit=limit)
    except RejectedRequest as rejected:
        code = rejected.code
    else:
        assert cache.describe_topic_partitions(request, listener, allows) == expected.encode(0)
        return
    with pytest.raises(KraftError) as error:
        cache.describe_topic_partitions(request, listener, allows)
    assert error.value.kafka_code == code
    assert failed_description(request, error.value).encode(0)
