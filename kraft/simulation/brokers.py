"""Simulated brokers: they register, send heartbeats, follow the metadata, lead, die and return.

A broker sends its requests through the faulty network to the machine that it believes to be the
controller: the registration of each incarnation, a heartbeat every two seconds, fetches of the
committed log into its own metadata state, AlterPartition for followers that do or do not keep up,
AllocateProducerIds, controlled shutdown. `whole_scenario` starts and kills brokers. The responses
are checked here; the invariants by name:

stale_brokers_are_refused, an_isr_has_living_members, stale_leaders_are_refused,
the_same_incarnation_keeps_its_epoch, no_acknowledged_operation_is_lost,
producer_ids_are_allocated_once, no_part_of_a_transaction_is_visible.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from kraft.controller.brokers.broker_lifecycle import RegistrationRequest
from kraft.controller.brokers.heartbeats import BrokerHeartbeatReply
from kraft.controller.brokers.producer_ids import ProducerIdBlock
from kraft.controller.brokers.sessions import Heartbeat
from kraft.controller.decision import Decision
from kraft.controller.runtime import requests
from kraft.controller.runtime.operations import DecisionContext, Operation, OperationResult
from kraft.controller.topics.isr_changes import EncodedAlterPartition, IsrChange
from kraft.errors import KraftError, NotControllerError, StaleBrokerEpochError
from kraft.image import NodeEndpoint, VersionRange
from kraft.image.replay import MetadataState
from kraft.raft.rpc import LogSlice
from kraft.records import PartitionChange, Uuid
from kraft.records.versions import LATEST_PRODUCTION
from kraft.simulation.batch_tree import Violation
from kraft.simulation.environment import ControllerApi, Environment, Finder, OnAnswer
from kraft.simulation.guarded_operations import guarded
from kraft.simulation.state_storage import StateStorage, load_snapshot

FEATURES = {
    "metadata.version": VersionRange(7, LATEST_PRODUCTION.value),
    "eligible.leader.replicas.version": VersionRange(0, 1),
    "group.version": VersionRange(0, 1),
    "transaction.version": VersionRange(0, 2),
    "kraft.version": VersionRange(0, 1),
}
HEARTBEAT_MS = 2_000.0
FETCH_MS = 200.0
ISR_MS = 700.0
READ_SIZE = 32 * 1024
#: How many of its partitions a leader checks at once.
PARTITIONS_PER_CHECK = 8


class SimulatedBroker:
    """One broker. ``life`` numbers its processes, so that actions of an old one are ignored."""

    def __init__(
        self, cluster: Environment, id: int, finder: Finder, peers: Mapping[int, SimulatedBroker]
    ) -> None:
        self.cluster = cluster
        self.id = id
        self.finder = finder
        #: All brokers of the cluster by id.
        self._peers = peers
        self.life = 0
        self.is_up = False
        self.is_stopping = False
        self.epoch = -1
        self.up_since = 0.0
        #: The epoch of the previous incarnation if it stopped cleanly.
        self.previous_epoch = -1
        self.incarnation_id = Uuid(bytes(16))
        self.directories: list[Uuid] = []
        self.offline: list[Uuid] = []
        #: Its metadata state. All of it is committed, so that a restart keeps it.
        self.view = MetadataState(journaling=True)
        self.follower_epochs: dict[int, int] = {}
        #: The previous epochs of followers: a fetch may arrive late.
        self.late_epochs: dict[int, int] = {}
        self._stop_by = 0.0
        self._awaits: float | None = None
        #: A late registration of an earlier incarnation has replaced this one's.
        self._is_replaced = False

    def __repr__(self) -> str:
        return f"b{self.id}"

    def describe(self) -> str:
        return (
            f"epoch {self.epoch}, asks n{self.finder.target}, knows what is before "
            f"{self.view.next_offset}, {len(self.offline)} directories offline"
        )

    @property
    def wants_to_be_up(self) -> bool:
        return self.is_up and not self.is_stopping

    def is_alive(self, epoch: int) -> bool:
        """Return whether the incarnation that was registered with this epoch runs."""
        return self.is_up and self.epoch == epoch

    # -- life and death

    def start(self, _a: None = None, _b: None = None, _c: None = None) -> None:
        if self.is_up:
            return
        cluster, random = self.cluster, self.cluster.random
        self.life += 1
        self.is_up, self.is_stopping = True, False
        self.up_since = cluster.now
        if self.epoch >= 0 and cluster.draw() < 0.5:
            # Requests of the earlier incarnation are still in the network.
            for _ in range(3):
                late = cluster.now + cluster.draw() * 14_000.0
                cluster.at(late, self._send_late, self.epoch)
        self.epoch = -1
        self.incarnation_id = Uuid(b"\4" + random.randbytes(15))
        kept = [each for each in self.directories if each not in self.offline]
        while len(kept) < 2:
            kept.append(Uuid(b"\5" + random.randbytes(15)))
        self.directories, self.offline = kept, []
        self.follower_epochs.clear()
        self._awaits, self._is_replaced = None, False
        cluster.counts["broker_starts"] += 1
        self._note("starts")
        self._register(self.life)
        self._fetch(self.life)
        cluster.at(cluster.now + cluster.draw() * ISR_MS, self._look_at_isrs, self.life)

    def die(self) -> None:
        """Stop without a shutdown; the broker forgets its last epoch."""
        if self.is_up:
            self._note("dies")
            self.cluster.counts["broker_deaths"] += 1
            self.previous_epoch = -1
            self._down()

    def stop(self) -> None:
        """Begin a controlled shutdown, which ends when other brokers lead its partitions."""
        if self.is_up and not self.is_stopping and self.epoch >= 0:
            self._note("wants to shut down")
            self.is_stopping = True
            self._stop_by = self.cluster.now + 15_000.0
            self._beat_soon(1.0)

    def lose_directory(self) -> None:
        if self.is_up and self.epoch >= 0:
            online = [each for each in self.directories if each not in self.offline]
            self.cluster.counts["lost_directories"] += 1
            if len(online) == 1:
                self.die()
            elif online:
                self.offline.append(self.cluster.random.choice(online))

    def _down(self) -> None:
        self.life += 1
        self.is_up = self.is_stopping = False

    # -- registration

    def _register(self, life: int, _b: None = None, _c: None = None) -> None:
        """Send a registration, and repeat it until it succeeds."""
        if life != self.life:
            return
        cluster = self.cluster
        request = RegistrationRequest(
            self.id,
            self.incarnation_id,
            endpoints=[NodeEndpoint("PLAINTEXT", f"b{self.id}", 9092, 0)],
            features=FEATURES,
            rack=f"rack-{self.id % 3}",
            log_dirs=[each for each in self.directories if each not in self.offline],
            previous_broker_epoch=self.previous_epoch,
        )

        def guard(context: DecisionContext, epoch: int) -> None:
            if life != self.life:
                cluster.counts["late_registrations"] += 1
                self._is_replaced = True

        def submit(runner: ControllerApi, on_answer: OnAnswer) -> None:
            runner.submit(guarded(requests.register_broker(request), guard), on_answer, 3_000.0)

        def registered(response: Any, error: KraftError | None, epoch: int) -> None:
            if life != self.life:
                return
            if error is None:
                self._is_registered(response)
            elif isinstance(error, NotControllerError):
                self.finder.try_next()
            else:
                cluster.counts[f"registration_{type(error).__name__}"] += 1

        cluster.call(self.id, self.finder.target, submit, registered)
        cluster.at(cluster.now + 600.0 + cluster.draw() * 400.0, self._register_again, life)

    def _register_again(self, life: int, _b: None = None, _c: None = None) -> None:
        if life == self.life and self.epoch < 0:
            if self.cluster.draw() < 0.3:
                self.finder.try_next()
            self._register(life)

    def _is_registered(self, epoch: int) -> None:
        if self.epoch < 0:
            self.epoch = epoch
            self._note(f"has epoch {epoch}")
            self._beat_soon(0.0)
        elif self.epoch != epoch and not self._is_replaced:
            raise Violation(
                "the_same_incarnation_keeps_its_epoch", f"{self} had {self.epoch} and got {epoch}"
            )
        else:
            self.cluster.counts["amended_registrations"] += 1

    # -- heartbeats

    def _beat_soon(self, delay: float) -> None:
        self.cluster.at(self.cluster.now + delay, self._beat, self.life)

    def _beat(self, life: int, _b: None = None, _c: None = None) -> None:
        if life != self.life:
            return
        cluster = self.cluster
        self._beat_soon(500.0 if self.is_stopping else HEARTBEAT_MS)
        if self.is_stopping and cluster.now > self._stop_by:
            self.die()
            return
        if self._awaits is not None and cluster.now < self._awaits:
            return
        if self._awaits is not None:
            self.finder.try_next()
        draw = cluster.draw()
        if draw < 0.04:
            self._register(life)
        elif draw < 0.3:
            self._allocate(life)
        self._send_heartbeat(life)

    def _send_heartbeat(self, life: int) -> None:
        cluster, epoch = self.cluster, self.epoch
        self._awaits = cluster.now + 4_500.0
        beat = Heartbeat(
            self.id,
            epoch,
            metadata_offset=self.view.stable_offset - 1,
            wants_shutdown=self.is_stopping,
            offline_log_dirs=tuple(self.offline),
        )

        def guard(context: DecisionContext, answer: BrokerHeartbeatReply) -> None:
            self._check_epoch(context, epoch)

        def submit(runner: ControllerApi, on_answer: OnAnswer) -> None:
            operation = guarded(requests.broker_heartbeat(beat), guard)
            runner.submit_heartbeat(operation, self.id, epoch, on_answer, 4_500.0)

        def answered(answer: Any, error: KraftError | None, controller_epoch: int) -> None:
            if life != self.life:
                return
            self._awaits = None
            if error is None:
                if answer.should_shut_down and self.is_stopping:
                    self._note("shuts down")
                    cluster.counts["controlled_shutdowns"] += 1
                    self.previous_epoch = self.epoch
                    self._down()
                elif answer.is_fenced and answer.is_caught_up:
                    self._beat_soon(100.0)
            elif isinstance(error, NotControllerError):
                self.finder.try_next()
                cluster.at(cluster.now + 100.0, self._beat_again, life)
            elif isinstance(error, StaleBrokerEpochError):
                if self._is_replaced:
                    self.epoch, self._is_replaced = -1, False
                    self._register(life)
                elif cluster.is_newest_controller(controller_epoch):
                    raise Violation(
                        "no_acknowledged_operation_is_lost",
                        f"{self} was registered with epoch {self.epoch}: {error}",
                    )
            else:
                cluster.counts[f"heartbeat_{type(error).__name__}"] += 1

        cluster.call(self.id, self.finder.target, submit, answered)

    def _send_late(self, epoch: int, _b: None = None, _c: None = None) -> None:
        """Send a heartbeat and another request of an earlier incarnation."""
        beat = Heartbeat(self.id, epoch, metadata_offset=self.view.stable_offset - 1)

        def guard(context: DecisionContext, answer: Any) -> None:
            self._check_epoch(context, epoch)

        def submit(runner: ControllerApi, on_answer: OnAnswer) -> None:
            operation = guarded(requests.broker_heartbeat(beat), guard)
            runner.submit_heartbeat(operation, self.id, epoch, on_answer, 4_500.0)
            runner.submit(guarded(requests.allocate_producer_ids(self.id, epoch), guard), on_answer)

        def answered(answer: Any, error: KraftError | None, controller_epoch: int) -> None:
            if isinstance(error, StaleBrokerEpochError):
                self.cluster.counts["stale_requests_refused"] += 1

        self.cluster.call(self.id, self.finder.target, submit, answered)

    def _beat_again(self, life: int, _b: None = None, _c: None = None) -> None:
        if life == self.life and self._awaits is None:
            self._send_heartbeat(life)

    def _check_epoch(self, context: DecisionContext, epoch: int) -> None:
        """Check that the controller accepts only the registered incarnation (KIP-631)."""
        registration = context.cluster.state.brokers.get(self.id)
        if registration is None or registration.epoch != epoch:
            raise Violation(
                "stale_brokers_are_refused", f"{self} of epoch {epoch} beside {registration}"
            )

    # -- producer ids

    def _allocate(self, life: int) -> None:
        cluster, epoch = self.cluster, self.epoch
        asked = cluster.now

        def guard(context: DecisionContext, block: ProducerIdBlock) -> None:
            self._check_epoch(context, epoch)

        def submit(runner: ControllerApi, on_answer: OnAnswer) -> None:
            operation = guarded(requests.allocate_producer_ids(self.id, epoch), guard)
            runner.submit(operation, on_answer, 3_000.0)

        def answered(block: Any, error: KraftError | None, controller_epoch: int) -> None:
            # The block counts even if the broker has died since.
            if error is None:
                cluster.blocks.take(block, asked, cluster.now)

        cluster.call(self.id, self.finder.target, submit, answered)

    # -- metadata

    def _fetch(self, life: int, _b: None = None, _c: None = None) -> None:
        """Fetch committed records, or a snapshot if the log begins after this broker's state."""
        if life != self.life:
            return
        cluster = self.cluster
        target = self.finder.target if cluster.draw() < 0.7 else cluster.any_machine_id()
        offset = self.view.next_offset

        def arrive() -> None:
            machine = cluster.machines[target]
            storage = machine.storage
            if not machine.is_up or not isinstance(storage, StateStorage):
                return
            high_watermark = min(machine.high_watermark, machine.verified_offset)
            if offset < storage.start_offset:
                latest = next(reversed(storage.snapshots), None)
                if latest is not None and latest.offset > offset:
                    content = storage.snapshots[latest].content
                    cluster.send(target, self.id, self._take_snapshot, life, latest, content)
            elif offset < high_watermark:
                batches = storage.read(LogSlice(offset, high_watermark, READ_SIZE))
                cluster.send(target, self.id, self._take_batches, life, offset, batches)

        cluster.send(self.id, target, arrive)
        cluster.at(cluster.now + FETCH_MS * (0.5 + cluster.draw()), self._fetch, life)

    def _take_batches(self, life: int, offset: int, batches: bytes) -> None:
        if life != self.life or offset != self.view.next_offset:
            return
        self.view.apply(batches, verify_crc=False)
        self.view.forget(self.view.next_offset)
        self._check_view()

    def _take_snapshot(self, life: int, id: Any, content: bytes) -> None:
        if life != self.life or id.offset <= self.view.next_offset:
            return
        self.view = load_snapshot(content, id.offset)
        self.cluster.counts["broker_snapshots"] += 1
        self._check_view()

    def _check_view(self) -> None:
        ledger = self.cluster.ledger
        if ledger.is_inside_transaction(self.view.stable_offset):
            raise Violation(
                "no_part_of_a_transaction_is_visible",
                f"{self} shows what is before {self.view.stable_offset}",
            )

    # -- leading

    def _look_at_isrs(self, life: int, _b: None = None, _c: None = None) -> None:
        """Request ISRs that consist of the followers that keep up."""
        if life != self.life:
            return
        cluster = self.cluster
        cluster.at(cluster.now + ISR_MS * (0.5 + cluster.draw()), self._look_at_isrs, life)
        if self.epoch < 0 or self.view.transaction_start is not None:
            return
        self._hear_followers()
        changes = self._wanted_changes()
        if changes:
            self._alter(changes)

    def _hear_followers(self) -> None:
        """Learn the epochs of the followers whose fetches arrive."""
        for broker in self._peers.values():
            if broker.is_up and broker.epoch >= 0 and self.cluster.draw() < 0.8:
                known = self.follower_epochs.get(broker.id, broker.epoch)
                if known != broker.epoch:
                    self.late_epochs[broker.id] = known
                self.follower_epochs[broker.id] = broker.epoch

    def _wanted_changes(self) -> list[IsrChange]:
        table, cluster = self.view.table, self.cluster
        rows = table.broker_rows(self.id)
        led = rows[table.column("leader")[rows] == self.id]
        if not len(led):
            return []
        changes: list[IsrChange] = []
        topics, partitions = table.column("topic"), table.column("partition")
        for _ in range(PARTITIONS_PER_CHECK if cluster.draw() < 0.8 else 5 * PARTITIONS_PER_CHECK):
            row = int(led[int(cluster.draw() * len(led))])
            state = table.state_of(row)
            isr = {
                follower: self._epoch_of(follower)
                for follower in state["replicas"]
                if follower != self.id and self._keeps_up(follower)
            }
            isr[self.id] = self.epoch
            if set(isr) == set(state["isr"]) and not state["leader_recovery_state"]:
                continue
            change = IsrChange(
                Uuid(table.topic_id_of(int(topics[row]))),
                int(partitions[row]),
                state["leader_epoch"],
                state["partition_epoch"],
                isr,
            )
            if all(
                (change.topic_id, change.partition) != (other.topic_id, other.partition)
                for other in changes
            ):
                changes.append(change)
        return changes

    def _epoch_of(self, follower: int) -> int:
        """Return the epoch of a follower's last fetch, which may be of an earlier incarnation."""
        known = self.follower_epochs[follower]
        return self.late_epochs.get(follower, known) if self.cluster.draw() < 0.3 else known

    def _keeps_up(self, follower: int) -> bool:
        if follower not in self.follower_epochs:
            return False
        broker = self._peers.get(follower)
        is_up = broker is not None and broker.is_up
        # A leader learns late that a follower does not keep up, or does again.
        return is_up if self.cluster.draw() < 0.9 else not is_up

    def _alter(self, changes: Sequence[IsrChange]) -> None:
        cluster, epoch = self.cluster, self.epoch

        def guard(context: DecisionContext, response: Any) -> None:
            self._check_epoch(context, epoch)
            for change in changes:
                answer = response[change.topic_id, change.partition]
                if isinstance(answer, KraftError):
                    cluster.counts[f"isr_{type(answer).__name__}"] += 1
                else:
                    self._check_change(context, change)

        in_bytes = cluster.draw() < 0.3

        def submit(runner: ControllerApi, on_answer: OnAnswer) -> None:
            if in_bytes:
                body = alter_partition_body(self.id, epoch, changes)
                operation = requests.alter_partition_encoded(EncodedAlterPartition(body, 3))
                self._look_at_records(operation, changes)
            else:
                operation = guarded(requests.alter_partition(self.id, epoch, changes), guard)
            runner.submit(operation, on_answer, 3_000.0)

        cluster.call(self.id, self.finder.target, submit, lambda *answer: None)

    def _look_at_records(self, operation: Operation, changes: Sequence[IsrChange]) -> None:
        """Check each record of a request that is decided in parts, as it comes from the network."""
        decide = operation.decide
        asked = {(change.topic_id, change.partition): change for change in changes}

        def decide_and_look(context: DecisionContext) -> OperationResult:
            outcome = decide(context)
            assert isinstance(outcome, Decision)
            self.cluster.counts["isr_parts"] += outcome.is_partial
            for record in outcome.records:
                assert isinstance(record, PartitionChange)
                self._check_change(context, asked[record.topic_id, record.partition_id])
            return outcome

        operation.decide = decide_and_look

    def _check_change(self, context: DecisionContext, change: IsrChange) -> None:
        """Check that an accepted change is the leader's and has live members (KIP-841, KIP-903)."""
        cluster, table = context.cluster, context.cluster.table
        self.cluster.counts["isr_changes"] += 1
        row = table.row_of(table.topic_number_by_id(change.topic_id), change.partition)
        state = table.state_of(row)
        claimed = (self.id, change.leader_epoch, change.partition_epoch)
        if claimed != (state["leader"], state["leader_epoch"], state["partition_epoch"]):
            raise Violation("stale_leaders_are_refused", f"{self}: {change} for {state}")
        for member, epoch in change.isr.items():
            registration = cluster.state.brokers.get(member)
            if registration is None or registration.fenced or registration.epoch != epoch:
                raise Violation(
                    "an_isr_has_living_members", f"{self}: {change} with {registration}"
                )

    def _note(self, what: str) -> None:
        if self.cluster.lines is not None:
            self.cluster.note(f"{self} {what}")


def alter_partition_body(broker_id: int, epoch: int, changes: Sequence[IsrChange]) -> bytes:
    """Encode AlterPartition v3 with one topic a change; fewer than 127 changes."""
    out = struct.pack(">iqB", broker_id, epoch, len(changes) + 1)
    for change in changes:
        out += bytes(change.topic_id) + b"\2"
        out += struct.pack(">iiB", change.partition, change.leader_epoch, len(change.isr) + 1)
        for member, member_epoch in change.isr.items():
            out += struct.pack(">iqx", member, member_epoch)
        out += struct.pack(">bixx", change.is_recovering, change.partition_epoch)
    return out + b"\0"
