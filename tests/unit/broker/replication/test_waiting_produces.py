"""A Produce with acks=all that waits: it is answered in time, whatever happens meanwhile.

`kraft.simulation.answered_requests` checks the same of all requests in whole clusters.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kraft import records
from kraft.broker.replication.messages import PartitionId
from kraft.broker.replication.partition import ALL_IN_SYNC
from kraft.errors import (
    KAFKA_STORAGE_ERROR,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
    UNKNOWN_TOPIC_ID,
)
from kraft.records import Uuid
from tests.harness.joined_brokers import (
    DIRECTORY,
    P0,
    TOPIC,
    JoinedBroker,
    JoinedBrokers,
    batch,
)

P1 = PartitionId(bytes(TOPIC), 1)
TIMEOUT_MS = 1_000.0
Event = Callable[[JoinedBrokers], None]


def _demoted_and_elected_again(cluster: JoinedBrokers) -> None:
    """Broker 1 sees two elections in one step of the metadata."""
    cluster.change(leader=2, to=(2,))
    cluster.change(leader=1)


def _moved(cluster: JoinedBrokers) -> None:
    others = [id for id in cluster.brokers if id != 1]
    cluster.change(replicas=others, isr=others, directories=[DIRECTORY] * len(others), leader=2)


#: What may happen to a partition that broker 1 leads, and the error that ends the wait then; None
#: if only the timeout does.
EVENTS: dict[str, tuple[Event, int | None]] = {
    "its directory fails": (
        lambda cluster: cluster[1].manager.directory_failed(bytes(DIRECTORY), cluster[1].now),
        KAFKA_STORAGE_ERROR,
    ),
    "another broker leads": (lambda cluster: cluster.change(leader=2), NOT_LEADER_OR_FOLLOWER),
    "no broker leads": (lambda cluster: cluster.change(leader=-1), NOT_LEADER_OR_FOLLOWER),
    "its replica moves to other brokers": (_moved, NOT_LEADER_OR_FOLLOWER),
    "its topic is deleted": (
        lambda cluster: cluster.append(records.RemoveTopic(topic_id=TOPIC)),
        UNKNOWN_TOPIC_ID,
    ),
    "the same broker leads a new epoch": (lambda cluster: cluster.change(leader=1), None),
    "the same broker leads again in one step": (_demoted_and_elected_again, None),
    "too few replicas are in sync": (lambda cluster: cluster.change(isr=[1]), None),
    "nothing": (lambda cluster: None, None),
}


def _pass_time(broker: JoinedBroker, to_ms: float) -> None:
    """Let a broker's timers go off, as its driver does: at the times that it names."""
    while (wake_at_ms := broker.take().wake_at_ms) <= to_ms:
        broker.now = max(broker.now, wake_at_ms)
        broker.manager.tick(broker.now)
    broker.now = to_ms
    broker.take()


@pytest.mark.parametrize("name", EVENTS)
def test_a_waiting_produce_is_answered(name: str) -> None:
    event, error = EVENTS[name]
    cluster = JoinedBrokers(1, 2, 3, min_isr=2)
    cluster.create(leader=1)
    leader = cluster[1]
    assert leader.produce(timeout_ms=TIMEOUT_MS) is None
    event(cluster)
    leader.take()
    if error is None:
        _pass_time(leader, TIMEOUT_MS - 1)
        assert "produce" not in leader.answers
        _pass_time(leader, TIMEOUT_MS)
        error = REQUEST_TIMED_OUT
    assert leader.answers["produce"][P0].error == error


@pytest.mark.parametrize("name", EVENTS)
def test_one_lost_partition_of_two_does_not_hold_the_answer_back(name: str) -> None:
    """The other one is acknowledged later; the answer has both outcomes."""
    event, error = EVENTS[name]
    cluster = JoinedBrokers(1, 2, min_isr=2)
    for partition, directory in ((0, DIRECTORY), (1, Uuid(b"d" * 15 + b"2"))):
        cluster.create(leader=1, partition=partition, directory=directory)
    leader = cluster[1]
    batches = {P0: batch(), P1: batch()}
    assert leader.manager.produce("both", batches, ALL_IN_SYNC, TIMEOUT_MS, leader.now)
    event(cluster)
    if error != UNKNOWN_TOPIC_ID:
        assert not leader.take().answers
        leader.fetch(1, replica=2, epoch=0, id=P1)
    if error is None:
        _pass_time(leader, TIMEOUT_MS)
    leader.take()
    answer = leader.answers["both"]
    assert answer[P0].error == (REQUEST_TIMED_OUT if error is None else error)
    assert answer[P1].error == (NONE if error != UNKNOWN_TOPIC_ID else error)
