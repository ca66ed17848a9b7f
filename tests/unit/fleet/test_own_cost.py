"""The fleet's own part of what it measures, and the floor of copying; the copying benchmark."""

from __future__ import annotations

import json
import statistics
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kraft import records
from kraft.fleet import copy_rate as benchmark
from kraft.fleet.copy_rate import copy_rate
from kraft.fleet.own_cost import (
    ProcessCounts,
    StepUse,
    Tally,
    copy_floors,
    counts_of,
    own_shares,
    step_use,
)
from kraft.fleet.shared_metadata import SharedMetadata
from kraft.raft.rpc import OffsetAndEpoch
from kraft.records import Uuid
from tests.harness.metadata_store import snapshot_bytes
from tests.harness.table_records import batch_of


def tally(*values: float) -> Tally:
    found = Tally()
    for value in values:
        found.add(value)
    return found


def test_a_tally_has_the_mean_and_its_standard_error() -> None:
    values = np.random.default_rng(1).exponential(3.0, 200).tolist()
    found = tally(*values)
    assert found.mean == pytest.approx(statistics.fmean(values))
    assert found.error == pytest.approx(statistics.stdev(values) / 200**0.5)
    assert found.since(tally(*values[:150])).mean == pytest.approx(statistics.fmean(values[150:]))
    joined = tally(*values[:30]).joined(tally(*values[30:]))
    assert joined.error == pytest.approx(found.error)
    assert (Tally().mean, Tally().error, tally(4.0).error) == (0.0, 0.0, 0.0)


def step_of(name: str) -> StepUse:
    """Two processes: loops late by 2 ms in the mean, pieces of 3 ms, of which one has two."""
    before = {0: ProcessCounts(1.0, 100, tally(50.0), tally(70.0))}
    after = {
        0: ProcessCounts(5.0, 1100, tally(50.0, 1.0, 3.0), tally(70.0, 2.0, 4.0)),
        1: ProcessCounts(1.0, 500, tally(2.0, 2.0), tally(3.0)),
    }
    lines = {
        number: counts_of(json.loads(json.dumps(each.as_dict()))) for number, each in after.items()
    }
    return step_use(name, before, lines)


def test_a_step_has_what_was_used_since_the_step_before() -> None:
    use = step_of("steady")
    assert (use.cpu_s, use.received_bytes) == (5.0, 1500)
    assert (use.late.mean, use.late.count) == (2.0, 4)
    assert use.delay_ms == pytest.approx(5.0)
    assert use.error_ms == pytest.approx(((2 / 3) / 4 + 1.0 / 3) ** 0.5)
    # Of all 9 ms of applying, the busiest process has 6.
    assert use.applying_ms == 6.0
    assert use.fan_out_s == pytest.approx(5.0 - 0.009)


def test_the_part_of_a_measure_is_its_expected_delay_or_a_bound() -> None:
    values = {
        ("steady", "applied"): [10.0, 40.0],
        ("steady", "step_ended"): [5.0],
        ("lose", "decided"): [100.0],
        ("other", "applied"): [1.0],
    }
    applied, decided = own_shares(values, [step_of("steady"), step_of("lose"), step_of("start")])
    assert (applied.step, applied.name, applied.is_bound) == ("steady", "applied", False)
    assert (applied.mean_ms, applied.own_ms) == (25.0, pytest.approx(5.0))
    assert applied.share == pytest.approx(0.2)
    assert applied.rest_ms == pytest.approx(20.0)
    # The mean delay, and all that the busiest process applied.
    assert (decided.own_ms, decided.is_bound) == (pytest.approx(8.0), True)
    assert decided.as_dict()["share"] == pytest.approx(0.08)


def test_a_step_is_compared_with_the_floor_of_its_copies() -> None:
    values = {
        ("lose", "applied_everywhere"): [27_000.0],
        ("lose", "fenced_after"): [9_000.0, 26_000.0],
        ("lose", "step_ended"): [28.0],
        ("start", "all_unfenced"): [3_000.0],
        ("start", "step_ended"): [4.0],
        ("steady", "step_ended"): [5.0],
    }
    uses = [step_of(name) for name in ("lose", "start", "steady")]
    lose, start, steady = copy_floors(values, uses, bytes_per_s=1000.0)
    assert (lose.floor_s, lose.seconds, lose.ratio) == (1.5, 18.0, 12.0)
    assert (start.seconds, steady.seconds) == (3.0, 5.0)
    (nothing,) = copy_floors(values, [step_use("steady", {}, {})], 1000.0)
    assert nothing.as_dict()["ratio"] is None


def test_what_is_applied_once_is_timed_once(tmp_path: Path) -> None:
    shared = SharedMetadata(lambda delta, size: None)
    data = bytes(
        batch_of(
            [
                records.Topic(name=name, topic_id=Uuid(name.encode() * 16), version=0)
                for name in ("a", "b")
            ]
        )
    )
    for _ in range(3):
        shared.commit(shared.receive(0, data), 2)
    assert shared.applied.count == 1
    assert shared.applied.total > 0
    id = OffsetAndEpoch(50, 1)
    loading = shared.begin_snapshot(id)
    snapshot = snapshot_bytes(tmp_path, id, None)
    loading.add(snapshot, len(snapshot))
    assert loading.loading_ms > 0
    shared.finish_snapshot(loading)
    assert shared.applied.count == 2


@pytest.mark.parametrize("processes", [1, 3])
def test_the_rate_of_copying_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Noted(subprocess.Popen[bytes]):
        def __init__(self, *given: Any, **options: Any) -> None:
            super().__init__(*given, **options)
            started.append(self)

    monkeypatch.setattr("kraft.fleet.copy_rate.subprocess.Popen", Noted)
    monkeypatch.setattr(benchmark, "_WARM_UP_S", 0.0)
    assert copy_rate(processes, tmp_path, seconds=0.01) > 0
    assert [each.returncode for each in started] == [0] * processes
    assert list(tmp_path.iterdir()) == []
