"""LeaveGroup: members leave a classic group; from version 3 on several in one request (KIP-345).

Source: ``LeaveGroupRequest``, ``LeaveGroupResponse`` of Kafka 4.3.1.
"""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.headers import Api

LEAVE_GROUP = Api(13, "LeaveGroup", 0, 5, 4)


class LeavingMember(Struct):
    member_id: str = field("string")
    group_instance_id: str | None = field("string", None, nullable=True)
    reason: str | None = field("string", None, since=5, nullable=True, ignorable=True)


class LeaveGroupRequestData(Message, versions=(0, 5), flexible_since=4):
    group_id: str = field("string")
    member_id: str = field("string", until=2)
    members: list[LeavingMember] = field("[]struct", since=3, of=LeavingMember)


class LeavingMemberResult(Struct):
    member_id: str = field("string")
    group_instance_id: str | None = field("string", None, nullable=True)
    error_code: int = field("int16")


class LeaveGroupResponseData(Message, versions=(0, 5), flexible_since=4):
    throttle_time_ms: int = field("int32", since=1, ignorable=True)
    error_code: int = field("int16")
    members: list[LeavingMemberResult] = field("[]struct", since=3, of=LeavingMemberResult)
