"""All operations of three Python admin clients that reach the controller, at Kafka's broker.

Each function of `CLIENTS` yields the name of each operation, and a function that returns its
result. An error is a result too: the name of its class, of confluent-kafka its code. Operations
that only a broker decides (groups, offsets, transactions) are left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import aiokafka.admin
import confluent_kafka.admin as confluent
import kafka
import kafka.admin
from confluent_kafka import KafkaException, TopicPartition

Step = tuple[str, Callable[[], Any]]
BROKER_ID = 1
_TIMEOUT_MS = 20_000


def create_topic(address: str, name: str) -> None:
    """Create a topic with one partition; raise the client's error."""
    client = kafka.KafkaAdminClient(bootstrap_servers=address, request_timeout_ms=_TIMEOUT_MS)
    try:
        client.create_topics({name: {"num_partitions": 1, "replication_factor": 1}})
    finally:
        client.close()


def _result(ask: Callable[[], Any]) -> Any:
    """Return what ``ask`` returns, or the name of its error."""
    try:
        return ask()
    except KafkaException as error:
        return f"error {error.args[0].name()}"
    except Exception as error:
        return f"error {type(error).__name__}"


def kafka_python(address: str) -> Iterator[Step]:
    """Use kafka-python's KafkaAdminClient."""
    admin = kafka.KafkaAdminClient(bootstrap_servers=address, request_timeout_ms=_TIMEOUT_MS)
    names = kafka.admin
    partition = kafka.TopicPartition("kp", 0)

    def resource(configs: dict[str, Any] | None, name: str = "kp") -> list[Any]:
        return [names.ConfigResource(names.ConfigResourceType.TOPIC, name, configs)]

    pattern = names.ResourcePattern(names.ResourceType.TOPIC, "kp")
    who = ("User:kp", "*", names.ACLOperation.READ, names.ACLPermissionType.ALLOW)
    acl, acls = names.ACL(*who, pattern), names.ACLFilter(*who, pattern)
    scram = names.ScramMechanism.SCRAM_SHA_256
    upsert = names.UserScramCredentialUpsertion("kp", scram, b"secret", 4096, b"salt")
    one = {"num_partitions": 2, "replication_factor": 1, "configs": {"retention.ms": "5000"}}
    steps: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("create", lambda: _topics(admin.create_topics({"kp": one}))),
        ("create again", lambda: admin.create_topics({"kp": one})),
        ("validate", lambda: _topics(admin.create_topics({"kp-no": one}, validate_only=True))),
        ("create assigned", lambda: _topics(
            admin.create_topics({"kp-b": {"assignments": {0: [BROKER_ID], 1: [BROKER_ID]}}}))),
        ("too many replicas", lambda: admin.create_topics({"kp-no": {"replication_factor": 3}})),
        ("invalid name", lambda: admin.create_topics({"no/name": one})),
        ("invalid config", lambda: admin.create_topics(
            {"kp-no": one | {"configs": {"retention.ms": "much"}}})),
        ("grow", lambda: _codes(admin.create_partitions({"kp": 4}))),
        ("shrink", lambda: admin.create_partitions({"kp": 2})),
        ("grow absent", lambda: admin.create_partitions({"kp-no": 2})),
        ("alter configs", lambda: admin.alter_configs(resource({"retention.ms": "7000"}))),
        ("alter invalid", lambda: admin.alter_configs(resource({"retention.ms": "x"}))),
        ("alter unknown", lambda: admin.alter_configs(
            resource({"no.such": "x"}), raise_on_unknown=False)),
        ("append", lambda: admin.alter_configs(
            resource({"cleanup.policy": ("APPEND", "compact")}))),
        ("describe configs", lambda: admin.describe_configs(resource(None))),
        ("reset configs", lambda: admin.reset_configs(resource({"retention.ms": None}))),
        ("create acls", lambda: len(admin.create_acls([acl])["succeeded"])),
        ("describe acls", lambda: [str(each) for each in admin.describe_acls(acls)[0]]),
        ("delete acls", lambda: [len(each[1]) for each in admin.delete_acls([acls])]),
        ("upsert scram", lambda: admin.alter_user_scram_credentials([upsert])),
        ("describe scram", lambda: admin.describe_user_scram_credentials(["kp"])),
        ("delete scram", lambda: admin.alter_user_scram_credentials(
            [names.UserScramCredentialDeletion("kp", scram)])),
        ("delete absent scram", lambda: _are_errors(admin.alter_user_scram_credentials(
            [names.UserScramCredentialDeletion("kp", scram)]))),
        ("elect", lambda: _codes(
            admin.elect_leaders(0, {"kp": [0]}, raise_errors=False))),
        ("elect absent", lambda: _codes(
            admin.elect_leaders(0, {"kp-no": [0]}, raise_errors=False))),
        ("reassign", lambda: admin.alter_partition_reassignments({partition: [BROKER_ID]})),
        ("reassign to absent", lambda: admin.alter_partition_reassignments({partition: [9]})),
        ("cancel", lambda: admin.alter_partition_reassignments({partition: None})),
        ("reassignments", lambda: admin.list_partition_reassignments()),
        ("describe features", lambda: _without_epoch(admin.describe_features())),
        ("update feature", lambda: admin.update_features({"group.version": ("UPGRADE", 9)})),
        ("validate feature", lambda: admin.update_features(
            {"eligible.leader.replicas.version": 1}, validate_only=True)),
        ("quorum", lambda: sorted(admin.describe_metadata_quorum())),
        ("cluster", lambda: sorted(admin.describe_cluster())),
        ("delete", lambda: _topics(admin.delete_topics(["kp", "kp-b"]))),
        ("delete absent", lambda: admin.delete_topics(["kp-no"])),
    )  # fmt: skip
    try:
        yield from ((name, partial(_result, ask)) for name, ask in steps)
    finally:
        admin.close()


def _without_epoch(features: dict[str, Any]) -> Any:
    """Return the features of kafka-python without the offset of the broker's metadata."""
    return {
        name: {key: value for key, value in of.items() if key != "finalized_epoch"}
        for name, of in features.items()
    }


def _are_errors(messages: dict[str, Any]) -> dict[str, bool]:
    """Return which entries are errors: kraft's messages have its own words."""
    return {name: message is not None for name, message in messages.items()}


def _find_codes(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "error_code" in value:
            yield f"{value.get('partition_id', '')}:{value['error_code']}"
        for each in value.values():
            yield from _find_codes(each)
    elif isinstance(value, list):
        for each in value:
            yield from _find_codes(each)


def _topics(response: Any) -> list[str]:
    """Return name, error, partitions, replicas and settings of each topic of a response."""
    found = response.get("topics", response.get("responses", []))
    return sorted(
        " ".join(
            str(topic.get(key, ""))
            for key in ("name", "error_code", "num_partitions", "replication_factor")
        )
        + f" {len(topic.get('configs') or ())}"
        for topic in found
    )


def _codes(response: Any) -> list[str]:
    """Return the error codes in a response of kafka-python, as ``partition:code``."""
    return sorted(_find_codes(response.to_dict()))


def confluent_kafka(address: str) -> Iterator[Step]:
    """Use confluent-kafka's AdminClient (librdkafka)."""
    admin = confluent.AdminClient({"bootstrap.servers": address, "socket.timeout.ms": _TIMEOUT_MS})
    kind = confluent.ResourceType
    binding = ("ck", confluent.ResourcePatternType.LITERAL, "User:ck", "*",
               confluent.AclOperation.READ, confluent.AclPermissionType.ALLOW)  # fmt: skip
    acl = confluent.AclBinding(kind.TOPIC, *binding)
    acls = confluent.AclBindingFilter(kind.TOPIC, *binding)
    mechanism = confluent.ScramMechanism.SCRAM_SHA_512
    upsert = confluent.UserScramCredentialUpsertion(
        "ck", confluent.ScramCredentialInfo(mechanism, 4096), b"secret", b"salt"
    )
    remove = confluent.UserScramCredentialDeletion("ck", mechanism)

    def of(futures: dict[Any, Any]) -> Any:
        return [future.result() for future in futures.values()]

    def topic(name: str, **fields: Any) -> Any:
        return of(admin.create_topics([confluent.NewTopic(name, **fields)]))

    def set_config(name: str, value: str, topic: str = "ck") -> Any:
        change = confluent.ConfigEntry(
            name, value, incremental_operation=confluent.AlterConfigOpType.SET
        )
        wanted = confluent.ConfigResource(kind.TOPIC, topic, incremental_configs=[change])
        return of(admin.incremental_alter_configs([wanted]))

    def described() -> Any:
        (configs,) = of(admin.describe_configs([confluent.ConfigResource(kind.TOPIC, "ck")]))
        return {name: [each.value, each.source, each.is_read_only, each.is_sensitive]
                for name, each in configs.items()}  # fmt: skip

    def scram(users: list[str]) -> Any:
        found = admin.describe_user_scram_credentials(users)
        return {
            user: _result(lambda future=future: [
                [each.mechanism.name, each.iterations]
                for each in future.result().scram_credential_infos
            ])
            for user, future in found.items()
        }  # fmt: skip

    def elect(name: str) -> Any:
        wanted = [TopicPartition(name, 0)]
        found = admin.elect_leaders(confluent_election(), wanted).result()
        return {str(each.topic): error and error.name() for each, error in found.items()}

    steps: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("create", lambda: topic("ck", num_partitions=2, replication_factor=1)),
        ("create again", lambda: topic("ck", num_partitions=2, replication_factor=1)),
        ("create assigned", lambda: topic("ck-b", num_partitions=1, replica_assignment=[[1]])),
        ("too many replicas", lambda: topic("ck-no", num_partitions=1, replication_factor=3)),
        ("invalid name", lambda: topic("no/name", num_partitions=1)),
        ("invalid config", lambda: topic("ck-no", config={"retention.ms": "much"})),
        ("grow", lambda: of(admin.create_partitions([confluent.NewPartitions("ck", 4)]))),
        ("shrink", lambda: of(admin.create_partitions([confluent.NewPartitions("ck", 2)]))),
        ("alter configs", lambda: set_config("retention.ms", "7000")),
        ("alter invalid", lambda: set_config("retention.ms", "much")),
        ("alter absent", lambda: set_config("retention.ms", "7000", "ck-no")),
        ("describe configs", described),
        ("replace configs", lambda: of(admin.alter_configs(
            [confluent.ConfigResource(kind.TOPIC, "ck", set_config={"retention.ms": "9000"})]))),
        ("create acl", lambda: of(admin.create_acls([acl]))),
        ("describe acl", lambda: [str(each) for each in admin.describe_acls(acls).result()]),
        ("delete acl", lambda: [[str(each) for each in found]
                                for found in of(admin.delete_acls([acls]))]),
        ("upsert scram", lambda: of(admin.alter_user_scram_credentials([upsert]))),
        ("describe scram", lambda: scram(["ck", "absent"])),
        ("delete scram", lambda: of(admin.alter_user_scram_credentials([remove]))),
        ("delete absent scram", lambda: of(admin.alter_user_scram_credentials([remove]))),
        ("elect", lambda: elect("ck")),
        ("elect absent", lambda: elect("ck-no")),
        ("cluster", lambda: len(admin.describe_cluster().result().nodes)),
        ("delete", lambda: of(admin.delete_topics(["ck", "ck-b"]))),
        ("delete absent", lambda: of(admin.delete_topics(["ck-no"]))),
    )  # fmt: skip
    yield from ((name, partial(_result, ask)) for name, ask in steps)


def confluent_election() -> Any:
    """Return the election of preferred leaders; confluent-kafka has no public module for it."""
    from confluent_kafka import ElectionType

    return ElectionType.PREFERRED


def aio_kafka(address: str) -> Iterator[Step]:
    """Use aiokafka's AIOKafkaAdminClient."""
    names = aiokafka.admin
    runner = asyncio.Runner()

    async def connected() -> Any:
        client = names.AIOKafkaAdminClient(
            bootstrap_servers=address, request_timeout_ms=_TIMEOUT_MS
        )
        await client.start()
        return client

    admin = runner.run(connected())
    kind = aiokafka.admin.config_resource.ConfigResourceType.TOPIC

    def topic(name: str, partitions: int = 2, replicas: int = 1, **fields: Any) -> Any:
        return admin.create_topics([names.NewTopic(name, partitions, replicas, **fields)])

    def configs(values: dict[str, str] | None) -> list[Any]:
        return [aiokafka.admin.config_resource.ConfigResource(kind, "ak", values)]

    steps: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("create", lambda: topic("ak", topic_configs={"retention.ms": "5000"})),
        ("create again", lambda: topic("ak")),
        ("create assigned", lambda: topic("ak-b", -1, -1, replica_assignments={0: [BROKER_ID]})),
        ("too many replicas", lambda: topic("ak-no", 1, 3)),
        ("invalid name", lambda: topic("no/name")),
        ("grow", lambda: admin.create_partitions({"ak": names.NewPartitions(4)})),
        ("shrink", lambda: admin.create_partitions({"ak": names.NewPartitions(2)})),
        ("alter configs", lambda: admin.alter_configs(configs({"retention.ms": "7000"}))),
        ("alter invalid", lambda: admin.alter_configs(configs({"retention.ms": "much"}))),
        ("describe configs", lambda: admin.describe_configs(configs(None))),
        ("cluster", admin.describe_cluster),
        ("delete", lambda: admin.delete_topics(["ak", "ak-b"])),
        ("delete absent", lambda: admin.delete_topics(["ak-no"])),
    )

    async def response(ask: Callable[[], Awaitable[Any]]) -> Any:
        return _aio_response(await ask())

    try:
        for name, ask in steps:
            yield name, partial(_result, lambda ask=ask: runner.run(response(ask)))
    finally:
        runner.run(admin.close())
        runner.close()


def _aio_response(value: Any) -> Any:
    """Return a response of aiokafka as plain values, without throttle times."""
    if isinstance(value, list):
        return [_aio_response(each) for each in value]
    if hasattr(value, "to_object"):
        return _without_messages(value.to_object())
    return sorted(value) if isinstance(value, dict) else str(value)


def _without_messages(value: Any) -> Any:
    if isinstance(value, dict):
        left_out = ("error_message", "throttle_time_ms", "message")
        return {key: _without_messages(each) for key, each in value.items() if key not in left_out}
    if isinstance(value, list):
        # Of topics and configurations in the order of a hash.
        return sorted((_without_messages(each) for each in value), key=str)
    return value


CLIENTS: tuple[Callable[[str], Iterator[Step]], ...] = (kafka_python, confluent_kafka, aio_kafka)
