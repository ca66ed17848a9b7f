"""Elections compared with Kafka's PartitionChangeBuilder.

`python -m tests.interop.test_election` writes the corpus that `make test` reads without Java.
"""

from __future__ import annotations

import os

import pytest

from tests.harness.kafka_jars import KAFKA_4, Jars, kafka
from tests.harness.line_process import answers
from tests.reference.election_cases import (
    Case,
    answer_of_kernel,
    answer_of_twin,
    generate,
    is_looked_at,
    question,
    read_corpus,
    write_corpus,
)

pytestmark = pytest.mark.interop

CORPUS_SEED = 966
CORPUS_COUNT = 1_000
#: The same cases in every run: a rare one must not fail the check of an unrelated change.
SEED = int(os.environ.get("SEED", "1"))


def ask(jars: Jars, cases: list[Case]) -> list[str]:
    # In Kafka's package, as the classes of reassignments are not public.
    command = jars.oracle("ElectionOracle", "org.apache.kafka.controller.")
    return answers(command, [question(case) for case in cases])


def test_new_events_have_kafkas_results(jars: Jars) -> None:
    cases = [case for case in generate(SEED, 6_000) if is_looked_at(case)]
    for case, answer in zip(cases, ask(jars, cases), strict=True):
        assert answer_of_kernel(case) == answer, question(case)
        assert answer_of_twin(case) == answer, question(case)


def test_the_kept_corpus_has_kafkas_results(jars: Jars) -> None:
    pairs = read_corpus()
    assert ask(jars, [case for case, _ in pairs]) == [answer for _, answer in pairs]


if __name__ == "__main__":
    made = generate(CORPUS_SEED, CORPUS_COUNT)
    asked = [case for case in made if is_looked_at(case)]
    write_corpus(KAFKA_4, CORPUS_SEED, CORPUS_COUNT, ask(kafka(), asked))
