"""Seeds of the simulation on Spark: ranges of seeds as tasks, summaries back.

Owns how a sweep is spread over executors: waves of tasks, each a stretch of seeds of about the same
work, so that what is done is known while it goes on and is not lost when it is interrupted. What a
task does is ``kraft.simulation.seeds``, the same as on one machine; kraft has to be installed where
the executors run. Nothing but numbers travels there.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from kraft.simulation.replays import CONTROLLERS, QUORUM, Kind
from kraft.simulation.seeds import (
    Failure,
    Finding,
    Summary,
    run_seeds,
    shrink_failure,
    tasks,
    worth_shrinking,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

#: Tasks of a wave for each core; with one it would be as slow as the slowest of them.
TASKS_OF_A_CORE = 16

_SUMMARY = (
    "first long, seeds long, events long, digest long, simulated_ms double, cpu_seconds double, "
    "counts string, failures string"
)
_FINDING = "replay string, finding string"


class Swept(NamedTuple):
    """A sweep: the sum of all seeds, and the failures that were shrunk."""

    summary: Summary
    findings: list[Finding]


def simulate_seeds(
    spark: SparkSession,
    seeds: range,
    *,
    controllers: bool = False,
    events: int | None = None,
    shrink: bool = True,
) -> Swept:
    """Runs these seeds on Spark; of each invariant that is violated a few failures are shrunk.

    ``controllers`` simulates whole clusters instead of the quorum alone. ``events`` is how many
    events a seed has at least; 10,000 by default, 4,000 of a whole cluster. Counts and digest are
    those of the same seeds run anywhere else. Raises what Spark raises where a job fails.
    """
    kind = CONTROLLERS if controllers else QUORUM
    event_limit = events or kind.event_limit
    summary = Summary(kind)
    for part in run_on_spark(spark, seeds, kind, event_limit):
        summary.add(part)
    replays = worth_shrinking(summary, event_limit) if shrink else []
    return Swept(summary, shrink_on_spark(spark, replays))


def run_on_spark(
    spark: SparkSession, seeds: range, kind: Kind, event_limit: int
) -> Iterator[Summary]:
    """The summaries of the seeds, wave by wave in their order."""
    cores = spark.sparkContext.defaultParallelism
    pieces = tasks(seeds, event_limit, cores)
    while wave := list(islice(pieces, TASKS_OF_A_CORE * cores)):
        yield _run_wave(spark, wave, kind, event_limit)


def _run_wave(spark: SparkSession, wave: Sequence[range], kind: Kind, event_limit: int) -> Summary:
    import pyarrow as pa

    bounds = [(piece.start, piece.stop, piece.step) for piece in wave]
    name = kind.name

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                seeds = range(*bounds[index])
                row = _row_of(seeds, run_seeds(seeds, name, event_limit))
                yield pa.RecordBatch.from_pylist([row])

    summary = Summary(kind)
    for row in _collect(spark, len(wave), run, _SUMMARY):
        summary.add(_summary_of(row, kind))
    if summary.seeds != sum(map(len, wave)):
        raise AssertionError(f"{summary.seeds} of {sum(map(len, wave))} seeds were run")
    return summary


def shrink_on_spark(spark: SparkSession, replays: Sequence[str]) -> list[Finding]:
    """Failing replays, shrunk, a task each, in their order."""
    import pyarrow as pa

    if not replays:
        return []
    given = list(replays)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                found = shrink_failure(given[index])
                told = None if found is None else json.dumps(found)
                yield pa.RecordBatch.from_pylist([{"replay": given[index], "finding": told}])

    found = {row["replay"]: row["finding"] for row in _collect(spark, len(given), run, _FINDING)}
    lost = [replay for replay in given if found[replay] is None]
    if lost:
        # One history is the same everywhere, or the executors run another kraft.
        raise AssertionError(f"{', '.join(lost)}: failed when swept, and does not fail again")
    return [_finding_of(found[replay]) for replay in given]


def _collect(spark: SparkSession, count: int, run: Any, schema: str) -> list[dict[str, Any]]:
    """The rows of ``count`` tasks; they end with whoever waits for them."""
    tag = f"kraft-seeds-{uuid4().hex}"
    spark.addTag(tag)
    try:
        frame = spark.range(0, count, 1, count).mapInArrow(run, schema)
        rows: list[dict[str, Any]] = frame.toArrow().to_pylist()
        return rows
    except KeyboardInterrupt:
        spark.interruptTag(tag)
        raise
    finally:
        spark.removeTag(tag)


def _row_of(seeds: range, summary: Summary) -> dict[str, Any]:
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


def _summary_of(row: dict[str, Any], kind: Kind) -> Summary:
    return Summary(
        kind,
        row["seeds"],
        row["events"],
        row["digest"],
        row["simulated_ms"],
        row["cpu_seconds"],
        Counter(json.loads(row["counts"])),
        [Failure(*failure) for failure in json.loads(row["failures"])],
    )


def _finding_of(text: str) -> Finding:
    fields = dict(zip(Finding._fields, json.loads(text), strict=True))
    fields["failure"] = Failure(*fields["failure"])
    fields["lines"] = tuple(fields["lines"])
    return Finding(**fields)
