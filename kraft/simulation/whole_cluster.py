"""Whole cluster in virtual time: the quorum of `cluster` with controllers, brokers and clients.

Each machine runs a `SimulatedController` as long as its process lives, and passes it the results of
every step of the raft node, in the order of ``kraft.server.driver``. Brokers and clients reach the
machines through the same network with the same faults. A seed determines the entire run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from kraft.controller.runtime.settings import ControllerSettings
from kraft.raft.accumulator import is_control
from kraft.raft.interface import AppendBatches, Event, RaftReady, Role, SnapshotStored
from kraft.raft.node import Node
from kraft.records import Record
from kraft.simulation.brokers import SimulatedBroker
from kraft.simulation.controller_checks import ControllerChecks
from kraft.simulation.controllers import SimulatedController
from kraft.simulation.environment import Environment, connection_lost
from kraft.simulation.ledger import LedgerTree
from kraft.simulation.machine import Machine


class WholeCluster(Environment):
    """A quorum with controllers, brokers and clients."""

    def __init__(
        self,
        random: Random,
        tree: LedgerTree,
        settings: ControllerSettings,
        bootstrap: Sequence[Record],
        make_node: Callable[..., Node] = Node,
    ) -> None:
        self.controllers: dict[int, SimulatedController] = {}
        self.brokers: dict[int, SimulatedBroker] = {}
        super().__init__(random, tree, settings, bootstrap, self.controllers, make_node)
        self.controller_checks = ControllerChecks(self, self.controllers, self.brokers)

    # -- the raft node below

    def step(self, machine: Machine, event: Event) -> RaftReady:
        runner = self.controllers.get(machine.id)
        if runner is None or runner.life != machine.life:
            runner = self.controllers[machine.id] = SimulatedController(
                self, machine, self.controller_checks
            )
        ready = super().step(machine, event)
        if not runner.is_alive():
            return ready
        # In the order of `kraft.server.driver`.
        if ready.to_write and machine.node.role is Role.LEADER:
            for write in ready.to_write:
                if type(write) is AppendBatches and is_control(write.batches):
                    runner.control_batch_appended(write.base_offset, memoryview(write.batches))
        if ready.committed is not None:
            runner.committed(ready.committed)
        if ready.role_change is not None:
            runner.role_changed(ready.role_change)
        if type(event) is SnapshotStored and event.is_installed:
            runner.snapshot_installed()
        return ready

    def _down(self, machine: Machine) -> None:
        super()._down(machine)
        runner = self.controllers.pop(machine.id, None)
        if runner is not None:
            for waiter in runner.waiters.values():
                if self.draw() < 0.7:
                    waiter.on_answer(None, connection_lost(), -1)

    def active_controller(self) -> SimulatedController | None:
        """Return the newest active controller; None if it does not run any more."""
        return self.controller_checks.active_controller()
