"""Faults of the fleet itself and of what it sees are told apart; no process is left behind."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kraft.fleet import run
from kraft.fleet.fleet import FIRST_BROKER_ID, LONG_DELAY_MS, FleetSettings
from kraft.fleet.launch import FleetRequest, run_fleet
from kraft.fleet.scenario import parse_scenario
from kraft.image.nodes import BrokerRegistration
from kraft.metadata.facade import Metadata
from kraft.metadata.quorum_reader import read_metadata
from kraft.network.quorum_client import QuorumClient
from kraft.server.config.loading import ServerConfig
from kraft.server.local_quorum import LOOPBACK
from tests.harness.commands import KRAFT, PLAIN, eventually, heed_interrupts, is_gone, kraft

pytestmark = pytest.mark.nodes

SMALL = ("--brokers", "6", "--partitions", "60")


@contextmanager
def fleet_in_step(step: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run ``kraft lab fleet``; yield it once a step has begun."""
    command = [*KRAFT, "lab", "fleet", *map(str, arguments)]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=PLAIN,
        preexec_fn=heed_interrupts,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.strip() == f"step {step}":
                break
        yield process


def descendants(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            found += [child, *descendants(child)]
    return found


def worker_of(process: subprocess.Popen[str]) -> int:
    """Return a process of light brokers."""
    return next(
        pid
        for pid in descendants(process.pid)
        if b"kraft.fleet.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )


def brokers_of(out: Path) -> list[BrokerRegistration]:
    """Return the registrations of the brokers, by the controllers of the run in this directory."""
    configs = (out / "quorum").glob("controller-*/controller.properties")
    ports = [ServerConfig.load(path).controller_listeners[0].port for path in configs]
    with QuorumClient([(LOOPBACK, port) for port in ports]) as client:
        return list(read_metadata(client).cluster.state.brokers.values())


def written(path: Path, *steps: dict[str, Any]) -> Path:
    """Write a scenario of these steps after ``start``."""
    path.write_text(json.dumps({"name": "a", "steps": [{"do": "start"}, *steps]}))
    return path


@pytest.mark.timeout(400)
def test_ctrl_c_ends_every_process_of_a_run(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with fleet_in_step("steady", *SMALL, "--out", out) as process:
        children = descendants(process.pid)
        assert len(children) >= 4
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert "every process of the run has ended" in process.stderr.read()
        assert process.wait(60) == 130
    eventually(lambda: all(map(is_gone, children)))
    first = (out / "trace.jsonl").read_text().splitlines()[0]
    assert json.loads(first)["name"] == "step_started"


def test_a_killed_process_of_the_fleet_is_a_fault_of_the_fleet() -> None:
    with fleet_in_step("steady", *SMALL) as process:
        os.kill(worker_of(process), signal.SIGKILL)
        assert process.stderr is not None
        said = process.stderr.read()
        assert process.wait(60) == 1
    assert "process 0 of the fleet ended with exit code -9" in said
    assert "a fault of the fleet, not of the quorum" in said


def test_a_process_without_free_descriptors_is_a_fault_of_the_fleet(tmp_path: Path) -> None:
    steps = (
        {"do": "create_topics"},
        {"do": "steady", "seconds": 2.0, "markers": 1},
        {"do": "rolling_restart", "timeout_s": 120.0},
    )
    scenario = written(tmp_path / "few.json", *steps)
    with fleet_in_step("steady", *SMALL, "--scenario", scenario) as process:
        worker = worker_of(process)
        # Standard streams and the event loop have these numbers: no new connection gets one.
        resource.prlimit(worker, resource.RLIMIT_NOFILE, (4, 4))
        assert process.stderr is not None
        said = process.stderr.read()
        assert process.wait(60) == 1
    assert "process 0 of the fleet met a limit of this machine, not of the quorum" in said
    assert "Too many open files" in said


@pytest.mark.timeout(400)
def test_brokers_that_the_controllers_fenced_meanwhile_return_to_service(tmp_path: Path) -> None:
    """A process that had no CPU for longer than a session counts its brokers again afterwards."""
    steps = (
        {"do": "create_topics"},
        {"do": "steady", "seconds": 3.0, "markers": 1},
        {"do": "rolling_restart", "brokers": 1, "timeout_s": 120.0},
    )
    scenario, out = written(tmp_path / "paused.json", *steps), tmp_path / "run"
    options = ("--scenario", scenario, "--out", out, "--json")
    session = ("--setting", "broker.session.timeout.ms=3000")
    with fleet_in_step("steady", *SMALL, *options, *session) as process:
        worker = worker_of(process)
        os.kill(worker, signal.SIGSTOP)
        eventually(lambda: all(each.fenced for each in brokers_of(out)))
        os.kill(worker, signal.SIGCONT)
        said, failed = process.communicate()
    assert process.returncode == 0, failed
    report = json.loads(said)
    assert report["check"]["problems"] == []
    # The fleet says that it was the one that was late. The last heartbeat may be 2 s older than the
    # pause, which ends with the session of 3 s.
    assert report["fleetDelayMs"] > LONG_DELAY_MS
    lines = [json.loads(line) for line in (out / "trace.jsonl").read_text().splitlines()]
    counts = Counter((line["name"], line["broker"]) for line in lines)
    # A broker may be fenced and unfenced within one part of the metadata: then neither is seen.
    for id in range(1001, 1007):
        assert counts["broker_unfenced", id] > counts["broker_fenced", id]


@pytest.mark.timeout(400)
def test_a_process_whose_brokers_are_all_lost_is_not_waited_for(tmp_path: Path) -> None:
    """It receives no metadata: neither the end of a step nor the check may depend on it."""
    steps = (
        {"do": "create_topics", "partitions": 30, "replication_factor": 2},
        {"do": "lose", "rack": "rack-1", "timeout_s": 120.0},
        {"do": "create_topics", "partitions": 60, "replication_factor": 2},
        {"do": "steady", "seconds": 1.0, "markers": 2},
        {"do": "come_back", "timeout_s": 120.0},
        {"do": "lose", "rack": "rack-2", "timeout_s": 120.0},
        {"do": "reassign", "partitions": 5},
    )
    scenario = written(tmp_path / "alone.json", *steps)
    size = ("--brokers", 3, "--processes", 3, "--scenario", scenario)
    session = ("--setting", "broker.session.timeout.ms=3000")
    ran = kraft("lab", "fleet", *size, *session, "--json", timeout_s=300)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["check"] == {
        "offset": json.loads(ran.stdout)["check"]["offset"],
        "brokers": 2,
        "partitions": 61,
        "problems": [],
    }


@pytest.mark.timeout(400)
def test_a_state_that_differs_from_the_controllers_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The check reads the controllers with one change that no broker has received."""

    def read_changed(client: QuorumClient) -> Metadata:
        metadata = read_metadata(client)
        metadata.apply(metadata.fence_broker(FIRST_BROKER_ID))
        return metadata

    monkeypatch.setattr(run, "read_metadata", read_changed)
    monkeypatch.setattr(run, "_DIGEST_ATTEMPTS", 2)
    scenario = parse_scenario(
        {"name": "a", "steps": [{"do": "start"}, {"do": "create_topics"}]}, "a"
    )
    report = run_fleet(FleetRequest(FleetSettings(3), 30, scenario, controllers=1))
    table, offsets = report.conservation.problems
    assert table.startswith("process 0 has another table at offset")
    assert offsets.startswith("3 brokers have not applied offset")
