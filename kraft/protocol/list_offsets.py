"""ListOffsets: the first or last offset of partitions, or the first one at a time.

Source: ``ListOffsetsRequest``, ``ListOffsetsResponse`` of Kafka 4.3.1.
"""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.headers import Api

LIST_OFFSETS = Api(2, "ListOffsets", 1, 11, 6)


class ListOffsetsPartition(Struct):
    partition_index: int = field("int32")
    current_leader_epoch: int = field("int32", -1, since=4, ignorable=True)
    # In ms, or -1: the end of the log, -2: its start, -3 (7+): the record of the largest timestamp,
    # -4 (8+): the start of the log on this broker; -5 (9+) and -6 (11+) are about remote storage.
    timestamp: int = field("int64")


class ListOffsetsTopic(Struct):
    name: str = field("string")
    partitions: list[ListOffsetsPartition] = field("[]struct", of=ListOffsetsPartition)


class ListOffsetsRequestData(Message, versions=(1, 11), flexible_since=6):
    # -1 for a consumer.
    replica_id: int = field("int32")
    # 0: up to the high watermark; 1: up to the last stable offset.
    isolation_level: int = field("int8", since=2)
    topics: list[ListOffsetsTopic] = field("[]struct", of=ListOffsetsTopic)
    timeout_ms: int = field("int32", since=10, ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    partition_index: int = field("int32")
    error_code: int = field("int16")
    timestamp: int = field("int64", -1)
    offset: int = field("int64", -1)
    leader_epoch: int = field("int32", -1, since=4)


class ListOffsetsTopicResponse(Struct):
    name: str = field("string")
    partitions: list[ListOffsetsPartitionResponse] = field(
        "[]struct", of=ListOffsetsPartitionResponse
    )


class ListOffsetsResponseData(Message, versions=(1, 11), flexible_since=6):
    throttle_time_ms: int = field("int32", since=2, ignorable=True)
    topics: list[ListOffsetsTopicResponse] = field("[]struct", of=ListOffsetsTopicResponse)
