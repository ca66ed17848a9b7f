"""The responses to group requests that failed as a whole.

Source: the handlers of ``GroupCoordinatorService``.
"""

from __future__ import annotations

from kraft.broker.groups.errors import fetch_response_code, response_code
from kraft.broker.groups.requests import NO_MEMBER_ID, GroupRequest, GroupResponse
from kraft.errors import (
    COORDINATOR_LOAD_IN_PROGRESS,
    INVALID_GROUP_ID,
    INVALID_SESSION_TIMEOUT,
    UNKNOWN_MEMBER_ID,
)
from kraft.protocol.delete_groups import DeletableGroupResult
from kraft.protocol.heartbeat import HeartbeatRequestData, HeartbeatResponseData
from kraft.protocol.join_group import JoinGroupRequestData, JoinGroupResponseData
from kraft.protocol.leave_group import (
    LeaveGroupRequestData,
    LeaveGroupResponseData,
    LeavingMemberResult,
)
from kraft.protocol.offset_commit import (
    OffsetCommitRequestData,
    OffsetCommitResponseData,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kraft.protocol.offset_delete import OffsetDeleteResponseData
from kraft.protocol.offset_fetch import OffsetFetchResponseGroup
from kraft.protocol.sync_group import SyncGroupRequestData, SyncGroupResponseData


def error_response(request: GroupRequest, code: int) -> GroupResponse:
    """Return the response to ``request`` for an error of the coordinator or of its log."""
    code = response_code(code)
    match request:
        case JoinGroupRequestData():
            is_invalid = code in (INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT)
            member_id = request.member_id if is_invalid else NO_MEMBER_ID
            return JoinGroupResponseData(error_code=code, member_id=member_id)
        case SyncGroupRequestData():
            return SyncGroupResponseData(error_code=code)
        case HeartbeatRequestData():
            # A member of a group that is still loading is taken to be alive.
            return HeartbeatResponseData(
                error_code=0 if code == COORDINATOR_LOAD_IN_PROGRESS else code
            )
        case LeaveGroupRequestData() if code == UNKNOWN_MEMBER_ID:
            members = [
                LeavingMemberResult(one.member_id, one.group_instance_id, code)
                for one in request.members
            ]
            return LeaveGroupResponseData(members=members)
        case LeaveGroupRequestData():
            return LeaveGroupResponseData(error_code=code)
        case OffsetCommitRequestData():
            return OffsetCommitResponseData(topics=_each_partition(request, code))
        case _:
            return OffsetDeleteResponseData(error_code=code)


def fetch_error(group_id: str, code: int) -> OffsetFetchResponseGroup:
    """Return the response to the fetch of a group's offsets like `error_response`."""
    return OffsetFetchResponseGroup(group_id, error_code=fetch_response_code(code))


def delete_error(group_id: str, code: int) -> DeletableGroupResult:
    """Return the result of the deletion of a group like `error_response`."""
    return DeletableGroupResult(group_id, response_code(code))


def _each_partition(request: OffsetCommitRequestData, code: int) -> list[OffsetCommitResponseTopic]:
    return [
        OffsetCommitResponseTopic(
            topic.name,
            topic.topic_id,
            [OffsetCommitResponsePartition(one.partition_index, code) for one in topic.partitions],
        )
        for topic in request.topics
    ]
