"""Whole scenarios: a real cluster grown to a size, damaged, repaired, written and read back.

``scenario_million``   ``kraft lab million`` from its seed to the comparison of the loaded state
                       with the original: every request through the controller, every write fsynced
``scenario_*``         its stages, each once per round: growth, loss and return of a rack,
                       elections, deletion, the snapshot, loading from the snapshot and from the log

One thread, files in pytest's temporary directory. Physical floor: the written bytes, written and
synced once (`bench_log_sync`). Peer: none runs the whole scenario; `bench_controller` and
`bench_checkpoint` compare its parts with Kafka.

Every run writes an event trace, ``benchmarks/results/traces/million-<partitions>.trace``: each
operation, each event of the controller and each stage, for percentiles over all of them (``kraft
lab trace``, or ``spark.read.format("kraft-trace")``).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.conftest import Sizes
from kraft.lab.million import run
from kraft.lab.report import Report
from kraft.lab.scenario import ScenarioSettings
from kraft.lab.trace import TraceHeader, TraceWriter

ROOT = Path(__file__).resolve().parents[1]
SEED = ROOT / "tests" / "data" / "kafka-4.3" / "controller-101"
TRACES = ROOT / "benchmarks" / "results" / "traces"


@contextmanager
def no_bar(description: str, total: float | None) -> Iterator[Callable[[float], None]]:
    yield lambda done: None


def fresh_trace(partitions: int) -> Path:
    TRACES.mkdir(parents=True, exist_ok=True)
    path = TRACES / f"million-{partitions}.trace"
    path.unlink(missing_ok=True)
    return path


def bench_scenario_million(
    benchmark: Any,
    measured: Callable[..., None],
    figure: Callable[..., None],
    sizes: Sizes,
    partitions: int,
) -> None:
    reports: list[Report] = []
    # One broker per 3,000 partitions, as in the scenario of a million.
    brokers = max(6, min(300, partitions * 3 // 10_000))
    settings = ScenarioSettings(source=SEED, partitions=partitions, brokers=brokers)

    def work() -> None:
        header = TraceHeader.of("million", settings.as_dict())
        with TraceWriter(fresh_trace(partitions), header) as trace:
            reports.append(run(settings, no_bar, None, trace))

    benchmark.pedantic(work, rounds=max(2, sizes.rounds // 7), warmup_rounds=1)
    assert all(report.is_equal for report in reports)
    stages: dict[str, list[float]] = defaultdict(list)
    counts: dict[str, tuple[str, int, int]] = {}
    for report in reports[1:]:
        for stage in report.stages:
            stages[stage.name].append(stage.seconds)
            counts[stage.name] = (stage.unit, max(1, stage.count), stage.bytes_written)
    measured(
        "scenario_million",
        unit="partitions",
        count=partitions,
        bytes=sum(written for _, _, written in counts.values()),
        total=partitions,
    )
    for name, seconds in stages.items():
        unit, count, written = counts[name]
        work_name = "scenario_" + re.sub(r"\W+", "_", name)
        figure(
            work_name,
            unit=unit,
            count=count,
            bytes=written,
            total=partitions,
            values_s=seconds,
        )
