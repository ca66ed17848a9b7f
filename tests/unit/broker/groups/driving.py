"""A coordinator with a log in memory, and short ways to send it requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kraft._core.codec.message_schema import ZERO_UUID, Uuid
from kraft.broker.groups import ClientContext, GroupCoordinator, GroupCoordinatorConfig
from kraft.broker.groups.requests import GroupRequest, GroupResponse
from kraft.broker.groups.writes import GroupReply
from kraft.protocol.heartbeat import HeartbeatRequestData, HeartbeatResponseData
from kraft.protocol.join_group import (
    JoinGroupResponseData,
)
from kraft.protocol.leave_group import LeaveGroupRequestData, LeaveGroupResponseData, LeavingMember
from kraft.protocol.offset_commit import (
    OffsetCommitResponseData,
)
from kraft.protocol.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponseGroup,
)
from kraft.protocol.sync_group import SyncGroupRequestAssignment, SyncGroupRequestData
from tests.harness.group_log import MemoryLog, load_coordinator
from tests.harness.group_requests import commit, join

Response = TypeVar("Response")


class Driver:
    """One coordinator in virtual time; with ``commits`` every append is committed at once."""

    def __init__(
        self,
        *,
        log: MemoryLog | None = None,
        high_watermark: int = 1 << 62,
        commits: bool = True,
        **config: int,
    ) -> None:
        self.config = GroupCoordinatorConfig(**config)
        self.log = MemoryLog() if log is None else log
        self.commits = commits
        self.now_ms = 1_000
        self.replies: dict[object, GroupResponse] = {}
        self._calls = 0
        self.coordinator = GroupCoordinator(self.config, self.log)
        high_watermark = min(high_watermark, self.log.end_offset)
        load_coordinator(self.coordinator, self.log.batches, high_watermark, self.now_ms)

    def take(self, replies: list[GroupReply]) -> None:
        for call, response in replies:
            assert call not in self.replies, f"call {call} was answered twice"
            self.replies[call] = response

    def send(self, request: GroupRequest, version: int = 9, client: str = "c") -> int:
        """Send a request; return the call, whose response is in ``replies`` when it is ready."""
        context = ClientContext(client, "/host", version)
        handle = self.coordinator.handle
        return self._call(lambda call: handle(call, context, request, self.now_ms, f"id{call}"))

    def fetch(
        self,
        group: str = "g",
        topics: list[OffsetFetchRequestTopic] | None = None,
        *,
        stable: bool = False,
    ) -> int:
        """Fetch offsets of a group, all without ``topics``; return the call like `send`."""
        request = OffsetFetchRequestGroup(group, topics=topics)
        fetch = self.coordinator.fetch_offsets
        return self._call(lambda call: fetch(call, request, self.now_ms, require_stable=stable))

    def delete_group(self, group: str = "g") -> int:
        """Delete a group; return the call like `send`."""
        return self._call(lambda call: self.coordinator.delete_group(call, group, self.now_ms))

    def _call(self, ask: Callable[[int], list[GroupReply]]) -> int:
        self._calls += 1
        call = self._calls
        self.take(ask(call))
        if self.commits:
            self.commit()
        return call

    def commit(self) -> None:
        """Let the high watermark reach the end of the log."""
        self.take(self.coordinator.advance(self.log.end_offset, self.now_ms))

    def advance(self, ms: int) -> None:
        """Let time pass, deadline by deadline."""
        end_ms = self.now_ms + ms
        while (deadline := self.coordinator.next_deadline_ms()) is not None and deadline <= end_ms:
            self.now_ms = max(deadline, self.now_ms)
            self.take(self.coordinator.expire(self.now_ms))
            if self.commits:
                self.commit()
        self.now_ms = end_ms

    def answer(self, request: GroupRequest, kind: type[Response], version: int = 9) -> Response:
        """Send a request that is answered at once; return the response."""
        response = self.replies[self.send(request, version)]
        assert isinstance(response, kind)
        return response

    def response(self, call: int, kind: type[Response]) -> Response:
        response = self.replies[call]
        assert isinstance(response, kind)
        return response

    # Members.

    def new_member_id(self, group: str = "g", names: tuple[str, ...] = ("range",)) -> str:
        """Return the id that a new dynamic member is given."""
        response = self.answer(join(group, names=names), JoinGroupResponseData)
        assert response.error_code == 79
        return response.member_id

    def stable_group(self, *instances: str | None, group: str = "g") -> list[str]:
        """Make a stable group with one member for each instance id; return their member ids."""
        calls = []
        for instance in instances or (None,):
            member_id = self.new_member_id(group) if instance is None else ""
            calls.append(self.send(join(group, member_id, instance)))
        while any(call not in self.replies for call in calls):
            self.advance(self.config.group_initial_rebalance_delay_ms)
        joined = [self.response(call, JoinGroupResponseData) for call in calls]
        ids = [one.member_id for one in joined]
        leader = joined[0].leader
        order = sorted(
            zip(ids, instances or (None,), strict=True), key=lambda one: one[0] == leader
        )
        for member_id, instance in order:
            given = [SyncGroupRequestAssignment(one, one.encode()) for one in ids]
            assignments = given if member_id == leader else []
            self.send(
                SyncGroupRequestData(
                    group, joined[0].generation_id, member_id, instance, None, None, assignments
                )
            )
        assert self.state(group) == "Stable"
        return ids

    def state(self, group: str = "g") -> str:
        return self.coordinator.listing.describe(group, 6).group_state

    def heartbeat(self, member_id: str, generation: int = 1, instance: str | None = None) -> int:
        request = HeartbeatRequestData("g", generation, member_id, instance)
        return self.answer(request, HeartbeatResponseData).error_code

    def sync(
        self, member_id: str, assignments: dict[str, bytes] | None = None, generation: int = 1
    ) -> int:
        given = [
            SyncGroupRequestAssignment(one, value) for one, value in (assignments or {}).items()
        ]
        return self.send(SyncGroupRequestData("g", generation, member_id, assignments=given))

    def leave(self, *members: tuple[str, str | None]) -> list[int]:
        request = LeaveGroupRequestData("g", members=[LeavingMember(*member) for member in members])
        response = self.answer(request, LeaveGroupResponseData)
        assert response.error_code == 0
        return [one.error_code for one in response.members]

    # Offsets.

    def commit_offset(
        self,
        offset: int,
        topic: str = "t",
        partition: int = 0,
        group: str = "g",
        generation: int = -1,
        member_id: str = "",
        topic_id: Uuid = ZERO_UUID,
        retention_ms: int = -1,
    ) -> int:
        """Commit an offset; return its error code."""
        request = commit(
            offset, topic, partition, group, generation, member_id, topic_id, retention_ms
        )
        response = self.answer(request, OffsetCommitResponseData)
        return response.topics[0].partitions[0].error_code

    def offsets(self, group: str = "g", *, stable: bool = False) -> dict[tuple[str, int], int]:
        """Return all committed offsets of a group by topic and partition."""
        response = self.response(self.fetch(group, stable=stable), OffsetFetchResponseGroup)
        assert response.error_code == 0
        return {
            (topic.name, one.partition_index): one.committed_offset
            for topic in response.topics
            for one in topic.partitions
        }
