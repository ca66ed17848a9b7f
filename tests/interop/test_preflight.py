"""``kraft preflight`` on Apache Kafka's controllers: each finding, its remedy, then the change.

The commands of Kafka's tools are run as the findings print them. Nodes of an older release provoke
the findings about releases. Each test continues from the previous one of its cluster.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from functools import partial
from operator import eq
from pathlib import Path

import pytest

from kraft.admin import connect_blocking
from kraft.metadata.identifiers import random_uuid
from tests.harness.commands import eventually, kraft
from tests.harness.kafka_jars import KAFKA_3, KAFKA_4, kafka
from tests.harness.preflight import (
    Document,
    await_rules,
    finding,
    preflight,
    register_old_broker,
    rules,
    until,
)
from tests.interop.cluster import HOST, Cluster, Node
from tests.interop.mixed_quorum import CLUSTER_TOOL, FEATURE_TOOL, QUORUM_TOOL
from tests.interop.operations import in_full_size

pytestmark = pytest.mark.interop

#: The last release whose highest level is below that of 4.3.
OLD = "4.1.1"
LEVEL_4_1, LEVEL_4_3 = 27, 30
TO_4_3 = ("upgrade", "--metadata", "4.3")
CLUSTER_ID = "Y2hlY2tlZCBiZWZvcmUhIQ"
TOOLS = {
    "kafka-features.sh": FEATURE_TOOL,
    "kafka-metadata-quorum.sh": QUORUM_TOOL,
    "kafka-cluster.sh": CLUSTER_TOOL,
}


def type_kafka(*steps: Document) -> list[str]:
    """Run the command of Kafka's tools of each step that has one; return their outputs."""
    said = []
    for step in steps:
        if step["kafka"]:
            tool, *words = shlex.split(step["kafka"])
            said.append(kafka(KAFKA_4).run(TOOLS[tool], *words).stdout)
    return said


def at(cluster: Cluster) -> tuple[str, str]:
    ids = sorted(cluster.controller_ports)
    addresses = [cluster.nodes[id].address for id in ids if id in cluster.nodes]
    return "--bootstrap-controller", ",".join(addresses)


def finalized(cluster: Cluster, name: str) -> int:
    with connect_blocking(at(cluster)[1]) as admin:
        return admin.describe_features().finalized.get(name, 0)


def start(*nodes: Node) -> None:
    for node in nodes:
        node.start()
    for node in nodes:
        node.wait_until_listening()


def install(node: Node, release: str) -> None:
    """Restart a node with another release."""
    node.stop()
    node.jars = kafka(release)
    start(node)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two controllers of 4.3 and one of 4.1, a broker of 4.1, at metadata.version 4.1."""
    cluster = Cluster(kafka(KAFKA_4), tmp_path_factory.mktemp("mixed"), CLUSTER_ID)
    cluster.reserve_controllers(101, 102, 103, 104)
    voters = ",".join(
        f"{id}@{HOST}:{cluster.controller_ports[id]}:{random_uuid()!s}" for id in (101, 102, 103)
    )
    try:
        for id in (101, 102, 103):
            node = cluster.add_controller(id)
            if id == 103:
                node.jars = kafka(OLD)
            node.format(CLUSTER_ID, "--initial-controllers", voters, "-r", "4.1")
        broker = cluster.add_broker(1, None)
        broker.jars = kafka(OLD)
        broker.format(CLUSTER_ID, *cluster.broker_format(), "-r", "4.1")
        start(*cluster.nodes.values())
        yield cluster
    finally:
        cluster.kill()


def test_nodes_of_an_older_release_block_an_upgrade(mixed: Cluster, tmp_path: Path) -> None:
    words = (*TO_4_3, *at(mixed))
    # A broker and a controller of 4.1 come and go, and leave their registrations.
    host, _, port = mixed.nodes[101].address.partition(":")
    register_old_broker([(host, int(port))], CLUSTER_ID, 7, LEVEL_4_1)
    left = mixed.add_controller(104)
    left.jars = kafka(OLD)
    left.format(CLUSTER_ID, "--no-initial-controllers", "-r", "4.1")
    start(left)

    def has_registered(checked: tuple[int, Document]) -> bool:
        return ("controller-level", "controller 104") in rules(checked[1])

    eventually(lambda: preflight(*words), until=has_registered)
    left.kill()
    del mixed.nodes[104]
    code, document = await_rules(
        words,
        {
            ("controller-level", "controller 103"),
            ("broker-level", "broker 1"),
            ("stale-broker", "broker 7"),
            ("stale-controller", "controller 104"),
        },
    )
    assert code == 4
    with pytest.raises(RuntimeError, match="only supports versions 7-27"):
        kafka(KAFKA_4).run(FEATURE_TOOL, *at(mixed), "upgrade", "--metadata", "4.3")

    # What the findings say: install the release, unregister, register once more.
    install(mixed.nodes[103], KAFKA_4)
    install(mixed.nodes[1], KAFKA_4)
    type_kafka(*finding(document, "stale-broker")["steps"])
    step = finding(document, "stale-controller")["steps"][0]
    assert "node.id=104" in step["text"]
    assert step["kafka"].startswith(
        f"kafka-storage.sh format -t {CLUSTER_ID} -c FILE --no-initial-controllers"
    )
    again = mixed.add_controller(104)
    again.settings["log.dirs"] = str(tmp_path / "empty")
    again.format(CLUSTER_ID, "--no-initial-controllers")
    start(again)
    until(words, "stale-controller", is_there=False)
    again.stop()
    del mixed.nodes[104]

    code, document = await_rules(words, set())
    assert code == 0
    (said,) = type_kafka(*document["steps"])
    assert f"metadata.version was upgraded to {LEVEL_4_3}." in said
    # The controller that is asked may apply it later than the leader.
    eventually(lambda: finalized(mixed, "metadata.version"), until=partial(eq, LEVEL_4_3))


def test_a_downgrade_that_kafka_rejects_is_foretold(mixed: Cluster) -> None:
    lowered = ("downgrade", "--metadata", "4.2", *at(mixed))
    assert await_rules(lowered, {("metadata-lost", "metadata.version")})[0] == 4
    # And one that Kafka accepts.
    code, document = await_rules(("downgrade", "--feature", "group.version=0", *at(mixed)), set())
    assert code == 0
    (said,) = type_kafka(*document["steps"])
    assert "group.version was downgraded to 0." in said


def test_a_brokers_port_is_named(mixed: Cluster) -> None:
    address = mixed.nodes[1].address
    ran = kraft("preflight", "quorum", "--bootstrap-controller", address)
    assert ran.returncode == 1
    assert f"{address}: this is a broker's listener" in ran.stderr


@pytest.fixture(scope="module")
def static(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three static voters of 4.3, at metadata.version 4.2."""
    cluster = Cluster(kafka(KAFKA_4), tmp_path_factory.mktemp("static"), CLUSTER_ID, is_static=True)
    cluster.reserve_controllers(101, 102, 103)
    try:
        for id in (101, 102, 103):
            cluster.add_controller(id).format(CLUSTER_ID, "-r", "4.2")
        start(*cluster.nodes.values())
        # Until its metadata.version is committed, a controller rejects DescribeCluster.
        eventually(
            lambda: kraft("preflight", "quorum", *at(cluster)).returncode,
            until=lambda code: code != 1,
        )
        yield cluster
    finally:
        cluster.kill()


def test_a_release_is_upgraded_without_kraft_version(static: Cluster) -> None:
    """``--release-version`` alone would make the voters dynamic (KAFKA-21426)."""
    words = ("upgrade", "--release-version", "4.3", *at(static))
    until(words, "silent-voter", is_there=False)
    code, document = await_rules(words, set(), "blocks")
    warning = finding(document, "release-changes-quorum")
    assert (code, warning["severity"]) == (3, "warning")
    (said,) = type_kafka(*warning["steps"])
    assert f"metadata.version was upgraded to {LEVEL_4_3}." in said
    assert finalized(static, "kraft.version") == 0


@in_full_size
def test_static_voters_become_dynamic(static: Cluster) -> None:
    words = ("dynamic-quorum", *at(static))
    with connect_blocking(at(static)[1]) as admin:
        leader = admin.describe_metadata_quorum().leader_id
    down = next(id for id in (101, 102, 103) if id != leader)
    static.nodes[down].stop()
    code, document = until(words, "voter-not-current", is_there=True)
    assert code == 4
    assert ("voter-not-current", f"controller {down}") in rules(document, "blocks")
    start(static.nodes[down])
    for rule in ("voter-not-current", "controller-rejects"):
        until(words, rule, is_there=False)
    code, document = preflight(*words)
    named = {("bootstrap-servers", f"controller {id}") for id in (101, 102, 103)}
    assert (code, rules(document)) == (3, named), document
    text = finding(document, "bootstrap-servers", "controller 101")["steps"][0]["text"]
    name, _, value = text.splitlines()[0].rpartition(" ")[2].partition("=")
    for node in static.nodes.values():
        node.stop()
        node.settings[name] = value
        start(node)
        until(("quorum", *at(static)), "silent-voter", is_there=False)
    for rule in ("voter-not-current", "controller-rejects"):
        until(words, rule, is_there=False)
    code, document = preflight(*words)
    assert (code, rules(document)) == (0, set()), document
    (said,) = type_kafka(*document["steps"])
    assert "kraft.version was upgraded to 1." in said
    assert finalized(static, "kraft.version") == 1
    code, document = preflight("downgrade", "--feature", "kraft.version=0", *at(static))
    assert (code, rules(document)) == (4, {("no-way-back", "kraft.version")})


@in_full_size
def test_a_controller_is_replaced(static: Cluster) -> None:
    with connect_blocking(at(static)[1]) as admin:
        leader = admin.describe_metadata_quorum().leader_id
    old = next(id for id in (101, 102, 103) if id != leader)
    asked = at(static)
    static.controller_ports[104] = static.nodes[old].port + 10_000
    new = static.add_controller(104)
    del new.settings["controller.quorum.voters"]
    new.settings["controller.quorum.bootstrap.servers"] = asked[1]
    new.format(CLUSTER_ID, "--no-initial-controllers")
    words = ("replace-controller", "-i", old, "-c", new.properties, *asked)
    code, document = preflight(*words)
    assert code == 4
    assert {rule for rule, _ in rules(document, "blocks")} == {"replacement-not-running"}
    start(new)
    for rule in ("replacement-not-running", "replacement-lags"):
        until(words, rule, is_there=False)
    code, document = preflight(*words)
    assert (code, rules(document)) == (0, set()), document
    added, removed = type_kafka(*document["steps"])
    assert "Added controller 104" in added
    assert "Removed" in removed
    static.nodes[old].stop()
    code, document = preflight("quorum", *asked)
    assert sorted([*({101, 102, 103} - {old}), 104]) == document["voters"]


@in_full_size
@pytest.mark.parametrize("release", ["3.7.2", KAFKA_3])
def test_older_releases_cannot_make_voters_dynamic(release: str, tmp_path: Path) -> None:
    cluster = Cluster(kafka(release), tmp_path, CLUSTER_ID, is_static=True)
    cluster.reserve_controllers(101)
    node = cluster.add_controller(101)
    try:
        node.format(CLUSTER_ID)
        start(node)
        words = ("dynamic-quorum", *at(cluster))
        code, document = until(words, "release-too-old", is_there=True)
        assert code == 4
        code, document = preflight(*TO_4_3, *at(cluster))
        assert ("controller-level", "controller 101") in rules(document, "blocks")
        install(node, KAFKA_4)
        for rule in ("release-too-old", "old-registration", "controller-rejects"):
            until(words, rule, is_there=False)
        code, document = preflight(*words)
        assert (code, rules(document)) == (3, {("bootstrap-servers", "controller 101")})
        type_kafka(*document["steps"])
        assert finalized(cluster, "kraft.version") == 1
    finally:
        cluster.kill()
