"""Fixtures of all suites: sizes of a run, input files, Java peers, and recorded measurements.

A benchmark is an ordinary pytest-benchmark one that also records what it measured::

    def bench_decode(benchmark, measured, ...):
        result = benchmark.pedantic(run, rounds=20, warmup_rounds=3)
        measured("decode", unit="records", count=1_000_000, bytes=size)

A run's JSON holds kraft's and the peers' figures as ordinary entries of pytest-benchmark.
`report.py` joins them by those names, and ``kraft bench ingest`` reads them like any project's.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from benchmarks.entries import Line, entry_of, suite_of
from benchmarks.java_peers import Peers
from benchmarks.machine import available_memory, begin_peak_memory, described, peak_memory
from benchmarks.timings import begin_cpu_samples, cpu_seconds_a_round

LINES = pytest.StashKey[list[Line]]()
FIGURES = pytest.StashKey[list[tuple[str, Line]]]()
PEERS_FILE = "benchmarks/bench_peers.py"


@dataclass(frozen=True)
class Sizes:
    """Sizes of a run: `FULL` produces the figures, `QUICK` only checks that all benchmarks run."""

    partitions: int
    appends: int  # of 16 KiB
    quorum_appends: int
    syncs: int
    commits: int  # of a quorum at light load
    quorum_warm_up: int  # appends before anything counts
    megabytes: int  # through a quorum at full load
    seconds: float  # of works that run for a while
    rounds: int  # counted, of kraft and of its peers alike
    warmup: int  # uncounted rounds of both sides: as many as a JVM needs to compile hot loops
    slow_rounds: int  # the same two for works that take the peer seconds
    slow_warmup: int

    def rounds_at(self, partitions: int) -> int:
        """Return the usual rounds, or a quarter of them if a round takes ten times as long."""
        return max(3, self.rounds // (4 if partitions > self.partitions else 1))


FULL = Sizes(
    partitions=1_000_000,
    appends=4096,
    quorum_appends=10_000,
    syncs=300,
    commits=300,
    quorum_warm_up=4000,
    megabytes=600,
    seconds=2.0,
    rounds=20,
    warmup=10,
    slow_rounds=10,
    slow_warmup=3,
)
QUICK = Sizes(
    partitions=50_000,
    appends=512,
    quorum_appends=1000,
    syncs=20,
    commits=20,
    quorum_warm_up=100,
    megabytes=40,
    seconds=0.3,
    rounds=3,
    warmup=2,
    slow_rounds=3,
    slow_warmup=1,
)


#: Default sizes of cluster of a benchmark.
PARTITIONS = (10_000, 100_000, 1_000_000)
LARGE_MEMORY_GIB = 10


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.option.benchmark_timer = "benchmarks.timings.wall_clock"
    config.addinivalue_line("markers", "partitions(*counts): the sizes of cluster to run at")
    config.addinivalue_line("markers", "peer: runs a peer beside kraft (`make bench-peers`)")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick",
        action="store_true",
        help="benchmarks at a twentieth of their size: every one runs, no figure means anything",
    )
    parser.addoption(
        "--huge",
        action="store_true",
        help="also the quorum of ten million partitions: several minutes, 12 GiB of disk",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a benchmark that requests `partitions` once for each size of cluster.

    ``@pytest.mark.partitions(...)`` selects other sizes than the usual ones. A quick run is limited
    to its own size; a machine without enough memory for the largest clusters skips them by name.
    """
    if "partitions" not in metafunc.fixturenames:
        return
    marker = metafunc.definition.get_closest_marker("partitions")
    counts = marker.args if marker else PARTITIONS
    if metafunc.config.getoption("--quick"):
        counts = sorted({min(count, QUICK.partitions) for count in counts})
    lacking = pytest.mark.skip(reason=f"needs {LARGE_MEMORY_GIB} GiB of free memory")
    is_small = available_memory() < LARGE_MEMORY_GIB << 30
    metafunc.parametrize(
        "partitions",
        [
            pytest.param(count, marks=[lacking] if is_small and count > FULL.partitions * 2 else [])
            for count in counts
        ],
        scope="module",
    )


@pytest.fixture(scope="session")
def sizes(request: pytest.FixtureRequest) -> Sizes:
    return QUICK if request.config.getoption("--quick") else FULL


@pytest.fixture(scope="session")
def peers(request: pytest.FixtureRequest) -> Peers:
    """Yield the Java peers; add their lines to the session's JSON."""
    runner = Peers()
    request.config.stash[LINES] = runner.lines
    return runner


@pytest.fixture(scope="session", autouse=True)
def allocator_of_a_busy_process() -> None:
    """Put the allocator into the state of a process that has run for a while, for every suite.

    glibc maps large blocks with page faults until the first such block has been freed.
    """
    block = bytearray(24 << 20)
    del block


@pytest.fixture(autouse=True)
def own_garbage_only() -> Iterator[None]:
    """Exclude objects of earlier benchmarks from garbage collection during this one."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def measured(benchmark: Any) -> Iterator[Callable[..., None]]:
    """Record what the benchmark measured: work, unit, count, `bytes` if it moves any, and `total`,
    the partitions of the whole cluster.

    Adds `cpu_s`, the CPU seconds of an average round, unless the benchmark passes them itself
    because other processes did the work and are not yet reaped.
    """

    def note(work: str, *, unit: str, count: int, **more: Any) -> None:
        rounds, iterations = benchmark.stats.stats.rounds, benchmark.stats.iterations
        cpu_s = cpu_seconds_a_round(rounds) / iterations
        benchmark.extra_info.update({"cpu_s": cpu_s, **more}, work=work, unit=unit, count=count)

    begin_peak_memory()
    begin_cpu_samples()
    yield note
    benchmark.extra_info["peak_memory_bytes"] = peak_memory()


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Record figures without a fixture's timing: single actions with ``values_s``, or bytes of
    memory.
    """
    figures = request.config.stash.setdefault(FIGURES, [])
    file = request.node.nodeid.partition("::")[0]

    def note(work: str, *, unit: str, count: int, **more: Any) -> None:
        line = {"work": work, "unit": unit, "count": count, **more}
        figures.append((file, line))

    return note


def pytest_benchmark_update_machine_info(
    config: pytest.Config, machine_info: dict[str, Any]
) -> None:
    """Add the other properties of the machine on which figures depend."""
    machine_info.update(described())


def pytest_benchmark_update_json(
    config: pytest.Config, benchmarks: list[Any], output_json: dict[str, Any]
) -> None:
    """Add the peers and the individually timed actions to the benchmarks, grouped by suite.

    Figures that are not times become ``figures``; ``quick`` and ``partitions`` record the run's
    size.
    """
    is_quick = bool(config.getoption("--quick"))
    lines = [(PEERS_FILE, line, "kafka_") for line in config.stash.get(LINES, [])]
    lines += [(file, line, "") for file, line in config.stash.get(FIGURES, [])]
    figures = []
    for file, line, prefix in lines:
        entry = entry_of(line, suite_file=file, prefix=prefix)
        if entry is None:
            figures.append(line | {"work": prefix + line["work"]})
        else:
            output_json["benchmarks"].append(entry)
    for entry in output_json["benchmarks"]:
        entry["group"] = suite_of(entry["fullname"])
    output_json["figures"] = figures
    output_json["quick"] = is_quick
    output_json["partitions"] = (QUICK if is_quick else FULL).partitions
