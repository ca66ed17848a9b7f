"""Metadata, DescribeTopicPartitions and DescribeCluster of a broker, from its metadata cache.

The cache decides what the client sees; this module passes it the client's listener and permissions,
and begins the creation of missing topics. Called by a broker's node. Source: Kafka's ``KafkaApis``
(4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterator

from kraft.broker.apis.topic_creation import TopicCreation
from kraft.broker.metadata_cache import MetadataCache, failed_description, failed_metadata
from kraft.errors import KraftError
from kraft.protocol.describe_cluster import (
    DESCRIBE_CLUSTER,
    DescribeClusterRequestData,
    DescribeClusterResponseData,
)
from kraft.protocol.describe_topic_partitions import (
    DESCRIBE_TOPIC_PARTITIONS,
    DescribeTopicPartitionsRequestData,
)
from kraft.protocol.metadata import METADATA, MetadataRequestData
from kraft.security.operations import OperationCheck
from kraft.server.apis.api import AnyApi, CallContext, ListenerApi

#: The first version of Metadata with a throttle time.
_METADATA_THROTTLED_SINCE = 3


def metadata_apis(cache: MetadataCache, creation: TopicCreation) -> Iterator[AnyApi]:
    """Yield the APIs of the cache; ``creation`` creates the topics that a client asks for."""
    yield _metadata(cache, creation)
    yield _describe_topic_partitions(cache)
    yield _describe_cluster(cache)


def _metadata(cache: MetadataCache, creation: TopicCreation) -> AnyApi:
    async def answer(data: MetadataRequestData, context: CallContext) -> bytes:
        found = cache.metadata(data, context.version, context.listener, _check(context))
        creation.create(found.topics_to_create, context)
        return found.body

    return ListenerApi(
        METADATA,
        # As Kafka: librdkafka 2.16 sends three bytes too many when it asks for all topics.
        MetadataRequestData.decode_prefix,
        answer,
        failed_metadata,
        throttled_since=_METADATA_THROTTLED_SINCE,
    )


def _describe_topic_partitions(cache: MetadataCache) -> AnyApi:
    async def answer(data: DescribeTopicPartitionsRequestData, context: CallContext) -> bytes:
        return cache.describe_topic_partitions(data, context.listener, _check(context))

    return ListenerApi(
        DESCRIBE_TOPIC_PARTITIONS,
        DescribeTopicPartitionsRequestData.decode,
        answer,
        failed_description,
        throttled_since=0,
    )


def _describe_cluster(cache: MetadataCache) -> AnyApi:
    async def answer(
        data: DescribeClusterRequestData, context: CallContext
    ) -> DescribeClusterResponseData:
        return cache.describe_cluster(data, context.version, context.listener, _check(context))

    return ListenerApi(DESCRIBE_CLUSTER, DescribeClusterRequestData.decode, answer, _failed_cluster)


def _failed_cluster(
    data: DescribeClusterRequestData, error: KraftError
) -> DescribeClusterResponseData:
    return DescribeClusterResponseData(error_code=error.kafka_code, error_message=str(error))


def _check(context: CallContext) -> OperationCheck | None:
    return None if context.authorizer is None else context.allows
