"""Counts of replicas by their states, of ISR changes and of lags: what metrics show."""

from __future__ import annotations

import time

from kraft.broker.replication.broker_liveness import BrokerLiveness
from kraft.broker.replication.context import ReplicationContext
from kraft.broker.replication.leader_fetcher import FetcherSettings
from kraft.broker.replication.messages import PartitionId
from kraft.broker.replication.partition import HostedPartition, PartitionAssignment
from kraft.broker.replication.replica_counts import ReplicaCounts, ReplicaStates
from kraft.broker.replication.settings import ReplicationSettings
from kraft.simulation.replica_log import ReplicaLog
from tests.harness.joined_brokers import P0, JoinedBrokers


def test_isr_changes_and_states_are_counted() -> None:
    cluster = JoinedBrokers(1, 2, 3, min_isr=2)
    cluster.create(leader=1)
    manager = cluster[1].manager

    def states() -> ReplicaStates:
        return manager.counts.states(len(manager.partitions), lambda topic: 2)

    assert states() == ReplicaStates(1, 1, 0, 0, 0, 0, 0)
    cluster.change(isr=[1, 2])
    assert states() == ReplicaStates(1, 1, 0, 1, 0, 1, 0)
    cluster.change(isr=[1])
    assert states() == ReplicaStates(1, 1, 0, 1, 1, 0, 0)
    cluster.change(leader=2, isr=[2])
    assert states() == ReplicaStates(1, 0, 0, 0, 0, 0, 0)
    cluster.change(leader=1, isr=[1, 2, 3])
    cluster[1].produce()
    cluster.wait(30_000.0)
    manager.tick(cluster[1].now)
    assert len(cluster.commit_isr(1)) == 1
    assert (manager.traffic.isr_shrinks, manager.traffic.isr_expands) == (1, 0)
    assert states() == ReplicaStates(1, 1, 0, 1, 1, 0, 0)
    manager.directory_failed(cluster[1].partition(P0).directory, cluster[1].now)
    assert states() == ReplicaStates(1, 0, 1, 0, 0, 0, 0)
    cluster.change(replicas=[2, 3], isr=[2], leader=2, directories=[P0.topic_id] * 2)
    assert states() == ReplicaStates(0, 0, 0, 0, 0, 0, 0)


def test_the_lag_of_a_follower_is_what_it_lacks() -> None:
    settings = ReplicationSettings(fetcher=FetcherSettings(max_bytes=1))
    cluster = JoinedBrokers(1, 2, 3, settings=settings)
    cluster.create(leader=1)
    for _ in range(3):
        cluster[1].produce(acks=1)
    # Another replica has all, and this one a batch of each response.
    cluster.change(isr=[1])
    lags = cluster[2].manager.fetching.lags
    seen = []
    for _ in range(4):
        cluster.replicate(2, rounds=1)
        seen.append(max(lags.values(), default=0))
    assert seen == [2, 1, 0, 0]
    cluster.change(isr=[1, 2])
    cluster[1].produce(acks=1)
    cluster.replicate(2, rounds=1)
    cluster.change(leader=2)
    assert lags == {}


def test_a_reading_costs_the_topics_and_not_the_partitions() -> None:
    """100,000 led partitions of 100 topics: Kafka's gauges visit each partition."""
    counts = ReplicaCounts()
    log = cluster_log()
    for number in range(100_000):
        topic = number // 1000
        partition = HostedPartition(
            PartitionId(topic.to_bytes(16, "big"), number % 1000), f"topic-{topic}", log
        )
        partition.become_leader(PartitionAssignment(1, 0, 0, (1, 2, 3), (1, 2, 3)), CONTEXT, 0.0)
        counts.note(partition)
    costs = []
    for _ in range(5):
        begin = time.process_time()
        states = counts.states(100_000, lambda topic: 2)
        costs.append(time.process_time() - begin)
        assert states == ReplicaStates(100_000, 100_000, 0, 0, 0, 0, 0)
    # The cheapest, because a garbage collection of all these objects may fall into one of them.
    assert min(costs) < 0.01


def cluster_log() -> ReplicaLog:
    cluster = JoinedBrokers(1)
    cluster.create(leader=1)
    return cluster[1].log()


CONTEXT = ReplicationContext(1, BrokerLiveness(), None)  # type: ignore[arg-type]
