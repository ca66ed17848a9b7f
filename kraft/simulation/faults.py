"""Faults of a simulated cluster: crashes, network partitions, bad disks, and operators' requests.

`Faults` draws the next fault and injects it; `heal` undoes all faults, so that the cluster must
make progress again. `scenario` begins and ends them.
"""

from __future__ import annotations

from collections.abc import Callable

from kraft.raft.interface import Resign, Role, Shutdown, SnapshotsCleaned, SnapshotStored
from kraft.raft.log_view import BOOTSTRAP_SNAPSHOT
from kraft.raft.rpc import (
    AddRaftVoterRequest,
    BeginQuorumEpochRequest,
    DescribeQuorumRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    OffsetAndEpoch,
    RemoveRaftVoterRequest,
    Request,
    UpdateKRaftVersionRequest,
    VoteRequest,
)
from kraft.raft.voters import Endpoint, ReplicaKey, VoterSet
from kraft.simulation.batch_tree import Violation
from kraft.simulation.cluster import SimulatedCluster
from kraft.simulation.machine import Machine, new_directory
from kraft.simulation.storage import Storage

MAX_VOTERS = 5


class Faults:
    """The faults of one cluster; `begin` starts a phase of faults, `heal` ends it."""

    def __init__(self, cluster: SimulatedCluster, new_storage: type[Storage] = Storage) -> None:
        self.cluster = cluster
        self.new_storage = new_storage
        self.random = cluster.random
        #: Nodes that stay down in a calm phase.
        self.absent: list[Machine] = []
        self._phase = 0
        self._mean_ms = 0.0
        self._has_moved = self._is_on = False
        self._last_removal_at = float("-inf")
        table: list[tuple[int, Callable[[], None]]] = [
            (14, self.crash_one),
            (8, self.crash_leader),
            (2, self.crash_all),
            (8, self.cut_in_two),
            (6, self.isolate_leader),
            (6, self.cut_one_way),
            (2, self.reconnect),
            (5, self.slow_disk),
            (3, self.full_disk),
            (6, self.pause),
            (20, self.snapshot),
            (10, self.clean_snapshots),
            (16, self.change_voters),
            (8, self.upgrade),
            (3, self.resign),
            (4, self.shut_down),
            (4, self.wipe_observer),
            (5, self.replace_disk),
            (4, self.fall_sick),
            (1, self.describe),
            (4, self.strange_request),
        ]
        self._weights = [weight for weight, _ in table]
        self._faults = [fault for _, fault in table]
        #: The weights of a phase in which operators change voters most of the time.
        self._busy_weights = [
            weight * (8 if fault == self.change_voters else 1) for weight, fault in table
        ]
        self._is_busy = False
        cluster.on_stopped = self._restart_later

    def begin(self, mean_ms: float) -> None:
        self._phase += 1
        self._mean_ms = mean_ms
        self._has_moved, self._is_on = False, True
        self._is_busy = self.random.random() < 0.25
        absent, self.absent = self.absent, []
        for machine in absent:
            self._restart_later(machine)
        self._next(self._phase)

    def _next(self, phase: int, _b: None = None, _c: None = None) -> None:
        if phase != self._phase:
            return
        cluster = self.cluster
        number = cluster.next_fault()
        cluster.draw_as("when", number)
        weights = self._busy_weights if self._is_busy else self._weights
        fault = self.random.choices(self._faults, weights)[0]
        is_injected = cluster.is_injected(number, fault.__name__)
        if is_injected:
            cluster.draw_as("fault", number)
            fault()
            cluster.draw_as("when", number)
        wait_ms = self.random.expovariate(1.0 / self._mean_ms)
        if not is_injected and cluster.suppressed.has_next(number):
            wait_ms = 0.0
        cluster.at(cluster.now + wait_ms, self._next, phase)

    def heal(self) -> None:
        """End all faults: paths are open, disks good, all nodes up but the absent ones."""
        self._phase += 1
        self._is_on = False
        cluster = self.cluster
        cluster.blocked.clear()
        cluster.forward()
        number = cluster.next_fault()
        cluster.draw_as("fault", number)
        self.absent = self._choose_absent()
        if self.absent and not cluster.is_injected(number, "absent_nodes"):
            self.absent = []
        cluster.counts["absent_nodes"] += len(self.absent)
        for machine in cluster.machines.values():
            machine.slow_until = machine.sick_until = 0.0
            machine.is_disk_full = False
            machine.paused_until = 0.0
            if machine in self.absent:
                cluster.crash(machine)
            elif not machine.is_up or machine.is_shutting_down:
                cluster.at(cluster.now + cluster.draw() * 100.0, self._restart, machine)

    def _choose_absent(self) -> list[Machine]:
        """Choose nodes that stay down in a calm phase; a majority of every voter set is up."""
        machines = list(self.cluster.machines.values())
        absent: list[Machine] = []
        if self.random.random() < 0.7:
            return absent
        voter_sets = self._voter_sets()
        self.random.shuffle(machines)
        for machine in machines[:2]:
            if machine.config.auto_join or machine.may_become_voter_until >= self.cluster.now:
                # A request to make it a voter may be under way.
                continue
            if self._is_majority_left(voter_sets, [machine, *absent]):
                absent.append(machine)
        return absent

    def _voter_sets(self) -> list[VoterSet]:
        """Return all sets of voters that any node acts by, or may act by after a truncation."""
        voter_sets = []
        for machine in self.cluster.machines.values():
            voter_sets.append(machine.config.static_voters)
            voter_sets += machine.storage.voters_in_force()
            if machine.is_up:
                voter_sets.append(machine.node.log.voters)
        return voter_sets

    def _is_majority_left(self, voter_sets: list[VoterSet], without: list[Machine]) -> bool:
        """Return whether a majority of each set keeps its disks without these machines."""
        machines = self.cluster.machines
        return all(
            2
            * sum(
                voters.is_voter(machines[id].config.replica) and machines[id] not in without
                for id in voters.ids
            )
            > len(voters)
            for voters in voter_sets
            if voters.ids
        )

    def _restart(self, machine: Machine, _b: None = None, _c: None = None) -> None:
        """Start a stopped node; crash and start one whose shutdown takes too long."""
        if (machine.is_up and not machine.is_shutting_down) or machine in self.absent:
            return
        self.cluster.crash(machine)
        if self.random.random() < 0.2:
            # The wall clock was changed meanwhile.
            machine.clock_base += (self.random.random() - 0.5) * 120_000.0
        if self._is_on and self.random.random() < 0.1:
            self._move(machine)
        self.cluster.start(machine)

    def _restart_later(self, machine: Machine) -> None:
        longest_ms = 20.0 if self.random.random() < 0.3 else 5000.0
        wait_ms = 1.0 + self.random.random() ** 2 * longest_ms
        self.cluster.at(self.cluster.now + wait_ms, self._restart, machine)

    def _up(self) -> list[Machine]:
        return [machine for machine in self.cluster.machines.values() if machine.is_up]

    def _any_up(self) -> Machine | None:
        up = self._up()
        return self.random.choice(up) if up else None

    # -- nodes that stop

    def crash_one(self) -> None:
        machine = self._any_up()
        if machine is not None:
            self.cluster.crash(machine)
            self._restart_later(machine)

    def crash_leader(self) -> None:
        machine = self.cluster.leader()
        if machine is not None:
            self.cluster.crash(machine)
            self._restart_later(machine)

    def crash_all(self) -> None:
        self.cluster.counts["power_failures"] += 1
        for machine in self._up():
            self.cluster.crash(machine)
            self._restart_later(machine)

    def shut_down(self) -> None:
        machine = self.cluster.leader() if self.random.random() < 0.5 else self._any_up()
        if machine is not None and not machine.is_shutting_down:
            machine.is_shutting_down = True
            self.cluster.step(machine, Shutdown(timeout_ms=self.random.choice((500, 5000))))
            self._restart_later(machine)

    def wipe_observer(self) -> None:
        """Give an observer a new disk; no quorum needs the old one."""
        cluster = self.cluster
        voting: set[int] = set()
        for machine in cluster.machines.values():
            voters = machine.storage.last.voters
            if voters is not None:
                voting |= voters.ids
            voting |= machine.config.static_voters.ids
            if machine.is_up:
                voting |= machine.node.log.voters.ids
        idle = [
            machine
            for machine in cluster.machines.values()
            if machine.id not in voting and machine.may_become_voter_until < cluster.now
        ]
        if idle:
            self._wipe(self.random.choice(idle))
            cluster.counts["wiped_disks"] += 1

    def replace_disk(self) -> None:
        """Start a voter with an empty disk, as a new replica; operators replace the old one.

        A majority of every voter set keeps its disks.
        """
        cluster = self.cluster
        machines = list(cluster.machines.values())
        if any(machine.config.static_voters.ids for machine in machines):
            return
        if self._last_removal_at > cluster.now - 10_000.0:
            return
        voter_sets = self._voter_sets()
        spare = [
            machine
            for machine in machines
            if machine.may_become_voter_until < cluster.now
            and any(voters.is_voter(machine.config.replica) for voters in voter_sets)
            and self._is_majority_left(voter_sets, [machine])
        ]
        if spare:
            self._wipe(self.random.choice(spare))
            cluster.counts["replaced_disks"] += 1

    def _wipe(self, machine: Machine) -> None:
        cluster = self.cluster
        cluster.crash(machine)
        machine.wipe(
            self.new_storage(machine.id, cluster.tree, machine.config.static_voters),
            new_directory(self.random),
        )
        self._restart_later(machine)

    def fall_sick(self) -> None:
        """Damage all fetch responses of a node, or make them errors; the node does not notice."""
        machine = self.cluster.leader() if self.random.random() < 0.7 else self._any_up()
        if machine is not None:
            machine.answers_errors = self.random.random() < 0.5
            machine.sick_until = self.cluster.now + self.random.random() * 6000.0

    def pause(self) -> None:
        """Suspend a node, as in a long garbage collection or on a suspended machine."""
        machine = self.cluster.leader() if self.random.random() < 0.4 else self._any_up()
        if machine is not None:
            self.cluster.counts["pauses"] += 1
            machine.pause(self.cluster.now + 50.0 + self.random.random() ** 2 * 6000.0)

    # -- disks

    def slow_disk(self) -> None:
        machine = self._any_up()
        if machine is not None:
            self.cluster.counts["slow_disks"] += 1
            machine.slow_until = self.cluster.now + self.random.random() * 4000.0

    def full_disk(self) -> None:
        """Make the next write of a node fail, which stops it."""
        machine = self._any_up()
        if machine is not None:
            machine.is_disk_full = True

    # -- the network

    def cut_in_two(self) -> None:
        ids = list(self.cluster.machines)
        self.random.shuffle(ids)
        half = set(ids[: self.random.randrange(len(ids) + 1)])
        for one in ids:
            for other in ids:
                if (one in half) != (other in half):
                    self.cluster.blocked.add((one, other))
        self.cluster.counts["partitions"] += 1
        self._reconnect_later()

    def isolate_leader(self) -> None:
        machine = self.cluster.leader()
        if machine is None:
            return
        ways = self.random.randrange(3)
        # Sometimes together with other voters, too few for a majority.
        voters = list(machine.node.log.voters.ids - {machine.id})
        voters.sort()
        self.random.shuffle(voters)
        count = self.random.randrange(max(1, machine.node.log.voters.majority - 1))
        for other in self.cluster.machines:
            if other != machine.id and other not in voters[:count]:
                if ways != 1:
                    self.cluster.blocked.add((machine.id, other))
                if ways != 2:
                    self.cluster.blocked.add((other, machine.id))
        self.cluster.counts["isolated_leaders"] += 1
        self._reconnect_later(9000.0)

    def cut_one_way(self) -> None:
        ids = list(self.cluster.machines)
        for _ in range(1 + self.random.randrange(3)):
            one, other = self.random.choice(ids), self.random.choice(ids)
            if one != other:
                self.cluster.blocked.add((one, other))
        self.cluster.counts["one_way_partitions"] += 1
        self._reconnect_later()

    def _reconnect_later(self, longest_ms: float = 5000.0) -> None:
        wait_ms = 100.0 + self.random.random() * longest_ms
        self.cluster.at(self.cluster.now + wait_ms, self.reconnect)

    def reconnect(self, _a: None = None, _b: None = None, _c: None = None) -> None:
        self.cluster.blocked.clear()

    def _move(self, machine: Machine) -> None:
        """Restart a voter of a dynamic quorum at another address; one in a phase."""
        config = machine.config
        if self._has_moved or config.static_voters.ids or not config.endpoints:
            return
        self._has_moved = True
        old = config.endpoints[0]
        port = 9000 + (old.port - 9000) % 100 + 100 * (1 + self.random.randrange(9))
        self.cluster.move(machine, Endpoint(old.name, old.host, port))
        self.cluster.counts["moved_nodes"] += 1

    # -- snapshots

    def snapshot(self) -> None:
        """Make a snapshot at the end of a committed batch."""
        machine = self._any_up()
        if machine is None or machine.paused_until > self.cluster.now:
            return
        storage = machine.storage
        latest = next(reversed(storage.snapshots), BOOTSTRAP_SNAPSHOT)
        first = storage.index_of(latest.offset)
        end = storage.index_of(machine.verified_offset)
        if end > first:
            back = int(self.random.random() ** 3 * (end - first))
            id = storage.add_snapshot(storage.entries[end - 1 - back])
            self.cluster.counts["snapshots_made"] += 1
            size = len(storage.snapshots[id].content)
            self.cluster.step(machine, SnapshotStored(id, size))

    def clean_snapshots(self) -> None:
        """Remove all but the latest snapshots of a node, and the log before them."""
        machine = self._any_up()
        if machine is None or machine.paused_until > self.cluster.now:
            return
        storage = machine.storage
        keep = 1 + self.random.randrange(2)
        kept = list(storage.snapshots)[-keep:]
        if not kept or kept[0].offset <= storage.start_offset:
            return
        start_offset = kept[0].offset
        if self.random.random() < 0.4:
            last = storage.index_of(start_offset)
            entries = storage.entries[:last]
            if entries:
                start_offset = self.random.choice(entries).base_offset
        earliest = storage.clean(keep, start_offset)
        storage.check_snapshot_at_log_start()
        self.cluster.counts["log_starts_advanced"] += 1
        self.cluster.step(machine, SnapshotsCleaned(storage.start_offset, earliest))
        storage.check_snapshot_at_log_start()

    # -- operators

    def change_voters(self) -> None:
        """Add or remove a voter; the removed one may be the leader."""
        cluster, random = self.cluster, self.random
        leader = cluster.leader()
        if leader is None:
            return
        voters = leader.node.log.voters
        cluster_id = leader.config.cluster_id
        others = [
            machine
            for machine in cluster.machines.values()
            if machine.id not in voters.ids and machine.config.can_vote
        ]
        stale = [
            voter
            for voter in voters
            if not voters.is_voter(cluster.machines[voter.id].config.replica)
        ]
        if stale:
            # Its disk was replaced: the old replica must be removed before any other.
            cluster.ask(leader, RemoveRaftVoterRequest(cluster_id, stale[0].key))
        elif others and len(voters) < MAX_VOTERS and random.random() < 0.6:
            machine = random.choice(others)
            machine.may_become_voter_until = cluster.now + 30_000.0
            cluster.ask(
                leader,
                AddRaftVoterRequest(
                    cluster_id,
                    random.choice((100, 2000)),
                    machine.config.replica,
                    machine.config.endpoints,
                    ack_when_committed=random.random() < 0.6,
                ),
            )
        elif len(voters) > 1:
            voter = random.choice(list(voters))
            if random.random() < 0.25:
                voter = voters.get(leader.id) or voter
            if not all(cluster.machines[id].knows_pre_vote for id in voters.ids - {voter.id}):
                # If it alone has that record, it can be elected only by a pre-vote; as in Kafka.
                return
            self._last_removal_at = cluster.now
            cluster.ask(leader, RemoveRaftVoterRequest(cluster_id, voter.key))

    def upgrade(self) -> None:
        """Upgrade kraft.version from 0 to 1."""
        leader = self.cluster.leader()
        if leader is None or not leader.config.bootstrap_servers:
            return
        if leader.node.log.kraft_version == 0:
            level = self.random.choice((1, 1, 1, 2))
            self.cluster.ask(leader, UpdateKRaftVersionRequest(level))

    def resign(self) -> None:
        leader = self.cluster.leader()
        if leader is not None and leader.role is Role.LEADER:
            self.cluster.counts["resign_requests"] += 1
            leader.is_asked_to_leave = True
            self.cluster.step(leader, Resign(leader.epoch))

    def describe(self) -> None:
        machine = self._any_up()
        if machine is not None:
            self.cluster.ask(machine, DescribeQuorumRequest())

    def strange_request(self) -> None:
        """Send a request that makes no sense: the node rejects it, and does not change."""
        machine, random = self._any_up(), self.random
        now = self.cluster.now
        # The simulation wakes a node a little late (see `SimulatedCluster.step`). A timer due by
        # the node's clock would look like an effect of the request.
        if machine is None or machine.paused_until > now or machine.wake_at <= now + 0.01:
            return
        node, stranger = machine.node, ReplicaKey(random.choice((-1, 77)), new_directory(random))
        epoch, cluster_id = node.epoch, machine.config.cluster_id
        nowhere = OffsetAndEpoch(1 << 40, epoch)
        request: Request = random.choice(
            (
                VoteRequest("another", epoch + 9, stranger, None, epoch, 1 << 40),
                VoteRequest(cluster_id, epoch - 1, stranger, None, 0, 0),
                VoteRequest(cluster_id, epoch, stranger, None, epoch + 5, 1 << 40),
                VoteRequest(cluster_id, epoch, stranger, None, 0, -1, is_pre_vote=True),
                BeginQuorumEpochRequest("another", epoch + 9, 77, None),
                BeginQuorumEpochRequest(cluster_id, epoch - 1, 77, None),
                EndQuorumEpochRequest("another", epoch + 9, 77, ()),
                EndQuorumEpochRequest(cluster_id, epoch - 1, 77, ()),
                FetchRequest("another", stranger, epoch, 0, 0),
                FetchRequest(cluster_id, stranger, epoch, -5, 0),
                FetchRequest(cluster_id, stranger, epoch, 0, epoch + 1),
                FetchRequest(cluster_id, stranger, epoch + 9, 0, 0),
                FetchSnapshotRequest("another", stranger, epoch, nowhere, 0),
                FetchSnapshotRequest(cluster_id, stranger, epoch, nowhere, -1),
                AddRaftVoterRequest("another", 100, stranger, ()),
                AddRaftVoterRequest(cluster_id, -1, stranger, ()),
                RemoveRaftVoterRequest(cluster_id, stranger),
            )
        )
        before = (node.role, node.epoch, node.leader_id, node.log.end_offset)
        self.cluster.counts["strange_requests"] += 1
        self.cluster.ask(machine, request)
        after = (node.role, node.epoch, node.leader_id, node.log.end_offset)
        if machine.is_up and after[1:] != before[1:]:
            raise Violation(
                "invalid_requests_change_nothing", f"{machine}: {request!r}, {before} -> {after}"
            )
