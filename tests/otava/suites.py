"""Benchmarks with their histories, and pytest-benchmark's files of them.

The benchmarks of a suite run together: a suite has one list of runs, and a run without the suite is
missing for all its benchmarks. All suites share one clock, so that one file contains the
measurements of all of them at that time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

#: Time of the first run, and the interval between runs.
FIRST_RUN_S = 1_600_000_000
RUN_EVERY_S = 3600

_MACHINE = {
    "node": "box",
    "machine": "x86_64",
    "system": "Linux",
    "cpu": {"brand_raw": "A", "count": 2},
}


@dataclass(frozen=True)
class Suite:
    """Benchmarks that run together."""

    name: str
    runs: NDArray[np.int64]  # clock ticks of its runs, ascending
    values: dict[str, NDArray[np.float64]]  # benchmark -> its value at each run; NaN if missing

    def __post_init__(self) -> None:
        assert (np.diff(self.runs) > 0).all(), f"{self.name}: the runs are not ascending"
        assert {len(each) for each in self.values.values()} == {len(self.runs)}


def time_s(run: int) -> int:
    """Return the time of a run, in seconds since 1970."""
    return FIRST_RUN_S + run * RUN_EVERY_S


def write_runs(suites: Sequence[Suite], folder: Path) -> list[Path]:
    """Write pytest-benchmark's file of each run, with one round per benchmark."""
    folder.mkdir(parents=True, exist_ok=True)
    benchmarks: dict[int, list[dict[str, object]]] = {}
    for suite in suites:
        for place, run in enumerate(suite.runs.tolist()):
            benchmarks.setdefault(run, []).extend(
                _benchmark(suite.name, name, float(values[place]))
                for name, values in suite.values.items()
            )
    paths = []
    for run, measured in sorted(benchmarks.items()):
        at = datetime.fromtimestamp(time_s(run), UTC).isoformat()
        document = {
            "machine_info": _MACHINE,
            "commit_info": {
                "id": f"{run:040x}",
                "time": at,
                "author_time": at,
                "dirty": False,
                "project": "proof",
                "branch": "main",
            },
            "benchmarks": measured,
            "datetime": at,
            "version": "5.1.0",
        }
        paths.append(folder / f"{run:05}.json")
        paths[-1].write_text(json.dumps(document), encoding="utf-8")
    return paths


def _benchmark(suite: str, name: str, value: float) -> dict[str, object]:
    stats = dict.fromkeys(("min", "max", "mean", "median", "q1", "q3", "total"), value)
    rest = {"stddev": 0.0, "iqr": 0.0, "rounds": 1, "iterations": 1, "outliers": "0;0"}
    return {
        "group": None,
        "name": name,
        "fullname": f"{suite}.py::{name}",
        "params": None,
        "param": None,
        "extra_info": {},
        "options": {"timer": "perf_counter", "min_rounds": 1},
        "stats": {**stats, **rest, "ops": 1 / value if value else 0.0},
    }
