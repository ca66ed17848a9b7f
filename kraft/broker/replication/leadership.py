"""Leadership of a partition: the progress of its followers, the ISR, the high watermark's rule.

`FollowerProgress` is what a leader knows of one follower, `PartitionLeadership` of all, with the
committed ISR and the proposal that the controller has not answered yet. Neither knows the log:
`partition.HostedPartition` passes the offsets.

Invariants: at most one proposal is pending; the maximal ISR, the committed members and those of the
proposal, bounds the high watermark (KIP-497). Rules: Kafka's ``Replica``, ``PartitionState`` and
``Partition``.
"""

from __future__ import annotations

from collections.abc import Iterable

from kraft.broker.replication.broker_liveness import BrokerLiveness
from kraft.broker.replication.messages import NO_EPOCH, IsrProposal, PartitionId

UNKNOWN_OFFSET = -1
_NEVER = float("-inf")


class FollowerProgress:
    """The last fetches of one follower, as the leader saw them; times in ms."""

    __slots__ = (
        "broker_epoch",
        "caught_up_ms",
        "end_offset",
        "fetch_ms",
        "leader_end_at_fetch",
        "start_offset",
    )

    def __init__(self) -> None:
        self.forget(caught_up_ms=_NEVER)

    def forget(self, caught_up_ms: float) -> None:
        """Reset the progress when this broker becomes the leader."""
        self.end_offset = UNKNOWN_OFFSET
        self.start_offset = UNKNOWN_OFFSET
        self.leader_end_at_fetch = UNKNOWN_OFFSET
        self.fetch_ms = _NEVER
        #: The latest time at which the follower had all that the leader had.
        self.caught_up_ms = caught_up_ms
        #: The broker epoch of the last fetch; None before the first one.
        self.broker_epoch: int | None = None

    def enter_epoch(self, caught_up_ms: float, leader_end: int) -> None:
        """Begin another epoch of the same leader: the offsets stay, the times begin anew."""
        self.leader_end_at_fetch = leader_end
        self.fetch_ms = caught_up_ms
        self.caught_up_ms = caught_up_ms

    def fetched(
        self, offset: int, start_offset: int, leader_end: int, broker_epoch: int, now_ms: float
    ) -> None:
        """Record a fetch from ``offset``.

        A follower is caught up now if it fetches from the leader's end. It was caught up at its
        last fetch if it now fetches from what was the leader's end then: so a follower of a busy
        partition counts as caught up though it never reaches the end.
        """
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self.leader_end_at_fetch:
            self.caught_up_ms = max(self.caught_up_ms, self.fetch_ms)
        self.end_offset = offset
        self.start_offset = start_offset
        self.leader_end_at_fetch = max(leader_end, self.leader_end_at_fetch)
        self.fetch_ms = now_ms
        self.broker_epoch = broker_epoch

    def fetched_again(self, now_ms: float) -> None:
        """Record that the last fetch, from the leader's end, was repeated until ``now_ms``."""
        self.fetch_ms = max(self.fetch_ms, now_ms)
        self.caught_up_ms = max(self.caught_up_ms, now_ms)

    def is_caught_up(self, leader_end: int, now_ms: float, max_lag_ms: float) -> bool:
        return self.end_offset == leader_end or now_ms - self.caught_up_ms <= max_lag_ms


class PartitionLeadership:
    """What the leader of a partition knows beyond its log."""

    __slots__ = ("epoch_start", "followers", "isr", "proposal")

    def __init__(self) -> None:
        self.followers: dict[int, FollowerProgress] = {}
        #: The committed ISR, this broker included.
        self.isr: frozenset[int] = frozenset()
        self.proposal: IsrProposal | None = None
        #: The end of the log when the leader epoch began.
        self.epoch_start = 0

    def assign(self, followers: Iterable[int], isr: Iterable[int]) -> None:
        """Set replicas and ISR as of the metadata; progress of remaining followers is kept."""
        known = self.followers
        self.followers = {id: known.get(id) or FollowerProgress() for id in followers}
        self.isr = frozenset(isr)

    def begin_epoch(self, leader_end: int, now_ms: float, *, is_new_leader: bool) -> None:
        """Begin a leader epoch; members of the ISR count as caught up from now on."""
        self.epoch_start = leader_end
        for id, progress in self.followers.items():
            caught_up_ms = now_ms if id in self.isr else _NEVER
            if is_new_leader:
                progress.forget(caught_up_ms)
            else:
                progress.enter_epoch(caught_up_ms, leader_end)

    @property
    def maximal_isr(self) -> frozenset[int]:
        """The committed ISR, and the replicas that the pending proposal adds."""
        return self.isr if self.proposal is None else self.isr | self.proposal.added

    def effective_min_isr(self, configured: int) -> int:
        return min(configured, len(self.followers) + 1)

    # -- the high watermark

    def high_watermark_at(
        self, leader_end: int, now_ms: float, max_lag_ms: float, brokers: BrokerLiveness
    ) -> int:
        """Return the smallest end offset of the maximal ISR.

        A follower outside of the ISR that is caught up and may join counts as well: else the high
        watermark would run away from a follower that tries to reach it.
        """
        lowest = leader_end
        maximal = self.maximal_isr
        for id, progress in self.followers.items():
            if progress.end_offset < lowest and (
                id in maximal
                or (
                    progress.is_caught_up(leader_end, now_ms, max_lag_ms)
                    and brokers.may_join_isr(id, progress.broker_epoch)
                )
            ):
                lowest = progress.end_offset
        return lowest

    def low_watermark(self, log_start: int, brokers: BrokerLiveness) -> int:
        """Return the smallest log start offset of the replicas whose brokers are alive."""
        lowest = log_start
        for id, progress in self.followers.items():
            if progress.start_offset < lowest and brokers.is_alive(id):
                lowest = progress.start_offset
        return lowest

    # -- the ISR

    def may_join(self, id: int, high_watermark: int, brokers: BrokerLiveness) -> bool:
        """Return whether a follower may be proposed for the ISR.

        It has everything below the high watermark and has reached this epoch's start: a record
        before that may have been acknowledged by the previous leader.
        """
        progress = self.followers.get(id)
        return (
            progress is not None
            and self.proposal is None
            and id not in self.isr
            and brokers.may_join_isr(id, progress.broker_epoch)
            and progress.end_offset >= high_watermark
            and progress.end_offset >= self.epoch_start
        )

    def lagging(
        self, own_id: int, leader_end: int, now_ms: float, max_lag_ms: float
    ) -> frozenset[int]:
        """Return the ISR's members that are not caught up; none while a proposal is pending."""
        if self.proposal is not None:
            return frozenset()
        followers = self.followers
        return frozenset(
            id
            for id in self.isr
            if id != own_id
            and (
                id not in followers
                or not followers[id].is_caught_up(leader_end, now_ms, max_lag_ms)
            )
        )

    def propose(
        self,
        partition: PartitionId,
        own_id: int,
        own_epoch: int,
        epochs: tuple[int, int],
        *,
        added: frozenset[int] = frozenset(),
        removed: frozenset[int] = frozenset(),
    ) -> IsrProposal:
        """Make a proposal pending; ``epochs`` are the leader epoch and the partition epoch."""
        members: dict[int, int] = {}
        for id in sorted((self.isr | added) - removed):
            known = self.followers[id].broker_epoch if id in self.followers else None
            members[id] = own_epoch if id == own_id else NO_EPOCH if known is None else known
        self.proposal = IsrProposal(partition, *epochs, members, added, removed)
        return self.proposal
