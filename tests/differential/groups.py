"""Kafka's group coordinator and ours on generated sequences of requests, times and commits.

Kafka's side is its GroupCoordinatorService over its CoordinatorRuntime, with a log in memory
(`java/GroupRequests.java`). Each step goes to both; replies, appended records, the groups' state
and the answers of DescribeGroups and ListGroups must be equal. Member ids are Kafka's: its random
uuids are given to ours. Two differences are intended: ours answers the calls that Kafka forgets, a
JoinGroup or SyncGroup that a newer one of the same member replaces, and a SyncGroup of a member
that is removed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from kraft.broker.groups import GroupCoordinator, GroupCoordinatorConfig
from kraft.broker.groups.group import ClassicGroup
from kraft.broker.groups.requests import GroupResponse
from kraft.broker.groups.writes import GroupReply
from kraft.errors import REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID
from kraft.protocol.join_group import JoinGroupResponseData
from kraft.protocol.sync_group import SyncGroupResponseData
from tests.differential.group_order import JavaHashMap
from tests.differential.kafka import Kafka
from tests.harness.group_log import APPEND_ERRORS, MemoryLog, load_coordinator, raw_records
from tests.harness.group_steps import GROUPS, VERSION, Step, StepGenerator
from tests.harness.message_json import as_json

MAIN = "org.apache.kafka.coordinator.group.GroupRequests"
_START_MS = 1_000_000
#: Steps of a sequence.
LENGTH = 60
_UUID_SIZE = 36


@dataclass
class GroupReport:
    """Counts of one run, and the first differences."""

    sequences: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    records: int = 0
    differences: list[str] = field(default_factory=list)


class OurGroups:
    """Our coordinator behind the steps of GroupRequests.java."""

    def __init__(self, config: GroupCoordinatorConfig) -> None:
        self.config = config
        self.log = MemoryLog()
        self._taken = 0
        self.now_ms = _START_MS
        self.high_watermark = 0
        self.coordinator = GroupCoordinator(config, self.log)
        load_coordinator(self.coordinator, (), self.high_watermark, self.now_ms)

    def take(self, step: Step, random_id: str) -> list[GroupReply]:
        coordinator = self.coordinator
        match step.operation:
            case "request":
                return step.send(coordinator, self.now_ms, random_id)
            case "commit":
                self.high_watermark = step.high_watermark
                return coordinator.advance(step.high_watermark, self.now_ms)
            case "time":
                self.now_ms += step.ms
                return coordinator.expire(self.now_ms)
            case "appends":
                self.log.fails_with = APPEND_ERRORS.get(step.failure or "")
                return []
            case "delete topics":
                return coordinator.delete_topics(step.topics, self.now_ms)
            case _:
                return self._reload()

    def _reload(self) -> list[GroupReply]:
        replies = self.coordinator.close()
        self.log.truncate(self.high_watermark)
        self._taken = len(self.log.batches)
        self.coordinator = GroupCoordinator(self.config, self.log)
        load_coordinator(self.coordinator, self.log.batches, self.high_watermark, self.now_ms)
        return replies

    def take_records(self) -> list[list[list[str | None]]]:
        """Return the records of each batch since the last call."""
        taken = self.log.batches[self._taken :]
        self._taken = len(self.log.batches)
        return [
            [[key.hex(), None if value is None else value.hex()] for key, value in raw_records(one)]
            for one in taken
        ]

    def groups(self) -> dict[str, Any]:
        """Return the uncommitted state of all groups, as GroupWorld.java gives it."""
        return {group.group_id: _state(group) for group in self.coordinator._groups}

    def described(self, step: Step) -> dict[str, Any]:
        listing = self.coordinator.listing
        return {
            "describe": [as_json(listing.describe(group, 6), VERSION) for group in GROUPS],
            "list": [as_json(one, VERSION) for one in listing.list(step.states, step.types)],
        }


def _state(group: ClassicGroup) -> dict[str, Any]:
    topics = group.subscribed_topics
    return {
        "state": group.state.value,
        "previous": group.previous_state.value,
        "generation": group.generation_id,
        "leader": group.leader_id,
        "type": group.protocol_type,
        "protocol": group.protocol_name,
        "timestamp": group.state_timestamp_ms,
        "awaiting": group.awaiting_join_count,
        "pendingJoin": len(group.pending_join),
        "newMemberAdded": group.new_member_added,
        "pendingSync": sorted(group.pending_sync),
        "topics": None if topics is None else sorted(topics),
        "members": [
            [
                member.member_id,
                member.group_instance_id,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.awaiting_join is not None,
                member.awaiting_sync is not None,
                member.is_new,
                member.assignment.hex(),
            ]
            for member in group.members.values()
        ],
    }


def _same_response(response: GroupResponse, theirs: Any) -> bool:
    ours = as_json(response, VERSION)
    _sort_topics(ours)
    _sort_topics(theirs)
    return bool(ours == theirs)


def _sort_topics(response: Any) -> None:
    """Sort the offsets of a whole group: their order is that of a hash table in Kafka.

    An offset whose deletion was taken back is there twice, as a group is in a list of groups.
    """
    if isinstance(response, dict) and "groupId" in response:
        for topic in response.get("topics", []):
            topic["partitions"] = _distinct(topic["partitions"])
        if "topics" in response:
            response["topics"] = _distinct(response["topics"])


def _distinct(values: list[Any]) -> list[Any]:
    return [one for one, _ in groupby(sorted(values, key=str))]


def _in_any_order(batches: list[list[list[str | None]]]) -> list[list[str]]:
    """Return batches without an order: groups, and timers of one time, have Kafka's hash order."""
    return sorted(sorted(map(str, batch)) for batch in batches)


class Sequence:
    """One sequence on both sides."""

    def __init__(self, kafka: Kafka, dice: random.Random, report: GroupReport) -> None:
        self._kafka = kafka
        self._report = report
        self._steps = StepGenerator(dice)
        self._ours = OurGroups(self._steps.config)
        self._known: set[str] = set()
        self._forgotten: set[int] = set()
        self._has_failed = False
        self.history: list[str] = []

    def run(self, length: int) -> str | None:
        """Return the first difference, or None."""
        difference = self._take(Step("new", config=self._steps.kafka_config))
        for _ in range(length):
            if difference is not None:
                return "\n".join([*self.history[-40:], difference])
            ours = self._ours
            step = self._steps.draw(ours.groups(), ours.log.ends, ours.high_watermark)
            difference = self._take(step)
        return difference

    def _take(self, step: Step) -> str | None:
        theirs = self._kafka.ask_json([step.as_json()])[0]
        self.history.append(f"{self._ours.now_ms}: {step.text()}")
        self._report.steps[step.operation if step.request is None else step.kind] += 1
        if step.failure is not None:
            self._has_failed = True
        elif step.operation == "reload":
            self._has_failed = self._ours.log.fails_with is not None
        replies = []
        if step.operation != "new":
            replies = self._ours.take(step, self._random_id(step, theirs))
        records = self._ours.take_records()
        self._report.records += sum(map(len, records))
        for group in theirs["groups"].values():
            self._report.states[group["state"]] += 1
        found = self._ours.groups()
        if (difference := self._replies_differ(replies, theirs["replies"])) is not None:
            return difference
        if found != theirs["groups"]:
            return f"groups\nours   {found}\ntheirs {theirs['groups']}"
        if _in_any_order(records) != _in_any_order(theirs["records"]):
            return f"records\nours   {records}\ntheirs {theirs['records']}"
        return self._descriptions_differ(step, theirs["described"])

    def _random_id(self, step: Step, theirs: dict[str, Any]) -> str:
        """Return the uuid of the member that Kafka made in this step, if it made one."""
        ids = {member[0] for group in theirs["groups"].values() for member in group["members"]} | {
            response["memberId"]
            for _, response in theirs["replies"]
            if isinstance(response, dict) and response.get("memberId")
        }
        made = ids - self._known
        self._known |= made
        if made and step.request is not None:
            self._steps.member_ids.setdefault(step.group_id, []).extend(made)
        return next((one[-_UUID_SIZE:] for one in made), "00000000-0000-0000-0000-000000000000")

    def _replies_differ(self, replies: list[GroupReply], theirs: list[list[Any]]) -> str | None:
        kafka = dict(theirs)
        for call, response in replies:
            assert isinstance(call, int)
            if call not in kafka and _is_forgotten_by_kafka(response):
                self._forgotten.add(call)
            elif call not in kafka or not _same_response(response, kafka.pop(call)):
                return f"reply to {call}\nours   {as_json(response, VERSION)}\ntheirs {theirs}"
            code = getattr(response, "error_code", 0)
            self._report.codes[f"{type(response).__name__} {code}"] += 1
        missing = {call: one for call, one in kafka.items() if call not in self._forgotten}
        return f"missing replies {missing}" if missing else None

    def _descriptions_differ(self, step: Step, theirs: dict[str, Any]) -> str | None:
        for name, ours in self._ours.described(step).items():
            wanted = theirs[name]
            if name == "list":
                # Kafka lists a group twice or not at all whose deletion was taken back: a fault of
                # the iterator of its TimelineHashMap.
                if self._has_failed:
                    continue
                ours, wanted = _distinct(ours), _distinct(wanted)
            if ours != wanted:
                return f"{name}\nours   {ours}\ntheirs {wanted}"
        return None


def _is_forgotten_by_kafka(response: object) -> bool:
    if isinstance(response, JoinGroupResponseData):
        return response.error_code == REBALANCE_IN_PROGRESS
    codes = (REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID)
    return isinstance(response, SyncGroupResponseData) and response.error_code in codes


@contextmanager
def java_order() -> Iterator[None]:
    """Let our groups decide between equals as Kafka's do."""
    before = ClassicGroup.Members
    ClassicGroup.Members = JavaHashMap
    try:
        yield
    finally:
        ClassicGroup.Members = before


def run_groups(
    kafka: Kafka, seed: int, sequences: int, length: int = LENGTH, shown: int = 3
) -> GroupReport:
    """Compare this many sequences; stop at ``shown`` differences."""
    report = GroupReport()
    with java_order():
        for number in range(sequences):
            sequence = Sequence(kafka, random.Random(f"{seed}/{number}"), report)
            difference = sequence.run(length)
            report.sequences += 1
            if difference is not None:
                report.differences.append(f"sequence {number}\n{difference}")
                if len(report.differences) >= shown:
                    break
    return report
