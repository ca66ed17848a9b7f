"""Machine: one simulated computer with a disk, an inaccurate clock and, while it runs, a node.

A machine holds what outlasts its process (disk, identity, settings) and what the driver keeps for
the present process: unanswered requests, writes queued for the disk, observations of the checks.
`cluster` and `faults` change it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import NamedTuple

from kraft.raft.config import RaftSettings
from kraft.raft.epoch_state import EpochState
from kraft.raft.interface import Role, Write
from kraft.raft.node import Node
from kraft.raft.rpc import Request
from kraft.raft.voters import ReplicaKey, VoterSet
from kraft.records import Uuid
from kraft.simulation.storage import Storage


class Origin(NamedTuple):
    """The sender of a request and the number of its process; a client has no machine."""

    machine: Machine | None
    life: int
    correlation: int


class Asked(NamedTuple):
    """A request that a machine has not answered yet."""

    origin: Origin
    request: Request
    #: When it arrived, in the simulation's time.
    at: float
    #: The voters by which the machine acted then.
    voters: VoterSet


class DiskJob(NamedTuple):
    """Writes that the disk performs before one sync."""

    writes: list[Write]
    sequence: int


def new_directory(random: Random) -> Uuid:
    return Uuid(b"\1" + random.randbytes(15))


class Machine:
    """A computer with the id of its node; times are the simulation's, in ms."""

    def __init__(self, config: RaftSettings, storage: Storage) -> None:
        self.id = config.node_id
        self.config = config
        self.storage = storage
        self.life = 0
        self.is_up = False
        #: Defined while the process runs.
        self.node: Node
        # The node's clock shows ``clock_base + now * clock_rate``.
        self.clock_base = 1_700_000_000_000.0
        self.clock_rate = 1.0
        self.paused_until = 0.0
        #: The end of the last pause, even after the phase of faults that it began in.
        self.paused_until_at_most = 0.0
        #: Until then all its fetch responses are damaged, or errors.
        self.sick_until = 0.0
        self.answers_errors = False
        #: While it is down: its host does not even refuse connections.
        self.is_silent = False
        self.slow_until = 0.0
        self.is_disk_full = False
        self.knows_pre_vote = True
        #: Until then a request to add it as a voter may be under way, and its disk is needed.
        self.may_become_voter_until = 0.0
        #: Its former disks by directory id: a lost replica still counts for what it acknowledged.
        self.lost_disks: dict[Uuid, Storage] = {}
        self.begin_life()

    def begin_life(self) -> None:
        """Reset the state of the process."""
        self.epoch = self.storage.election.epoch
        self.role = Role.UNATTACHED
        self.leader_id = -1
        self.high_watermark = -1
        self.verified_offset = 0
        self.wake_at = self.timer_at = float("inf")
        self.queued: list[DiskJob] = []
        self.writing: DiskJob | None = None
        self.asked: dict[int, Asked] = {}
        #: Appends that the client waits for: last offset, epoch, a value.
        self.waiting_acks: deque[tuple[int, int, bytes]] = deque()
        #: As a leader: when each node last sent a request.
        self.heard: dict[int, float] = {}
        self.heard_voters: VoterSet | None = None
        self.led_since = 0.0
        #: As a leader: when the last fetch of each voter arrived that it answered without error.
        self.served: dict[int, float] = {}
        self.served_voters: VoterSet | None = None
        #: As a follower: its role state, the last valid response, and the log's end then.
        self.followed: EpochState | None = None
        self.good_news_at = 0.0
        self.followed_end = 0
        #: The voters on disk when the node's voters were last compared with them.
        self.checked_voters: VoterSet | None = None
        self.is_shutting_down = False
        self.is_asked_to_leave = False
        self.is_shut_down = False

    def __repr__(self) -> str:
        return f"n{self.id}"

    def disk_of(self, replica: ReplicaKey) -> Storage | None:
        """Return the disk of a present or former replica of this node."""
        if replica.directory_id in (None, self.config.directory_id):
            return self.storage
        assert replica.directory_id is not None
        return self.lost_disks.get(replica.directory_id)

    def pause(self, until: float) -> None:
        self.paused_until = until
        self.paused_until_at_most = max(self.paused_until_at_most, until)

    def start(self, make_node: Callable[..., Node], draw: Callable[[], float], now: float) -> None:
        self.begin_life()
        self.life += 1
        self.is_up = True
        self.is_disk_full = False
        self.node = make_node(
            self.config,
            self.storage.boot(),
            self.storage.election,
            draw,
            self.clock_base + now * self.clock_rate,
        )

    def wipe(self, storage: Storage, directory_id: Uuid) -> None:
        """Replace the disk by a new, empty one."""
        self.lost_disks[self.config.directory_id] = self.storage
        self.storage = storage
        self.config = replace(self.config, directory_id=directory_id)
