"""The interface of a raft role, with the answers of a node that does not lead.

`unattached.UnattachedState`, `candidate.ProspectiveState`, `candidate.CandidateState`,
`leader.LeaderState`, `follower.FollowerState` and `resigned.ResignedState` extend `EpochState`:
each holds the state of its role, handles the events that concern it, and has its own timers.
`node.Node` calls it. Sources: Kafka's ``EpochState`` and its implementations.
"""

from __future__ import annotations

from abc import abstractmethod

from kraft.errors import (
    FENCED_LEADER_EPOCH,
    INCONSISTENT_CLUSTER_ID,
    INVALID_REQUEST,
    NOT_LEADER_OR_FOLLOWER,
    UNKNOWN_LEADER_EPOCH,
)
from kraft.raft.connections import InFlight
from kraft.raft.interface import (
    Append,
    Appended,
)
from kraft.raft.outbox import Needs
from kraft.raft.rpc import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    ApiVersionsResponse,
    DescribeQuorumResponse,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    UpdateKRaftVersionRequest,
    UpdateKRaftVersionResponse,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
    VoteRequest,
    VoteResponse,
)
from kraft.raft.state import Handover, NodeState, RoleState


class EpochState(RoleState):
    """A role in one epoch; this base class answers as a node that does not lead.

    Handlers of responses and failures do nothing here: a role overrides those of the requests that
    it sends.
    """

    #: Whether this node leads the epoch and its LeaderChange record is committed.
    is_active = False
    #: Whether this node knows no leader, or does not reach the one that it knows.
    is_without_leader = False

    def __init__(self, node: NodeState, handover: Handover) -> None:
        self.node = node
        self.config = node.config
        self.log = node.log

    # -- the life of a role

    def begin(self) -> None:
        """Do nothing; most roles have no first actions."""

    def leave(self) -> None:
        """Do nothing; most roles have no requests that wait."""

    @abstractmethod
    def poll(self) -> None:
        """Do what is due by now, after each event."""

    @abstractmethod
    def wake_at_ms(self) -> float:
        """Return when `poll` has to run next without an event; infinity for never."""

    def may_stop(self) -> bool:
        """Return whether a node that shuts down may stop before its shutdown timeout."""
        return True

    # -- events of the log and the controller

    @property
    def next_append_offset(self) -> int:
        """The offset of the next record that is appended."""
        return self.log.end_offset

    def handle_append(self, event: Append) -> None:
        self.node.outbox.ready.appended.append(Appended(event.token, -1, NOT_LEADER_OR_FOLLOWER))

    def handle_resign(self) -> None:
        """The controller gives up the leadership of this epoch."""

    def handle_abandoned(self, reply_to: int) -> None:
        """The sender of a waiting request is gone."""

    def note_durable(self) -> None:
        """The durable end of the log has advanced."""

    def note_snapshot_installed(self) -> None:
        """The disk has replaced the log by the downloaded snapshot."""

    def note_snapshot_rejected(self) -> None:
        """The downloaded snapshot was damaged and is gone."""

    def note_leader_resigned(self, request: EndQuorumEpochRequest) -> None:
        """Do nothing; only a follower waits for its leader."""

    def note_candidate_is_behind(self, candidate_id: int) -> None:
        """Do nothing; only a follower and a prospective node may stand against the candidate."""

    # -- requests to the leader

    def leader_error(self, epoch: int) -> int:
        """Return why a request to the leader of ``epoch`` is rejected; the order is Kafka's."""
        if epoch < self.node.epoch:
            return FENCED_LEADER_EPOCH
        if epoch > self.node.epoch:
            return UNKNOWN_LEADER_EPOCH
        return self.leadership_error()

    def leadership_error(self) -> int:
        """Return why this node does not serve as the leader of its epoch; NONE if it does."""
        return NOT_LEADER_OR_FOLLOWER

    def change_error(self, cluster_id: str | None) -> tuple[int, str | None]:
        """Return why a change of the voters is rejected before it is looked at."""
        if self.node.is_foreign_cluster(cluster_id):
            return INCONSISTENT_CLUSTER_ID, "the request names another cluster id"
        return NOT_LEADER_OR_FOLLOWER, "this node does not lead the quorum"

    def handle_fetch(self, request: FetchRequest, reply_to: int) -> None:
        node = self.node
        if node.is_foreign_cluster(request.cluster_id):
            node.outbox.respond(reply_to, FetchResponse(INCONSISTENT_CLUSTER_ID))
        elif (
            request.max_wait_ms < 0
            or request.offset < 0
            or not 0 <= request.last_fetched_epoch <= request.epoch
        ):
            node.outbox.respond(reply_to, self.empty_fetch(INVALID_REQUEST))
        else:
            self.serve_fetch(request, reply_to)

    def serve_fetch(self, request: FetchRequest, reply_to: int) -> None:
        """Respond to a valid Fetch; an observer's may wait until there is a leader.

        A broker that loses the leader asks all controllers in turn. Kafka's answer at once, and the
        broker waits for a backoff, or for the connection to the dead one, while the next is
        elected. A voter's fetch never waits: it sends no request for votes meanwhile.
        """
        node = self.node
        error = self.leader_error(request.epoch)
        wait_ms = min(request.max_wait_ms, self.config.fetch_timeout_ms)
        if (
            error in (NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH)
            and self.is_without_leader
            and not node.is_shutting_down
            and wait_ms
            and request.replica.id not in node.voters.ids
        ):
            node.waiting_for_leader.add(reply_to, request, node.now_ms + wait_ms)
            return
        node.outbox.respond(reply_to, self.empty_fetch(error), needs=Needs.EPOCH)

    def empty_fetch(self, error: int) -> FetchResponse:
        node = self.node
        return FetchResponse(error, node.epoch, node.leader_id, node.endpoints_of(node.leader_id))

    def handle_fetch_snapshot(self, request: FetchSnapshotRequest, reply_to: int) -> None:
        node = self.node
        if node.is_foreign_cluster(request.cluster_id):
            node.outbox.respond(reply_to, FetchSnapshotResponse(INCONSISTENT_CLUSTER_ID))
            return
        response = FetchSnapshotResponse(
            self.leader_error(request.epoch),
            node.epoch,
            node.leader_id,
            node.endpoints_of(node.leader_id),
            request.snapshot_id,
        )
        self.serve_fetch_snapshot(request, response)
        node.outbox.respond(reply_to, response, needs=Needs.EPOCH)

    def serve_fetch_snapshot(
        self, request: FetchSnapshotRequest, response: FetchSnapshotResponse
    ) -> None:
        """Complete the response to a FetchSnapshot of this cluster."""

    def handle_describe_quorum(self, reply_to: int) -> None:
        node = self.node
        response = DescribeQuorumResponse(
            NOT_LEADER_OR_FOLLOWER,
            node.epoch,
            node.leader_id,
            node.endpoints_of(node.leader_id),
        )
        node.outbox.respond(reply_to, response)

    def handle_add_voter(self, request: AddRaftVoterRequest, reply_to: int) -> None:
        error, message = self.change_error(request.cluster_id)
        self.node.outbox.respond(reply_to, AddRaftVoterResponse(error, message))

    def handle_remove_voter(self, request: RemoveRaftVoterRequest, reply_to: int) -> None:
        error, message = self.change_error(request.cluster_id)
        self.node.outbox.respond(reply_to, RemoveRaftVoterResponse(error, message))

    def handle_update_voter(self, request: UpdateRaftVoterRequest, reply_to: int) -> None:
        node = self.node
        if node.is_foreign_cluster(request.cluster_id):
            node.outbox.respond(reply_to, UpdateRaftVoterResponse(INCONSISTENT_CLUSTER_ID))
            return
        error = self.serve_update_voter(request)
        leader_id, endpoints = node.leader_id, node.endpoints_of(node.leader_id)
        response = UpdateRaftVoterResponse(error, node.epoch, leader_id, endpoints)
        node.outbox.respond(reply_to, response)

    def serve_update_voter(self, request: UpdateRaftVoterRequest) -> int:
        """Carry out an UpdateRaftVoter of this cluster; return its error."""
        return self.leader_error(request.epoch)

    def handle_update_kraft_version(
        self, request: UpdateKRaftVersionRequest, reply_to: int
    ) -> None:
        error, message = self.change_error(None)
        self.node.outbox.respond(reply_to, UpdateKRaftVersionResponse(error, message))

    # -- responses

    def handle_vote_response(
        self, source: int, request: VoteRequest, response: VoteResponse
    ) -> None:
        """A voter has answered."""

    def handle_fetch_response(
        self, source: int, request: FetchRequest, response: FetchResponse
    ) -> None:
        """The leader, or a bootstrap server, has answered."""

    def handle_fetch_snapshot_response(
        self, source: int, request: FetchSnapshotRequest, response: FetchSnapshotResponse
    ) -> None:
        """The leader has sent a chunk of a snapshot, or an error."""

    def handle_update_voter_response(
        self, request: UpdateRaftVoterRequest, response: UpdateRaftVoterResponse
    ) -> None:
        """The leader has updated this voter, or not."""

    def handle_join_response(
        self, source: int, response: AddRaftVoterResponse | RemoveRaftVoterResponse
    ) -> None:
        """The leader has answered a request of this node to become a voter."""

    def handle_end_quorum_epoch_response(self, source: int) -> None:
        """A voter knows that this leader has resigned."""

    def handle_api_versions_response(
        self, correlation: int, response: ApiVersionsResponse | None
    ) -> None:
        """A new voter has answered; None if it did not."""

    def handle_request_failed(self, failed: InFlight, *, is_unsupported: bool) -> None:
        """A request got no response; see `interface.RequestFailed`."""
