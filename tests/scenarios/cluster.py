"""The cluster of a scenario: nodes, network and disks in virtual time.

A message takes 1 ms, a sync 1 ms. By default records do not linger, and the backoff is 100 ms
instead of Kafka's 20, which keeps the traces short. Every event becomes a line of the trace. In
every scenario, the committed records of all nodes are compared, and two leaders of one epoch fail.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import count
from pathlib import Path
from typing import Any

from kraft.raft.config import RaftSettings
from kraft.raft.interface import (
    Append,
    Event,
    RaftReady,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    Role,
    SendRequest,
    SnapshotRejected,
    SnapshotsCleaned,
    SnapshotStored,
    Written,
)
from kraft.raft.node import Node
from kraft.raft.rpc import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchResponse,
    FetchSnapshotResponse,
    LogSlice,
    OffsetAndEpoch,
    Request,
    SnapshotSlice,
    VoteRequest,
)
from kraft.raft.voters import Endpoint, KRaftVersionRange, ReplicaKey, VoterNode, VoterSet
from kraft.records import Uuid
from tests.scenarios import wording
from tests.scenarios.disk import Disk, RefusedStartError, Snapshot, is_sound, sealed

LISTENER = "CONTROLLER"
CLIENT = "client"
LATENCY_MS = SYNC_MS = 1.0


def directory_of(id: int, name: str = "a") -> Uuid:
    return Uuid(bytes([0x10, id, ord(name[0]), *[0] * 13]))


def endpoint_of(id: int) -> Endpoint:
    return Endpoint(LISTENER, f"host{id}", 9000 + id)


def voter_of(id: int, *, is_static: bool = False) -> VoterNode:
    key = ReplicaKey(id) if is_static else ReplicaKey(id, directory_of(id))
    return VoterNode(key, (endpoint_of(id),), KRaftVersionRange(0, 0 if is_static else 1))


@dataclass
class Member:
    """A node of the scenario, which may be stopped."""

    id: int
    disk: Disk = field(default_factory=Disk)
    settings: dict[str, Any] = field(default_factory=dict)
    directory: str = "a"
    node: Node | None = None
    #: The result of all its random draws.
    draw: float = 0.5
    #: The number of its starts: events of an earlier process are dropped.
    life: int = 0
    wake_at_ms: float = float("inf")
    #: Unsupported RPCs: names of requests, ``PreVote`` for Vote below version 2.
    unknown: set[str] = field(default_factory=set)
    is_syncing: bool = False


class Cluster:
    """The nodes of one scenario."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.now_ms = 0.0
        self.trace: list[str] = []
        self.members: dict[int, Member] = {}
        self.static_voters = VoterSet()
        self.settings: dict[str, Any] = {"append_linger_ms": 0, "retry_backoff_ms": 100}
        #: Pairs of nodes whose messages are lost, by direction.
        self.cut: set[tuple[int, int]] = set()
        #: Patterns of messages that are lost.
        self.lost: list[str] = []
        self.failures: list[str] = []
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._calls: dict[int, tuple[int | str, int]] = {}
        self._leaders: dict[int, int] = {}
        self._committed: dict[int, bytes] = {}
        #: The content of every snapshot, for comparison with downloads.
        self._made: dict[OffsetAndEpoch, Snapshot] = {}

    # -- the trace

    def say(self, who: int | str, what: str) -> None:
        self.trace.append(f"{who} {what}")

    # -- time

    def after(self, delay_ms: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now_ms + delay_ms, next(self._order), act))

    def run(self, until_ms: float, is_enough: Callable[[], bool] = lambda: False) -> bool:
        """Run until ``is_enough`` (return True) or until ``until_ms`` (return False)."""
        while not is_enough():
            if not self._queue or self._queue[0][0] > until_ms:
                self.now_ms = until_ms
                return False
            at_ms, _, act = heapq.heappop(self._queue)
            self.now_ms = max(self.now_ms, at_ms)
            act()
        return True

    # -- processes

    def start(self, id: int) -> None:
        member = self.members[id]
        assert member.node is None, f"{id} runs already"
        member.life += 1
        workspace = self.workspace / f"{id}-{member.life}"
        workspace.mkdir()
        try:
            log, election, note = member.disk.load(workspace, self.static_voters)
        except RefusedStartError as refusal:
            self.say(id, f"refuses to start: {refusal}")
            return
        settings = {**self.settings, **member.settings}
        servers = settings.pop("bootstrap", None)
        config = RaftSettings(
            node_id=id,
            directory_id=directory_of(id, member.directory),
            cluster_id="cluster",
            listener=LISTENER,
            endpoints=settings.pop("endpoints", (endpoint_of(id),)),
            static_voters=self.static_voters,
            bootstrap_servers=tuple(endpoint_of(server) for server in servers or ()),
            **settings,
        )
        member.node = Node(config, log, election, lambda: member.draw, self.now_ms)
        self.say(id, f"starts log {log.start_offset}..{log.end_offset}{note}")
        self.step(member, None)

    def stop(self, id: int, *, is_torn: bool = False, how: str = "crashes") -> None:
        member = self.members[id]
        member.node, member.wake_at_ms, member.is_syncing = None, float("inf"), False
        member.life += 1
        member.disk.crash(is_torn=is_torn)
        self.say(id, how)

    # -- steps

    def step(self, member: Member, event: Event) -> RaftReady | None:
        """Step a node and carry out the result; return None if the node died."""
        node = member.node
        assert node is not None, f"{member.id} does not run"
        try:
            ready = node.step(event, self.now_ms)
        except AssertionError as broken:
            self.stop(member.id, how=f"dies: {broken}")
            return None
        for write in ready.to_write:
            self.say(member.id, wording.write(write))
        if ready.role_change is not None:
            self._note_role(member.id, ready)
        if ready.committed is not None:
            self.say(member.id, f"commits {ready.committed}")
            self._check_committed(member, ready.committed)
        for send in ready.to_send:
            if isinstance(send, SendRequest):
                self._send_request(member, send)
            else:
                self._send_response(member, send.reply_to, send.response)
        if ready.to_write:
            member.disk.written.append((ready.write_sequence, ready.to_write))
            self.sync_later(member)
        if ready.is_shut_down:
            self.stop(member.id, how="has shut down")
            return ready
        self._wake_later(member, ready.wake_at_ms)
        return ready

    def _wake_later(self, member: Member, wake_at_ms: float) -> None:
        member.wake_at_ms = wake_at_ms
        if wake_at_ms == float("inf"):
            return
        life = member.life

        def wake() -> None:
            if member.life == life and member.wake_at_ms == wake_at_ms:
                self.step(member, None)

        self.after(wake_at_ms - self.now_ms, wake)

    def _note_role(self, id: int, ready: RaftReady) -> None:
        change = ready.role_change
        assert change is not None
        self.say(id, wording.role(change))
        if change.role is Role.LEADER:
            other = self._leaders.setdefault(change.epoch, id)
            if other != id:
                self.failures.append(f"{other} and {id} both lead epoch {change.epoch}")

    # -- the disk

    def sync_later(self, member: Member) -> None:
        if member.disk.is_stalled or member.is_syncing:
            return
        member.is_syncing = True
        life = member.life

        def sync() -> None:
            if member.life != life:
                return
            member.is_syncing = False
            if not member.disk.is_stalled:
                self._sync(member)

        self.after(SYNC_MS, sync)

    def _sync(self, member: Member) -> None:
        disk, life = member.disk, member.life
        assert member.node is not None
        sequence, installed = disk.sync(member.node.voters.ids)
        for id in installed:
            snapshot, data = self._made[id], bytes(disk.downloads.pop(id))
            if not is_sound(data):
                self.say(member.id, f"refuses {wording.snapshot(id)}")
                self.step(member, SnapshotRejected(id, "its checksum is wrong"))
                continue
            assert data == snapshot.data, "the download differs"
            disk.snapshots = {id: snapshot}
            stored = SnapshotStored(
                id, len(snapshot.data), True, snapshot.voters, snapshot.kraft_version
            )
            self.step(member, stored)
        if sequence and member.life == life:
            self.step(member, Written(sequence))

    def forget_committed(self) -> None:
        """Stop comparing committed records: a majority of the disks was wiped."""
        self._committed.clear()

    # -- the network

    def is_cut(self, source: int | str, target: int | str) -> bool:
        return (source, target) in self.cut

    def _is_lost(self, text: str) -> bool:
        return any(fnmatchcase(text, pattern) for pattern in self.lost)

    def _target_of(self, send: SendRequest) -> int:
        return send.endpoint.port - 9000

    def _send_request(self, member: Member, send: SendRequest) -> None:
        target_id = self._target_of(send)
        text = f"{member.id} > {target_id} {wording.request(send.request)}"
        life, request = member.life, send.request

        def fail(*, is_unsupported: bool) -> Callable[[], None]:
            def act() -> None:
                if member.life == life:
                    self.step(member, RequestFailed(send.correlation, is_unsupported))

            return act

        target = self.members.get(target_id)
        if target is None:
            self.trace.append(f"{text} unreachable")
            self.after(LATENCY_MS, fail(is_unsupported=False))
            return
        name = type(request).__name__.removesuffix("Request")
        if isinstance(request, VoteRequest) and request.is_pre_vote:
            name = "PreVote"
        if name in target.unknown:
            self.trace.append(f"{text} unsupported")
            self.after(LATENCY_MS, fail(is_unsupported=True))
            return
        self.trace.append(text)
        if self.is_cut(member.id, target_id) or self._is_lost(text):
            return
        reply_to = next(self._order)
        self._calls[reply_to] = (member.id, send.correlation)

        def arrive() -> None:
            if target.node is None:
                if not self.is_cut(target_id, member.id):
                    fail(is_unsupported=False)()
                return
            self._receive(target, request, reply_to)

        self.after(LATENCY_MS, arrive)

    def _receive(self, target: Member, request: Request, reply_to: int) -> None:
        if isinstance(request, ApiVersionsRequest):
            # The server answers it, not the node.
            assert target.node is not None
            versions = target.node.config.kraft_versions
            self._send_response(target, reply_to, ApiVersionsResponse(0, versions))
            return
        self.step(target, RequestReceived(request, reply_to))

    def ask(self, target_id: int, request: Request) -> None:
        """Send a request of a client, or of a peer that is not simulated."""
        reply_to = next(self._order)
        self._calls[reply_to] = (CLIENT, 0)
        self.trace.append(f"{CLIENT} > {target_id} {wording.request(request)}")
        self._receive(self.members[target_id], request, reply_to)

    def _send_response(self, member: Member, reply_to: int, response: Any) -> None:
        source, correlation = self._calls.pop(reply_to)
        if isinstance(response, FetchResponse) and isinstance(response.records, LogSlice):
            response = replace(response, records=member.disk.read(response.records))
        elif isinstance(response, FetchSnapshotResponse) and isinstance(
            response.data, SnapshotSlice
        ):
            response = replace(response, data=member.disk.read_snapshot(response.data))
        text = f"{member.id} < {source} {wording.response(response)}"
        self.trace.append(text)
        if source == CLIENT or self.is_cut(member.id, source) or self._is_lost(text):
            return
        assert isinstance(source, int)
        caller = self.members[source]
        life = caller.life

        def arrive() -> None:
            if caller.life == life and caller.node is not None:
                self.step(caller, ResponseReceived(correlation, response))

        self.after(LATENCY_MS, arrive)

    # -- the controller of a node

    def append(self, id: int, append: Append) -> None:
        ready = self.step(self.members[id], append)
        if ready is None:
            return
        (answer,) = ready.appended
        error = wording.ERRORS[answer.error] if answer.error else f"last {answer.last_offset}"
        self.say(id, f"append gives {error}")

    def snapshot(self, id: int, offset: int, size: int) -> None:
        """Make a snapshot that ends at ``offset``, where a batch must end."""
        member = self.members[id]
        assert member.node is not None
        log = member.node.log
        snapshot_id = OffsetAndEpoch(offset, log.epochs.epoch_at(offset - 1))
        voters, level = log.voters, log.kraft_version
        data = sealed((b"snapshot %d-%d;" % snapshot_id * size)[:size])
        self.say(id, f"makes snapshot {wording.snapshot(snapshot_id)}")
        if self.step(member, SnapshotStored(snapshot_id, size)) is not None:
            made = self._made[snapshot_id] = Snapshot(data, voters, level)
            member.disk.snapshots[snapshot_id] = made

    def clean(self, id: int, log_start_offset: int, earliest: OffsetAndEpoch) -> None:
        member = self.members[id]
        self.say(id, f"cleans up to {log_start_offset}")
        if self.step(member, SnapshotsCleaned(log_start_offset, earliest)) is not None:
            member.disk.clean(log_start_offset, earliest)

    # -- invariants

    def _check_committed(self, member: Member, high_watermark: int) -> None:
        """Check that all nodes commit the same records, and whole batches."""
        node = member.node
        assert node is not None
        pending = Disk()
        pending.start_offset, pending.batches = member.disk.start_offset, list(member.disk.batches)
        for _, writes in member.disk.written:
            for write in writes:
                if hasattr(write, "batches") or type(write).__name__ == "TruncateLog":
                    pending._do(write, frozenset())
        ends = {pending.start_offset, *(batch.end_offset for batch in pending.batches)}
        if node.log.end_offset in ends and high_watermark not in ends:
            self.failures.append(f"{member.id} commits {high_watermark}, where no batch ends")
        for batch in pending.batches:
            if batch.end_offset <= high_watermark:
                known = self._committed.setdefault(batch.base_offset, batch.data)
                if known != batch.data:
                    self.failures.append(f"{member.id} commits another batch {batch.base_offset}")
