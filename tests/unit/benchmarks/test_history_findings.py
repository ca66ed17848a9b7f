"""The analysis of this repository's benchmark history finds the commits that changed its speed."""

from __future__ import annotations

from benchmarks.performance_page import HISTORY, findings, read

TIMES = {
    ("bench_decode", "562dab22d8", "improvement"),
    ("bench_decode", "c0bbe838d1", "improvement"),
    ("bench_load", "c0bbe838d1", "improvement"),
    ("bench_encode", "1bf31fc3dc", "improvement"),
    ("bench_load", "57f665f75b", "regression"),
    ("bench_load", "745e75eb70", "improvement"),
}


def test_the_commits_that_changed_a_time_are_found_and_no_others() -> None:
    _, runs = read(HISTORY)
    timed = [each for each in runs if "toolchain" not in each.result["machine_info"]]
    found = findings(timed, "median")
    assert {
        (point.key.benchmark, (point.commit_after or "")[:10], point.kind.value)
        for each in found
        for point in each.change_points
    } == TIMES
    assert not any(each.drifts or each.variance_changes for each in found)
