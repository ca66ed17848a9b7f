"""CPU time, memory and bytes of `kraft regress` by the size of a store, with Spark on this machine.

The store has the runs of `generate_runs` without the way through JSON: a tenth of the series has a
step, which must be found. Its data files are as large as those of an ingest, and merged as there.
The figures in ``docs/regressions.md`` ("Many points") are from commands like these:

    python -m benchmarks.regress_scale --runs 100 --benchmarks 1000
    python -m benchmarks.regress_scale --runs 10000 --benchmarks 1000
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from hashlib import md5, sha1
from pathlib import Path
from typing import Any

import numpy as np

from kraft.regression.data_files import RunEntry, write_file
from kraft.regression.ingest import staging_directory
from kraft.regression.runs import STATISTIC_COLUMNS, BenchmarkRun, points_table
from kraft.regression.store import commit, load_state, merge_small_files, open_store
from kraft.regression.store_location import StoreLocation

_FILE_POINTS = 70_000  # of an ingest's data file
_ROUNDS = 10
_SIZES = (None, 1_000, 10_000, 100_000, 1_000_000)
_HOUR_US = 3_600_000_000
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_SAMPLE_S = 0.25


def build(store: Path, runs: int, benchmarks: int, seed: int = 1) -> list[str]:
    """Write a store of ``runs`` x ``benchmarks`` points; return the series with a step."""
    rng = np.random.default_rng(seed)
    base = 10.0 ** rng.uniform(-6, -1, benchmarks)
    chosen = rng.choice(benchmarks, max(benchmarks // 10, 1), replace=False)
    step_at = np.full(benchmarks, runs)
    step_at[chosen] = rng.integers(runs // 5, runs * 4 // 5, len(chosen))
    sizes = [_SIZES[number % len(_SIZES)] for number in range(benchmarks)]
    place = StoreLocation.of(store)
    with staging_directory(place):
        files, waiting = [], []
        for run in range(runs):
            level = base * np.where(run >= step_at, 1.1, 1.0) * rng.normal(1, 0.005, benchmarks)
            noise = np.abs(rng.standard_normal((benchmarks, _ROUNDS)))
            waiting.append(_run(run, sizes, level[:, None] * (1 + 0.02 * noise)))
            if len(waiting) * benchmarks >= _FILE_POINTS or run == runs - 1:
                entries = [RunEntry.of(each, "") for each in waiting]
                files.append(write_file(points_table(waiting), place, entries))
                waiting = []
        commit(load_state(place), add=files, remove=[])
        merge_small_files(load_state(place))
    return [
        _label(_suite(number), _benchmark(number), json.loads(_params(sizes[number])))
        for number in map(int, chosen)
    ]


def _suite(number: int) -> str:
    return f"bench_{number // 20:03}.py"


def _benchmark(number: int) -> str:
    return f"bench_{number // len(_SIZES)}" if number % len(_SIZES) else f"bench_{number}"


def _params(size: int | None) -> str:
    return "{}" if size is None else json.dumps({"partitions": size})


def _label(suite: str, benchmark: str, params: dict[str, Any]) -> str:
    return f"{suite} {benchmark} {json.dumps(params)}"


def _run(run: int, sizes: list[int | None], values: Any) -> BenchmarkRun:
    count = len(sizes)
    statistics = np.full((count, len(STATISTIC_COLUMNS)), np.nan)
    for name, of in (("min", np.min), ("max", np.max), ("mean", np.mean), ("median", np.median)):
        statistics[:, STATISTIC_COLUMNS.index(name)] = of(values, axis=1)
    at = 1_600_000_000_000_000 + run * _HOUR_US
    return BenchmarkRun(
        run_id=md5(str(run).encode()).hexdigest(),
        source=f"/data/runs/{run:06}.json",
        machine="machine-1",
        machine_info='{"cpu": "one"}',
        time_us=at + 60_000_000,
        project="project",
        branch="main",
        commit=sha1(str(run).encode()).hexdigest(),
        commit_time_us=at,
        dirty=False,
        version="5.3.1",
        suite=[_suite(number) for number in range(count)],
        benchmark=[_benchmark(number) for number in range(count)],
        params=[_params(size) for size in sizes],
        group=[None] * count,
        rounds=[_ROUNDS] * count,
        iterations=[1] * count,
        statistics=statistics,
        instructions=[None] * count,
        values=values.tolist(),
        extra_info=["{}"] * count,
    )


@dataclass
class Usage:
    """CPU time and peak memory of a command's processes, by role."""

    cpu_s: dict[int, tuple[str, float]] = field(default_factory=dict)  # of each process
    peak_mib: dict[str, int] = field(default_factory=dict)  # of the largest process of a role

    def sample(self, root: int) -> None:
        """Add what the root process and its descendants have used until now."""
        children: dict[int, list[int]] = {}
        stats = {}
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                try:
                    line = Path(entry.path, "stat").read_text()
                    status = Path(entry.path, "status").read_text()
                except OSError:
                    continue  # it has ended
                fields = line.rpartition(")")[2].split()
                stats[int(entry.name)] = line.partition("(")[2].rpartition(")")[0], fields, status
                children.setdefault(int(fields[1]), []).append(int(entry.name))
        waiting = [root]
        while waiting:
            number = waiting.pop()
            waiting += children.get(number, ())
            if number not in stats:
                continue
            name, fields, status = stats[number]
            role = "driver" if number == root else "JVM" if name == "java" else "worker"
            self.cpu_s[number] = role, (int(fields[11]) + int(fields[12])) * _TICK_S
            for row in status.splitlines():
                if row.startswith("VmHWM:"):
                    mib = int(row.split()[1]) >> 10
                    self.peak_mib[role] = max(self.peak_mib.get(role, 0), mib)

    def cpu_of(self, role: str) -> float:
        return sum(seconds for each, seconds in self.cpu_s.values() if each == role)


def measure(command: list[str], output: Path) -> tuple[Usage, float]:
    """Run a command; return the use of its processes and its wall time in seconds."""
    usage, began = Usage(), time.perf_counter()
    with output.open("w") as file, subprocess.Popen(command, stdout=file) as process:
        while process.poll() is None:
            usage.sample(process.pid)
            time.sleep(_SAMPLE_S)
    if process.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return usage, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--benchmarks", type=int, default=1000)
    parser.add_argument("--master", default="local[2]", help="'none': in one process")
    parser.add_argument("--store", type=Path, help="kept, and used again if it exists")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kraft-") as name:
        store = given.store or Path(name, "store")
        truth = store.with_name(f"{store.name}.truth.json")
        if not truth.exists():
            began = time.process_time()
            truth.parent.mkdir(parents=True, exist_ok=True)
            truth.write_text(json.dumps(sorted(build(store, given.runs, given.benchmarks))))
            print(f"built with {time.process_time() - began:.0f} CPU s", flush=True)
        files = open_store(store).files.values()
        size = sum(file.bytes for file in files)
        found = Path(name, "found.json")
        command = [sys.executable, "-m", "kraft", "regress", "--store", str(store), "--json"]
        command += [] if given.master == "none" else ["--master", given.master]
        usage, wall_s = measure(command, found)
        steps = set(json.loads(truth.read_text()))
        changed = {
            _label(each["suite"], each["benchmark"], each["params"])
            for each in json.loads(found.read_text())["series"]
            if each["outcome"] == "changed"
        }
        if len(changed & steps) < len(steps) * 9 // 10:
            raise SystemExit(f"found {len(changed & steps)} of {len(steps)} series with a step")
        points = given.runs * given.benchmarks
        print(f"{given.runs:,} runs x {given.benchmarks:,} benchmarks = {points:,} points")
        print(
            f"{size / 1e6:.0f} MB in {len(files)} files; found {len(changed & steps)} of "
            f"{len(steps)} planted steps, and {len(changed - steps)} changes elsewhere"
        )
        print(f"{wall_s:.0f} s wall")
        for role, mib in usage.peak_mib.items():
            print(f"{role}: {usage.cpu_of(role):.1f} CPU s, {mib} MiB at most in one process")


if __name__ == "__main__":
    main()
