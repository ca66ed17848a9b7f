"""The measurement of many points: its store, and what it counts of processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="needs deltalake: pip install 'kraft[regress]'")

from benchmarks.regress_scale import Usage, build
from kraft.regression.analysis import analyse_store
from kraft.regression.settings import AnalysisSettings
from kraft.regression.store import list_runs, open_store


def test_the_store_has_its_points_and_every_step_is_found(tmp_path: Path) -> None:
    steps = build(tmp_path / "store", runs=60, benchmarks=20)
    assert open_store(tmp_path / "store").points == 1200
    assert [run.source for run in list_runs(tmp_path / "store")][-1] == "/data/runs/000059.json"
    changed = [
        f"{each.key.suite} {each.key.benchmark} {each.key.params}"
        for each in analyse_store(tmp_path / "store", AnalysisSettings()).series
        if each.change_points
    ]
    assert sorted(changed) == sorted(steps)
    assert len(steps) == 2


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_processes_of_a_command_are_counted_by_role() -> None:
    burn = "import sys, time\nwhile time.process_time() < 0.5: pass\nprint(1, flush=True)"
    worker = [sys.executable, "-c", f"{burn}\nsys.stdin.read()"]
    program = f"import subprocess\nwith subprocess.Popen({worker!r}) as child:\n  pass"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        usage = Usage()
        usage.sample(process.pid)
        usage.sample(process.pid)  # replaces the first
        process.stdin.close()
    assert 0.4 <= usage.cpu_of("worker") < 5
    assert usage.peak_mib.keys() == {"driver", "worker"}
    assert 4 < usage.peak_mib["worker"] < 500
