"""Replication quotas: which followers wait, at the leader and at the follower (KIP-73)."""

from __future__ import annotations

import pytest

from kraft.broker.replication.leader_fetcher import FetcherSettings
from kraft.broker.replication.messages import (
    BrokerFetchRequest,
    BrokerFetchResponse,
    FetchPartition,
)
from kraft.broker.replication.quotas import ALL_PARTITIONS, ReplicationQuota
from kraft.broker.replication.settings import ReplicationSettings
from tests.harness.joined_brokers import MAX_LAG_MS, P0, JoinedBrokers, batch

SIZE = 1_000


@pytest.fixture
def brokers() -> JoinedBrokers:
    """Brokers 1 and 2; follower 2 is not in sync, and 20 batches behind."""
    brokers = JoinedBrokers(1, 2)
    brokers.create(leader=1, isr=[1])
    for number in range(20):
        brokers[1].produce(number, batch(b"x" * SIZE), acks=1)
    return brokers


def throttle(quota: ReplicationQuota, limit: float) -> None:
    quota.limit = limit
    quota.throttle("a", ALL_PARTITIONS)


def test_a_leader_sends_nothing_to_a_throttled_follower_above_the_rate(
    brokers: JoinedBrokers,
) -> None:
    leader = brokers[1]
    throttle(leader.manager.context.quotas.leader, 2.0 * SIZE)

    def sent() -> int:
        answer = leader.fetch(0, replica=2, epoch=0, max_bytes=5 * SIZE)
        assert answer is not None
        assert not answer.error
        return answer.size

    assert sent() > 4 * SIZE
    assert sent() == 0
    brokers.wait(1_000)
    assert sent() == 0
    brokers.wait(2_000)
    assert sent() > 4 * SIZE


def test_a_partition_that_was_held_back_is_read_again_in_its_session(
    brokers: JoinedBrokers,
) -> None:
    leader = brokers[1].manager
    throttle(leader.context.quotas.leader, 2.0 * SIZE)

    def sent(session: int, epoch: int, *partitions: FetchPartition) -> int:
        request = BrokerFetchRequest(
            partitions, 2, 2, max_bytes=5 * SIZE, session_id=session, session_epoch=epoch
        )
        leader.fetch("fetch", request, brokers[1].now)
        brokers[1].take()
        answer: BrokerFetchResponse = brokers[1].answers.pop("fetch")
        assert not answer.error
        assert answer.session_id == 1
        return sum(each.size for each in answer.partitions)

    assert sent(0, 0, FetchPartition(P0, 0, 5 * SIZE, 0)) > 4 * SIZE
    assert sent(1, 1) == 0
    assert len(leader.fetches.settled) == 0
    brokers.wait(3_000)
    assert sent(1, 2) > 4 * SIZE


def test_a_fetch_that_a_quota_holds_back_waits_and_reads_again_at_its_end(
    brokers: JoinedBrokers,
) -> None:
    leader = brokers[1]
    throttle(leader.manager.context.quotas.leader, 2.0 * SIZE)
    first = leader.fetch(0, replica=2, epoch=0, max_bytes=5 * SIZE)
    assert first is not None
    assert leader.fetch(0, replica=2, epoch=0, max_bytes=5 * SIZE, max_wait_ms=3_000.0) is None
    leader.produce("more", batch(b"x" * SIZE), acks=1)
    assert leader.fetched() is None
    brokers.wait(3_000)
    leader.manager.tick(leader.now)
    leader.take()
    answer = leader.fetched()
    assert answer is not None
    assert answer.size == first.size > 4 * SIZE


def test_a_leader_does_not_hold_back_a_follower_in_sync(brokers: JoinedBrokers) -> None:
    leader = brokers[1]
    brokers.change(isr=[1, 2])
    throttle(leader.manager.context.quotas.leader, 1.0)
    for _ in range(3):
        answer = leader.fetch(0, replica=2, epoch=0, max_bytes=5 * SIZE)
        assert answer is not None
        assert answer.size > 4 * SIZE


def test_a_leader_does_not_hold_back_consumers(brokers: JoinedBrokers) -> None:
    leader = brokers[1]
    throttle(leader.manager.context.quotas.leader, 1.0)
    for _ in range(3):
        answer = leader.fetch(0, max_bytes=5 * SIZE)
        assert answer is not None
        assert answer.size > 4 * SIZE


def throttled_follower(*, backoff_ms: float) -> JoinedBrokers:
    """Broker 2 lacks 20 records of broker 1; it fetches five at once, at two a second."""
    fetcher = FetcherSettings(backoff_ms=backoff_ms, partition_max_bytes=5 * SIZE + 500)
    brokers = JoinedBrokers(1, 2, settings=ReplicationSettings(MAX_LAG_MS, fetcher))
    brokers.create(leader=1, isr=[1])
    for number in range(20):
        brokers[1].produce(number, batch(b"x" * SIZE), acks=1)
    throttle(brokers[2].manager.context.quotas.follower, 2.0 * SIZE)
    return brokers


def test_a_throttled_follower_fetches_no_faster_than_the_rate() -> None:
    brokers = throttled_follower(backoff_ms=100.0)
    follower = brokers[2]
    ends = []
    for _ in range(12):
        brokers.replicate(2, rounds=4)
        ends.append(follower.log().end_offset)
        brokers.wait(1_000)
    # Five batches at once, then about two a second.
    assert ends[0] == 5
    assert ends[1] == 5
    assert ends[-1] == 20
    assert all(end <= 5 + 3 * second for second, end in enumerate(ends)), ends
    # In sync it is not held back.
    for number in range(20, 40):
        brokers[1].produce(number, batch(b"x" * 10), acks=1)
    brokers.replicate(2, rounds=4)
    assert follower.log().end_offset == 40


@pytest.mark.timeout(30)
def test_a_throttled_follower_without_a_backoff_waits() -> None:
    """replica.fetch.backoff.ms may be 0: the fetcher must not ask its quota for ever."""
    brokers = throttled_follower(backoff_ms=0.0)
    follower = brokers[2]
    brokers.replicate(2, rounds=4)
    assert follower.log().end_offset == 5
    assert follower.manager.fetching.wake_at_ms > follower.now
    brokers.wait(3_000)
    brokers.replicate(2, rounds=4)
    assert follower.log().end_offset == 10
