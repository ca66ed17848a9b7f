"""A node of the metadata quorum, as a pure state machine: ``step(event, now_ms) -> Ready``.

Owns the dispatch of events to duties, what each role does by itself as time goes by, and where a
node starts from. No socket, file, thread, clock or random source: a driver brings all of them, the
one in ``kraft.server`` real ones, the one in ``kraft.simulation`` its own. The contract between a
node and its driver is in ``ready``; the roles' changes are in ``transitions``.

    event ─▶ step ─▶ handle (elections | following | leadership | reconfiguration)
                  ─▶ poll (what the role does now)
                  ─▶ Ready: to_write, to_send, committed, role_change, wake_at_ms

Sources: KIP-595, 630, 853, 996, 1166, 1186; Kafka's ``KafkaRaftClient``, ``QuorumState``.
"""

from __future__ import annotations

from collections.abc import Callable

from kraft.raft.config import RaftConfig
from kraft.raft.election_state import ElectionState
from kraft.raft.elections import Elections
from kraft.raft.following import Following
from kraft.raft.log_view import LogView
from kraft.raft.messages import (
    FENCED_LEADER_EPOCH,
    INCONSISTENT_CLUSTER_ID,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    UNKNOWN_LEADER_EPOCH,
    UNSUPPORTED_VERSION,
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    ApiVersionsRequest,
    ApiVersionsResponse,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    DescribeQuorumRequest,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    Request,
    Response,
    UpdateKRaftVersionRequest,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
    VoteRequest,
    VoteResponse,
)
from kraft.raft.ready import (
    Append,
    Event,
    Ready,
    RequestAbandoned,
    RequestFailed,
    RequestReceived,
    Resign,
    ResponseReceived,
    Role,
    Shutdown,
    SnapshotRefused,
    SnapshotsCleaned,
    SnapshotStored,
    Written,
)
from kraft.raft.reconfiguration import Reconfiguration
from kraft.raft.roles import Candidacy
from kraft.raft.roles import Following as FollowerState
from kraft.raft.state import NEVER, InFlight
from kraft.raft.transitions import Cause

#: Responses that carry the epoch and leader of whoever answered.
_EPOCH_RESPONSES = (
    FetchResponse,
    VoteResponse,
    BeginQuorumEpochResponse,
    EndQuorumEpochResponse,
    FetchSnapshotResponse,
    UpdateRaftVoterResponse,
)


class Node(Elections, Following, Reconfiguration):
    """A voter or observer. ``log`` and ``election`` are what its disk holds at the start."""

    def __init__(
        self,
        config: RaftConfig,
        log: LogView,
        election: ElectionState,
        draw: Callable[[], float],
        now_ms: float,
    ) -> None:
        super().__init__(config, log, election, draw, now_ms)
        self._start(election)

    def _start(self, election: ElectionState) -> None:
        """The role that a restart begins in (facts: Kafka's ``QuorumState.initialize``)."""
        self.election_deadline_ms = self.now_ms + self._drawn_timeout()
        if election.epoch < self.log.last_epoch:
            # The log has seen a later epoch than the file, which can only be of a lost file.
            self.epoch, self.voted = self.log.last_epoch, None
            self._write_election_state()
        elif election.leader_id == self.config.node_id:
            # It must not lead on in an epoch whose memory it has lost (KAFKA-10527), nor vote in
            # it again (KAFKA-10661).
            self.leader_id = election.leader_id
            self.leader_endpoints = self.config.endpoints
            self.role = Role.RESIGNED
            self.unacked_resignation = {
                voter.id for voter in self.voters if voter.id != self.config.node_id
            }
            self.preferred_candidates = tuple(
                voter.key for voter in self.voters if voter.id != self.config.node_id
            )
        elif election.voted is not None and self.is_me(election.voted) and self.is_voter:
            self.role = Role.CANDIDATE
            self._begin_restarted_candidacy()
        elif election.leader_id >= 0:
            self.leader_id = election.leader_id
            if self.endpoint_of(election.leader_id) is not None:
                self.leader_endpoints = self.endpoints_of(election.leader_id)
                self.role = Role.FOLLOWER
                self.following = FollowerState(self.now_ms, self.config)
                self.election_deadline_ms = NEVER
        if self._is_sole_voter() and self.role is not Role.CANDIDATE:
            # Nobody else can lead: there is nothing to wait for.
            self.election_deadline_ms = self.now_ms
            if self.following is not None:
                self.following.fetch_deadline_ms = self.now_ms

    def _begin_restarted_candidacy(self) -> None:
        self.candidacy = Candidacy(self.voters, is_pre_vote=False)
        self.candidacy.record(self.config.node_id, True)

    def _is_sole_voter(self) -> bool:
        return self.is_voter and len(self.voters) == 1

    # -- a step

    def step(self, event: Event, now_ms: float) -> Ready:
        """Takes in one event at ``now_ms`` and says what follows; ``None``: only time has gone by.

        Times never go back. Raises AssertionError where an invariant is broken: the process then
        must end.
        """
        assert now_ms >= self.now_ms, (now_ms, self.now_ms)
        self.now_ms = now_ms
        if event is not None:
            _HANDLERS[type(event)](self, event)
        self._poll()
        ready = self.finish_step()
        ready.wake_at_ms = self._wake_at_ms()
        ready.is_shut_down = self.is_shutting_down() and self._may_stop()
        return ready

    def _on_request(self, event: RequestReceived) -> None:
        request, reply_to = event.request, event.reply_to
        kind = type(request)
        if kind is FetchRequest:
            self.handle_fetch(request, reply_to)  # type: ignore[arg-type]
        else:
            _REQUESTS[kind](self, request, reply_to)

    def _on_response(self, event: ResponseReceived) -> None:
        in_flight = self.take_in_flight(event.correlation)
        if in_flight is None:
            return
        response = event.response
        if isinstance(response, ApiVersionsResponse):
            self.handle_api_versions_response(event.correlation, response)
            return
        if response.error == INCONSISTENT_CLUSTER_ID:
            self.back_off(in_flight.destination)
            return
        if isinstance(response, _EPOCH_RESPONSES) and not self._is_of_this_epoch(
            in_flight, response
        ):
            return
        self._take_response(in_flight, response)

    def _is_of_this_epoch(self, in_flight: InFlight, response: Response) -> bool:
        """Takes in the epoch and leader of a response; whether there is more to it."""
        assert isinstance(response, _EPOCH_RESPONSES)
        if response.error == UNSUPPORTED_VERSION:
            return True
        if response.epoch < self.epoch or response.error == UNKNOWN_LEADER_EPOCH:
            if response.error != NONE:
                self.back_off(in_flight.destination)
            return False
        before = (self.role, self.epoch, self.leader_id)
        if response.leader_id != self.config.node_id:
            if self.contradicts(response.epoch, response.leader_id):
                self.back_off(in_flight.destination)
                return False
            self.see_epoch(response.epoch, response.leader_id, response.leader_endpoints)
        if response.error in (FENCED_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER):
            if before == (self.role, self.epoch, self.leader_id):
                self.back_off(in_flight.destination)
            return False
        return response.epoch == self.epoch

    def _take_response(self, in_flight: InFlight, response: Response) -> None:
        source, request = in_flight.destination, in_flight.request
        if isinstance(response, FetchResponse):
            assert isinstance(request, FetchRequest)
            self.handle_fetch_response(source, request, response)
        elif isinstance(response, VoteResponse):
            assert isinstance(request, VoteRequest)
            self.handle_vote_response(source, request, response)
        elif isinstance(response, FetchSnapshotResponse):
            assert isinstance(request, FetchSnapshotRequest)
            self.handle_fetch_snapshot_response(source, request, response)
        elif isinstance(response, EndQuorumEpochResponse):
            self.unacked_resignation.discard(source)
        elif isinstance(response, UpdateRaftVoterResponse):
            assert isinstance(request, UpdateRaftVoterRequest)
            self.handle_update_voter_response(source, request, response)
        elif isinstance(response, (AddRaftVoterResponse, RemoveRaftVoterResponse)):
            self.handle_join_response(source, response)
        elif response.error != NONE:
            self.back_off(source)

    def _on_failure(self, event: RequestFailed) -> None:
        in_flight = self.take_in_flight(event.correlation)
        if in_flight is None:
            return
        self.back_off(in_flight.destination)
        request = in_flight.request
        if isinstance(request, ApiVersionsRequest):
            self.handle_api_versions_response(event.correlation, None)
        elif isinstance(request, EndQuorumEpochRequest) and self.is_shutting_down():
            # Whoever is gone need not be told, and is not waited for.
            self.unacked_resignation.discard(in_flight.destination)
        elif event.is_unsupported:
            if isinstance(request, VoteRequest) and request.is_pre_vote:
                self.skip_pre_vote()
            elif isinstance(request, UpdateRaftVoterRequest) and self.following is not None:
                self.following.has_updated_leader = True

    def _on_written(self, event: Written) -> None:
        before = self.log.durable_end_offset
        self.note_written(event.write_sequence)
        if self.leadership is not None and self.log.durable_end_offset > before:
            self.advance_high_watermark()
            self.answer_waiting(is_moved=False)

    def _on_cleaned(self, event: SnapshotsCleaned) -> None:
        self.log.clean(event.log_start_offset, event.earliest_snapshot_id)

    def _on_resign(self, event: Resign) -> None:
        if self.leadership is not None and event.epoch == self.epoch:
            self.leadership.is_resign_requested = True

    def _on_shutdown(self, event: Shutdown) -> None:
        self.shutdown_deadline_ms = self.now_ms + event.timeout_ms

    def _may_stop(self) -> bool:
        """A resigned leader waits until the others know; everybody else may go at once."""
        return (
            self.role not in (Role.LEADER, Role.RESIGNED)
            or self.now_ms >= self.shutdown_deadline_ms
            or not self.unacked_resignation
        )

    # -- what a role does by itself

    def _poll(self) -> None:
        if self._in_flight:
            self.give_up_late_requests()
        while True:
            role, epoch = self.role, self.epoch
            _POLLS[role](self)
            if self.role is role and self.epoch == epoch:
                return

    def _poll_unattached(self) -> None:
        if self.is_shutting_down():
            return
        if self._may_stand() and self.election_deadline_ms <= self.now_ms:
            self.become_prospective(Cause.ELECTION_TIMEOUT)
        else:
            self.fetch_from_bootstrap(self.fetch_request())

    def _may_stand(self) -> bool:
        """Voters only, and not while a snapshot takes the place of the log."""
        return self.is_electable and self.download is None

    def _poll_prospective(self) -> None:
        if self.election_deadline_ms <= self.now_ms and not self.is_shutting_down():
            # A removed voter draws a new timeout, and asks bootstrap servers meanwhile: the leader
            # sends it no BeginQuorumEpoch, and its voters may have moved.
            self.return_from_pre_vote(Cause.LEADER_GONE if self.is_voter else Cause.LOST)
        else:
            self.send_vote_requests()

    def _poll_candidate(self) -> None:
        assert self.candidacy is not None
        if self.candidacy.is_won():
            # A sole voter that was a candidate when it stopped.
            self.become_leader(self.candidacy)
        elif self.election_deadline_ms <= self.now_ms and not self.is_shutting_down():
            self.become_prospective(Cause.ELECTION_TIMEOUT)
        else:
            self.send_vote_requests()

    def _poll_leader(self) -> None:
        leadership = self.leadership
        assert leadership is not None
        is_expired = leadership.check_quorum_deadline_ms <= self.now_ms
        if is_expired and self._is_sole_voter():
            is_expired = False
            leadership.check_quorum_deadline_ms = self.now_ms + self.config.check_quorum_timeout_ms
        if is_expired or leadership.is_resign_requested or self.is_shutting_down():
            self.resign()
            return
        self.expire_change(leadership)
        if leadership.accumulator.drain_at_ms <= self.now_ms:
            self.drain()
        if leadership.waiting_deadlines:
            self.answer_late_fetches(leadership)
        if leadership.forget_observers_at_ms <= self.now_ms:
            self.forget_silent_observers(leadership)
        self.send_begin_quorum_epochs(leadership)

    def _poll_follower(self) -> None:
        following = self.following
        assert following is not None
        if self.is_shutting_down():
            return
        if (
            following.fetch_deadline_ms <= self.now_ms
            and (self.download is None or not self.download.is_installing)
            and self.is_electable
        ):
            self.become_prospective(Cause.FETCH_TIMEOUT)
            return
        is_silent = following.fetch_deadline_ms <= self.now_ms
        if self._is_telling_of_itself(is_silent=is_silent):
            return
        if is_silent and not self.is_voter and not self._in_flight:
            # An observer stays with its leader and looks around for a newer one.
            self.fetch_from_bootstrap(self.fetch_request())
        else:
            self.fetch_from_best_node()

    def _is_telling_of_itself(self, *, is_silent: bool) -> bool:
        """Once a period, what the leader is to know of a voter, or that an observer would join;
        whether that was sent.
        """
        following, config = self.following, self.config
        assert following is not None
        if following.update_voter_at_ms > self.now_ms or self._in_flight:
            return False
        # A leader that is silent is not asked to be joined: such requests would follow each other
        # for ever, with no fetch in between that could find a newer one.
        is_joining = (
            config.auto_join and config.can_vote and self.log.kraft_version >= 1 and not is_silent
        )
        if not self.is_voter and not is_joining:
            return False
        following.update_voter_at_ms = self.now_ms + config.update_voter_period_ms
        return self.tell_leader_of_voter() if self.is_voter else self.join_voters()

    def _poll_resigned(self) -> None:
        if self.election_deadline_ms <= self.now_ms and not self.is_shutting_down():
            if self._is_sole_voter():
                self.become_prospective(Cause.ELECTION_TIMEOUT)
            else:
                self.transition(Cause.RESIGNATION_OVER, epoch=self.epoch + 1)
        else:
            self.send_end_quorum_epochs()

    # -- when to wake

    def _wake_at_ms(self) -> float:
        wake = self.shutdown_deadline_ms
        role = self.role
        if role is Role.LEADER:
            leadership = self.leadership
            assert leadership is not None
            wake = min(
                wake,
                leadership.check_quorum_deadline_ms,
                leadership.begin_epoch_at_ms,
                leadership.accumulator.drain_at_ms,
                leadership.next_fetch_deadline_ms,
            )
            if leadership.change is not None:
                wake = min(wake, leadership.change.deadline_ms)
        elif role is Role.FOLLOWER:
            following = self.following
            assert following is not None
            if self.is_electable and (self.download is None or not self.download.is_installing):
                wake = min(wake, following.fetch_deadline_ms)
            if self.now_ms < following.resume_at_ms < wake:
                wake = following.resume_at_ms
        elif role is Role.RESIGNED or (self.is_electable and self.download is None):
            wake = min(wake, self.election_deadline_ms)
        now_ms = self.now_ms
        for sent in self._in_flight.values():
            if sent.deadline_ms < wake:
                wake = sent.deadline_ms
        if role is not Role.LEADER:
            for connection in self._connections.values():
                if now_ms < connection.backoff_until_ms < wake:
                    wake = connection.backoff_until_ms
        return wake if wake > now_ms else now_ms + 1.0


_HANDLERS: dict[type, Callable[..., None]] = {
    RequestReceived: Node._on_request,
    RequestAbandoned: Node.handle_abandoned,
    ResponseReceived: Node._on_response,
    RequestFailed: Node._on_failure,
    Written: Node._on_written,
    Append: Node.handle_append,
    SnapshotStored: Node.handle_snapshot_stored,
    SnapshotRefused: Node.handle_snapshot_refused,
    SnapshotsCleaned: Node._on_cleaned,
    Resign: Node._on_resign,
    Shutdown: Node._on_shutdown,
}

_REQUESTS: dict[type[Request], Callable[..., None]] = {
    VoteRequest: Node.handle_vote,
    BeginQuorumEpochRequest: Node.handle_begin_quorum_epoch,
    EndQuorumEpochRequest: Node.handle_end_quorum_epoch,
    FetchSnapshotRequest: Node.handle_fetch_snapshot,
    DescribeQuorumRequest: lambda node, request, reply_to: node.handle_describe_quorum(reply_to),
    AddRaftVoterRequest: Node.handle_add_voter,
    RemoveRaftVoterRequest: Node.handle_remove_voter,
    UpdateRaftVoterRequest: Node.handle_update_voter,
    UpdateKRaftVersionRequest: Node.handle_update_kraft_version,
}

_POLLS: dict[Role, Callable[[Node], None]] = {
    Role.UNATTACHED: Node._poll_unattached,
    Role.PROSPECTIVE: Node._poll_prospective,
    Role.CANDIDATE: Node._poll_candidate,
    Role.LEADER: Node._poll_leader,
    Role.FOLLOWER: Node._poll_follower,
    Role.RESIGNED: Node._poll_resigned,
}
