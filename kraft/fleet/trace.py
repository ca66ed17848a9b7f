"""The files of a run: ``run.json``, ``trace.jsonl`` and ``benchmark.json``.

``trace.jsonl`` has an object a line: ``at_ms`` since the begin of the run, ``step`` (the scenario's
step), ``name`` (what happened), ``broker`` (or null), ``value`` (or null). `EVENTS` and `SAMPLES`
list the names. ``benchmark.json`` has the measures in the format of pytest-benchmark, so that
``kraft regress`` reads it.

A trace may be written from several threads.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kraft.fleet.measures import percentile
from kraft.version import VERSION

#: Event -> the meaning of its value.
EVENTS: Mapping[str, str] = {
    "step_started": "",
    "step_ended": "seconds that the step took",
    "broker_registered": "",
    "broker_caught_up": "",
    "broker_unfenced": "",
    "broker_fenced": "",
    "broker_stopped": "",
    "caught_up": "ms until each process had its snapshot and the log behind it, once a process",
    "all_unfenced": "ms from the start of the brokers until all of them were unfenced",
    "in_sync_everywhere": "ms from the start until all ISRs are complete, applied by every broker",
    "controller_elected": "epoch",
    "first_write": "ms from the fault to the first accepted write",
    "committed": "offset",
    "applied": "ms from the commit of the marker to the broker's applied offset",
    "heartbeat_late": "ms from when the heartbeat was due until its response",
    "fenced_after": "ms from the loss of the broker until its fencing was committed",
    "decided": "ms from the loss until no lost broker leads a partition",
    "applied_everywhere": "ms from the loss until every running broker has applied that",
    "own_delay": "ms that the fleet itself adds to the time of a single change in this step",
    "own_delay_error": "ms, the standard error of own_delay",
    "own_applying": "ms that the busiest process decoded and applied metadata in this step",
    "copy_floor": "ms that copying alone takes of what the brokers received in this step",
}
#: Sample, taken every second -> its unit.
SAMPLES: Mapping[str, str] = {
    "controller_cpu": "cores",
    "active_controller_cpu": "cores",
    "fleet_cpu": "cores",
    "controller_rss": "bytes",
    "fleet_rss": "bytes",
    "network_bytes": "bytes of metadata that the brokers received so far",
    "disk_bytes": "bytes that the controllers wrote so far",
    "heartbeats": "heartbeats that the controllers answered so far",
    "observer_fetches": "fetches of the metadata that they answered so far",
    "metadata_offset": "end of the metadata that the fleet has applied",
    "queue_time_p99": "ms",
    "applied_lag_records": "records that the worst broker lacks",
    "fleet_delay": "ms by which the event loop of a process of the fleet was late at most",
}
#: Measures of benchmark.json in seconds: event -> (name, factor of its value).
_MEASURES = {
    "caught_up": "caught_up",
    "all_unfenced": "all_unfenced",
    "in_sync_everywhere": "in_sync_everywhere",
    "applied": "propagation",
    "fenced_after": "fencing",
    "decided": "decided",
    "applied_everywhere": "applied_everywhere",
    "first_write": "first_write",
}
_MILLISECOND = 1e-3
#: pytest-benchmark's readers reject times that are not above zero.
SHORTEST_S = 1e-6


@dataclass(frozen=True, slots=True)
class FleetRun:
    """What ``run.json`` says about a run."""

    run: str
    quorum: str
    controllers: int
    brokers: int
    partitions: int
    scenario: str
    seed: int
    processes: int
    kraft_version: str = VERSION
    started_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat())
    machine: dict[str, Any] = field(default_factory=lambda: machine_info())


def machine_info() -> dict[str, Any]:
    """Return the machine in the form of pytest-benchmark's ``machine_info``."""
    return {
        "node": platform.node(),
        "processor": platform.processor(),
        "machine": platform.machine(),
        "python_implementation": platform.python_implementation(),
        "python_version": platform.python_version(),
        "release": platform.release(),
        "system": platform.system(),
        "cpu": {"count": os.cpu_count() or 1},
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


class FleetTrace:
    """Writes the files of a run to a directory; a context manager."""

    def __init__(self, directory: Path, run: FleetRun) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.run = run
        self.begun_s = time.monotonic()
        self.step = ""
        #: The values of measured events by (step, name), in ms; of steps in seconds.
        self.values: dict[tuple[str, str], list[float]] = {}
        self._lock = threading.Lock()
        (directory / "run.json").write_text(json.dumps(asdict(run), indent=2) + "\n")
        self._file = (directory / "trace.jsonl").open("w", encoding="utf-8")

    def event(
        self,
        name: str,
        *,
        broker: int | None = None,
        value: float | None = None,
        at_s: float | None = None,
    ) -> None:
        """Write one event; ``at_s`` is a time of the monotonic clock, by default now."""
        at_ms = ((time.monotonic() if at_s is None else at_s) - self.begun_s) * 1000
        with self._lock:
            line = {
                "at_ms": round(at_ms, 3),
                "step": self.step,
                "name": name,
                "broker": broker,
                "value": value,
            }
            self._file.write(json.dumps(line) + "\n")
            if value is not None and (name in _MEASURES or name == "step_ended"):
                self.values.setdefault((self.step, name), []).append(value)

    def flush(self) -> None:
        with self._lock:
            self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()
        (self.directory / "benchmark.json").write_text(
            json.dumps(benchmark_document(self.run, self.values), indent=1) + "\n"
        )


def benchmark_document(
    run: FleetRun, values: Mapping[tuple[str, str], Sequence[float]]
) -> dict[str, Any]:
    """Return the measures as a document of pytest-benchmark."""
    params = {
        "brokers": run.brokers,
        "partitions": run.partitions,
        "controllers": run.controllers,
        "quorum": run.quorum,
        "scenario": run.scenario,
    }
    benchmarks = []
    for (step, name), given in values.items():
        is_step = name == "step_ended"
        factor = 1.0 if is_step else _MILLISECOND
        data = [max(value * factor, SHORTEST_S) for value in given]
        measure = "seconds" if is_step else _MEASURES[name]
        benchmarks.append(
            benchmark_entry(
                f"{step}_{measure}",
                suite="fleet",
                group=run.scenario,
                params=params,
                data=data,
                extra_info={
                    "run": run.run,
                    "seed": run.seed,
                    "p99": percentile(sorted(data), 0.99),
                    "worst": max(data),
                },
            )
        )
    return benchmark_results(
        benchmarks,
        machine=run.machine,
        started_at=run.started_at,
        project="kraft-fleet",
        branch=run.quorum,
    )


def benchmark_entry(
    name: str,
    *,
    suite: str,
    group: str,
    params: Mapping[str, Any],
    data: Sequence[float],
    extra_info: Mapping[str, Any],
) -> dict[str, Any]:
    """Return one measure, in seconds, in the form of pytest-benchmark's ``benchmarks``."""
    ordered = sorted(data)
    quartiles = statistics.quantiles(ordered, n=4) if len(ordered) > 1 else [ordered[0]] * 3
    mean = statistics.fmean(ordered)
    shown = "-".join(str(value) for value in params.values())
    return {
        "group": group,
        "name": f"{name}[{shown}]",
        "fullname": f"{suite}/{group}::{name}[{shown}]",
        "params": dict(params),
        "param": shown,
        "extra_info": dict(extra_info),
        "options": {},
        "stats": {
            "min": ordered[0],
            "max": ordered[-1],
            "mean": mean,
            "stddev": statistics.stdev(ordered) if len(ordered) > 1 else 0.0,
            "rounds": len(ordered),
            "median": statistics.median(ordered),
            "iqr": quartiles[2] - quartiles[0],
            "q1": quartiles[0],
            "q3": quartiles[2],
            "ops": 1 / mean,
            "total": sum(ordered),
            "iterations": 1,
            "data": list(data),
        },
    }


def benchmark_results(
    benchmarks: Sequence[Mapping[str, Any]],
    *,
    machine: Mapping[str, Any],
    started_at: str,
    project: str,
    branch: str,
) -> dict[str, Any]:
    """Return a document of pytest-benchmark with these entries."""
    return {
        "machine_info": dict(machine),
        "commit_info": {
            "id": VERSION,
            "time": started_at,
            "author_time": started_at,
            "dirty": False,
            "project": project,
            "branch": branch,
        },
        "benchmarks": list(benchmarks),
        "datetime": started_at,
        "version": "5.1.0",
    }
