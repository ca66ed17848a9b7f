"""Leader epochs: truncation and fencing; the known bugs of Kafka's replication as scenarios."""

from __future__ import annotations

from kraft._core.log.epoch_cache import EpochEndOffset
from kraft.broker.replication.messages import EpochEnd
from kraft.broker.replication.truncation import truncation_offset
from kraft.errors import (
    FENCED_LEADER_EPOCH,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_LEADER_EPOCH,
)
from kraft.simulation.replica_log import ReplicaLog
from tests.harness.joined_brokers import P0, JoinedBrokers, batch


def log_of(*epochs: int) -> ReplicaLog:
    """Return a log with one record of each epoch."""
    log = ReplicaLog(P0, lambda partition, epoch: None)
    for epoch in epochs:
        log.append_as_leader(batch(), epoch)
    return log


# -- where to truncate (AbstractFetcherThread.getOffsetTruncationState)


def test_a_known_epoch_is_cut_at_the_lower_end() -> None:
    log = log_of(0, 0, 1, 1, 1)
    assert truncation_offset(log, EpochEndOffset(1, 3)) == 3
    assert truncation_offset(log, EpochEndOffset(1, 9)) == 5
    assert truncation_offset(log, EpochEndOffset(0, 2)) == 2
    assert truncation_offset(log, EpochEndOffset(0, 1)) == 1


def test_an_unknown_epoch_goes_with_all_above_it() -> None:
    """KIP-279: the end of the follower's next lower epoch, then it asks again."""
    log = log_of(0, 0, 2, 2, 4)
    assert truncation_offset(log, EpochEndOffset(3, 9)) == 4
    assert truncation_offset(log, EpochEndOffset(1, 9)) == 2


def test_a_log_with_higher_epochs_only_is_cut_at_the_leaders_end() -> None:
    log = ReplicaLog(P0, lambda partition, epoch: None)
    assert truncation_offset(log, EpochEndOffset(3, 9)) == 0


# -- fencing (Partition.checkCurrentLeaderEpoch)


def test_requests_of_another_epoch_are_rejected() -> None:
    """KIP-320, for followers, consumers, ListOffsets and OffsetForLeaderEpoch."""
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1, epoch=5)
    leader = cluster[1]
    for replica in (-1, 2):
        for epoch, error in ((4, FENCED_LEADER_EPOCH), (6, UNKNOWN_LEADER_EPOCH)):
            fetched = leader.fetch(0, replica=replica, epoch=epoch)
            assert fetched is not None
            assert fetched.error == error
            assert leader.manager.list_offset(P0, -1, leader_epoch=epoch).error == error
            assert leader.manager.epoch_end(P0, epoch, 0) == EpochEnd(error)
    fetched = leader.fetch(0, epoch=-1)
    assert fetched is not None
    assert fetched.error == NONE


def test_a_fenced_reader_learns_the_leader() -> None:
    """KIP-951: the answer names leader and epoch."""
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1)
    cluster.change(leader=2)
    fetched = cluster[1].fetch(0)
    assert fetched is not None
    assert (fetched.error, fetched.leader_id, fetched.leader_epoch) == (
        NOT_LEADER_OR_FOLLOWER,
        2,
        1,
    )
    fenced = cluster[2].fetch(0, epoch=0)
    assert fenced is not None
    assert (fenced.error, fenced.leader_id) == (FENCED_LEADER_EPOCH, 2)


def test_a_waiting_fetch_of_an_old_epoch_is_answered() -> None:
    """DelayedFetch, case E: the same leader in a new epoch."""
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1)
    assert cluster[1].fetch(0, epoch=0, max_wait_ms=500) is None
    cluster.change(leader=1)
    fetched = cluster[1].fetched()
    assert fetched is not None
    assert fetched.error == FENCED_LEADER_EPOCH


# -- the epochs that a leader knows


def test_a_leader_knows_its_epoch_before_its_first_record() -> None:
    """KIP-101: LeaderEpochFileCache gets the epoch's start in Partition.makeLeader."""
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1)
    cluster[1].produce(acks=1)
    cluster.change(leader=1)
    cluster.change(leader=1)
    manager = cluster[1].manager
    assert manager.epoch_end(P0, 2, 0) == EpochEnd(NONE, 0, 1)
    assert manager.epoch_end(P0, 2, 1) == EpochEnd(NONE, 0, 1)
    assert manager.epoch_end(P0, 2, 2) == EpochEnd(NONE, 2, 1)
    assert manager.epoch_end(P0, 2, 3) == EpochEnd(NONE)


def test_an_empty_log_ends_every_epoch_at_its_start() -> None:
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1, epoch=3)
    assert cluster[1].manager.epoch_end(P0, 3, 1) == EpochEnd(NONE, 1, 0)


def test_a_consumer_learns_that_its_position_was_truncated() -> None:
    """KIP-320 and Fetch 12: a diverging epoch, as for a follower."""
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1, isr=[1])
    for _ in range(3):
        cluster[1].produce(acks=1)
    cluster.change(leader=2, isr=[2], leader_recovery_state=1)
    cluster[2].produce(acks=1)
    fetched = cluster[2].fetch(3, epoch=1, last_epoch=0)
    assert fetched is not None
    assert fetched.diverging_epoch == EpochEndOffset(0, 0)
    unknown = cluster[2].fetch(1, epoch=1, last_epoch=7)
    assert unknown is not None
    assert unknown.error == OFFSET_OUT_OF_RANGE


# -- known bugs


def test_kip_101_a_restarted_follower_keeps_what_is_committed() -> None:
    """Scenario 1: truncation to the high watermark, then an election, lost committed records.

    Broker 2 has both records but knows a high watermark of 1 when it restarts, and at once leads.
    """
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1)
    for _ in range(2):
        cluster[1].produce(acks=1)
    cluster.replicate(2, rounds=3)
    assert cluster[1].partition().high_watermark == 2
    cluster[2].store.checkpoint({P0: 1})
    cluster[2].start()
    cluster.deliver(2)
    assert cluster[2].log().end_offset == 2
    cluster.change(leader=2, isr=[2])
    assert cluster[2].values() == [(0, 0), (1, 0)]
    cluster.replicate(1)
    assert cluster[1].values() == [(0, 0), (1, 0)]


def test_kip_101_logs_do_not_diverge_after_hard_failures() -> None:
    """Scenario 2: the one that lost records in a power failure leads and writes others there.

    Without epochs the other one saw the same end offset, and kept its own record.
    """
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1)
    cluster[1].produce(data=batch(b"first"), acks=1)
    cluster.replicate(2)
    cluster[1].produce(data=batch(b"lost"), acks=1)
    cluster.change(leader=2, isr=[2])
    cluster[2].produce(data=batch(b"second"), acks=1)
    assert cluster[1].log().end_offset == cluster[2].log().end_offset == 2
    cluster.replicate(1, rounds=4)
    assert cluster[1].values() == cluster[2].values() == [(0, 0), (1, 1)]
    assert cluster[1].log().batches[1].data == cluster[2].log().batches[1].data


def test_kip_279_epochs_that_the_leader_lacks_are_truncated() -> None:
    """Fast failovers: each broker has records of an epoch that the other does not know."""
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1)
    cluster[1].produce(acks=1)
    cluster.replicate(2)
    # 1 leads epoch 1 alone, 2 leads epoch 2 alone, then 1 epoch 3: neither saw the others' records.
    cluster.change(leader=1, isr=[1])
    for _ in range(3):
        cluster[1].produce(acks=1)
    cluster.change(leader=2, isr=[2], leader_recovery_state=1)
    for _ in range(2):
        cluster[2].produce(acks=1)
    cluster.change(leader=1, isr=[1], leader_recovery_state=1)
    cluster[1].produce(acks=1)
    assert cluster[2].values() == [(0, 0), (1, 2), (2, 2)]
    cluster.replicate(2, rounds=6)
    assert cluster[2].values() == cluster[1].values()
    assert cluster[2].values() == [(0, 0), (1, 1), (2, 1), (3, 1), (4, 3)]


def test_kip_279_records_of_a_later_epoch_than_the_leaders_log() -> None:
    """The leader's log has no record of the follower's epoch: the leader's own epoch bounds it."""
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1, isr=[1])
    cluster.change(leader=2, isr=[2], leader_recovery_state=1)
    cluster[2].produce(acks=1)
    assert cluster[2].values() == [(0, 1)]
    cluster.change(leader=1, isr=[1], leader_recovery_state=1)
    cluster.replicate(2, rounds=4)
    assert cluster[2].values() == []
    cluster[1].produce(acks=1)
    cluster.replicate(2, rounds=4)
    assert cluster[2].values() == cluster[1].values() == [(0, 2)]


def test_kafka_6880_a_zombie_replica_is_fenced() -> None:
    """A follower that missed two elections fetches in its old epoch: it must not append.

    Broker 1 leads epoch 0 to offset 3, of which broker 2 has all. Broker 3 leads epoch 1 from
    offset 1 on. Then broker 1 leads epoch 2. Broker 2 saw nothing of this.
    """
    cluster = JoinedBrokers(1, 2, 3)
    cluster.create(leader=1)
    cluster[1].produce(acks=1)
    cluster.replicate(3)
    for _ in range(2):
        cluster[1].produce(acks=1)
    cluster.replicate(2)
    assert cluster[2].log().end_offset == 3
    cluster.change(leader=3, isr=[3], to=(1, 3))
    for _ in range(4):
        cluster[3].produce(acks=1)
    cluster.replicate(1, rounds=4)
    assert cluster[1].values() == cluster[3].values()
    cluster.change(leader=1, isr=[1, 3], to=(1, 3))
    before = cluster[2].values()
    cluster.replicate(2, rounds=3)
    assert cluster[2].values() == before
    assert cluster[2].manager.fetching.failed == {P0: "FENCED_LEADER_EPOCH"}
    cluster.deliver(2)
    assert not cluster[2].manager.fetching.failed
    cluster.replicate(2, rounds=5)
    assert cluster[2].values() == cluster[1].values()


def test_an_unclean_election_truncates_the_old_leader() -> None:
    """The old leader's end is beyond the new one's."""
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1, isr=[1])
    for _ in range(4):
        cluster[1].produce(acks=1)
    assert cluster[1].partition().high_watermark == 4
    cluster.change(leader=2, isr=[2], leader_recovery_state=1)
    cluster.replicate(1, rounds=4)
    assert cluster[1].log().end_offset == 0
    assert cluster[1].partition().high_watermark == 0
    cluster[2].produce(acks=1)
    cluster.replicate(1, rounds=3)
    assert cluster[1].values() == [(0, 1)]


def test_the_high_watermark_of_a_follower_does_not_fall() -> None:
    """Unlike Kafka's: a new leader's high watermark may lag behind."""
    cluster = JoinedBrokers(1, 2, 3)
    cluster.create(leader=1)
    cluster[1].produce(acks=1)
    for follower in (2, 3, 2, 3, 2):
        cluster.replicate(follower, rounds=1)
    assert cluster[2].partition().high_watermark == 1
    cluster[3].partition().high_watermark = 0
    cluster.change(leader=3)
    cluster.replicate(2, rounds=1)
    assert cluster[2].partition().high_watermark == 1
