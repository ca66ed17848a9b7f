"""The comparison in Spark equals that in one process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

pytest.importorskip("pyspark", reason="needs PySpark: pip install 'kraft[spark]'")

from benchmarks.generate_runs import Suite, generate
from kraft.errors import BenchmarkFileError
from kraft.regression import comparison
from kraft.regression.run_selection import runs_of
from kraft.regression.settings import AnalysisSettings
from kraft.spark.frame_comparison import compare_files
from tests.otava.suites import Suite as Histories
from tests.otava.suites import write_runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = AnalysisSettings(bootstrap_samples=100)


@pytest.fixture
def sides(tmp_path: Path) -> tuple[list[str], list[str]]:
    """Return eight runs and two, with an invalid file among them; one benchmark is on one side
    only, one is slower.
    """
    generate(tmp_path / "old", Suite(runs=8, benchmarks=12, rounds=5, seed=1))
    generate(tmp_path / "new", Suite(runs=2, benchmarks=13, rounds=12, seed=1, run_noise=0.1))
    for name, level in (("old", 1.0), ("new", 1.5)):
        values = {"slower": np.random.default_rng(1).normal(level, 0.01, 9)}
        write_runs([Histories("by_hand", np.arange(9), values)], tmp_path / name)
    (tmp_path / "new" / "torn.json").write_text('{"benchmarks": [')
    old, new = (sorted(map(str, (tmp_path / name).iterdir())) for name in ("old", "new"))
    return old, new


def test_spark_compares_as_one_process_does(
    spark: SparkSession, sides: tuple[list[str], list[str]]
) -> None:
    old, new = sides
    base, _ = runs_of(old)
    candidate, skipped = runs_of(new)
    expected = comparison.compare(base, candidate, SETTINGS, 0.05)
    assert len(expected) == 14
    assert [each.key.benchmark for each in expected if each.is_regression] == ["slower"]
    found, problems = compare_files(spark, old, new, SETTINGS, 0.05)
    # As texts, because a side without runs has the value NaN, which is not equal to itself.
    assert list(map(repr, found)) == list(map(repr, expected))
    assert problems == skipped
    assert len(skipped) == 1


def test_an_unreadable_side_is_rejected(
    spark: SparkSession, sides: tuple[list[str], list[str]]
) -> None:
    old, new = sides
    torn = [each for each in new if each.endswith("torn.json")]
    for paths, strict in ((torn, False), (new, True)):
        with pytest.raises(BenchmarkFileError, match=r"torn\.json"):
            compare_files(spark, old, paths, SETTINGS, 0.05, strict=strict)
        with pytest.raises(BenchmarkFileError, match=r"torn\.json"):
            runs_of(paths, strict=strict)
