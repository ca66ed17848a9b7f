"""Simulated cluster: a quorum in virtual time, with machines, network, disks and clients.

`SimulatedCluster` has one queue of actions by time, and is the driver of each node: it performs
writes, delivers messages and runs timers. An event is one ``Node.step``: a delivered message, a
timer, a finished disk job or a client's operation. The invariants check the result of each step
before its writes and messages go anywhere.

Every random choice comes from one `random.Random(seed)`, and nothing depends on hash order: a seed
determines the entire run, event by event. Times are milliseconds since the start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from heapq import heappop, heappush
from random import Random
from typing import Any

from kraft._core.bytes.batch import BatchBuilder
from kraft.raft.interface import (
    Append,
    Event,
    InstallSnapshot,
    RaftReady,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    Role,
    SendRequest,
    SendResponse,
    SnapshotRejected,
    SnapshotStored,
    Write,
    Written,
)
from kraft.raft.node import Node
from kraft.raft.rpc import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchResponse,
    FetchSnapshotResponse,
    Request,
    Response,
    SnapshotSlice,
    UpdateRaftVoterRequest,
    VoteRequest,
)
from kraft.raft.voters import Endpoint
from kraft.simulation import trace_lines
from kraft.simulation.batch_tree import BatchTree, Entry, Violation
from kraft.simulation.conditions import NOTHING, SNAPSHOT_DAMAGE, FaultConditions, Suppressed
from kraft.simulation.damage import damaged, failed
from kraft.simulation.invariants import InvariantChecks
from kraft.simulation.machine import Asked, DiskJob, Machine, Origin
from kraft.simulation.recorded_choices import RecordedChoices
from kraft.simulation.storage import DAMAGED_BYTE

LIVENESS_MS = 10_000.0
NEVER = float("inf")


def _subject_of(thing: Any) -> Hashable:
    """Return whom an event concerns: a machine, sender, broker or (source, target) pair."""
    if type(thing) is Origin:
        return None if thing.machine is None else thing.machine.id
    return thing if type(thing) is tuple else getattr(thing, "id", None)


class SimulatedCluster:
    """A quorum and its environment; `scenario.build` creates one, `run` runs it."""

    def __init__(
        self, random: Random, tree: BatchTree, make_node: Callable[..., Node] = Node
    ) -> None:
        self.random = random
        self.draw = random.random
        self.tree = tree
        self.make_node = make_node
        self.now = 0.0
        self.events = 0
        self.machines: dict[int, Machine] = {}
        self.counts: Counter[str] = Counter()
        self.checks = InvariantChecks(tree, self.machines, self.counts)
        self.conditions = FaultConditions()
        self.blocked: set[tuple[int, int]] = set()
        self.is_over = False
        #: Called for a node that stopped by itself.
        self.on_stopped: Callable[[Machine], None] = lambda machine: None
        #: The lines of the trace; None without a trace.
        self.lines: list[str] | None = None
        #: The recorder of random choices; None if the run is not recorded.
        self.choices = random if isinstance(random, RecordedChoices) else None
        #: The faults that are drawn but not injected.
        self.suppressed: Suppressed = NOTHING
        #: The injected faults: their numbers and names.
        self.injected: list[tuple[int, str]] = []
        self.fault_number = 0
        #: Ids of machines that have not reached `proof` since the faults stopped.
        self.behind: set[int] = set()
        self.is_calm = True
        self.proof: Entry | None = None
        self._by_port: dict[int, Machine | None] = {}
        self._moved: list[tuple[int, Machine]] = []
        self._queue: list[tuple[float, int, Callable[..., None], Any, Any, Any]] = []
        self._order = 0
        self._last_reply = 0
        self._last_token = 0

    # -- building and running

    def add(self, machine: Machine, *other_ports: int) -> None:
        """Add a machine to the network, at its endpoints and at other ports."""
        self.machines[machine.id] = machine
        for port in (*(endpoint.port for endpoint in machine.config.endpoints), *other_ports):
            self._by_port[port] = machine

    def move(self, machine: Machine, endpoint: Endpoint) -> None:
        """Give a stopped node a new endpoint."""
        for old in machine.config.endpoints:
            self._by_port[old.port] = None
            self._moved.append((old.port, machine))
        machine.config = replace(machine.config, endpoints=(endpoint,))
        self.add(machine)

    def forward(self) -> None:
        """Forward old endpoints to moved nodes: without a leader nobody learns the new ones."""
        for port, machine in self._moved:
            self._by_port[port] = machine
        self._moved.clear()

    def at(
        self, time: float, action: Callable[..., None], a: Any = None, b: Any = None, c: Any = None
    ) -> None:
        """Schedule ``action(a, b, c)`` at ``time``."""
        self._order += 1
        heappush(self._queue, (time, self._order, action, a, b, c))

    def run(self) -> None:
        """Run the scheduled actions until ``is_over`` is set."""
        queue, choices = self._queue, self.choices
        if choices is None:
            while not self.is_over:
                self.now, _, action, a, b, c = heappop(queue)
                action(a, b, c)
            return
        while not self.is_over:
            self.now, _, action, a, b, c = heappop(queue)
            owner = getattr(action, "__self__", self)
            choices.choose(
                action.__name__, getattr(owner, "id", None), _subject_of(a), _subject_of(b)
            )
            action(a, b, c)

    # -- faults by number

    def next_fault(self) -> int:
        """Return the number of the next fault of the phase."""
        self.fault_number += 1
        return self.fault_number

    def is_injected(self, number: int, name: str) -> bool:
        """Return whether to inject a fault; record it if so."""
        if self.suppressed.has(number, name):
            return False
        self.injected.append((number, name))
        if self.choices is not None and self.lines is not None:
            self.note(f"fault {number} {name}")
        return True

    def draw_as(self, *channel: str | int) -> None:
        """Attribute the next random choices to ``channel`` instead of the event's own."""
        if self.choices is not None:
            self.choices.choose(*channel)

    def start(self, machine: Machine, _b: None = None, _c: None = None) -> None:
        """Start the node of a machine from its disk, unless it runs."""
        if machine.is_up:
            return
        epoch = machine.storage.election.epoch
        machine.start(self.make_node, self.draw, self.now)
        machine.verified_offset = machine.storage.floor.end_offset
        self.counts["starts"] += 1
        if self.lines is not None:
            self.note(f"{machine} starts: {machine.storage.election} {machine.storage.last}")
        self.step(machine, None)
        if machine.node.epoch < max(epoch, machine.storage.last.epoch):
            raise Violation("epoch_never_goes_back", f"{machine} starts in {machine.node.epoch}")

    # -- one event

    def step(self, machine: Machine, event: Event) -> RaftReady:
        """Pass an event to a node; check the result and carry it out."""
        self.events += 1
        base, rate = machine.clock_base, machine.clock_rate
        node = machine.node
        ready: RaftReady = node.step(event, base + self.now * rate)
        if self.lines is not None:
            self.note(f"{machine} {trace_lines.event(event)} -> {trace_lines.ready(ready, node)}")
        checks = self.checks
        if ready.committed is not None:
            # Before the change of role: a removed leader resigns when its removal is committed.
            checks.committed(machine, ready.committed)
            self._note_progress(machine)
        if ready.role_change is not None:
            checks.role_changed(machine, ready.role_change, self.now)
        if node.epoch != machine.epoch:
            raise Violation("epoch_never_goes_back", f"{machine} entered {node.epoch} silently")
        if ready.to_write:
            checks.writes(machine, ready.to_write)
            machine.queued.append(DiskJob(ready.to_write, ready.write_sequence))
            if machine.writing is None:
                self._begin_job(machine)
        if ready.to_send:
            for send in ready.to_send:
                if type(send) is SendRequest:
                    checks.request(machine, send.request)
                    self._send_request(machine, send)
                elif type(send) is SendResponse:
                    self._send_response(machine, send.reply_to, send.response)
        if node.role is Role.FOLLOWER:
            checks.check_silent_leader(machine, event, self.now)
        wake_at = ready.wake_at_ms
        if wake_at != NEVER:
            # A little later: rounding must not wake the node before its own clock's time.
            wake_at = (wake_at - base) / rate + 0.001
            if wake_at < machine.timer_at:
                machine.timer_at = wake_at
                self._order += 1
                heappush(
                    self._queue,
                    (
                        max(wake_at, self.now),
                        self._order,
                        self._wake,
                        machine,
                        machine.life,
                        wake_at,
                    ),
                )
        machine.wake_at = wake_at
        if ready.is_shut_down:
            machine.is_shut_down = True
            self._stop_if_done(machine)
        return ready

    def _wake(self, machine: Machine, life: int, armed_at: float) -> None:
        if life != machine.life or not machine.is_up or armed_at != machine.timer_at:
            return
        if machine.paused_until > self.now:
            self.at(machine.paused_until, self._wake, machine, life, armed_at)
            return
        machine.timer_at = NEVER
        if machine.wake_at <= self.now:
            self.step(machine, None)
            if machine.role is Role.LEADER:
                self.checks.check_quorum(machine, self.now)
            self.checks.check_response_times(machine, self.now)
        elif machine.wake_at != NEVER:
            machine.timer_at = machine.wake_at
            self.at(machine.wake_at, self._wake, machine, life, machine.wake_at)

    # -- the disk

    def _begin_job(self, machine: Machine) -> None:
        """Begin all queued writes, with one sync after them (group commit)."""
        queued = machine.queued
        if len(queued) == 1:
            job = queued[0]
        else:
            job = DiskJob([write for each in queued for write in each.writes], queued[-1].sequence)
        machine.queued = []
        machine.writing = job
        took = self.conditions.sync_ms * (0.5 + self.draw())
        if machine.slow_until > self.now:
            took += self.draw() * 800.0
        self._order += 1
        heappush(
            self._queue,
            (self.now + took, self._order, self._finish_job, machine, machine.life, job),
        )

    def _finish_job(self, machine: Machine, life: int, job: DiskJob) -> None:
        if life != machine.life or not machine.is_up:
            return
        if machine.paused_until > self.now:
            self.at(machine.paused_until, self._finish_job, machine, life, job)
            return
        if machine.is_disk_full:
            self.counts["full_disks"] += 1
            self.crash(machine)
            self.on_stopped(machine)
            return
        storage = machine.storage
        installed = None
        truncations, installs = storage.truncations, storage.installs
        for write in job.writes:
            storage.perform(write)
            if type(write) is InstallSnapshot:
                installed = write.snapshot_id
        storage.sync()
        self.counts["truncations"] += storage.truncations - truncations
        self.counts["snapshot_downloads"] += storage.installs - installs
        machine.writing = None
        if installed is not None and storage.installs == installs:
            self.counts["refused_snapshots"] += 1
            self.step(machine, SnapshotRejected(installed, "a byte of it arrived damaged"))
        elif installed is not None:
            storage.check_snapshot_at_log_start()
            last = storage.snapshots[installed].last
            machine.verified_offset = max(machine.verified_offset, installed.offset)
            self.step(
                machine,
                SnapshotStored(
                    installed,
                    len(storage.snapshots[installed].content),
                    is_installed=True,
                    voters=last.voters,
                    kraft_version=last.level,
                ),
            )
        if machine.high_watermark > machine.verified_offset:
            self.checks.verify(machine)
            self._note_progress(machine)
        self.step(machine, Written(job.sequence))
        if machine.is_up and machine.life == life:
            if not machine.queued and machine.writing is None:
                self.checks.check_voters(machine)
            if machine.queued and machine.writing is None:
                self._begin_job(machine)
            self._stop_if_done(machine)

    # -- the network

    def _send_request(self, machine: Machine, send: SendRequest) -> None:
        target = self._by_port[send.endpoint.port]
        origin = Origin(machine, machine.life, send.correlation)
        if target is None:
            self.at(self.now + self.conditions.latency_ms, self._fail, origin, False)
            return
        self._travel(origin, self._receive, target, origin, send.request)

    def _travel(self, origin: Origin, arrive: Callable[..., None], *what: Any) -> None:
        """Deliver a message under the present fault conditions: late, twice, or not at all.

        The sender of the request (``origin``) learns of every other lost message.
        """
        conditions = self.conditions
        chance = self.draw()
        delay = conditions.latency_ms
        if chance < conditions.trouble:
            delay += self.draw() * conditions.spread_ms
            if chance < conditions.loss:
                self.counts["lost_messages"] += 1
                if self.draw() < 0.5:
                    self.at(self.now + delay, self._fail, origin, False)
                return
            if chance < conditions.duplication:
                self.counts["duplicated_messages"] += 1
                self.at(self.now + delay + self.draw() * 300.0, arrive, *what)
            else:
                self.counts["delayed_messages"] += 1
                delay += self.draw() ** 3 * 3000.0
        else:
            delay += chance * conditions.spread_ms
        self.at(self.now + delay, arrive, *what)

    def _receive(self, machine: Machine, origin: Origin, request: Request) -> None:
        source = origin.machine
        if source is not None and self.blocked and (source.id, machine.id) in self.blocked:
            self.counts["cut_off_messages"] += 1
            if self.draw() < 0.2:
                self.at(self.now + 1.0, self._fail, origin, False)
            return
        if not machine.is_up:
            if not machine.is_silent:
                self.at(self.now + self.conditions.latency_ms, self._fail, origin, False)
            return
        if machine.paused_until > self.now:
            self.at(machine.paused_until, self._receive, machine, origin, request)
            return
        if not machine.knows_pre_vote and (
            (type(request) is VoteRequest and request.is_pre_vote)
            or type(request) is UpdateRaftVoterRequest
        ):
            self.counts["unsupported_requests"] += 1
            self.at(self.now + self.conditions.latency_ms, self._fail, origin, True)
            return
        self._last_reply += 1
        reply_to = self._last_reply
        machine.asked[reply_to] = Asked(origin, request, self.now, machine.node.log.voters)
        if source is not None and machine.role is Role.LEADER:
            machine.heard[source.id] = self.now
        if type(request) is ApiVersionsRequest:
            # The network layer answers this, as in every Kafka server.
            versions = machine.config.kraft_versions
            self._send_response(machine, reply_to, ApiVersionsResponse(0, versions))
            return
        self.step(machine, RequestReceived(request, reply_to))

    def _fail(self, origin: Origin, is_unsupported: bool, _: None = None) -> None:
        machine = origin.machine
        if machine is None or machine.life != origin.life or not machine.is_up:
            return
        if machine.paused_until > self.now:
            self.at(machine.paused_until, self._fail, origin, is_unsupported)
            return
        self.step(machine, RequestFailed(origin.correlation, is_unsupported))

    def _send_response(self, machine: Machine, reply_to: int, response: Response) -> None:
        asked = machine.asked.pop(reply_to, None)
        if asked is None:
            raise Violation(
                "each_request_has_one_response", f"{machine} answers {reply_to} twice or unasked"
            )
        self.checks.response(machine, asked, response)
        if type(response) is FetchSnapshotResponse and type(response.data) is SnapshotSlice:
            part = response.data
            snapshot = machine.storage.snapshots.get(part.snapshot_id)
            # Without the snapshot, removed since the node's step, the response is empty.
            content = b"" if snapshot is None else snapshot.content
            response.data = content[part.position : part.position + part.max_size]
            damage = self.conditions.damage * SNAPSHOT_DAMAGE
            if damage and response.data and self.draw() < damage:
                at = int(self.draw() * len(response.data))
                response.data = response.data[:at] + DAMAGED_BYTE + response.data[at + 1 :]
        elif type(response) is FetchResponse:
            response = self._spoil(machine, asked.request, response)
        origin = asked.origin
        if origin.machine is None:
            self.counts[f"{type(response).__name__}_{response.error}"] += 1
            return
        self._travel(origin, self._answer, origin, response, machine.id)

    def _spoil(self, machine: Machine, request: Request, response: FetchResponse) -> FetchResponse:
        """Damage some fetch responses, and all of a sick node."""
        is_sick = machine.sick_until > self.now
        if is_sick and machine.answers_errors:
            return failed(response, self.counts)
        if len(response.records) and (
            is_sick or (self.conditions.damage and self.draw() < self.conditions.damage)
        ):
            return damaged(response, request, self.draw, self.counts)
        return response

    def _answer(self, origin: Origin, response: Response, source: int) -> None:
        machine = origin.machine
        assert machine is not None
        if machine.life != origin.life or not machine.is_up:
            return
        if self.blocked and (source, machine.id) in self.blocked:
            self.counts["cut_off_messages"] += 1
            return
        if machine.paused_until > self.now:
            self.at(machine.paused_until, self._answer, origin, response, source)
            return
        self.step(machine, ResponseReceived(origin.correlation, response))

    # -- machines stop

    def crash(self, machine: Machine) -> None:
        """Cut the power of a machine: unsynced writes may be lost or torn."""
        if not machine.is_up:
            return
        self.counts["crashes"] += 1
        if machine.role is Role.LEADER:
            self.counts["leader_crashes"] += 1
        if machine.storage.downloads:
            self.counts["interrupted_downloads"] += 1
        if self.lines is not None:
            self.note(f"{machine} crashes")
        writes: list[Write] = []
        if machine.writing is not None:
            writes = machine.writing.writes
        storage = machine.storage
        storage.crash(writes, self.random)
        self.counts["torn_writes"] += storage.torn_writes
        self.counts["lost_batches"] += storage.lost_batches
        storage.torn_writes = storage.lost_batches = 0
        self._down(machine)

    def _stop_if_done(self, machine: Machine) -> None:
        """Stop the machine of a node that has shut down, once its disk is done."""
        if machine.is_shut_down and not machine.queued and machine.writing is None:
            self.counts["clean_shutdowns"] += 1
            machine.storage.crash([], self.random)
            self._down(machine)

    def _down(self, machine: Machine) -> None:
        machine.is_up = False
        # If only the process is gone, its host refuses connections at once.
        machine.is_silent = self.draw() < 0.4
        self.counts["silent_hosts" if machine.is_silent else "refusing_hosts"] += 1
        for asked in machine.asked.values():
            if asked.origin.machine is not None and not machine.is_silent:
                delay = self.conditions.latency_ms + self.draw()
                self.at(self.now + delay, self._fail, asked.origin, False)
        machine.begin_life()

    # -- clients

    def leader(self) -> Machine | None:
        """Return the machine that leads the latest epoch, or believes so."""
        found: Machine | None = None
        for machine in self.machines.values():
            if (
                machine.is_up
                and machine.role is Role.LEADER
                and machine.paused_until <= self.now
                and (found is None or machine.epoch > found.epoch)
            ):
                found = machine
        return found

    def append(self, machine: Machine) -> None:
        """Append a client's records; one of ten appends has finished batches."""
        self._last_token += 1
        token = self._last_token
        draw = self.draw()
        if draw < 0.9:
            values = tuple(
                b"%d.%d " % (token, index) * (1 + token % 5) for index in range(1 + int(draw * 3))
            )
            event = Append(token, machine.epoch, values)
        else:
            builder = BatchBuilder()
            values = (b"batch %d" % token, b"and more")
            for value in values:
                builder.append(value)
            if draw > 0.95:
                builder.close_batch()
                values += (b"second batch %d" % token,)
                builder.append(values[-1])
            event = Append(token, machine.epoch, batches=builder.finish())
        epoch = machine.epoch
        # With a fast disk elsewhere, the same step may commit the record.
        for appended in self.step(machine, event).appended:
            if appended.token == token:
                if appended.error:
                    self.counts[f"append_error_{appended.error}"] += 1
                elif machine.is_up and machine.epoch == epoch and machine.role is Role.LEADER:
                    machine.waiting_acks.append((appended.last_offset, epoch, values[-1]))
                    self.counts["appends"] += 1

    def ask(self, machine: Machine, request: Request) -> None:
        """Send a client's request."""
        self._receive(machine, Origin(None, 0, 0), request)

    # -- liveness

    def expect_commit(self, absent: Iterable[Machine] = ()) -> None:
        """Begin a calm phase: within 10 seconds a new record must be committed and known to all.

        The machines in ``absent`` stay down.
        """
        self.is_calm = True
        self.proof = None
        self.behind = set(self.machines) - {machine.id for machine in absent}
        self.tree.era += 1
        self.at(self.now + LIVENESS_MS, self._check_progress, self.tree.era)

    def _note_progress(self, machine: Machine) -> None:
        if not self.behind:
            return
        if self.proof is None:
            committed = self.tree.committed
            if committed.era < self.tree.era:
                return
            self.proof = committed
            for other in self.machines.values():
                if other.verified_offset >= committed.end_offset:
                    self.behind.discard(other.id)
        elif machine.verified_offset >= self.proof.end_offset:
            self.behind.discard(machine.id)

    def _check_progress(self, era: int, _b: None = None, _c: None = None) -> None:
        if era != self.tree.era:
            return
        if self.proof is None:
            raise Violation("commit_within_10_seconds", self.describe())
        if self.behind:
            raise Violation(
                "everyone_catches_up_within_10_seconds",
                f"{sorted(self.behind)} have not reached {self.proof}; {self.describe()}",
            )

    # -- descriptions

    def describe(self) -> str:
        """Return role, epoch and log of every machine, on one line."""
        return "; ".join(
            f"{machine} {machine.role.name.lower()} of {machine.leader_id} in {machine.epoch}, "
            f"log {machine.storage.start_offset}-{machine.storage.last}, "
            f"high watermark {machine.high_watermark}" + ("" if machine.is_up else ", down")
            for machine in self.machines.values()
        )

    def note(self, text: str) -> None:
        assert self.lines is not None
        self.lines.append(f"{self.events} {self.now:.3f} {text}")
