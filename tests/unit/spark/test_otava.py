"""The ``otava`` program and the pipeline find the same change points in the same histories.

``make otava`` does the same with a thousand histories and with those that Otava publishes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

pytest.importorskip("pyspark", reason="needs PySpark: pip install 'kraft[spark]'")
pytest.importorskip("otava", reason="needs Otava: pip install 'kraft[spark]'")

from kraft.regression.settings import AnalysisSettings
from tests.otava import generated
from tests.otava.run import compare
from tests.otava.suites import Suite

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_change_points_via_json_store_and_spark_equal_otavas(
    spark: SparkSession, tmp_path: Path
) -> None:
    suites = generated.suites(50, seed=7)
    # One benchmark has a few missing values; the other is constant, with one step.
    values = np.random.default_rng(1).normal(1, 0.01, 60) * np.where(np.arange(60) < 30, 1, 1.1)
    values[[5, 6, 40]] = np.nan
    counter = np.where(np.arange(60) < 45, 7.0, 8.0)
    suites.append(Suite("by_hand", np.arange(60), {"gaps": values, "counter": counter}))
    outcome = compare(spark, suites, tmp_path, AnalysisSettings.of_otava())
    assert outcome.series == 52
    assert outcome.differences == []
    assert len(outcome.of_otava) > 40
    by_hand = {each.benchmark: each.index for each in outcome.of_kraft if each.suite == "by_hand"}
    assert by_hand == {"gaps": 28, "counter": 45}
