"""DeleteRecords: log start offsets and the low watermark (Partition, DelayedDeleteRecords)."""

from __future__ import annotations

import pytest

from kraft.broker.replication.messages import EARLIEST, DeletedRecords, ListedOffset
from kraft.broker.replication.partition import TO_HIGH_WATERMARK
from kraft.errors import (
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
    POLICY_VIOLATION,
    REQUEST_TIMED_OUT,
)
from tests.harness.joined_brokers import P0, JoinedBrokers, fence


def committed(count: int) -> JoinedBrokers:
    """Return two brokers with ``count`` committed records."""
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1)
    for _ in range(count):
        cluster[1].produce(acks=1)
    cluster.replicate(2, rounds=3)
    assert cluster[1].partition().high_watermark == count
    return cluster


def delete(cluster: JoinedBrokers, offset: int) -> DeletedRecords | None:
    leader = cluster[1]
    leader.manager.delete_records("delete", {P0: offset}, 500.0, leader.now)
    leader.take()
    answer: dict[object, DeletedRecords] | None = leader.answers.pop("delete", None)
    return None if answer is None else answer[P0]


def test_it_waits_until_all_live_replicas_have_deleted() -> None:
    cluster = committed(4)
    assert delete(cluster, 3) is None
    assert cluster[1].log().start_offset == 3
    cluster.replicate(2, rounds=2)
    assert cluster[2].log().start_offset == 3
    assert cluster[1].answers["delete"][P0] == DeletedRecords(NONE, 3)


def test_a_fenced_replica_does_not_count() -> None:
    cluster = committed(4)
    cluster.append(fence(2))
    assert delete(cluster, 3) == DeletedRecords(NONE, 3)


def test_a_replica_that_is_fenced_meanwhile_does_not_count() -> None:
    """The next fetch of another replica answers it, though that one has nothing to fetch."""
    cluster = JoinedBrokers(1, 2, 3)
    cluster.create(leader=1)
    for _ in range(4):
        cluster[1].produce(acks=1)
    for follower in (2, 3, 2, 3):
        cluster.replicate(follower)
    assert delete(cluster, 3) is None
    cluster.replicate(2, rounds=5)
    assert "delete" not in cluster[1].answers
    cluster.append(fence(3))
    cluster.replicate(2, rounds=1)
    assert cluster[1].answers["delete"][P0] == DeletedRecords(NONE, 3)


def test_it_times_out() -> None:
    cluster = committed(4)
    assert delete(cluster, 3) is None
    cluster.wait(500.0)
    cluster[1].manager.tick(cluster[1].now)
    cluster[1].take()
    assert cluster[1].answers["delete"][P0] == DeletedRecords(REQUEST_TIMED_OUT)


def test_a_lost_leadership_answers_it() -> None:
    cluster = committed(4)
    assert delete(cluster, 3) is None
    cluster.change(leader=2)
    assert cluster[1].answers["delete"][P0] == DeletedRecords(NOT_LEADER_OR_FOLLOWER)


def test_minus_one_is_the_high_watermark() -> None:
    cluster = committed(4)
    cluster[1].produce(acks=1)
    delete(cluster, TO_HIGH_WATERMARK)
    assert cluster[1].log().start_offset == 4


@pytest.mark.parametrize("offset", [-2, 5])
def test_offsets_beyond_the_high_watermark_are_out_of_range(offset: int) -> None:
    cluster = committed(4)
    cluster[1].produce(acks=1)
    assert delete(cluster, offset) == DeletedRecords(OFFSET_OUT_OF_RANGE)


def test_a_compacted_topic_rejects_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = committed(4)
    monkeypatch.setattr(cluster[1].manager.context.topics, "is_deleting", lambda topic: False)
    assert delete(cluster, 1) == DeletedRecords(POLICY_VIOLATION)
    assert cluster[1].log().start_offset == 0


def test_the_earliest_offset_has_its_leader_epoch() -> None:
    cluster = committed(2)
    cluster.change(leader=1)
    cluster[1].produce(acks=1)
    cluster.replicate(2, rounds=5)
    assert cluster[1].manager.list_offset(P0, EARLIEST) == ListedOffset(NONE, 0, -1, 0)
    delete(cluster, 2)
    assert cluster[1].manager.list_offset(P0, EARLIEST) == ListedOffset(NONE, 2, -1, 1)
    delete(cluster, 3)
    assert cluster[1].manager.list_offset(P0, EARLIEST) == ListedOffset(NONE, 3, -1, -1)
