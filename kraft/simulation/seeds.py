"""Sweeps over many seeds: run a range, add up the results, minimise the seeds that failed.

`run_seeds` runs a range of seeds and returns a `SeedSummary`; `shrink_failure` minimises a failing
seed and returns a `ShrunkFailure`. Both are the unit of work of a sweep, on this machine's
processes (`run_locally`) and on Spark (``kraft.spark.seeds``). Summaries add up in any order.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from time import process_time
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

from kraft.errors import InvalidRequestError
from kraft.simulation.replays import KINDS, Replay, SimulationKind, parse
from kraft.simulation.shrinking import MAX_RUNS, shrink

T = TypeVar("T")
R = TypeVar("R")

#: How many of the last lines of a trace a minimised failure keeps.
LAST_LINES = 40
MAX_LINE_LENGTH = 600
#: The work of one task; an interrupted sweep loses at most this much.
EVENTS_PER_TASK = 60_000
#: How many failures of one invariant are minimised: the others show the same.
SHRUNK_PER_INVARIANT = 3


class Failure(NamedTuple):
    """A seed that failed, the event at which it did, and the violation."""

    seed: int
    event: int
    invariant: str
    violation: str


class ShrunkFailure(NamedTuple):
    """A minimised failure: the replay that shows it, and the last lines of its trace."""

    failure: Failure
    replay: str
    events: int
    faults: int
    faults_before: int
    nodes: int
    nodes_before: int
    runs: int
    lines: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        figures = self._asdict()
        figures |= figures.pop("failure")._asdict()
        figures["lines"] = list(self.lines)
        return figures


@dataclass(slots=True)
class SeedSummary:
    """The sum of many runs; two sweeps over the same seeds have the same ``digest``."""

    kind: SimulationKind
    seeds: int = 0
    events: int = 0
    digest: int = 0
    simulated_ms: float = 0.0
    cpu_seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: SeedSummary) -> None:
        self.seeds += other.seeds
        self.events += other.events
        # Independent of the order in which tasks end.
        self.digest ^= other.digest
        self.simulated_ms += other.simulated_ms
        self.cpu_seconds += other.cpu_seconds
        self.counts += other.counts
        self.failures = sorted(self.failures + other.failures)

    def as_dict(self, wall_seconds: float) -> dict[str, Any]:
        return {
            "kind": self.kind.name,
            "seeds": self.seeds,
            "events": self.events,
            "simulated_seconds": round(self.simulated_ms / 1000.0),
            "wall_seconds": round(wall_seconds, 1),
            "events_per_second_and_core": round(self.events / max(self.cpu_seconds, 1e-9)),
            "digest": f"{self.digest:08x}",
            "violations": [failure._asdict() for failure in self.failures],
            "counts": dict(sorted(self.counts.items())),
        }

    def as_line(self, wall_seconds: float) -> str:
        rate = self.events / max(self.cpu_seconds, 1e-9)
        counts = ", ".join(
            f"{self.counts[name]:,} {name.replace('_', ' ')}" for name in self.kind.counts
        )
        return (
            f"{self.seeds:,} seeds, {self.events:,} events, "
            f"{self.simulated_ms / 3_600_000:.1f} simulated hours in {wall_seconds:.0f} s "
            f"({self.seeds / max(wall_seconds, 1e-9):,.1f} seeds/s, {rate:,.0f} events/s a core): "
            f"{counts}; {len(self.failures)} violations; digest {self.digest:08x}"
        )


def run_seeds(seeds: range, kind_name: str, event_limit: int) -> SeedSummary:
    """Run seeds in this process, one after the other."""
    kind = KINDS[kind_name]
    summary = SeedSummary(kind)
    for seed in seeds:
        start = process_time()
        outcome = kind.run_seed(seed, event_limit)
        summary.seeds += 1
        summary.events += outcome.events
        summary.digest ^= crc32(b"%d:%d" % (seed, outcome.digest))
        summary.simulated_ms += outcome.simulated_ms
        summary.cpu_seconds += process_time() - start
        summary.counts += outcome.counts
        violation = outcome.violation
        if violation is not None:
            summary.failures.append(
                Failure(seed, outcome.events, violation.invariant, str(violation))
            )
    return summary


def shrink_failure(replay: str, max_runs: int = MAX_RUNS) -> ShrunkFailure | None:
    """Minimise a failing replay given as text; return None if it does not fail."""
    given = parse(replay)
    shrunk = shrink(given, max_runs)
    if shrunk is None:
        return None
    outcome, before, after = shrunk.outcome, shrunk.before, shrunk.after
    violation = outcome.violation
    assert violation is not None
    return ShrunkFailure(
        Failure(given.seed, before.events, violation.invariant, str(violation)),
        str(shrunk.replay),
        after.events,
        after.faults,
        before.faults,
        after.nodes,
        before.nodes,
        shrunk.runs,
        tuple(line[:MAX_LINE_LENGTH] for line in outcome.lines[-LAST_LINES:]),
    )


def failures_to_shrink(summary: SeedSummary, event_limit: int) -> list[str]:
    """Return the replays to minimise: of each invariant the shortest failures."""
    taken: Counter[str] = Counter()
    replays = []
    for failure in sorted(summary.failures, key=lambda failure: (failure.event, failure.seed)):
        taken[failure.invariant] += 1
        if taken[failure.invariant] <= SHRUNK_PER_INVARIANT:
            replays.append(str(Replay(summary.kind, failure.seed, event_limit)))
    return replays


def tasks(seeds: range, event_limit: int, workers: int) -> Iterator[range]:
    """Split seeds into ranges, in order and small enough to balance the workers."""
    size = max(1, EVENTS_PER_TASK // event_limit)
    size = min(size, max(1, len(seeds) // (4 * workers)))
    for first in range(0, len(seeds), size):
        yield seeds[first : first + size]


def parse_seeds(text: str) -> range:
    """Parse ``A..B`` (B excluded) or one seed. Raises InvalidRequestError for other texts."""
    first, dots, end = text.partition("..")
    try:
        seeds = range(int(first), int(end) if dots else int(first) + 1)
    except ValueError:
        seeds = range(0)
    if not seeds or seeds[0] < 0:
        raise InvalidRequestError(
            f"{text!r} is not a range of seeds: 0..1000000 is the first million, 17 is one seed"
        )
    return seeds


# -- over the processes of this machine


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _spread(jobs: int) -> Iterator[Callable[[Callable[[T], R], Iterator[T]], Iterator[R]]]:
    """Yield a ``map`` over ``jobs`` processes that keeps the order; the processes end with it."""
    if jobs == 1:
        yield map
        return
    with multiprocessing.get_context("fork").Pool(jobs, _leave_interrupts_to_the_parent) as pool:
        yield pool.imap


def run_locally(
    seeds: range, kind: SimulationKind, event_limit: int, jobs: int
) -> Iterator[SeedSummary]:
    """Run seeds on ``jobs`` processes; yield the summaries of their ranges in order."""
    run = partial(run_seeds, kind_name=kind.name, event_limit=event_limit)
    with _spread(jobs) as spread:
        yield from spread(run, tasks(seeds, event_limit, jobs))


def shrink_locally(replays: Sequence[str], jobs: int) -> list[ShrunkFailure]:
    """Minimise failing replays on ``jobs`` processes."""
    with _spread(min(jobs, max(1, len(replays)))) as spread:
        found = list(spread(shrink_failure, iter(replays)))
    return [finding for finding in found if finding is not None]
