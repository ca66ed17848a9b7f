"""The quorum controller: decide one operation at a time on the uncommitted state.

Holds the uncommitted state, the answers that wait for a commit, and the metadata transaction, and
carries them through a change of leadership. Pure: no socket, file, thread, clock or random source.
A driver calls it and does the work that each call returns (``ControllerOutput``).

    submit ─▶ queue ─▶ decide(context) ─▶ records ─▶ apply ─▶ to_append ─▶ the raft layer
                                            └─▶ answer, held until committed ◀──┘

Invariants

- A decision changes nothing; only records do. The bytes that are applied are the bytes that are
  appended.
- An answer is released when its last record is committed, and the transaction of that record; an
  answer without records when every record that the decision may have seen is committed. A heartbeat
  without records sees the registration of its broker only, so it is not behind a long log of other
  records that are not committed yet.
- No other record is written within a metadata transaction. Operations that would write wait.
  Operations that write nothing (most heartbeats) are answered at once. The time of a transaction is
  bounded.
- When leadership is lost, the state reverts to the committed state, or to the beginning of an open
  transaction. The node continues as a standby. All waiting operations are answered with
  NOT_CONTROLLER, and raft and controller resign together (KAFKA-13104).
- A record that cannot be applied ends the process: every method lets `ReplayError` pass.

Sources: Kafka's ``QuorumController``, ``OffsetControlManager``; KIP-868.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from kraft._core.bytes.batch import assign_offsets
from kraft._core.decide.placement import ReplicaPlacer
from kraft._core.table.compaction import Compaction
from kraft.controller.brokers.sessions import BrokerSessions
from kraft.controller.decision import Decision, Records
from kraft.controller.runtime.bootstrap import activation_records
from kraft.controller.runtime.event_queue import DurationHistogram, EventQueue, QueuedEvent
from kraft.controller.runtime.operations import (
    INTERNAL,
    Answer,
    ControllerOutput,
    DecisionContext,
    KRaftVersionUpgrade,
    KRaftVersionUpgradeRequest,
    Operation,
)
from kraft.controller.runtime.periodic import AGAIN_MS, PeriodicTasks
from kraft.controller.runtime.settings import ControllerSettings
from kraft.controller.runtime.transactions import Transaction, check_is_one_batch
from kraft.errors import (
    KraftError,
    NotControllerError,
    ReplayError,
    RequestTimedOutError,
    UnknownServerError,
)
from kraft.image.replay import MetadataState
from kraft.records import Record, Uuid

#: Rows that one step of a compaction copies; takes 1 to 2 ms.
ROWS_COPIED_AT_ONCE = 5_000


class _PendingAnswer(NamedTuple):
    """An answer that is held until everything below ``end_offset`` is committed."""

    end_offset: int
    answer: Answer


class QuorumController:
    """The controller of one node: the active controller or a standby.

    ``cluster`` is empty or loaded from a snapshot, and has a journal. ``bootstrap`` are the first
    records of an empty log. ``log_fault`` is called with each unexpected exception.
    """

    def __init__(
        self,
        cluster: MetadataState,
        settings: ControllerSettings,
        *,
        placer: ReplicaPlacer,
        random_uuid: Callable[[], Uuid],
        bootstrap: Sequence[Record] = (),
        log_fault: Callable[[str, Exception], None] = lambda what, error: None,
    ) -> None:
        self.settings = settings
        self.sessions = BrokerSessions(settings.session_timeout_ms)
        self.context = DecisionContext(
            cluster, self.sessions, settings.decisions, placer, random_uuid
        )
        self.queue: EventQueue[Operation] = EventQueue()
        #: -1 while another node leads.
        self.epoch = -1
        #: Every record below this offset is committed, as far as the raft layer has reported.
        self.committed_offset = cluster.next_offset
        self.queue_times = DurationHistogram()
        #: How long each `run` took; noted by the driver, which has a clock.
        self.processing_times = DurationHistogram()
        self.fault_count = 0
        #: Operations that expired in the queue, by their name.
        self.expired: Counter[str] = Counter()
        self._log_fault = log_fault
        self._bootstrap = tuple(bootstrap)
        self._periodic = PeriodicTasks(settings)
        self._pending: deque[_PendingAnswer] = deque()
        #: Brokers that changed since `_write` last looked, and the end of the records that changed
        #: each broker, where these records are not known to be committed.
        self._touched_brokers = cluster.state.brokers.watch()
        self._broker_ends: dict[int, int] = {}
        self._transaction: Transaction | None = None
        #: The operation that is decided in several events, and may know rows of the table.
        self._unfinished: Operation | None = None
        self._compaction: Compaction | None = None
        #: Control batches that the raft layer appended and that are not committed yet.
        self._control_batches: deque[tuple[int, memoryview]] = deque()
        #: Operations that wait for the raft layer's response about kraft.version, by number.
        self._upgrades: dict[int, tuple[Operation, KRaftVersionUpgrade]] = {}
        self._last_upgrade = 0
        self._output = ControllerOutput()

    @property
    def cluster(self) -> MetadataState:
        """The uncommitted state; on a standby it equals the committed state."""
        return self.context.cluster

    @property
    def is_active(self) -> bool:
        return self.epoch >= 0

    @property
    def stable_offset(self) -> int:
        """The offset below which everything is committed and no metadata transaction is open. Other
        components may read up to it.
        """
        return self.cluster.stable_at(self.committed_offset)

    @property
    def is_compaction_due(self) -> bool:
        """Whether `compact` would halve the table, and no decision under way knows rows of it."""
        table = self.cluster.table
        return (
            table.row_count - table.partition_count
            >= max(self.settings.min_dead_rows, table.partition_count)
            and self._transaction is None
            and self._unfinished is None
            and self.cluster.transaction_start is None
        )

    @property
    def is_compacting(self) -> bool:
        """Whether `prepare_compaction` has begun: until `compact` nothing else may change."""
        return self._compaction is not None

    def prepare_compaction(self) -> bool:
        """Copy some live rows, for one to two milliseconds; return whether more are left.

        Begin if `is_compaction_due`, with all committed.
        """
        if self._compaction is None:
            self._compaction = self._begin_compaction()
        return self._compaction.step(ROWS_COPIED_AT_ONCE)

    def compact(self, now_ms: float) -> None:
        """Drop the rows of removed partitions: what `prepare_compaction` has left of it, or all."""
        compaction, self._compaction = self._compaction, None
        if compaction is None:
            compaction = self._begin_compaction()
        compaction.finish()
        if self.is_active:
            self._periodic.index_partitions(self.cluster, self.queue, now_ms)

    def _begin_compaction(self) -> Compaction:
        assert self.stable_offset == self.cluster.next_offset, "a revert would need the journal"
        return self.cluster.begin_compaction()

    # -- requests

    def submit(self, operation: Operation, now_ms: float) -> ControllerOutput:
        """Queue an operation; answer NOT_CONTROLLER at once if another node leads."""
        if self._accepts(operation):
            self.queue.append(operation, now_ms, deadline_ms=operation.deadline_ms)
        return self._take_output(now_ms)

    def submit_heartbeat(
        self, operation: Operation, broker_id: int, broker_epoch: int, now_ms: float
    ) -> ControllerOutput:
        """As `submit`, but before all other events. The heartbeat renews the session at once."""
        if self._accepts(operation):
            response = self.answer_unchanged(operation, broker_id, broker_epoch, now_ms)
            if response is None:
                deadline_ms = operation.deadline_ms
                self.queue.append_heartbeat(operation, broker_id, now_ms, deadline_ms=deadline_ms)
            else:
                self._output.answers.append(Answer(operation.token, response))
        return self._take_output(now_ms)

    def answer_unchanged(
        self, operation: Operation, broker_id: int, broker_epoch: int, now_ms: float
    ) -> Any:
        """Renew the session; return the response to a heartbeat that changes nothing, else None.

        It is the response of `submit_heartbeat`, without the queue. None: `submit_heartbeat` is
        needed, since the heartbeat may write records, an earlier one of its broker waits, or the
        decision would see records that are not committed. Does nothing on a standby.

        Heartbeats of other brokers may wait meanwhile: they change nothing that the response
        depends on. A thousand brokers that return each take a turn of the controller to be
        unfenced, and the heartbeats of all others would expire behind them.
        """
        if self.epoch < 0:
            return None
        self.sessions.touch(broker_id, broker_epoch, now_ms)
        context = self.context
        if (
            operation.unchanged is None
            or not self._is_all_committed(operation.reads_broker)
            or self.queue.has_heartbeat(broker_id)
        ):
            return None
        response = operation.unchanged(context)
        if response is not None:
            self.queue_times.note(0.0)
            if operation.applied is not None:
                context.now_ms, context.next_offset = now_ms, context.cluster.next_offset
                operation.applied(context, response)
        return response

    def _accepts(self, operation: Operation) -> bool:
        if not self.is_active:
            self._answer(operation, error=_not_controller())
        return self.is_active

    # -- one event

    def run(self, now_ms: float, next_offset: int, *, may_append: bool = True) -> ControllerOutput:
        """Run the next event, if there is one, and return the resulting work.

        ``next_offset`` is the offset of the raft leader's next record. Without ``may_append`` (the
        disk is behind) only events that write nothing are answered.
        """
        self.context.now_ms, self.context.next_offset = now_ms, next_offset
        for late in self.queue.take_expired(now_ms):
            self._finished(late.event)
            self.expired[late.event.name] += 1
            self._answer(late.event, error=_timed_out(late, now_ms))
        if not self.is_active:
            return self._take_output(now_ms)
        is_free = self._transaction is None and may_append
        if is_free:
            self.queue.release_held()
        waiting = self.queue.take(now_ms) if is_free else self.queue.take_heartbeat()
        if waiting is not None:
            self.queue_times.note(now_ms - waiting.since_ms)
            self._run(waiting, may_write=is_free)
        elif self._transaction is not None:
            self._continue_transaction(self._transaction, may_append)
        return self._take_output(now_ms)

    def _run(self, waiting: QueuedEvent[Operation], *, may_write: bool) -> None:
        operation = waiting.event
        outcome = self._decide(operation)
        if outcome is None:
            self._finished(operation)
            return
        if isinstance(outcome, KRaftVersionUpgrade):
            if not may_write:
                self.queue.hold(waiting)
                return
            self._last_upgrade += 1
            number = self._last_upgrade
            self._upgrades[number] = operation, outcome
            asked = KRaftVersionUpgradeRequest(number, outcome.level, outcome.validate_only)
            self._output.kraft_version_upgrades.append(asked)
            return
        if len(outcome.records) and not may_write:
            self.queue.hold(waiting)
            return
        self._finished(operation)
        self._apply_decision(operation, outcome)

    def _finished(self, operation: Operation) -> None:
        if operation is self._unfinished:
            self._unfinished = None

    def _decide(self, operation: Operation) -> Decision[Any] | KRaftVersionUpgrade | None:
        """Decide the operation; return None if it is rejected, or if it begins a transaction.

        A request that is decided in chunks begins a transaction if there are several.
        """
        try:
            outcome = operation.decide(self.context)
            if isinstance(outcome, KRaftVersionUpgrade):
                return outcome
            if not isinstance(outcome, Decision):
                try:
                    first = next(outcome)
                except StopIteration as end:
                    decision: Decision[Any] = end.value
                else:
                    self._transaction = Transaction(operation, first, outcome, self.context.now_ms)
                    return None
            else:
                decision = outcome
            if decision.is_atomic:
                check_is_one_batch(operation.name, decision.records)
        except ReplayError:
            raise
        except KraftError as error:
            self._answer(operation, error=error)
            return None
        except Exception as error:
            # Deciding changes nothing: the state is unchanged, and other operations go on.
            self._answer(operation, error=self._fault(operation, error))
            return None
        return decision

    def _apply_decision(self, operation: Operation, decision: Decision[Any]) -> None:
        if len(decision.records):
            self._write(decision.records)
        if operation.applied is not None:
            operation.applied(self.context, decision.response)
        if decision.is_partial:
            self._unfinished = operation
            self.queue.prepend(operation, self.context.now_ms, deadline_ms=operation.deadline_ms)
        elif operation.token != INTERNAL:
            answer = Answer(operation.token, decision.response)
            if not len(decision.records) and self._is_registration_committed(
                operation.reads_broker
            ):
                self._output.answers.append(answer)
                return
            self._pending.append(_PendingAnswer(self._seen_offset(), answer))
            self._release_answers()

    def _is_all_committed(self, broker_id: int | None) -> bool:
        """Return whether all that a decision without records sees is committed: the registration of
        this broker, for None all records.
        """
        if broker_id is not None:
            return self._is_registration_committed(broker_id)
        return not self._pending and self._seen_offset() <= self.committed_offset

    def _is_registration_committed(self, broker_id: int | None) -> bool:
        """Return whether all records that changed this broker are committed; False for None."""
        return (
            broker_id is not None and self._broker_ends.get(broker_id, 0) <= self.committed_offset
        )

    def _seen_offset(self) -> int:
        """Return the end of the records that a decision has seen, without an open transaction."""
        start = self.cluster.transaction_start
        return self.cluster.next_offset if start is None else start

    def _write(self, records: Records) -> None:
        """Apply the records to the uncommitted state and hand them to the raft layer."""
        assert self._output.to_append is None, "one call appends once"
        context = self.context
        batches = records.batches
        end_offset = assign_offsets(batches, context.next_offset, self.epoch, int(context.now_ms))
        context.cluster.apply(batches, verify_crc=False)
        assert context.cluster.next_offset == end_offset, "what was applied is what is appended"
        self._output.to_append = batches
        self._output.base_offset, self._output.epoch = context.next_offset, self.epoch
        context.next_offset = end_offset
        if self._touched_brokers:
            self._broker_ends |= dict.fromkeys(self._touched_brokers, end_offset)
            self._touched_brokers.clear()

    def kraft_version_answered(
        self, number: int, error: KraftError | None, now_ms: float
    ) -> ControllerOutput:
        """Take the raft layer's response to a `KRaftVersionUpgradeRequest`; None is success.

        The records of the upgrade are committed by then. After leadership was lost the response is
        ignored: the operation has been answered.
        """
        waiting = self._upgrades.pop(number, None)
        if waiting is not None:
            operation, upgrade = waiting
            if error is not None:
                self._answer(operation, error=error)
            else:
                following = replace(operation, decide=upgrade.then)
                self.queue.prepend(following, now_ms, deadline_ms=operation.deadline_ms)
        return self._take_output(now_ms)

    # -- metadata transactions

    def _continue_transaction(self, transaction: Transaction, may_append: bool) -> None:
        """Write the next chunk of the transaction, or end it."""
        context = self.context
        if transaction.expires_at_ms(self.settings.max_transaction_ms) <= context.now_ms:
            self._end_transaction(transaction, error=transaction.timeout_error(context.now_ms))
            return
        if not may_append:
            return
        try:
            records = transaction.next_chunk(context.cluster.state.metadata_version)
        except ReplayError:
            raise
        except KraftError as error:
            self._end_transaction(transaction, error=error)
        except Exception as error:
            failure = self._fault(transaction.operation, error)
            self._end_transaction(transaction, error=failure)
        else:
            if records is None:
                self._end_transaction(transaction)
            elif len(records):
                self._write(records)

    def _end_transaction(self, transaction: Transaction, error: KraftError | None = None) -> None:
        self._transaction = None
        operation = transaction.operation
        closing = transaction.closing_records(error, self.cluster.state.metadata_version)
        if closing is not None:
            self._write(closing)
        if error is None and operation.applied is not None:
            operation.applied(self.context, transaction.response)
        answer = Answer(operation.token, None if error else transaction.response, error)
        self._pending.append(_PendingAnswer(self._seen_offset(), answer))
        self.queue.release_held()
        self._periodic.index_partitions(self.cluster, self.queue, self.context.now_ms)
        self._release_answers()

    # -- committed records

    def apply_committed(self, batches: memoryview, now_ms: float) -> ControllerOutput:
        """Apply committed batches on a standby; records that it has already are skipped.

        Raises ReplayError, after which this process must not continue.
        """
        assert not self.is_active, "the active controller has applied what it wrote"
        self.cluster.apply(batches, verify_crc=False)
        self.committed_offset = self.cluster.next_offset
        return self._take_output(now_ms)

    def commit(self, high_watermark: int, now_ms: float) -> ControllerOutput:
        """Take the new high watermark; releases the answers of committed records."""
        if self.is_active:
            assert high_watermark <= self.cluster.next_offset, "committed, and not written here"
            self.committed_offset = max(self.committed_offset, high_watermark)
            self._forget_control_batches()
            self._release_answers()
        return self._take_output(now_ms)

    def control_batch_appended(self, base_offset: int, batch: memoryview) -> None:
        """Note a control batch that the raft leader appended after all batches handed to it."""
        self._control_batches.append((base_offset, batch))
        if self.is_active:
            self.cluster.apply(batch, verify_crc=False)

    def replace_cluster(self, cluster: MetadataState) -> None:
        """Replace the state of a standby by a snapshot. Raises ReplayError on the active
        controller.
        """
        if self.is_active:
            raise ReplayError("a snapshot was loaded on the active controller")
        self.context.cluster = cluster
        self._compaction = None
        self._touched_brokers = cluster.state.brokers.watch()
        self.committed_offset = cluster.next_offset
        self._forget_control_batches()

    def _release_answers(self) -> None:
        while self._pending and self._pending[0].end_offset <= self.committed_offset:
            self._output.answers.append(self._pending.popleft().answer)

    def _forget_control_batches(self) -> None:
        batches = self._control_batches
        while batches and batches[0][0] < self.committed_offset:
            batches.popleft()

    # -- leadership

    def claim(self, epoch: int, now_ms: float, next_offset: int) -> ControllerOutput:
        """Become active: this node leads, and has applied every record before its epoch.

        Writes the activation records first: the bootstrap of an empty log, and the end of a
        transaction that a failed controller left open.
        """
        assert not self.is_active
        assert epoch >= 0
        self.epoch = epoch
        self._forget_control_batches()
        # Everything before the epoch is committed.
        self._touched_brokers.clear()
        for _, batch in self._control_batches:
            self.cluster.apply(batch, verify_crc=False)
        self.context.now_ms, self.context.next_offset = now_ms, next_offset
        first = activation_records(self.cluster, self._bootstrap, self.settings.decisions)
        if len(first):
            self._write(first)
        self.sessions.activate(self.cluster, now_ms)
        self._periodic.begin(self.queue, now_ms)
        # The requests that have waited for an active controller come first.
        self._periodic.index_partitions(self.cluster, self.queue, now_ms + AGAIN_MS)
        return self._take_output(now_ms)

    def renounce(self, now_ms: float) -> ControllerOutput:
        """Become a standby: another node leads, or none. Reverts to the committed state."""
        self._control_batches.clear()
        if self.is_active:
            self._step_down()
        return self._take_output(now_ms)

    def append_failed(self, now_ms: float) -> ControllerOutput:
        """Resign: the raft layer rejected a batch, so this controller cannot continue."""
        if self.is_active:
            self._output.resign_epoch = self.epoch
            self._step_down()
        return self._take_output(now_ms)

    def _step_down(self) -> None:
        self.epoch = -1
        if self._transaction is not None:
            self._answer(self._transaction.operation, error=_not_controller())
            self._transaction.close()
            self._transaction = None
        for pending in self._pending:
            self._output.answers.append(Answer(pending.answer.token, error=_not_controller()))
        self._pending.clear()
        for operation, _ in self._upgrades.values():
            self._answer(operation, error=_not_controller())
        self._upgrades.clear()
        for waiting in self.queue.take_all():
            if waiting.event.token != INTERNAL:
                self._answer(waiting.event, error=_not_controller())
        self._unfinished = None
        self.sessions.clear()
        self._broker_ends.clear()
        if self.cluster.next_offset > self.committed_offset:
            # The log delivers the committed records of an aborted transaction again.
            self.cluster.revert(self.cluster.reachable(self.committed_offset))
            self.committed_offset = self.cluster.next_offset

    # -- answers

    def _answer(self, operation: Operation, *, error: KraftError) -> None:
        if operation.token == INTERNAL:
            self._periodic.failed(operation.name, self.queue, self.context.now_ms)
        else:
            self._output.answers.append(Answer(operation.token, error=error))

    def _fault(self, operation: Operation, error: Exception) -> UnknownServerError:
        """Count and log an unexpected exception; return the error for the client."""
        self.fault_count += 1
        self._log_fault(operation.name, error)
        return UnknownServerError(f"{operation.name} failed: {error!r}")

    def _take_output(self, now_ms: float) -> ControllerOutput:
        output, self._output = self._output, ControllerOutput()
        if self._transaction is not None:
            output.wake_at_ms = float("-inf")
        else:
            output.wake_at_ms = self.queue.wake_at_ms()
        return output


def _not_controller() -> NotControllerError:
    return NotControllerError("this node is not the active controller")


def _timed_out(late: QueuedEvent[Operation], now_ms: float) -> RequestTimedOutError:
    waited_ms = now_ms - late.since_ms
    return RequestTimedOutError(f"{late.event.name} expired after {waited_ms:.0f} ms in the queue")
