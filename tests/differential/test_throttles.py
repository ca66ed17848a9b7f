"""A small run of the comparison of `kraft.controller.quotas` with Kafka's quota managers."""

from __future__ import annotations

import pytest

from tests.differential import throttles
from tests.differential.kafka import Kafka
from tests.harness.kafka_jars import Jars

pytestmark = pytest.mark.interop


def test_quotas_throttle_as_kafkas_managers(jars: Jars) -> None:
    with Kafka(throttles.MAIN) as kafka:
        report = throttles.run_throttles(kafka, seed=20, requests=10_000)
    assert not report.differences, "\n\n".join(report.differences[:3])
    assert min(report.outcomes.values()) > 100, report.outcomes
    assert len(report.outcomes) == 3
