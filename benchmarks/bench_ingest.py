"""Ingest of benchmark results: generated runs of 200 benchmarks, ten rounds each, into a store.

``ingest_parse``   files in memory -> runs, one core
``ingest_alone``   files -> a store, without Spark, one core
``ingest_spark``   files -> a store, by Spark on all cores, its session already open
``ingest_bytes``   the floor: read the files completely
``ingest_json``    the peer: json.loads of them, the first step of every other reader

Requirement: 10,000 runs (2 million points, 20 million round values, 3.7 GB) in 90 s on 2 cores, and
time proportional to the runs. Files are made below ``benchmarks/results`` and removed afterwards.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.generate_runs import Suite, generate
from benchmarks.machine import cpu_seconds_of
from kraft.errors import MissingJavaError
from kraft.java import find_java
from kraft.regression.ingest import ingest
from kraft.regression.results import read_run
from kraft.regression.store import open_store
from kraft.regression.tasks import IN_PROCESS
from kraft.spark.session import close_session, open_session
from kraft.spark.tasks import SparkTasks

_RESULTS = Path(__file__).parent / "results"
_BENCHMARKS = 200
_PARSED_RUNS = 100


@pytest.fixture(scope="module")
def is_quick(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--quick"))


@pytest.fixture(scope="module", params=[1000, 10_000])
def runs(request: pytest.FixtureRequest, is_quick: bool) -> Iterator[Path]:
    """Return a folder of runs; in a quick run thirty runs, made once."""
    count: int = request.param
    if is_quick:
        if count > 1000:
            pytest.skip("a quick run measures nothing: thirty runs are enough")
        count = 30
    folder = _RESULTS / f"runs-{count}"
    steps = generate(folder, Suite(runs=count, benchmarks=_BENCHMARKS))
    assert steps
    yield folder
    shutil.rmtree(folder)
    folder.with_name(f"{folder.name}.truth.json").unlink()


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    try:
        find_java()
    except MissingJavaError as error:
        pytest.skip(f"needs Java 17 or newer: {error}")
    session = open_session(app_name="bench_ingest", memory="1g")
    yield session
    close_session(session)


def files_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


def total_of(folder: Path) -> int:
    return len(files_of(folder))


def size_of(files: list[Path]) -> int:
    return sum(path.stat().st_size for path in files)


@pytest.mark.parametrize("work", ["ingest_parse", "ingest_json", "ingest_bytes"])
def bench_ingest_files(
    benchmark: Any, measured: Callable[..., None], runs: Path, work: str
) -> None:
    files = files_of(runs)[:_PARSED_RUNS]
    contents = [path.read_bytes() for path in files]
    act: dict[str, Callable[[], Any]] = {
        "ingest_parse": lambda: [read_run(data, "run.json") for data in contents],
        "ingest_json": lambda: [json.loads(data) for data in contents],
        "ingest_bytes": lambda: [path.read_bytes() for path in files],
    }
    done = benchmark.pedantic(act[work], rounds=3, warmup_rounds=1)
    assert len(done) == len(files)
    measured(work, unit="runs", count=len(files), bytes=size_of(files), total=total_of(runs))


@pytest.mark.parametrize("work", ["ingest_alone", "ingest_spark"])
def bench_ingest_store(
    benchmark: Any,
    measured: Callable[..., None],
    request: pytest.FixtureRequest,
    runs: Path,
    tmp_path: Path,
    work: str,
) -> None:
    files = files_of(runs)
    spark = request.getfixturevalue("spark") if work == "ingest_spark" else None
    stores = iter(range(10))
    # Ten thousand runs take as long as all other benchmarks together, and need no warm-up round.
    is_large = len(files) > 1000

    def run() -> Any:
        store = tmp_path / f"store-{next(stores)}"
        report = ingest(files, store, tasks=IN_PROCESS if spark is None else SparkTasks(spark))
        assert open_store(store).points == len(files) * _BENCHMARKS
        return report

    rounds, warmup = (1, 0) if is_large else (3, 1)
    before = cpu_seconds_of(os.getpid())
    report = benchmark.pedantic(run, rounds=rounds, warmup_rounds=warmup)
    # Spark's processes continue to run, so only /proc has their CPU time.
    cpu_s = (cpu_seconds_of(os.getpid()) - before) / (rounds + warmup)
    assert (report.runs_added, report.problems) == (len(files), [])
    count = len(files)
    measured(work, unit="runs", count=count, bytes=report.bytes, total=count, cpu_s=cpu_s)
