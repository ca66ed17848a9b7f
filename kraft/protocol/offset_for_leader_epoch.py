"""OffsetForLeaderEpoch: where the leader's log has the end of an epoch (KIP-101, 279, 320).

A follower or consumer truncates its position to it. Source: ``OffsetsForLeaderEpochRequest``,
``OffsetsForLeaderEpochResponse`` of Kafka 4.3.1.
"""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.headers import Api

OFFSET_FOR_LEADER_EPOCH = Api(23, "OffsetForLeaderEpoch", 2, 4, 4)


class OffsetForLeaderPartition(Struct):
    partition: int = field("int32")
    current_leader_epoch: int = field("int32", -1)
    leader_epoch: int = field("int32")


class OffsetForLeaderTopic(Struct):
    topic: str = field("string")
    partitions: list[OffsetForLeaderPartition] = field("[]struct", of=OffsetForLeaderPartition)


class OffsetForLeaderEpochRequestData(Message, versions=(2, 4), flexible_since=4):
    # -1 for a consumer, -2 for an unknown one.
    replica_id: int = field("int32", -2, since=3, ignorable=True)
    topics: list[OffsetForLeaderTopic] = field("[]struct", of=OffsetForLeaderTopic)


class OffsetForLeaderPartitionResult(Struct):
    error_code: int = field("int16")
    partition: int = field("int32")
    # The largest epoch of the log that is not above the requested one, and the offset at which the
    # next one begins; -1 for unknown.
    leader_epoch: int = field("int32", -1)
    end_offset: int = field("int64", -1)


class OffsetForLeaderTopicResult(Struct):
    topic: str = field("string")
    partitions: list[OffsetForLeaderPartitionResult] = field(
        "[]struct", of=OffsetForLeaderPartitionResult
    )


class OffsetForLeaderEpochResponseData(Message, versions=(2, 4), flexible_since=4):
    throttle_time_ms: int = field("int32")
    topics: list[OffsetForLeaderTopicResult] = field("[]struct", of=OffsetForLeaderTopicResult)
