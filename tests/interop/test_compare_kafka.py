"""``kraft lab compare`` with Apache Kafka's controllers: each real mode runs the whole script."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraft.generations.measures import MEASURES
from kraft.generations.modes import MODES
from tests.harness.commands import kraft
from tests.harness.kafka_jars import KAFKA_0_8, KAFKA_1, KAFKA_3, KAFKA_4, kafka, zookeeper_era

pytestmark = [pytest.mark.interop, pytest.mark.zookeeper, pytest.mark.timeout(500)]

RELEASES = {
    "kafka-4.3": KAFKA_4,
    "kafka-3.9-zk": KAFKA_3,
    "kafka-1.1.1": KAFKA_1,
    "kafka-0.8.2": KAFKA_0_8,
}
SESSION_MS = 6000
PARTITIONS = 20


def test_every_mode_of_kafka_is_here() -> None:
    assert {name for name, mode in MODES.items() if mode.release} == set(RELEASES)


@pytest.mark.parametrize("mode", RELEASES)
def test_kafkas_controller_runs_the_script(mode: str, tmp_path: Path) -> None:
    release = RELEASES[mode]
    jars = zookeeper_era(release) if release in (KAFKA_0_8, KAFKA_1) else kafka(release)
    ran = kraft(
        *("lab", "compare", "--modes", mode, "--brokers", 3, "--partitions", PARTITIONS),
        *("--kafka-home", f"{MODES[mode].release}={jars.directory}", "--heap", "256m"),
        *("--session-timeout-ms", SESSION_MS, "--time-limit-s", 300, "--json"),
        timeout_s=450,
    )
    assert ran.returncode == 0, ran.stderr
    assert f"run 1 of 1: {mode}, {PARTITIONS} partitions: measured" in ran.stderr
    (run,) = json.loads(ran.stdout)["runs"]
    assert (run["outcome"], run["reason"]) == ("measured", "")
    found = {(each["step"], each["measure"]): each["value"] for each in run["seconds"]}
    assert list(found) == list(MEASURES)
    assert min(found.values()) >= 0
    # The last renewal of a session was at most a third of it, and a standstill, before the kill.
    in_zookeeper = mode != "kafka-4.3"
    for step in ("crash", "failover"):
        if in_zookeeper:
            assert found[step, "detected"] >= SESSION_MS / 1000 * 2 / 3 - 1.5
    failover = [found["failover", each] for each in ("detected", "first_write", "total")]
    assert failover == sorted(failover)
    # The controllers did the work: their processes used CPU time in it.
    used = run["controllerCpuSeconds"]
    assert set(used) == {step.value for step, _ in MEASURES}
    assert used["create"] > 0
