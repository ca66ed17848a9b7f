"""A node of the metadata quorum as a pure state machine: ``step(event, now_ms) -> RaftReady``.

`Node` dispatches each event to the role of the node, lets the role do what is due, and returns what
the driver has to write and send. It uses no socket, file, thread, clock or random source: the
driver provides all of them. ``kraft.server.driver`` is the real driver, ``kraft.simulation`` has
one in virtual time; `interface` is their contract with the node.

    event -> step -> handle (epoch_requests, or the role: EpochState.handle_...)
                  -> poll   (the role: unattached, candidate, leader, follower, resigned)
                  -> RaftReady: to_write, to_send, committed, role_change, wake_at_ms

Sources: KIP-595, 630, 853, 996, 1166, 1186; Kafka's ``KafkaRaftClient``, ``QuorumState``.
"""

from __future__ import annotations

from collections.abc import Callable

from kraft.errors import (
    FENCED_LEADER_EPOCH,
    INCONSISTENT_CLUSTER_ID,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    UNKNOWN_LEADER_EPOCH,
    UNSUPPORTED_VERSION,
)
from kraft.raft.candidate import CandidateState, ProspectiveState
from kraft.raft.config import RaftSettings
from kraft.raft.connections import NEVER, InFlight
from kraft.raft.election_state import NO_LEADER, ElectionState
from kraft.raft.epoch_requests import (
    handle_begin_quorum_epoch,
    handle_end_quorum_epoch,
    handle_vote,
)
from kraft.raft.epoch_state import EpochState
from kraft.raft.follower import FollowerState
from kraft.raft.interface import (
    Append,
    Event,
    RaftReady,
    RequestAbandoned,
    RequestFailed,
    RequestReceived,
    RequestsReceived,
    Resign,
    ResponseReceived,
    Role,
    RoleChange,
    Shutdown,
    SnapshotRejected,
    SnapshotsCleaned,
    SnapshotStored,
    Written,
)
from kraft.raft.leader import LeaderState
from kraft.raft.log_view import LogView
from kraft.raft.outbox import Needs
from kraft.raft.resigned import ResignedState
from kraft.raft.rpc import (
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
    OffsetAndEpoch,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    Response,
    UpdateKRaftVersionRequest,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
    VoteRequest,
    VoteResponse,
)
from kraft.raft.state import Handover, NodeState
from kraft.raft.unattached import UnattachedState

#: Responses that carry the epoch and leader of the node that answered.
_EPOCH_RESPONSES = (
    FetchResponse,
    VoteResponse,
    BeginQuorumEpochResponse,
    EndQuorumEpochResponse,
    FetchSnapshotResponse,
    UpdateRaftVoterResponse,
)

_ROLE_STATES: dict[Role, Callable[[NodeState, Handover], EpochState]] = {
    Role.UNATTACHED: UnattachedState,
    Role.PROSPECTIVE: ProspectiveState,
    Role.CANDIDATE: CandidateState,
    Role.LEADER: LeaderState,
    Role.FOLLOWER: FollowerState,
    Role.RESIGNED: ResignedState,
}


class Node(NodeState):
    """A voter or observer; ``log`` and ``election`` are the state of its disk at the start."""

    role_state: EpochState

    def __init__(
        self,
        config: RaftSettings,
        log: LogView,
        election: ElectionState,
        draw: Callable[[], float],
        now_ms: float,
    ) -> None:
        super().__init__(config, log, election, draw, now_ms, _ROLE_STATES)
        self._announced: tuple[Role, int, int, bool] | None = None
        self._start(election)

    def _start(self, election: ElectionState) -> None:
        """Begin in the role that follows from the disk (Kafka's ``QuorumState.initialize``)."""
        config = self.config
        self.draw_election_timeout()
        if election.epoch < self.log.last_epoch:
            # quorum-state was lost: the log has a later epoch.
            self.epoch, self.voted = self.log.last_epoch, None
            self.write_election_state()
        elif election.leader_id == config.node_id:
            # It must not lead on in an epoch whose memory it has lost (KAFKA-10527), nor vote in
            # it again (KAFKA-10661).
            self.leader_id = election.leader_id
            self.leader_endpoints = config.endpoints
            others = tuple(voter.key for voter in self.voters if voter.id != config.node_id)
            self.start_role(Role.RESIGNED, Handover(preferred_candidates=others))
        elif election.voted is not None and self.is_me(election.voted) and self.is_voter:
            self.start_role(Role.CANDIDATE)
            return
        elif election.leader_id >= 0:
            self.leader_id = election.leader_id
            if self.endpoint_of(election.leader_id) is not None:
                self.leader_endpoints = self.endpoints_of(election.leader_id)
                self.start_role(Role.FOLLOWER)
                self.election_deadline_ms = NEVER
        if self.is_sole_voter:
            # No other node can lead: there is nothing to wait for.
            self.election_deadline_ms = self.now_ms
            if isinstance(self.role_state, FollowerState):
                self.role_state.fetch_deadline_ms = self.now_ms

    # -- a step

    def step(self, event: Event, now_ms: float) -> RaftReady:
        """Handle one event at ``now_ms`` and return what follows; ``None``: only time has passed.

        Times never go back. Raises AssertionError if an invariant is broken: the process must end
        then.
        """
        assert now_ms >= self.now_ms, (now_ms, self.now_ms)
        self.now_ms = now_ms
        if event is not None:
            _HANDLERS[type(event)](self, event)
        self._poll()
        if self.waiting_for_leader.waiting:
            self._answer_waiting_for_leader()
        ready = self.outbox.take()
        role_state, role = self.role_state, self.role
        # A leader that resigned is not announced any more (KAFKA-17333).
        leader_id = NO_LEADER if role is Role.RESIGNED else self.leader_id
        announced = (role, self.epoch, leader_id, role_state.is_active)
        if announced != self._announced:
            self._announced = announced
            ready.role_change = RoleChange(*announced, self._take_reason())
        ready.wake_at_ms = self._wake_at_ms()
        ready.is_shut_down = self.is_shutting_down and (
            role_state.may_stop() or now_ms >= self.shutdown_deadline_ms
        )
        return ready

    def _take_reason(self) -> str:
        """Return why role, epoch or leader changed; forget it."""
        reasons = "; ".join(self.change_reasons)
        self.change_reasons.clear()
        if not reasons:
            # A role changes only by a transition; a leader becomes active without one.
            is_active = self.role_state.is_active
            return "the first record of its epoch is committed" if is_active else "the node started"
        return reasons

    def _poll(self) -> None:
        connections = self.connections
        if connections.in_flight:
            connections.give_up_late(self.now_ms)
        while True:
            role, epoch = self.role, self.epoch
            self.role_state.poll()
            if self.role is role and self.epoch == epoch:
                return

    def _answer_waiting_for_leader(self) -> None:
        """Serve the waiting fetches if there is a leader, else answer those whose time is over."""
        waiting, role_state = self.waiting_for_leader, self.role_state
        if not role_state.is_without_leader or self.is_shutting_down:
            for reply_to, (request, _) in list(waiting.waiting.items()):
                waiting.pop(reply_to)
                role_state.serve_fetch(request, reply_to)
        for reply_to, request in waiting.pop_late(self.now_ms):
            response = role_state.empty_fetch(role_state.leader_error(request.epoch))
            self.outbox.respond(reply_to, response, needs=Needs.EPOCH)

    def _wake_at_ms(self) -> float:
        now_ms = self.now_ms
        with_backoffs = self.role is not Role.LEADER
        wake = min(
            self.shutdown_deadline_ms,
            self.role_state.wake_at_ms(),
            self.waiting_for_leader.next_deadline_ms,
            self.connections.next_timer_ms(now_ms, with_backoffs=with_backoffs),
        )
        return wake if wake > now_ms else now_ms + 1.0

    # -- requests

    def _on_request(self, event: RequestReceived) -> None:
        request, reply_to = event.request, event.reply_to
        role_state = self.role_state
        match request:
            case FetchRequest():
                role_state.handle_fetch(request, reply_to)
            case VoteRequest():
                handle_vote(self, request, reply_to)
            case BeginQuorumEpochRequest():
                handle_begin_quorum_epoch(self, request, reply_to)
            case EndQuorumEpochRequest():
                handle_end_quorum_epoch(self, request, reply_to)
            case FetchSnapshotRequest():
                role_state.handle_fetch_snapshot(request, reply_to)
            case DescribeQuorumRequest():
                role_state.handle_describe_quorum(reply_to)
            case AddRaftVoterRequest():
                role_state.handle_add_voter(request, reply_to)
            case RemoveRaftVoterRequest():
                role_state.handle_remove_voter(request, reply_to)
            case UpdateRaftVoterRequest():
                role_state.handle_update_voter(request, reply_to)
            case UpdateKRaftVersionRequest():
                role_state.handle_update_kraft_version(request, reply_to)
            case _:
                raise AssertionError(f"the driver answers {request!r}")

    def _on_requests(self, event: RequestsReceived) -> None:
        for each in event.requests:
            self._on_request(each)

    def _on_abandoned(self, event: RequestAbandoned) -> None:
        self.waiting_for_leader.pop(event.reply_to)
        self.role_state.handle_abandoned(event.reply_to)

    # -- responses

    def _on_response(self, event: ResponseReceived) -> None:
        answered = self.connections.take(event.correlation)
        if answered is None:
            return
        response = event.response
        if isinstance(response, ApiVersionsResponse):
            self.role_state.handle_api_versions_response(event.correlation, response)
        elif response.error == INCONSISTENT_CLUSTER_ID:
            self.back_off(answered.destination)
        elif not isinstance(response, _EPOCH_RESPONSES) or self._is_of_this_epoch(
            answered, response
        ):
            self._take_response(answered, response)

    def _is_of_this_epoch(
        self,
        answered: InFlight,
        response: FetchResponse
        | VoteResponse
        | BeginQuorumEpochResponse
        | EndQuorumEpochResponse
        | FetchSnapshotResponse
        | UpdateRaftVoterResponse,
    ) -> bool:
        """Follow the epoch and leader of a response; return whether the role has to handle it."""
        if response.error == UNSUPPORTED_VERSION:
            return True
        if response.epoch < self.epoch or response.error == UNKNOWN_LEADER_EPOCH:
            if response.error != NONE:
                self.back_off(answered.destination)
            return False
        before = (self.role, self.epoch, self.leader_id)
        if response.leader_id != self.config.node_id:
            if self.contradicts(response.epoch, response.leader_id):
                self.back_off(answered.destination)
                return False
            self.see_epoch(
                response.epoch,
                response.leader_id,
                response.leader_endpoints,
                sender=answered.destination,
                message=response,
            )
        if response.error in (FENCED_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER):
            if before == (self.role, self.epoch, self.leader_id):
                self.back_off(answered.destination)
            return False
        return response.epoch == self.epoch

    def _take_response(self, answered: InFlight, response: Response) -> None:
        source, role_state = answered.destination, self.role_state
        match answered.request, response:
            case FetchRequest() as request, FetchResponse():
                role_state.handle_fetch_response(source, request, response)
            case VoteRequest() as request, VoteResponse():
                role_state.handle_vote_response(source, request, response)
            case FetchSnapshotRequest() as request, FetchSnapshotResponse():
                self.connections.renew_deadlines(source, self.now_ms)
                role_state.handle_fetch_snapshot_response(source, request, response)
            case EndQuorumEpochRequest(), EndQuorumEpochResponse():
                role_state.handle_end_quorum_epoch_response(source)
            case UpdateRaftVoterRequest() as request, UpdateRaftVoterResponse():
                role_state.handle_update_voter_response(request, response)
            case _, AddRaftVoterResponse() | RemoveRaftVoterResponse():
                role_state.handle_join_response(source, response)
            case _:
                if response.error != NONE:
                    self.back_off(source)

    def _on_failure(self, event: RequestFailed) -> None:
        failed = self.connections.take(event.correlation)
        if failed is None:
            return
        self.back_off(failed.destination)
        if isinstance(failed.request, ApiVersionsRequest):
            self.role_state.handle_api_versions_response(event.correlation, None)
        else:
            self.role_state.handle_request_failed(failed, is_unsupported=event.is_unsupported)

    # -- the disk

    def _on_written(self, event: Written) -> None:
        before = self.log.durable_end_offset
        self.outbox.note_written(event.write_sequence)
        if self.log.durable_end_offset > before:
            self.role_state.note_durable()

    def _on_snapshot_stored(self, event: SnapshotStored) -> None:
        log = self.log
        if not event.is_installed:
            if event.snapshot_id not in log.snapshots:
                log.add_snapshot(event.snapshot_id, event.size)
            return
        assert self.role is not Role.LEADER, "a leader never loads a snapshot"
        self._end_download(event.snapshot_id)
        log.begin_at(event.snapshot_id, event.size)
        log.load_snapshot_voters(event.voters, event.kraft_version)
        self.outbox.note_truncated(event.snapshot_id.offset)
        self.outbox.ready.committed = log.high_watermark
        self.role_state.note_snapshot_installed()

    def _on_snapshot_rejected(self, event: SnapshotRejected) -> None:
        assert self.is_installing, event
        self._end_download(event.snapshot_id)
        self.role_state.note_snapshot_rejected()

    def _end_download(self, snapshot_id: OffsetAndEpoch) -> None:
        download, self.download = self.download, None
        assert download is not None, snapshot_id
        assert download.snapshot_id == snapshot_id, (download, snapshot_id)

    def _on_cleaned(self, event: SnapshotsCleaned) -> None:
        self.log.clean(event.log_start_offset, event.earliest_snapshot_id)

    # -- the controller and the process

    @property
    def next_append_offset(self) -> int:
        """The offset of the next record that is appended; the log's end if another node leads."""
        return self.role_state.next_append_offset

    def _on_append(self, event: Append) -> None:
        self.role_state.handle_append(event)

    def _on_resign(self, event: Resign) -> None:
        if event.epoch == self.epoch:
            self.role_state.handle_resign()

    def _on_shutdown(self, event: Shutdown) -> None:
        self.shutdown_deadline_ms = self.now_ms + event.timeout_ms


_HANDLERS: dict[type, Callable[..., None]] = {
    RequestReceived: Node._on_request,
    RequestsReceived: Node._on_requests,
    RequestAbandoned: Node._on_abandoned,
    ResponseReceived: Node._on_response,
    RequestFailed: Node._on_failure,
    Written: Node._on_written,
    Append: Node._on_append,
    SnapshotStored: Node._on_snapshot_stored,
    SnapshotRejected: Node._on_snapshot_rejected,
    SnapshotsCleaned: Node._on_cleaned,
    Resign: Node._on_resign,
    Shutdown: Node._on_shutdown,
}
