"""A small run of the comparison of `kraft.broker.groups` with Kafka's group coordinator."""

from __future__ import annotations

import pytest

from tests.differential import groups
from tests.differential.kafka import Kafka
from tests.harness.kafka_jars import Jars

pytestmark = pytest.mark.interop


def test_groups_are_coordinated_as_by_kafkas_coordinator(jars: Jars) -> None:
    with Kafka(groups.MAIN) as kafka:
        report = groups.run_groups(kafka, seed=16, sequences=100)
    assert not report.differences, "\n\n".join(report.differences)
    assert min(report.states[state] for state in ("Empty", "Stable")) > 200, report.states
    assert len(report.codes) > 40, report.codes
