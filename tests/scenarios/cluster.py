"""The cluster of a scenario: nodes, network and disks in virtual time.

A message takes 1 ms, a sync 1 ms. By default records do not linger, and the backoff is 100 ms
instead of Kafka's 20, which keeps the traces short. Every event becomes a line of the trace. In
every scenario, the committed records of all nodes are compared, and two leaders of one epoch fail.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from kraft.raft.config import RaftSettings
from kraft.raft.interface import (
    Append,
    Event,
    RaftReady,
    Role,
    SendRequest,
    SnapshotRejected,
    SnapshotsCleaned,
    SnapshotStored,
    Written,
)
from kraft.raft.node import Node
from kraft.raft.rpc import LogSlice, OffsetAndEpoch, Request, SnapshotSlice, VoteRequest
from kraft.raft.voters import VoterSet
from tests.harness.raft_nodes import LISTENER, directory, endpoint
from tests.harness.virtual_quorum import CLIENT, VirtualNode, VirtualQuorum
from tests.scenarios import wording
from tests.scenarios.disk import Disk, RefusedStartError, Snapshot, is_sound, sealed

LATENCY_MS = SYNC_MS = 1.0


@dataclass
class Member(VirtualNode):
    """A node of the scenario, with its disk."""

    disk: Disk = field(default_factory=Disk)
    settings: dict[str, Any] = field(default_factory=dict)
    #: The number of its directory: 1 after the first one was wiped.
    directory: int = 0
    #: The result of all its random draws.
    draw: float = 0.5
    #: Unsupported RPCs: names of requests, ``PreVote`` for Vote below version 2.
    unknown: set[str] = field(default_factory=set)
    is_syncing: bool = False


class ScenarioCluster(VirtualQuorum[Member]):
    """The nodes of one scenario."""

    def __init__(self, workspace: Path) -> None:
        super().__init__(0.0, latency_ms=LATENCY_MS)
        self.workspace = workspace
        self.trace: list[str] = []
        self.static_voters = VoterSet()
        self.settings: dict[str, Any] = {"append_linger_ms": 0, "retry_backoff_ms": 100}
        #: Pairs of nodes whose messages are lost, by direction.
        self.cut: set[tuple[int, int]] = set()
        #: Patterns of messages that are lost.
        self.lost: list[str] = []
        self.failures: list[str] = []
        self._leaders: dict[int, int] = {}
        self._committed: dict[int, bytes] = {}
        #: The content of every snapshot, for comparison with downloads.
        self._made: dict[OffsetAndEpoch, Snapshot] = {}

    # -- the trace

    def say(self, who: int | str, what: str) -> None:
        self.trace.append(f"{who} {what}")

    # -- processes

    def start_from_disk(self, id: int) -> None:
        member = self.members[id]
        assert member.node is None, f"{id} runs already"
        workspace = Path(mkdtemp(dir=self.workspace))
        try:
            log, election, note = member.disk.load(workspace, self.static_voters)
        except RefusedStartError as refusal:
            self.say(id, f"refuses to start: {refusal}")
            return
        settings = {**self.settings, **member.settings}
        servers = settings.pop("bootstrap", None)
        config = RaftSettings(
            node_id=id,
            directory_id=directory(id, member.directory),
            cluster_id="cluster",
            listener=LISTENER,
            endpoints=settings.pop("endpoints", (endpoint(id),)),
            static_voters=self.static_voters,
            bootstrap_servers=tuple(endpoint(server) for server in servers or ()),
            **settings,
        )
        self.say(id, f"starts log {log.start_offset}..{log.end_offset}{note}")
        self.start(member, Node(config, log, election, lambda: member.draw, self.now_ms))

    def stop(self, member: Member, *, is_torn: bool = False, how: str = "crashes") -> None:
        super().stop(member)
        member.is_syncing = False
        member.disk.crash(is_torn=is_torn)
        self.say(member.id, how)

    # -- steps

    def react(self, member: Member, event: Event) -> RaftReady:
        """Step a node; stop it if it dies."""
        try:
            return super().react(member, event)
        except AssertionError as broken:
            self.stop(member, how=f"dies: {broken}")
            return RaftReady()

    def carry_out(self, member: Member, event: Event, ready: RaftReady) -> None:
        for write in ready.to_write:
            self.say(member.id, wording.write(write))
        if ready.role_change is not None:
            self._note_role(member.id, ready)
        if ready.committed is not None:
            self.say(member.id, f"commits {ready.committed}")
            self._check_committed(member, ready.committed)
        if ready.to_write:
            member.disk.written.append((ready.write_sequence, ready.to_write))
            self.sync_later(member)

    def step(self, member: Member, event: Event) -> RaftReady:
        ready = super().step(member, event)
        if ready.is_shut_down:
            self.stop(member, how="has shut down")
        return ready

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

        def sync() -> None:
            member.is_syncing = False
            if not member.disk.is_stalled:
                self._sync(member)

        self.after(SYNC_MS, member, sync)

    def _sync(self, member: Member) -> None:
        disk, life = member.disk, member.life
        sequence, installed = disk.sync(member.running.voters.ids)
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

    def is_cut(self, source: int, target: int) -> bool:
        return (source, target) in self.cut

    def _is_lost(self, text: str) -> bool:
        return any(fnmatchcase(text, pattern) for pattern in self.lost)

    def send_request(self, member: Member, send: SendRequest, target: Member | None) -> None:
        request = send.request
        text = f"{member.id} > {send.endpoint.port - endpoint(0).port} {wording.request(request)}"
        name = type(request).__name__.removesuffix("Request")
        if isinstance(request, VoteRequest) and request.is_pre_vote:
            name = "PreVote"
        if target is None:
            self.trace.append(f"{text} unreachable")
            self.fail(member, send)
        elif name in target.unknown:
            self.trace.append(f"{text} unsupported")
            self.fail(member, send, is_unsupported=True)
        else:
            self.trace.append(text)
            if not self.is_cut(member.id, target.id) and not self._is_lost(text):
                super().send_request(member, send, target)

    def ask(self, target: Member, request: Request) -> None:
        self.trace.append(f"{CLIENT} > {target.id} {wording.request(request)}")
        super().ask(target, request)

    def is_delivered(self, member: Member, source: int | str, response: Any) -> bool:
        text = f"{member.id} < {source} {wording.response(response)}"
        self.trace.append(text)
        return (member.id, source) not in self.cut and not self._is_lost(text)

    def read(self, member: Member, at: LogSlice) -> bytes:
        return member.disk.read(at)

    def read_snapshot(self, member: Member, at: SnapshotSlice) -> bytes:
        return member.disk.read_snapshot(at)

    # -- the controller of a node

    def append(self, id: int, append: Append) -> None:
        member = self.members[id]
        ready = self.step(member, append)
        if member.node is None:
            return
        (answer,) = ready.appended
        error = wording.ERRORS[answer.error] if answer.error else f"last {answer.last_offset}"
        self.say(id, f"append gives {error}")

    def snapshot(self, id: int, offset: int, size: int) -> None:
        """Make a snapshot that ends at ``offset``, where a batch must end."""
        member = self.members[id]
        log = member.running.log
        snapshot_id = OffsetAndEpoch(offset, log.epochs.epoch_at(offset - 1))
        voters, level = log.voters, log.kraft_version
        data = sealed((b"snapshot %d-%d;" % snapshot_id * size)[:size])
        self.say(id, f"makes snapshot {wording.snapshot(snapshot_id)}")
        self.step(member, SnapshotStored(snapshot_id, size))
        if member.node is not None:
            made = self._made[snapshot_id] = Snapshot(data, voters, level)
            member.disk.snapshots[snapshot_id] = made

    def clean(self, id: int, log_start_offset: int, earliest: OffsetAndEpoch) -> None:
        member = self.members[id]
        self.say(id, f"cleans up to {log_start_offset}")
        self.step(member, SnapshotsCleaned(log_start_offset, earliest))
        if member.node is not None:
            member.disk.clean(log_start_offset, earliest)

    # -- invariants

    def _check_committed(self, member: Member, high_watermark: int) -> None:
        """Check that all nodes commit the same records, and whole batches."""
        pending = Disk()
        pending.start_offset, pending.batches = member.disk.start_offset, list(member.disk.batches)
        for _, writes in member.disk.written:
            for write in writes:
                if hasattr(write, "batches") or type(write).__name__ == "TruncateLog":
                    pending._do(write, frozenset())
        ends = {pending.start_offset, *(batch.end_offset for batch in pending.batches)}
        if member.running.log.end_offset in ends and high_watermark not in ends:
            self.failures.append(f"{member.id} commits {high_watermark}, where no batch ends")
        for batch in pending.batches:
            if batch.end_offset <= high_watermark:
                known = self._committed.setdefault(batch.base_offset, batch.data)
                if known != batch.data:
                    self.failures.append(f"{member.id} commits another batch {batch.base_offset}")
