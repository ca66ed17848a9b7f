"""Simulated controllers: drive a `QuorumController` as ``kraft.server.controller`` does.

A `SimulatedController` lives as long as its machine's process. It applies committed batches while
another node leads, claims leadership after it has applied all batches before its epoch, and appends
decisions in order. A turn takes a bounded time and never runs inside a step of the raft node.
`whole_cluster` passes the results of each step; `controller_checks` checks each action.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kraft._core.decide.placement import JavaRandom, StripedPlacer
from kraft.controller.runtime.operations import Answer, ControllerOutput, Operation
from kraft.controller.runtime.quorum_controller import QuorumController
from kraft.image.publishing import Image, ImagePublishing
from kraft.raft.interface import Append, Resign, Role, RoleChange
from kraft.raft.rpc import LogSlice
from kraft.records import Uuid
from kraft.simulation.batch_tree import Violation
from kraft.simulation.environment import Environment, OnAnswer
from kraft.simulation.machine import Machine
from kraft.simulation.state_storage import StateStorage

#: How long a turn of the controller takes before the network has its turn.
TURN_MS = 2.0
READ_SIZE = 16 * 1024
LOOK_AGAIN_MS = 2.0


@dataclass(slots=True)
class Waiter:
    """A request that waits for its answer; ``is_heartbeat`` until it is decided."""

    on_answer: OnAnswer
    name: str
    is_heartbeat: bool
    since: float


class ControllerObserver(Protocol):
    """What checks the actions of the controllers; `controller_checks.ControllerChecks` does."""

    def watch(self, runner: SimulatedController, operation: Operation) -> None: ...
    def turn_began(self) -> None: ...
    def turn_ended(self, runner: SimulatedController) -> None: ...
    def answered(
        self, runner: SimulatedController, answer: Answer, waiter: Waiter | None
    ) -> None: ...
    def writes(self, runner: SimulatedController, output: ControllerOutput) -> None: ...
    def claimed(self, runner: SimulatedController) -> None: ...
    def lost_leadership(self, runner: SimulatedController) -> None: ...
    def gave_up(self, runner: SimulatedController, epoch: int) -> None: ...


class SimulatedController:
    """The controller of one machine; times are those of the machine's clock."""

    def __init__(self, cluster: Environment, machine: Machine, checks: ControllerObserver) -> None:
        self.cluster = cluster
        self._checks = checks
        self.machine = machine
        self.life = machine.life
        self.controller = QuorumController(
            self._storage.load_latest(),
            cluster.settings,
            placer=StripedPlacer(JavaRandom(cluster.random.getrandbits(48))),
            random_uuid=lambda: Uuid(b"\3" + cluster.random.randbytes(15)),
            bootstrap=cluster.bootstrap,
            log_fault=self._fault,
        )
        #: The published images; snapshots are made of them.
        self.images = ImagePublishing(self.controller.cluster, self._fault)
        self.waiters: dict[int, Waiter] = {}
        self.undecided_heartbeats: set[int] = set()
        self.claimed_at = 0.0
        #: When the last heartbeat of each incarnation of a broker arrived.
        self.heard: dict[tuple[int, int], float] = {}
        self.checked_image: Image | None = None
        #: Whether the state must be compared, after a lost leadership or a loaded snapshot.
        self.must_compare = True
        #: The high watermark of the raft node.
        self.high_watermark = 0
        self._claim: tuple[int, int] | None = None
        self._last_token = 0
        self._is_turn_due = False
        self._loading = 0
        self._timer = 0

    @property
    def _storage(self) -> StateStorage:
        storage = self.machine.storage
        assert isinstance(storage, StateStorage)
        return storage

    @property
    def is_loading(self) -> bool:
        return self._loading > 0

    def now_ms(self) -> float:
        machine = self.machine
        return machine.clock_base + self.cluster.now * machine.clock_rate

    def _fault(self, what: str, error: Exception) -> None:
        if isinstance(error, Violation):
            raise error
        raise AssertionError(f"{self.machine}: {what} failed: {error!r}") from error

    def is_alive(self) -> bool:
        return self.machine.is_up and self.machine.life == self.life

    # -- results of a step of the raft node

    def committed(self, high_watermark: int) -> None:
        self.high_watermark = high_watermark
        if self.controller.is_active:
            self._carry_out(self.controller.commit(high_watermark, self.now_ms()))
        self._take_turn_soon()

    def role_changed(self, change: RoleChange) -> None:
        controller = self.controller
        if change.role is not Role.LEADER or change.epoch != controller.epoch:
            was_active = controller.is_active
            if was_active or not change.is_active:
                self._claim = None
                self._carry_out(controller.renounce(self.now_ms()))
            if was_active:
                self._after_loss()
            if change.is_active:
                self._claim = change.epoch, self.high_watermark
        self._take_turn_soon()

    def control_batch_appended(self, base_offset: int, batch: memoryview) -> None:
        self.images.note_batches(batch)
        self.controller.control_batch_appended(base_offset, batch)

    def snapshot_installed(self) -> None:
        self._loading += 1
        delay = 0.1 + self.cluster.draw() * 20.0
        self.cluster.at(self.cluster.now + delay, self._snapshot_loaded)

    def _snapshot_loaded(self, _a: None = None, _b: None = None, _c: None = None) -> None:
        if not self.is_alive():
            return
        self._loading -= 1
        # Of two snapshots in short sequence only the later one is loaded.
        if self._loading:
            return
        loaded = self._storage.load_latest()
        self.controller.replace_cluster(loaded)
        self.images.replace_cluster(loaded)
        self.cluster.counts["snapshots_loaded"] += 1
        self.must_compare = True
        self._take_turn_soon()

    # -- operations

    def submit(
        self, operation: Operation, on_answer: OnAnswer, timeout_ms: float = float("inf")
    ) -> None:
        """Submit an operation; ``on_answer`` receives its committed response, or an error."""
        now = self._begin_waiting(operation, on_answer, timeout_ms, is_heartbeat=False)
        self._carry_out(self.controller.submit(operation, now))
        self._take_turn_soon()

    def submit_heartbeat(
        self,
        operation: Operation,
        broker_id: int,
        broker_epoch: int,
        on_answer: OnAnswer,
        timeout_ms: float = float("inf"),
    ) -> None:
        now = self._begin_waiting(operation, on_answer, timeout_ms, is_heartbeat=True)
        self.heard[broker_id, broker_epoch] = now
        if self.controller.is_active:
            self.undecided_heartbeats.add(operation.token)
        self._carry_out(self.controller.submit_heartbeat(operation, broker_id, broker_epoch, now))
        self._take_turn_soon()

    def _begin_waiting(
        self, operation: Operation, on_answer: OnAnswer, timeout_ms: float, *, is_heartbeat: bool
    ) -> float:
        self._last_token += 1
        now = self.now_ms()
        operation.token, operation.deadline_ms = self._last_token, now + timeout_ms
        self._checks.watch(self, operation)
        self.waiters[operation.token] = Waiter(on_answer, operation.name, is_heartbeat, now)
        return now

    # -- a turn

    def _take_turn_soon(self) -> None:
        if not self._is_turn_due:
            self._is_turn_due = True
            delay = self.cluster.draw() * 0.05
            self.cluster.at(self.cluster.now + delay, self._take_turn)

    def _take_turn(self, _a: None = None, _b: None = None, _c: None = None) -> None:
        if not self.is_alive():
            return
        cluster = self.cluster
        if self.machine.paused_until > cluster.now:
            cluster.at(self.machine.paused_until, self._take_turn)
            return
        self._is_turn_due = False
        self._timer += 1
        self._run_for_a_while()
        if self.is_alive():
            if not self._loading:
                self.images.publish(self.controller.committed_offset)
                self._compact()
            self._checks.turn_ended(self)

    def _compact(self) -> None:
        """Compact the table as a node does."""
        controller = self.controller
        if not controller.is_compaction_due:
            return
        if controller.stable_offset == controller.cluster.next_offset:
            # A snapshot may be under way: its image keeps the old rows.
            controller.compact(self.now_ms())
            self.cluster.counts["compactions"] += 1
            self.images.publish_renumbered()

    def _run_for_a_while(self) -> None:
        controller, cluster, machine = self.controller, self.cluster, self.machine
        node = machine.node
        spent = 0.0
        while spent < TURN_MS:
            now = self.now_ms()
            if not controller.is_active and not self._catch_up(now):
                return
            if self._claim is not None:
                (epoch, _), self._claim = self._claim, None
                self.claimed_at = now
                self.heard.clear()
                self._carry_out(controller.claim(epoch, now, node.next_append_offset))
                self._checks.claimed(self)
            cluster.events += 1
            self._checks.turn_began()
            ready = controller.run(now, node.next_append_offset, may_append=node.may_append)
            self._carry_out(ready)
            if not self.is_alive():
                return
            cost = cluster.run_cost_ms * (0.5 + cluster.draw())
            spent += cost
            if ready.wake_at_ms > now + cost:
                self._wake_at(ready.wake_at_ms)
                return
            if not node.may_append and ready.to_append is None and not ready.answers:
                self._wake_at(now + 1.0)
                return
        # The next turn begins after the time that this one took.
        self._is_turn_due = True
        cluster.at(cluster.now + spent, self._take_turn)

    def _catch_up(self, now: float) -> bool:
        """Apply committed batches; return whether the controller may claim its leadership now."""
        controller = self.controller
        offset = controller.cluster.next_offset
        if self._loading:
            return False
        if offset < self.high_watermark:
            storage = self._storage
            end_offset = min(self.high_watermark, storage.end_offset)
            batches = b""
            if offset < end_offset:
                batches = storage.read(LogSlice(offset, end_offset, READ_SIZE))
            if not batches:
                self._wake_at(now + LOOK_AGAIN_MS)
                return False
            self.images.note_batches(batches)
            self._carry_out(controller.apply_committed(memoryview(batches), now))
            if controller.cluster.next_offset < self.high_watermark:
                self._take_turn_soon()
                return False
        return self._claim is not None and controller.cluster.next_offset >= self._claim[1]

    def _wake_at(self, at_ms: float) -> None:
        if at_ms < float("inf"):
            machine = self.machine
            at = (at_ms - machine.clock_base) / machine.clock_rate + 0.001
            self.cluster.at(max(at, self.cluster.now), self._timer_due, self._timer)

    def _timer_due(self, timer: int, _b: None = None, _c: None = None) -> None:
        # A later turn has set another timer.
        if timer == self._timer and not self._is_turn_due:
            self._take_turn()

    # -- outputs of the controller

    def _carry_out(self, ready: ControllerOutput) -> None:
        checks = self._checks
        if ready.to_append is not None:
            self._append(ready)
        for answer in ready.answers:
            waiter = self.waiters.pop(answer.token, None)
            checks.answered(self, answer, waiter)
            self.undecided_heartbeats.discard(answer.token)
            assert waiter is not None
            waiter.on_answer(answer.response, answer.error, self.controller.epoch)
        if ready.resign_epoch is not None:
            self.cluster.counts["controller_resignations"] += 1
            self.machine.is_asked_to_leave = True
            self.cluster.step(self.machine, Resign(ready.resign_epoch))

    def _append(self, ready: ControllerOutput) -> None:
        cluster, machine = self.cluster, self.machine
        assert ready.to_append is not None
        self._checks.writes(self, ready)
        if ready.base_offset != machine.node.next_append_offset:
            raise AssertionError(
                f"{machine} decided at {ready.base_offset}, its log is at "
                f"{machine.node.next_append_offset}: something came between"
            )
        self.images.note_batches(ready.to_append)
        if cluster.refuses_append(machine):
            # As without memory, or with a full accumulator.
            cluster.counts["refused_appends"] += 1
            self._append_failed()
            return
        append = Append(self._last_token, ready.epoch, batches=ready.to_append)
        for appended in cluster.step(machine, append).appended:
            if appended.error:
                cluster.counts["failed_appends"] += 1
                self._append_failed()

    def _append_failed(self) -> None:
        epoch = self.controller.epoch
        self._carry_out(self.controller.append_failed(self.now_ms()))
        if epoch >= 0:
            self._checks.gave_up(self, epoch)
            self._after_loss()

    def _after_loss(self) -> None:
        self.undecided_heartbeats.clear()
        self.must_compare = True
        self._checks.lost_leadership(self)
