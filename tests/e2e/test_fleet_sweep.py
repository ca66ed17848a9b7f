"""``kraft sweep fleet`` as a user runs it: interrupted, and started again with more sizes."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from kraft.cli.exit_codes import INTERRUPTED
from kraft.errors import MissingJavaError
from kraft.fleet.traces import read_run
from kraft.regression.results import read_run as read_results
from tests.harness.commands import Foreground, eventually, kraft

pytest.importorskip("pyspark", reason="needs PySpark: pip install 'kraft[spark]'")
pytest.importorskip("plotly", reason="needs kraft[report]: pip install 'kraft[report]'")

from kraft.java import find_java

SCENARIO = {
    "name": "brief",
    "steps": [
        {"do": "start", "spread_s": 0.0},
        {"do": "create_topics"},
        {"do": "steady", "seconds": 5.0, "markers": 2},
    ],
}


def commands_with(words: str) -> list[str]:
    """Return the command of each process whose command line has these words."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it has ended
        if words in line:
            found.append(line)
    return found


def in_session(leader: int) -> list[str]:
    """Return the names of the processes of a session that are not zombies."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = path.read_text().rpartition(")")
        except OSError:
            continue
        fields = rest.split()
        if int(fields[3]) == leader and fields[0] not in "ZX":
            found.append(name)
    return found


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_an_interrupted_sweep_leaves_no_process_and_goes_on(tmp_path: Path) -> None:
    try:
        find_java()
    except MissingJavaError as error:
        pytest.skip(f"needs Java 17 or newer: {error}")
    scenario, out, work = tmp_path / "brief.json", tmp_path / "sweep", tmp_path / "work"
    scenario.write_text(json.dumps(SCENARIO))
    command = (
        *("sweep", "fleet", "--brokers", "3,6", "--controllers", 1, "--scenario", scenario),
        *("--out", out, "--work-dir", work),
    )
    with Foreground((*command, "--partitions", "100,300"), tmp_path / "output") as sweep:
        pid = sweep.process.pid
        first = out / "runs" / "kraft-b3-p100-s0"

        def is_in_second_run() -> bool:
            # The command of the run, a controller, and a process of light brokers.
            return len(commands_with(f"{work}/kraft-sweep-")) >= 3

        # Spark starts and a whole run ends before the first; each has its own patience.
        eventually(first.exists)
        eventually(is_in_second_run)
        assert sweep.end(signal.SIGINT) == INTERRUPTED, sweep.text
    assert commands_with(f"{work}/kraft-sweep-") == []
    eventually(lambda: in_session(pid), until=lambda found: not found)
    assert "interrupted: 3 runs are left, the same command goes on with them" in sweep.text
    assert [path.name for path in (out / "runs").iterdir()] == ["kraft-b3-p100-s0"]
    assert not (out / "failed").exists()

    ran = kraft(*command, "--partitions", "100,300", "--json", timeout_s=300)
    assert ran.returncode == 0, ran.stderr
    document = json.loads(ran.stdout)
    assert document["sweep"]["finishedBefore"] == 1
    assert [each["run"] for each in document["sweep"]["finished"]] == [
        "kraft-b6-p100-s0",
        "kraft-b3-p300-s0",
        "kraft-b6-p300-s0",
    ]
    assert document["runs"] == 4
    assert {each["reason"] for each in document["refused"]} >= {
        "2 sizes of brokers at equal partitions, 3 are needed",
        "2 sizes of partitions at equal brokers, 3 are needed",
    }
    for brokers in (3, 6):
        for partitions in (100, 300):
            place = out / "runs" / f"kraft-b{brokers}-p{partitions}-s0"
            info = read_run(place).info
            assert (info.brokers, info.partitions, info.controllers) == (brokers, partitions, 1)
            assert info.scenario == "brief"
            check = json.loads((place / "report.json").read_text())["check"]
            # The marker's topic has one partition.
            assert (check["problems"], check["partitions"]) == ([], partitions + 1)
    results = read_results((out / "benchmark.json").read_bytes(), "benchmark.json")
    assert results.problems == ()
    assert {"(run)_controller_rss_worst", "steady_applied_p50"} <= set(results.benchmark)
    assert len(list((out / "tables" / "events").glob("*.parquet"))) == 4
