"""The one transition table: from which role, for which cause, to which role.

Owns nothing but the table. ``state.NodeState.transition`` is the only place that changes a role,
and it does what the row says: a change that is not here is refused by an assertion. Sources: Kafka
4.x ``QuorumState``, KIP-595, KIP-996.

A cause that comes with a higher epoch or a known leader is looked up in the same row whatever the
epoch; only Prospective may become Candidate and only Candidate may become Leader.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from kraft.raft.ready import Role


class Cause(Enum):
    """Why a role changes."""

    HIGHER_EPOCH = "a higher epoch was seen, its leader is not known"
    LEADER_LEARNED = "the leader of this or a higher epoch is known, with an endpoint"
    VOTE_GRANTED = "a vote of this node was granted"
    ELECTION_TIMEOUT = "the election timeout ran out"
    FETCH_TIMEOUT = "nothing came from the leader for the fetch timeout"
    WON = "a majority granted"
    LOST = "a majority rejected"
    LEADER_GONE = "the way back after a lost pre-vote, no leader to follow"
    RESIGNED = "the leader steps down"
    RESIGNATION_OVER = "the resigned leader's election timeout ran out"


class Timer(Enum):
    """What happens to the election timer on the way."""

    DRAWN = "a fresh timeout is drawn from [T, 2T)"
    KEPT = "what remains is kept"
    NONE = "the role has no election timer"


class Rule(NamedTuple):
    """Where the cause leads, whether quorum-state is written before anything is said of it, and
    what becomes of the election timer.
    """

    target: Role
    persists: bool
    timer: Timer


_UNATTACHED, _PROSPECTIVE, _CANDIDATE = Role.UNATTACHED, Role.PROSPECTIVE, Role.CANDIDATE
_LEADER, _FOLLOWER, _RESIGNED = Role.LEADER, Role.FOLLOWER, Role.RESIGNED
_DRAWN, _KEPT, _NONE = Timer.DRAWN, Timer.KEPT, Timer.NONE

TRANSITIONS: dict[tuple[Role, Cause], Rule] = {
    (_UNATTACHED, Cause.HIGHER_EPOCH): Rule(_UNATTACHED, True, _KEPT),
    (_UNATTACHED, Cause.LEADER_LEARNED): Rule(_FOLLOWER, True, _NONE),
    (_UNATTACHED, Cause.VOTE_GRANTED): Rule(_UNATTACHED, True, _DRAWN),
    (_UNATTACHED, Cause.ELECTION_TIMEOUT): Rule(_PROSPECTIVE, False, _DRAWN),
    (_PROSPECTIVE, Cause.HIGHER_EPOCH): Rule(_UNATTACHED, True, _KEPT),
    (_PROSPECTIVE, Cause.LEADER_LEARNED): Rule(_FOLLOWER, True, _NONE),
    (_PROSPECTIVE, Cause.VOTE_GRANTED): Rule(_PROSPECTIVE, True, _DRAWN),
    (_PROSPECTIVE, Cause.WON): Rule(_CANDIDATE, True, _DRAWN),
    # Lost and out of time differ in the timer alone; both go back to the leader if there is one.
    (_PROSPECTIVE, Cause.LOST): Rule(_UNATTACHED, True, _DRAWN),
    (_PROSPECTIVE, Cause.LEADER_GONE): Rule(_UNATTACHED, True, _KEPT),
    (_CANDIDATE, Cause.HIGHER_EPOCH): Rule(_UNATTACHED, True, _KEPT),
    (_CANDIDATE, Cause.LEADER_LEARNED): Rule(_FOLLOWER, True, _NONE),
    (_CANDIDATE, Cause.WON): Rule(_LEADER, True, _NONE),
    # A lost election waits out its timeout; an isolated node raises its epoch once at most.
    (_CANDIDATE, Cause.ELECTION_TIMEOUT): Rule(_PROSPECTIVE, False, _DRAWN),
    (_LEADER, Cause.HIGHER_EPOCH): Rule(_UNATTACHED, True, _DRAWN),
    (_LEADER, Cause.LEADER_LEARNED): Rule(_FOLLOWER, True, _NONE),
    (_LEADER, Cause.RESIGNED): Rule(_RESIGNED, False, _DRAWN),
    (_FOLLOWER, Cause.HIGHER_EPOCH): Rule(_UNATTACHED, True, _DRAWN),
    (_FOLLOWER, Cause.LEADER_LEARNED): Rule(_FOLLOWER, True, _NONE),
    (_FOLLOWER, Cause.FETCH_TIMEOUT): Rule(_PROSPECTIVE, False, _DRAWN),
    (_RESIGNED, Cause.HIGHER_EPOCH): Rule(_UNATTACHED, True, _KEPT),
    (_RESIGNED, Cause.LEADER_LEARNED): Rule(_FOLLOWER, True, _NONE),
    # A sole voter: nobody else can be elected meanwhile.
    (_RESIGNED, Cause.ELECTION_TIMEOUT): Rule(_PROSPECTIVE, False, _DRAWN),
    # Into the next epoch, so that it stops naming itself as the leader.
    (_RESIGNED, Cause.RESIGNATION_OVER): Rule(_UNATTACHED, True, _KEPT),
}
