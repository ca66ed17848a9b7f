"""A small run of what ``make differential`` runs: Kafka's managers and ours, given the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.differential.kafka import Kafka
from tests.differential.sequences import run_sequences
from tests.interop.kafka_jars import MissingToolError

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def managers() -> Iterator[Kafka]:
    try:
        kafka = Kafka("Managers")
    except MissingToolError as missing:
        pytest.skip(str(missing))
    with kafka:
        yield kafka


def test_sequences_of_operations_write_what_kafkas_managers_write(managers: Kafka) -> None:
    report = run_sequences(managers, seed=20, numbers=range(40))
    assert report.operations.total() == 40 * 50
    assert not report.differences, "\n\n".join(map(str, report.differences))
