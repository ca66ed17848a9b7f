"""OffsetFetch: the offsets that groups have committed.

A request of version 8 or later has several groups, one before has a single group at its top; the
response accordingly. From version 10 on topics have ids in place of names. Source:
``OffsetFetchRequest``, ``OffsetFetchResponse`` of Kafka 4.3.1.
"""

from __future__ import annotations

from kraft._core.codec.message_schema import Uuid, field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.headers import Api

OFFSET_FETCH = Api(9, "OffsetFetch", 1, 10, 6)


class OffsetFetchRequestTopic(Struct):
    name: str = field("string", until=9, ignorable=True)
    topic_id: Uuid = field("uuid", since=10, ignorable=True)
    partition_indexes: list[int] = field("[]int32")


class OffsetFetchRequestGroup(Struct):
    group_id: str = field("string")
    member_id: str | None = field("string", None, since=9, nullable=True, ignorable=True)
    member_epoch: int = field("int32", -1, since=9, ignorable=True)
    # Null asks for all partitions with a committed offset.
    topics: list[OffsetFetchRequestTopic] | None = field(
        "[]struct", None, nullable=True, of=OffsetFetchRequestTopic
    )


class OffsetFetchRequestData(Message, versions=(1, 10), flexible_since=6):
    group_id: str = field("string", until=7)
    topics: list[OffsetFetchRequestTopic] | None = field(
        "[]struct", until=7, nullable=True, nullable_since=2, of=OffsetFetchRequestTopic
    )
    groups: list[OffsetFetchRequestGroup] = field("[]struct", since=8, of=OffsetFetchRequestGroup)
    # Whether to wait with UNSTABLE_OFFSET_COMMIT for the end of a transaction.
    require_stable: bool = field("bool", since=7)


class OffsetFetchResponsePartition(Struct):
    partition_index: int = field("int32")
    committed_offset: int = field("int64")
    committed_leader_epoch: int = field("int32", -1, since=5, ignorable=True)
    metadata: str | None = field("string", None, nullable=True)
    error_code: int = field("int16")


class OffsetFetchResponseTopic(Struct):
    name: str = field("string", until=9, ignorable=True)
    topic_id: Uuid = field("uuid", since=10, ignorable=True)
    partitions: list[OffsetFetchResponsePartition] = field(
        "[]struct", of=OffsetFetchResponsePartition
    )


class OffsetFetchResponseGroup(Struct):
    group_id: str = field("string")
    topics: list[OffsetFetchResponseTopic] = field("[]struct", of=OffsetFetchResponseTopic)
    error_code: int = field("int16")


class OffsetFetchResponseData(Message, versions=(1, 10), flexible_since=6):
    throttle_time_ms: int = field("int32", since=3, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field("[]struct", until=7, of=OffsetFetchResponseTopic)
    error_code: int = field("int16", since=2, until=7, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field("[]struct", since=8, of=OffsetFetchResponseGroup)
