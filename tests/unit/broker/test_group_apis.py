"""The APIs of groups by their bytes, in several versions, with and without authorization."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kraft import records
from kraft._core.codec.message_schema import ZERO_UUID, Uuid
from kraft.broker.groups import ClientContext
from kraft.errors import (
    GROUP_AUTHORIZATION_FAILED,
    GROUP_ID_NOT_FOUND,
    INCONSISTENT_GROUP_PROTOCOL,
    MEMBER_ID_REQUIRED,
    NON_EMPTY_GROUP,
    NOT_COORDINATOR,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_MEMBER_ID,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from kraft.image.security import AclOperation, ResourceType
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
from kraft.protocol.heartbeat import HEARTBEAT, HeartbeatRequestData, HeartbeatResponseData
from kraft.protocol.join_group import JOIN_GROUP, JoinGroupRequestData, JoinGroupResponseData
from kraft.protocol.leave_group import (
    LEAVE_GROUP,
    LeaveGroupRequestData,
    LeaveGroupResponseData,
    LeavingMember,
)
from kraft.protocol.list_groups import LIST_GROUPS, ListGroupsRequestData, ListGroupsResponseData
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
    OffsetFetchResponseTopic,
)
from kraft.protocol.sync_group import (
    SYNC_GROUP,
    SyncGroupRequestAssignment,
    SyncGroupRequestData,
    SyncGroupResponseData,
)
from tests.harness.group_requests import commit as commit_of_one
from tests.harness.group_requests import join
from tests.unit.broker.offsets_brokers import OffsetsBroker, OffsetsBrokers, acl

T, U = Uuid(b"T" * 16), Uuid(b"U" * 16)
PATIENCE_S = 120


def run(scenario: Callable[[OffsetsBrokers], Awaitable[None]], *, authorizes: bool = False) -> None:
    """Run a scenario with one broker, and topics t (2 partitions) and u."""

    async def whole() -> None:
        brokers = OffsetsBrokers(1, authorizes=authorizes)
        brokers.create_topic("t", T, 2)
        brokers.create_topic("u", U)
        await brokers.create_offsets_topic(1)
        await scenario(brokers)
        brokers.close()

    asyncio.run(asyncio.wait_for(whole(), PATIENCE_S))


async def stable_member(broker: OffsetsBroker, version: int, user: str | None = None) -> str:
    """Make group g stable with one member, in these versions of JoinGroup and SyncGroup."""
    request = join()
    request.rebalance_timeout_ms = -1 if version == 0 else request.rebalance_timeout_ms
    joined = await broker.ask(JOIN_GROUP, request, JoinGroupResponseData, version, user)
    if joined.error_code == MEMBER_ID_REQUIRED:
        request.member_id = joined.member_id
        joined = await broker.ask(JOIN_GROUP, request, JoinGroupResponseData, version, user)
    assert joined.error_code == 0
    assert joined.protocol_name == "range"
    assert [one.member_id for one in joined.members] == [joined.member_id]
    given = [SyncGroupRequestAssignment(joined.member_id, b"all")]
    sync = SyncGroupRequestData("g", joined.generation_id, joined.member_id, assignments=given)
    sync_version = min(version, SYNC_GROUP.highest)
    if sync_version >= 5:
        sync.protocol_type, sync.protocol_name = "consumer", "range"
    synced = await broker.ask(SYNC_GROUP, sync, SyncGroupResponseData, sync_version, user)
    assert (synced.error_code, synced.assignment) == (0, b"all")
    return joined.member_id


@pytest.mark.parametrize("version", range(JOIN_GROUP.highest + 1))
def test_a_group_is_joined_described_and_left(version: int) -> None:
    async def scenario(brokers: OffsetsBrokers) -> None:
        broker = brokers[1]
        member = await stable_member(broker, version)
        beat = await broker.ask(
            HEARTBEAT, HeartbeatRequestData("g", 1, member), HeartbeatResponseData, min(version, 4)
        )
        assert beat.error_code == 0
        described = await broker.ask(
            DESCRIBE_GROUPS,
            DescribeGroupsRequestData(["g"], include_authorized_operations=version >= 3),
            DescribeGroupsResponseData,
            min(version, 6),
        )
        (group,) = described.groups
        assert (group.error_code, group.group_state, group.protocol_data) == (0, "Stable", "range")
        (found,) = group.members
        assert (found.member_id, found.client_id, found.client_host) == (member, "c", "/127.0.0.1")
        # READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS
        operations = (1 << 3) | (1 << 6) | (1 << 8) | (1 << 10) | (1 << 11)
        assert group.authorized_operations == (operations if version >= 3 else -(2**31))
        leave = LeaveGroupRequestData("g", member)
        leave_version = min(version, LEAVE_GROUP.highest)
        if leave_version >= 3:
            leave = LeaveGroupRequestData("g", members=[LeavingMember(member)])
        for code in (0, UNKNOWN_MEMBER_ID):
            left = await broker.ask(LEAVE_GROUP, leave, LeaveGroupResponseData, leave_version)
            results = [one.error_code for one in left.members]
            assert (left.error_code, results) == ((0, [code]) if leave_version >= 3 else (code, []))

    run(scenario)


def test_a_rebalance_timeout_of_version_0_is_the_session_timeout() -> None:
    async def scenario(brokers: OffsetsBrokers) -> None:
        broker = brokers[1]
        await stable_member(broker, 0)
        partition = broker.groups.partition_of("g")
        group = broker.groups._led[partition].coordinator._groups.get("g")
        assert group is not None
        assert group.rebalance_timeout_ms == 10_000

    run(scenario)


@pytest.mark.parametrize("version", [6, 7, 9])
def test_a_rejected_join_has_no_protocol(version: int) -> None:
    async def scenario(brokers: OffsetsBrokers) -> None:
        response = await brokers[1].ask(
            JOIN_GROUP,
            JoinGroupRequestData("", 10_000, member_id="m"),
            JoinGroupResponseData,
            version,
        )
        assert response.protocol_name == (None if version >= 7 else "")
        assert (response.error_code, response.member_id) == (24, "m")  # INVALID_GROUP_ID

    run(scenario)


def test_a_sync_without_its_protocol_is_rejected() -> None:
    async def scenario(brokers: OffsetsBrokers) -> None:
        for version, code in ((4, UNKNOWN_MEMBER_ID), (5, INCONSISTENT_GROUP_PROTOCOL)):
            await stable_member(brokers[1], 9)
            sync = SyncGroupRequestData("g", 1, "m")
            response = await brokers[1].ask(SYNC_GROUP, sync, SyncGroupResponseData, version)
            assert response.error_code == code

    run(scenario)


# -- offsets


def commit(
    version: int, *topics: tuple[str, Uuid, list[int]], group: str = "g"
) -> OffsetCommitRequestData:
    return OffsetCommitRequestData(
        group,
        topics=[
            OffsetCommitRequestTopic(
                name if version < 10 else "",
                topic_id if version >= 10 else ZERO_UUID,
                [OffsetCommitRequestPartition(one, 100 + one) for one in partitions],
            )
            for name, topic_id, partitions in topics
        ],
    )


async def commit_codes(
    broker: OffsetsBroker,
    version: int,
    *topics: tuple[str, Uuid, list[int]],
    user: str | None = None,
    group: str = "g",
) -> dict[str | Uuid, dict[int, int]]:
    """Commit offsets; return the error codes by topic and partition."""
    request = commit(version, *topics, group=group)
    response = await broker.ask(OFFSET_COMMIT, request, OffsetCommitResponseData, version, user)
    return {
        one.name if version < 10 else one.topic_id: {
            each.partition_index: each.error_code for each in one.partitions
        }
        for one in response.topics
    }


@pytest.mark.parametrize("version", [2, 5, 8, 9, 10])
def test_commits_of_unknown_topics_and_partitions(version: int) -> None:
    async def scenario(brokers: OffsetsBrokers) -> None:
        broker, missing = brokers[1], Uuid(b"x" * 16)
        codes = await commit_codes(
            broker, version, ("t", T, [0, 2, -1]), ("x", missing, [0]), ("u", U, [0])
        )
        unknown = UNKNOWN_TOPIC_OR_PARTITION
        t, x, u = ("t", "x", "u") if version < 10 else (T, missing, U)
        assert codes == {
            t: {2: unknown, -1: unknown, 0: 0},
            x: {0: UNKNOWN_TOPIC_ID if version >= 10 else unknown},
            u: {0: 0},
        }
        # Topics without a valid partition do not reach the coordinator.
        assert await commit_codes(broker, version, ("x", missing, [0]), group="h") == {
            x: {0: UNKNOWN_TOPIC_ID if version >= 10 else unknown}
        }
        described = broker.groups.describe_group("h", 6)
        assert described.error_code == GROUP_ID_NOT_FOUND

    run(scenario)


def test_a_topic_that_is_committed_twice_has_two_answers() -> None:
    async def scenario(brokers: OffsetsBrokers) -> None:
        request = commit(9, ("t", T, [0]), ("t", T, [1]))
        response = await brokers[1].ask(OFFSET_COMMIT, request, OffsetCommitResponseData, 9)
        assert [one.partitions[0].partition_index for one in response.topics] == [0, 1]
        request = commit(9, ("t", T, [0]), ("t", T, [1, 9]))
        response = await brokers[1].ask(OFFSET_COMMIT, request, OffsetCommitResponseData, 9)
        (topic,) = response.topics
        assert [one.partition_index for one in topic.partitions] == [9, 0, 1]

    run(scenario)


def offsets_of(topics: list[OffsetFetchResponseTopic]) -> dict[str | Uuid, dict[int, int]]:
    """Return offsets by topic and partition; errors are negative, from -100 down."""
    return {
        one.name or one.topic_id: {
            each.partition_index: -100 - each.error_code
            if each.error_code
            else each.committed_offset
            for each in one.partitions
        }
        for one in topics
    }


def fetch(
    version: int, topics: dict[str, tuple[Uuid, list[int]]] | None, *groups: str
) -> OffsetFetchRequestData:
    listed = (
        None
        if topics is None
        else [
            OffsetFetchRequestTopic(
                name if version < 10 else "", id if version >= 10 else ZERO_UUID, partitions
            )
            for name, (id, partitions) in topics.items()
        ]
    )
    if version < 8:
        return OffsetFetchRequestData(groups[0], listed)
    return OffsetFetchRequestData(
        topics=[], groups=[OffsetFetchRequestGroup(group, topics=listed) for group in groups]
    )


@pytest.mark.parametrize("version", range(1, OFFSET_FETCH.highest + 1))
def test_offsets_are_fetched(version: int) -> None:
    async def scenario(brokers: OffsetsBrokers) -> None:
        broker = brokers[1]
        await commit_codes(broker, 9, ("t", T, [0, 1]), ("u", U, [0]))
        asked = {"t": (T, [1, 7]), "x": (Uuid(b"x" * 16), [0])}
        t, x = ("t", "x") if version < 10 else (T, Uuid(b"x" * 16))
        expected: dict[str | Uuid, dict[int, int]] = {
            t: {1: 101, 7: -1},
            x: {0: -100 - UNKNOWN_TOPIC_ID if version >= 10 else -1},
        }
        request = fetch(version, asked, "g", "h")
        response = await broker.ask(OFFSET_FETCH, request, OffsetFetchResponseData, version)
        if version < 8:
            assert response.error_code == 0
            assert offsets_of(response.topics) == expected
            return
        found, empty = response.groups
        assert (found.group_id, found.error_code) == ("g", 0)
        assert offsets_of(found.topics) == expected
        assert (empty.group_id, empty.error_code) == ("h", 0)
        assert offsets_of(empty.topics)[t] == {1: -1, 7: -1}

    run(scenario)


@pytest.mark.parametrize("version", [2, 7, 8, 9, 10])
def test_all_offsets_of_a_group_are_fetched(version: int) -> None:
    async def scenario(brokers: OffsetsBrokers) -> None:
        broker = brokers[1]
        brokers.create_topic("gone", Uuid(b"g" * 16))
        await commit_codes(broker, 9, ("t", T, [0, 1]), ("gone", Uuid(b"g" * 16), [0]))
        if version >= 10:
            # Without an id there is no place for a topic that does not exist.
            await broker.groups.handle(ClientContext("c", "/host", 9), commit_of_one(1, "never"))
        request = fetch(version, None, "g")
        response = await broker.ask(OFFSET_FETCH, request, OffsetFetchResponseData, version)
        topics = response.topics if version < 8 else response.groups[0].topics
        names = ("t", "gone") if version < 10 else (T, Uuid(b"g" * 16))
        assert offsets_of(topics) == {names[0]: {0: 100, 1: 101}, names[1]: {0: 100}}

    run(scenario)


@pytest.mark.parametrize("version", [1, 2, 7, 8, 10])
def test_errors_of_a_group_have_the_place_of_the_version(version: int) -> None:
    async def scenario(brokers: OffsetsBrokers) -> None:
        broker = brokers[1]
        brokers.append(records.RemoveTopic(topic_id=Uuid(b"o" * 16)))
        request = fetch(version, {"t": (T, [0, 1])}, "g")
        response = await broker.ask(OFFSET_FETCH, request, OffsetFetchResponseData, version)
        if version >= 8:
            assert (response.groups[0].error_code, response.groups[0].topics) == (
                NOT_COORDINATOR,
                [],
            )
        elif version >= 2:
            assert (response.error_code, response.topics) == (NOT_COORDINATOR, [])
        else:
            failed = -100 - NOT_COORDINATOR
            assert offsets_of(response.topics) == {"t": {0: failed, 1: failed}}

    run(scenario)


async def delete_offsets(
    broker: OffsetsBroker, *topics: tuple[str, list[int]], user: str | None = None
) -> OffsetDeleteResponseData:
    request = OffsetDeleteRequestData(
        "g",
        [
            OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(one) for one in parts])
            for name, parts in topics
        ],
    )
    return await broker.ask(OFFSET_DELETE, request, OffsetDeleteResponseData, 0, user)


def test_offsets_are_deleted() -> None:
    async def scenario(brokers: OffsetsBrokers) -> None:
        broker = brokers[1]
        response = await delete_offsets(broker, ("t", [0]), ("x", [0]))
        assert (response.error_code, response.topics) == (GROUP_ID_NOT_FOUND, [])
        await commit_codes(broker, 9, ("t", T, [0, 1]))
        response = await delete_offsets(broker, ("x", [0]), ("t", [5, 0]))
        codes = {
            topic.name: {one.partition_index: one.error_code for one in topic.partitions}
            for topic in response.topics
        }
        unknown = UNKNOWN_TOPIC_OR_PARTITION
        assert (response.error_code, codes) == (0, {"x": {0: unknown}, "t": {5: unknown, 0: 0}})
        fetched = await broker.ask(OFFSET_FETCH, fetch(9, None, "g"), OffsetFetchResponseData, 9)
        assert offsets_of(fetched.groups[0].topics) == {"t": {1: 101}}

    run(scenario)


# -- lists and deletions


@pytest.mark.parametrize("version", range(LIST_GROUPS.highest + 1))
def test_groups_are_listed(version: int) -> None:
    async def scenario(brokers: OffsetsBrokers) -> None:
        broker = brokers[1]
        await stable_member(broker, 9)
        await commit_codes(broker, 9, ("t", T, [0]), group="h")

        async def listed(request: ListGroupsRequestData) -> dict[str, str]:
            response = await broker.ask(LIST_GROUPS, request, ListGroupsResponseData, version)
            assert response.error_code == 0
            return {one.group_id: one.group_state for one in response.groups}

        states = ("Stable", "Empty") if version >= 4 else ("", "")
        assert await listed(ListGroupsRequestData()) == dict(zip("gh", states, strict=True))
        if version >= 4:
            assert await listed(ListGroupsRequestData(["empty"])) == {"h": "Empty"}
        if version >= 5:
            assert await listed(ListGroupsRequestData([], ["consumer"])) == {}

    run(scenario)


@pytest.mark.parametrize("version", range(DELETE_GROUPS.highest + 1))
def test_groups_are_deleted(version: int) -> None:
    async def scenario(brokers: OffsetsBrokers) -> None:
        broker = brokers[1]
        await stable_member(broker, 9)
        await commit_codes(broker, 9, ("t", T, [0]), group="h")
        request = DeleteGroupsRequestData(["h", "g", "x", "h"])
        response = await broker.ask(DELETE_GROUPS, request, DeleteGroupsResponseData, version)
        assert {one.group_id: one.error_code for one in response.results} == {
            "h": 0,
            "g": NON_EMPTY_GROUP,
            "x": GROUP_ID_NOT_FOUND,
        }
        assert len(response.results) == 3

    run(scenario)


# -- authorization

READ, DESCRIBE, DELETE = AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DELETE
GROUP, TOPIC, CLUSTER = ResourceType.GROUP, ResourceType.TOPIC, ResourceType.CLUSTER


def test_members_need_read_on_the_group() -> None:
    async def scenario(brokers: OffsetsBrokers) -> None:
        broker = brokers[1]
        brokers.append(acl(1, "alice", READ, GROUP, "g"))
        for version in (0, 6, 9):
            denied = await broker.ask(JOIN_GROUP, join(), JoinGroupResponseData, version, "bob")
            assert denied.error_code == GROUP_AUTHORIZATION_FAILED
        member = await stable_member(broker, 9, "alice")
        sync = SyncGroupRequestData("g", 1, member, protocol_type="consumer", protocol_name="range")
        synced = await broker.ask(SYNC_GROUP, sync, SyncGroupResponseData, 5, "bob")
        assert synced.error_code == GROUP_AUTHORIZATION_FAILED
        beat = HeartbeatRequestData("g", 1, member)
        for user, code in (("alice", 0), ("bob", GROUP_AUTHORIZATION_FAILED)):
            response = await broker.ask(HEARTBEAT, beat, HeartbeatResponseData, 4, user)
            assert response.error_code == code
        for version in (2, 5):
            leave = LeaveGroupRequestData("g", member)
            if version >= 3:
                leave = LeaveGroupRequestData("g", members=[LeavingMember(member)])
            left = await broker.ask(LEAVE_GROUP, leave, LeaveGroupResponseData, version, "bob")
            assert (left.error_code, left.members) == (GROUP_AUTHORIZATION_FAILED, [])

    run(scenario, authorizes=True)


@pytest.mark.parametrize("version", [2, 9, 10])
def test_commits_need_read_on_group_and_topics(version: int) -> None:
    async def scenario(brokers: OffsetsBrokers) -> None:
        broker = brokers[1]
        brokers.append(
            acl(1, "alice", READ, GROUP, "g"),
            acl(2, "alice", READ, TOPIC, "t"),
            acl(3, "alice", DESCRIBE, TOPIC, "u"),
            acl(4, "bob", READ, TOPIC, "t"),
        )
        topics = (("u", U, [0]), ("t", T, [0, 9]))
        t, u = ("t", "u") if version < 10 else (T, U)
        assert await commit_codes(broker, version, *topics, user="alice") == {
            u: {0: TOPIC_AUTHORIZATION_FAILED},
            t: {9: UNKNOWN_TOPIC_OR_PARTITION, 0: 0},
        }
        denied = GROUP_AUTHORIZATION_FAILED
        assert await commit_codes(broker, version, *topics, user="bob") == {
            u: {0: denied},
            t: {0: denied, 9: denied},
        }

    run(scenario, authorizes=True)


@pytest.mark.parametrize("version", [1, 2, 9, 10])
def test_fetches_need_describe_on_group_and_topics(version: int) -> None:
    async def scenario(brokers: OffsetsBrokers) -> None:
        broker = brokers[1]
        brokers.append(
            acl(1, "alice", READ, GROUP, "g"),
            acl(2, "alice", READ, TOPIC, "t"),
            acl(3, "alice", READ, TOPIC, "u"),
            acl(4, "bob", DESCRIBE, GROUP, "g"),
            acl(5, "bob", DESCRIBE, TOPIC, "t"),
        )
        await commit_codes(broker, 9, ("t", T, [0]), ("u", U, [0]), user="alice")
        asked = {"u": (U, [0]), "t": (T, [0])}
        t, u = ("t", "u") if version < 10 else (T, U)

        async def fetched(
            topics: dict[str, tuple[Uuid, list[int]]] | None, user: str
        ) -> tuple[int, dict[str | Uuid, dict[int, int]]]:
            request = fetch(version, topics, "g")
            response = await broker.ask(
                OFFSET_FETCH, request, OffsetFetchResponseData, version, user
            )
            if version < 8:
                return response.error_code, offsets_of(response.topics)
            (group,) = response.groups
            return group.error_code, offsets_of(group.topics)

        denied = -100 - TOPIC_AUTHORIZATION_FAILED
        assert await fetched(asked, "bob") == (0, {t: {0: 100}, u: {0: denied}})
        if version >= 2:
            # What a client may not describe is not there.
            assert await fetched(None, "bob") == (0, {t: {0: 100}})
            assert await fetched(asked, "carol") == (GROUP_AUTHORIZATION_FAILED, {})
        else:
            denied = -100 - GROUP_AUTHORIZATION_FAILED
            assert await fetched(asked, "carol") == (0, {u: {0: denied}, t: {0: denied}})

    run(scenario, authorizes=True)


def test_deletions_of_offsets_need_delete_on_the_group_and_read_on_topics() -> None:
    async def scenario(brokers: OffsetsBrokers) -> None:
        broker = brokers[1]
        brokers.append(
            acl(1, "alice", READ, GROUP, "g"),
            acl(2, "alice", DELETE, GROUP, "g"),
            acl(3, "alice", READ, TOPIC, "t"),
            acl(4, "bob", READ, GROUP, "g"),
        )
        await commit_codes(broker, 9, ("t", T, [0]), user="alice")
        response = await delete_offsets(broker, ("u", [0]), ("t", [0]), user="alice")
        assert {topic.name: topic.partitions[0].error_code for topic in response.topics} == {
            "u": TOPIC_AUTHORIZATION_FAILED,
            "t": 0,
        }
        response = await delete_offsets(broker, ("t", [0]), user="bob")
        assert (response.error_code, response.topics) == (GROUP_AUTHORIZATION_FAILED, [])

    run(scenario, authorizes=True)


def test_groups_are_described_listed_and_deleted_with_authorization() -> None:
    async def scenario(brokers: OffsetsBrokers) -> None:
        broker = brokers[1]
        brokers.append(
            acl(1, "alice", AclOperation.ALL, GROUP, "*"),
            acl(2, "alice", READ, TOPIC, "t"),
            acl(3, "bob", DESCRIBE, GROUP, "g"),
            acl(4, "carol", DESCRIBE, CLUSTER, "kafka-cluster"),
        )
        for group in ("g", "h"):
            await commit_codes(broker, 9, ("t", T, [0]), user="alice", group=group)
        listed = {}
        for user in ("alice", "bob", "carol", "dave"):
            answer = await broker.ask(
                LIST_GROUPS, ListGroupsRequestData(), ListGroupsResponseData, 5, user
            )
            listed[user] = {one.group_id for one in answer.groups}
        assert listed == {"alice": {"g", "h"}, "bob": {"g"}, "carol": {"g", "h"}, "dave": set()}

        described = await broker.ask(
            DESCRIBE_GROUPS,
            DescribeGroupsRequestData(["g", "h"], include_authorized_operations=True),
            DescribeGroupsResponseData,
            6,
            "bob",
        )
        # The denied groups come first, as in Kafka.
        assert [(one.group_id, one.error_code) for one in described.groups] == [
            ("h", GROUP_AUTHORIZATION_FAILED),
            ("g", 0),
        ]
        assert described.groups[1].authorized_operations == 1 << DESCRIBE

        request = DeleteGroupsRequestData(["g", "h"])
        results = {}
        for user in ("bob", "alice"):
            response = await broker.ask(DELETE_GROUPS, request, DeleteGroupsResponseData, 2, user)
            results[user] = [one.error_code for one in response.results]
        assert results == {"bob": [GROUP_AUTHORIZATION_FAILED] * 2, "alice": [0, 0]}

    run(scenario, authorizes=True)
