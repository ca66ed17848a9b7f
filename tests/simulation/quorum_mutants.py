"""More faults of the quorum, planted by `mutants`: timers, resignations, changes of voters.

Each survived the seeds until an invariant or a fault of its own joined the simulation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraft.raft.following import Following
from kraft.raft.leadership import Leading
from kraft.raft.messages import FetchRequest, FetchResponse, UpdateKRaftVersionRequest
from kraft.raft.ready import Role
from kraft.raft.reconfiguration import Reconfiguration
from kraft.raft.roles import Leadership, VoterChange
from kraft.raft.state import NodeState
from kraft.raft.transitions import TRANSITIONS, Cause
from kraft.raft.voters import VersionRange, VoterSet

QUORUM_MUTANTS: dict[str, Callable[[], None]] = {}


def mutant(plant: Callable[[], None]) -> Callable[[], None]:
    QUORUM_MUTANTS[plant.__name__] = plant
    return plant


# -- who leads, and for how long


@mutant
def check_quorum_needs_one_follower_fewer() -> None:
    """KAFKA-15489: an isolated leader that keeps a minority leads on."""
    note = Leading.note_voter_seen

    def lenient(self: Leading, leadership: Leadership, id: int) -> None:
        note(self, leadership, id)
        needed = self.voters.majority - (1 if self.is_voter else 0)
        if id in self.voters.ids and len(leadership.seen) >= needed - 1:
            leadership.check_quorum_deadline_ms = self.now_ms + self.config.check_quorum_timeout_ms

    Leading.note_voter_seen = lenient  # type: ignore[method-assign]


@mutant
def every_controller_stands_while_voters_are_uncommitted() -> None:
    NodeState.is_electable = property(  # type: ignore[assignment, method-assign]
        lambda self: self.is_voter or (self.config.can_vote and not self.log.is_voters_committed())
    )


@mutant
def a_removed_voter_names_its_whole_log() -> None:
    """After a restart it does not know that its removal is committed, and is elected."""
    NodeState.vote_end = lambda self: self.log.end_before(self.log.end_offset)  # type: ignore


@mutant
def a_leader_resigns_before_its_removal_is_committed() -> None:
    note = Reconfiguration.note_committed

    def hasty(self: Reconfiguration, high_watermark: int) -> None:
        note(self, high_watermark)
        if self.leadership is not None and not self.is_voter:
            self.leadership.is_resign_requested = True

    Reconfiguration.note_committed = hasty  # type: ignore[method-assign]


@mutant
def the_vote_of_a_prospective_node_is_not_persisted() -> None:
    """Two votes in one epoch, across a restart."""
    key = (Role.PROSPECTIVE, Cause.VOTE_GRANTED)
    TRANSITIONS[key] = TRANSITIONS[key]._replace(persists=False)


@mutant
def a_failed_bootstrap_server_is_asked_again_first() -> None:
    """Where the first is silent, nobody finds the leader that the others know."""
    fetch = NodeState.fetch_from_bootstrap

    def stubborn(self: NodeState, request: Any) -> None:
        self._bootstrap_turns = {-2 - at: at for at in range(99)}
        fetch(self, request)

    NodeState.fetch_from_bootstrap = stubborn  # type: ignore[method-assign]


# -- what keeps a follower with its leader


@mutant
def an_error_renews_the_fetch_timer() -> None:
    handle = Following.handle_fetch_response

    def trusting(
        self: Following, source: int, request: FetchRequest, response: FetchResponse
    ) -> None:
        if response.error:
            self.note_leader_alive()
        handle(self, source, request, response)

    Following.handle_fetch_response = trusting  # type: ignore[method-assign]


@mutant
def damaged_records_renew_the_fetch_timer() -> None:
    append = Following._append_fetched

    def trusting(self: Following, records: bytes | memoryview) -> bool:
        is_sound = append(self, records)
        if not is_sound:
            self.note_leader_alive()
        return is_sound

    Following._append_fetched = trusting  # type: ignore[method-assign]


# -- changes of voters


@mutant
def a_change_of_voters_is_never_answered() -> None:
    """Neither when it is committed nor when its time is over."""

    def silent(self: Reconfiguration, change: VoterChange, error: int, message: str | None) -> None:
        if error == 0 or change.offset >= 0:
            change.reply_to = None

    answer = Reconfiguration._answer_change

    def forgetful(
        self: Reconfiguration, change: VoterChange, error: int, message: str | None
    ) -> None:
        silent(self, change, error, message)
        answer(self, change, error, message)

    Reconfiguration._answer_change = forgetful  # type: ignore[method-assign]


@mutant
def a_voter_is_upgraded_that_has_not_said_its_versions() -> None:
    """Its range is taken to be that of the leader, its directory to be unknown."""
    gate = Reconfiguration._upgrade_gate

    def guessing(
        self: Reconfiguration, request: UpdateKRaftVersionRequest
    ) -> tuple[int, str | None, VoterSet]:
        error, message, voters = gate(self, request)
        if error and message is not None and "has not said" in message:
            guessed = (
                voter._replace(kraft_versions=VersionRange(0, request.level)) for voter in voters
            )
            return 0, None, VoterSet(guessed)
        return error, message, voters

    Reconfiguration._upgrade_gate = guessing  # type: ignore[method-assign]


#: Too rare in so few seeds, though 300 show the last two.
SHOWN_BY_SCENARIOS = {
    "check_quorum_needs_one_follower_fewer",
    "a_removed_voter_names_its_whole_log",
    "the_vote_of_a_prospective_node_is_not_persisted",
}
