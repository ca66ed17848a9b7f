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
from functools import partial
from typing import Any

import numpy as np
from typing_extensions import Buffer

from kraft._core.table.images import TableImage
from kraft.broker.replication.broker_fetches import BrokerFetches
from kraft.broker.replication.broker_liveness import BrokerLiveness
from kraft.broker.replication.context import ReplicationContext
from kraft.broker.replication.delayed_requests import (
    PartitionOutcomes,
    WaitingDelete,
    WaitingProduce,
)
from kraft.broker.replication.isr_changes import IsrChangeQueue
from kraft.broker.replication.local_changes import LocalPartition, local_changes
from kraft.broker.replication.messages import (
    NO_EPOCH,
    BrokerFetchRequest,
    DeletedRecords,
    EpochEnd,
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
)
from kraft.broker.replication.ports import LogStore, TopicSettings
from kraft.broker.replication.replica_counts import ReplicaCounts
from kraft.broker.replication.replica_fetching import OffsetQuery, ReplicaFetching
from kraft.broker.replication.replica_moves import UNKNOWN_DIRECTORY, ReplicaMoves
from kraft.broker.replication.replication_output import (
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
        self.isr_queue = IsrChangeQueue()
        self._produces = WaitingOperations()
        self._deletes = WaitingOperations()
        self.fetches = BrokerFetches(self, self.partitions, self.context, settings, new_session_id)
        self.moves = ReplicaMoves(
            self.partitions,
            store,
            report=lambda directory: self._output.directories.append(directory),
            before_replacement=self.fetches.settle_no_more,
        )
        self._id_of_row: dict[int, PartitionId] = {}
        self._hosted_rows: np.ndarray[Any, np.dtype[np.int32]] | None = None
        #: The metadata of the last delta.
        self._table: TableImage | None = None
        self._output = ReplicationOutput()
        self._now_ms = 0.0
        self._isr_check_at_ms = settings.max_lag_ms / 2
        self._isr_checks: list[PartitionId] = []
        self.is_stopping = False
        self.counts = ReplicaCounts()
        self.traffic = self.context.traffic

    # -- the driver

    def take_output(self, now_ms: float) -> ReplicationOutput:
        """Return what has to be sent since the last call, with requests that may be sent now."""
        output, self._output = self._output, ReplicationOutput()
        output.fetches = self.fetching.requests(now_ms)
        output.queries = self.fetching.queries()
        output.isr_changes = self.isr_queue.next_request(now_ms)
        output.wake_at_ms = min(
            self._produces.wake_at_ms,
            self.fetches.waiting.wake_at_ms,
            self._deletes.wake_at_ms,
            self.fetching.wake_at_ms,
            self.isr_queue.wake_at_ms,
            now_ms if self._isr_checks else self._isr_check_at_ms,
        )
        return output

    def take_answers(self) -> list[ReplicationAnswer]:
        """Return the answers since the last call, which `take_output` would return too."""
        answers, self._output.answers = self._output.answers, []
        return answers

    def tick(self, now_ms: float) -> None:
        """Do what is due: deadlines of waiting requests, checks of ISRs."""
        self._now_ms = now_ms
        for waiting in (self._produces, self.fetches.waiting, self._deletes):
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

    def apply_delta(self, delta: ImageDelta, image: Image, now_ms: float) -> None:
        """Create, delete, lead and follow replicas as the metadata now says."""
        self._now_ms = now_ms
        for _ in self.delta_steps(delta, image):
            pass

    def delta_steps(self, delta: ImageDelta, image: Image) -> Iterator[Sequence[LocalPartition]]:
        """Apply a delta; yield after each partition, and the new ones before the first is applied.

        The caller may create the logs of the partitions that it gets before the next step, and
        serve requests meanwhile; the next delta begins after the last step. Replicas are deleted
        first: a topic of the same name may have been created again.
        """
        self._table = image.table
        if delta.is_renumbered:
            yield from self._renumber(image.table)
            return
        context = self.context
        context.brokers.apply_delta(delta)
        changes = local_changes(delta, image, context.broker_id, self._rows())
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
                    self.counts.note(self.partitions[local.id])
                yield ()
        self.fetching.remove_idle_fetchers()

    def _renumber(self, table: TableImage) -> Iterator[tuple[()]]:
        """Note the new rows of the partitions; yield after each."""
        id_of_row: dict[int, PartitionId] = {}
        for id in self._id_of_row.values():
            id_of_row[table.row_of(table.topic_number_by_id(id.topic_id), id.partition)] = id
            yield ()
        self._id_of_row, self._hosted_rows = id_of_row, None

    def _rows(self) -> np.ndarray[Any, np.dtype[np.int32]]:
        if self._hosted_rows is None or len(self._hosted_rows) != len(self._id_of_row):
            self._hosted_rows = np.sort(np.fromiter(self._id_of_row, np.int32))
        return self._hosted_rows

    def _delete(self, id: PartitionId) -> None:
        self.fetching.stop(id)
        self.fetching.failed.pop(id, None)
        self.counts.forget(id)
        self.moves.moves.pop(id, None)
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
                # The failed directory: the controller may have to know it.
                known = UNKNOWN_DIRECTORY if partition is None else partition.directory
                opened = HostedPartition(local.id, local.topic, None, directory=known)
            else:
                opened = HostedPartition(
                    local.id,
                    local.topic,
                    stored.log,
                    high_watermark=stored.high_watermark,
                    directory=stored.directory,
                )
            partition = self.partitions[local.id] = opened
            with suppress(StorageError):  # The move goes on after the next start.
                self.moves.resume(partition)
        if local.row not in self._id_of_row:
            self._id_of_row[local.row] = local.id
            self._hosted_rows = None
        return partition

    def _lead(self, local: LocalPartition) -> None:
        self.fetching.stop(local.id)
        self.fetches.settle_no_more(local.id)
        partition = self._host(local)
        if partition.log is None:
            partition.become_follower(local.assignment)
            self.moves.check_directory(partition)
            return
        epoch = partition.leader_epoch
        partition.become_leader(local.assignment, self.context, self._now_ms)
        self.moves.check_directory(partition)
        if not self._advance(partition) and partition.leader_epoch != epoch:
            self._role_changed(local.id)

    def _follow(self, local: LocalPartition) -> None:
        partition = self._host(local)
        is_new_epoch = partition.become_follower(local.assignment)
        self.moves.check_directory(partition)
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
        if self._produces.count:
            self._produces.changed(id, self._now_ms)
        self.fetches.changed(id, self._now_ms)
        if self._deletes.count:
            self._deletes.changed(id, self._now_ms)

    def directory_failed(self, directory: bytes, now_ms: float) -> None:
        """Take all replicas in a directory offline (KIP-858); end the moves from and to it."""
        self._now_ms = now_ms
        self.moves.directory_failed(directory)
        for partition in list(self.partitions.values()):
            if partition.log is not None and partition.directory == directory:
                self.fetching.stop(partition.id)
                partition.take_offline()
                self.counts.note(partition)
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
        self.fetches.changed(partition.id, self._now_ms)

    def absence_error(self, id: PartitionId) -> int:
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
            if isinstance(outcome, int):
                self.traffic.failed_isr_updates += 1
                if partition.isr_rejected(proposal, outcome):
                    self.isr_queue.submit(proposal)
                    self.isr_queue.delay(now_ms)
                continue
            if partition.is_leader:
                self.traffic.isr_changed(len(partition.isr), len(outcome.isr))
            self.fetches.settle_no_more(proposal.id)
            if partition.isr_committed(proposal, outcome):
                self._advance(partition)
            self.counts.note(partition)

    # -- Produce

    def produce(
        self,
        token: Hashable,
        batches: Mapping[PartitionId, Buffer],
        acks: int,
        timeout_ms: float,
        now_ms: float,
    ) -> bool:
        """Append validated batches; answer ``token`` with ``dict[PartitionId, ProducedPartition]``.

        ``acks``: 0 or 1 answers at once, -1 when all members of the ISR have the batches. Return
        whether the request waits; else the driver needs only `take_answers`.
        """
        self._now_ms = now_ms
        if acks not in (ALL_IN_SYNC, 0, 1):
            self._answer(token, {id: ProducedPartition(INVALID_REQUIRED_ACKS) for id in batches})
            return False
        self.traffic.produces += len(batches)
        results: dict[PartitionId, ProducedPartition] = {}
        required: dict[PartitionId, int] = {}
        changed: list[HostedPartition] = []
        for id, batch in batches.items():
            partition = self.partitions.get(id)
            if partition is None:
                results[id] = ProducedPartition(self.absence_error(id))
                continue
            try:
                outcome = partition.append(batch, acks, self.context)
                start = partition.local_log.start_offset
            except KraftError as error:
                self.traffic.produce_failed(error.kafka_code)
                results[id] = ProducedPartition(error.kafka_code, message=str(error))
                continue
            first, time_ms = outcome.first_offset, outcome.append_time_ms
            results[id] = ProducedPartition(NONE, first, start, None, time_ms)
            required[id] = outcome.last_offset + 1
            if not outcome.is_duplicate:
                changed.append(partition)
                self.traffic.appended(outcome.last_offset + 1 - first, len(memoryview(batch)))
        for partition in changed:
            if not self._advance(partition):
                self.fetches.changed(partition.id, now_ms)
        if acks != ALL_IN_SYNC or not required:
            self._answer(token, results)
            return False
        respond = partial(self._answer, token)
        waiting = WaitingProduce(self, results, required, now_ms + timeout_ms, respond)
        is_satisfied = False
        for id in required:
            # Asked for each: some partitions may be acknowledged already.
            is_satisfied = waiting.is_satisfied(id)
        if is_satisfied or timeout_ms <= 0:
            waiting.end(now_ms)
            return False
        self._produces.add(waiting)
        return True

    def acknowledgement(self, id: PartitionId, required_offset: int) -> int | None:
        partition = self.partitions.get(id)
        if partition is None:
            return self.absence_error(id)
        return partition.acknowledgement(required_offset, self.context)

    def _answer(self, token: Hashable, response: Any) -> None:
        self._output.answers.append(ReplicationAnswer(token, response))

    # -- Fetch

    def fetch(self, token: Hashable, request: BrokerFetchRequest, now_ms: float) -> bool:
        """Read for a follower or a consumer; answer ``token`` with a `BrokerFetchResponse`.

        Return False if the driver needs only `take_answers`: a consumer's fetch that does not wait
        changes nothing else.
        """
        self._now_ms = now_ms
        waits = self.fetches.fetch(request, now_ms, partial(self._answer, token))
        return waits or request.is_from_follower

    def follower_fetched(self, partition: HostedPartition, proposal: IsrProposal | None) -> None:
        self._propose(proposal)
        if not self._advance(partition):
            self._deletes.changed(partition.id, self._now_ms)

    def awaits_followers(self, id: PartitionId) -> bool:
        return self._deletes.is_watched(id)

    def start_offsets_changed(self, now_ms: float) -> None:
        """Let fetches see the log start offsets that retention has raised."""
        self._now_ms = now_ms
        self.fetches.start_offsets_changed(now_ms)

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
            return ListedOffset(self.absence_error(id))
        return partition.list_offset(
            timestamp_ms, leader_epoch=leader_epoch, from_follower=from_follower
        )

    def epoch_end(self, id: PartitionId, leader_epoch: int, epoch: int) -> EpochEnd:
        """Answer OffsetForLeaderEpoch for one partition."""
        partition = self.partitions.get(id)
        if partition is None:
            return EpochEnd(self.absence_error(id))
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
                results[id] = DeletedRecords(self.absence_error(id))
                continue
            try:
                requested[id], _ = partition.delete_records(offset, self.context)
            except KraftError as error:
                results[id] = DeletedRecords(error.kafka_code)
        if not requested:
            self._answer(token, results)
            return
        respond = partial(self._answer, token)
        self._deletes.add(WaitingDelete(self, results, requested, now_ms + timeout_ms, respond))
        for id in requested:
            self.fetches.changed(id, now_ms)
            self._deletes.changed(id, now_ms)

    def deletion(self, id: PartitionId, requested: int) -> DeletedRecords | None:
        partition = self.partitions.get(id)
        if partition is None:
            return DeletedRecords(self.absence_error(id))
        try:
            return partition.deletion(requested, self.context)
        except StorageError as error:
            return DeletedRecords(error.kafka_code)

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
