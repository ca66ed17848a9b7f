"""The README's commands from pytest-benchmark to a report page, each run as a process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="needs deltalake: pip install 'kraft[regress]'")
pytest.importorskip("plotly", reason="needs kraft[spark]: pip install 'kraft[spark]'")

# Only the work advances the clock, so that a busy machine does not change the results.
_CLOCK = """
from random import Random

_noise = Random(1)
_now_s = 0.0

def read():
    global _now_s
    _now_s += 1e-9
    return _now_s

def work(units):
    global _now_s
    _now_s += units * 1e-6 * _noise.uniform(1.0, 1.02)
"""
_SUITE = """
import clock
import pytest

@pytest.mark.parametrize("size", [10, 1000, 100_000])
def test_sum(benchmark, size):
    benchmark.pedantic(clock.work, (size * {times},), rounds=20, warmup_rounds=2)
"""


def ran(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    # pytest-benchmark measures nothing in a worker of pytest-xdist.
    environment = {name: os.environ[name] for name in os.environ if "PYTEST_XDIST" not in name}
    environment["PYTHONPATH"] = str(folder)
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def measured(folder: Path, name: str, *, times: int) -> None:
    """Run a suite whose work is repeated `times` times; pytest-benchmark writes the result."""
    (folder / "clock.py").write_text(_CLOCK)
    (folder / "test_sum.py").write_text(_SUITE.format(times=times))
    options = ["-q", "-p", "no:cacheprovider", "--benchmark-timer=clock.read"]
    options += [f"--benchmark-json={name}"]
    done = ran([sys.executable, "-m", "pytest", *options, "test_sum.py"], folder)
    assert done.returncode == 0, done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with two results of a suite; the second does three times the work."""
    measured(tmp_path, "main.json", times=1)
    measured(tmp_path, "branch.json", times=3)
    return tmp_path


def test_results_become_a_store_a_table_and_a_page(folder: Path) -> None:
    kraft = str(Path(sys.executable).with_name("kraft"))
    ingested = ran([kraft, "bench", "ingest", "main.json", "--store", "build/results"], folder)
    assert ingested.returncode == 0, ingested.stderr
    again = ran([kraft, "bench", "ingest", "*.json", "--store", "build/results"], folder)
    assert again.returncode == 0, again.stderr
    page = ["--html", "report.html"]
    looked = ran([kraft, "regress", "--store", "build/results", *page], folder)
    assert looked.returncode == 0, looked.stderr
    assert "3 series" in looked.stdout
    assert "too little data" in looked.stdout
    html = (folder / "report.html").read_text(encoding="utf-8")
    assert "test_sum" in html
    assert "<script src=" not in html


def test_a_slower_branch_fails_and_a_faster_one_does_not(folder: Path) -> None:
    kraft = str(Path(sys.executable).with_name("kraft"))
    compare = [kraft, "regress", "compare"]
    slower = ran([*compare, "main.json", "branch.json", "--threshold", "5%"], folder)
    assert slower.returncode == 1, slower.stderr
    assert "test_sum[size=100000]" in slower.stdout
    assert ran([*compare, "branch.json", "main.json"], folder).returncode == 0
    same = folder / "same.json"
    shutil.copy(folder / "main.json", same)
    assert ran([*compare, "main.json", "same.json"], folder).returncode == 0
    refused = ran([*compare, "main.json", "missing.json"], folder)
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: missing.json: ")
