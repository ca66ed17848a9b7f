"""Minimise a failing run: leave out faults and nodes while the same invariant is violated.

The search leaves out whole phases of faults, then all faults of one name, then single faults
(Zeller's ddmin over the numbers of the faults), and nodes before and after. Each attempt replays
the recorded choices of the seed. A number of runs bounds the search, not the time: a seed shrinks
to the same replay on every machine.

A smaller run must fail no later than the seed does: measured in events for a safety violation, in
simulated time for a liveness violation. With fewer nodes or faults, the nodes that wait for
progress often take more steps in the same ten seconds.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

from kraft.simulation.batch_tree import Violation
from kraft.simulation.conditions import NUMBERS_PER_PHASE, Suppressed
from kraft.simulation.replays import Replay
from kraft.simulation.scenario import RunOutcome

#: The largest number of attempts.
MAX_RUNS = 400
#: A cluster that commits nothing and a node that does not catch up fail in the same way.
PROGRESS = "no progress"
PROGRESS_INVARIANTS = ("commit_within_10_seconds", "everyone_catches_up_within_10_seconds")
#: Invariants that demand an effect within a time.
LIVENESS_INVARIANTS = frozenset(
    {
        *PROGRESS_INVARIANTS,
        "an_isolated_leader_resigns",
        "a_follower_gives_up_a_silent_leader",
        "every_request_is_answered",
        "a_dead_broker_is_fenced",
        "a_living_broker_is_unfenced",
    }
)


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a run: events, faults and nodes."""

    events: int
    faults: int
    nodes: int

    def __str__(self) -> str:
        return f"{self.events} events, {self.faults} faults, {self.nodes} nodes"

    @classmethod
    def of(cls, outcome: RunOutcome) -> Size:
        return cls(outcome.events, len(outcome.injected), outcome.node_count)


@dataclass(frozen=True, slots=True)
class Shrunk:
    """A replay that fails as the seed does, and its outcome with the trace."""

    replay: Replay
    outcome: RunOutcome
    before: Size
    after: Size
    runs: int

    def __str__(self) -> str:
        return f"{self.replay} ({self.before} -> {self.after}, {self.runs} runs)"


def shrink(replay: Replay, max_runs: int = MAX_RUNS) -> Shrunk | None:
    """Return the smallest failing replay that ``max_runs`` runs find; None if it does not fail."""
    first = replay.run()
    if first.violation is None:
        return None
    if not replay.is_whole:
        # It was minimised before.
        size = Size.of(first)
        return Shrunk(replay, replay.run(is_traced=True), size, size, 1)
    # No phase of faults begins after the violation, so that a run without it ends soon.
    cut = replace(replay, event_limit=min(replay.event_limit, first.events + 1))
    search = _Search(cut, first, max_runs)
    search.drop_nodes()
    search.drop_faults(lambda number, name: number // NUMBERS_PER_PHASE)
    search.drop_faults(lambda number, name: name)
    while search.drop_faults(lambda number, name: number):
        pass
    if search.hurry():
        search.drop_faults(lambda number, name: number)
    if search.drop_nodes():
        search.drop_faults(lambda number, name: number)
    outcome = search.replay.run(is_traced=True)
    assert outcome.digest == search.outcome.digest, "a replay is the run that was found"
    return Shrunk(search.replay, outcome, Size.of(first), Size.of(outcome), search.runs)


class _Search:
    """The smallest failing replay so far."""

    def __init__(self, replay: Replay, first: RunOutcome, max_runs: int) -> None:
        self._max_runs = max_runs
        assert first.violation is not None
        self._wanted = kind_of(first.violation)
        self._is_liveness = first.violation.invariant in LIVENESS_INVARIANTS
        self._longest = self._length(first)
        self._choices, recorded = replay.record()
        assert recorded.digest == first.digest, "recording changes nothing"
        kept = frozenset(number for number, _ in first.injected)
        self.replay = replace(replay, suppressed=Suppressed(kept=kept))
        self.outcome = first
        self.runs = 0

    def _length(self, outcome: RunOutcome) -> float:
        return outcome.simulated_ms if self._is_liveness else outcome.events

    def _attempt(self, replay: Replay) -> bool:
        """Keep a replay that fails in the same way and no later; return whether it did."""
        if self.runs >= self._max_runs:
            return False
        self.runs += 1
        outcome = replay.run_by(self._choices)
        if outcome.violation is None or kind_of(outcome.violation) != self._wanted:
            return False
        if self._length(outcome) > self._longest:
            return False
        # Faults that were not injected are not needed.
        kept = frozenset(number for number, _ in outcome.injected)
        self.replay = replace(replay, suppressed=replay.suppressed._replace(kept=kept))
        self.outcome = outcome
        return True

    def hurry(self) -> bool:
        """Leave out the waiting time before kept faults; return whether that shortened the run."""
        length = self._length(self.outcome)
        suppressed = self.replay.suppressed._replace(is_hurried=True)
        was = self.replay, self.outcome
        if self._attempt(replace(self.replay, suppressed=suppressed)):
            if self._length(self.outcome) < length:
                return True
            self.replay, self.outcome = was
        return False

    def drop_nodes(self) -> bool:
        """Leave out the last nodes; return whether any could be."""
        return any(
            self._attempt(replace(self.replay, max_nodes=count))
            for count in range(1, self.outcome.node_count)
        )

    def drop_faults(self, group_of: Callable[[int, str], Hashable]) -> bool:
        """Leave out faults, group by group; return whether any could be."""
        before = len(self.outcome.injected)
        size = len(self._groups(group_of))
        while size:
            groups = self._groups(group_of)
            size = min(size, len(groups))
            # Later faults are more likely to be unnecessary.
            position = len(groups)
            while position > 0:
                dropped = groups[max(0, position - size) : position]
                position -= size
                gone = frozenset(number for group in dropped for number in group)
                suppressed = self.replay.suppressed
                kept = (suppressed.kept or frozenset()) - gone
                self._attempt(replace(self.replay, suppressed=suppressed._replace(kept=kept)))
            size //= 2
        return len(self.outcome.injected) < before

    def _groups(self, group_of: Callable[[int, str], Hashable]) -> Sequence[list[int]]:
        groups: dict[Hashable, list[int]] = defaultdict(list)
        for number, name in self.outcome.injected:
            groups[group_of(number, name)].append(number)
        return list(groups.values())


def kind_of(violation: Violation) -> tuple[str, str]:
    """Return the kind of a violation: its invariant, or type and place of an exception.

    Both invariants of progress are one kind.
    """
    if violation.invariant in PROGRESS_INVARIANTS:
        return PROGRESS, ""
    if violation.invariant not in (
        "no_assertion_fails",
        "no_exception_escapes",
        "every_record_can_be_applied",
    ):
        return violation.invariant, ""
    places: list[str] = re.findall(r'File ".*", line \d+, in (\w+)', violation.detail)
    last_line = violation.detail.rstrip().rpartition("\n")[2]
    return violation.invariant, f"{last_line.partition(':')[0]} in {' '.join(places[-1:])}"
