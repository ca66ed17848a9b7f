"""Twins: the controllers of 0.8 and 2018 bring the same cluster to the same state.

Scripts of brokers that come and go, topics, ISRs, requests and failovers run on both, with the same
settings. Afterwards the trees agree on assignments, ISRs and requests; leaders may differ only
where the eras do (`docs/zookeeper.md`).
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping

import pytest

from kraft.zookeeper import znodes
from kraft.zookeeper.port import CreateZnode
from kraft.zookeeper.settings import ZkControllerSettings, ZkEra
from kraft.zookeeper.znodes import PartitionStateZnode, TopicZnode
from tests.unit.zookeeper.simulated import SimulatedZkCluster

SEEDS = int(os.environ.get("ZK_SEEDS", "60"))
#: Only what both do; 2018 finds preferred leaders to elect at other times.
SETTINGS = ZkControllerSettings(auto_leader_rebalance_enable=False)


def act(cluster: SimulatedZkCluster, choices: random.Random, number: int) -> None:
    """Change something; both clusters have the same topics and brokers before each step."""
    topics = sorted(
        path.rpartition("/")[2]
        for path in cluster.server.paths()
        if path.startswith(f"{znodes.TOPICS}/") and path.count("/") == 3
    )
    live = [id for id, broker in cluster.brokers.items() if broker.session is not None]
    what = choices.random()
    # In 0.8 a reassignment ends if a wanted broker is dead at a failover, in 2018 it waits.
    is_moving = cluster.exists(znodes.REASSIGN_PARTITIONS)
    broker = cluster.brokers[choices.randrange(1, 6)]
    topic = choices.choice(topics) if topics else ""
    if what < 0.25 or not topics:
        data = {p: tuple(choices.sample(range(1, 6), 3)) for p in range(2)}
        cluster.create_topic(f"t{number}", data)
    elif what < 0.5:
        if broker.session is None:
            broker.start()
        elif len(live) > 1 and not is_moving:
            broker.stop()
    elif what < 0.65:
        state_path = znodes.state_path(topic, 0)
        if cluster.exists(state_path):
            state = cluster.state(topic)
            replicas = TopicZnode.decode(
                cluster.server.data(znodes.topic_path(topic)), topic
            ).assignment[0]
            if state.leader >= 0:
                joined = [one for one in replicas if one in live and one not in state.isr]
                cluster.set_isr(topic, 0, [*state.isr, *sorted(joined)])
    elif what < 0.75:
        cluster.write(znodes.delete_topic_path(topic), b"")
    elif what < 0.85:
        keys = [(topic, 0), (topic, 1)]
        cluster.write(znodes.PREFERRED_ELECTION, znodes.encode_partitions(keys))
    elif what < 0.95:
        if not is_moving and len(live) > 1:
            wanted = {(topic, 0): choices.sample(live, 2)}
            request = znodes.encode_reassignment(wanted)
            cluster.admin.run([CreateZnode(znodes.REASSIGN_PARTITIONS, request)])
    else:
        cluster.delete(znodes.CONTROLLER)
    cluster.run(for_ms=1500)


def outcome(cluster: SimulatedZkCluster) -> Mapping[str, object]:
    """Return what the tree says of topics and requests, without epochs and versions.

    The replicas of a topic that is being deleted leave the ISR in any order.
    """
    found: dict[str, object] = {}
    for path in cluster.server.paths():
        data = cluster.server.data(path)
        if path.endswith("/state"):
            topic = path[len(znodes.TOPICS) + 1 :].partition("/")[0]
            if not cluster.exists(znodes.delete_topic_path(topic)):
                state = PartitionStateZnode.decode(data, path)
                found[path] = (state.leader, state.isr)
        elif path.startswith((f"{znodes.TOPICS}/", "/admin/")):
            found[path] = data
    return found


@pytest.mark.parametrize("seed", range(SEEDS))
def test_both_eras_agree(seed: int) -> None:
    clusters = [SimulatedZkCluster(2, 5, SETTINGS, era) for era in ZkEra]
    for cluster in clusters:
        cluster.start()
    for number in range(40):
        for cluster in clusters:
            act(cluster, random.Random(f"{seed} {number}"), number)
        old, new = map(outcome, clusters)
        assert old == new, number
    for cluster in clusters:
        for broker in cluster.brokers.values():
            if broker.session is None:
                broker.start()
        cluster.run(for_ms=1500)
    # Brokers were told the same, too.
    told = [
        {
            (id, key): known.leadership.leader
            for id, broker in cluster.brokers.items()
            for key, known in broker.replicas.items()
        }
        for cluster in clusters
    ]
    assert told[0] == told[1]
