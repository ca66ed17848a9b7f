"""``kraft lab million`` as a command: its output, exit codes and files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.harness.commands import PATIENCE_S, heed_interrupts

COMMAND = [sys.executable, "-c", "from kraft.cli import main; main()", "lab", "million"]
SMALL = ["--partitions", "5000", "--brokers", "12"]


@pytest.fixture
def temporary_place(tmp_path: Path) -> Path:
    place = tmp_path / "temporary"
    place.mkdir()
    return place


def run(place: Path, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        env={**os.environ, "TMPDIR": str(place)},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_json_has_the_seed_every_stage_and_the_checks(temporary_place: Path) -> None:
    ended = run(temporary_place, *SMALL, "--json")
    assert (ended.returncode, ended.stderr) == (0, "")
    document = json.loads(ended.stdout)
    assert set(document) == {
        "seed",
        "settings",
        "stages",
        "checks",
        "equal",
        "peakResidentBytes",
        "seconds",
        "directory",
    }
    assert document["equal"] is True
    assert document["directory"] is None
    assert document["settings"]["partitions"] == 5000
    assert document["settings"]["replicationFactor"] == 3
    assert document["seed"]["quorum"]["voters"]
    assert document["seed"]["records"]["log"]["byType"]["Partition"] > 0
    for stage in document["stages"]:
        assert set(stage) == {
            "stage",
            "count",
            "unit",
            "records",
            "seconds",
            "perSecond",
            "parts",
            "bytesWritten",
            "residentBytes",
            "bytesAPartition",
        }
    by_name = {stage["stage"]: stage for stage in document["stages"]}
    assert set(by_name["create"]["parts"]) == {"decide", "apply", "append"}
    for check in document["checks"]:
        assert check["equal"] is True
        assert check["firstDifference"] is None
        assert "isr" in check["columns"]
    assert list(temporary_place.iterdir()) == []


def test_the_text_has_the_seed_the_table_and_the_verdict(temporary_place: Path) -> None:
    ended = run(temporary_place, *SMALL, "--keep")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("Cluster\n")
    assert "5,000 partitions, replication factor 3, 12 brokers in 3 racks" in ended.stdout
    assert "STAGE" in ended.stdout
    assert ended.stdout.count("equal, loaded from") == 2
    (kept,) = temporary_place.iterdir()
    assert f"kept in  {kept}" in ended.stdout
    assert (kept / "__cluster_metadata-0").is_dir()
    assert not (kept / "dropped").exists()


def test_without_a_seed_the_error_says_how_to_name_one(temporary_place: Path) -> None:
    ended = run(temporary_place, *SMALL, "--from", str(temporary_place / "nowhere"))
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: no such file or directory")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--partitions", "10000001"], 2, "--partitions"),
        (["--brokers", "2"], 1, "cannot fill 3 racks"),
        (["--brokers", "0"], 2, "--brokers"),
        (["--partitions", "9"], 1, "grown from this seed"),
        (["--dir", str(Path(__file__).parent)], 1, "is not empty"),
    ],
)
def test_invalid_options_are_one_line_errors(
    arguments: list[str], code: int, words: str, temporary_place: Path
) -> None:
    ended = run(temporary_place, *arguments)
    assert ended.returncode == code
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr
    assert list(temporary_place.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_prints_one_line_and_leaves_no_files(
    number: signal.Signals, temporary_place: Path
) -> None:
    process = subprocess.Popen(
        [*COMMAND, "--partitions", "10000000", "--json"],
        env={**os.environ, "TMPDIR": str(temporary_place)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    )
    try:
        give_up = time.monotonic() + 4 * PATIENCE_S
        while not any(log.stat().st_size > 1 << 20 for log in temporary_place.rglob("*.log")):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < give_up
            time.sleep(0.01)
        process.send_signal(number)
        out, err = process.communicate(timeout=2 * PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert out == ""
    assert err == "interrupted: no files are left\n"
    assert list(temporary_place.iterdir()) == []


def test_a_trace_is_written_and_summarised(tmp_path: Path, temporary_place: Path) -> None:
    path = tmp_path / "million.trace"
    ended = run(temporary_place, *SMALL, "--trace", str(path), "--json")
    assert (ended.returncode, ended.stderr) == (0, "")
    summed_up = summary(path, "--json")
    assert (summed_up.returncode, summed_up.stderr) == (0, "")
    document = json.loads(summed_up.stdout)
    (shown,) = document["runs"]
    assert shown["scenario"] == "lab million"
    assert shown["settings"] == json.loads(ended.stdout)["settings"]
    append = next(kind for kind in document["kinds"] if kind["what"] == "append")
    assert 0 < append["p50Seconds"] <= append["p99Seconds"] <= append["worstSeconds"]
    # A second run does not overwrite it.
    again = run(temporary_place, *SMALL, "--trace", str(path))
    assert again.returncode == 1
    assert "already exists" in again.stderr
    # A truncated trace is still read, and the exit code reports it.
    data = path.read_bytes()
    path.write_bytes(data[:-5])
    torn = summary(path)
    assert torn.returncode == 3
    assert torn.stdout.startswith("lab million, run ")
    assert "note: torn: " in torn.stderr
    path.write_bytes(b"nonsense")
    refused = summary(path)
    assert refused.returncode == 1
    assert refused.stderr.startswith("error: not a trace: ")


def summary(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND[:-1], "trace", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
