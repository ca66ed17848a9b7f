"""Projects, branches, dirty trees and late runs: with and without Spark, and in comparisons."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark", reason="needs PySpark: pip install 'kraft[spark]'")

from deltalake import write_deltalake

from kraft.regression import comparison
from kraft.regression.analysis import analyse_store
from kraft.regression.commit_order import Scope
from kraft.regression.ingest import ingest
from kraft.regression.run_selection import RunSelection, runs_of
from kraft.regression.settings import AnalysisSettings
from kraft.spark.analysis import analyse
from kraft.spark.frame_comparison import compare_files
from kraft.spark.store_points import read_points
from kraft.spark.tasks import SparkTasks
from tests.harness.result_documents import document, save

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = AnalysisSettings(bootstrap_samples=100)
COLUMNS = ["median", "mean", "stddev", "rounds", "values"]


def saved(folder: Path, name: str, at: float, level: float, **commit_info: Any) -> Path:
    """Return a run of one benchmark, ``at`` hours after the first, with 1 % noise."""
    random = np.random.default_rng([int(at * 4), len(name)])
    rounds = (level * random.normal(1, 0.01) * random.normal(1, 0.01, 5)).tolist()
    content = document(at=at, values={"test_a": rounds}, commit=commit_info.pop("id", f"c{at}"))
    content["commit_info"].update(commit_info)
    path = folder / f"{name}-{at}.json"
    save(path, content)
    return path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a store of several projects and branches.

    20 runs of a project that is slower from commit 12 on; the first five measured last, a branch
    three times as slow from commit 6 on, a second project, a dirty tree.
    """
    runs = tmp_path / "runs"
    for number in range(20):
        parents = [f"c{number - 1}"] if number else []
        saved(
            runs,
            "main",
            number + (100 if number < 5 else 0),
            1.0 if number < 12 else 1.3,
            id=f"c{number}",
            parents=parents,
            time=None,
        )
        saved(runs, "other", number + 0.25, 50.0, id=f"o{number}", project="other")
    for number in range(8):
        parents = ["c6"] if not number else [f"b{number - 1}"]
        saved(runs, "branch", number + 14.5, 3.0, id=f"b{number}", branch="pull", parents=parents)
    saved(runs, "dirty", 30, 9.0, id="c19", dirty=True)
    ingest([runs], tmp_path / "store")
    return tmp_path / "store"


@pytest.mark.parametrize(
    "scope",
    [
        Scope(),
        Scope(project="sample"),
        Scope(branch="*", include_dirty=True),
        Scope(branch="pull"),
    ],
)
def test_spark_and_one_process_find_the_same(
    spark: SparkSession, store: Path, scope: Scope
) -> None:
    alone = analyse_store(store, SETTINGS, scope=scope, kept_runs=1000)
    by_ranges = analyse_store(store, SETTINGS, tasks=SparkTasks(spark), scope=scope, kept_runs=1000)
    by_frame = analyse(read_points(spark, store), SETTINGS, scope=scope, kept_runs=1000)
    for other in (by_ranges, by_frame):
        assert [each.key for each in other.series] == [each.key for each in alone.series]
        assert other.change_points == alone.change_points
        assert other.problems == alone.problems
        for mine, theirs in zip(alone.series, other.series, strict=True):
            assert mine.series is not None
            assert theirs.series is not None
            assert mine.series.run_id.tolist() == theirs.series.run_id.tolist()


def test_projects_and_branches_are_separate_histories(store: Path) -> None:
    """Without projects, two files of one name gave +200 %, and a late run of an old commit gave a
    step.
    """
    found = analyse_store(store, SETTINGS, kept_runs=1000)
    assert [(each.key.project, each.key.branch, each.run_count) for each in found.series] == [
        ("other", "main", 20),
        ("sample", "main", 20),
    ]
    (point,) = found.change_points
    assert (point.key.project, point.index, point.commit_before, point.commit_after) == (
        "sample",
        12,
        "c11",
        "c12",
    )
    series = found.series[1].series
    assert series is not None
    assert series.commit.tolist() == [f"c{number}" for number in range(20)]
    assert any("pull (8)" in said for said in found.problems)
    assert any("1 run of dirty trees" in said for said in found.problems)


def test_a_pull_request_is_compared_with_its_branch_point(store: Path, tmp_path: Path) -> None:
    """The base became slower after the pull request branched off: the pull request did not
    become faster.
    """
    candidate = saved(tmp_path / "new", "branch", 60, 1.0, id="b9", branch="pull", parents=["c10"])
    new, _ = runs_of([str(candidate)])
    old = RunSelection.parse("last:5").read(store, COLUMNS, new)
    assert sorted(set(old["commit"].to_pylist())) == ["c10", "c6", "c7", "c8", "c9"]
    (found,) = comparison.compare(old, new, SETTINGS, 0.05)
    assert (found.runs_base, found.runs_candidate, found.key.project) == (5, 1, "sample")
    assert not found.is_regression
    assert not found.is_improvement


def test_a_store_without_commit_parents_is_ordered_by_times(store: Path, tmp_path: Path) -> None:
    expected = analyse_store(store, SETTINGS)
    bare = tmp_path / "bare"
    tables = [pq.read_table(path).drop_columns(["parents"]) for path in store.glob("*.parquet")]
    write_deltalake(str(bare), pa.concat_tables(tables))
    found = analyse_store(bare, SETTINGS)
    assert [each.key for each in found.series] == [each.key for each in expected.series]
    assert ingest([store.parent / "runs"], bare).runs_added == 0
    saved(store.parent / "more", "main", 200, 1.3, id="c20", parents=["c19"])
    assert ingest([store.parent / "more"], bare).runs_added == 1
    assert analyse_store(bare, SETTINGS).series[1].run_count == 21


def test_files_of_two_projects_are_not_compared(spark: SparkSession, tmp_path: Path) -> None:
    old = [str(saved(tmp_path, "old", at, 1.0)) for at in range(4)]
    new = [str(saved(tmp_path, "new", at, 3.0, project="other")) for at in range(4)]
    unknown = [str(saved(tmp_path, "unknown", at, 1.0, project=None)) for at in range(4)]
    for one, other, notes in (
        (
            old,
            new,
            {
                "not in the baseline; the baseline is of another project (sample)",
                "not in the candidate; the candidate is of another project (other)",
            },
        ),
        (old, unknown, {""}),
        (unknown, new, {""}),
    ):
        here = comparison.compare(runs_of(one)[0], runs_of(other)[0], SETTINGS, 0.05)
        there, _ = compare_files(spark, one, other, SETTINGS, 0.05)
        assert {each.note for each in here} == notes
        assert [(each.key, each.ratio, each.note) for each in here] == [
            (each.key, each.ratio, each.note) for each in there
        ]
