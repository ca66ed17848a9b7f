"""The high watermark: when it rises, what it exposes, what producers get (Partition)."""

import pytest

from kraft.broker.replication.leadership import UNKNOWN_OFFSET
from kraft.broker.replication.messages import EARLIEST, LATEST, ListedOffset
from kraft.broker.replication.partition import ALL_IN_SYNC
from kraft.errors import (
    INVALID_REQUIRED_ACKS,
    NONE,
    NOT_ENOUGH_REPLICAS,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_NOT_AVAILABLE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    REQUEST_TIMED_OUT,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from tests.harness.joined_brokers import (
    DIRECTORY,
    MAX_LAG_MS,
    P0,
    JoinedBrokers,
    batch,
    fence,
)


def test_acks_all_waits_for_every_member_of_the_isr() -> None:
    """Partition.checkEnoughReplicasReachOffset: the high watermark must pass the batch."""
    cluster = JoinedBrokers(1, 2, 3)
    cluster.create(leader=1)
    leader = cluster[1]
    assert leader.produce() is None
    leader.fetch(1, replica=2, epoch=0)
    leader.take()
    assert "produce" not in leader.answers
    leader.fetch(1, replica=3, epoch=0)
    assert leader.answers["produce"][P0].error == NONE
    assert leader.partition().high_watermark == 1


def test_acks_one_and_zero_are_answered_at_once() -> None:
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1)
    for acks in (0, 1):
        produced = cluster[1].produce(acks=acks)
        assert produced is not None
        assert produced.error == NONE
    assert cluster[1].partition().high_watermark == 0


def test_other_acks_are_rejected() -> None:
    """ReplicaManager.isValidRequiredAcks."""
    cluster = JoinedBrokers(1)
    cluster.create(leader=1)
    produced = cluster[1].produce(acks=2)
    assert produced is not None
    assert produced.error == INVALID_REQUIRED_ACKS
    assert cluster[1].log().end_offset == 0


def test_a_produce_times_out() -> None:
    """DelayedProduce: REQUEST_TIMED_OUT for partitions that are not acknowledged."""
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1)
    leader = cluster[1]
    assert leader.produce(timeout_ms=100.0) is None
    cluster.wait(100.0)
    leader.manager.tick(leader.now)
    leader.take()
    assert leader.answers["produce"][P0].error == REQUEST_TIMED_OUT


def test_acks_all_needs_min_isr() -> None:
    """Partition.appendRecordsToLeader: NOT_ENOUGH_REPLICAS, and nothing is appended."""
    cluster = JoinedBrokers(1, 2, 3, min_isr=2)
    cluster.create(leader=1, isr=[1])
    produced = cluster[1].produce()
    assert produced is not None
    assert produced.error == NOT_ENOUGH_REPLICAS
    assert cluster[1].log().end_offset == 0
    produced = cluster[1].produce(acks=1)
    assert produced is not None
    assert produced.error == NONE


def test_min_isr_is_at_most_the_number_of_replicas() -> None:
    """Partition.effectiveMinIsr."""
    cluster = JoinedBrokers(1, min_isr=2)
    cluster.create(leader=1)
    produced = cluster[1].produce()
    assert produced is not None
    assert produced.error == NONE


def test_an_isr_that_shrinks_below_min_isr_after_the_append() -> None:
    """checkEnoughReplicasReachOffset: NOT_ENOUGH_REPLICAS_AFTER_APPEND if the offset is reached."""
    cluster = JoinedBrokers(1, 2, min_isr=2)
    cluster.create(leader=1)
    leader = cluster[1]
    assert leader.produce() is None
    leader.fetch(1, replica=2, epoch=0)
    assert leader.answers.pop("produce")[P0].error == NONE
    cluster.change(isr=[1])
    # A duplicate of what the high watermark has passed already.
    assert leader.manager.acknowledgement(P0, 1) == NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_the_high_watermark_does_not_rise_below_min_isr() -> None:
    """KIP-966: maybeIncrementLeaderHW returns while the partition is under min ISR."""
    cluster = JoinedBrokers(1, 2, min_isr=2)
    cluster.create(leader=1, isr=[1])
    cluster[1].produce(acks=1)
    assert cluster[1].partition().high_watermark == 0
    cluster.change(isr=[1, 2])
    cluster[1].fetch(1, replica=2, epoch=0)
    assert cluster[1].partition().high_watermark == 1


def test_the_high_watermark_waits_for_a_follower_that_may_join() -> None:
    """maybeIncrementLeaderHW: a caught-up, eligible follower outside of the ISR counts."""
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1, isr=[1])
    leader = cluster[1]
    leader.produce(acks=1)
    assert leader.partition().high_watermark == 1
    leader.fetch(1, replica=2, epoch=0)
    leader.take()
    leader.manager.isr_answered(None, leader.now)
    leader.produce(acks=1)
    assert leader.partition().high_watermark == 1
    leader.fetch(2, replica=2, epoch=0)
    assert leader.partition().high_watermark == 2


def test_a_follower_that_is_fenced_does_not_hold_the_high_watermark_back() -> None:
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1, isr=[1])
    leader = cluster[1]
    cluster.append(fence(2))
    leader.fetch(0, replica=2, epoch=0)
    leader.produce(acks=1)
    assert leader.partition().high_watermark == 1


def test_a_proposed_member_counts_before_the_controller_agrees() -> None:
    """KIP-497: the maximal ISR bounds the high watermark."""
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1, isr=[1])
    leader = cluster[1]
    leader.fetch(0, replica=2, epoch=0)
    assert leader.partition().leading.maximal_isr == {1, 2}  # type: ignore[union-attr]
    cluster.wait(2 * MAX_LAG_MS)
    leader.produce(acks=1)
    assert leader.partition().high_watermark == 0


def test_a_proposed_removal_counts_only_when_the_controller_agrees() -> None:
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1)
    leader = cluster[1]
    leader.produce(acks=1)
    cluster.wait(2 * MAX_LAG_MS)
    leader.manager.tick(leader.now)
    leader.manager.produce("more", {P0: batch()}, 1, 0.0, leader.now)
    assert leader.partition().isr == {1, 2}
    assert leader.partition().high_watermark == 0
    assert cluster.commit_isr(1) == {1: 1}
    assert leader.partition().high_watermark == 2


def test_a_lost_leadership_answers_waiting_produces() -> None:
    """ReplicaManager.completeDelayedOperationsWhenNotPartitionLeader."""
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1)
    assert cluster[1].produce() is None
    cluster.change(leader=2)
    assert cluster[1].answers["produce"][P0].error == NOT_LEADER_OR_FOLLOWER


def test_a_batch_sent_again_has_the_offsets_of_the_first() -> None:
    """A duplicate of an idempotent producer waits for the same offset, and is not appended."""
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1)
    leader = cluster[1]
    data = batch(b"x", b"y", producer_id=7, sequence=0)
    assert leader.produce("first", data) is None
    assert leader.produce("again", data) is None
    assert leader.log().end_offset == 2
    leader.fetch(2, replica=2, epoch=0)
    assert leader.answers["first"][P0] == leader.answers["again"][P0]
    produced = leader.produce("gap", batch(producer_id=7, sequence=5))
    assert produced is not None
    assert produced.error == OUT_OF_ORDER_SEQUENCE_NUMBER


def test_partitions_that_are_not_here() -> None:
    """ReplicaManager.getPartitionOrError; by topic id UNKNOWN_TOPIC_ID."""
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1)
    for id, error in (
        (P0._replace(topic_id=b"u" * 16), UNKNOWN_TOPIC_ID),
        (P0._replace(partition=9), UNKNOWN_TOPIC_OR_PARTITION),
    ):
        produced = cluster[1].produce(id=id)
        assert produced is not None
        assert produced.error == error
        fetched = cluster[1].fetch(0, id=id)
        assert fetched is not None
        assert fetched.error == error
    cluster.change(replicas=[2], directories=[DIRECTORY], isr=[2], leader=2)
    assert P0 not in cluster[1].manager.partitions
    assert P0 not in cluster[1].store.logs
    produced = cluster[1].produce()
    assert produced is not None
    assert produced.error == NOT_LEADER_OR_FOLLOWER


def test_a_new_leader_names_no_end_before_its_epoch_is_committed() -> None:
    """KIP-207: OFFSET_NOT_AVAILABLE until the high watermark reaches the epoch's start."""
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1)
    cluster[1].produce()
    cluster.replicate(2, rounds=1)
    assert cluster[2].log().end_offset == 1
    assert cluster[2].partition().high_watermark == 0
    cluster.change(leader=2)
    new = cluster[2].manager
    assert new.list_offset(P0, LATEST) == ListedOffset(OFFSET_NOT_AVAILABLE)
    assert new.list_offset(P0, 5) == ListedOffset(OFFSET_NOT_AVAILABLE)
    assert new.list_offset(P0, EARLIEST) == ListedOffset(NONE, 0, -1, 0)
    assert new.list_offset(P0, LATEST, from_follower=True).offset == 1
    cluster.replicate(1)
    assert new.list_offset(P0, LATEST) == ListedOffset(NONE, 1, -1, 1)
    assert new.list_offset(P0, 1) == ListedOffset(NONE, 0, 1, 0)


@pytest.mark.parametrize("hw", [0, 3, 9])
def test_a_restart_takes_the_checkpointed_high_watermark(hw: int) -> None:
    """LogManager's checkpoint, bounded by the log."""
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1)
    for _ in range(5):
        cluster[1].produce(acks=1)
    cluster[1].store.checkpoint({P0: hw})
    cluster[1].start()
    cluster.deliver(1)
    assert cluster[1].partition().high_watermark == min(hw, 5)
    assert cluster[1].manager.high_watermarks() == {P0: min(hw, 5)}


def test_a_new_leader_knows_no_position_of_its_followers() -> None:
    """Replica.resetReplicaState: they may have truncated since this broker led before."""
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1)
    leader = cluster[1]
    leader.produce(acks=1)
    leader.fetch(1, replica=2, epoch=0)
    cluster.change(leader=2)
    cluster.change(leader=1)
    leading = leader.partition().leading
    assert leading is not None
    assert leading.followers[2].end_offset == UNKNOWN_OFFSET
    assert leading.followers[2].broker_epoch is None


def test_a_leader_of_another_epoch_keeps_the_positions() -> None:
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1)
    cluster[1].produce(acks=1)
    cluster[1].fetch(1, replica=2, epoch=0)
    cluster.change(leader=1)
    leading = cluster[1].partition().leading
    assert leading is not None
    assert leading.followers[2].end_offset == 1


def test_a_request_without_a_wait_leaves_only_answers() -> None:
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1)
    cluster.create(leader=1, isr=[1], partition=1)
    manager, alone = cluster[1].manager, P0._replace(partition=1)
    cluster[1].take()
    assert not manager.produce("one", {P0: batch()}, 1, 1_000.0, 0.0)
    assert not manager.produce("alone", {alone: batch()}, ALL_IN_SYNC, 1_000.0, 0.0)
    assert not manager.produce("bad", {P0: batch()}, 2, 1_000.0, 0.0)
    assert not manager.produce("no time", {P0: batch()}, ALL_IN_SYNC, 0.0, 0.0)
    assert manager.produce("all", {P0: batch(), alone: batch()}, ALL_IN_SYNC, 1_000.0, 0.0)
    answers = {each.token: each.response for each in manager.take_answers()}
    assert answers.keys() == {"one", "alone", "bad", "no time"}
    assert answers["no time"][P0].error == REQUEST_TIMED_OUT
    output = manager.take_output(0.0)
    assert not output.answers
    assert output.wake_at_ms == 1_000.0


def test_a_duplicate_is_acknowledged_as_the_batch_that_is_in_the_log() -> None:
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1)
    leader = cluster[1]
    for token in ("first", "again"):
        assert leader.produce(token, batch(producer_id=7, sequence=0)) is None
    assert leader.log().end_offset == 1
    leader.fetch(1, replica=2, epoch=0)
    leader.take()
    assert leader.answers["first"] == leader.answers["again"]
    assert leader.answers["again"][P0].error == NONE
