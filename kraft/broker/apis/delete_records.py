"""DeleteRecords: raise the start offset of partitions, on all replicas that are alive.

Source: ``KafkaApis.handleDeleteRecordsRequest``, ``ReplicaManager.deleteRecordsOnLocalLog``
(4.3.1), KIP-107.
"""

from __future__ import annotations

from kraft.broker.apis.data_services import DataServices, ImageTopics, Pace, TopicAccess
from kraft.broker.replication.messages import DeletedRecords, PartitionId
from kraft.errors import (
    INVALID_TOPIC_EXCEPTION,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
    KraftError,
)
from kraft.image.security import AclOperation
from kraft.protocol.delete_records import (
    DELETE_RECORDS,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequestData,
    DeleteRecordsResponseData,
    DeleteRecordsTopicResult,
)
from kraft.protocol.metadata import INTERNAL_TOPICS
from kraft.server.apis.api import AnyApi, CallContext, ListenerApi


def delete_records_api(broker: DataServices) -> AnyApi:
    """Return the API DeleteRecords."""

    async def answer(
        data: DeleteRecordsRequestData, context: CallContext
    ) -> DeleteRecordsResponseData:
        topics = ImageTopics(broker.image().table)
        access = TopicAccess(context, AclOperation.DELETE)
        pace = Pace()
        offsets: dict[PartitionId, int] = {}
        pending: list[tuple[PartitionId, DeleteRecordsPartitionResult]] = []
        results = []
        for topic in data.topics:
            known = topics.by_name(topic.name)
            is_allowed = access.is_allowed(topic.name)
            partitions = []
            for each in topic.partitions:
                result = DeleteRecordsPartitionResult(each.partition_index, -1, 0)
                partitions.append(result)
                if not is_allowed:
                    result.error_code = TOPIC_AUTHORIZATION_FAILED
                elif known is None or not topics.has_partition(known, each.partition_index):
                    result.error_code = UNKNOWN_TOPIC_OR_PARTITION
                elif topic.name in INTERNAL_TOPICS:
                    result.error_code = INVALID_TOPIC_EXCEPTION
                else:
                    id = PartitionId(known.id, each.partition_index)
                    offsets[id] = each.offset
                    pending.append((id, result))
                await pace.rest()
            results.append(DeleteRecordsTopicResult(topic.name, partitions))
        deleted: dict[PartitionId, DeletedRecords] = {}
        if offsets:
            deleted = await broker.replicas.delete_records(offsets, data.timeout_ms)
        for id, result in pending:
            outcome = deleted[id]
            result.error_code = outcome.error
            result.low_watermark = outcome.low_watermark
        return DeleteRecordsResponseData(topics=results)

    def failed(data: DeleteRecordsRequestData, error: KraftError) -> DeleteRecordsResponseData:
        return DeleteRecordsResponseData(
            topics=[
                DeleteRecordsTopicResult(
                    topic.name,
                    [
                        DeleteRecordsPartitionResult(each.partition_index, -1, error.kafka_code)
                        for each in topic.partitions
                    ],
                )
                for topic in data.topics
            ]
        )

    return ListenerApi(DELETE_RECORDS, DeleteRecordsRequestData.decode, answer, failed)
