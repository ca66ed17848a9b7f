"""Figures of peers, and of actions timed one by one, become entries of pytest-benchmark's form."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.bars import judged
from benchmarks.conditions import Row, at_least, at_most_ms, worst_at_most_ms
from benchmarks.entries import entry_of, suite_of
from benchmarks.measurements import Run
from benchmarks.timings import summary
from kraft.regression.results import read_run

LINE = {"work": "decode", "unit": "records", "count": 100, "partitions": 50_000, "java": "17"}


def run_with(*entries: dict[str, Any], partitions: int = 50_000) -> dict[str, Any]:
    return {
        "machine_info": {"node": "a", "cpu": {"brand_raw": "A Processor", "count": 2}},
        "commit_info": {"id": "1" * 40, "dirty": False},
        "benchmarks": list(entries),
        "datetime": "2026-01-01T00:00:00+00:00",
        "version": "5.3.1",
        "partitions": partitions,
    }


def test_the_line_of_a_peer_becomes_a_point_with_its_rounds_and_size() -> None:
    entry = entry_of(
        LINE | {"values_s": [0.2, 0.1, 0.3]},
        suite_file="benchmarks/bench_peers.py",
        prefix="kafka_",
    )
    assert entry is not None
    (point,) = read_run(json.dumps(run_with(entry)).encode(), "run.json").batch.to_pylist()
    assert (point["suite"], point["benchmark"]) == (
        "benchmarks/bench_peers.py",
        "bench_kafka_decode",
    )
    assert json.loads(point["params"]) == {"partitions": 50_000}
    assert (point["median"], point["values"]) == (0.2, [0.2, 0.1, 0.3])


def test_a_line_without_times_gives_no_entry() -> None:
    assert entry_of(LINE | {"bytes": 1000}, suite_file="benchmarks/bench_table.py") is None


def test_a_suite_is_named_after_its_file() -> None:
    """A suite is named after the layer in its file name."""
    assert suite_of("benchmarks/bench_log_sync.py::bench_append_sync[small]") == "log"
    assert suite_of("benchmarks/bench_codec.py::bench_decode[10000]") == "codec"


def test_a_row_of_the_speed_table_has_the_largest_cluster_of_its_run() -> None:
    def timed(work: str, total: int, seconds: list[float], prefix: str = "") -> dict[str, Any]:
        line = {"work": work, "unit": "records", "count": 100, "total": total, **summary(seconds)}
        entry = entry_of(line, suite_file="benchmarks/bench_codec.py", prefix=prefix)
        assert entry is not None
        return entry

    run = Run(
        run_with(
            timed("decode", 10_000, [9.0]),
            timed("decode", 50_000, [0.002, 0.001, 0.004]),
            timed("decode", 50_000, [0.006], prefix="kafka_"),
        )
    )
    row = Row(
        "decode",
        "decode",
        "kafka_decode",
        (at_least(3), at_least(4), at_most_ms(2), worst_at_most_ms(3)),
    )
    ((_, verdicts),) = judged(run, (row,))
    assert [(each.came_out, each.met) for each in verdicts] == [
        ("3.00x", True),
        ("3.00x", False),
        ("2.000 ms", True),
        ("4.000 ms", False),
    ]
