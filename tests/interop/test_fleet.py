"""Light brokers against Apache Kafka's controllers, at the size that CI runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.commands import kraft
from tests.harness.kafka_jars import KAFKA_4, kafka

pytestmark = pytest.mark.interop

BROKERS, PARTITIONS = 50, 50_000


@pytest.mark.timeout(400)
def test_50_brokers_with_50_000_partitions_lose_a_rack(tmp_path: Path) -> None:
    jars, out = kafka(KAFKA_4), tmp_path / "run"
    size = ("--brokers", BROKERS, "--partitions", PARTITIONS, "--processes", 2)
    quorum = ("--quorum", "kafka", "--kafka-home", jars.directory, "--heap", "512m")
    asked = ("--scenario", "rack-loss", "--out", out, "--json")
    ran = kraft("lab", "fleet", *size, *quorum, *asked, timeout_s=300)
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    assert report["check"]["problems"] == []
    assert report["check"]["brokers"] == BROKERS
    assert report["check"]["partitions"] == PARTITIONS + 1
    assert report["quorum"] == f"kafka-{KAFKA_4}"
