"""Responses of group APIs beside those of an Apache Kafka broker, in every version.

Both brokers have topics t (2 partitions) and u, and get the same requests in the same order.
Authorization, moves and timeouts are in ``tests/unit/broker``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kraft._core.codec.message_schema import ZERO_UUID, Uuid
from kraft._core.codec.metadata_codec import Message
from kraft.protocol.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreateTopicsRequestData,
    CreateTopicsResponseData,
)
from kraft.protocol.delete_groups import (
    DELETE_GROUPS,
    DeleteGroupsRequestData,
    DeleteGroupsResponseData,
)
from kraft.protocol.describe_groups import (
    DESCRIBE_GROUPS,
    DescribeGroupsRequestData,
    DescribeGroupsResponseData,
)
from kraft.protocol.find_coordinator import (
    FIND_COORDINATOR,
    FindCoordinatorRequestData,
    FindCoordinatorResponseData,
)
from kraft.protocol.headers import Api
from kraft.protocol.heartbeat import HEARTBEAT, HeartbeatRequestData, HeartbeatResponseData
from kraft.protocol.join_group import JOIN_GROUP, JoinGroupRequestData, JoinGroupResponseData
from kraft.protocol.leave_group import (
    LEAVE_GROUP,
    LeaveGroupRequestData,
    LeaveGroupResponseData,
    LeavingMember,
)
from kraft.protocol.list_groups import LIST_GROUPS, ListGroupsRequestData, ListGroupsResponseData
from kraft.protocol.metadata import (
    METADATA,
    MetadataRequestData,
    MetadataRequestTopic,
    MetadataResponseData,
)
from kraft.protocol.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequestData,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponseData,
)
from kraft.protocol.offset_delete import (
    OFFSET_DELETE,
    OffsetDeleteRequestData,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponseData,
)
from kraft.protocol.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequestData,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponseData,
)
from kraft.protocol.sync_group import (
    SYNC_GROUP,
    SyncGroupRequestAssignment,
    SyncGroupRequestData,
    SyncGroupResponseData,
)
from tests.harness.group_cluster import GroupCluster
from tests.harness.group_requests import join
from tests.harness.kafka_jars import KAFKA_4, kafka
from tests.harness.message_json import as_json
from tests.interop.cluster import Cluster, wait_for
from tests.interop.raw_client import ask_node

pytestmark = pytest.mark.interop

MISSING = Uuid(b"x" * 16)
#: What names differ in: places, addresses, clients.
_PLACES = ("nodeId", "host", "port", "clientHost", "clientId")


class Broker:
    """The ids of a broker's topics, and of the members that it has named, by group."""

    def __init__(self, ids: dict[str, Uuid]) -> None:
        self.ids = ids | {"x": MISSING}
        self.members: dict[str, str] = {}

    def note(self, request: Message, response: Message) -> None:
        if (
            isinstance(request, JoinGroupRequestData)
            and isinstance(response, JoinGroupResponseData)
            and response.member_id
            and response.error_code in (0, 79)
        ):
            self.members[request.group_id] = response.member_id

    def shown(self, response: Message, version: int) -> Any:
        """Return a response with names in place of ids, and lists in the order of their text."""
        names = {str(id): f"id of {name}" for name, id in self.ids.items()}
        names |= {member: f"member of {group}" for group, member in self.members.items()}

        def tidy(value: Any) -> Any:
            if isinstance(value, dict):
                return {
                    key: "place" if key in _PLACES and each not in (-1, "") else tidy(each)
                    for key, each in value.items()
                }
            if isinstance(value, list):
                # Kafka has the order of a HashMap.
                return sorted(map(tidy, value), key=lambda each: json.dumps(each, sort_keys=True))
            return names.get(value, value) if isinstance(value, str) else value

        return tidy(as_json(response, version))


class Step(NamedTuple):
    """One request to both brokers."""

    api: Api
    version: int
    request: Callable[[Broker], Message]
    answer: type[Message]


def given(request: Message) -> Callable[[Broker], Message]:
    """Return a request that is the same for both brokers."""
    return lambda _: request


def commit(
    broker: Broker, version: int, topics: list[tuple[str, list[int]]], group: str = "g"
) -> OffsetCommitRequestData:
    return OffsetCommitRequestData(
        group,
        topics=[
            OffsetCommitRequestTopic(
                name if version < 10 else "",
                broker.ids[name] if version >= 10 else ZERO_UUID,
                [OffsetCommitRequestPartition(one, 100 + one) for one in partitions],
            )
            for name, partitions in topics
        ],
    )


def fetch(
    broker: Broker,
    version: int,
    topics: list[tuple[str, list[int]]] | None,
    groups: tuple[str, ...],
) -> OffsetFetchRequestData:
    listed = None
    if topics is not None:
        listed = [
            OffsetFetchRequestTopic(
                name if version < 10 else "",
                broker.ids[name] if version >= 10 else ZERO_UUID,
                partitions,
            )
            for name, partitions in topics
        ]
    if version < 8:
        return OffsetFetchRequestData(groups[0], listed)
    return OffsetFetchRequestData(
        topics=[], groups=[OffsetFetchRequestGroup(group, topics=listed) for group in groups]
    )


def deletion(group: str, *topics: tuple[str, list[int]]) -> OffsetDeleteRequestData:
    return OffsetDeleteRequestData(
        group,
        [
            OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(one) for one in parts])
            for name, parts in topics
        ],
    )


def find_steps() -> Iterator[Step]:
    for version in range(FIND_COORDINATOR.highest + 1):
        request = FindCoordinatorRequestData("g")
        if version >= 4:
            request = FindCoordinatorRequestData(coordinator_keys=["g", "h"])
        yield Step(
            FIND_COORDINATOR,
            version,
            given(request),
            FindCoordinatorResponseData,
        )


def offset_steps() -> Iterator[Step]:
    commits: list[tuple[list[tuple[str, list[int]]], str]] = [
        ([("t", [0, 2, -1]), ("x", [0]), ("u", [0])], "g"),
        ([("x", [0])], "none"),
        ([("t", [0]), ("t", [1]), ("t", [7])], "g"),
    ]
    for version in range(OFFSET_COMMIT.lowest, OFFSET_COMMIT.highest + 1):
        for topics, group in commits:
            yield Step(
                OFFSET_COMMIT,
                version,
                partial(commit, version=version, topics=topics, group=group),
                OffsetCommitResponseData,
            )

        def of_a_stranger(broker: Broker, version: int = version) -> Message:
            request = commit(broker, version, [("t", [0]), ("u", [0])], "other")
            request.member_id, request.generation_id_or_member_epoch = "m", 5
            return request

        yield Step(OFFSET_COMMIT, version, of_a_stranger, OffsetCommitResponseData)
    fetches: list[list[tuple[str, list[int]]] | None] = [
        [("t", [1, 7, 0]), ("x", [0])],
        [("t", [])],
        None,
    ]
    for version in range(OFFSET_FETCH.lowest, OFFSET_FETCH.highest + 1):
        groups = ("g", "none", "") if version >= 8 else ("g",)
        for asked in fetches if version >= 2 else fetches[:2]:
            yield Step(
                OFFSET_FETCH,
                version,
                partial(fetch, version=version, topics=asked, groups=groups),
                OffsetFetchResponseData,
            )


def member_steps(version: int) -> Iterator[Step]:
    """Yield the life of a group of one member, in one version of each API or its newest."""
    group = f"j{version}"

    def joining(member_id: str = "") -> JoinGroupRequestData:
        return join(group, member_id, rebalance_ms=-1 if version == 0 else 60_000)

    def first(_: Broker) -> Message:
        return joining()

    def again(broker: Broker) -> Message:
        return joining(broker.members[group])

    def without_group(_: Broker) -> Message:
        return JoinGroupRequestData("", 10_000, member_id="m")

    def without_protocols(_: Broker) -> Message:
        return JoinGroupRequestData(
            "q", 10_000, 5 if version else -1, "m", protocol_type="consumer"
        )

    def with_long_session(_: Broker) -> Message:
        request = joining("m")
        request.session_timeout_ms = 2**31 - 1
        return request

    joins = [first, again] if version >= 4 else [first]
    for request in (*joins, without_group, without_protocols, with_long_session):
        yield Step(JOIN_GROUP, version, request, JoinGroupResponseData)

    sync_version = min(version, SYNC_GROUP.highest)

    def sync(broker: Broker) -> Message:
        member = broker.members[group]
        given = [SyncGroupRequestAssignment(member, b"all")]
        request = SyncGroupRequestData(group, 1, member, assignments=given)
        if sync_version >= 5:
            request.protocol_type, request.protocol_name = "consumer", "range"
        return request

    def sync_of_a_stranger(_: Broker) -> Message:
        return SyncGroupRequestData(group, 1, "unknown")

    for request in (sync, sync_of_a_stranger):
        yield Step(SYNC_GROUP, sync_version, request, SyncGroupResponseData)

    def beat(generation: int, broker: Broker) -> Message:
        return HeartbeatRequestData(group, generation, broker.members[group])

    for generation in (1, 2):
        yield Step(
            HEARTBEAT,
            min(version, HEARTBEAT.highest),
            partial(beat, generation),
            HeartbeatResponseData,
        )
    describe_version = min(version, DESCRIBE_GROUPS.highest)
    yield Step(
        DESCRIBE_GROUPS,
        describe_version,
        given(
            DescribeGroupsRequestData(
                [group, "none", ""], include_authorized_operations=describe_version >= 3
            )
        ),
        DescribeGroupsResponseData,
    )


def leave_steps() -> Iterator[Step]:
    for version in range(LEAVE_GROUP.highest + 1):

        def leave(broker: Broker, version: int = version) -> Message:
            member = broker.members[f"j{version}"]
            if version < 3:
                return LeaveGroupRequestData(f"j{version}", member)
            leaving = [LeavingMember(member), LeavingMember("no"), LeavingMember("", "instance")]
            return LeaveGroupRequestData(f"j{version}", members=leaving)

        def leave_no_group(_: Broker, version: int = version) -> Message:
            return LeaveGroupRequestData("none", "m" if version < 3 else "")

        for request in (leave, leave, leave_no_group):
            yield Step(LEAVE_GROUP, version, request, LeaveGroupResponseData)


def steps() -> Iterator[Step]:
    yield from find_steps()
    yield from offset_steps()
    for version in range(JOIN_GROUP.highest + 1):
        yield from member_steps(version)
    for version in range(LIST_GROUPS.highest + 1):
        filters = [ListGroupsRequestData()]
        if version >= 4:
            filters.append(ListGroupsRequestData(["stable"]))
        if version >= 5:
            filters.append(ListGroupsRequestData([], ["consumer"]))
        for one in filters:
            yield Step(LIST_GROUPS, version, given(one), ListGroupsResponseData)
    for request in (
        deletion("g", ("x", [0]), ("t", [5, 0])),
        deletion("none", ("x", [0])),
        deletion("j5", ("t", [0]), ("u", [0])),
        deletion("", ("t", [0])),
        deletion("g"),
    ):
        yield Step(OFFSET_DELETE, 0, given(request), OffsetDeleteResponseData)
    yield from leave_steps()
    for version in range(DELETE_GROUPS.highest + 1):
        groups = [f"j{version}", "j9", "none", "", "none"]
        yield Step(
            DELETE_GROUPS,
            version,
            given(DeleteGroupsRequestData(groups)),
            DeleteGroupsResponseData,
        )


def of_kafka(directory: Path) -> list[Any]:
    """Return the responses of a Kafka broker."""
    cluster = Cluster(kafka(KAFKA_4), directory, "Z3JvdXAgY29tcGFyaXNvbg", is_static=True)
    cluster.reserve_controllers(1)
    cluster.add_controller(1)
    node = cluster.add_broker(
        11,
        None,
        offsets__topic__num__partitions="2",
        offsets__topic__replication__factor="1",
        group__initial__rebalance__delay__ms="0",
        group__min__session__timeout__ms="1",
    )
    try:
        for each in cluster.nodes.values():
            each.format(cluster.cluster_id)
        cluster.start()
        creation = CreateTopicsRequestData([CreatableTopic("t", 2, 1), CreatableTopic("u", 1, 1)])

        def ids() -> dict[str, Uuid] | None:
            ask_node(node, CREATE_TOPICS, 7, creation, CreateTopicsResponseData)
            wanted = MetadataRequestData(
                [MetadataRequestTopic(name="t"), MetadataRequestTopic(name="u")]
            )
            topics = ask_node(node, METADATA, 12, wanted, MetadataResponseData).topics
            if any(topic.error_code for topic in topics):
                return None
            return {str(topic.name): topic.topic_id for topic in topics}

        broker = Broker(wait_for("topics", ids, 60))

        def has_loaded() -> bool:
            # Both partitions of the topic: g and j0 are in different ones.
            found = FindCoordinatorRequestData(coordinator_keys=["g", "j0"])
            answer = ask_node(node, FIND_COORDINATOR, 6, found, FindCoordinatorResponseData)
            if any(one.error_code for one in answer.coordinators):
                return False
            for group in ("g", "j0"):
                request = fetch(broker, 9, [], (group,))
                fetched = ask_node(node, OFFSET_FETCH, 9, request, OffsetFetchResponseData)
                if fetched.groups[0].error_code:
                    return False
            return True

        wait_for("coordinators", has_loaded)
        responses = []
        for step in steps():
            request = step.request(broker)
            response = ask_node(node, step.api, step.version, request, step.answer)
            broker.note(request, response)
            responses.append(broker.shown(response, step.version))
        return responses
    finally:
        cluster.kill()


async def of_kraft(directory: Path) -> list[Any]:
    """Return the responses of a kraft broker."""
    cluster = GroupCluster(directory, 1)
    await cluster.start()
    await cluster.create(2)
    ids = {"t": await cluster.data.create("t", [1], [1]), "u": cluster.topic_id}
    broker = Broker(ids)
    for group in ("g", "j0"):
        await cluster.offset(group)  # waits until their partitions are loaded
    responses = []
    for step in steps():
        request = step.request(broker)
        response = await cluster.data[1].ask(step.api, request, step.answer, step.version)
        broker.note(request, response)
        responses.append(broker.shown(response, step.version))
    cluster.close()
    return responses


def test_responses_are_kafkas(tmp_path: Path) -> None:
    ours = asyncio.run(asyncio.wait_for(of_kraft(tmp_path / "kraft"), 60))
    theirs = of_kafka(tmp_path / "kafka")
    differences = [
        f"{step.api.name} v{step.version}\n  ours   {mine}\n  theirs {other}"
        for step, mine, other in zip(steps(), ours, theirs, strict=True)
        if mine != other
    ]
    assert not differences, "\n".join(differences)
