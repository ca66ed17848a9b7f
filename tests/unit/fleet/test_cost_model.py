"""The cost model: requests and bytes by hand, trees, limits, and planted costs found again."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kraft.errors import FleetRunError, InvalidRequestError
from kraft.fleet.calibration import calibrate, equations_of, parse
from kraft.fleet.cost_model import (
    Cluster,
    Coefficients,
    ControllerMachine,
    Term,
    cold_start,
    fetches_of_child,
    limits,
    memory_of,
    rack_loss,
    record_sizes,
    response_sizes,
    steady_rates,
)
from kraft.fleet.cost_report import breaking_text, cost_report
from kraft.fleet.quorum_kind import QuorumKind
from kraft.fleet.traces import read_run
from kraft.raft.observer_purgatory import ObserverPurgatory
from kraft.raft.rpc import FetchRequest
from kraft.raft.voters import ReplicaKey
from kraft.records import Partition, PartitionChange, Uuid
from kraft.records.batches import encode_records
from tests.harness.fleet_costs import COSTS, planted_run, varied

BIG = Cluster(10_000, 10_000_000)
KAFKA = QuorumKind.KAFKA


def test_requests_of_an_idle_cluster() -> None:
    rates = steady_rates(Cluster(1000, 1_000_000))
    assert rates.heartbeats == 500
    # Two NoOp records a second: kraft's leader answers each once, when it is committed.
    assert rates.fetches == 2000
    assert rates.records == 2
    # Apache Kafka's leader answers with the record, and then with the high watermark.
    theirs = Cluster(1000, 1_000_000, quorum=KAFKA)
    assert steady_rates(theirs).fetches == 4000
    assert steady_rates(replace(theirs, answers_per_append=1)).fetches == 2000


@pytest.mark.parametrize("kind", list(QuorumKind))
def test_a_fetch_does_not_wait_longer_than_half_a_second(kind: QuorumKind) -> None:
    rare = Cluster(1000, 1_000_000, idle_append_s=5.0, quorum=kind)
    # In five seconds nine waits expire, and the tenth ends with the append.
    assert steady_rates(rare).fetches == pytest.approx(1000 * (2.2 if kind is KAFKA else 2.0))


@pytest.mark.parametrize(
    ("children", "appends_per_s"),
    [(50, 2), (50, 20), (100, 1000), (667, 20), (1000, 2), (1000, 100), (3000, 2), (3000, 400)],
)
def test_the_rounds_of_krafts_leader(children: int, appends_per_s: int) -> None:
    """The model counts the answers that `ObserverPurgatory` gives, within 5 %."""
    purgatory = ObserverPurgatory(0)
    key, seconds, answers, committed, now_ms = ReplicaKey(7, None), 60, 0, 0, 0.0

    def fetch(reply_to: int) -> None:
        request = FetchRequest("", key, 1, committed, 1, 500, 1, committed)
        purgatory.add(reply_to, request, now_ms + 500)

    for reply_to in range(children):
        fetch(reply_to)
    while now_ms < seconds * 1000:
        next_append_ms = committed * 1000 / appends_per_s
        now_ms = max(now_ms, min(next_append_ms, purgatory.round_at_ms(committed)))
        committed += now_ms >= next_append_ms
        if purgatory.round_at_ms(committed) <= now_ms:
            for reply_to in purgatory.begin_round(committed, now_ms):
                purgatory.pop(reply_to)
                fetch(reply_to)
                answers += 1
    cluster = Cluster(children, 1)
    counted = children * fetches_of_child(cluster, children, appends_per_s) * seconds
    # The answers of a burst are free.
    assert counted == pytest.approx(answers, rel=0.05)


def test_changes_wake_every_child() -> None:
    idle = Cluster(100, 1000, quorum=KAFKA)
    busy = replace(idle, changes_per_s=50, records_per_change=10)
    assert steady_rates(busy).fetches == steady_rates(idle).fetches + 100 * 50 * 2
    assert steady_rates(busy).records == 502
    assert steady_rates(busy).heartbeats == steady_rates(idle).heartbeats


def test_sizes_are_those_of_encoded_records() -> None:
    sizes = record_sizes(3)
    topic = Uuid(b"\3" * 16)
    changes = [PartitionChange(n, topic, isr=[9000, 9001], leader=9000) for n in range(500)]
    partitions = [
        Partition(
            n, topic, [9000, 9001, 9002], [9000, 9001, 9002], [], [], 9000, 0, 5, 9, [topic] * 3
        )
        for n in range(500)
    ]
    assert sizes.change == pytest.approx(len(encode_records(changes)) / 500, rel=0.1)
    assert sizes.partition == pytest.approx(len(encode_records(partitions)) / 500, rel=0.03)
    assert sizes.batch == 61
    assert record_sizes(5).partition > sizes.partition
    assert 100 < response_sizes().fetch < 200
    assert 15 < response_sizes().heartbeat < 30


def test_a_lost_rack_is_a_record_for_each_replica_in_it() -> None:
    loss = rack_loss(Cluster(999, 1_000_000), 9.0)
    assert loss.records == 1_000_000 + 333
    assert loss.log_bytes == pytest.approx(loss.records * record_sizes(3).change)
    assert loss.bytes_out > 666 * loss.log_bytes
    # One answer in 0.4 ms for 9 s, as the rounds of 666 observers follow each other.
    assert loss.fetches == pytest.approx(9000 / 0.4)
    assert rack_loss(Cluster(999, 1_000_000), 0.1).fetches == 666 * math.ceil(
        loss.log_bytes / (8 << 20)
    )
    theirs = rack_loss(Cluster(999, 1_000_000, quorum=KAFKA), 9.0)
    assert theirs.fetches == pytest.approx(666 * 333 * 2)
    two = rack_loss(Cluster(999, 1_000_000, replication_factor=1), 9.0)
    assert two.records == pytest.approx(1_000_000 / 3 + 333)


def test_a_tree_leaves_the_heartbeats_and_divides_the_bytes() -> None:
    tree = replace(BIG, fan_out=16)
    assert (BIG.children, BIG.depth) == (10_000, 1)
    assert (tree.children, tree.depth) == (16, 4)
    assert steady_rates(tree).heartbeats == steady_rates(BIG).heartbeats
    assert rack_loss(tree, 9.0).log_bytes == rack_loss(BIG, 9.0).log_bytes
    loss = rack_loss(tree, 9.0)
    # Beside the log, 22,500 answers of 130 bytes.
    assert loss.bytes_out == pytest.approx(16 * loss.log_bytes, rel=0.001)
    assert cold_start(BIG).bytes_out == pytest.approx(
        cold_start(tree).bytes_out * 10_000 / 16, rel=0.001
    )


@pytest.mark.parametrize(
    ("brokers", "fan_out", "depth"), [(3, 2, 2), (6, 2, 2), (7, 2, 3), (16, 16, 1), (17, 16, 2)]
)
def test_the_depth_of_a_tree(brokers: int, fan_out: int, depth: int) -> None:
    assert Cluster(brokers, 1, fan_out=fan_out).depth == depth


def test_a_limit_breaks_where_its_load_reaches_it() -> None:
    machine = ControllerMachine()
    for limit in limits(BIG, machine):
        if limit.breaks_at == math.inf:
            continue
        below, above = BIG.scaled(limit.breaks_at * 0.95), BIG.scaled(limit.breaks_at * 1.05)
        loads = [
            next(each.load for each in limits(cluster, machine) if each.name == limit.name)
            for cluster in (below, above)
        ]
        assert loads[0] < limit.limit < loads[1], limit.name
    assert limits(BIG, machine)[0].name == "cold start: network"
    assert limits(BIG, ControllerMachine(disk_bytes_s=1))[0].name == "rack loss: disk"


@pytest.mark.parametrize(
    "wrong",
    [
        {"brokers": 0}, {"partitions": 0}, {"heartbeat_s": 0.0}, {"heartbeat_s": math.nan},
        {"changes_per_s": -1.0}, {"fan_out": 1}, {"racks": 11}, {"replication_factor": 11},
        {"answers_per_append": 0}, {"idle_append_s": math.inf},
    ],
)  # fmt: skip
def test_impossible_clusters_are_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        Cluster(**{"brokers": 10, "partitions": 10, **wrong})
    with pytest.raises(InvalidRequestError, match="cores is 0"):
        ControllerMachine(cores=0)


def test_costs_make_cpu_with_its_error() -> None:
    covariance = np.diag([0.0, 1e-12, 0, 0, 0])
    costs = Coefficients(
        "kraft",
        (0.1, 2e-5, 1e-5, 1e-6, 1e-9),
        tuple(map(tuple, covariance.tolist())),
        (1e8, 1e5, 80),
    )
    rates = steady_rates(Cluster(1000, 1_000_000))
    cpu = costs.cpu(rates.row())
    assert cpu.value == pytest.approx(
        0.1 + 500 * 2e-5 + 2000 * 1e-5 + 2 * 1e-6 + rates.bytes_out * 1e-9
    )
    assert cpu.error == pytest.approx(500 * 1e-6)
    assert costs.error(Term.HEARTBEATS) == pytest.approx(1e-6)
    assert memory_of(Cluster(1000, 1_000_000), costs) == pytest.approx(1e8 + 1e8 + 8e7)
    names = {limit.name for limit in limits(BIG, ControllerMachine(), costs)}
    assert {"steady: CPU", "rack loss: CPU", "cold start: CPU", "memory"} <= names


def test_the_report_compares_with_a_tree_and_is_json() -> None:
    report = cost_report(BIG, ControllerMachine(), None, 16)
    assert report.names == ["every broker fetches", "tree of 16"]
    rows = {row.name: row.values for row in report.rows}
    assert rows["observer fetches"] == (20_000, 32)
    assert "CPU" not in rows
    assert breaking_text(report.limits[0][0], BIG).startswith("cold start: network reaches")
    document = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert [each["fan_out"] for each in document["clusters"]] == [None, 16]
    alone = cost_report(replace(BIG, fan_out=16), ControllerMachine(), None, None)
    assert alone.names == ["every broker fetches"]


# Calibration: runs whose CPU follows planted costs.


def test_an_equation_counts_the_work_of_a_step(tmp_path: Path) -> None:
    run = planted_run(
        tmp_path / "a", brokers=200, commits_per_s=10, records_per_commit=5, bytes_per_s=1e6
    )
    (equation,) = equations_of(run)
    assert equation.rates == pytest.approx((100, 200 * 10 * 2, 50, 1e6))
    assert equation.samples == 20


def test_a_trace_without_a_counter_is_rejected(tmp_path: Path) -> None:
    run = planted_run(tmp_path / "a", brokers=10)
    trace = run.directory / "trace.jsonl"
    kept = [each for each in trace.read_text().splitlines() if "observer_fetches" not in each]
    trace.write_text("\n".join(kept))
    with pytest.raises(InvalidRequestError, match=r"a: the trace has no samples of observer_f"):
        calibrate([read_run(run.directory)])


def test_planted_costs_are_found_again(tmp_path: Path) -> None:
    found = calibrate(varied(tmp_path))
    planted = dict(zip(Term, COSTS.values(), strict=True))
    for term, value in zip(Term, found.coefficients.values, strict=True):
        assert value == pytest.approx(planted[term], rel=0.05), term
    assert found.r_squared > 0.999
    assert found.left_out == ()
    assert found.coefficients.memory == pytest.approx((5e7, 1e5, 90), rel=1e-6)


def test_noisy_costs_are_within_their_errors(tmp_path: Path) -> None:
    found = calibrate(varied(tmp_path, noise=0.1)).coefficients
    for term, value, planted in zip(Term, found.values, COSTS.values(), strict=True):
        assert abs(value - planted) < 4 * found.error(term), term
        assert found.error(term) > 0


def test_a_cost_below_zero_is_left_out(tmp_path: Path) -> None:
    found = calibrate(varied(tmp_path, costs={**COSTS, "records": -2e-6}))
    assert found.left_out == (Term.RECORDS,)
    assert min(found.coefficients.values) >= 0
    assert found.coefficients.error(Term.RECORDS) == 0


def test_runs_that_cannot_tell_costs_apart_are_rejected(tmp_path: Path) -> None:
    """Idle clusters of many sizes: heartbeats and fetches both grow with the brokers."""
    idle = [
        planted_run(tmp_path / str(brokers), brokers=brokers, commits_per_s=2 + brokers % 3,
                    records_per_commit=1 + brokers % 5, bytes_per_s=1e5 * (brokers % 7))
        for brokers in (100, 201, 302, 400, 503, 604, 705, 809)
    ]  # fmt: skip
    with pytest.raises(InvalidRequestError, match=r"equal in all steps|vary together"):
        calibrate([planted_run(tmp_path / f"x{n}", brokers=n) for n in (10, 20, 30, 40, 50, 60)])
    same = [
        planted_run(tmp_path / f"y{n}", brokers=n, commits_per_s=2, records_per_commit=n,
                    bytes_per_s=n**2 * 100.0)
        for n in (10, 20, 30, 40, 50, 60)
    ]  # fmt: skip
    with pytest.raises(InvalidRequestError, match="heartbeats and fetches vary together"):
        calibrate(same)
    assert calibrate(idle).equations == 8


def test_too_few_runs_and_two_quorums_are_rejected(tmp_path: Path) -> None:
    runs = varied(tmp_path)
    with pytest.raises(InvalidRequestError, match=r"3 steps .* need at least 6"):
        calibrate(runs[:3])
    other = planted_run(tmp_path / "kafka", brokers=10, quorum="kafka-4.3.1")
    with pytest.raises(InvalidRequestError, match=r"these are kafka-4\.3\.1 and kraft"):
        calibrate([*runs, other])
    with pytest.raises(InvalidRequestError, match="these are none"):
        calibrate([])


def test_memory_needs_sizes_that_differ(tmp_path: Path) -> None:
    runs = varied(tmp_path)
    same = [replace(run, info=replace(run.info, partitions=1000)) for run in runs]
    assert calibrate(same).coefficients.memory is None


def test_costs_survive_their_file(tmp_path: Path) -> None:
    found = calibrate(varied(tmp_path, noise=0.05))
    data = json.dumps(found.as_dict(), allow_nan=False).encode()
    assert parse(data, "costs.json") == found.coefficients


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2}, {"coefficients": {}}, {"covariance": [[0]]}, {"covariance": 1},
        {"memoryBytes": {"base": "x"}}, {"memoryBytes": []},
    ],
)  # fmt: skip
def test_a_damaged_file_of_costs_is_named(tmp_path: Path, change: dict[str, Any]) -> None:
    document = {**calibrate(varied(tmp_path)).as_dict(), **change}
    with pytest.raises(FleetRunError, match=r"^costs\.json: "):
        parse(json.dumps(document).encode(), "costs.json")


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b"[" * 100_000, b'{"format": NaN}'])
def test_no_file_of_costs_is_named(data: bytes) -> None:
    with pytest.raises(FleetRunError, match=r"^costs\.json: "):
        parse(data, "costs.json")
