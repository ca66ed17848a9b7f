"""`StoreSource`: the points of a store; each bucket is one task, read by the worker that analyses
it.

A bucket contains its series completely (`store_files`), so that nothing is shuffled and no row is
sent to the JVM. Without a session, this process analyses the buckets one after another.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kraft.regression.commit_order import RunLike, glob_pattern
from kraft.regression.findings import ScalingLaw
from kraft.regression.points import Series, SeriesKey
from kraft.regression.settings import AnalysisSettings
from kraft.spark.finding_rows import from_rows, schema_of, to_rows
from kraft.spark.store import open_store
from kraft.spark.store_files import bucket_of, read_files
from kraft.spark.table_analysis import (
    BENCHMARK,
    KEY,
    AnalysedSeries,
    Benchmark,
    analyse_rows,
    columns,
    fit_laws,
    histories,
    prepared,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Minimum number of Spark tasks, which balances the cores; each task has a start-up cost.
_TASKS = 16

T = TypeVar("T")
Task = TypeVar("Task")


class StoreSource:
    """The points whose benchmarks and machines match the globs, as of the store's current state."""

    def __init__(
        self,
        spark: SparkSession | None,
        store: str | os.PathLike[str],
        *,
        benchmark: str | None = None,
        machine: str | None = None,
    ) -> None:
        self._spark = spark
        self._state = open_store(store)
        # Workers receive the list of files, without the thousands of run entries.
        self._files = msgspec.structs.replace(self._state, runs={}, removed={})
        self._filter = _chosen(benchmark, machine)

    def runs(self) -> list[RunLike]:
        return list(self._state.runs.values())

    def analysed(self, settings: AnalysisSettings, order: pa.Array) -> list[AnalysedSeries]:
        state, chosen = self._files, self._filter
        names = [*KEY, *columns(settings)]

        def work(bucket: int) -> list[AnalysedSeries]:
            rows = read_files(state, columns=names, filters=chosen, bucket=bucket)
            return analyse_rows(prepared(rows, settings), settings, order)

        return self._each(AnalysedSeries, work, range(state.buckets))

    def laws(
        self,
        of: dict[Benchmark, list[SeriesKey]],
        settings: AnalysisSettings,
        size_param: str | None,
        order: pa.Array,
    ) -> list[ScalingLaw]:
        state = self._files
        names = [*KEY, *columns(settings, rounds=False)]
        tasks = list(of.items())

        def work(task: tuple[Benchmark, list[SeriesKey]]) -> list[ScalingLaw]:
            benchmark, keys = task
            wanted = [
                pc.field(name) == text for name, text in zip(BENCHMARK, benchmark, strict=True)
            ]
            rows = [
                read_files(state, columns=names, filters=_all(wanted), bucket=bucket)
                for bucket in sorted({bucket_of(*key[:4], buckets=state.buckets) for key in keys})
            ]
            return fit_laws(prepared(pa.concat_tables(rows), settings), settings, size_param, order)

        return self._each(ScalingLaw, work, tasks)

    def histories(
        self, keys: Sequence[SeriesKey], settings: AnalysisSettings, order: pa.Array
    ) -> dict[SeriesKey, Series]:
        state = self._files
        of_bucket: dict[int, list[SeriesKey]] = {}
        for key in keys:
            of_bucket.setdefault(bucket_of(*key[:4], buckets=state.buckets), []).append(key)
        found: dict[SeriesKey, Series] = {}
        for bucket, inside in of_bucket.items():
            wanted = [
                # The other columns of a key may be null in the store; the final filter below checks
                # them.
                _all([pc.field(name) == text for name, text in zip(KEY[:4], key[:4], strict=True)])
                for key in inside
            ]
            rows = read_files(
                state,
                columns=[*KEY, *columns(settings)],
                filters=reduce(or_, wanted),
                bucket=bucket,
            )
            found |= histories(prepared(rows, settings), settings, order)
        return {key: found[key] for key in keys if key in found}

    def machines(self) -> dict[str, str]:
        newest = {}
        for run in sorted(self._state.runs.values(), key=lambda run: (run.time_us, run.run_id)):
            newest[run.machine] = run
        return {
            machine: read_files(
                self._files,
                [run.file],
                columns=["machine_info"],
                filters=pc.field("run_id") == run.run_id,
            )["machine_info"][0].as_py()
            for machine, run in newest.items()
        }

    def first_run_of(self, commit: str) -> datetime | None:
        times = [
            run.time_us
            for run in self._state.runs.values()
            if run.commit is not None and run.commit.lower().startswith(commit)
        ]
        return datetime.fromtimestamp(min(times) / 1e6, UTC) if times else None

    def _each(self, kind: Any, work: Callable[[Task], list[T]], tasks: Sequence[Task]) -> list[T]:
        """Return the results of all tasks, run by Spark if there is a session."""
        if self._spark is None:
            return [each for task in tasks for each in work(task)]
        from pyspark.sql.pandas.types import from_arrow_schema

        def in_worker(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from to_rows(kind, work(tasks[number])).to_batches()

        several = max(_TASKS, 2 * self._spark.sparkContext.defaultParallelism)
        numbers = self._spark.range(0, len(tasks), 1, min(len(tasks), several))
        rows = numbers.mapInArrow(in_worker, from_arrow_schema(schema_of(kind))).toArrow()
        return from_rows(kind, rows)


def _chosen(benchmark: str | None, machine: str | None) -> Any:
    """Return the globs as a filter expression; None selects all points."""
    wanted = []
    if benchmark is not None:
        pattern = glob_pattern(benchmark)
        full = pc.binary_join_element_wise(pc.field("suite"), pc.field("benchmark"), "::")
        wanted.append(
            pc.match_substring_regex(pc.field("benchmark"), pattern)
            | pc.match_substring_regex(full, pattern)
        )
    if machine is not None:
        wanted.append(pc.match_substring_regex(pc.field("machine"), glob_pattern(machine)))
    return _all(wanted) if wanted else None


def _all(conditions: Sequence[Any]) -> Any:
    return reduce(lambda one, other: one & other, conditions)
