"""A node survives arbitrary messages in every role: it answers correctly or not at all.

Only a response that would truncate committed records ends the process, as in Kafka. No message
here names a second leader of an epoch; `test_follower` covers such messages.
"""

import random
import re
from typing import Any

import pytest

from kraft._core.log.epoch_cache import EpochEndOffset
from kraft.raft import rpc
from kraft.raft.interface import (
    AppendBatches,
    RequestFailed,
    RequestReceived,
    Resign,
    ResponseReceived,
    Role,
    SnapshotRejected,
    SnapshotStored,
)
from kraft.raft.rpc import OffsetAndEpoch
from kraft.raft.voters import Endpoint, KRaftVersionRange, ReplicaKey
from tests.harness.raft_nodes import EPOCH, MAKERS, Driver, batch, dynamic, endpoint, key, static

ALLOWED = re.compile(r"truncation to \d+ below")


class Peer:
    """A peer that sends arbitrary messages of valid form."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def one(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def epoch(self, node: Driver) -> int:
        return node.node.epoch + self.one(-1, 0, 0, 0, 0, 0, 1, 2)

    def leader(self, node: Driver, epoch: int) -> int:
        """Return -1, or a leader that does not contradict the leader that the node knows."""
        known = node.node.leader_id
        if epoch <= node.node.epoch and known >= 0:
            return self.one(-1, known, known)
        return self.one(-1, 2, 2, 3, 9)

    def offset(self, node: Driver) -> int:
        return self.one(-1, 0, 3, 4, 5, node.node.log.end_offset, node.node.log.end_offset, 50)

    def key(self) -> ReplicaKey:
        return self.one(key(1), key(2), key(3), key(2, 7), key(9), ReplicaKey(2), ReplicaKey(-1))

    def endpoints(self) -> tuple[Endpoint, ...]:
        return self.one((), (endpoint(2),), (Endpoint("X", "h", 1),), (endpoint(2), endpoint(3)))

    def snapshot_id(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self.one(-1, 0, 4, 6, 20), self.one(-1, 0, 1, 2))

    def records(self, node: Driver) -> bytes:
        end = node.node.log.end_offset
        good = batch(end, self.one(1, 2, EPOCH, EPOCH, EPOCH + 1), b"a", b"b")
        torn = good[: self.random.randrange(len(good))]
        flipped = bytearray(good)
        flipped[self.random.randrange(len(good))] ^= 1 << self.random.randrange(8)
        return self.one(b"", good, good, torn, bytes(flipped), batch(0, 1))

    def request(self, node: Driver) -> Any:
        m, cluster = rpc, self.one("cluster", "cluster", "cluster", None, "another")
        epoch = self.epoch(node)
        leader = self.leader(node, epoch)
        offset, last_epoch = self.offset(node), self.one(-1, 0, 1, 2, EPOCH)
        size, wait = self.one(-1, 0, 10, 1 << 20), self.one(-1, 0, 500)
        versions = KRaftVersionRange(self.one(-1, 0, 1), self.one(-1, 0, 1, 9))
        return self.one(
            m.VoteRequest(
                cluster, epoch, self.key(), self.key(), last_epoch, offset, self.one(True, False)
            ),
            m.BeginQuorumEpochRequest(cluster, epoch, leader, self.key(), self.endpoints()),
            m.EndQuorumEpochRequest(
                cluster, epoch, leader, (self.key(), self.key()), self.endpoints()
            ),
            m.FetchRequest(
                cluster, self.key(), epoch, offset, last_epoch, wait, size, self.one(-1, 0, 9)
            ),
            m.FetchSnapshotRequest(cluster, self.key(), epoch, self.snapshot_id(), offset, size),
            m.DescribeQuorumRequest(),
            m.AddRaftVoterRequest(
                cluster, wait, self.key(), self.endpoints(), self.one(True, False)
            ),
            m.RemoveRaftVoterRequest(cluster, self.key()),
            m.UpdateRaftVoterRequest(cluster, epoch, self.key(), self.endpoints(), versions),
            m.UpdateKRaftVersionRequest(self.one(-1, 0, 1, 2), self.one(True, False)),
        )

    def response(self, node: Driver, request: Any) -> Any:
        m = rpc
        error = self.one(0, 0, 0, 0, 6, 7, 8, 35, 42, 74, 75, 98, 99, 104, 125, -1)
        epoch = self.epoch(node)
        about = (error, epoch, self.leader(node, epoch), self.endpoints())
        kind = type(request).__name__
        if kind == "VoteRequest":
            return m.VoteResponse(*about, self.one(True, False))
        if kind == "FetchRequest":
            return m.FetchResponse(
                *about,
                self.one(-1, 0, 5, 6, 99),
                0,
                self.one(None, None, None, EpochEndOffset(self.one(-1, 1, 2), self.one(-1, 4, 5))),
                self.one(None, None, None, self.snapshot_id()),
                self.records(node),
            )
        if kind == "FetchSnapshotRequest":
            data = self.one(b"", b"12345")
            return m.FetchSnapshotResponse(
                *about,
                self.one(request.snapshot_id, request.snapshot_id, self.snapshot_id(), None),
                self.one(-1, 0, 5, 10),
                self.one(request.position, request.position, -1, 3),
                data,
            )
        if kind in ("AddRaftVoterRequest", "RemoveRaftVoterRequest", "ApiVersionsRequest"):
            made = getattr(m, kind.replace("Request", "Response"))
            return made(error)
        return getattr(m, kind.replace("Request", "Response"))(*about)


def play(role: Role, seed: int, steps: int) -> Driver:
    """Step a node with arbitrary messages; return its final state."""
    peer = Peer(seed)
    is_dynamic = peer.one(True, False)
    node = MAKERS[role](
        voters=(dynamic if is_dynamic else static)(1, 2, 3), kraft_version=int(is_dynamic)
    )
    asked: list[Any] = []
    epoch, reply_to = node.node.epoch, 0
    for _ in range(steps):
        asked += node.requests()
        event: Any
        what = peer.random.random()
        if what < 0.45:
            reply_to += 1
            event = RequestReceived(peer.request(node), reply_to)
        elif what < 0.85 and asked:
            send = asked.pop(peer.random.randrange(len(asked)))
            event = ResponseReceived(send.correlation, peer.response(node, send.request))
            if peer.one(True, False, False, False):
                event = RequestFailed(send.correlation, peer.one(True, False))
        elif what < 0.87:
            event = Resign(node.node.epoch)
        else:
            event = None
            node.now_ms += peer.one(1, 20, 300, 1000)
        node.step(event)
        download = node.node.download
        if download is not None and download.is_installing:
            if peer.one(True, False):
                node.step(SnapshotStored(download.snapshot_id, download.size, True))
            else:
                node.step(SnapshotRejected(download.snapshot_id, "it is none"))
        assert node.node.epoch >= epoch
        epoch = node.node.epoch
        assert node.node.log.durable_end_offset <= node.node.log.end_offset
        for write in node.written:
            assert not isinstance(write, AppendBatches) or write.base_offset < write.end_offset
    return node


@pytest.mark.parametrize("role", Role)
def test_a_node_survives_arbitrary_messages(role: Role) -> None:
    ended = 0
    for seed in range(25):
        try:
            play(role, seed, 120)
        except AssertionError as broken:
            if not ALLOWED.search(str(broken)):
                raise
            ended += 1
    assert ended < 25, "every run ended with a truncation of committed records"
