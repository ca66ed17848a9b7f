"""Benchmark runs of past commits: which modules are built again, and how a run is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.history_run import Commit, backdated, digest, name_in, sources_of
from benchmarks.kept import ROUNDS_KEPT, kept


def test_a_module_s_sources_are_all_declarations_that_it_reaches(tmp_path: Path) -> None:
    package = tmp_path / "table"
    for name in ("table", "bytes", "log"):
        (tmp_path / name).mkdir()
    (package / "table.pyx").write_text("from kraft._core.table.rows cimport Rows\n")
    (package / "table.pxd").write_text("from kraft._core.table.columns cimport Columns\n")
    (package / "rows.pxd").write_text("from kraft._core.bytes.wire cimport load\n")
    for name in ("table/columns", "bytes/wire", "log/segment"):
        (tmp_path / f"{name}.pxd").write_text("")
    (package / "rows.pyx").write_text("")
    names = [path.name for path in sources_of(tmp_path, package / "table.pyx")]
    assert names == ["wire.pxd", "columns.pxd", "rows.pxd", "table.pxd", "table.pyx"]
    assert name_in(tmp_path, package / "table.pyx") == "table.table"


def test_the_sources_of_a_commit_without_sub_packages_are_found(tmp_path: Path) -> None:
    (tmp_path / "table.pyx").write_text("from kraft._core.rows cimport Rows\n")
    (tmp_path / "rows.pxd").write_text("")
    names = [path.name for path in sources_of(tmp_path, tmp_path / "table.pyx")]
    assert names == ["rows.pxd", "table.pyx"]
    assert name_in(tmp_path, tmp_path / "table.pyx") == "table"


def test_the_digest_depends_on_the_boundaries_between_sources() -> None:
    """The digest of several sources depends on the boundaries between them."""
    assert digest(b"ab", b"c") != digest(b"a", b"bc")


def made(rounds: int) -> dict[str, Any]:
    seconds = 0.0123456789
    return {
        "machine_info": {"node": "host-17", "release": "6.1.0-18-amd64", "cpu": {"flags": ["a"]}},
        "commit_info": {"id": "0", "project": "checkout", "dirty": False},
        "benchmarks": [
            {
                "name": "bench_decode",
                "stats": {
                    "median": seconds,
                    "rounds": rounds,
                    "data": [seconds] * rounds,
                },
                "extra_info": {"work": "decode"},
            }
        ],
        "datetime": "2026-11-21T17:00:00+00:00",
        "version": "5.3.1",
    }


def test_a_kept_result_is_small_and_names_no_machine() -> None:
    result = kept(made(ROUNDS_KEPT))
    assert result["machine_info"] == {"node": "anonymous", "release": "6.1", "cpu": {}}
    assert result["commit_info"]["project"] == "kraft"
    stats = result["benchmarks"][0]["stats"]
    assert stats["median"] == 0.0123457
    assert len(stats["data"]) == ROUNDS_KEPT
    assert "data" not in kept(made(ROUNDS_KEPT + 1))["benchmarks"][0]["stats"]


def test_a_run_of_a_past_commit_gets_the_time_of_the_commit(tmp_path: Path) -> None:
    """The run gets the time of its commit; ``measured`` keeps the time of the run."""
    commit = Commit("a" * 40, "2026-11-21T10:03:07+00:00", "then", "Faster", 1017, tmp_path)
    result = backdated(made(3), commit, 2)
    assert result["datetime"] == "2026-11-21T10:03:07.017002+00:00"
    assert result["measured"] == "2026-11-21T17:00:00+00:00"
    assert result["commit_info"]["id"] == commit.id
    assert result["commit_info"]["subject"] == "Faster"


def test_runs_of_commits_of_one_second_are_ordered_by_commit(tmp_path: Path) -> None:
    first, second = (
        Commit(letter * 40, "2026-11-21T14:18:34+00:00", "then", "", ancestors, tmp_path)
        for letter, ancestors in (("a", 7), ("b", 8))
    )
    times = [
        backdated(made(3), commit, n)["datetime"] for commit in (first, second) for n in (0, 9)
    ]
    assert times == sorted(times)
