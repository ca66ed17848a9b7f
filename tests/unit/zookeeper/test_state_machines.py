"""Every legal transition of partitions and replicas works; every other names both states."""

from __future__ import annotations

import pytest

from kraft.zookeeper import znodes
from kraft.zookeeper.port import DeleteZnode
from kraft.zookeeper.settings import ZkEra
from kraft.zookeeper.states import (
    PARTITION_PREDECESSORS,
    REPLICA_PREDECESSORS,
    ZkPartitionState,
    ZkReplicaState,
)
from tests.unit.zookeeper.simulated import SimulatedZkCluster

KEY = ("t", 0)
REPLICA = (KEY, 2)


@pytest.fixture(params=ZkEra)
def cluster(request: pytest.FixtureRequest) -> SimulatedZkCluster:
    """Return a cluster of each era with the partition t-0 on brokers 1, 2 and 3, led by 1."""
    made = SimulatedZkCluster(era=request.param)
    made.start()
    made.create_topic("t", {0: [1, 2, 3]})
    return made


@pytest.mark.parametrize("target", ZkPartitionState)
@pytest.mark.parametrize("state", ZkPartitionState)
def test_transitions_of_a_partition(
    cluster: SimulatedZkCluster, state: ZkPartitionState, target: ZkPartitionState
) -> None:
    context, machines = cluster.active.context, cluster.active.machines
    context.set_partition_state(KEY, state)
    if state == ZkPartitionState.NEW:
        # Its first leader creates the state.
        cluster.admin.run([DeleteZnode(znodes.state_path(*KEY))])
    failures = machines.change_partitions([KEY], target)
    if state in PARTITION_PREDECESSORS[target]:
        assert failures == {}
        assert context.partition_state(KEY) == target
    else:
        assert f"partition t-0 cannot go from {state.name} to {target.name}, only from " in str(
            failures[KEY]
        )
        assert context.partition_state(KEY) == state


@pytest.mark.parametrize("target", ZkReplicaState)
@pytest.mark.parametrize("state", ZkReplicaState)
def test_transitions_of_a_replica(
    cluster: SimulatedZkCluster, state: ZkReplicaState, target: ZkReplicaState
) -> None:
    context, machines = cluster.active.context, cluster.active.machines
    context.set_replica_state(REPLICA, state)
    failures = machines.change_replicas([REPLICA], target)
    if state in REPLICA_PREDECESSORS[target]:
        assert failures == {}
        assert context.replica_state(REPLICA) == target
    else:
        assert (
            f"replica 2 of partition t-0 cannot go from {state.name} to {target.name}, only from "
            in str(failures[REPLICA])
        )
        assert context.replica_state(REPLICA) == state


def test_the_tables_are_those_of_kafka() -> None:
    """As the sets ``validPreviousStates`` of 1.1.1 and the checks of 0.8.2.2."""
    assert {
        target.name: sorted(one.name for one in states)
        for target, states in PARTITION_PREDECESSORS.items()
    } == {
        "NEW": ["NON_EXISTENT"],
        "ONLINE": ["NEW", "OFFLINE", "ONLINE"],
        "OFFLINE": ["NEW", "OFFLINE", "ONLINE"],
        "NON_EXISTENT": ["OFFLINE"],
    }
    assert {
        target.name: sorted(one.name for one in states)
        for target, states in REPLICA_PREDECESSORS.items()
    } == {
        "NEW": ["NON_EXISTENT"],
        "ONLINE": ["DELETION_INELIGIBLE", "NEW", "OFFLINE", "ONLINE"],
        "OFFLINE": ["DELETION_INELIGIBLE", "NEW", "OFFLINE", "ONLINE"],
        "DELETION_STARTED": ["OFFLINE"],
        "DELETION_SUCCESSFUL": ["DELETION_STARTED"],
        "DELETION_INELIGIBLE": ["DELETION_STARTED"],
        "NON_EXISTENT": ["DELETION_SUCCESSFUL"],
    }


def test_a_new_replica_must_not_lead(cluster: SimulatedZkCluster) -> None:
    leader = (KEY, 1)
    cluster.active.context.set_replica_state(leader, ZkReplicaState.NON_EXISTENT)
    failures = cluster.active.machines.change_replicas([leader], ZkReplicaState.NEW)
    assert "replica 1 of partition t-0 cannot go from NON_EXISTENT to NEW: it is to lead" in str(
        failures[leader]
    )


def test_a_state_of_a_later_controller_is_left_alone(cluster: SimulatedZkCluster) -> None:
    state = cluster.state("t")
    later = type(state)(state.leader, state.leader_epoch, state.isr, state.controller_epoch + 1)
    cluster.write(znodes.state_path(*KEY), later.encode())
    failures = cluster.active.machines.change_partitions([KEY], ZkPartitionState.ONLINE)
    assert "controller epoch 2 wrote its state, and this controller has 1" in str(failures[KEY])
    assert cluster.state("t") == later


def test_a_leader_writes_at_the_same_time(cluster: SimulatedZkCluster) -> None:
    """The conditional write fails, the state is read again, and the leader's ISR is kept."""
    state = cluster.state("t")
    (session,) = cluster.sessions
    written = []

    def shrink(operations: object) -> None:
        # Before the write, after the read.
        if "SetZnode" in str(operations) and not written:
            written.append(True)
            smaller = type(state)(state.leader, state.leader_epoch, (1, 2), state.controller_epoch)
            cluster.write(znodes.state_path(*KEY), smaller.encode())

    session.before_run = shrink
    assert cluster.active.machines.change_partitions([KEY], ZkPartitionState.ONLINE) == {}
    assert written
    assert cluster.state("t").isr == (1, 2)
    assert cluster.state("t").leader_epoch == state.leader_epoch + 1
