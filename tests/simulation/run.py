"""``make simulate``, ``make simulate-controllers``: many seeds over all cores, one line that sums
them up.

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

from kraft.simulation import scenario, whole_scenario
from kraft.simulation.scenario import Outcome

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
#: The same of whole clusters, with controllers, brokers and clients.
MUST_HAPPEN_WITH_CONTROLLERS = (
    "elections",
    "commits",
    "calms",
    "crashes",
    "leader_crashes",
    "pauses",
    "partitions",
    "isolated_leaders",
    "lost_messages",
    "truncations",
    "snapshots_made",
    "snapshots_loaded",
    "broker_snapshots",
    "claims",
    "lost_leaderships",
    "losses_in_an_aborted_transaction",
    "controller_resignations",
    "compared_states",
    "compared_images",
    "acknowledged",
    "checked_histories",
    "stale_refusals",
    "transactions",
    "aborted_transactions",
    "ambushes",
    "large_operations",
    "producer_id_blocks",
    "broker_deaths",
    "deaths_in_a_failover",
    "fenced_brokers",
    "controlled_shutdowns",
    "lost_directories",
    "brokers_cut_off",
    "amended_registrations",
    "late_registrations",
    "stale_requests_refused",
    "registration_DuplicateBrokerRegistrationError",
    "isr_changes",
    "isr_FencedLeaderEpochError",
    "isr_InvalidUpdateVersionError",
    "isr_IneligibleReplicaError",
    "isr_parts",
    "client_create_done",
    "client_create_exists",
    "client_create_unknown",
    "client_delete_done",
    "client_delete_absent",
    "client_grow_done",
    "client_grow_few",
    "client_read_read",
    "client_set_done",
)
LAST_LINES = 40


class Mode(NamedTuple):
    """What is simulated: the quorum alone, or whole clusters."""

    target: str
    run_seed: Callable[..., Outcome]
    must_happen: tuple[str, ...]
    counts: tuple[str, ...]
    #: Below this many events in all, some of it may not have happened yet.
    enough_events: int


QUORUM = Mode(
    "simulate",
    scenario.run_seed,
    MUST_HAPPEN,
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
    2_000_000,
)
WHOLE = Mode(
    "simulate-controllers",
    whole_scenario.run_seed,
    MUST_HAPPEN_WITH_CONTROLLERS,
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
    700_000,
)


class Part(NamedTuple):
    """What one process found in one seed, small enough to send."""

    seed: int
    events: int
    simulated_ms: float
    cpu_seconds: float
    digest: int
    counts: Counter[str]
    violation: str | None


def run_part(seed: int, event_limit: int, mode: Mode = QUORUM) -> Part:
    start = process_time()
    outcome = mode.run_seed(seed, event_limit)
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

    def __init__(self, mode: Mode = QUORUM) -> None:
        self.mode = mode
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
        if self.events < self.mode.enough_events:
            return []
        return [name for name in self.mode.must_happen if not self.counts[name]]

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
            + ", ".join(f"{counts[name]:,} {name.replace('_', ' ')}" for name in self.mode.counts)
            + "; "
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


def replay(seed: int, event_limit: int, mode: Mode = QUORUM) -> Outcome:
    """One seed with its trace; what was not told the first time is told now."""
    return mode.run_seed(seed, event_limit, is_traced=True)


def explain(outcome: Outcome, event_limit: int, mode: Mode = QUORUM) -> str:
    """A violation with the last lines before it, and how to see it again."""
    lines = [f"the last {LAST_LINES} of {len(outcome.lines)} lines:"]
    lines += [line[:600] for line in outcome.lines[-LAST_LINES:]]
    lines.append(f"seed {outcome.seed}, event {outcome.events}: {outcome.violation}")
    lines.append(f"again: make {mode.target} SEED={outcome.seed} EVENTS={event_limit}")
    return "\n".join(lines)


def run_many(
    seeds: range, event_limit: int, jobs: int, *, as_json: bool, mode: Mode = QUORUM
) -> int:
    summary = Summary(mode)
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
            for part in parts(seeds, partial(run_part, event_limit=event_limit, mode=mode), jobs):
                summary.add(part)
                progress.update(task, advance=1, bad=len(summary.violations))
        except KeyboardInterrupt:
            print("interrupted; so far:", file=sys.stderr)
    wall_seconds = perf_counter() - start
    if as_json:
        print(summary.as_json(wall_seconds, jobs))
    else:
        for part in sorted(summary.violations)[:3]:
            outcome = replay(part.seed, event_limit, mode)
            print(explain(outcome, event_limit, mode), end="\n\n")
        for part in sorted(summary.violations)[3:20]:
            print(f"seed {part.seed}, event {part.events}: {part.violation}")
        print(summary.as_line(wall_seconds, jobs))
        for name in summary.never_happened:
            print(f"never happened, so that nothing is proved of it: {name}")
    return 1 if summary.violations or summary.never_happened else 0


def run_one(seed: int, event_limit: int, *, is_whole: bool, mode: Mode = QUORUM) -> int:
    outcome = replay(seed, event_limit, mode)
    if is_whole:
        print("\n".join(outcome.lines))
    if outcome.violation is not None:
        print(explain(outcome, event_limit, mode))
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
    parser.add_argument(
        "--controllers", action="store_true", help="whole clusters: controllers, brokers, clients"
    )
    given = parser.parse_args()
    mode = WHOLE if given.controllers else QUORUM
    if given.seed is not None:
        return run_one(given.seed, given.events, is_whole=given.whole, mode=mode)
    seeds = range(given.first, given.first + given.seeds)
    return run_many(seeds, given.events, given.jobs, as_json=given.json, mode=mode)


if __name__ == "__main__":
    sys.exit(main())
