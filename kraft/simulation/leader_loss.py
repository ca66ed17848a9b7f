"""Loss of the leader in a quorum whose voters have different fetch and election timeouts.

A follower that has fetched from its leader rejects pre-votes until its own fetch timeout
(KIP-996). A voter with a longer timeout therefore rejects the first candidate after the leader's
death. `leaderless_ms` measures how long the quorum of a seed is without a leader; `bound_ms` is the
longest time that the rules allow for in a network without loss:

- The voter with the longest timeouts stops following one fetch timeout after the leader's last
  response; from then on it grants every candidate whose log is not shorter than its own.
- A voter whose log is longer, and whose pre-votes were rejected, follows the dead leader again
  after its election timeout, and stands again one fetch timeout later. Meanwhile it rejects all
  others.
- Candidates may split the votes once; a round costs at most two election timeouts.

So voters with different timeouts do not stop each other for good. Called by tests, which run many
seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from kraft.raft.interface import Role
from kraft.raft.log_view import BOOTSTRAP_SNAPSHOT
from kraft.simulation.batch_tree import BatchTree, Violation
from kraft.simulation.cluster import SimulatedCluster
from kraft.simulation.conditions import FaultConditions
from kraft.simulation.machine import Machine
from kraft.simulation.members import BOOTSTRAP_PORT, draw_members, new_machine
from kraft.simulation.storage import Snapshot, Storage, snapshot_content

FETCH_TIMEOUTS_MS = (500, 1000, 2000, 3000, 5000)
ELECTION_TIMEOUTS_MS = (300, 1000, 2000)
#: How long the quorum works before its leader dies, at least and at most.
_LIFE_MS = (2_000.0, 6_000.0)
#: The quorum counts as stuck after so much time.
LIMIT_MS = 300_000.0
_POLL_MS = 5.0


class VoterTimeouts(NamedTuple):
    """controller.quorum.fetch.timeout.ms and controller.quorum.election.timeout.ms of a voter."""

    fetch_ms: int
    election_ms: int


def draw_timeouts(seed: int) -> list[VoterTimeouts]:
    """Return the timeouts of the three or five voters of a seed."""
    random = Random(seed)
    return [
        VoterTimeouts(random.choice(FETCH_TIMEOUTS_MS), random.choice(ELECTION_TIMEOUTS_MS))
        for _ in range(random.choice((3, 3, 5)))
    ]


def bound_ms(timeouts: Sequence[VoterTimeouts]) -> float:
    """Return how long a quorum with these timeouts may be without a leader, in ms."""
    fetch_ms = max(each.fetch_ms for each in timeouts)
    election_ms = max(each.election_ms for each in timeouts)
    return 2 * fetch_ms + 4 * election_ms


def leaderless_ms(
    seed: int, timeouts: Sequence[VoterTimeouts], *, lines: list[str] | None = None
) -> float:
    """Return the time from the leader's death to the next leader's first commit.

    ``lines`` receives the trace of the run. Raises Violation for a violated invariant, and if there
    is no leader within `LIMIT_MS`.
    """
    return _LeaderLoss(seed, timeouts, lines).run()


class _LeaderLoss:
    """One run."""

    def __init__(
        self, seed: int, timeouts: Sequence[VoterTimeouts], lines: list[str] | None
    ) -> None:
        random = Random(seed)
        members = draw_members(random, len(timeouts), 0, None)
        is_dynamic = members.is_dynamic
        tree = BatchTree(members.voters if is_dynamic else None, members.kraft_version)
        self._cluster = cluster = SimulatedCluster(random, tree)
        cluster.lines = lines
        cluster.conditions = FaultConditions(latency_ms=0.5, spread_ms=3.0, sync_ms=0.5)
        for id, each in zip(members.ids, timeouts, strict=True):
            config = members.settings_of(
                id,
                has_bootstrap=True,
                fetch_timeout_ms=each.fetch_ms,
                election_timeout_ms=each.election_ms,
            )
            storage = Storage(id, tree, config.static_voters)
            if is_dynamic:
                content = snapshot_content(BOOTSTRAP_SNAPSHOT)
                storage.snapshots[BOOTSTRAP_SNAPSHOT] = Snapshot(content, tree.root)
            machine = new_machine(random, config, storage, is_skewed=False)
            cluster.add(machine, BOOTSTRAP_PORT + id)
            cluster.at(random.random() * 100.0, cluster.start, machine)
        self._append_interval_ms = random.choice((5.0, 50.0, 400.0))
        self._dead: Machine | None = None
        self._died_at = 0.0

    def run(self) -> float:
        """Run to the next leader; return how long there was none."""
        cluster = self._cluster
        cluster.at(0.0, self._append)
        cluster.at(cluster.random.uniform(*_LIFE_MS), self._kill_leader)
        cluster.run()
        return cluster.now - self._died_at

    def _append(self, _a: None = None, _b: None = None, _c: None = None) -> None:
        cluster = self._cluster
        leader = cluster.leader()
        if leader is not None:
            cluster.append(leader)
        cluster.at(cluster.now + self._append_interval_ms, self._append)

    def _kill_leader(self, _a: None = None, _b: None = None, _c: None = None) -> None:
        """Crash the leader once it has committed; its host refuses connections, or is silent."""
        cluster = self._cluster
        leader = cluster.leader()
        if leader is None or not self._has_committed(leader):
            cluster.at(cluster.now + _POLL_MS, self._kill_leader)
            return
        leader.is_silent = cluster.draw() < 0.5
        cluster.crash(leader)
        self._dead, self._died_at = leader, cluster.now
        self._await_leader()

    def _await_leader(self, _a: None = None, _b: None = None, _c: None = None) -> None:
        cluster = self._cluster
        leader = cluster.leader()
        if leader is not None and leader is not self._dead and self._has_committed(leader):
            cluster.is_over = True
            return
        if cluster.now - self._died_at > LIMIT_MS:
            raise Violation("a_lost_leader_is_replaced", f"no leader within {LIMIT_MS:.0f} ms")
        cluster.at(cluster.now + _POLL_MS, self._await_leader)

    @staticmethod
    def _has_committed(leader: Machine) -> bool:
        return leader.role is Role.LEADER and leader.node.role_state.is_active
