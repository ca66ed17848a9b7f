"""Faults planted into the controller; the simulation of whole clusters must find each of them.

`mutants` runs this list after its own. Each fault breaks one rule, in its own process; most of them
were bugs of Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from kraft.controller import state
from kraft.controller.brokers import broker_lifecycle, heartbeats, producer_ids
from kraft.controller.brokers.sessions import BrokerSessions
from kraft.controller.decision import Decision, Records
from kraft.controller.runtime import quorum_controller
from kraft.controller.runtime.event_queue import EventQueue
from kraft.controller.runtime.operations import Answer
from kraft.controller.runtime.quorum_controller import QuorumController
from kraft.controller.runtime.transactions import Transaction
from kraft.controller.topics import isr_changes
from kraft.controller.topics.topic_creation import CreatedTopic
from kraft.errors import KraftError
from kraft.image.replay import MetadataState
from kraft.simulation.controllers import SimulatedController

CONTROLLER_MUTANTS: dict[str, Callable[[], None]] = {}


def mutant(plant: Callable[[], None]) -> Callable[[], None]:
    CONTROLLER_MUTANTS[plant.__name__] = plant
    return plant


# -- responses


@mutant
def a_controller_answers_before_the_commit() -> None:
    def release(self: QuorumController) -> None:
        while self._pending:
            self._output.answers.append(self._pending.popleft().answer)

    QuorumController._release_answers = release  # type: ignore[method-assign]


@mutant
def a_controller_answers_before_its_transaction_ends() -> None:
    """The controller answers an operation without records from uncommitted state, even during a
    transaction.
    """
    end = QuorumController._end_transaction

    def eager(self: QuorumController, transaction: Transaction, error: Any = None) -> None:
        start = self.cluster.transaction_start
        self._seen_offset = lambda: start or self.cluster.next_offset  # type: ignore[method-assign]
        end(self, transaction, error)
        del self._seen_offset

    QuorumController._end_transaction = eager  # type: ignore[method-assign]


@mutant
def pending_operations_are_dropped_when_the_leadership_is_lost() -> None:
    step_down = QuorumController._step_down

    def silent(self: QuorumController) -> None:
        self._pending.clear()
        step_down(self)

    QuorumController._step_down = silent  # type: ignore[method-assign]


@mutant
def a_response_is_delivered_twice() -> None:
    step_down = QuorumController._step_down

    def twice(self: QuorumController) -> None:
        waiting = [pending.answer.token for pending in self._pending]
        step_down(self)
        self._output.answers += [
            Answer(token, error=quorum_controller._not_controller()) for token in waiting
        ]

    QuorumController._step_down = twice  # type: ignore[method-assign]


# -- leadership


@mutant
def uncommitted_state_is_not_reverted() -> None:
    step_down = QuorumController._step_down

    def keeping(self: QuorumController) -> None:
        committed = self.committed_offset
        self.committed_offset = self.cluster.next_offset
        step_down(self)
        self.committed_offset = committed

    QuorumController._step_down = keeping  # type: ignore[method-assign]


@mutant
def raft_keeps_leading_when_the_controller_resigns() -> None:
    """KAFKA-13104: no controller is active until the raft node resigns too."""

    def quiet(self: QuorumController, now_ms: float) -> Any:
        if self.is_active:
            self._step_down()
        return self._take_output(now_ms)

    QuorumController.append_failed = quiet  # type: ignore[method-assign]


@mutant
def a_controller_begins_before_it_has_caught_up() -> None:
    """The driver makes the controller active before it has applied all committed batches."""
    changed = SimulatedController.role_changed

    def hasty(self: SimulatedController, change: Any) -> None:
        changed(self, change)
        if self._claim is not None:
            self._claim = self._claim[0], 0
            self.high_watermark = self.controller.cluster.next_offset

    SimulatedController.role_changed = hasty  # type: ignore[method-assign]


@mutant
def control_batches_of_raft_are_not_applied() -> None:
    QuorumController.control_batch_appended = (  # type: ignore[method-assign]
        lambda self, base_offset, batch: None
    )


# -- transactions


@mutant
def the_transaction_of_a_dead_controller_is_continued() -> None:
    """KAFKA-15441: the next controller does not abort an open transaction."""
    activation = quorum_controller.activation_records

    def lenient(cluster: MetadataState, bootstrap: Any, settings: Any) -> Records:
        if cluster.transaction_start is not None and len(cluster.state.brokers):
            return Records(memoryview(b""), 0)
        return activation(cluster, bootstrap, settings)

    quorum_controller.activation_records = lenient  # type: ignore[attr-defined]


@mutant
def large_operations_are_no_transaction() -> None:
    """As before KIP-868: a controller that crashes leaves a part of a topic in the log."""

    next_chunk = Transaction.next_chunk

    def bare(self: Transaction, metadata_version: int) -> Records | None:
        self._has_begun = True
        chunk = next_chunk(self, metadata_version)
        self._has_begun = False
        return chunk

    Transaction.next_chunk = bare  # type: ignore[method-assign]


@mutant
def other_operations_write_between_the_chunks() -> None:
    run = QuorumController._run

    def open_to_all(self: QuorumController, waiting: Any, *, may_write: bool) -> None:
        run(self, waiting, may_write=True)

    QuorumController._run = open_to_all  # type: ignore[method-assign]


@mutant
def snapshots_are_made_inside_of_transactions() -> None:
    MetadataState.stable_at = lambda self, committed_offset: committed_offset  # type: ignore[method-assign]


@mutant
def an_aborted_transaction_is_answered_as_committed() -> None:
    end = QuorumController._end_transaction

    def glad(
        self: QuorumController, transaction: Transaction, error: KraftError | None = None
    ) -> None:
        pending = len(self._pending)
        end(self, transaction, error)
        if error is not None and len(self._pending) > pending:
            waiting = self._pending.pop()
            answer = waiting.answer._replace(error=None, response=_WhateverIsAsked())
            self._pending.append(waiting._replace(answer=answer))

    QuorumController._end_transaction = glad  # type: ignore[method-assign]


class _Done(CreatedTopic):
    error = None


class _WhateverIsAsked(dict[Any, Any]):
    """Return a response that reports success for everything."""

    def __missing__(self, key: Any) -> Any:
        return _Done(str(key), b"", 0, 0)  # type: ignore[arg-type]


# -- sessions and heartbeats


@mutant
def sessions_begin_without_contacts() -> None:
    """KAFKA-18138: a broker that crashed during a failover was never fenced."""

    def untouched(self: BrokerSessions, cluster: MetadataState, now_ms: float) -> None:
        self.clear()
        for registration in cluster.state.brokers.values():
            self._add(registration)

    BrokerSessions.activate = untouched  # type: ignore[method-assign]


@mutant
def sessions_of_the_last_leadership_are_kept() -> None:
    """The contact times of an earlier leadership of this node still count."""
    kept: dict[int, dict[Any, float]] = {}
    clear, activate = BrokerSessions.clear, BrokerSessions.activate

    def keep(self: BrokerSessions) -> None:
        if self._contacts:
            kept[id(self)] = dict(self._contacts)
        clear(self)

    def go_on(self: BrokerSessions, cluster: MetadataState, now_ms: float) -> None:
        activate(self, cluster, now_ms)
        self._contacts.update(kept.get(id(self), {}))

    BrokerSessions.clear = keep  # type: ignore[method-assign]
    BrokerSessions.activate = go_on  # type: ignore[method-assign]


@mutant
def heartbeats_wait_behind_other_operations() -> None:
    """KAFKA-15019: with a long queue, healthy brokers were fenced."""

    def append_last(
        self: EventQueue[Any], event: Any, broker_id: int, now_ms: float, *, deadline_ms: float
    ) -> None:
        self.append(event, now_ms, deadline_ms=deadline_ms)

    EventQueue.append_heartbeat = append_last  # type: ignore[method-assign]


@mutant
def a_heartbeat_counts_only_when_it_is_decided() -> None:
    """The controller records the contact time late, or never for an expired heartbeat."""
    touch = BrokerSessions.touch

    def submit(
        self: QuorumController, operation: Any, broker_id: int, broker_epoch: int, now_ms: float
    ) -> Any:
        applied = operation.applied

        def late(context: Any, response: Any) -> None:
            touch(self.sessions, broker_id, broker_epoch, now_ms - 3_000.0)
            applied(context, response)

        operation.applied = late
        if self._accepts(operation):
            deadline_ms = operation.deadline_ms
            self.queue.append_heartbeat(operation, broker_id, now_ms, deadline_ms=deadline_ms)
        return self._take_output(now_ms)

    QuorumController.submit_heartbeat = submit  # type: ignore[method-assign]


@mutant
def expired_sessions_are_not_fenced() -> None:
    BrokerSessions.take_expired = lambda self, now_ms: None  # type: ignore[method-assign]


# -- brokers and their epochs


@mutant
def stale_broker_epochs_are_accepted() -> None:
    def lenient(cluster: Any, broker_id: int, epoch: int) -> Any:
        registration = cluster.state.brokers.get(broker_id)
        return registration if registration is not None else check(cluster, broker_id, epoch)

    check = broker_lifecycle.check_broker_epoch
    for module in (broker_lifecycle, heartbeats, producer_ids, isr_changes):
        module.check_broker_epoch = lenient  # type: ignore[attr-defined]


@mutant
def a_replica_of_an_old_broker_epoch_joins_the_isr() -> None:
    """KAFKA-14617: the replica may have lost its disk since that epoch."""
    alter = isr_changes.alter_partition

    def lenient(
        cluster: Any, broker_id: int, broker_epoch: int, changes: Sequence[Any], settings: Any
    ) -> Any:
        unknown = [change._replace(isr=dict.fromkeys(change.isr, -1)) for change in changes]
        return alter(cluster, broker_id, broker_epoch, unknown, settings)

    isr_changes.alter_partition = lenient  # type: ignore[attr-defined]


@mutant
def leader_and_partition_epochs_are_not_checked() -> None:
    alter = isr_changes.alter_partition

    def lenient(
        cluster: Any, broker_id: int, broker_epoch: int, changes: Sequence[Any], settings: Any
    ) -> Any:
        table, current = cluster.table, []
        for change in changes:
            topic = table.topic_number_by_id(change.topic_id)
            row = table.row_of(topic, change.partition) if topic >= 0 else -1
            if row >= 0:
                now = table.state_of(row)
                change = change._replace(
                    leader_epoch=now["leader_epoch"],
                    partition_epoch=now["partition_epoch"],
                )
            current.append(change)
        return alter(cluster, broker_id, broker_epoch, current, settings)

    isr_changes.alter_partition = lenient  # type: ignore[attr-defined]


@mutant
def a_repeated_registration_gets_another_epoch() -> None:
    """KAFKA-16952: the controller treats a repeated registration as that of a new incarnation."""
    register = broker_lifecycle.register_broker

    def forgetful(cluster: Any, request: Any, *, next_offset: int, **given: Any) -> Any:
        decision = register(cluster, request, next_offset=next_offset, **given)
        known = cluster.state.brokers.get(request.broker_id)
        if known is None or known.incarnation_id != request.incarnation_id:
            return decision
        record = replace_epoch(decision.records[0], next_offset)
        level = cluster.state.metadata_version
        return Decision(Records.of([record], level), next_offset)

    def replace_epoch(record: Any, epoch: int) -> Any:
        record.broker_epoch = epoch
        return record

    broker_lifecycle.register_broker = forgetful  # type: ignore[attr-defined]


@mutant
def a_producer_id_block_is_given_out_twice() -> None:
    """Every fifth block is allocated without a record."""
    allocate, counted = producer_ids.allocate_producer_ids, [0]

    def forgetful(cluster: Any, broker_id: int, broker_epoch: int) -> Any:
        decision = allocate(cluster, broker_id, broker_epoch)
        counted[0] += 1
        if counted[0] % 5:
            return decision
        return Decision(Records(memoryview(b""), 0), decision.response)

    producer_ids.allocate_producer_ids = forgetful  # type: ignore[attr-defined]


# -- elections


def _unfenced(registration: Any) -> Any:
    return replace(registration, fenced=False, in_controlled_shutdown=False)


class _Believing(state.ElectionContext):
    """An election context in which every broker counts as live."""

    def __new__(cls, table: Any, registered: Any, **given: Any) -> Any:
        return super().__new__(cls, table, [_unfenced(each) for each in registered], **given)

    def __init__(self, table: Any, registered: Any, **given: Any) -> None:
        pass

    def update_broker(self, broker: Any) -> bool:
        return super().update_broker(_unfenced(broker))

    def take_brokers(self, registered: Any) -> None:
        super().take_brokers([_unfenced(each) for each in registered])


@mutant
def a_fenced_broker_is_elected() -> None:
    state.ElectionContext = _Believing  # type: ignore[misc]


class _Nostalgic(state.ElectionContext):
    """An election context that elects the last known leader even if it is not live."""

    def elect_leaderless(self, builder: Any, unfenced: int, rows: Any = None) -> None:
        table = self.table
        leaders = table.column("leader")
        for row in table.live_rows():
            last_known = table.state_of(int(row))["last_known_elr"]
            if leaders[row] < 0 and last_known:
                super().elect_leaderless(builder, last_known[0])
                return
        super().elect_leaderless(builder, unfenced, rows)


@mutant
def the_last_known_leader_is_elected_though_it_is_dead() -> None:
    """KAFKA-19522."""
    state.ElectionContext = _Nostalgic  # type: ignore[misc]


@mutant
def a_fenced_broker_stays_leader() -> None:
    """When a session expires, the controller changes only the registration, not the partitions."""

    def bare(builder: Any, cluster: Any, registration: Any, settings: Any) -> None:
        record = broker_lifecycle._fencing(cluster.state, registration, True)
        broker_lifecycle.append_records(builder, [record], broker_lifecycle._level(cluster))

    for module in (broker_lifecycle, heartbeats):
        module.append_fencing = bare  # type: ignore[attr-defined]


@mutant
def brokers_that_expire_together_are_decided_against_one_state() -> None:
    """KAFKA-13173: each decision used the state before the other one."""
    fence = broker_lifecycle.append_fencing
    seen: dict[int, Any] = {}

    def blind(builder: Any, cluster: Any, registration: Any, settings: Any) -> None:
        # The context of the election sees a fencing only at the next one.
        context = state.election_context(cluster, settings)
        before = seen.get(id(cluster))
        if before is not None and before.id in cluster.state.brokers:
            context.update_broker(replace(cluster.state.brokers[before.id], fenced=False))
        fence(builder, cluster, registration, settings)
        seen[id(cluster)] = registration

    for module in (broker_lifecycle, heartbeats):
        module.append_fencing = blind  # type: ignore[attr-defined]
