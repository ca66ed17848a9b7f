"""Two writers of a store of benchmark results, or of its verdicts, killed at their steps.

`make disk-proof` does the same in 300 rounds, 200 in an object store.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="needs deltalake: pip install 'kraft[regress]'")
pytest.importorskip("duckdb", reason="needs DuckDB: pip install duckdb")
pytest.importorskip("polars", reason="needs Polars: pip install polars")

from tests.durability.recording import compile_recorder, missing_for_recordings
from tests.durability.results_store_proof import SOURCE, preloaded


def test_no_run_is_lost_or_stored_twice(tmp_path: Path, place: Path) -> None:
    reason = missing_for_recordings()
    if reason is not None:
        pytest.skip(reason)
    ran = preloaded(compile_recorder(tmp_path, SOURCE), place, rounds=24, seed=1)
    assert ran.returncode == 0, ran.stdout
    found = re.search(
        r"24 rounds, (\d+) kills at (\d+) steps, 72 runs: all stored once", ran.stdout
    )
    assert found is not None, ran.stdout
    kills, steps = int(found[1]), int(found[2])
    assert kills >= 15
    assert steps > 50


def test_no_verdict_is_lost_or_stored_twice(tmp_path: Path, place: Path) -> None:
    reason = missing_for_recordings()
    if reason is not None:
        pytest.skip(reason)
    library = compile_recorder(tmp_path, SOURCE)
    module = "tests.durability.verdict_ledger_proof"
    ran = preloaded(library, place, rounds=24, seed=1, module=module)
    assert ran.returncode == 0, ran.stdout
    found = re.search(
        r"24 rounds, (\d+) kills at (\d+) steps, (\d+) of 48 commands: each once and whole",
        ran.stdout,
    )
    assert found is not None, ran.stdout
    kills, steps, kept = (int(each) for each in found.groups())
    assert kills >= 10
    assert steps > 50
    assert kept >= 48 - kills


def test_no_run_is_lost_or_stored_twice_in_an_object_store(tmp_path: Path) -> None:
    pytest.importorskip("moto", reason="needs moto: pip install 'moto[s3]'")
    pytest.importorskip("flask_cors", reason="moto's server needs flask and flask-cors")
    # A process of its own: the runtime of deltalake does not survive a fork once it was used.
    command = [sys.executable, "-m", "tests.durability.object_store_proof", "--rounds", "6"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert ran.returncode == 0, ran.stderr
    found = re.fullmatch(
        r"6 rounds, (\d+) kills at (\d+) steps, 18 runs: all stored once\n", ran.stdout
    )
    assert found is not None, ran.stdout
    assert int(found[1]) >= 4
    assert int(found[2]) >= 8
