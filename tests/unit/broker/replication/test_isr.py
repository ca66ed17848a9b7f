"""ISR changes: who leaves, who joins, and every answer of the controller (Partition)."""

from __future__ import annotations

import pytest

from kraft.broker.replication.isr_changes import RETRY_MS, IsrChangeQueue
from kraft.broker.replication.leadership import FollowerProgress
from kraft.broker.replication.messages import (
    CommittedIsr,
    IsrChangeResponse,
    IsrProposal,
    PartitionId,
)
from kraft.errors import (
    FENCED_LEADER_EPOCH,
    INELIGIBLE_REPLICA,
    INVALID_REQUEST,
    INVALID_UPDATE_VERSION,
    NEW_LEADER_ELECTED,
    NONE,
    NOT_CONTROLLER,
    NOT_LEADER_OR_FOLLOWER,
    OPERATION_NOT_ATTEMPTED,
    STALE_BROKER_EPOCH,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from tests.harness.joined_brokers import (
    MAX_LAG_MS,
    P0,
    JoinedBrokers,
    broker_record,
    fence,
)

OTHER = PartitionId(b"o" * 16, 0)


# -- progress (Replica.updateFetchStateOrThrow)


def test_a_follower_at_the_leaders_end_is_caught_up() -> None:
    progress = FollowerProgress()
    progress.fetched(5, 0, 5, 1, now_ms=100.0)
    assert progress.caught_up_ms == 100.0
    assert progress.is_caught_up(5, 1e9, 10.0)
    assert not progress.is_caught_up(6, 200.0, 10.0)


def test_a_follower_that_reaches_the_end_of_its_last_fetch_was_caught_up_then() -> None:
    """A busy partition: the follower is always a little behind."""
    progress = FollowerProgress()
    progress.fetched(5, 0, 9, 1, now_ms=100.0)
    assert progress.caught_up_ms < 0
    progress.fetched(9, 0, 12, 1, now_ms=200.0)
    assert progress.caught_up_ms == 100.0
    progress.fetched(11, 0, 14, 1, now_ms=300.0)
    assert progress.caught_up_ms == 100.0


# -- leaving


def test_a_follower_that_lags_is_removed() -> None:
    """replica.lag.time.max.ms, counted from when the member was last caught up."""
    cluster = JoinedBrokers(1, 2, 3)
    cluster.create(leader=1)
    leader = cluster[1]
    leader.produce(acks=1)
    cluster.wait(MAX_LAG_MS * 0.7)
    leader.fetch(1, replica=2, epoch=0)
    leader.manager.tick(leader.now)
    assert leader.take().isr_changes is None
    cluster.wait(MAX_LAG_MS * 0.5)
    leader.manager.tick(leader.now)
    assert cluster.commit_isr(1) == {1: 1, 2: 2}
    assert leader.partition().isr == {1, 2}
    assert leader.partition().partition_epoch == 1


def test_a_follower_at_the_end_never_lags() -> None:
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1)
    cluster[1].fetch(0, replica=2, epoch=0)
    cluster.wait(100 * MAX_LAG_MS)
    cluster[1].manager.tick(cluster[1].now)
    assert cluster[1].take().isr_changes is None


def test_isrs_are_checked_twice_in_the_lag_time() -> None:
    """ReplicaManager schedules isr-expiration every replica.lag.time.max.ms / 2."""
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1)
    assert cluster[1].take().wake_at_ms == MAX_LAG_MS / 2


# -- joining


def test_a_follower_at_the_high_watermark_joins() -> None:
    cluster = JoinedBrokers(1, 2, 3)
    cluster.create(leader=1, isr=[1])
    leader = cluster[1]
    leader.produce(acks=1)
    leader.fetch(0, replica=2, epoch=0)
    assert leader.take().isr_changes is None
    leader.fetch(1, replica=2, epoch=0)
    # The output of that call held the request.
    assert leader.partition().leading.proposal is not None  # type: ignore[union-attr]


def test_a_follower_joins_only_at_this_epochs_start() -> None:
    """KAFKA-7128: below it there may be records that the previous leader acknowledged."""
    cluster = JoinedBrokers(1, 2, 3)
    cluster.create(leader=1)
    cluster[1].produce(acks=1)
    cluster.replicate(2, rounds=1)
    cluster.change(leader=2, isr=[2])
    new = cluster[2]
    assert new.partition().high_watermark == 1
    cluster[2].partition().high_watermark = 0
    new.fetch(0, replica=3, epoch=1)
    assert new.partition().leading.proposal is None  # type: ignore[union-attr]
    new.fetch(1, replica=3, epoch=1)
    assert new.partition().leading.proposal is not None  # type: ignore[union-attr]


@pytest.mark.parametrize("stopping", [False, True])
def test_a_fenced_or_stopping_broker_does_not_join(stopping: bool) -> None:
    """KIP-841."""
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1, isr=[1])
    cluster.append(fence(2, is_fenced=0, stopping=1) if stopping else fence(2))
    cluster[1].fetch(0, replica=2, epoch=0)
    assert cluster[1].partition().leading.proposal is None  # type: ignore[union-attr]


def test_a_broker_epoch_that_is_not_registered_does_not_join() -> None:
    """KIP-903: -1 bypasses the check, another epoch waits for the metadata."""
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1, isr=[1])
    cluster[1].fetch(0, replica=2, epoch=0, replica_epoch=50)
    assert cluster[1].partition().leading.proposal is None  # type: ignore[union-attr]
    cluster[1].fetch(0, replica=2, epoch=0, replica_epoch=-1)
    proposal = cluster[1].partition().leading.proposal  # type: ignore[union-attr]
    assert proposal is not None
    assert dict(proposal.isr) == {1: 1, 2: -1}


def test_a_fetch_of_an_earlier_incarnation_is_rejected() -> None:
    """KIP-903: Replica.updateFetchStateOrThrow fences stale broker epochs."""
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1)
    cluster[1].produce(acks=1)
    cluster.append(broker_record(2, epoch=77))
    fetched = cluster[1].fetch(1, replica=2, epoch=0, replica_epoch=2)
    assert fetched is not None
    assert fetched.error == NOT_LEADER_OR_FOLLOWER
    assert cluster[1].partition().high_watermark == 0


def test_a_broker_that_is_no_replica_is_rejected() -> None:
    """Partition.followerReplicaOrThrow."""
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1)
    for epoch, error in ((0, UNKNOWN_LEADER_EPOCH), (-1, NOT_LEADER_OR_FOLLOWER)):
        fetched = cluster[1].fetch(0, replica=9, epoch=epoch)
        assert fetched is not None
        assert fetched.error == error


# -- the controller's answers


def with_proposal() -> tuple[JoinedBrokers, IsrProposal]:
    """Return brokers of which 1 has proposed 2, and the proposal, which was sent."""
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1, isr=[1])
    cluster[1].fetch(0, replica=2, epoch=0)
    proposal = cluster[1].partition().leading.proposal  # type: ignore[union-attr]
    assert proposal is not None
    return cluster, proposal


@pytest.mark.parametrize("error", [OPERATION_NOT_ATTEMPTED, INELIGIBLE_REPLICA])
def test_a_surely_rejected_proposal_is_dropped(error: int) -> None:
    cluster, _ = with_proposal()
    leader = cluster[1]
    leader.manager.isr_answered(IsrChangeResponse(NONE, {P0: error}), leader.now)
    assert leader.partition().leading.proposal is None  # type: ignore[union-attr]
    assert leader.partition().isr == {1}
    assert leader.take().isr_changes is None


@pytest.mark.parametrize(
    "error",
    [
        UNKNOWN_TOPIC_OR_PARTITION,
        UNKNOWN_TOPIC_ID,
        FENCED_LEADER_EPOCH,
        INVALID_UPDATE_VERSION,
        INVALID_REQUEST,
        NEW_LEADER_ELECTED,
    ],
)
def test_after_some_errors_the_leader_waits_for_metadata(error: int) -> None:
    """Partition.handleAlterPartitionError: the maximal ISR keeps the proposed member."""
    cluster, proposal = with_proposal()
    leader = cluster[1]
    leader.manager.isr_answered(IsrChangeResponse(NONE, {P0: error}), leader.now)
    cluster.wait(RETRY_MS)
    assert leader.take().isr_changes is None
    assert leader.partition().leading.proposal is proposal  # type: ignore[union-attr]
    cluster.change(isr=[1, 2])
    assert leader.partition().leading.proposal is None  # type: ignore[union-attr]
    assert leader.partition().isr == {1, 2}


@pytest.mark.parametrize("error", [UNKNOWN_SERVER_ERROR, NOT_CONTROLLER])
def test_other_errors_repeat_the_proposal(error: int) -> None:
    cluster, proposal = with_proposal()
    leader = cluster[1]
    leader.manager.isr_answered(IsrChangeResponse(NONE, {P0: error}), leader.now)
    assert leader.take().isr_changes is None
    cluster.wait(RETRY_MS)
    assert leader.take().isr_changes == [proposal]


@pytest.mark.parametrize("response", [None, IsrChangeResponse(STALE_BROKER_EPOCH)])
def test_a_request_without_an_answer_is_repeated(response: IsrChangeResponse | None) -> None:
    """DefaultAlterPartitionManager: a top-level error is repeated after 50 ms."""
    cluster, proposal = with_proposal()
    leader = cluster[1]
    leader.manager.isr_answered(response, leader.now)
    output = leader.take()
    assert output.isr_changes is None
    assert output.wake_at_ms == leader.now + RETRY_MS
    cluster.wait(RETRY_MS)
    assert leader.take().isr_changes == [proposal]


def test_metadata_of_the_same_partition_epoch_keeps_the_proposal() -> None:
    """Metadata that only repeats an AlterPartition answer do not undo the next proposal."""
    cluster = JoinedBrokers(1, 2, 3)
    cluster.create(leader=1, isr=[1])
    leader = cluster[1]
    leader.fetch(0, replica=2, epoch=0)
    first = leader.partition().leading.proposal  # type: ignore[union-attr]
    assert first is not None
    committed = CommittedIsr(1, 0, 1, (1, 2))
    leader.manager.isr_answered(IsrChangeResponse(NONE, {P0: committed}), leader.now)
    leader.fetch(0, replica=3, epoch=0)
    second = leader.partition().leading.proposal  # type: ignore[union-attr]
    assert second is not None
    cluster.change(isr=[1, 2], to=(1,))
    assert leader.partition().partition_epoch == 1
    assert leader.partition().leading.proposal is second  # type: ignore[union-attr]
    assert leader.partition().leading.maximal_isr == {1, 2, 3}  # type: ignore[union-attr]


def test_metadata_older_than_an_answer_are_ignored() -> None:
    """Partition.makeLeader skips a lower partition epoch."""
    cluster, _proposal = with_proposal()
    leader = cluster[1]
    committed = CommittedIsr(1, 0, 5, (1, 2))
    leader.manager.isr_answered(IsrChangeResponse(NONE, {P0: committed}), leader.now)
    cluster.change(isr=[1])
    assert leader.partition().isr == {1, 2}
    assert leader.partition().partition_epoch == 5


def test_an_answer_to_an_earlier_proposal_is_ignored() -> None:
    cluster, _proposal = with_proposal()
    leader = cluster[1]
    cluster.change(isr=[1], leader=1)
    committed = CommittedIsr(1, 0, 1, (1, 2))
    leader.manager.isr_answered(IsrChangeResponse(NONE, {P0: committed}), leader.now)
    assert leader.partition().isr == {1}


# -- the queue


def proposal_of(id: PartitionId) -> IsrProposal:
    return IsrProposal(id, 0, 0, {1: 1})


def test_one_request_is_in_flight_and_takes_all_proposals() -> None:
    queue = IsrChangeQueue()
    first, second = proposal_of(P0), proposal_of(OTHER)
    assert queue.submit(first) == NONE
    assert queue.next_request(0.0) == [first]
    assert queue.submit(second) == NONE
    assert queue.next_request(0.0) is None
    committed = CommittedIsr(1, 0, 1, (1,))
    outcomes = queue.answered(IsrChangeResponse(NONE, {P0: committed}), 0.0)
    assert outcomes == [(first, committed)]
    assert queue.next_request(0.0) == [second]


def test_a_partition_has_one_unanswered_proposal() -> None:
    """OPERATION_NOT_ATTEMPTED of DefaultAlterPartitionManager.submit."""
    queue = IsrChangeQueue()
    queue.submit(proposal_of(P0))
    assert queue.submit(proposal_of(P0)) == OPERATION_NOT_ATTEMPTED


def test_partitions_that_the_response_lacks_are_sent_again() -> None:
    queue = IsrChangeQueue()
    first, second = proposal_of(P0), proposal_of(OTHER)
    queue.submit(first)
    queue.submit(second)
    queue.next_request(0.0)
    queue.answered(IsrChangeResponse(NONE, {P0: INELIGIBLE_REPLICA}), 0.0)
    assert queue.wake_at_ms == RETRY_MS
    assert queue.next_request(RETRY_MS) == [second]


def test_a_follower_of_an_idle_partition_stays_when_a_batch_comes() -> None:
    """Its fetches, of which the leader reads nothing, show that it was caught up until then."""
    cluster = JoinedBrokers(1, 2)
    cluster.create(leader=1)
    cluster[1].produce(acks=1)
    cluster.replicate(2, rounds=4)
    for _ in range(5):
        cluster.wait(MAX_LAG_MS * 0.9)
        cluster.replicate(2, rounds=1)
    assert len(cluster[1].manager.fetches.settled) == 1
    cluster[1].produce(acks=1)
    cluster[1].manager.tick(cluster[1].now)
    assert cluster[1].take().isr_changes is None
    cluster.wait(MAX_LAG_MS * 1.1)
    cluster[1].manager.tick(cluster[1].now)
    assert cluster.commit_isr(1) == {1: 1}
