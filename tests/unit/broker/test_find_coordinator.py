"""FindCoordinator by its bytes: brokers, keys, authorization, creation of the topic."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kraft import records
from kraft._core.codec.message_schema import Uuid
from kraft.errors import (
    CLUSTER_AUTHORIZATION_FAILED,
    COORDINATOR_NOT_AVAILABLE,
    GROUP_AUTHORIZATION_FAILED,
    INVALID_REPLICATION_FACTOR,
    INVALID_REQUEST,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    RequestTimedOutError,
)
from kraft.image.security import AclOperation, ResourceType
from kraft.protocol.create_topics import (
    CreatableConfig,
    CreatableTopic,
    CreateTopicsRequestData,
)
from kraft.protocol.find_coordinator import (
    FIND_COORDINATOR,
    CoordinatorData,
    FindCoordinatorRequestData,
    FindCoordinatorResponseData,
)
from tests.unit.broker.offsets_brokers import OFFSETS_ID, OffsetsBroker, OffsetsBrokers, acl

VERSIONS = range(FIND_COORDINATOR.highest + 1)
TRANSACTION, SHARE = 1, 2
MESSAGES = {
    0: "NONE",
    COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
}


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 30))


async def find(
    broker: OffsetsBroker, version: int, key: str = "g", kind: int = 0, user: str | None = None
) -> CoordinatorData:
    """Find one coordinator; return it in the form of the versions with several keys."""
    request = FindCoordinatorRequestData(key, kind)
    if version >= 4:
        request = FindCoordinatorRequestData(key_type=kind, coordinator_keys=[key])
    response = await broker.ask(
        FIND_COORDINATOR, request, FindCoordinatorResponseData, version, user
    )
    if version >= 4:
        (found,) = response.coordinators
        assert found.key == key
        return found
    if version >= 1 and response.error_code in MESSAGES:
        assert response.error_message == MESSAGES[response.error_code]
    return CoordinatorData(
        *(key, response.node_id, response.host, response.port, response.error_code),
        response.error_message,
    )


def place(found: CoordinatorData) -> tuple[int, int, str, int]:
    return found.error_code, found.node_id, found.host, found.port


NOWHERE = (COORDINATOR_NOT_AVAILABLE, -1, "", -1)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_coordinator_is_the_leader(version: int) -> None:
    async def scenario() -> None:
        brokers = OffsetsBrokers(1, 2)
        await brokers.create_offsets_topic(1)
        assert place(await find(brokers[2], version)) == (0, 1, "host-1", 9001)
        await brokers.lead(2)
        assert place(await find(brokers[1], version)) == (0, 2, "host-2", 9002)
        brokers.change(leader=-1)
        assert place(await find(brokers[1], version)) == NOWHERE
        brokers.close()

    run(scenario)


def test_a_fenced_leader_and_one_without_the_listener_are_not_available() -> None:
    async def scenario() -> None:
        brokers = OffsetsBrokers(1, 2)
        await brokers.create_offsets_topic(1)
        brokers.append(records.BrokerRegistrationChange(broker_id=1, broker_epoch=1, fenced=1))
        assert place(await find(brokers[2], 6)) == NOWHERE
        brokers.append(records.BrokerRegistrationChange(broker_id=1, broker_epoch=1, fenced=-1))
        assert place(await find(brokers[2], 6)) == (0, 1, "host-1", 9001)
        brokers.append(
            records.RegisterBroker(
                broker_id=1, broker_epoch=1, incarnation_id=Uuid(b"1" * 16), fenced=False
            )
        )
        assert place(await find(brokers[2], 6)) == NOWHERE
        brokers.close()

    run(scenario)


def test_several_keys_have_an_answer_each() -> None:
    async def scenario() -> None:
        brokers = OffsetsBrokers(1, 2)
        await brokers.create_offsets_topic(1)
        moved = brokers[1].groups.partition_of("b")
        assert brokers[1].groups.partition_of("a") != moved
        brokers.append(records.PartitionChange(partition_id=moved, topic_id=OFFSETS_ID, leader=2))
        request = FindCoordinatorRequestData(key_type=0, coordinator_keys=["a", "b"])
        response = await brokers[1].ask(FIND_COORDINATOR, request, FindCoordinatorResponseData, 6)
        assert [(one.key, one.node_id) for one in response.coordinators] == [("a", 1), ("b", 2)]
        brokers.close()

    run(scenario)


@pytest.mark.parametrize("version", [1, 3, 4, 6])
def test_kinds_without_a_coordinator(version: int) -> None:
    async def scenario() -> None:
        brokers = OffsetsBrokers(1)
        for kind, text in ((TRANSACTION, "transactions"), (SHARE, "share groups")):
            found = await find(brokers[1], version, kind=kind)
            assert place(found) == (INVALID_REQUEST, -1, "", -1)
            assert found.error_message == f"This broker does not support {text}."
        assert (await find(brokers[1], version, kind=7)).error_code == INVALID_REQUEST
        brokers.close()

    run(scenario)


@pytest.mark.parametrize("version", [0, 1, 4, 6])
def test_clients_need_describe(version: int) -> None:
    async def scenario() -> None:
        brokers = OffsetsBrokers(1, authorizes=True)
        await brokers.create_offsets_topic(1)
        brokers.append(
            acl(1, "alice", AclOperation.DESCRIBE, ResourceType.GROUP, "g"),
            acl(2, "alice", AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "g"),
            acl(3, "root", AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster"),
        )

        async def code(user: str, kind: int = 0) -> int:
            return (await find(brokers[1], version, kind=kind, user=user)).error_code

        assert await code("alice") == 0
        assert await code("bob") == GROUP_AUTHORIZATION_FAILED
        if version >= 1:
            assert await code("alice", TRANSACTION) == INVALID_REQUEST
            assert await code("bob", TRANSACTION) == TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            assert await code("root", SHARE) == INVALID_REQUEST
            denied = CLUSTER_AUTHORIZATION_FAILED if version >= 6 else INVALID_REQUEST
            assert await code("bob", SHARE) == denied
        brokers.close()

    run(scenario)


def test_the_topic_is_created_once_at_a_time(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        brokers = OffsetsBrokers(
            1,
            offsets_topic_num_partitions=7,
            offsets_topic_replication_factor=2,
            offsets_topic_segment_bytes=1_000_000,
        )
        broker = brokers[1]
        controller = broker.controller
        controller.code = INVALID_REPLICATION_FACTOR
        for _ in range(3):
            assert place(await find(broker, 6)) == NOWHERE
            await asyncio.sleep(0)
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": "1000000",
        }
        topic = CreatableTopic(
            "__consumer_offsets",
            *(7, 2),
            configs=[CreatableConfig(*each) for each in configs.items()],
        )
        assert controller.requests == [CreateTopicsRequestData([topic], timeout_ms=30_000)]
        controller.answer.set()
        while "INVALID_REPLICATION_FACTOR" not in caplog.text:
            await asyncio.sleep(0)
        # The creation has failed: the next client causes another one.
        while len(controller.requests) < 2:
            assert place(await find(broker, 0)) == NOWHERE
            await asyncio.sleep(0)
        await brokers.create_offsets_topic(1)
        assert place(await find(broker, 0)) == (0, 1, "host-1", 9001)
        brokers.close()

    run(scenario)


def test_a_controller_that_does_not_answer_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        brokers = OffsetsBrokers(1)
        broker = brokers[1]

        async def call(*_: Any, **__: Any) -> None:
            raise RequestTimedOutError("the quorum has no leader")

        monkeypatch.setattr(broker.controller, "call", call)
        await find(broker, 6)
        while "the quorum has no leader" not in caplog.text:
            await asyncio.sleep(0)
        monkeypatch.undo()
        while not broker.controller.requests:
            await find(broker, 6)
            await asyncio.sleep(0)
        assert broker.controller.waiting == 1
        brokers.close()
        await asyncio.sleep(0)
        assert broker.controller.waiting == 0

    run(scenario)
