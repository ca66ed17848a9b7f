"""Scenarios: what a file may say, and what is rejected before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraft.errors import InvalidConfigError
from kraft.fleet.library import named_scenario, scenario_names
from kraft.fleet.scenario import Lose, Start, Steady, parse_scenario, read_scenario

START: dict[str, Any] = {"do": "start"}


def parsed(*steps: Any, **more: Any) -> Any:
    return parse_scenario({"name": "a", "steps": list(steps), **more}, "a.yaml")


def test_a_yaml_file_becomes_steps(tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(
        """
name: two-racks
seed: 7
steps:
  - do: start
  - {do: lose, rack: rack-1}
  - {do: lose, rack: rack-2, name: second}
"""
    )
    scenario = read_scenario(path)
    assert (scenario.name, scenario.seed) == ("two-racks", 7)
    assert scenario.steps == (
        Start(name="start"),
        Lose(name="lose", rack="rack-1"),
        Lose(name="second", rack="rack-2"),
    )


def test_steps_of_one_kind_have_different_names_in_the_trace() -> None:
    steady = {"do": "steady"}
    assert [step.name for step in parsed(START, steady, steady).steps] == [
        *("start", "steady", "steady_2")
    ]


def test_a_whole_number_is_a_number() -> None:
    assert parsed(START, {"do": "steady", "seconds": 3}).steps[1] == Steady(
        name="steady", seconds=3.0
    )


def test_every_scenario_of_the_library_is_valid() -> None:
    for name in scenario_names():
        scenario = named_scenario(name)
        assert scenario.name == name
        assert scenario.description
        assert scenario.needs_own_quorum == (
            name in ("controller-loss", "controller-replaced", "two-million")
        )


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ([], "a scenario is a mapping with name and steps"),
        ({"name": "a", "steps": [START], "stpes": 1}, "a scenario has no 'stpes'; it has name"),
        ({"steps": [START]}, "name is None: give the scenario's name"),
        ({"name": "a", "steps": []}, r"steps is \[\]: give a list of steps"),
        ({"name": "a", "steps": [START], "seed": "x"}, "seed is 'x': give a whole number"),
        ({"name": "a", "steps": ["start"]}, "step 1 is 'start': give a mapping with 'do'"),
        ({"name": "a", "steps": [{"do": "steady"}]}, "step 1 is 'steady': begin with 'start'"),
    ],
)
def test_a_malformed_scenario_is_rejected(given: Any, reason: str) -> None:
    with pytest.raises(InvalidConfigError, match=reason):
        parse_scenario(given, "a.yaml")


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ({"do": "explode"}, "step 2: there is no step 'explode'; there are start, create_topics"),
        ({"do": "lose", "rac": "a"}, "step 2: lose has no 'rac'; it has name, rack, region"),
        ({"do": "lose"}, "lose needs one of rack, region and brokers, not none"),
        (
            {"do": "lose", "rack": "rack-1", "brokers": 3},
            "lose needs one of rack, region and brokers, not rack and brokers",
        ),
        ({"do": "lose", "brokers": -1}, "brokers is -1: give a number from 0 to 1e"),
        ({"do": "lose", "brokers": 1.5}, "brokers is 1.5: give a whole number"),
        ({"do": "lose", "brokers": True}, "brokers is True: give a whole number"),
        ({"do": "steady", "seconds": "long"}, "seconds is 'long': give a number"),
        ({"do": "lose", "rack": 3}, "rack is 3: give a text"),
        ({"do": "start", "name": "a\nb"}, r"name is 'a\\nb': give a printable text"),
        ({"do": "create_topics", "partitions_per_topic": 10_000}, "give a number from 1 to 9999"),
        ({"do": "start", "together": 1}, "together is 1: give true or false"),
        ({"do": "start", "together": True, "at_once": 3}, "leave out at_once"),
    ],
)
def test_a_malformed_step_is_rejected(step: Any, reason: str) -> None:
    with pytest.raises(InvalidConfigError, match=reason):
        parsed(START, step)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.yaml", "name: a\nsteps: [", r"a\.yaml, line 2: not YAML: expected the node content"),
        ("a.yaml", "name: a\nsteps: \0", r"a\.yaml: not YAML: unacceptable character"),
        ("a.json", "{", r"a\.json: not JSON: .* line 1"),
    ],
)
def test_a_file_that_cannot_be_read_is_rejected(
    tmp_path: Path, name: str, text: str, reason: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InvalidConfigError, match=reason):
        read_scenario(path)


def test_a_missing_file_and_an_unknown_name_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match="cannot read"):
        read_scenario(tmp_path / "none.yaml")
    with pytest.raises(InvalidConfigError, match="there is no scenario 'x'; there are idle"):
        named_scenario("x")
