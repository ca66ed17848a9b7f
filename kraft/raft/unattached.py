"""Unattached: a node that knows no leader of its epoch.

It asks the bootstrap servers for the leader. A voter starts an election when its election timeout
runs out. Source: Kafka's ``UnattachedState``.
"""

from __future__ import annotations

from kraft.raft.connections import NEVER
from kraft.raft.epoch_state import EpochState
from kraft.raft.rpc import VoteRequest
from kraft.raft.state import NodeState
from kraft.raft.transitions import TransitionCause


class UnattachedState(EpochState):
    """The role of a node without a leader."""

    is_without_leader = True

    def poll(self) -> None:
        node = self.node
        if node.is_shutting_down:
            return
        if may_stand(node) and node.election_deadline_ms <= node.now_ms:
            node.enter(
                TransitionCause.ELECTION_TIMEOUT,
                reason="this node is the only voter"
                if node.is_sole_voter
                else f"no leader of epoch {node.epoch} was found within the election timeout",
            )
        else:
            node.fetch_from_bootstrap(node.fetch_request())

    def wake_at_ms(self) -> float:
        return self.node.election_deadline_ms if may_stand(self.node) else NEVER

    def may_grant(self, request: VoteRequest, *, is_up_to_date: bool) -> bool:
        return may_grant_without_leader(self.node, request, is_up_to_date=is_up_to_date)


def may_stand(node: NodeState) -> bool:
    """Return whether a node may start an election: not while a snapshot replaces its log."""
    return node.is_electable and node.download is None


def may_grant_without_leader(node: NodeState, request: VoteRequest, *, is_up_to_date: bool) -> bool:
    """Return whether an unattached or prospective node grants a vote."""
    if request.is_pre_vote:
        return is_up_to_date
    voted = node.voted
    if voted is not None:
        return voted.id == request.candidate.id and (
            voted.directory_id is None or voted.directory_id == request.candidate.directory_id
        )
    return node.leader_id < 0 and is_up_to_date
