"""The requests that a group coordinator decides, their responses, and who sends them.

They are the messages of ``kraft.protocol``. OffsetFetch and DeleteGroups are decided group by
group: as a struct of the message, and as a group id.

A listener completes both sides. In a request of an old version it sets the fields of the newest:
LeaveGroup's ``members``, OffsetFetch's ``groups``. It rejects topics that do not exist or are not
authorized. In a response it sets ``throttle_time_ms`` and authorized operations; JoinGroup before
version 7 has no null ``protocol_name``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from kraft.protocol.delete_groups import DeletableGroupResult
from kraft.protocol.heartbeat import HeartbeatRequestData, HeartbeatResponseData
from kraft.protocol.join_group import JoinGroupRequestData, JoinGroupResponseData
from kraft.protocol.leave_group import LeaveGroupRequestData, LeaveGroupResponseData
from kraft.protocol.offset_commit import OffsetCommitRequestData, OffsetCommitResponseData
from kraft.protocol.offset_delete import OffsetDeleteRequestData, OffsetDeleteResponseData
from kraft.protocol.offset_fetch import OffsetFetchResponseGroup
from kraft.protocol.sync_group import SyncGroupRequestData, SyncGroupResponseData

#: The member id of a client that has none yet, and the leader id of a group without one.
NO_MEMBER_ID = ""
#: The retention time of a commit that leaves it to the broker.
DEFAULT_RETENTION_MS = -1
NO_OFFSET = -1

GroupRequest: TypeAlias = (
    JoinGroupRequestData
    | SyncGroupRequestData
    | HeartbeatRequestData
    | LeaveGroupRequestData
    | OffsetCommitRequestData
    | OffsetDeleteRequestData
)
GroupResponse: TypeAlias = (
    JoinGroupResponseData
    | SyncGroupResponseData
    | HeartbeatResponseData
    | LeaveGroupResponseData
    | OffsetCommitResponseData
    | OffsetDeleteResponseData
    | OffsetFetchResponseGroup
    | DeletableGroupResult
)


@dataclass(frozen=True, slots=True)
class ClientContext:
    """Who sent a request: client id and host as DescribeGroups shows them, and the API version."""

    client_id: str
    client_host: str
    api_version: int
