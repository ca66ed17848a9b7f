"""Sweeps of the fleet on Spark with generated runs: resumed, cancelled, and their laws."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kraft.fleet.library import named_scenario
from kraft.fleet.run_slot import take_slot
from kraft.fleet.scaling_report import points_of, scaling_of
from kraft.fleet.sweep_directory import SweepDirectory
from kraft.fleet.sweep_grid import SweepSettings, grid
from kraft.fleet.swept_run import ERROR_FILE, SweptRunOutcome, SweptRunResult
from kraft.fleet.traces import read_run, run_directories
from kraft.spark.fleet_sweep import carry_out_runs, laws_of_sweep, write_tables
from tests.harness.commands import eventually, is_gone
from tests.harness.recorded_fleet import PID_FILE, RECORDED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = SweepSettings(named_scenario("rack-loss"))


def with_fate(**fate: object) -> SweepSettings:
    """Return the settings of runs with this fate; see `tests.harness.recorded_fleet`."""
    named = {name.replace("_", "."): str(value) for name, value in fate.items()}
    return replace(SETTINGS, quorum_settings=named)


def test_a_second_start_goes_on_with_the_rest(spark: SparkSession, tmp_path: Path) -> None:
    runs = grid("10,20,40", "1000", "0,1", "kraft")
    ended: list[SweptRunResult] = []
    with SweepDirectory(tmp_path / "sweep", SETTINGS) as directory:

        def keep(result: SweptRunResult) -> None:
            ended.append(result)
            directory.keep(result)

        def carry_out(settings: SweepSettings) -> None:
            ended.clear()
            left = directory.left(runs)
            carry_out_runs(
                spark, left, settings, keep, work=tmp_path, runs_at_once=2, program=RECORDED
            )

        carry_out(with_fate(fail_brokers=20))
        assert {each.run for each in ended} == set(runs)
        failed = {each.run for each in ended if each.outcome is SweptRunOutcome.FAILED}
        assert failed == {run for run in runs if run.brokers == 20}
        assert set(directory.left(runs)) == failed
        for run in failed:
            said = (directory.failed_directory(run.name) / ERROR_FILE).read_text()
            assert "6 brokers do not fit on this machine" in said

        carry_out(SETTINGS)
        assert {each.run for each in ended} == failed
        assert directory.left(runs) == []

        # As a sweep that was killed between a run's files and its tables.
        for run in runs[1:]:
            write_tables(directory, run.name)
        report, points = laws_of_sweep(spark, directory)
        folder = directory.path
    directories = run_directories([folder / "runs"])
    here = scaling_of(directories)
    assert (report.runs, report.interrupted, report.problems) == (6, (), ())
    assert report.refusals == here.refusals
    assert [(law.title, law.against) for law in report.laws] == [
        (law.title, law.against) for law in here.laws
    ]
    assert [law.exponent for law in report.laws] == pytest.approx(
        [law.exponent for law in here.laws]
    )
    assert any(law.exponent > 0.9 for law in report.laws)
    recorded = [read_run(path) for path in directories]
    assert sorted(points) == sorted(point for run in recorded for point in points_of(run))
    events = spark.read.parquet(str(folder / "tables" / "events"))
    assert events.count() == sum(len(run.trace) for run in recorded)
    assert events.where("name = 'decided' and brokers = 20").count() == 2
    kept = spark.read.parquet(str(folder / "tables" / "runs")).select("directory").collect()
    assert {row.directory for row in kept} == set(map(str, directories))


def test_cancelled_runs_have_ended_when_the_sweep_has(spark: SparkSession, tmp_path: Path) -> None:
    settings = with_fate(hang_brokers=6, pid_directory=tmp_path)
    runs = grid("3,6", "100", "0", "kraft")

    def interrupt(result: SweptRunResult) -> None:
        assert result.run.brokers == 3
        eventually((tmp_path / PID_FILE).exists)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as raised:
        carry_out_runs(
            spark, runs, settings, interrupt, work=tmp_path, runs_at_once=2, program=RECORDED
        )
    assert getattr(raised.value, "__notes__", []) == []
    assert is_gone(int((tmp_path / PID_FILE).read_text()))
    slots = [take_slot(tmp_path, 2, "b"), take_slot(tmp_path, 2, "b")]
    for slot in slots:
        assert slot is not None
        slot.release()
    # The session is of use afterwards.
    assert spark.range(3).count() == 3


def test_an_executor_that_cannot_start_a_run_says_why(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended: list[SweptRunResult] = []
    runs = grid("3", "100", "0", "kraft")
    carry_out_runs(spark, runs, SETTINGS, ended.append, work=tmp_path / "file", program=RECORDED)
    assert [each.outcome for each in ended] == [SweptRunOutcome.FAILED]
    assert ended[0].reason.startswith("Spark gave up: kraft.errors.StorageError: cannot use ")
    assert b"Traceback" in ended[0].files[ERROR_FILE]


def test_no_runs_and_no_laws(spark: SparkSession, tmp_path: Path) -> None:
    carry_out_runs(spark, [], SETTINGS, pytest.fail)
    with SweepDirectory(tmp_path / "sweep", SETTINGS) as directory:
        report, points = laws_of_sweep(spark, directory)
    assert (report.runs, report.laws, report.refusals, points) == (0, (), (), [])
