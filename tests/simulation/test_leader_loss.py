"""A quorum whose voters have different timeouts, after the death of its leader."""

from __future__ import annotations

import pytest

from kraft.raft.candidate import ProspectiveState
from kraft.raft.follower import FollowerState
from kraft.simulation import leader_loss
from kraft.simulation.batch_tree import Violation
from kraft.simulation.leader_loss import VoterTimeouts, bound_ms, draw_timeouts, leaderless_ms

#: A voter follows a second longer than the candidate, and hardly ever stands a second time.
SLOW_VOTER = [VoterTimeouts(2000, 1000), VoterTimeouts(3000, 60_000), VoterTimeouts(2000, 1000)]
#: The same with equal election timeouts.
LATE_VOTER = [VoterTimeouts(2000, 1000), VoterTimeouts(3000, 1000), VoterTimeouts(2000, 1000)]


@pytest.mark.parametrize("seed", range(60))
def test_a_lost_leader_is_replaced_in_time_whatever_the_timeouts(seed: int) -> None:
    timeouts = draw_timeouts(seed)
    assert leaderless_ms(seed, timeouts) <= bound_ms(timeouts)


@pytest.mark.parametrize("timeouts", [SLOW_VOTER, LATE_VOTER], ids=["slow", "late"])
@pytest.mark.parametrize("seed", range(20))
def test_a_voter_that_follows_longer_rejects_the_first_candidate_only(
    seed: int, timeouts: list[VoterTimeouts]
) -> None:
    """The quorum waits for the longest fetch timeout, and for one more election at most."""
    assert leaderless_ms(seed, timeouts) <= 3_000 + 2_000


def test_a_seed_determines_the_run() -> None:
    first: list[str] = []
    second: list[str] = []
    assert leaderless_ms(4, LATE_VOTER, lines=first) == leaderless_ms(4, LATE_VOTER, lines=second)
    assert first == second
    assert first


def test_voters_that_reject_each_other_for_ever_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As if a voter that has lost its leader still followed it."""
    monkeypatch.setattr(leader_loss, "LIMIT_MS", 20_000.0)
    for role in (ProspectiveState, FollowerState):
        monkeypatch.setattr(role, "may_grant", lambda self, request, *, is_up_to_date: False)
    # The first leader is elected by unattached voters, which grant.
    with pytest.raises(Violation, match="no leader within"):
        leaderless_ms(1, LATE_VOTER)
