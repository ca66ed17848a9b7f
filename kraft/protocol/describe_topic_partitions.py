"""DescribeTopicPartitions: partitions with their ELR, in pages that a cursor continues (KIP-966).

Only a broker listener serves it. ``kraft._core.table.topic_bodies`` encodes the topics of a
response; ``DescribedTopic`` is for topics without partitions, and for clients. Source:
``DescribeTopicPartitionsRequest``, ``DescribeTopicPartitionsResponse`` of Kafka 4.3.1.
"""

from __future__ import annotations

from kraft._core.codec.message_schema import Uuid, field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.headers import Api

DESCRIBE_TOPIC_PARTITIONS = Api(75, "DescribeTopicPartitions", 0, 0, 0)


class TopicPartitionsRequestTopic(Struct):
    name: str = field("string")


class TopicPartitionsCursor(Struct):
    """The first partition that a request asks for, or that a response does not have any more."""

    topic_name: str = field("string")
    partition_index: int = field("int32")


class DescribeTopicPartitionsRequestData(Message, versions=(0, 0)):
    # An empty array asks for all topics.
    topics: list[TopicPartitionsRequestTopic] = field("[]struct", of=TopicPartitionsRequestTopic)
    response_partition_limit: int = field("int32", 2000)
    cursor: TopicPartitionsCursor | None = field(
        "struct", None, nullable=True, of=TopicPartitionsCursor
    )


class DescribedPartition(Struct):
    error_code: int = field("int16")
    partition_index: int = field("int32")
    leader_id: int = field("int32")
    leader_epoch: int = field("int32", -1)
    replica_nodes: list[int] = field("[]int32")
    isr_nodes: list[int] = field("[]int32")
    eligible_leader_replicas: list[int] | None = field("[]int32", None, nullable=True)
    last_known_elr: list[int] | None = field("[]int32", None, nullable=True)
    offline_replicas: list[int] = field("[]int32")


class DescribedTopic(Struct):
    error_code: int = field("int16")
    name: str | None = field("string", None, nullable=True)
    topic_id: Uuid = field("uuid")
    is_internal: bool = field("bool")
    partitions: list[DescribedPartition] = field("[]struct", of=DescribedPartition)
    topic_authorized_operations: int = field("int32", -2147483648)


class DescribeTopicPartitionsResponseData(Message, versions=(0, 0)):
    throttle_time_ms: int = field("int32")
    topics: list[DescribedTopic] = field("[]struct", of=DescribedTopic)
    next_cursor: TopicPartitionsCursor | None = field(
        "struct", None, nullable=True, of=TopicPartitionsCursor
    )
