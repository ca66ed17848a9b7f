"""A cluster of Apache Kafka 3.9 in ZooKeeper mode, converted: the records, and its life in KRaft.

The records of a conversion are those of Kafka's own migration (`ZkMigrationClient`, called by
`java/ZkMigrationOracle.java`), but for:

- the order of records, which Kafka takes from hash tables;
- ids of ACLs, which Kafka draws at random;
- registrations of brokers, which Kafka's brokers send to its controllers;
- what the controller writes around the migration: metadata.version, the state of the migration, the
  borders of metadata transactions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kraft
from kraft.metadata.kafka_json import data_of, type_name
from kraft.records import FeatureLevel, RegisterBroker
from kraft.zookeeper.opened import TreeMetadata
from kraft.zookeeper.reading import read_tree
from kraft.zookeeper.server import LocalZooKeeper, ZooKeeperAddress, close_client, open_client
from tests.harness.commands import kraft as run_kraft
from tests.harness.kafka_jars import KAFKA_3, kafka
from tests.harness.znode_trees import document, state, topic
from tests.interop.cluster import Cluster, Node, wait_for
from tests.interop.kraft_node import add_kraft_controller
from tests.interop.scenario import Stage
from tests.interop.zookeeper_cluster import (
    RECORDS,
    ZooKeeperCluster,
    check_orders,
    fill,
    number_orders,
)

if TYPE_CHECKING:
    from kazoo.client import KazooClient

pytestmark = pytest.mark.interop

BROKERS = (1, 2)
#: Settings with which two brokers can have Kafka's own topics.
OFFSETS = {"offsets__topic__replication__factor": "2"}


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalZooKeeper]:
    with LocalZooKeeper(tmp_path_factory.mktemp("zookeeper"), heap_mb=64) as started:
        yield started


@pytest.fixture(scope="module")
def left(
    zookeeper: LocalZooKeeper, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ZooKeeperCluster]:
    """Return a cluster with every kind of metadata, whose brokers were stopped."""
    directory = tmp_path_factory.mktemp("cluster")
    cluster = ZooKeeperCluster(kafka(KAFKA_3), directory, "", connect=f"{zookeeper.endpoint}/kafka")
    try:
        for each in BROKERS:
            cluster.add_broker(each, f"rack-{each}", **OFFSETS)
        cluster.start()
        stage = Stage(cluster, cluster.driver())
        for each in BROKERS:
            stage.wait_for_brokers(including=each)
        fill(stage)
        running = TreeMetadata(read_tree(cluster.connect))
        assert [(each.id, each.rack) for each in running.brokers.values()] == [
            (1, "rack-1"),
            (2, "rack-2"),
        ]
        assert {each.endpoints["PLAINTEXT"].port for each in running.brokers.values()} == {
            node.port for node in cluster.nodes.values()
        }
        assert running.controller_id in BROKERS
        while cluster.drivers:
            cluster.drivers.pop().close()
        cluster.stop()
        yield cluster
    finally:
        cluster.kill()


def test_the_records_are_those_of_kafkas_migration(left: ZooKeeperCluster) -> None:
    assert migrated_by_kraft(left.connect) == migrated_by_kafka(left.connect)


def test_an_edited_tree_gives_the_records_of_kafkas_migration(
    left: ZooKeeperCluster, zookeeper: LocalZooKeeper
) -> None:
    client = open_client(ZooKeeperAddress.parse(zookeeper.endpoint))
    try:
        copy(client, "/kafka", "/edited")
        for path, content in EDITS.items():
            write(client, f"/edited{path}", content)
        client.delete("/edited/brokers/topics/orders/partitions/3/state")
    finally:
        close_client(client)
    address = f"{zookeeper.endpoint}/edited"
    assert migrated_by_kraft(address) == migrated_by_kafka(address)
    assert TreeMetadata(read_tree(address)).notes[:2] == [
        "left out, because its deletion is pending: topic doomed; brokers rename the partitions to "
        "*-stray",
        "without a state: partition orders-3; leader and ISR are the assigned replicas, as in "
        "Kafka's migration",
    ]


@pytest.mark.parametrize("program", ["kafka", "kraft"])
def test_a_controller_starts_on_the_converted_directory(
    program: str, left: ZooKeeperCluster, tmp_path: Path
) -> None:
    """Kafka's controller alone, of a static quorum; then kraft's, with the brokers."""
    directory = left.directory if program == "kraft" else tmp_path
    cluster = Cluster(kafka(KAFKA_3), directory, "", is_static=program == "kafka")
    cluster.reserve_controllers(3000)
    add = add_kraft_controller if program == "kraft" else Cluster.add_controller
    controller = add(cluster, 3000)
    converted = convert(left, controller)
    try:
        cluster.start(controller)
        if program == "kraft":
            for each in BROKERS:
                cluster.add_broker(each, f"rack-{each}", **OFFSETS)
            live_on(cluster)
        else:
            ask = cluster.driver(to_controllers=True)
            assert wait_for("a leader", lambda: ask("quorum"))["leader"] == 3000
        cluster.stop()
    finally:
        cluster.kill()
    now = kraft.open_metadata(controller.metadata_directory)
    changed = {each.kind for each in kraft.diff(now.at(converted["offset"]), now)}
    if program == "kafka":
        assert changed == {"controller"}
    else:
        assert changed >= {"controller", "broker", "partition"}
        assert not changed & {"config", "acl", "scram_credential", "client_quota"}


def live_on(cluster: Cluster) -> None:
    """Start the brokers on their files of ZooKeeper mode; read and write their data."""
    cluster.start(*(cluster.nodes[each] for each in BROKERS))
    stage = Stage(cluster, cluster.driver())
    for each in BROKERS:
        stage.wait_for_brokers(including=each)
    stage.wait_for_isr("orders", len(BROKERS))
    check_orders(stage, RECORDS)
    number_orders(stage, RECORDS)
    check_orders(stage, 2 * RECORDS)
    stage.ask("create_topics", topics=[{"name": "new", "assignment": [[1, 2]]}])
    stage.wait_for_isr("new", len(BROKERS))


def convert(left: ZooKeeperCluster, controller: Node) -> Any:
    """Convert the cluster for this controller, by the command; return its document."""
    controller.write_properties()
    ran = run_kraft(
        *("zk", "convert", "--zookeeper", left.connect, "--json"),
        *("--out", controller.metadata_directory, "-c", controller.properties),
    )
    # The encrypted password of a keystore is noted.
    assert ran.returncode == 3, ran.stderr
    document = json.loads(ran.stdout)
    assert [note.split(":")[0] for note in document["notes"]] == [
        "encrypted, and of no use to brokers"
    ]
    assert document["brokers"] == list(BROKERS)
    return document


def migrated_by_kafka(address: str, *secret: str) -> list[str]:
    """Return the records of `ZkMigrationClient` in the form of `canonical`, sorted."""
    jars = kafka(KAFKA_3)
    classes = jars.compiled("ZkMigrationOracle")
    lines = jars.run("ZkMigrationOracle", address, *secret, classes=classes).stdout.splitlines()
    return sorted(canonical(json.loads(line)) for line in lines)


def migrated_by_kraft(address: str) -> list[str]:
    """Return kraft's records of the tree in the form of `canonical`, sorted."""
    return sorted(
        canonical(
            {
                "type": type_name(type(each.record)),
                "version": each.record.version,
                "data": data_of(each.record, show_secrets=True),
            }
        )
        for each in TreeMetadata(read_tree(address)).records()
        if not isinstance(each.record, RegisterBroker | FeatureLevel)
    )


def canonical(record: dict[str, Any]) -> str:
    """Return the record as text; without the random id of an ACL."""
    if record["type"] == "ACCESS_CONTROL_ENTRY_RECORD":
        del record["data"]["id"]
    return json.dumps(record, sort_keys=True)


def copy(client: KazooClient, source: str, target: str) -> None:
    """Copy a znode with its descendants; the versions of the copies are 0."""
    write(client, target, client.get(source)[0])
    for child in client.get_children(source):
        copy(client, f"{source}/{child}", f"{target}/{child}")


def write(client: KazooClient, path: str, content: bytes) -> None:
    client.ensure_path(path)
    client.set(path, content)


SCRAM = "iterations=4096,salt=c2FsdA==,server_key=c2VydmVy,stored_key=c3RvcmVk"
TOKEN = {
    "owner": "User%3Aowner",
    "renewers": ["User%3Ak%C3%A4the%20%2A"],
    "issueTimestamp": 1,
    "maxTimestamp": 1 << 40,
    "expiryTimestamp": 2,
    "tokenId": "old",
}
ALLOW = {"principal": "User:a:b", "permissionType": "ALLOW", "operation": "CREATETOKENS"}
#: Znodes of rare kinds, and those that no broker writes any more.
EDITS = {
    "/admin/delete_topics/doomed": b"",
    "/brokers/topics/rare": document(
        version=3,
        topic_id="AAECAwQFBgcICQoLDA0ODw",
        partitions={"0": [2, 1], "1": [1]},
        adding_replicas={"0": [2]},
        removing_replicas={"0": [1]},
    ),
    "/brokers/topics/rare/partitions/0/state": document(
        version=1, leader=1, leader_epoch=9, isr=[1], controller_epoch=2, leader_recovery_state=1
    ),
    "/brokers/topics/rare/partitions/1/state": state(-1, (1,), epoch=3).data,
    "/brokers/topics/empty": topic(topic_id="AAECAwQFBgcICQoLDA0OEA"),
    "/config/topics/rare": b'{"version":1,"config":{"retention.ms":"-1"}}',
    "/config/brokers/7": b"",
    "/config/users/%2A%2B%20%25%2F": document(
        version=1, config={"SCRAM-SHA-512": SCRAM, "request_percentage": " 1.5e1f"}
    ),
    "/config/clients/<default>": document(version=1, config={"producer_byte_rate": "1"}),
    "/kafka-acl/User/User:a": document(version=1, acls=[{**ALLOW, "host": "*"}] * 2),
    "/kafka-acl/DelegationToken/t": b"",
    "/kafka-acl/Broom/x": b"{}",
    "/delegation_token/tokens/old": document(version=1, **TOKEN),
    "/delegation_token/tokens/gone": b"",
    "/latest_producer_id_block": document(
        version=1, broker=2, block_start="9000000000", block_end="9000000999"
    ),
}
