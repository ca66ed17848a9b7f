"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of classic groups.

Each method returns a `Write`, or None if there is nothing to append and the response was given or
waits for the group. A GroupError is the response of the whole request.
Source: ``GroupMetadataManager.classicGroupJoin``, ``classicGroupSync``, ``classicGroupHeartbeat``,
``classicGroupLeave`` of Kafka 4.3, KIP-345 (static members), KIP-394 (member ids).
"""

from __future__ import annotations

from dataclasses import dataclass

from kraft.broker.groups.errors import GroupError, response_code
from kraft.broker.groups.group import ClassicGroup, GroupState
from kraft.broker.groups.member import Call, GroupMember, distinct
from kraft.broker.groups.rebalance import HEARTBEAT, SYNC, Rebalances
from kraft.broker.groups.records import GroupMetadataValue, group_record
from kraft.broker.groups.requests import NO_MEMBER_ID, ClientContext
from kraft.broker.groups.writes import Completion, GroupReply, Write
from kraft.errors import (
    FENCED_INSTANCE_ID,
    GROUP_MAX_SIZE_REACHED,
    INCONSISTENT_GROUP_PROTOCOL,
    MEMBER_ID_REQUIRED,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    UNKNOWN_SERVER_ERROR,
)
from kraft.protocol.heartbeat import HeartbeatRequestData, HeartbeatResponseData
from kraft.protocol.join_group import JoinGroupRequestData, JoinGroupResponseData
from kraft.protocol.leave_group import (
    LeaveGroupRequestData,
    LeaveGroupResponseData,
    LeavingMember,
    LeavingMemberResult,
)
from kraft.protocol.sync_group import SyncGroupRequestData, SyncGroupResponseData

#: The first version of JoinGroup in which a client must know its member id (KIP-394).
_KNOWN_MEMBER_ID_VERSION = 4
#: The first version in which the leader can be told not to assign anything (KIP-814).
_SKIP_ASSIGNMENT_VERSION = 9


class GroupMembership(Rebalances):
    """Decides about the requests of members of classic groups."""

    def join(
        self,
        call: Call,
        context: ClientContext,
        request: JoinGroupRequestData,
        random_id: str,
        now_ms: int,
    ) -> Write | None:
        """Decide a JoinGroup; ``random_id`` is the random part of a new member's id."""
        group = self.groups.get(request.group_id)
        is_unknown = request.member_id == NO_MEMBER_ID
        is_new_group = group is None
        if group is None:
            if not is_unknown:
                self._reject_join(call, UNKNOWN_MEMBER_ID, request.member_id)
                return None
            group = ClassicGroup(request.group_id, GroupState.EMPTY, now_ms)
            self.groups.set(request.group_id, group)
        write = None
        if not self._accepts(group, request.member_id):
            group.remove(request.member_id)
            self._reject_join(call, GROUP_MAX_SIZE_REACHED, NO_MEMBER_ID)
        elif not group.supports_protocols(request.protocol_type, request.protocols):
            self._reject_join(call, INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        elif is_unknown:
            write = self._join_new(call, context, request, group, random_id, now_ms)
        else:
            write = self._join_known(call, context, request, group, now_ms)
        if is_new_group and write is None:
            # The record makes the group exist; its members are in the record of a generation.
            value = GroupMetadataValue(
                protocol=None, leader=None, current_state_timestamp=group.state_timestamp_ms
            )
            created = _GroupCreated(self, group, call)
            return Write([group_record(group.group_id, value)], completion=created, applies=False)
        return write

    def _reject_join(self, call: Call, code: int, member_id: str) -> None:
        self.reply_join(call, JoinGroupResponseData(error_code=code, member_id=member_id))

    def _accepts(self, group: ClassicGroup, member_id: str) -> bool:
        """Return whether group.max.size leaves room for the member."""
        limit = self.config.group_max_size
        if group.state is GroupState.PREPARING_REBALANCE:
            # Those who wait count, not all members: the last to join again are left out of a
            # group that is over the maximum.
            member = group.members.get(member_id)
            is_waiting = member is not None and member.awaiting_join is not None
            return is_waiting or group.awaiting_join_count < limit
        if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return member_id in group.members or len(group.members) < limit
        return True

    def _join_new(
        self,
        call: Call,
        context: ClientContext,
        request: JoinGroupRequestData,
        group: ClassicGroup,
        random_id: str,
        now_ms: int,
    ) -> Write | None:
        instance_id = request.group_instance_id
        if instance_id is not None:
            member_id = f"{instance_id}-{random_id}"
            old_id = group.static_members.get(instance_id)
            if old_id is not None:
                return self._replace_static(
                    call, context, request, group, old_id, member_id, now_ms
                )
            return self._add(call, context, request, group, member_id, now_ms)
        member_id = f"{context.client_id}-{random_id}"
        if context.api_version < _KNOWN_MEMBER_ID_VERSION:
            return self._add(call, context, request, group, member_id, now_ms)
        # A client that gave up joining leaves no member: it joins with the id it is given.
        group.pending_join[member_id] = None
        self.timers.schedule(
            (HEARTBEAT, group.group_id, member_id), now_ms + request.session_timeout_ms
        )
        self._reject_join(call, MEMBER_ID_REQUIRED, member_id)
        return None

    def _join_known(
        self,
        call: Call,
        context: ClientContext,
        request: JoinGroupRequestData,
        group: ClassicGroup,
        now_ms: int,
    ) -> Write | None:
        member_id = request.member_id
        if member_id in group.pending_join:
            if request.group_instance_id is not None:
                raise GroupError(
                    UNKNOWN_SERVER_ERROR, f"pending member {member_id!r} cannot be static"
                )
            return self._add(call, context, request, group, member_id, now_ms)
        try:
            group.validate_member(member_id, request.group_instance_id)
        except GroupError as error:
            response = JoinGroupResponseData(
                error_code=error.kafka_code, member_id=member_id, protocol_name=None
            )
            self.reply_join(call, response)
            return None
        member = group.members[member_id]
        if group.is_empty:
            self._reject_join(call, UNKNOWN_MEMBER_ID, member_id)
            return None
        is_unchanged = list(member.protocols) == list(distinct(request.protocols))
        if group.state is GroupState.COMPLETING_REBALANCE and is_unchanged:
            # The response to its last JoinGroup may have been lost.
            self.reply_join(call, self.joined(group, member_id))
            return None
        if group.state is GroupState.STABLE and is_unchanged and group.leader_id != member_id:
            # A leader forces a rebalance so: it may have seen that topics have changed.
            self.reply_join(call, self.joined(group, member_id))
            return None
        self._update(call, context, request, group, member)
        return self.rebalance_or_complete_join(group, now_ms)

    def _update(
        self,
        call: Call,
        context: ClientContext,
        request: JoinGroupRequestData,
        group: ClassicGroup,
        member: GroupMember,
    ) -> None:
        timeout_ms = _rebalance_timeout_ms(context, request)
        group.update_member(member, request.protocols, timeout_ms, request.session_timeout_ms)
        self.await_join(group, member, call)

    def _add(
        self,
        call: Call,
        context: ClientContext,
        request: JoinGroupRequestData,
        group: ClassicGroup,
        member_id: str,
        now_ms: int,
    ) -> Write | None:
        member = GroupMember(
            member_id,
            request.group_instance_id,
            context.client_id,
            context.client_host,
            _rebalance_timeout_ms(context, request),
            request.session_timeout_ms,
            request.protocol_type,
            distinct(request.protocols),
        )
        member.is_new = True
        member.awaiting_join = call
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and group.previous_state is GroupState.EMPTY
        ):
            group.new_member_added = True
        group.add(member)
        # Its session cannot end before it knows its id, but its client may be gone.
        self.schedule_heartbeat(group, member, now_ms, self.config.new_member_join_timeout_ms)
        return self.rebalance_or_complete_join(group, now_ms)

    def _replace_static(
        self,
        call: Call,
        context: ClientContext,
        request: JoinGroupRequestData,
        group: ClassicGroup,
        old_id: str,
        new_id: str,
        now_ms: int,
    ) -> Write | None:
        """Let a static member that restarted take the place of the member before it."""
        assert request.group_instance_id is not None
        old_leader = group.leader_id
        old, new = group.replace_static_member(request.group_instance_id, old_id, new_id)
        if old.awaiting_join is not None:
            fenced = JoinGroupResponseData(
                error_code=FENCED_INSTANCE_ID, member_id=old_id, protocol_name=None
            )
            self.reply_join(old.awaiting_join, fenced)
            old.awaiting_join = None
        self.answer_sync(old, SyncGroupResponseData(error_code=FENCED_INSTANCE_ID))
        self.schedule_heartbeat(group, new, now_ms)
        self._update(call, context, request, group, new)
        if group.state is GroupState.STABLE:
            if group.select_protocol() != group.protocol_name:
                return self.rebalance_or_complete_join(group, now_ms)
            # The generation goes on with the same assignment: no rebalance.
            assignments = {one.member_id: one.assignment for one in group.members.values()}
            record = group_record(group.group_id, group.to_record(assignments))
            replaced = _StaticMemberReplaced(
                self, group, call, old, new, old_leader, context.api_version
            )
            return Write([record], completion=replaced, applies=False)
        if group.state is GroupState.COMPLETING_REBALANCE:
            # The leader may have got the old id already, and assign partitions to that.
            return self.begin_rebalance(group, now_ms)
        return self.complete_join_if_all_joined(group, now_ms)

    def sync(self, call: Call, request: SyncGroupRequestData, now_ms: int) -> Write | None:
        """Decide a SyncGroup: the leader's brings the assignments, all others wait for them."""
        group = self.groups.get(request.group_id)
        if group is None or group.is_empty:
            raise GroupError(UNKNOWN_MEMBER_ID, f"no members in group {request.group_id!r}")
        group.validate_member(request.member_id, request.group_instance_id)
        group.validate_generation(request.generation_id)
        if _differs(request.protocol_type, group.protocol_type) or _differs(
            request.protocol_name, group.protocol_name
        ):
            raise GroupError(INCONSISTENT_GROUP_PROTOCOL, "another protocol was selected")
        if group.state is GroupState.PREPARING_REBALANCE:
            raise GroupError(REBALANCE_IN_PROGRESS, f"group {request.group_id!r} is rebalancing")
        member = group.members[request.member_id]
        if group.state is GroupState.STABLE:
            self._synced(group, member)
            response = SyncGroupResponseData(
                protocol_type=group.protocol_type,
                protocol_name=group.protocol_name,
                assignment=member.assignment,
            )
            self.replies.append(GroupReply(call, response))
            return None
        self.await_sync(member, call)
        self._synced(group, member)
        if group.leader_id != member.member_id:
            return None
        given = {one.member_id: one.assignment for one in request.assignments}
        assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
        record = group_record(group.group_id, group.to_record(assignments))
        stored = _AssignmentStored(self, group, group.generation_id, assignments)
        return Write([record], completion=stored, applies=False)

    def _synced(self, group: ClassicGroup, member: GroupMember) -> None:
        group.pending_sync.pop(member.member_id, None)
        if not group.pending_sync:
            self.timers.cancel((SYNC, group.group_id, ""))

    def parked(
        self, call: Call, request: JoinGroupRequestData | SyncGroupRequestData
    ) -> Completion | None:
        """Return what answers a call if it waits for its group, in case records get lost."""
        group = self.groups.get(request.group_id)
        for member in () if group is None else group.members.values():
            if member.awaiting_join is call or member.awaiting_sync is call:
                return _Parked(self, member, call)
        return None

    def heartbeat(self, request: HeartbeatRequestData, now_ms: int) -> Write:
        """Decide a Heartbeat: the member lives, and is told of a rebalance."""
        group = self.groups.get(request.group_id)
        if group is None:
            raise GroupError(UNKNOWN_MEMBER_ID, f"Group {request.group_id} not found.")
        group.validate_member(request.member_id, request.group_instance_id)
        group.validate_generation(request.generation_id)
        if group.is_empty:
            return Write([], HeartbeatResponseData(error_code=UNKNOWN_MEMBER_ID))
        self.schedule_heartbeat(group, group.members[request.member_id], now_ms)
        is_preparing = group.state is GroupState.PREPARING_REBALANCE
        return Write(
            [], HeartbeatResponseData(error_code=REBALANCE_IN_PROGRESS if is_preparing else 0)
        )

    def leave(self, request: LeaveGroupRequestData, now_ms: int) -> Write:
        """Decide a LeaveGroup: remove its members, then rebalance at most once."""
        group = self.groups.get(request.group_id)
        if group is None:
            raise GroupError(UNKNOWN_MEMBER_ID, f"Group {request.group_id} not found.")
        results = [self._leave_one(group, member) for member in request.members]
        write = None
        if any(result.error_code == 0 for result in results):
            if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
                write = self.rebalance_or_complete_join(group, now_ms)
            elif group.state is GroupState.PREPARING_REBALANCE:
                write = self.complete_join_if_all_joined(group, now_ms)
        write = Write([], applies=False) if write is None else write
        write.response = LeaveGroupResponseData(members=results)
        return write

    def _leave_one(self, group: ClassicGroup, identity: LeavingMember) -> LeavingMemberResult:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        leaving = member_id
        code = 0
        if member_id == NO_MEMBER_ID:
            # An administrator removes a static member by its instance id (KIP-345).
            leaving = group.static_members.get(instance_id or "", NO_MEMBER_ID)
            code = 0 if instance_id is not None and leaving else UNKNOWN_MEMBER_ID
        elif member_id not in group.pending_join:
            try:
                group.validate_member(member_id, instance_id)
            except GroupError as error:
                code = error.kafka_code
        if code == 0:
            self.cancel_heartbeat(group, leaving)
            member = group.members.get(leaving)
            if member is not None:
                self.remove_member(group, member)
            else:
                group.remove(leaving)
        return LeavingMemberResult(member_id, instance_id, code)


def _rebalance_timeout_ms(context: ClientContext, request: JoinGroupRequestData) -> int:
    # JoinGroup 0 has no rebalance timeout (JoinGroupRequest.maybeOverrideRebalanceTimeout).
    if context.api_version == 0:
        return request.session_timeout_ms
    return request.rebalance_timeout_ms


def _differs(asked: str | None, selected: str | None) -> bool:
    return asked is not None and selected is not None and asked != selected


@dataclass(slots=True)
class _GroupCreated:
    """A JoinGroup whose group exists from its first record on."""

    membership: GroupMembership
    group: ClassicGroup
    call: Call

    def committed(self, now_ms: int) -> None:
        """Nothing: the member waits for the group."""

    def failed(self, code: int, now_ms: int) -> None:
        membership, group = self.membership, self.group
        for member in group.members.values():
            membership.fail_parked(member, self.call, response_code(code))
        if membership.groups.get(group.group_id) is None:
            membership.cancel_timers(group)


@dataclass(slots=True)
class _Parked:
    """A JoinGroup or SyncGroup that waits for its group, decided after uncommitted records."""

    membership: GroupMembership
    member: GroupMember
    call: Call

    def committed(self, now_ms: int) -> None:
        """Nothing: the group will answer."""

    def failed(self, code: int, now_ms: int) -> None:
        self.membership.fail_parked(self.member, self.call, response_code(code))


@dataclass(slots=True)
class _AssignmentStored:
    """The leader's SyncGroup: a generation is stable when its assignment is committed."""

    membership: GroupMembership
    group: ClassicGroup
    generation_id: int
    assignments: dict[str, bytes]

    def _is_current(self) -> bool:
        # Another member may have joined meanwhile.
        group = self.group
        is_completing = group.state is GroupState.COMPLETING_REBALANCE
        return is_completing and group.generation_id == self.generation_id

    def committed(self, now_ms: int) -> None:
        if self._is_current():
            self.membership.spread_assignment(self.group, self.assignments, now_ms)
            self.group.transition_to(GroupState.STABLE, now_ms)

    def failed(self, code: int, now_ms: int) -> None:
        if self._is_current():
            self.membership.spread_assignment(self.group, {}, now_ms, response_code(code))
            self.membership.rebalance_or_complete_join(self.group, now_ms)


@dataclass(slots=True)
class _StaticMemberReplaced:
    """A static member's JoinGroup that goes on with the generation of the member before it."""

    membership: GroupMembership
    group: ClassicGroup
    call: Call
    old: GroupMember
    new: GroupMember
    old_leader: str | None
    api_version: int

    def committed(self, now_ms: int) -> None:
        group, new = self.group, self.new
        if self.api_version < _SKIP_ASSIGNMENT_VERSION:
            # A leader before KIP-814 would assign partitions: another member's id keeps it from it.
            response = self.membership.joined(group, new.member_id)
            response.leader = self.old_leader or ""
            response.members = []
        else:
            is_leader = group.leader_id == new.member_id
            if is_leader and group.state is GroupState.PREPARING_REBALANCE:
                return  # the rebalance that has begun answers it
            response = self.membership.joined(group, new.member_id, skip_assignment=is_leader)
        self.membership.answer_join(group, new, response)

    def failed(self, code: int, now_ms: int) -> None:
        group, new, old = self.group, self.new, self.old
        response = JoinGroupResponseData(
            error_code=response_code(code),
            generation_id=group.generation_id,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=self.old_leader or "",
            member_id=NO_MEMBER_ID,
        )
        if new.awaiting_join is not self.call:  # a later JoinGroup, which Kafka would forget
            response = JoinGroupResponseData(
                error_code=REBALANCE_IN_PROGRESS, member_id=new.member_id
            )
        self.membership.answer_join(group, new, response)
        assert old.group_instance_id is not None
        if group.members.get(new.member_id) is new:
            group.update_member(
                new, old.protocols, old.rebalance_timeout_ms, old.session_timeout_ms
            )
            _, again = group.replace_static_member(
                old.group_instance_id, new.member_id, old.member_id
            )
            self.membership.answer_sync(new, SyncGroupResponseData(error_code=FENCED_INSTANCE_ID))
            self.membership.schedule_heartbeat(group, again, now_ms)
