"""Analysis of histories: generated runs of 200 benchmarks, ten rounds each, in a store.

``regress_command``  ``kraft regress --store`` from start to end: Python, Spark on two cores, every
                     series and every scaling law, the printed findings
``regress_alone``    the same without Spark, in a running process: one core
``regress_otava``    the peer: Otava's own function on the same values in memory, one core; it finds
                     change points only (no intervals from rounds, scaling laws, corrections)
``compare_command``  ``kraft regress compare`` of two files of 200 benchmarks, without Spark

Requirements: 10,000 runs (2 million points, 20 million round values) in 90 s on 2 cores and 8 GiB,
and time proportional to the runs; two files in 2 s. Every planted step must be found.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.compute as pc
import pytest

from benchmarks.generate_runs import Step, Suite, generate
from kraft.errors import MissingJavaError
from kraft.java import find_java
from kraft.regression.analysis import analyse_store
from kraft.regression.ingest import ingest
from kraft.regression.settings import AnalysisSettings
from kraft.regression.store import read_table

_RESULTS = Path(__file__).parent / "results"
_BENCHMARKS = 200
_ROUNDS = 10


class Planted(NamedTuple):
    """A store with planted steps, and its number of runs."""

    store: Path
    steps: list[Step]
    runs: int


@pytest.fixture(scope="module")
def is_quick(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--quick"))


@pytest.fixture(scope="module", params=[1000, 10_000])
def planted(request: pytest.FixtureRequest, is_quick: bool) -> Iterator[Planted]:
    """Return a store; in a quick run with thirty runs, made once."""
    count: int = request.param
    if is_quick:
        if count > 1000:
            pytest.skip("a quick run measures nothing: thirty runs are enough")
        count = 30
    folder = _RESULTS / f"regress-{count}"
    steps = generate(folder / "runs", Suite(runs=count, benchmarks=_BENCHMARKS, rounds=_ROUNDS))
    ingest([folder / "runs"], folder / "store")
    shutil.rmtree(folder / "runs")
    yield Planted(folder / "store", steps, count)
    shutil.rmtree(folder)


def rounds_of(planted: Planted) -> int:
    """Return the number of rounds: one for 10,000 runs, else more.

    10,000 runs take as long as all other benchmarks together.
    """
    return 3 if planted.runs == 1000 else 1


def record_measured(measured: Callable[..., None], work: str, planted: Planted) -> None:
    points = planted.runs * _BENCHMARKS
    measured(work, unit="points", count=points, rounds=points * _ROUNDS, total=planted.runs)


def bench_regress_command(benchmark: Any, measured: Callable[..., None], planted: Planted) -> None:
    try:
        find_java()
    except MissingJavaError as error:
        pytest.skip(f"needs Java 17 or newer: {error}")
    command = [sys.executable, "-m", "kraft", "regress", "--store", str(planted.store)]
    command += ["--master", "local[2]", "--json"]

    def run() -> str:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    document = json.loads(benchmark.pedantic(run, rounds=rounds_of(planted)))
    assert document["summary"]["series"] == _BENCHMARKS
    assert document["summary"]["changed"] >= len(planted.steps) * 3 // 4
    record_measured(measured, "regress_command", planted)


def bench_regress_alone(benchmark: Any, measured: Callable[..., None], planted: Planted) -> None:
    found = benchmark.pedantic(
        lambda: analyse_store(planted.store, AnalysisSettings()), rounds=rounds_of(planted)
    )
    assert len(found.series) == _BENCHMARKS
    record_measured(measured, "regress_alone", planted)


@pytest.mark.peer
def bench_regress_otava(benchmark: Any, measured: Callable[..., None], planted: Planted) -> None:
    from otava.analysis import compute_change_points

    columns = ["suite", "benchmark", "params", "time", "median"]
    table = read_table(planted.store, columns=columns).sort_by("time")
    names = pc.binary_join_element_wise(*(table[name] for name in columns[:3]), "::")
    series = [
        table.filter(pc.equal(names, name))["median"].to_pylist()
        for name in pc.unique(names).to_pylist()
    ]
    assert [len(each) for each in series] == [planted.runs] * _BENCHMARKS
    settings = AnalysisSettings()
    found = benchmark.pedantic(
        lambda: [
            compute_change_points(each, settings.window, settings.max_p_value)[0] for each in series
        ],
        rounds=rounds_of(planted),
    )
    assert sum(map(len, found)) >= len(planted.steps) * 3 // 4
    record_measured(measured, "regress_otava", planted)


def bench_regress_compare(
    benchmark: Any, measured: Callable[..., None], tmp_path: Path, is_quick: bool
) -> None:
    generate(tmp_path, Suite(runs=2, benchmarks=_BENCHMARKS, rounds=_ROUNDS))
    files = sorted(map(str, tmp_path.glob("*.json")))
    command = [sys.executable, "-m", "kraft", "regress", "compare", *files, "--json"]

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, check=False, capture_output=True, text=True)

    ran = benchmark.pedantic(run, rounds=3 if is_quick else 10, warmup_rounds=1)
    assert ran.returncode in (0, 1), ran.stderr
    assert json.loads(ran.stdout)["summary"]["compared"] == _BENCHMARKS
    measured("compare_command", unit="benchmarks", count=_BENCHMARKS)
