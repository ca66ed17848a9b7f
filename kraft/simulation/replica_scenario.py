"""Scenario of a seed for replicated partitions: real controllers, brokers with real replication.

The phases are those of `whole_scenario`. In a calm phase every broker is up again; every partition
with an eligible replica must get a leader, all its replicas must join the ISR and hold the same
records, and every producer must make progress. Commands and tests call `run_seed`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from kraft import records
from kraft.controller.runtime.settings import ControllerSettings
from kraft.controller.state import ELR_FEATURE, DecisionSettings
from kraft.raft.node import Node
from kraft.records import Record
from kraft.records.versions import LATEST_PRODUCTION, METADATA_VERSION
from kraft.simulation.batch_tree import Entry, Violation
from kraft.simulation.environment import Finder
from kraft.simulation.faults import Faults
from kraft.simulation.ledger import LedgerTree
from kraft.simulation.members import BOOTSTRAP_PORT, draw_members, new_machine
from kraft.simulation.replica_brokers import ReplicaBroker, replication_settings
from kraft.simulation.replica_checks import ReplicaChecks
from kraft.simulation.replica_clients import (
    Administrator,
    BrokerAccess,
    VerifiedConsumer,
    VerifiedProducer,
)
from kraft.simulation.replica_log import ReplicaStore
from kraft.simulation.scenario import Phases, SimulationScenario
from kraft.simulation.state_storage import StateStorage
from kraft.simulation.whole_cluster import WholeCluster
from kraft.simulation.whole_scenario import WholeFaults, small_chunks

FIRST_BROKER = 101
FIRST_CLIENT = 201
#: The longest time from the end of the faults until everything is in sync again.
RECOVERY_MS = 120_000.0


class ReplicaTree(LedgerTree):
    """A ledger tree that reports each committed batch to the checks."""

    on_commit: Callable[[], None]

    def commit(self, entry: Entry, epoch: int) -> None:
        super().commit(entry, epoch)
        self.on_commit()


class ReplicaCluster(WholeCluster):
    """A quorum with controllers, brokers that replicate, and clients."""

    def __init__(
        self,
        random: Random,
        tree: ReplicaTree,
        settings: ControllerSettings,
        bootstrap: tuple[Record, ...],
        make_node: Callable[..., Node] = Node,
    ) -> None:
        super().__init__(random, tree, settings, bootstrap, make_node)
        self.replica_brokers: dict[int, ReplicaBroker] = {}
        self.stores: dict[int, ReplicaStore] = {}
        self.replica_checks = ReplicaChecks(self, self.stores)
        tree.on_commit = self.replica_checks.metadata_committed

    def add_broker(self, broker: ReplicaBroker) -> None:
        self.brokers[broker.id] = self.replica_brokers[broker.id] = broker
        self.stores[broker.id] = broker.store


class ReplicaFaults(WholeFaults):
    """The faults of brokers and of the network between them, and a few of the controllers."""

    cluster: ReplicaCluster

    def __init__(self, cluster: ReplicaCluster) -> None:
        super().__init__(cluster)
        table: list[tuple[int, Callable[[], None]]] = [
            (3, self.crash_leader),
            (2, self.isolate_leader),
            (2, self.reconnect),
            (2, self.pause),
            (3, self.snapshot),
            (2, self.clean_snapshots),
            (2, self.resign),
            (14, self.kill_broker),
            (10, self.kill_partition_leader),
            (2, self.kill_two_brokers),
            (1, self.kill_all_brokers),
            (10, self.stop_broker),
            (3, self.lose_directory),
            (4, self.lose_disks),
            (6, self.cut_broker_off),
            (8, self.cut_brokers_apart),
            (6, self.isolate_broker),
            (10, self.pause_broker),
        ]
        self._weights = self._busy_weights = [weight for weight, _ in table]
        self._faults = [fault for _, fault in table]

    def _up_brokers(self) -> list[ReplicaBroker]:
        return [each for each in self.cluster.replica_brokers.values() if each.is_up]

    def _leading_broker(self) -> ReplicaBroker | None:
        """Return a running broker that leads a partition as of the committed metadata."""
        known = list(self.cluster.replica_checks.partitions.values())
        if not known:
            return None
        leader = self.random.choice(known).state["leader"]
        broker = self.cluster.replica_brokers.get(leader)
        return broker if broker is not None and broker.is_up else None

    def kill_partition_leader(self) -> None:
        broker = self._leading_broker()
        if broker is not None:
            self.cluster.counts["killed_partition_leaders"] += 1
            broker.die()
            self._return_later(broker)

    def kill_two_brokers(self) -> None:
        for broker in self._up_brokers()[:2]:
            broker.die()
            self._return_later(broker)

    def kill_all_brokers(self) -> None:
        self.cluster.counts["all_brokers_died"] += 1
        for broker in self._up_brokers():
            broker.die()
            self._return_later(broker)

    def lose_disks(self) -> None:
        up = self._up_brokers()
        if len(up) > 1:
            broker = self.random.choice(up)
            broker.lose_disks()
            self._return_later(broker)

    def _cut(self, one: int, other: int) -> None:
        self.cluster.blocked.add((one, other))
        if self.random.random() < 0.8:
            self.cluster.blocked.add((other, one))

    def cut_brokers_apart(self) -> None:
        up = self._up_brokers()
        if len(up) > 1:
            one, other = self.random.sample(up, 2)
            self._cut(one.id, other.id)
            self.cluster.counts["brokers_cut_apart"] += 1
            self._reconnect_later(8_000.0)

    def isolate_broker(self) -> None:
        """Cut a broker off from all other brokers, not from the controllers or clients."""
        up = self._up_brokers()
        broker = self._leading_broker() or (self.random.choice(up) if up else None)
        if broker is not None:
            for id in self.cluster.brokers:
                if id != broker.id:
                    self._cut(broker.id, id)
            self.cluster.counts["isolated_brokers"] += 1
            self._reconnect_later(12_000.0)

    def pause_broker(self) -> None:
        up = self._up_brokers()
        broker = self._leading_broker() or (self.random.choice(up) if up else None)
        if broker is not None:
            longest_ms = self.random.choice((500.0, 5_000.0, 20_000.0))
            broker.paused_until = self.cluster.now + 50.0 + self.random.random() * longest_ms
            self.cluster.counts["broker_pauses"] += 1

    def heal(self) -> None:
        """End all faults; every broker comes back."""
        self.cluster.refusing.clear()
        Faults.heal(self)
        for broker in self.cluster.replica_brokers.values():
            broker.paused_until = min(broker.paused_until, self.cluster.now)
            if broker.offline:
                # Its directories are replaced while it is down.
                broker.die()
            if not broker.is_up:
                wait_ms = self.random.random() * 3_000.0
                self.cluster.at(self.cluster.now + wait_ms, broker.start)


class ReplicaPhases(Phases):
    """Phases of trouble and calm, with producers, consumers and an administrator."""

    cluster: ReplicaCluster
    trouble_ms = (4_000.0, 30_000.0)
    between_faults_ms = (300.0, 900.0, 3_000.0)
    #: The producers, the consumers and the administrator act by themselves.
    _client = Phases._end_at_limit

    def __init__(self, cluster: ReplicaCluster, faults: ReplicaFaults, event_limit: int) -> None:
        super().__init__(cluster, faults, event_limit)
        brokers, checks = cluster.replica_brokers, cluster.replica_checks
        random = cluster.random
        self.administrator = Administrator(
            BrokerAccess(cluster, FIRST_CLIENT, brokers),
            checks,
            Finder(cluster),
            random.randint(1, 3),
        )
        self.producers = [
            VerifiedProducer(BrokerAccess(cluster, FIRST_CLIENT + 1 + number, brokers), checks)
            for number in range(random.randint(2, 4))
        ]
        self.consumers = [
            VerifiedConsumer(BrokerAccess(cluster, FIRST_CLIENT + 20 + number, brokers), checks)
            for number in range(random.randint(1, 3))
        ]
        self._is_quiet = False

    def start(self) -> None:
        cluster = self.cluster
        for broker in cluster.replica_brokers.values():
            cluster.at(cluster.draw() * 2_000.0, broker.start)
        acts: list[Callable[..., None]] = [self.administrator.act]
        acts += [producer.act for producer in self.producers]
        acts += [consumer.act for consumer in self.consumers]
        for act in acts:
            cluster.at(3_000.0 + cluster.draw() * 1_000.0, act)
        super().start()

    def calm_down(self, phase: int | None = None, _b: None = None, _c: None = None) -> None:
        before = self._phase
        super().calm_down(phase)
        if self._phase != before:
            self._set_quiet(is_quiet=False)
            self.administrator.is_quiet = True

    def _set_quiet(self, *, is_quiet: bool) -> None:
        self._is_quiet = is_quiet
        for producer in self.producers:
            producer.is_quiet = is_quiet
        if not is_quiet:
            self.administrator.is_quiet = False

    def _is_proved(self) -> bool:
        cluster = self.cluster
        if not super()._is_proved():
            return False
        late = cluster.now - self._calm_since > RECOVERY_MS
        waiting = cluster.controller_checks.brokers_to_wait_for(self._calm_since)
        open_partitions = self._open_partitions()
        if not waiting and not open_partitions and not self._is_quiet:
            waiting = [
                f"producer {producer.id} has no acknowledgement"
                for producer in self.producers
                if producer.last_acknowledged_ms < self._calm_since and self._can_produce(producer)
            ]
            if not waiting:
                self._set_quiet(is_quiet=True)
                return False
        is_done = (
            self._is_quiet
            and not waiting
            and not open_partitions
            and all(producer.is_idle for producer in self.producers)
        )
        if not is_done:
            if late:
                raise Violation(
                    "replication_recovers_from_faults",
                    f"after {RECOVERY_MS:.0f} ms: {waiting}, {open_partitions}, "
                    f"{[producer.describe() for producer in self.producers]}",
                )
            return False
        cluster.counts["compared_replicas"] += cluster.replica_checks.compare_all(
            lambda id: cluster.stores[id].logs
        )
        self._set_quiet(is_quiet=False)
        return True

    def _can_produce(self, producer: VerifiedProducer) -> bool:
        target = producer.target
        known = None if target is None else self.cluster.replica_checks.partitions.get(target)
        return known is not None and known.state["leader"] >= 0

    def _open_partitions(self) -> list[str]:
        """Return what the partitions still have to reach."""
        cluster = self.cluster
        found = []
        is_reassigning = False
        for known in cluster.replica_checks.partitions.values():
            state = known.state
            if state["adding_replicas"] or state["removing_replicas"]:
                is_reassigning = True
            if state["leader"] < 0:
                if {*state["isr"], *state["elr"]}:
                    found.append(f"{known} has no leader: {state}")
                else:
                    cluster.counts["partitions_without_eligible_replicas"] += 1
                continue
            if {*state["isr"]} != {*state["replicas"]}:
                missing = {*state["replicas"]} - {*state["isr"]}
                found.append(
                    f"{known} is not in sync: {state}, "
                    f"{[cluster.replica_brokers[id].describe_replica(known.id) for id in missing]}"
                )
                continue
            found += self._difference(known.id, state)
        if is_reassigning:
            self.administrator.cancel_reassignments()
        return found

    def _difference(self, id: Any, state: Any) -> list[str]:
        """Return whether the replicas have different ends or high watermarks."""
        if not self._is_quiet:
            return []
        ends = set()
        for replica in state["replicas"]:
            manager = self.cluster.replica_brokers[replica].manager
            partition = None if manager is None else manager.partitions.get(id)
            if partition is None or partition.log is None:
                return [f"broker {replica} has no {id}"]
            ends |= {partition.high_watermark, partition.log.end_offset}
        return [f"{id} ends at {sorted(ends)}"] if len(ends) > 1 else []

    def totals(self) -> Counter[str]:
        partitions = self.cluster.replica_checks.partitions.values()
        return Counter(acknowledged_in_order=sum(each.acknowledged_count for each in partitions))


def random_of(seed: int) -> int:
    """Return the seed of the random source of a cluster with replication."""
    return seed * 6101 + 2


def build(
    seed: int,
    make_node: Callable[..., Node] = Node,
    *,
    random: Random | None = None,
    max_nodes: int | None = None,
) -> tuple[ReplicaCluster, ReplicaFaults]:
    """Build the cluster of a seed, with nothing started; see `scenario.build`."""
    random = random or Random(random_of(seed))
    voter_count = random.choices((1, 3), (3, 1))[0]
    members = draw_members(random, voter_count, 0, max_nodes)
    tree = ReplicaTree(members.voters if members.is_dynamic else None, members.kraft_version)
    is_elr_on = random.random() < 0.7
    settings = ControllerSettings(
        decisions=DecisionSettings(
            min_insync_replicas=random.choice((1, 2, 2, 2)),
            unclean_leader_election_enable=random.random() < 0.2,
        ),
        session_timeout_ms=random.choice((3_000, 9_000)),
        leader_imbalance_check_interval_ms=random.choice((None, 5_000)),
        unclean_leader_election_interval_ms=random.choice((None, 3_000)),
        max_transaction_ms=1_000,
        min_dead_rows=1,
    )
    bootstrap: list[Record] = [
        records.FeatureLevel(name=METADATA_VERSION, feature_level=LATEST_PRODUCTION.value)
    ]
    if is_elr_on:
        bootstrap.append(records.FeatureLevel(name=ELR_FEATURE, feature_level=1))
    cluster = ReplicaCluster(random, tree, settings, tuple(bootstrap), make_node)
    for id in members.ids:
        config = members.settings_of(id, has_bootstrap=True, append_linger_ms=random.choice((0, 5)))
        storage = StateStorage(id, tree, config.static_voters)
        if members.is_dynamic and id <= voter_count:
            storage.add_bootstrap(members.voters)
        cluster.add(new_machine(random, config, storage, is_skewed=False), BOOTSTRAP_PORT + id)
    replication = replication_settings(random.choice)
    for number in range(random.randint(3, 5)):
        id = FIRST_BROKER + number
        cluster.add_broker(
            ReplicaBroker(
                cluster,
                id,
                Finder(cluster),
                cluster.brokers,
                cluster.replica_checks,
                replication,
            )
        )
    return cluster, ReplicaFaults(cluster)


run_seed = SimulationScenario(build, ReplicaPhases, small_chunks).run_seed
