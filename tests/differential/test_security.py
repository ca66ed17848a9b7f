"""A small run of the comparison of `kraft.security` with Kafka's classes."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Timer

import pytest

from tests.differential import authorizer, sasl
from tests.differential.kafka import Kafka
from tests.harness.kafka_jars import Jars
from tests.harness.line_process import EndedError

pytestmark = pytest.mark.interop

_NEW = "new\t\tfalse"
_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.fixture(scope="module")
def exchanges(jars: Jars) -> Iterator[Kafka]:
    with Kafka(sasl.MAIN) as kafka:
        yield kafka


def test_the_authorizer_decides_and_logs_as_kafkas(jars: Jars) -> None:
    with Kafka(authorizer.MAIN) as kafka:
        report = authorizer.run_checks(kafka, seed=20, checks=20_000)
    assert report.checks == 20_000
    assert min(report.answers["ALLOWED"], report.answers["DENIED"]) > 5_000
    assert not report.differences, "\n\n".join(report.differences[:3])


def test_kafkas_check_of_a_peer_called_by_the_wildcard_raises(jars: Jars) -> None:
    check = "check\tUser\t*\t10.0.0.1\t3\t2\ta\t1\ttrue\ttrue\t3"
    with Kafka(authorizer.MAIN) as kafka:
        answers = kafka.ask([_NEW, "ready", check]).result()
    assert answers[-1].startswith("raised java.lang.IllegalArgumentException")


def test_kafkas_check_of_a_name_before_the_wildcard_does_not_end(jars: Jars) -> None:
    """Kafka's check still does not end. If this fails, Kafka is fixed: draw such names in
    `authorizer`.
    """
    add = f"add\t{_ID}\t3\t(a\t3\tUser:alice\t*\t3\t3"
    check = "check\tUser\talice\t10.0.0.1\t3\t3\t(b\t1\ttrue\ttrue\t3"
    kafka = Kafka(authorizer.MAIN)
    stop = Timer(5, kafka._process.kill)
    stop.start()
    with pytest.raises(EndedError), kafka:
        kafka.ask([_NEW, "ready", add, check]).result()
    assert not stop.is_alive()


@pytest.mark.parametrize(
    ("run", "count"),
    [
        (sasl.run_exchanges, 100),
        (sasl.run_mappings, 1_000),
        (sasl.run_jaas, 1_000),
        (sasl.run_principals, 50),
    ],
)
def test_security_classes_answer_as_kafkas_do(exchanges: Kafka, run: sasl.Run, count: int) -> None:
    report = run(exchanges, 20, count)
    assert report.outcomes.total() >= count
    assert not report.differences, "\n\n".join(report.differences[:3])
