"""CreatePartitions: raise the partition count of topics (KIP-195, 599)."""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.headers import Api

CREATE_PARTITIONS = Api(37, "CreatePartitions", 0, 3, 2)


class CreatePartitionsAssignment(Struct):
    broker_ids: list[int] = field("[]int32")


class CreatePartitionsTopic(Struct):
    """A topic and the number of partitions that it has afterwards.

    ``assignments`` has one entry per new partition; null leaves the placement to the controller.
    """

    name: str = field("string")
    count: int = field("int32")
    assignments: list[CreatePartitionsAssignment] | None = field(
        "[]struct", None, nullable=True, of=CreatePartitionsAssignment
    )


class CreatePartitionsRequestData(Message, versions=(0, 3), flexible_since=2):
    topics: list[CreatePartitionsTopic] = field("[]struct", of=CreatePartitionsTopic)
    timeout_ms: int = field("int32")
    validate_only: bool = field("bool")


class CreatePartitionsResult(Struct):
    name: str = field("string")
    error_code: int = field("int16")
    error_message: str | None = field("string", None, nullable=True)


class CreatePartitionsResponseData(Message, versions=(0, 3), flexible_since=2):
    throttle_time_ms: int = field("int32")
    results: list[CreatePartitionsResult] = field("[]struct", of=CreatePartitionsResult)
