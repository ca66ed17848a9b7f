"""``make simulate`` and its variants: run many seeds on all cores, print a summary.

The command adds to the sweeps of ``kraft.simulation.seeds`` the events that must occur in a run of
a certain size. The exit code is 1 if an invariant was violated, or if such an event never occurred:
a simulation in which no leader crashes proves nothing about crashes of leaders.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from time import perf_counter
from typing import NamedTuple

from kraft.cli.output import progress
from kraft.simulation.replays import CONTROLLERS, QUORUM, REPLICATION, Replay, SimulationKind
from kraft.simulation.scenario import RunOutcome
from kraft.simulation.seeds import LAST_LINES, MAX_LINE_LENGTH, SeedSummary, run_locally

#: Events that must occur; the names are those of `SimulatedCluster.counts`.
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
    "replaced_disks",
    "silent_hosts",
    "refusing_hosts",
    "failed_answers",
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
#: The same for whole clusters, with controllers, brokers and clients.
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


#: The same for replicated partitions.
MUST_HAPPEN_WITH_REPLICATION = (
    "elections",
    "commits",
    "calms",
    "broker_deaths",
    "broker_power_failures",
    "all_brokers_died",
    "killed_partition_leaders",
    "controlled_shutdowns",
    "lost_directories",
    "lost_disks",
    "brokers_cut_apart",
    "isolated_brokers",
    "broker_pauses",
    "lost_messages",
    "acknowledged_batches",
    "consumed_batches",
    "clean_elections",
    "unclean_elections",
    "elections_from_the_elr",
    "excused_losses",
    "lost_committed_copies",
    "isr_changes",
    "isr_joins",
    "isr_error_74",
    "isr_error_95",
    "isr_error_107",
    "isr_error_108",
    "replica_truncations",
    "offset_queries",
    "reassignments",
    "deleted_topics",
    "deleted_records_0",
    "produced_6",
    "produced_7",
    "produced_19",
    "consumed_1",
    "consumed_6",
    "consumed_74",
    "consumed_75",
    "listed_78",
    "producers_that_lost_records",
    "compared_replicas",
)


class Mode(NamedTuple):
    """A kind of simulation, its make target, and the events that must occur."""

    target: str
    kind: SimulationKind
    must_happen: tuple[str, ...]
    #: In runs with fewer events, some of them may not occur.
    enough_events: int

    def never_happened(self, summary: SeedSummary) -> list[str]:
        if summary.events < self.enough_events:
            return []
        return [name for name in self.must_happen if not summary.counts[name]]


ALONE = Mode("simulate", QUORUM, MUST_HAPPEN, 2_000_000)
WHOLE = Mode("simulate-controllers", CONTROLLERS, MUST_HAPPEN_WITH_CONTROLLERS, 1_300_000)
REPLICATED = Mode("simulate-replication", REPLICATION, MUST_HAPPEN_WITH_REPLICATION, 700_000)


def explain(outcome: RunOutcome, event_limit: int, mode: Mode = ALONE) -> str:
    """Format a violation with the last lines of its trace and the command that replays it."""
    lines = [f"the last {LAST_LINES} of {len(outcome.lines)} lines:"]
    lines += [line[:MAX_LINE_LENGTH] for line in outcome.lines[-LAST_LINES:]]
    lines.append(f"seed {outcome.seed}, event {outcome.events}: {outcome.violation}")
    lines.append(f"again: make {mode.target} SEED={outcome.seed} EVENTS={event_limit}")
    again = f"{mode.kind.name}:{outcome.seed}:{event_limit}"
    lines.append(f"made small: kraft sweep simulate --shrink --replay {again}")
    return "\n".join(lines)


def run_many(
    seeds: range, event_limit: int, jobs: int, *, as_json: bool, mode: Mode = ALONE
) -> int:
    summary = SeedSummary(mode.kind)
    start = perf_counter()
    with progress("simulating", len(seeds), shown=not as_json) as advance:
        try:
            for part in run_locally(seeds, mode.kind, event_limit, jobs):
                summary.add(part)
                advance(summary.seeds)
        except KeyboardInterrupt:
            print("interrupted; so far:", file=sys.stderr)
    wall_seconds = perf_counter() - start
    never_happened = mode.never_happened(summary)
    if as_json:
        figures = summary.as_dict(wall_seconds)
        print(json.dumps({**figures, "jobs": jobs, "never_happened": never_happened}, indent=1))
    else:
        for failure in summary.failures[:3]:
            outcome = Replay(mode.kind, failure.seed, event_limit).run(is_traced=True)
            print(explain(outcome, event_limit, mode), end="\n\n")
        for failure in summary.failures[3:20]:
            print(f"seed {failure.seed}, event {failure.event}: {failure.violation}")
        print(summary.as_line(wall_seconds))
        for name in never_happened:
            print(f"never happened, so that nothing is proved of it: {name}")
    return 1 if summary.failures or never_happened else 0


def run_one(seed: int, event_limit: int, *, is_whole: bool, mode: Mode = ALONE) -> int:
    outcome = Replay(mode.kind, seed, event_limit).run(is_traced=True)
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
    parser.add_argument("--seeds", type=int, default=2000, help="number of seeds (default 2000)")
    parser.add_argument("--first", type=int, default=0, help="first seed (default 0)")
    parser.add_argument(
        "--events", type=int, default=10_000, help="events of a seed at least (default 10000)"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true", help="print figures and all counts as JSON")
    parser.add_argument("--seed", type=int, help="replay this seed, with its trace")
    parser.add_argument("--whole", action="store_true", help="with --seed: print the whole trace")
    parser.add_argument(
        "--controllers",
        action="store_true",
        help="simulate whole clusters: controllers, brokers, clients",
    )
    parser.add_argument(
        "--replication",
        action="store_true",
        help="simulate replicated partitions: controllers, brokers, producers, consumers",
    )
    given = parser.parse_args()
    mode = REPLICATED if given.replication else WHOLE if given.controllers else ALONE
    if given.seed is not None:
        return run_one(given.seed, given.events, is_whole=given.whole, mode=mode)
    seeds = range(given.first, given.first + given.seeds)
    return run_many(seeds, given.events, given.jobs, as_json=given.json, mode=mode)


if __name__ == "__main__":
    sys.exit(main())
