"""The check of instruction counts is strict for equal toolchains and reports every difference."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.counted import check

BASELINE = Path(__file__).resolve().parents[3] / "benchmarks" / "baseline" / "instructions.json"


@pytest.fixture
def result() -> dict[str, Any]:
    return {
        "machine_info": {
            "toolchain": {
                "compiler": "cc 12.2.0",
                "level": "x86-64-v3",
                "features": "0123456789ab",
                "python": "CPython 3.11.7",
                "cython": "3.3.1",
            }
        },
        "benchmarks": [
            {"name": f"bench_counted[{work}]", "extra_info": {"instructions": 1000}}
            for work in ("decode", "encode")
        ],
    }


def allowed(tmp_path: Path, baseline: dict[str, Any], candidate: dict[str, Any]) -> str:
    paths = []
    for name, result in (("baseline", baseline), ("candidate", candidate)):
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_text(json.dumps(result))
    return check.threshold(*paths)


def test_equal_toolchains_compare_closely(
    tmp_path: Path, result: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert allowed(tmp_path, result, result) == check.EXACT
    assert capsys.readouterr().err == ""
    # A second CRC pass when decoding costs 5.8 %; the memory layout alone costs up to 3.5 %.
    assert 3.5 < float(check.EXACT.removesuffix("%")) < 5.8


def test_another_compiler_compares_widely_and_is_named(
    tmp_path: Path, result: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    other = copy.deepcopy(result)
    other["machine_info"]["toolchain"]["compiler"] = "cc 14.1.0"
    assert allowed(tmp_path, result, other) == check.WIDE
    printed = capsys.readouterr().err
    assert "compiler: cc 12.2.0 in the baseline, cc 14.1.0 here" in printed


@pytest.mark.parametrize(
    ("name", "value"), [("features", "ba9876543210"), ("python", "CPython 3.12.1")]
)
def test_another_processor_or_python_does_not_compare(
    tmp_path: Path, result: dict[str, Any], name: str, value: str
) -> None:
    other = copy.deepcopy(result)
    other["machine_info"]["toolchain"][name] = value
    with pytest.raises(SystemExit, match=f"(?s){name}.*make baseline"):
        allowed(tmp_path, result, other)


def test_a_work_that_only_one_side_has_fails_the_check(
    tmp_path: Path, result: dict[str, Any]
) -> None:
    fewer = copy.deepcopy(result)
    del fewer["benchmarks"][1]
    with pytest.raises(SystemExit, match=r"bench_counted\[encode\] is in the baseline only"):
        allowed(tmp_path, result, fewer)
    with pytest.raises(SystemExit, match=r"bench_counted\[encode\] has no baseline"):
        allowed(tmp_path, fewer, result)


def test_a_work_without_a_count_fails_the_check(tmp_path: Path, result: dict[str, Any]) -> None:
    uncounted = copy.deepcopy(result)
    del uncounted["benchmarks"][0]["extra_info"]["instructions"]
    with pytest.raises(SystemExit, match=r"bench_counted\[decode\]"):
        allowed(tmp_path, result, uncounted)


def test_a_timed_result_is_rejected_as_not_counted(tmp_path: Path, result: dict[str, Any]) -> None:
    timed = result | {"machine_info": {"node": "a-machine"}}
    with pytest.raises(SystemExit, match="no counted result"):
        allowed(tmp_path, result, timed)


def test_the_baseline_holds_every_work_and_no_machine() -> None:
    from benchmarks.counted.works import WORKS

    baseline = json.loads(BASELINE.read_text())
    assert check.works_of(baseline) == {f"bench_counted[{name}]" for name in WORKS}
    machine = baseline["machine_info"]
    assert machine["node"] == "counted"
    assert "memory_bytes" not in machine
