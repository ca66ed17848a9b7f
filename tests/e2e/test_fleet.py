"""``kraft fleet`` and ``kraft lab fleet`` as a user runs them: a lost rack, every step, errors."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kraft import open_metadata
from kraft.admin.settings import read_admin_settings
from kraft.fleet.fleet import FleetFaultError, FleetSettings
from kraft.fleet.launch import FleetRequest, run_fleet
from kraft.fleet.own_quorum import OwnQuorum
from kraft.fleet.scenario import parse_scenario
from kraft.fleet.traces import read_run
from kraft.metadata.quorum_reader import read_metadata
from kraft.network.quorum_client import QuorumClient
from kraft.records import BrokerRegistrationChange, PartitionChange, RegisterBroker
from kraft.regression.results import read_run as read_results
from tests.harness.commands import eventually, kraft

BROKERS, PARTITIONS = 50, 5000
SIZE = ("--brokers", BROKERS, "--partitions", PARTITIONS, "--processes", 2)


def trace_of(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "trace.jsonl").read_text().splitlines()]


@pytest.mark.timeout(400)
def test_a_fleet_loses_a_rack_and_gets_it_back(tmp_path: Path) -> None:
    out = tmp_path / "run"
    ran = kraft(
        "lab", "fleet", *SIZE, "--scenario", "rack-loss", "--out", out, "--json", timeout_s=300
    )
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)

    assert report["check"]["problems"] == []
    assert report["check"]["brokers"] == BROKERS
    # The marker's topic has one partition.
    assert report["check"]["partitions"] == PARTITIONS + 1
    assert report["decodedBytes"] < report["receivedBytes"] / 10
    # Each partition has a replica in each of the three racks, which its leader adds again.
    assert report["partitionRequests"]["AlterPartition NONE"] >= PARTITIONS

    lines = trace_of(out)
    assert all(set(line) == {"at_ms", "step", "name", "broker", "value"} for line in lines)
    counts = Counter((line["step"], line["name"]) for line in lines)
    lost = sum(id % 3 == 0 for id in range(1001, 1001 + BROKERS))
    assert {name for _, name in counts} >= {
        *("controller_cpu", "active_controller_cpu", "fleet_cpu", "queue_time_p99")
    }
    assert counts["start", "broker_unfenced"] == BROKERS
    assert counts["steady", "applied"] == 5 * BROKERS
    assert counts["lose", "broker_fenced"] == counts["lose", "fenced_after"] == lost
    assert counts["come_back", "broker_unfenced"] == lost
    decided = next(line for line in lines if line["name"] == "decided")
    everywhere = next(line for line in lines if line["name"] == "applied_everywhere")
    # broker.session.timeout.ms is 9 s, and the last heartbeat may be 2 s old, or older after a
    # standstill of the machine.
    assert 4_000 <= decided["value"] <= everywhere["value"]

    # Each broker received each byte of the log once at most: nothing is fetched again.
    (log, *_) = (out / "quorum").glob("*/data/__cluster_metadata-0/*.log")
    assert 0 < report["receivedBytes"] < 1.05 * BROKERS * log.stat().st_size
    assert sum(each["receivedBytes"] for each in report["ownUse"]) <= report["receivedBytes"]
    shares = {(each["step"], each["name"]): each for each in report["ownShares"]}
    assert shares.keys() == {
        ("start", "all_unfenced"), ("steady", "applied"), ("lose", "fenced_after"),
        ("lose", "decided"), ("lose", "applied_everywhere"),
    }  # fmt: skip
    assert all(each["ownMs"] > 0 and each["ownErrorMs"] > 0 for each in shares.values())
    floors = {each["step"]: each for each in report["copyFloors"]}
    assert floors["create_topics"]["floorSeconds"] > 0

    run = json.loads((out / "run.json").read_text())
    assert (run["quorum"], run["controllers"], run["brokers"]) == ("kraft", 3, BROKERS)
    results = read_results((out / "benchmark.json").read_bytes(), "benchmark.json")
    assert results.problems == ()
    assert {"lose_decided", "steady_propagation"} <= set(results.benchmark)
    assert len(read_run(out).trace) == len(lines)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["lab", "fleet", "--brokers", 2], "2 brokers cannot fill 3 racks"),
        (["lab", "fleet", "--brokers", 10_000_000], "ephemeral ports"),
        (["lab", "fleet", "--scenario", "none"], "there is no scenario 'none'"),
        (["lab", "fleet", "--scenario", "region-loss"], "would stop all 100 brokers"),
        (["lab", "fleet", "--scenario", "rack-loss", "--racks", 1, "--regions", 2], "1 racks"),
        (["lab", "fleet", "--quorum", "kafka", "--kafka-home", "/"], "no release of Apache Kafka"),
        (
            [*("fleet", "--bootstrap-controllers", "localhost:1"), "--scenario", "controller-loss"],
            "run it with a quorum of its own",
        ),
    ],
)
def test_a_run_that_cannot_be_is_rejected(arguments: list[object], reason: str) -> None:
    ran = kraft(*arguments)
    assert ran.returncode == 1
    assert reason in ran.stderr


#: Snapshots and the deletion of the log before them every few hundred partitions; sessions of 3 s.
SHORT_LOGS = {
    "metadata.log.max.record.bytes.between.snapshots": "60000",
    "internal.metadata.log.segment.bytes": "120000",
    "metadata.max.retention.bytes": "1",
    "broker.session.timeout.ms": "3000",
}
EVERY_STEP: list[dict[str, Any]] = [
    {"do": "start", "spread_s": 0.0},
    {"do": "create_topics", "partitions": 600, "partitions_per_topic": 60},
    {"do": "lose", "brokers": 2},
    {"do": "create_topics", "partitions": 3000, "per_second": 20.0},
    {"do": "come_back"},
    {"do": "rolling_restart", "brokers": 2},
    # Needs the preferred leaders in sync, those of the last restarted broker too.
    {"do": "elect_preferred"},
    {"do": "flap", "brokers": 1, "times": 1, "down_s": 4.0, "up_s": 1.0},
    {"do": "isr_storm", "brokers": 2, "seconds": 1.0},
    {"do": "reassign", "partitions": 40},
    {"do": "slow_observers", "brokers": 1, "delay_ms": 1500.0, "seconds": 3.0},
    {"do": "kill_controller"},
    {"do": "pause_controller", "seconds": 4.0},
    {"do": "replace_controller"},
    {"do": "steady", "seconds": 2.0, "markers": 2},
    {"do": "delete_topics", "share": 0.5},
]


@pytest.mark.timeout(400)
def test_every_step_runs_while_the_logs_are_deleted_behind_snapshots(tmp_path: Path) -> None:
    """Returning brokers need snapshots; brokers with two directories report their replicas."""
    path, out = tmp_path / "every.json", tmp_path / "run"
    path.write_text(json.dumps({"name": "every", "seed": 5, "steps": EVERY_STEP}))
    settings = [word for each in SHORT_LOGS.items() for word in ("--setting", "=".join(each))]
    size = ("--brokers", 9, "--processes", 2, "--directories", 2, "--replica-lag-ms", 1000)
    ran = kraft(
        *("lab", "fleet", *size, "--cold", "--scenario", path, "--out", out, "--json", *settings),
        timeout_s=300,
    )
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    assert report["check"]["problems"] == []
    assert report["check"]["brokers"] == 9
    # Every replica of the 3,000 partitions and of the marker has a directory that it reported.
    assert report["partitionRequests"]["AssignReplicasToDirs NONE"] >= 9000
    events = {(line["step"], line["name"]) for line in trace_of(out)}
    assert {
        ("lose", "decided"),
        ("rolling_restart", "broker_stopped"),
        ("kill_controller", "first_write"),
        ("kill_controller", "controller_elected"),
        ("pause_controller", "first_write"),
        ("replace_controller", "step_ended"),
        ("steady", "applied"),
    } <= events


@pytest.mark.timeout(400)
def test_brokers_start_again_from_their_own_snapshot(tmp_path: Path) -> None:
    """Two runs against one quorum, then one whose snapshot is damaged.

    While the fleet is away the controller fences all brokers: each process fetches that once.
    """
    steps = [{"do": "start", "spread_s": 0.0}, {"do": "create_topics"}]
    first = parse_scenario({"name": "create", "steps": steps}, "create")
    steps = [{"do": "start", "spread_s": 0.0, "together": True, "until_in_sync": True}]
    again = parse_scenario({"name": "again", "steps": steps}, "again")
    state, out = tmp_path / "state", tmp_path / "again"
    settings = FleetSettings(9, processes=2)
    with OwnQuorum(tmp_path / "quorum", 1, {"broker.session.timeout.ms": "3000"}) as quorum:
        request = FleetRequest(settings, 2000, first, quorum.bootstrap_controllers, state=state)
        created = run_fleet(request)
        assert created.conservation.problems == []
        assert created.loaded_offset is None
        # The controller has appended a NoOp since, or not.
        assert created.saved_offset is not None
        assert created.saved_offset >= created.conservation.offset
        (path, _) = sorted(state.glob("process-*/*.checkpoint"))
        assert len(open_metadata(path).partitions) == 2001

        log = next((tmp_path / "quorum").glob("*/data/__cluster_metadata-0/*.log"))
        saved = log.stat().st_size
        address = read_admin_settings(quorum.bootstrap_controllers).bootstrap_controllers
        with QuorumClient(address) as client:
            eventually(lambda: all(each.fenced for each in read_metadata(client).brokers.values()))
        missed = log.stat().st_size - saved
        # Each of 2,000 partitions loses two members of its ISR, and its leader: three records.
        assert missed > 2000 * 3 * 30
        returned = run_fleet(replace(request, scenario=again, out=out))
        appended = log.stat().st_size - saved - missed
        # The log that was there when the first run ended is not fetched again.
        assert returned.catch_up is not None
        assert 2 * missed <= returned.catch_up.bytes < 2 * (missed + 50_000)
        assert returned.received_bytes < returned.catch_up.bytes + 9 * (appended + 50_000)
        assert returned.conservation.problems == []
        assert returned.conservation.partitions == 2001
        # The first run ended in order: no broker leaves an ELR when it registers again.
        written = [
            type(each.record)
            for each in open_metadata(log.parent).records(since=returned.catch_up.offset)
        ]
        registered = written[: written.index(BrokerRegistrationChange)]
        assert registered.count(RegisterBroker) == 9
        assert PartitionChange not in registered
        assert PartitionChange in written
        assert returned.loaded_offset == created.saved_offset
        times = [
            returned.values["start", name][0]
            for name in ("caught_up", "all_unfenced", "in_sync_everywhere")
        ]
        assert times == sorted(times)
        assert created.catch_up is None
        at_ms: dict[str, list[float]] = defaultdict(list)
        for line in trace_of(out):
            at_ms[line["name"]].append(line["at_ms"])
        # The observer of a process registers no broker; all wait for the last one that catches up.
        assert len(at_ms["broker_registered"]) == len(at_ms["broker_caught_up"]) == 9
        assert max(at_ms["broker_caught_up"]) <= min(at_ms["broker_unfenced"])
        assert len(list(state.glob("process-*/*.checkpoint"))) == 2

        (path, _) = sorted(state.glob("process-*/*.checkpoint"))
        damaged = bytearray(path.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(FleetFaultError, match=r"process 0 .* cannot load its snapshot"):
            run_fleet(replace(request, scenario=again))


@pytest.mark.timeout(200)
def test_all_controllers_are_measured_where_one_address_is_given(tmp_path: Path) -> None:
    """The use of a quorum is that of its voters, the active controller among them."""
    steps = [{"do": "start", "spread_s": 0.0}, {"do": "steady", "seconds": 4.0, "markers": 1}]
    scenario = parse_scenario({"name": "idle", "steps": steps}, "idle")
    with OwnQuorum(tmp_path / "quorum", 3) as quorum:
        bootstrap = read_admin_settings(quorum.bootstrap_controllers).bootstrap_controllers
        with QuorumClient(bootstrap) as client:
            controllers = dict(client.describe_cluster().controllers)
            controllers.pop(client.describe_quorum().leader_id)
        host, port = controllers.popitem()[1]
        ran = run_fleet(FleetRequest(FleetSettings(3), 10, scenario, f"{host}:{port}"))
    assert "active_controller_cpu" in ran.cpu["steady"]
