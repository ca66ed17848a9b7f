"""Random histories of a quorum, by a slow, obvious model of KRaft's logs; and what they committed.

The model has no messages and no time: a step elects a leader, appends, replicates to one follower,
or makes a snapshot, between random nodes. It knows what no directory knows: which batches were
committed. Leaders that were deposed go on appending, so that logs fork. `NodeLog` is what a node
would have on disk. Tests of `kraft rescue` write these logs into real directories.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from random import Random

from kraft.raft.voters import Endpoint, KRaftVersionRange, ReplicaKey, VoterNode, VoterSet
from kraft.records import (
    METADATA_VERSION,
    ClientQuota,
    FeatureLevel,
    NoOp,
    Record,
    Uuid,
    control,
)
from kraft.records.batches import encode_control_records, encode_records
from kraft.records.classes import (
    AbortTransaction,
    BeginTransaction,
    EndTransaction,
    EntityData,
)

START_MS = 1_700_000_000_000
BROKERS = (11, 12)


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of the log: the same bytes on every node that has it."""

    base: int
    end: int
    epoch: int
    data: bytes
    #: The voters from this batch on; None where it does not change them.
    voters: VoterSet | None = None
    #: Whether a metadata transaction is open after this batch.
    is_open: bool = False


@dataclass(slots=True)
class NodeLog:
    """What one node has: batches from the start of its log on, snapshots, and its election state.

    ``snapshots`` are (end offset, epoch). ``first`` is the number of the first batch on disk in
    ``batches``, which has all since offset 0: a snapshot covers the others.
    """

    key: ReplicaKey
    batches: list[Batch] = field(default_factory=list)
    first: int = 0
    high_watermark: int = 0
    snapshots: list[tuple[int, int]] = field(default_factory=list)
    epoch: int = 0
    leader: int = -1
    voted: ReplicaKey | None = None

    @property
    def id(self) -> int:
        return self.key.id

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else 0

    @property
    def rank(self) -> tuple[int, int]:
        return (self.batches[-1].epoch if self.batches else 0), self.end

    @property
    def is_open(self) -> bool:
        return bool(self.batches) and self.batches[-1].is_open

    @property
    def start(self) -> int:
        return self.batches[self.first - 1].end if self.first else 0


class QuorumHistory:
    """A quorum of voters and two brokers, after random steps.

    ``committed`` has every batch that any leader committed, in log order.
    """

    def __init__(self, dice: Random, *, is_static: bool, voter_count: int, steps: int) -> None:
        self.dice = dice
        self.is_static = is_static
        self.voters = VoterSet(
            VoterNode(
                ReplicaKey(id, None if is_static else _uuid(dice)),
                (Endpoint("CONTROLLER", "controller.invalid", 9000 + id),),
                KRaftVersionRange(0, 1),
            )
            for id in range(1, voter_count + 1)
        )
        keys = [ReplicaKey(each.id, each.key.directory_id or _uuid(dice)) for each in self.voters]
        keys += [ReplicaKey(id, _uuid(dice)) for id in BROKERS]
        self.nodes = {key.id: NodeLog(key) for key in keys}
        self.committed: list[Batch] = []
        #: The leader of each epoch that has not noticed another one yet.
        self.leaders: dict[int, int] = {}
        #: Copies of directories as they were earlier.
        self.earlier: list[NodeLog] = []
        self._quotas = 0
        self._elect(self.nodes[1], list(self.nodes.values()))
        for _ in range(steps):
            self._step()

    def voters_of(self, node: NodeLog) -> VoterSet:
        if self.is_static:
            return self.voters
        return next(
            (each.voters for each in reversed(node.batches) if each.voters is not None),
            self.voters,
        )

    # -- steps

    def _step(self) -> None:
        dice = self.dice
        choice = dice.random()
        nodes = list(self.nodes.values())
        if choice < 0.07:
            candidate = dice.choice(nodes)
            if self.voters_of(candidate).is_voter(candidate.key):
                self._elect(candidate, dice.sample(nodes, dice.randint(1, len(nodes))))
        elif choice < 0.45:
            if (leader := self._a_leader()) is not None:
                self._append(leader)
        elif choice < 0.9:
            if (leader := self._a_leader()) is not None:
                self._replicate(leader, dice.choice(nodes))
        elif choice < 0.95:
            self._snapshot(dice.choice(nodes))
        elif choice < 0.97:
            self.earlier.append(deepcopy(dice.choice(nodes)))
        elif not self.is_static and (leader := self._a_leader()) is not None:
            self._change_voters(leader)

    def _a_leader(self) -> NodeLog | None:
        led = [
            self.nodes[id]
            for epoch, id in self.leaders.items()
            if self.nodes[id].epoch == epoch and self.nodes[id].leader == id
        ]
        return self.dice.choice(led) if led else None

    def _elect(self, candidate: NodeLog, reachable: list[NodeLog]) -> None:
        voters = self.voters_of(candidate)
        epoch = max(each.epoch for each in (candidate, *reachable)) + 1
        granting = [
            each
            for each in reachable
            if voters.is_voter(each.key) and each is not candidate and each.rank <= candidate.rank
        ]
        candidate.epoch, candidate.leader, candidate.voted = epoch, -1, candidate.key
        for each in granting:
            each.epoch, each.leader, each.voted = epoch, -1, candidate.key
        if len(granting) + 1 < voters.majority:
            return
        assert epoch not in self.leaders, "the model elected two leaders in one epoch"
        candidate.leader = candidate.id
        self.leaders[epoch] = candidate.id
        head: list[Record] = [
            control.LeaderChange(
                leader_id=candidate.id,
                voters=[control.Voter(voter_id=id) for id in sorted(voters.ids)],
            )
        ]
        stated = None
        if not candidate.batches and not self.is_static:
            head += [control.KRaftVersion(kraft_version=1), voters.to_record()]
            stated = voters
        is_open = candidate.is_open
        self._add(candidate, head, is_control=True, voters=stated, is_open=is_open)
        if is_open:
            self._add(candidate, [AbortTransaction(reason="a new leader")], is_control=False)
        if not _has_level(candidate.batches):
            level = FeatureLevel(name=METADATA_VERSION, feature_level=25)
            self._add(candidate, [level], is_control=False)

    def _append(self, leader: NodeLog) -> None:
        records: list[Record] = []
        for _ in range(self.dice.randint(1, 4)):
            self._quotas += 1
            entity = [EntityData(entity_type="user", entity_name=f"u{self._quotas % 17}")]
            quota = ClientQuota(entity=entity, key="consumer_byte_rate", value=float(self._quotas))
            records.append(quota if self.dice.random() < 0.8 else NoOp())
        is_open = leader.is_open
        if not is_open and self.dice.random() < 0.05:
            records.insert(0, BeginTransaction(name="a test"))
            is_open = True
        elif is_open and self.dice.random() < 0.5:
            records.append(EndTransaction())
            is_open = False
        self._add(leader, records, is_control=False, is_open=is_open)

    def _change_voters(self, leader: NodeLog) -> None:
        """Add or remove a voter, if the last change is committed, as KIP-853 requires."""
        changes = [each for each in leader.batches if each.voters is not None]
        if changes and changes[-1].end > leader.high_watermark:
            return
        if leader.batches[-1].epoch != leader.epoch or leader.high_watermark <= 0:
            return
        voters = self.voters_of(leader)
        absent = [each for each in self.voters if each.id not in voters.ids]
        if absent and self.dice.random() < 0.7:
            changed = voters.with_voter(self.dice.choice(absent))
        elif len(voters) > 2:
            gone = self.dice.choice([each.id for each in voters if each.id != leader.id])
            changed = voters.without(gone)
        else:
            return
        self._add(
            leader, [changed.to_record()], is_control=True, voters=changed, is_open=leader.is_open
        )

    def _add(
        self,
        leader: NodeLog,
        records: list[Record],
        *,
        is_control: bool,
        voters: VoterSet | None = None,
        is_open: bool = False,
    ) -> None:
        encode = encode_control_records if is_control else encode_records
        base, epoch = leader.end, leader.epoch
        data = encode(records, base_offset=base, epoch=epoch, timestamp_ms=START_MS + 100 * base)
        batch = Batch(base, base + len(records), epoch, bytes(data), voters, is_open)
        leader.batches.append(batch)
        self._commit(leader)

    def _replicate(self, leader: NodeLog, follower: NodeLog) -> None:
        """Let a follower fetch a part of what it lacks, after it truncated what diverges."""
        if follower is leader or follower.epoch > leader.epoch:
            return
        if follower.epoch < leader.epoch:
            follower.epoch, follower.voted = leader.epoch, None
        follower.leader = leader.id
        same = 0
        for mine, theirs in zip(leader.batches, follower.batches, strict=False):
            if mine != theirs:
                break
            same += 1
        del follower.batches[same:]
        assert follower.first <= same, "a snapshot covers records that were not committed"
        if same < leader.first:
            # The leader has deleted these batches: the follower loads its snapshot.
            follower.batches = leader.batches[: leader.first]
            follower.first = leader.first
            follower.snapshots = [(leader.start, leader.batches[leader.first - 1].epoch)]
            follower.high_watermark = max(follower.high_watermark, leader.start)
            return
        count = self.dice.randint(1, 6)
        follower.batches += leader.batches[same : same + count]
        self._commit(leader)
        follower.high_watermark = max(
            follower.high_watermark, min(leader.high_watermark, follower.end)
        )

    def _commit(self, leader: NodeLog) -> None:
        """Advance the high watermark to the last batch of this epoch that a majority has."""
        voters = self.voters_of(leader)
        for number in range(len(leader.batches) - 1, -1, -1):
            batch = leader.batches[number]
            if batch.epoch != leader.epoch or batch.end <= leader.high_watermark:
                return
            having = sum(
                voters.is_voter(each.key)
                and each.epoch == leader.epoch
                and len(each.batches) > number
                and each.batches[number] == batch
                for each in self.nodes.values()
            )
            if having >= voters.majority:
                leader.high_watermark = batch.end
                prefix = leader.batches[: number + 1]
                assert prefix[: len(self.committed)] == self.committed, "the model lost a record"
                self.committed = prefix
                return

    def _snapshot(self, node: NodeLog) -> None:
        """Make a snapshot of the committed records, and perhaps delete the log before it."""
        ends = [
            (number, each)
            for number, each in enumerate(node.batches, 1)
            if each.end <= node.high_watermark
            and not each.is_open
            and _has_level(node.batches[:number])
        ]
        if not ends:
            return
        number, last = ends[-1] if self.dice.random() < 0.7 else self.dice.choice(ends)
        id = (last.end, last.epoch)
        if node.snapshots and id <= node.snapshots[-1]:
            return
        node.snapshots.append(id)
        if self.dice.random() < 0.4:
            node.first = number
            node.snapshots = [id]


def _has_level(batches: list[Batch]) -> bool:
    return any(METADATA_VERSION.encode() in each.data for each in batches)


def _uuid(dice: Random) -> Uuid:
    return Uuid(b"\x01" + dice.randbytes(15))
