"""A group coordinator under generated requests, lagging commits, failed appends and new leaders.

Every call is answered once, at the latest when the coordinator is closed; the counters of a group
are right after every step; what readers see is what a coordinator sees that is loaded from the
committed log.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from kraft.broker.groups import GroupCoordinator
from kraft.broker.groups.group import ClassicGroup, GroupState
from kraft.broker.groups.writes import GroupReply
from kraft.protocol.join_group import JoinGroupResponseData
from kraft.protocol.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from tests.harness.group_log import APPEND_ERRORS, MemoryLog, load_coordinator
from tests.harness.group_steps import GROUPS, Step, StepGenerator

STEPS = 150


class Run:
    """One coordinator after the other on the same log."""

    def __init__(self, seed: int) -> None:
        self.steps = StepGenerator(random.Random(seed))
        self.log = MemoryLog()
        self.now_ms = 1_000_000
        self.high_watermark = 0
        self.waiting: dict[object, Step] = {}
        self.coordinator = self.loaded()

    def loaded(self, log: MemoryLog | None = None) -> GroupCoordinator:
        log = self.log if log is None else log
        coordinator = GroupCoordinator(self.steps.config, log)
        load_coordinator(coordinator, log.batches, self.high_watermark, self.now_ms)
        return coordinator

    def take(self, replies: list[GroupReply]) -> None:
        for call, response in replies:
            step = self.waiting.pop(call, None)
            assert step is not None, f"call {call} was answered twice: {response}"
            if isinstance(response, JoinGroupResponseData) and response.member_id:
                ids = self.steps.member_ids.setdefault(step.group_id, [])
                if response.member_id not in ids:
                    ids.append(response.member_id)

    def step(self) -> None:
        groups = {one.group_id: _described(one) for one in self.coordinator._groups}
        step = self.steps.draw(groups, self.log.ends, self.high_watermark)
        coordinator = self.coordinator
        match step.operation:
            case "request":
                self.waiting[step.call] = step
                self.take(step.send(coordinator, self.now_ms, f"id-{step.call}"))
            case "commit":
                self.high_watermark = step.high_watermark
                self.take(coordinator.advance(step.high_watermark, self.now_ms))
            case "time":
                self.now_ms += step.ms
                self.take(coordinator.expire(self.now_ms))
            case "appends":
                self.log.fails_with = APPEND_ERRORS.get(step.failure or "")
            case "delete topics":
                self.take(coordinator.delete_topics(step.topics, self.now_ms))
            case _:
                self.change_leader()

    def change_leader(self) -> None:
        self.take(self.coordinator.close())
        assert not self.waiting
        self.log.truncate(self.high_watermark)
        self.coordinator = self.loaded()

    def offsets(self, coordinator: GroupCoordinator) -> dict[str, Any]:
        found = {}
        for group in GROUPS:
            request = OffsetFetchRequestGroup(group)
            [(_, fetched)] = coordinator.fetch_offsets(0, request, self.now_ms)
            assert isinstance(fetched, OffsetFetchResponseGroup)
            found[group] = sorted(
                (topic.name, one.partition_index, one.committed_offset, one.metadata)
                for topic in fetched.topics
                for one in topic.partitions
            )
        return found

    def check_readers(self) -> None:
        committed = MemoryLog()
        committed.batches = [bytearray(batch) for batch in self.log.batches]
        committed.truncate(self.high_watermark)
        other = self.loaded(committed)
        assert self.offsets(self.coordinator) == self.offsets(other)
        # A group may exist without a record of its own, after a commit of which no part was valid.
        ids = {one.group_id for one in self.coordinator.listing.list()}
        assert ids >= {one.group_id for one in other.listing.list()}


def _described(group: ClassicGroup) -> dict[str, Any]:
    members = [[one.member_id, one.group_instance_id] for one in group.members.values()]
    return {
        "state": group.state.value,
        "generation": group.generation_id,
        "leader": group.leader_id,
        "protocol": group.protocol_name,
        "members": members,
    }


def check(group: ClassicGroup) -> None:
    members = list(group.members.values())
    assert group.awaiting_join_count == sum(one.awaiting_join is not None for one in members)
    names = Counter(protocol.name for one in members for protocol in one.protocols)
    assert group.protocol_counts == names
    assert group.static_members == {
        one.group_instance_id: one.member_id for one in members if one.group_instance_id
    }
    assert group.leader_id in group.members or not members
    assert set(group.pending_sync) <= set(group.members)
    assert not set(group.pending_join) & set(group.members)
    if group.state is GroupState.EMPTY:
        assert not members
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        assert group.protocol_name is not None


@pytest.mark.parametrize("seed", range(60))
def test_calls_counters_and_readers(seed: int) -> None:
    run = Run(seed)
    for number in range(STEPS):
        run.step()
        for group in run.coordinator._groups:
            check(group)
        if number % 10 == 0:
            run.check_readers()
    run.take(run.coordinator.close())
    assert not run.waiting
