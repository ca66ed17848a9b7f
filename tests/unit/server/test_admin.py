"""`kraft.admin` against controllers: each call, its results by item, leader changes, bad input."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from kraft import admin as k
from kraft.admin import AclFilter, BlockingAdmin, ConfigResourceType, QuorumRefusedError
from kraft.configdef import ConfigType
from kraft.errors import InvalidArgumentError, UnsupportedVersionError, error_name
from kraft.server.config.settings import AUTHORIZERS
from tests.harness.controller_nodes import Quorum, RunScenario, until
from tests.harness.plain_users import jaas_config
from tests.unit.server.served_quorum import ServedQuorum, on_a_quorum

R = TypeVar("R")
#: ACLs need an authorizer; the client is anonymous.
AUTHORIZED = {"authorizer.class.name": AUTHORIZERS[0], "super.users": "User:ANONYMOUS"}
TOPIC, BROKER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER


async def blocking(served: ServedQuorum, calls: Callable[[BlockingAdmin], R]) -> R:
    """Run calls of a blocking client in a thread."""

    def run() -> R:
        with k.connect_blocking(served.bootstrap) as admin:
            return calls(admin)

    return await asyncio.to_thread(run)


def names(results: k.ItemResults[object, object]) -> dict[object, str]:
    """Return the name of each item's error, NONE for a success."""
    return {
        item: "NONE" if each.error is None else error_name(each.error.kafka_code)
        for item, each in results.items()
    }


def test_topics(tmp_path: Path, run_scenario: RunScenario) -> None:
    def calls(admin: BlockingAdmin) -> None:
        specs = [
            k.TopicSpec("a", 2, 3, configs={"retention.ms": "5000"}),
            k.TopicSpec("b", assignments={0: [1001, 1002], 1: [1002, 1003]}),
            k.TopicSpec("no/name", 1, 1),
            k.TopicSpec("wide", 1, 9),
        ]
        checked = admin.create_topics(specs[:1], validate_only=True)
        assert names(checked) == {"a": "NONE"}
        created = admin.create_topics(specs)
        assert names(created) == {
            "a": "NONE",
            "b": "NONE",
            "no/name": "INVALID_TOPIC_EXCEPTION",
            "wide": "INVALID_REPLICATION_FACTOR",
        }
        made = created["a"].get()
        assert (made.num_partitions, made.replication_factor) == (2, 3)
        assert made.configs is not None
        assert made.configs["retention.ms"].value == "5000"
        with pytest.raises(QuorumRefusedError, match="creating topic 'no/name'"):
            created.all()
        assert names(admin.create_topics(specs[:1])) == {"a": "TOPIC_ALREADY_EXISTS"}

        grown = admin.create_partitions(
            [k.NewPartitions("a", 3, [[1003, 1001, 1002]]), k.NewPartitions("x", 2)]
        )
        assert names(grown) == {"a": "NONE", "x": "UNKNOWN_TOPIC_OR_PARTITION"}
        state = admin.read_metadata()
        assert state.topics["a"].partition_count == 3
        assert state.partitions.find("a", 2).replicas == (1003, 1001, 1002)

        by_id = made.topic_id
        deleted = admin.delete_topics([by_id, "b", "x", k.Uuid(b"\1" * 16)])
        assert names(deleted) == {
            by_id: "NONE",
            "b": "NONE",
            "x": "UNKNOWN_TOPIC_OR_PARTITION",
            k.Uuid(b"\1" * 16): "UNKNOWN_TOPIC_ID",
        }
        assert deleted[by_id].get() == by_id
        assert not admin.read_metadata().topics

    async def scenario(served: ServedQuorum) -> None:
        await blocking(served, calls)

    on_a_quorum(tmp_path, run_scenario, scenario)


def test_configs(tmp_path: Path, run_scenario: RunScenario) -> None:
    def calls(admin: BlockingAdmin) -> None:
        admin.create_topics([k.TopicSpec("a", 1, 1)]).all()
        topic, default = (TOPIC, "a"), (BROKER, "")
        altered = admin.incremental_alter_configs(
            {
                topic: [
                    k.ConfigChange("retention.ms", "5000"),
                    k.ConfigChange("cleanup.policy", "compact", k.ConfigOperation.APPEND),
                ],
                default: [k.ConfigChange("log.retention.ms", "7000")],
                (TOPIC, "b"): [k.ConfigChange("retention.ms", "5000")],
                (BROKER, "1"): [k.ConfigChange("min.insync.replicas", "much")],
            }
        )
        assert names(altered) == {
            topic: "NONE",
            default: "NONE",
            (TOPIC, "b"): "UNKNOWN_TOPIC_OR_PARTITION",
            (BROKER, "1"): "INVALID_CONFIG",
        }
        described = admin.describe_configs(
            [topic, default, (TOPIC, "b")], include_synonyms=True, include_documentation=True
        )
        assert names(described) == {
            topic: "NONE",
            default: "NONE",
            (TOPIC, "b"): "UNKNOWN_TOPIC_OR_PARTITION",
        }
        retention = described[topic].get()["retention.ms"]
        assert (retention.value, retention.source, retention.type) == (
            *("5000", k.ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigType.LONG),
        )
        assert [(each.name, each.value, each.source) for each in retention.synonyms[:2]] == [
            ("retention.ms", "5000", k.ConfigSource.DYNAMIC_TOPIC_CONFIG),
            ("log.retention.ms", "7000", k.ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ]
        assert retention.documentation
        assert described[topic].get()["cleanup.policy"].value == "delete,compact"
        # One call replaces, the other checks only.
        assert names(admin.alter_configs({topic: {"flush.ms": "9"}})) == {topic: "NONE"}
        wrong = {topic: [k.ConfigChange("flush.ms", "x")]}
        checked = admin.incremental_alter_configs(wrong, validate_only=True)
        assert names(checked) == {topic: "INVALID_CONFIG"}
        (found,) = admin.describe_configs([topic]).all().values()
        own = {
            each.name: each.value
            for each in found.values()
            if each.source is k.ConfigSource.DYNAMIC_TOPIC_CONFIG
        }
        assert own == {"flush.ms": "9"}
        # Broker 1001 is no controller: only it knows its settings.
        assert names(admin.describe_configs([(BROKER, "1001")])) == {
            (BROKER, "1001"): "INVALID_REQUEST"
        }

    async def scenario(served: ServedQuorum) -> None:
        await blocking(served, calls)

    on_a_quorum(tmp_path, run_scenario, scenario)


def test_each_controller_answers_for_its_own_settings_and_loggers(
    tmp_path: Path, run_scenario: RunScenario
) -> None:
    logger = "kraft.raft"

    def calls(admin: BlockingAdmin) -> None:
        ids = admin.describe_cluster().controllers
        assert len(ids) == 3
        nodes = [(BROKER, str(id)) for id in ids]
        described = admin.describe_configs(nodes).all()
        assert {key: each["node.id"].value for key, each in described.items()} == {
            key: key[1] for key in nodes
        }
        loggers = [(ConfigResourceType.BROKER_LOGGER, str(id)) for id in ids]
        changes = {key: [k.ConfigChange(logger, "ERROR")] for key in loggers}
        changed = admin.incremental_alter_configs(changes, validate_only=True)
        assert set(names(changed).values()) == {"NONE"}
        levels = admin.describe_configs(loggers).all()
        assert all(each for each in levels.values())

    async def scenario(served: ServedQuorum) -> None:
        quorum = served.quorum
        await until(lambda: len(quorum.cluster(1).state.controllers) == 3)
        await quorum.agree()
        await blocking(served, calls)

    on_a_quorum(tmp_path, run_scenario, scenario, count=3)


def test_acls(tmp_path: Path, run_scenario: RunScenario) -> None:
    read = k.AccessControl(
        *(k.ResourceType.TOPIC, "a", k.PatternType.LITERAL, "User:ann", "*"),
        *(k.AclOperation.READ, k.PermissionType.ALLOW),
    )
    deny = read._replace(principal="User:bob", permission_type=k.PermissionType.DENY)
    wrong = read._replace(pattern_type=k.PatternType.MATCH)

    def calls(admin: BlockingAdmin) -> None:
        assert names(admin.create_acls([read, deny, wrong, read])) == {
            read: "NONE",
            deny: "NONE",
            wrong: "INVALID_REQUEST",
        }
        assert set(admin.describe_acls(AclFilter())) == {read, deny}
        assert admin.describe_acls(AclFilter(principal="User:ann")) == [read]
        everything = AclFilter(resource_type=k.ResourceType.TOPIC, resource_name="a")
        unknown = AclFilter(operation=k.AclOperation.UNKNOWN)
        deleted = admin.delete_acls([everything, unknown])
        assert names(deleted) == {everything: "NONE", unknown: "INVALID_REQUEST"}
        assert deleted[everything].get().all() == {read: None, deny: None}
        assert admin.describe_acls(AclFilter()) == []

    async def scenario(served: ServedQuorum) -> None:
        await blocking(served, calls)

    on_a_quorum(tmp_path, run_scenario, scenario, settings=AUTHORIZED)


def test_acls_without_an_authorizer(tmp_path: Path, run_scenario: RunScenario) -> None:
    def calls(admin: BlockingAdmin) -> None:
        with pytest.raises(QuorumRefusedError, match=r"SECURITY_DISABLED.*authorizer\.class\.name"):
            admin.describe_acls(AclFilter())
        (result,) = admin.delete_acls([AclFilter()]).values()
        assert result.error is not None
        assert result.error.name == "SECURITY_DISABLED"

    async def scenario(served: ServedQuorum) -> None:
        await blocking(served, calls)

    on_a_quorum(tmp_path, run_scenario, scenario)


def test_elections_and_reassignments(tmp_path: Path, run_scenario: RunScenario) -> None:
    def calls(admin: BlockingAdmin) -> None:
        placed = k.TopicSpec("a", assignments={0: [1001, 1002], 1: [1002, 1003]})
        admin.create_topics([placed]).all()
        elected = admin.elect_leaders(k.ElectionType.PREFERRED, [("a", 0), ("a", 9), ("b", 0)])
        assert names(elected) == {
            ("a", 0): "ELECTION_NOT_NEEDED",
            ("a", 9): "UNKNOWN_TOPIC_OR_PARTITION",
            ("b", 0): "UNKNOWN_TOPIC_OR_PARTITION",
        }
        assert names(admin.elect_leaders(k.ElectionType.PREFERRED)) == {}

        moved = admin.alter_partition_reassignments(
            {("a", 0): [1003], ("a", 1): [1002, 7777], ("x", 0): [1001]}
        )
        assert names(moved) == {
            ("a", 0): "NONE",
            ("a", 1): "INVALID_REPLICA_ASSIGNMENT",
            ("x", 0): "UNKNOWN_TOPIC_OR_PARTITION",
        }
        expected = {("a", 0): k.Reassignment((1003, 1001, 1002), (1003,), (1001, 1002))}
        assert admin.list_partition_reassignments() == expected
        assert admin.list_partition_reassignments([("a", 0), ("a", 1)]) == expected
        assert admin.list_partition_reassignments([("a", 1)]) == {}
        fixed = admin.alter_partition_reassignments(
            {("a", 1): [1001]}, allow_replication_factor_change=False
        )
        assert names(fixed) == {("a", 1): "INVALID_REPLICATION_FACTOR"}
        cancelled = admin.alter_partition_reassignments({("a", 0): None, ("a", 1): None})
        assert names(cancelled) == {("a", 0): "NONE", ("a", 1): "NO_REASSIGNMENT_IN_PROGRESS"}
        assert admin.list_partition_reassignments() == {}

    async def scenario(served: ServedQuorum) -> None:
        await blocking(served, calls)

    on_a_quorum(tmp_path, run_scenario, scenario)


def test_quotas_and_users(tmp_path: Path, run_scenario: RunScenario) -> None:
    def calls(admin: BlockingAdmin) -> None:
        ann, both = {"user": "ann"}, {"user": "ann", "client-id": None}
        altered = admin.alter_client_quotas(
            [
                k.QuotaAlteration(ann, [("producer_byte_rate", 1000.0)]),
                k.QuotaAlteration(both, [("request_percentage", 12.5)]),
                k.QuotaAlteration({"user": "bob"}, [("no_such_quota", 1.0)]),
            ]
        )
        key_of_ann, key_of_both = (("user", "ann"),), (("client-id", None), ("user", "ann"))
        assert names(altered) == {
            key_of_ann: "NONE",
            key_of_both: "NONE",
            (("user", "bob"),): "INVALID_REQUEST",
        }
        assert admin.describe_client_quotas() == {
            key_of_ann: {"producer_byte_rate": 1000.0},
            key_of_both: {"request_percentage": 12.5},
        }
        of_ann = [k.QuotaFilter("user", "ann")]
        assert admin.describe_client_quotas(of_ann, is_strict=True).keys() == {key_of_ann}
        removal = k.QuotaAlteration(ann, [("producer_byte_rate", None)])
        admin.alter_client_quotas([removal], validate_only=True).all()
        assert len(admin.describe_client_quotas()) == 2
        admin.alter_client_quotas([removal]).all()
        assert admin.describe_client_quotas().keys() == {key_of_both}

        sha256 = k.ScramMechanismType.SCRAM_SHA_256
        secret = k.scram_upsertion("ann", sha256, "secret", 8192)
        assert "secret" not in repr(secret)
        changed = admin.alter_user_scram_credentials([secret, k.ScramDeletion("bob", sha256)])
        assert names(changed) == {"ann": "NONE", "bob": "RESOURCE_NOT_FOUND"}
        described = admin.describe_user_scram_credentials(["ann", "bob"])
        assert names(described) == {"ann": "NONE", "bob": "RESOURCE_NOT_FOUND"}
        assert described["ann"].get().iterations == {sha256: 8192}
        assert names(admin.describe_user_scram_credentials()) == {"ann": "NONE"}
        with pytest.raises(InvalidArgumentError, match="4096 to 16384"):
            k.scram_upsertion("ann", sha256, "secret", 10)

    async def scenario(served: ServedQuorum) -> None:
        await blocking(served, calls)

    on_a_quorum(tmp_path, run_scenario, scenario)


def test_tokens(tmp_path: Path, run_scenario: RunScenario) -> None:
    quorum = Quorum(
        tmp_path,
        settings={
            "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.controller.plain.sasl.jaas.config": jaas_config(["node"], "node"),
            "delegation.token.secret.key": "secret-of-a-throwaway-cluster",
        },
    )
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": jaas_config([], "node"),
    }

    def calls(bootstrap: str) -> None:
        with k.connect_blocking(bootstrap, properties) as admin:
            token = admin.create_delegation_token(renewers=["User:bob"], max_lifetime_ms=600_000)
            assert (token.token.owner, token.token.requester) == ("User:node", "User:node")
            lifetime_ms = token.token.max_timestamp_ms - token.token.issue_timestamp_ms
            assert lifetime_ms == 600_000
            assert admin.describe_delegation_token() == {token.token_id: token.token}
            assert admin.describe_delegation_token(["User:other"]) == {}
            renewed = admin.renew_delegation_token(token.hmac, 60_000)
            assert renewed <= token.token.max_timestamp_ms
            admin.expire_delegation_token(token.hmac)
            assert admin.describe_delegation_token() == {}
            with pytest.raises(QuorumRefusedError, match="DELEGATION_TOKEN_NOT_FOUND"):
                admin.renew_delegation_token(token.hmac)
            with pytest.raises(InvalidArgumentError, match="as User:alice"):
                admin.create_delegation_token(owner="alice")

    async def scenario() -> None:
        await quorum.start()
        at = quorum.running[await quorum.active()].transport.endpoints[0]
        await asyncio.to_thread(calls, f"{at.host}:{at.port}")

    run_scenario(scenario, quorum)


def test_cluster_and_features(tmp_path: Path, run_scenario: RunScenario) -> None:
    def calls(admin: BlockingAdmin) -> None:
        features = admin.describe_features()
        level = features.finalized["metadata.version"]
        assert features.supported["metadata.version"].max >= level
        assert features.finalized_epoch > 0
        elr = "eligible.leader.replicas.version"
        off = k.FeatureUpdate(elr, 0, k.UpgradeType.SAFE_DOWNGRADE)
        assert names(admin.update_features([off], validate_only=True)) == {elr: "NONE"}
        assert names(admin.update_features([off])) == {elr: "NONE"}
        assert elr not in admin.describe_features().finalized
        high = k.FeatureUpdate("group.version", 99)
        assert names(admin.update_features([high])) == {"group.version": "INVALID_UPDATE_VERSION"}

        cluster = admin.describe_cluster()
        quorum = admin.describe_metadata_quorum()
        assert cluster.leader_id == quorum.leader_id
        admin.unregister_broker(1003)
        assert sorted(admin.read_metadata().brokers) == [1001, 1002]
        with pytest.raises(
            QuorumRefusedError, match="unregistering broker 77: BROKER_ID_NOT_REGISTERED"
        ):
            admin.unregister_broker(77)
        with pytest.raises((QuorumRefusedError, UnsupportedVersionError)):
            admin.unregister_controller(77)

    async def scenario(served: ServedQuorum) -> None:
        await blocking(served, calls)

    on_a_quorum(tmp_path, run_scenario, scenario)


def test_the_asynchronous_client_follows_the_leader(
    tmp_path: Path, run_scenario: RunScenario
) -> None:
    async def scenario(served: ServedQuorum) -> None:
        quorum = served.quorum
        bootstrap = ",".join(f"127.0.0.1:{node.port}" for node in quorum.layout.values())
        async with k.connect(bootstrap) as admin:
            topics = [k.TopicSpec(f"t{number}", 2, 1) for number in range(20)]
            created = await asyncio.gather(*(admin.create_topics([each]) for each in topics))
            assert all(not each.errors() for each in created)
            leader = await quorum.active()
            await quorum.stop(leader)
            after = await admin.create_topics([k.TopicSpec("after", 1, 1)])
            assert names(after) == {"after": "NONE"}
            described = await admin.describe_metadata_quorum()
            assert described.leader_id != leader
            state = await admin.read_metadata()
            assert len(state.topics) == 21

    on_a_quorum(tmp_path, run_scenario, scenario, count=3)
