"""Rows in any order become one ordered history; missing values are omitted."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from kraft.regression.points import SeriesKey
from kraft.regression.series import series_of

KEY = SeriesKey("bench_a.py", "load", "{}", "box")


def rows(
    *given: tuple[str, int, float | None], rounds: list[list[float] | None] | None = None
) -> pa.Table:
    runs, times, values = zip(*given, strict=True)
    table = pa.table(
        {
            "run_id": pa.array(runs),
            "time": pa.array(times, pa.timestamp("us", tz="UTC")),
            "commit": pa.array([f"of {run}" for run in runs]),
            "value": pa.array(values, pa.float64()),
        }
    )
    if rounds is not None:
        table = table.append_column("rounds", pa.array(rounds, pa.list_(pa.float64())))
    return table


def test_time_orders_a_history() -> None:
    series, left_out = series_of(KEY, rows(("b", 30, 3.0), ("c", 10, 1.0), ("a", 20, 2.0)), "min")
    assert series.value.tolist() == [1.0, 2.0, 3.0]
    assert series.run_id.tolist() == ["c", "a", "b"]
    assert series.commit.tolist() == ["of c", "of a", "of b"]
    assert series.time_us.tolist() == [10, 20, 30]
    assert left_out == 0
    assert series.rounds is None


def test_runs_of_one_moment_are_ordered_by_their_ids() -> None:
    one = rows(("b", 10, 2.0), ("a", 10, 1.0), ("c", 5, 0.1))
    other = one.take([2, 1, 0])
    for table in (one, other):
        assert series_of(KEY, table, "median")[0].run_id.tolist() == ["c", "a", "b"]


@pytest.mark.parametrize("bad", [None, float("nan"), float("inf"), -1.0, 0.0])
def test_missing_values_are_omitted_and_counted(bad: float | None) -> None:
    series, left_out = series_of(
        KEY,
        rows(("a", 1, 1.0), ("b", 2, bad), ("c", 3, 3.0), rounds=[[1.0], [9.0], [3.0]]),
        "median",
    )
    assert series.run_id.tolist() == ["a", "c"]
    assert left_out == 1
    assert series.rounds is not None
    assert [each.tolist() for each in series.rounds] == [[1.0], [3.0]]


def test_a_time_of_zero_is_omitted_but_a_count_of_zero_is_not() -> None:
    given = rows(("a", 1, 0.0), ("b", 2, 3.0))
    assert series_of(KEY, given, "min")[0].value.tolist() == [3.0]
    assert series_of(KEY, given, "instructions")[0].value.tolist() == [0.0, 3.0]


def test_an_empty_history_is_valid() -> None:
    series, left_out = series_of(KEY, rows(("a", 1, None), ("b", 2, None)), "min")
    assert len(series) == 0
    assert left_out == 2


def test_rounds_stay_with_their_run() -> None:
    given = rows(
        ("b", 20, 2.0), ("a", 10, 1.0), ("c", 30, 3.0), rounds=[[2.0, 2.1], None, [3.0, np.nan, 0]]
    )
    series, _ = series_of(KEY, given, "median")
    assert series.rounds is not None
    assert [each.tolist() for each in series.rounds] == [[], [2.0, 2.1], [3.0]]
