"""Draw sequences of operations, run them on both sides, and minimise those that differ.

A case is a list of JSON objects: the setup, then the operations. Drawing runs this side, whose
state determines plausible next operations; a drawn case runs again from its JSON alone.
"""

from __future__ import annotations

import json
import random
import traceback
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from kraft._core.bytes.batch_records import iterate
from kraft.errors import KraftError
from kraft.records import decode_value
from tests.differential.comparison import described, difference
from tests.differential.history import History
from tests.differential.kafka import Kafka
from tests.differential.operation import Decided, Operation, Outcome
from tests.differential.registry import OPERATIONS, SUBJECTS
from tests.differential.remaining import DifferingOperation, reason
from tests.differential.setups import drawn_setup
from tests.differential.world import World

Case = list[dict[str, Any]]

LENGTH = 50

#: The error code of an unexpected exception of this side; Kafka has none like it.
_UNEXPECTED = -999


@dataclass
class Difference:
    """The first difference: the last operation of ``case``."""

    name: str
    case: Case
    what: str
    text: str
    ours: Outcome
    kafkas: dict[str, Any]
    known: str | None = None

    def __str__(self) -> str:
        setup, *before, last = self.case
        lines = [f"{self.name}: {self.what} of {last['op']} differ", f"  setup: {_short(setup)}"]
        lines += [f"  before: {json.dumps(step)}" for step in before]
        return "\n".join([*lines, f"  operation: {json.dumps(last)}", self.text])


def _short(setup: dict[str, Any]) -> str:
    settings = {key: value for key, value in setup.items() if key not in ("op", "records")}
    records = [str(decode_value(bytes.fromhex(value))) for value in setup["records"]]
    return "\n    ".join([json.dumps(settings), *records])


@dataclass
class Drawn:
    """A case with this side's outcome of each operation."""

    name: str
    case: Case
    outcomes: list[Outcome]


def drawn(seed: int, number: int, length: int = LENGTH, only: Collection[str] = ()) -> Drawn:
    """Draw the sequence ``number`` of ``seed``. Operations in ``only`` make up half of it."""
    dice = random.Random(f"{seed}/{number}")
    setup = drawn_setup(dice)
    world = World(setup)
    case: Case = [setup]
    outcomes: list[Outcome] = []
    subject = dice.choice(SUBJECTS)
    weights = [operation.weight for operation in subject]
    while len(outcomes) < length:
        (operation,) = dice.choices(subject, weights)
        if only and dice.random() < 0.5:
            operation = OPERATIONS[dice.choice(sorted(only))]
        arguments = operation.arguments(dice, world)
        if arguments is None:
            continue
        step = {"op": operation.name, **arguments}
        outcomes.append(run_here(operation, world, step))
        case.append(step)
    return Drawn(f"seed {seed} sequence {number}", case, outcomes)


def run_here(operation: Operation, world: World, step: dict[str, Any]) -> Outcome:
    """Decide and apply; notes in ``step`` the random bytes that Kafka has to draw."""
    step.pop("random", None)
    try:
        try:
            made = operation.decide(world, step)
        except KraftError as refusal:
            text = f"{type(refusal).__name__}: {refusal}"
            return Outcome(error=refusal.kafka_code, message=text)
        if made.random:
            step["random"] = made.random.hex()
        return _taken_over(world, made)
    except Exception as error:
        # Any other exception is a difference too.
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error} in {where.filename}, line {where.lineno}"
        return Outcome(error=_UNEXPECTED, message=text)


def _taken_over(world: World, made: Decided) -> Outcome:
    outcome = Outcome(answer=made.answer)
    if made.decision is not None:
        outcome.is_atomic = made.decision.is_atomic
        outcome.records = [
            bytes(record.value or b"")
            for batch in iterate(made.decision.records.batches)
            for record in batch
        ]
        world.write(made.decision)
    if made.applied is not None:
        made.applied()
    return outcome


def compared(made: Drawn, answers: list[dict[str, Any]]) -> Difference | None:
    """Return the first difference between this side's outcomes and Kafka's answers."""
    if answers[0]["error"]:
        raise AssertionError(f"{made.name}: Kafka rejects the setup: {answers[0]}")
    for at, (ours, kafkas) in enumerate(zip(made.outcomes, answers[1:], strict=True)):
        operation = OPERATIONS[made.case[at + 1]["op"]]
        what = difference(operation, ours, kafkas)
        if what is not None:
            text = described(operation, ours, kafkas)
            known = reason(_differing(made, at, kafkas))
            name = f"{made.name} operation {at}"
            return Difference(name, made.case[: at + 2], what, text, ours, kafkas, known)
    return None


def _differing(made: Drawn, at: int, kafkas: dict[str, Any]) -> DifferingOperation:
    setup, *steps = made.case
    ours = made.outcomes[at]
    values = [bytes.fromhex(value) for value in setup["records"]]
    values += [value for outcome in made.outcomes[:at] for value in outcome.records]
    return DifferingOperation(
        steps[at]["op"],
        steps[at],
        History.of(values),
        ours.error,
        ours.records,
        kafkas["error"],
        kafkas.get("message", ""),
        [bytes.fromhex(value) for value in kafkas.get("records", ())],
        kafkas.get("response"),
    )


def run_case(kafka: Kafka, case: Case, name: str = "case") -> Difference | None:
    """Run a case from its beginning on both sides."""
    world = World(case[0])
    steps = [dict(step) for step in case[1:]]
    outcomes = [run_here(OPERATIONS[step["op"]], world, step) for step in steps]
    made = Drawn(name, [case[0], *steps], outcomes)
    return compared(made, kafka.ask_json(made.case))


def shrunk(kafka: Kafka, found: Difference) -> Difference:
    """Minimise a difference: the same kind with as few operations and setup records as possible.

    A candidate that cannot run on either side, or that differs in another way, is skipped.
    """
    smallest = found
    for candidate_of in (_without_operation, _without_record):
        at = 0
        while (candidate := candidate_of(smallest.case, at)) is not None:
            smaller = _tried(kafka, candidate, found)
            if smaller is None:
                at += 1
            else:
                smallest = smaller
    return smallest


def _without_operation(case: Case, at: int) -> Case | None:
    # The last operation, which differs, stays; late ones go first, as most depend on early ones.
    place = len(case) - 2 - at
    return None if place < 1 else case[:place] + case[place + 1 :]


def _without_record(case: Case, at: int) -> Case | None:
    setup, *steps = case
    place = len(setup["records"]) - 1 - at
    if place < 1:
        return None
    kept = setup["records"][:place] + setup["records"][place + 1 :]
    return [{**setup, "records": kept}, *steps]


def _tried(kafka: Kafka, case: Case, wanted: Difference) -> Difference | None:
    try:
        found = run_case(kafka, case, wanted.name)
    except (KraftError, AssertionError, LookupError):
        return None
    if (
        found is None
        or found.known
        or (found.what, found.case[-1]["op"]) != (wanted.what, case[-1]["op"])
    ):
        return None
    same_errors = found.ours.error == wanted.ours.error
    if not same_errors or found.kafkas["error"] != wanted.kafkas["error"]:
        return None
    return found if len(found.case) == len(case) else None


@dataclass
class Report:
    """The result of a run of sequences."""

    sequences: int
    operations: Counter[str]
    succeeded: Counter[str]
    records: int
    differences: list[Difference]
    differing: int
    known: Counter[str]


def run_sequences(
    kafka: Kafka,
    seed: int,
    numbers: range,
    *,
    length: int = LENGTH,
    only: Collection[str] = (),
    shown: int = 5,
) -> Report:
    """Run the sequences ``numbers`` of ``seed``; minimise and keep ``shown`` differences."""
    report = Report(0, Counter(), Counter(), 0, [], 0, Counter())
    for made, answers in kafka.answered(drawn(seed, n, length, only) for n in numbers):
        report.sequences += 1
        for step, outcome in zip(made.case[1:], made.outcomes, strict=True):
            report.operations[step["op"]] += 1
            report.succeeded[step["op"]] += outcome.error == 0
            report.records += len(outcome.records)
        found = compared(made, answers)
        if found is not None and found.known is not None:
            report.known[found.known] += 1
        elif found is not None:
            report.differing += 1
            report.differences.append(found)
    kinds: dict[tuple[Any, ...], Difference] = {}
    for found in report.differences:
        kind = (found.what, found.case[-1]["op"], found.ours.error, found.kafkas["error"])
        kinds.setdefault(kind, found)
    report.differences = [shrunk(kafka, found) for found in list(kinds.values())[:shown]]
    return report
