"""Scenario of a seed for a whole cluster: quorum, controllers, brokers and clients.

The phases are those of `scenario`. In a calm phase the quorum must commit again, every dead broker
must be fenced and every live one unfenced; then all operations and their outcomes are checked.
Chunks of large operations are small here, so that a transaction has many chunks and a seed many
transactions. Commands and tests call `run_seed`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

from kraft import records
from kraft.controller.runtime.settings import ControllerSettings
from kraft.controller.state import ELR_FEATURE, DecisionSettings
from kraft.image.snapshot_generation import SliceSize, SnapshotGeneration
from kraft.raft.interface import Resign, Role, SnapshotStored
from kraft.raft.log_view import BOOTSTRAP_SNAPSHOT
from kraft.raft.node import Node
from kraft.raft.rpc import OffsetAndEpoch
from kraft.records import Record
from kraft.records.versions import LATEST_PRODUCTION, METADATA_VERSION, MetadataVersion
from kraft.simulation.batch_tree import Violation
from kraft.simulation.brokers import SimulatedBroker
from kraft.simulation.clients import Client, Histories
from kraft.simulation.controllers import SimulatedController
from kraft.simulation.environment import Finder
from kraft.simulation.faults import Faults
from kraft.simulation.ledger import LedgerTree, partitions_of
from kraft.simulation.machine import Machine
from kraft.simulation.members import BOOTSTRAP_PORT, draw_members, new_machine
from kraft.simulation.scenario import Phases, SimulationScenario
from kraft.simulation.state_storage import StateStorage, load_snapshot
from kraft.simulation.whole_cluster import WholeCluster

#: The name of the chunk size in the modules of the controller.
CHUNK_SIZE_NAME = "MAX_RECORDS_PER_BATCH"
#: The records of a chunk, instead of 10,000.
RECORDS_PER_CHUNK = 12
FIRST_BROKER = 101
FIRST_CLIENT = 201


@contextmanager
def small_chunks() -> Iterator[None]:
    """Limit the chunks of large operations to a dozen records."""
    changed = []
    for name, module in list(sys.modules.items()):
        is_core = name.endswith((".quorum_controller", ".decision"))
        if name.startswith("kraft.controller.") and not is_core:
            size = vars(module).get(CHUNK_SIZE_NAME)
            if size is not None:
                changed.append((module, size))
                vars(module)[CHUNK_SIZE_NAME] = RECORDS_PER_CHUNK
    try:
        yield
    finally:
        for module, size in changed:
            vars(module)[CHUNK_SIZE_NAME] = size


class WholeFaults(Faults):
    """The faults of the quorum, and those of brokers and controllers."""

    cluster: WholeCluster

    def __init__(self, cluster: WholeCluster) -> None:
        super().__init__(cluster, StateStorage)
        table: list[tuple[int, Callable[[], None]]] = [
            (12, self.crash_one),
            (14, self.crash_leader),
            (1, self.crash_all),
            (6, self.cut_in_two),
            (7, self.isolate_leader),
            (4, self.cut_one_way),
            (2, self.reconnect),
            (3, self.slow_disk),
            (2, self.full_disk),
            (6, self.pause),
            (12, self.snapshot),
            (8, self.clean_snapshots),
            (6, self.change_voters),
            (2, self.upgrade),
            (8, self.resign),
            (4, self.shut_down),
            (3, self.wipe_observer),
            (3, self.replace_disk),
            (3, self.fall_sick),
            (16, self.kill_broker),
            (8, self.stop_broker),
            (4, self.lose_directory),
            (5, self.cut_broker_off),
            (8, self.refuse_append),
            (24, self.lie_in_ambush),
        ]
        self._weights = self._busy_weights = [weight for weight, _ in table]
        self._faults = [fault for _, fault in table]

    # -- brokers

    def _any_broker(self) -> SimulatedBroker | None:
        up = [broker for broker in self.cluster.brokers.values() if broker.is_up]
        return self.random.choice(up) if up else None

    def kill_broker(self) -> None:
        broker = self._any_broker()
        if broker is not None:
            broker.die()
            self._return_later(broker)

    def stop_broker(self) -> None:
        broker = self._any_broker()
        if broker is not None:
            broker.stop()
            self._return_later(broker)

    def lose_directory(self) -> None:
        broker = self._any_broker()
        if broker is not None:
            broker.lose_directory()
            self._return_later(broker)

    def _return_later(self, broker: SimulatedBroker) -> None:
        """Start a broker again: soon, within its session, or late, even after the calm phase."""
        longest_ms = self.random.choice((500.0, 4_000.0, 40_000.0))
        wait_ms = 10.0 + self.random.random() * longest_ms
        self.cluster.at(self.cluster.now + wait_ms, self._return, broker)

    def _return(self, broker: SimulatedBroker, _b: None = None, _c: None = None) -> None:
        if not broker.is_up:
            broker.start()
        elif broker.is_stopping:
            self._return_later(broker)

    def cut_broker_off(self) -> None:
        broker = self._any_broker()
        if broker is not None:
            self.cluster.counts["brokers_cut_off"] += 1
            for id in self.cluster.machines:
                self.cluster.blocked.add((broker.id, id))
                if self.random.random() < 0.7:
                    self.cluster.blocked.add((id, broker.id))
            self._reconnect_later(14_000.0)

    # -- controllers

    def refuse_append(self) -> None:
        """Make the raft layer reject the active controller's next append (KAFKA-13104)."""
        machine = self.cluster.leader()
        if machine is not None:
            self.cluster.refusing.add(machine.id)

    def lie_in_ambush(self) -> None:
        """Crash, resign or pause the next controller in a transaction; resign one that aborts."""
        self.cluster.ambush_waits_for_abort = self.random.random() < 0.5
        self.cluster.ambush = self._resign_it
        if not self.cluster.ambush_waits_for_abort:
            self.cluster.ambush = self.random.choice(
                (self._crash_it, self._crash_it, self._resign_it, self._pause_it)
            )

    def _crash_it(self, machine: Machine) -> None:
        self.cluster.crash(machine)
        self._restart_later(machine)

    def _resign_it(self, machine: Machine) -> None:
        if machine.role is Role.LEADER:
            machine.is_asked_to_leave = True
            self.cluster.step(machine, Resign(machine.epoch))

    def _pause_it(self, machine: Machine) -> None:
        machine.pause(self.cluster.now + 1_000.0 + self.random.random() * 5_000.0)

    def _die_in_a_failover(self) -> None:
        """Kill a broker together with the controller that knows it is alive (KAFKA-18138)."""
        broker, machine = self._any_broker(), self.cluster.leader()
        if broker is not None and machine is not None:
            self.cluster.counts["deaths_in_a_failover"] += 1
            broker.die()
            self.cluster.at(self.cluster.now + 30_000.0, self._return, broker)
            self.cluster.crash(machine)

    def heal(self) -> None:
        self.cluster.ambush = None
        self.cluster.refusing.clear()
        number = self.cluster.next_fault()
        self.cluster.draw_as("fault", number)
        if self.random.random() < 0.7 and self.cluster.is_injected(number, "die_in_a_failover"):
            self._die_in_a_failover()
        super().heal()

    def snapshot(self) -> None:
        """Begin a snapshot of the published image of a node, slice by slice."""
        machine = self._any_up()
        cluster = self.cluster
        if machine is None or machine.paused_until > cluster.now:
            return
        runner = cluster.controllers[machine.id]
        image, storage = runner.images.image, machine.storage
        latest = next(reversed(storage.snapshots), BOOTSTRAP_SNAPSHOT)
        if (
            image is None
            or not image.is_batch_aligned
            or image.offset <= latest.offset
            or METADATA_VERSION not in image.state.features
        ):
            return
        cluster.controller_checks.snapshot(runner, image.offset)
        slices = SliceSize(steps=40, records=4, bytes=400, keys=3)
        generation = SnapshotGeneration(image, timestamp_ms=0, slice_size=slices)
        self._make_slice(runner, generation, [])

    def _make_slice(
        self, runner: SimulatedController, generation: SnapshotGeneration, made: list[bytes]
    ) -> None:
        """Make the next slice of a snapshot; store the snapshot after the last one."""
        cluster, machine = self.cluster, runner.machine
        if not runner.is_alive() or runner.is_loading:
            return
        pieces = generation.next_slice()
        if pieces is not None:
            made += [bytes(piece) for piece in pieces]
            wait_ms = cluster.draw() * 10.0
            cluster.at(cluster.now + wait_ms, self._make_slice, runner, generation, made)
            return
        storage, offset = machine.storage, generation.end_offset
        assert isinstance(storage, StateStorage)
        entry = storage.entry_at(offset - 1)
        latest = next(reversed(storage.snapshots), BOOTSTRAP_SNAPSHOT)
        if entry is None or offset <= latest.offset or machine.verified_offset < offset:
            # The log begins after the snapshot by now.
            return
        if (entry.end_offset, entry.epoch) != (offset, generation.epoch):
            raise Violation(
                "a_snapshot_ends_with_a_batch", f"{generation.epoch} {offset}, in the log {entry}"
            )
        id = storage.add_state(entry, b"".join(made))
        self._check_content(id)
        cluster.counts["snapshots_made"] += 1
        cluster.step(machine, SnapshotStored(id, len(storage.snapshots[id].content)))

    def _check_content(self, id: OffsetAndEpoch) -> None:
        """Check that all snapshots of the same batches contain the same state."""
        first, *others = self.cluster.tree.made[id]
        state = load_snapshot(first, id.offset)
        for other in others:
            again = load_snapshot(other, id.offset)
            if again.state != state.state or partitions_of(again) != partitions_of(state):
                raise Violation("snapshot_is_whole", f"{id} holds two different states")


def random_of(seed: int) -> int:
    """Return the seed of the random source of a whole cluster."""
    return seed * 7919 + 1


def build(
    seed: int,
    make_node: Callable[..., Node] = Node,
    *,
    random: Random | None = None,
    max_nodes: int | None = None,
) -> tuple[WholeCluster, WholeFaults]:
    """Build the cluster of a seed, with nothing started; see `scenario.build`."""
    random = random or Random(random_of(seed))
    voter_count = random.choices((1, 2, 3, 4, 5), (2, 1, 8, 1, 3))[0]
    observer_count = random.choices((0, 1, 2), (4, 3, 1))[0]
    members = draw_members(random, voter_count, observer_count, max_nodes)
    tree = LedgerTree(members.voters if members.is_dynamic else None, members.kraft_version)
    cluster = WholeCluster(random, tree, *_settings(random), make_node)
    cluster.run_cost_ms = random.choice((0.02, 0.1, 0.1, 1.0, 8.0))
    is_skewed = random.random() < 0.4
    linger_ms = random.choice((0, 0, 5, 25))
    fetch_max_bytes = random.choice((2000, 8 * 1024 * 1024))
    for id in members.ids:
        config = members.settings_of(
            id,
            has_bootstrap=True,
            append_linger_ms=linger_ms,
            fetch_max_bytes=fetch_max_bytes,
            fetch_snapshot_max_bytes=fetch_max_bytes,
        )
        storage = StateStorage(id, tree, config.static_voters)
        if members.is_dynamic and id <= voter_count:
            storage.add_bootstrap(members.voters)
        machine = new_machine(random, config, storage, is_skewed=is_skewed)
        cluster.add(machine, BOOTSTRAP_PORT + id)
    for number in range(random.randint(3, 5)):
        id = FIRST_BROKER + number
        cluster.brokers[id] = SimulatedBroker(cluster, id, Finder(cluster), cluster.brokers)
    return cluster, WholeFaults(cluster)


def _settings(random: Random) -> tuple[ControllerSettings, tuple[Record, ...]]:
    """Draw the settings of the controllers and the bootstrap records."""
    decisions = DecisionSettings(
        min_insync_replicas=random.choice((1, 1, 2)),
        unclean_leader_election_enable=random.random() < 0.2,
    )
    session_ms = random.choice((6_000, 9_000))
    settings = ControllerSettings(
        decisions=decisions,
        session_timeout_ms=session_ms,
        leader_imbalance_check_interval_ms=random.choice((None, 2_000)),
        unclean_leader_election_interval_ms=random.choice((None, 3_000)),
        max_transaction_ms=random.choice((40, 300, 3_000)),
        min_dead_rows=1,
    )
    level = random.choice((LATEST_PRODUCTION.value, MetadataVersion.IBP_3_7_IV2.value))
    bootstrap: list[Record] = [records.FeatureLevel(name=METADATA_VERSION, feature_level=level)]
    if level == LATEST_PRODUCTION.value and random.random() < 0.6:
        bootstrap.append(records.FeatureLevel(name=ELR_FEATURE, feature_level=1))
    return settings, tuple(bootstrap)


class WholePhases(Phases):
    """Phases of trouble and calm, with brokers and clients."""

    cluster: WholeCluster
    trouble_ms = (3_000.0, 20_000.0)
    between_faults_ms = (100.0, 250.0, 600.0)
    #: The clients of a whole cluster act by themselves.
    _client = Phases._end_at_limit

    def __init__(self, cluster: WholeCluster, faults: WholeFaults, event_limit: int) -> None:
        super().__init__(cluster, faults, event_limit)
        self.histories = Histories(cluster)
        random = cluster.random
        large = random.choice((1, 1, 2))
        self.clients = [
            Client(
                cluster,
                self.histories,
                FIRST_CLIENT + number,
                Finder(cluster),
                cluster.brokers,
                is_large=number < large,
            )
            for number in range(large + random.randint(2, 4))
        ]

    def start(self) -> None:
        cluster = self.cluster
        for broker in cluster.brokers.values():
            cluster.at(cluster.draw() * 3_000.0, broker.start)
        for client in self.clients:
            cluster.at(cluster.draw() * 1_000.0, client.act)
        super().start()

    def _is_proved(self) -> bool:
        cluster = self.cluster
        if not super()._is_proved():
            return False
        waiting = cluster.controller_checks.brokers_to_wait_for(self._calm_since)
        if waiting:
            return False
        ledger = cluster.ledger
        behind = [
            runner
            for runner in cluster.controllers.values()
            if runner.controller.cluster.next_offset == ledger.end_offset
        ]
        for runner in behind:
            cluster.controller_checks.compare(runner)
        self.histories.check()
        return True

    def totals(self) -> Counter[str]:
        ledger = self.cluster.ledger
        return Counter(
            transactions=ledger.transaction_count,
            aborted_transactions=ledger.abort_count,
            producer_id_blocks=self.cluster.blocks.count,
        )


run_seed = SimulationScenario(build, WholePhases, small_chunks).run_seed
