"""DescribeProducers: the producers with an id that have written to partitions.

Only the leader of a partition answers. Source: ``KafkaApis.handleDescribeProducersRequest``,
``ReplicaManager.activeProducerState`` (4.3.1), KIP-664.
"""

from __future__ import annotations

from kraft.broker.apis.data_services import DataServices, ImageTopics, Pace, TopicAccess
from kraft.broker.log.partition_log import PartitionLog
from kraft.broker.replication.messages import PartitionId
from kraft.errors import (
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
    KraftError,
    error_name,
)
from kraft.image.security import AclOperation
from kraft.protocol.describe_producers import (
    DESCRIBE_PRODUCERS,
    ActiveProducer,
    DescribedProducersPartition,
    DescribedProducersTopic,
    DescribeProducersRequestData,
    DescribeProducersResponseData,
)
from kraft.server.apis.api import AnyApi, CallContext, ListenerApi


def describe_producers_api(broker: DataServices) -> AnyApi:
    """Return the API DescribeProducers."""

    async def answer(
        data: DescribeProducersRequestData, context: CallContext
    ) -> DescribeProducersResponseData:
        topics = ImageTopics(broker.image().table)
        access = TopicAccess(context, AclOperation.READ)
        pace = Pace()
        described = []
        for topic in data.topics:
            known = topics.by_name(topic.name)
            is_allowed = access.is_allowed(topic.name)
            partitions = []
            for index in topic.partition_indexes:
                if not is_allowed:
                    partitions.append(_failed(index, TOPIC_AUTHORIZATION_FAILED))
                elif known is None or not topics.has_partition(known, index):
                    partitions.append(_failed(index, UNKNOWN_TOPIC_OR_PARTITION))
                else:
                    partitions.append(_describe(broker, PartitionId(known.id, index)))
                await pace.rest()
            described.append(DescribedProducersTopic(topic.name, partitions))
        return DescribeProducersResponseData(topics=described)

    def failed(
        data: DescribeProducersRequestData, error: KraftError
    ) -> DescribeProducersResponseData:
        return DescribeProducersResponseData(
            topics=[
                DescribedProducersTopic(
                    topic.name,
                    [_failed(index, error.kafka_code) for index in topic.partition_indexes],
                )
                for topic in data.topics
            ]
        )

    return ListenerApi(DESCRIBE_PRODUCERS, DescribeProducersRequestData.decode, answer, failed)


def _describe(broker: DataServices, id: PartitionId) -> DescribedProducersPartition:
    partition = broker.replicas.manager.partitions.get(id)
    if partition is None:
        return _failed(id.partition, NOT_LEADER_OR_FOLLOWER)
    error = partition.epoch_error(-1, needs_leader=True)
    if error:
        return _failed(id.partition, error)
    log = partition.local_log
    assert isinstance(log, PartitionLog)
    try:
        producers = log.producers.producers.values()
    except KraftError as failure:
        return _failed(id.partition, failure.kafka_code)
    return DescribedProducersPartition(
        id.partition,
        NONE,
        active_producers=[
            ActiveProducer(
                each.producer_id,
                each.producer_epoch,
                each.last_sequence,
                each.last_timestamp_ms,
                each.coordinator_epoch,
                each.transaction_offset,
            )
            for each in producers
        ],
    )


def _failed(index: int, error: int) -> DescribedProducersPartition:
    return DescribedProducersPartition(index, error, error_name(error))
