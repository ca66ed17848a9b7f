"""kraft's commands print the same as Kafka's tools, at Kafka's controller and at kraft's.

Each of the two is the only controller of its cluster, with three registered brokers. A step runs
Kafka's tool on one set of names and kraft's command on another, with the same words, so that each
changes its own topics, users and ACLs. Compared are the exit code and the lines, in any order.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft.admin import TopicSpec, connect_blocking
from kraft.server.light_brokers import LightBrokers
from tests.harness.commands import kraft
from tests.harness.kafka_jars import KAFKA_4, kafka
from tests.harness.line_process import JsonRequests, LineProcess
from tests.interop.cluster import Cluster, wait_for
from tests.interop.kraft_node import add_kraft_controller

pytestmark = pytest.mark.interop

ID = 101
_TOOLS = "org.apache.kafka.tools."
CONFIGS, ACLS = "kafka.admin.ConfigCommand", _TOOLS + "AclCommand"
FEATURES, CLUSTER = _TOOLS + "FeatureCommand", _TOOLS + "ClusterTool"
REASSIGN = _TOOLS + "reassign.ReassignPartitionsCommand"

#: Tool, its words, and kraft's. ``NAME`` is a topic of either; ``@file`` is one of `files`.
_TOPIC = ("--entity-type", "topics", "--entity-name", "NAME")
_DEFAULTS = ("--entity-type", "brokers", "--entity-default")
_NODE = ("--entity-type", "brokers", "--entity-name", str(ID))
_ANN = ("--allow-principal", "User:NAME")
_PREFIXED = ("--resource-pattern-type", "prefixed")
Words = tuple[str, ...]


def same(tool: str, command: str, action: str, *words: str) -> tuple[str, Words, Words]:
    """Return a step whose words are the same but for the action: ``--list`` and ``list``."""
    return tool, (f"--{action}", *words), (command, action, *words)


STEPS: tuple[tuple[str, Words, Words], ...] = (
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
    same(ACLS, "acls", "add", *_ANN, "--operation", "Read", "--topic", "NAME"),
    same(ACLS, "acls", "add", *_ANN, "--producer", "--idempotent", "--topic", "NAME-", *_PREFIXED),
    same(ACLS, "acls", "add", *_ANN, "--consumer", "--topic", "NAME", "--group", "NAME"),
    same(ACLS, "acls", "add", "--deny-principal", "User:bob", "--deny-host", "10.0.0.1",
         "--operation", "DescribeConfigs", "--topic", "NAME"),
    same(ACLS, "acls", "add", *_ANN, "--topic", "NAME", "--operation", "CreateTokens"),
    same(ACLS, "acls", "list", "--topic", "NAME"),
    same(ACLS, "acls", "list", "--topic", "NAME-1", "--resource-pattern-type", "match"),
    same(ACLS, "acls", "list", "--topic", "NAME", "--principal", "User:bob"),
    same(ACLS, "acls", "remove", "--force", *_ANN, "--operation", "Read", "--topic", "NAME"),
    same(ACLS, "acls", "list", "--topic", "NAME"),
    same(ACLS, "acls", "remove", "--force", "--topic", "NAME"),
    same(ACLS, "acls", "list", "--topic", "NAME"),
    (FEATURES, ("describe",), ("features", "describe")),
    *((FEATURES, words, ("features", *words)) for words in (
        ("downgrade", "--feature", "eligible.leader.replicas.version=0", "--dry-run"),
        ("upgrade", "--feature", "group.version=9"),
        ("disable", "--feature", "no.such.feature"),
        ("upgrade", "--release-version", "9.9"),
    )),
    (CLUSTER, ("unregister", "--id", "77"), ("brokers", "unregister", "--id", "77")),
    same(REASSIGN, "reassign", "list"),
    (REASSIGN, ("--cancel", "--reassignment-json-file", "@move"),
     ("reassign", "cancel", "--reassignment-json-file", "@move")),
)  # fmt: skip


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Cluster]]:
    started: list[Cluster] = []
    brokers: list[LightBrokers] = []
    try:
        for kind in ("kraft", "kafka"):
            cluster = Cluster(
                kafka(KAFKA_4), tmp_path_factory.mktemp(kind), "a3JhZnQgYWRtaW4gdG9vbA", True
            )
            started.append(cluster)
            cluster.reserve_controllers(ID)
            cluster.settings = {
                # The light brokers send heartbeats for sessions of Kafka's default length.
                "broker.session.timeout.ms": "9000",
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS",
            }
            add = add_kraft_controller if kind == "kraft" else Cluster.add_controller
            node = add(cluster, ID)
            node.format(cluster.cluster_id)
            node.start()
        for cluster in started:
            node = cluster.nodes[ID]
            node.wait_until_listening()
            host, _, port = node.address.partition(":")
            light = LightBrokers([(host, int(port))], cluster.cluster_id, 3)
            brokers.append(light)
            light.start()
            wait_for("unfenced brokers", lambda light=light: light.unfenced_count == 3)
            with connect_blocking(node.address) as admin:
                placed = {0: [1001, 1002]}
                admin.create_topics(
                    [TopicSpec(name, assignments=placed) for name in ("their-topic", "own-topic")]
                ).all()
        yield started
    finally:
        for light in brokers:
            light.stop()
        for cluster in started:
            cluster.kill()


def plain(text: str, own: str) -> list[str]:
    """Return the lines without the name, the words of errors, and what is Java's own."""
    lines = []
    for line in text.replace(own, "NAME").splitlines():
        line = line.strip()
        if not line or line.startswith(("at ", "Caused by:", "... ", "java.", "org.apache.")):
            continue
        line = re.sub(r"Epoch: \d+", "Epoch: N", line)
        # kraft knows the levels of 4.4 too.
        line = re.sub(r"(SupportedMaxVersion:) (UNKNOWN \d+|\S+) *", r"\1 MAX ", line)
        # Kafka's tool also asks for moves between directories, and takes controllers for brokers.
        line = line.replace("None of the specified partition moves are active.", "")
        line = re.sub(r"(Clearing broker-level throttles on brokers) .*", r"\1 IDS", line)
        line = re.sub(r"^(Could not \w+ \S+(?: to \d+)?\.).*", r"\1", line)
        # The placeholders of two processes: addresses, directories.
        line = re.sub(r"127\.0\.0\.1:\d+|/\S*/(?:metadata|data-\d)", "PLACE", line)
        lines.append(line)
    return sorted(lines)


def with_file(words: Words, path: Path) -> Words:
    return tuple(word.replace("@move", str(path)) for word in words)


def theirs(tools: JsonRequests, cluster: Cluster, tool: str, words: Words) -> tuple[int, list[str]]:
    at = ["--bootstrap-controller", cluster.nodes[ID].address]
    given = [word.replace("NAME", "their-topic") for word in words]
    # ClusterTool takes its options after the command, FeatureCommand before it.
    said = tools(tool, words=[*given, *at] if tool == CLUSTER else [*at, *given])
    return int(said["code"]), plain(said["out"], "their-topic")


def ours(cluster: Cluster, words: Words) -> tuple[int, list[str], str]:
    at = ("--bootstrap-controller", cluster.nodes[ID].address)
    ran = kraft(*(word.replace("NAME", "own-topic") for word in words), *at)
    return ran.returncode, plain(ran.stdout, "own-topic"), ran.stderr


def test_commands_print_what_kafkas_tools_print(clusters: list[Cluster], tmp_path: Path) -> None:
    for name in ("their-topic", "own-topic"):
        target = [{"topic": name, "partition": 0, "replicas": [1002, 1003]}]
        (tmp_path / f"move-{name}").write_text(json.dumps({"version": 1, "partitions": target}))
    failures = compared = 0
    for cluster in clusters:
        jars = cluster.jars
        with LineProcess(jars.oracle("RunTools"), errors=subprocess.DEVNULL) as process:
            tools = JsonRequests(process)
            for tool, kafka_words, kraft_words in STEPS:
                their_words = with_file(kafka_words, tmp_path / "move-their-topic")
                code, lines = theirs(tools, cluster, tool, their_words)
                own_words = with_file(kraft_words, tmp_path / "move-own-topic")
                own_code, own_lines, errors = ours(cluster, own_words)
                step = (
                    f"{kraft_words}\nKafka: {code} {lines}\nkraft: {own_code} {own_lines} {errors}"
                )
                assert (own_code != 0) == (code != 0), step
                compared += 1
                if code != 0:
                    # The reason is in the tools' own words.
                    failures += 1
                    assert errors, step
                    continue
                assert own_lines == lines, step
    assert compared == 2 * len(STEPS)
    assert failures >= 2 * 6
