"""Findings as Arrow rows: a round trip keeps every field, and every float bit for bit."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import numpy as np
import pyarrow as pa

from kraft.regression.findings import (
    ChangePoint,
    Comparison,
    Ratio,
    ScalingLaw,
    SeriesFinding,
    SeriesOutcome,
)
from kraft.regression.points import Series, SeriesKey
from kraft.spark.finding_rows import from_rows, schema_of, to_rows

KEY = SeriesKey("benchmarks/bench_table.py", "Table::load", '{"partitions": 1000000}', "box")
POINT = ChangePoint(
    key=KEY,
    statistic="median",
    index=7,
    time_us=1_700_000_000_123_456,
    run_before="a" * 32,
    run_after="b" * 32,
    commit_before=None,
    commit_after="c" * 40,
    count_before=7,
    count_after=9,
    mean_before=0.1,
    mean_after=0.1 + 2**-53,
    stddev_before=0.0,
    stddev_after=5e-324,
    ratio=Ratio(1.1, 1.05, math.inf),
    p_value=1e-17,
    q_value=2e-17,
)
FINDING = SeriesFinding(
    key=KEY,
    outcome=SeriesOutcome.CHANGED,
    run_count=16,
    first_time_us=1,
    last_time_us=2,
    last_value=0.1,
    noise=0.02,
    change_points=(POINT, replace(POINT, index=11)),
)


def test_a_finding_round_trips() -> None:
    stable = replace(FINDING, outcome=SeriesOutcome.STABLE, change_points=())
    found = from_rows(SeriesFinding, to_rows(SeriesFinding, [FINDING, stable]))
    assert found == [FINDING, stable]
    assert isinstance(found[0].outcome, SeriesOutcome)
    assert isinstance(found[0].change_points[0].key, SeriesKey)


def test_nan_round_trips() -> None:
    (found,) = from_rows(
        SeriesFinding, to_rows(SeriesFinding, [replace(FINDING, noise=float("nan"))])
    )
    assert math.isnan(found.noise)


def test_numpy_numbers_become_numbers() -> None:
    given = replace(FINDING, last_value=np.float64(0.1), noise=np.float64(0.02))
    assert from_rows(SeriesFinding, to_rows(SeriesFinding, [given])) == [FINDING]


def test_a_series_is_not_part_of_a_row() -> None:
    series = Series(
        KEY,
        np.array(["a"], dtype=object),
        np.array([1]),
        np.array([None], dtype=object),
        np.array([0.1]),
    )
    assert "series" not in schema_of(SeriesFinding).names
    found = from_rows(SeriesFinding, to_rows(SeriesFinding, [replace(FINDING, series=series)]))
    assert found == [FINDING]


def test_laws_and_comparisons_round_trip() -> None:
    law = ScalingLaw(KEY, "partitions", (1e4, 1e5), (0.1, 1.0), 1.0, 0.9, 1.1, (POINT,), 12)
    unsure = Comparison(KEY, "min", 1, 1, 1.0, 2.0, None, None, None, False, False, False, "short")
    sure = replace(unsure, ratio=Ratio(2.0, 1.9, 2.1), p_value=0.0, q_value=0.0)
    assert from_rows(ScalingLaw, to_rows(ScalingLaw, [law])) == [law]
    assert from_rows(Comparison, to_rows(Comparison, [unsure, sure])) == [unsure, sure]


def test_no_findings_are_an_empty_table() -> None:
    empty = to_rows(ChangePoint, [])
    assert empty.num_rows == 0
    assert empty.schema.names == [each.name for each in fields(ChangePoint)]
    assert empty.schema.field("commit_before").nullable
    assert not empty.schema.field("ratio").nullable
    assert pa.types.is_struct(empty.schema.field("key").type)
