"""kraft's commands print the same as Kafka's tools, at Kafka's controller and at kraft's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraft.admin import TopicSpec
from kraft.cli.exit_codes import REFUSED
from tests.harness.command_line import run_command
from tests.harness.configurations import write_properties
from tests.harness.line_process import JsonRequests
from tests.interop.cluster import ADMIN_USER
from tests.interop.forwarding_quorum import CONTROLLER, SASL, ForwardingQuorum
from tests.interop.tool_comparison import (
    ACLS,
    CLUSTER,
    CONFIGS,
    ELECT,
    FEATURES,
    NAME,
    OURS,
    QUORUM,
    REASSIGN,
    THEIRS,
    TOKENS,
    TOPICS,
    Step,
    ToolComparison,
    same,
)

pytestmark = pytest.mark.interop

_TOPIC = ("--entity-type", "topics", "--entity-name", NAME)
_DEFAULTS = ("--entity-type", "brokers", "--entity-default")
_NODE = ("--entity-type", "brokers", "--entity-name", str(CONTROLLER))
_ANN = ("--allow-principal", f"User:{NAME}")
_USER = ("--user", NAME)
_PREFIXED = ("--resource-pattern-type", "prefixed")

CONFIG_STEPS = (
    same(CONFIGS, "configs", "alter", *_TOPIC,
         "--add-config", "retention.ms=5000,cleanup.policy=[compact,delete]"),
    same(CONFIGS, "configs", "describe", "--all", *_TOPIC),
    same(CONFIGS, "configs", "alter", *_TOPIC, "--add-config", "retention.ms=much"),
    same(CONFIGS, "configs", "alter", *_TOPIC, "--delete-config", "retention.ms"),
    same(CONFIGS, "configs", "alter", *_TOPIC, "--delete-config", "retention.ms"),
    same(CONFIGS, "configs", "alter", *_DEFAULTS, "--add-config", "log.retention.ms=60000"),
    same(CONFIGS, "configs", "describe", *_DEFAULTS),
    same(CONFIGS, "configs", "alter", *_NODE, "--add-config", "max.connections=500"),
    same(CONFIGS, "configs", "describe", *_NODE),
    same(CONFIGS, "configs", "describe", "--all", *_NODE),
    same(CONFIGS, "configs", "alter", *_NODE, "--delete-config", "max.connections"),
)  # fmt: skip
ACL_STEPS = (
    same(ACLS, "acls", "add", *_ANN, "--operation", "Read", "--topic", NAME),
    same(ACLS, "acls", "add", *_ANN, "--producer", "--idempotent", "--topic", f"{NAME}-",
         *_PREFIXED),
    same(ACLS, "acls", "add", *_ANN, "--consumer", "--topic", NAME, "--group", NAME),
    same(ACLS, "acls", "add", "--deny-principal", "User:bob", "--deny-host", "10.0.0.1",
         "--operation", "DescribeConfigs", "--topic", NAME),
    same(ACLS, "acls", "add", *_ANN, "--topic", NAME, "--operation", "CreateTokens"),
    same(ACLS, "acls", "list", "--topic", NAME),
    same(ACLS, "acls", "list", "--topic", f"{NAME}-1", "--resource-pattern-type", "match"),
    same(ACLS, "acls", "list", "--topic", NAME, "--principal", "User:bob"),
    same(ACLS, "acls", "remove", "--force", *_ANN, "--operation", "Read", "--topic", NAME),
    same(ACLS, "acls", "list", "--topic", NAME),
    same(ACLS, "acls", "remove", "--force", "--topic", NAME),
    same(ACLS, "acls", "list", "--topic", NAME),
)  # fmt: skip
USER_STEPS = tuple(
    Step(
        CONFIGS, (f"--{action}", "--user", NAME, *words), ("users", action, "--user", NAME, *words)
    )
    for action, *words in (
        ("alter", "--add-config", "SCRAM-SHA-256=[iterations=5000,password=a]"),
        ("alter", "--add-config", "SCRAM-SHA-512=[password=a]"),
        ("alter", "--add-config", "SCRAM-SHA-256=[iterations=100,password=a]"),
        ("alter", "--add-config", "SCRAM-SHA-1=[password=a]"),
        ("describe",),
        ("alter", "--delete-config", "SCRAM-SHA-512"),
        ("alter", "--delete-config", "SCRAM-SHA-512"),
        ("describe",),
    )
)
QUOTA_STEPS = tuple(
    Step(CONFIGS, (f"--{action}", *words), ("quotas", action, *words))
    for action, *words in (
        ("alter", "--user", NAME, "--add-config", "producer_byte_rate=1048576"),
        ("alter", "--user", NAME, "--client", "app",
         "--add-config", "request_percentage=12.5,consumer_byte_rate=20000000"),
        ("alter", "--user", NAME, "--client-defaults", "--add-config", "producer_byte_rate=5"),
        ("alter", "--ip", "10.0.0.1", "--add-config", "connection_creation_rate=10"),
        ("alter", "--user", NAME, "--add-config", "no_such_quota=1"),
        ("alter", "--user", NAME, "--add-config", "producer_byte_rate=-1"),
        ("alter", "--user", NAME, "--add-config", "producer_byte_rate=many"),
        ("alter", "--ip", "10.0.0.1", "--add-config", "producer_byte_rate=1"),
        ("describe", "--user", NAME, "--client", "app"),
        ("describe", "--user", NAME, "--client-defaults"),
        ("describe", "--ip", "10.0.0.1"),
        ("alter", "--user", NAME, "--delete-config", "producer_byte_rate"),
        ("alter", "--user", NAME, "--delete-config", "producer_byte_rate"),
        ("alter", "--user", NAME, "--client", "app", "--delete-config", "request_percentage"),
        ("describe", "--user", NAME, "--client", "app"),
    )
)  # fmt: skip
# Without an owner Kafka's tool lists no token; kraft's command lists all.
TOKEN_STEPS = (
    same(TOKENS, "tokens", "create", "--max-life-time-period", "86400000",
         "--renewer-principal", f"User:{NAME}", "--owner-principal", "User:ann"),
    same(TOKENS, "tokens", "create", "--max-life-time-period", "-1",
         "--renewer-principal", f"User:{NAME}"),
    same(TOKENS, "tokens", "create", "--max-life-time-period", "-1",
         "--renewer-principal", f"Tree:{NAME}"),
    same(TOKENS, "tokens", "describe", "--owner-principal", "User:ann"),
    same(TOKENS, "tokens", "describe", "--owner-principal", f"User:{ADMIN_USER}"),
    same(TOKENS, "tokens", "renew", "--hmac", "@hmac", "--renew-time-period", "3600000"),
    same(TOKENS, "tokens", "expire", "--hmac", "@hmac", "--expiry-time-period", "7200000"),
    same(TOKENS, "tokens", "expire", "--hmac", "@hmac", "--expiry-time-period", "-1"),
    same(TOKENS, "tokens", "renew", "--hmac", "@hmac", "--renew-time-period", "-1"),
    same(TOKENS, "tokens", "describe", "--owner-principal", f"User:{ADMIN_USER}"),
)  # fmt: skip
FEATURE_STEPS = tuple(
    Step(FEATURES, words, ("features", *words))
    for words in (
        ("describe",),
        ("upgrade", "--feature", "share.version=1", "--dry-run"),
        ("downgrade", "--feature", "eligible.leader.replicas.version=0", "--dry-run"),
        ("downgrade", "--feature", "eligible.leader.replicas.version=0",
         "--feature", "group.version=0", "--dry-run"),
        ("downgrade", "--feature", "metadata.version=25", "--unsafe", "--dry-run"),
        ("downgrade", "--release-version", "4.1", "--dry-run"),
        ("downgrade", "--feature", "metadata.version=1"),
        ("disable", "--feature", "streams.version", "--dry-run"),
        ("disable", "--feature", "streams.version"),
        ("upgrade", "--feature", "streams.version=1"),
        ("upgrade", "--feature", "group.version=9"),
        ("disable", "--feature", "no.such.feature"),
        ("upgrade", "--release-version", "9.9"),
        ("describe",),
    )
)  # fmt: skip
_MOVE = ("--reassignment-json-file", "@move")
_REORDER = ("--reassignment-json-file", "@reorder")
# The brokers without a process cannot answer for their own settings, which --throttle and the
# clearing of throttles need: those are in test_reassign_throttles.
_KEEP = "--preserve-throttles"
REASSIGN_STEPS = (
    same(REASSIGN, "reassign", "list"),
    same(REASSIGN, "reassign", "cancel", *_MOVE),
    same(REASSIGN, "reassign", "verify", *_MOVE, _KEEP),
    same(REASSIGN, "reassign", "execute", *_MOVE, "--additional"),
    same(REASSIGN, "reassign", "execute", *_MOVE),
    same(REASSIGN, "reassign", "list"),
    same(REASSIGN, "reassign", "verify", *_MOVE, _KEEP),
    same(REASSIGN, "reassign", "cancel", *_MOVE, _KEEP),
    same(REASSIGN, "reassign", "cancel", *_MOVE),
    same(REASSIGN, "reassign", "verify", *_MOVE, _KEEP),
    same(REASSIGN, "reassign", "execute", "--reassignment-json-file", "@unknown"),
    same(REASSIGN, "reassign", "execute", *_REORDER),
    same(REASSIGN, "reassign", "verify", *_REORDER, _KEEP),
)
_PREFERRED = ("--election-type", "preferred")
ELECT_STEPS = tuple(
    Step(ELECT, words, ("elect", *words))
    for words in (
        (*_PREFERRED, "--topic", NAME, "--partition", "0"),
        (*_PREFERRED, "--topic", NAME, "--partition", "0"),
        (*_PREFERRED, "--path-to-json-file", "@elect"),
        (*_PREFERRED, "--topic", NAME, "--partition", "7"),
        (*_PREFERRED, "--topic", NAME),
        ("--election-type", "unclean", "--topic", NAME, "--partition", "0"),
        (*_PREFERRED, "--all-topic-partitions"),
    )
)
OTHER_STEPS = (
    Step(QUORUM, ("describe", "--status"), ("quorum", "describe", "--status")),
    Step(QUORUM, ("describe", "--replication"), ("quorum", "describe", "--replication")),
    Step(CLUSTER, ("unregister", "--id", "77"), ("brokers", "unregister", "--id", "77")),
)
TOPIC_STEPS = tuple(
    same(TOPICS, "topics", *words)._replace(is_silent=words[0] in ("create", "alter", "delete"))
    for words in (
        ("create", "--topic", f"{NAME}-x", "--replica-assignment", "1001:1002,1002:1003",
         "--config", "retention.ms=5000", "--config", "cleanup.policy=compact"),
        ("create", "--topic", f"{NAME}-x", "--partitions", "1"),
        ("create", "--topic", f"{NAME}-x", "--partitions", "1", "--if-not-exists"),
        ("create", "--topic", f"{NAME}-y", "--partitions", "1", "--replication-factor", "9"),
        ("create", "--topic", f"{NAME}-y", "--config", "retention.ms=much"),
        ("create", "--topic", f"{NAME}/y"),
        ("describe", "--topic", f"{NAME}-x"),
        ("describe", "--topic", f"{NAME}-none"),
        ("describe", "--topic", f"{NAME}-x", "--under-replicated-partitions"),
        ("describe", "--topic", f"{NAME}-x", "--unavailable-partitions"),
        ("alter", "--topic", f"{NAME}-x", "--partitions", "1"),
        ("alter", "--topic", f"{NAME}-x", "--partitions", "3",
         "--replica-assignment", "1001:1002,1002:1003,1003:1001"),
        ("alter", "--topic", f"{NAME}-none", "--partitions", "3"),
        ("alter", "--topic", f"{NAME}-none", "--partitions", "3", "--if-exists"),
        ("describe", "--topic", f"{NAME}-x"),
        ("list",),
        ("delete", "--topic", f"{NAME}-x"),
        ("delete", "--topic", f"{NAME}-x"),
        ("delete", "--topic", f"{NAME}-x", "--if-exists"),
        ("list", "--exclude-internal"),
    )
)  # fmt: skip
STEPS = {
    "topics": TOPIC_STEPS,
    "configs": CONFIG_STEPS,
    "acls": ACL_STEPS,
    "users": USER_STEPS,
    "quotas": QUOTA_STEPS,
    "tokens": TOKEN_STEPS,
    "features": FEATURE_STEPS,
    "reassign": REASSIGN_STEPS,
    # The reassignments above changed the order of replicas, not the leaders.
    "elect": ELECT_STEPS,
    "others": OTHER_STEPS,
}


def reassignment(*replicas: int, topic: str = NAME) -> str:
    entry = {"topic": topic, "partition": 0, "replicas": replicas}
    return json.dumps({"version": 1, "partitions": [entry]})


FILES = {
    "move": reassignment(1002, 1003),
    "reorder": reassignment(1002, 1001),
    "unknown": reassignment(1001, topic=f"{NAME}-none"),
    "elect": json.dumps({"partitions": [{"topic": NAME, "partition": 0}]}),
}


@pytest.mark.parametrize("command", STEPS)
@pytest.mark.parametrize("kind", ["kraft", "kafka"])
def test_commands_print_what_kafkas_tools_print(
    both: list[ForwardingQuorum], tools: JsonRequests, kind: str, command: str, tmp_path: Path
) -> None:
    (quorum,) = (each for each in both if each.kind == kind)
    with quorum.admin() as admin:
        names = [TopicSpec(name, assignments={0: [1001, 1002]}) for name in (THEIRS, OURS)]
        admin.create_topics(names)
    comparison = ToolComparison(quorum, tools, tmp_path, FILES)
    for step in STEPS[command]:
        comparison.check(step)
    assert comparison.accepted
    assert comparison.accepted + comparison.rejected == len(STEPS[command])


@pytest.mark.parametrize("kind", ["kraft", "kafka"])
def test_brokers_are_the_endpoints_of_kafka_cluster(
    both: list[ForwardingQuorum], tools: JsonRequests, kind: str, tmp_path: Path
) -> None:
    """``kafka-cluster list-endpoints`` has the same brokers as ``kraft brokers list``."""
    (quorum,) = (each for each in both if each.kind == kind)
    client = tmp_path / "client.properties"
    write_properties(client, SASL)
    at = ["--bootstrap-server", quorum.broker_address, "--command-config", str(client)]
    quorum.await_brokers()
    said = tools(CLUSTER, words=["list-endpoints", *at, "--include-fenced-brokers"])["out"]
    rows = sorted(line.split() for line in said.splitlines()[1:])
    at = ["--bootstrap-controller", quorum.address, "--command-config", str(client)]
    ran = run_command("brokers", "list", "--json", *at)
    assert rows == [
        [
            *(str(broker["brokerId"]), endpoint["host"], str(endpoint["port"])),
            *(str(broker["rack"]).replace("None", "null"), broker["state"], "broker"),
        ]
        for broker in ran.json
        for endpoint in broker["endPoints"]
        if endpoint["name"] == "SASL"
    ]
    said = tools(CLUSTER, words=["cluster-id", *at])["out"]
    status = run_command("quorum", "describe", "--status", *at).lines
    assert status[0].split() == ["ClusterId:", said.split()[-1]]


def test_the_port_of_a_real_broker(both: list[ForwardingQuorum], tmp_path: Path) -> None:
    client = tmp_path / "client.properties"
    write_properties(client, SASL)
    for quorum in both:
        for address, more in (
            (quorum.broker_address, ("--command-config", client)),
            (quorum.broker.address, ()),
        ):
            for words in (
                ("topics", "list"),
                ("topics", "create", "--topic", "x"),
                ("acls", "list"),
            ):
                ran = run_command(*words, "--bootstrap-controller", address, *more)
                assert ran.code == REFUSED
                assert f"{address}: this is a broker's listener: give the address of a " in ran.err
