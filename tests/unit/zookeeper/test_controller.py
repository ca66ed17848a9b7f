"""What the 2018 controller does with each event, seen in ZooKeeper and at the brokers."""

from __future__ import annotations

import pytest

from kraft.errors import KraftError, NotControllerError
from kraft.zookeeper import znodes
from kraft.zookeeper.broker_requests import LeaderAndIsr, StopReplica, UpdateMetadata
from kraft.zookeeper.events import ControlledShutdown, IsrChangeNotification
from kraft.zookeeper.port import CreateZnode
from kraft.zookeeper.settings import ZkControllerSettings, ZkEra
from kraft.zookeeper.states import PartitionKey
from kraft.zookeeper.znodes import ControllerZnode, PartitionStateZnode, TopicZnode
from tests.unit.zookeeper.simulated import SimulatedZkCluster

KEY = ("t", 0)
KAFKA_STORAGE_ERROR = 56


@pytest.fixture
def cluster() -> SimulatedZkCluster:
    """Return a cluster with the partition t-0 on brokers 1, 2 and 3, led by 1."""
    made = SimulatedZkCluster()
    made.start()
    made.create_topic("t", {0: [1, 2, 3]})
    return made


def shut_down(cluster: SimulatedZkCluster, broker: int) -> list[PartitionKey] | KraftError:
    answers: list[list[PartitionKey] | KraftError] = []
    cluster.put(0, ControlledShutdown(broker, answers.append))
    cluster.run()
    (answer,) = answers
    return answer


def test_the_first_controller_creates_the_tree() -> None:
    cluster = SimulatedZkCluster(brokers=0)
    cluster.run()
    assert ControllerZnode.decode(cluster.server.data(znodes.CONTROLLER)).broker_id == 101
    assert cluster.server.data(znodes.CONTROLLER_EPOCH) == b"1"
    assert set(znodes.PERSISTENT_PATHS) <= set(cluster.server.paths())


def test_a_topic_gets_leaders_and_brokers_replicas(cluster: SimulatedZkCluster) -> None:
    assert cluster.state("t") == PartitionStateZnode(1, 0, (1, 2, 3), 1)
    for broker in cluster.brokers.values():
        assert broker.replicas[KEY].is_new
        assert broker.metadata[KEY].leadership.leader == 1
    # More partitions, and one whose replicas are all unknown.
    data = TopicZnode({0: (1, 2, 3), 1: (2, 3), 2: (8, 9)}).encode()
    cluster.write(znodes.topic_path("t"), data)
    assert cluster.state("t", 1) == PartitionStateZnode(2, 0, (2, 3), 1)
    assert not cluster.exists(znodes.state_path("t", 2))
    assert ("t", 1) not in cluster.brokers[1].replicas


def test_a_dead_leader_is_replaced(cluster: SimulatedZkCluster) -> None:
    cluster.brokers[1].stop()
    cluster.run()
    # One epoch for the election, none for the ISR: the election removed broker 1 already.
    assert cluster.state("t") == PartitionStateZnode(2, 1, (2, 3), 1)
    assert cluster.brokers[3].replicas[KEY].leadership.leader == 2
    assert cluster.brokers[3].metadata[KEY].offline_replicas == (1,)
    cluster.start(1)
    assert cluster.brokers[1].replicas[KEY].leadership.leader == 2
    assert cluster.state("t").isr == (2, 3)


def test_a_dead_follower_leaves_the_isr(cluster: SimulatedZkCluster) -> None:
    cluster.brokers[3].stop()
    cluster.run()
    assert cluster.state("t") == PartitionStateZnode(1, 1, (1, 2), 1)


def test_the_last_member_of_the_isr_stays_in_it(cluster: SimulatedZkCluster) -> None:
    """As 1.1.1 and 3.9.2 do; 0.8.2.2 writes an empty ISR."""
    cluster.set_isr("t", 0, [1])
    cluster.brokers[1].stop()
    cluster.run()
    assert cluster.state("t") == PartitionStateZnode(-1, 1, (1,), 1)
    cluster.start(1)
    assert cluster.state("t") == PartitionStateZnode(1, 2, (1,), 1)


def test_an_unclean_election_needs_the_topics_consent(cluster: SimulatedZkCluster) -> None:
    cluster.create_topic("u", {0: [1, 2]})
    config = znodes.encode_config({"unclean.leader.election.enable": "true"})
    cluster.write(znodes.config_path("topics", "u"), config)
    for topic in ("t", "u"):
        cluster.set_isr(topic, 0, [1])
    cluster.brokers[1].stop()
    cluster.run()
    assert cluster.state("t").leader == -1
    # One epoch for the election; 1 is no member of the new ISR any more.
    assert cluster.state("u") == PartitionStateZnode(2, 1, (2,), 1)


def test_unclean_elections_may_be_the_default() -> None:
    settings = ZkControllerSettings(unclean_leader_election_enable=True)
    cluster = SimulatedZkCluster(settings=settings)
    cluster.start()
    cluster.create_topic("t", {0: [1, 2]})
    cluster.set_isr("t", 0, [1])
    cluster.brokers[1].stop()
    cluster.run()
    assert cluster.state("t").leader == 2


def test_a_controlled_shutdown_moves_leaders_first(cluster: SimulatedZkCluster) -> None:
    cluster.create_topic("alone", {0: [1]})
    cluster.create_topic("followed", {0: [2, 1]})
    assert shut_down(cluster, 1) == []
    assert cluster.state("t") == PartitionStateZnode(2, 1, (2, 3), 1)
    assert cluster.state("followed") == PartitionStateZnode(2, 1, (2,), 1)
    # A partition without other replicas stays.
    assert cluster.state("alone").leader == 1
    assert (1, StopReplica(101, 1, False, [("followed", 0)])) in cluster.sent
    assert "broker 9 is not registered" in str(shut_down(cluster, 9))


def test_a_broker_keeps_leaders_that_nobody_can_take(cluster: SimulatedZkCluster) -> None:
    cluster.set_isr("t", 0, [1])
    assert shut_down(cluster, 1) == [KEY]


def test_a_candidate_refuses_controlled_shutdowns() -> None:
    cluster = SimulatedZkCluster(candidates=2)
    cluster.start()
    answers: list[object] = []
    cluster.put(1, ControlledShutdown(1, answers.append))
    cluster.run()
    assert isinstance(answers[0], NotControllerError)


def test_a_preferred_election(cluster: SimulatedZkCluster) -> None:
    shut_down(cluster, 1)
    cluster.brokers[1].stop()
    cluster.run()
    cluster.start(1)
    cluster.set_isr("t", 0, [2, 3, 1])
    cluster.write(znodes.PREFERRED_ELECTION, znodes.encode_partitions([KEY, ("none", 0)]))
    assert cluster.state("t") == PartitionStateZnode(1, 2, (2, 3, 1), 1)
    assert not cluster.exists(znodes.PREFERRED_ELECTION)
    # 1.1.1 raises the epoch although the preferred replica leads already; 3.9.2 does not.
    cluster.write(znodes.PREFERRED_ELECTION, znodes.encode_partitions([KEY]))
    assert cluster.state("t").leader_epoch == 3


def test_leaders_are_balanced_after_a_while(cluster: SimulatedZkCluster) -> None:
    cluster.brokers[1].stop()
    cluster.run()
    cluster.start(1)
    cluster.set_isr("t", 0, [2, 3, 1])
    assert cluster.state("t").leader == 2
    cluster.run(for_ms=5000)
    assert cluster.state("t").leader == 1


def test_an_isr_change_reaches_the_brokers(cluster: SimulatedZkCluster) -> None:
    cluster.set_isr("t", 0, [1, 2])
    assert cluster.brokers[3].metadata[KEY].leadership.isr == (1, 2)
    assert not any(path.startswith(znodes.ISR_CHANGE_PREFIX) for path in cluster.server.paths())
    assert cluster.active.event_counts[IsrChangeNotification.__name__] > 0


def test_a_reassignment_replaces_all_replicas() -> None:
    cluster = SimulatedZkCluster(brokers=5)
    cluster.start()
    cluster.create_topic("t", {0: [1, 2], 1: [1, 2]})
    cluster.write(znodes.REASSIGN_PARTITIONS, znodes.encode_reassignment({KEY: [4, 5]}))
    data = cluster.server.data(znodes.topic_path("t"))
    assert TopicZnode.decode(data, "t").assignment == {0: (4, 5, 1, 2), 1: (1, 2)}
    assert KEY in cluster.brokers[4].replicas
    assert cluster.exists(znodes.REASSIGN_PARTITIONS)
    # The new replicas catch up one by one.
    cluster.set_isr("t", 0, [1, 2, 4])
    assert cluster.exists(znodes.REASSIGN_PARTITIONS)
    cluster.set_isr("t", 0, [1, 2, 4, 5])
    data = cluster.server.data(znodes.topic_path("t"))
    assert TopicZnode.decode(data, "t").assignment == {0: (4, 5), 1: (1, 2)}
    state = cluster.state("t")
    assert state.leader == 4
    assert set(state.isr) == {4, 5}
    assert KEY not in cluster.brokers[1].replicas
    assert ("t", 1) in cluster.brokers[1].replicas
    assert not cluster.exists(znodes.REASSIGN_PARTITIONS)
    assert cluster.active.context.reassigned == {}
    # The next request is seen.
    cluster.write(znodes.REASSIGN_PARTITIONS, znodes.encode_reassignment({KEY: [4, 5]}))
    assert not cluster.exists(znodes.REASSIGN_PARTITIONS)


def test_impossible_reassignments_are_dropped(cluster: SimulatedZkCluster) -> None:
    wanted = {("none", 0): [1], KEY: [1, 1], ("t", 7): [2]}
    cluster.write(znodes.REASSIGN_PARTITIONS, znodes.encode_reassignment(wanted))
    assert not cluster.exists(znodes.REASSIGN_PARTITIONS)
    assert cluster.active.context.assignment(KEY) == (1, 2, 3)


def test_a_topic_is_deleted(cluster: SimulatedZkCluster) -> None:
    cluster.write(znodes.config_path("topics", "t"), znodes.encode_config({}))
    cluster.create_topic("u", {0: [1]})
    cluster.write(znodes.delete_topic_path("t"), b"")
    assert not any("/t" in path and "topics/t" in path for path in cluster.server.paths())
    assert not cluster.exists(znodes.delete_topic_path("t"))
    assert cluster.active.context.topics == {"u"}
    for broker in cluster.brokers.values():
        assert KEY not in broker.replicas
        assert KEY not in broker.metadata
    assert ("u", 0) in cluster.brokers[1].replicas
    # And created again.
    cluster.create_topic("t", {0: [2]})
    assert cluster.state("t") == PartitionStateZnode(2, 0, (2,), 1)


def test_a_deletion_waits_for_dead_brokers(cluster: SimulatedZkCluster) -> None:
    cluster.brokers[3].stop()
    cluster.run()
    cluster.write(znodes.delete_topic_path("t"), b"")
    assert cluster.exists(znodes.topic_path("t"))
    assert KEY not in cluster.brokers[1].replicas
    cluster.start(3)
    assert not cluster.exists(znodes.topic_path("t"))
    assert KEY not in cluster.brokers[3].replicas


def test_a_deletion_that_a_broker_refuses_is_tried_again(cluster: SimulatedZkCluster) -> None:
    cluster.brokers[2].errors[KEY] = KAFKA_STORAGE_ERROR
    cluster.write(znodes.delete_topic_path("t"), b"")
    assert cluster.exists(znodes.topic_path("t"))
    cluster.brokers[2].errors.clear()
    cluster.brokers[2].stop()
    cluster.run()
    cluster.start(2)
    assert not cluster.exists(znodes.topic_path("t"))


def test_unknown_topics_and_disabled_deletions_are_dropped() -> None:
    cluster = SimulatedZkCluster(settings=ZkControllerSettings(delete_topic_enable=False))
    cluster.start()
    cluster.create_topic("t", {0: [1]})
    for topic in ("t", "none"):
        cluster.write(znodes.delete_topic_path(topic), b"")
        assert not cluster.exists(znodes.delete_topic_path(topic))
    assert cluster.exists(znodes.topic_path("t"))


def test_a_failed_directory_moves_its_leaders(cluster: SimulatedZkCluster) -> None:
    cluster.brokers[1].errors[KEY] = KAFKA_STORAGE_ERROR
    event = CreateZnode(
        znodes.LOG_DIR_EVENT_PREFIX, znodes.encode_log_dir_event(1), is_sequential=True
    )
    cluster.admin.run([event])
    cluster.run()
    assert cluster.state("t").leader == 2
    assert cluster.state("t").isr == (2, 3)
    assert cluster.brokers[2].metadata[KEY].offline_replicas == (1,)


def test_a_changed_registration_reaches_all_brokers(cluster: SimulatedZkCluster) -> None:
    znode = cluster.brokers[2].znode
    moved = type(znode)(2, znode.listeners, rack="r")
    cluster.sent.clear()
    cluster.write(znodes.broker_path(2), moved.encode())
    told = {
        broker
        for broker, request in cluster.sent
        if isinstance(request, UpdateMetadata)
        and any(one.rack == "r" for one in request.live_brokers)
    }
    assert told == {1, 2, 3}


def test_a_failover_reads_what_the_last_controller_wrote() -> None:
    cluster = SimulatedZkCluster(candidates=2, brokers=5)
    cluster.start()
    cluster.create_topic("t", {0: [1, 2, 3]})
    cluster.create_topic("gone", {0: [1]})
    cluster.brokers[1].stop()
    # Nobody acts on this before the next controller does.
    cluster.admin.run([CreateZnode(znodes.delete_topic_path("gone"))])
    reassignment = znodes.encode_reassignment({KEY: [2, 4]})
    cluster.admin.run([CreateZnode(znodes.REASSIGN_PARTITIONS, reassignment)])
    cluster.sent.clear()
    cluster.server.expire(cluster.sessions[0].session_id)
    cluster.run()
    assert cluster.active.broker_id == 102
    assert cluster.controllers[0].active_controller_id == 102
    assert cluster.active.context.epoch == 2
    # Brokers learn each other's addresses before they have to follow.
    assert isinstance(cluster.sent[0][1], UpdateMetadata)
    state = cluster.state("t")
    assert (state.leader, state.controller_epoch) == (2, 2)
    assert cluster.active.context.reassigned == {KEY: (2, 4)}
    assert cluster.exists(znodes.topic_path("gone"))
    cluster.start(1)
    assert not cluster.exists(znodes.topic_path("gone"))


@pytest.mark.parametrize("era", ZkEra)
def test_a_deleted_controller_znode_starts_an_election(era: ZkEra) -> None:
    cluster = SimulatedZkCluster(candidates=3, era=era)
    cluster.start()
    cluster.delete(znodes.CONTROLLER)
    cluster.run()
    epoch = cluster.active.context.epoch
    assert epoch == 2
    assert cluster.server.data(znodes.CONTROLLER_EPOCH) == b"2"
    assert {one.active_controller_id for one in cluster.controllers} == {cluster.active.broker_id}


@pytest.mark.parametrize("era", ZkEra)
def test_only_the_active_controller_is_registered(era: ZkEra) -> None:
    cluster = SimulatedZkCluster(candidates=2, era=era)
    cluster.start()
    cluster.create_topic("t", {0: [1]})
    for fault in (
        lambda: cluster.delete(znodes.CONTROLLER),
        lambda: cluster.active.step_down(),
        lambda: cluster.server.expire(cluster.active._port.session_id),
    ):
        fault()
        cluster.run(for_ms=1000)
        registered = [id for id in (101, 102) if cluster.exists(znodes.broker_path(id))]
        assert registered == [cluster.active.broker_id]
        assert set(cluster.active.context.brokers) == {1, 2, 3}
        assert all(broker.known_brokers == {1, 2, 3} for broker in cluster.brokers.values())


def test_an_id_that_is_used_twice_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    cluster = SimulatedZkCluster()
    cluster.run()
    cluster.delete(znodes.CONTROLLER)
    cluster.delete(znodes.broker_path(101))
    other = cluster.brokers[1].znode
    cluster.admin.run([CreateZnode(znodes.broker_path(101), other.encode(), is_ephemeral=True)])
    cluster.run(for_ms=500)
    assert not cluster.controllers[0].is_active
    assert "/brokers/ids/101 belongs to another session: is the id used twice?" in caplog.text


@pytest.mark.parametrize("era", ZkEra)
def test_an_old_session_of_the_same_broker_is_waited_for(era: ZkEra) -> None:
    """A process that was started again sees its own id in ``/controller``, and is not active."""
    cluster = SimulatedZkCluster(era=era)
    old = cluster.server.connect()
    old.run([CreateZnode(znodes.CONTROLLER, ControllerZnode(101).encode(), is_ephemeral=True)])
    cluster.run()
    assert not cluster.controllers[0].is_active
    old.close()
    cluster.run()
    assert cluster.controllers[0].is_active


def test_a_corrupt_znode_keeps_a_controller_from_becoming_active(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = SimulatedZkCluster()
    cluster.start()
    cluster.create_topic("t", {0: [1]})
    cluster.write(znodes.state_path("t", 0), b"{}")
    cluster.delete(znodes.CONTROLLER)
    cluster.run(for_ms=2500)
    assert not cluster.controllers[0].is_active
    assert "/brokers/topics/t/partitions/0/state: leader is missing" in caplog.text
    # It tries again once a second, and succeeds after a repair.
    cluster.write(znodes.state_path("t", 0), PartitionStateZnode(1, 0, (1,), 1).encode())
    cluster.run(for_ms=2000)
    assert cluster.active.is_active


def test_requests_name_only_leaders_that_live(cluster: SimulatedZkCluster) -> None:
    cluster.sent.clear()
    cluster.brokers[1].stop()
    cluster.run()
    requests = [one for _, one in cluster.sent if isinstance(one, LeaderAndIsr)]
    assert requests
    assert {broker.id for one in requests for broker in one.live_leaders} == {2}
