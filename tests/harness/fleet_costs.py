"""Runs of the fleet whose CPU follows planted costs: for tests of what fits them again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from kraft.fleet.traces import RecordedRun, read_run
from tests.harness.fleet_runs import write_run

#: The planted costs, in the order of `kraft.fleet.cost_model.Term`.
COSTS = {"base": 0.05, "heartbeats": 3e-5, "fetches": 8e-6, "records": 2e-6, "bytes": 4e-10}


def planted_run(
    place: Path,
    *,
    brokers: int,
    partitions: int = 1000,
    commits_per_s: float = 2,
    records_per_commit: int = 1,
    bytes_per_s: float = 0.0,
    noise: float = 0.0,
    costs: dict[str, float] | None = None,
    quorum: str = "kraft",
) -> RecordedRun:
    """Write a run of one step of 20 s whose CPU is that of `COSTS`."""
    directory = write_run(place, brokers=brokers, partitions=partitions, quorum=quorum)
    random = np.random.default_rng([brokers, int(commits_per_s), int(bytes_per_s)])
    cost = costs or COSTS
    seconds = 20
    fetches = brokers * commits_per_s * 2
    cpu = cost["base"] + brokers / 2 * cost["heartbeats"] + fetches * cost["fetches"]
    cpu += commits_per_s * records_per_commit * cost["records"] + bytes_per_s * cost["bytes"]
    lines = []

    def add(at_ms: float, name: str, value: float | None, broker: int | None = None) -> None:
        lines.append(
            {"at_ms": at_ms, "step": "steady", "name": name, "broker": broker, "value": value}
        )

    add(0, "step_started", None)
    for second in range(seconds + 1):
        at = second * 1000.0
        add(at, "controller_cpu", cpu * (1 + noise * random.normal()))
        add(at, "controller_rss", 3 * (5e7 + 1e5 * brokers + 90 * partitions))
        add(at, "heartbeats", 10 + second * brokers / 2)
        add(at, "observer_fetches", second * fetches)
        add(at, "metadata_offset", 100 + second * commits_per_s * records_per_commit)
        add(at, "network_bytes", second * bytes_per_s)
    add(seconds * 1000, "step_ended", seconds)
    text = "\n".join(json.dumps(each) for each in lines) + "\n"
    (directory / "trace.jsonl").write_text(text)
    return read_run(directory)


def varied(folder: Path, **options: Any) -> list[RecordedRun]:
    """Return runs that differ in brokers, commits, records and bytes, each without the others."""
    loads = [
        (100, 2, 1, 1e5), (300, 2, 1, 2e6), (1000, 2, 1, 1e6), (100, 40, 1, 3e6),
        (300, 20, 50, 1e6), (1000, 10, 200, 9e6), (500, 5, 1, 2e7), (50, 100, 100, 1e6),
        (700, 2, 1, 5e4), (200, 60, 20, 0),
    ]  # fmt: skip
    return [
        planted_run(
            folder / str(number), brokers=brokers, partitions=1000 * (number % 4 + 1),
            commits_per_s=commits, records_per_commit=records, bytes_per_s=sent, **options,
        )
        for number, (brokers, commits, records, sent) in enumerate(loads)
    ]  # fmt: skip
