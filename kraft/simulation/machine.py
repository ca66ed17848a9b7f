"""One simulated computer: a disk, a clock that is off, and a node while it runs.

Owns what outlives the node (disk, identity, settings), and what the driver keeps for its present
life: requests to be answered, writes queued for the disk, what the checks have seen of it. Changed
by `cluster` and `faults`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import NamedTuple

from kraft.raft.config import RaftConfig
from kraft.raft.messages import Request
from kraft.raft.node import Node
from kraft.raft.ready import Role, Write
from kraft.raft.roles import Following
from kraft.raft.voters import ReplicaKey, VoterSet
from kraft.records import Uuid
from kraft.simulation.storage import Storage


class Origin(NamedTuple):
    """Who sent a request, in which of its lives; a client has no machine."""

    machine: Machine | None
    life: int
    correlation: int


class Asked(NamedTuple):
    """A request that a machine has not answered yet."""

    origin: Origin
    request: Request
    #: When it came, in the simulation's time.
    at: float


class Job(NamedTuple):
    """Writes that the disk does before one sync."""

    writes: list[Write]
    sequence: int


def new_directory(random: Random) -> Uuid:
    return Uuid(b"\1" + random.randbytes(15))


class Machine:
    """See the module's docstring. ``id`` is the node's; times are the simulation's, in ms."""

    def __init__(self, config: RaftConfig, storage: Storage) -> None:
        self.id = config.node_id
        self.config = config
        self.storage = storage
        self.life = 0
        self.is_up = False
        #: There while the process is up.
        self.node: Node
        # What the node's clock says is ``clock_base + now * clock_rate``.
        self.clock_base = 1_700_000_000_000.0
        self.clock_rate = 1.0
        self.paused_until = 0.0
        #: The end of the last pause, which outlives the phase that it began in.
        self.paused_until_at_most = 0.0
        #: Until then all its answers to fetches are damaged, or errors.
        self.sick_until = 0.0
        self.answers_errors = False
        #: While it is down: nothing comes back from its host, not even a refusal.
        self.is_silent = False
        self.slow_until = 0.0
        self.is_disk_full = False
        self.knows_pre_vote = True
        #: Somebody asked to add it: until then its disk may be counted on.
        self.may_become_voter_until = 0.0
        #: What its former disks held: a replica that is gone for good keeps what it acknowledged.
        self.lost_disks: dict[Uuid, Storage] = {}
        self.begin_life()

    def begin_life(self) -> None:
        """Forgets what only the process knew."""
        self.epoch = self.storage.election.epoch
        self.role = Role.UNATTACHED
        self.leader_id = -1
        self.high_watermark = -1
        self.verified_offset = 0
        self.wake_at = self.timer_at = float("inf")
        self.queued: list[Job] = []
        self.writing: Job | None = None
        self.asked: dict[int, Asked] = {}
        #: Appends that the client waits for: last offset, epoch, a value.
        self.waiting_acks: deque[tuple[int, int, bytes]] = deque()
        #: As a leader: when each node last asked something of it.
        self.heard: dict[int, float] = {}
        self.heard_voters: VoterSet | None = None
        self.led_since = 0.0
        #: As a leader: when the last fetch came of each voter that it answered well.
        self.served: dict[int, float] = {}
        self.served_voters: VoterSet | None = None
        #: As a follower: whom it follows, its last good news of it, and its log's end then.
        self.followed: Following | None = None
        self.good_news_at = 0.0
        self.followed_end = 0
        #: The voters on disk when the node's own were last held against them.
        self.checked_voters: VoterSet | None = None
        self.is_shutting_down = False
        self.is_asked_to_leave = False
        self.is_shut_down = False

    def __repr__(self) -> str:
        return f"n{self.id}"

    def disk_of(self, replica: ReplicaKey) -> Storage | None:
        """Return the disk of a replica of this node, a former one too."""
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
        """A new, empty disk in the place of the old one."""
        self.lost_disks[self.config.directory_id] = self.storage
        self.storage = storage
        self.config = replace(self.config, directory_id=directory_id)
