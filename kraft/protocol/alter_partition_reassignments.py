"""AlterPartitionReassignments: start or cancel reassignments (KIP-455, 860)."""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.headers import Api

ALTER_PARTITION_REASSIGNMENTS = Api(45, "AlterPartitionReassignments", 0, 1, 0)


class ReassignablePartition(Struct):
    partition_index: int = field("int32")
    # Null cancels the reassignment.
    replicas: list[int] | None = field("[]int32", None, nullable=True)


class ReassignableTopic(Struct):
    name: str = field("string")
    partitions: list[ReassignablePartition] = field("[]struct", of=ReassignablePartition)


class AlterPartitionReassignmentsRequestData(Message, versions=(0, 1)):
    timeout_ms: int = field("int32", 60000)
    allow_replication_factor_change: bool = field("bool", True, since=1)
    topics: list[ReassignableTopic] = field("[]struct", of=ReassignableTopic)


class ReassignedPartition(Struct):
    partition_index: int = field("int32")
    error_code: int = field("int16")
    error_message: str | None = field("string", None, nullable=True)


class ReassignedTopic(Struct):
    name: str = field("string")
    partitions: list[ReassignedPartition] = field("[]struct", of=ReassignedPartition)


class AlterPartitionReassignmentsResponseData(Message, versions=(0, 1)):
    throttle_time_ms: int = field("int32")
    allow_replication_factor_change: bool = field("bool", True, since=1, ignorable=True)
    error_code: int = field("int16")
    error_message: str | None = field("string", None, nullable=True)
    responses: list[ReassignedTopic] = field("[]struct", of=ReassignedTopic)
