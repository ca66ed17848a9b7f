"""Points: one row per run and benchmark, the table on which all analyses work.

This module defines the schema of the store (`POINTS`) and the history of one benchmark
(`SeriesKey`, `Series`). `results` and the store produce points; `series_analysis`, `comparison` and
`scaling` read them.

A *run* is one execution of a suite: one pytest-benchmark JSON file. A *series* is the history of
one benchmark with one set of parameters on one machine, of one project and branch. A series never
mixes machines, projects or branches.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

#: One row per run and benchmark. Times are seconds per iteration, as in pytest-benchmark; other
#: values are in ``unit``.
POINTS = pa.schema(
    [
        pa.field("run_id", pa.string(), nullable=False),  # hash of the run: 32 hex digits
        pa.field("machine", pa.string(), nullable=False),  # id of comparable machines (`results`)
        pa.field("suite", pa.string(), nullable=False),  # the file: benchmarks/bench_table.py
        pa.field("benchmark", pa.string(), nullable=False),  # Class::function, without parameters
        pa.field("params", pa.string(), nullable=False),  # canonical JSON object, keys sorted; {}
        pa.field("group", pa.string()),
        pa.field("time", pa.timestamp("us", tz="UTC"), nullable=False),  # when the run ended
        pa.field("project", pa.string()),
        pa.field("branch", pa.string()),
        pa.field("commit", pa.string()),
        pa.field("commit_time", pa.timestamp("us", tz="UTC")),
        pa.field("dirty", pa.bool_()),
        pa.field("parents", pa.list_(pa.string())),  # of the commit, if commit_info has them
        pa.field("version", pa.string()),  # pytest-benchmark's
        pa.field("rounds", pa.int64()),
        pa.field("iterations", pa.int64()),
        pa.field("min", pa.float64()),
        pa.field("max", pa.float64()),
        pa.field("mean", pa.float64()),
        pa.field("stddev", pa.float64()),
        pa.field("median", pa.float64()),
        pa.field("iqr", pa.float64()),
        pa.field("q1", pa.float64()),
        pa.field("q3", pa.float64()),
        pa.field("ops", pa.float64()),
        pa.field("total", pa.float64()),
        pa.field("instructions", pa.float64()),  # per iteration, if extra_info has them
        pa.field("values", pa.list_(pa.float64())),  # every round; null if not saved
        pa.field("extra_info", pa.string(), nullable=False),  # JSON object
        pa.field("machine_info", pa.string(), nullable=False),  # JSON object
        pa.field("source", pa.string(), nullable=False),  # the file it was read from
        pa.field("unit", pa.string()),  # of the values: s, B, ops/s; null is seconds
        pa.field("bigger_is_better", pa.bool_()),  # null is false
    ]
)

#: The columns that a series may analyse.
STATISTICS = ("min", "median", "mean", "max", "instructions")


#: A unit is part of texts and pages: no spaces, no markup.
UNIT_PATTERN = re.compile(r"[A-Za-z0-9%/_.^*-]{0,24}")


class BenchmarkMetric(NamedTuple):
    """Unit and direction of a benchmark's values."""

    unit: str = "s"
    bigger_is_better: bool = False

    @classmethod
    def of(cls, unit: str | None, bigger_is_better: bool | None) -> BenchmarkMetric:
        """Return the metric of a point's columns, either of which may be null.

        Without a direction, bigger is better for a rate (``ops/s``, ``MB/s``) and for nothing else.
        """
        name = "s" if unit is None else unit
        bigger = name.endswith("/s") if bigger_is_better is None else bigger_is_better
        return cls(name, bool(bigger))

    def worsening(self, ratio: float) -> float:
        """Return the ratio new / old, inverted if bigger is better: above 1 is worse."""
        if not self.bigger_is_better:
            return ratio
        return 1 / ratio if ratio else float("inf")


#: The metric of times, and of every point without a unit.
SECONDS = BenchmarkMetric()

#: The metric of ``instructions``.
INSTRUCTIONS = BenchmarkMetric("")

#: The columns of `POINTS` that hold a point's metric.
METRIC_COLUMNS = list(BenchmarkMetric._fields)


class SeriesKey(NamedTuple):
    """Identity of a series."""

    suite: str
    benchmark: str
    params: str
    machine: str
    project: str = ""  # "" if unknown
    branch: str = ""

    @property
    def name(self) -> str:
        """Return ``suite::benchmark[partitions=1000000]``, without the machine."""
        given = json.loads(self.params)
        inside = ", ".join(f"{name}={value}" for name, value in given.items())
        return f"{self.suite}::{self.benchmark}" + (f"[{inside}]" if inside else "")


@dataclass(frozen=True)
class Series:
    """The ordered history of one benchmark, parameter set, machine, project and branch.

    All arrays have one entry per run. `place` orders the runs of several series
    (`commit_order.order_runs`); without it, runs are ordered by time. `value` is the analysed
    statistic and contains no NaN. `rounds` holds each run's round values, or is None if they were
    not saved.
    """

    key: SeriesKey
    run_id: NDArray[np.object_]
    time_us: NDArray[np.int64]  # since 1970, UTC
    commit: NDArray[np.object_]  # str or None
    value: NDArray[np.float64]
    rounds: list[NDArray[np.float64]] | None = None
    place: NDArray[np.int64] | None = None
    metric: BenchmarkMetric = SECONDS  # of its newest run

    def __post_init__(self) -> None:
        count = len(self.value)
        lengths = {len(self.run_id), len(self.time_us), len(self.commit), count}
        if self.rounds is not None:
            lengths.add(len(self.rounds))
        assert lengths == {count}, f"{self.key.name}: columns of different lengths, {lengths}"
        assert not np.isnan(self.value).any(), f"{self.key.name}: NaN in a series"
        order = self.time_us if self.place is None else self.place
        assert (np.diff(order) >= 0).all(), f"{self.key.name}: runs out of order"

    def __len__(self) -> int:
        return len(self.value)
