"""``make simulate``: many seeds over all cores, one line that sums them up.

Owns the command: which seeds, the processes, the progress bar, what is printed. Exits with 1 where
an invariant was violated, or where something that must happen in a run of this size never did: a
simulation in which no leader crashes proves nothing about leaders that crash.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from time import perf_counter, process_time
from typing import NamedTuple
from zlib import crc32

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from tests.simulation.scenario import Outcome, run_seed

#: What must have happened; the names are those of `Cluster.counts`.
MUST_HAPPEN = (
    "elections",
    "became_prospective",
    "became_candidate",
    "became_resigned",
    "pre_votes_refused",
    "votes_refused",
    "commits",
    "acknowledged",
    "calms",
    "crashes",
    "leader_crashes",
    "power_failures",
    "lost_batches",
    "torn_writes",
    "full_disks",
    "slow_disks",
    "wiped_disks",
    "pauses",
    "partitions",
    "isolated_leaders",
    "one_way_partitions",
    "lost_messages",
    "duplicated_messages",
    "delayed_messages",
    "damaged_records",
    "strange_requests",
    "absent_nodes",
    "unsupported_requests",
    "truncations",
    "diverging_fetches",
    "snapshots_made",
    "snapshot_chunks",
    "snapshot_downloads",
    "refused_snapshots",
    "interrupted_downloads",
    "log_starts_advanced",
    "reconfigurations",
    "added_voters",
    "removed_voters",
    "removed_leaders",
    "moved_voters",
    "upgrades",
    "clean_shutdowns",
    "resign_requests",
    "check_quorum_resignations",
)
#: Below this many events in all, some of it may not have happened yet.
ENOUGH_EVENTS = 2_000_000
LAST_LINES = 40


class Part(NamedTuple):
    """What one process found in one seed, small enough to send."""

    seed: int
    events: int
    simulated_ms: float
    cpu_seconds: float
    digest: int
    counts: Counter[str]
    violation: str | None


def run_part(seed: int, event_limit: int) -> Part:
    start = process_time()
    outcome = run_seed(seed, event_limit)
    return Part(
        seed,
        outcome.events,
        outcome.simulated_ms,
        process_time() - start,
        outcome.digest,
        outcome.counts,
        str(outcome.violation) if outcome.violation is not None else None,
    )


class Summary:
    """The sum over all seeds."""

    def __init__(self) -> None:
        self.seeds = self.events = self.digest = 0
        self.simulated_ms = self.cpu_seconds = 0.0
        self.counts: Counter[str] = Counter()
        self.violations: list[Part] = []

    def add(self, part: Part) -> None:
        self.seeds += 1
        self.events += part.events
        # The order in which processes end must not show.
        self.digest ^= crc32(b"%d:%d" % (part.seed, part.digest))
        self.simulated_ms += part.simulated_ms
        self.cpu_seconds += part.cpu_seconds
        self.counts += part.counts
        if part.violation is not None:
            self.violations.append(part)

    @property
    def never_happened(self) -> list[str]:
        if self.events < ENOUGH_EVENTS:
            return []
        return [name for name in MUST_HAPPEN if not self.counts[name]]

    def as_json(self, wall_seconds: float, jobs: int) -> str:
        return json.dumps(
            {
                "seeds": self.seeds,
                "events": self.events,
                "simulated_seconds": round(self.simulated_ms / 1000.0),
                "wall_seconds": round(wall_seconds, 1),
                "jobs": jobs,
                "events_per_second_and_core": round(self.events / max(self.cpu_seconds, 1e-9)),
                "digest": f"{self.digest:08x}",
                "violations": [
                    {"seed": part.seed, "event": part.events, "violation": part.violation}
                    for part in sorted(self.violations)
                ],
                "never_happened": self.never_happened,
                "counts": dict(sorted(self.counts.items())),
            },
            indent=1,
        )

    def as_line(self, wall_seconds: float, jobs: int) -> str:
        counts = self.counts
        rate = self.events / max(self.cpu_seconds, 1e-9)
        return (
            f"{self.seeds} seeds, {self.events:,} events, "
            f"{self.simulated_ms / 3_600_000:.1f} simulated hours in {wall_seconds:.0f} s "
            f"on {jobs} cores ({rate:,.0f} events/s a core): "
            f"{counts['elections']:,} elections, {counts['commits']:,} commits, "
            f"{counts['crashes']:,} crashes ({counts['leader_crashes']:,} of leaders), "
            f"{counts['truncations']:,} truncations, "
            f"{counts['snapshot_downloads']:,} snapshot downloads, "
            f"{counts['reconfigurations']:,} reconfigurations, {counts['calms']:,} calms; "
            f"{len(self.violations)} violations; digest {self.digest:08x}"
        )


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def parts(seeds: Iterable[int], run: Callable[[int], Part], jobs: int) -> Iterable[Part]:
    if jobs == 1:
        yield from map(run, seeds)
        return
    with multiprocessing.get_context("fork").Pool(jobs, _leave_interrupts_to_the_parent) as pool:
        yield from pool.imap_unordered(run, seeds, chunksize=1)


def replay(seed: int, event_limit: int) -> Outcome:
    """One seed with its trace; what was not told the first time is told now."""
    return run_seed(seed, event_limit, is_traced=True)


def explain(outcome: Outcome, event_limit: int) -> str:
    """A violation with the last lines before it, and how to see it again."""
    lines = [f"the last {LAST_LINES} of {len(outcome.lines)} lines:"]
    lines += [line[:600] for line in outcome.lines[-LAST_LINES:]]
    lines.append(f"seed {outcome.seed}, event {outcome.events}: {outcome.violation}")
    lines.append(f"again: make simulate SEED={outcome.seed} EVENTS={event_limit}")
    return "\n".join(lines)


def run_many(seeds: range, event_limit: int, jobs: int, *, as_json: bool) -> int:
    summary = Summary()
    start = perf_counter()
    progress = Progress(
        TextColumn("simulating"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} seeds, {task.fields[bad]} violations"),
        TimeRemainingColumn(),
        transient=True,
        disable=as_json or not sys.stderr.isatty(),
    )
    with progress:
        task = progress.add_task("", total=len(seeds), bad=0)
        try:
            for part in parts(seeds, partial(run_part, event_limit=event_limit), jobs):
                summary.add(part)
                progress.update(task, advance=1, bad=len(summary.violations))
        except KeyboardInterrupt:
            print("interrupted; so far:", file=sys.stderr)
    wall_seconds = perf_counter() - start
    if as_json:
        print(summary.as_json(wall_seconds, jobs))
    else:
        for part in sorted(summary.violations)[:3]:
            print(explain(replay(part.seed, event_limit), event_limit), end="\n\n")
        for part in sorted(summary.violations)[3:20]:
            print(f"seed {part.seed}, event {part.events}: {part.violation}")
        print(summary.as_line(wall_seconds, jobs))
        for name in summary.never_happened:
            print(f"never happened, so that nothing is proved of it: {name}")
    return 1 if summary.violations or summary.never_happened else 0


def run_one(seed: int, event_limit: int, *, is_whole: bool) -> int:
    outcome = replay(seed, event_limit)
    if is_whole:
        print("\n".join(outcome.lines))
    if outcome.violation is not None:
        print(explain(outcome, event_limit))
        return 1
    print(
        f"seed {seed}: {outcome.events} events in {outcome.simulated_ms / 1000:.1f} simulated "
        f"seconds, no violation; digest {outcome.digest:08x}"
    )
    for name, count in sorted(outcome.counts.items()):
        print(f"  {name} {count}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--events", type=int, default=10_000, help="at least, of each seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true", help="figures and all counts as JSON")
    parser.add_argument("--seed", type=int, help="replay this one, with its trace")
    parser.add_argument("--whole", action="store_true", help="with --seed: every line of the trace")
    given = parser.parse_args()
    if given.seed is not None:
        return run_one(given.seed, given.events, is_whole=given.whole)
    seeds = range(given.first, given.first + given.seeds)
    return run_many(seeds, given.events, given.jobs, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
