"""From a seed that fails to a history that is small enough to be read, and fails in the same way.

Owns the search: which faults can be left out, and how many nodes are enough, so that the same
invariant is still violated. First whole phases of trouble go, then all faults of one name, then one
by one (Zeller's ddmin over the numbers of the faults), and nodes before and after. Each try is a
run by the seed's tape. The search is bounded by a number of runs, not by time: one seed shrinks to
the same replay everywhere.

A history of less must fail no later than the seed does. Of a safety violation that is counted in
events. Of a liveness violation it is the simulated time: with fewer nodes or faults the nodes that
wait for something often take more steps in the same ten seconds.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

from kraft.simulation.history import Violation
from kraft.simulation.replays import Replay
from kraft.simulation.scenario import Outcome
from kraft.simulation.weather import NUMBERS_OF_A_PHASE, Suppressed

#: How often a history is run again at most.
MOST_RUNS = 400
#: A cluster that commits nothing and a node that catches up with nothing fail in the same way.
PROGRESS = "no progress"
PROGRESS_INVARIANTS = ("commit_within_10_seconds", "everyone_catches_up_within_10_seconds")
#: These say that something did not happen in time.
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
    """How much there is to read of a history."""

    events: int
    faults: int
    nodes: int

    def __str__(self) -> str:
        return f"{self.events} events, {self.faults} faults, {self.nodes} nodes"

    @classmethod
    def of(cls, outcome: Outcome) -> Size:
        return cls(outcome.events, len(outcome.injected), outcome.node_count)


@dataclass(frozen=True, slots=True)
class Shrunk:
    """A replay that fails as the seed does; ``outcome`` is its own, with the trace."""

    replay: Replay
    outcome: Outcome
    before: Size
    after: Size
    runs: int

    def __str__(self) -> str:
        return f"{self.replay} ({self.before} -> {self.after}, {self.runs} runs)"


def shrink(replay: Replay, most_runs: int = MOST_RUNS) -> Shrunk | None:
    """The smallest failing replay that ``most_runs`` runs find; None where this one holds."""
    first = replay.run()
    if first.violation is None:
        return None
    if not replay.is_whole:
        # What was shrunk before is as small as it gets.
        size = Size.of(first)
        return Shrunk(replay, replay.run(is_traced=True), size, size, 1)
    # No trouble begins behind the violation, so that a history without it ends soon.
    cut = replace(replay, event_limit=min(replay.event_limit, first.events + 1))
    search = _Search(cut, first, most_runs)
    search.drop_nodes()
    search.drop_faults(lambda number, name: number // NUMBERS_OF_A_PHASE)
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

    def __init__(self, replay: Replay, first: Outcome, most_runs: int) -> None:
        self._most_runs = most_runs
        assert first.violation is not None
        self._wanted = kind_of(first.violation)
        self._is_liveness = first.violation.invariant in LIVENESS_INVARIANTS
        self._longest = self._length(first)
        self._tape, recorded = replay.record()
        assert recorded.digest == first.digest, "a tape changes nothing"
        kept = frozenset(number for number, _ in first.injected)
        self.replay = replace(replay, suppressed=Suppressed(kept=kept))
        self.outcome = first
        self.runs = 0

    def _length(self, outcome: Outcome) -> float:
        return outcome.simulated_ms if self._is_liveness else outcome.events

    def _attempt(self, replay: Replay) -> bool:
        """Takes a replay that fails in the same way, and no later than the seed does."""
        if self.runs >= self._most_runs:
            return False
        self.runs += 1
        outcome = replay.run_by(self._tape)
        if outcome.violation is None or kind_of(outcome.violation) != self._wanted:
            return False
        if self._length(outcome) > self._longest:
            return False
        # What did not come to happen is not needed.
        kept = frozenset(number for number, _ in outcome.injected)
        self.replay = replace(replay, suppressed=replay.suppressed._replace(kept=kept))
        self.outcome = outcome
        return True

    def hurry(self) -> bool:
        """Leaves out the time in which nothing happens any more."""
        length = self._length(self.outcome)
        suppressed = self.replay.suppressed._replace(is_hurried=True)
        was = self.replay, self.outcome
        if self._attempt(replace(self.replay, suppressed=suppressed)):
            if self._length(self.outcome) < length:
                return True
            self.replay, self.outcome = was
        return False

    def drop_nodes(self) -> bool:
        """Leaves out the last nodes; whether that was any."""
        return any(
            self._attempt(replace(self.replay, most_nodes=count))
            for count in range(1, self.outcome.node_count)
        )

    def drop_faults(self, group_of: Callable[[int, str], Hashable]) -> bool:
        """Leaves out what can be left out, group by group; whether that was anything."""
        before = len(self.outcome.injected)
        size = len(self._groups(group_of))
        while size:
            groups = self._groups(group_of)
            size = min(size, len(groups))
            # What came last is least likely to be missed by what else there is.
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
    """Return what makes two violations the same: the invariant, of an exception its type and place.

    Both invariants of progress are one.
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
