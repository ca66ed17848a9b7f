"""Sequences for whole controllers: Kafka's own QuorumController and ours, step by step.

A case is a list of JSON objects: the setup, then the steps (`quorum_world`). Compared after each
step: the appended batches, the responses, the active nodes, whether a node resigned or counted a
fault, the offset of the last image, and the notifications of publishers.
"""

from __future__ import annotations

import json
import random
import traceback
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from kraft.records import MetadataVersion, RegisterBroker, RegisterController, decode_value
from tests.differential.comparison import normalised
from tests.differential.kafka import Kafka
from tests.differential.operation import Request
from tests.differential.quorum_forgetting import FORGOTTEN, ForgettingWorld
from tests.differential.quorum_remaining import DifferingStep, reason
from tests.differential.quorum_steps import drawn_steps, is_excluded
from tests.differential.quorum_world import NODES, STARTS_ANEW, QuorumWorld
from tests.differential.registry import OPERATIONS
from tests.differential.setups import drawn_setup

Case = list[dict[str, Any]]
Outcome = dict[str, Any]

#: How many times a sequence continues, by one to several steps.
LENGTH = 60

_NOT_CONTROLLER = 41


def drawn_quorum_setup(dice: random.Random) -> dict[str, Any]:
    """Return a setup: the first records of the log, and those that another process writes."""
    setup = drawn_setup(dice)
    values = setup.pop("records")
    at = 1
    while at < len(values) and bytes.fromhex(values[at])[1] == _FEATURE_LEVEL:
        at += 1
    return {
        **setup,
        "nodes": list(NODES),
        "bootstrap": values[:at],
        "content": values[at:],
        "policies": dice.random() < 0.4,
        # No two tasks are due at the same time: Kafka takes its tasks from a hash table.
        "max_idle_interval_ms": dice.choice((503, 4_999)),
        "leader_imbalance_check_interval_ms": dice.choice((2_003, 300_007)),
        "unclean_leader_election_interval_ms": dice.choice((3_001, 300_017)),
        "delegation_token_expiry_check_interval_ms": dice.choice((7_001, 3_600_011)),
    }


_FEATURE_LEVEL = 12
#: BeginTransaction, EndTransaction, AbortTransaction.
_TRANSACTION_TYPES = (23, 24, 25)


@dataclass
class Drawn:
    """A case with this side's outcome of each step."""

    name: str
    case: Case
    outcomes: list[Outcome]


@dataclass
class Difference:
    """The first difference: at the last step of ``case``."""

    name: str
    case: Case
    what: str
    ours: Outcome
    kafkas: Outcome
    known: str | None = None

    def __str__(self) -> str:
        setup, *before, last = self.case
        lines = [f"{self.name}: {self.what} of {last['op']} differ"]
        shown = {key: each for key, each in setup.items() if key not in ("bootstrap", "content")}
        lines.append(f"  setup: {json.dumps(shown)}")
        for value in (*setup["bootstrap"], *setup["content"]):
            lines.append(f"    {decode_value(bytes.fromhex(value))}")
        lines += [f"  before: {json.dumps(_named(step))}" for step in before]
        lines.append(f"  step: {json.dumps(last)}")
        for side, outcome in (("here", self.ours), ("Kafka", self.kafkas)):
            lines.append(f"  {side}:")
            lines += [f"    {key}: {_shown(outcome, key)}" for key in outcome]
        return "\n".join(lines)


def _named(step: dict[str, Any]) -> dict[str, Any]:
    """Return a setup step with its content as names."""
    return {**step, "batches": "content"} if step.get("is_content") else step


def _shown(outcome: Outcome, key: str) -> str:
    if key != "appended":
        return str(outcome[key])
    return "".join(
        f"\n      {[base, epoch, time]}"
        + "".join(f"\n        {decode_value(bytes.fromhex(value))} [{value}]" for value in values)
        for base, epoch, time, values in outcome[key]
    )


def drawn(seed: int, number: int, length: int = LENGTH, only: Collection[str] = ()) -> Drawn:
    """Draw the sequence ``number`` of ``seed``. Operations in ``only`` make up half of its
    requests.
    """
    dice = random.Random(f"quorum {seed}/{number}")
    setup = drawn_quorum_setup(dice)
    world = QuorumWorld(setup)
    made = Drawn(f"seed {seed} sequence {number}", [setup], [])
    for step in drawn_steps(dice, world, length, only):
        made.outcomes.append(run_here(world, step))
        made.case.append(step)
        if "unexpected" in made.outcomes[-1]:
            break
    return made


def run_here(world: QuorumWorld, step: dict[str, Any]) -> Outcome:
    """Run a step; an unexpected exception becomes part of the outcome."""
    try:
        return world.take(step)
    except Exception as error:
        where = traceback.format_tb(error.__traceback__)[-2:]
        return {"unexpected": f"{type(error).__name__}: {error} {''.join(where)}"}


def difference(ours: Outcome, kafkas: Outcome, step: dict[str, Any], kinds: _Kinds) -> str | None:
    """Return what differs after a step, in one word; None if nothing does."""
    if "unexpected" in ours or "broken" in kafkas:
        return "unexpected"
    if bool(ours["faults"]) != bool(kafkas["faults"]):
        return "faults"
    if not kinds.are_same(ours["answers"], kafkas["answers"]):
        return "answers"
    if kinds.is_large(step):
        # Here it is a transaction, after which the offsets differ.
        return _difference_of_large(ours, kafkas)
    if _comparable(ours["appended"]) != _comparable(kafkas["appended"]):
        return "appended"
    keys = ["active", "resigned", "image"]
    # A publisher that starts again is notified of everything.
    keys += [] if step["op"] in STARTS_ANEW else ["changed"]
    for key in keys:
        if ours[key] != kafkas[key]:
            return key
    if kafkas["random_left"]:
        return "random_left"
    if _image(ours.get("snapshot", ())) != _image(kafkas.get("snapshot", ())):
        return "snapshot"
    return None


def _comparable(appended: list[list[Any]]) -> list[Any]:
    return [
        [base, epoch, time, normalised(bytes.fromhex(value) for value in values)]
        for base, epoch, time, values in appended
    ]


def _difference_of_large(ours: Outcome, kafkas: Outcome) -> str | None:
    mine, theirs = (
        [
            bytes.fromhex(value)
            for _, _, _, values in outcome["appended"]
            for value in values
            if int(value[2:4], 16) not in _TRANSACTION_TYPES
        ]
        for outcome in (ours, kafkas)
    )
    return None if normalised(mine) == normalised(theirs) else "appended"


def _image(snapshot: Iterable[str]) -> list[str]:
    """Return the records of an image, sorted where they come from hash tables."""
    made = []
    for value in snapshot:
        record: Any = decode_value(bytes.fromhex(value))
        if isinstance(record, (RegisterBroker, RegisterController)):
            record.features.sort(key=lambda feature: feature.name)
            record.end_points.sort(key=lambda point: point.name)
        made.append(f"{value[:6]} {record}")
    return sorted(made)


@dataclass
class _Kinds:
    """The operation of each token of a case."""

    case: Case
    by_token: dict[str, Request] = field(init=False, default_factory=dict)
    _early: dict[str, Any] = field(init=False, default_factory=dict)
    _was_large: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        for step in self.case:
            kind = OPERATIONS.get(step["op"])
            if isinstance(kind, Request) and "token" in step:
                self.by_token[str(step["token"])] = kind

    def is_large(self, step: dict[str, Any]) -> bool:
        """Return whether this step or an earlier one was a large request."""
        self._was_large |= step.get("is_large", False)
        return self._was_large

    def are_same(self, ours: Outcome, kafkas: Outcome) -> bool:
        """Return whether both sides responded the same.

        Kafka's response with errors inside waits for the commits before it; here an error is
        returned at once. The same holds for a response of a leader whose disk is behind.
        """
        theirs = {token: self._understood(token, each) for token, each in kafkas.items()}
        mine = {token: each["error"] or [each["response"]] for token, each in ours.items()}
        for token, answer in ours.items():
            if answer.get("is_early"):
                self._early[token] = mine.pop(token)
        for token in self._early.keys() & theirs.keys():
            early = self._early.pop(token)
            # Its leadership ended meanwhile, and all waiting requests with it.
            mine[token] = theirs[token] if theirs[token] == _NOT_CONTROLLER else early
        return mine == theirs

    def _understood(self, token: str, answer: dict[str, Any]) -> Any:
        return answer["error"] or [self.by_token[token].understood(answer["response"])]


def compared(made: Drawn, answers: list[Outcome]) -> Difference | None:
    """Return the first difference between this side's outcomes and Kafka's."""
    kinds = _Kinds(made.case)
    for at, (ours, kafkas) in enumerate(zip(made.outcomes, answers[1:], strict=True)):
        what = difference(ours, kafkas, made.case[at + 1], kinds)
        if what is not None:
            case = made.case[: at + 2]
            differing = DifferingStep(
                what, case[1:], made.outcomes[:at], ours, kafkas, answers[at + 2 :]
            )
            known = reason(differing)
            if known is None and _is_of_forgotten_record(made, answers, at):
                known = FORGOTTEN
            return Difference(f"{made.name} step {at}", case, what, ours, kafkas, known)
    return None


def _is_of_forgotten_record(made: Drawn, answers: list[Outcome], last: int) -> bool:
    """Return whether this side matches Kafka up to the step ``last`` if its nodes lose the record
    too.
    """
    world = ForgettingWorld(made.case[0])
    kinds = _Kinds(made.case)
    for at in range(last + 1):
        step = dict(made.case[at + 1])
        if difference(run_here(world, step), answers[at + 1], step, kinds) is not None:
            return False
    return world.has_forgotten


def run_case(kafka: Kafka, case: Case, name: str = "case") -> Difference | None:
    """Run a case from its beginning on both sides."""
    world = QuorumWorld(case[0])
    steps = [dict(step) for step in case[1:]]
    outcomes = []
    for step in steps:
        if is_excluded(world, step):
            return None
        outcomes.append(run_here(world, step))
        if "unexpected" in outcomes[-1]:
            steps = steps[: len(outcomes)]
            break
    made = Drawn(name, [case[0], *steps], outcomes)
    return compared(made, kafka.ask_json(made.case))


def shrunk(kafka: Kafka, found: Difference) -> Difference:
    """Minimise a difference: the same kind with as few steps and setup records as possible.

    It leaves out halves first, then single steps. A candidate that differs in another way, or at
    which this side fails, is skipped.
    """
    smallest = found
    size = max(len(found.case) // 2, 1)
    while size:
        at = len(smallest.case) - 1 - size
        while at >= 1:
            smaller = _tried(kafka, [*smallest.case[:at], *smallest.case[at + size :]], found)
            smallest = smaller or smallest
            at = min(at - size, len(smallest.case) - 1 - size)
        size //= 2
    setup, *steps = smallest.case
    for place in reversed(range(len(setup["content"]))):
        kept = setup["content"][:place] + setup["content"][place + 1 :]
        smaller = _tried(kafka, _with_content(setup, kept, steps), found)
        if smaller is not None:
            smallest = smaller
            setup, *steps = smallest.case
    return smallest


def _with_content(setup: dict[str, Any], content: list[str], steps: Case) -> Case:
    kept = set(content)
    changed = []
    for step in steps:
        if step["op"] == "write" and step.get("is_content"):
            batches = [[value for value in batch if value in kept] for batch in step["batches"]]
            changed.append({**step, "batches": [batch for batch in batches if batch]})
        else:
            changed.append(step)
    return [{**setup, "content": content}, *changed]


def _tried(kafka: Kafka, case: Case, wanted: Difference) -> Difference | None:
    found = run_case(kafka, case, wanted.name)
    if found is None or found.known or found.what != wanted.what:
        return None
    if found.case[-1]["op"] != wanted.case[-1]["op"] or len(found.case) != len(case):
        return None
    return found if _kind(found) == _kind(wanted) else None


def _kind(found: Difference) -> tuple[Any, ...]:
    """Return the values that two differences of one cause have in common."""
    errors = [
        tuple(answer["error"] for answer in outcome.get("answers", {}).values())
        for outcome in (found.ours, found.kafkas)
    ]
    types = [
        tuple(
            type
            for batch in outcome.get("appended", ())
            for type, _ in groupby(int(value[2:4], 16) for value in batch[3])
        )
        for outcome in (found.ours, found.kafkas)
    ]
    return found.what, found.case[-1]["op"], *errors, *(types if found.what == "appended" else ())


@dataclass
class Report:
    """The result of a run of sequences."""

    sequences: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    succeeded: Counter[str] = field(default_factory=Counter)
    records: int = 0
    by_tasks: int = 0
    differences: list[Difference] = field(default_factory=list)
    differing: int = 0
    known: Counter[str] = field(default_factory=Counter)
    levels: Counter[str] = field(default_factory=Counter)


def run_quorums(
    kafka: Kafka,
    seed: int,
    numbers: range,
    *,
    length: int = LENGTH,
    only: Collection[str] = (),
    shown: int = 5,
) -> Report:
    """Run the sequences ``numbers`` of ``seed``; minimise and keep ``shown`` differences."""
    report = Report()
    kinds: dict[tuple[Any, ...], Difference] = {}
    for made, answers in kafka.answered(drawn(seed, n, length, only) for n in numbers):
        report.sequences += 1
        _count(report, made)
        found = compared(made, answers)
        if found is not None and found.known is not None:
            report.known[found.known] += 1
        elif found is not None:
            report.differing += 1
            kinds.setdefault(_kind(found), found)
    report.differences = [shrunk(kafka, found) for found in list(kinds.values())[:shown]]
    return report


def _count(report: Report, made: Drawn) -> None:
    level = decode_value(bytes.fromhex(made.case[0]["bootstrap"][0])).feature_level  # type: ignore[union-attr]
    report.levels[MetadataVersion(level).text] += 1
    kinds = _Kinds(made.case)
    for step, outcome in zip(made.case[1:], made.outcomes, strict=True):
        report.steps[step["op"]] += 1
        written = sum(len(batch[3]) for batch in outcome.get("appended", ()))
        report.records += written
        report.by_tasks += written if step["op"] == "advance" else 0
        for token, answer in outcome.get("answers", {}).items():
            report.succeeded[kinds.by_token[token].name] += answer["error"] == 0
