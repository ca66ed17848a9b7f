"""Prospective and candidate: a node that asks the voters for pre-votes, then for votes.

A prospective node becomes a candidate, in the next epoch, when a majority grants its pre-vote; a
candidate becomes the leader when a majority grants its vote. Sources: KIP-595, KIP-996; Kafka's
``NomineeState``, ``ProspectiveState``, ``CandidateState``, ``EpochElection``.
"""

from __future__ import annotations

from abc import abstractmethod

from kraft.errors import NONE, UNSUPPORTED_VERSION
from kraft.raft.connections import InFlight
from kraft.raft.epoch_state import EpochState
from kraft.raft.outbox import Needs
from kraft.raft.rpc import VoteRequest, VoteResponse
from kraft.raft.state import Handover, NodeState
from kraft.raft.transitions import TransitionCause
from kraft.raft.unattached import may_grant_without_leader, may_stand
from kraft.raft.voters import VoterSet


class EpochElection:
    """The votes, or pre-votes, of the voters at the beginning of the election."""

    __slots__ = ("granted", "rejected", "voters")

    def __init__(self, voters: VoterSet) -> None:
        self.voters = voters
        self.granted: set[int] = set()
        self.rejected: set[int] = set()

    def record(self, id: int, is_granted: bool) -> None:
        """Record a voter's answer in place of its earlier one."""
        if id in self.voters.ids:
            (self.granted if is_granted else self.rejected).add(id)
            (self.rejected if is_granted else self.granted).discard(id)

    def forget_rejection(self, id: int) -> None:
        """Let a voter that has rejected be asked again."""
        self.rejected.discard(id)

    def is_won(self) -> bool:
        return len(self.granted) >= self.voters.majority

    def is_lost(self) -> bool:
        return len(self.voters) - len(self.rejected) < self.voters.majority

    def unanswered(self) -> list[int]:
        answered = self.granted | self.rejected
        return [voter.id for voter in self.voters if voter.id not in answered]

    def summary(self) -> str:
        """Return who granted, who rejected and who did not answer, for the log."""
        answers = (
            ("granted by", self.granted & self.voters.ids),
            ("rejected by", self.rejected),
            ("no answer from", self.unanswered()),
        )
        return ", ".join(
            f"{answer} {' and '.join(map(str, sorted(ids)))}" for answer, ids in answers if ids
        )


class NomineeState(EpochState):
    """An election of this node; it grants its own vote."""

    is_pre_vote: bool
    is_without_leader = True

    def __init__(self, node: NodeState, handover: Handover) -> None:
        super().__init__(node, handover)
        self.election = EpochElection(node.voters)
        self.election.record(self.config.node_id, True)

    def begin(self) -> None:
        # A sole voter wins at once.
        if self.election.is_won():
            self.win()

    @abstractmethod
    def win(self) -> None:
        """Change the role after a majority has granted."""

    def lose(self) -> None:
        """Change the role after a majority has rejected."""

    def wake_at_ms(self) -> float:
        return self.node.election_deadline_ms if may_stand(self.node) else float("inf")

    def send_vote_requests(self) -> None:
        """Send a vote request to each reachable voter that has not answered."""
        election, node = self.election, self.node
        if election.is_lost():
            return
        end = node.vote_end()
        unanswered = set(election.unanswered())
        for voter in election.voters:
            if voter.id in unanswered:
                request = VoteRequest(
                    self.config.cluster_id,
                    node.epoch,
                    node.replica,
                    voter.key,
                    end.epoch,
                    end.offset,
                    self.is_pre_vote,
                )
                endpoint = node.endpoint_of(voter.id)
                node.send_request(voter.id, endpoint, request, needs=Needs.LOG)

    def handle_vote_response(
        self, source: int, request: VoteRequest, response: VoteResponse
    ) -> None:
        if request.epoch != self.node.epoch or request.is_pre_vote != self.is_pre_vote:
            return
        if response.error == UNSUPPORTED_VERSION and self.is_pre_vote and self.node.is_voter:
            self.win()
            return
        if response.error != NONE:
            self.node.back_off(source)
            return
        self.election.record(source, response.is_granted)
        if self.election.is_won():
            self.win()
        elif self.election.is_lost():
            self.lose()


class ProspectiveState(NomineeState):
    """A node that asks for pre-votes, which raise no epoch (KIP-996)."""

    is_pre_vote = True

    def win(self) -> None:
        node = self.node
        node.enter(
            TransitionCause.WON,
            epoch=node.epoch + 1,
            voted=node.replica,
            reason=f"pre-votes {self.election.summary()}",
        )

    def lose(self) -> None:
        self._return_to_leader(TransitionCause.LOST)

    def poll(self) -> None:
        node = self.node
        if node.election_deadline_ms <= node.now_ms and not node.is_shutting_down:
            # A removed voter draws a new timeout, and asks bootstrap servers meanwhile: the leader
            # sends it no BeginQuorumEpoch, and its voters may have moved.
            self._return_to_leader(
                TransitionCause.LEADER_GONE if node.is_voter else TransitionCause.LOST
            )
        else:
            self.send_vote_requests()

    def may_grant(self, request: VoteRequest, *, is_up_to_date: bool) -> bool:
        return may_grant_without_leader(self.node, request, is_up_to_date=is_up_to_date)

    def note_candidate_is_behind(self, candidate_id: int) -> None:
        """Ask that voter again: it may have rejected this node while it followed a leader.

        It follows nobody now, and cannot win against this node's vote. Kafka does not ask again:
        then both wait for their election timeouts. A removed voter does not ask again either: it
        names an earlier log end than the one that it compares with, so that it and a voter could
        reject each other without a pause.
        """
        if self.node.is_voter:
            self.election.forget_rejection(candidate_id)

    def handle_request_failed(self, failed: InFlight, *, is_unsupported: bool) -> None:
        """Stand without pre-votes, as before KIP-996, if a peer does not support them.

        A removed voter does not, as in Kafka: its elections would take its peers into epochs that
        the leader, which it may not know, never hears of.
        """
        request = failed.request
        is_pre_vote = isinstance(request, VoteRequest) and request.is_pre_vote
        if is_unsupported and is_pre_vote and self.node.is_voter:
            self.win()

    def _return_to_leader(self, cause: TransitionCause) -> None:
        """Follow the leader of this epoch if one with an endpoint is known."""
        node = self.node
        reason = f"not elected: pre-votes {self.election.summary()}"
        if node.leader_id >= 0 and node.endpoint_of(node.leader_id) is not None:
            node.transition(TransitionCause.LEADER_LEARNED, leader_id=node.leader_id, reason=reason)
        else:
            node.transition(cause, reason=reason)


class CandidateState(NomineeState):
    """A node that asks for votes in an epoch that it has begun."""

    is_pre_vote = False

    def win(self) -> None:
        node = self.node
        node.enter(
            TransitionCause.WON,
            leader_id=self.config.node_id,
            leader_endpoints=self.config.endpoints,
            handover=Handover(granting_voters=frozenset(self.election.granted)),
            reason=f"elected: votes {self.election.summary()}",
        )

    def poll(self) -> None:
        node = self.node
        if self.election.is_won():
            # A sole voter that was a candidate when it stopped.
            self.win()
        elif node.election_deadline_ms <= node.now_ms and not node.is_shutting_down:
            node.enter(
                TransitionCause.ELECTION_TIMEOUT,
                reason=f"not elected within the election timeout: votes {self.election.summary()}",
            )
        else:
            self.send_vote_requests()

    def may_grant(self, request: VoteRequest, *, is_up_to_date: bool) -> bool:
        return request.is_pre_vote and is_up_to_date
