"""From a seed to a cluster: how many voters and observers, which settings, and what happens to it.

Owns the alternation of two phases. In the first, faults, clients and changes of voters come at
random; then all faults stop, everything that is down starts, and within 10 simulated seconds a new
record must be committed and known to every node. `run_seed` is what all commands and tests call.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from traceback import format_exception
from zlib import crc32

from kraft.errors import ReplayError
from kraft.raft.config import RaftConfig
from kraft.raft.log_view import BOOTSTRAP_SNAPSHOT
from kraft.raft.node import Node
from kraft.raft.voters import Endpoint, ReplicaKey, VersionRange, Voter, VoterSet
from kraft.simulation.cluster import Cluster
from kraft.simulation.faults import Faults
from kraft.simulation.history import History, Violation
from kraft.simulation.log_storage import LogStorage
from kraft.simulation.machine import Machine, new_directory
from kraft.simulation.storage import Snapshot, Storage, snapshot_content
from kraft.simulation.tape import Tape
from kraft.simulation.weather import NOTHING, NUMBERS_OF_A_PHASE, Suppressed, Weather

CLUSTER_ID = "simulated-cluster"
LISTENER = "CONTROLLER"
#: A name that leads to a node wherever it has moved to.
BOOTSTRAP_PORT = 8000
#: One seed of so many writes its logs with the house's own code; the others have a model of it.
REAL_LOG_EVERY = 8
CALM = Weather(append_interval_ms=100.0)
#: A phase of trouble itself, as a fault: suppressed, the calm before it goes on.
TROUBLE = "trouble"
#: How often a calm phase looks whether it has been proved.
POLL_MS = 50.0


@dataclass
class Outcome:
    """What one seed did. ``digest`` tells two runs apart."""

    seed: int
    events: int
    simulated_ms: float
    digest: int
    counts: Counter[str]
    violation: Violation | None = None
    lines: list[str] = field(default_factory=list)
    #: The faults that happened: their numbers and names.
    injected: list[tuple[int, str]] = field(default_factory=list)
    node_count: int = 0


def build(
    seed: int,
    make_node: Callable[..., Node] = Node,
    *,
    random: Random | None = None,
    most_nodes: int | None = None,
) -> tuple[Cluster, Faults]:
    """The cluster of a seed, nothing started yet; drawn from ``random`` where one is given, and of
    its nodes only the first ``most_nodes``.
    """
    random = random or Random(seed)
    voter_count = random.choices((1, 2, 3, 4, 5), (2, 2, 5, 2, 4))[0]
    observer_count = random.choices((0, 1, 2, 3, 4, 5), (3, 3, 3, 1, 1, 1))[0]
    is_dynamic = random.random() < 0.65
    ids = range(1, voter_count + observer_count + 1)
    directories = {id: new_directory(random) for id in ids}
    endpoints = {id: Endpoint(LISTENER, f"n{id}", 9000 + id) for id in ids}
    may_vote = {id: id <= voter_count or random.random() < 0.7 for id in ids}
    if most_nodes is not None:
        ids = ids[:most_nodes]
    voters = VoterSet(
        Voter(
            ReplicaKey(id, directories[id] if is_dynamic else None),
            (endpoints[id],),
            VersionRange(0, 1 if is_dynamic else 0),
        )
        for id in ids
        if id <= voter_count
    )
    history = History(voters if is_dynamic else None, 1 if is_dynamic else 0)
    cluster = Cluster(random, history, make_node)
    new_storage = LogStorage if seed % REAL_LOG_EVERY == 0 else Storage
    # Static voters are enough to find each other, until they are no longer the voters.
    has_bootstrap = is_dynamic or random.random() < 0.6
    is_skewed = random.random() < 0.4
    linger_ms = random.choice((0, 0, 5, 25))
    fetch_max_bytes = random.choice((300, 2000, 8 * 1024 * 1024))
    # Without a leader nodes ask each other for one as often as this lets them.
    retry_backoff_ms = random.choice((20, 100, 250))
    is_old_around = random.random() < 0.1
    is_auto_joining = random.random() < 0.3
    for id in ids:
        config = RaftConfig(
            node_id=id,
            directory_id=directories[id],
            cluster_id=CLUSTER_ID,
            listener=LISTENER,
            endpoints=(endpoints[id],) if may_vote[id] else (),
            static_voters=VoterSet() if is_dynamic else voters,
            bootstrap_servers=tuple(
                Endpoint(LISTENER, f"bootstrap{other}", BOOTSTRAP_PORT + other)
                for other in ids
                if has_bootstrap and may_vote[other] and other != id
            ),
            can_vote=may_vote[id],
            auto_join=is_auto_joining and may_vote[id],
            append_linger_ms=linger_ms,
            retry_backoff_ms=retry_backoff_ms,
            fetch_max_bytes=fetch_max_bytes,
            fetch_snapshot_max_bytes=fetch_max_bytes,
        )
        storage = new_storage(id, history, config.static_voters)
        if is_dynamic and id <= voter_count:
            content = snapshot_content(BOOTSTRAP_SNAPSHOT)
            storage.snapshots[BOOTSTRAP_SNAPSHOT] = Snapshot(content, history.root)
        machine = Machine(config, storage)
        machine.clock_base += random.random() * 600_000.0
        if is_skewed:
            machine.clock_rate = 0.96 + random.random() * 0.08
        machine.knows_pre_vote = not (is_old_around and random.random() < 0.3)
        cluster.add(machine, BOOTSTRAP_PORT + id)
    return cluster, Faults(cluster, new_storage)


class Phases:
    """Faults and calm in turn, until ``event_limit`` events have happened and a calm has passed."""

    #: How long faults come, at least and at most, and the mean times between them.
    trouble_ms = (1500.0, 9000.0)
    between_faults_ms = (150.0, 400.0, 1000.0)

    def __init__(self, cluster: Cluster, faults: Faults, event_limit: int) -> None:
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
        """All faults stop."""
        if phase is not None and phase != self._phase:
            return
        cluster = self.cluster
        self._phase += 1
        cluster.weather = CALM
        self.faults.heal()
        self._calm_since = cluster.now
        cluster.expect_commit(self.faults.absent)
        cluster.at(cluster.now + POLL_MS, self._poll)

    def _is_proved(self) -> bool:
        """Whether the calm has shown what it is there for."""
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
        number = cluster.fault_number = self._troubles * NUMBERS_OF_A_PHASE
        if not cluster.is_injected(number, TROUBLE):
            # The calm goes on, and the next trouble is tried.
            cluster.at(cluster.now + POLL_MS, self._poll)
            return
        cluster.history.era += 1
        self._phase += 1
        cluster.is_calm = False
        cluster.draw_as(TROUBLE, number)
        random = cluster.random
        cluster.weather = random_weather(random, self._chance)
        cluster.at(cluster.now + random.uniform(*self.trouble_ms), self.calm_down, self._phase)
        self.faults.begin(random.choice(self.between_faults_ms))

    def _chance(self, name: str, chance: float) -> float:
        """That of a trouble of messages, where it is not suppressed."""
        number = self.cluster.next_fault()
        return chance if chance and self.cluster.is_injected(number, name) else 0.0

    def _client(self, _a: None = None, _b: None = None, _c: None = None) -> None:
        cluster = self.cluster
        draw = cluster.draw()
        cluster.at(cluster.now + cluster.weather.append_interval_ms * (0.5 + draw), self._client)
        if cluster.events >= self.event_limit and not cluster.is_calm:
            self.calm_down()
        leader = cluster.leader() if draw < 0.8 else self._any_leader()
        if leader is not None:
            cluster.append(leader)
            if draw < 0.1 and leader.is_up and leader.role == 3:
                cluster.append(leader)

    def _any_leader(self) -> Machine | None:
        """A leader of any epoch: one that does not know yet that it is none any more."""
        now = self.cluster.now
        for machine in self.cluster.machines.values():
            if machine.is_up and machine.role == 3 and machine.paused_until <= now:
                return machine
        return None


def random_weather(random: Random, allow: Callable[[str, float], float]) -> Weather:
    """How network and disks are in a phase of trouble; ``allow`` has the last word on chances."""
    loss = random.choice((0.0, 0.0, 0.01, 0.05, 0.2))
    duplication = random.choice((0.0, 0.01, 0.05))
    delay = random.choice((0.0, 0.005, 0.03))
    weather = Weather(
        latency_ms=random.choice((0.1, 0.5, 5.0)),
        spread_ms=random.choice((0.5, 3.0, 20.0)),
        sync_ms=random.choice((0.2, 0.5, 4.0)),
        append_interval_ms=random.choice((10.0, 30.0, 100.0, 300.0)),
        damage=allow("damage", random.choice((0.0, 0.0, 0.02))),
    )
    weather.loss = allow("loss", loss)
    weather.duplication = weather.loss + allow("duplication", duplication)
    weather.trouble = weather.duplication + allow("delay", delay)
    return weather


def run_seed(
    seed: int,
    event_limit: int,
    *,
    is_traced: bool = False,
    make_node: Callable[..., Node] = Node,
    prepare: Callable[[Cluster], None] | None = None,
    tape: Tape | None = None,
    most_nodes: int | None = None,
    suppressed: Suppressed = NOTHING,
) -> Outcome:
    """Runs one seed; a violation is in the outcome, everything else that goes wrong is one too."""
    cluster, faults = build(seed, make_node, random=tape, most_nodes=most_nodes)
    cluster.suppressed = suppressed
    if is_traced:
        cluster.lines = []
    if prepare is not None:
        prepare(cluster)
    return run_phases(seed, cluster, Phases(cluster, faults, event_limit))


def run_phases(seed: int, cluster: Cluster, phases: Phases) -> Outcome:
    """Runs a cluster that was built, to the end of its phases or the first violation."""
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
    except Exception as error:  # Whatever a node raises ends its process.
        violation = Violation("no_exception_escapes", "".join(format_exception(error)[-6:]))
    finally:
        if was_collecting:
            gc.enable()
    counts = cluster.counts
    counts += cluster.history.counts
    digest = crc32(
        repr(
            (cluster.events, cluster.now, cluster.history.committed, sorted(counts.items()))
        ).encode()
    )
    return Outcome(
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
