"""A small run of ``make differential``: Kafka's managers and ours on equal requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.differential.kafka import PACKAGE, Kafka
from tests.differential.pure import FUNCTIONS, PureFunction, run_function
from tests.differential.quorum_forgetting import FORGOTTEN
from tests.differential.quorum_sequences import run_case, run_quorums
from tests.differential.sequences import run_sequences
from tests.harness.kafka_jars import Jars

pytestmark = pytest.mark.interop

_CASES = Path(__file__).parent / "cases"


@pytest.fixture(scope="module")
def managers(jars: Jars) -> Iterator[Kafka]:
    with Kafka() as kafka:
        yield kafka


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
@pytest.mark.usefixtures("managers")
def test_pure_functions_answer_as_kafkas_do(function: PureFunction) -> None:
    report = run_function(function, seed=20, cases=3_000)
    assert report.cases == round(3_000 * function.share)
    assert not report.differences, "\n\n".join(report.differences[:3])


def test_sequences_of_operations_write_what_kafkas_managers_write(managers: Kafka) -> None:
    report = run_sequences(managers, seed=20, numbers=range(40))
    assert report.operations.total() == 40 * 50
    assert not report.differences, "\n\n".join(map(str, report.differences))


@pytest.fixture(scope="module")
def controllers(jars: Jars) -> Iterator[Kafka]:
    with Kafka(PACKAGE + "Quorum") as kafka:
        yield kafka


def test_a_whole_controller_writes_and_answers_what_kafkas_quorum_controller_does(
    controllers: Kafka,
) -> None:
    report = run_quorums(controllers, seed=20, numbers=range(120))
    assert report.steps.total() > 10_000
    assert report.by_tasks > 100
    assert not report.differences, "\n\n".join(map(str, report.differences))


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("forgotten_record", FORGOTTEN),
        ("held_clear_elr", "ClearElr leaves Kafka's index of ELR members behind"),
    ],
)
def test_a_difference_with_a_known_cause_is_counted_and_not_reported(
    name: str, known: str, controllers: Kafka
) -> None:
    case = json.loads((_CASES / f"{name}.json").read_text())
    found = run_case(controllers, case)
    assert found is not None
    assert found.known == known, found
