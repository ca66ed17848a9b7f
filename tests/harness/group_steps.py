"""Generated steps for the group coordinators: mostly what clients do, sometimes what they should
not do.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kraft._core.codec.message_schema import ZERO_UUID, Uuid
from kraft.broker.groups import ClientContext, GroupCoordinator, GroupCoordinatorConfig, GroupReply
from kraft.broker.groups.requests import GroupRequest
from kraft.protocol.delete_groups import DeleteGroupsRequestData
from kraft.protocol.heartbeat import HeartbeatRequestData
from kraft.protocol.join_group import JoinGroupRequestData, JoinGroupRequestProtocol
from kraft.protocol.leave_group import LeaveGroupRequestData, LeavingMember
from kraft.protocol.offset_commit import (
    OffsetCommitRequestData,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kraft.protocol.offset_delete import (
    OffsetDeleteRequestData,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kraft.protocol.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopic
from kraft.protocol.sync_group import SyncGroupRequestAssignment, SyncGroupRequestData
from tests.harness.message_json import as_json

#: A request to the coordinator of its one group.
StepRequest: TypeAlias = GroupRequest | OffsetFetchRequestGroup | DeleteGroupsRequestData

#: The last version of OffsetFetch and OffsetCommit with the names of topics. No other message of
#: groups has a later one.
VERSION = 9
#: The empty id is an old consumer's: it may commit and fetch, but not join.
GROUPS = ("g1", "g2", "gruppe-ä", "")
_INSTANCES = ("i1", "i2")
_TOPICS = ("t1", "t2", "thema")
_TOPIC_IDS = {name: Uuid(bytes([number]) * 16) for number, name in enumerate(_TOPICS, 1)}
_CLIENTS = ("c1", "c2")
_PROTOCOLS = ("range", "roundrobin", "sticky", "cooperative-sticky")
_PAUSES_MS = (1, 7, 101, 997, 1499, 3001, 3001, 5003, 6007, 10_007, 30_011, 60_013)
_LONG_PAUSES_MS = (301_007, 600_011, 1_200_017, 4_000_037)


@dataclass(frozen=True)
class Step:
    """One step of a sequence; only the fields of its operation count."""

    operation: str
    config: dict[str, str] = field(default_factory=dict)
    request: StepRequest | None = None
    require_stable: bool = False
    call: int = 0
    version: int = 0
    client: str = ""
    high_watermark: int = 0
    ms: int = 0
    failure: str | None = None
    topics: dict[str, Uuid] = field(default_factory=dict)
    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return type(self.request).__name__

    @property
    def group_id(self) -> str:
        """The group of the request."""
        assert self.request is not None
        if isinstance(self.request, DeleteGroupsRequestData):
            return self.request.groups_names[0]
        return self.request.group_id

    def send(self, coordinator: GroupCoordinator, now_ms: int, random_id: str) -> list[GroupReply]:
        """Give the request to a coordinator; return the replies that are ready."""
        request = self.request
        assert request is not None
        if isinstance(request, OffsetFetchRequestGroup):
            return coordinator.fetch_offsets(
                self.call, request, now_ms, require_stable=self.require_stable
            )
        if isinstance(request, DeleteGroupsRequestData):
            return coordinator.delete_group(self.call, self.group_id, now_ms)
        context = ClientContext(self.client, "/10.0.0.1", self.version)
        return coordinator.handle(self.call, context, request, now_ms, random_id)

    def text(self) -> str:
        """Return the step on one line."""
        if self.request is not None:
            return f"{self.call} v{self.version} {self.client} {self.request}"
        parts = (self.config or "", self.high_watermark or "", self.ms or "", self.failure or "")
        return " ".join(str(part) for part in (self.operation, *parts) if part)

    def as_json(self) -> dict[str, Any]:
        """Return the step as GroupRequests.java reads it."""
        step: dict[str, Any] = {
            "op": self.operation,
            "groups": GROUPS,
            "states": self.states,
            "types": self.types,
        }
        match self.operation:
            case "new":
                step["config"] = self.config
            case "commit":
                step["highWatermark"] = self.high_watermark
            case "time":
                step["ms"] = self.ms
            case "appends":
                step["failure"] = self.failure
            case "delete topics":
                step["topics"] = {name: str(topic_id) for name, topic_id in self.topics.items()}
            case "request":
                step |= self._request_json()
        return step

    def _request_json(self) -> dict[str, Any]:
        request = self.request
        assert request is not None
        step: dict[str, Any] = {
            "call": self.call,
            "version": self.version,
            "client": self.client,
            "kind": self.kind,
            "body": as_json(request, VERSION),
        }
        if isinstance(request, OffsetCommitRequestData | OffsetFetchRequestGroup):
            step["topicIds"] = [str(topic.topic_id) for topic in request.topics or ()]
        if isinstance(request, OffsetCommitRequestData):
            step["retention"] = request.retention_time_ms
        if isinstance(request, OffsetFetchRequestGroup):
            step["stable"] = self.require_stable
            step["body"] = {"groups": [step["body"]], "requireStable": self.require_stable}
        return step


def subscription(topics: list[str]) -> bytes:
    """Return a consumer's subscription of version 0."""
    text = b"".join(len(one).to_bytes(2, "big") + one.encode() for one in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + text + b"\xff\xff\xff\xff"


class StepGenerator:
    """Draws the steps of one sequence from the state that our coordinator is in."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        delay_ms = dice.choice((0, 3_000, 3_000))
        max_size = dice.choice((2, 3, 2**31 - 1))
        retention_minutes = dice.choice((10, 60))
        self.config = GroupCoordinatorConfig(
            group_initial_rebalance_delay_ms=delay_ms,
            group_max_size=max_size,
            offsets_retention_ms=retention_minutes * 60_000,
            offset_metadata_max_bytes=20,
        )
        self.kafka_config = {
            "group.initial.rebalance.delay.ms": str(delay_ms),
            "group.max.size": str(max_size),
            "offsets.retention.minutes": str(retention_minutes),
            "offset.metadata.max.bytes": "20",
        }
        #: Group id -> the ids of all members that it has had, in order.
        self.member_ids: dict[str, list[str]] = {}
        self._call = 0
        self._fails = dice.random() < 0.3
        self._failure: str | None = None
        self._lags = dice.random() < 0.4
        self._groups: dict[str, Any] = {}

    def draw(self, groups: dict[str, Any], ends: list[int], high_watermark: int) -> Step:
        """Return the next step; ``ends`` are the offsets at which a batch ends."""
        dice = self.dice
        self._groups = groups
        if self._failure is not None and dice.random() < 0.5:
            self._failure = None
            return Step("appends")
        ahead = [end for end in ends if end > high_watermark]
        if ahead and dice.random() < (0.2 if self._lags else 0.8):
            return Step("commit", high_watermark=dice.choice((ahead[-1], ahead[-1], ahead[0])))
        chance = dice.random()
        if chance < 0.15:
            pauses = _LONG_PAUSES_MS if dice.random() < 0.1 else _PAUSES_MS
            return Step("time", ms=dice.choice(pauses))
        if chance < 0.17:
            return Step("reload")
        if chance < 0.19:
            name = dice.choice(_TOPICS)
            return Step("delete topics", topics={name: dice.choice(list(_TOPIC_IDS.values()))})
        if chance < 0.22 and self._fails:
            self._failure = dice.choice(
                ("NOT_ENOUGH_REPLICAS", "KAFKA_STORAGE_ERROR", "NOT_LEADER_OR_FOLLOWER")
            )
            return Step("appends", failure=self._failure)
        return self._draw_request()

    def _draw_request(self) -> Step:
        dice = self.dice
        self._call += 1
        group_id = dice.choice((GROUPS[0], GROUPS[0], GROUPS[0], *GROUPS[1:3]))
        if dice.random() < 0.01:
            group_id = ""
        group = self._groups.get(group_id)
        if group and group["state"] == "CompletingRebalance" and dice.random() < 0.4:
            return self._as_step(self._sync(group_id, group))
        draw = dice.choice(
            (
                *(self._join,) * 8,
                *(self._sync,) * 6,
                *(self._heartbeat,) * 3,
                *(self._leave,) * 2,
                *(self._commit,) * 4,
                *(self._fetch,) * 2,
                self._delete_offsets,
                self._delete_group,
            )
        )
        return self._as_step(draw(group_id, group))

    def _as_step(self, request: StepRequest) -> Step:
        dice = self.dice
        is_stable = isinstance(request, OffsetFetchRequestGroup) and dice.random() < 0.5
        version = 9
        if isinstance(request, JoinGroupRequestData) and self._failure is None:
            version = dice.choice((3, 4, 5, 9))
        if isinstance(request, OffsetCommitRequestData):
            version = dice.choice((7, 9))
        return Step(
            "request",
            request=request,
            require_stable=is_stable,
            call=self._call,
            version=version,
            client=dice.choice(_CLIENTS),
            states=dice.choice(((), ("Stable",), ("empty ", "PREPARINGREBALANCE"), ("nothing",))),
            types=dice.choice(((), (), ("classic",), ("Consumer",))),
        )

    def _member(self, group_id: str, group: dict[str, Any] | None) -> tuple[str, str | None]:
        """Return a member's id and instance id, rarely wrong ones."""
        dice = self.dice
        known = self.member_ids.get(group_id)
        if group and group["members"] and dice.random() < 0.9:
            member = dice.choice(group["members"])
            instance = member[1]
            if dice.random() < 0.05:
                instance = dice.choice((None, *_INSTANCES))
            return member[0], instance
        if known and dice.random() < 0.8:
            return dice.choice(known), dice.choice((None, None, None, *_INSTANCES))
        return dice.choice(("", "nobody")), None

    def _generation(self, group: dict[str, Any] | None) -> int:
        generation: int = group["generation"] if group else 0
        return generation + self.dice.choice((0,) * 18 + (1, -1))

    def _join(self, group_id: str, group: dict[str, Any] | None) -> JoinGroupRequestData:
        dice = self.dice
        member_id, instance = "", None
        known = self.member_ids.get(group_id, [])
        chance = dice.random()
        if self._failure is not None and group is None:
            # Kafka keeps the timer of a rebalance whose group could not be stored. It ends a phase
            # that the next group of that id is not in.
            chance = 1.0
        if chance < 0.4 and known:
            member_id = dice.choice(known[-2:])
            members = group["members"] if group else []
            instance = next((one[1] for one in members if one[0] == member_id), None)
        elif chance < 0.6:
            member_id, instance = self._member(group_id, group)
        elif chance < 0.75:
            instance = dice.choice(_INSTANCES)
        kind = "consumer" if dice.random() < 0.95 else dice.choice(("connect", ""))
        names = ["range"] if dice.random() < 0.5 else dice.sample(_PROTOCOLS, dice.randint(2, 4))
        if dice.random() < 0.02:
            names = []
        metadata = subscription(dice.sample(_TOPICS, dice.choice((1, 1, 2))))
        if dice.random() < 0.03:
            metadata = b"\0"
        return JoinGroupRequestData(
            group_id,
            dice.choice((6_000, 10_000, 10_000, 30_000) if dice.random() < 0.97 else (1, 2**30)),
            # Not 5,000: a commit timeout of the same millisecond may come before or after it.
            dice.choice((5_500, 10_000, 60_000)),
            member_id,
            instance,
            kind,
            [JoinGroupRequestProtocol(name, metadata) for name in names],
        )

    def _sync(self, group_id: str, group: dict[str, Any] | None) -> SyncGroupRequestData:
        dice = self.dice
        member_id, instance = self._member(group_id, group)
        assignments = []
        if group and group["leader"] and dice.random() < 0.5:
            member_id = group["leader"]
            instance = next((one[1] for one in group["members"] if one[0] == member_id), None)
        if group and member_id == group["leader"]:
            assignments = [
                SyncGroupRequestAssignment(one[0], dice.randbytes(3))
                for one in group["members"]
                if dice.random() < 0.95
            ]
        protocol = group["protocol"] if group and dice.random() < 0.95 else None
        return SyncGroupRequestData(
            group_id,
            self._generation(group),
            member_id,
            instance,
            dice.choice((None, "consumer", "consumer", "consumer")),
            protocol if dice.random() < 0.97 else "sticky",
            assignments,
        )

    def _heartbeat(self, group_id: str, group: dict[str, Any] | None) -> HeartbeatRequestData:
        member_id, instance = self._member(group_id, group)
        return HeartbeatRequestData(group_id, self._generation(group), member_id, instance)

    def _leave(self, group_id: str, group: dict[str, Any] | None) -> LeaveGroupRequestData:
        members = []
        for _ in range(self.dice.choice((1, 1, 1, 2, 3))):
            member_id, instance = self._member(group_id, group)
            if self.dice.random() < 0.2:
                member_id = ""
            members.append(LeavingMember(member_id, instance))
        return LeaveGroupRequestData(group_id, members=members)

    def _commit(self, group_id: str, group: dict[str, Any] | None) -> OffsetCommitRequestData:
        dice = self.dice
        generation = self._generation(group)
        member_id, instance = self._member(group_id, group)
        if dice.random() < 0.3:
            generation, member_id, instance = -1, "", None
        # No version of the RPC has a retention time and leader epochs or topic ids; Kafka's state
        # would have them until it is loaded again, its records do not.
        retention_ms = dice.choice((-1, -1, -1, -1, 50_000, 900_000))
        topics = []
        for name in dice.sample(_TOPICS, dice.choice((1, 1, 2))):
            partitions = [
                OffsetCommitRequestPartition(
                    index,
                    dice.randrange(1_000),
                    dice.choice((-1, 3)) if retention_ms < 0 else -1,
                    dice.choice((None, "", "note", "ä" * 20, "x" * 21, "\U0001f600" * 11)),
                )
                for index in dice.sample(range(3), dice.choice((1, 2)))
            ]
            topic_id = dice.choice((ZERO_UUID, _TOPIC_IDS[name], _TOPIC_IDS["t1"]))
            if retention_ms >= 0:
                topic_id = ZERO_UUID
            topics.append(OffsetCommitRequestTopic(name, topic_id, partitions))
        return OffsetCommitRequestData(
            group_id, generation, member_id, instance, retention_ms, topics
        )

    def _fetch(self, group_id: str, group: dict[str, Any] | None) -> OffsetFetchRequestGroup:
        dice = self.dice
        topics = None
        if dice.random() < 0.6:
            topics = [
                OffsetFetchRequestTopic(
                    name, dice.choice((ZERO_UUID, _TOPIC_IDS[name], _TOPIC_IDS["t2"])), [0, 1, 2]
                )
                for name in dice.sample(_TOPICS, dice.choice((0, 1, 2, 3)))
            ]
        return OffsetFetchRequestGroup(group_id, topics=topics)

    def _delete_offsets(
        self, group_id: str, group: dict[str, Any] | None
    ) -> OffsetDeleteRequestData:
        topics = [
            OffsetDeleteRequestTopic(
                name,
                [OffsetDeleteRequestPartition(index) for index in self.dice.sample(range(3), 2)],
            )
            for name in self.dice.sample(_TOPICS, self.dice.choice((1, 2)))
        ]
        return OffsetDeleteRequestData(group_id, topics)

    def _delete_group(self, group_id: str, group: dict[str, Any] | None) -> DeleteGroupsRequestData:
        return DeleteGroupsRequestData([group_id])
