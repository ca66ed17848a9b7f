"""What the controller of 0.8 does, seen in ZooKeeper and at the brokers, where 2018 differs too."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType

import pytest

from kraft.errors import InvalidArgumentError, NotControllerError, ZooKeeperError
from kraft.zookeeper import znodes
from kraft.zookeeper.broker_requests import LeaderAndIsr, StopReplica, UpdateMetadata
from kraft.zookeeper.era_0_8.controller import ListenerController
from kraft.zookeeper.events import ControlledShutdown, Startup
from kraft.zookeeper.port import CreateZnode, GetZnode, ZkOperation
from kraft.zookeeper.settings import SETTINGS_0_8, ZkControllerSettings, ZkEra
from kraft.zookeeper.states import PartitionKey
from kraft.zookeeper.znodes import ControllerZnode, PartitionStateZnode, TopicZnode
from tests.unit.zookeeper.simulated import (
    DELETING_0_8,
    SESSION_TIMEOUT_MS,
    SimulatedZkCluster,
)

KEY = ("t", 0)


def started(
    candidates: int = 1, brokers: int = 3, settings: ZkControllerSettings | None = None
) -> SimulatedZkCluster:
    """Return a cluster of 0.8 whose brokers run."""
    made = SimulatedZkCluster(candidates, brokers, settings, ZkEra.V0_8)
    made.start()
    return made


@pytest.fixture
def cluster() -> SimulatedZkCluster:
    """Return a cluster of 0.8 with the partition t-0 on brokers 1, 2 and 3, led by 1."""
    made = started()
    made.create_topic("t", {0: [1, 2, 3]})
    return made


def active(cluster: SimulatedZkCluster) -> ListenerController:
    found = cluster.active
    assert isinstance(found, ListenerController)
    return found


def shut_down(cluster: SimulatedZkCluster, broker: int) -> list[PartitionKey]:
    remaining = active(cluster).shut_down_broker(broker)
    cluster.run()
    return remaining


def ask_preferred(cluster: SimulatedZkCluster, *keys: PartitionKey) -> None:
    cluster.write(znodes.PREFERRED_ELECTION, znodes.encode_partitions(keys))


# -- znodes and requests


def test_the_first_controller_creates_the_tree_of_0_8() -> None:
    cluster = SimulatedZkCluster(brokers=0, era=ZkEra.V0_8)
    cluster.run()
    assert cluster.server.data(znodes.CONTROLLER_EPOCH) == b"1"
    assert set(znodes.PERSISTENT_PATHS_0_8) <= set(cluster.server.paths())
    assert not cluster.exists(znodes.ISR_CHANGES)
    # As a broker of 0.8 registers: host and port, no endpoints.
    registration = cluster.server.data(znodes.broker_path(101))
    assert b'"version":1' in registration
    assert b"endpoints" not in registration


def test_znodes_are_read_and_written_one_by_one() -> None:
    cluster = SimulatedZkCluster(era=ZkEra.V0_8)
    seen: list[int] = []
    cluster.sessions[0].before_run = lambda operations: seen.append(len(operations))
    cluster.start()
    cluster.create_topic("t", {partition: [1, 2, 3] for partition in range(4)})
    cluster.brokers[1].stop()
    cluster.write(znodes.delete_topic_path("t"), b"")
    cluster.start(1)
    assert not cluster.exists(znodes.topic_path("t"))
    assert len(seen) > 100
    assert set(seen) == {1}


def test_each_new_partition_reads_its_topic_again() -> None:
    """Why creating a topic costs the square of its partitions."""
    cluster = started()
    reads: list[str] = []

    def note(operations: Sequence[ZkOperation]) -> None:
        reads.extend(one.path for one in operations if isinstance(one, GetZnode))

    cluster.sessions[0].before_run = note  # type: ignore[assignment]
    cluster.create_topic("t", {partition: [1] for partition in range(20)})
    assert reads.count(znodes.topic_path("t")) == 1 + 20


def test_brokers_get_no_metadata_before_there_is_a_topic() -> None:
    cluster = started()
    assert cluster.sent == []
    cluster.create_topic("t", {0: [1, 2, 3], 1: [2]})
    kinds = [type(request) for _, request in cluster.sent]
    assert set(kinds) == {LeaderAndIsr, UpdateMetadata}
    # One batch for the whole topic; LeaderAndIsr has the addresses of leaders, and comes first.
    assert kinds == [LeaderAndIsr] * 3 + [UpdateMetadata] * 3
    assert cluster.state("t") == PartitionStateZnode(1, 0, (1, 2, 3), 1)


def test_a_new_broker_alone_gets_the_metadata(cluster: SimulatedZkCluster) -> None:
    cluster.create_topic("other", {0: [2]})
    cluster.brokers[1].stop()
    cluster.run()
    cluster.sent.clear()
    cluster.start(1)
    everything = [
        broker
        for broker, request in cluster.sent
        if isinstance(request, UpdateMetadata) and ("other", 0) in request.partitions
    ]
    assert everything == [1]
    assert cluster.brokers[1].replicas[KEY].leadership.leader == 2


def test_each_replica_is_stopped_by_a_request_of_its_own(cluster: SimulatedZkCluster) -> None:
    cluster.create_topic("u", {partition: [1, 2] for partition in range(3)})
    cluster.sent.clear()
    cluster.write(znodes.delete_topic_path("u"), b"")
    stops = [one for broker, one in cluster.sent if broker == 2 and isinstance(one, StopReplica)]
    assert [(one.delete, list(one.partitions)) for one in stops] == [
        (delete, [("u", partition)]) for delete in (False, True) for partition in range(3)
    ]


# -- leaders and ISRs


def test_a_dead_leader_is_replaced_and_a_dead_follower_leaves(
    cluster: SimulatedZkCluster,
) -> None:
    cluster.brokers[1].stop()
    cluster.run()
    assert cluster.state("t") == PartitionStateZnode(2, 1, (2, 3), 1)
    cluster.brokers[3].stop()
    cluster.run()
    assert cluster.state("t") == PartitionStateZnode(2, 2, (2,), 1)
    assert cluster.brokers[2].replicas[KEY].leadership.isr == (2,)


@pytest.mark.parametrize(("unclean", "isr"), [("true", ()), ("false", (1,))])
def test_the_last_member_leaves_the_isr_if_elections_may_be_unclean(
    cluster: SimulatedZkCluster, unclean: str, isr: tuple[int, ...]
) -> None:
    """0.8.2.2 writes leader -1 and an empty ISR at its defaults."""
    cluster.create_topic("u", {0: [1]})
    config = znodes.encode_config({"unclean.leader.election.enable": unclean})
    cluster.write(znodes.config_path("topics", "u"), config)
    cluster.brokers[1].stop()
    cluster.run()
    assert cluster.state("u") == PartitionStateZnode(-1, 1, isr, 1)
    cluster.start(1)
    assert cluster.state("u") == PartitionStateZnode(1, 2, (1,), 1)


def test_elections_are_unclean_by_default(cluster: SimulatedZkCluster) -> None:
    cluster.create_topic("safe", {0: [1, 2]})
    config = znodes.encode_config({"unclean.leader.election.enable": "false"})
    cluster.write(znodes.config_path("topics", "safe"), config)
    for topic in ("t", "safe"):
        cluster.set_isr(topic, 0, [1])
    cluster.brokers[1].stop()
    cluster.run()
    assert cluster.state("t") == PartitionStateZnode(2, 1, (2,), 1)
    assert cluster.state("safe") == PartitionStateZnode(-1, 1, (1,), 1)


def test_a_preferred_leader_that_leads_is_not_elected_again(cluster: SimulatedZkCluster) -> None:
    """1.1.1 raises the leader epoch, 0.8.2.2 does not."""
    cluster.create_topic("u", {0: [2, 1]})
    cluster.brokers[2].stop()
    cluster.run()
    cluster.start(2)
    cluster.set_isr("u", 0, [1, 2])
    ask_preferred(cluster, KEY, ("u", 0), ("unknown", 7))
    assert cluster.state("t").leader_epoch == 1  # the ISR lost broker 2
    assert cluster.state("u") == PartitionStateZnode(2, 2, (1, 2), 1)
    assert not cluster.exists(znodes.PREFERRED_ELECTION)


def test_a_controlled_shutdown_elects_the_first_of_the_isr() -> None:
    """2018 elects the first replica that is in the ISR."""
    leaders = {}
    for era in ZkEra:
        made = SimulatedZkCluster(era=era)
        made.start()
        made.create_topic("t", {0: [1, 2, 3]})
        made.create_topic("alone", {0: [1]})
        made.create_topic("followed", {0: [2, 1]})
        made.set_isr("t", 0, [1, 3, 2])
        found = made.active
        if isinstance(found, ListenerController):
            assert found.shut_down_broker(1) == []
        else:
            made.put(0, ControlledShutdown(1, lambda answer: None))
            made.run()
        state = made.state("t")
        leaders[era] = state.leader
        assert (state.leader_epoch, state.isr) == (1, (3, 2))
        assert made.state("followed").isr == (2,)
        assert made.state("alone").leader == 1
        assert (1, StopReplica(101, 1, False, [("followed", 0)])) in made.sent
    assert leaders == {ZkEra.V0_8: 3, ZkEra.V2018: 2}


def test_a_shutdown_that_is_refused(cluster: SimulatedZkCluster) -> None:
    with pytest.raises(InvalidArgumentError, match="broker 9 is not registered"):
        shut_down(cluster, 9)
    # Nobody else can lead.
    cluster.set_isr("t", 0, [1])
    assert shut_down(cluster, 1) == [KEY]
    found = active(cluster)
    found.step_down()
    with pytest.raises(NotControllerError, match="controller 101 is not active"):
        found.shut_down_broker(1)


class CountingLock:
    """The controller's lock, and how often it was taken while it was free.

    ``on_free`` is called when it is free again.
    """

    def __init__(self, on_free: Callable[[], None] = lambda: None) -> None:
        self.on_free = on_free
        self.lock = threading.RLock()
        self.depth = 0
        self.taken = 0

    def __enter__(self) -> None:
        self.lock.acquire()
        self.taken += self.depth == 0
        self.depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self.depth -= 1
        self.lock.release()
        if self.depth == 0:
            self.on_free()


def test_the_lock_is_free_between_partitions() -> None:
    cluster = started()
    cluster.create_topic("t", {partition: [1, 2] for partition in range(10)})
    found = active(cluster)
    lock = CountingLock()
    found._lock = lock  # type: ignore[assignment]
    shut_down(cluster, 1)
    # Before, after, and once for each partition. The answers of brokers take it too.
    answers = found.event_counts["BrokerResponseReceived"]
    assert lock.taken >= 12
    assert answers > 0
    cluster.brokers[1].stop()
    cluster.run()
    cluster.start(1)
    for partition in range(10):
        cluster.set_isr("t", partition, [2, 1])
    before = lock.taken
    cluster.run(for_ms=6000)
    # The rebalance looks once, then elects one partition after the other.
    assert [cluster.state("t", partition).leader for partition in range(10)] == [1] * 10
    assert lock.taken - before >= 1 + 10


def test_a_shutdown_ends_when_the_controller_resigns_meanwhile() -> None:
    """Else a broker that still leads partitions would be told that it may stop."""
    cluster = started()
    cluster.create_topic("t", {partition: [1, 2] for partition in range(10)})
    found = active(cluster)

    def resign() -> None:
        if lock.taken == 5:
            found.step_down()

    lock = CountingLock(resign)
    found._lock = lock  # type: ignore[assignment]
    with pytest.raises(NotControllerError, match="controller 101 is not active"):
        found.shut_down_broker(1)
    assert [cluster.state("t", partition).leader for partition in range(10)] == [2] * 4 + [1] * 6


def test_an_error_in_a_shutdown_makes_it_resign(cluster: SimulatedZkCluster) -> None:
    found = active(cluster)

    def fail(operations: object) -> None:
        raise ZooKeeperError("planted")

    cluster.sessions[0].before_run = fail
    with pytest.raises(ZooKeeperError, match="planted"):
        found.shut_down_broker(1)
    assert not found.is_active


# -- reassignment and deletion


def test_a_reassignment_replaces_all_replicas() -> None:
    cluster = started(brokers=5)
    cluster.create_topic("t", {0: [1, 2], 1: [1, 2]})
    cluster.write(znodes.REASSIGN_PARTITIONS, znodes.encode_reassignment({KEY: [4, 5]}))
    data = cluster.server.data(znodes.topic_path("t"))
    assert TopicZnode.decode(data, "t").assignment == {0: (4, 5, 1, 2), 1: (1, 2)}
    cluster.set_isr("t", 0, [1, 2, 4])
    assert cluster.exists(znodes.REASSIGN_PARTITIONS)
    cluster.set_isr("t", 0, [1, 2, 4, 5])
    data = cluster.server.data(znodes.topic_path("t"))
    assert TopicZnode.decode(data, "t").assignment == {0: (4, 5), 1: (1, 2)}
    assert cluster.state("t").leader == 4
    assert set(cluster.state("t").isr) == {4, 5}
    assert KEY not in cluster.brokers[1].replicas
    assert not cluster.exists(znodes.REASSIGN_PARTITIONS)


def test_a_reassignment_to_a_dead_broker_is_dropped(
    cluster: SimulatedZkCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """2018 begins it, and waits for the broker."""
    cluster.brokers[3].stop()
    cluster.run()
    cluster.create_topic("u", {0: [1]})
    cluster.write(znodes.REASSIGN_PARTITIONS, znodes.encode_reassignment({("u", 0): [3, 2]}))
    assert "u-0 is not reassigned: not all of the replicas [3, 2] are alive" in caplog.text
    assert not cluster.exists(znodes.REASSIGN_PARTITIONS)
    assert active(cluster).context.assignment(("u", 0)) == (1,)


def test_topics_are_not_deleted_by_default() -> None:
    cluster = started(settings=SETTINGS_0_8)
    cluster.create_topic("t", {0: [1]})
    cluster.write(znodes.delete_topic_path("t"), b"")
    cluster.delete(znodes.CONTROLLER)
    cluster.run()
    # Unlike 2018, which drops the request.
    assert cluster.exists(znodes.topic_path("t"))
    assert cluster.exists(znodes.delete_topic_path("t"))
    assert KEY in cluster.brokers[1].metadata


def test_a_topic_is_deleted_when_its_brokers_live(cluster: SimulatedZkCluster) -> None:
    cluster.brokers[3].stop()
    cluster.run()
    cluster.write(znodes.delete_topic_path("t"), b"")
    assert cluster.exists(znodes.topic_path("t"))
    assert KEY not in cluster.brokers[1].replicas
    assert KEY not in cluster.brokers[1].metadata
    # The brokers that lost it do not get it back.
    ask_preferred(cluster, KEY)
    cluster.start(3)
    assert not cluster.exists(znodes.topic_path("t"))
    assert not cluster.exists(znodes.delete_topic_path("t"))
    assert KEY not in cluster.brokers[3].replicas
    cluster.create_topic("t", {0: [2]})
    assert cluster.state("t") == PartitionStateZnode(2, 0, (2,), 1)


def test_a_deletion_that_a_broker_refuses_is_tried_again(cluster: SimulatedZkCluster) -> None:
    cluster.brokers[2].errors[KEY] = 13
    cluster.write(znodes.delete_topic_path("t"), b"")
    assert cluster.exists(znodes.topic_path("t"))
    cluster.brokers[2].errors.clear()
    cluster.brokers[2].stop()
    cluster.run()
    cluster.start(2)
    assert not cluster.exists(znodes.topic_path("t"))


# -- elections


def test_a_changed_znode_names_the_leader() -> None:
    """The leader that it names no more resigns, as from 0.10.2 on (KAFKA-4447)."""
    cluster = started(candidates=2)
    first, second = cluster.controllers
    cluster.write(znodes.CONTROLLER, ControllerZnode(7).encode())
    assert [one.active_controller_id for one in cluster.controllers] == [7, 7]
    # The session of the first still has the znode: it stays active until it is someone else's.
    assert first.is_active
    cluster.delete(znodes.CONTROLLER)
    seven = cluster.server.connect()
    assert seven.run([CreateZnode(znodes.CONTROLLER, b'{"brokerid":7}', is_ephemeral=True)])[
        0
    ].is_ok
    cluster.run()
    assert [one.is_active for one in (first, second)] == [False, False]
    assert not cluster.exists(znodes.broker_path(101))
    seven.close()
    cluster.run()
    assert cluster.active.context.epoch == 2


def test_a_znode_of_before_0_8_1_is_read() -> None:
    cluster = SimulatedZkCluster(era=ZkEra.V0_8)
    old = cluster.server.connect()
    old.run([CreateZnode(znodes.CONTROLLER, b"5", is_ephemeral=True)])
    cluster.run()
    assert cluster.controllers[0].active_controller_id == 5


def test_a_new_session_elects_again() -> None:
    cluster = started(candidates=2)
    cluster.create_topic("t", {0: [1, 2]})
    first, second = cluster.controllers
    cluster.server.expire(cluster.sessions[0].session_id)
    cluster.run()
    assert (first.is_active, second.is_active) == (False, True)
    assert first.event_counts["SessionExpirationListener"] == 1
    assert first.context.partition_count == 0
    cluster.server.expire(cluster.sessions[1].session_id)
    cluster.run()
    assert cluster.active.context.epoch == 3
    assert cluster.state("t").leader == 1


def test_an_old_session_at_the_start_is_followed(cluster: SimulatedZkCluster) -> None:
    """A process that was started again finds its own id, and is not active until that is gone."""
    again = SimulatedZkCluster(era=ZkEra.V0_8)
    old = again.server.connect()
    old.run([CreateZnode(znodes.CONTROLLER, ControllerZnode(101).encode(), is_ephemeral=True)])
    again.run()
    (controller,) = again.controllers
    assert (controller.active_controller_id, controller.is_active) == (101, False)
    old.close()
    again.run()
    assert controller.is_active


def test_an_old_session_in_the_election_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    """Its znode appears after the look and before the create; ZooKeeper ends it late."""
    caplog.set_level("INFO")
    cluster = SimulatedZkCluster(era=ZkEra.V0_8)
    old = cluster.server.connect()
    mine = CreateZnode(znodes.CONTROLLER, ControllerZnode(101, 5).encode(), is_ephemeral=True)
    waits: list[int] = []

    def race(operations: Sequence[object]) -> None:
        if isinstance(operations[0], CreateZnode) and operations[0].is_ephemeral and not waits:
            old.run([mine])

    def on_wait() -> None:
        waits.append(cluster.now_ms)
        if len(waits) == 2:
            old.close()

    cluster.sessions[0].before_run = race
    cluster.on_wait = on_wait
    cluster.run()
    assert waits == [1000 + SESSION_TIMEOUT_MS, 1000 + 2 * SESSION_TIMEOUT_MS]
    assert cluster.active.context.epoch == 1
    assert caplog.text.count("controller 101 waits for the end of its old session") == 2


def test_an_election_that_is_lost_names_the_winner() -> None:
    cluster = SimulatedZkCluster(era=ZkEra.V0_8)
    winner = cluster.server.connect()

    def race(operations: Sequence[object]) -> None:
        if isinstance(operations[0], CreateZnode) and operations[0].is_ephemeral:
            winner.run([CreateZnode(znodes.CONTROLLER, b'{"brokerid":7}', is_ephemeral=True)])

    cluster.sessions[0].before_run = race
    cluster.run()
    assert cluster.controllers[0].active_controller_id == 7
    assert not cluster.controllers[0].is_active


def test_an_election_that_is_lost_to_a_znode_that_vanishes_goes_on() -> None:
    cluster = SimulatedZkCluster(era=ZkEra.V0_8)
    winner = cluster.server.connect()
    seen: list[str] = []

    def race(operations: Sequence[object]) -> None:
        (operation,) = operations
        if isinstance(operation, CreateZnode) and operation.is_ephemeral and not seen:
            winner.run([CreateZnode(znodes.CONTROLLER, b'{"brokerid":7}', is_ephemeral=True)])
            seen.append("created")
        elif isinstance(operation, GetZnode) and seen == ["created"]:
            winner.close()
            seen.append("gone")

    cluster.sessions[0].before_run = race
    # The watch's event is not needed: the election itself tries again.
    cluster.controllers[0].process(Startup())
    assert seen == ["created", "gone"]
    assert cluster.controllers[0].is_active


@pytest.mark.parametrize("era", ZkEra)
def test_a_controller_that_is_elected_again_has_one_timer(era: ZkEra) -> None:
    """The timer of the epoch before is ignored."""
    settings = ZkControllerSettings() if era == ZkEra.V2018 else DELETING_0_8
    settings = replace(settings, leader_imbalance_check_interval_ms=1000)
    cluster = SimulatedZkCluster(settings=settings, era=era)
    cluster.start()
    for _ in range(3):
        cluster.delete(znodes.CONTROLLER)
        cluster.run(for_ms=1500)
    assert cluster.active.context.epoch == 4
    cluster.run(for_ms=6000)
    counts = cluster.active.event_counts
    name = next(name for name in counts if name.startswith(("Auto", "partition-rebalance")))
    before = counts[name]
    cluster.run(for_ms=20_000)
    assert counts[name] - before == 20
