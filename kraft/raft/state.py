"""The state of a raft node that does not depend on its role.

`NodeState` holds identity, log view, epoch, vote, leader, outbox and connections. It changes the
role by the table in `transitions`: it ends the old role's `RoleState` and creates that of the new
role, which holds the state of this role alone. The roles (`unattached`, `candidate`, `leader`,
`follower`, `resigned`) call it, and `node.Node` extends it by the dispatch of events.

Invariants: the epoch never goes back; a node votes once in an epoch; a message leaves the node only
when the epoch, vote and log that it depends on are durable (see `outbox`).

Source: Kafka's ``QuorumState``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from kraft.raft.config import RaftSettings
from kraft.raft.connections import NEVER, Connections
from kraft.raft.election_state import NO_LEADER, ElectionState
from kraft.raft.fetch_purgatory import FetchPurgatory
from kraft.raft.interface import (
    DropSnapshotDownload,
    Role,
    SendRequest,
    TruncateLog,
    WriteElectionState,
)
from kraft.raft.log_view import LogView
from kraft.raft.outbox import Needs, Outbox
from kraft.raft.rpc import (
    EndQuorumEpochRequest,
    FetchRequest,
    OffsetAndEpoch,
    Request,
    Response,
    VoteRequest,
)
from kraft.raft.snapshot_download import SnapshotDownload
from kraft.raft.transitions import TRANSITIONS, Timer, TransitionCause
from kraft.raft.voters import Endpoint, ReplicaKey, VoterSet

#: From here on a million elections are left before the epoch overflows 32 bits.
_LAST_EPOCHS = (1 << 31) - (1 << 20)
#: How many elections a node may have missed by then.
_ELECTIONS_MISSED = 1000
#: Transitions that one line of the log explains; one step makes at most three.
_MAX_REASONS = 8


class Handover(NamedTuple):
    """What a role passes to the role that follows it."""

    #: The voters that granted the election, for the leader's LeaderChange record.
    granting_voters: frozenset[int] = frozenset()
    #: The other voters, the best next leader first, for the resigned leader's EndQuorumEpoch.
    preferred_candidates: tuple[ReplicaKey, ...] = ()


NO_HANDOVER = Handover()


class RoleState(ABC):
    """What `NodeState` needs of a role; `epoch_state.EpochState` is the full interface."""

    @abstractmethod
    def begin(self) -> None:
        """Perform the first actions of the role, after the transition to it."""

    @abstractmethod
    def leave(self) -> None:
        """End the role: answer the requests that wait for it."""

    @abstractmethod
    def may_grant(self, request: VoteRequest, *, is_up_to_date: bool) -> bool:
        """Return whether to grant a vote, or pre-vote, of this node's epoch.

        ``is_up_to_date``: the candidate's log ends at or after this node's log.
        """

    @abstractmethod
    def note_leader_resigned(self, request: EndQuorumEpochRequest) -> None:
        """The leader of this epoch has sent EndQuorumEpoch."""

    @abstractmethod
    def note_candidate_is_behind(self, candidate_id: int) -> None:
        """This node has rejected a pre-vote of its epoch: the candidate's log ends earlier."""


class NodeState:
    """The state of a node in every role; ``draw`` returns random numbers from [0, 1)."""

    def __init__(
        self,
        config: RaftSettings,
        log: LogView,
        election: ElectionState,
        draw: Callable[[], float],
        now_ms: float,
        role_states: Mapping[Role, Callable[[NodeState, Handover], RoleState]],
    ) -> None:
        self.config = config
        self.replica = config.replica
        self.log = log
        self.now_ms = now_ms
        self.epoch = election.epoch
        self.leader_id = NO_LEADER
        self.leader_endpoints: tuple[Endpoint, ...] = ()
        self.voted: ReplicaKey | None = election.voted
        #: The epoch and vote of the last write of quorum-state.
        self._written_vote = election.epoch, election.voted
        #: The last epoch whose leader has sent EndQuorumEpoch; it does not lead on in that epoch.
        self.resigned_epoch = -1
        self.election_deadline_ms = NEVER
        #: It outlasts a change of role only while the disk installs it.
        self.download: SnapshotDownload | None = None
        self.shutdown_deadline_ms = NEVER
        self.outbox = Outbox(log)
        #: Observers' fetches that wait until this node knows a leader, or leads.
        self.waiting_for_leader = FetchPurgatory()
        self.connections = Connections(config.request_timeout_ms, config.retry_backoff_ms)
        self.bootstrap_servers = bootstrap_servers_of(config)
        #: The correlation of the last request to each bootstrap server that was ever asked.
        self._bootstrap_turns: dict[int, int] = {}
        self._draw = draw
        self._voters_seen: VoterSet | None = None
        self._is_voter = False
        self._role_states = role_states
        #: Why role, epoch or leader changed since the last `RoleChange`, for the log.
        self.change_reasons: deque[str] = deque(maxlen=_MAX_REASONS)
        self.start_role(Role.UNATTACHED)

    # -- voters

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
    def is_sole_voter(self) -> bool:
        return self.is_voter and len(self.voters) == 1

    @property
    def is_electable(self) -> bool:
        """Return whether the node stands for election if nobody leads.

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
        after a restart it does not know whether the removal is committed, and voters that hold the
        removal now reject it. A majority of the voters holds a committed removal, so that no
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

    @property
    def is_shutting_down(self) -> bool:
        return self.shutdown_deadline_ms != NEVER

    @property
    def is_installing(self) -> bool:
        """Whether the disk replaces the log by a downloaded snapshot."""
        return self.download is not None and self.download.is_installing

    def endpoints_of(self, id: int) -> tuple[Endpoint, ...]:
        """Return the known endpoints of a node: those that the leader named, or the voters'."""
        if id == self.config.node_id:
            return self.config.endpoints
        if id == self.leader_id and self.leader_endpoints:
            return self.leader_endpoints
        voter = self.voters.get(id)
        return voter.endpoints if voter is not None else ()

    def endpoint_of(self, id: int) -> Endpoint | None:
        return pick_endpoint(self.endpoints_of(id), self.config.listener)

    # -- roles

    def start_role(self, role: Role, handover: Handover = NO_HANDOVER) -> None:
        """Begin in a role, as after a restart."""
        self.role = role
        self.role_state: RoleState = self._role_states[role](self, handover)

    def enter(
        self,
        cause: TransitionCause,
        *,
        epoch: int | None = None,
        leader_id: int | None = None,
        leader_endpoints: tuple[Endpoint, ...] = (),
        voted: ReplicaKey | None = None,
        handover: Handover = NO_HANDOVER,
        reason: str = "",
    ) -> None:
        """Change the role as `transition` does, and perform the first actions of the new role."""
        self.transition(
            cause,
            epoch=epoch,
            leader_id=leader_id,
            leader_endpoints=leader_endpoints,
            voted=voted,
            handover=handover,
            reason=reason,
        )
        self.role_state.begin()

    def transition(
        self,
        cause: TransitionCause,
        *,
        epoch: int | None = None,
        leader_id: int | None = None,
        leader_endpoints: tuple[Endpoint, ...] = (),
        voted: ReplicaKey | None = None,
        handover: Handover = NO_HANDOVER,
        reason: str = "",
    ) -> None:
        """Change the role as the table says. Arguments left out stay as they are in this epoch.

        ``reason`` explains the change in the log, by default with the text of ``cause``. Raises
        AssertionError if the table has no row for the role and ``cause``.
        """
        rule = TRANSITIONS.get((self.role, cause))
        assert rule is not None, f"no transition from {self.role.name}: {cause.value}"
        self.change_reasons.append(reason or cause.value)
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
            # First: the last responses of the old role name the new epoch.
            self.write_election_state()
        self.role_state.leave()
        if self.download is not None and not self.download.is_installing:
            self.drop_download(self.download)
        if cause is not TransitionCause.VOTE_GRANTED:
            # A request of the old role may wait for a dead node, and must not block the new role.
            self.connections.clear()
        if rule.timer is Timer.DRAWN:
            self.draw_election_timeout()
        elif rule.timer is Timer.NONE:
            self.election_deadline_ms = NEVER
        self.start_role(rule.target, handover)

    def draw_election_timeout(self) -> None:
        timeout_ms = self.config.election_timeout_ms * (1.0 + self._draw())
        self.election_deadline_ms = self.now_ms + timeout_ms

    def write_election_state(self) -> None:
        """Write epoch, vote and leader.

        Messages wait for it, unless only the leader is new, and is another node. A node's own
        leadership must outlast a crash: it must not lead the same epoch twice (KAFKA-10527).
        """
        voted = self.voted
        is_awaited = (self.epoch, voted) != self._written_vote or (
            self.leader_id == self.config.node_id
        )
        self._written_vote = self.epoch, voted
        self.outbox.write_election_state(
            WriteElectionState(
                self.epoch,
                self.leader_id,
                -1 if voted is None else voted.id,
                None if voted is None else voted.directory_id,
                self.log.kraft_version,
            ),
            is_awaited=is_awaited,
        )

    # -- the log

    def truncate_log(self, end_offset: int) -> None:
        self.log.truncate(end_offset)
        self.outbox.write(TruncateLog(end_offset))
        self.outbox.note_truncated(end_offset)

    def drop_download(self, download: SnapshotDownload) -> None:
        self.outbox.write(DropSnapshotDownload(download.snapshot_id))
        self.download = None

    def commit(self, high_watermark: int) -> None:
        """Raise the high watermark; a lower one has no effect."""
        if high_watermark > self.log.high_watermark:
            assert high_watermark <= self.log.end_offset, (high_watermark, self.log.end_offset)
            self.log.high_watermark = high_watermark
            self.outbox.ready.committed = high_watermark

    # -- requests to other nodes

    def send_request(
        self,
        destination: int,
        endpoint: Endpoint | None,
        request: Request,
        *,
        needs: Needs,
        is_next: bool = False,
    ) -> bool:
        """Send a request; return False if the node is unreachable now.

        ``is_next``: send it although other requests to that node are in flight.
        """
        connections = self.connections
        if endpoint is None or not (is_next or connections.is_reachable(destination, self.now_ms)):
            return False
        correlation = connections.add(destination, request, self.now_ms)
        send = SendRequest(destination, endpoint, request, correlation)
        self.outbox.send(send, needs)
        return True

    def back_off(self, destination: int) -> None:
        self.connections.back_off(destination, self.now_ms)

    def forget_connection(self, destination: int) -> None:
        """Forget the connection to a node that is not a voter, unless a request is in flight."""
        if destination not in self.voters.ids:
            self.connections.forget(destination)

    def fetch_request(self) -> FetchRequest:
        config, log = self.config, self.log
        return FetchRequest(
            config.cluster_id,
            self.replica,
            self.epoch,
            log.end_offset,
            log.last_epoch,
            config.fetch_max_wait_ms,
            config.fetch_max_bytes,
            log.high_watermark,
        )

    def fetch_from_bootstrap(self, request: Request) -> None:
        """Send a request to the reachable bootstrap server that was asked longest ago.

        One request is in flight at a time. Servers never asked come first; a draw decides among
        equals. Kafka draws with replacement, and each dead server drawn again costs an observer
        the request timeout (2 s). The leader, which does not answer, is asked only if there is no
        other server.
        """
        connections, now_ms = self.connections, self.now_ms
        if connections.in_flight:
            return
        servers = [
            server
            for server in self.bootstrap_servers
            if connections.is_reachable(server[0], now_ms)
        ]
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
            self.send_request(id, endpoint, request, needs=Needs.LOG)
            turns[id] = connections.last_correlation

    @property
    def may_append(self) -> bool:
        """Whether the disk is not behind: fewer appends wait for it than the settings allow.

        Kafka's accumulator lets as many batches wait in its pool.
        """
        return len(self.outbox.unwritten_ends) < self.config.max_unwritten_appends

    # -- rules that requests and responses share

    def is_me(self, key: ReplicaKey) -> bool:
        return key.id == self.config.node_id and (
            key.directory_id is None or key.directory_id == self.config.directory_id
        )

    def is_foreign_cluster(self, cluster_id: str | None) -> bool:
        return cluster_id is not None and cluster_id != self.config.cluster_id

    def is_epoch_implausible(self, epoch: int) -> bool:
        """Return whether an epoch is near the last of 32 bits and far above this node's epoch.

        Epochs are durable: one such message, if believed, would end all elections for good.
        """
        return epoch > _LAST_EPOCHS and epoch - self.epoch > _ELECTIONS_MISSED

    def contradicts(self, epoch: int, leader_id: int) -> bool:
        """Return whether a message of this or a later epoch names an impossible leader or epoch.

        The leader cannot be this node, nor another one than the known leader of the epoch; for the
        epoch see `is_epoch_implausible`. Any client can send such a message, or respond so at an
        address that a request named: the node ignores it.
        """
        if self.is_epoch_implausible(epoch):
            return True
        if leader_id == NO_LEADER:
            return False
        return leader_id == self.config.node_id or (
            epoch == self.epoch and self.leader_id not in (NO_LEADER, leader_id)
        )

    def see_epoch(
        self,
        epoch: int,
        leader_id: int,
        leader_endpoints: tuple[Endpoint, ...],
        *,
        sender: int,
        message: Request | Response,
    ) -> None:
        """Follow the epoch and leader that a message names, if they are newer than the known ones.

        ``sender`` is the id of the node that sent it, below -1 a bootstrap server's. Raises
        AssertionError for two leaders of one epoch, or for this node as a leader that it is not:
        the caller has rejected such messages by `contradicts`.
        """
        if leader_id == self.config.node_id:
            assert epoch < self.epoch or (epoch == self.epoch and self.leader_id == leader_id), (
                f"node {leader_id} is named as the leader of epoch {epoch}, "
                f"but it does not lead; its epoch is {self.epoch}"
            )
            return
        if leader_id >= 0 and not leader_endpoints:
            voter = self.voters.get(leader_id)
            leader_endpoints = voter.endpoints if voter is not None else ()
        if epoch > self.epoch:
            self._learn_epoch(epoch, leader_id, leader_endpoints, _origin(sender, message))
        elif epoch == self.epoch and leader_id >= 0:
            assert self.leader_id in (NO_LEADER, leader_id), (
                f"epoch {epoch} is led by {self.leader_id} and by {leader_id}"
            )
            if self.leader_id == NO_LEADER or len(leader_endpoints) > len(self.leader_endpoints):
                self._learn_epoch(epoch, leader_id, leader_endpoints, _origin(sender, message))

    def _learn_epoch(
        self, epoch: int, leader_id: int, leader_endpoints: tuple[Endpoint, ...], origin: str
    ) -> None:
        if leader_id >= 0 and leader_endpoints:
            self.transition(
                TransitionCause.LEADER_LEARNED,
                epoch=epoch,
                leader_id=leader_id,
                leader_endpoints=leader_endpoints,
                reason=f"{origin} names leader {leader_id} of epoch {epoch}",
            )
        elif epoch > self.epoch:
            # A leader without an endpoint cannot be followed: only its epoch counts.
            self.transition(
                TransitionCause.HIGHER_EPOCH, epoch=epoch, reason=f"{origin} names epoch {epoch}"
            )


def _origin(sender: int, message: Request | Response) -> str:
    who = f"node {sender}" if sender >= 0 else "a bootstrap server"
    return f"{type(message).__name__} of {who}"


def bootstrap_servers_of(config: RaftSettings) -> list[tuple[int, Endpoint]]:
    """Return the bootstrap servers except this node itself, with their ids.

    Those of controller.quorum.bootstrap.servers have ids from -2 down. Without any, the static
    voters are the bootstrap servers.
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
    """Return the endpoint of a listener, or the first one: some come without a listener's name."""
    for endpoint in endpoints:
        if endpoint.name == listener:
            return endpoint
    return endpoints[0] if endpoints else None
