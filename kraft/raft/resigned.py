"""Resigned: a leader that has stepped down and says so to the other voters.

It sends EndQuorumEpoch until each voter has answered or its election timeout runs out; then it
enters the next epoch without a leader. A restarted leader is resigned too: it must not lead on in
an epoch whose memory it has lost (KAFKA-10527). Source: Kafka's ``ResignedState``.
"""

from __future__ import annotations

from kraft.raft.connections import InFlight
from kraft.raft.epoch_state import EpochState
from kraft.raft.outbox import Needs
from kraft.raft.rpc import EndQuorumEpochRequest, VoteRequest
from kraft.raft.state import Handover, NodeState
from kraft.raft.transitions import TransitionCause


class ResignedState(EpochState):
    """The role of a former leader until the end of its epoch."""

    def __init__(self, node: NodeState, handover: Handover) -> None:
        super().__init__(node, handover)
        self._preferred_candidates = handover.preferred_candidates
        #: The voters that have not answered EndQuorumEpoch.
        self.unacknowledged = {key.id for key in handover.preferred_candidates}

    def poll(self) -> None:
        node = self.node
        if node.election_deadline_ms > node.now_ms or node.is_shutting_down:
            self._send_end_quorum_epochs()
        elif node.is_sole_voter:
            node.enter(TransitionCause.ELECTION_TIMEOUT, reason="this node is the only voter")
        else:
            node.transition(TransitionCause.RESIGNATION_OVER, epoch=node.epoch + 1)

    def wake_at_ms(self) -> float:
        return self.node.election_deadline_ms

    def may_stop(self) -> bool:
        """Return whether every voter knows of the resignation."""
        return not self.unacknowledged

    def may_grant(self, request: VoteRequest, *, is_up_to_date: bool) -> bool:
        return request.is_pre_vote and is_up_to_date

    def handle_end_quorum_epoch_response(self, source: int) -> None:
        self.unacknowledged.discard(source)

    def handle_request_failed(self, failed: InFlight, *, is_unsupported: bool) -> None:
        if isinstance(failed.request, EndQuorumEpochRequest) and self.node.is_shutting_down:
            # The shutdown does not wait for a dead voter.
            self.unacknowledged.discard(failed.destination)

    def _send_end_quorum_epochs(self) -> None:
        node = self.node
        for id in sorted(self.unacknowledged):
            request = EndQuorumEpochRequest(
                self.config.cluster_id,
                node.epoch,
                self.config.node_id,
                self._preferred_candidates,
                self.config.endpoints,
            )
            node.send_request(id, node.endpoint_of(id), request, needs=Needs.EPOCH)
