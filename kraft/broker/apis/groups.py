"""APIs of groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, DescribeGroups, ListGroups,
DeleteGroups, and those of ``group_offsets``.

They check what the client may do, complete requests and responses of old versions (see
``kraft.broker.groups.requests``), and ask the group coordinators. Source: ``KafkaApis``,
``JoinGroupRequest``, ``JoinGroupResponse``, ``LeaveGroupRequest``, ``LeaveGroupResponse`` (4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from kraft.broker.apis.group_offsets import GroupServices, client_of, offset_apis
from kraft.broker.group_driver import GroupDriver
from kraft.broker.groups.error_responses import delete_error, error_response
from kraft.broker.groups.requests import GroupRequest, GroupResponse
from kraft.errors import GROUP_AUTHORIZATION_FAILED, INCONSISTENT_GROUP_PROTOCOL, KraftError
from kraft.image.security import AclOperation, ResourceType
from kraft.protocol.delete_groups import (
    DELETE_GROUPS,
    DeletableGroupResult,
    DeleteGroupsRequestData,
    DeleteGroupsResponseData,
)
from kraft.protocol.describe_groups import (
    DESCRIBE_GROUPS,
    DescribedGroup,
    DescribeGroupsRequestData,
    DescribeGroupsResponseData,
)
from kraft.protocol.heartbeat import HEARTBEAT, HeartbeatRequestData, HeartbeatResponseData
from kraft.protocol.join_group import JOIN_GROUP, JoinGroupRequestData, JoinGroupResponseData
from kraft.protocol.leave_group import (
    LEAVE_GROUP,
    LeaveGroupRequestData,
    LeaveGroupResponseData,
    LeavingMember,
)
from kraft.protocol.list_groups import LIST_GROUPS, ListGroupsRequestData, ListGroupsResponseData
from kraft.protocol.sync_group import SYNC_GROUP, SyncGroupRequestData, SyncGroupResponseData
from kraft.security.operations import authorized_operations
from kraft.server.apis.api import AnyApi, CallContext, ListenerApi

#: The first version of JoinGroup with a rebalance timeout; before, it is the session timeout.
_FIRST_WITH_REBALANCE_TIMEOUT = 1
#: The first version of JoinGroup in which the name of the protocol may be null.
_FIRST_WITH_NULL_PROTOCOL = 7
#: The first version of SyncGroup in which type and name of the protocol are mandatory.
_FIRST_WITH_PROTOCOL = 5
#: The first version of LeaveGroup with several members.
_FIRST_WITH_MEMBERS = 3
#: The first version of DescribeGroups with authorized operations.
_FIRST_WITH_OPERATIONS = 3

Response = TypeVar("Response", bound=GroupResponse)


def group_apis(broker: GroupServices) -> Iterator[AnyApi]:
    """Yield the APIs of groups and of their offsets."""
    groups = broker.groups
    yield _join_group(groups)
    yield _sync_group(groups)
    yield _heartbeat(groups)
    yield _leave_group(groups)
    yield _describe_groups(groups)
    yield _list_groups(groups)
    yield _delete_groups(groups)
    yield from offset_apis(broker)


async def _decided(
    groups: GroupDriver, request: GroupRequest, kind: type[Response], context: CallContext
) -> Response:
    """Return the coordinator's response; a client needs READ on the group."""
    if context.allows(AclOperation.READ, ResourceType.GROUP, request.group_id):
        response = await groups.handle(client_of(context), request)
    else:
        response = error_response(request, GROUP_AUTHORIZATION_FAILED)
    assert isinstance(response, kind)
    return response


def _join_group(groups: GroupDriver) -> AnyApi:
    async def answer(request: JoinGroupRequestData, context: CallContext) -> JoinGroupResponseData:
        if context.version < _FIRST_WITH_REBALANCE_TIMEOUT:
            request.rebalance_timeout_ms = request.session_timeout_ms
        response = await _decided(groups, request, JoinGroupResponseData, context)
        may_be_null = context.version >= _FIRST_WITH_NULL_PROTOCOL
        response.protocol_name = response.protocol_name or (None if may_be_null else "")
        return response

    return ListenerApi(
        JOIN_GROUP,
        JoinGroupRequestData.decode,
        answer,
        lambda _, error: JoinGroupResponseData(error_code=error.kafka_code, protocol_name=""),
    )


def _sync_group(groups: GroupDriver) -> AnyApi:
    async def answer(request: SyncGroupRequestData, context: CallContext) -> SyncGroupResponseData:
        is_named = request.protocol_type is not None and request.protocol_name is not None
        if context.version >= _FIRST_WITH_PROTOCOL and not is_named:
            return SyncGroupResponseData(error_code=INCONSISTENT_GROUP_PROTOCOL)
        return await _decided(groups, request, SyncGroupResponseData, context)

    return ListenerApi(
        SYNC_GROUP,
        SyncGroupRequestData.decode,
        answer,
        lambda _, error: SyncGroupResponseData(error_code=error.kafka_code),
    )


def _heartbeat(groups: GroupDriver) -> AnyApi:
    async def answer(request: HeartbeatRequestData, context: CallContext) -> HeartbeatResponseData:
        return await _decided(groups, request, HeartbeatResponseData, context)

    return ListenerApi(
        HEARTBEAT,
        HeartbeatRequestData.decode,
        answer,
        lambda _, error: HeartbeatResponseData(error_code=error.kafka_code),
    )


def _leave_group(groups: GroupDriver) -> AnyApi:
    async def answer(
        request: LeaveGroupRequestData, context: CallContext
    ) -> LeaveGroupResponseData:
        if context.version < _FIRST_WITH_MEMBERS:
            request.members = [LeavingMember(request.member_id)]
        response = await _decided(groups, request, LeaveGroupResponseData, context)
        if context.version < _FIRST_WITH_MEMBERS and not response.error_code:
            (member,) = response.members
            return LeaveGroupResponseData(error_code=member.error_code)
        return response

    return ListenerApi(
        LEAVE_GROUP,
        LeaveGroupRequestData.decode,
        answer,
        lambda _, error: LeaveGroupResponseData(error_code=error.kafka_code),
    )


def _describe_groups(groups: GroupDriver) -> AnyApi:
    async def answer(
        request: DescribeGroupsRequestData, context: CallContext
    ) -> DescribeGroupsResponseData:
        has_operations = (
            request.include_authorized_operations and context.version >= _FIRST_WITH_OPERATIONS
        )
        allows = None if context.authorizer is None else context.allows
        denied: list[DescribedGroup] = []
        described: list[DescribedGroup] = []
        for group_id in request.groups:
            if not context.allows(AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
                denied.append(_undescribed(group_id, GROUP_AUTHORIZATION_FAILED))
                continue
            group = groups.describe_group(group_id, context.version)
            if has_operations and not group.error_code:
                group.authorized_operations = authorized_operations(
                    allows, ResourceType.GROUP, group_id
                )
            described.append(group)
        return DescribeGroupsResponseData(groups=denied + described)

    return ListenerApi(
        DESCRIBE_GROUPS,
        DescribeGroupsRequestData.decode,
        answer,
        lambda request, error: DescribeGroupsResponseData(
            groups=[_undescribed(group_id, error.kafka_code) for group_id in request.groups]
        ),
    )


def _undescribed(group_id: str, code: int) -> DescribedGroup:
    return DescribedGroup(error_code=code, group_id=group_id)


def _list_groups(groups: GroupDriver) -> AnyApi:
    async def answer(
        request: ListGroupsRequestData, context: CallContext
    ) -> ListGroupsResponseData:
        describe = AclOperation.DESCRIBE
        listed = groups.list_groups(request.states_filter, request.types_filter)
        if not context.allows_on_cluster(describe):
            listed = [
                group
                for group in listed
                if context.allows(describe, ResourceType.GROUP, group.group_id, log_if_denied=False)
            ]
        return ListGroupsResponseData(groups=listed)

    return ListenerApi(
        LIST_GROUPS,
        ListGroupsRequestData.decode,
        answer,
        lambda _, error: ListGroupsResponseData(error_code=error.kafka_code),
    )


def _delete_groups(groups: GroupDriver) -> AnyApi:
    async def answer(
        request: DeleteGroupsRequestData, context: CallContext
    ) -> DeleteGroupsResponseData:
        denied: list[DeletableGroupResult] = []
        calls = []
        for group_id in dict.fromkeys(request.groups_names):
            if context.allows(AclOperation.DELETE, ResourceType.GROUP, group_id):
                calls.append(groups.delete_group(group_id))
            else:
                denied.append(delete_error(group_id, GROUP_AUTHORIZATION_FAILED))
        deleted = [await call for call in calls]
        return DeleteGroupsResponseData(results=deleted + denied)

    def failed(request: DeleteGroupsRequestData, error: KraftError) -> DeleteGroupsResponseData:
        return DeleteGroupsResponseData(
            results=[
                DeletableGroupResult(group_id, error.kafka_code)
                for group_id in dict.fromkeys(request.groups_names)
            ]
        )

    return ListenerApi(DELETE_GROUPS, DeleteGroupsRequestData.decode, answer, failed)
