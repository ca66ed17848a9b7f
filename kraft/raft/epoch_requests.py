"""Requests that change epoch, vote or leader: Vote, BeginQuorumEpoch and EndQuorumEpoch.

A node answers them in every role; the role decides about a vote (`EpochState.may_grant`). Sources:
KIP-595, KIP-853, KIP-996; Kafka's ``KafkaRaftClient`` (``handleVoteRequest``,
``handleBeginQuorumEpochRequest``, ``handleEndQuorumEpochRequest``).
"""

from __future__ import annotations

from kraft.errors import (
    FENCED_LEADER_EPOCH,
    INCONSISTENT_CLUSTER_ID,
    INVALID_REQUEST,
    INVALID_VOTER_KEY,
    NONE,
)
from kraft.raft.interface import Role
from kraft.raft.rpc import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    VoteRequest,
    VoteResponse,
)
from kraft.raft.state import NodeState
from kraft.raft.transitions import TransitionCause


def handle_vote(node: NodeState, request: VoteRequest, reply_to: int) -> None:
    """Grant or reject a vote or pre-vote."""
    error = _vote_error(node, request)
    is_granted = False
    if error == NONE:
        if request.epoch > node.epoch:
            # Even if the vote is rejected, and for a pre-vote too.
            kind = "pre-vote" if request.is_pre_vote else "vote"
            node.transition(
                TransitionCause.HIGHER_EPOCH,
                epoch=request.epoch,
                reason=f"node {request.candidate.id} asked for a {kind} of epoch {request.epoch}",
            )
        if request.voter is not None and not node.is_me(request.voter):
            error = INVALID_VOTER_KEY
        else:
            is_granted = _may_grant(node, request)
            if is_granted and not request.is_pre_vote and node.voted is None:
                # A prospective node begins a new round of pre-votes.
                node.transition(
                    TransitionCause.VOTE_GRANTED,
                    voted=request.candidate,
                    reason=f"voted for node {request.candidate.id}",
                )
            elif request.is_pre_vote and not _is_up_to_date(node, request):
                node.role_state.note_candidate_is_behind(request.candidate.id)
    response = VoteResponse(error)
    if error != INCONSISTENT_CLUSTER_ID:
        leader_id = node.leader_id
        endpoints = node.endpoints_of(leader_id)
        response = VoteResponse(error, node.epoch, leader_id, endpoints, is_granted)
    node.outbox.respond(reply_to, response)


def _vote_error(node: NodeState, request: VoteRequest) -> int:
    if node.is_foreign_cluster(request.cluster_id):
        return INCONSISTENT_CLUSTER_ID
    last_epoch_limit = request.epoch if request.is_pre_vote else request.epoch - 1
    if request.last_offset < 0 or not 0 <= request.last_epoch <= last_epoch_limit:
        return INVALID_REQUEST
    if request.epoch < node.epoch:
        return FENCED_LEADER_EPOCH
    if node.is_epoch_implausible(request.epoch):
        return INVALID_REQUEST
    # A candidate with this node's own id: two nodes have one id, and neither may be elected.
    if request.candidate.id < 0 or request.candidate.id == node.config.node_id:
        return INVALID_REQUEST
    return NONE


def _may_grant(node: NodeState, request: VoteRequest) -> bool:
    is_up_to_date = _is_up_to_date(node, request)
    return node.role_state.may_grant(request, is_up_to_date=is_up_to_date)


def _is_up_to_date(node: NodeState, request: VoteRequest) -> bool:
    log = node.log
    return (request.last_epoch, request.last_offset) >= (log.last_epoch, log.end_offset)


def handle_begin_quorum_epoch(
    node: NodeState, request: BeginQuorumEpochRequest, reply_to: int
) -> None:
    """Follow the new leader of an epoch."""
    if node.is_foreign_cluster(request.cluster_id):
        node.outbox.respond(reply_to, BeginQuorumEpochResponse(INCONSISTENT_CLUSTER_ID))
        return
    error = _leader_request_error(node, request)
    if error == NONE:
        node.see_epoch(
            request.epoch,
            request.leader_id,
            request.leader_endpoints,
            sender=request.leader_id,
            message=request,
        )
        if request.voter is not None and not node.is_me(request.voter):
            error = INVALID_VOTER_KEY
    leader_id, endpoints = node.leader_id, node.endpoints_of(node.leader_id)
    response = BeginQuorumEpochResponse(error, node.epoch, leader_id, endpoints)
    node.outbox.respond(reply_to, response)


def handle_end_quorum_epoch(node: NodeState, request: EndQuorumEpochRequest, reply_to: int) -> None:
    """Note that the leader of an epoch has resigned."""
    if node.is_foreign_cluster(request.cluster_id):
        node.outbox.respond(reply_to, EndQuorumEpochResponse(INCONSISTENT_CLUSTER_ID))
        return
    error = _leader_request_error(node, request)
    if error == NONE:
        node.see_epoch(
            request.epoch,
            request.leader_id,
            request.leader_endpoints,
            sender=request.leader_id,
            message=request,
        )
        if node.role is Role.FOLLOWER and node.leader_id == request.leader_id:
            node.role_state.note_leader_resigned(request)
    leader_id, endpoints = node.leader_id, node.endpoints_of(node.leader_id)
    response = EndQuorumEpochResponse(error, node.epoch, leader_id, endpoints)
    node.outbox.respond(reply_to, response)


def _leader_request_error(
    node: NodeState, request: BeginQuorumEpochRequest | EndQuorumEpochRequest
) -> int:
    if request.epoch < node.epoch:
        return FENCED_LEADER_EPOCH
    if request.leader_id < 0 or node.contradicts(request.epoch, request.leader_id):
        return INVALID_REQUEST
    return NONE
