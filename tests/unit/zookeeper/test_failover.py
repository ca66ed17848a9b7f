"""Failures at every step of a failover, and random faults: one controller acts in each epoch."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence

import pytest

from kraft.errors import ZooKeeperError
from kraft.zookeeper import znodes
from kraft.zookeeper.port import CreateZnode, DeleteZnode, SetZnode
from kraft.zookeeper.settings import ZkEra
from kraft.zookeeper.znodes import TopicZnode
from tests.unit.zookeeper.failovers import before_failover, check_settled, outcome
from tests.unit.zookeeper.simulated import SimulatedZkCluster

SEEDS = int(os.environ.get("ZK_SEEDS", "60"))
KEY = ("t", 0)


def calls_of_a_failover(era: ZkEra) -> tuple[int, object]:
    """Return how often the next controller uses ZooKeeper, and the outcome."""
    cluster = before_failover(era)
    calls = 0

    def count(operations: object) -> None:
        nonlocal calls
        calls += cluster.controllers[1].is_active

    cluster.sessions[1].before_run = count
    cluster.server.expire(cluster.sessions[0].session_id)
    cluster.run()
    assert cluster.active is cluster.controllers[1]
    return calls, outcome(cluster)


FAILOVERS = {era: calls_of_a_failover(era) for era in ZkEra}


@pytest.mark.parametrize("era", ZkEra)
def test_a_failover_does_all_that_waits(era: ZkEra) -> None:
    assert FAILOVERS[era][0] > 30
    cluster = before_failover(era)
    cluster.server.expire(cluster.sessions[0].session_id)
    cluster.run()
    assert cluster.state("t").leader == 2
    assert cluster.state("new").leader == 3
    assert cluster.state("moving").leader == 4
    for path in (
        znodes.topic_path("gone"),
        znodes.delete_topic_path("gone"),
        znodes.PREFERRED_ELECTION,
        znodes.REASSIGN_PARTITIONS,
    ):
        assert not cluster.exists(path)


def fail(cluster: SimulatedZkCluster) -> None:
    raise ZooKeeperError("planted")


def expire(cluster: SimulatedZkCluster) -> None:
    cluster.server.expire(cluster.sessions[1].session_id)


def lose_the_race(cluster: SimulatedZkCluster) -> None:
    """Another controller is elected, although this one does not know it yet."""
    cluster.admin.run([DeleteZnode(znodes.CONTROLLER)])


def test_both_eras_do_the_same() -> None:
    """The tree after a failover, except that 0.8 has fewer paths, and no ISR notifications."""
    old, new = (FAILOVERS[era][1] for era in (ZkEra.V0_8, ZkEra.V2018))
    assert isinstance(old, dict)
    assert isinstance(new, dict)
    only_2018 = {
        *(znodes.ISR_CHANGES, znodes.LOG_DIR_EVENTS, "/brokers/seqid"),
        *("/config/clients", "/config/users", "/config/brokers"),
    }
    assert {path: data for path, data in new.items() if path not in only_2018} == old


@pytest.mark.parametrize("fault", [fail, expire, lose_the_race])
@pytest.mark.parametrize(
    ("era", "step"), [(era, step) for era in ZkEra for step in range(FAILOVERS[era][0])]
)
def test_a_failure_at_each_step_makes_the_next_one_finish(
    era: ZkEra, step: int, fault: Callable[[SimulatedZkCluster], None]
) -> None:
    cluster = before_failover(era)
    failing = cluster.controllers[1]
    calls = 0

    def plant(operations: object) -> None:
        nonlocal calls
        if failing.is_active:
            calls += 1
            if calls == step + 1:
                fault(cluster)

    cluster.sessions[1].before_run = plant
    cluster.server.expire(cluster.sessions[0].session_id)
    cluster.run(for_ms=3000)
    assert calls > step
    # The fault made it resign cleanly: it knows nothing and has no channel, unless elected again.
    assert len([one for one in cluster.controllers if one.is_active]) == 1
    for index, controller in enumerate(cluster.controllers):
        if not controller.is_active:
            assert controller.context.partition_count == 0
            assert controller.context.brokers == {}
            assert controller.deletion.queued == set()
            assert cluster.channels[index].open == set()
    # The first two steps read and raise the epoch.
    epoch = 2 if step < 2 and fault is not lose_the_race else 3
    assert (
        int(cluster.server.data(znodes.CONTROLLER_EPOCH)) == cluster.active.context.epoch >= epoch
    )
    assert outcome(cluster) == FAILOVERS[era][1]


@pytest.mark.parametrize("era", ZkEra)
def test_who_loses_the_race_for_the_epoch_resigns(
    era: ZkEra, caplog: pytest.LogCaptureFixture
) -> None:
    """A controller that was thought dead and one that was elected after it read the same epoch."""
    cluster = SimulatedZkCluster(era=era)
    raced: list[bool] = []

    def race(operations: Sequence[object]) -> None:
        paths = [one.path for one in operations if isinstance(one, SetZnode)]
        if paths == [znodes.CONTROLLER_EPOCH] and not raced:
            raced.append(True)
            cluster.admin.run([SetZnode(znodes.CONTROLLER_EPOCH, b"7")])

    cluster.start()
    cluster.create_topic("t", {0: [1]})
    cluster.sessions[0].before_run = race
    cluster.delete(znodes.CONTROLLER)
    cluster.run()
    assert raced
    assert cluster.controllers[0].context.epoch != 2
    assert "controller epoch 1 was raised by another controller: BAD_VERSION" in caplog.text
    cluster.run(for_ms=1000)
    assert cluster.active.context.epoch == 8
    assert set(cluster.actors) == {1, 8}


@pytest.mark.parametrize("era", ZkEra)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_faults(seed: int, era: ZkEra) -> None:
    """Expiries in the middle of anything, brokers that come and go, topics, ISRs, requests."""
    choices = random.Random(seed)
    cluster = SimulatedZkCluster(candidates=3, brokers=4, era=era)
    cluster.start()
    epochs = [1]
    topics: list[str] = []

    def strike(operations: object) -> None:
        if choices.random() < 0.004:
            index = choices.randrange(len(cluster.sessions))
            if cluster.server.is_open(cluster.sessions[index].session_id):
                cluster.server.expire(cluster.sessions[index].session_id)
        elif choices.random() < 0.002:
            raise ZooKeeperError("planted")

    for session in cluster.sessions:
        session.before_run = strike
    for number in range(40):
        what = choices.random()
        broker = cluster.brokers[choices.randrange(1, 5)]
        if what < 0.3:
            if broker.session is None:
                broker.start()
            else:
                broker.stop()
        elif what < 0.55:
            topic = f"t{number}"
            topics.append(topic)
            data = {p: tuple(choices.sample(range(1, 5), 3)) for p in range(3)}
            path = znodes.topic_path(topic)
            cluster.admin.run([CreateZnode(path, TopicZnode(data).encode())])
        elif what < 0.65 and topics:
            topic = topics.pop(choices.randrange(len(topics)))
            cluster.admin.run([CreateZnode(znodes.delete_topic_path(topic))])
        elif what < 0.75 and topics:
            key = (choices.choice(topics), 0)
            data_of = znodes.encode_reassignment({key: choices.sample(range(1, 5), 2)})
            cluster.admin.run([CreateZnode(znodes.REASSIGN_PARTITIONS, data_of)])
        elif what < 0.85 and topics:
            key = (choices.choice(topics), 1)
            election = znodes.encode_partitions([key])
            cluster.admin.run([CreateZnode(znodes.PREFERRED_ELECTION, election)])
        else:
            index = choices.randrange(3)
            cluster.server.expire(cluster.sessions[index].session_id)
        cluster.run(for_ms=choices.choice((0, 0, 500)), most_events=20_000)
        epochs.append(int(cluster.server.data(znodes.CONTROLLER_EPOCH)))
    for session in cluster.sessions:
        session.before_run = lambda operations: None
    for broker in cluster.brokers.values():
        if broker.session is None:
            broker.start()
    # A last failover, so that nothing that was lost in a planted fault stays lost.
    cluster.run(for_ms=2000)
    cluster.delete(znodes.CONTROLLER)
    cluster.run(for_ms=10_000, most_events=50_000)
    assert epochs == sorted(epochs)
    assert sorted(cluster.actors) == sorted(set(cluster.actors))
    check_settled(cluster)
    assert KEY not in cluster.active.context.reassigned
