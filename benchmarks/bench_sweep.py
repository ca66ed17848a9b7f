"""Sweep of outages: loss of every pair of a cluster's brokers, and one outage alone.

``sweep_command``  ``kraft sweep outages`` over every pair, from start to end: load Python and the
                   kernels, open the snapshot, make the arrays, evaluate on all cores
``sweep_pairs``    every pair, in a process that has the metadata open: make the arrays, all cores
``sweep_outage``   loss of two brokers, every row that they hold evaluated: one core
``sweep_rack``     loss of a third of all brokers: every partition is evaluated

Brokers hold 10,000 partitions each, so that a cluster of 1M has 300 of them and 44,850 pairs. The
kernels are compiled before timing starts, as they are after the first use on a machine. Physical
floor: the rows that the brokers hold read once, as many as ``sweep_outage`` evaluates; pairs need
less, because each reads only the rows that hold both. There is no peer.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks import generate
from benchmarks.conftest import Sizes
from kraft import Metadata, open_metadata
from kraft._core.sweep.kernels import evaluate
from kraft.lab.outages import plan_outages, sweep_arrays, sweep_outages


@pytest.fixture(scope="module")
def metadata(partitions: int) -> Metadata:
    path, _ = generate.make("uniform", partitions)
    opened = open_metadata(path, use_column_cache=False)
    assert len(opened.partitions) == partitions
    return opened


def pairs(metadata: Metadata) -> int:
    brokers = len(metadata.brokers)
    return brokers * (brokers - 1) // 2


@pytest.mark.partitions(1_000_000)
def bench_sweep_command(
    benchmark: Any, measured: Callable[..., None], metadata: Metadata, partitions: int
) -> None:
    path, _ = generate.make("uniform", partitions)
    command = [sys.executable, "-m", "kraft", "sweep", "outages", "--from", str(path)]
    command += ["--no-brokers", "--no-racks", "--json", "--top", "1"]
    sweep_outages(metadata)  # compiles the kernels

    def run() -> str:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    report = json.loads(benchmark.pedantic(run, rounds=3, warmup_rounds=1))
    assert report["outages"] == {"pair": pairs(metadata)}
    assert report["baseline"]["partitions"] == partitions
    measured("sweep_command", unit="outages", count=pairs(metadata), total=partitions)


@pytest.mark.partitions(100_000, 1_000_000)
def bench_sweep_pairs(
    benchmark: Any, measured: Callable[..., None], sizes: Sizes, metadata: Metadata, partitions: int
) -> None:
    plan = plan_outages(metadata, brokers=False, racks=False)
    report = benchmark.pedantic(
        lambda: sweep_outages(metadata, plan),
        rounds=max(3, sizes.rounds // 4),
        warmup_rounds=1,
    )
    assert len(report) == pairs(metadata)
    # Three in-sync replicas each: no pair contains them all.
    assert report.greatest("unavailable") == 0
    measured("sweep_pairs", unit="outages", count=len(report), total=partitions)


@pytest.mark.partitions(1_000_000)
@pytest.mark.parametrize("lost", ["sweep_outage", "sweep_rack"])
def bench_sweep_one(
    benchmark: Any,
    measured: Callable[..., None],
    sizes: Sizes,
    metadata: Metadata,
    partitions: int,
    lost: str,
) -> None:
    brokers = sorted(metadata.brokers)
    # The second replica is a third of the brokers further, so that the two share partitions.
    third = len(brokers) // 3
    group = [brokers[0], brokers[third]] if lost == "sweep_outage" else brokers[:third]
    plan = plan_outages(metadata, brokers=False, racks=False, pairs=False, groups=[group])
    arrays = sweep_arrays(metadata, plan)
    figures = benchmark.pedantic(
        lambda: evaluate(arrays, 0, 1), rounds=sizes.rounds, warmup_rounds=sizes.warmup
    )
    expected = sum(int(arrays.leaders[broker]) for broker in range(len(brokers)) if broker in group)
    moved = int(figures[0, 4])
    assert moved == expected
    measured(lost, unit="outages", count=1, total=partitions)
