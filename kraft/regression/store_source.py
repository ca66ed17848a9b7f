"""`StoreSource`: the points of a store; each task analyses a range of series, which it reads
itself.

A range contains its series completely (`data_files`), so that no rows are exchanged between tasks.
There are as many ranges as the points and the `TaskRunner` need.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import reduce
from operator import and_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kraft.regression.commit_order import RunLike, glob_pattern
from kraft.regression.data_files import RunEntry, hash_ranges, read_files, series_hash
from kraft.regression.findings import ScalingLaw
from kraft.regression.points import Series, SeriesKey
from kraft.regression.settings import AnalysisSettings
from kraft.regression.store import open_store
from kraft.regression.table_analysis import (
    KEY,
    AnalysedSeries,
    Benchmark,
    analyse_rows,
    columns,
    fit_laws,
    histories,
    prepared,
)
from kraft.regression.tasks import IN_PROCESS, TaskRunner

#: Limits of a task, by points and by the bytes of the files, most of which are round values.
_TASK_POINTS = 250_000
_TASK_BYTES = 32 << 20
#: Limit of a task that fits scaling laws. It needs no round values, but the sizes of a benchmark
#: lie apart, so that each task reads most of every file: 40 tasks of 10 million points took 165
#: CPU seconds, 20 took 107.
_LAW_TASK_POINTS = 500_000


class StoreSource:
    """The points of one version whose benchmarks and machines match the globs."""

    def __init__(
        self,
        store: str | os.PathLike[str],
        *,
        version: int | str | None = None,
        benchmark: str | None = None,
        machine: str | None = None,
        tasks: TaskRunner = IN_PROCESS,
    ) -> None:
        self._state = open_store(store, version)
        # Workers receive the list of files, without the thousands of run entries.
        self._files = self._state.without_runs()
        self._filter = _chosen(benchmark, machine)
        self._tasks = tasks
        stored = sum(file.bytes for file in self._state.files.values())
        self._parts = max(
            tasks.wanted_tasks, -(-self._state.points // _TASK_POINTS), -(-stored // _TASK_BYTES)
        )
        self._law_parts = max(tasks.wanted_tasks, -(-self._state.points // _LAW_TASK_POINTS))

    def runs(self) -> list[RunLike]:
        return list(self._state.runs)

    def analysed(self, settings: AnalysisSettings, order: pa.Array) -> list[AnalysedSeries]:
        state, chosen = self._files, self._filter
        names = [*KEY, *columns(settings)]

        def work(series: tuple[int, int]) -> list[AnalysedSeries]:
            rows = state.read(columns=names, filters=chosen, series=series)
            return analyse_rows(prepared(rows, settings), settings, order)

        return self._tasks.run(work, hash_ranges(self._parts))

    def laws(
        self,
        of: dict[Benchmark, list[SeriesKey]],
        settings: AnalysisSettings,
        size_param: str | None,
        order: pa.Array,
    ) -> list[ScalingLaw]:
        state = self._files
        names = [*KEY, *columns(settings, rounds=False)]

        def work(keys: Sequence[SeriesKey]) -> list[ScalingLaw]:
            rows = state.read(columns=names, filters=_any_of(keys))
            return fit_laws(prepared(rows, settings), settings, size_param, order)

        series = list(of.values())
        parts = min(self._law_parts, len(series))
        of_part = [[key for keys in series[part::parts] for key in keys] for part in range(parts)]
        return self._tasks.run(work, of_part)

    def histories(
        self, keys: Sequence[SeriesKey], settings: AnalysisSettings, order: pa.Array
    ) -> dict[SeriesKey, Series]:
        rows = self._files.read(columns=[*KEY, *columns(settings)], filters=_any_of(keys))
        found = histories(prepared(rows, settings), settings, order)
        return {key: found[key] for key in keys if key in found}

    def machines(self) -> dict[str, str]:
        newest: dict[str, tuple[int, str, str]] = {}
        for file, runs in self._state.runs_of.items():
            for run in runs:
                this = run.time_us, run.run_id, file
                newest[run.machine] = max(newest.get(run.machine, this), this)
        return {
            machine: read_files(
                self._state.location,
                [file],
                columns=["machine_info"],
                filters=pc.field("run_id") == run_id,
            )["machine_info"][0].as_py()
            for machine, (_, run_id, file) in newest.items()
        }

    def first_run_of(self, commit: str) -> datetime | None:
        times = [run.time_us for run in self._state.runs if _is_of(run, commit)]
        return datetime.fromtimestamp(min(times) / 1e6, UTC) if times else None


def _is_of(run: RunEntry, commit: str) -> bool:
    return run.commit is not None and run.commit.lower().startswith(commit)


def _any_of(keys: Sequence[SeriesKey]) -> Any:
    """Return a filter for the series of these keys, and of others only if their hash is equal."""
    hashes = sorted({series_hash(*key[:4]) for key in keys})
    # The least and the largest one let a reader skip row groups.
    bounds = (pc.field("series") >= hashes[0]) & (pc.field("series") <= hashes[-1])
    return bounds & pc.field("series").isin(hashes)


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
    return reduce(and_, wanted) if wanted else None
