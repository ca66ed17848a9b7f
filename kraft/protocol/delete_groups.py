"""DeleteGroups: remove groups without members, with their offsets.

Source: ``DeleteGroupsRequest``, ``DeleteGroupsResponse`` of Kafka 4.3.1.
"""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.headers import Api

DELETE_GROUPS = Api(42, "DeleteGroups", 0, 2, 2)


class DeleteGroupsRequestData(Message, versions=(0, 2), flexible_since=2):
    groups_names: list[str] = field("[]string")


class DeletableGroupResult(Struct):
    group_id: str = field("string")
    error_code: int = field("int16")


class DeleteGroupsResponseData(Message, versions=(0, 2), flexible_since=2):
    throttle_time_ms: int = field("int32")
    results: list[DeletableGroupResult] = field("[]struct", of=DeletableGroupResult)
