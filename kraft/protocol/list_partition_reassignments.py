"""ListPartitionReassignments: the ongoing reassignments (KIP-455)."""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.headers import Api

LIST_PARTITION_REASSIGNMENTS = Api(46, "ListPartitionReassignments", 0, 0, 0)


class ListReassignmentsTopic(Struct):
    name: str = field("string")
    partition_indexes: list[int] = field("[]int32")


class ListPartitionReassignmentsRequestData(Message, versions=(0, 0)):
    timeout_ms: int = field("int32", 60000)
    # Null asks for all topics.
    topics: list[ListReassignmentsTopic] | None = field(
        "[]struct", None, nullable=True, of=ListReassignmentsTopic
    )


class OngoingPartitionReassignment(Struct):
    partition_index: int = field("int32")
    replicas: list[int] = field("[]int32")
    adding_replicas: list[int] = field("[]int32")
    removing_replicas: list[int] = field("[]int32")


class OngoingTopicReassignment(Struct):
    name: str = field("string")
    partitions: list[OngoingPartitionReassignment] = field(
        "[]struct", of=OngoingPartitionReassignment
    )


class ListPartitionReassignmentsResponseData(Message, versions=(0, 0)):
    throttle_time_ms: int = field("int32")
    error_code: int = field("int16")
    error_message: str | None = field("string", None, nullable=True)
    topics: list[OngoingTopicReassignment] = field("[]struct", of=OngoingTopicReassignment)
