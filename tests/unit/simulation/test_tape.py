"""A tape: what was drawn is drawn again by whoever drew it, whatever the others do."""

from random import Random

import pytest

from kraft.simulation import scenario, whole_scenario
from kraft.simulation.tape import Tape


def test_a_tape_draws_what_a_random_source_of_its_seed_draws() -> None:
    tape, random = Tape(17), Random(17)

    def draw(source: Random) -> list[object]:
        return [
            source.random(),
            source.choice("abc"),
            source.choices((1, 2, 3), (5, 1, 1)),
            source.randrange(1000),
            source.randbytes(15),
            source.expovariate(0.1),
            source.uniform(2.0, 3.0),
            source.sample(range(100), 5),
        ]

    assert draw(tape) == draw(random)


def test_a_channel_that_is_left_out_is_missed_by_nobody_else() -> None:
    tape = Tape(3)
    drawn = {}
    for name in ("one", "other", "third"):
        tape.choose(name)
        drawn[name] = [tape.random(), tape.getrandbits(40), tape.random()]

    again = Tape(3, tape)
    for name in ("third", "one"):
        again.choose(name)
        assert [again.random(), again.getrandbits(40), again.random()] == drawn[name]


def test_who_draws_more_than_before_draws_the_same_in_every_process() -> None:
    tape = Tape(3)
    tape.choose("one")
    first = tape.random()
    replays = [Tape(3, tape), Tape(3, tape)]
    for replay in replays:
        replay.choose("one")
        assert replay.random() == first
    assert [replays[0].random(), replays[0].getrandbits(9)] == [
        replays[1].random(),
        replays[1].getrandbits(9),
    ]
    source = Random("3 ('one',)")
    other = Tape(3, tape)
    other.choose("one")
    other.random()
    assert other.random() == source.random()


def test_who_asks_for_something_else_is_given_it() -> None:
    tape = Tape(3)
    tape.choose("one")
    tape.random()
    second = tape.getrandbits(8)
    again = Tape(3, tape)
    again.choose("one")
    assert 0 <= again.getrandbits(4) < 16
    assert again.getrandbits(8) == second


@pytest.mark.parametrize(
    ("module", "events"), [(scenario, 1500), (whole_scenario, 700)], ids=["quorum", "controllers"]
)
def test_a_history_by_its_tape_is_the_history(module: object, events: int) -> None:
    run_seed = module.run_seed  # type: ignore[attr-defined]
    start = getattr(module, "random_of", int)
    for seed in (8, 11):
        plain = run_seed(seed, events)
        tape = Tape(start(seed))
        recorded = run_seed(seed, events, tape=tape)
        replayed = run_seed(seed, events, tape=Tape(start(seed), tape))
        assert recorded.digest == plain.digest
        assert replayed.digest == plain.digest
        assert recorded.injected == replayed.injected == plain.injected
