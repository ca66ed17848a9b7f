"""One history of a seed, whole or with some of its faults left out, as a line of text.

Owns the specification of a replay and how it is run. As text:

    quorum:1173:10000
    quorum:1173:813:without=loss,pause,1003,2010-2030
    controllers:17:4001:only=2000,2007:hurried:nodes=3

The kind of simulation, the seed, the events after which no more trouble begins; then which faults
are left out, by name or number, or which alone are kept; whether the waiting goes with them; and
how many of the nodes there are. The faults of the first phase of trouble have the numbers from 1000
on, those of the second from 2000.

Where anything is left out the seed runs twice: first as it is, for the `Tape`, then by the tape.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from kraft.errors import InvalidRequestError
from kraft.simulation import scenario, whole_scenario
from kraft.simulation.scenario import Outcome
from kraft.simulation.tape import Tape
from kraft.simulation.weather import NOTHING, Suppressed


class Kind(NamedTuple):
    """What is simulated: the quorum alone, or whole clusters."""

    name: str
    run_seed: Callable[..., Outcome]
    #: What the random source of a seed begins with.
    random_of: Callable[[int], int]
    #: Events of a seed, where nobody says how many.
    event_limit: int
    #: The counts that a summary on one line tells.
    counts: tuple[str, ...]


QUORUM = Kind(
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
CONTROLLERS = Kind(
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
KINDS = {kind.name: kind for kind in (QUORUM, CONTROLLERS)}


@dataclass(frozen=True, slots=True)
class Replay:
    """See the module's docstring. ``str`` gives the text, `parse` reads it."""

    kind: Kind
    seed: int
    event_limit: int
    suppressed: Suppressed = NOTHING
    most_nodes: int | None = None

    def __str__(self) -> str:
        text = f"{self.kind.name}:{self.seed}:{self.event_limit}"
        names, numbers, kept, is_hurried = self.suppressed
        if names or numbers:
            text += ":without=" + ",".join([*sorted(names), *_ranges(numbers)])
        if kept is not None:
            text += ":only=" + ",".join(_ranges(kept))
        if is_hurried:
            text += ":hurried"
        if self.most_nodes is not None:
            text += f":nodes={self.most_nodes}"
        return text

    @property
    def is_whole(self) -> bool:
        """Whether it is the seed as it is."""
        return self.suppressed == NOTHING and self.most_nodes is None

    def run(self, *, is_traced: bool = False) -> Outcome:
        """The history. Its violation, if there is one, is in the outcome."""
        if self.is_whole:
            return self.kind.run_seed(self.seed, self.event_limit, is_traced=is_traced)
        return self.run_by(self.record()[0], is_traced=is_traced)

    def record(self) -> tuple[Tape, Outcome]:
        """The seed as it is, and all that it drew."""
        tape = Tape(self.kind.random_of(self.seed))
        return tape, self.kind.run_seed(self.seed, self.event_limit, tape=tape)

    def run_by(self, recorded: Tape, *, is_traced: bool = False) -> Outcome:
        """The history, by a tape of the whole seed with the same limit of events."""
        return self.kind.run_seed(
            self.seed,
            self.event_limit,
            is_traced=is_traced,
            tape=Tape(self.kind.random_of(self.seed), recorded),
            most_nodes=self.most_nodes,
            suppressed=self.suppressed,
        )


def parse(text: str) -> Replay:
    """A replay from its text. Raises InvalidRequestError where it is none."""
    try:
        kind, seed, event_limit, *options = text.strip().split(":")
        names: set[str] = set()
        numbers: frozenset[int] = frozenset()
        kept: frozenset[int] | None = None
        most_nodes: int | None = None
        is_hurried = False
        for option in options:
            name, equals, value = option.partition("=")
            items = [item for item in value.split(",") if item]
            if name in ("without", "only") and not equals:
                raise ValueError(f"{option!r} names no faults")
            if name == "without":
                names = {item for item in items if not item[0].isdigit()}
                numbers = _numbers(item for item in items if item not in names)
            elif name == "only":
                kept = _numbers(items)
            elif name == "nodes" and int(value) > 0:
                most_nodes = int(value)
            elif option == "hurried":
                is_hurried = True
            else:
                raise ValueError(f"{option!r} is not without=, only=, hurried or nodes=")
        if kind not in KINDS:
            raise ValueError(f"{kind!r} is not {' or '.join(KINDS)}")
        if int(seed) < 0 or int(event_limit) < 1:
            raise ValueError("a seed is not negative, and there are events")
        suppressed = Suppressed(frozenset(names), numbers, kept, is_hurried)
        return Replay(KINDS[kind], int(seed), int(event_limit), suppressed, most_nodes)
    except ValueError as error:
        raise InvalidRequestError(
            f"{text!r} is no replay, as quorum:1173:10000:only=2000,2007-2009:nodes=3: {error}"
        ) from None


def _numbers(items: Iterable[str]) -> frozenset[int]:
    """What ``3`` and ``40-60`` name; both ends are meant."""
    numbers: set[int] = set()
    for item in items:
        first, dash, last = item.partition("-")
        numbers.update(range(int(first), int(last if dash else first) + 1))
    return frozenset(numbers)


def _ranges(numbers: Collection[int]) -> list[str]:
    """`_numbers`, the other way round."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return [str(first) if first == last else f"{first}-{last}" for first, last in ranges]
