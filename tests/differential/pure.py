"""Pure functions in bulk: changes of one partition, placements, states after a heartbeat.

Splits a number of cases among the functions and compares the answers. Reassignments and their
completion are part of the changes of a partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from tests.differential import broker_states
from tests.differential.kafka import PACKAGE, Kafka, compiled
from tests.harness.kafka_jars import kafka
from tests.reference import election_cases, placement_cases
from tests.reference.placement_cases import answer_of_kernel as placed_here

_CHUNK = 2_000
_MOST_PARTITIONS = 40


@dataclass(frozen=True)
class PureFunction:
    """A function under comparison; ``share`` is its part of all cases, ``understood`` parses
    Kafka's line.
    """

    name: str
    share: float
    start: Callable[[], Kafka]
    generate: Callable[[int, int], list[Any]]
    question: Callable[[Any], str]
    here: Callable[[Any], Any]
    understood: Callable[[Any, str], Any] = lambda case, line: line


def _placement(seed: int, count: int) -> list[placement_cases.Case]:
    return placement_cases.generate(seed, count, most_partitions=_MOST_PARTITIONS)


def _changes(seed: int, count: int) -> list[election_cases.Case]:
    # The oracle answers for every partition, a controller only for those that it reads.
    made = election_cases.generate(seed, 2 * count)
    looked_at = [case for case in made if election_cases.is_looked_at(case)]
    assert len(looked_at) >= count
    return looked_at[:count]


FUNCTIONS = (
    PureFunction(
        "changes of a partition",
        0.6,
        lambda: Kafka(PACKAGE + "ElectionOracle", kafka().compiled("ElectionOracle")),
        _changes,
        election_cases.question,
        election_cases.answer_of_kernel,
    ),
    PureFunction(
        "placements",
        0.05,
        lambda: Kafka("PlacementOracle", kafka().compiled("PlacementOracle")),
        _placement,
        placement_cases.question,
        placed_here,
        placement_cases.understand,
    ),
    PureFunction(
        "states of brokers",
        0.35,
        lambda: Kafka(PACKAGE + "BrokerStates", compiled(kafka())),
        broker_states.generate,
        broker_states.question,
        broker_states.answer_here,
    ),
)


@dataclass
class PureReport:
    """The number of compared cases of a function, and a text of each that differs."""

    name: str
    cases: int
    differences: list[str]


def run_function(function: PureFunction, seed: int, cases: int) -> PureReport:
    """Run the function's share of ``cases``."""
    report = PureReport(function.name, 0, [])
    wanted = round(cases * function.share)
    with function.start() as process:
        for case, line in _answered(function, process, seed, wanted):
            report.cases += 1
            here, theirs = function.here(case), function.understood(case, line)
            if here != theirs:
                question = function.question(case)
                report.differences.append(f"{question}\n  here:  {here}\n  Kafka: {theirs}")
    return report


def _answered(
    function: PureFunction, process: Kafka, seed: int, wanted: int
) -> Iterator[tuple[Any, str]]:
    # Kafka works on the next chunk while this side works on the last.
    waiting: tuple[list[Any], Future[list[str]]] | None = None
    for number, start in enumerate(range(0, wanted, _CHUNK)):
        chunk = function.generate(seed << 32 | number, min(_CHUNK, wanted - start))
        asked = process.ask([function.question(case) for case in chunk])
        if waiting is not None:
            yield from _paired(*waiting)
        waiting = chunk, asked
    if waiting is not None:
        yield from _paired(*waiting)


def _paired(chunk: list[Any], asked: Future[list[str]]) -> Iterator[tuple[Any, str]]:
    yield from zip(chunk, asked.result(), strict=True)
