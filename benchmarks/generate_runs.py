"""Runs of a benchmark suite as pytest-benchmark writes them, with known steps.

Input of the speed benchmarks of ``kraft bench ingest`` and ``kraft regress``: real JSON (version
5's layout, indented by four, with machine and commit) of an invented project with up to ten
thousand runs. A tenth of the series has one step, listed in ``<directory>.truth.json``, outside the
directory so that it is not read as a run.

    python -m benchmarks.generate_runs --runs 1000 benchmarks/results/runs-1000
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha1
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
_SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
#: The statistics in the order in which pytest-benchmark writes them, without the counts.
_STATISTICS = ("min", "max", "mean", "stddev", "median", "iqr", "q1", "q3", "ops", "total")

_MACHINE: dict[str, Any] = {
    "node": "bench-1",
    "processor": "",
    "machine": "x86_64",
    "python_compiler": "GCC 12.2.0",
    "python_implementation": "CPython",
    "python_implementation_version": "3.11.7",
    "python_version": "3.11.7",
    "python_build": ["main", "Dec  8 2023 18:56:58"],
    "release": "6.1.0-18-amd64",
    "system": "Linux",
    "cpu": {
        "python_version": "3.11.7.final.0 (64 bit)",
        "cpuinfo_version": [9, 0, 0],
        "cpuinfo_version_string": "9.0.0",
        "arch": "X86_64",
        "bits": 64,
        "count": 8,
        "arch_string_raw": "x86_64",
        "vendor_id_raw": "GenuineIntel",
        "brand_raw": "Intel(R) Xeon(R) CPU E-2288G @ 3.70GHz",
        "hz_advertised_friendly": "3.7000 GHz",
        "hz_actual_friendly": "4.6001 GHz",
        "hz_advertised": [3700000000, 0],
        "hz_actual": [4600100000, 0],
        "stepping": 13,
        "model": 158,
        "family": 6,
        "flags": [f"flag{number}" for number in range(140)],
        "l3_cache_size": 16777216,
        "l2_cache_size": 2097152,
    },
}


@dataclass(frozen=True)
class Suite:
    """Parameters of the generated runs; equal parameters produce equal files."""

    runs: int
    benchmarks: int = 200
    rounds: int = 10
    round_noise: float = 0.02  # of a round, relative
    run_noise: float = 0.005  # of a whole run of one benchmark
    seed: int = 0


@dataclass(frozen=True)
class Step:
    """A planted change: from this run on, everything takes `factor` times as long."""

    fullname: str
    params: str  # canonical JSON
    run: int
    factor: float
    commit: str  # of that run


def generate(directory: Path, suite: Suite) -> list[Step]:
    """Write one file per run into a directory; return the planted steps."""
    directory.mkdir(parents=True, exist_ok=True)
    plan = _Plan(suite)
    workers = min(os.cpu_count() or 1, max(suite.runs // 100, 1))
    parts = [range(first, suite.runs, workers) for first in range(workers)]
    if workers == 1:
        plan.write(directory, parts[0])
    else:
        with ProcessPoolExecutor(workers) as pool:
            list(pool.map(plan.write, [directory] * workers, parts))
    truth = directory.with_name(f"{directory.name}.truth.json")
    truth.write_text(json.dumps([asdict(step) for step in plan.steps], indent=2))
    return plan.steps


class _Plan:
    """Names, levels and templates, created once."""

    def __init__(self, suite: Suite) -> None:
        self.suite = suite
        rng = np.random.default_rng(suite.seed)
        self.base = 10.0 ** rng.uniform(-6, -1, suite.benchmarks)
        self.names = [_name(number) for number in range(suite.benchmarks)]
        self.step_at = np.full(suite.benchmarks, suite.runs, np.int64)
        self.factor = np.ones(suite.benchmarks)
        self.steps = []
        margin = min(20, suite.runs // 4)
        for number in sorted(rng.choice(suite.benchmarks, suite.benchmarks // 10, replace=False)):
            run = int(rng.integers(margin, max(suite.runs - margin, margin + 1)))
            factor = float(rng.choice([1.05, 1.1, 1.2, 1.5, 0.9, 0.7]))
            self.step_at[number], self.factor[number] = run, factor
            fullname, _, params = self.names[number]
            self.steps.append(
                Step(fullname, json.dumps(params or {}), run, factor, _commit(suite.seed, run))
            )
        self._templates = [self._template(*name) for name in self.names]

    def write(self, directory: Path, runs: Sequence[int]) -> None:
        for run in runs:
            commit = _commit(self.suite.seed, run)
            (directory / f"{run + 1:05}_{commit[:12]}.json").write_text(self._text(run, commit))

    def _text(self, run: int, commit: str) -> str:
        suite = self.suite
        rng = np.random.default_rng([suite.seed, run])
        level = self.base * np.where(run >= self.step_at, self.factor, 1.0)
        level = level * (1 + suite.run_noise * rng.standard_normal(suite.benchmarks))
        noise = np.abs(rng.standard_normal((suite.benchmarks, suite.rounds)))
        values = level[:, None] * (1 + suite.round_noise * noise)
        rows = np.column_stack([*_statistics(values), values]).tolist()
        ended = _BEGIN + timedelta(hours=run)
        committed = ended - timedelta(minutes=20)
        document = {
            "machine_info": _MACHINE,
            "commit_info": {
                "id": commit,
                "time": committed.isoformat(),
                "author_time": committed.isoformat(),
                "dirty": False,
                "project": "generated",
                "branch": "main",
            },
            "benchmarks": [],
            "datetime": (ended + timedelta(microseconds=run + 1)).isoformat(),
            "version": "5.3.1",
        }
        # All but the benchmarks is small; templates produce those.
        around = json.dumps(document, indent=4)
        entries = ",\n".join(
            template % tuple(map(repr, row))
            for template, row in zip(self._templates, rows, strict=True)
        )
        return around.replace('"benchmarks": []', f'"benchmarks": [\n{entries}\n    ]', 1)

    def _template(self, fullname: str, param: str | None, params: dict[str, int] | None) -> str:
        """Return one benchmark as text, with a ``%s`` for each statistic and each round's value."""
        rounds = self.suite.rounds
        counts: dict[str, Any] = {"rounds": rounds, "iterations": 1}
        stats = {
            **dict.fromkeys(_STATISTICS[:4], "@"),
            "rounds": rounds,
            **dict.fromkeys(_STATISTICS[4:8], "@"),
            "iqr_outliers": 0,
            "stddev_outliers": 3,
            "outliers": "3;0",
            "ld15iqr": 1e-06,
            "hd15iqr": 2e-06,
            **dict.fromkeys(_STATISTICS[8:], "@"),
            "data": ["@"] * rounds,
            "iterations": counts["iterations"],
        }
        document = {
            "group": None,
            "name": fullname.rpartition("::")[2],
            "fullname": fullname,
            "params": params,
            "param": param,
            "extra_info": {"unit": "partitions", "count": (params or {}).get("partitions", 1)},
            "options": {
                "disable_gc": False,
                "timer": "perf_counter",
                "min_rounds": rounds,
                "max_time": 1.0,
                "min_time": 5e-06,
                "warmup": False,
            },
            "stats": stats,
        }
        text = json.dumps(document, indent=4).replace("%", "%%").replace('"@"', "%s")
        return "\n".join(" " * 8 + line for line in text.splitlines())


def _statistics(values: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Return pytest-benchmark's statistics of each row's rounds, in the order of `_STATISTICS`."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75], axis=1)
    mean = values.mean(axis=1)
    deviation = values.std(axis=1, ddof=1) if values.shape[1] > 1 else np.zeros(len(values))
    return [
        values.min(axis=1),
        values.max(axis=1),
        mean,
        deviation,
        middle,
        high - low,
        low,
        high,
        1 / mean,
        values.sum(axis=1),
    ]


def _name(number: int) -> tuple[str, str | None, dict[str, int] | None]:
    """Return full name, param and params: every fifth benchmark has none, the others one of four
    sizes.
    """
    file = f"benchmarks/bench_{number // 20:02}.py"
    if number % 5 == 0:
        return f"{file}::bench_plain_{number}", None, None
    size = _SIZES[number % 5 - 1]
    return f"{file}::BenchSized::bench_{number // 5}[{size}]", str(size), {"partitions": size}


def _commit(seed: int, run: int) -> str:
    return sha1(f"{seed}:{run}".encode()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--benchmarks", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--round-noise", type=float, default=0.02)
    parser.add_argument("--run-noise", type=float, default=0.005)
    parser.add_argument("--seed", type=int, default=0)
    given = vars(parser.parse_args())
    directory = given.pop("directory")
    steps = generate(directory, Suite(**given))
    size = sum(entry.stat().st_size for entry in os.scandir(directory))
    print(f"{given['runs']} runs, {len(steps)} steps, {size / 1e6:.0f} MB in {directory}")


if __name__ == "__main__":
    main()
