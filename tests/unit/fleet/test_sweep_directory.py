"""The directory of a sweep: finished and failed runs, another sweep's directory, its lock."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kraft.errors import InvalidRequestError, StorageError
from kraft.fleet.library import named_scenario
from kraft.fleet.sweep_directory import SWEEP_FILE, SweepDirectory
from kraft.fleet.sweep_grid import SweepSettings, grid
from kraft.fleet.swept_run import ERROR_FILE, SweptRunOutcome, SweptRunResult

SETTINGS = SweepSettings(named_scenario("idle"), quorum_settings={"a": "b"})
RUNS = grid("3,6", "10", "0", "kraft")


def test_finished_runs_are_known_to_the_next_start_and_failed_ones_are_left(
    tmp_path: Path,
) -> None:
    out = tmp_path / "sweep"
    with SweepDirectory(out, SETTINGS) as directory:
        assert directory.left(RUNS) == RUNS
        files = {"run.json": b"1", "trace.jsonl": b"2"}
        directory.keep(SweptRunResult(RUNS[0], SweptRunOutcome.FINISHED, files=files))
        directory.keep(
            SweptRunResult(RUNS[1], SweptRunOutcome.TIMED_OUT, "late", files={ERROR_FILE: b"late"})
        )
        # As a process that is killed while it writes the files of a run.
        (out / "incomplete").mkdir()
        (out / "incomplete" / "run.json").write_text("half")
    with SweepDirectory(out, SETTINGS) as directory:
        assert directory.finished() == {RUNS[0].name}
        assert directory.left(RUNS) == [RUNS[1]]
        assert (directory.run_directory(RUNS[0].name) / "trace.jsonl").read_bytes() == b"2"
        failed = directory.failed_directory(RUNS[1].name)
        assert (failed / ERROR_FILE).read_text() == "late"
        directory.keep(SweptRunResult(RUNS[1], SweptRunOutcome.FINISHED, files=files))
        assert not failed.exists()
        assert directory.left(RUNS) == []
        assert not (out / "incomplete").exists()


def test_a_sweep_goes_on_with_equal_settings_only(tmp_path: Path) -> None:
    SweepDirectory(tmp_path / "sweep", SETTINGS).close()
    other = replace(SETTINGS, racks=2, quorum_settings={})
    with pytest.raises(InvalidRequestError, match="a sweep with another racks and settings: give"):
        SweepDirectory(tmp_path / "sweep", other)
    # What does not change the measures may differ.
    SweepDirectory(tmp_path / "sweep", replace(SETTINGS, time_limit_s=5.0)).close()
    document = json.loads((tmp_path / "sweep" / SWEEP_FILE).read_text())
    document["kraft_version"] = "0.0.1"
    (tmp_path / "sweep" / SWEEP_FILE).write_text(json.dumps(document))
    with pytest.raises(InvalidRequestError, match="another kraft_version"):
        SweepDirectory(tmp_path / "sweep", SETTINGS)


def test_only_one_process_writes_to_a_sweep(tmp_path: Path) -> None:
    with (
        SweepDirectory(tmp_path / "sweep", SETTINGS),
        pytest.raises(StorageError, match="in use by another sweep"),
    ):
        SweepDirectory(tmp_path / "sweep", SETTINGS)


def test_directories_with_other_files_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidRequestError, match="is not empty and holds no sweep"):
        SweepDirectory(tmp_path, SETTINGS)
    with pytest.raises(StorageError, match="cannot use"):
        SweepDirectory(tmp_path / "file", SETTINGS)
    torn = tmp_path / "torn"
    torn.mkdir()
    (torn / SWEEP_FILE).write_text("{")
    with pytest.raises(StorageError, match=r"sweep\.json: not JSON"):
        SweepDirectory(torn, SETTINGS)
