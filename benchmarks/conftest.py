"""What every suite shares: the sizes of a run, the input files, the Java peers, and the record.

A benchmark is an ordinary pytest-benchmark one that also says what it measured::

    def bench_decode(benchmark, measured, ...):
        result = benchmark.pedantic(run, rounds=20, warmup_rounds=3)
        measured("decode", unit="records", count=1_000_000, bytes=size)

`report.py` joins those names with the lines of the peers, which go into the same JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from benchmarks.java_peers import Line, Peers

LINES = pytest.StashKey[list[Line]]()
FIGURES = pytest.StashKey[list[Line]]()


@dataclass(frozen=True)
class Sizes:
    """How much work a run does: `FULL` gives the figures, `QUICK` only proves that all runs."""

    partitions: int
    fence_totals: tuple[int, ...]
    change_totals: tuple[int, ...]
    appends: int  # of 16 KiB
    quorum_appends: int
    syncs: int
    commits: int  # of a quorum at light load
    quorum_warm_up: int  # appends before anything counts
    megabytes: int  # through a quorum at full load
    seconds: float  # of works that run for a while
    rounds: int
    warmup: int
    java_rounds: int
    java_warmup: int


FULL = Sizes(
    partitions=1_000_000,
    fence_totals=(100_000, 1_000_000, 2_000_000),
    change_totals=(10_000, 10_000_000),
    appends=4096,
    quorum_appends=10_000,
    syncs=300,
    commits=300,
    quorum_warm_up=4000,
    megabytes=600,
    seconds=2.0,
    rounds=20,
    warmup=3,
    java_rounds=30,
    java_warmup=15,
)
QUICK = Sizes(
    partitions=50_000,
    fence_totals=(50_000, 100_000),
    change_totals=(10_000, 100_000),
    appends=512,
    quorum_appends=1000,
    syncs=20,
    commits=20,
    quorum_warm_up=100,
    megabytes=40,
    seconds=0.3,
    rounds=3,
    warmup=1,
    java_rounds=3,
    java_warmup=2,
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick",
        action="store_true",
        help="benchmarks at a twentieth of their size: every one runs, no figure means anything",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One benchmark for each cluster size where it asks for `fence_total` or `change_total`."""
    sizes = QUICK if metafunc.config.getoption("--quick") else FULL
    for name in ("fence_total", "change_total"):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, getattr(sizes, f"{name}s"))


@pytest.fixture(scope="session")
def sizes(request: pytest.FixtureRequest) -> Sizes:
    return QUICK if request.config.getoption("--quick") else FULL


@pytest.fixture(scope="session")
def peers(request: pytest.FixtureRequest) -> Peers:
    """The Java peers; their lines go into the session's JSON."""
    runner = Peers()
    request.config.stash[LINES] = runner.lines
    return runner


@pytest.fixture
def measured(benchmark: Any) -> Callable[..., None]:
    """Names what the benchmark measured: work, unit, count, and `bytes` where it moves any."""

    def note(work: str, *, unit: str, count: int, **more: Any) -> None:
        benchmark.extra_info.update(work=work, unit=unit, count=count, **more)

    return note


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Notes a figure that is no time, such as bytes held for `count` partitions."""
    figures = request.config.stash.setdefault(FIGURES, [])

    def note(work: str, *, unit: str, count: int, **more: Any) -> None:
        figures.append({"work": work, "unit": unit, "count": count, **more})

    return note


def pytest_benchmark_update_json(
    config: pytest.Config, benchmarks: list[Any], output_json: dict[str, Any]
) -> None:
    """Puts the peers' lines and the size of the run beside the benchmarks."""
    output_json["peers"] = config.stash.get(LINES, [])
    output_json["figures"] = config.stash.get(FIGURES, [])
    output_json["quick"] = bool(config.getoption("--quick"))
