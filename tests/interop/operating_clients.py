"""The clients that apply generated operations: Kafka's Admin, `kraft.admin`, and Kafka's tools.

Each returns an `Outcome`: the error code and message of the controller, or 0. Kafka's Admin (4.3.1)
sends to controllers only what `OVER_CONTROLLERS` names, and rejects the rest
(UnsupportedEndpointTypeException); it sends the rest to a broker, which forwards them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from kraft.admin import (
    AccessControl,
    AclFilter,
    AclOperation,
    BlockingAdmin,
    ConfigChange,
    ConfigOperation,
    ConfigResourceType,
    ElectionType,
    FeatureUpdate,
    ItemResults,
    NewPartitions,
    PatternType,
    PermissionType,
    QuorumRefusedError,
    QuotaAlteration,
    ResourceType,
    ScramDeletion,
    ScramMechanismType,
    TopicSpec,
    UpgradeType,
    scram_upsertion,
)
from kraft.controller.security.scram import ScramUpsertion
from tests.harness.line_process import JsonRequests, RejectedError
from tests.interop.cluster import ClusterError, Driver
from tests.interop.generated_operations import Operation
from tests.interop.tool_comparison import ACLS, CLUSTER, CONFIGS, FEATURES, REASSIGN

OVER_CONTROLLERS = frozenset(
    {
        *("alter_config", "create_acl", "delete_acl", "update_feature", "reassign"),
        *("unregister_broker",),
    }
)


class Outcome(NamedTuple):
    """Kafka's error code, 0 for success, and the controller's message."""

    code: int
    message: str | None = None
    #: Whether it is Kafka's text of the code, which Java puts where a response has no message.
    is_text_of_code: bool = False

    def agrees(self, java: Outcome) -> bool:
        """Return whether this outcome is that of Kafka's Admin."""
        unsaid = self.message is None and java.is_text_of_code
        return self.code == java.code and (unsaid or self.message == java.message)


DONE = Outcome(0)


class JavaClient:
    """Kafka's Admin over ``bootstrap.controllers``, and over a broker where it must."""

    def __init__(self, driver: Driver) -> None:
        """The driver's client "plain" is connected to controllers, "brokers" to brokers."""
        self._driver = driver

    def apply(self, operation: Operation) -> Outcome:
        client = "plain" if operation.verb in OVER_CONTROLLERS else "brokers"
        try:
            self._driver(operation.verb, client=client, **operation.fields)
        except ClusterError as error:
            rejected = error.__cause__
            if not isinstance(rejected, RejectedError):
                raise
            answer = rejected.answer
            return Outcome(answer["code"], answer["message"], answer["is_text_of_code"])
        return DONE


class KraftClient:
    """`kraft.admin`."""

    def __init__(self, admin: BlockingAdmin) -> None:
        self._admin = admin
        self._hmacs: dict[str, bytes] = {}

    def apply(self, operation: Operation) -> Outcome:
        method: Callable[..., ItemResults[Any, Any] | None] = getattr(self, operation.verb)
        try:
            results = method(**operation.fields)
            if results is not None:
                results.all()
        except QuorumRefusedError as error:
            return Outcome(error.kafka_code, error.message)
        return DONE

    def create_topics(
        self, topics: list[dict[str, Any]], validate_only: bool = False
    ) -> ItemResults[Any, Any]:
        specs = [
            TopicSpec(
                topic["name"],
                topic.get("partitions", -1),
                topic.get("replication_factor", -1),
                dict(enumerate(topic.get("assignment", ()))),
                topic["configs"],
            )
            for topic in topics
        ]
        return self._admin.create_topics(specs, validate_only=validate_only)

    def create_partitions(
        self, topic: str, total: int, assignment: list[list[int]], validate_only: bool = False
    ) -> ItemResults[Any, Any]:
        wanted = [NewPartitions(topic, total, assignment)]
        return self._admin.create_partitions(wanted, validate_only=validate_only)

    def delete_topics(self, topics: list[str]) -> ItemResults[Any, Any]:
        return self._admin.delete_topics(topics)

    def alter_config(
        self, type: str, name: str, ops: list[list[str | None]], validate_only: bool = False
    ) -> ItemResults[Any, Any]:
        changes = [
            ConfigChange(str(config), value, ConfigOperation[str(verb)])
            for verb, config, value in ops
        ]
        return self._admin.incremental_alter_configs(
            {(ConfigResourceType[type], name): changes}, validate_only=validate_only
        )

    def alter_quota(
        self,
        entity: dict[str, str | None],
        key: str,
        value: float | None,
        validate_only: bool = False,
    ) -> ItemResults[Any, Any]:
        alterations = [QuotaAlteration(entity, [(key, value)])]
        return self._admin.alter_client_quotas(alterations, validate_only=validate_only)

    def upsert_scram(
        self, user: str, mechanism: str, iterations: int, password: str
    ) -> ItemResults[Any, Any]:
        number = ScramMechanismType[mechanism.replace("-", "_")]
        # Iterations that the library rejects go to the controller, as Kafka's Admin sends them.
        salted = scram_upsertion(user, number, password)
        if iterations == salted.iterations or not 4096 <= iterations <= 16384:
            change = ScramUpsertion(user, number, iterations, salted.salt, salted.salted_password)
        else:
            change = scram_upsertion(user, number, password, iterations)
        return self._admin.alter_user_scram_credentials([change])

    def delete_scram(self, user: str, mechanism: str) -> ItemResults[Any, Any]:
        number = ScramMechanismType[mechanism.replace("-", "_")]
        return self._admin.alter_user_scram_credentials([ScramDeletion(user, number)])

    def create_acl(self, **fields: str) -> ItemResults[Any, Any]:
        return self._admin.create_acls([_acl(fields)])

    def delete_acl(self, **fields: str) -> ItemResults[Any, Any]:
        return self._admin.delete_acls([AclFilter(*_acl(fields))])

    def update_feature(
        self, feature: str, level: int, type: str, validate_only: bool = False
    ) -> ItemResults[Any, Any]:
        update = FeatureUpdate(feature, level, UpgradeType[type])
        return self._admin.update_features([update], validate_only=validate_only)

    def reassign(self, partitions: dict[str, dict[str, list[int] | None]]) -> ItemResults[Any, Any]:
        return self._admin.alter_partition_reassignments(
            {
                (topic, int(partition)): target
                for topic, targets in partitions.items()
                for partition, target in targets.items()
            }
        )

    def elect(self, type: str, partitions: dict[str, list[int]]) -> ItemResults[Any, Any]:
        wanted = [(topic, each) for topic, indexes in partitions.items() for each in indexes]
        return self._admin.elect_leaders(ElectionType[type], wanted)

    def create_token(
        self, label: str, renewers: list[str], max_lifetime_ms: int, owner: str | None = None
    ) -> None:
        issued = self._admin.create_delegation_token(
            owner=owner, renewers=renewers, max_lifetime_ms=max_lifetime_ms
        )
        self._hmacs[label] = issued.hmac

    def renew_token(self, token: str, period_ms: int) -> None:
        self._admin.renew_delegation_token(self._hmac(token), period_ms)

    def expire_token(self, token: str, period_ms: int) -> None:
        self._admin.expire_delegation_token(self._hmac(token), period_ms)

    def _hmac(self, label: str) -> bytes:
        return self._hmacs.get(label, label.encode())

    def unregister_broker(self, broker: int) -> None:
        self._admin.unregister_broker(broker)


def _acl(fields: dict[str, str]) -> AccessControl:
    return AccessControl(
        ResourceType[fields["resource"]],
        fields["name"],
        PatternType[fields["pattern"]],
        fields["principal"],
        fields["host"],
        AclOperation[fields["operation"]],
        PermissionType[fields["permission"]],
    )


_ENTITY_TYPES = {
    "TOPIC": "topics",
    "BROKER": "brokers",
    "CLIENT_METRICS": "client-metrics",
    "GROUP": "groups",
}
_RESOURCES = {
    "TOPIC": "--topic",
    "GROUP": "--group",
    "CLUSTER": "--cluster",
    "TRANSACTIONAL_ID": "--transactional-id",
    "DELEGATION_TOKEN": "--delegation-token",
    "USER": "--user-principal",
}
#: Kafka's tools look first, and then do not send what changes nothing.
_NOTHING_TO_DO = ("Invalid config(s): ", "None of the specified partition moves are active.")


class ToolClient:
    """Kafka's tools with ``--bootstrap-controller``.

    Operations that no tool can send to a controller, or not with these words, are applied by
    another client.
    """

    def __init__(
        self,
        tools: JsonRequests,
        address: str,
        properties: Path,
        directory: Path,
        other: KraftClient,
    ) -> None:
        """``tools`` runs the tools (`java/RunTools.java`), ``properties`` are the client's."""
        self._tools = tools
        self._other = other
        self._at = ("--bootstrap-controller", address, "--command-config", str(properties))
        self._file = directory / "reassignment.json"
        #: How many operations the tools applied.
        self.count = 0

    def check(self, operation: Operation, expected: Outcome) -> None:
        """Apply the operation; check that its outcome is the expected one."""
        command = self._command(operation)
        if command is None:
            assert self._other.apply(operation).agrees(expected), operation
            return
        self.count += 1
        tool, words = command
        # ClusterTool takes its options after the command.
        given = [*words, *self._at] if tool == CLUSTER else [*self._at, *words]
        said = self._tools(tool, words=given)
        text = f"{operation}\n{tool} {words}\n{said['out']}"
        if any(each in said["out"] for each in _NOTHING_TO_DO):
            return
        assert (said["code"] != 0) == (expected.code != 0), f"{text}\nexpected: {expected}"
        if expected.message is not None:
            assert expected.message in said["out"], f"{text}\nexpected: {expected}"

    def _command(self, operation: Operation) -> tuple[str, list[str]] | None:
        """Return the tool and its words; None where no tool can send this to a controller."""
        fields = operation.fields
        if operation.verb == "unregister_broker":
            return CLUSTER, ["unregister", "--id", str(fields["broker"])]
        if operation.verb == "update_feature":
            return _feature_command(fields)
        if operation.verb == "alter_config":
            return _config_command(fields)
        if operation.verb in ("create_acl", "delete_acl"):
            return _acl_command(operation)
        if operation.verb == "reassign":
            return self._cancel_command(fields["partitions"])
        return None

    def _cancel_command(
        self, partitions: dict[str, dict[str, list[int] | None]]
    ) -> tuple[str, list[str]] | None:
        """Return the command that cancels; --execute describes topics, which only brokers can."""
        ((topic, targets),) = partitions.items()
        ((partition, target),) = targets.items()
        if target is not None:
            return None
        entry = {"topic": topic, "partition": int(partition), "replicas": [1001]}
        self._file.write_text(json.dumps({"version": 1, "partitions": [entry]}))
        words = ["--cancel", "--preserve-throttles", "--reassignment-json-file", str(self._file)]
        return REASSIGN, words


def _feature_command(fields: dict[str, Any]) -> tuple[str, list[str]] | None:
    words = ["--feature", f"{fields['feature']}={fields['level']}"]
    if fields.get("validate_only"):
        words.append("--dry-run")
    if fields["type"] == "UPGRADE":
        return FEATURES, ["upgrade", *words]
    if fields["type"] == "UNSAFE_DOWNGRADE":
        words.append("--unsafe")
    return FEATURES, ["downgrade", *words]


def _config_command(fields: dict[str, Any]) -> tuple[str, list[str]] | None:
    verbs = {verb for verb, _, _ in fields["ops"]}
    # Of two values that are deleted, one may exist: the tool then rejects both.
    if fields.get("validate_only") or len(fields["ops"]) > 1 or not verbs <= {"SET", "DELETE"}:
        return None
    words = ["--alter", "--entity-type", _ENTITY_TYPES[fields["type"]]]
    words += ["--entity-name", fields["name"]] if fields["name"] else ["--entity-default"]
    ((verb, name, value),) = fields["ops"]
    if verb == "DELETE":
        return CONFIGS, [*words, "--delete-config", name]
    grouped = f"[{value}]" if set(value) & set(",=") else value
    return CONFIGS, [*words, "--add-config", f"{name}={grouped}"]


def _acl_command(operation: Operation) -> tuple[str, list[str]] | None:
    fields = operation.fields
    if ":" not in fields["principal"]:
        # The tool rejects it before it sends a request; the controller, only a new ACL of it.
        return None
    resource, name = fields["resource"], fields["name"]
    words = ["--add"] if operation.verb == "create_acl" else ["--remove", "--force"]
    words.append(_RESOURCES[resource])
    if resource == "CLUSTER":
        if name != "kafka-cluster" or fields["pattern"] != "LITERAL":
            return None
    else:
        words.append(name)
    kind = fields["permission"].lower()
    words += [f"--{kind}-principal", fields["principal"], f"--{kind}-host", fields["host"]]
    words += ["--resource-pattern-type", fields["pattern"].lower()]
    return ACLS, [*words, "--operation", _camel_case(fields["operation"])]


def _camel_case(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))
