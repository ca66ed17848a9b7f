"""Histories of benchmarks, as a table of points."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from kraft.regression.points import POINTS

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(run: int) -> datetime:
    return START + timedelta(hours=run)


def point(run: int, benchmark: str, median: float | None, **others: Any) -> dict[str, Any]:
    row = {
        "run_id": f"{run:032x}",
        "machine": "box",
        "suite": "bench_a.py",
        "benchmark": benchmark,
        "params": "{}",
        "time": at(run),
        "commit": f"{run:02x}" * 20,
        "median": median,
        "extra_info": "{}",
        "machine_info": json.dumps({"node": "box", "seen": run}),
        "source": "somewhere",
    }
    return row | others


def levels(*given: tuple[int, float], seed: int = 1, noise: float = 0.02) -> list[float]:
    """Return a history with this many runs at each level, with a little noise."""
    random = np.random.default_rng(seed)
    flat = np.concatenate([np.full(runs, level) for runs, level in given])
    values: list[float] = (flat * random.normal(1, noise, len(flat))).tolist()
    return values


#: Three benchmarks on one machine: one is slower from run 20 on, one is faster from run 25 on, one
#: has few runs. One of them also ran on another machine.
HISTORIES = {
    ("slower", "box"): levels((20, 1.0), (20, 1.2)),
    ("faster", "box"): levels((25, 1.0), (15, 0.7), seed=2),
    ("steady", "box"): levels((40, 5.0), seed=3),
    ("slower", "other box"): levels((40, 3.0), seed=4),
    ("young", "box"): levels((3, 1.0)),
}


def table() -> pa.Table:
    rows = []
    for (benchmark, machine), values in HISTORIES.items():
        for run, value in enumerate(values):
            rounds = np.random.default_rng(run).normal(value, 0.01, 9).tolist()
            rows.append(point(run, benchmark, value, machine=machine, values=rounds))
    return pa.Table.from_pylist(rows, schema=POINTS)
