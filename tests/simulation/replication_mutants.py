"""Planted faults of the replication of partitions, for ``make mutants``.

Each breaks one rule of ``kraft.broker.replication`` or of its driver; the simulation of replicated
partitions must find it, or a unit test: those in `REPLICATION_SHOWN_BY_TESTS` do no harm that seeds
of this length show.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from kraft._core.log.epoch_cache import EpochEndOffset
from kraft.broker.replication import replica_fetching
from kraft.broker.replication.broker_liveness import BrokerLiveness
from kraft.broker.replication.delayed_requests import WaitingProduce
from kraft.broker.replication.fetch_sessions import BrokerFetchSession, IncrementalFetch
from kraft.broker.replication.isr_changes import IsrChangeQueue
from kraft.broker.replication.leader_fetcher import LeaderFetcher
from kraft.broker.replication.leadership import (
    UNKNOWN_OFFSET,
    FollowerProgress,
    PartitionLeadership,
)
from kraft.broker.replication.messages import NO_EPOCH, FetchedPartition, PartitionId
from kraft.broker.replication.partition import HostedPartition
from kraft.broker.replication.ports import ReplicatedLog
from kraft.broker.replication.replica_fetching import ReplicaFetching
from kraft.broker.replication.replica_manager import ReplicaManager
from kraft.broker.replication.session_client import FetchSessionClient
from kraft.broker.replication.settled_partitions import SettledPartitions
from kraft.broker.replication.waiting import WaitingOperations
from kraft.errors import NONE
from kraft.simulation.replica_brokers import ReplicaBroker

REPLICATION_MUTANTS: dict[str, Callable[[], None]] = {}


def mutant(plant: Callable[[], None]) -> Callable[[], None]:
    REPLICATION_MUTANTS[plant.__name__] = plant
    return plant


# -- the high watermark


@mutant
def the_leader_commits_what_only_it_has() -> None:
    PartitionLeadership.high_watermark_at = (  # type: ignore[method-assign]
        lambda self, leader_end, now_ms, max_lag_ms, brokers: leader_end
    )


@mutant
def one_follower_is_enough_to_commit() -> None:
    """The high watermark is that of the best follower in the ISR, not of the worst."""

    def best(self: PartitionLeadership, leader_end: int, *_: Any) -> int:
        ends = [each.end_offset for id, each in self.followers.items() if id in self.isr]
        return max(ends, default=leader_end)

    PartitionLeadership.high_watermark_at = best  # type: ignore[method-assign, assignment]


@mutant
def the_high_watermark_ignores_replicas_that_are_being_added() -> None:
    """KIP-497: neither the pending proposal nor a caught-up follower counts."""

    def committed_only(self: PartitionLeadership, leader_end: int, *_: Any) -> int:
        ends = [each.end_offset for id, each in self.followers.items() if id in self.isr]
        return min([leader_end, *ends])

    PartitionLeadership.high_watermark_at = committed_only  # type: ignore[method-assign, assignment]


@mutant
def the_high_watermark_rises_below_min_isr() -> None:
    """KIP-966: an eligible replica outside of the ISR then lacks committed records."""
    HostedPartition.is_under_min_isr = lambda self, context: False  # type: ignore[method-assign]


@mutant
def a_follower_counts_before_it_fetches_what_follows() -> None:
    """The leader takes what it sends for received."""
    fetched = FollowerProgress.fetched

    def trusting(self: FollowerProgress, offset: int, start: int, end: int, *rest: Any) -> None:
        fetched(self, offset, start, end, *rest)
        self.end_offset = end

    FollowerProgress.fetched = trusting  # type: ignore[method-assign, assignment]


@mutant
def a_new_leader_remembers_old_positions() -> None:
    """The followers' offsets of an earlier leadership count, though they may have truncated."""
    become = HostedPartition.become_follower

    def keeping(self: HostedPartition, assigned: Any) -> bool:
        old = self.leading
        is_new = become(self, assigned)
        old_leaderships[id(self)] = old
        return is_new

    lead = HostedPartition.become_leader

    def again(self: HostedPartition, assigned: Any, context: Any, now_ms: float) -> bool:
        is_new = lead(self, assigned, context, now_ms)
        old = old_leaderships.pop(id(self), None)
        if is_new and old is not None and self.leading is not None:
            for follower, progress in old.followers.items():
                if follower in self.leading.followers:
                    self.leading.followers[follower] = progress
        return is_new

    old_leaderships: dict[int, Any] = {}
    HostedPartition.become_follower = keeping  # type: ignore[method-assign]
    HostedPartition.become_leader = again  # type: ignore[method-assign]


@mutant
def a_follower_takes_a_high_watermark_beyond_its_log() -> None:
    def beyond(self: HostedPartition, leader_high_watermark: int) -> bool:
        has_risen = leader_high_watermark > self.high_watermark
        self.high_watermark = max(self.high_watermark, leader_high_watermark)
        return has_risen

    HostedPartition.follow_high_watermark = beyond  # type: ignore[method-assign]


# -- the ISR


#: The rule without a planted fault.
may_join = PartitionLeadership.may_join


def may_join_in_any_epoch(
    self: PartitionLeadership, id: int, high_watermark: int, brokers: Any
) -> bool:
    """Return whether a follower may join if it need not reach the start of the epoch."""
    start, self.epoch_start = self.epoch_start, UNKNOWN_OFFSET
    may = may_join(self, id, high_watermark, brokers)
    self.epoch_start = start
    return may


@mutant
def followers_join_before_they_reach_the_epochs_start() -> None:
    """KAFKA-7128: a follower at the high watermark may lack records that are committed."""
    PartitionLeadership.may_join = may_join_in_any_epoch  # type: ignore[method-assign]


@mutant
def followers_join_wherever_they_are() -> None:
    PartitionLeadership.may_join = (  # type: ignore[method-assign]
        lambda self, id, high_watermark, brokers: may_join_in_any_epoch(
            self, id, UNKNOWN_OFFSET, brokers
        )
    )


@mutant
def the_isr_shrinks_before_the_controller_agrees() -> None:
    propose = PartitionLeadership.propose

    def hasty(self: PartitionLeadership, *given: Any, **named: Any) -> Any:
        proposal = propose(self, *given, **named)
        self.isr -= proposal.removed
        return proposal

    PartitionLeadership.propose = hasty  # type: ignore[method-assign]


@mutant
def any_rejection_brings_the_old_isr_back() -> None:
    """KIP-497: after INVALID_UPDATE_VERSION the controller may have committed the proposal."""

    def forgetful(self: HostedPartition, proposal: Any, error: int) -> bool:
        if self.leading is not None and self.leading.proposal is proposal:
            self.leading.proposal = None
        return False

    HostedPartition.isr_rejected = forgetful  # type: ignore[method-assign]


@mutant
def the_isr_is_never_repaired() -> None:
    HostedPartition.expansion = lambda self, id, context: None  # type: ignore[method-assign]


@mutant
def lagging_followers_stay_in_the_isr() -> None:
    HostedPartition.shrinkage = lambda self, context, now_ms: None  # type: ignore[method-assign]


@mutant
def an_unanswered_isr_change_is_forgotten() -> None:
    """A request without a response is not sent again."""
    answered = IsrChangeQueue.answered

    def forgetting(self: IsrChangeQueue, response: Any, now_ms: float) -> Any:
        outcomes = answered(self, response, now_ms)
        self._unanswered.clear()
        return outcomes

    IsrChangeQueue.answered = forgetting  # type: ignore[method-assign]


@mutant
def fenced_and_restarted_followers_are_proposed() -> None:
    """KIP-841, KIP-903; the controller rejects these proposals again and again."""
    BrokerLiveness.may_join_isr = lambda self, id, fetch_epoch: True  # type: ignore


@mutant
def fetches_of_an_earlier_incarnation_count() -> None:
    """KIP-903."""
    BrokerLiveness.is_stale = lambda self, id, epoch: False  # type: ignore[method-assign]


# -- epochs and truncation


@mutant
def no_epoch_is_checked() -> None:
    """KAFKA-6880, KIP-320: zombies fetch and consume."""

    def lenient(self: HostedPartition, leader_epoch: int, *, needs_leader: bool) -> int:
        return epoch_error(self, NO_EPOCH, needs_leader=needs_leader)

    epoch_error = HostedPartition.epoch_error
    HostedPartition.epoch_error = lenient  # type: ignore[method-assign]


@mutant
def followers_truncate_to_their_high_watermark() -> None:
    """KIP-101: the high watermark of a follower lags; what it cuts may be committed."""
    follow = ReplicaFetching.follow

    def cutting(self: ReplicaFetching, partition: HostedPartition) -> None:
        partition.truncate_to(partition.high_watermark)
        follow(self, partition)

    ReplicaFetching.follow = cutting  # type: ignore[method-assign]


@mutant
def followers_do_not_truncate() -> None:
    """The follower ignores the diverging epoch and fetches on."""

    def ignoring(self: ReplicaFetching, partition: Any, position: Any, offset: int) -> None:
        position.last_fetched_epoch = NO_EPOCH

    ReplicaFetching._truncate = ignoring  # type: ignore[method-assign]


@mutant
def the_leader_does_not_report_divergence() -> None:
    read = HostedPartition.read

    def blind(self: HostedPartition, fetch: Any, max_bytes: int, **named: Any) -> FetchedPartition:
        return read(self, fetch._replace(last_fetched_epoch=NO_EPOCH), max_bytes, **named)

    HostedPartition.read = blind  # type: ignore[method-assign]


@mutant
def an_unknown_epoch_is_cut_at_the_leaders_end_only() -> None:
    """KIP-279: records of an epoch that the leader lacks stay below that end."""

    def old(log: ReplicatedLog, diverging: EpochEndOffset) -> int:
        return min(diverging.end_offset, log.end_offset)

    vars(replica_fetching)["truncation_offset"] = old


@mutant
def a_leader_does_not_know_its_own_epoch() -> None:
    """KIP-279: before its first record a leader cannot say where older epochs end."""
    HostedPartition.end_of_epoch = (  # type: ignore[method-assign]
        lambda self, epoch: self.local_log.end_offset_of(epoch)
    )


@mutant
def old_metadata_is_applied() -> None:
    """The partition epoch does not protect what AlterPartition already told."""
    lead, follow = HostedPartition.become_leader, HostedPartition.become_follower

    def leading(self: HostedPartition, assigned: Any, *rest: Any) -> bool:
        self.partition_epoch = -1
        return lead(self, assigned, *rest)

    def following(self: HostedPartition, assigned: Any) -> bool:
        self.partition_epoch = -1
        return follow(self, assigned)

    HostedPartition.become_leader = leading  # type: ignore[method-assign, assignment]
    HostedPartition.become_follower = following  # type: ignore[method-assign]


@mutant
def a_deposed_leader_goes_on() -> None:
    def stubborn(self: HostedPartition, assigned: Any) -> bool:
        leading, epoch = self.leading, self.leader_epoch
        is_new = follow(self, assigned)
        if leading is not None:
            self.leading, self.leader_epoch = leading, epoch
        return is_new

    follow = HostedPartition.become_follower
    HostedPartition.become_follower = stubborn  # type: ignore[method-assign]


@mutant
def metadata_of_an_earlier_life_is_obeyed() -> None:
    """The driver gives a restarted broker metadata that do not contain its registration yet."""
    publish = ReplicaBroker._publish

    def hasty(self: ReplicaBroker) -> None:
        epoch = self.epoch
        if self.is_up and epoch >= 0:
            self.epoch = min(epoch, self.view.stable_offset - 1)
        publish(self)
        self.epoch = epoch

    ReplicaBroker._publish = hasty  # type: ignore[method-assign]


# -- answers


@mutant
def acks_all_is_answered_at_once() -> None:
    ReplicaManager.acknowledgement = (  # type: ignore[method-assign]
        lambda self, id, required_offset: NONE
    )


@mutant
def a_lost_leadership_answers_success() -> None:
    acknowledgement = HostedPartition.acknowledgement

    def sanguine(self: HostedPartition, required_offset: int, context: Any) -> int | None:
        return NONE if self.leading is None else acknowledgement(self, required_offset, context)

    HostedPartition.acknowledgement = sanguine  # type: ignore[method-assign]


@mutant
def consumers_read_to_the_end_of_the_log() -> None:
    read = HostedPartition.read

    def open_handed(
        self: HostedPartition, fetch: Any, max_bytes: int, *, from_follower: bool, **named: Any
    ) -> FetchedPartition:
        return read(self, fetch, max_bytes, from_follower=True, **named)

    HostedPartition.read = open_handed  # type: ignore[method-assign]


@mutant
def a_new_leader_names_an_end_too_early() -> None:
    """KIP-207: its high watermark may be lower than one that consumers know."""
    list_offset = HostedPartition.list_offset

    def early(self: HostedPartition, timestamp_ms: int, **named: Any) -> Any:
        leading = self.leading
        if leading is None:
            return list_offset(self, timestamp_ms, **named)
        start, leading.epoch_start = leading.epoch_start, 0
        listed = list_offset(self, timestamp_ms, **named)
        leading.epoch_start = start
        return listed

    HostedPartition.list_offset = early  # type: ignore[method-assign]


@mutant
def waiting_requests_do_not_see_new_roles() -> None:
    """Produce and Fetch requests wait for their deadline when the leadership is lost."""
    ReplicaManager._role_changed = (  # type: ignore[method-assign]
        lambda self, id: None
    )


@mutant
def waiting_requests_have_no_deadline() -> None:
    WaitingOperations.expire = lambda self, now_ms: None  # type: ignore[method-assign]


@mutant
def requests_of_offline_partitions_are_forgotten() -> None:
    """A Produce that waits for a partition is never answered if its directory fails."""
    take_offline = HostedPartition.take_offline
    changed = WaitingOperations.changed
    offline: set[PartitionId] = set()

    def noting(self: HostedPartition) -> None:
        take_offline(self)
        offline.add(self.id)

    def forgetful(self: WaitingOperations, partition: PartitionId, now_ms: float) -> None:
        if partition in offline:
            for operation in self._watchers.pop(partition, {}).values():
                operation.is_ended = True
        else:
            changed(self, partition, now_ms)

    HostedPartition.take_offline = noting  # type: ignore[method-assign]
    WaitingOperations.changed = forgetful  # type: ignore[method-assign]


@mutant
def produces_are_answered_again_at_their_deadline() -> None:
    """A Produce that is satisfied stays among those that wait."""

    def repeated(self: WaitingOperations, partition: PartitionId, now_ms: float) -> None:
        for operation in list(self._watchers.get(partition, {}).values()):
            if not operation.is_ended and operation.is_satisfied(partition):
                if isinstance(operation, WaitingProduce):
                    operation.end(now_ms)
                else:
                    self._end(operation, now_ms)

    WaitingOperations.changed = repeated  # type: ignore[method-assign]


# -- sessions and fetchers


@mutant
def a_session_keeps_old_offsets() -> None:
    """KIP-227: the leader reads a partition at the offset of its first request."""
    update = BrokerFetchSession.update

    def keeping(self: BrokerFetchSession, changed: Any, forgotten: Any) -> None:
        known = {fetch.id for fetch in changed if fetch.id in self.partitions}
        update(self, [fetch for fetch in changed if fetch.id not in known], forgotten)

    BrokerFetchSession.update = keeping  # type: ignore[method-assign]


@mutant
def a_session_answers_each_partition_once() -> None:
    respond = IncrementalFetch.respond

    def silent(self: IncrementalFetch, answers: Sequence[FetchedPartition], now_ms: float) -> Any:
        return respond(self, [answer for answer in answers if answer.error], now_ms)

    IncrementalFetch.respond = silent  # type: ignore[method-assign]


@mutant
def a_session_misses_changes() -> None:
    """A partition that had nothing to read once is not read again."""
    SettledPartitions.changed = lambda self, id: None  # type: ignore[method-assign]


@mutant
def followers_with_nothing_to_fetch_count_as_silent() -> None:
    """A follower leaves the ISR when a partition gets a batch after a long pause."""
    FollowerProgress.fetched_again = (  # type: ignore[method-assign]
        lambda self, now_ms: None
    )


@mutant
def a_lost_session_is_continued() -> None:
    FetchSessionClient._begin_anew = lambda self, id: None  # type: ignore[method-assign]


@mutant
def a_fetcher_never_tries_again() -> None:
    """After an error a partition is not fetched any more."""

    def forever(self: LeaderFetcher, position: Any, now_ms: float) -> None:
        position.ready_at_ms = float("inf")
        self._session.changed(position.id)

    LeaderFetcher.delay = forever  # type: ignore[method-assign]


@mutant
def a_follower_does_not_follow_its_new_leader() -> None:
    """A follower keeps fetching from the old leader, in the old epoch."""
    follow = ReplicaManager._follow

    def loyal(self: ReplicaManager, local: Any) -> None:
        known = self.fetching.leader_of(local.id)
        fetching = self.fetching.follow
        self.fetching.follow = lambda partition: None  # type: ignore[method-assign]
        stop = self.fetching.stop
        if known is not None:
            self.fetching.stop = lambda id: None  # type: ignore[method-assign]
        else:
            self.fetching.follow = fetching  # type: ignore[method-assign]
        follow(self, local)
        self.fetching.follow, self.fetching.stop = fetching, stop  # type: ignore[method-assign]

    ReplicaManager._follow = loyal  # type: ignore[method-assign]


@mutant
def responses_to_earlier_requests_are_applied() -> None:
    """A fetcher takes what arrives late, wherever the partition is now."""
    take = ReplicaFetching._take

    def careless(
        self: ReplicaFetching, leader_id: int, number: int, response: Any, now_ms: float
    ) -> None:
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None or not fetcher.received(response, now_ms):
            return
        for received in response.partitions:
            position = fetcher.positions.get(received.id)
            if position is not None:
                take(self, fetcher, position, received, now_ms)

    ReplicaFetching.fetched = careless  # type: ignore[method-assign]


@mutant
def deleted_replicas_stay() -> None:
    """A replica that was reassigned away keeps its role."""
    ReplicaManager._delete = lambda self, id: None  # type: ignore[method-assign]


@mutant
def an_offline_replica_stays_the_leader() -> None:
    """The failure of a log directory is not noticed (KIP-858)."""
    HostedPartition.take_offline = lambda self: None  # type: ignore[method-assign]


#: Found by ``tests/unit/broker/replication``, not by seeds.
REPLICATION_SHOWN_BY_TESTS = frozenset(
    (
        "a_new_leader_remembers_old_positions",
        "any_rejection_brings_the_old_isr_back",
        "fenced_and_restarted_followers_are_proposed",
        "fetches_of_an_earlier_incarnation_count",
        "followers_with_nothing_to_fetch_count_as_silent",
        "lagging_followers_stay_in_the_isr",
        "old_metadata_is_applied",
        "the_isr_shrinks_before_the_controller_agrees",
        "waiting_requests_do_not_see_new_roles",
    )
)
_TESTS = Path(__file__).resolve().parents[1] / "unit" / "broker" / "replication"


class _FirstFailure:
    """A pytest plugin that remembers the first failing test."""

    def __init__(self) -> None:
        self.name: str | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.name is None:
            self.name = report.nodeid.rpartition("::")[2]


def unit_test_that_fails() -> str | None:
    """Run the unit tests of the replication; return the name of the first that fails."""
    first = _FirstFailure()
    arguments = ["-x", "-q", "-p", "no:cacheprovider", str(_TESTS)]
    with redirect_stdout(StringIO()):
        code = pytest.main(arguments, plugins=[first])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"pytest ended with {code!r}: no test of {_TESTS} ran")
    return first.name
