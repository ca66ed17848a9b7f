"""OffsetCommit: a group stores how far it has read partitions.

From version 10 on topics have ids in place of names. Source: ``OffsetCommitRequest``,
``OffsetCommitResponse`` of Kafka 4.3.1.
"""

from __future__ import annotations

from kraft._core.codec.message_schema import Uuid, field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.headers import Api

OFFSET_COMMIT = Api(8, "OffsetCommit", 2, 10, 8)


class OffsetCommitRequestPartition(Struct):
    partition_index: int = field("int32")
    committed_offset: int = field("int64")
    committed_leader_epoch: int = field("int32", -1, since=6, ignorable=True)
    committed_metadata: str | None = field("string", None, nullable=True)


class OffsetCommitRequestTopic(Struct):
    name: str = field("string", until=9, ignorable=True)
    topic_id: Uuid = field("uuid", since=10, ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = field(
        "[]struct", of=OffsetCommitRequestPartition
    )


class OffsetCommitRequestData(Message, versions=(2, 10), flexible_since=8):
    group_id: str = field("string")
    # -1 outside of a generation.
    generation_id_or_member_epoch: int = field("int32", -1)
    member_id: str = field("string")
    group_instance_id: str | None = field("string", None, since=7, nullable=True)
    retention_time_ms: int = field("int64", -1, until=4, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = field("[]struct", of=OffsetCommitRequestTopic)


class OffsetCommitResponsePartition(Struct):
    partition_index: int = field("int32")
    error_code: int = field("int16")


class OffsetCommitResponseTopic(Struct):
    name: str = field("string", until=9, ignorable=True)
    topic_id: Uuid = field("uuid", since=10, ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = field(
        "[]struct", of=OffsetCommitResponsePartition
    )


class OffsetCommitResponseData(Message, versions=(2, 10), flexible_since=8):
    throttle_time_ms: int = field("int32", since=3, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = field("[]struct", of=OffsetCommitResponseTopic)
