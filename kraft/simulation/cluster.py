"""A cluster in virtual time: machines, the network between them, their disks and clients.

Owns the one queue of what happens next, and the driver's duties towards each node: writes to the
disk, messages to the network, timers. An event is one `Node.step`: a delivered message, a timer, a
disk that is done, a client's operation. After each, what the node brought forth is held against
the invariants before it goes anywhere.

Everything is drawn from one `random.Random(seed)`, and nothing depends on the order of a hash: the
same seed gives the same history, event by event. Times are milliseconds since the start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from heapq import heappop, heappush
from random import Random
from typing import Any

from kraft._core.batch import BatchBuilder
from kraft.raft.messages import (
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
from kraft.raft.node import Node
from kraft.raft.ready import (
    Append,
    Event,
    InstallSnapshot,
    Ready,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    Role,
    SendRequest,
    SendResponse,
    SnapshotRefused,
    SnapshotStored,
    Write,
    Written,
)
from kraft.raft.voters import Endpoint
from kraft.simulation import trace
from kraft.simulation.damage import damaged, failed
from kraft.simulation.history import Entry, History, Violation
from kraft.simulation.invariants import Checks
from kraft.simulation.machine import Asked, Job, Machine, Origin
from kraft.simulation.storage import DAMAGED_BYTE
from kraft.simulation.tape import Tape
from kraft.simulation.weather import NOTHING, SNAPSHOT_DAMAGE, Suppressed, Weather

LIVENESS_MS = 10_000.0
NEVER = float("inf")


def _whose(thing: Any) -> Hashable:
    """Whom an event is for: a machine, a sender, a broker, a way through the network."""
    if type(thing) is Origin:
        return None if thing.machine is None else thing.machine.id
    return thing if type(thing) is tuple else getattr(thing, "id", None)


class Cluster:
    """See the module's docstring. `scenario` builds one; ``step_until`` runs it."""

    def __init__(
        self, random: Random, history: History, make_node: Callable[..., Node] = Node
    ) -> None:
        self.random = random
        self.draw = random.random
        self.history = history
        self.make_node = make_node
        self.now = 0.0
        self.events = 0
        self.machines: dict[int, Machine] = {}
        self.counts: Counter[str] = Counter()
        self.checks = Checks(history, self.machines, self.counts)
        self.weather = Weather()
        self.blocked: set[tuple[int, int]] = set()
        self.is_over = False
        #: What is to be done about a node that stopped by itself.
        self.on_stopped: Callable[[Machine], None] = lambda machine: None
        #: The trace, where one is wanted.
        self.lines: list[str] | None = None
        #: Where what is drawn is written down, or comes from.
        self.tape = random if isinstance(random, Tape) else None
        #: What does not happen, though it was drawn.
        self.suppressed: Suppressed = NOTHING
        #: The faults that happened: their numbers and names.
        self.injected: list[tuple[int, str]] = []
        self.fault_number = 0
        #: Machines that have not yet reached what was committed after the faults stopped.
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
        """Puts a machine on the network, at its endpoints and at other ports."""
        self.machines[machine.id] = machine
        for port in (*(endpoint.port for endpoint in machine.config.endpoints), *other_ports):
            self._by_port[port] = machine

    def move(self, machine: Machine, endpoint: Endpoint) -> None:
        """The node, which is down, will listen elsewhere."""
        for old in machine.config.endpoints:
            self._by_port[old.port] = None
            self._moved.append((old.port, machine))
        machine.config = replace(machine.config, endpoints=(endpoint,))
        self.add(machine)

    def forward(self) -> None:
        """Where nodes have been leads to where they are: without a leader nobody would learn it."""
        for port, machine in self._moved:
            self._by_port[port] = machine
        self._moved.clear()

    def at(
        self, time: float, happen: Callable[..., None], a: Any = None, b: Any = None, c: Any = None
    ) -> None:
        """``happen(a, b, c)`` at ``time``."""
        self._order += 1
        heappush(self._queue, (time, self._order, happen, a, b, c))

    def run(self) -> None:
        """Until somebody sets ``is_over``."""
        queue, tape = self._queue, self.tape
        if tape is None:
            while not self.is_over:
                self.now, _, happen, a, b, c = heappop(queue)
                happen(a, b, c)
            return
        while not self.is_over:
            self.now, _, happen, a, b, c = heappop(queue)
            owner = getattr(happen, "__self__", self)
            tape.choose(happen.__name__, getattr(owner, "id", None), _whose(a), _whose(b))
            happen(a, b, c)

    # -- faults by number

    def next_fault(self) -> int:
        """The number of the next fault: of a phase's trouble the first, and one more each time."""
        self.fault_number += 1
        return self.fault_number

    def is_injected(self, number: int, name: str) -> bool:
        """Whether this fault happens; it is written down where it does."""
        if self.suppressed.has(number, name):
            return False
        self.injected.append((number, name))
        if self.tape is not None and self.lines is not None:
            self.note(f"fault {number} {name}")
        return True

    def draw_as(self, *channel: str | int) -> None:
        """Names who draws, where it is not who the event is for."""
        if self.tape is not None:
            self.tape.choose(*channel)

    def start(self, machine: Machine, _b: None = None, _c: None = None) -> None:
        """Starts a node on what is on its disk; nothing where it runs."""
        if machine.is_up:
            return
        told = machine.storage.election.epoch
        machine.start(self.make_node, self.draw, self.now)
        machine.verified_offset = machine.storage.floor.end_offset
        self.counts["starts"] += 1
        if self.lines is not None:
            self.note(f"{machine} starts: {machine.storage.election} {machine.storage.last}")
        self.step(machine, None)
        if machine.node.epoch < max(told, machine.storage.last.epoch):
            raise Violation("epoch_never_goes_back", f"{machine} starts in {machine.node.epoch}")

    # -- one event

    def step(self, machine: Machine, event: Event) -> Ready:
        """Tells a node something, and does what it asks for."""
        self.events += 1
        base, rate = machine.clock_base, machine.clock_rate
        node = machine.node
        ready: Ready = node.step(event, base + self.now * rate)
        if self.lines is not None:
            self.note(f"{machine} {trace.event(event)} -> {trace.ready(ready, node)}")
        checks = self.checks
        if ready.committed is not None:
            # Before the change of role: a leader that was removed steps down as that is committed.
            checks.committed(machine, ready.committed)
            self._note_progress(machine)
        if ready.role_change is not None:
            checks.role_changed(machine, ready.role_change, self.now)
        if node.epoch != machine.epoch:
            raise Violation("epoch_never_goes_back", f"{machine} is in {node.epoch}, untold")
        if ready.to_write:
            checks.writes(machine, ready.to_write)
            machine.queued.append(Job(ready.to_write, ready.write_sequence))
            if machine.writing is None:
                self._begin_job(machine)
        if ready.to_send:
            for send in ready.to_send:
                if type(send) is SendRequest:
                    checks.request(machine, send.request)
                    self._send_request(machine, send)
                elif type(send) is SendResponse:
                    self._send_response(machine, send.reply_to, send.response)
        if node.following is not None:
            checks.gives_up_a_silent_leader(machine, event, self.now)
        wake_at = ready.wake_at_ms
        if wake_at != NEVER:
            # A little later, so that no rounding wakes the node before its own clock says so.
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
                self.checks.is_heard(machine, self.now)
            self.checks.answers_in_time(machine, self.now)
        elif machine.wake_at != NEVER:
            machine.timer_at = machine.wake_at
            self.at(machine.wake_at, self._wake, machine, life, machine.wake_at)

    # -- the disk

    def _begin_job(self, machine: Machine) -> None:
        """All that is queued, and one sync behind it (group commit)."""
        queued = machine.queued
        if len(queued) == 1:
            job = queued[0]
        else:
            job = Job([write for each in queued for write in each.writes], queued[-1].sequence)
        machine.queued = []
        machine.writing = job
        took = self.weather.sync_ms * (0.5 + self.draw())
        if machine.slow_until > self.now:
            took += self.draw() * 800.0
        self._order += 1
        heappush(
            self._queue,
            (self.now + took, self._order, self._finish_job, machine, machine.life, job),
        )

    def _finish_job(self, machine: Machine, life: int, job: Job) -> None:
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
            self.step(machine, SnapshotRefused(installed, "a byte of it arrived damaged"))
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
                self.checks.knows_voters(machine)
            if machine.queued and machine.writing is None:
                self._begin_job(machine)
            self._stop_if_done(machine)

    # -- the network

    def _send_request(self, machine: Machine, send: SendRequest) -> None:
        target = self._by_port[send.endpoint.port]
        origin = Origin(machine, machine.life, send.correlation)
        if target is None:
            self.at(self.now + self.weather.latency_ms, self._fail, origin, False)
            return
        self._travel(origin, self._receive, target, origin, send.request)

    def _travel(self, origin: Origin, arrive: Callable[..., None], *what: Any) -> None:
        """Through the network as the weather is: late, twice, or not at all, of which whoever asked
        (``origin``) hears every other time.
        """
        weather = self.weather
        chance = self.draw()
        delay = weather.latency_ms
        if chance < weather.trouble:
            delay += self.draw() * weather.spread_ms
            if chance < weather.loss:
                self.counts["lost_messages"] += 1
                if self.draw() < 0.5:
                    self.at(self.now + delay, self._fail, origin, False)
                return
            if chance < weather.duplication:
                self.counts["duplicated_messages"] += 1
                self.at(self.now + delay + self.draw() * 300.0, arrive, *what)
            else:
                self.counts["delayed_messages"] += 1
                delay += self.draw() ** 3 * 3000.0
        else:
            delay += chance * weather.spread_ms
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
                self.at(self.now + self.weather.latency_ms, self._fail, origin, False)
            return
        if machine.paused_until > self.now:
            self.at(machine.paused_until, self._receive, machine, origin, request)
            return
        if not machine.knows_pre_vote and (
            (type(request) is VoteRequest and request.is_pre_vote)
            or type(request) is UpdateRaftVoterRequest
        ):
            self.counts["unsupported_requests"] += 1
            self.at(self.now + self.weather.latency_ms, self._fail, origin, True)
            return
        self._last_reply += 1
        reply_to = self._last_reply
        machine.asked[reply_to] = Asked(origin, request, self.now)
        if source is not None and machine.role is Role.LEADER:
            machine.heard[source.id] = self.now
        if type(request) is ApiVersionsRequest:
            # The network layer answers this by itself, as every Kafka server does.
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
                "one_answer_a_request", f"{machine} answers {reply_to} twice or unasked"
            )
        self.checks.response(machine, asked.request, response, asked.at)
        if type(response) is FetchSnapshotResponse and type(response.data) is SnapshotSlice:
            part = response.data
            snapshot = machine.storage.snapshots.get(part.snapshot_id)
            # Gone since the node decided: the connection is closed.
            content = b"" if snapshot is None else snapshot.content
            response.data = content[part.position : part.position + part.max_size]
            damage = self.weather.damage * SNAPSHOT_DAMAGE
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
        """Damage the records now and then; all answers of a node that is out of order."""
        is_sick = machine.sick_until > self.now
        if is_sick and machine.answers_errors:
            return failed(response, self.counts)
        if len(response.records) and (
            is_sick or (self.weather.damage and self.draw() < self.weather.damage)
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
        """Power is gone: what is not synced may be lost, or torn."""
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
        """A node that has shut down leaves once its disk is done."""
        if machine.is_shut_down and not machine.queued and machine.writing is None:
            self.counts["clean_shutdowns"] += 1
            machine.storage.crash([], self.random)
            self._down(machine)

    def _down(self, machine: Machine) -> None:
        machine.is_up = False
        # The host is gone, or only the process: then its host refuses connections at once.
        machine.is_silent = self.draw() < 0.4
        self.counts["silent_hosts" if machine.is_silent else "refusing_hosts"] += 1
        for asked in machine.asked.values():
            if asked.origin.machine is not None and not machine.is_silent:
                delay = self.weather.latency_ms + self.draw()
                self.at(self.now + delay, self._fail, asked.origin, False)
        machine.begin_life()

    # -- clients

    def leader(self) -> Machine | None:
        """Who leads the latest epoch, or thinks so."""
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
        """A client's records; every few appends are finished batches."""
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
        # The record may be committed by the very step that takes it, with a fast disk elsewhere.
        for appended in self.step(machine, event).appended:
            if appended.token == token:
                if appended.error:
                    self.counts[f"append_error_{appended.error}"] += 1
                elif machine.is_up and machine.epoch == epoch and machine.role is Role.LEADER:
                    machine.waiting_acks.append((appended.last_offset, epoch, values[-1]))
                    self.counts["appends"] += 1

    def ask(self, machine: Machine, request: Request) -> None:
        """A client's request."""
        self._receive(machine, Origin(None, 0, 0), request)

    # -- liveness

    def expect_commit(self, absent: Iterable[Machine] = ()) -> None:
        """Faults have stopped: a new record must be committed, and known to all, soon; all but
        those who stay down.
        """
        self.is_calm = True
        self.proof = None
        self.behind = set(self.machines) - {machine.id for machine in absent}
        self.history.era += 1
        self.at(self.now + LIVENESS_MS, self._check_progress, self.history.era)

    def _note_progress(self, machine: Machine) -> None:
        if not self.behind:
            return
        if self.proof is None:
            committed = self.history.committed
            if committed.era < self.history.era:
                return
            self.proof = committed
            for other in self.machines.values():
                if other.verified_offset >= committed.end_offset:
                    self.behind.discard(other.id)
        elif machine.verified_offset >= self.proof.end_offset:
            self.behind.discard(machine.id)

    def _check_progress(self, era: int, _b: None = None, _c: None = None) -> None:
        if era != self.history.era:
            return
        if self.proof is None:
            raise Violation("commit_within_10_seconds", self.describe())
        if self.behind:
            raise Violation(
                "everyone_catches_up_within_10_seconds",
                f"{sorted(self.behind)} have not reached {self.proof}; {self.describe()}",
            )

    # -- for people

    def describe(self) -> str:
        """Who is what, on one line."""
        return "; ".join(
            f"{machine} {machine.role.name.lower()} of {machine.leader_id} in {machine.epoch}, "
            f"log {machine.storage.start_offset}-{machine.storage.last}, "
            f"high watermark {machine.high_watermark}" + ("" if machine.is_up else ", down")
            for machine in self.machines.values()
        )

    def note(self, text: str) -> None:
        assert self.lines is not None
        self.lines.append(f"{self.events} {self.now:.3f} {text}")
