"""Replica manager: all replicas of a broker, the requests on them, and what has to be sent.

A driver calls one method for each event (metadata, request, response, timer) with the time, then
takes `ReplicaManager.take_output` and carries it out: answers by the request's token, Fetch and
ListOffsets requests to leaders, one AlterPartition request, directory assignments. ``wake_at_ms``
of the output says when to call `tick`.

Invariants: requests and metadata are applied in the order of the calls; a request gets one answer.
Called by the broker's event loop and ``kraft.simulation``. Rules: Kafka's ``ReplicaManager``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from typing_extensions import Buffer

from kraft._core.table.table import PartitionTable
from kraft.broker.replication.broker_liveness import BrokerLiveness
from kraft.broker.replication.delayed_requests import (
    PartitionOutcomes,
    WaitingDelete,
    WaitingProduce,
    WaitingRead,
)
from kraft.broker.replication.fetch_sessions import FetchSessionCache
from kraft.broker.replication.isr_changes import IsrChangeQueue
from kraft.broker.replication.local_changes import LocalPartition, local_changes
from kraft.broker.replication.messages import (
    NO_EPOCH,
    BrokerFetchRequest,
    BrokerFetchResponse,
    DeletedRecords,
    EpochEnd,
    FetchedPartition,
    FetchPartition,
    IsrChangeResponse,
    IsrProposal,
    ListedOffset,
    PartitionId,
    ProducedPartition,
    ReceivedFetch,
)
from kraft.broker.replication.partition import (
    ALL_IN_SYNC,
    NO_LEADER,
    HostedPartition,
    ReplicationContext,
)
from kraft.broker.replication.ports import LogStore, TopicSettings
from kraft.broker.replication.read_replicas import preferred_read_replica
from kraft.broker.replication.replica_fetching import OffsetQuery, ReplicaFetching
from kraft.broker.replication.replication_output import (
    ReplicaDirectory,
    ReplicationAnswer,
    ReplicationOutput,
)
from kraft.broker.replication.settings import DEFAULT_SETTINGS, ReplicationSettings
from kraft.broker.replication.waiting import WaitingOperations
from kraft.errors import (
    INVALID_REQUIRED_ACKS,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    KraftError,
    StorageError,
)
from kraft.image.publishing import Image, ImageDelta

#: Partitions whose ISR is checked in one call; the others follow in the next calls.
ISR_CHECKS_AT_ONCE = 500


class ReplicaManager(PartitionOutcomes):
    """The replicas of one broker. ``new_session_id`` returns a random int32 above 0."""

    def __init__(
        self,
        broker_id: int,
        store: LogStore,
        topics: TopicSettings,
        new_session_id: Callable[[], int],
        settings: ReplicationSettings = DEFAULT_SETTINGS,
    ) -> None:
        self._store = store
        self._settings = settings
        self.context = ReplicationContext(
            broker_id, BrokerLiveness(), topics, max_lag_ms=settings.max_lag_ms
        )
        self.partitions: dict[PartitionId, HostedPartition] = {}
        self.fetching = ReplicaFetching(
            self.context, self.partitions, settings.fetcher, self._follower_advanced
        )
        self.sessions = FetchSessionCache(new_session_id, settings.max_fetch_sessions)
        self.isr_queue = IsrChangeQueue()
        self._produces = WaitingOperations()
        self._fetches = WaitingOperations()
        self._deletes = WaitingOperations()
        self._id_of_row: dict[int, PartitionId] = {}
        self._hosted_rows: np.ndarray[Any, np.dtype[np.int32]] | None = None
        self._table: PartitionTable | None = None
        self._output = ReplicationOutput()
        self._now_ms = 0.0
        self._isr_check_at_ms = settings.max_lag_ms / 2
        self._isr_checks: list[PartitionId] = []
        self.is_stopping = False

    # -- the driver

    def take_output(self, now_ms: float) -> ReplicationOutput:
        """Return what has to be sent since the last call, with requests that may be sent now."""
        output, self._output = self._output, ReplicationOutput()
        output.fetches = self.fetching.requests(now_ms)
        output.queries = self.fetching.queries()
        output.isr_changes = self.isr_queue.next_request(now_ms)
        output.wake_at_ms = min(
            self._produces.wake_at_ms,
            self._fetches.wake_at_ms,
            self._deletes.wake_at_ms,
            self.fetching.wake_at_ms,
            self.isr_queue.wake_at_ms,
            now_ms if self._isr_checks else self._isr_check_at_ms,
        )
        return output

    def tick(self, now_ms: float) -> None:
        """Do what is due: deadlines of waiting requests, checks of ISRs."""
        self._now_ms = now_ms
        for waiting in (self._produces, self._fetches, self._deletes):
            waiting.expire(now_ms)
        if now_ms >= self._isr_check_at_ms:
            self._isr_check_at_ms = now_ms + self._settings.max_lag_ms / 2
            self._isr_checks = [id for id, each in self.partitions.items() if each.is_leader]
        for _ in range(min(ISR_CHECKS_AT_ONCE, len(self._isr_checks))):
            partition = self.partitions.get(self._isr_checks.pop())
            if partition is not None:
                self._propose(partition.shrinkage(self.context, now_ms))

    def set_broker_epoch(self, epoch: int) -> None:
        """Set the epoch of the present registration; all requests to other nodes carry it."""
        self.context.broker_epoch = epoch

    def begin_controlled_shutdown(self) -> None:
        """Stop fetching replicas that lose their leader, or leave the ISR, from now on."""
        self.is_stopping = True

    # -- metadata

    def note_time(self, now_ms: float) -> None:
        """Set the time of the next `delta_steps`."""
        self._now_ms = now_ms

    def apply_delta(
        self, table: PartitionTable, delta: ImageDelta, image: Image, now_ms: float
    ) -> None:
        """Create, delete, lead and follow replicas as the metadata now says."""
        self._now_ms = now_ms
        for _ in self.delta_steps(table, delta, image):
            pass

    def delta_steps(
        self, table: PartitionTable, delta: ImageDelta, image: Image
    ) -> Iterator[Sequence[LocalPartition]]:
        """Apply a delta; yield after each partition, and the new ones before the first is applied.

        The caller may create the logs of the partitions that it gets before the next step, and
        serve requests meanwhile; the next delta begins after the last step. ``table`` is the one of
        ``image``. Replicas are deleted first: a topic of the same name may have been created again.
        """
        self._table = table
        context = self.context
        context.brokers.apply_delta(delta)
        changes = local_changes(table, delta, image, context.broker_id, self._rows())
        if delta.is_full:
            present = {local.id for local in (*changes.leaders, *changes.followers)}
            gone = [id for id in self.partitions if id not in present]
            self._id_of_row.clear()
            self._hosted_rows = None
        else:
            gone = [
                self._id_of_row.pop(row) for row in changes.removed_rows if row in self._id_of_row
            ]
        for id in gone:
            self._delete(id)
            yield ()
        both = (*changes.leaders, *changes.followers)
        yield [local for local in both if local.id not in self.partitions]
        for apply, partitions in ((self._lead, changes.leaders), (self._follow, changes.followers)):
            for local in partitions:
                with suppress(StorageError):  # `directory_failed` takes the replica offline.
                    apply(local)
                yield ()
        self.fetching.remove_idle_fetchers()

    def _rows(self) -> np.ndarray[Any, np.dtype[np.int32]]:
        if self._hosted_rows is None or len(self._hosted_rows) != len(self._id_of_row):
            self._hosted_rows = np.sort(np.fromiter(self._id_of_row, np.int32))
        return self._hosted_rows

    def _delete(self, id: PartitionId) -> None:
        self.fetching.stop(id)
        self.fetching.failed.pop(id, None)
        if self.partitions.pop(id, None) is not None:
            self._hosted_rows = None
            self._store.delete(id)
            self._role_changed(id)

    def _host(self, local: LocalPartition) -> HostedPartition:
        """Return the replica of a partition; open or create its log if it is new here."""
        partition = self.partitions.get(local.id)
        assigned = local.assignment.directory
        if partition is None or partition.log is None:
            try:
                stored = self._store.open(local.id, local.topic, assigned)
            except StorageError:
                opened = HostedPartition(local.id, local.topic, None)
            else:
                opened = HostedPartition(
                    local.id,
                    local.topic,
                    stored.log,
                    high_watermark=stored.high_watermark,
                    directory=stored.directory,
                )
            partition = self.partitions[local.id] = opened
        if local.row not in self._id_of_row:
            self._id_of_row[local.row] = local.id
            self._hosted_rows = None
        if partition.log is not None and partition.directory != assigned:
            self._output.directories.append(ReplicaDirectory(local.id, partition.directory))
        return partition

    def _lead(self, local: LocalPartition) -> None:
        self.fetching.stop(local.id)
        partition = self._host(local)
        if partition.log is None:
            partition.become_follower(local.assignment)
            return
        epoch = partition.leader_epoch
        partition.become_leader(local.assignment, self.context, self._now_ms)
        if not self._advance(partition) and partition.leader_epoch != epoch:
            self._role_changed(local.id)

    def _follow(self, local: LocalPartition) -> None:
        partition = self._host(local)
        is_new_epoch = partition.become_follower(local.assignment)
        id, leader = local.id, local.assignment.leader
        must_stop = self.is_stopping and (
            leader == NO_LEADER or self.context.broker_id not in local.assignment.isr
        )
        if partition.log is None or must_stop:
            self.fetching.stop(id)
        elif is_new_epoch:
            self.fetching.stop(id)
            if leader != NO_LEADER:
                self.fetching.follow(partition)
        if is_new_epoch:
            self._role_changed(id)

    def _role_changed(self, id: PartitionId) -> None:
        """Let all requests that wait for a partition look at it again."""
        for waiting in (self._produces, self._fetches, self._deletes):
            waiting.changed(id, self._now_ms)

    def directory_failed(self, directory: bytes, now_ms: float) -> None:
        """Take all replicas in a directory offline (KIP-858)."""
        self._now_ms = now_ms
        for partition in list(self.partitions.values()):
            if partition.log is not None and partition.directory == directory:
                self.fetching.stop(partition.id)
                partition.take_offline()
                self._role_changed(partition.id)

    def high_watermarks(self) -> dict[PartitionId, int]:
        """Return the high watermark of each online replica, for the checkpoint."""
        return {
            id: each.high_watermark for id, each in self.partitions.items() if each.log is not None
        }

    # -- changes of partitions

    def _advance(self, partition: HostedPartition) -> bool:
        """Raise a led partition's high watermark; let waiting requests see it."""
        if not partition.advance_high_watermark(self.context, self._now_ms):
            return False
        self._role_changed(partition.id)
        return True

    def _follower_advanced(self, partition: HostedPartition) -> None:
        """Let waiting fetches see what a follower appended: consumers may read from it."""
        self._fetches.changed(partition.id, self._now_ms)

    def _absence_error(self, id: PartitionId) -> int:
        """Return the error for a partition that is not hosted here."""
        table = self._table
        topic = -1 if table is None else table.topic_number_by_id(id.topic_id)
        if table is None or topic < 0:
            return UNKNOWN_TOPIC_ID
        if table.row_of(topic, id.partition) < 0:
            return UNKNOWN_TOPIC_OR_PARTITION
        return NOT_LEADER_OR_FOLLOWER

    # -- ISR changes

    def _propose(self, proposal: IsrProposal | None) -> None:
        if proposal is not None:
            error = self.isr_queue.submit(proposal)
            if error:
                self.partitions[proposal.id].isr_rejected(proposal, error)

    def isr_answered(self, response: IsrChangeResponse | None, now_ms: float) -> None:
        """Apply an AlterPartition response; None: none arrived."""
        self._now_ms = now_ms
        for proposal, outcome in self.isr_queue.answered(response, now_ms):
            partition = self.partitions.get(proposal.id)
            if partition is None:
                continue
            if not isinstance(outcome, int):
                if partition.isr_committed(proposal, outcome):
                    self._advance(partition)
            elif partition.isr_rejected(proposal, outcome):
                self.isr_queue.submit(proposal)
                self.isr_queue.delay(now_ms)

    # -- Produce

    def produce(
        self,
        token: Hashable,
        batches: Mapping[PartitionId, Buffer],
        acks: int,
        timeout_ms: float,
        now_ms: float,
    ) -> None:
        """Append validated batches; answer ``token`` with ``dict[PartitionId, ProducedPartition]``.

        ``acks``: 0 or 1 answers at once, -1 when all members of the ISR have the batches.
        """
        self._now_ms = now_ms
        if acks not in (ALL_IN_SYNC, 0, 1):
            self._answer(token, {id: ProducedPartition(INVALID_REQUIRED_ACKS) for id in batches})
            return
        results: dict[PartitionId, ProducedPartition] = {}
        required: dict[PartitionId, int] = {}
        changed: list[HostedPartition] = []
        for id, batch in batches.items():
            partition = self.partitions.get(id)
            if partition is None:
                results[id] = ProducedPartition(self._absence_error(id))
                continue
            try:
                log = partition.local_log
                end = log.end_offset
                outcome = partition.append(batch, acks, self.context)
                results[id] = ProducedPartition(
                    NONE, outcome.first_offset, log.start_offset, None, outcome.append_time_ms
                )
                required[id] = outcome.last_offset + 1
                if log.end_offset != end:
                    changed.append(partition)
            except KraftError as error:
                results[id] = ProducedPartition(error.kafka_code, message=str(error))
        waiting: WaitingProduce | None = None
        if acks == ALL_IN_SYNC and required:
            waiting = WaitingProduce(
                self,
                results,
                required,
                now_ms + timeout_ms,
                lambda results: self._answer(token, results),
            )
            self._produces.add(waiting)
        else:
            self._answer(token, results)
        for partition in changed:
            if not self._advance(partition):
                self._fetches.changed(partition.id, now_ms)
        if waiting is not None:
            for id in required:
                self._produces.changed(id, now_ms)
            if timeout_ms <= 0:
                self._produces.expire(now_ms)

    def acknowledgement(self, id: PartitionId, required_offset: int) -> int | None:
        partition = self.partitions.get(id)
        if partition is None:
            return self._absence_error(id)
        return partition.acknowledgement(required_offset, self.context)

    def _answer(self, token: Hashable, response: Any) -> None:
        self._output.answers.append(ReplicationAnswer(token, response))

    # -- Fetch

    def fetch(self, token: Hashable, request: BrokerFetchRequest, now_ms: float) -> None:
        """Read for a follower or a consumer; answer ``token`` with a `BrokerFetchResponse`."""
        self._now_ms = now_ms
        session = self.sessions.begin(request, now_ms)
        fetches = session.partitions
        answers = self._read(request, fetches, is_first=True)
        if (
            session.error
            or request.max_wait_ms <= 0
            or not answers
            or sum(answer.size for answer in answers) >= request.min_bytes
            or any(
                answer.error
                or answer.diverging_epoch is not None
                or answer.preferred_read_replica >= 0
                for answer in answers
            )
        ):
            self._answer(token, session.respond(answers, now_ms))
            return

        def respond(answers: list[FetchedPartition], now_ms: float) -> None:
            response: BrokerFetchResponse = session.respond(answers, now_ms)
            self._answer(token, response)

        self._fetches.add(
            WaitingRead(
                self,
                request,
                fetches,
                {answer.id: answer.size for answer in answers if answer.size},
                now_ms + request.max_wait_ms,
                respond,
            )
        )

    def _read(
        self, request: BrokerFetchRequest, fetches: Sequence[FetchPartition], *, is_first: bool
    ) -> list[FetchedPartition]:
        """Read partitions in order, together at most the request's limit.

        The first batch of the response may exceed every limit, so that a reader makes progress.
        ``is_first``: note the positions of a follower, once for each request.
        """
        left = request.max_bytes
        at_least_one = True
        answers = []
        for fetch in fetches:
            answer = self._read_one(request, fetch, left, at_least_one=at_least_one)
            if is_first and request.is_from_follower and not answer.error:
                answer = self._note_follower(request, fetch, answer)
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
        partition = self.partitions.get(fetch.id)
        if error or partition is None:
            return FetchedPartition(fetch.id, error or self._absence_error(fetch.id))
        if request.is_from_follower:
            error = partition.epoch_error(
                fetch.leader_epoch, needs_leader=True
            ) or partition.follower_error(request.replica_id, fetch.leader_epoch)
            if error:
                return partition.failed_read(error)
        elif self._settings.is_rack_aware and request.rack_id:
            preferred = preferred_read_replica(
                partition, request.rack_id, fetch.fetch_offset, self.context
            )
            if preferred is not None:
                return partition.redirected_read(preferred)
        try:
            return partition.read(
                fetch,
                max_bytes,
                from_follower=request.is_from_follower,
                needs_leader=request.needs_leader,
                at_least_one=at_least_one,
            )
        except KraftError as failure:
            return partition.failed_read(failure.kafka_code)

    def _note_follower(
        self, request: BrokerFetchRequest, fetch: FetchPartition, answer: FetchedPartition
    ) -> FetchedPartition:
        """Note a follower's position, and what follows for the ISR and the high watermark.

        The answer keeps the high watermark from before, as in Kafka: the next one tells the new.
        """
        if answer.diverging_epoch is not None:
            return answer
        partition = self.partitions[fetch.id]
        error = partition.record_fetch(
            fetch, request.replica_id, request.replica_epoch, self.context, self._now_ms
        )
        if error:
            return partition.failed_read(error)
        self._propose(partition.expansion(request.replica_id, self.context))
        if not self._advance(partition):
            self._deletes.changed(fetch.id, self._now_ms)
        return answer

    def read_again(self, request: BrokerFetchRequest, fetch: FetchPartition) -> FetchedPartition:
        return self._read_one(request, fetch, request.max_bytes, at_least_one=True)

    def read_all(
        self, request: BrokerFetchRequest, fetches: Sequence[FetchPartition]
    ) -> list[FetchedPartition]:
        return self._read(request, fetches, is_first=False)

    # -- ListOffsets, OffsetForLeaderEpoch, DeleteRecords

    def list_offset(
        self,
        id: PartitionId,
        timestamp_ms: int,
        *,
        leader_epoch: int = NO_EPOCH,
        from_follower: bool = False,
    ) -> ListedOffset:
        """Answer ListOffsets for one partition."""
        partition = self.partitions.get(id)
        if partition is None:
            return ListedOffset(self._absence_error(id))
        return partition.list_offset(
            timestamp_ms, leader_epoch=leader_epoch, from_follower=from_follower
        )

    def epoch_end(self, id: PartitionId, leader_epoch: int, epoch: int) -> EpochEnd:
        """Answer OffsetForLeaderEpoch for one partition."""
        partition = self.partitions.get(id)
        if partition is None:
            return EpochEnd(self._absence_error(id))
        return partition.epoch_end(leader_epoch, epoch)

    def delete_records(
        self,
        token: Hashable,
        offsets: Mapping[PartitionId, int],
        timeout_ms: float,
        now_ms: float,
    ) -> None:
        """Delete the records before offsets; answer with ``dict[PartitionId, DeletedRecords]``."""
        self._now_ms = now_ms
        results: dict[PartitionId, DeletedRecords] = {}
        requested: dict[PartitionId, int] = {}
        for id, offset in offsets.items():
            partition = self.partitions.get(id)
            if partition is None:
                results[id] = DeletedRecords(self._absence_error(id))
                continue
            try:
                requested[id], _ = partition.delete_records(offset, self.context)
            except KraftError as error:
                results[id] = DeletedRecords(error.kafka_code)
        if not requested:
            self._answer(token, results)
            return
        self._deletes.add(
            WaitingDelete(
                self,
                results,
                requested,
                now_ms + timeout_ms,
                lambda results: self._answer(token, results),
            )
        )
        for id in requested:
            self._fetches.changed(id, now_ms)
            self._deletes.changed(id, now_ms)

    def deletion(self, id: PartitionId, requested: int) -> DeletedRecords | None:
        partition = self.partitions.get(id)
        if partition is None:
            return DeletedRecords(self._absence_error(id))
        return partition.deletion(requested, self.context)

    # -- responses of leaders

    def fetched(
        self, leader_id: int, number: int, response: ReceivedFetch | None, now_ms: float
    ) -> None:
        """Apply the response to a `FetchToSend`; None: none arrived."""
        self._now_ms = now_ms
        self.fetching.fetched(leader_id, number, response, now_ms)

    def offset_listed(self, query: OffsetQuery, listed: ListedOffset | None, now_ms: float) -> None:
        """Apply the response to an `OffsetQuery`; None: none arrived."""
        self._now_ms = now_ms
        self.fetching.offset_listed(query, listed, now_ms)
