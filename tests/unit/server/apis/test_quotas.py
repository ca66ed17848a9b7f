"""Quotas of clients over a node's listener: strict, permissive, forwarded."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kraft.errors import THROTTLING_QUOTA_EXCEEDED
from kraft.protocol.alter_client_quotas import (
    ALTER_CLIENT_QUOTAS,
    AlterClientQuotasRequestData,
    AlterClientQuotasResponseData,
    QuotaEntity,
    QuotaEntry,
    QuotaOp,
)
from kraft.protocol.create_partitions import (
    CREATE_PARTITIONS,
    CreatePartitionsRequestData,
    CreatePartitionsResponseData,
    CreatePartitionsTopic,
)
from kraft.protocol.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreateTopicsRequestData,
    CreateTopicsResponseData,
)
from kraft.protocol.delete_topics import (
    DELETE_TOPICS,
    DeleteTopicsRequestData,
    DeleteTopicsResponseData,
    DeleteTopicState,
)
from kraft.security.principals import KafkaPrincipal
from kraft.server.process import QuorumNode
from tests.harness.controller_nodes import Quorum, RunScenario, until
from tests.harness.listener_client import ask, forward
from tests.unit.server.apis.broker_requests import brokers, leader

# A bucket of one token, refilled in an hour.
SLOW = {"controller.quota.window.num": "1", "controller.quota.window.size.seconds": "3600"}
ONE_AN_HOUR = 1 / 3600


async def set_quota(node: QuorumNode, key: str, value: float, **entity: str | None) -> None:
    parts = [QuotaEntity(kind.replace("_", "-"), name) for kind, name in entity.items()]
    request = AlterClientQuotasRequestData([QuotaEntry(parts, [QuotaOp(key, value)])])
    answer = await ask(node, ALTER_CLIENT_QUOTAS, 1, request, AlterClientQuotasResponseData)
    assert answer.entries[0].error_code == 0
    assert node.controller is not None
    images = node.controller.publishing.images
    await until(lambda: images.image is not None and len(images.image.state.client_quotas))


def new_topics(*names: str) -> CreateTopicsRequestData:
    return CreateTopicsRequestData([CreatableTopic(name, 2, 1) for name in names])


def test_the_mutation_quota_of_a_user_rejects_or_delays_by_version(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path, settings=SLOW)

    async def scenario() -> None:
        await quorum.start()
        node = await leader(quorum)
        await brokers(node, 1)
        await set_quota(node, "controller_mutation_rate", ONE_AN_HOUR, user="ANONYMOUS")
        made = await ask(node, CREATE_TOPICS, 7, new_topics("a", "b"), CreateTopicsResponseData)
        # The first topic exhausts the bucket, but all of its partitions are created.
        assert {topic.name: topic.error_code for topic in made.topics} == {
            "a": 0,
            "b": THROTTLING_QUOTA_EXCEEDED,
        }
        assert 3_500_000 < made.throttle_time_ms <= 3_600_000
        late = await ask(node, CREATE_TOPICS, 5, new_topics("c"), CreateTopicsResponseData)
        assert [topic.error_code for topic in late.topics] == [0]
        assert late.throttle_time_ms > 3_600_000
        for version, count, error in ((2, 3, 0), (3, 4, THROTTLING_QUOTA_EXCEEDED)):
            more = CreatePartitionsRequestData([CreatePartitionsTopic("a", count)], 30_000)
            grown = await ask(node, CREATE_PARTITIONS, version, more, CreatePartitionsResponseData)
            assert [each.error_code for each in grown.results] == [error]
            assert grown.throttle_time_ms > 3_600_000
        by_name = DeleteTopicsRequestData(topic_names=["c"], timeout_ms=30_000)
        for version, error in ((5, THROTTLING_QUOTA_EXCEEDED), (4, 0)):
            deleted = await ask(node, DELETE_TOPICS, version, by_name, DeleteTopicsResponseData)
            assert [each.error_code for each in deleted.responses] == [error]
            assert deleted.throttle_time_ms > 3_600_000
        by_id = DeleteTopicsRequestData([DeleteTopicState("a")], timeout_ms=30_000)
        deleted = await ask(node, DELETE_TOPICS, 6, by_id, DeleteTopicsResponseData)
        assert [each.error_code for each in deleted.responses] == [THROTTLING_QUOTA_EXCEEDED]

    run_scenario(scenario, quorum)


def test_the_quota_of_a_forwarded_request_is_its_clients_and_mutes_no_broker(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path, settings=SLOW)

    async def scenario() -> None:
        await quorum.start()
        node = await leader(quorum)
        await brokers(node, 1)
        await set_quota(node, "controller_mutation_rate", ONE_AN_HOUR, user="alice")

        async def create(name: str, user: str) -> tuple[int, int]:
            answer = await forward(
                *(node, CREATE_TOPICS, 7, new_topics(name), CreateTopicsResponseData),
                KafkaPrincipal("User", user),
            )
            assert isinstance(answer, CreateTopicsResponseData)
            return answer.topics[0].error_code, answer.throttle_time_ms

        assert await create("a", "alice") == (0, 0)
        error, throttle_ms = await create("b", "alice")
        assert error == THROTTLING_QUOTA_EXCEEDED
        assert throttle_ms > 3_500_000
        assert await create("b", "bob") == (0, 0)
        assert not any(connection._unmute for connection in node.transport.listener.connections)

    run_scenario(scenario, quorum)


def test_a_request_quota_throttles_clients_but_no_cluster_action(
    run_scenario: RunScenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quorum = Quorum(tmp_path)

    async def scenario() -> None:
        await quorum.start()
        node = await leader(quorum)
        await set_quota(node, "request_percentage", 1e-9, user=None)
        # Heartbeats and registrations of the same principal are exempt.
        async with asyncio.timeout(30):
            await brokers(node, 1, 2, 3)
        made = await ask(node, CREATE_TOPICS, 7, new_topics("a"), CreateTopicsResponseData)
        assert made.topics[0].error_code == 0
        # The delay is at most one window (quota.window.size.seconds).
        assert made.throttle_time_ms == 1000

    run_scenario(scenario, quorum)
