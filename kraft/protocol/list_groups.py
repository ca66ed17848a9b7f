"""ListGroups: the groups that a broker coordinates.

Source: ``ListGroupsRequest``, ``ListGroupsResponse`` of Kafka 4.3.1.
"""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.headers import Api

LIST_GROUPS = Api(16, "ListGroups", 0, 5, 3)


class ListGroupsRequestData(Message, versions=(0, 5), flexible_since=3):
    states_filter: list[str] = field("[]string", since=4)
    types_filter: list[str] = field("[]string", since=5)


class ListedGroup(Struct):
    group_id: str = field("string")
    protocol_type: str = field("string")
    group_state: str = field("string", since=4, ignorable=True)
    group_type: str = field("string", since=5, ignorable=True)


class ListGroupsResponseData(Message, versions=(0, 5), flexible_since=3):
    throttle_time_ms: int = field("int32", since=1, ignorable=True)
    error_code: int = field("int16")
    groups: list[ListedGroup] = field("[]struct", of=ListedGroup)
