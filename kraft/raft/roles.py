"""What a role remembers beside the epoch: votes counted, the leader followed, replicas led.

Owns plain state; the rules over it are in ``elections``, ``following`` and ``leadership``. Sources:
Kafka's ``EpochElection``, ``FollowerState``, ``LeaderState``.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from kraft.raft.accumulator import Accumulator
from kraft.raft.config import RaftConfig
from kraft.raft.messages import (
    AddRaftVoterRequest,
    FetchRequest,
    OffsetAndEpoch,
    UpdateKRaftVersionRequest,
)
from kraft.raft.observers import Observers
from kraft.raft.voters import Endpoint, ReplicaKey, VersionRange, VoterSet
from kraft.records import Uuid


class Candidacy:
    """The votes, or pre-votes, of the voters as they were when the election began."""

    __slots__ = ("granted", "is_pre_vote", "rejected", "voters")

    def __init__(self, voters: VoterSet, is_pre_vote: bool) -> None:
        self.voters = voters
        self.is_pre_vote = is_pre_vote
        self.granted: set[int] = set()
        self.rejected: set[int] = set()

    def record(self, id: int, is_granted: bool) -> None:
        """A voter's answer; a later one of the same voter takes its place."""
        if id in self.voters.ids:
            (self.granted if is_granted else self.rejected).add(id)
            (self.rejected if is_granted else self.granted).discard(id)

    def is_won(self) -> bool:
        return len(self.granted) >= self.voters.majority

    def is_lost(self) -> bool:
        return len(self.voters) - len(self.rejected) < self.voters.majority

    def unanswered(self) -> list[int]:
        answered = self.granted | self.rejected
        return [voter.id for voter in self.voters if voter.id not in answered]


class Following:
    """The leader that is followed, and when it is given up."""

    __slots__ = (
        "fetch_deadline_ms",
        "has_fetched",
        "has_updated_leader",
        "refused_snapshots",
        "resume_at_ms",
        "update_voter_at_ms",
    )

    def __init__(self, now_ms: float, config: RaftConfig) -> None:
        self.fetch_deadline_ms = now_ms + config.fetch_timeout_ms
        self.update_voter_at_ms = now_ms + config.update_voter_period_ms
        #: Whether the leader has answered well: then others' pre-votes are refused.
        self.has_fetched = False
        #: Whether this leader was told of the voter's endpoints and versions (kraft.version 0).
        self.has_updated_leader = False
        #: How many of this leader's snapshots were not sound, one after the other; nothing is
        #: fetched before ``resume_at_ms`` then.
        self.refused_snapshots = 0
        self.resume_at_ms = 0.0


@dataclass(slots=True)
class SnapshotDownload:
    """A snapshot on its way from the leader."""

    snapshot_id: OffsetAndEpoch
    #: So much of it is there, and up to where chunks have been asked for.
    position: int = 0
    asked_position: int = 0
    #: 0 until the first chunk tells; of a chunk, as much as the leader gives at once.
    size: int = 0
    chunk_size: int = 0
    #: The whole is there: the disk puts it in its place, and nothing else happens to the log.
    is_installing: bool = False


@dataclass(slots=True)
class ReplicaProgress:
    """How far another replica is, as its fetches tell; -1 where nothing is known."""

    key: ReplicaKey
    end_offset: int = -1
    last_fetch_ms: float = -1.0
    last_caught_up_ms: float = -1.0
    #: The leader's own end when the last fetch came.
    leader_end_at_last_fetch: int = -1


@dataclass(slots=True)
class WaitingFetch:
    """A Fetch that found nothing new and waits (KIP-595's long poll)."""

    request: FetchRequest
    deadline_ms: float


@dataclass(slots=True)
class VoterChange:
    """The one change of the voter set, or of kraft.version, that may be under way."""

    #: Who waits for the answer; None where it has been given.
    reply_to: int | None
    deadline_ms: float
    request: AddRaftVoterRequest | UpdateKRaftVersionRequest | ReplicaKey
    #: The offset of the record; -1 while the new voter is still being asked.
    offset: int = -1
    #: The correlation of the ApiVersions request to the new voter.
    correlation: int = -1


@dataclass(slots=True)
class Leadership:
    """One epoch's leadership."""

    epoch_start_offset: int
    accumulator: Accumulator
    check_quorum_deadline_ms: float
    begin_epoch_at_ms: float
    observers: Observers
    forget_observers_at_ms: float = 0.0
    #: Voters and observers other than this node, by id and directory.
    replicas: dict[ReplicaKey, ReplicaProgress] = field(default_factory=dict)
    #: Who fetched since the check-quorum timer was set.
    seen: set[int] = field(default_factory=set)
    #: Of this epoch: -1 until the LeaderChange record is committed.
    high_watermark: int = -1
    waiting: dict[int, WaitingFetch] = field(default_factory=dict)
    #: A heap of (deadline, reply_to); entries of fetches that wait no more may be left in it.
    waiting_deadlines: list[tuple[float, int]] = field(default_factory=list)
    change: VoterChange | None = None
    #: What static voters said of themselves by UpdateRaftVoter (kraft.version 0), by id.
    told_versions: dict[int, VersionRange] = field(default_factory=dict)
    told_directories: dict[int, tuple[Uuid, tuple[Endpoint, ...]]] = field(default_factory=dict)
    is_resign_requested: bool = False
    is_active: bool = False

    @property
    def next_fetch_deadline_ms(self) -> float:
        """When the next waiting fetch has to be answered; infinity where none waits."""
        deadlines = self.waiting_deadlines
        if not self.waiting:
            deadlines.clear()
        while deadlines and deadlines[0][1] not in self.waiting:
            heapq.heappop(deadlines)
        return deadlines[0][0] if deadlines else float("inf")
