"""The controller's APIs over a node's listener in all versions, envelopes, and followers."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft._core.codec.metadata_codec import Message
from kraft.errors import (
    INVALID_REQUEST,
    NOT_CONTROLLER,
    PRINCIPAL_DESERIALIZATION_FAILURE,
    UNSUPPORTED_VERSION,
)
from kraft.image.configs import TOPIC
from kraft.metadata.identifiers import random_uuid
from kraft.protocol.allocate_producer_ids import (
    ALLOCATE_PRODUCER_IDS,
    AllocateProducerIdsRequestData,
    AllocateProducerIdsResponseData,
)
from kraft.protocol.alter_client_quotas import (
    ALTER_CLIENT_QUOTAS,
    AlterClientQuotasRequestData,
    AlterClientQuotasResponseData,
    QuotaEntity,
    QuotaEntry,
    QuotaOp,
)
from kraft.protocol.alter_configs import (
    ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsRequestData,
    AlterConfigsResource,
    AlterConfigsResponseData,
)
from kraft.protocol.alter_partition import (
    ALTER_PARTITION,
    AlterPartitionRequestData,
    AlterPartitionResponseData,
    IsrMember,
    IsrPartition,
    IsrTopic,
)
from kraft.protocol.alter_partition_reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequestData,
    AlterPartitionReassignmentsResponseData,
    ReassignablePartition,
    ReassignableTopic,
)
from kraft.protocol.apis import RPC_BY_KEY
from kraft.protocol.assign_replicas_to_dirs import (
    ASSIGN_REPLICAS_TO_DIRS,
    AssignReplicasToDirsRequestData,
    AssignReplicasToDirsResponseData,
    DirectoryPartition,
    DirectoryReplicas,
    DirectoryTopic,
)
from kraft.protocol.broker_heartbeat import (
    BROKER_HEARTBEAT,
)
from kraft.protocol.broker_registration import (
    BROKER_REGISTRATION,
)
from kraft.protocol.common import AdvertisedListener, SupportedFeatureRange
from kraft.protocol.controller_registration import (
    CONTROLLER_REGISTRATION,
    ControllerRegistrationRequestData,
    ControllerRegistrationResponseData,
)
from kraft.protocol.create_partitions import (
    CREATE_PARTITIONS,
    CreatePartitionsAssignment,
    CreatePartitionsRequestData,
    CreatePartitionsResponseData,
    CreatePartitionsTopic,
)
from kraft.protocol.create_topics import (
    CREATE_TOPICS,
    CreatableAssignment,
    CreatableConfig,
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
from kraft.protocol.describe_quorum import (
    DESCRIBE_QUORUM,
    DescribePartition,
    DescribeQuorumRequestData,
    DescribeQuorumResponseData,
    DescribeTopic,
)
from kraft.protocol.elect_leaders import (
    ELECT_LEADERS,
    ElectLeadersRequestData,
    ElectLeadersResponseData,
    ElectLeadersTopic,
)
from kraft.protocol.envelope import ENVELOPE, EnvelopeRequestData, EnvelopeResponseData
from kraft.protocol.headers import Api
from kraft.protocol.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    IncrementalAlterConfigsRequestData,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponseData,
    IncrementalConfig,
)
from kraft.protocol.list_partition_reassignments import (
    LIST_PARTITION_REASSIGNMENTS,
    ListPartitionReassignmentsRequestData,
    ListPartitionReassignmentsResponseData,
    ListReassignmentsTopic,
)
from kraft.protocol.raft_voter import RaftVoterResponseData
from kraft.protocol.remove_raft_voter import REMOVE_RAFT_VOTER, RemoveRaftVoterRequestData
from kraft.protocol.unregister_broker import (
    UNREGISTER_BROKER,
    UnregisterBrokerRequestData,
    UnregisterBrokerResponseData,
)
from kraft.protocol.update_features import (
    UPDATE_FEATURES,
    FeatureUpdateData,
    UpdateFeaturesRequestData,
    UpdateFeaturesResponseData,
)
from kraft.records import ZERO_UUID
from tests.harness.controller_nodes import Quorum, RunScenario
from tests.harness.listener_client import ask, ask_bytes, forward
from tests.unit.server.apis.broker_requests import beat, brokers, create, leader, register

TOPIC_EXISTS = 36
TOPIC_DELETION_DISABLED = 73
STALE_BROKER_EPOCH = 77
BROKER_ID_NOT_REGISTERED = 102
INCONSISTENT_CLUSTER_ID = 104


def versions(api: Api) -> range:
    return range(api.lowest, api.highest + 1)


def test_brokers_register_and_beat_in_every_version(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path)

    async def scenario() -> None:
        await quorum.start()
        node = await leader(quorum)
        # Below version 2 a broker names no directories, which this metadata.version requires.
        for version in range(2, 5):
            registered = await register(node, version, version)
            assert registered.error_code == 0
            for beat_version in versions(BROKER_HEARTBEAT):
                reply = await beat(node, version, registered.broker_epoch, beat_version)
                assert (reply.error_code, reply.is_fenced) == (0, False)
        assert (await register(node, 9, 0)).error_code != 0
        wrong = await register(node, 9, cluster_id="another")
        assert wrong.error_code == INCONSISTENT_CLUSTER_ID
        unknown = await beat(node, 9, 1)
        assert unknown.error_code == STALE_BROKER_EPOCH
        removal = UnregisterBrokerRequestData(2)
        for error in (0, BROKER_ID_NOT_REGISTERED):
            removed = await ask(node, UNREGISTER_BROKER, 0, removal, UnregisterBrokerResponseData)
            assert removed.error_code == error
        assert set(quorum.cluster(1).state.brokers) == {3, 4}

    run_scenario(scenario, quorum)


def test_topics_are_created_extended_and_deleted_in_every_version(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path)

    async def scenario() -> None:
        await quorum.start()
        node = await leader(quorum)
        await brokers(node, 1, 2, 3)
        for version in versions(CREATE_TOPICS):
            name = f"created-{version}"
            topic = CreatableTopic(name, 2, 3, configs=[CreatableConfig("retention.ms", "9")])
            checked = await create(node, topic, version=version, validate_only=True)
            made = await create(node, topic, version=version)
            again = await create(node, topic, version=version)
            assert [each.topics[0].error_code for each in (checked, made, again)] == [
                0,
                0,
                TOPIC_EXISTS,
            ]
            assert again.topics[0].error_message == f"Topic '{name}' already exists."
            if version >= 5:
                assert made.topics[0].num_partitions == 2
                assert made.topics[0].replication_factor == 3
        placed = CreatableTopic("placed", -1, -1, [CreatableAssignment(0, [2, 1])])
        assert (await create(node, placed)).topics[0].error_code == 0
        for version in versions(CREATE_PARTITIONS):
            topic_name = f"created-{version + 2}"
            request = CreatePartitionsRequestData(
                [
                    CreatePartitionsTopic(topic_name, 3, [CreatePartitionsAssignment([3, 2, 1])]),
                    CreatePartitionsTopic("missing", 3),
                ],
                30_000,
            )
            grown = await ask(
                node, CREATE_PARTITIONS, version, request, CreatePartitionsResponseData
            )
            assert {each.name: each.error_code for each in grown.results} == {
                topic_name: 0,
                "missing": 3,
            }
        table = quorum.cluster(1).table
        assert len(table.topic_rows(table.topic_number("created-2"))) == 3
        for version in versions(DELETE_TOPICS):
            name = f"created-{version + 1}" if version > 1 else "placed"
            request_to_delete = (
                DeleteTopicsRequestData([DeleteTopicState(name)], timeout_ms=30_000)
                if version >= 6
                else DeleteTopicsRequestData(topic_names=[name, "missing"], timeout_ms=30_000)
            )
            deleted = await ask(
                node, DELETE_TOPICS, version, request_to_delete, DeleteTopicsResponseData
            )
            errors = {each.name: each.error_code for each in deleted.responses}
            assert errors == ({name: 0} if version >= 6 else {name: 0, "missing": 3})
        remaining = {table.topic_name(number) for number in table.topic_numbers()}
        assert remaining == {"created-2"}

    run_scenario(scenario, quorum)


def test_disabled_deletion_is_an_invalid_request_before_version_3(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path, settings={"delete.topic.enable": "false"})

    async def scenario() -> None:
        await quorum.start()
        node = await leader(quorum)
        for version in versions(DELETE_TOPICS):
            request = (
                DeleteTopicsRequestData([DeleteTopicState("t")], timeout_ms=30_000)
                if version >= 6
                else DeleteTopicsRequestData(topic_names=["t"], timeout_ms=30_000)
            )
            deleted = await ask(node, DELETE_TOPICS, version, request, DeleteTopicsResponseData)
            expected = TOPIC_DELETION_DISABLED if version >= 3 else INVALID_REQUEST
            assert [each.error_code for each in deleted.responses] == [expected]

    run_scenario(scenario, quorum)


def test_leaders_and_replicas_change_through_the_listener(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path)

    async def scenario() -> None:
        await quorum.start()
        node = await leader(quorum)
        epochs = await brokers(node, 1, 2, 3)
        made = await create(node, CreatableTopic("a", -1, -1, [CreatableAssignment(0, [1, 2])]))
        topic_id = made.topics[0].topic_id
        for version in versions(ALTER_PARTITION):
            partition = IsrPartition(0, 0, partition_epoch=version - 2)
            member = IsrMember(1, epochs[1]) if version == 2 else IsrMember(2, epochs[2])
            if version == 2:
                partition.new_isr = [1]
            else:
                partition.new_isr_with_epochs = [IsrMember(1, epochs[1]), member]
            request = AlterPartitionRequestData(1, epochs[1], [IsrTopic(topic_id, [partition])])
            altered = await ask(node, ALTER_PARTITION, version, request, AlterPartitionResponseData)
            result = altered.topics[0].partitions[0]
            assert (altered.error_code, result.error_code) == (0, 0)
            assert result.isr == ([1] if version == 2 else [1, 2])
        for topics, error in (([IsrTopic(topic_id, [partition])], STALE_BROKER_EPOCH), ([], 0)):
            stale = AlterPartitionRequestData(1, epochs[1] + 1, topics)
            altered = await ask(node, ALTER_PARTITION, 3, stale, AlterPartitionResponseData)
            assert (altered.error_code, altered.topics) == (error, [])
        for version in versions(ELECT_LEADERS):
            elect = ElectLeadersRequestData(topic_partitions=[ElectLeadersTopic("a", [0, 5])])
            elected = await ask(node, ELECT_LEADERS, version, elect, ElectLeadersResponseData)
            results = elected.replica_election_results[0].partition_result
            assert {each.partition_id: each.error_code for each in results} == {0: 84, 5: 3}
            assert all("a-" in (each.error_message or "") for each in results)
        wrong = ElectLeadersRequestData(2, [ElectLeadersTopic("a", [0])])
        elected = await ask(node, ELECT_LEADERS, 2, wrong, ElectLeadersResponseData)
        assert elected.error_code == INVALID_REQUEST
        move = ReassignableTopic(
            "a", [ReassignablePartition(0, [3, 2]), ReassignablePartition(7, [3])]
        )
        for version in versions(ALTER_PARTITION_REASSIGNMENTS):
            moving = await ask(
                node,
                ALTER_PARTITION_REASSIGNMENTS,
                version,
                AlterPartitionReassignmentsRequestData(topics=[move]),
                AlterPartitionReassignmentsResponseData,
            )
            moved = moving.responses[0].partitions
            assert {each.partition_index: each.error_code for each in moved} == {0: 0, 7: 3}
        for topics in (None, [ListReassignmentsTopic("a", [0])]):
            listed = await ask(
                node,
                LIST_PARTITION_REASSIGNMENTS,
                0,
                ListPartitionReassignmentsRequestData(topics=topics),
                ListPartitionReassignmentsResponseData,
            )
            ongoing = listed.topics[0].partitions[0]
            assert (ongoing.adding_replicas, ongoing.removing_replicas) == ([3], [1])
        directory = next(iter(quorum.cluster(1).state.brokers[2].log_dirs))
        assign = AssignReplicasToDirsRequestData(
            2,
            epochs[2],
            [
                DirectoryReplicas(
                    directory,
                    [
                        DirectoryTopic(topic_id, [DirectoryPartition(0)]),
                        DirectoryTopic(random_uuid(), [DirectoryPartition(1)]),
                    ],
                )
            ],
        )
        assigned = await ask(
            node, ASSIGN_REPLICAS_TO_DIRS, 0, assign, AssignReplicasToDirsResponseData
        )
        known, unknown = assigned.directories[0].topics
        assert [known.partitions[0].error_code, unknown.partitions[0].error_code] == [0, 100]
        ids = AllocateProducerIdsRequestData(3, epochs[3])
        block = await ask(node, ALLOCATE_PRODUCER_IDS, 0, ids, AllocateProducerIdsResponseData)
        assert (block.error_code, block.producer_id_start, block.producer_id_len) == (0, 0, 1000)

    run_scenario(scenario, quorum)


def test_configurations_quotas_and_features_change_through_the_listener(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path)

    async def scenario() -> None:
        await quorum.start()
        node = await leader(quorum)
        await brokers(node, 1)
        await create(node, CreatableTopic("a", 1, 1))
        state = quorum.cluster(1).state
        for version in versions(INCREMENTAL_ALTER_CONFIGS):
            change = IncrementalConfig("retention.ms", 0, str(version))
            request = IncrementalAlterConfigsRequestData(
                [
                    IncrementalAlterConfigsResource(TOPIC, "a", [change]),
                    IncrementalAlterConfigsResource(TOPIC, "missing", [change]),
                    IncrementalAlterConfigsResource(99, "a", [change]),
                ]
            )
            altered = await ask(
                node,
                INCREMENTAL_ALTER_CONFIGS,
                version,
                request,
                IncrementalAlterConfigsResponseData,
            )
            errors = {
                (each.resource_type, each.resource_name): each.error_code
                for each in altered.responses
            }
            assert errors == {(2, "a"): 0, (2, "missing"): 3, (99, "a"): UNSUPPORTED_VERSION}
            assert state.configs[TOPIC, "a"] == {"retention.ms": str(version)}
        for version in versions(ALTER_CONFIGS):
            replace = AlterConfigsRequestData(
                [
                    AlterConfigsResource(
                        TOPIC, "a", [AlterableConfig("segment.ms", str(version + 1))]
                    )
                ]
            )
            replaced = await ask(node, ALTER_CONFIGS, version, replace, AlterConfigsResponseData)
            assert replaced.responses[0].error_code == 0
            assert state.configs[TOPIC, "a"] == {"segment.ms": str(version + 1)}
        entity = [QuotaEntity("user", "alice"), QuotaEntity("client-id", None)]
        for version in versions(ALTER_CLIENT_QUOTAS):
            limit = QuotaOp("producer_byte_rate", 1000.0 + version, remove=False)
            limits = AlterClientQuotasRequestData(
                [QuotaEntry(entity, [limit]), QuotaEntry([QuotaEntity("nobody", "x")], [limit])]
            )
            limited = await ask(
                node, ALTER_CLIENT_QUOTAS, version, limits, AlterClientQuotasResponseData
            )
            assert sorted(each.error_code for each in limited.entries) == [0, INVALID_REQUEST]
        assert list(state.client_quotas.values()) == [{"producer_byte_rate": 1001.0}]
        for version in versions(UPDATE_FEATURES):
            lower = FeatureUpdateData("group.version", 0, upgrade_type=2 if version else 1)
            lower.allow_downgrade = version == 0
            updated = await ask(
                node,
                UPDATE_FEATURES,
                version,
                UpdateFeaturesRequestData(feature_updates=[lower]),
                UpdateFeaturesResponseData,
            )
            assert updated.error_code == 0
            assert len(updated.results) == (1 if version <= 1 else 0)
        unknown = UpdateFeaturesRequestData(feature_updates=[FeatureUpdateData("no.such", 1)])
        updated = await ask(node, UPDATE_FEATURES, 2, unknown, UpdateFeaturesResponseData)
        assert updated.error_code == 95
        # The text that Kafka's controller answers and its tools print.
        assert updated.error_message == (
            "The update failed for all features since the following feature had an error: "
            "Invalid update version 1 for feature no.such. "
            "Local controller 1 does not support this feature."
        )
        controller = ControllerRegistrationRequestData(
            1,
            random_uuid(),
            listeners=[AdvertisedListener("CONTROLLER", "127.0.0.1", 9093, 0)],
            features=[SupportedFeatureRange("metadata.version", 7, 30)],
        )
        registered = await ask(
            node, CONTROLLER_REGISTRATION, 0, controller, ControllerRegistrationResponseData
        )
        assert registered.error_code == 0
        assert 1 in state.controllers

    run_scenario(scenario, quorum)


def test_a_node_that_follows_answers_not_controller(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path, 2)

    async def scenario() -> None:
        await quorum.start()
        active = await quorum.active()
        follower = next(node for id, node in quorum.running.items() if id != active)
        assert (await register(follower)).error_code == NOT_CONTROLLER
        assert (await beat(follower, 1, 1)).error_code == NOT_CONTROLLER
        made = await create(follower, CreatableTopic("a", 1, 1), CreatableTopic("b", 1, 1))
        assert [each.error_code for each in made.topics] == [NOT_CONTROLLER] * 2
        request = CreateTopicsRequestData([CreatableTopic("a", 1, 1)])
        # The broker finds the leader by the envelope's error.
        found = await forward(follower, CREATE_TOPICS, 7, request, CreateTopicsResponseData)
        assert found == NOT_CONTROLLER

    run_scenario(scenario, quorum)


def test_a_forwarded_request_is_answered_in_its_envelope(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path)

    async def scenario() -> None:
        await quorum.start()
        node = await leader(quorum)
        await brokers(node, 1)
        for version in versions(CREATE_TOPICS):
            request = CreateTopicsRequestData([CreatableTopic(f"a{version}", 1, 1)])
            made = await forward(node, CREATE_TOPICS, version, request, CreateTopicsResponseData)
            assert isinstance(made, CreateTopicsResponseData)
            assert made.topics[0].error_code == 0
        about = DescribeQuorumRequestData(
            [DescribeTopic("__cluster_metadata", [DescribePartition(0)])]
        )
        for version in versions(DESCRIBE_QUORUM):
            described = await forward(
                node, DESCRIBE_QUORUM, version, about, DescribeQuorumResponseData
            )
            assert isinstance(described, DescribeQuorumResponseData)
            assert described.topics[0].partitions[0].leader_id == 1
            # Kafka writes empty messages, not null (its DescribeQuorumRequestTest).
            message = "" if version >= 2 else None
            assert described.error_message == message
            assert described.topics[0].partitions[0].error_message == message

    run_scenario(scenario, quorum)


def test_a_forwarded_change_of_voters_is_answered(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path)

    async def scenario() -> None:
        await quorum.start()
        node = await leader(quorum)
        request = RemoveRaftVoterRequestData("other", 9, random_uuid())
        removed = await forward(node, REMOVE_RAFT_VOTER, 0, request, RaftVoterResponseData)
        assert isinstance(removed, RaftVoterResponseData)
        assert removed.error_code == INCONSISTENT_CLUSTER_ID

    run_scenario(scenario, quorum)


def bad_envelope(**fields: bytes | None) -> EnvelopeRequestData:
    whole = EnvelopeRequestData(
        b"\0\x13\0\7\0\0\0\1\0\0\0" + CreateTopicsRequestData().encode(7),
        b"\0\0\5User\2a\0\0",
        b"\x7f\0\0\1",
    )
    for name, value in fields.items():
        setattr(whole, name, value)
    return whole


@pytest.mark.parametrize(
    ("envelope", "error"),
    [
        (bad_envelope(client_host_address=b"123"), INVALID_REQUEST),
        (bad_envelope(request_principal=None), PRINCIPAL_DESERIALIZATION_FAILURE),
        (bad_envelope(request_principal=b"\0\1"), PRINCIPAL_DESERIALIZATION_FAILURE),
        (bad_envelope(request_data=b"\0"), UNSUPPORTED_VERSION),
        # BrokerHeartbeat may not be forwarded; controllers do not know Produce.
        (bad_envelope(request_data=b"\0\x3f\0\0\0\0\0\1\0\0\0"), INVALID_REQUEST),
        (bad_envelope(request_data=b"\0\0\0\x09\0\0\0\1\0\0\0"), INVALID_REQUEST),
        # CreateTopics in a version that does not exist, and with a body that ends early.
        (bad_envelope(request_data=b"\0\x13\0\x63\0\0\0\1\0\0\0"), UNSUPPORTED_VERSION),
        (bad_envelope(request_data=b"\0\x13\0\7\0\0\0\1\0\0\0\5"), UNSUPPORTED_VERSION),
    ],
)
def test_a_bad_envelope_has_an_error(
    envelope: EnvelopeRequestData, error: int, run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path)

    async def scenario() -> None:
        await quorum.start()
        node = await leader(quorum)
        response = await ask(node, ENVELOPE, 0, envelope, EnvelopeResponseData)
        assert (response.error_code, response.response_data) == (error, None)

    run_scenario(scenario, quorum)


@pytest.mark.parametrize(
    "key", [19, 20, 33, 37, 43, 44, 45, 46, 49, 56, 57, 58, 62, 63, 64, 67, 70, 73]
)
def test_a_malformed_request_closes_the_connection(
    key: int, run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path)

    async def scenario() -> None:
        await quorum.start()
        node = await leader(quorum)
        api = node.transport.listener.apis[key]
        body = b"\xff" * 9
        frame = key.to_bytes(2) + api.highest.to_bytes(2) + b"\0\0\0\1\xff\xff\0" + body
        assert await ask_bytes(node, len(frame).to_bytes(4) + frame) == b""
        made = await create(node, CreatableTopic("a", 1, 1))
        assert made.topics[0].topic_id == ZERO_UUID
        assert made.topics[0].error_code == 38

    run_scenario(scenario, quorum)


def test_heartbeats_and_registrations_never_wait_behind_other_requests(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path)

    async def scenario() -> None:
        await quorum.start()
        handlers = (await leader(quorum)).transport.listener.handlers
        urgent = {key for key, handler in handlers.items() if handler.keeps_alive}
        assert urgent == {
            BROKER_REGISTRATION.key,
            BROKER_HEARTBEAT.key,
            CONTROLLER_REGISTRATION.key,
        }

    run_scenario(scenario, quorum)


def test_every_served_api_has_a_message(tmp_path: Path, run_scenario: RunScenario) -> None:
    quorum = Quorum(tmp_path)

    async def scenario() -> None:
        await quorum.start()
        node = await leader(quorum)
        for key, api in node.transport.listener.apis.items():
            assert RPC_BY_KEY[key].api == api
            request = RPC_BY_KEY[key].request
            assert request is None or issubclass(request, Message)

    run_scenario(scenario, quorum)
