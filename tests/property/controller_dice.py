"""Random parts of requests: existing brokers and topics, and sometimes unknown ones."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from kraft.controller.runtime.operations import Operation
from kraft.records import Uuid
from tests.property.controller_equality import answer_as_codes
from tests.property.controller_quorum import RECORDS_OF_BATCH, ModelledQuorum
from tests.property.controller_watch import Command
from tests.reference import controller_brokers_twin as brokers_twin
from tests.reference import controller_topics_twin as topics_twin
from tests.reference.controller_state_twin import ELR, METADATA_VERSION

BROKERS = range(5)
NAMES = ("a", "b.c", "b_c", "d", "e", "f")
CONFIGS = (
    ("min.insync.replicas", ("1", "2", "3", "0", "x")),
    ("unclean.leader.election.enable", ("true", "true", "false", "perhaps")),
    ("retention.ms", ("1000", "-1", "-2")),
    ("nonsense", ("1",)),
)
LIMITS = topics_twin.Limits(RECORDS_OF_BATCH)
SUPPORTED = {METADATA_VERSION: (7, 30), ELR: (0, 1)}
Dice = Random
Kind = Callable[[ModelledQuorum, Random], None]


def now_and_then(dice: Dice) -> bool:
    return dice.random() < 0.08


def _deadline(quorum: ModelledQuorum, dice: Dice) -> float:
    return quorum.now_ms + dice.choice((0, 500, 5_000)) if now_and_then(dice) else float("inf")


def ask(
    quorum: ModelledQuorum,
    dice: Dice,
    operation: Operation,
    decide: Callable[[], brokers_twin.TwinDecision],
    normal: Callable[[Any], Any] = answer_as_codes,
) -> None:
    quorum.ask_later(Command(operation, decide, normal, _deadline(quorum, dice)))


def epoch_of(quorum: ModelledQuorum, dice: Dice, broker: int) -> int:
    registered = quorum.controller.cluster.state.brokers.get(broker)
    if registered is None or now_and_then(dice):
        return dice.randrange(5)
    return registered.epoch


def some_broker(quorum: ModelledQuorum, dice: Dice) -> int:
    known = sorted(quorum.controller.cluster.state.brokers)
    return dice.choice(known) if known and not now_and_then(dice) else dice.choice(BROKERS)


def some_topic(quorum: ModelledQuorum, dice: Dice) -> tuple[str, int]:
    table = quorum.controller.cluster.table
    numbers = table.topic_numbers()
    if not numbers or now_and_then(dice):
        return dice.choice(NAMES), 1
    number = dice.choice(numbers)
    return table.topic_name(number), len(table.topic_rows(number))


def topic_id_of(quorum: ModelledQuorum, dice: Dice, name: str) -> Uuid:
    table = quorum.controller.cluster.table
    number = table.topic_number(name)
    return quorum.new_id() if number < 0 else Uuid(table.topic_id_of(number))
