"""Many seeds: what one stretch of them did, the sum of all, and what became of those that failed.

Owns the unit of work of a sweep, the same wherever it runs: `run_seeds` takes a range of seeds and
gives a `Summary`, `shrink_failure` takes a seed that failed and gives it as a `Finding`. Summaries
add up in any order. Owns, too, the sweep over processes of this machine; over Spark it is
``kraft.spark.seeds``.
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
from kraft.simulation.replays import KINDS, Kind, Replay, parse
from kraft.simulation.shrinking import MOST_RUNS, shrink

T = TypeVar("T")
R = TypeVar("R")

#: Of a shrunk trace, the end is what is looked at.
LAST_LINES = 40
MOST_OF_A_LINE = 600
#: How much work one task has: so much is lost where a sweep is interrupted.
EVENTS_OF_A_TASK = 60_000
#: Seeds that fail in the same way tell the same; so many of them are shrunk.
SHRUNK_OF_AN_INVARIANT = 3


class Failure(NamedTuple):
    """A seed that failed, at which of its events, and how."""

    seed: int
    event: int
    invariant: str
    violation: str


class Finding(NamedTuple):
    """A failure that was shrunk: how it is seen again, and the last lines of its trace."""

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
class Summary:
    """What seeds did. ``digest`` tells two sweeps over the same seeds apart."""

    kind: Kind
    seeds: int = 0
    events: int = 0
    digest: int = 0
    simulated_ms: float = 0.0
    cpu_seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: Summary) -> None:
        self.seeds += other.seeds
        self.events += other.events
        # The order in which tasks end must not show.
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


def run_seeds(seeds: range, kind_name: str, event_limit: int) -> Summary:
    """Runs these seeds here, one after the other."""
    kind = KINDS[kind_name]
    summary = Summary(kind)
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


def shrink_failure(replay: str, most_runs: int = MOST_RUNS) -> Finding | None:
    """A failing replay, by its text, made as small as it gets; None where it does not fail."""
    given = parse(replay)
    shrunk = shrink(given, most_runs)
    if shrunk is None:
        return None
    outcome, before, after = shrunk.outcome, shrunk.before, shrunk.after
    violation = outcome.violation
    assert violation is not None
    return Finding(
        Failure(given.seed, before.events, violation.invariant, str(violation)),
        str(shrunk.replay),
        after.events,
        after.faults,
        before.faults,
        after.nodes,
        before.nodes,
        shrunk.runs,
        tuple(line[:MOST_OF_A_LINE] for line in outcome.lines[-LAST_LINES:]),
    )


def worth_shrinking(summary: Summary, event_limit: int) -> list[str]:
    """Replays of the failures that are to be shrunk: of each invariant the shortest."""
    taken: Counter[str] = Counter()
    replays = []
    for failure in sorted(summary.failures, key=lambda failure: (failure.event, failure.seed)):
        taken[failure.invariant] += 1
        if taken[failure.invariant] <= SHRUNK_OF_AN_INVARIANT:
            replays.append(str(Replay(summary.kind, failure.seed, event_limit)))
    return replays


def tasks(seeds: range, event_limit: int, workers: int) -> Iterator[range]:
    """The seeds in pieces: small enough to balance, in their order."""
    size = max(1, EVENTS_OF_A_TASK // event_limit)
    size = min(size, max(1, len(seeds) // (4 * workers)))
    for first in range(0, len(seeds), size):
        yield seeds[first : first + size]


def parse_seeds(text: str) -> range:
    """``A..B`` (B is not among them) or one seed. Raises InvalidRequestError for anything else."""
    first, dots, end = text.partition("..")
    try:
        seeds = range(int(first), int(end) if dots else int(first) + 1)
    except ValueError:
        seeds = range(0)
    if not seeds or seeds[0] < 0:
        raise InvalidRequestError(
            f"{text!r} names no seeds: 0..1000000 is the first million, 17 is one seed"
        )
    return seeds


# -- over the processes of this machine


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _spread(jobs: int) -> Iterator[Callable[[Callable[[T], R], Iterator[T]], Iterator[R]]]:
    """A ``map`` over so many processes, which end with it; results come in their order."""
    if jobs == 1:
        yield map
        return
    with multiprocessing.get_context("fork").Pool(jobs, _leave_interrupts_to_the_parent) as pool:
        yield pool.imap


def run_locally(seeds: range, kind: Kind, event_limit: int, jobs: int) -> Iterator[Summary]:
    """The summaries of the seeds, piece by piece in their order, by so many processes."""
    run = partial(run_seeds, kind_name=kind.name, event_limit=event_limit)
    with _spread(jobs) as spread:
        yield from spread(run, tasks(seeds, event_limit, jobs))


def shrink_locally(replays: Sequence[str], jobs: int) -> list[Finding]:
    """Failing replays, shrunk, by so many processes."""
    with _spread(min(jobs, max(1, len(replays)))) as spread:
        found = list(spread(shrink_failure, iter(replays)))
    return [finding for finding in found if finding is not None]
