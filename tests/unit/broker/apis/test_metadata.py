"""Metadata APIs of a broker's listener, and the topics that a Metadata request creates."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kraft.broker.apis.topic_creation import NewTopicSettings
from kraft.controller.quotas.limits import QuotaWindows
from kraft.errors import NONE, UNKNOWN_TOPIC_OR_PARTITION
from kraft.image.configs import TOPIC
from kraft.protocol.alter_client_quotas import (
    ALTER_CLIENT_QUOTAS,
    AlterClientQuotasRequestData,
    AlterClientQuotasResponseData,
    QuotaEntity,
    QuotaEntry,
    QuotaOp,
)
from kraft.protocol.create_acls import (
    CREATE_ACLS,
    AclCreation,
    CreateAclsRequestData,
    CreateAclsResponseData,
)
from kraft.protocol.create_topics import CreatableConfig, CreatableTopic
from kraft.protocol.describe_cluster import (
    DESCRIBE_CLUSTER,
    DescribeClusterRequestData,
    DescribeClusterResponseData,
)
from kraft.protocol.describe_topic_partitions import (
    DESCRIBE_TOPIC_PARTITIONS,
    DescribeTopicPartitionsRequestData,
    DescribeTopicPartitionsResponseData,
    TopicPartitionsCursor,
    TopicPartitionsRequestTopic,
)
from kraft.protocol.metadata import (
    METADATA,
    MetadataRequestData,
    MetadataRequestTopic,
    MetadataResponseData,
)
from kraft.security.principals import ANONYMOUS, KafkaPrincipal
from kraft.server.client_quotas import ClientQuotaState
from tests.harness.controller_nodes import RunScenario, hold_disk, topics, until
from tests.unit.broker.apis.admin_broker import AdminBroker, admin_quorum, started_broker

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
AUTHORIZED = {"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS"}
ALICE = KafkaPrincipal("User", "alice")
TOPIC_DENIED, INVALID_REQUEST = 29, 42
# Kafka's codes of patterns, operations and permissions.
LITERAL, CREATE, DESCRIBE, ALLOW = 3, 5, 8, 3


async def metadata(
    broker: AdminBroker,
    *names: str,
    version: int = 13,
    principal: KafkaPrincipal = ANONYMOUS,
    may_create: bool = True,
) -> dict[str | None, int]:
    """Return the errors of the topics."""
    request = MetadataRequestData(
        [MetadataRequestTopic(name=name) for name in names], may_create or version < 4
    )
    response = await broker.ask(METADATA, version, request, MetadataResponseData, principal)
    return {topic.name: topic.error_code for topic in response.topics}


def test_every_version_shows_brokers_and_topics(run_scenario: RunScenario, tmp_path: Path) -> None:
    quorum = admin_quorum(tmp_path)

    async def scenario() -> None:
        broker = await started_broker(quorum)
        await quorum.brokers(1)
        await quorum.create("a", 3)
        await broker.is_current()
        for version in range(METADATA.lowest, METADATA.highest + 1):
            request = MetadataRequestData([MetadataRequestTopic(name="a")])
            response = await broker.ask(METADATA, version, request, MetadataResponseData)
            assert [node.node_id for node in response.brokers] == [1]
            assert [len(topic.partitions) for topic in response.topics] == [3]
        cursor = TopicPartitionsCursor("a", 1)
        described = await broker.ask(
            DESCRIBE_TOPIC_PARTITIONS,
            0,
            DescribeTopicPartitionsRequestData([TopicPartitionsRequestTopic("a")], 1, cursor),
            DescribeTopicPartitionsResponseData,
        )
        (topic,) = described.topics
        assert [each.partition_index for each in topic.partitions] == [1]
        assert described.next_cursor == TopicPartitionsCursor("a", 2)
        for version in range(DESCRIBE_CLUSTER.lowest, DESCRIBE_CLUSTER.highest + 1):
            cluster = await broker.ask(
                DESCRIBE_CLUSTER, version, DescribeClusterRequestData(), DescribeClusterResponseData
            )
            assert [node.broker_id for node in cluster.brokers] == [1]
            assert cluster.controller_id == 1
        broker.close()

    run_scenario(scenario, quorum)


def test_a_rejected_request_has_the_error_at_its_topics(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = admin_quorum(tmp_path)

    async def scenario() -> None:
        broker = await started_broker(quorum)
        by_id = MetadataRequestData([MetadataRequestTopic(name=None)])
        response = await broker.ask(METADATA, 10, by_id, MetadataResponseData)
        assert [topic.error_code for topic in response.topics] == [INVALID_REQUEST]
        described = await broker.ask(
            DESCRIBE_TOPIC_PARTITIONS,
            0,
            DescribeTopicPartitionsRequestData(
                [TopicPartitionsRequestTopic("a")], 1, TopicPartitionsCursor("b", 0)
            ),
            DescribeTopicPartitionsResponseData,
        )
        assert [topic.error_code for topic in described.topics] == [INVALID_REQUEST]
        broker.close()

    run_scenario(scenario, quorum)


def test_describing_the_cluster_needs_no_permission(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    """On a controller's listener it needs ALTER on the cluster."""
    quorum = admin_quorum(tmp_path, settings=AUTHORIZED)

    async def scenario() -> None:
        broker = await started_broker(quorum)
        response = await broker.ask(
            DESCRIBE_CLUSTER,
            1,
            DescribeClusterRequestData(include_cluster_authorized_operations=True),
            DescribeClusterResponseData,
            ALICE,
        )
        assert (response.error_code, response.cluster_authorized_operations) == (NONE, 0)
        broker.close()

    run_scenario(scenario, quorum)


@pytest.mark.parametrize("version", [0, 3, 8, 12, 13])
def test_a_missing_topic_is_created(
    run_scenario: RunScenario, tmp_path: Path, version: int
) -> None:
    quorum = admin_quorum(tmp_path)

    async def scenario() -> None:
        await quorum.start()
        node = quorum.running[await quorum.active()]
        broker = AdminBroker(quorum, node, new_topics=NewTopicSettings(4, 2))
        await quorum.brokers(1, 2)
        await broker.is_current()
        assert await metadata(broker, "a", version=version) == {"a": UNKNOWN_TOPIC_OR_PARTITION}
        await until(lambda: not broker.creation.inflight)
        assert topics(quorum.cluster(1)) == {"a": 4}
        await broker.is_current()
        assert await metadata(broker, "a", version=version) == {"a": NONE}
        if version >= 4:
            assert await metadata(broker, "b", version=version, may_create=False) == {"b": 3}
            assert not broker.creation.inflight
        broker.close()

    run_scenario(scenario, quorum)


def test_a_topic_in_flight_is_not_created_again(run_scenario: RunScenario, tmp_path: Path) -> None:
    quorum = admin_quorum(tmp_path)

    async def scenario() -> None:
        broker = await started_broker(quorum)
        await quorum.brokers(1)
        await broker.is_current()
        envelopes = quorum.running[1].transport.listener.traffic.errors
        gate = hold_disk(quorum.running[1])
        try:
            for names in (("a",), ("a",), ("a", "b"), ("b", "a")):
                await metadata(broker, *names)
            assert broker.creation.inflight == {"a", "b"}
        finally:
            gate.set()
        await until(lambda: not broker.creation.inflight)
        assert topics(quorum.cluster(1)) == {"a": 1, "b": 1}
        assert envelopes["Envelope", NONE] == 2
        broker.close()

    run_scenario(scenario, quorum)


def test_the_client_needs_the_permission_to_create(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = admin_quorum(tmp_path, settings=AUTHORIZED)

    async def scenario() -> None:
        broker = await started_broker(quorum)
        await quorum.brokers(1)
        creations = [
            AclCreation(TOPIC, name, LITERAL, "User:alice", "*", operation, ALLOW)
            for name, operation in (("a", CREATE), ("a", DESCRIBE), ("b", DESCRIBE))
        ]
        await broker.ask(CREATE_ACLS, 3, CreateAclsRequestData(creations), CreateAclsResponseData)
        await broker.is_current()
        assert await metadata(broker, "a", "b", "c", principal=ALICE) == {
            "a": UNKNOWN_TOPIC_OR_PARTITION,
            "b": TOPIC_DENIED,
            "c": TOPIC_DENIED,
        }
        await until(lambda: not broker.creation.inflight)
        assert topics(quorum.cluster(1)) == {"a": 1}
        broker.close()

    run_scenario(scenario, quorum)


def test_a_failed_creation_is_logged_and_tried_again(
    run_scenario: RunScenario, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    quorum = admin_quorum(tmp_path)

    async def scenario() -> None:
        broker = await started_broker(quorum, forwarding_ms=200)
        await metadata(broker, "a")
        await until(lambda: not broker.creation.inflight)
        assert "INVALID_REPLICATION_FACTOR" in caplog.text
        await quorum.brokers(1)
        gate = hold_disk(quorum.running[1])
        try:
            await metadata(broker, "a")
            await until(lambda: not broker.creation.inflight)
        finally:
            gate.set()
        assert "no answer after 200 ms" in caplog.text
        await metadata(broker, "b")
        await until(lambda: not broker.creation.inflight)
        # The controller may have created what the broker did not wait for.
        assert topics(quorum.cluster(1)) == {"a": 1, "b": 1}
        broker.close()

    run_scenario(scenario, quorum)


def test_the_broker_itself_creates_the_topic_of_a_coordinator(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    offsets = "__consumer_offsets"
    configs = {"cleanup.policy": "compact", "segment.bytes": "104857600"}
    layout = CreatableTopic(
        offsets, 5, 1, configs=[CreatableConfig(*each) for each in configs.items()]
    )
    quorum = admin_quorum(tmp_path, settings=AUTHORIZED)

    async def scenario() -> None:
        await quorum.start()
        node = quorum.running[await quorum.active()]
        broker = AdminBroker(quorum, node, new_topics=NewTopicSettings(internal={offsets: layout}))
        await quorum.brokers(1)
        broker.creation.create([offsets])
        broker.creation.create([offsets])
        await until(lambda: not broker.creation.inflight)
        assert topics(quorum.cluster(1)) == {offsets: 5}
        assert quorum.cluster(1).state.configs.topic(offsets) == configs
        broker.close()

    run_scenario(scenario, quorum)


def test_a_request_quota_delays_answers_that_the_core_encodes(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = admin_quorum(tmp_path)

    async def scenario() -> None:
        await quorum.start()
        node = quorum.running[await quorum.active()]
        broker = AdminBroker(quorum, node, quotas=ClientQuotaState(QuotaWindows()))
        await broker.is_current()
        limit = QuotaEntry([QuotaEntity("user", "alice")], [QuotaOp("request_percentage", 0.00001)])
        await broker.ask(
            ALTER_CLIENT_QUOTAS,
            1,
            AlterClientQuotasRequestData([limit]),
            AlterClientQuotasResponseData,
        )
        await broker.is_current()
        for api, request, answer, version, has_field in (
            (METADATA, MetadataRequestData([]), MetadataResponseData, 13, True),
            (METADATA, MetadataRequestData([]), MetadataResponseData, 3, True),
            (METADATA, MetadataRequestData([]), MetadataResponseData, 2, False),
            (
                DESCRIBE_TOPIC_PARTITIONS,
                DescribeTopicPartitionsRequestData(),
                DescribeTopicPartitionsResponseData,
                0,
                True,
            ),
        ):
            body, throttle_ms = await broker.ask_bytes(api, version, request.encode(version), ALICE)
            response = answer.decode(body, version)
            assert throttle_ms > 0
            assert response.throttle_time_ms == (throttle_ms if has_field else 0)
            _, throttle_ms = await broker.ask_bytes(api, version, request.encode(version))
            assert throttle_ms == 0
        broker.close()

    run_scenario(scenario, quorum)


def test_closing_ends_the_creations(run_scenario: RunScenario, tmp_path: Path) -> None:
    quorum = admin_quorum(tmp_path)

    async def scenario() -> None:
        broker = await started_broker(quorum)
        gate = hold_disk(quorum.running[1])
        try:
            await metadata(broker, "a")
            broker.close()
            async with asyncio.timeout(5):
                await until(lambda: not broker.creation.inflight)
        finally:
            gate.set()

    run_scenario(scenario, quorum)
