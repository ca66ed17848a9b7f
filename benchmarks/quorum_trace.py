"""Recorded events of a small quorum's nodes, for replay to fresh nodes.

This module simulates a quorum in virtual time: three voters and an observer, message delays of half
a millisecond, syncs of a fifth of one. `record` runs an election, a steady load of appends,
snapshots, lost messages, a newcomer that begins with a snapshot, becomes a voter and is removed
again, clients that query the quorum, and a leader that resigns. Every event of every node is kept
with its time; `replay` passes a node's events to a fresh one, which must respond like the first
one. Nine tenths of the events are the steady load, as in production.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field, replace
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
    RequestFailed,
    RequestReceived,
    Resign,
    ResponseReceived,
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
    ApiVersionsResponse,
    DescribeQuorumRequest,
    FetchResponse,
    FetchSnapshotResponse,
    LogSlice,
    OffsetAndEpoch,
    RemoveRaftVoterRequest,
    Request,
    Response,
    SnapshotSlice,
)
from kraft.raft.voters import Endpoint, KRaftVersionRange, ReplicaKey, VoterNode, VoterSet
from kraft.records import Uuid

START_MS = 1_700_000_000_000.0
NETWORK_MS = 0.5
DISK_MS = 0.2
SNAPSHOT_SIZE = 40 << 20
VALUE = bytes(120)
VOTERS = (1, 2, 3)
NEWCOMER = 4
#: Clients of the quorum's RPCs, whose responses are not recorded.
CLIENT = -1


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
        log.load_snapshot_voters(voters_at_start(), 1)
        draw = Random(self.seed).random
        return Node(self.config, log, ElectionState(), draw, self.started_ms)


def endpoint_of(id: int) -> Endpoint:
    return Endpoint("CONTROLLER", "localhost", 9090 + id)


def key_of(id: int) -> ReplicaKey:
    return ReplicaKey(id, Uuid(bytes([id]) * 16))


def voters_at_start() -> VoterSet:
    return VoterSet(
        VoterNode(key_of(id), (endpoint_of(id),), KRaftVersionRange(0, 1)) for id in VOTERS
    )


def replay(recorded: RecordedNode) -> FinalState:
    """Pass all recorded events of a node to a fresh one."""
    node = recorded.start()
    step, sent = node.step, 0
    for event, now_ms in recorded.events:
        sent += len(step(event, now_ms).to_send)
    return end_of(node, sent)


def end_of(node: Node, sent: int) -> FinalState:
    return FinalState(node.role, node.epoch, node.log.end_offset, node.log.high_watermark, sent)


class Log:
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


class Quorum:
    """Nodes, their disks and the network between them; time advances from event to event."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.recorded: dict[int, RecordedNode] = {}
        self.nodes: dict[int, Node] = {}
        self._logs: dict[int, Log] = {}
        self._sent: dict[int, int] = {}
        self._wake: dict[int, float] = {}
        self._asked: dict[int, tuple[int, int, Request]] = {}
        self._queue: list[tuple[float, int, int, Event]] = []
        self._numbers = itertools.count(1)
        self._random = Random(7)
        self.loss = 0.0

    def start(self, id: int) -> None:
        config = RaftSettings(
            id,
            Uuid(bytes([id]) * 16),
            "quorum",
            endpoints=(endpoint_of(id),),
            bootstrap_servers=tuple(map(endpoint_of, VOTERS)),
            append_linger_ms=0,
        )
        node = self.recorded[id] = RecordedNode(config, id, self.now_ms)
        self.nodes[id], self._logs[id], self._sent[id] = node.start(), Log(), 0
        self.tell(id, None)

    @property
    def leader(self) -> int:
        """Return the id of the active leader; -1 if there is none."""
        for id, node in self.nodes.items():
            if node.role_state.is_active:
                return id
        return -1

    def run(self, for_ms: float) -> None:
        until = self.now_ms + for_ms
        while self._queue and self._queue[0][0] <= until:
            at_ms, _, id, event = heapq.heappop(self._queue)
            if event is None and self._wake[id] != at_ms:
                continue
            self.now_ms = at_ms
            self.tell(id, event)
        self.now_ms = until

    def run_until(self, condition: Callable[[], bool], limit_ms: float = 30_000) -> None:
        give_up_ms = self.now_ms + limit_ms
        while not condition():
            assert self.now_ms < give_up_ms, "the quorum did not get there"
            self.run(1)

    def ask(self, id: int, request: Request) -> None:
        """Send a client's request."""
        number = next(self._numbers)
        self._asked[number] = (CLIENT, 0, request)
        self.tell(id, RequestReceived(request, number))

    def tell(self, id: int, event: Event) -> RaftReady:
        ready = self.nodes[id].step(event, self.now_ms)
        self.recorded[id].events.append(RecordedEvent(event, self.now_ms))
        log = self._logs[id]
        for write in ready.to_write:
            if isinstance(write, AppendBatches):
                log.append(write)
            elif isinstance(write, TruncateLog):
                log.cut(write.end_offset)
            elif isinstance(write, InstallSnapshot):
                self._logs[id] = Log()
                stored = SnapshotStored(
                    write.snapshot_id, SNAPSHOT_SIZE, True, voters_at_start(), 1
                )
                self._later(DISK_MS, id, stored)
        if ready.to_write:
            self._later(DISK_MS, id, Written(ready.write_sequence))
        self._sent[id] += len(ready.to_send)
        for send in ready.to_send:
            if isinstance(send, SendRequest):
                self._request(id, send)
            else:
                self._respond(id, send.reply_to, send.response)
        self._wake[id] = ready.wake_at_ms
        if ready.wake_at_ms < float("inf"):
            heapq.heappush(self._queue, (ready.wake_at_ms, next(self._numbers), id, None))
        return ready

    def _later(self, delay_ms: float, id: int, event: Event) -> None:
        heapq.heappush(self._queue, (self.now_ms + delay_ms, next(self._numbers), id, event))

    def _request(self, source: int, send: SendRequest) -> None:
        destination = send.endpoint.port - 9090
        if isinstance(send.request, ApiVersionsRequest):
            answer = ApiVersionsResponse(0, KRaftVersionRange(0, 1))
            self._later(2 * NETWORK_MS, source, ResponseReceived(send.correlation, answer))
        elif destination not in self.nodes or self._random.random() < self.loss:
            self._later(NETWORK_MS, source, RequestFailed(send.correlation))
        else:
            number = next(self._numbers)
            self._asked[number] = (source, send.correlation, send.request)
            self._later(NETWORK_MS, destination, RequestReceived(send.request, number))

    def _respond(self, id: int, reply_to: int, response: Response) -> None:
        source, correlation, _ = self._asked.pop(reply_to)
        if source == CLIENT:
            return
        if isinstance(response, FetchResponse) and isinstance(response.records, LogSlice):
            response = replace(response, records=self._logs[id].read(response.records))
        elif isinstance(response, FetchSnapshotResponse) and isinstance(
            response.data, SnapshotSlice
        ):
            size = min(response.data.max_size, SNAPSHOT_SIZE - response.data.position)
            response = replace(response, data=memoryview(bytes(size)))
        self._later(NETWORK_MS, source, ResponseReceived(correlation, response))

    # -- what happens

    def load(self, appends: int, every_ms: float = 1.0) -> None:
        """Append on the leader at a steady rate; let a client query the quorum now and then."""
        leader = self.leader
        epoch = self.nodes[leader].epoch
        for number in range(appends):
            self.tell(leader, Append(number, epoch, (VALUE,)))
            if number % 1000 == 0:
                self.ask(leader, DescribeQuorumRequest())
            self.run(every_ms)

    def take_snapshots(self) -> None:
        """Let every node make a snapshot of its committed records and truncate its log."""
        for id, node in self.nodes.items():
            snapshot_id = OffsetAndEpoch(node.log.high_watermark, node.log.last_epoch)
            self.tell(id, SnapshotStored(snapshot_id, SNAPSHOT_SIZE))
            self.tell(id, SnapshotsCleaned(snapshot_id.offset, snapshot_id))


def record(appends: int) -> dict[int, RecordedNode]:
    """Return the recorded nodes by id, with this many appends; the leader has the most events."""
    quorum = Quorum()
    for id in VOTERS:
        quorum.start(id)
    quorum.run_until(lambda: quorum.leader > 0)
    quorum.load(appends * 4 // 10)
    quorum.take_snapshots()
    quorum.start(NEWCOMER)
    leader = quorum.nodes[quorum.leader]

    def is_caught_up() -> bool:
        newcomer = quorum.nodes[NEWCOMER]
        return newcomer.log.high_watermark >= leader.log.high_watermark > 0

    quorum.run_until(is_caught_up)
    quorum.load(appends * 2 // 10)
    newcomer = key_of(NEWCOMER)
    add = AddRaftVoterRequest("quorum", 2000, newcomer, (endpoint_of(NEWCOMER),))
    quorum.ask(quorum.leader, add)
    quorum.load(appends // 10)
    assert len(leader.voters) == 4
    quorum.ask(quorum.leader, RemoveRaftVoterRequest("quorum", newcomer))
    quorum.load(appends // 10)
    assert len(leader.voters) == 3
    quorum.loss = 0.001
    quorum.load(appends // 10)
    quorum.loss = 0.0
    old = quorum.leader
    quorum.tell(old, Resign(quorum.nodes[old].epoch))
    quorum.run_until(lambda: quorum.leader not in (-1, old))
    quorum.load(appends // 10)
    quorum.run(100)
    for id, node in quorum.recorded.items():
        node.end = end_of(quorum.nodes[id], quorum._sent[id])
    return quorum.recorded
