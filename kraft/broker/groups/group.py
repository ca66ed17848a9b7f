"""A classic group: its members, generation and state.

`ClassicGroup` changes only itself: timers, responses and records belong to ``membership``. Every
method keeps ``awaiting_join_count`` and ``protocol_counts`` right.
Source: ``ClassicGroup``, ``ClassicGroupState``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any, ClassVar

from kraft.broker.groups.errors import GroupError
from kraft.broker.groups.member import GroupMember, distinct
from kraft.broker.groups.records import NO_TIMESTAMP, GroupMetadataValue, MemberMetadata
from kraft.broker.groups.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from kraft.errors import (
    COORDINATOR_NOT_AVAILABLE,
    FENCED_INSTANCE_ID,
    GROUP_ID_NOT_FOUND,
    ILLEGAL_GENERATION,
    NON_EMPTY_GROUP,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)
from kraft.protocol.join_group import JoinGroupRequestProtocol


class GroupState(Enum):
    """The states of a classic group; the values are Kafka's names in responses."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_EVERY_STATE = frozenset(GroupState)
#: State -> the states that it may follow.
_MAY_FOLLOW = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: _EVERY_STATE,
}


class ClassicGroup:
    """One group: `members` by id, static members by instance id, and those who are waited for.

    ``pending_join`` has the ids that were given to clients (KIP-394) and have not joined yet,
    ``pending_sync`` the members that have not asked for their assignment; both are ordered sets.
    ``subscribed_topics`` is None if the coordinator cannot know them.
    """

    #: The class of mappings whose order decides between equals: the next leader, and the protocol
    #: of equal votes. Kafka has the order of a HashMap there; a differential test sets it.
    Members: ClassVar[type[dict[str, Any]]] = dict

    __slots__ = (
        "awaiting_join_count",
        "generation_id",
        "group_id",
        "leader_id",
        "members",
        "new_member_added",
        "pending_join",
        "pending_sync",
        "previous_state",
        "protocol_counts",
        "protocol_name",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "static_members",
        "subscribed_topics",
    )

    def __init__(self, group_id: str, state: GroupState, state_timestamp_ms: int) -> None:
        self.group_id = group_id
        self.state = state
        self.previous_state = GroupState.DEAD
        self.state_timestamp_ms = state_timestamp_ms
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, GroupMember] = self.Members()
        self.static_members: dict[str, str] = {}
        self.pending_join: dict[str, None] = {}
        self.pending_sync: dict[str, None] = {}
        self.protocol_counts: dict[str, int] = {}
        self.awaiting_join_count = 0
        self.subscribed_topics: set[str] | None = None
        self.new_member_added = False

    # Questions.

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance may begin now."""
        return self.state in _MAY_FOLLOW[GroupState.PREPARING_REBALANCE]

    @property
    def has_all_members_joined(self) -> bool:
        return len(self.members) == self.awaiting_join_count and not self.pending_join

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of all members, 0 without members."""
        return max((one.rebalance_timeout_ms for one in self.members.values()), default=0)

    def not_yet_rejoined(self) -> list[GroupMember]:
        """Return the members that have not sent a JoinGroup in this rebalance."""
        return [one for one in self.members.values() if one.awaiting_join is None]

    def supports_protocols(
        self, protocol_type: str, protocols: Iterable[JoinGroupRequestProtocol]
    ) -> bool:
        """Return whether a member with these protocols could be in the group."""
        if self.is_empty:
            return bool(protocol_type) and any(True for _ in protocols)
        size = len(self.members)
        counts = self.protocol_counts
        return self.protocol_type == protocol_type and any(
            counts.get(one.name, 0) == size for one in protocols
        )

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether offsets of the topic are in use; yes if a consumer group is unaware."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def validate_member(self, member_id: str, group_instance_id: str | None) -> None:
        """Raise UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID unless this is a member (KIP-345)."""
        if group_instance_id is not None:
            known = self.static_members.get(group_instance_id)
            if known is not None and known != member_id:
                raise GroupError(
                    FENCED_INSTANCE_ID,
                    f"instance {group_instance_id!r} is now member {known!r}, not {member_id!r}",
                )
            if known is None:
                raise GroupError(UNKNOWN_MEMBER_ID, f"unknown instance {group_instance_id!r}")
        if member_id not in self.members:
            raise GroupError(UNKNOWN_MEMBER_ID, f"{member_id!r} is no member of {self.group_id!r}")

    def validate_generation(self, generation_id: int) -> None:
        """Raise ILLEGAL_GENERATION for another generation than the group's."""
        if generation_id != self.generation_id:
            raise GroupError(
                ILLEGAL_GENERATION,
                f"group {self.group_id!r} has generation {self.generation_id}, not {generation_id}",
            )

    def validate_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> None:
        """Raise unless a member of this generation commits, or anybody if the group is empty."""
        if self.state is GroupState.DEAD:
            raise GroupError(COORDINATOR_NOT_AVAILABLE, f"group {self.group_id!r} is dead")
        if generation_id < 0 and self.is_empty:
            return  # an administrator, or a consumer without group management
        if generation_id >= 0 or member_id or group_instance_id is not None:
            self.validate_member(member_id, group_instance_id)
            self.validate_generation(generation_id)
        elif not self.is_empty:
            raise GroupError(UNKNOWN_MEMBER_ID, f"group {self.group_id!r} has members")
        if self.state is GroupState.COMPLETING_REBALANCE:
            raise GroupError(REBALANCE_IN_PROGRESS, f"group {self.group_id!r} is rebalancing")

    def validate_delete(self) -> None:
        """Raise NON_EMPTY_GROUP if the group has members."""
        if self.state is GroupState.DEAD:
            raise GroupError(GROUP_ID_NOT_FOUND, f"Group {self.group_id} is in dead state.")
        if not self.is_empty:
            raise GroupError(NON_EMPTY_GROUP, f"group {self.group_id!r} is not empty")

    def validate_offset_delete(self) -> None:
        """Raise like `validate_delete`, but let consumer groups delete what they do not read."""
        if not (self.uses_consumer_protocol and self.state is not GroupState.DEAD):
            self.validate_delete()

    # Changes.

    def transition_to(self, state: GroupState, now_ms: int) -> None:
        """Enter a state; raise RuntimeError if it cannot follow the present one."""
        if self.state not in _MAY_FOLLOW[state]:
            raise RuntimeError(f"group {self.group_id!r}: {state} cannot follow {self.state}")
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms

    def add(self, member: GroupMember) -> None:
        """Add a member, which is the leader if there is none; it is pending no longer."""
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_protocols(member, 1)
        self.awaiting_join_count += member.awaiting_join is not None
        self.pending_join.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """Remove a member or pending member; another member leads if it was the leader."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_protocols(member, -1)
            self.awaiting_join_count -= member.awaiting_join is not None
            if member.group_instance_id is not None:
                self.static_members.pop(member.group_instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_join.pop(member_id, None)
        self.pending_sync.pop(member_id, None)

    def replace_static_member(
        self, group_instance_id: str, old_id: str, new_id: str
    ) -> tuple[GroupMember, GroupMember]:
        """Give a static member a new id; return the old member, which waits for nothing, and the
        new one. The caller answers what the old member waited for.
        """
        old = self.members.pop(old_id)
        new = GroupMember(
            new_id,
            group_instance_id,
            old.client_id,
            old.client_host,
            old.rebalance_timeout_ms,
            old.session_timeout_ms,
            old.protocol_type,
            old.protocols,
            old.assignment,
        )
        self.awaiting_join_count -= old.awaiting_join is not None
        self.members[new_id] = new
        if self.leader_id == old_id:
            self.leader_id = new_id
        self.static_members[group_instance_id] = new_id
        return old, new

    def update_member(
        self,
        member: GroupMember,
        protocols: Sequence[JoinGroupRequestProtocol],
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        """Set what a member said in its JoinGroup."""
        self._count_protocols(member, -1)
        member.protocols = distinct(protocols)
        self._count_protocols(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def await_join(self, member: GroupMember, call: object) -> None:
        """Note the call of a member's JoinGroup, or None that it waits no longer."""
        self.awaiting_join_count += (call is not None) - (member.awaiting_join is not None)
        member.awaiting_join = call

    def elect_joined_leader(self) -> bool:
        """Make a member that has rejoined the leader; return False if none has."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].awaiting_join is not None:
            return True
        for member in self.members.values():
            if member.awaiting_join is not None:
                self.leader_id = member.member_id
                return True
        return False

    def select_protocol(self) -> str:
        """Return the protocol with the most votes among those that all members support."""
        size = len(self.members)
        candidates = {name for name, count in self.protocol_counts.items() if count == size}
        votes: dict[str, int] = self.Members()
        for member in self.members.values():
            name = member.vote(candidates)
            votes[name] = votes.get(name, 0) + 1
        most = max(votes.values())
        return next(name for name, count in votes.items() if count == most)

    def begin_generation(self, now_ms: int) -> None:
        """Enter the next generation, with the members that joined: completing, or empty."""
        self.generation_id += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.subscribed_topics = self._compute_subscribed_topics()
        next_state = GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY
        self.transition_to(next_state, now_ms)
        self.pending_sync.clear()

    def _count_protocols(self, member: GroupMember, change: int) -> None:
        counts = self.protocol_counts
        for protocol in member.protocols:
            count = counts.get(protocol.name, 0) + change
            if count:
                counts[protocol.name] = count
            else:
                counts.pop(protocol.name, None)

    def _compute_subscribed_topics(self) -> set[str] | None:
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return set()
        if self.protocol_name is None:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            found = subscribed_topics(member.metadata(self.protocol_name))
            if found is None:
                return None
            topics |= found
        return topics

    # Records.

    def to_record(self, assignments: dict[str, bytes]) -> GroupMetadataValue:
        """Return the value of the group's record, with these assignments by member id."""
        members = [
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(self.protocol_name),
                assignment=assignments[member.member_id],
            )
            for member in self.members.values()
        ]
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id,
            protocol=self.protocol_name,
            leader=self.leader_id,
            current_state_timestamp=self.state_timestamp_ms,
            members=members,
        )

    @classmethod
    def from_record(cls, group_id: str, value: GroupMetadataValue) -> ClassicGroup:
        """Return the group of a record: stable, or empty without members."""
        state = GroupState.STABLE if value.members else GroupState.EMPTY
        group = cls(group_id, state, value.current_state_timestamp)
        group.generation_id = value.generation
        # Groups have few different types and protocols; 100,000 groups share their texts.
        group.protocol_type = sys.intern(value.protocol_type) or None
        group.protocol_name = None if value.protocol is None else sys.intern(value.protocol)
        group.leader_id = value.leader
        for one in value.members:
            timeout = one.session_timeout if one.rebalance_timeout < 0 else one.rebalance_timeout
            group.add(
                GroupMember(
                    one.member_id,
                    one.group_instance_id,
                    one.client_id,
                    sys.intern(one.client_host),
                    timeout,
                    one.session_timeout,
                    group.protocol_type or "",
                    _selected_protocol(group.protocol_name or "", one.subscription),
                    one.assignment,
                )
            )
        group.subscribed_topics = group._compute_subscribed_topics()
        return group

    @property
    def has_state_timestamp(self) -> bool:
        """Whether the time of the state is known; records before version 2 do not have it."""
        return self.state_timestamp_ms != NO_TIMESTAMP


@lru_cache(maxsize=4_096)
def _selected_protocol(name: str, subscription: bytes) -> tuple[JoinGroupRequestProtocol]:
    """Return the one protocol that a record has of a member; many members share it."""
    return (JoinGroupRequestProtocol(name, subscription),)
