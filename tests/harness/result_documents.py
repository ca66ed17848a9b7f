"""Small results in the form of pytest-benchmark 5."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def document(
    *,
    at: float,
    values: Mapping[str, Sequence[float]],
    commit: str | None = "c0",
    committed: float | None = None,
    node: str = "build-7",
    branch: str = "main",
    keep_values: bool = True,
    suite: str = "bench.py",
) -> dict[str, Any]:
    """Return a run ``at`` hours after `BEGIN`, of a commit ``committed`` then (default: half an
    hour before).

    ``values`` are each benchmark's rounds.
    """
    when = BEGIN + timedelta(hours=at)
    commit_time = BEGIN + timedelta(hours=at - 0.5 if committed is None else committed)
    return {
        "machine_info": {
            "node": node,
            "processor": "",
            "machine": "x86_64",
            "python_implementation": "CPython",
            "python_version": "3.11.7",
            "system": "Linux",
            "release": "6.1.0",
            "cpu": {"brand_raw": "AMD EPYC 7763 64-Core Processor", "count": 4},
        },
        "commit_info": {
            "id": commit or "unversioned",
            "time": commit_time.isoformat() if commit else None,
            "author_time": None,
            "dirty": False,
            "project": "sample",
            "branch": branch,
        },
        "benchmarks": [
            benchmark(f"{suite}::{name}", rounds, keep_values=keep_values)
            for name, rounds in values.items()
        ],
        "datetime": when.isoformat(),
        "version": "5.3.1",
    }


def benchmark(
    fullname: str, rounds: Sequence[float], *, keep_values: bool = True, **given: Any
) -> dict[str, Any]:
    """Return one benchmark of these rounds; ``given`` sets other fields."""
    mean = statistics.mean(rounds)
    stats: dict[str, Any] = {
        "min": min(rounds),
        "max": max(rounds),
        "mean": mean,
        "stddev": statistics.stdev(rounds) if len(rounds) > 1 else 0,
        "rounds": len(rounds),
        "median": statistics.median(rounds),
        "iqr": 0.0,
        "q1": min(rounds),
        "q3": max(rounds),
        "ops": 1 / mean if mean else 0,
        "total": sum(rounds),
        "iterations": 1,
    }
    if keep_values:
        stats["data"] = list(rounds)
    return {
        "group": None,
        "name": fullname.rpartition("::")[2],
        "fullname": fullname,
        "params": None,
        "param": None,
        "extra_info": {},
        "options": {"min_rounds": 5},
        "stats": stats,
        **given,
    }


def save(path: Path, content: dict[str, Any]) -> Path:
    """Write a document as pytest-benchmark does, indented by four."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=4))
    return path
