"""``kraft bench ingest`` and ``kraft regress`` with the files of other tools, as typed."""

from __future__ import annotations

import json
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from tests.unit.cli.conftest import Run

pytest.importorskip("msgspec", reason="needs kraft[regress]")

TOOLS = Path(__file__).parents[2] / "data" / "benchmark_tools"


def points(store: Path) -> dict[str, dict[str, Any]]:
    from kraft.regression.store import read_table

    return {row["benchmark"]: row for row in read_table(store).to_pylist()}


def test_files_of_every_tool_go_into_one_store_once(kraft: Run, tmp_path: Path) -> None:
    store = tmp_path / "store"
    google = TOOLS / "google-benchmark-repeated.json"
    ran = kraft("bench", "ingest", google, TOOLS / "asv", "--store", store, "--json")
    # machine.json and benchmarks.json are no results.
    assert (ran.code, ran.json["runs_added"], ran.json["problems"]) == (0, 3, [])
    options = ("--of-machine", "ci-1", "--commit", "a" * 40, "--project", "lists")
    ran = kraft("bench", "ingest", TOOLS / "jmh.json", "--store", store, *options, "--json")
    assert (ran.code, ran.json["runs_added"], ran.json["problems"]) == (0, 1, [])
    again = kraft("bench", "ingest", TOOLS / "jmh.json", "--store", store, *options, "--json")
    assert (again.json["runs_added"], again.json["duplicate_runs"]) == (0, 1)
    stored = points(store)
    assert (stored["mem_list"]["unit"], stored["mem_list"]["median"]) == ("B", 8056)
    assert stored["fill:gc.alloc.rate"]["bigger_is_better"] is False
    assert stored["fill:gc.alloc.rate"]["source"] == str(TOOLS / "jmh.json")
    assert stored["fill:gc.alloc.rate"]["commit"] == "a" * 40


def test_benchmarks_that_failed_are_counted_and_are_no_problems(kraft: Run, tmp_path: Path) -> None:
    google = TOOLS / "google-benchmark-repeated.json"
    ran = kraft("bench", "ingest", google, TOOLS / "asv", "--store", tmp_path / "a", "--strict")
    assert (ran.code, ran.err) == (0, "")
    assert "  no value       3" in ran.lines
    own = TOOLS.parent / "pytest-benchmark" / "5.3.1.json"
    ran = kraft("bench", "ingest", own, "--store", tmp_path / "b")
    assert "no value" not in ran.out
    # A value that cannot be one still is a problem.
    csv = tmp_path / "load.csv"
    csv.write_text("benchmark,value,time,machine\nserve,-1,2026-11-01T10:00:00,m1\n")
    ran = kraft("bench", "ingest", csv, "--store", tmp_path / "c", "--json")
    assert (ran.code, ran.json["without_value"]) == (3, 0)
    assert ran.json["problems"][0]["reason"] == "serve: its min is -1.0 seconds"


def test_the_seconds_of_an_ingest_include_the_conversion_of_the_files(
    kraft: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kraft.regression.sources import conversion

    def slow(data: bytes, source: str, reading: conversion.ResultReading) -> Any:
        sleep(0.4)
        return documents_of(data, source, reading)

    documents_of = conversion.documents_of
    monkeypatch.setattr(conversion, "documents_of", slow)
    google = TOOLS / "google-benchmark-repeated.json"
    ran = kraft("bench", "ingest", google, "--store", tmp_path / "store", "--json")
    assert ran.json["seconds"] >= 0.4


def load(path: Path, rates: list[float], begin: int = 1) -> Path:
    lines = ["test,rps,at,host,sha"]
    lines += [
        f"serve,{rate},2026-11-{day:02}T10:00:00,m1,{day:040x}"
        for day, rate in enumerate(rates, begin)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


CSV = ("--column", "benchmark=test", "--column", "value=rps", "--column", "time=at")
CSV += ("--column", "machine=host", "--column", "commit=sha", "--unit", "ops/s")


def test_a_fall_of_throughput_is_a_regression(kraft: Run, tmp_path: Path) -> None:
    rates = [1000 + day % 3 for day in range(12)] + [800 + day % 3 for day in range(12)]
    store = tmp_path / "store"
    path = load(tmp_path / "load.csv", rates)
    assert kraft("bench", "ingest", path, "--store", store, *CSV).code == 0
    page = tmp_path / "report.html"
    ran = kraft("regress", "--store", store, "--fail", "--json", "--html", page)
    assert ran.code == 1
    (point,) = ran.json["change_points"]
    assert (point["kind"], point["unit"], point["bigger_is_better"]) == (
        "regression",
        "ops/s",
        True,
    )
    assert point["commit_after"] == f"{13:040x}"
    shown = kraft("regress", "--store", store)
    assert "Regressions, worst first" in shown.out
    assert "ops/s" in shown.out
    assert "bigger is better" in page.read_text()


def measured_by_jmh(path: Path, factor: float) -> Path:
    """Write JMH's results of one benchmark with a throughput of 1000 ops/s times a factor."""
    given = json.loads((TOOLS / "jmh.json").read_text())[:1]
    metric = given[0]["primaryMetric"]
    given[0]["secondaryMetrics"] = {}
    metric["score"] = 1000 * factor
    metric["rawData"] = [[999 * factor, 1000 * factor, 1001 * factor]] * 2
    path.write_text(json.dumps(given))
    return path


def test_a_fall_of_jmh_throughput_is_a_regression_beside_pytest_benchmark(
    kraft: Run, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    own = TOOLS.parent / "pytest-benchmark" / "5.3.1.json"
    assert kraft("bench", "ingest", own, "--store", store).code == 0
    for day in range(1, 17):
        factor = (1 if day <= 8 else 0.8) * (1 + day % 3 / 1000)
        path = measured_by_jmh(tmp_path / "jmh.json", factor)
        options = ("--of-machine", "ci-1", "--commit", f"{day:040x}")
        options += ("--time", f"2026-11-{day:02}T10:00:00")
        assert kraft("bench", "ingest", path, "--store", store, *options).code == 0
    assert {row["unit"] for row in points(store).values()} == {None, "ops/s"}
    ran = kraft("regress", "--store", store, "--fail", "--json")
    assert ran.code == 1
    (change,) = ran.json["change_points"]
    assert (change["kind"], change["unit"]) == ("regression", "ops/s")
    assert change["commit_after"] == f"{9:040x}"
    ran = kraft("regress", "compare", f"{1:040x}", f"{16:040x}", "--store", store, "--json")
    assert (ran.code, ran.json["summary"]["regressions"]) == (1, 1)
    ran = kraft("regress", "compare", f"{16:040x}", f"{1:040x}", "--store", store, "--json")
    assert (ran.code, ran.json["summary"]["improvements"]) == (0, 1)


def test_a_candidate_with_less_throughput_fails_the_comparison(kraft: Run, tmp_path: Path) -> None:
    base = load(tmp_path / "base.csv", [1000 + day % 3 for day in range(6)])
    slow = load(tmp_path / "slow.csv", [800 + day % 3 for day in range(6)], 10)
    fast = load(tmp_path / "fast.csv", [1250 + day % 3 for day in range(6)], 10)
    ran = kraft("regress", "compare", base, slow, *CSV, "--json")
    assert (ran.code, ran.json["summary"]["regressions"]) == (1, 1)
    ran = kraft("regress", "compare", base, fast, *CSV, "--json")
    assert (ran.code, ran.json["summary"]["improvements"]) == (0, 1)
    smaller = kraft("regress", "compare", base, slow, *CSV, "--smaller-is-better", "--json")
    assert (smaller.code, smaller.json["summary"]["improvements"]) == (0, 1)


def test_jmh_is_compared_with_itself(kraft: Run) -> None:
    path = TOOLS / "jmh.json"
    ran = kraft("regress", "compare", path, path, "--of-machine", "ci-1", "--json")
    assert (ran.code, ran.json["summary"]["regressions"]) == (0, 0)
    assert ran.json["summary"]["compared"] > 10


def test_a_bad_file_is_an_error_that_names_it(kraft: Run, tmp_path: Path) -> None:
    store = tmp_path / "store"
    ran = kraft("bench", "ingest", TOOLS / "jmh.json", "--store", store)
    assert ran.code == 1
    assert "jmh.json: JMH does not write the name of the machine" in ran.err
    own = TOOLS.parent / "pytest-benchmark" / "5.3.1.json"
    ran = kraft("bench", "ingest", own, "--store", store, "--commit", "abc")
    assert ran.code == 1
    assert "has its own commit, machine and time" in ran.err
    ran = kraft("bench", "ingest", own, "--store", store, "--format", "junit")
    assert ran.code == 1
    assert "the format 'junit' is unknown; formats are pytest-benchmark, jmh" in ran.err
    assert not store.exists()


def test_a_metric_in_extra_info_gives_any_unit_to_pytest_benchmark(
    kraft: Run, tmp_path: Path
) -> None:
    given = json.loads((TOOLS.parent / "pytest-benchmark" / "5.3.1.json").read_text())
    for each in given["benchmarks"]:
        each["extra_info"] = {"metric": {"unit": "hits", "bigger_is_better": True}}
    given["benchmarks"][0]["extra_info"]["metric"]["unit"] = "<b>hits</b>"
    path = tmp_path / "hits.json"
    path.write_text(json.dumps(given))
    ran = kraft("bench", "ingest", path, "--store", tmp_path / "store", "--json")
    assert ran.code == 3
    assert "its unit '<b>hits</b>' is not one of" in ran.json["problems"][0]["reason"]
    assert {row["unit"] for row in points(tmp_path / "store").values()} == {"hits"}
