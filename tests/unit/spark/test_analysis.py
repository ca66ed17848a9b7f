"""Histories in Spark: each is analysed completely, however the rows are distributed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kraft.errors import InvalidRequestError
from kraft.regression import multiple_testing, series_analysis
from kraft.regression.commit_order import glob_pattern
from kraft.regression.findings import SeriesOutcome
from kraft.regression.points import POINTS, SeriesKey
from kraft.regression.series import series_of
from kraft.regression.settings import AnalysisSettings

pytest.importorskip("pyspark", reason="needs PySpark: pip install 'kraft[spark]'")

from kraft.regression import table_analysis
from kraft.regression.analysis import time_of
from kraft.spark.analysis import analyse
from kraft.spark.frame_source import FrameSource
from tests.harness.histories import HISTORIES, START, at, levels, point, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SETTINGS = AnalysisSettings(bootstrap_samples=100)
RUNS = 40


@pytest.fixture
def points(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(table())


def test_each_history_is_analysed_separately(points: DataFrame) -> None:
    found = analyse(points, SETTINGS)
    outcomes = {(each.key.benchmark, each.key.machine): each.outcome for each in found.series}
    assert outcomes == {
        ("slower", "box"): SeriesOutcome.CHANGED,
        ("slower", "other box"): SeriesOutcome.STABLE,
        ("faster", "box"): SeriesOutcome.CHANGED,
        ("steady", "box"): SeriesOutcome.STABLE,
        ("young", "box"): SeriesOutcome.TOO_LITTLE_DATA,
    }
    slower, faster = found.change_points
    assert (slower.key.benchmark, slower.index, slower.commit_after) == ("slower", 20, "14" * 20)
    assert slower.commit_before == "13" * 20
    assert slower.ratio.low < 1.2 < slower.ratio.high
    assert (faster.key.benchmark, faster.index) == ("faster", 25)
    assert found.problems == ()


def test_findings_are_equal_with_and_without_spark(points: DataFrame) -> None:
    """The same functions on the same rows give equal values to the last bit, also q values."""
    columns = {"run_id": "run_id", "time": "time", "commit": "commit"}
    expected = []
    for benchmark, machine in sorted(HISTORIES):
        of_key = table().filter(
            (pc.field("benchmark") == benchmark) & (pc.field("machine") == machine)
        )
        rows = of_key.select([*columns, "median", "values"])
        series, _ = series_of(
            SeriesKey("bench_a.py", benchmark, "{}", machine),
            rows.rename_columns({**columns, "median": "value", "values": "rounds"}),
            "median",
        )
        expected.append(series_analysis.analyse(series, SETTINGS))
    found = analyse(points, SETTINGS).series
    assert [each.key.benchmark for each in found if each.ended] == ["young"]
    plain = tuple(replace(each, ended=False) for each in found)
    assert plain == multiple_testing.correct(expected, SETTINGS)


def test_neither_order_nor_partitions_matter(points: DataFrame) -> None:
    expected = analyse(points, SETTINGS)
    for spread in (points.orderBy("median").repartition(7), points.coalesce(1)):
        assert analyse(spread, SETTINGS) == expected


def test_runs_of_one_moment_have_an_order(spark: SparkSession) -> None:
    """With a clock that stops or goes back, every reader gets the same history."""
    values = levels((20, 1.0), (20, 1.2))
    rows = [
        point(run, "a", value, time=START if run < 10 else at(50 - run))
        for run, value in enumerate(values)
    ]
    found = [
        analyse(spark.createDataFrame(pa.Table.from_pylist(order, schema=POINTS)), SETTINGS)
        for order in (rows, rows[::-1])
    ]
    assert found[0] == found[1]
    (changed,) = found[0].series
    assert changed.run_count == RUNS
    assert changed.last_time_us == int(at(40).timestamp() * 1e6)


@pytest.mark.parametrize("bad", [None, float("nan"), float("inf"), 0.0])
def test_missing_values_are_omitted_and_reported(spark: SparkSession, bad: float | None) -> None:
    values: list[float | None] = [*levels((40, 1.0))]
    values[7] = values[9] = bad
    rows = [point(run, "a", value) for run, value in enumerate(values)]
    rows.append(point(0, "b", bad))
    found = analyse(spark.createDataFrame(pa.Table.from_pylist(rows, schema=POINTS)), SETTINGS)
    a, b = found.series
    assert (a.run_count, a.outcome) == (38, SeriesOutcome.STABLE)
    assert (b.run_count, b.outcome) == (0, SeriesOutcome.TOO_LITTLE_DATA)
    assert found.problems == (
        "bench_a.py::a on box: 2 runs omitted, without a usable median",
        "bench_a.py::b on box: 1 run omitted, without a usable median",
    )


def test_another_statistic_can_be_analysed(spark: SparkSession) -> None:
    """Instructions are counted as well as time; here only they increase."""
    rows = [
        point(run, "a", value, instructions=1e9 if run < 30 else 1.001e9, values=[value])
        for run, value in enumerate(levels((40, 1.0)))
    ]
    points = spark.createDataFrame(pa.Table.from_pylist(rows, schema=POINTS))
    settings = AnalysisSettings(statistic="instructions", bootstrap_samples=100)
    (change,) = analyse(points, settings).change_points
    assert (change.index, change.statistic) == (30, "instructions")
    assert change.ratio.value == pytest.approx(1.001)
    assert analyse(points, SETTINGS).change_points == []


def test_globs_choose_benchmarks_and_machines(points: DataFrame) -> None:
    def chosen(**globs: str) -> list[str]:
        found = analyse(points, SETTINGS, **globs).series  # type: ignore[arg-type]
        return [f"{each.key.benchmark} {each.key.machine}" for each in found]

    assert chosen(benchmark="s*") == ["slower box", "slower other box", "steady box"]
    assert chosen(benchmark="bench_a.py::you??") == ["young box"]
    assert chosen(benchmark="lower") == []
    assert chosen(machine="box", benchmark="slower") == ["slower box"]
    assert chosen(machine="*box", benchmark="slower") == ["slower box", "slower other box"]


def test_brackets_and_dots_of_a_glob_match_themselves() -> None:
    assert glob_pattern("a.b[*]") == r"^a\.b\[.*\]$"


def test_since_omits_older_changes(points: DataFrame) -> None:
    """The older runs are still the baseline of the first new runs."""
    found = analyse(points, SETTINGS, since=at(20))
    assert [each.index for each in found.change_points] == [20, 25]
    later = analyse(points, SETTINGS, since=at(21))
    assert [each.key.benchmark for each in later.change_points] == ["faster"]
    wanted = SeriesKey("bench_a.py", "slower", "{}", "box")
    slower = next(each for each in later.series if each.key == wanted)
    assert slower.outcome is SeriesOutcome.STABLE
    assert slower.run_count == RUNS


def test_since_is_a_date_or_a_commit(points: DataFrame) -> None:
    source = FrameSource(points)
    assert time_of(source, "2026-01-01") == START
    assert time_of(source, "2026-01-01T02:00+02:00") == START
    assert time_of(source, "1414141") == at(20)
    assert time_of(source, "0A0A0A") == at(10)
    for text in ("yesterday", "feed5", "14"):
        with pytest.raises(InvalidRequestError, match=f"'{text}' is neither a date"):
            time_of(source, text)


def test_histories_are_kept_up_to_a_limit(points: DataFrame) -> None:
    assert all(each.series is None for each in analyse(points, SETTINGS).series)
    found = analyse(points, SETTINGS, kept_runs=2 * RUNS)
    kept = {each.key.benchmark: each.series for each in found.series if each.series is not None}
    assert kept.keys() == {"slower", "faster"}
    series = kept["slower"]
    assert series is not None
    assert series.value.tolist() == levels((20, 1.0), (20, 1.2))
    assert series.rounds is not None
    assert {len(each) for each in series.rounds} == {9}


def test_a_run_with_very_many_rounds_is_thinned(spark: SparkSession) -> None:
    many = np.arange(100_000, dtype=np.float64) + 1
    rows = [point(0, "a", 1.0, values=many.tolist()), point(1, "a", 1.0, values=[1.0, 2.0])]
    rows.append(point(2, "a", 1.0))
    points = spark.createDataFrame(pa.Table.from_pylist(rows, schema=POINTS))
    key = SeriesKey("bench_a.py", "a", "{}", "box")
    order = pa.array(sorted(row.run_id for row in points.select("run_id").collect()))
    rounds = FrameSource(points).histories([key], SETTINGS, order)[key].rounds
    assert rounds is not None
    assert [len(each) for each in rounds] == [table_analysis.MOST_ROUNDS, 2, 0]
    assert rounds[0].mean() == pytest.approx(many.mean(), rel=0.01)
    assert len(set(rounds[0].tolist())) == table_analysis.MOST_ROUNDS


def test_machines_are_as_their_newest_run_describes_them(points: DataFrame) -> None:
    machines = analyse(points, SETTINGS).machines
    assert machines is not None
    assert {name: json.loads(text)["seen"] for name, text in machines.items()} == {
        "box": RUNS - 1,
        "other box": RUNS - 1,
    }


def test_an_exponent_changes_although_no_size_does(spark: SparkSession) -> None:
    """Only the law over all sizes shows a change that grows with the size."""
    random = np.random.default_rng(5)
    sizes = (1_000, 10_000, 100_000, 1_000_000)
    rows = []
    for run in range(60):
        exponent = 1.0 if run < 30 else 1.006
        for size in sizes:
            value = 1e-6 * size**exponent * random.normal(1, 0.01)
            params = json.dumps({"partitions": size})
            rows.append(point(run, "grow", value, params=params))
    rows += [point(run, "alone", 1.0) for run in range(60)]
    points = spark.createDataFrame(pa.Table.from_pylist(rows, schema=POINTS))
    found = analyse(points, SETTINGS)
    (law,) = found.scaling
    assert (law.size_param, law.sizes) == ("partitions", tuple(map(float, sizes)))
    assert law.exponent == pytest.approx(1.006, abs=0.01)
    assert [each.index for each in law.change_points] == [30]
    assert analyse(points, SETTINGS, size_param="brokers").scaling == ()
    late = analyse(points, SETTINGS, since=at(31))
    assert [each.change_points for each in late.scaling] == [()]


def test_an_empty_selection_has_no_findings(points: DataFrame) -> None:
    found = analyse(points, SETTINGS, benchmark="no such thing")
    assert (found.series, found.scaling, found.machines, found.problems) == ((), (), {}, ())
