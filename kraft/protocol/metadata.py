"""Metadata: brokers, topics, partitions with their leaders; the first request of every client.

Only a broker listener serves it. ``kraft._core.table.topic_bodies`` encodes the topics of a
response; ``MetadataResponseTopic`` is for topics without partitions, and for clients. Source:
``MetadataRequest``, ``MetadataResponse`` of Kafka 4.3.1.
"""

from __future__ import annotations

from kraft._core.codec.message_schema import Uuid, field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.headers import Api

METADATA = Api(3, "Metadata", 0, 13, 9)

#: ``Topic.INTERNAL_TOPICS`` of Kafka 4.3.
INTERNAL_TOPICS = frozenset(("__consumer_offsets", "__transaction_state", "__share_group_state"))
#: The value of authorized operations that were not requested.
OPERATIONS_NOT_REQUESTED = -2147483648


class MetadataRequestTopic(Struct):
    """A topic by its name, or from version 12 on by its id."""

    topic_id: Uuid = field("uuid", since=10, ignorable=True)
    name: str | None = field("string", nullable=True, nullable_since=10)


class MetadataRequestData(Message, versions=(0, 13), flexible_since=9):
    # Null asks for all topics; in version 0 an empty array does.
    topics: list[MetadataRequestTopic] | None = field(
        "[]struct", nullable=True, nullable_since=1, of=MetadataRequestTopic
    )
    allow_auto_topic_creation: bool = field("bool", True, since=4)
    include_cluster_authorized_operations: bool = field("bool", since=8, until=10)
    include_topic_authorized_operations: bool = field("bool", since=8)


class MetadataResponseBroker(Struct):
    node_id: int = field("int32")
    host: str = field("string")
    port: int = field("int32")
    rack: str | None = field("string", None, since=1, nullable=True, ignorable=True)


class MetadataResponsePartition(Struct):
    error_code: int = field("int16")
    partition_index: int = field("int32")
    leader_id: int = field("int32")
    leader_epoch: int = field("int32", -1, since=7, ignorable=True)
    replica_nodes: list[int] = field("[]int32")
    isr_nodes: list[int] = field("[]int32")
    offline_replicas: list[int] = field("[]int32", since=5, ignorable=True)


class MetadataResponseTopic(Struct):
    error_code: int = field("int16")
    # Null for an unknown id.
    name: str | None = field("string", nullable=True, nullable_since=12)
    topic_id: Uuid = field("uuid", since=10, ignorable=True)
    is_internal: bool = field("bool", since=1, ignorable=True)
    partitions: list[MetadataResponsePartition] = field("[]struct", of=MetadataResponsePartition)
    topic_authorized_operations: int = field("int32", OPERATIONS_NOT_REQUESTED, since=8)


class MetadataResponseData(Message, versions=(0, 13), flexible_since=9):
    throttle_time_ms: int = field("int32", since=3, ignorable=True)
    brokers: list[MetadataResponseBroker] = field("[]struct", of=MetadataResponseBroker)
    cluster_id: str | None = field(
        "string", None, since=2, nullable=True, nullable_since=2, ignorable=True
    )
    controller_id: int = field("int32", -1, since=1, ignorable=True)
    topics: list[MetadataResponseTopic] = field("[]struct", of=MetadataResponseTopic)
    cluster_authorized_operations: int = field("int32", OPERATIONS_NOT_REQUESTED, since=8, until=10)
    error_code: int = field("int16", since=13, ignorable=True)
