"""The performance page shows the kept benchmark results and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from benchmarks import performance_page
from benchmarks.kept import kept

MACHINE = {
    "node": "anonymous",
    "machine": "x86_64",
    "system": "Linux",
    "release": "6.1",
    "python_implementation": "CPython",
    "python_version": "3.11.7",
    "python_compiler": "GCC 12.2.0",
    "cpu": {"brand_raw": "A Processor", "count": 2},
}


def run_of(number: int, seconds: dict[str, float]) -> dict[str, Any]:
    """Return the run of a commit with this number; all rounds of a benchmark are equal."""
    return {
        "machine_info": MACHINE,
        "commit_info": {
            "id": f"{number:040x}",
            "time": f"2026-01-{number + 1:02}T00:00:00+00:00",
            "dirty": False,
            "project": "kraft",
            "branch": "main",
            "subject": f"Change number {number}",
        },
        "benchmarks": [
            {
                "group": None,
                "name": name,
                "fullname": f"benchmarks/bench_table.py::{name}",
                "params": None,
                "param": None,
                "extra_info": {"work": name},
                "stats": dict.fromkeys(("min", "max", "mean", "median", "q1", "q3"), value)
                | {"stddev": 0.0, "iqr": 0.0, "ops": 1 / value, "total": 3 * value}
                | {"rounds": 3, "iterations": 1, "data": [value] * 3},
            }
            for name, value in seconds.items()
        ],
        "datetime": f"2026-01-{number + 1:02}T00:00:00+00:00",
        "version": "5.3.1",
    }


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """Write the runs of 20 commits; return their folder.

    From the eleventh commit on, decoding takes a third less time; encoding never changes.
    """
    random = Random(5)
    for number in range(20):
        decode = 0.045 if number < 10 else 0.030
        seconds = {
            "bench_decode": decode * random.gauss(1, 0.01),
            "bench_encode": 0.020 * random.gauss(1, 0.01),
        }
        (tmp_path / f"{number}.json").write_text(json.dumps(run_of(number, seconds)))
    return tmp_path


def test_a_speed_up_is_listed_with_its_commit(history: Path) -> None:
    page = performance_page.pages(history)[performance_page.PAGE]
    changes = [line for line in page.splitlines() if "Change number" in line]
    assert len(changes) == 1
    assert "Change number 10 | decode | 45" in changes[0]
    assert "2 benchmarks, 1 of them without any change" in page


def test_counts_have_a_section_of_their_own(history: Path) -> None:
    for number in range(20):
        run = run_of(number, {"bench_counted": 0.01})
        run["machine_info"] = MACHINE | {"node": "counted", "toolchain": {"compiler": "cc 12"}}
        run["benchmarks"][0]["extra_info"]["instructions"] = 2000 if number < 7 else 1000
        (history / f"{number}-counted.json").write_text(json.dumps(run))
    page = performance_page.pages(history)[performance_page.PAGE]
    counted = page[page.index("### Instructions: what changed") :]
    assert "Counted on an emulated processor: compiler cc 12" in counted
    assert "Change number 7 | counted | 2.00 k | 1.00 k | -50.0 %" in counted


def test_a_quick_run_is_rejected_as_not_full(tmp_path: Path) -> None:
    path = tmp_path / "quick.json"
    path.write_text(json.dumps(run_of(1, {"bench_decode": 0.1}) | {"quick": True}))
    with pytest.raises(SystemExit, match="no full run"):
        performance_page.keep(path, tmp_path / "history")


def test_the_newest_full_run_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    kept_runs = tmp_path / "history"
    for number in (1, 2):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(run_of(number, {"bench_decode": 0.1}) | {"quick": False}))
        performance_page.keep(path, kept_runs)
    full, runs = performance_page.read(kept_runs)
    assert full is not None
    assert full.result["commit_info"]["subject"] == "Change number 2"
    assert not runs


def test_a_later_run_of_one_suite_takes_the_place_of_what_the_full_run_has(tmp_path: Path) -> None:
    full = run_of(1, {"bench_decode": 0.1, "bench_encode": 0.2}) | {"quick": False}
    later = run_of(1, {"bench_decode": 0.05})
    later["commit_info"]["id"] = "2" * 40
    later["benchmarks"][0]["group"] = "codec"
    full["figures"] = [{"work": "memory", "bytes": 9}, {"work": "other", "bytes": 1}]
    later["figures"] = [{"work": "memory", "bytes": 3}]
    for name, run in (("full", full), ("later", later)):
        (tmp_path / f"{name}.json").write_text(json.dumps(run))
    history = tmp_path / "history"
    performance_page.keep(tmp_path / "full.json", history, tmp_path / "later.json")
    kept_run, _ = performance_page.read(history)
    assert kept_run is not None
    medians = [(each["name"], each["stats"]["median"]) for each in kept_run.result["benchmarks"]]
    assert sorted(medians) == [("bench_decode", 0.05), ("bench_encode", 0.2)]
    held = {each["work"]: each["bytes"] for each in kept_run.result["figures"]}
    assert held == {"memory": 3, "other": 1}
    del kept_run.result["figures"]
    assert "Run by themselves, after the rest: codec (commit 2222222222)." in "\n".join(
        performance_page.speed(kept_run)
    )


def test_the_page_in_the_repository_has_every_commit_of_the_history() -> None:
    _, runs = performance_page.read(performance_page.HISTORY)
    page = performance_page.PAGE.read_text()
    assert len({run.result["commit_info"]["id"] for run in runs}) >= 10
    for run in runs:
        assert f"`{run.result['commit_info']['id'][:7]}`" in page
        machine = run.result["machine_info"]
        assert machine["node"] in ("anonymous", "counted")
        assert kept(run.result, machine["node"]) == run.result, (
            "a kept run must have nothing that `kept` would remove"
        )
