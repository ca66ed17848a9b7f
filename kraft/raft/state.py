"""What a raft node is, whatever its role: identity, log, epoch, role, requests in flight, and what
waits for the disk.

Owns the change of roles (by the table in ``transitions``), the rule of what may be said before what
is durable, and the connections to other nodes, with one request in flight for each, several only
where one says so. The duties of
the roles build on it: ``elections``, ``following``, ``leadership``, ``reconfiguration``; ``node``
joins them.

Invariants: the epoch never goes back; a vote is given once in an epoch; whatever speaks of an
epoch, a vote or the log's end leaves the node only when that is on disk.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from kraft.raft.config import RaftConfig
from kraft.raft.election_state import NO_LEADER, ElectionState
from kraft.raft.log_view import LogView
from kraft.raft.messages import OffsetAndEpoch, Request, Response
from kraft.raft.ready import (
    AppendBatches,
    DropSnapshotDownload,
    Ready,
    Role,
    RoleChange,
    Send,
    SendRequest,
    SendResponse,
    TruncateLog,
    Write,
    WriteElectionState,
)
from kraft.raft.roles import Candidacy, Following, Leadership, SnapshotDownload
from kraft.raft.transitions import TRANSITIONS, Cause, Timer
from kraft.raft.voters import Endpoint, ReplicaKey, VoterSet

NEVER = float("inf")
#: Behind this there is room for a million elections.
_LAST_EPOCHS = (1 << 31) - (1 << 20)
#: What a node may have slept through, there.
_ELECTIONS_MISSED = 1000


class InFlight(NamedTuple):
    """A request that waits for its response."""

    destination: int
    request: Request
    deadline_ms: float


class Connection:
    """What is known of the way to one other node."""

    __slots__ = ("backoff_until_ms", "has_timed_out", "in_flight")

    def __init__(self) -> None:
        #: How many requests wait for their responses.
        self.in_flight = 0
        self.backoff_until_ms = 0.0
        self.has_timed_out = False


class NodeState(ABC):
    """See the module's docstring. ``draw`` gives numbers from [0, 1)."""

    def __init__(
        self,
        config: RaftConfig,
        log: LogView,
        election: ElectionState,
        draw: Callable[[], float],
        now_ms: float,
    ) -> None:
        self.config = config
        self.replica = config.replica
        self.log = log
        self.now_ms = now_ms
        self.role = Role.UNATTACHED
        self.epoch = election.epoch
        self.leader_id = NO_LEADER
        self.leader_endpoints: tuple[Endpoint, ...] = ()
        self.voted: ReplicaKey | None = election.voted
        self.election_deadline_ms = NEVER
        self.candidacy: Candidacy | None = None
        self.leadership: Leadership | None = None
        self.following: Following | None = None
        self.download: SnapshotDownload | None = None
        self.unacked_resignation: set[int] = set()
        self.preferred_candidates: tuple[ReplicaKey, ...] = ()
        self.shutdown_deadline_ms = NEVER
        self._draw = draw
        self._ready = Ready()
        self.bootstrap_servers = bootstrap_servers_of(config)
        #: The number of the last request to each bootstrap server; none where it was never asked.
        self._bootstrap_turns: dict[int, int] = {}
        self._connections: dict[int, Connection] = {}
        self._in_flight: dict[int, InFlight] = {}
        self._last_correlation = 0
        self._write_sequence = 0
        self._written_sequence = 0
        self._state_sequence = 0
        self._held: deque[tuple[int, Send]] = deque()
        self._unwritten_ends: deque[tuple[int, int]] = deque()
        self._announced: tuple[Role, int, int, bool] | None = None
        self._voters_seen: VoterSet | None = None
        self._is_voter = False

    # -- what the roles' duties supply to each other

    @abstractmethod
    def become_leader(self, candidacy: Candidacy) -> None:
        """Leads the epoch that the candidacy has won."""

    @abstractmethod
    def _leave_leadership(self) -> None:
        """Answers whoever still waits for the leader."""

    @abstractmethod
    def note_committed(self, high_watermark: int) -> None:
        """The leader's high watermark has risen: a change of voters may be done."""

    @abstractmethod
    def fail_voter_change(self, leadership: Leadership) -> None:
        """Gives up the change of voters that is under way, if any."""

    # -- who votes

    @property
    def voters(self) -> VoterSet:
        return self.log.voters

    @property
    def is_voter(self) -> bool:
        voters = self.log.voters
        if voters is not self._voters_seen:
            self._voters_seen = voters
            self._is_voter = self.config.can_vote and voters.is_voter(self.replica)
        return self._is_voter

    @property
    def is_electable(self) -> bool:
        """Return whether the node stands for election where nobody leads.

        Voters do, and a voter whose removal may be uncommitted: it can hold the only copy of that
        record, and then no other node can win (Ongaro's thesis, 4.2.2). `vote_end` keeps it from
        being elected once its removal is committed. It does not count its own vote. In Kafka 4.3
        (``QuorumState.isVoter``) only the latest voters stand, committed or not, so that a quorum
        of two whose leader removes itself and crashes never elects a leader again.
        """
        if self.is_voter:
            return True
        log = self.log
        return (
            self.config.can_vote
            and not log.is_voters_committed()
            and log.removal_offset(self.replica) is not None
        )

    def vote_end(self) -> OffsetAndEpoch:
        """Return the log end that a candidate names in its vote requests.

        A voter names the end of its log. A removed voter names the end from before its removal:
        it does not know after a restart whether that is committed, and voters that hold the
        removal now reject it. A committed removal is held by a majority of the voters, so that no
        removed voter is elected then. A log end that is too early is always safe to name.
        """
        log = self.log
        if not self.is_voter:
            removal_offset = log.removal_offset(self.replica)
            if removal_offset is not None:
                return log.end_before(removal_offset)
        return OffsetAndEpoch(log.end_offset, log.last_epoch)

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    def is_shutting_down(self) -> bool:
        return self.shutdown_deadline_ms != NEVER

    def endpoints_of(self, id: int) -> tuple[Endpoint, ...]:
        """Where a node listens, as far as it is known: the leader's own word, or the voters'."""
        if id == self.config.node_id:
            return self.config.endpoints
        if id == self.leader_id and self.leader_endpoints:
            return self.leader_endpoints
        voter = self.voters.get(id)
        return voter.endpoints if voter is not None else ()

    def endpoint_of(self, id: int) -> Endpoint | None:
        return pick_endpoint(self.endpoints_of(id), self.config.listener)

    # -- roles

    def transition(
        self,
        cause: Cause,
        *,
        epoch: int | None = None,
        leader_id: int | None = None,
        leader_endpoints: tuple[Endpoint, ...] = (),
        voted: ReplicaKey | None = None,
    ) -> None:
        """Changes the role as the table says. What is not given stays as it is in this epoch."""
        rule = TRANSITIONS.get((self.role, cause))
        assert rule is not None, f"no way from {self.role.name}: {cause.value}"
        new_epoch = self.epoch if epoch is None else epoch
        assert new_epoch >= self.epoch, (new_epoch, self.epoch)
        if new_epoch > self.epoch:
            self.epoch = new_epoch
            self.voted = None
            self.leader_id, self.leader_endpoints = NO_LEADER, ()
        if voted is not None:
            assert self.voted is None or self.voted == voted, (self.voted, voted)
            self.voted = voted
        if leader_id is not None:
            assert self.leader_id in (NO_LEADER, leader_id), (self.leader_id, leader_id)
            self.leader_id = leader_id
            self.leader_endpoints = leader_endpoints or self.leader_endpoints
        if rule.persists:
            # First, as what the old role still has to say names the new epoch.
            self._write_election_state()
        self._leave_role(rule.target)
        self.role = rule.target
        if cause is not Cause.VOTE_GRANTED:
            # A request of the role before must not stand in the way of this one's: it may wait
            # for a node that is gone.
            self._forget_connections()
        if rule.timer is Timer.DRAWN:
            self.election_deadline_ms = self.now_ms + self._drawn_timeout()
        elif rule.timer is Timer.NONE:
            self.election_deadline_ms = NEVER

    def _drawn_timeout(self) -> float:
        return self.config.election_timeout_ms * (1.0 + self._draw())

    def _leave_role(self, target: Role) -> None:
        self.candidacy = None
        if self.role is Role.LEADER:
            self._leave_leadership()
        self.following = None
        if self.download is not None and not self.download.is_installing:
            self.write(DropSnapshotDownload(self.download.snapshot_id))
            self.download = None

    def _write_election_state(self) -> None:
        voted = self.voted
        state = WriteElectionState(
            self.epoch,
            self.leader_id,
            -1 if voted is None else voted.id,
            None if voted is None else voted.directory_id,
            self.log.kraft_version,
        )
        to_write = self._ready.to_write
        if to_write and isinstance(to_write[-1], WriteElectionState):
            to_write[-1] = state
        else:
            self.write(state)
        self._state_sequence = self._write_sequence + 1

    # -- the disk

    def write(self, write: Write) -> None:
        self._ready.to_write.append(write)

    def write_append(
        self, base_offset: int, end_offset: int, batches: memoryview | bytes | bytearray
    ) -> None:
        """Asks for the append of batches that the log's view has taken in already."""
        self.write(AppendBatches(base_offset, end_offset, batches))
        self._unwritten_ends.append((self._write_sequence + 1, end_offset))

    def truncate_log(self, end_offset: int) -> None:
        self.log.truncate(end_offset)
        self.write(TruncateLog(end_offset))
        self._cut_unwritten(end_offset)

    def _cut_unwritten(self, end_offset: int) -> None:
        self._unwritten_ends = deque(
            (sequence, min(end, end_offset)) for sequence, end in self._unwritten_ends
        )

    def note_written(self, sequence: int) -> None:
        """Everything up to ``sequence`` is durable: the log's end follows, what was held goes."""
        self._written_sequence = max(self._written_sequence, sequence)
        ends = self._unwritten_ends
        while ends and ends[0][0] <= sequence:
            end_offset = ends.popleft()[1]
            if end_offset > self.log.durable_end_offset:
                self.log.durable_end_offset = min(end_offset, self.log.end_offset)
        held = self._held
        while held and held[0][0] <= sequence:
            self._ready.to_send.append(held.popleft()[1])

    # -- messages

    def send_request(
        self,
        destination: int,
        endpoint: Endpoint | None,
        request: Request,
        *,
        is_leaders: bool,
        is_next: bool = False,
    ) -> bool:
        """Sends a request where the way is free; False where it is not.

        ``is_leaders``: it speaks of the epoch alone, and does not wait for the log's end.
        ``is_next``: it follows those that are in flight there, and does not wait for their answers.
        """
        if endpoint is None or not (is_next or self.is_reachable(destination)):
            return False
        connection = self._connections.setdefault(destination, Connection())
        connection.in_flight += 1
        self._last_correlation += 1
        correlation = self._last_correlation
        connection.has_timed_out = False
        deadline_ms = self.now_ms + self.config.request_timeout_ms
        self._in_flight[correlation] = InFlight(destination, request, deadline_ms)
        self._send(SendRequest(destination, endpoint, request, correlation), is_leaders)
        return True

    def respond(self, reply_to: int, response: Response, *, is_leaders: bool = False) -> None:
        self._send(SendResponse(reply_to, response), is_leaders)

    def _send(self, send: Send, is_leaders: bool) -> None:
        if is_leaders:
            sequence = self._state_sequence
        else:
            # What this step writes has the next sequence.
            sequence = self._write_sequence + (1 if self._ready.to_write else 0)
        if sequence <= self._written_sequence:
            self._ready.to_send.append(send)
        elif not self._held or self._held[-1][0] <= sequence:
            self._held.append((sequence, send))
        else:
            self._held = deque(sorted([*self._held, (sequence, send)], key=lambda held: held[0]))

    def is_reachable(self, destination: int) -> bool:
        """Whether a request may go there now: none is in flight, and no backoff runs."""
        connection = self._connections.get(destination)
        return connection is None or (
            not connection.in_flight and connection.backoff_until_ms <= self.now_ms
        )

    def forget_connection(self, destination: int) -> None:
        """Forget the way to a node that is no voter, unless a request is in flight there."""
        connection = self._connections.get(destination)
        is_free = connection is not None and not connection.in_flight
        if is_free and destination not in self.voters.ids:
            del self._connections[destination]

    def take_in_flight(self, correlation: int) -> InFlight | None:
        """The request that ``correlation`` answers; None where it has been given up."""
        in_flight = self._in_flight.pop(correlation, None)
        if in_flight is not None:
            self._connections[in_flight.destination].in_flight -= 1
        return in_flight

    def in_flight_to(self, destination: int) -> list[Request]:
        """The requests there that wait for their responses, in the order in which they went."""
        return [
            sent.request for sent in self._in_flight.values() if sent.destination == destination
        ]

    def renew_deadlines(self, destination: int) -> None:
        """An answer came in: those that wait behind it there have their time from now on."""
        deadline_ms = self.now_ms + self.config.request_timeout_ms
        for correlation, sent in self._in_flight.items():
            if sent.destination == destination:
                self._in_flight[correlation] = sent._replace(deadline_ms=deadline_ms)

    def back_off(self, destination: int) -> None:
        connection = self._connections.setdefault(destination, Connection())
        connection.backoff_until_ms = self.now_ms + self.config.retry_backoff_ms

    def give_up_late_requests(self) -> None:
        for correlation, in_flight in list(self._in_flight.items()):
            if in_flight.deadline_ms <= self.now_ms:
                self.take_in_flight(correlation)
                self._connections[in_flight.destination].has_timed_out = True

    def _forget_connections(self) -> None:
        """No request is in flight and no backoff runs (Kafka's ``RequestManager.resetAll``)."""
        self._in_flight.clear()
        self._connections.clear()

    def fetch_from_bootstrap(self, request: Request) -> None:
        """Send a request to the reachable bootstrap server that was asked longest ago.

        One request is in flight at a time. Servers never asked come first; a draw decides among
        equals. Kafka draws with replacement, and each dead server drawn again costs an observer
        the request timeout (2 s). The leader, which does not answer, is asked only where there is
        no other server.
        """
        if self._in_flight:
            return
        servers = [server for server in self.bootstrap_servers if self.is_reachable(server[0])]
        if self.leader_id >= 0:
            leader = self.endpoint_of(self.leader_id)
            servers = [
                (id, endpoint)
                for id, endpoint in servers
                if id != self.leader_id and (leader is None or endpoint[1:] != leader[1:])
            ] or servers
        if servers:
            turns = self._bootstrap_turns
            oldest = min(turns.get(id, 0) for id, _ in servers)
            servers = [server for server in servers if turns.get(server[0], 0) == oldest]
            id, endpoint = servers[int(self._draw() * len(servers))]
            self.send_request(id, endpoint, request, is_leaders=False)
            turns[id] = self._last_correlation

    # -- rules that requests and responses share

    def is_me(self, key: ReplicaKey) -> bool:
        return key.id == self.config.node_id and (
            key.directory_id is None or key.directory_id == self.config.directory_id
        )

    def is_foreign_cluster(self, cluster_id: str | None) -> bool:
        return cluster_id is not None and cluster_id != self.config.cluster_id

    def is_beyond_reach(self, epoch: int) -> bool:
        """Whether an epoch is near the last that 32 bits can say, and no few elections away.

        One such message would end all elections, for good, as epochs are written down.
        """
        return epoch > _LAST_EPOCHS and epoch - self.epoch > _ELECTIONS_MISSED

    def contradicts(self, epoch: int, leader_id: int) -> bool:
        """Whether a message of ``epoch``, or a later one, names a leader that cannot be: this node,
        or another than the one that is known; or an epoch that cannot be (`is_beyond_reach`).

        Anybody may send one, or answer so at the address that a request named: it is not believed.
        """
        if self.is_beyond_reach(epoch):
            return True
        if leader_id == NO_LEADER:
            return False
        return leader_id == self.config.node_id or (
            epoch == self.epoch and self.leader_id not in (NO_LEADER, leader_id)
        )

    def see_epoch(self, epoch: int, leader_id: int, leader_endpoints: tuple[Endpoint, ...]) -> None:
        """Takes in an epoch and leader that somebody named, where they are news.

        Messages of two leaders in one epoch, or of a leader that this node does not know itself to
        be, have been refused before: an assertion.
        """
        if leader_id == self.config.node_id:
            assert epoch < self.epoch or (epoch == self.epoch and self.leader_id == leader_id), (
                f"node {leader_id} is said to lead epoch {epoch}, and does not in {self.epoch}"
            )
            return
        if leader_id >= 0 and not leader_endpoints:
            voter = self.voters.get(leader_id)
            leader_endpoints = voter.endpoints if voter is not None else ()
        if epoch > self.epoch:
            if leader_id >= 0:
                self._learn_leader(epoch, leader_id, leader_endpoints)
            else:
                self.transition(Cause.HIGHER_EPOCH, epoch=epoch)
        elif epoch == self.epoch and leader_id >= 0:
            assert self.leader_id in (NO_LEADER, leader_id), (
                f"epoch {epoch} is led by {self.leader_id} and by {leader_id}"
            )
            if self.leader_id == NO_LEADER or len(leader_endpoints) > len(self.leader_endpoints):
                self._learn_leader(epoch, leader_id, leader_endpoints)

    def _learn_leader(
        self, epoch: int, leader_id: int, leader_endpoints: tuple[Endpoint, ...]
    ) -> None:
        if not leader_endpoints:
            # Without an endpoint there is nobody to follow: the epoch counts, the leader does not.
            if epoch > self.epoch:
                self.transition(Cause.HIGHER_EPOCH, epoch=epoch)
            return
        self.transition(
            Cause.LEADER_LEARNED,
            epoch=epoch,
            leader_id=leader_id,
            leader_endpoints=leader_endpoints,
        )
        self.following = Following(self.now_ms, self.config)

    # -- the answer of a step

    def commit(self, high_watermark: int) -> None:
        """Raises the high watermark; it never falls."""
        if high_watermark > self.log.high_watermark:
            assert high_watermark <= self.log.end_offset, (high_watermark, self.log.end_offset)
            self.log.high_watermark = high_watermark
            self._ready.committed = high_watermark

    def finish_step(self) -> Ready:
        ready, self._ready = self._ready, Ready()
        if ready.to_write:
            self._write_sequence += 1
        ready.write_sequence = self._write_sequence
        leadership, role = self.leadership, self.role
        is_active = leadership is not None and leadership.is_active
        # A leader that resigned is not announced any more (KAFKA-17333).
        leader_id = NO_LEADER if role is Role.RESIGNED else self.leader_id
        announced = (role, self.epoch, leader_id, is_active)
        if announced != self._announced:
            self._announced = announced
            ready.role_change = RoleChange(*announced)
        return ready


def bootstrap_servers_of(config: RaftConfig) -> list[tuple[int, Endpoint]]:
    """controller.quorum.bootstrap.servers under ids from -2 down, else the static voters; all but
    the node itself.
    """
    servers = [(-2 - index, endpoint) for index, endpoint in enumerate(config.bootstrap_servers)]
    if not servers:
        for voter in config.static_voters:
            endpoint = voter.endpoint(config.listener)
            if endpoint is not None:
                servers.append((voter.id, endpoint))
    own = {(endpoint.host, endpoint.port) for endpoint in config.endpoints}
    return [
        (id, endpoint)
        for id, endpoint in servers
        if id != config.node_id and (endpoint.host, endpoint.port) not in own
    ]


def pick_endpoint(endpoints: tuple[Endpoint, ...], listener: str) -> Endpoint | None:
    """The endpoint of a listener; one that came without its listener's name serves as well."""
    for endpoint in endpoints:
        if endpoint.name == listener:
            return endpoint
    return endpoints[0] if endpoints else None
