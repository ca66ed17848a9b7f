"""What every suite shares: the sizes of a run, the input files, the Java peers, and the record.

A benchmark is an ordinary pytest-benchmark one that also says what it measured::

    def bench_decode(benchmark, measured, ...):
        result = benchmark.pedantic(run, rounds=20, warmup_rounds=3)
        measured("decode", unit="records", count=1_000_000, bytes=size)

The JSON of a run holds kraft's and the peers' figures as ordinary entries of pytest-benchmark;
`report.py` joins them by those names, and ``kraft bench ingest`` reads them as any project's.
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
    """How much work a run does: `FULL` gives the figures, `QUICK` only proves that all runs."""

    partitions: int
    appends: int  # of 16 KiB
    quorum_appends: int
    syncs: int
    commits: int  # of a quorum at light load
    quorum_warm_up: int  # appends before anything counts
    megabytes: int  # through a quorum at full load
    seconds: float  # of works that run for a while
    rounds: int  # counted, of kraft and of its peers alike
    warmup: int  # before them, of both as well: as many as a JVM needs to compile hot loops
    slow_rounds: int  # the same two for works that take a peer seconds
    slow_warmup: int

    def rounds_at(self, partitions: int) -> int:
        """The usual rounds; a quarter of them where one takes ten times as long."""
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


#: The sizes of cluster that a benchmark runs at where it names no others.
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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A benchmark that asks for `partitions` runs once for each size of cluster.

    ``@pytest.mark.partitions(...)`` names other sizes than the usual ones. A quick run stays below
    its own size; a machine without the memory that the largest clusters take skips them by name.
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
    """The Java peers; their lines go into the session's JSON."""
    runner = Peers()
    request.config.stash[LINES] = runner.lines
    return runner


@pytest.fixture(scope="session", autouse=True)
def a_process_at_work() -> None:
    """The allocator as in a process that has worked for a while, whichever suite comes first.

    glibc maps large blocks anew, page faults and all, until the first of them was given back.
    """
    block = bytearray(24 << 20)
    del block


@pytest.fixture(autouse=True)
def own_garbage_only() -> Iterator[None]:
    """What earlier benchmarks left behind is not looked through while this one is timed."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def measured(benchmark: Any) -> Iterator[Callable[..., None]]:
    """Names what the benchmark measured: work, unit, count, `bytes` where it moves any, and
    `total`, the partitions of the whole cluster.

    Adds `cpu_s`, the CPU seconds of an average round, unless the benchmark gives them itself
    because processes that this one did not reap did the work.
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
    """Notes what no fixture timed: single acts, with their ``values_s``, or bytes of memory."""
    figures = request.config.stash.setdefault(FIGURES, [])
    file = request.node.nodeid.partition("::")[0]

    def note(work: str, *, unit: str, count: int, **more: Any) -> None:
        line = {"work": work, "unit": unit, "count": count, **more}
        figures.append((file, line))

    return note


def pytest_benchmark_update_machine_info(
    config: pytest.Config, machine_info: dict[str, Any]
) -> None:
    """What else figures depend on."""
    machine_info.update(described())


def pytest_benchmark_update_json(
    config: pytest.Config, benchmarks: list[Any], output_json: dict[str, Any]
) -> None:
    """Puts the peers, and what was timed act by act, among the benchmarks, grouped by suite.

    What is no time goes into ``figures``; ``quick`` and ``partitions`` say how large the run was.
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
