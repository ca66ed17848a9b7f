"""SyncGroup: the leader of a classic group sends all assignments, and each member gets its own.

Source: ``SyncGroupRequest``, ``SyncGroupResponse`` of Kafka 4.3.1.
"""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.headers import Api

SYNC_GROUP = Api(14, "SyncGroup", 0, 5, 4)


class SyncGroupRequestAssignment(Struct):
    member_id: str = field("string")
    assignment: bytes = field("bytes")


class SyncGroupRequestData(Message, versions=(0, 5), flexible_since=4):
    group_id: str = field("string")
    generation_id: int = field("int32")
    member_id: str = field("string")
    group_instance_id: str | None = field("string", None, since=3, nullable=True)
    protocol_type: str | None = field("string", None, since=5, nullable=True, ignorable=True)
    protocol_name: str | None = field("string", None, since=5, nullable=True, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = field("[]struct", of=SyncGroupRequestAssignment)


class SyncGroupResponseData(Message, versions=(0, 5), flexible_since=4):
    throttle_time_ms: int = field("int32", since=1, ignorable=True)
    error_code: int = field("int16")
    protocol_type: str | None = field("string", None, since=5, nullable=True, ignorable=True)
    protocol_name: str | None = field("string", None, since=5, nullable=True, ignorable=True)
    assignment: bytes = field("bytes")
