"""DeleteRecords: raise the start offset of partitions (KIP-107).

Source: ``DeleteRecordsRequest``, ``DeleteRecordsResponse`` of Kafka 4.3.1.
"""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.headers import Api

DELETE_RECORDS = Api(21, "DeleteRecords", 0, 2, 2)


class DeleteRecordsPartition(Struct):
    partition_index: int = field("int32")
    # -1 for the high watermark.
    offset: int = field("int64")


class DeleteRecordsTopic(Struct):
    name: str = field("string")
    partitions: list[DeleteRecordsPartition] = field("[]struct", of=DeleteRecordsPartition)


class DeleteRecordsRequestData(Message, versions=(0, 2), flexible_since=2):
    topics: list[DeleteRecordsTopic] = field("[]struct", of=DeleteRecordsTopic)
    timeout_ms: int = field("int32")


class DeleteRecordsPartitionResult(Struct):
    partition_index: int = field("int32")
    low_watermark: int = field("int64")
    error_code: int = field("int16")


class DeleteRecordsTopicResult(Struct):
    name: str = field("string")
    partitions: list[DeleteRecordsPartitionResult] = field(
        "[]struct", of=DeleteRecordsPartitionResult
    )


class DeleteRecordsResponseData(Message, versions=(0, 2), flexible_since=2):
    throttle_time_ms: int = field("int32")
    topics: list[DeleteRecordsTopicResult] = field("[]struct", of=DeleteRecordsTopicResult)
