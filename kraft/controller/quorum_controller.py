"""The controller: one event at a time, on the tip of the log.

Owns the tip (the state ahead of what is committed), who waits for what to be committed, metadata
transactions, and what a change of leadership does to all of them. Pure: no socket, file, thread,
clock or random source; a driver calls it and carries out what each call gives (``Ready``).

    submit ─▶ queue ─▶ decide(tip) ─▶ records ─▶ applied to the tip ─▶ to_append ─▶ the raft layer
                                         └─▶ answer, held until ... ◀── committed ◀──┘

Invariants
- Deciding changes nothing; records do, and the bytes that are applied are those that are appended.
- An answer is given when its last record is committed, and with it the transaction it is part of;
  without records, when everything is committed that it may have seen.
- Nothing is written between the records of a metadata transaction: what would write waits, what
  writes nothing (most heartbeats) is answered at once, and the transaction has bounded time.
- When leadership is lost the tip goes back to what is committed (to the beginning of a transaction
  that was taken back, as what it did is gone), and a standby goes on from there. Whoever waits
  hears NOT_CONTROLLER, and raft and controller resign together (KAFKA-13104).
- A record that cannot be applied ends the process: `ReplayError` leaves every method.

Sources: Kafka's ``QuorumController``, ``OffsetControlManager``; KIP-868.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from kraft._core.batch import assign_offsets
from kraft._core.placement import ReplicaPlacer
from kraft.controller.bootstrap import activation_records
from kraft.controller.decision import MAX_RECORDS_PER_BATCH, Decision, Records
from kraft.controller.event_queue import EventQueue, Times, Waiting
from kraft.controller.operations import (
    OWN,
    Answer,
    InPieces,
    KRaftVersionUpgrade,
    Operation,
    Outcome,
    Ready,
    Tip,
    UpgradeToAsk,
)
from kraft.controller.periodic import PeriodicTasks
from kraft.controller.sessions import BrokerSessions
from kraft.controller.settings import ControllerSettings
from kraft.controller.transactions import Transaction
from kraft.errors import (
    KraftError,
    NotControllerError,
    PolicyViolationError,
    ReplayError,
    RequestTimedOutError,
    UnknownServerError,
)
from kraft.image.replay import Cluster
from kraft.records import Record, Uuid


class _Pending(NamedTuple):
    """An answer that waits until everything below ``end_offset`` is committed."""

    end_offset: int
    answer: Answer


class QuorumController:
    """See the module's docstring.

    ``cluster`` is empty or as a snapshot left it, and has a journal. ``bootstrap`` are the records
    that an empty log begins with. ``log_fault`` hears of what should not happen and did.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: ControllerSettings,
        *,
        placer: ReplicaPlacer,
        random_uuid: Callable[[], Uuid],
        bootstrap: Sequence[Record] = (),
        log_fault: Callable[[str, Exception], None] = lambda what, error: None,
    ) -> None:
        self.settings = settings
        self.sessions = BrokerSessions(settings.session_timeout_ms)
        self.tip = Tip(cluster, self.sessions, settings.decisions, placer, random_uuid)
        self.queue: EventQueue[Operation] = EventQueue()
        #: -1 while another node leads.
        self.epoch = -1
        #: Everything below is committed, as far as this controller was told.
        self.committed_offset = cluster.next_offset
        self.queue_times = Times()
        #: Noted by the driver, which has a clock: how long each `run` took.
        self.processing_times = Times()
        self.fault_count = 0
        self._log_fault = log_fault
        self._bootstrap = tuple(bootstrap)
        self._periodic = PeriodicTasks(settings)
        self._pending: deque[_Pending] = deque()
        self._transaction: Transaction | None = None
        #: Control batches that the raft layer appended and that are not committed yet.
        self._control_batches: deque[tuple[int, memoryview]] = deque()
        #: Operations that wait for the raft layer's answer about kraft.version, by number.
        self._upgrades: dict[int, tuple[Operation, KRaftVersionUpgrade]] = {}
        self._last_upgrade = 0
        self._ready = Ready()

    @property
    def cluster(self) -> Cluster:
        """The tip: of a standby the committed state, of the active controller what is ahead."""
        return self.tip.cluster

    @property
    def is_active(self) -> bool:
        return self.epoch >= 0

    @property
    def stable_offset(self) -> int:
        """Everything below is committed, and part of no transaction whose end is not: what others
        may see.
        """
        return self.cluster.stable_at(self.committed_offset)

    # -- what is asked

    def submit(self, operation: Operation, now_ms: float) -> Ready:
        """Puts an operation in the queue; NOT_CONTROLLER at once where another node leads."""
        if self._is_taken_up(operation):
            self.queue.append(operation, now_ms, deadline_ms=operation.deadline_ms)
        return self._take_ready(now_ms)

    def submit_heartbeat(
        self, operation: Operation, broker_id: int, broker_epoch: int, now_ms: float
    ) -> Ready:
        """As `submit`, in front of everything else. That the broker was heard counts at once."""
        if self._is_taken_up(operation):
            self.sessions.touch(broker_id, broker_epoch, now_ms)
            self.queue.append_heartbeat(operation, now_ms, deadline_ms=operation.deadline_ms)
        return self._take_ready(now_ms)

    def _is_taken_up(self, operation: Operation) -> bool:
        if not self.is_active:
            self._answer(operation, error=_not_controller())
        return self.is_active

    # -- a turn

    def run(self, now_ms: float, next_offset: int, *, may_append: bool = True) -> Ready:
        """Runs the next event, if there is one, and gives what follows from it.

        ``next_offset`` is where the raft leader's next record goes. Without ``may_append`` (its
        disk is behind) only what writes nothing is answered.
        """
        self.tip.now_ms, self.tip.next_offset = now_ms, next_offset
        for late in self.queue.take_expired(now_ms):
            self._answer(late.event, error=_timed_out(late, now_ms))
        if not self.is_active:
            return self._take_ready(now_ms)
        is_free = self._transaction is None and may_append
        if is_free:
            self.queue.release_held()
        waiting = self.queue.take(now_ms) if is_free else self.queue.take_heartbeat()
        if waiting is not None:
            self.queue_times.note(now_ms - waiting.since_ms)
            self._run(waiting, may_write=is_free)
        elif self._transaction is not None:
            self._go_on(self._transaction, may_append)
        return self._take_ready(now_ms)

    def _run(self, waiting: Waiting[Operation], *, may_write: bool) -> None:
        operation = waiting.event
        outcome = self._decide(operation)
        if outcome is None:
            return
        if isinstance(outcome, InPieces):
            self._transaction = Transaction(operation, outcome, self.tip.now_ms)
            return
        if isinstance(outcome, KRaftVersionUpgrade):
            if not may_write:
                self.queue.hold(waiting)
                return
            self._last_upgrade += 1
            number = self._last_upgrade
            self._upgrades[number] = operation, outcome
            asked = UpgradeToAsk(number, outcome.level, outcome.validate_only)
            self._ready.kraft_version_upgrades.append(asked)
            return
        if len(outcome.records) and not may_write:
            self.queue.hold(waiting)
            return
        self._take_effect(operation, outcome)

    def _decide(self, operation: Operation) -> Outcome | None:
        """None where the operation was refused, and its answer says so."""
        try:
            outcome = operation.decide(self.tip)
            if isinstance(outcome, Decision) and outcome.is_atomic:
                _check_is_one_batch(operation, outcome.records)
        except ReplayError:
            raise
        except KraftError as error:
            self._answer(operation, error=error)
            return None
        except Exception as error:
            # Deciding has changed nothing: the state is as it was, and the others are served.
            self._answer(operation, error=self._fault(operation, error))
            return None
        return outcome

    def _take_effect(self, operation: Operation, decision: Decision[Any]) -> None:
        if len(decision.records):
            self._write(decision.records)
        if operation.applied is not None:
            operation.applied(self.tip, decision.response)
        if decision.is_partial:
            self.queue.prepend(operation, self.tip.now_ms, deadline_ms=operation.deadline_ms)
        elif operation.token != OWN:
            answer = Answer(operation.token, decision.response)
            self._pending.append(_Pending(self._seen_offset(), answer))
            self._release()

    def _seen_offset(self) -> int:
        """The end of what a decision has seen, but for a transaction that is open."""
        start = self.cluster.transaction_start
        return self.cluster.next_offset if start is None else start

    def _write(self, records: Records) -> None:
        """The records take effect on the tip, and go to the raft layer."""
        assert self._ready.to_append is None, "one call appends once"
        tip = self.tip
        batches = records.batches
        end_offset = assign_offsets(batches, tip.next_offset, self.epoch, int(tip.now_ms))
        tip.cluster.apply(batches, verify_crc=False)
        assert tip.cluster.next_offset == end_offset, "what was applied is what is appended"
        self._ready.to_append = batches
        self._ready.base_offset, self._ready.epoch = tip.next_offset, self.epoch
        tip.next_offset = end_offset

    def kraft_version_answered(self, number: int, error: KraftError | None, now_ms: float) -> Ready:
        """Take the raft layer's answer to an `UpgradeToAsk`; None is success.

        The records of the upgrade are committed by then. An answer that comes after leadership was
        lost is ignored: the operation has been answered.
        """
        waiting = self._upgrades.pop(number, None)
        if waiting is not None:
            operation, upgrade = waiting
            if error is not None:
                self._answer(operation, error=error)
            else:
                following = replace(operation, decide=upgrade.then)
                self.queue.prepend(following, now_ms, deadline_ms=operation.deadline_ms)
        return self._take_ready(now_ms)

    # -- a metadata transaction

    def _go_on(self, transaction: Transaction, may_append: bool) -> None:
        """The next piece of the transaction, or its end."""
        tip = self.tip
        if transaction.runs_out_at_ms(self.settings.max_transaction_ms) <= tip.now_ms:
            self._end_transaction(transaction, error=transaction.took_too_long(tip.now_ms))
            return
        if not may_append:
            return
        try:
            records = transaction.next_piece(tip.cluster.state.metadata_version)
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
            operation.applied(self.tip, transaction.response)
        answer = Answer(operation.token, None if error else transaction.response, error)
        self._pending.append(_Pending(self._seen_offset(), answer))
        self.queue.release_held()
        self._periodic.index_partitions(self.cluster, self.queue, self.tip.now_ms)
        self._release()

    # -- what the log says

    def apply_committed(self, batches: memoryview, now_ms: float) -> Ready:
        """A standby takes up committed batches; what it has already is passed over.

        Raises ReplayError, after which this process must not go on.
        """
        assert not self.is_active, "the active controller has applied what it wrote"
        self.cluster.apply(batches, verify_crc=False)
        self.committed_offset = self.cluster.next_offset
        return self._take_ready(now_ms)

    def commit(self, high_watermark: int, now_ms: float) -> Ready:
        """Everything below ``high_watermark`` is committed: of the active controller's own."""
        if self.is_active:
            assert high_watermark <= self.cluster.next_offset, "committed, and not written here"
            self.committed_offset = max(self.committed_offset, high_watermark)
            self._forget_control_batches()
            self._release()
        return self._take_ready(now_ms)

    def control_batch_appended(self, base_offset: int, batch: memoryview) -> None:
        """The raft leader has appended a control batch, behind everything that was handed to it."""
        self._control_batches.append((base_offset, batch))
        if self.is_active:
            self.cluster.apply(batch, verify_crc=False)

    def replace_cluster(self, cluster: Cluster) -> None:
        """A standby begins anew from a snapshot. Raises ReplayError on the active controller."""
        if self.is_active:
            raise ReplayError("a snapshot was loaded on the active controller")
        self.tip.cluster = cluster
        self.committed_offset = cluster.next_offset
        self._forget_control_batches()

    def _release(self) -> None:
        while self._pending and self._pending[0].end_offset <= self.committed_offset:
            self._ready.answers.append(self._pending.popleft().answer)

    def _forget_control_batches(self) -> None:
        batches = self._control_batches
        while batches and batches[0][0] < self.committed_offset:
            batches.popleft()

    # -- leadership

    def claim(self, epoch: int, now_ms: float, next_offset: int) -> Ready:
        """This node leads, and everything from before its epoch is committed and applied.

        The records of an activation are the first that it writes: those of the bootstrap in an
        empty log, the end of a transaction that a dead controller left open.
        """
        assert not self.is_active
        assert epoch >= 0
        self.epoch = epoch
        self._forget_control_batches()
        for _, batch in self._control_batches:
            self.cluster.apply(batch, verify_crc=False)
        self.tip.now_ms, self.tip.next_offset = now_ms, next_offset
        first = activation_records(self.cluster, self._bootstrap, self.settings.decisions)
        if len(first):
            self._write(first)
        self.sessions.activate(self.cluster, now_ms)
        self._periodic.begin(self.queue, now_ms)
        self._periodic.index_partitions(self.cluster, self.queue, now_ms)
        return self._take_ready(now_ms)

    def renounce(self, now_ms: float) -> Ready:
        """Another node leads, or none: back to what is committed."""
        self._control_batches.clear()
        if self.is_active:
            self._step_down()
        return self._take_ready(now_ms)

    def append_failed(self, now_ms: float) -> Ready:
        """The raft layer did not take what was handed to it: this controller cannot go on."""
        if self.is_active:
            self._ready.resign_epoch = self.epoch
            self._step_down()
        return self._take_ready(now_ms)

    def _step_down(self) -> None:
        self.epoch = -1
        if self._transaction is not None:
            self._answer(self._transaction.operation, error=_not_controller())
            self._transaction.close()
            self._transaction = None
        for pending in self._pending:
            self._ready.answers.append(Answer(pending.answer.token, error=_not_controller()))
        self._pending.clear()
        for operation, _ in self._upgrades.values():
            self._answer(operation, error=_not_controller())
        self._upgrades.clear()
        for waiting in self.queue.take_all():
            if waiting.event.token != OWN:
                self._answer(waiting.event, error=_not_controller())
        self.sessions.clear()
        if self.cluster.next_offset > self.committed_offset:
            # Of a transaction that was taken back what is committed comes again from the log.
            self.cluster.revert(self.cluster.reachable(self.committed_offset))
            self.committed_offset = self.cluster.next_offset

    # -- answers

    def _answer(self, operation: Operation, *, error: KraftError) -> None:
        if operation.token == OWN:
            self._periodic.failed(operation.name, self.queue, self.tip.now_ms)
        else:
            self._ready.answers.append(Answer(operation.token, error=error))

    def _fault(self, operation: Operation, error: Exception) -> UnknownServerError:
        """What should not happen is counted and told, and harms nobody else."""
        self.fault_count += 1
        self._log_fault(operation.name, error)
        return UnknownServerError(f"{operation.name} failed: {error!r}")

    def _take_ready(self, now_ms: float) -> Ready:
        ready, self._ready = self._ready, Ready()
        if self._transaction is not None:
            ready.wake_at_ms = float("-inf")
        else:
            ready.wake_at_ms = self.queue.wake_at_ms()
        return ready


def _check_is_one_batch(operation: Operation, records: Records) -> None:
    if len(records) > MAX_RECORDS_PER_BATCH:
        raise PolicyViolationError(
            f"{operation.name} writes at most {MAX_RECORDS_PER_BATCH} records, not {len(records)}"
        )


def _not_controller() -> NotControllerError:
    return NotControllerError("this node is not the active controller")


def _timed_out(late: Waiting[Operation], now_ms: float) -> RequestTimedOutError:
    waited_ms = now_ms - late.since_ms
    return RequestTimedOutError(f"{late.event.name} waited {waited_ms:.0f} ms for its turn")
