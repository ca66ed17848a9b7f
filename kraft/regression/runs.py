"""Runs in memory: the points of one execution of a suite as columns, and as Arrow tables.

This module converts runs to rows of `points.POINTS`. `results` creates runs; the store, the data
source and `comparison` read them. Values that all points of a run share (machine, commit, about
3,000 bytes of machine description) are stored once per run and dictionary-encoded in tables. As
plain strings, the descriptions of a large store would take ten times the space of its numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kraft.regression.points import POINTS

#: The columns of `BenchmarkRun.statistics` in seconds (ops: 1/s) or in the unit of the point; NaN
#: where a version omits one.
STATISTIC_COLUMNS = (
    "min",
    "max",
    "mean",
    "stddev",
    "median",
    "iqr",
    "q1",
    "q3",
    "ops",
    "total",
)

#: The lists of `BenchmarkRun` with one entry per point.
_PER_POINT = (
    "suite",
    "benchmark",
    "params",
    "group",
    "rounds",
    "iterations",
    "instructions",
    "extra_info",
    "unit",
    "bigger_is_better",
)


class Problem(NamedTuple):
    """Input that was skipped or looks wrong: its path and the reason."""

    path: str
    reason: str


@dataclass(frozen=True)
class BenchmarkRun:
    """One execution of a suite. Lists and arrays have one entry per point."""

    run_id: str
    source: str
    machine: str
    machine_info: str  # JSON object
    time_us: int  # since 1970, UTC
    project: str | None
    branch: str | None
    commit: str | None
    commit_time_us: int | None
    dirty: bool | None
    version: str | None
    suite: list[str]
    benchmark: list[str]
    params: list[str]
    group: list[str | None]
    rounds: list[int | None]
    iterations: list[int | None]
    statistics: NDArray[np.float64]  # (points, len(STATISTIC_COLUMNS))
    instructions: list[float | None]
    values: list[list[float] | None]
    extra_info: list[str]
    problems: tuple[Problem, ...] = ()
    without_value: int = 0  # benchmarks that the tool skipped, or whose code failed
    parents: list[str] | None = None
    unit: list[str | None] = dataclasses.field(
        default_factory=list
    )  # None is seconds; empty: all are
    bigger_is_better: list[bool | None] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        assert self.statistics.shape == (len(self), len(STATISTIC_COLUMNS))
        if not self.unit:
            object.__setattr__(self, "unit", [None] * len(self))
            object.__setattr__(self, "bigger_is_better", [None] * len(self))
        lengths = {
            len(self.unit),
            len(self.bigger_is_better),
            len(self.benchmark),
            len(self.params),
            len(self.values),
            len(self.extra_info),
        }
        assert lengths <= {len(self)}, f"{self.source}: columns of different lengths"

    def __len__(self) -> int:
        return len(self.suite)

    @property
    def has_values(self) -> bool:
        """Return whether the rounds of any benchmark were saved."""
        return any(values is not None for values in self.values)

    def only(self, kept: Sequence[int]) -> BenchmarkRun:
        """Return this run with only the points at the indices ``kept``."""
        chosen: dict[str, Any] = {
            name: [getattr(self, name)[at] for at in kept] for name in (*_PER_POINT, "values")
        }
        return replace(self, **chosen, statistics=self.statistics[list(kept)])

    @cached_property
    def batch(self) -> pa.RecordBatch:
        """Return the points in the schema `POINTS`, as plain columns."""
        table = points_table([self], plain=True)
        return pa.RecordBatch.from_arrays(
            [column.combine_chunks() for column in table.columns], schema=POINTS
        )


def points_table(runs: Sequence[BenchmarkRun], *, plain: bool = False) -> pa.Table:
    """Return the points of several runs, run after run, with the columns of `POINTS`.

    Strings are dictionary-encoded unless ``plain``, which produces exactly the schema `POINTS`.
    """
    counts = np.array([len(run) for run in runs], np.int64)
    of_run = np.repeat(np.arange(len(runs), dtype=np.int32), counts)
    statistics = (
        np.concatenate([run.statistics for run in runs])
        if runs
        else np.empty((0, len(STATISTIC_COLUMNS)))
    )
    once: dict[str, Sequence[object]] = {
        "run_id": [run.run_id for run in runs],
        "machine": [run.machine for run in runs],
        "time": [run.time_us for run in runs],
        "project": [run.project for run in runs],
        "branch": [run.branch for run in runs],
        "commit": [run.commit for run in runs],
        "commit_time": [run.commit_time_us for run in runs],
        "dirty": [run.dirty for run in runs],
        "parents": [run.parents for run in runs],
        "version": [run.version for run in runs],
        "machine_info": [run.machine_info for run in runs],
        "source": [run.source for run in runs],
    }
    each: dict[str, list[object]] = {
        name: list(chain.from_iterable(getattr(run, name) for run in runs)) for name in _PER_POINT
    }
    columns = []
    schema = []
    for field in POINTS:
        if field.name in once:
            values = pa.array(once[field.name], field.type)
            if pa.types.is_string(field.type) and not plain:
                column = _dictionary(values, of_run)
            else:
                column = values.take(pa.array(of_run))
        elif field.name in STATISTIC_COLUMNS:
            numbers = statistics[:, STATISTIC_COLUMNS.index(field.name)]
            column = pa.array(numbers, field.type, from_pandas=True)  # NaN becomes null
        elif field.name == "values":
            column = _lists([values for run in runs for values in run.values])
        else:
            column = pa.array(each[field.name], field.type)
            if pa.types.is_string(field.type) and not plain:
                column = column.dictionary_encode()
        columns.append(column)
        schema.append(pa.field(field.name, column.type, field.nullable))
    return pa.table(columns, schema=pa.schema(schema))


def _dictionary(values: pa.Array, of_run: NDArray[np.int32]) -> pa.DictionaryArray:
    """Repeat one entry per run for each of its points, dictionary-encoded; None stays null."""
    encoded = values.dictionary_encode()
    indices = encoded.indices.take(pa.array(of_run))
    return pa.DictionaryArray.from_arrays(indices, encoded.dictionary)


def _lists(values: list[list[float] | None]) -> pa.ListArray:
    lengths = np.fromiter((len(given or ()) for given in values), np.int64, len(values))
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    flat = np.fromiter(
        chain.from_iterable(given for given in values if given), np.float64, int(offsets[-1])
    )
    missing = np.fromiter((given is None for given in values), np.bool_, len(values))
    return pa.ListArray.from_arrays(
        pa.array(offsets), pa.array(flat), mask=pa.array(missing) if missing.any() else None
    )
