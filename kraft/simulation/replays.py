"""Replays: a seed, whole or without some of its faults, as one line of text.

    quorum:1173:10000
    quorum:1173:813:without=loss,pause,1003,2010-2030
    controllers:17:4001:only=2000,2007:hurried:nodes=3

The fields are the kind of simulation, the seed, and the number of events after which no new phase
of faults begins. Options follow: the faults to leave out, by name or number; or the only faults to
keep; whether the waiting time between faults is left out too; how many of the nodes to build. The
faults of the first phase have the numbers from 1000 on, those of the second from 2000.

A replay that leaves anything out runs the seed twice: first unchanged, to record its
`RecordedChoices`, then from that record.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from kraft.errors import InvalidRequestError
from kraft.simulation import replica_scenario, scenario, whole_scenario
from kraft.simulation.conditions import NOTHING, Suppressed
from kraft.simulation.recorded_choices import RecordedChoices
from kraft.simulation.scenario import RunOutcome


class SimulationKind(NamedTuple):
    """A kind of simulation: the quorum alone, whole clusters, or replicated partitions."""

    name: str
    run_seed: Callable[..., RunOutcome]
    #: Return the seed of the random source for a seed of this kind.
    random_of: Callable[[int], int]
    #: The default number of events of a seed.
    event_limit: int
    #: The counts in a one-line summary.
    counts: tuple[str, ...]


QUORUM = SimulationKind(
    "quorum",
    scenario.run_seed,
    int,
    10_000,
    (
        "elections",
        "commits",
        "crashes",
        "leader_crashes",
        "truncations",
        "snapshot_downloads",
        "reconfigurations",
        "calms",
    ),
)
CONTROLLERS = SimulationKind(
    "controllers",
    whole_scenario.run_seed,
    whole_scenario.random_of,
    4_000,
    (
        "claims",
        "lost_leaderships",
        "acknowledged",
        "transactions",
        "aborted_transactions",
        "broker_deaths",
        "fenced_brokers",
        "isr_changes",
        "compared_states",
        "checked_histories",
        "calms",
    ),
)
REPLICATION = SimulationKind(
    "replication",
    replica_scenario.run_seed,
    replica_scenario.random_of,
    4_000,
    (
        "acknowledged_batches",
        "consumed_batches",
        "clean_elections",
        "unclean_elections",
        "elections_from_the_elr",
        "isr_changes",
        "replica_truncations",
        "broker_deaths",
        "broker_power_failures",
        "excused_losses",
        "compared_replicas",
        "calms",
    ),
)
KINDS = {kind.name: kind for kind in (QUORUM, CONTROLLERS, REPLICATION)}


@dataclass(frozen=True, slots=True)
class Replay:
    """One run of a seed; ``str`` formats it, `parse` reads the text."""

    kind: SimulationKind
    seed: int
    event_limit: int
    suppressed: Suppressed = NOTHING
    max_nodes: int | None = None

    def __str__(self) -> str:
        text = f"{self.kind.name}:{self.seed}:{self.event_limit}"
        names, numbers, kept, is_hurried = self.suppressed
        if names or numbers:
            text += ":without=" + ",".join([*sorted(names), *_ranges(numbers)])
        if kept is not None:
            text += ":only=" + ",".join(_ranges(kept))
        if is_hurried:
            text += ":hurried"
        if self.max_nodes is not None:
            text += f":nodes={self.max_nodes}"
        return text

    @property
    def is_whole(self) -> bool:
        """Whether nothing is left out."""
        return self.suppressed == NOTHING and self.max_nodes is None

    def run(self, *, is_traced: bool = False) -> RunOutcome:
        """Run it; the outcome contains the violation, if there is one."""
        if self.is_whole:
            return self.kind.run_seed(self.seed, self.event_limit, is_traced=is_traced)
        return self.run_by(self.record()[0], is_traced=is_traced)

    def record(self) -> tuple[RecordedChoices, RunOutcome]:
        """Run the whole seed; return its recorded choices and outcome."""
        choices = RecordedChoices(self.kind.random_of(self.seed))
        return choices, self.kind.run_seed(self.seed, self.event_limit, choices=choices)

    def run_by(self, recorded: RecordedChoices, *, is_traced: bool = False) -> RunOutcome:
        """Run it from the choices of the whole seed, recorded with the same event limit."""
        return self.kind.run_seed(
            self.seed,
            self.event_limit,
            is_traced=is_traced,
            choices=RecordedChoices(self.kind.random_of(self.seed), recorded),
            max_nodes=self.max_nodes,
            suppressed=self.suppressed,
        )


def parse(text: str) -> Replay:
    """Parse the text of a replay. Raises InvalidRequestError if it is malformed."""
    try:
        kind, seed, event_limit, *options = text.strip().split(":")
        names: set[str] = set()
        numbers: frozenset[int] = frozenset()
        kept: frozenset[int] | None = None
        max_nodes: int | None = None
        is_hurried = False
        for option in options:
            name, equals, value = option.partition("=")
            items = [item for item in value.split(",") if item]
            if name in ("without", "only") and not equals:
                raise ValueError(f"{option!r} lists no faults: write {name}=2000,2007")
            if name == "without":
                names = {item for item in items if not item[0].isdigit()}
                numbers = _numbers(item for item in items if item not in names)
            elif name == "only":
                kept = _numbers(items)
            elif name == "nodes" and int(value) > 0:
                max_nodes = int(value)
            elif option == "hurried":
                is_hurried = True
            else:
                raise ValueError(
                    f"unknown option {option!r}: known are without=, only=, hurried and nodes="
                )
        if kind not in KINDS:
            raise ValueError(f"unknown kind {kind!r}: known are {', '.join(KINDS)}")
        if int(seed) < 0 or int(event_limit) < 1:
            raise ValueError("the seed must be 0 or more, the number of events 1 or more")
        suppressed = Suppressed(frozenset(names), numbers, kept, is_hurried)
        return Replay(KINDS[kind], int(seed), int(event_limit), suppressed, max_nodes)
    except ValueError as error:
        raise InvalidRequestError(
            f"{text!r} is not a replay such as quorum:1173:10000:only=2000,2007-2009:nodes=3: "
            f"{error}"
        ) from None


def _numbers(items: Iterable[str]) -> frozenset[int]:
    """Return the numbers of items like ``3`` and ``40-60``, both ends included."""
    numbers: set[int] = set()
    for item in items:
        first, dash, last = item.partition("-")
        numbers.update(range(int(first), int(last if dash else first) + 1))
    return frozenset(numbers)


def _ranges(numbers: Collection[int]) -> list[str]:
    """Format numbers as items that `_numbers` reads."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return [str(first) if first == last else f"{first}-{last}" for first, last in ranges]
