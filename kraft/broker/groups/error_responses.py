"""The response to a group request that failed as a whole."""

from __future__ import annotations

from kraft.broker.groups.errors import fetch_response_code, response_code
from kraft.broker.groups.requests import (
    NO_MEMBER_ID,
    CommittedTopic,
    DeletedGroup,
    DeleteGroupRequest,
    FetchedGroup,
    FetchOffsetsGroup,
    GroupRequest,
    GroupResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberLeft,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteResponse,
    PartitionResult,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kraft.errors import (
    COORDINATOR_LOAD_IN_PROGRESS,
    INVALID_GROUP_ID,
    INVALID_SESSION_TIMEOUT,
    UNKNOWN_MEMBER_ID,
)


def error_response(request: GroupRequest, code: int) -> GroupResponse:
    """Return the response to ``request`` for an error of the coordinator or of its log.

    Source: the handlers of ``GroupCoordinatorService``.
    """
    if isinstance(request, FetchOffsetsGroup):
        return FetchedGroup(request.group_id, fetch_response_code(code))
    code = response_code(code)
    match request:
        case JoinGroupRequest():
            is_invalid = code in (INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT)
            member_id = request.member_id if is_invalid else NO_MEMBER_ID
            return JoinGroupResponse(error_code=code, member_id=member_id)
        case SyncGroupRequest():
            return SyncGroupResponse(error_code=code)
        case HeartbeatRequest():
            # A member of a group that is still loading is taken to be alive.
            return HeartbeatResponse(0 if code == COORDINATOR_LOAD_IN_PROGRESS else code)
        case LeaveGroupRequest() if code == UNKNOWN_MEMBER_ID:
            members = [
                MemberLeft(one.member_id, one.group_instance_id, code) for one in request.members
            ]
            return LeaveGroupResponse(members=members)
        case LeaveGroupRequest():
            return LeaveGroupResponse(error_code=code)
        case OffsetCommitRequest():
            return OffsetCommitResponse(_each_partition(request, code))
        case DeleteGroupRequest():
            return DeletedGroup(request.group_id, code)
        case _:
            return OffsetDeleteResponse(error_code=code)


def _each_partition(request: OffsetCommitRequest, code: int) -> list[CommittedTopic]:
    return [
        CommittedTopic(
            topic.name,
            [PartitionResult(one.partition_index, code) for one in topic.partitions],
            topic.topic_id,
        )
        for topic in request.topics
    ]
