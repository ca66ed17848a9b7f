"""OffsetDelete: remove committed offsets of a group (KIP-496).

Source: ``OffsetDeleteRequest``, ``OffsetDeleteResponse`` of Kafka 4.3.1.
"""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.headers import Api

OFFSET_DELETE = Api(47, "OffsetDelete", 0, 0, 1)


class OffsetDeleteRequestPartition(Struct):
    partition_index: int = field("int32")


class OffsetDeleteRequestTopic(Struct):
    name: str = field("string")
    partitions: list[OffsetDeleteRequestPartition] = field(
        "[]struct", of=OffsetDeleteRequestPartition
    )


class OffsetDeleteRequestData(Message, versions=(0, 0), flexible_since=1):
    group_id: str = field("string")
    topics: list[OffsetDeleteRequestTopic] = field("[]struct", of=OffsetDeleteRequestTopic)


class OffsetDeleteResponsePartition(Struct):
    partition_index: int = field("int32")
    error_code: int = field("int16")


class OffsetDeleteResponseTopic(Struct):
    name: str = field("string")
    partitions: list[OffsetDeleteResponsePartition] = field(
        "[]struct", of=OffsetDeleteResponsePartition
    )


class OffsetDeleteResponseData(Message, versions=(0, 0), flexible_since=1):
    error_code: int = field("int16")
    throttle_time_ms: int = field("int32")
    topics: list[OffsetDeleteResponseTopic] = field("[]struct", of=OffsetDeleteResponseTopic)
