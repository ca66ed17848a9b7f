"""``kraft sweep fleet``: what is rejected before anything starts, progress, exit codes."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kraft.cli.exit_codes import FAILED, INTERRUPTED, OK, REFUSED
from kraft.fleet.scaling_report import points_of, scaling_of
from kraft.fleet.sweep_directory import SweepDirectory
from kraft.fleet.sweep_grid import SweptRun
from kraft.fleet.swept_run import SweptRunOutcome, SweptRunResult
from kraft.fleet.traces import read_run
from tests.harness.fleet_runs import Planted, write_run
from tests.unit.cli.conftest import Run

pytest.importorskip("plotly", reason="needs kraft[report]: pip install 'kraft[report]'")
pytest.importorskip("pyspark", reason="needs PySpark: pip install 'kraft[spark]'")

SIZES = ("--brokers", "10,20,40", "--partitions", "1000", "--seeds", "0,1")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--brokers", "3,x"), "'x' is no number of brokers"),
        (("--partitions", "1000,1000"), "a number of partitions is named twice"),
        (("--brokers", "2"), "2 brokers cannot fill 3 racks"),
        (("--brokers", "3,100000"), "100000 brokers and 1000 partitions do not fit"),
        (("--scenario", "none"), "there is no scenario 'none'"),
        (("--scenario", "controller-loss", "--controllers", 1), "at least 3 are needed"),
        (("--quorum", "kafka", "--kafka-home", "/"), "no release of Apache Kafka"),
        (("--heap", "big"), "the heap is 'big'"),
    ],
)
def test_what_cannot_be_is_rejected_before_anything_starts(
    kraft: Run, tmp_path: Path, arguments: tuple[object, ...], reason: str
) -> None:
    ran = kraft("sweep", "fleet", "--out", tmp_path / "sweep", "--partitions", 1000, *arguments)
    assert (ran.code, reason in ran.err) == (REFUSED, True), ran.err
    assert not (tmp_path / "sweep").exists()


def test_a_missing_package_is_named_before_anything_starts(
    kraft: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    ran = kraft("sweep", "fleet", "--out", tmp_path / "sweep", *SIZES)
    assert ran.code == REFUSED
    assert "pip install 'kraft[report]'" in ran.err
    assert not (tmp_path / "sweep").exists()


@pytest.fixture
def carried_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., list[SweptRun]]:
    """Let runs end with generated files without Spark; return the list of those that were begun.

    Runs of ``failing`` brokers fail; after ``interrupted_after`` runs comes Ctrl-C.
    """
    import kraft.spark.fleet_sweep as on_spark
    import kraft.spark.session as sessions

    @contextmanager
    def no_session(**options: Any) -> Iterator[None]:
        assert options["master"] == "local[*]"
        yield

    def laws(session: None, directory: SweepDirectory) -> Any:
        runs = [directory.run_directory(name) for name in sorted(directory.finished())]
        return scaling_of(runs), [point for run in runs for point in points_of(read_run(run))]

    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(sessions, "spark_session", no_session)
    monkeypatch.setattr(on_spark, "laws_of_sweep", laws)

    def plan(failing: int = 0, interrupted_after: int | None = None) -> list[SweptRun]:
        begun: list[SweptRun] = []

        def carry_out(
            session: None, runs: list[SweptRun], settings: Any, on_end: Any, on_wait: Any, **_: Any
        ) -> None:
            for run in runs:
                if len(begun) == interrupted_after:
                    raise KeyboardInterrupt
                begun.append(run)
                on_wait(run)
                if run.brokers == failing:
                    on_end(SweptRunResult(run, SweptRunOutcome.TIMED_OUT, "it took too long"))
                    continue
                files = write_run(
                    tmp_path / "fresh" / run.name,
                    brokers=run.brokers,
                    partitions=run.partitions,
                    seed=run.seed,
                    planted=Planted(applied_exponent=0.8),
                )
                found = {path.name: path.read_bytes() for path in files.iterdir()}
                on_end(SweptRunResult(run, SweptRunOutcome.FINISHED, seconds=12.4, files=found))

        monkeypatch.setattr(on_spark, "carry_out_runs", carry_out)
        return begun

    return plan


def test_laws_are_printed_and_written(
    kraft: Run, tmp_path: Path, carried_out: Callable[..., list[SweptRun]]
) -> None:
    carried_out()
    out = tmp_path / "sweep"
    ran = kraft("sweep", "fleet", "--out", out, *SIZES, "--step", "(run)", "--measure", "applied")
    assert ran.code == OK, ran.err
    assert ran.err.splitlines()[:2] == [
        "waiting: other runs of a sweep use this machine",
        "run 1 of 6: kraft, 10 brokers, 1,000 partitions, seed 0: finished in 12 s",
    ]
    assert ran.err.count("waiting:") == 1
    assert ran.err.splitlines()[-1] == f"note: wrote {out / 'scaling.html'}"
    assert ran.lines[0] == "Scaling laws of 6 runs"
    rows = [line.split() for line in ran.lines[2:]]
    assert [row[3:6] for row in rows] == [
        ["applied", "p50", "brokers"],
        ["applied", "p99", "brokers"],
        ["applied", "worst", "brokers"],
    ]
    assert float(rows[0][6]) == pytest.approx(0.8, abs=0.1)
    # The files have all measures.
    laws = json.loads((out / "laws.json").read_text())
    assert laws["runs"] == 6
    assert len(laws["laws"]) > 50
    assert "Sweep of the fleet" in (out / "scaling.html").read_text(encoding="utf-8")
    entries = json.loads((out / "benchmark.json").read_text())["benchmarks"]
    assert {each["params"]["brokers"] for each in entries} == {10, 20, 40}
    again = kraft("sweep", "fleet", "--out", out, *SIZES, "--json")
    assert again.json["sweep"]["finishedBefore"] == 6
    assert again.json["sweep"]["finished"] == []
    assert again.json["laws"] == laws["laws"]


def test_failed_runs_have_an_exit_code_and_are_carried_out_again(
    kraft: Run, tmp_path: Path, carried_out: Callable[..., list[SweptRun]]
) -> None:
    carried_out(failing=20)
    out = tmp_path / "sweep"
    ran = kraft("sweep", "fleet", "--out", out, *SIZES, "--json")
    assert ran.code == FAILED
    assert [each["run"] for each in ran.json["sweep"]["failed"]] == [
        "kraft-b20-p1000-s0",
        "kraft-b20-p1000-s1",
    ]
    assert ran.json["sweep"]["failed"][0]["outcome"] == "timed out"
    assert len(ran.json["sweep"]["finished"]) == ran.json["runs"] == 4
    place = out / "failed" / "kraft-b20-p1000-s1"
    line = f"error: kraft, 20 brokers, 1,000 partitions, seed 1: it took too long ({place})"
    assert line in ran.err.splitlines()
    begun = carried_out()
    # More sizes may be asked for as well.
    again = kraft("sweep", "fleet", "--out", out, "--brokers", "10,20,40,80", *SIZES[2:], "--json")
    assert (again.code, again.json["runs"]) == (OK, 8)
    assert "4 of 8 runs have finished before" in again.err
    assert [run.brokers for run in begun] == [20, 80, 20, 80]
    assert list((out / "failed").iterdir()) == []


def test_ctrl_c_keeps_the_finished_runs(
    kraft: Run, tmp_path: Path, carried_out: Callable[..., list[SweptRun]]
) -> None:
    carried_out(interrupted_after=2)
    out = tmp_path / "sweep"
    ran = kraft("sweep", "fleet", "--out", out, *SIZES)
    assert ran.code == INTERRUPTED
    assert "interrupted: 4 runs are left, the same command goes on with them\n" in ran.err
    begun = carried_out()
    assert kraft("sweep", "fleet", "--out", out, *SIZES).code == OK
    assert len(begun) == 4


def test_the_directory_of_another_sweep_is_rejected(
    kraft: Run, tmp_path: Path, carried_out: Callable[..., list[SweptRun]]
) -> None:
    carried_out()
    out = tmp_path / "sweep"
    assert kraft("sweep", "fleet", "--out", out, *SIZES).code == OK
    begun = carried_out()
    ran = kraft("sweep", "fleet", "--out", out, *SIZES, "--scenario", "start")
    assert (ran.code, begun) == (REFUSED, [])
    assert "holds a sweep with another scenario" in ran.err
