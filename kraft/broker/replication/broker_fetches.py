"""Fetch requests of followers and consumers on a broker's replicas.

`BrokerFetches` reads the partitions of a request within its limits, notes what followers have, and
lets a request wait for enough bytes. Sessions say which partitions a request reads
(`fetch_sessions`); a partition that did not change since the last request is not read again.

Invariant: the replica manager calls `settle_no_more` before a leadership changes or a move replaces
a log, and `changed` after any other change of a partition. Called by `replica_manager`. Rules:
Kafka's ``ReplicaManager.fetchMessages``, ``DelayedFetch`` (4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Protocol

from kraft.broker.replication.context import ReplicationContext
from kraft.broker.replication.delayed_requests import FetchOutcomes, WaitingRead
from kraft.broker.replication.fetch_sessions import FetchSessionCache, SessionContext
from kraft.broker.replication.messages import (
    FINAL_SESSION_EPOCH,
    BrokerFetchRequest,
    BrokerFetchResponse,
    FetchedPartition,
    FetchPartition,
    IsrProposal,
    PartitionId,
)
from kraft.broker.replication.partition import HostedPartition
from kraft.broker.replication.read_replicas import preferred_read_replica
from kraft.broker.replication.reads_ahead import ReadsAhead
from kraft.broker.replication.settings import ReplicationSettings
from kraft.broker.replication.settled_partitions import SettledPartitions
from kraft.broker.replication.waiting import WaitingOperations
from kraft.errors import KraftError


class FetchedReplicas(Protocol):
    """What the fetches ask and tell the replica manager."""

    def absence_error(self, id: PartitionId) -> int:
        """Return the error for a partition that is not hosted here."""

    def follower_fetched(self, partition: HostedPartition, proposal: IsrProposal | None) -> None:
        """Send a proposal for the ISR, if any, and let requests that wait see the progress."""

    def awaits_followers(self, id: PartitionId) -> bool:
        """Return whether a request waits for what the followers of a partition fetch."""


class BrokerFetches(FetchOutcomes):
    """The Fetch requests of a broker. ``new_session_id`` returns a random int32 above 0."""

    def __init__(
        self,
        replicas: FetchedReplicas,
        partitions: Mapping[PartitionId, HostedPartition],
        context: ReplicationContext,
        settings: ReplicationSettings,
        new_session_id: Callable[[], int],
    ) -> None:
        self._replicas = replicas
        self._partitions = partitions
        self._context = context
        self._settings = settings
        self.settled = SettledPartitions(partitions, replicas.awaits_followers)
        self.sessions = FetchSessionCache(new_session_id, self.settled, settings.max_fetch_sessions)
        self.waiting = WaitingOperations()
        #: Answers to fetches that have not come yet.
        self.ahead = ReadsAhead()
        #: The time of the present call, for the quota of leaders.
        self._now_ms = 0.0

    # -- changes

    def settle_no_more(self, id: PartitionId) -> None:
        """Let the next fetches of all sessions read a partition, which is about to change."""
        self.settled.changed(id)
        self.ahead.changed(id)

    def changed(self, id: PartitionId, now_ms: float) -> None:
        """Let fetches see a change of a partition, those that wait at once."""
        self.settled.changed(id)
        self.ahead.changed(id)
        if self.waiting.count:
            self._now_ms = now_ms
            self.waiting.changed(id, now_ms)

    def start_offsets_changed(self, now_ms: float) -> None:
        """Let fetches see the log start offsets that retention has raised."""
        self.ahead.all_changed()
        for id in self.settled.changed_start_offsets():
            self.changed(id, now_ms)

    # -- requests

    def fetch(
        self,
        request: BrokerFetchRequest,
        now_ms: float,
        answer: Callable[[BrokerFetchResponse], None],
    ) -> bool:
        """Read for a follower or a consumer; call ``answer`` once. Return whether that is later."""
        self._now_ms = now_ms
        has_session = request.session_epoch != FINAL_SESSION_EPOCH
        reader = self._reader_of(request) if has_session else None
        context = self.sessions.begin(request, now_ms, reader)
        fetches = context.partitions
        answers = self._read(request, fetches, now_ms)
        if (
            context.error
            or request.max_wait_ms <= 0
            or not context.may_wait
            or sum(answer.size for answer in answers) >= request.min_bytes
            or any(
                answer.error
                or answer.diverging_epoch is not None
                or answer.preferred_read_replica >= 0
                for answer in answers
            )
        ):
            answer(self._response(context, request, answers, now_ms))
            return False
        self._wait(context, request, fetches, answers, now_ms, answer)
        return True

    def read_ahead(
        self, request: BrokerFetchRequest, fetches: Sequence[FetchPartition]
    ) -> list[FetchedPartition] | None:
        """Read for a consumer what `fetch` would answer at once; a session is left alone.

        ``fetches`` take the place of the request's partitions. The answers are right until the next
        change of a partition; `note_read_ahead` counts them. None if `fetch` would wait or report
        an error, and for a partition that this broker does not lead: a follower truncates its log.
        """
        answers = self._read_all(request, fetches, None)
        size = 0
        for answer in answers:
            if (
                answer.error
                or answer.diverging_epoch is not None
                or answer.preferred_read_replica >= 0
                or not self._partitions[answer.id].is_leader
            ):
                return None
            size += answer.size
        return answers if size >= max(request.min_bytes, 1) else None

    def note_read_ahead(self, answers: Sequence[FetchedPartition]) -> None:
        """Count answers of `read_ahead` that were given."""
        traffic = self._context.traffic
        traffic.fetches += len(answers)
        traffic.sent(sum(answer.size for answer in answers), to_follower=False)

    def _reader_of(self, request: BrokerFetchRequest) -> Hashable:
        """Return what of a request decides about all partitions of its session.

        None if any partition's answer may change without a change of the partition: that of a
        consumer in a rack, which may be sent to another replica.
        """
        if not request.is_from_follower:
            is_in_rack = self._settings.is_rack_aware and bool(request.rack_id)
            return None if is_in_rack else request.needs_leader
        replica = request.replica_id, request.replica_epoch
        return *replica, self._context.brokers.is_stale(*replica)

    def _wait(
        self,
        context: SessionContext,
        request: BrokerFetchRequest,
        fetches: Sequence[FetchPartition],
        answers: Sequence[FetchedPartition],
        now_ms: float,
        answer: Callable[[BrokerFetchResponse], None],
    ) -> None:
        session = context.session

        def respond(now_ms: float) -> None:
            if session is not None:
                session.waits.remove(watch)
            self._now_ms = now_ms
            answers = self._read(request, context.partitions, None)
            answer(self._response(context, request, answers, now_ms))

        def watch(fetch: FetchPartition) -> None:
            if waiting.add(fetch):
                self.waiting.watch(waiting, fetch.id)

        sizes = {answer.id: answer.size for answer in answers if answer.size}
        deadline_ms = now_ms + request.max_wait_ms
        waiting = WaitingRead(self, request, fetches, sizes, deadline_ms, respond)
        self.waiting.add(waiting)
        if session is not None:
            session.waits.append(watch)

    def _response(
        self,
        context: SessionContext,
        request: BrokerFetchRequest,
        answers: Sequence[FetchedPartition],
        now_ms: float,
    ) -> BrokerFetchResponse:
        size = sum(answer.size for answer in answers)
        self._context.traffic.sent(size, to_follower=request.is_from_follower)
        if request.is_from_follower and size:
            self._context.note_sent(answers, self._partitions, now_ms)
        return context.respond(answers, now_ms)

    def read_again(self, request: BrokerFetchRequest, fetch: FetchPartition) -> FetchedPartition:
        return self._read_one(request, fetch, request.max_bytes, at_least_one=True)

    # -- reading

    def _read(
        self,
        request: BrokerFetchRequest,
        fetches: Sequence[FetchPartition],
        arrived_ms: float | None,
    ) -> list[FetchedPartition]:
        """Read partitions in order, together at most the request's limit.

        The first batch of the response may exceed every limit, so that a reader makes progress.
        ``arrived_ms``: note the positions of a follower, once for each request; None: do not.
        """
        self._context.traffic.fetches += len(fetches)
        return self._read_all(request, fetches, arrived_ms)

    def _read_all(
        self,
        request: BrokerFetchRequest,
        fetches: Sequence[FetchPartition],
        arrived_ms: float | None,
    ) -> list[FetchedPartition]:
        left = request.max_bytes
        at_least_one = True
        answers = []
        for fetch in fetches:
            answer = self._read_one(request, fetch, left, at_least_one=at_least_one)
            if arrived_ms is not None and request.is_from_follower and not answer.error:
                answer = self._note_follower(request, fetch, answer, arrived_ms)
            if answer.size:
                at_least_one = False
                left = max(0, left - answer.size)
            answers.append(answer)
        return answers

    def _read_one(
        self,
        request: BrokerFetchRequest,
        fetch: FetchPartition,
        max_bytes: int,
        *,
        at_least_one: bool,
    ) -> FetchedPartition:
        error = 0 if request.error_of is None else request.error_of(fetch.id)
        partition = self._partitions.get(fetch.id)
        if error or partition is None:
            return FetchedPartition(fetch.id, error or self._replicas.absence_error(fetch.id))
        if request.is_from_follower:
            error = partition.epoch_error(
                fetch.leader_epoch, needs_leader=True
            ) or partition.follower_error(request.replica_id, fetch.leader_epoch)
            if error:
                return partition.failed_read(error)
        elif self._settings.is_rack_aware and request.rack_id:
            preferred = preferred_read_replica(
                partition, request.rack_id, fetch.fetch_offset, self._context
            )
            if preferred is not None:
                return partition.redirected_read(preferred)
        try:
            answer = partition.read(
                fetch,
                max_bytes,
                from_follower=request.is_from_follower,
                needs_leader=request.needs_leader,
                at_least_one=at_least_one,
            )
        except KraftError as failure:
            self._context.traffic.fetch_failed(failure.kafka_code)
            return partition.failed_read(failure.kafka_code)
        if (
            answer.records is not None
            and request.is_from_follower
            and self._context.must_wait(partition, request.replica_id, self._now_ms)
        ):
            return answer._replace(records=None)
        return answer

    def _note_follower(
        self,
        request: BrokerFetchRequest,
        fetch: FetchPartition,
        answer: FetchedPartition,
        now_ms: float,
    ) -> FetchedPartition:
        """Note a follower's position, and what follows for the ISR and the high watermark.

        The answer keeps the high watermark from before, as in Kafka: the next one tells the new.
        """
        if answer.diverging_epoch is not None:
            return answer
        self.settled.fetched(fetch.id, request.replica_id)
        partition = self._partitions[fetch.id]
        error = partition.record_fetch(
            fetch, request.replica_id, request.replica_epoch, self._context, now_ms
        )
        if error:
            return partition.failed_read(error)
        self._replicas.follower_fetched(
            partition, partition.expansion(request.replica_id, self._context)
        )
        return answer
