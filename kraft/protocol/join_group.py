"""JoinGroup: a member joins a classic group, or a rebalance of it.

The coordinator responds when all members have joined; the leader's response lists them. Source:
``JoinGroupRequest``, ``JoinGroupResponse`` of Kafka 4.3.1.
"""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.headers import Api

JOIN_GROUP = Api(11, "JoinGroup", 0, 9, 6)


class JoinGroupRequestProtocol(Struct):
    name: str = field("string")
    metadata: bytes = field("bytes")


class JoinGroupRequestData(Message, versions=(0, 9), flexible_since=6):
    group_id: str = field("string")
    session_timeout_ms: int = field("int32")
    rebalance_timeout_ms: int = field("int32", -1, since=1, ignorable=True)
    # Empty before the first response.
    member_id: str = field("string")
    group_instance_id: str | None = field("string", None, since=5, nullable=True)
    protocol_type: str = field("string")
    protocols: list[JoinGroupRequestProtocol] = field("[]struct", of=JoinGroupRequestProtocol)
    reason: str | None = field("string", None, since=8, nullable=True, ignorable=True)


class JoinGroupResponseMember(Struct):
    member_id: str = field("string")
    group_instance_id: str | None = field("string", None, since=5, nullable=True, ignorable=True)
    metadata: bytes = field("bytes")


class JoinGroupResponseData(Message, versions=(0, 9), flexible_since=6):
    throttle_time_ms: int = field("int32", since=2, ignorable=True)
    error_code: int = field("int16")
    generation_id: int = field("int32", -1)
    protocol_type: str | None = field("string", None, since=7, nullable=True, ignorable=True)
    protocol_name: str | None = field("string", nullable=True, nullable_since=7)
    leader: str = field("string")
    skip_assignment: bool = field("bool", since=9)
    member_id: str = field("string")
    members: list[JoinGroupResponseMember] = field("[]struct", of=JoinGroupResponseMember)
