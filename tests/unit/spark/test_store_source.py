"""A store analysed in ranges of series, with Spark or not, gives the findings of a DataFrame."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="needs PySpark: pip install 'kraft[spark]'")

from benchmarks.generate_runs import Step, Suite, generate
from kraft.errors import InvalidRequestError, StorageError
from kraft.regression import table_analysis
from kraft.regression.analysis import analyse_store
from kraft.regression.findings import Analysis
from kraft.regression.ingest import ingest
from kraft.regression.points import SeriesKey
from kraft.regression.settings import AnalysisSettings
from kraft.regression.store import list_runs
from kraft.regression.store_source import StoreSource
from kraft.regression.verdict_choice import (
    Judgement,
    changes_of,
    expectations_of,
    verdicts_on_changes,
)
from kraft.regression.verdicts import VerdictKind, VerdictLedger
from kraft.spark.analysis import analyse
from kraft.spark.store_points import read_points
from kraft.spark.tasks import SparkTasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = AnalysisSettings(bootstrap_samples=100)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Step]]:
    """Return a store of 40 runs of 20 benchmarks, two of which have a step; and the steps."""
    folder = tmp_path_factory.mktemp("results")
    steps = generate(folder / "runs", Suite(runs=40, benchmarks=20, rounds=5, seed=2))
    ingest([folder / "runs"], folder / "store")
    return folder / "store", steps


def without_histories(found: Analysis) -> object:
    return (found.series, found.scaling, found.machines, found.problems)


def test_planted_steps_are_found(planted: tuple[Path, list[Step]]) -> None:
    store, steps = planted
    found = analyse_store(store, SETTINGS).change_points
    assert {(json.loads(each.key.params)["partitions"], each.commit_after) for each in found} == {
        (json.loads(step.params)["partitions"], step.commit) for step in steps
    }
    assert len(steps) == 2


def test_store_frame_and_no_spark_give_the_same_findings(
    planted: tuple[Path, list[Step]], spark: SparkSession
) -> None:
    store, _ = planted
    alone = analyse_store(store, SETTINGS)
    assert len(alone.series) == 20
    assert len(alone.scaling) == 4
    assert analyse_store(store, SETTINGS, tasks=SparkTasks(spark)) == alone
    assert analyse(read_points(spark, store), SETTINGS) == alone


def test_verdicts_are_the_same_with_and_without_spark(
    planted: tuple[Path, list[Step]], spark: SparkSession
) -> None:
    store, _ = planted
    plain = analyse_store(store, SETTINGS)
    accepted = verdicts_on_changes(
        VerdictKind.ACCEPT, changes_of(plain, None, None), Judgement("ana", "why")
    )
    expected = expectations_of(
        plain,
        "BenchSized::*",
        Judgement("ana", "why"),
        is_worse=True,
        within=5,
        within_commits=False,
    )
    ledger = VerdictLedger((*accepted, *expected), 0)
    alone = analyse_store(store, SETTINGS, verdicts=ledger)
    assert len(plain.alarms) > len(alone.alarms) == 0
    assert len(alone.expectations) == len(expected) > 0
    assert analyse_store(store, SETTINGS, verdicts=ledger, tasks=SparkTasks(spark)) == alone


def test_globs_and_since_are_equal_for_all_sources(
    planted: tuple[Path, list[Step]], spark: SparkSession
) -> None:
    store, steps = planted
    asked = {"benchmark": "BenchSized::*", "machine": "*", "since": steps[0].commit[:10]}
    alone = analyse_store(store, SETTINGS, **asked)
    assert 0 < len(alone.series) < 20
    assert analyse(read_points(spark, store), SETTINGS, **asked) == alone
    full = analyse_store(store, SETTINGS, benchmark="benchmarks/bench_00.py::bench_plain_?")
    assert {each.key.benchmark for each in full.series} == {"bench_plain_0", "bench_plain_5"}
    nothing = analyse_store(store, SETTINGS, tasks=SparkTasks(spark), machine="no such machine")
    assert without_histories(nothing) == ((), (), {}, ())


def test_histories_are_fetched_of_the_largest_changes(planted: tuple[Path, list[Step]]) -> None:
    store, steps = planted
    found = analyse_store(store, SETTINGS, kept_runs=40 * len(steps) + 39)
    kept = [each for each in found.series if each.series is not None]
    assert {each.key for each in kept} == {each.key for each in found.change_points}
    for each in kept:
        assert each.series is not None
        assert len(each.series) == 40
        assert each.series.rounds is not None
        assert {len(rounds) for rounds in each.series.rounds} == {5}


def test_a_machine_is_as_its_newest_run_describes_it(planted: tuple[Path, list[Step]]) -> None:
    store, _ = planted
    found = analyse_store(store, SETTINGS).machines
    assert found is not None
    ((machine, description),) = found.items()
    assert machine == list_runs(store)[-1].machine
    assert json.loads(description)["node"]


def test_a_commit_that_was_never_measured_is_rejected(planted: tuple[Path, list[Step]]) -> None:
    with pytest.raises(InvalidRequestError, match="'feedfeed' is neither a date"):
        analyse_store(planted[0], SETTINGS, since="feedfeed")


def test_a_folder_that_is_no_store_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="not a store"):
        StoreSource(tmp_path)


def test_rounds_are_thinned_evenly_in_any_slice() -> None:
    many = np.arange(1000, dtype=np.float64)
    lists = pa.array([[1.0], many.tolist(), None, [], [2.0, 3.0]], pa.list_(pa.float64()))
    points = pa.table(
        {name: ["x"] * 5 for name in [*SeriesKey._fields, "run_id", "time", "commit"]}
        | {"median": [1.0] * 5, "values": lists}
    )
    for first in (0, 1):
        rounds = table_analysis.prepared(points.slice(first), SETTINGS)["rounds"].to_pylist()
        assert [len(each or []) for each in rounds] == [1, table_analysis.MOST_ROUNDS, 0, 0, 2][
            first:
        ]
        thinned = rounds[1 - first]
        assert thinned == sorted(set(thinned))
        assert (thinned[0], thinned[-1]) == (0.0, 996.0)
        assert rounds[-1] == [2.0, 3.0]
