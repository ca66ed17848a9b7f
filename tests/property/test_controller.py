"""The controller against its slow twin: any requests, commits, time and losses of leadership.

Transactions are cut, and leadership is lost at any point and taken over by a standby. After every
turn both have the same state, sessions and answers; from time to time the log is replayed, with a
snapshot before it and without. ``CONTROLLER_MODEL_RUNS`` (the number of random runs) and
``CONTROLLER_MODEL_SEED`` make it long.
"""

from __future__ import annotations

import os
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.property import controller_requests as requests
from tests.property.controller_dice import Kind
from tests.property.controller_quorum import NODES, ModelledQuorum

RUNS = int(os.environ.get("CONTROLLER_MODEL_RUNS", "120"))
SEED = int(os.environ.get("CONTROLLER_MODEL_SEED", "1"))
STEPS = 120
LEVELS = (30, 30, 30, 23, 17, 13, 12, 7)
DICE = st.randoms(use_true_random=False)


def commit(quorum: ModelledQuorum, dice: Random) -> None:
    """Commit some or all of the uncommitted batches."""
    ends = [at for at, _ in quorum.batches if at >= quorum.committed] + [quorum.end_offset]
    quorum.commit_both(dice.choice(ends))


def let_time_go_by(quorum: ModelledQuorum, dice: Random) -> None:
    quorum.now_ms += dice.choice((1, 10, 600, 1_200, 3_000, 5_000))


def lose(quorum: ModelledQuorum, dice: Random) -> None:
    quorum.lose(dice, failed_append=dice.random() < 0.3)


def take_over(quorum: ModelledQuorum, dice: Random) -> None:
    quorum.lead(dice.choice(NODES))


def follow(quorum: ModelledQuorum, dice: Random) -> None:
    quorum.follow(
        dice.choice([node for node in NODES if node != quorum.leader]), dice.choice((1, 3, 100))
    )


def publish(quorum: ModelledQuorum, dice: Random) -> None:
    quorum.publish(dice.choice(NODES))


def restart_from_disk(quorum: ModelledQuorum, dice: Random) -> None:
    quorum.restart_from_disk(dice.choice([node for node in NODES if node != quorum.leader]), dice)


def step(quorum: ModelledQuorum, dice: Random) -> None:
    """Run one random step."""
    if quorum.leader is None:
        dice.choice((take_over, take_over, follow, publish))(quorum, dice)
        return
    what = dice.random()
    if what < 0.20:
        requests.request(quorum, dice)
    elif what < 0.55:
        requests.request(quorum, dice)
        for _ in range(dice.choice((1, 1, 3, 6))):
            quorum.turn(may_append=dice.random() < 0.95)
    elif what < 0.75:
        quorum.turn(may_append=dice.random() < 0.95)
    elif what < 0.87:
        commit(quorum, dice)
    elif what < 0.92:
        let_time_go_by(quorum, dice)
    else:
        dice.choice(SELDOM)(quorum, dice)


def settle(quorum: ModelledQuorum, dice: Random) -> None:
    quorum.settle_both()


def look(quorum: ModelledQuorum, dice: Random) -> None:
    quorum.check_ways(dice)


SELDOM = (*(follow, restart_from_disk, publish, publish, settle), *(requests.restart, lose, look))


def run(seed: int, steps: int = STEPS) -> ModelledQuorum:
    dice = Random(seed)
    level = dice.choice(LEVELS)
    quorum = ModelledQuorum(level, elr=level >= 23 and dice.random() < 0.5)
    try:
        quorum.lead()
        requests.register_first_brokers(quorum, dice)
        requests.create_first_topics(quorum, dice)
        for _ in range(steps):
            step(quorum, dice)
        if quorum.leader is not None:
            quorum.settle_both()
        quorum.check_ways(dice)
    finally:
        quorum.close()
    return quorum


@pytest.mark.parametrize("seed", range(SEED, SEED + RUNS))
def test_the_controller_equals_its_twin_over_a_random_run(seed: int) -> None:
    assert run(seed).steps > 0


class ControllerMachine(RuleBasedStateMachine):
    """The same steps, in an order that hypothesis chooses and minimises."""

    @initialize(level=st.sampled_from(LEVELS), elr=st.booleans(), dice=DICE)
    def begin(self, level: int, elr: bool, dice: Random) -> None:
        self.quorum = ModelledQuorum(level, elr=elr and level >= 23)
        self.quorum.lead()
        requests.register_first_brokers(self.quorum, dice, range(4))
        requests.create_first_topics(self.quorum, dice)

    def leads(self) -> bool:
        return self.quorum.leader is not None

    @precondition(leads)
    @rule(dice=DICE, kind=st.sampled_from(requests.KINDS))
    def ask(self, dice: Random, kind: Kind) -> None:
        kind(self.quorum, dice)

    @precondition(leads)
    @rule(may_append=st.sampled_from((True, True, True, False)))
    def turn(self, may_append: bool) -> None:
        self.quorum.turn(may_append=may_append)

    @precondition(leads)
    @rule()
    def settle(self) -> None:
        self.quorum.settle_both()

    @precondition(leads)
    @rule(dice=DICE)
    def commit(self, dice: Random) -> None:
        commit(self.quorum, dice)

    @precondition(leads)
    @rule(dice=DICE)
    def let_time_go_by(self, dice: Random) -> None:
        let_time_go_by(self.quorum, dice)

    @precondition(leads)
    @rule(dice=DICE)
    def lose(self, dice: Random) -> None:
        lose(self.quorum, dice)

    @precondition(leads)
    @rule(dice=DICE)
    def restart(self, dice: Random) -> None:
        requests.restart(self.quorum, dice)

    @precondition(lambda self: not self.leads())
    @rule(dice=DICE)
    def take_over(self, dice: Random) -> None:
        take_over(self.quorum, dice)

    @rule(dice=DICE)
    def follow(self, dice: Random) -> None:
        follow(self.quorum, dice)

    @rule(dice=DICE)
    def publish(self, dice: Random) -> None:
        publish(self.quorum, dice)

    @rule(dice=DICE)
    def restart_from_disk(self, dice: Random) -> None:
        restart_from_disk(self.quorum, dice)

    @rule(dice=DICE)
    def replay(self, dice: Random) -> None:
        self.quorum.check_ways(dice)

    @invariant()
    def nothing_is_left_to_be_answered(self) -> None:
        if hasattr(self, "quorum"):
            assert not self.quorum.answers

    def teardown(self) -> None:
        if hasattr(self, "quorum"):
            self.quorum.close()


ControllerMachine.TestCase.settings = settings(
    max_examples=RUNS,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
test_any_order = ControllerMachine.TestCase
