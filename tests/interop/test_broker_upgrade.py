"""A cluster of Apache Kafka 3.9 is upgraded to 4.3 on a quorum of kraft controllers, under load.

The brokers are replaced one by one, then all features are raised. Static voters become dynamic
(kraft.version 1): then nodes restart without `controller.quorum.voters`. An idempotent producer
with acks=all and a transactional copier run all the time and lose nothing. `make broker-lives` runs
it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kraft.records.versions import LATEST_PRODUCTION
from tests.harness.commands import kraft
from tests.harness.kafka_jars import KAFKA_3, KAFKA_4, kafka
from tests.harness.preflight import preflight, rules, until
from tests.interop.broker_lives import (
    IS_FULL_SIZE,
    BrokerLives,
    check_nodes,
    formatted_cluster,
)
from tests.interop.cluster import wait_for
from tests.interop.cluster_variants import BROKERS, Variant
from tests.interop.mixed_quorum import FEATURE_TOOL
from tests.interop.scenario import CONTROLLERS
from tests.interop.verified_load import COPIES, LOAD_PARTITIONS, TOPIC, VerifiedLoad

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not IS_FULL_SIZE, reason="make broker-lives"),
]

FEATURES = {
    "metadata.version": int(LATEST_PRODUCTION),
    "group.version": 1,
    "transaction.version": 2,
    "eligible.leader.replicas.version": 1,
    "share.version": 1,
    "streams.version": 1,
}
#: A new leader logs this where an earlier batch of the producer reached the old leader, and is sent
#: again.
PROVOKED = (r"Error processing append operation .*\n.*\.OutOfOrderSequenceException: ",)
VOTERS, SERVERS = "controller.quorum.voters", "controller.quorum.bootstrap.servers"


@pytest.fixture(params=(True, False), ids=("static", "dynamic"))
def lives(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerLives]:
    variant = Variant((KAFKA_3,) * len(BROKERS), is_static=request.param, is_secured=False)
    with formatted_cluster(variant, tmp_path_factory.mktemp("upgrade")) as cluster:
        for node in cluster.controllers:
            node.start()
        cluster.start(*BROKERS)
        yield cluster


def raise_features(lives: BrokerLives, levels: dict[str, int]) -> None:
    """Run Kafka's `kafka-features upgrade`, which asks a broker."""
    features = [word for name in levels for word in ("--feature", f"{name}={levels[name]}")]
    at = ("--bootstrap-server", lives.cluster.nodes[BROKERS[0]].address)
    said = kafka(KAFKA_4).run(FEATURE_TOOL, *at, "upgrade", *features).stdout
    for name, level in levels.items():
        assert f"{name} was upgraded to {level}." in said, said


def make_voters_dynamic(lives: BrokerLives) -> None:
    """Finalize kraft.version 1 as `kraft preflight dynamic-quorum` advises; restart the nodes."""
    at = ("--bootstrap-controller", lives.at)
    nodes = lives.cluster.nodes
    for id in CONTROLLERS:
        nodes[id].settings[SERVERS] = lives.at
        restart_controller(lives, id)
    for rule in ("unregistered-voter", "voter-not-current", "controller-rejects"):
        until(("dynamic-quorum", *at), rule, is_there=False)
    code, document = preflight("dynamic-quorum", *at)
    assert (code, rules(document)) == (0, set()), document
    raise_features(lives, {"kraft.version": 1})
    for id in CONTROLLERS:
        del nodes[id].settings[VOTERS]
        restart_controller(lives, id)
    for id in BROKERS:
        del nodes[id].settings[VOTERS]
        nodes[id].settings[SERVERS] = lives.at
        lives.stop(id)
        lives.start(id)
        lives.wait_until_in_sync()


def restart_controller(lives: BrokerLives, id: int) -> None:
    """Restart a controller once all others follow the leader."""
    node = lives.cluster.nodes[id]
    node.stop()
    node.start()
    node.wait_until_listening()
    ready = ("transplant", "check", "--wait", 60, "--bootstrap-controller", lives.at)
    checked = kraft(*ready)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_cluster_of_3_9_is_upgraded_to_4_3(lives: BrokerLives) -> None:
    nodes = lives.cluster.nodes
    for topic in (TOPIC, COPIES):
        lives.create_topic(topic, partitions=LOAD_PARTITIONS, replication_factor=len(BROKERS))
    brokers = [nodes[id] for id in BROKERS]
    load = VerifiedLoad(kafka(KAFKA_4), brokers, lives.cluster.directory / "load.log")
    with load.process:
        wait_for("the first transactions", lambda: load.ask("mark")["transactions"])
        for id in BROKERS:
            early = kraft(
                *("features", "upgrade", "--feature", f"metadata.version={int(LATEST_PRODUCTION)}"),
                *("--bootstrap-controller", lives.at),
            )
            assert early.returncode == 1, "a broker of 3.9 is registered"
            lives.stop(id)
            nodes[id].jars = kafka(KAFKA_4)
            lives.start(id)
            lives.wait_until_in_sync()
            print(f"\nbroker {id} has {KAFKA_4}: {load.ask('mark')}")
        raise_features(lives, FEATURES)
        if lives.variant.is_static:
            make_voters_dynamic(lives)
        expected = FEATURES | {"kraft.version": 1}
        wait_for("the features", lambda: lives.ask("features") == expected)
        load.ask("mark")
        wait_for("further transactions", lambda: load.ask("mark")["transactions"])
        found = load.check_end()
    print(found)
    assert lives.metadata().quorum.kraft_version == 1
    check_nodes(lives, provoked=PROVOKED)
