"""A whole cluster in virtual time: the quorum of `cluster`, its controllers, brokers and clients.

Owns what joins them: each machine runs a `SimulatedController` for as long as its process lives,
which hears of every step of the machine's raft node in the order in which
``kraft.server.driver`` tells it; and the way of brokers and clients to the machines, through the
same network with the same faults. One seed is one history, as in `cluster`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from kraft.controller.settings import ControllerSettings
from kraft.errors import KraftError, NotControllerError
from kraft.raft.accumulator import is_control
from kraft.raft.node import Node
from kraft.raft.ready import AppendBatches, Event, Ready, Role, SnapshotStored
from kraft.records import Record
from kraft.simulation.brokers import ProducerIdBlocks, SimulatedBroker
from kraft.simulation.cluster import Cluster
from kraft.simulation.controller_checks import ControllerChecks
from kraft.simulation.controllers import OnAnswer, SimulatedController
from kraft.simulation.ledger import Ledger, LedgerHistory
from kraft.simulation.machine import Machine

#: Puts an operation before a machine's controller.
Submit = Callable[[SimulatedController, OnAnswer], None]


class WholeCluster(Cluster):
    """See the module's docstring."""

    history: LedgerHistory

    def __init__(
        self,
        random: Random,
        history: LedgerHistory,
        settings: ControllerSettings,
        bootstrap: Sequence[Record],
        make_node: Callable[..., Node] = Node,
    ) -> None:
        super().__init__(random, history, make_node)
        self.ledger: Ledger = history.ledger
        self.settings = settings
        self.bootstrap = bootstrap
        self.controllers: dict[int, SimulatedController] = {}
        self.brokers: dict[int, SimulatedBroker] = {}
        self.blocks = ProducerIdBlocks()
        self.controller_checks = ControllerChecks(self)
        #: How long a controller takes for one event.
        self.run_cost_ms = 0.05
        #: Machines whose raft layer refuses the next append.
        self.refusing: set[int] = set()
        #: What befalls the next controller that is in the middle of a transaction.
        self.ambush: Callable[[Machine], None] | None = None

    # -- the raft node below

    def step(self, machine: Machine, event: Event) -> Ready:
        runner = self.controllers.get(machine.id)
        if runner is None or runner.life != machine.life:
            runner = self.controllers[machine.id] = SimulatedController(self, machine)
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

    def refuses_append(self, machine: Machine) -> bool:
        if machine.id not in self.refusing:
            return False
        self.refusing.discard(machine.id)
        return True

    def spring_ambush(self, machine: Machine) -> None:
        """A controller writes a piece of a transaction: something may happen to it shortly."""
        if self.ambush is not None:
            happen, self.ambush = self.ambush, None
            self.counts["ambushes"] += 1
            self.at(self.now + self.draw() ** 2 * 20.0, self._spring, happen, machine)

    def _spring(self, happen: Callable[[Machine], None], machine: Machine, _: None) -> None:
        if machine.is_up:
            happen(machine)

    def _down(self, machine: Machine) -> None:
        super()._down(machine)
        runner = self.controllers.pop(machine.id, None)
        if runner is not None:
            for waiter in runner.waiters.values():
                if self.draw() < 0.7:
                    waiter.on_answer(None, connection_lost(), -1)

    def active_controller(self) -> SimulatedController | None:
        """The newest that has begun its work, where it still runs."""
        for runner in self.controllers.values():
            controller = runner.controller
            if controller.is_active and controller.epoch == self.controller_checks.newest_epoch:
                return runner
        return None

    # -- brokers and clients

    def send(self, source: int, target: int, arrive: Callable[..., None], *given: Any) -> None:
        """``arrive(*given)`` there, if the network lets it, soon or late."""
        weather = self.weather
        chance = self.draw()
        delay = weather.latency_ms + self.draw() * weather.spread_ms
        if chance < weather.trouble:
            if chance < weather.loss:
                self.counts["lost_messages"] += 1
                return
            delay += self.draw() ** 3 * 3000.0
        self.at(self.now + delay, self._arrive, (source, target), arrive, given)

    def _arrive(
        self, way: tuple[int, int], arrive: Callable[..., None], given: tuple[Any, ...]
    ) -> None:
        if self.blocked and way in self.blocked:
            self.counts["cut_off_messages"] += 1
            return
        machine = self.machines.get(way[1])
        if machine is not None and machine.is_up and machine.paused_until > self.now:
            self.at(machine.paused_until, self._arrive, way, arrive, given)
            return
        arrive(*given)

    def call(self, source: int, target: int, submit: Submit, on_answer: OnAnswer) -> None:
        """A request of a broker or client to a machine's controller; its answer may never come."""

        def back(response: Any, error: KraftError | None, epoch: int) -> None:
            self.send(target, source, on_answer, response, error, epoch)

        def arrive() -> None:
            runner = self.controllers.get(target)
            if runner is None:
                if self.draw() < 0.7:
                    back(None, connection_lost(), -1)
                return
            submit(runner, back)

        self.send(source, target, arrive)

    def any_machine_id(self) -> int:
        return self.random.choice(list(self.machines))

    def leader_known_to(self, machine_id: int) -> int:
        """Whom a machine names as the leader; -1 where it knows none."""
        machine = self.machines[machine_id]
        return machine.leader_id if machine.is_up else -1


class Finder:
    """Which machine somebody outside takes for the active controller."""

    def __init__(self, cluster: WholeCluster) -> None:
        self._cluster = cluster
        self._ids = list(cluster.machines)
        self.target = cluster.random.choice(self._ids)

    def look_on(self) -> None:
        """Take the machine that the last one names as the leader, else the next in order."""
        named = self._cluster.leader_known_to(self.target)
        if named in self._ids and named != self.target:
            self.target = named
        else:
            at = self._ids.index(self.target) + 1
            self.target = self._ids[at % len(self._ids)]


def connection_lost() -> NotControllerError:
    return NotControllerError("the connection was lost")
