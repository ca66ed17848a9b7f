"""Two writers of a store of benchmark results, or of its verdicts, killed at their steps.

`make disk-proof` does the same in 300 rounds, 200 in an object store.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from subprocess import Popen

import pytest

pytest.importorskip("deltalake", reason="needs deltalake: pip install 'kraft[regress]'")
pytest.importorskip("duckdb", reason="needs DuckDB: pip install duckdb")
pytest.importorskip("polars", reason="needs Polars: pip install polars")

from kraft.regression.store import list_runs
from tests.durability.recording import compile_recorder, missing_for_recordings
from tests.durability.results_store_proof import SOURCE, preloaded, run

#: A file system without locks.
NO_LOCKS = Path(__file__).with_name("no_locks.c")
#: Checks that the library is there, and ingests its arguments.
INGEST = """
import fcntl, os, sys
from kraft.regression.ingest import ingest
try:
    fcntl.flock(0, fcntl.LOCK_EX)
except OSError as error:
    print(os.strerror(error.errno))
print(ingest(sys.argv[2:], sys.argv[1]).runs_added)
"""


def without_locks(library: Path, store: Path, files: list[str], **more: str) -> Popen[str]:
    """Start an ingest on a file system without locks."""
    return Popen(
        [sys.executable, "-c", INGEST, str(store), *files],
        env={**os.environ, "LD_PRELOAD": str(library), **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


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


def test_writers_on_a_file_system_without_locks_lose_nothing(tmp_path: Path, place: Path) -> None:
    reason = missing_for_recordings()
    if reason is not None:
        pytest.skip(reason)
    library = compile_recorder(tmp_path, NO_LOCKS)
    files = [run(place / "runs", number) for number in range(9)]
    store = place / "store"
    writers = [without_locks(library, store, files[3 * at : 3 * at + 6]) for at in range(2)]
    printed = [writer.communicate(timeout=300) for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0], printed
    assert all("No locks available" in out for out, _ in printed)
    added = sum(int(out.split()[-1]) for out, _ in printed)
    assert (added, len(list_runs(store))) == (9, 9)


def test_a_file_system_without_hard_links_is_rejected_with_a_reason(
    tmp_path: Path, place: Path
) -> None:
    reason = missing_for_recordings()
    if reason is not None:
        pytest.skip(reason)
    library = compile_recorder(tmp_path, NO_LOCKS)
    store = place / "store"
    writer = without_locks(library, store, [run(place / "runs", 0)], NO_LINKS="1")
    _, errors = writer.communicate(timeout=300)
    assert writer.returncode == 1
    assert "StorageError" in errors
    assert "this file system has no hard links, by which one of two writers wins" in errors
    assert not list(store.glob("*.parquet"))


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
