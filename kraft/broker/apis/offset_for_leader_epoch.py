"""OffsetForLeaderEpoch: where the leader's log has the end of an epoch.

Brokers may ask for every topic, clients for those that they may describe. Source:
``KafkaApis.handleOffsetForLeaderEpochRequest`` (4.3.1), KIP-320.
"""

from __future__ import annotations

from kraft.broker.apis.data_services import DataServices, ImageTopics, Pace, TopicAccess
from kraft.broker.replication.messages import EpochEnd, PartitionId
from kraft.errors import TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION, KraftError
from kraft.image.security import AclOperation
from kraft.protocol.offset_for_leader_epoch import (
    OFFSET_FOR_LEADER_EPOCH,
    OffsetForLeaderEpochRequestData,
    OffsetForLeaderEpochResponseData,
    OffsetForLeaderPartition,
    OffsetForLeaderPartitionResult,
    OffsetForLeaderTopicResult,
)
from kraft.server.apis.api import AnyApi, CallContext, ListenerApi


def offset_for_leader_epoch_api(broker: DataServices) -> AnyApi:
    """Return the API OffsetForLeaderEpoch."""

    async def answer(
        data: OffsetForLeaderEpochRequestData, context: CallContext
    ) -> OffsetForLeaderEpochResponseData:
        topics = ImageTopics(broker.image().table)
        access = TopicAccess(context, AclOperation.DESCRIBE)
        is_broker = context.allows_on_cluster(AclOperation.CLUSTER_ACTION)
        pace = Pace()
        results = []
        for topic in data.topics:
            known = topics.by_name(topic.topic)
            is_allowed = is_broker or access.is_allowed(topic.topic)
            partitions = []
            for each in topic.partitions:
                if not is_allowed:
                    end = EpochEnd(TOPIC_AUTHORIZATION_FAILED)
                elif known is None:
                    end = EpochEnd(UNKNOWN_TOPIC_OR_PARTITION)
                else:
                    end = _end(broker, PartitionId(known.id, each.partition), each)
                partitions.append(
                    OffsetForLeaderPartitionResult(
                        end.error, each.partition, end.epoch, end.end_offset
                    )
                )
                await pace.rest()
            results.append(OffsetForLeaderTopicResult(topic.topic, partitions))
        return OffsetForLeaderEpochResponseData(topics=results)

    def failed(
        data: OffsetForLeaderEpochRequestData, error: KraftError
    ) -> OffsetForLeaderEpochResponseData:
        return OffsetForLeaderEpochResponseData(
            topics=[
                OffsetForLeaderTopicResult(
                    topic.topic,
                    [
                        OffsetForLeaderPartitionResult(error.kafka_code, each.partition)
                        for each in topic.partitions
                    ],
                )
                for topic in data.topics
            ]
        )

    return ListenerApi(
        OFFSET_FOR_LEADER_EPOCH, OffsetForLeaderEpochRequestData.decode, answer, failed
    )


def _end(broker: DataServices, id: PartitionId, asked: OffsetForLeaderPartition) -> EpochEnd:
    try:
        return broker.replicas.manager.epoch_end(id, asked.current_leader_epoch, asked.leader_epoch)
    except KraftError as error:
        return EpochEnd(error.kafka_code)
