"""Invariants of the controllers of a simulated cluster.

`ControllerChecks` checks what controllers write, answer and hold, when they do; the checks of the
committed log are in `ledger`, those of the clients' view in `linearizability`. By name:

acknowledged_is_committed, no_part_of_a_transaction_is_visible, each_request_has_one_response,
no_caller_waits_after_the_loss_of_leadership, uncommitted_state_is_reverted,
a_standby_is_a_replay_of_the_log, the_replay_equals_an_independent_log_reader,
one_controller_an_epoch, a_new_controller_has_applied_all_committed_records, heartbeats_come_first,
deciding_changes_nothing, a_healthy_broker_is_not_fenced, a_dead_broker_is_fenced,
a_living_broker_is_unfenced, raft_and_controller_resign_together, no_snapshot_ends_in_a_transaction.

`controllers` and `whole_cluster` call it.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from kraft import records
from kraft._core.bytes.batch_records import iterate
from kraft.controller.decision import ChunkedDecision, Decision
from kraft.controller.runtime.operations import (
    Answer,
    ControllerOutput,
    DecisionContext,
    Operation,
    OperationResult,
)
from kraft.image.diff import diff
from kraft.image.publishing import Image
from kraft.image.replay import MetadataState
from kraft.raft.interface import Role
from kraft.records import decode_value
from kraft.simulation.batch_tree import Violation
from kraft.simulation.brokers import SimulatedBroker
from kraft.simulation.controllers import SimulatedController, Waiter
from kraft.simulation.environment import Environment
from kraft.simulation.ledger import LedgerTree, partitions_of, summary_of

#: One of so many turns at the end of the committed log compares the state with it; every reverted
#: or loaded state is compared.
COMPARED_EVERY = 50
#: The time that a controller has to commit a decision.
COMMIT_MS = 3_000.0
_NEVER = float("inf")


class ControllerChecks:
    """The checks of one cluster's controllers."""

    def __init__(
        self,
        cluster: Environment,
        controllers: Mapping[int, SimulatedController],
        brokers: Mapping[int, SimulatedBroker],
    ) -> None:
        self.cluster = cluster
        self._controllers = controllers
        self._brokers = brokers
        self._claimed_by: dict[int, int] = {}
        #: The end of the state that the latest operation was decided against.
        self._decided_at = -1
        #: The operation that is being decided; None for a periodic task of the controller.
        self._deciding: Operation | None = None
        #: The end offset of what each applied operation wrote or read, and the epoch.
        self._ends: dict[tuple[int, int, int], tuple[int, int]] = {}
        self._chances = 0

    @property
    def _tree(self) -> LedgerTree:
        tree = self.cluster.tree
        assert isinstance(tree, LedgerTree)
        return tree

    @property
    def newest_epoch(self) -> int:
        return self.cluster.newest_controller_epoch

    def active_controller(self) -> SimulatedController | None:
        """Return the newest active controller; None if it does not run any more."""
        for runner in self._controllers.values():
            controller = runner.controller
            if controller.is_active and controller.epoch == self.newest_epoch:
                return runner
        return None

    # -- operations

    def watch(self, runner: SimulatedController, operation: Operation) -> None:
        """Check an operation while it is decided and applied."""
        decide, applied = operation.decide, operation.applied
        key = (runner.machine.id, runner.life, operation.token)

        def watched(context: DecisionContext) -> OperationResult:
            self._deciding = operation
            pending = runner.undecided_heartbeats
            pending.discard(operation.token)
            if pending and not runner.waiters[operation.token].is_heartbeat:
                raise Violation(
                    "heartbeats_come_first",
                    f"{runner.machine} decides {operation.name}, {len(pending)} heartbeats wait",
                )
            self._decided_at = before = context.cluster.next_offset
            outcome = decide(context)
            self._check_unchanged(operation, context, before)
            if isinstance(outcome, Generator):
                return self._watched_chunks(operation, context, outcome)
            return outcome

        def took_effect(context: DecisionContext, response: Any) -> None:
            if applied is not None:
                applied(context, response)
            self._ends[key] = self._end_of(operation, context), runner.controller.epoch

        operation.decide, operation.applied = watched, took_effect
        unchanged = operation.unchanged
        if unchanged is not None:

            def watched_unchanged(context: DecisionContext) -> Any:
                self._decided_at = context.cluster.next_offset
                return unchanged(context)

            operation.unchanged = watched_unchanged

    def _end_of(self, operation: Operation, context: DecisionContext) -> int:
        """Return the end of the records that an applied operation wrote, or else has read; 0 if it
        has only read a registration that is committed.
        """
        cluster, committed = context.cluster, self._tree.ledger.end_offset
        start = cluster.transaction_start
        end_offset = cluster.next_offset if start is None else start
        if operation.reads_broker is not None and self._decided_at == cluster.next_offset:
            uncommitted = cluster.state.delta(min(committed, end_offset))
            if operation.reads_broker not in uncommitted.get("broker", {}):
                return 0
        return end_offset

    def _watched_chunks(
        self, operation: Operation, context: DecisionContext, chunks: ChunkedDecision[Any]
    ) -> ChunkedDecision[Any]:
        is_large = False
        while True:
            before = context.cluster.next_offset
            try:
                chunk = next(chunks)
            except StopIteration as end:
                self._check_unchanged(operation, context, before)
                decision: Decision[Any] = end.value
                return decision
            self._check_unchanged(operation, context, before)
            if not is_large:
                is_large = True
                self.cluster.counts["large_operations"] += 1
            yield chunk

    @staticmethod
    def _check_unchanged(operation: Operation, context: DecisionContext, before: int) -> None:
        if context.cluster.next_offset != before:
            raise Violation("deciding_changes_nothing", f"{operation.name} at {before}")

    def turn_began(self) -> None:
        self._deciding = None

    def answered(self, runner: SimulatedController, answer: Answer, waiter: Waiter | None) -> None:
        if waiter is None:
            raise Violation(
                "each_request_has_one_response",
                f"{runner.machine} answers {answer.token} twice or unasked",
            )
        end = self._ends.pop((runner.machine.id, runner.life, answer.token), None)
        if answer.error is not None:
            return
        if end is None:
            raise Violation(
                "acknowledged_is_committed",
                f"{runner.machine} answers {waiter.name} as done, which took no effect",
            )
        end_offset, epoch = end
        ledger = self._tree.ledger
        if end_offset > ledger.end_offset:
            raise Violation(
                "acknowledged_is_committed",
                f"{runner.machine} answers {waiter.name}, which ends at {end_offset}; committed "
                f"is {ledger.end_offset}",
            )
        if epoch != runner.controller.epoch:
            raise Violation(
                "acknowledged_is_committed",
                f"{runner.machine} answers {waiter.name} of epoch {epoch} in epoch "
                f"{runner.controller.epoch}",
            )
        if ledger.is_inside_transaction(end_offset):
            raise Violation(
                "no_part_of_a_transaction_is_visible",
                f"{runner.machine} answers {waiter.name} at {end_offset}",
            )
        self.cluster.counts["acknowledged"] += 1

    # -- writes

    def writes(self, runner: SimulatedController, ready: ControllerOutput) -> None:
        assert ready.to_append is not None
        controller = runner.controller
        for batch in iterate(ready.to_append, verify_crc=False):
            for raw in batch:
                assert raw.value is not None
                record = decode_value(raw.value)
                if (
                    isinstance(record, records.BrokerRegistrationChange)
                    and record.fenced > 0
                    and self._deciding is None
                ):
                    self._fences(runner, record.broker_id, record.broker_epoch)
                if isinstance(record, records.AbortTransaction):
                    self.cluster.trigger_ambush(runner.machine, is_aborting=True)
        if controller.cluster.transaction_start is not None:
            self.cluster.trigger_ambush(runner.machine, is_aborting=False)
        if self.cluster.lines is not None:
            self.cluster.note(
                f"{runner.machine} controller@{controller.epoch} writes "
                f"{ready.base_offset}-{controller.cluster.next_offset}"
                f"{' for ' + self._deciding.name if self._deciding is not None else ''}"
            )

    def _fences(self, runner: SimulatedController, broker_id: int, epoch: int) -> None:
        """Check that no heartbeat of a fenced broker arrived for the session timeout."""
        heard = runner.heard.get((broker_id, epoch), runner.claimed_at)
        silent_ms = runner.now_ms() - heard
        self.cluster.counts["fenced_brokers"] += 1
        if silent_ms <= self.cluster.settings.session_timeout_ms:
            raise Violation(
                "a_healthy_broker_is_not_fenced",
                f"{runner.machine} fences broker {broker_id} of epoch {epoch}, heard "
                f"{silent_ms:.0f} ms ago",
            )

    # -- leadership

    def claimed(self, runner: SimulatedController) -> None:
        controller, machine = runner.controller, runner.machine
        if not controller.is_active:
            return
        epoch = controller.epoch
        other = self._claimed_by.setdefault(epoch, machine.id)
        if other != machine.id:
            raise Violation("one_controller_an_epoch", f"{machine} and n{other} in epoch {epoch}")
        self.cluster.newest_controller_epoch = max(self.newest_epoch, epoch)
        self.cluster.counts["claims"] += 1
        ledger = self._tree.ledger
        if epoch == self.newest_epoch and controller.committed_offset < ledger.end_offset:
            later = any(other.epoch > epoch for other in self.cluster.machines.values())
            if not later:
                raise Violation(
                    "a_new_controller_has_applied_all_committed_records",
                    f"{machine} claims epoch {epoch} at {controller.committed_offset}; committed "
                    f"is {ledger.end_offset}",
                )
        if self.cluster.lines is not None:
            self.cluster.note(f"{machine} controller@{epoch} begins")

    def lost_leadership(self, runner: SimulatedController) -> None:
        controller, machine = runner.controller, runner.machine
        cluster = controller.cluster
        self.cluster.counts["lost_leaderships"] += 1
        if cluster.next_offset != controller.committed_offset or controller.is_active:
            raise Violation(
                "uncommitted_state_is_reverted",
                f"{machine} is at {cluster.next_offset}; "
                f"committed is {controller.committed_offset}",
            )
        if cluster.next_offset < runner.high_watermark:
            # Only an aborted transaction may be left out.
            self.cluster.counts["losses_in_an_aborted_transaction"] += 1
            if not self._tree.ledger.is_inside_transaction(runner.high_watermark):
                raise Violation(
                    "uncommitted_state_is_reverted",
                    f"{machine} is at {cluster.next_offset}; committed is {runner.high_watermark}",
                )

    def gave_up(self, runner: SimulatedController, epoch: int) -> None:
        """Check that raft resigns when the controller gives up (KAFKA-13104)."""
        machine = runner.machine
        if machine.is_up and machine.role is Role.LEADER and machine.epoch == epoch:
            raise Violation(
                "raft_and_controller_resign_together",
                f"{machine} leads epoch {epoch}, and its controller has given up",
            )

    # -- states and images

    def turn_ended(self, runner: SimulatedController) -> None:
        controller, machine = runner.controller, runner.machine
        ledger = self._tree.ledger
        if controller.is_active and machine.role is not Role.LEADER:
            raise Violation("raft_and_controller_resign_together", f"{machine} is {machine.role}")
        if runner.waiters and not controller.is_active:
            names = sorted({waiter.name for waiter in runner.waiters.values()})
            raise Violation(
                "no_caller_waits_after_the_loss_of_leadership", f"{machine}: {names} still wait"
            )
        stable = controller.stable_offset
        if stable <= ledger.end_offset and ledger.is_inside_transaction(stable):
            raise Violation(
                "no_part_of_a_transaction_is_visible",
                f"{machine} shows what is before {stable}, in the middle of a transaction",
            )
        image = runner.images.image
        if image is not None and image.offset <= ledger.end_offset:
            self._check_image(runner, image)
        if controller.cluster.next_offset != ledger.end_offset:
            return
        self._chances += 1
        if runner.must_compare or self._chances % COMPARED_EVERY == 0:
            self.compare(runner)

    def _check_image(self, runner: SimulatedController, image: Image) -> None:
        """Check that an image is in no transaction and has the topics of the ledger."""
        ledger = self._tree.ledger
        if ledger.is_inside_transaction(image.offset):
            raise Violation(
                "no_part_of_a_transaction_is_visible",
                f"{runner.machine} publishes what is before {image.offset}",
            )
        if image.offset != ledger.end_offset or runner.checked_image is image:
            return
        runner.checked_image = image
        self.cluster.counts["compared_images"] += 1
        table = image.table
        found = {
            table.topic_name(number): table.topic_id_of(number) for number in table.topic_numbers()
        }
        said = {name: topic.id for name, topic in ledger.topics.items()}
        if found != said:
            raise Violation(
                "the_replay_equals_an_independent_log_reader",
                f"the image of {runner.machine} at {image.offset}: {found} and {said}",
            )

    def compare(self, runner: SimulatedController) -> None:
        """Compare a state that ends at the end of the committed log with the ledger."""
        ledger, cluster = self._tree.ledger, runner.controller.cluster
        assert cluster.next_offset == ledger.end_offset
        runner.must_compare = False
        self.cluster.counts["compared_states"] += 1
        replay = ledger.replay
        if cluster.transaction_start != replay.transaction_start:
            raise Violation(
                "a_standby_is_a_replay_of_the_log",
                f"{runner.machine} has a transaction of {cluster.transaction_start}, the log of "
                f"{replay.transaction_start}",
            )
        if not _is_same_state(cluster, replay) or partitions_of(cluster) != ledger.partitions():
            raise Violation(
                "a_standby_is_a_replay_of_the_log",
                f"{runner.machine} at {cluster.next_offset}: {_difference(cluster, replay)}",
            )
        self.compare_replay()

    def compare_replay(self) -> None:
        ledger = self._tree.ledger
        if ledger.open_since is None:
            found, said = summary_of(ledger.replay), ledger.summary()
            for kind, what in said.items():
                if found[kind] != what:
                    raise Violation(
                        "the_replay_equals_an_independent_log_reader",
                        f"{kind} at {ledger.end_offset}: {found[kind]} and {what}",
                    )

    def snapshot(self, runner: SimulatedController, offset: int) -> None:
        if self._tree.ledger.is_inside_transaction(offset):
            raise Violation(
                "no_snapshot_ends_in_a_transaction",
                f"{runner.machine} makes one that ends {offset}",
            )

    # -- brokers, while the quorum is available

    def brokers_to_wait_for(self, calm_since: float) -> list[str]:
        """Return what the brokers still have to reach in a calm phase.

        Raises Violation if a dead broker is not fenced in time, or a live one not unfenced.
        """
        cluster = self.cluster
        active = self.active_controller()
        if active is None:
            return ["there is no controller"]
        settings, machine = cluster.settings, active.machine
        waiting = []
        claimed_at = (active.claimed_at - machine.clock_base) / machine.clock_rate
        since = max(claimed_at, calm_since)
        session_ms = settings.session_timeout_ms / machine.clock_rate
        for id, known in self._tree.ledger.brokers.items():
            broker = self._brokers[id]
            if known.is_fenced or broker.is_alive(known.epoch):
                continue
            heard = active.heard.get((id, known.epoch), -_NEVER)
            heard_at = (heard - machine.clock_base) / machine.clock_rate
            deadline = max(since, heard_at) + session_ms * 1.125 + settings.max_transaction_ms
            if cluster.now > deadline + COMMIT_MS:
                raise Violation(
                    "a_dead_broker_is_fenced",
                    f"broker {id} of epoch {known.epoch} is dead and was last heard at "
                    f"{heard_at:.0f}, {machine} leads since {claimed_at:.0f}",
                )
            waiting.append(f"broker {id} is not fenced")
        for broker in self._brokers.values():
            if not broker.wants_to_be_up:
                continue
            entry = self._tree.ledger.brokers.get(broker.id)
            if entry is None or entry.is_fenced or entry.epoch != broker.epoch:
                # A delayed heartbeat of its earlier incarnation renews that incarnation's session,
                # and until it expires the broker cannot register.
                contacts = (
                    at
                    for (id, epoch), at in active.heard.items()
                    if id == broker.id and epoch != broker.epoch
                )
                earlier_at = (
                    max(contacts, default=-_NEVER) - machine.clock_base
                ) / machine.clock_rate
                began = max(since, broker.up_since, earlier_at)
                if cluster.now > began + 2 * session_ms + 12_000.0:
                    raise Violation(
                        "a_living_broker_is_unfenced",
                        f"{broker} is up since {broker.up_since:.0f}: {broker.describe()}",
                    )
                waiting.append(f"broker {broker.id} is not unfenced")
        return waiting


def _is_same_state(one: MetadataState, other: MetadataState) -> bool:
    """Compare all but the voters: an observer may lack the quorum's bootstrap snapshot."""
    mine, theirs = one.state, other.state
    return (
        mine.journaled_maps() == theirs.journaled_maps()
        and mine.quorum.leader_epoch == theirs.quorum.leader_epoch
    )


def _difference(one: MetadataState, other: MetadataState) -> str:
    if not _is_same_state(one, other):
        return str([str(change) for change in diff(one.state, other.state)][:5])
    mine, theirs = partitions_of(one), partitions_of(other)
    differing = [key for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key)]
    return str([(key, mine.get(key), theirs.get(key)) for key in sorted(differing)[:3]])
