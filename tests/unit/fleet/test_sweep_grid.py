"""The runs of a sweep: their order, their command, and what is rejected before anything starts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kraft.errors import InvalidArgumentError, KraftError
from kraft.fleet import sweep_grid
from kraft.fleet.launch import check_request
from kraft.fleet.library import find_scenario, named_scenario, scenario_names
from kraft.fleet.limits import check_limits
from kraft.fleet.scenario import parse_scenario, scenario_document
from kraft.fleet.sweep_grid import SweepSettings, SweptRun, check_sweep, grid

IDLE = SweepSettings(named_scenario("idle"))


def test_every_size_of_a_seed_comes_before_the_next_seed() -> None:
    runs = grid("30,10", "1_000,100", "1, 0", "kraft,kafka")
    assert len({run.name for run in runs}) == len(runs) == 16
    assert [run.seed for run in runs] == [0] * 8 + [1] * 8
    assert [run.name for run in runs[:3]] == [
        "kafka-b10-p100-s0",
        "kraft-b10-p100-s0",
        "kafka-b30-p100-s0",
    ]
    assert runs[-1].title == "kraft, 30 brokers, 1,000 partitions, seed 1"


@pytest.mark.parametrize(
    ("lists", "reason"),
    [
        (("", "1", "0", "kraft"), "'' is no number of brokers: give 1 to 100000"),
        (("0", "1", "0", "kraft"), "'0' is no number of brokers"),
        (("3,3", "1", "0", "kraft"), "a number of brokers is named twice"),
        (("3", "20000001", "0", "kraft"), "'20000001' is no number of partitions"),
        (("3", "-1", "0", "kraft"), "'-1' is no number of partitions"),
        (("3", "1", "0..5", "kraft"), "'0..5' is no seed"),
        (("3", "1", "²", "kraft"), "is no seed"),
        (("3", "1", "0", "kraft,raft"), "'raft' is no quorum: give kraft, kafka"),
        (("3", "1", "0", "kraft,kraft"), "a quorum is named twice"),
    ],
)
def test_wrong_lists_are_rejected(lists: tuple[str, str, str, str], reason: str) -> None:
    with pytest.raises(InvalidArgumentError, match=reason):
        grid(*lists)


@pytest.mark.parametrize("name", scenario_names())
def test_a_scenario_is_the_same_after_its_document(name: str) -> None:
    """Executors get every scenario as a JSON file."""
    scenario = named_scenario(name)
    document = json.loads(json.dumps(scenario_document(scenario)))
    assert parse_scenario(document, "document") == scenario


def test_a_scenario_keeps_its_seed_and_the_names_of_equal_steps() -> None:
    steps = [{"do": "start"}, {"do": "lose", "rack": "rack-1"}, {"do": "lose", "brokers": 2}]
    scenario = parse_scenario({"name": "a", "seed": 7, "steps": steps}, "a")
    assert parse_scenario(scenario_document(scenario), "document") == scenario


def test_the_command_has_every_setting(tmp_path: Path) -> None:
    settings = SweepSettings(
        named_scenario("rack-loss"),
        racks=4,
        regions=2,
        controllers=5,
        heap="1g",
        kafka_home=Path("/opt/kafka"),
        quorum_settings={"a.b": "c=d"},
    )
    words = settings.arguments(SweptRun(7, 100, 12, "kafka"), Path("s.json"), tmp_path)
    assert words[:2] == ["lab", "fleet"]
    options = dict(zip(words[2:-2:2], words[3:-2:2], strict=True))
    assert words[-2:] == ["--json", "--until-stdin-closes"]
    assert options == {
        "--brokers": "12",
        "--partitions": "100",
        "--seed": "7",
        "--quorum": "kafka",
        "--scenario": "s.json",
        "--out": str(tmp_path),
        "--racks": "4",
        "--regions": "2",
        "--controllers": "5",
        "--heap": "1g",
        "--kafka-home": "/opt/kafka",
        "--setting": "a.b=c=d",
    }


@pytest.mark.parametrize(
    ("settings", "sizes", "reason"),
    [
        (IDLE, "3,2", "2 brokers cannot fill 3 racks"),
        (SweepSettings(named_scenario("region-loss")), "30", "would stop all 30 brokers"),
        (SweepSettings(named_scenario("controller-loss"), controllers=1), "3", "at least 3"),
        (replace(IDLE, heap="much"), "3", "the heap is 'much'"),
        (
            SweepSettings(replace(named_scenario("idle"), seed=5)),
            "3",
            "has the seed 5, which every run would use",
        ),
    ],
)
@pytest.mark.parametrize("is_here", [True, False])
def test_runs_that_no_machine_can_carry_out_are_rejected(
    tmp_path: Path, settings: SweepSettings, sizes: str, reason: str, is_here: bool
) -> None:
    with pytest.raises(KraftError, match=reason):
        check_sweep(
            settings,
            grid(sizes, "10", "0", "kraft"),
            work=tmp_path if is_here else None,
            runs_at_once=1,
        )


def test_this_machine_must_carry_the_largest_run_as_often_as_it_runs_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def noted(needs: Any, directory: Path) -> None:
        asked.append(needs)
        check_limits(needs, directory)

    monkeypatch.setattr("kraft.fleet.launch.check_limits", noted)
    runs = grid("3,6", "10", "0", "kraft")
    check_sweep(IDLE, runs, work=tmp_path, runs_at_once=2)
    assert [(needs.brokers, needs.runs) for needs in asked] == [(3, 2), (6, 2)]
    many = grid("3", "20000000", "0", "kraft")
    with pytest.raises(KraftError, match="in each of 10000 runs at a time do not fit"):
        check_sweep(IDLE, many, work=tmp_path, runs_at_once=10_000)
    # Executors check their own limits.
    check_sweep(IDLE, many, work=None, runs_at_once=10_000)


def test_kafkas_release_is_looked_for_on_this_machine_only(tmp_path: Path) -> None:
    settings = replace(IDLE, kafka_home=tmp_path)
    runs = grid("3", "10", "0", "kraft,kafka")
    with pytest.raises(KraftError, match="no release of Apache Kafka"):
        check_sweep(settings, runs, work=tmp_path, runs_at_once=1)
    check_sweep(settings, runs, work=None, runs_at_once=1)


def test_a_scenario_is_found_by_name_or_file(tmp_path: Path) -> None:
    path = tmp_path / "own.json"
    path.write_text(json.dumps(scenario_document(replace(named_scenario("start"), name="own"))))
    assert find_scenario(str(path)).name == "own"
    assert find_scenario("start") == named_scenario("start")
    check_request(SweepSettings(find_scenario(str(path))).request(SweptRun(0, 1, 3, "kraft")))
    assert sweep_grid.QUORUMS == ("kraft", "kafka")
