"""DescribeGroups: state and members of classic groups.

Source: ``DescribeGroupsRequest``, ``DescribeGroupsResponse`` of Kafka 4.3.1.
"""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.headers import Api

DESCRIBE_GROUPS = Api(15, "DescribeGroups", 0, 6, 5)


class DescribeGroupsRequestData(Message, versions=(0, 6), flexible_since=5):
    groups: list[str] = field("[]string")
    include_authorized_operations: bool = field("bool", since=3)


class DescribedGroupMember(Struct):
    member_id: str = field("string")
    group_instance_id: str | None = field("string", None, since=4, nullable=True, ignorable=True)
    client_id: str = field("string")
    client_host: str = field("string")
    member_metadata: bytes = field("bytes")
    member_assignment: bytes = field("bytes")


class DescribedGroup(Struct):
    error_code: int = field("int16")
    error_message: str | None = field("string", None, since=6, nullable=True)
    group_id: str = field("string")
    group_state: str = field("string")
    protocol_type: str = field("string")
    protocol_data: str = field("string")
    members: list[DescribedGroupMember] = field("[]struct", of=DescribedGroupMember)
    authorized_operations: int = field("int32", -2147483648, since=3)


class DescribeGroupsResponseData(Message, versions=(0, 6), flexible_since=5):
    throttle_time_ms: int = field("int32", since=1, ignorable=True)
    groups: list[DescribedGroup] = field("[]struct", of=DescribedGroup)
