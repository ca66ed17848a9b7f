"""Requests of group members, with the values that most tests want."""

from __future__ import annotations

from kraft._core.codec.message_schema import ZERO_UUID, Uuid
from kraft.protocol.join_group import JoinGroupRequestData, JoinGroupRequestProtocol
from kraft.protocol.offset_commit import (
    OffsetCommitRequestData,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"  # topic t


def join(
    group: str = "g",
    member_id: str = "",
    instance: str | None = None,
    *,
    names: tuple[str, ...] = ("range",),
    kind: str = "consumer",
    session_ms: int = 10_000,
    rebalance_ms: int = 60_000,
    metadata: bytes = SUBSCRIPTION,
) -> JoinGroupRequestData:
    """Return a JoinGroup with these protocols."""
    protocols = [JoinGroupRequestProtocol(name, metadata) for name in names]
    return JoinGroupRequestData(
        group, session_ms, rebalance_ms, member_id, instance, kind, protocols
    )


def commit(
    offset: int,
    topic: str = "t",
    partition: int = 0,
    group: str = "g",
    generation: int = -1,
    member_id: str = "",
    topic_id: Uuid = ZERO_UUID,
    retention_ms: int = -1,
    metadata: str | None = None,
) -> OffsetCommitRequestData:
    """Return a commit of one offset."""
    partitions = [OffsetCommitRequestPartition(partition, offset, -1, metadata)]
    topics = [OffsetCommitRequestTopic(topic, topic_id, partitions)]
    return OffsetCommitRequestData(group, generation, member_id, None, retention_ms, topics)
