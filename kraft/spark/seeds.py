"""Simulation seeds on Spark: ranges of seeds as tasks, summaries as results.

This module divides a sweep into waves of tasks, each a range of seeds of about equal work, so that
progress is visible and an interrupt keeps the finished waves. A task runs
``kraft.simulation.seeds``, as on one machine, so kraft must be installed on the executors. Only
numbers are sent to them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from kraft.simulation.replays import CONTROLLERS, QUORUM, SimulationKind
from kraft.simulation.seeds import (
    Failure,
    SeedSummary,
    ShrunkFailure,
    failures_to_shrink,
    run_seeds,
    shrink_failure,
    tasks,
)
from kraft.spark.tasks import collect_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

#: Tasks per core in a wave; with one per core, a wave would take as long as its slowest task.
TASKS_OF_A_CORE = 16

_SUMMARY = (
    "first long, seeds long, events long, digest long, simulated_ms double, cpu_seconds double, "
    "counts string, failures string"
)
_FINDING = "replay string, finding string"


class SeedSweep(NamedTuple):
    """Result of a sweep: the sum over all seeds, and the minimised failures."""

    summary: SeedSummary
    findings: list[ShrunkFailure]


def simulate_seeds(
    spark: SparkSession,
    seeds: range,
    *,
    controllers: bool = False,
    events: int | None = None,
    shrink: bool = True,
) -> SeedSweep:
    """Run these seeds on Spark and minimise a few failures of each violated invariant.

    ``controllers`` simulates whole clusters instead of the quorum alone. ``events`` is the minimum
    number of events per seed; the default is 10,000, for a whole cluster 4,000. Counts and digest
    equal those of the same seeds run anywhere else. Raises Spark's exceptions if a job fails.
    """
    kind = CONTROLLERS if controllers else QUORUM
    event_limit = events or kind.event_limit
    summary = SeedSummary(kind)
    for part in run_on_spark(spark, seeds, kind, event_limit):
        summary.add(part)
    replays = failures_to_shrink(summary, event_limit) if shrink else []
    return SeedSweep(summary, shrink_on_spark(spark, replays))


def run_on_spark(
    spark: SparkSession, seeds: range, kind: SimulationKind, event_limit: int
) -> Iterator[SeedSummary]:
    """Yield the summaries of the seeds, wave by wave in their order."""
    cores = spark.sparkContext.defaultParallelism
    chunks = tasks(seeds, event_limit, cores)
    while wave := list(islice(chunks, TASKS_OF_A_CORE * cores)):
        yield _run_wave(spark, wave, kind, event_limit)


def _run_wave(
    spark: SparkSession, wave: Sequence[range], kind: SimulationKind, event_limit: int
) -> SeedSummary:
    import pyarrow as pa

    bounds = [(piece.start, piece.stop, piece.step) for piece in wave]
    name = kind.name

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                seeds = range(*bounds[index])
                row = _row_of(seeds, run_seeds(seeds, name, event_limit))
                yield pa.RecordBatch.from_pylist([row])

    summary = SeedSummary(kind)
    for row in collect_rows(spark, len(wave), run, _SUMMARY):
        summary.add(_summary_of(row, kind))
    if summary.seeds != sum(map(len, wave)):
        raise AssertionError(f"{summary.seeds} of {sum(map(len, wave))} seeds were run")
    return summary


def shrink_on_spark(spark: SparkSession, replays: Sequence[str]) -> list[ShrunkFailure]:
    """Return the failing replays, minimised, one task each, in their order."""
    import pyarrow as pa

    if not replays:
        return []
    given = list(replays)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                found = shrink_failure(given[index])
                text = None if found is None else json.dumps(found)
                yield pa.RecordBatch.from_pylist([{"replay": given[index], "finding": text}])

    found = {
        row["replay"]: row["finding"] for row in collect_rows(spark, len(given), run, _FINDING)
    }
    lost = [replay for replay in given if found[replay] is None]
    if lost:
        # A seed always produces the same history, so the executors run another version of kraft.
        raise AssertionError(f"{', '.join(lost)}: failed when swept, and does not fail again")
    return [_finding_of(found[replay]) for replay in given]


def _row_of(seeds: range, summary: SeedSummary) -> dict[str, Any]:
    return {
        "first": seeds.start,
        "seeds": summary.seeds,
        "events": summary.events,
        "digest": summary.digest,
        "simulated_ms": summary.simulated_ms,
        "cpu_seconds": summary.cpu_seconds,
        "counts": json.dumps(summary.counts),
        "failures": json.dumps(summary.failures),
    }


def _summary_of(row: dict[str, Any], kind: SimulationKind) -> SeedSummary:
    return SeedSummary(
        kind,
        row["seeds"],
        row["events"],
        row["digest"],
        row["simulated_ms"],
        row["cpu_seconds"],
        Counter(json.loads(row["counts"])),
        [Failure(*failure) for failure in json.loads(row["failures"])],
    )


def _finding_of(text: str) -> ShrunkFailure:
    fields = dict(zip(ShrunkFailure._fields, json.loads(text), strict=True))
    fields["failure"] = Failure(*fields["failure"])
    fields["lines"] = tuple(fields["lines"])
    return ShrunkFailure(**fields)
