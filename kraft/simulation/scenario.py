"""Scenario of a seed: build a cluster from it, run it through phases of faults and calm.

A seed decides the numbers of voters and observers, their settings, and all events. Two phases
alternate. In a phase of trouble, faults, clients and changes of the voters come at random. In a
calm phase all faults stop and stopped nodes start; within 10 simulated seconds a new record must be
committed and known to every node.

A `SimulationScenario` has the parts that differ between kinds of simulation. This module's is the
quorum alone; `whole_scenario` and `replica_scenario` have others. Commands and tests call
`run_seed`.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from random import Random
from traceback import format_exception
from typing import Generic, TypeVar
from zlib import crc32

from kraft.errors import ReplayError
from kraft.raft.log_view import BOOTSTRAP_SNAPSHOT
from kraft.raft.node import Node
from kraft.simulation.batch_tree import BatchTree, Violation
from kraft.simulation.cluster import SimulatedCluster
from kraft.simulation.conditions import NOTHING, NUMBERS_PER_PHASE, FaultConditions, Suppressed
from kraft.simulation.faults import Faults
from kraft.simulation.log_storage import LogStorage
from kraft.simulation.machine import Machine
from kraft.simulation.members import BOOTSTRAP_PORT, draw_members, new_machine
from kraft.simulation.recorded_choices import RecordedChoices
from kraft.simulation.storage import Snapshot, Storage, snapshot_content

#: One seed of so many uses kraft's real log (`log_storage`); the others use its model.
REAL_LOG_EVERY = 8
CALM = FaultConditions(append_interval_ms=100.0)
#: The name of a phase of trouble as a fault: if suppressed, the calm phase before it continues.
TROUBLE = "trouble"
#: How often a calm phase checks whether it may end.
POLL_MS = 50.0

AnyCluster = TypeVar("AnyCluster", bound=SimulatedCluster)
AnyFaults = TypeVar("AnyFaults", bound=Faults)


@dataclass
class RunOutcome:
    """The outcome of a run; two equal runs have the same ``digest``."""

    seed: int
    events: int
    simulated_ms: float
    digest: int
    counts: Counter[str]
    violation: Violation | None = None
    lines: list[str] = field(default_factory=list)
    #: The injected faults: their numbers and names.
    injected: list[tuple[int, str]] = field(default_factory=list)
    node_count: int = 0


def build(
    seed: int,
    make_node: Callable[..., Node] = Node,
    *,
    random: Random | None = None,
    max_nodes: int | None = None,
) -> tuple[SimulatedCluster, Faults]:
    """Build the cluster of a seed, with nothing started.

    ``random``: the source of the choices in place of ``Random(seed)``. ``max_nodes``: build only
    the first nodes.
    """
    random = random or Random(seed)
    voter_count = random.choices((1, 2, 3, 4, 5), (2, 2, 5, 2, 4))[0]
    observer_count = random.choices((0, 1, 2, 3, 4, 5), (3, 3, 3, 1, 1, 1))[0]
    members = draw_members(random, voter_count, observer_count, max_nodes)
    is_dynamic = members.is_dynamic
    tree = BatchTree(members.voters if is_dynamic else None, members.kraft_version)
    cluster = SimulatedCluster(random, tree, make_node)
    new_storage = LogStorage if seed % REAL_LOG_EVERY == 0 else Storage
    # Static voters find each other without bootstrap servers, while they are the voters.
    has_bootstrap = is_dynamic or random.random() < 0.6
    is_skewed = random.random() < 0.4
    linger_ms = random.choice((0, 0, 5, 25))
    fetch_max_bytes = random.choice((300, 2000, 8 * 1024 * 1024))
    # Without a leader, nodes ask each other as often as the backoff allows.
    retry_backoff_ms = random.choice((20, 100, 250))
    is_old_around = random.random() < 0.1
    is_auto_joining = random.random() < 0.3
    for id in members.ids:
        config = members.settings_of(
            id,
            has_bootstrap=has_bootstrap,
            auto_join=is_auto_joining and members.may_vote[id],
            append_linger_ms=linger_ms,
            retry_backoff_ms=retry_backoff_ms,
            fetch_max_bytes=fetch_max_bytes,
            fetch_snapshot_max_bytes=fetch_max_bytes,
        )
        storage = new_storage(id, tree, config.static_voters)
        if is_dynamic and id <= voter_count:
            content = snapshot_content(BOOTSTRAP_SNAPSHOT)
            storage.snapshots[BOOTSTRAP_SNAPSHOT] = Snapshot(content, tree.root)
        machine = new_machine(random, config, storage, is_skewed=is_skewed)
        machine.knows_pre_vote = not (is_old_around and random.random() < 0.3)
        cluster.add(machine, BOOTSTRAP_PORT + id)
    return cluster, Faults(cluster, new_storage)


class Phases:
    """Phases of trouble and calm, until ``event_limit`` events and a calm phase have passed."""

    #: The shortest and longest phase of trouble, and the mean times between faults.
    trouble_ms = (1500.0, 9000.0)
    between_faults_ms = (150.0, 400.0, 1000.0)

    def __init__(self, cluster: SimulatedCluster, faults: Faults, event_limit: int) -> None:
        self.cluster = cluster
        self.faults = faults
        self.event_limit = event_limit
        self._phase = 0
        self._calm_since = 0.0
        self._troubles = 0

    def start(self) -> None:
        cluster = self.cluster
        for machine in cluster.machines.values():
            cluster.at(cluster.draw() * 100.0, cluster.start, machine)
        self._client()
        self.calm_down()

    def calm_down(self, phase: int | None = None, _b: None = None, _c: None = None) -> None:
        """Begin a calm phase."""
        if phase is not None and phase != self._phase:
            return
        cluster = self.cluster
        self._phase += 1
        cluster.conditions = CALM
        self.faults.heal()
        self._calm_since = cluster.now
        cluster.expect_commit(self.faults.absent)
        cluster.at(cluster.now + POLL_MS, self._poll)

    def _is_proved(self) -> bool:
        """Return whether the calm phase has shown the progress that it must show."""
        return self.cluster.proof is not None and not self.cluster.behind

    def _poll(self, _a: None = None, _b: None = None, _c: None = None) -> None:
        cluster = self.cluster
        if not self._is_proved():
            cluster.at(cluster.now + POLL_MS, self._poll)
            return
        calm_ms = cluster.now - self._calm_since
        cluster.counts["calms"] += 1
        cluster.counts["slow_calms"] += calm_ms > 5000.0
        if cluster.events >= self.event_limit:
            cluster.is_over = True
            return
        self._troubles += 1
        number = cluster.fault_number = self._troubles * NUMBERS_PER_PHASE
        if not cluster.is_injected(number, TROUBLE):
            # The calm phase continues; the next phase of trouble may come.
            cluster.at(cluster.now + POLL_MS, self._poll)
            return
        cluster.tree.era += 1
        self._phase += 1
        cluster.is_calm = False
        cluster.draw_as(TROUBLE, number)
        random = cluster.random
        cluster.conditions = random_conditions(random, self._chance)
        cluster.at(cluster.now + random.uniform(*self.trouble_ms), self.calm_down, self._phase)
        self.faults.begin(random.choice(self.between_faults_ms))

    def _chance(self, name: str, chance: float) -> float:
        """Return the chance of a message fault; 0 if the fault is suppressed."""
        number = self.cluster.next_fault()
        return chance if chance and self.cluster.is_injected(number, name) else 0.0

    def totals(self) -> Counter[str]:
        """Return counts that are known at the end of a run; the digest does not contain them."""
        return Counter()

    def _end_at_limit(self, _a: None = None, _b: None = None, _c: None = None) -> None:
        """Begin the last calm phase at the event limit; look again in 100 ms."""
        self.cluster.at(self.cluster.now + 100.0, self._end_at_limit)
        self._calm_down_at_limit()

    def _calm_down_at_limit(self) -> None:
        if self.cluster.events >= self.event_limit and not self.cluster.is_calm:
            self.calm_down()

    def _client(self, _a: None = None, _b: None = None, _c: None = None) -> None:
        cluster = self.cluster
        draw = cluster.draw()
        cluster.at(cluster.now + cluster.conditions.append_interval_ms * (0.5 + draw), self._client)
        self._calm_down_at_limit()
        leader = cluster.leader() if draw < 0.8 else self._any_leader()
        if leader is not None:
            cluster.append(leader)
            if draw < 0.1 and leader.is_up and leader.role == 3:
                cluster.append(leader)

    def _any_leader(self) -> Machine | None:
        """Return a leader of any epoch: perhaps one that does not know the next leader yet."""
        now = self.cluster.now
        for machine in self.cluster.machines.values():
            if machine.is_up and machine.role == 3 and machine.paused_until <= now:
                return machine
        return None


def random_conditions(random: Random, allow: Callable[[str, float], float]) -> FaultConditions:
    """Draw the fault conditions of a phase; ``allow`` may suppress each chance."""
    loss = random.choice((0.0, 0.0, 0.01, 0.05, 0.2))
    duplication = random.choice((0.0, 0.01, 0.05))
    delay = random.choice((0.0, 0.005, 0.03))
    conditions = FaultConditions(
        latency_ms=random.choice((0.1, 0.5, 5.0)),
        spread_ms=random.choice((0.5, 3.0, 20.0)),
        sync_ms=random.choice((0.2, 0.5, 4.0)),
        append_interval_ms=random.choice((10.0, 30.0, 100.0, 300.0)),
        damage=allow("damage", random.choice((0.0, 0.0, 0.02))),
    )
    conditions.loss = allow("loss", loss)
    conditions.duplication = conditions.loss + allow("duplication", duplication)
    conditions.trouble = conditions.duplication + allow("delay", delay)
    return conditions


@dataclass(frozen=True, slots=True)
class SimulationScenario(Generic[AnyCluster, AnyFaults]):
    """The parts of a kind of simulation."""

    #: Called with the seed and the parameters of `build`.
    build: Callable[..., tuple[AnyCluster, AnyFaults]]
    new_phases: Callable[[AnyCluster, AnyFaults, int], Phases]
    #: Settings of the process that hold only during a run.
    surroundings: Callable[[], AbstractContextManager[None]] = nullcontext

    def run_seed(
        self,
        seed: int,
        event_limit: int,
        *,
        is_traced: bool = False,
        make_node: Callable[..., Node] = Node,
        prepare: Callable[[AnyCluster], None] | None = None,
        choices: RecordedChoices | None = None,
        max_nodes: int | None = None,
        suppressed: Suppressed = NOTHING,
    ) -> RunOutcome:
        """Run one seed. The outcome contains the violation; every exception counts as one."""
        cluster, faults = self.build(seed, make_node, random=choices, max_nodes=max_nodes)
        cluster.suppressed = suppressed
        if is_traced:
            cluster.lines = []
        if prepare is not None:
            prepare(cluster)
        with self.surroundings():
            return run_phases(seed, cluster, self.new_phases(cluster, faults, event_limit))


def run_phases(seed: int, cluster: SimulatedCluster, phases: Phases) -> RunOutcome:
    """Run a cluster to the end of its phases or the first violation."""
    was_collecting = gc.isenabled()
    gc.disable()
    violation = None
    try:
        phases.start()
        cluster.run()
    except Violation as found:
        violation = found
    except AssertionError as error:
        violation = Violation("no_assertion_fails", "".join(format_exception(error)[-6:]))
    except ReplayError as error:
        violation = Violation("every_record_can_be_applied", "".join(format_exception(error)[-6:]))
    except Exception as error:  # Any exception of a node ends its process.
        violation = Violation("no_exception_escapes", "".join(format_exception(error)[-6:]))
    finally:
        if was_collecting:
            gc.enable()
    counts = cluster.counts
    counts += cluster.tree.counts
    digest = crc32(
        repr((cluster.events, cluster.now, cluster.tree.committed, sorted(counts.items()))).encode()
    )
    counts.update(phases.totals())
    return RunOutcome(
        seed,
        cluster.events,
        cluster.now,
        digest,
        counts,
        violation,
        cluster.lines or [],
        cluster.injected,
        len(cluster.machines),
    )


run_seed = SimulationScenario(build, Phases).run_seed
