"""A fleet of the size that CI runs: 50 brokers and 50,000 partitions lose a rack."""

from __future__ import annotations

import json

import pytest

from tests.harness.commands import kraft

BROKERS, PARTITIONS = 50, 50_000


@pytest.mark.nodes
@pytest.mark.timeout(400)
def test_50_brokers_with_50_000_partitions_lose_a_rack() -> None:
    size = ("--brokers", BROKERS, "--partitions", PARTITIONS, "--processes", 2)
    ran = kraft("lab", "fleet", *size, "--scenario", "rack-loss", "--json", timeout_s=300)
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    assert report["check"]["problems"] == []
    assert report["check"]["brokers"] == BROKERS
    assert report["check"]["partitions"] == PARTITIONS + 1
