"""Recorded events of a small quorum's nodes, for replay to fresh nodes.

This module simulates a quorum in virtual time: three voters and an observer, message delays of half
a millisecond, syncs of a fifth of one. `record` runs an election, a steady load of appends,
snapshots, lost messages, a newcomer that begins with a snapshot, becomes a voter and is removed
again, clients that query the quorum, and a leader that resigns. Every event of every node is kept
with its time; `replay` passes a node's events to a fresh one, which must respond like the first
one. Nine tenths of the events are the steady load, as in production.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from kraft._core.bytes.batch import scan
from kraft.raft.config import RaftSettings
from kraft.raft.election_state import ElectionState
from kraft.raft.interface import (
    Append,
    AppendBatches,
    Event,
    InstallSnapshot,
    RaftReady,
    Resign,
    Role,
    SendRequest,
    SnapshotsCleaned,
    SnapshotStored,
    TruncateLog,
    Written,
)
from kraft.raft.log_view import LogView
from kraft.raft.node import Node
from kraft.raft.rpc import (
    AddRaftVoterRequest,
    ApiVersionsRequest,
    DescribeQuorumRequest,
    LogSlice,
    OffsetAndEpoch,
    RemoveRaftVoterRequest,
    SnapshotSlice,
)
from tests.harness.raft_nodes import directory, dynamic, endpoint, key
from tests.harness.virtual_quorum import VirtualNode, VirtualQuorum

START_MS = 1_700_000_000_000.0
NETWORK_MS = 0.5
DISK_MS = 0.2
SNAPSHOT_SIZE = 40 << 20
VALUE = bytes(120)
VOTERS = (1, 2, 3)
NEWCOMER = 4


class RecordedEvent(NamedTuple):
    """One event and its time."""

    event: Event
    now_ms: float


class FinalState(NamedTuple):
    """The final state of a node; the same events must lead to the same state."""

    role: Role
    epoch: int
    end_offset: int
    high_watermark: int
    sent: int


@dataclass
class RecordedNode:
    """The recorded events of a node since its start, and its final state."""

    config: RaftSettings
    seed: int
    started_ms: float
    events: list[RecordedEvent] = field(default_factory=list)
    end: FinalState | None = None

    def start(self) -> Node:
        log = LogView(snapshots={OffsetAndEpoch(0, 0): 300})
        log.load_snapshot_voters(dynamic(*VOTERS), 1)
        draw = Random(self.seed).random
        return Node(self.config, log, ElectionState(), draw, self.started_ms)


def replay(recorded: RecordedNode) -> FinalState:
    """Pass all recorded events of a node to a fresh one."""
    node = recorded.start()
    step, sent = node.step, 0
    for event, now_ms in recorded.events:
        sent += len(step(event, now_ms).to_send)
    return end_of(node, sent)


def end_of(node: Node, sent: int) -> FinalState:
    return FinalState(node.role, node.epoch, node.log.end_offset, node.log.high_watermark, sent)


class BatchLog:
    """The batches of one node's log, in memory."""

    def __init__(self) -> None:
        self.ends: list[int] = []
        self.batches: list[bytes] = []

    def append(self, write: AppendBatches) -> None:
        table = scan(write.batches, verify_crc=False)
        for end, position, size in zip(
            table.last_offsets.tolist(), table.positions.tolist(), table.sizes.tolist(), strict=True
        ):
            self.ends.append(end + 1)
            self.batches.append(bytes(memoryview(write.batches)[position : position + size]))

    def cut(self, end_offset: int) -> None:
        while self.ends and self.ends[-1] > end_offset:
            self.ends.pop()
            self.batches.pop()

    def read(self, slice: LogSlice) -> bytes:
        first, size = bisect_left(self.ends, slice.offset + 1), 0
        last = first
        while last < len(self.ends) and self.ends[last] <= slice.end_offset:
            size += len(self.batches[last])
            if size > slice.max_size and last > first:
                break
            last += 1
        return b"".join(self.batches[first:last])


@dataclass
class TracedNode(VirtualNode):
    """A node with its recorded events and its log, which the quorum keeps in memory."""

    recorded: RecordedNode = field(kw_only=True)
    log: BatchLog = field(default_factory=BatchLog)
    sent: int = 0


class TracedQuorum(VirtualQuorum[TracedNode]):
    """Nodes whose events are recorded; a request is lost with the probability ``loss``."""

    def __init__(self) -> None:
        super().__init__(START_MS, latency_ms=NETWORK_MS)
        self._random = Random(7)
        self.loss = 0.0

    def add(self, id: int) -> None:
        config = RaftSettings(
            id,
            directory(id),
            "quorum",
            endpoints=(endpoint(id),),
            bootstrap_servers=tuple(map(endpoint, VOTERS)),
            append_linger_ms=0,
        )
        recorded = RecordedNode(config, id, self.now_ms)
        self.members[id] = TracedNode(id, recorded=recorded)
        self.start(self.members[id], recorded.start())

    def leader(self) -> TracedNode | None:
        """Return the active leader; None if there is none."""
        for member in self.members.values():
            if member.running.role_state.is_active:
                return member
        return None

    def active(self) -> TracedNode:
        leader = self.leader()
        assert leader is not None, "no node leads"
        return leader

    def run_until(self, condition: Callable[[], bool], limit_ms: float = 30_000) -> None:
        give_up_ms = self.now_ms + limit_ms
        while not condition():
            assert self.now_ms < give_up_ms, "the quorum did not get there"
            self.run(self.now_ms + 1)

    def carry_out(self, member: TracedNode, event: Event, ready: RaftReady) -> None:
        member.recorded.events.append(RecordedEvent(event, self.now_ms))
        member.sent += len(ready.to_send)
        for write in ready.to_write:
            if isinstance(write, AppendBatches):
                member.log.append(write)
            elif isinstance(write, TruncateLog):
                member.log.cut(write.end_offset)
            elif isinstance(write, InstallSnapshot):
                member.log = BatchLog()
                stored = SnapshotStored(write.snapshot_id, SNAPSHOT_SIZE, True, dynamic(*VOTERS), 1)
                self._step_later(member, stored)
        if ready.to_write:
            self._step_later(member, Written(ready.write_sequence))

    def _step_later(self, member: TracedNode, event: Event) -> None:
        self.after(DISK_MS, member, lambda: self.step(member, event))

    def send_request(
        self, member: TracedNode, send: SendRequest, target: TracedNode | None
    ) -> None:
        may_be_lost = target is not None and not isinstance(send.request, ApiVersionsRequest)
        if may_be_lost and self._random.random() < self.loss:
            target = None
        super().send_request(member, send, target)

    def read(self, member: TracedNode, at: LogSlice) -> bytes:
        return member.log.read(at)

    def read_snapshot(self, member: TracedNode, at: SnapshotSlice) -> memoryview:
        return memoryview(bytes(min(at.max_size, SNAPSHOT_SIZE - at.position)))

    # -- events

    def load(self, appends: int, every_ms: float = 1.0) -> None:
        """Append on the leader at a steady rate; let a client query the quorum now and then."""
        leader = self.active()
        epoch = leader.running.epoch
        for number in range(appends):
            self.step(leader, Append(number, epoch, (VALUE,)))
            if number % 1000 == 0:
                self.ask(leader, DescribeQuorumRequest())
            self.run(self.now_ms + every_ms)

    def take_snapshots(self) -> None:
        """Let every node make a snapshot of its committed records and truncate its log."""
        for member in self.members.values():
            log = member.running.log
            snapshot_id = OffsetAndEpoch(log.high_watermark, log.last_epoch)
            self.step(member, SnapshotStored(snapshot_id, SNAPSHOT_SIZE))
            self.step(member, SnapshotsCleaned(snapshot_id.offset, snapshot_id))


def record(appends: int) -> dict[int, RecordedNode]:
    """Return the recorded nodes by id, with this many appends; the leader has the most events."""
    quorum = TracedQuorum()
    for id in VOTERS:
        quorum.add(id)
    quorum.run_until(lambda: quorum.leader() is not None)
    quorum.load(appends * 4 // 10)
    quorum.take_snapshots()
    quorum.add(NEWCOMER)
    first, newcomer = quorum.active(), quorum.members[NEWCOMER]
    leader = first.running

    def is_caught_up() -> bool:
        return newcomer.running.log.high_watermark >= leader.log.high_watermark > 0

    quorum.run_until(is_caught_up)
    quorum.load(appends * 2 // 10)
    add = AddRaftVoterRequest("quorum", 2000, key(NEWCOMER), (endpoint(NEWCOMER),))
    quorum.ask(first, add)
    quorum.load(appends // 10)
    assert len(leader.voters) == 4
    quorum.ask(first, RemoveRaftVoterRequest("quorum", key(NEWCOMER)))
    quorum.load(appends // 10)
    assert len(leader.voters) == 3
    quorum.loss = 0.001
    quorum.load(appends // 10)
    quorum.loss = 0.0
    old = quorum.active()
    quorum.step(old, Resign(old.running.epoch))
    quorum.run_until(lambda: quorum.leader() not in (None, old))
    quorum.load(appends // 10)
    quorum.run(quorum.now_ms + 100)
    for member in quorum.members.values():
        member.recorded.end = end_of(member.running, member.sent)
    return {id: member.recorded for id, member in quorum.members.items()}
