"""Each finding of ``kraft preflight`` on running controllers, and the quorum after its remedy.

The tests run the printed commands as they are. Afterwards the finding is gone, and the change
works. The same findings on Apache Kafka's controllers: ``tests/interop/test_preflight.py``.
"""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kraft.admin import connect_blocking
from kraft.server.local_quorum import LocalQuorum, free_ports
from kraft.testing.cluster import QuorumForTests
from tests.harness.certificates import authority
from tests.harness.commands import eventually, kraft, printed
from tests.harness.configurations import write_properties
from tests.harness.nodes import Controllers
from tests.harness.preflight import (
    addresses,
    await_rules,
    finding,
    own_controller,
    preflight,
    register_old_broker,
    register_old_controller,
    rules,
    type_kraft,
    until,
)

pytestmark = pytest.mark.nodes

#: Level 33 of metadata.version, which only kraft and Kafka 4.4 support.
TO_4_4 = ("upgrade", "--metadata", "4.4")
LEVEL_4_3, LEVEL_4_4 = 30, 33


def level(bootstrap: str, name: str) -> int:
    with connect_blocking(bootstrap) as admin:
        return admin.describe_features().finalized.get(name, 0)


def test_registrations_of_an_older_release_block_an_upgrade(
    kraft_cluster: QuorumForTests, tmp_path: Path
) -> None:
    """A broker and a controller that are gone; the second becomes removable by the upgrade."""
    bootstrap = kraft_cluster.bootstrap_controllers
    at = ("--bootstrap-controller", bootstrap)
    assert await_rules((*TO_4_4, *at), set())[0] == 0
    register_old_broker(addresses(bootstrap), kraft_cluster.cluster_id, 7, LEVEL_4_3)
    register_old_controller(addresses(bootstrap), 9, LEVEL_4_3)

    code, document = preflight(*TO_4_4, *at)
    assert code == 4
    assert rules(document) == {("stale-broker", "broker 7"), ("stale-controller", "controller 9")}
    assert document["steps"] == []
    refused = kraft("features", "upgrade", "--feature", f"metadata.version={LEVEL_4_4}", *at)
    assert refused.returncode == 1
    type_kraft(*finding(document, "stale-broker")["steps"])
    # As the finding says: start a controller of this id once, with the new release.
    own = own_controller(tmp_path, 9, bootstrap)
    own.format(kraft_cluster.cluster_id, "--no-initial-controllers")
    own.start()
    until((*TO_4_4, *at), "stale-controller", is_there=False)
    assert own.stop(signal.SIGTERM) == 0

    code, document = preflight(*TO_4_4, *at)
    assert (code, rules(document)) == (0, set()), document
    type_kraft(*document["steps"])
    assert level(bootstrap, "metadata.version") == LEVEL_4_4

    code, document = until(("quorum", *at), "gone-controller", is_there=True)
    assert code == 3
    type_kraft(*finding(document, "gone-controller")["steps"])
    assert await_rules(("quorum", *at), set())[0] == 0


def test_levels_that_cannot_be_lowered_or_are_wrong(kraft_cluster: QuorumForTests) -> None:
    at = ("--bootstrap-controller", kraft_cluster.bootstrap_controllers)
    lowered = ("downgrade", "--metadata", "4.2", *at)
    code, document = await_rules(lowered, {("metadata-lost", "metadata.version")})
    assert code == 4
    code, document = preflight("downgrade", "--feature", "kraft.version=0", *at)
    assert (code, rules(document)) == (4, {("no-way-back", "kraft.version")})
    code, document = preflight("upgrade", "--feature", "no.such=1", *at)
    assert (code, rules(document)) == (4, {("unknown-feature", "no.such")})
    code, document = preflight("upgrade", "--feature", "group.version=0", *at)
    assert (code, rules(document)) == (4, {("wrong-direction", "group.version")})
    # The remedy: check, and make, a downgrade.
    code, document = preflight("downgrade", "--feature", "group.version=0", *at)
    assert code == 0
    type_kraft(*document["steps"])
    assert level(kraft_cluster.bootstrap_controllers, "group.version") == 0
    usage = kraft("preflight", "upgrade", *at)
    assert usage.returncode == 2
    assert "--release-version" in usage.stderr


@pytest.mark.kraft_cluster(controllers=3)
def test_a_voter_that_fails_is_reported_until_it_runs(kraft_cluster: QuorumForTests) -> None:
    at = ("--bootstrap-controller", kraft_cluster.bootstrap_controllers)
    assert await_rules(("quorum", *at), set())[0] == 0
    leader = kraft_cluster.wait_for_leader()
    down, other = (id for id in kraft_cluster.controller_ids if id != leader)
    kraft_cluster.kill(down)
    code, document = until(("quorum", *at), "silent-voter", is_there=True)
    assert (code, rules(document)) == (3, {("silent-voter", f"controller {down}")})
    # Without another one there would be no majority.
    code, document = preflight("replace-controller", "--controller-id", other, *at)
    assert code == 4
    assert ("majority", f"controller {other}") in rules(document, "blocks")
    kraft_cluster.start(down)
    code, _ = await_rules(("quorum", *at), set())
    assert code == 0
    code, _ = await_rules(("replace-controller", "--controller-id", other, *at), set())
    assert code == 0


@pytest.mark.kraft_cluster(controllers=3)
def test_controllers_are_replaced_as_printed(kraft_cluster: QuorumForTests, tmp_path: Path) -> None:
    bootstrap = kraft_cluster.bootstrap_controllers
    at = ("--bootstrap-controller", bootstrap)
    leader = kraft_cluster.wait_for_leader()
    first, second = (id for id in kraft_cluster.controller_ids if id != leader)
    new = own_controller(tmp_path, 4, bootstrap)
    new.format(kraft_cluster.cluster_id, "--no-initial-controllers")
    words = ("replace-controller", "--controller-id", first, "-c", new.file, *at)
    code, document = preflight(*words)
    assert code == 4
    assert [each["rule"] for each in document["findings"] if each["severity"] == "blocks"] == [
        "replacement-not-running"
    ]
    new.start()
    try:
        code, document = await_rules(words, set())
        assert code == 0
        type_kraft(*document["steps"])
        kraft_cluster.stop(first)
        code, document = await_rules(("quorum", *at), set())
        assert (code, document["voters"]) == (0, sorted([leader, second, 4]))
        # It is a voter now.
        code, document = preflight(*words)
        assert ("not-a-voter", f"controller {first}") in rules(document)

        # The second one loses its disk.
        kraft_cluster.kill(second)
        config = kraft_cluster.metadata_directory(second).parent / "controller.properties"
        shutil.rmtree(kraft_cluster.metadata_directory(second))
        format_new = ("-t", kraft_cluster.cluster_id, "-c", config, "--no-initial-controllers")
        printed("storage", "format", *format_new)
        kraft_cluster.start(second)
        code, document = until(("quorum", *at), "replaced-directory", is_there=True)
        assert code == 3
        words = ("replace-controller", "--controller-id", second, "-c", config, *at)
        code, document = await_rules(words, set())
        assert code == 0
        assert [step["kraft"].split()[2] for step in document["steps"]] == [
            "remove-controller",
            "add-controller",
        ]
        type_kraft(*document["steps"])
        code, document = await_rules(("quorum", *at), set())
        assert (code, document["voters"]) == (0, sorted([leader, second, 4]))
    finally:
        assert new.running is not None
        with new.running:
            pass


@pytest.fixture
def static_quorum(tmp_path: Path) -> Iterator[LocalQuorum]:
    with LocalQuorum(tmp_path / "static", 3, is_static=True) as quorum:
        quorum.start()
        yield quorum


def restart_with(quorum: LocalQuorum, change: Callable[[str], str]) -> None:
    """Restart one controller after the other with a changed configuration."""
    for node in quorum.nodes:
        quorum.stop(node)
        node.config_path.write_text(change(node.config_path.read_text()))
        quorum.start_node(node)
        at = ("--bootstrap-controller", ",".join(each.endpoint for each in quorum.nodes))
        eventually(lambda at=at: kraft("quorum", "describe", "--status", *at).returncode == 0)
        until(("quorum", *at), "silent-voter", is_there=False)


def test_static_voters_become_dynamic_as_printed(static_quorum: LocalQuorum) -> None:
    quorum = static_quorum
    bootstrap = ",".join(each.endpoint for each in quorum.nodes)
    at = ("--bootstrap-controller", bootstrap)
    status = ("quorum", "describe", "--status", "--json", *at)
    ran = eventually(lambda: kraft(*status), until=lambda ran: ran.returncode == 0)
    leader = json.loads(ran.stdout)["LeaderId"]
    down = next(node for node in quorum.nodes if node.id != leader)
    # A release names kraft.version too.
    code, document = preflight("upgrade", "--release-version", "4.3", *at)
    assert ("release-changes-quorum", "kraft.version") in rules(document, "warning")
    assert preflight("replace-controller", "-i", down.id, *at)[0] == 4

    quorum.kill(down)
    code, document = until(("dynamic-quorum", *at), "voter-not-current", is_there=True)
    assert code == 4
    assert ("voter-not-current", f"controller {down.id}") in rules(document, "blocks")
    quorum.start_node(down)
    until(("dynamic-quorum", *at), "voter-not-current", is_there=False)
    code, document = await_rules(
        ("dynamic-quorum", *at),
        {("bootstrap-servers", f"controller {node.id}") for node in quorum.nodes},
    )
    assert code == 3
    setting = finding(document, "bootstrap-servers", "controller 1")["steps"][0]["text"]
    line = setting.splitlines()[0].rpartition(" ")[2]
    assert line == f"controller.quorum.bootstrap.servers={bootstrap}"
    restart_with(quorum, lambda text: text + line + "\n")
    code, document = await_rules(("dynamic-quorum", *at), set())
    assert code == 0
    type_kraft(*document["steps"])
    # The controller that is asked may apply it later than the leader.
    eventually(lambda: level(bootstrap, "kraft.version") == 1)

    code, document = preflight("dynamic-quorum", *at)
    assert code == 3
    assert {rule for rule, _ in rules(document)} == {"voters-setting"}

    def without_voters(text: str) -> str:
        lines = text.splitlines(keepends=True)
        return "".join(each for each in lines if not each.startswith("controller.quorum.voters"))

    restart_with(quorum, without_voters)
    assert await_rules(("dynamic-quorum", *at), set())[0] == 0


def test_a_full_disk_and_a_directory_of_another_cluster(
    kraft_cluster_factory: Callable[..., QuorumForTests],
) -> None:
    cluster, other = kraft_cluster_factory(), kraft_cluster_factory()
    at = ("--bootstrap-controller", cluster.bootstrap_controllers)
    own = cluster.metadata_directory(1)
    free_mib = shutil.disk_usage(own).free >> 20
    full = ("quorum", *at, "--directory", own, "--min-free")
    assert await_rules((*full, 2 * free_mib), {("disk-full", str(own))})[0] == 3
    assert preflight(*full, 0)[0] == 0
    refused = kraft("preflight", "quorum", *at, "--directory", other.metadata_directory(1))
    assert refused.returncode == 1
    assert f"belongs to cluster {other.cluster_id}" in refused.stderr


def test_text_is_a_table_and_says_what_to_type(kraft_cluster: QuorumForTests) -> None:
    at = ("--bootstrap-controller", kraft_cluster.bootstrap_controllers)
    await_rules((*TO_4_4, *at), set())
    text = printed("preflight", *TO_4_4, *at)
    assert "1  leader  Kafka 4.4" in text
    assert "Nothing stands against the change." in text
    assert f"kraft features upgrade --feature metadata.version={LEVEL_4_4} --bootstrap" in text
    ran = kraft("preflight", "downgrade", "--metadata", "4.2", *at)
    assert ran.returncode == 4
    assert "1  blocks    metadata.version  30 (4.3-IV0) brought records" in ran.stdout
    assert ran.stderr == "error: the change will not work: 1 finding that blocks it\n"


def test_bad_connections_say_what_to_do(kraft_cluster: QuorumForTests, tmp_path: Path) -> None:
    address = kraft_cluster.bootstrap_controllers
    (closed,) = free_ports(1)
    tls = tmp_path / "tls.properties"
    trust = tmp_path / "authority.pem"
    trust.write_text(authority().pem)
    write_properties(
        tls,
        {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(trust),
        },
    )
    sasl = tmp_path / "sasl.properties"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    write_properties(
        sasl,
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{module} required username="a" password="b";',
        },
    )

    def refusal(at: str, *options: object) -> str:
        ran = kraft("preflight", "quorum", "--bootstrap-controller", at, *options)
        assert ran.returncode == 1
        return ran.stderr

    assert "no process listens there" in refusal(f"127.0.0.1:{closed}")
    assert "cannot be resolved" in refusal("no-such-host.invalid:9093")
    assert "does not speak TLS" in refusal(address, "--command-config", tls)
    assert "does not use SASL" in refusal(address, "--command-config", sasl)
    usage = kraft("preflight", "quorum", "--bootstrap-controller", "localhost")
    assert usage.returncode == 2


def test_tls_and_a_wrong_password_are_named(tmp_path: Path) -> None:
    """A listener with SASL over TLS, and clients without one of them."""
    trust, key = tmp_path / "authority.pem", tmp_path / "key.pem"
    trust.write_text(authority().pem)
    key.write_text(authority().issue("controller-1").pem)
    trusted = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(trust)}
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"

    def login(password: str) -> str:
        return f'{module} required username="admin" password="{password}" user_admin="right";'

    settings = trusted | {
        "listener.security.protocol.map": "CONTROLLER:SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(key),
        "ssl.endpoint.identification.algorithm": "",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": login("right"),
    }
    clients = {
        "plain": {},
        "wrong": trusted
        | {
            "security.protocol": "SASL_SSL",
            "ssl.endpoint.identification.algorithm": "",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": login("wrong"),
        },
    }
    clients["right"] = clients["wrong"] | {"sasl.jaas.config": login("right")}
    with Controllers(tmp_path, 1, settings) as quorum:
        quorum.form(quorum.all)
        quorum_words = ("preflight", "quorum", "--bootstrap-controller", quorum.bootstrap)
        said = {}
        for name, properties in clients.items():
            file = tmp_path / f"{name}.properties"
            write_properties(file, properties)
            ran = kraft(*quorum_words, "--command-config", file)
            said[name] = (ran.returncode, ran.stderr)
    assert said["right"][0] == 0, said
    assert said["plain"][0] == said["wrong"][0] == 1
    assert "the listener speaks TLS" in said["plain"][1]
    assert "check the user name and the password" in said["wrong"][1]
