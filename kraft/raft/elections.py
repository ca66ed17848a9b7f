"""Elections: who may be voted for, and how a vote is asked for and counted.

Owns Vote with its pre-vote round. Sources: KIP-595, KIP-853, KIP-996; Kafka's ``KafkaRaftClient``
(``handleVoteRequest``, ``handleVoteResponse``), ``UnattachedState.canGrantVote`` and its siblings.
"""

from __future__ import annotations

from kraft.raft.messages import (
    FENCED_LEADER_EPOCH,
    INCONSISTENT_CLUSTER_ID,
    INVALID_REQUEST,
    INVALID_VOTER_KEY,
    NONE,
    UNSUPPORTED_VERSION,
    VoteRequest,
    VoteResponse,
)
from kraft.raft.ready import Role
from kraft.raft.roles import Candidacy, Following
from kraft.raft.state import NodeState
from kraft.raft.transitions import Cause


class Elections(NodeState):
    """The duties of voters that have no leader, and of whoever is asked for a vote."""

    # -- being asked

    def handle_vote(self, request: VoteRequest, reply_to: int) -> None:
        error = self._vote_error(request)
        is_granted = False
        if error == NONE:
            if request.epoch > self.epoch:
                # Even if the vote is then refused, and for a pre-vote too.
                self.transition(Cause.HIGHER_EPOCH, epoch=request.epoch)
            if request.voter is not None and not self.is_me(request.voter):
                error = INVALID_VOTER_KEY
            else:
                is_granted = self._may_grant(request)
                if is_granted and not request.is_pre_vote and self.voted is None:
                    self.transition(Cause.VOTE_GRANTED, voted=request.candidate)
                    if self.role is Role.PROSPECTIVE:
                        self._ask_again()
        self.respond(
            reply_to,
            VoteResponse(
                error, self.epoch, self.leader_id, self.endpoints_of(self.leader_id), is_granted
            )
            if error != INCONSISTENT_CLUSTER_ID
            else VoteResponse(error),
        )

    def _vote_error(self, request: VoteRequest) -> int:
        if self.is_foreign_cluster(request.cluster_id):
            return INCONSISTENT_CLUSTER_ID
        last_epoch_limit = request.epoch if request.is_pre_vote else request.epoch - 1
        if request.last_offset < 0 or not 0 <= request.last_epoch <= last_epoch_limit:
            return INVALID_REQUEST
        if request.epoch < self.epoch:
            return FENCED_LEADER_EPOCH
        if self.is_beyond_reach(request.epoch):
            return INVALID_REQUEST
        # With this node's own id: two nodes are set up with one id, and neither may be voted for.
        if request.candidate.id < 0 or request.candidate.id == self.config.node_id:
            return INVALID_REQUEST
        return NONE

    def _may_grant(self, request: VoteRequest) -> bool:
        """The table of who grants; the request's epoch is the node's own."""
        is_up_to_date = (request.last_epoch, request.last_offset) >= (
            self.log.last_epoch,
            self.log.end_offset,
        )
        if self.role in (Role.UNATTACHED, Role.PROSPECTIVE):
            if request.is_pre_vote:
                return is_up_to_date
            if self.voted is not None:
                return self.voted.id == request.candidate.id and (
                    self.voted.directory_id is None
                    or self.voted.directory_id == request.candidate.directory_id
                )
            return self.leader_id < 0 and is_up_to_date
        if not request.is_pre_vote:
            return False
        if self.role in (Role.CANDIDATE, Role.RESIGNED):
            return is_up_to_date
        if self.role is Role.LEADER:
            return False
        # A follower that hears its leader keeps it from being disrupted (KIP-996). Hears: an
        # observer follows on for ever, and may be a voter by a log that is longer than its own.
        following = self.following
        is_led = (
            following is not None
            and following.has_fetched
            and following.fetch_deadline_ms > self.now_ms
        )
        return is_up_to_date and not is_led

    # -- asking

    def become_prospective(self, cause: Cause) -> None:
        self.transition(cause)
        self._ask_again()
        assert self.candidacy is not None
        if self.candidacy.is_won():
            self.become_candidate()

    def _ask_again(self) -> None:
        """Begins the round of pre-votes, this node's own included."""
        self.candidacy = Candidacy(self.voters, is_pre_vote=True)
        self.candidacy.record(self.config.node_id, True)

    def become_candidate(self) -> None:
        self.transition(Cause.WON, epoch=self.epoch + 1, voted=self.replica)
        self.candidacy = Candidacy(self.voters, is_pre_vote=False)
        self.candidacy.record(self.config.node_id, True)
        if self.candidacy.is_won():
            self.become_leader(self.candidacy)

    def send_vote_requests(self) -> None:
        candidacy = self.candidacy
        if candidacy is None or candidacy.is_lost():
            return
        end = self.vote_end()
        for id in candidacy.unanswered():
            voter = candidacy.voters.get(id)
            assert voter is not None
            self.send_request(
                id,
                self.endpoint_of(id),
                VoteRequest(
                    self.config.cluster_id,
                    self.epoch,
                    self.replica,
                    voter.key,
                    end.epoch,
                    end.offset,
                    candidacy.is_pre_vote,
                ),
                is_leaders=False,
            )

    def handle_vote_response(
        self, source: int, request: VoteRequest, response: VoteResponse
    ) -> None:
        candidacy = self.candidacy
        if candidacy is None or request.epoch != self.epoch:
            return
        if candidacy.is_pre_vote != request.is_pre_vote:
            return
        if response.error == UNSUPPORTED_VERSION and request.is_pre_vote and self.is_voter:
            self.skip_pre_vote()
            return
        if response.error != NONE:
            self.back_off(source)
            return
        candidacy.record(source, response.is_granted)
        if candidacy.is_won():
            if candidacy.is_pre_vote:
                self.become_candidate()
            else:
                self.become_leader(candidacy)
        elif candidacy.is_lost() and candidacy.is_pre_vote:
            self.return_from_pre_vote(Cause.LOST)

    def skip_pre_vote(self) -> None:
        """Stand without a pre-vote, as before KIP-996: a peer does not know it.

        A removed voter does not, as in Kafka: its elections would take its peers into epochs that
        the leader, which it may not know, never hears of.
        """
        if self.role is Role.PROSPECTIVE and self.is_voter:
            self.become_candidate()

    def return_from_pre_vote(self, cause: Cause) -> None:
        """Back to the leader if there is one with an endpoint, else on without."""
        if self.leader_id >= 0 and self.endpoint_of(self.leader_id) is not None:
            self.transition(Cause.LEADER_LEARNED, leader_id=self.leader_id)
            self.following = Following(self.now_ms, self.config)
        else:
            self.transition(cause)
