"""The tools that write topics into ZooKeeper."""

from __future__ import annotations

import pytest

from kraft.errors import (
    InvalidArgumentError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    TopicAlreadyExistsError,
    UnknownTopicNameError,
    ZooKeeperError,
)
from kraft.zookeeper import znodes
from kraft.zookeeper.administration import ZkAdmin
from kraft.zookeeper.memory import MemoryZooKeeper
from kraft.zookeeper.port import CreateZnode
from kraft.zookeeper.settings import ZkEra
from kraft.zookeeper.znodes import BrokerZnode, ListenerAddress
from tests.unit.zookeeper.simulated import SimulatedZkCluster


@pytest.fixture
def cluster() -> SimulatedZkCluster:
    made = SimulatedZkCluster(brokers=4)
    made.start()
    return made


def test_a_topic_is_created_described_and_deleted(cluster: SimulatedZkCluster) -> None:
    admin = ZkAdmin(cluster.server.connect())
    placed = admin.create("t", 3, 2, seed=1)
    assert [len(set(ids)) for ids in placed.values()] == [2, 2, 2]
    assert admin.create("u", 3, 2, seed=1) == placed
    (before, *_) = admin.describe(["t"])["t"]
    assert before.state is None
    cluster.run()
    described = admin.describe(["t"])["t"]
    assert {one.partition: one.replicas for one in described} == placed
    assert [one.state.leader for one in described if one.state] == [
        ids[0] for ids in placed.values()
    ]
    admin.delete(["t"])
    assert admin.deletions() == {"t"}
    cluster.run()
    assert admin.topics() == ["u"]
    # The name is free again, and an old config does not matter.
    cluster.write(znodes.config_path("topics", "t"), znodes.encode_config({}))
    admin.create("t", 1, 1)
    assert admin.topics() == ["t", "u"]


def test_racks_share_the_replicas(cluster: SimulatedZkCluster) -> None:
    for id in range(5, 9):
        znode = BrokerZnode(id, (ListenerAddress("h", 1),), "east" if id < 7 else "west")
        cluster.write(znodes.broker_path(id), znode.encode())
    for broker in cluster.brokers.values():
        broker.stop()
    cluster.run()
    placed = ZkAdmin(cluster.server.connect()).create("t", 8, 2)
    assert all((first < 7) != (second < 7) for first, second in placed.values())


def test_a_controller_that_is_no_broker_gets_no_replicas(cluster: SimulatedZkCluster) -> None:
    znode = BrokerZnode(1001, (ListenerAddress("h", 1),), controller_era="2018")
    cluster.write(znodes.broker_path(1001), znode.encode())
    admin = ZkAdmin(cluster.server.connect())
    assert admin.controller().brokers == (1, 2, 3, 4)
    with pytest.raises(InvalidReplicationFactorError, match="factor of 5 is not possible: 4 brok"):
        admin.create("t", 1, 5)
    assert 1001 not in cluster.active.context.brokers


def test_who_is_active(cluster: SimulatedZkCluster) -> None:
    admin = ZkAdmin(cluster.server.connect())
    found = admin.controller()
    assert (found.broker_id, found.timestamp_ms, found.epoch) == (101, 1000, 1)
    assert found.era == "2018"
    old = SimulatedZkCluster(era=ZkEra.V0_8)
    old.start()
    assert ZkAdmin(old.server.connect()).controller().era == "0.8"
    # A controller of Apache Kafka is a broker.
    cluster.write(znodes.CONTROLLER, b'{"brokerid":1}')
    assert admin.controller().era == ""
    cluster.sessions[0].close()
    assert admin.controller().broker_id == -1


def test_impossible_requests_are_refused(cluster: SimulatedZkCluster) -> None:
    admin = ZkAdmin(cluster.server.connect())
    for name in ("", "a/b", "..", "x" * 250, "ü"):
        with pytest.raises(InvalidTopicError, match="is no name of a topic"):
            admin.create(name, 1, 1)
    with pytest.raises(InvalidArgumentError, match="1 partition or more, not 0"):
        admin.create("t", 0, 1)
    with pytest.raises(InvalidReplicationFactorError):
        admin.create("t", 1, 0)
    admin.create("t", 1, 1)
    with pytest.raises(TopicAlreadyExistsError, match="topic 't' exists already"):
        admin.create("t", 1, 1)
    with pytest.raises(UnknownTopicNameError, match="there is no topic 'none'"):
        admin.delete(["t", "none"])
    assert admin.deletions() == set()
    with pytest.raises(UnknownTopicNameError, match="there is no topic 'none'"):
        admin.describe(["none"])


def test_a_cluster_that_never_ran_has_no_place_for_topics() -> None:
    server = MemoryZooKeeper()
    session = server.connect()
    broker = BrokerZnode(1, (ListenerAddress("h", 1),))
    session.run([CreateZnode("/brokers"), CreateZnode(znodes.BROKER_IDS)])
    session.run([CreateZnode(znodes.broker_path(1), broker.encode())])
    with pytest.raises(ZooKeeperError, match="topic 't' cannot be created: NO_NODE; the cluster's"):
        ZkAdmin(session).create("t", 1, 1)
