"""Transition table of the roles: which cause leads from which role to which.

Only ``NodeState.transition`` changes a role, as the row says; without a row it raises
AssertionError. A cause with a higher epoch or a known leader has the same row in every epoch. Only
Prospective may become Candidate and only Candidate may become Leader. Sources: Kafka 4.x
``QuorumState``, KIP-595, KIP-996.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from kraft.raft.interface import Role


class TransitionCause(Enum):
    """Why a role changes."""

    HIGHER_EPOCH = "a higher epoch was seen, its leader is not known"
    LEADER_LEARNED = "the leader of this or a higher epoch is known, with an endpoint"
    VOTE_GRANTED = "a vote of this node was granted"
    ELECTION_TIMEOUT = "the election timeout ran out"
    FETCH_TIMEOUT = "the leader sent no valid response within the fetch timeout"
    WON = "a majority granted"
    LOST = "a majority rejected"
    LEADER_GONE = "the pre-votes timed out, and no leader is known"
    RESIGNED = "the leader resigns"
    RESIGNATION_OVER = "the resigned leader's election timeout ran out"


class Timer(Enum):
    """What a transition does to the election timer."""

    DRAWN = "a new timeout is drawn from [T, 2T)"
    KEPT = "the remaining timeout is kept"
    NONE = "the role has no election timer"


class Rule(NamedTuple):
    """The new role, whether quorum-state is written first, and the election timer."""

    target: Role
    persists: bool
    timer: Timer


_UNATTACHED, _PROSPECTIVE, _CANDIDATE = Role.UNATTACHED, Role.PROSPECTIVE, Role.CANDIDATE
_LEADER, _FOLLOWER, _RESIGNED = Role.LEADER, Role.FOLLOWER, Role.RESIGNED
_DRAWN, _KEPT, _NONE = Timer.DRAWN, Timer.KEPT, Timer.NONE

TRANSITIONS: dict[tuple[Role, TransitionCause], Rule] = {
    (_UNATTACHED, TransitionCause.HIGHER_EPOCH): Rule(_UNATTACHED, True, _KEPT),
    (_UNATTACHED, TransitionCause.LEADER_LEARNED): Rule(_FOLLOWER, True, _NONE),
    (_UNATTACHED, TransitionCause.VOTE_GRANTED): Rule(_UNATTACHED, True, _DRAWN),
    (_UNATTACHED, TransitionCause.ELECTION_TIMEOUT): Rule(_PROSPECTIVE, False, _DRAWN),
    (_PROSPECTIVE, TransitionCause.HIGHER_EPOCH): Rule(_UNATTACHED, True, _KEPT),
    (_PROSPECTIVE, TransitionCause.LEADER_LEARNED): Rule(_FOLLOWER, True, _NONE),
    (_PROSPECTIVE, TransitionCause.VOTE_GRANTED): Rule(_PROSPECTIVE, True, _DRAWN),
    (_PROSPECTIVE, TransitionCause.WON): Rule(_CANDIDATE, True, _DRAWN),
    # LOST and LEADER_GONE differ in the timer alone; with a known leader it is LEADER_LEARNED.
    (_PROSPECTIVE, TransitionCause.LOST): Rule(_UNATTACHED, True, _DRAWN),
    (_PROSPECTIVE, TransitionCause.LEADER_GONE): Rule(_UNATTACHED, True, _KEPT),
    (_CANDIDATE, TransitionCause.HIGHER_EPOCH): Rule(_UNATTACHED, True, _KEPT),
    (_CANDIDATE, TransitionCause.LEADER_LEARNED): Rule(_FOLLOWER, True, _NONE),
    (_CANDIDATE, TransitionCause.WON): Rule(_LEADER, True, _NONE),
    # A lost election waits for its timeout: an isolated node raises its epoch at most once.
    (_CANDIDATE, TransitionCause.ELECTION_TIMEOUT): Rule(_PROSPECTIVE, False, _DRAWN),
    (_LEADER, TransitionCause.HIGHER_EPOCH): Rule(_UNATTACHED, True, _DRAWN),
    (_LEADER, TransitionCause.LEADER_LEARNED): Rule(_FOLLOWER, True, _NONE),
    (_LEADER, TransitionCause.RESIGNED): Rule(_RESIGNED, False, _DRAWN),
    (_FOLLOWER, TransitionCause.HIGHER_EPOCH): Rule(_UNATTACHED, True, _DRAWN),
    (_FOLLOWER, TransitionCause.LEADER_LEARNED): Rule(_FOLLOWER, True, _NONE),
    (_FOLLOWER, TransitionCause.FETCH_TIMEOUT): Rule(_PROSPECTIVE, False, _DRAWN),
    (_RESIGNED, TransitionCause.HIGHER_EPOCH): Rule(_UNATTACHED, True, _KEPT),
    (_RESIGNED, TransitionCause.LEADER_LEARNED): Rule(_FOLLOWER, True, _NONE),
    # A sole voter: no other node can be elected meanwhile.
    (_RESIGNED, TransitionCause.ELECTION_TIMEOUT): Rule(_PROSPECTIVE, False, _DRAWN),
    # To the next epoch, so that the node no longer names itself as the leader.
    (_RESIGNED, TransitionCause.RESIGNATION_OVER): Rule(_UNATTACHED, True, _KEPT),
}
