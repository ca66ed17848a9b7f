"""Placement compared with Kafka's StripedReplicaPlacer and java.util.Random.

`python -m tests.interop.test_placement` writes the corpus that `make test` reads without Java.
"""

from __future__ import annotations

import os
import random

import pytest

from kraft._core.decide.placement import (
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    JavaRandom,
)
from tests.harness.kafka_jars import KAFKA_4, Jars, kafka
from tests.harness.line_process import answers
from tests.reference.placement_cases import (
    Answer,
    Case,
    answer_of_kernel,
    generate,
    question,
    read_corpus,
    understand,
    write_corpus,
)

pytestmark = pytest.mark.interop

CORPUS_SEED = 20
#: The same cases in every run: a rare one must not fail the check of an unrelated change.
SEED = int(os.environ.get("SEED", "1"))


def ask(jars: Jars, questions: list[str]) -> list[str]:
    return answers(jars.oracle("PlacementOracle"), questions)


def ask_places(jars: Jars, cases: list[Case]) -> list[Answer]:
    lines = ask(jars, [question(case) for case in cases])
    return [understand(case, line) for case, line in zip(cases, lines, strict=True)]


def test_new_clusters_are_placed_as_in_kafka(jars: Jars) -> None:
    cases = generate(SEED, 1500, most_partitions=400)
    for case, answer in zip(cases, ask_places(jars, cases), strict=True):
        assert answer_of_kernel(case) == answer, question(case)


def test_a_big_topic_is_placed_as_in_kafka(jars: Jars) -> None:
    brokers: list[tuple[int, str | None, bool]] = [
        (id, f"rack-{id % 3}", id % 50 == 7) for id in range(300)
    ]
    case = Case(SEED, brokers, [(50_000, 3), (20_000, 4), (7, 300)])
    assert answer_of_kernel(case) == ask_places(jars, [case])[0]


def test_the_kept_corpus_has_kafkas_results(jars: Jars) -> None:
    pairs = read_corpus()
    assert ask_places(jars, [case for case, _ in pairs]) == [answer for _, answer in pairs]


def test_random_numbers_and_shuffles_equal_those_of_java(jars: Jars) -> None:
    dice = random.Random(SEED)
    draws: list[tuple[int, list[int]]] = []
    shuffles: list[tuple[int, int]] = []
    for _ in range(50):
        # With a bound just above 2**30 half of the draws are repeated; 0 stands for nextInt().
        bounds = [
            dice.choice([0, 1, 2, 3, 1 << dice.randrange(31), 2**30 + 1, dice.randrange(1, 2**31)])
            for _ in range(200)
        ]
        draws.append((dice.randrange(-(2**63), 2**63), bounds))
        shuffles.append((dice.randrange(-(2**63), 2**63), dice.randrange(200)))
    lines = [f"random {seed} {','.join(map(str, bounds))}" for seed, bounds in draws]
    lines += [f"shuffle {seed} {size}" for seed, size in shuffles]
    answers = [[int(n) for n in line.split(",") if n] for line in ask(jars, lines)]
    for (seed, bounds), drawn in zip(draws, answers[: len(draws)], strict=True):
        generator = JavaRandom(seed)
        assert [generator.next_int(bound or None) for bound in bounds] == drawn, seed
    for (seed, size), shuffled in zip(shuffles, answers[len(draws) :], strict=True):
        values = list(range(size))
        JavaRandom(seed).shuffle(values)
        assert values == shuffled, seed


def test_directory_ids_equal_those_of_kafka(jars: Jars) -> None:
    (line,) = ask(jars, ["directories"])
    assert line.split(",") == [MIGRATING_DIRECTORY.hex(), UNASSIGNED_DIRECTORY.hex()]


if __name__ == "__main__":
    asked = generate(CORPUS_SEED, 200, most_partitions=80)
    write_corpus(KAFKA_4, list(zip(asked, ask_places(kafka(), asked), strict=True)))
