"""A cluster that has much to do for its next controller, and checks of what became of it."""

from __future__ import annotations

from kraft.zookeeper import znodes
from kraft.zookeeper.port import CreateZnode
from kraft.zookeeper.settings import ZkEra
from kraft.zookeeper.states import ZkPartitionState
from kraft.zookeeper.znodes import PartitionStateZnode, TopicZnode
from tests.unit.zookeeper.simulated import SimulatedZkCluster


def before_failover(era: ZkEra) -> SimulatedZkCluster:
    """Return a cluster of three candidates with something to do for the next controller."""
    cluster = SimulatedZkCluster(candidates=3, brokers=4, era=era)
    cluster.start()
    cluster.create_topic("t", {0: [1, 2, 3], 1: [2, 3]})
    cluster.create_topic("gone", {0: [2, 3]})
    cluster.create_topic("moving", {0: [2, 3]})
    cluster.set_isr("moving", 0, [2, 3, 4])
    cluster.brokers[1].stop()
    requests = [
        CreateZnode(znodes.topic_path("new"), TopicZnode({0: (3, 4)}).encode()),
        CreateZnode(znodes.delete_topic_path("gone")),
        CreateZnode(znodes.PREFERRED_ELECTION, znodes.encode_partitions([("t", 1)])),
        CreateZnode(
            znodes.REASSIGN_PARTITIONS, znodes.encode_reassignment({("moving", 0): [4, 3]})
        ),
    ]
    assert all(one.is_ok for one in cluster.admin.run(requests))
    return cluster


def outcome(cluster: SimulatedZkCluster) -> object:
    """Return what the cluster's tree says, without epochs and versions."""
    tree: dict[str, object] = {}
    for path in cluster.server.paths():
        data = cluster.server.data(path)
        if path.endswith("/state"):
            state = PartitionStateZnode.decode(data, path)
            tree[path] = (state.leader, state.isr)
        elif not path.startswith((znodes.CONTROLLER, f"{znodes.BROKER_IDS}/10")):
            tree[path] = data
    return tree


def check_settled(cluster: SimulatedZkCluster) -> None:
    """Check partitions and brokers against the tree when nothing happens any more."""
    active = cluster.active
    live = {id for id, broker in cluster.brokers.items() if broker.session is not None}
    assert set(active.context.brokers) == live
    for key in active.context.partitions():
        replicas = active.context.assignment(key)
        if active.context.partition_state(key) == ZkPartitionState.NEW:
            assert not live.intersection(replicas), key
            continue
        state = cluster.state(*key)
        if live.intersection(state.isr):
            assert state.leader in live & set(state.isr), (key, state, live)
        known = active.context.leadership(key)
        assert known is not None
        assert (known.leader, known.leader_epoch, known.isr) == (
            state.leader,
            state.leader_epoch,
            state.isr,
        )
        for id in live:
            if not active.deletion.is_queued(key[0]):
                told = cluster.brokers[id].metadata[key].leadership
                assert (told.leader, told.leader_epoch) == (state.leader, state.leader_epoch)
            if id in replicas and id in state.isr and not active.deletion.is_queued(key[0]):
                assert cluster.brokers[id].replicas[key].leadership.leader == state.leader
