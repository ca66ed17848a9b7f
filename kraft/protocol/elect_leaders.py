"""ElectLeaders: elect preferred leaders, or unclean ones (KIP-183, 460)."""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.headers import Api

ELECT_LEADERS = Api(43, "ElectLeaders", 0, 2, 2)


class ElectLeadersTopic(Struct):
    topic: str = field("string")
    partitions: list[int] = field("[]int32")


class ElectLeadersRequestData(Message, versions=(0, 2), flexible_since=2):
    # 0 preferred, 1 unclean; version 0 has only preferred elections.
    election_type: int = field("int8", since=1)
    # Null elects in all partitions.
    topic_partitions: list[ElectLeadersTopic] | None = field(
        "[]struct", None, nullable=True, of=ElectLeadersTopic
    )
    timeout_ms: int = field("int32", 60000)


class ElectLeadersPartitionResult(Struct):
    partition_id: int = field("int32")
    error_code: int = field("int16")
    error_message: str | None = field("string", None, nullable=True)


class ElectLeadersTopicResult(Struct):
    topic: str = field("string")
    partition_result: list[ElectLeadersPartitionResult] = field(
        "[]struct", of=ElectLeadersPartitionResult
    )


class ElectLeadersResponseData(Message, versions=(0, 2), flexible_since=2):
    throttle_time_ms: int = field("int32")
    error_code: int = field("int16", since=1)
    replica_election_results: list[ElectLeadersTopicResult] = field(
        "[]struct", of=ElectLeadersTopicResult
    )
