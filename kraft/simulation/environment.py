"""Environment of the controllers, brokers and clients of a whole cluster.

`Environment` extends the quorum of `cluster` by what they share: settings, ledger, and the network
between brokers, clients and controllers, with the same faults as between machines. `brokers`,
`clients`, `controllers` and `controller_checks` know the environment; `whole_cluster` creates all
of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Protocol

from kraft.controller.runtime.operations import Operation
from kraft.controller.runtime.settings import ControllerSettings
from kraft.errors import KraftError, NotControllerError
from kraft.raft.node import Node
from kraft.records import Record
from kraft.simulation.cluster import SimulatedCluster
from kraft.simulation.ledger import Ledger, LedgerTree
from kraft.simulation.machine import Machine
from kraft.simulation.producer_id_blocks import ProducerIdBlocks

#: Receives response, error, and the epoch of the controller that answers.
OnAnswer = Callable[[Any, KraftError | None, int], None]


class ControllerApi(Protocol):
    """The part of a machine's controller that brokers and clients call."""

    def submit(
        self, operation: Operation, on_answer: OnAnswer, timeout_ms: float = ...
    ) -> None: ...
    def submit_heartbeat(
        self,
        operation: Operation,
        broker_id: int,
        broker_epoch: int,
        on_answer: OnAnswer,
        timeout_ms: float = ...,
    ) -> None: ...


#: Submits an operation to a machine's controller.
Submit = Callable[[ControllerApi, OnAnswer], None]


class Environment(SimulatedCluster):
    """A quorum with the network, settings and ledger of a whole cluster."""

    tree: LedgerTree

    def __init__(
        self,
        random: Random,
        tree: LedgerTree,
        settings: ControllerSettings,
        bootstrap: Sequence[Record],
        controller_apis: Mapping[int, ControllerApi],
        make_node: Callable[..., Node] = Node,
    ) -> None:
        super().__init__(random, tree, make_node)
        self.ledger: Ledger = tree.ledger
        self.settings = settings
        self.bootstrap = bootstrap
        #: The running controllers by machine id.
        self.controller_apis = controller_apis
        self.newest_controller_epoch = -1
        self.blocks = ProducerIdBlocks()
        #: How long a controller takes for one event, in ms.
        self.run_cost_ms = 0.05
        #: Ids of the machines whose raft layer rejects the next append.
        self.refusing: set[int] = set()
        #: The fault to inject when a controller is in the middle of a transaction, or aborts one.
        self.ambush: Callable[[Machine], None] | None = None
        self.ambush_waits_for_abort = False

    def is_newest_controller(self, epoch: int) -> bool:
        """Return whether no later controller has been active."""
        return epoch >= self.newest_controller_epoch

    # -- faults of controllers

    def refuses_append(self, machine: Machine) -> bool:
        if machine.id not in self.refusing:
            return False
        self.refusing.discard(machine.id)
        return True

    def trigger_ambush(self, machine: Machine, *, is_aborting: bool) -> None:
        """Inject the waiting fault: soon within a transaction, at once after it was aborted.

        The end of an abort is committed within a round trip, and only before that a controller
        that loses its leadership has less state than is committed.
        """
        if self.ambush is not None and is_aborting == self.ambush_waits_for_abort:
            action, self.ambush = self.ambush, None
            self.counts["ambushes"] += 1
            wait_ms = 0.0 if is_aborting else self.draw() ** 2 * 20.0
            self.at(self.now + wait_ms, self._spring, action, machine)

    def _spring(self, action: Callable[[Machine], None], machine: Machine, _: None) -> None:
        if machine.is_up:
            action(machine)

    # -- the network of brokers and clients

    def send(self, source: int, target: int, arrive: Callable[..., None], *given: Any) -> None:
        """Call ``arrive(*given)`` at the target unless the network loses the message."""
        conditions = self.conditions
        chance = self.draw()
        delay = conditions.latency_ms + self.draw() * conditions.spread_ms
        if chance < conditions.trouble:
            if chance < conditions.loss:
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
        """Send a request to a machine's controller; the response may never arrive."""

        def back(response: Any, error: KraftError | None, epoch: int) -> None:
            self.send(target, source, on_answer, response, error, epoch)

        def arrive() -> None:
            runner = self.controller_apis.get(target)
            if runner is None:
                if self.draw() < 0.7:
                    back(None, connection_lost(), -1)
                return
            submit(runner, back)

        self.send(source, target, arrive)

    def any_machine_id(self) -> int:
        return self.random.choice(list(self.machines))

    def leader_known_to(self, machine_id: int) -> int:
        """Return the leader that a machine names; -1 if it knows none."""
        machine = self.machines[machine_id]
        return machine.leader_id if machine.is_up else -1


class Finder:
    """The machine that a broker or client believes to be the active controller."""

    def __init__(self, cluster: Environment) -> None:
        self._cluster = cluster
        self._ids = list(cluster.machines)
        self.target = cluster.random.choice(self._ids)

    def try_next(self) -> None:
        """Take the machine that the last one names as the leader, else the next in order."""
        named = self._cluster.leader_known_to(self.target)
        if named in self._ids and named != self.target:
            self.target = named
        else:
            at = self._ids.index(self.target) + 1
            self.target = self._ids[at % len(self._ids)]


def connection_lost() -> NotControllerError:
    return NotControllerError("the connection was lost")
