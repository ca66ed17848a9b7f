"""ListOffsets: the first, last or earliest later offset of partitions.

There is no remote storage: the first offset on this broker is the first one, and the offsets of
the tiered part are unknown. Source: ``KafkaApis.handleListOffsetRequest``,
``ReplicaManager.fetchOffset``, ``UnifiedLog.fetchOffsetByTimestamp`` (4.3.1).
"""

from __future__ import annotations

from collections import Counter

from kraft.broker.apis.data_services import DataServices, ImageTopics, Pace, TopicAccess
from kraft.broker.replication.messages import EARLIEST, ListedOffset, PartitionId
from kraft.errors import (
    INVALID_REQUEST,
    LEADER_NOT_AVAILABLE,
    NONE,
    OFFSET_NOT_AVAILABLE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_VERSION,
    KraftError,
)
from kraft.image.security import AclOperation
from kraft.protocol.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequestData,
    ListOffsetsResponseData,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from kraft.server.apis.api import AnyApi, CallContext, ListenerApi

#: The first offset on this broker, the last one in remote storage, and the first one that is not.
EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6
#: Negative timestamps, and the version from which each may be sent.
_FIRST_VERSION = {-1: 1, -2: 1, -3: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9} | {
    EARLIEST_PENDING_UPLOAD: 11
}
_FIRST_WITH_LEADER_EPOCH = 4
#: Clients of earlier versions do not know OFFSET_NOT_AVAILABLE (KIP-207).
_FIRST_WITH_NOT_AVAILABLE = 5


def list_offsets_api(broker: DataServices) -> AnyApi:
    """Return the API ListOffsets."""

    async def answer(data: ListOffsetsRequestData, context: CallContext) -> ListOffsetsResponseData:
        topics = ImageTopics(broker.image().table)
        access = TopicAccess(context, AclOperation.DESCRIBE)
        counts = Counter(
            (topic.name, each.partition_index) for topic in data.topics for each in topic.partitions
        )
        pace = Pace()
        responses = []
        for topic in data.topics:
            known = topics.by_name(topic.name)
            is_allowed = access.is_allowed(topic.name)
            partitions = []
            for each in topic.partitions:
                if not is_allowed:
                    listed = ListedOffset(TOPIC_AUTHORIZATION_FAILED)
                elif counts[topic.name, each.partition_index] > 1:
                    listed = ListedOffset(INVALID_REQUEST)
                elif known is None:
                    listed = ListedOffset(UNKNOWN_TOPIC_OR_PARTITION)
                else:
                    id = PartitionId(known.id, each.partition_index)
                    listed = _listed(broker, id, each, data.replica_id, context.version)
                partitions.append(_response(each, listed, context.version))
                await pace.rest()
            responses.append(ListOffsetsTopicResponse(topic.name, partitions))
        return ListOffsetsResponseData(topics=responses)

    def failed(data: ListOffsetsRequestData, error: KraftError) -> ListOffsetsResponseData:
        return ListOffsetsResponseData(
            topics=[_failed_topic(topic, error.kafka_code) for topic in data.topics]
        )

    return ListenerApi(LIST_OFFSETS, ListOffsetsRequestData.decode, answer, failed)


def _listed(
    broker: DataServices,
    id: PartitionId,
    asked: ListOffsetsPartition,
    replica_id: int,
    version: int,
) -> ListedOffset:
    timestamp = asked.timestamp
    if timestamp < 0 and version < _FIRST_VERSION.get(timestamp, version + 1):
        return ListedOffset(UNSUPPORTED_VERSION)
    if timestamp in (EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        timestamp = EARLIEST
    try:
        listed = broker.replicas.manager.list_offset(
            id,
            timestamp,
            leader_epoch=asked.current_leader_epoch,
            from_follower=replica_id >= 0,
        )
    except KraftError as error:
        return ListedOffset(error.kafka_code)
    if asked.timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD) and not listed.error:
        return ListedOffset(NONE)
    return listed


def _response(
    asked: ListOffsetsPartition, listed: ListedOffset, version: int
) -> ListOffsetsPartitionResponse:
    error = listed.error
    if error == OFFSET_NOT_AVAILABLE and version < _FIRST_WITH_NOT_AVAILABLE:
        error = LEADER_NOT_AVAILABLE
    made = ListOffsetsPartitionResponse(
        asked.partition_index, error, listed.timestamp_ms, listed.offset
    )
    if version >= _FIRST_WITH_LEADER_EPOCH:
        made.leader_epoch = listed.leader_epoch
    return made


def _failed_topic(topic: ListOffsetsTopic, error: int) -> ListOffsetsTopicResponse:
    return ListOffsetsTopicResponse(
        topic.name,
        [ListOffsetsPartitionResponse(each.partition_index, error) for each in topic.partitions],
    )
