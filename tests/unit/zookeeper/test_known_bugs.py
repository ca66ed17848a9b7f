"""Bugs that Kafka's controllers had in the ZooKeeper era, each as a scenario for both eras.

A test's docstring says what happened in Kafka. KAFKA-1387 and KAFKA-4447 are in `test_era_0_8`.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence

import pytest

from kraft.errors import ZooKeeperError
from kraft.zookeeper import znodes
from kraft.zookeeper.broker_channels import SocketChannels
from kraft.zookeeper.broker_requests import LeaderAndIsr, StopReplica
from kraft.zookeeper.events import BrokerChange, BrokerModifications
from kraft.zookeeper.port import CreateZnode, SetZnode
from kraft.zookeeper.settings import ZkEra
from kraft.zookeeper.znodes import BrokerZnode, ControllerZnode, ListenerAddress, TopicZnode
from tests.unit.zookeeper.simulated import SimulatedZkCluster

PATIENCE_S = 60.0
KEY = ("t", 0)
both_eras = pytest.mark.parametrize("era", ZkEra)


def started(era: ZkEra, candidates: int = 1, partitions: int = 1) -> SimulatedZkCluster:
    """Return a cluster whose topic t has its replicas on brokers 1, 2 and 3, led by 1."""
    made = SimulatedZkCluster(candidates, era=era)
    made.start()
    made.create_topic("t", {partition: [1, 2, 3] for partition in range(partitions)})
    return made


def test_a_hanging_broker_stops_no_controller() -> None:
    """KAFKA-1305: ten requests filled a broker's queue, and the controller waited with its lock.

    Both eras send through these channels.
    """
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        address = ListenerAddress("127.0.0.1", hanging.getsockname()[1])
        channels = SocketChannels(7, lambda *answer: None)
        channels.set_brokers({1: BrokerZnode(1, (address,))})

        def use() -> None:
            for number in range(500):
                channels.send(1, StopReplica(7, 1, False, [("t", number)]))
            channels.stop()

        thread = threading.Thread(target=use, daemon=True)
        thread.start()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def fail(cluster: SimulatedZkCluster) -> None:
    raise ZooKeeperError("planted")


def expire(cluster: SimulatedZkCluster) -> None:
    cluster.server.expire(cluster.sessions[0].session_id)


def crash_with_a_fault(
    era: ZkEra, step: int, fault: Callable[[SimulatedZkCluster], None]
) -> tuple[SimulatedZkCluster, bool]:
    """Stop broker 1 and strike at one use of ZooKeeper; return the cluster and whether it struck.

    Only the first controller is struck, before its first resignation.
    """
    cluster = started(era, candidates=2, partitions=3)
    first = cluster.controllers[0]
    assert first.is_active
    calls = 0

    def plant(operations: object) -> None:
        nonlocal calls
        if first.is_active and first.context.epoch == 1:
            calls += 1
            if calls == step + 1:
                fault(cluster)

    cluster.sessions[0].before_run = plant
    cluster.sent.clear()
    cluster.brokers[1].stop()
    cluster.run(for_ms=3000)
    return cluster, calls > step


@both_eras
@pytest.mark.parametrize("fault", [fail, expire])
def test_requests_of_a_failed_change_do_not_stay(
    era: ZkEra, fault: Callable[[SimulatedZkCluster], None]
) -> None:
    """KAFKA-2300, KAFKA-3173: after an error the half-built requests stayed with the controller.

    All later changes of state failed then, "batch is not empty". With an expiry it is KAFKA-3083:
    a controller without a session went on writing states.
    """
    step = 0
    while True:
        cluster, struck = crash_with_a_fault(era, step, fault)
        if not struck:
            break
        step += 1
        assert cluster.active.context.epoch >= 2
        # Controller epoch 2 knows nothing of the requests of epoch 1: the last word is its own.
        for partition in range(3):
            state = cluster.state("t", partition)
            assert (state.leader, state.isr) == (2, (2, 3))
            told = cluster.brokers[3].replicas[("t", partition)].leadership
            assert (told.leader, told.leader_epoch) == (2, state.leader_epoch)
        cluster.create_topic("later", {0: [2, 3]})
        assert cluster.state("later").leader == 2
        assert ("later", 0) in cluster.brokers[2].replicas
    assert step > 3


@both_eras
def test_events_of_an_ended_session_change_nothing(era: ZkEra) -> None:
    """KAFKA-5028: listeners of many threads acted for a controller that had lost its session."""
    cluster = started(era, candidates=2)
    cluster.sent.clear()
    # The controller has the news of both in its queue when its session ends.
    topic = TopicZnode({0: (2, 3)}).encode()
    assert cluster.admin.run([CreateZnode(znodes.topic_path("new"), topic)])[0].is_ok
    cluster.brokers[1].stop()
    expire(cluster)
    # One more comes after the queue was cleared, before the new session elects.
    cluster.put(0, BrokerModifications(2) if era == ZkEra.V2018 else BrokerChange())
    cluster.run(for_ms=2000)
    assert {request.controller_epoch for _, request in cluster.sent} == {2}
    assert cluster.state("new").controller_epoch == 2
    assert (cluster.state("t").leader, cluster.state("t").controller_epoch) == (2, 2)


def calls_after_a_crash(era: ZkEra, partitions: int) -> int:
    """Return how often the controller waits for ZooKeeper when the leader of all crashes."""
    cluster = started(era, partitions=partitions)
    calls = 0

    def count(operations: object) -> None:
        nonlocal calls
        calls += 1

    cluster.sessions[0].before_run = count
    cluster.brokers[1].stop()
    cluster.run()
    assert cluster.state("t", partitions - 1).leader == 2
    return calls


def test_writes_of_many_partitions_are_pipelined() -> None:
    """KAFKA-5642: each partition waited for its own reads and writes. 0.8 still does here."""
    assert calls_after_a_crash(ZkEra.V2018, 50) == calls_after_a_crash(ZkEra.V2018, 5)
    # At least a read and a write of each.
    assert calls_after_a_crash(ZkEra.V0_8, 50) - calls_after_a_crash(ZkEra.V0_8, 5) >= 2 * 45


@both_eras
def test_a_leader_epoch_has_one_leader_in_fast_failovers(era: ZkEra) -> None:
    """KAFKA-6361: after two fast changes of the leader the logs of two brokers differed.

    The brokers' part is KIP-279. It needs this from controllers: a leader epoch has one leader.
    """
    cluster = started(era, candidates=3)
    epochs = [cluster.state("t").leader_epoch]
    for round_number in range(6):
        leader = cluster.state("t").leader
        cluster.brokers[leader].stop()
        if round_number % 2:
            # Before the news is processed, and once more after that.
            cluster.delete(znodes.CONTROLLER)
        cluster.run(for_ms=1000)
        assert cluster.state("t").leader not in (-1, leader)
        epochs.append(cluster.state("t").leader_epoch)
        cluster.start(leader)
        cluster.set_isr("t", 0, [*cluster.state("t").isr, leader])
    assert epochs == sorted(set(epochs))
    leaders: dict[int, set[int]] = {}
    for _, request in cluster.sent:
        if isinstance(request, LeaderAndIsr) and KEY in request.partitions:
            told = request.partitions[KEY].leadership
            if told.leader >= 0:
                leaders.setdefault(told.leader_epoch, set()).add(told.leader)
    assert len(leaders) > 6
    assert all(len(found) == 1 for found in leaders.values()), leaders


@both_eras
def test_a_controller_deletes_no_other_controllers_znode(era: ZkEra) -> None:
    """KAFKA-6082: who resigned deleted ``/controller`` also when it was another's."""
    cluster = started(era)
    cluster.delete(znodes.CONTROLLER)
    seven = cluster.server.connect()
    mine = CreateZnode(znodes.CONTROLLER, ControllerZnode(7).encode(), is_ephemeral=True)
    assert seven.run([mine])[0].is_ok
    cluster.controllers[0].step_down()
    cluster.run(for_ms=2000)
    assert ControllerZnode.decode(cluster.server.data(znodes.CONTROLLER), "").broker_id == 7
    assert not cluster.controllers[0].is_active


@both_eras
def test_a_restart_between_watch_and_read_is_missed(era: ZkEra) -> None:
    """KAFKA-1120: a broker that was back before the controller looked got no requests.

    Kafka mended it with broker epochs in 2.2; 0.8 and 1.1 behave so, and so do these.
    """
    cluster = started(era)
    cluster.brokers[1].stop()
    cluster.brokers[1].start()
    cluster.sent.clear()
    cluster.run()
    assert not [one for one in cluster.sent if isinstance(one[1], LeaderAndIsr)]
    assert cluster.state("t").leader == 1
    # The next controller tells it.
    cluster.delete(znodes.CONTROLLER)
    cluster.run()
    assert KEY in cluster.brokers[1].metadata


# -- what other programs write


@both_eras
@pytest.mark.parametrize(
    "path",
    [
        znodes.REASSIGN_PARTITIONS,
        znodes.PREFERRED_ELECTION,
        znodes.CONTROLLER_EPOCH,
        znodes.topic_path("t"),
        znodes.state_path("t", 0),
        znodes.broker_path(3),
    ],
)
def test_a_corrupt_znode_is_named(era: ZkEra, path: str, caplog: pytest.LogCaptureFixture) -> None:
    """KAFKA-4914: a tool wrote what the controller could not read, and no election succeeded.

    The controller resigns, names the znode, and tries again until somebody repairs it: in 2018
    after a second, in 0.8 at once, as Kafka 0.8 did.
    """
    cluster = started(era)
    good = cluster.server.data(path) if cluster.exists(path) else None
    cluster.delete(znodes.CONTROLLER)
    corrupt = b'{"version":1,'
    if good is None:
        assert cluster.admin.run([CreateZnode(path, corrupt)])[0].is_ok
    else:
        assert cluster.admin.run([SetZnode(path, corrupt)])[0].is_ok
    if era == ZkEra.V2018:
        cluster.run(for_ms=2500)
    else:
        with pytest.raises(AssertionError, match="more than 30 events"):
            cluster.run(most_events=30)
    assert not cluster.controllers[0].is_active
    assert cluster.controllers[0].context.partition_count == 0
    assert f"could not become active: {path}" in caplog.text
    if good is None:
        cluster.delete(path)
    else:
        assert cluster.admin.run([SetZnode(path, good)])[0].is_ok
    cluster.run(for_ms=3000)
    assert cluster.active.context.brokers.keys() == {1, 2, 3}
    assert cluster.state("t").leader == 1


@both_eras
def test_an_isr_that_its_leader_writes_meanwhile_is_kept(era: ZkEra) -> None:
    """KAFKA-2729: versions of a state differed, and one side repeated its write for ever."""
    cluster = started(era)
    conflicts = 0

    def race(operations: Sequence[object]) -> None:
        nonlocal conflicts
        writes = [one for one in operations if isinstance(one, SetZnode)]
        if conflicts < 5 and any(one.path == znodes.state_path(*KEY) for one in writes):
            conflicts += 1
            path = znodes.state_path(*KEY)
            # The same state once more: its version rises.
            assert cluster.admin.run([SetZnode(path, cluster.server.data(path))])[0].is_ok

    cluster.sessions[0].before_run = race
    cluster.brokers[1].stop()
    cluster.run()
    assert conflicts == 5
    assert cluster.active.context.epoch == 1
    assert (cluster.state("t").leader, cluster.state("t").isr) == (2, (2, 3))
