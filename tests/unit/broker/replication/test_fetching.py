"""Fetches: bounds, waiting, racks; a follower's errors, backoff and resets."""

from __future__ import annotations

import pytest

from kraft import records
from kraft.broker.replication.messages import (
    EARLIEST,
    LATEST,
    BrokerFetchRequest,
    FetchPartition,
    ListedOffset,
    ReceivedFetch,
    ReceivedPartition,
)
from kraft.broker.replication.replica_fetching import OffsetQuery
from kraft.broker.replication.settings import ReplicationSettings
from kraft.errors import (
    FENCED_LEADER_EPOCH,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_ID,
)
from kraft.simulation.replica_log import ReplicaSlice
from tests.harness.joined_brokers import P0, TOPIC, JoinedBroker, JoinedBrokers, batch

P1 = P0._replace(partition=1)


def sizes(records: object) -> int:
    assert isinstance(records, ReplicaSlice)
    return len(records.batches)


# -- what a reader gets


def test_a_follower_reads_to_the_end_and_a_consumer_to_the_high_watermark() -> None:
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1)
    leader = cluster[1]
    for _ in range(3):
        leader.produce(acks=1)
    leader.fetch(1, replica=2, epoch=0)
    for replica, epoch, count in ((2, 0, 3), (-1, -1, 1)):
        fetched = leader.fetch(0, replica=replica, epoch=epoch)
        assert fetched is not None
        assert sizes(fetched.records) == count
    beyond = leader.fetch(2)
    assert beyond is not None
    assert (beyond.error, beyond.records, beyond.high_watermark) == (NONE, None, 1)


@pytest.mark.parametrize("offset", [-1, 4])
def test_offsets_outside_of_the_log_are_out_of_range(offset: int) -> None:
    cluster = JoinedBrokers(1)
    cluster.create(leader=1)
    for _ in range(3):
        cluster[1].produce()
    fetched = cluster[1].fetch(offset)
    assert fetched is not None
    assert fetched.error == OFFSET_OUT_OF_RANGE


def test_a_follower_answers_consumers_that_name_a_rack() -> None:
    """KIP-392: fetchOnlyLeader is false for a client that may read from followers."""
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1)
    cluster[1].produce()
    cluster.replicate(2, rounds=3)
    fetched = cluster[2].fetch(0)
    assert fetched is not None
    assert fetched.error == NOT_LEADER_OR_FOLLOWER
    fetched = cluster[2].fetch(0, rack_id="")
    assert fetched is not None
    assert sizes(fetched.records) == 1


def test_the_leader_names_a_replica_in_the_rack() -> None:
    """RackAwareReplicaSelector: in sync, with the offset; the leader of that rack comes first."""
    cluster = JoinedBrokers(1, 2, settings=ReplicationSettings(is_rack_aware=True))
    cluster.create(leader=1)
    leader = cluster[1]
    leader.produce()
    leader.fetch(1, replica=2, epoch=0)
    for rack, replica in (("rack-2", 2), ("rack-1", -1), ("rack-9", -1), ("", -1)):
        fetched = leader.fetch(0, rack_id=rack)
        assert fetched is not None
        assert fetched.preferred_read_replica == replica
        assert (fetched.records is None) == (replica == 2)
    cluster.change(isr=[1])
    fetched = leader.fetch(0, rack_id="rack-2")
    assert fetched is not None
    assert fetched.preferred_read_replica == -1


def test_limits_of_a_response() -> None:
    """The first batch may exceed every limit, the others obey them (KIP-74)."""
    cluster = JoinedBrokers(1)
    cluster.create(leader=1)
    cluster.create(leader=1, partition=1)
    size = len(batch())
    for id in (P0, P1):
        for _ in range(3):
            cluster[1].produce(id=id)

    def batches(max_bytes: int, partition_max: int) -> list[int]:
        fetches = [FetchPartition(id, 0, partition_max) for id in (P0, P1)]
        cluster[1].manager.fetch("many", BrokerFetchRequest(fetches, max_bytes=max_bytes), 0.0)
        cluster[1].take()
        response = cluster[1].answers.pop("many")
        return [each.size // size for each in response.partitions]

    assert batches(10_000, 10_000) == [3, 3]
    assert batches(4 * size, 10_000) == [3, 1]
    assert batches(4 * size, 2 * size) == [2, 2]
    assert batches(1, 1) == [1, 0]
    assert batches(10_000, 1) == [1, 0]


# -- waiting


def test_a_fetch_waits_for_min_bytes() -> None:
    cluster = JoinedBrokers(1)
    cluster.create(leader=1)
    leader = cluster[1]
    assert leader.fetch(0, max_wait_ms=500, min_bytes=len(batch()) + 1) is None
    leader.produce()
    assert leader.fetched() is None
    leader.produce()
    fetched = leader.fetched()
    assert fetched is not None
    assert sizes(fetched.records) == 2


def test_a_fetch_is_answered_at_its_deadline() -> None:
    cluster = JoinedBrokers(1)
    cluster.create(leader=1)
    leader = cluster[1]
    leader.fetch(0, max_wait_ms=500)
    assert leader.take().wake_at_ms == 500.0
    cluster.wait(500.0)
    leader.manager.tick(leader.now)
    leader.take()
    fetched = leader.fetched()
    assert fetched is not None
    assert (fetched.error, fetched.size) == (NONE, 0)


def test_a_waiting_follower_gets_records_at_once_a_consumer_when_they_are_committed() -> None:
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1)
    leader = cluster[1]
    leader.fetch(0, replica=2, epoch=0, max_wait_ms=500, token="follower")
    leader.fetch(0, max_wait_ms=500, token="consumer")
    leader.produce(acks=1)
    assert leader.fetched("follower") is not None
    assert leader.fetched("consumer") is None
    leader.fetch(1, replica=2, epoch=0)
    assert leader.fetched("consumer") is not None


def test_a_waiting_fetch_learns_that_its_partition_is_gone() -> None:
    """DelayedFetch, cases A to C."""
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1)
    cluster[1].fetch(0, max_wait_ms=500)
    cluster.append(records.RemoveTopic(topic_id=TOPIC))
    fetched = cluster[1].fetched()
    assert fetched is not None
    assert fetched.error == UNKNOWN_TOPIC_ID
    assert cluster[1].store.logs == {}


# -- a follower's answers


def answer(broker: JoinedBroker, received: ReceivedPartition) -> None:
    """Answer the follower's request with one partition."""
    broker.take()
    (fetch,), broker.in_flight = broker.in_flight, []
    response = ReceivedFetch(NONE, 0, [received])
    broker.manager.fetched(fetch.leader_id, fetch.number, response, broker.now)
    broker.output = broker.take()


def follower() -> tuple[JoinedBrokers, JoinedBroker]:
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1)
    return cluster, cluster[2]


@pytest.mark.parametrize(
    "error", [UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_ID, UNKNOWN_SERVER_ERROR]
)
def test_an_error_delays_the_partition(error: int) -> None:
    cluster, broker = follower()
    answer(broker, ReceivedPartition(P0, error))
    assert broker.output.fetches == []
    assert broker.output.wake_at_ms == 100.0
    cluster.wait(100.0)
    (fetch,) = broker.take().fetches
    assert [each.id for each in fetch.request.partitions] == [P0]


def test_a_fenced_partition_waits_for_metadata() -> None:
    """AbstractFetcherThread.onPartitionFenced: the partition fails until its epoch changes."""
    cluster, broker = follower()
    answer(broker, ReceivedPartition(P0, FENCED_LEADER_EPOCH))
    cluster.wait(10_000.0)
    assert broker.take().fetches == []
    cluster.change(leader=1)
    assert len(broker.output.fetches) == 1


def test_a_request_without_a_response_is_repeated_after_the_backoff() -> None:
    cluster, broker = follower()
    (fetch,) = broker.output.fetches
    broker.manager.fetched(1, fetch.number, None, broker.now)
    assert broker.take().fetches == []
    cluster.wait(100.0)
    (again,) = broker.take().fetches
    assert again.number == fetch.number + 1
    broker.manager.fetched(1, fetch.number, ReceivedFetch(NONE, 0, []), broker.now)
    assert broker.take().fetches == []


def test_records_of_a_later_epoch_are_not_appended() -> None:
    """KAFKA-18723: only the batches before the first one above the leader's epoch."""
    cluster, broker = follower()
    cluster[1].produce(acks=1)
    data = cluster[1].log().batches[0].data
    later = bytearray(data)
    later[0:8], later[12:16] = (1).to_bytes(8), (5).to_bytes(4)
    answer(broker, ReceivedPartition(P0, NONE, 0, 0, data + bytes(later) + b"torn"))
    assert broker.values() == [(0, 0)]


def test_corrupt_records_are_fetched_again() -> None:
    cluster, broker = follower()
    cluster[1].produce(acks=1)
    gap = bytearray(cluster[1].log().batches[0].data)
    gap[0:8] = (7).to_bytes(8)
    answer(broker, ReceivedPartition(P0, NONE, 0, 0, bytes(gap)))
    assert broker.values() == []
    cluster.wait(100.0)
    assert len(broker.take().fetches) == 1


def test_an_answer_to_an_old_position_is_ignored() -> None:
    """processFetchRequest: the partition must still be where the request found it."""
    cluster, broker = follower()
    cluster[1].produce(acks=1)
    data = cluster[1].log().batches[0].data
    (old,) = broker.output.fetches
    cluster.change(leader=1)
    broker.manager.fetched(
        1, old.number, ReceivedFetch(NONE, 0, [ReceivedPartition(P0, NONE, 0, 0, data)]), 0.0
    )
    assert broker.values() == []


# -- out of range


def reset(end: int) -> tuple[JoinedBroker, OffsetQuery]:
    """Return a follower with ``end`` records whose position is out of range, and its query."""
    cluster, broker = follower()
    for _ in range(end):
        cluster[1].produce(acks=1)
    cluster.replicate(2, rounds=2)
    answer(broker, ReceivedPartition(P0, OFFSET_OUT_OF_RANGE))
    (query,) = broker.output.queries
    assert (query.timestamp_ms, query.leader_epoch) == (LATEST, 0)
    assert broker.output.fetches == []
    return broker, query


def test_a_log_beyond_the_leaders_end_is_cut_there() -> None:
    broker, query = reset(3)
    broker.manager.offset_listed(query, ListedOffset(NONE, 2), 0.0)
    assert broker.log().end_offset == 2
    assert broker.take().fetches[0].request.partitions[0].fetch_offset == 2


def test_a_log_that_ends_before_the_leaders_start_begins_anew() -> None:
    broker, query = reset(3)
    broker.manager.offset_listed(query, ListedOffset(NONE, 20), 0.0)
    (earliest,) = broker.take().queries
    assert earliest.timestamp_ms == EARLIEST
    broker.manager.offset_listed(earliest, ListedOffset(NONE, 10), 0.0)
    log = broker.log()
    assert (log.start_offset, log.end_offset, broker.partition().high_watermark) == (10, 10, 10)
    assert broker.take().fetches[0].request.partitions[0].fetch_offset == 10


def test_a_log_within_the_leaders_range_is_fetched_again() -> None:
    broker, query = reset(3)
    broker.manager.offset_listed(query, ListedOffset(NONE, 20), 0.0)
    (earliest,) = broker.take().queries
    broker.manager.offset_listed(earliest, ListedOffset(NONE, 0), 0.0)
    assert broker.log().end_offset == 3
    assert broker.take().fetches[0].request.partitions[0].fetch_offset == 3


@pytest.mark.parametrize("listed", [None, ListedOffset(NOT_LEADER_OR_FOLLOWER)])
def test_a_query_without_an_answer_is_repeated(listed: ListedOffset | None) -> None:
    broker, query = reset(1)
    broker.manager.offset_listed(query, listed, 0.0)
    assert broker.take().fetches == []
    broker.now = 100.0
    assert len(broker.take().fetches) == 1


def test_a_leader_whose_log_starts_within_a_batch() -> None:
    """appendRecordsToFollowerOrFutureReplica: the follower's log begins at the batch's base."""
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1, isr=[1])
    leader, broker = cluster[1], cluster[2]
    leader.produce(data=batch(b"a", b"b", b"c"), acks=1)
    leader.manager.delete_records("delete", {P0: 2}, 0.0, 0.0)
    cluster.replicate(2, rounds=5)
    assert (broker.log().start_offset, broker.log().end_offset) == (2, 3)
    assert broker.values() == [(0, 0)]
