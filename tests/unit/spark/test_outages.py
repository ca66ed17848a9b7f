"""Outages swept by Spark equal those swept in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("numba")
pytest.importorskip("pyspark")

from kraft import Metadata, open_metadata
from kraft.cli.commands import app
from kraft.lab.outages import plan_outages, sweep_arrays, sweep_outages
from kraft.spark.outages import load, save, sweep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = Path(__file__).parents[2] / "data" / "kafka-4.3" / "controller-101"


def test_spark_computes_the_figures_of_one_machine(spark: SparkSession) -> None:
    metadata = open_metadata(LOG)
    here, there = sweep_outages(metadata), sweep(spark, LOG)
    assert len(there) == len(here) > 3
    assert np.array_equal(there.figures, here.figures)
    assert there.as_dict() == here.as_dict()
    # Another sweep of the same session uses its own state, not the file that was sent before.
    plan = plan_outages(metadata, pairs=False)
    metadata.apply(metadata.fence_broker(1))
    later = sweep(spark, metadata, plan)
    assert np.array_equal(later.figures, sweep_outages(metadata, plan).figures)
    assert not np.array_equal(later.figures, here.figures[: len(plan)])


def test_the_command_prints_the_same_with_spark(spark: SparkSession) -> None:
    command = ["sweep", "outages", "--from", str(LOG), "--json", "--top", "0"]
    here, there = (
        CliRunner().invoke(app, [*command, *more]) for more in ([], ["--master", "local[2]"])
    )
    assert (here.exit_code, there.exit_code) == (0, 0), there.output
    assert json.loads(there.stdout) == json.loads(here.stdout)
    # An existing session remains open.
    assert spark.range(3).count() == 3


def test_an_empty_plan_does_not_use_spark(spark: SparkSession) -> None:
    assert len(sweep(spark, Metadata())) == 0


def test_saved_arrays_load_unchanged(tmp_path: Path) -> None:
    metadata = open_metadata(LOG)
    arrays = sweep_arrays(metadata, plan_outages(metadata))
    save(arrays, tmp_path / "arrays")
    loaded = load(str(tmp_path / "arrays"))
    assert loaded._fields == arrays._fields
    for name, value in arrays._asdict().items():
        found = getattr(loaded, name)
        assert type(found) is type(value)
        parts = (found, value) if isinstance(value, tuple) else ((found,), (value,))
        for one, other in zip(*parts, strict=True):
            assert one.dtype == other.dtype
            assert np.array_equal(one, other)
