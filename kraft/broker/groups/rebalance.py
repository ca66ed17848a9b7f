"""The rebalances of classic groups: when a join phase begins, how long it waits, how it ends.

`Rebalances` changes groups, schedules timers and answers the calls of members that wait. A method
that returns a `Write` needs its record appended; None needs nothing. Source: the private methods of
``GroupMetadataManager`` with ``ClassicGroup`` in their names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from kraft.broker.groups.config import GroupCoordinatorConfig
from kraft.broker.groups.group import ClassicGroup, GroupState
from kraft.broker.groups.group_table import GroupTable
from kraft.broker.groups.member import Call, GroupMember
from kraft.broker.groups.records import group_record
from kraft.broker.groups.requests import NO_MEMBER_ID
from kraft.broker.groups.timers import Timers
from kraft.broker.groups.writes import GroupReply, Write
from kraft.errors import NOT_COORDINATOR, REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID
from kraft.protocol.join_group import JoinGroupResponseData
from kraft.protocol.sync_group import SyncGroupResponseData

#: A kind of timer, a group, and a member or "".
TimerKey: TypeAlias = tuple[str, str, str]
HEARTBEAT = "heartbeat"
JOIN = "join"
SYNC = "sync"

#: The call of a member whose response has been given, but which counts as joined.
ANSWERED = object()


class Rebalances:
    """The groups of one coordinator, their timers, and the replies that are ready."""

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        groups: GroupTable,
        timers: Timers[TimerKey],
        replies: list[GroupReply],
    ) -> None:
        self.config = config
        self.groups = groups
        self.timers = timers
        self.replies = replies

    # Members that wait.

    def reply_join(self, call: Call, response: JoinGroupResponseData) -> None:
        """Answer a JoinGroup now."""
        if call is not ANSWERED:
            self.replies.append(GroupReply(call, response))

    def answer_join(
        self, group: ClassicGroup, member: GroupMember, response: JoinGroupResponseData
    ) -> None:
        """Answer the JoinGroup that a member waits for, if it does."""
        if member.awaiting_join is not None:
            self.reply_join(member.awaiting_join, response)
            group.await_join(member, None)

    def answer_sync(self, member: GroupMember, response: SyncGroupResponseData) -> bool:
        """Answer the SyncGroup that a member waits for; return whether it did."""
        if member.awaiting_sync is None:
            return False
        if member.awaiting_sync is not ANSWERED:
            self.replies.append(GroupReply(member.awaiting_sync, response))
        member.awaiting_sync = None
        return True

    def await_join(self, group: ClassicGroup, member: GroupMember, call: Call) -> None:
        """Let a JoinGroup wait; one of the same member that waits already is answered.

        Kafka never answers the older one. Its client has given it up, so that no client can tell.
        """
        rejected = JoinGroupResponseData(
            error_code=REBALANCE_IN_PROGRESS, member_id=member.member_id
        )
        self.answer_join(group, member, rejected)
        group.await_join(member, call)

    def await_sync(self, member: GroupMember, call: Call) -> None:
        """Let a SyncGroup wait, like `await_join`."""
        self.answer_sync(member, SyncGroupResponseData(error_code=REBALANCE_IN_PROGRESS))
        member.awaiting_sync = call

    def fail_parked(self, member: GroupMember, call: Call, code: int) -> None:
        """Answer a call that a member waits for with an error; the member goes on waiting."""
        if member.awaiting_join is call:
            self.reply_join(call, JoinGroupResponseData(error_code=code))
            member.awaiting_join = ANSWERED
        elif member.awaiting_sync is call:
            self.replies.append(GroupReply(call, SyncGroupResponseData(error_code=code)))
            member.awaiting_sync = ANSWERED

    def remove_member(self, group: ClassicGroup, member: GroupMember) -> None:
        """Remove a member and answer what it waits for: a live client joins again.

        Kafka does not answer a SyncGroup here; its client gives it up after request.timeout.ms.
        """
        rejected = JoinGroupResponseData(error_code=UNKNOWN_MEMBER_ID, member_id=NO_MEMBER_ID)
        self.answer_join(group, member, rejected)
        self.answer_sync(member, SyncGroupResponseData(error_code=UNKNOWN_MEMBER_ID))
        group.remove(member.member_id)

    def schedule_heartbeat(
        self, group: ClassicGroup, member: GroupMember, now_ms: int, timeout_ms: int | None = None
    ) -> None:
        """Expect the next sign of life within the session timeout, or this timeout."""
        timeout_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        self.timers.schedule((HEARTBEAT, group.group_id, member.member_id), now_ms + timeout_ms)

    def cancel_heartbeat(self, group: ClassicGroup, member_id: str) -> None:
        """Expect nothing more of a member that is gone."""
        self.timers.cancel((HEARTBEAT, group.group_id, member_id))

    # The join phase.

    def rebalance_or_complete_join(self, group: ClassicGroup, now_ms: int) -> Write | None:
        """Begin a rebalance; if one is on, end its join phase if all members have joined."""
        if group.can_rebalance:
            return self.begin_rebalance(group, now_ms)
        return self.complete_join_if_all_joined(group, now_ms)

    def complete_join_if_all_joined(self, group: ClassicGroup, now_ms: int) -> Write | None:
        """End the join phase if nobody is missing; the first one of a group lasts its time."""
        if (
            group.state is not GroupState.PREPARING_REBALANCE
            or group.previous_state is GroupState.EMPTY
            or not group.has_all_members_joined
        ):
            return None
        return self.complete_join(group, now_ms)

    def begin_rebalance(self, group: ClassicGroup, now_ms: int) -> Write | None:
        """Begin the join phase of the next generation; members find out by their heartbeats."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            self.spread_assignment(group, {}, now_ms, REBALANCE_IN_PROGRESS)
        group.pending_sync.clear()
        self.timers.cancel((SYNC, group.group_id, ""))
        is_first = group.is_empty
        if is_first:
            # A new group waits for more members, within their rebalance timeout.
            delay_ms = self.config.group_initial_rebalance_delay_ms
            remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._extend_first_join(group, now_ms, delay_ms, remaining_ms)
        group.transition_to(GroupState.PREPARING_REBALANCE, now_ms)
        if is_first:
            return None
        if group.has_all_members_joined:
            return self.complete_join(group, now_ms)
        self._schedule_phase(JOIN, group, now_ms)
        return None

    def _schedule_phase(
        self, kind: str, group: ClassicGroup, now_ms: int, detail: object = None
    ) -> None:
        # Members wait at least a millisecond: they may ask for none, and `expire` would not end.
        timeout_ms = max(group.rebalance_timeout_ms, 1) if group.members else 0
        self.timers.schedule((kind, group.group_id, ""), now_ms + timeout_ms, detail)

    def _extend_first_join(
        self, group: ClassicGroup, now_ms: int, delay_ms: int, remaining_ms: int
    ) -> None:
        key = (JOIN, group.group_id, "")
        self.timers.schedule(key, now_ms + delay_ms, (delay_ms, remaining_ms))

    def complete_join(self, group: ClassicGroup, now_ms: int) -> Write | None:
        """End the join phase: drop dynamic members that are missing, begin the generation."""
        self.timers.cancel((JOIN, group.group_id, ""))
        for member in group.not_yet_rejoined():
            if member.group_instance_id is None:
                group.remove(member.member_id)
                self.cancel_heartbeat(group, member.member_id)
        if not group.elect_joined_leader() and group.members:
            # Only static members are left, and none has joined: their session timeouts decide.
            self._schedule_phase(JOIN, group, now_ms)
            return None
        group.begin_generation(now_ms)
        if group.is_empty:
            return Write([group_record(group.group_id, group.to_record({}))], applies=False)
        for member in group.members.values():
            self.answer_join(group, member, self.joined(group, member.member_id))
            self.schedule_heartbeat(group, member, now_ms)
            member.is_new = False
            group.pending_sync[member.member_id] = None
        self._schedule_phase(SYNC, group, now_ms, group.generation_id)
        return None

    def joined(
        self, group: ClassicGroup, member_id: str, skip_assignment: bool = False
    ) -> JoinGroupResponseData:
        """Return the response that tells a member its generation; the leader gets all members."""
        members = []
        if group.leader_id == member_id:
            members = [one.joined(group.protocol_name) for one in group.members.values()]
        return JoinGroupResponseData(
            generation_id=group.generation_id,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=group.leader_id or "",
            skip_assignment=skip_assignment,
            member_id=member_id,
            members=members,
        )

    # The sync phase.

    def spread_assignment(
        self, group: ClassicGroup, assignments: dict[str, bytes], now_ms: int, code: int = 0
    ) -> None:
        """Set all assignments, b"" for members without one, and answer those who wait for them."""
        name = group.protocol_name if code == 0 else None
        kind = group.protocol_type if code == 0 else None
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            response = SyncGroupResponseData(
                error_code=code,
                protocol_type=kind,
                protocol_name=name,
                assignment=member.assignment,
            )
            if self.answer_sync(member, response):
                # The session may have ended while the member waited, which does not count.
                self.schedule_heartbeat(group, member, now_ms)

    # Timers.

    def expire(self, key: TimerKey, detail: object, now_ms: int) -> Write | None:
        """Do what is due at the time of a timer."""
        kind, group_id, member_id = key
        group = self.groups.get(group_id)
        if group is None:
            return None
        if kind == HEARTBEAT:
            return self._expire_heartbeat(group, member_id, now_ms)
        if kind == SYNC:
            return self._expire_sync(group, detail, now_ms)
        if isinstance(detail, tuple):
            delay_ms, remaining_ms = detail
            if group.new_member_added and remaining_ms != 0:
                group.new_member_added = False
                next_delay_ms = min(self.config.group_initial_rebalance_delay_ms, remaining_ms)
                next_remaining_ms = max(remaining_ms - delay_ms, 0)
                self._extend_first_join(group, now_ms, next_delay_ms, next_remaining_ms)
                return None
        return self.complete_join(group, now_ms)

    def _expire_heartbeat(self, group: ClassicGroup, member_id: str, now_ms: int) -> Write | None:
        if member_id in group.pending_join:
            return self._remove_pending(group, member_id, now_ms)
        member = group.members.get(member_id)
        if member is None or member.has_satisfied_heartbeat:
            return None
        self.remove_member(group, member)
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            return self.rebalance_or_complete_join(group, now_ms)
        return self._complete_if_preparing(group, now_ms)

    def _remove_pending(self, group: ClassicGroup, member_id: str, now_ms: int) -> Write | None:
        group.remove(member_id)
        return self._complete_if_preparing(group, now_ms)

    def _complete_if_preparing(self, group: ClassicGroup, now_ms: int) -> Write | None:
        # Not complete_join_if_all_joined: the first join phase ends here too.
        if group.state is GroupState.PREPARING_REBALANCE and group.has_all_members_joined:
            return self.complete_join(group, now_ms)
        return None

    def _expire_sync(self, group: ClassicGroup, detail: object, now_ms: int) -> Write | None:
        if detail != group.generation_id or group.state not in (
            GroupState.COMPLETING_REBALANCE,
            GroupState.STABLE,
        ):
            return None
        if not group.pending_sync:
            return None
        for member_id in list(group.pending_sync):
            group.remove(member_id)
            self.cancel_heartbeat(group, member_id)
        return self.begin_rebalance(group, now_ms)

    # The coordinator as a whole.

    def loaded(self, groups: Iterable[ClassicGroup], now_ms: int) -> None:
        """Expect heartbeats of all members; rebalance groups over the maximum size."""
        for group in groups:
            for member in group.members.values():
                self.schedule_heartbeat(group, member, now_ms)
            if len(group.members) > self.config.group_max_size:
                self.begin_rebalance(group, now_ms)

    def unloaded(self) -> None:
        """Send all members that wait to another coordinator."""
        for group in self.groups:
            for member in group.members.values():
                moved = JoinGroupResponseData(
                    error_code=NOT_COORDINATOR, member_id=member.member_id
                )
                self.answer_join(group, member, moved)
                self.answer_sync(member, SyncGroupResponseData(error_code=NOT_COORDINATOR))

    def cancel_timers(self, group: ClassicGroup) -> None:
        """Cancel the timers of a group that is deleted."""
        for member_id in (*group.members, *group.pending_join):
            self.cancel_heartbeat(group, member_id)
        self.timers.cancel((JOIN, group.group_id, ""))
        self.timers.cancel((SYNC, group.group_id, ""))
