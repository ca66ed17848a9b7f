"""All group coordinators of a broker, by partition of ``__consumer_offsets``.

`GroupCoordinators` finds the partition of a request's group and asks its coordinator. The broker
reports elections and high watermarks of the partitions, and calls `expire` in time.
Source: ``GroupCoordinatorService``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from kraft._core.codec.message_schema import Uuid
from kraft.broker.groups.config import GroupCoordinatorConfig
from kraft.broker.groups.coordinator import CoordinatorState, GroupCoordinator, OffsetsLog
from kraft.broker.groups.error_responses import delete_error, error_response, fetch_error
from kraft.broker.groups.errors import GroupError
from kraft.broker.groups.group import GroupState
from kraft.broker.groups.member import Call
from kraft.broker.groups.partitioning import partition_of_group
from kraft.broker.groups.requests import ClientContext, GroupRequest
from kraft.broker.groups.writes import GroupReply
from kraft.errors import NOT_COORDINATOR
from kraft.protocol.describe_groups import DescribedGroup
from kraft.protocol.list_groups import ListedGroup
from kraft.protocol.offset_fetch import OffsetFetchRequestGroup


class GroupCoordinators:
    """The coordinators of the partitions that this broker leads."""

    def __init__(self, config: GroupCoordinatorConfig, partition_count: int) -> None:
        self.config = config
        self.partition_count = partition_count
        self._coordinators: dict[int, GroupCoordinator] = {}
        self._epochs: dict[int, int] = {}

    def partition_of(self, group_id: str) -> int:
        """Return the partition whose leader is the coordinator of a group."""
        return partition_of_group(group_id, self.partition_count)

    def get(self, partition: int) -> GroupCoordinator | None:
        """Return the coordinator of a partition, or None if this broker does not lead it."""
        return self._coordinators.get(partition)

    def elect(
        self, partition: int, leader_epoch: int, log: OffsetsLog
    ) -> tuple[GroupCoordinator, list[GroupReply]]:
        """Return the coordinator of a partition that this broker leads now, and replies.

        A new one is loading: the caller gives it the log by `GroupCoordinator.load`, and calls
        `GroupCoordinator.finish_loading` and `GroupCoordinator.activate`. In a newer epoch the
        coordinator before it is closed, and its replies are returned; in the same epoch it goes on.
        """
        before = self._coordinators.get(partition)
        if before is not None and leader_epoch <= self._epochs[partition]:
            return before, []
        replies = before.close() if before is not None else []
        coordinator = GroupCoordinator(self.config, log)
        self._coordinators[partition] = coordinator
        self._epochs[partition] = leader_epoch
        return coordinator, replies

    def resign(self, partition: int) -> list[GroupReply]:
        """Close the coordinator of a partition that this broker leads no longer."""
        coordinator = self._coordinators.pop(partition, None)
        return [] if coordinator is None else coordinator.close()

    def handle(
        self,
        call: Call,
        context: ClientContext,
        request: GroupRequest,
        now_ms: int,
        random_id: str = "",
    ) -> list[GroupReply]:
        """Decide a request like `GroupCoordinator.handle`."""
        coordinator = self._coordinators.get(self.partition_of(request.group_id))
        if coordinator is None:
            return [GroupReply(call, error_response(request, NOT_COORDINATOR))]
        return coordinator.handle(call, context, request, now_ms, random_id)

    def fetch_offsets(
        self,
        call: Call,
        request: OffsetFetchRequestGroup,
        now_ms: int,
        *,
        require_stable: bool = False,
    ) -> list[GroupReply]:
        """Answer one group of an OffsetFetch like `GroupCoordinator.fetch_offsets`."""
        coordinator = self._coordinators.get(self.partition_of(request.group_id))
        if coordinator is None:
            return [GroupReply(call, fetch_error(request.group_id, NOT_COORDINATOR))]
        return coordinator.fetch_offsets(call, request, now_ms, require_stable=require_stable)

    def delete_group(self, call: Call, group_id: str, now_ms: int) -> list[GroupReply]:
        """Delete one group of a DeleteGroups like `GroupCoordinator.delete_group`."""
        coordinator = self._coordinators.get(self.partition_of(group_id))
        if coordinator is None:
            return [GroupReply(call, delete_error(group_id, NOT_COORDINATOR))]
        return coordinator.delete_group(call, group_id, now_ms)

    def group_states(self) -> Counter[GroupState]:
        """Return the number of groups in each state."""
        return Counter(group.state for one in self._coordinators.values() for group in one.groups())

    @property
    def offset_count(self) -> int:
        """The committed offsets of all groups."""
        return sum(one.offset_count for one in self._coordinators.values())

    def list_groups(
        self, states_filter: Sequence[str] = (), types_filter: Sequence[str] = ()
    ) -> list[ListedGroup]:
        """Return the groups of all partitions that this broker leads.

        Raises GroupError (COORDINATOR_LOAD_IN_PROGRESS) while one of them is loading.
        """
        listed: list[ListedGroup] = []
        for coordinator in self._coordinators.values():
            if coordinator.state is not CoordinatorState.CLOSED:
                listed += coordinator.listing.list(states_filter, types_filter)
        return listed

    def describe_group(self, group_id: str, api_version: int) -> DescribedGroup:
        """Return a group for DescribeGroups, or its error."""
        coordinator = self._coordinators.get(self.partition_of(group_id))
        try:
            if coordinator is None:
                raise GroupError(NOT_COORDINATOR, "another broker leads the partition")
            return coordinator.listing.describe(group_id, api_version)
        except GroupError as error:
            return DescribedGroup(group_id=group_id, error_code=error.kafka_code)

    def delete_topics(self, deleted: Mapping[str, Uuid], now_ms: int) -> list[GroupReply]:
        """Delete the committed offsets of deleted topics, given by name and id."""
        return [
            reply
            for coordinator in self._coordinators.values()
            for reply in coordinator.delete_topics(deleted, now_ms)
        ]

    def advance(self, partition: int, high_watermark: int, now_ms: int) -> list[GroupReply]:
        """Take note of the high watermark of a partition."""
        coordinator = self._coordinators.get(partition)
        return [] if coordinator is None else coordinator.advance(high_watermark, now_ms)

    def next_deadline_ms(self) -> int | None:
        """Return when `expire` has something to do, or None."""
        deadlines = (one.next_deadline_ms() for one in self._coordinators.values())
        return min((one for one in deadlines if one is not None), default=None)

    def expire(self, now_ms: int) -> list[GroupReply]:
        """Do what is due at this time in all partitions."""
        return [
            reply
            for coordinator in self._coordinators.values()
            for reply in coordinator.expire(now_ms)
        ]
