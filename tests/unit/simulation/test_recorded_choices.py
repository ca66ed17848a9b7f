"""Recorded choices: each channel replays its own choices, whatever other channels do."""

from random import Random

import pytest

from kraft.simulation import scenario, whole_scenario
from kraft.simulation.recorded_choices import RecordedChoices


def test_recording_makes_the_choices_of_a_random_source() -> None:
    choices, random = RecordedChoices(17), Random(17)

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

    assert draw(choices) == draw(random)


def test_leaving_out_a_channel_affects_no_other() -> None:
    choices = RecordedChoices(3)
    drawn = {}
    for name in ("one", "other", "third"):
        choices.choose(name)
        drawn[name] = [choices.random(), choices.getrandbits(40), choices.random()]

    again = RecordedChoices(3, choices)
    for name in ("third", "one"):
        again.choose(name)
        assert [again.random(), again.getrandbits(40), again.random()] == drawn[name]


def test_choices_beyond_the_record_are_the_same_in_every_process() -> None:
    choices = RecordedChoices(3)
    choices.choose("one")
    first = choices.random()
    replays = [RecordedChoices(3, choices), RecordedChoices(3, choices)]
    for replay in replays:
        replay.choose("one")
        assert replay.random() == first
    assert [replays[0].random(), replays[0].getrandbits(9)] == [
        replays[1].random(),
        replays[1].getrandbits(9),
    ]
    source = Random("3 ('one',)")
    other = RecordedChoices(3, choices)
    other.choose("one")
    other.random()
    assert other.random() == source.random()


def test_a_choice_of_another_kind_is_drawn_anew() -> None:
    choices = RecordedChoices(3)
    choices.choose("one")
    choices.random()
    second = choices.getrandbits(8)
    again = RecordedChoices(3, choices)
    again.choose("one")
    assert 0 <= again.getrandbits(4) < 16
    assert again.getrandbits(8) == second


@pytest.mark.parametrize(
    ("module", "events"), [(scenario, 1500), (whole_scenario, 700)], ids=["quorum", "controllers"]
)
def test_a_replay_of_all_choices_equals_the_run(module: object, events: int) -> None:
    run_seed = module.run_seed  # type: ignore[attr-defined]
    start = getattr(module, "random_of", int)
    for seed in (8, 11):
        plain = run_seed(seed, events)
        choices = RecordedChoices(start(seed))
        recorded = run_seed(seed, events, choices=choices)
        replayed = run_seed(seed, events, choices=RecordedChoices(start(seed), choices))
        assert recorded.digest == plain.digest
        assert replayed.digest == plain.digest
        assert recorded.injected == replayed.injected == plain.injected
