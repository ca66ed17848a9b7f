"""What a run of the fleet rejects before anything starts, and how its report sums up values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraft.errors import InvalidConfigError, InvalidRequestError, KraftError
from kraft.fleet.fleet import FleetSettings, delay_text
from kraft.fleet.launch import FleetRequest, run_fleet, summary
from kraft.fleet.library import named_scenario
from kraft.fleet.scenario import FleetScenario, parse_scenario


def scenario_of(*steps: dict[str, Any]) -> FleetScenario:
    return parse_scenario({"name": "a", "steps": [{"do": "start"}, *steps]}, "a")


@pytest.mark.parametrize(
    ("settings", "scenario", "reason"),
    [
        (FleetSettings(6), named_scenario("region-loss"), r"step 3 of scenario region-loss \(lose"),
        (FleetSettings(6, racks=1), named_scenario("rack-loss"), "would stop all 6 brokers"),
        (FleetSettings(6), scenario_of({"do": "lose", "brokers": 6}), "step 2 of scenario a"),
        (
            FleetSettings(6),
            scenario_of(*({"do": "lose", "rack": f"rack-{number}"} for number in (1, 2, 3))),
            "step 4 of scenario a",
        ),
        (FleetSettings(6), scenario_of({"do": "lose", "rack": "rack-4"}), "no 'rack-4'"),
        (FleetSettings(2), named_scenario("idle"), "2 brokers cannot fill 3 racks"),
        (FleetSettings(3, processes=4), named_scenario("idle"), "cannot fill 4 processes"),
        (FleetSettings(3, regions=4), named_scenario("idle"), "3 racks cannot fill 4 regions"),
    ],
)
def test_a_run_that_cannot_be_is_rejected_before_anything_starts(
    tmp_path: Path, settings: FleetSettings, scenario: FleetScenario, reason: str
) -> None:
    out = tmp_path / "run"
    with pytest.raises(KraftError, match=reason):
        run_fleet(FleetRequest(settings, 10, scenario, out=out))
    assert not out.exists()


@pytest.mark.parametrize("controllers", [1, 2])
def test_a_controller_is_stopped_only_where_the_others_are_a_majority(controllers: int) -> None:
    scenario = named_scenario("controller-loss")
    with pytest.raises(InvalidRequestError, match="at least 3 are needed"):
        run_fleet(FleetRequest(FleetSettings(6), 10, scenario, controllers=controllers))


def test_brokers_that_come_back_may_be_lost_again() -> None:
    loss, back = {"do": "lose", "rack": "rack-1"}, {"do": "come_back"}
    other = {"do": "lose", "rack": "rack-2"}
    scenario = scenario_of(loss, other, back, {"do": "lose", "rack": "rack-3"})
    # The check of the machine comes after that of the steps.
    with pytest.raises(InvalidConfigError, match="GiB of memory"):
        run_fleet(FleetRequest(FleetSettings(6), 10**13, scenario))


def test_a_timeout_says_whether_the_fleet_itself_was_late() -> None:
    assert delay_text(499.0) == ""
    assert delay_text(2500.4).startswith("; the fleet's own event loops were up to 2500 ms late")


def test_the_percentiles_are_measured_values() -> None:
    assert summary([float(n) for n in range(1, 101)]) == {
        "count": 100,
        "p50": 50.0,
        "p99": 99.0,
        "worst": 100.0,
    }
    assert summary([3.0]) == {"count": 1, "p50": 3.0, "p99": 3.0, "worst": 3.0}


@pytest.mark.parametrize(("racks", "processes"), [(3, 3), (2, 2), (5, 4), (3, 2)])
def test_every_process_has_brokers_of_every_rack(racks: int, processes: int) -> None:
    """Otherwise a process would see nothing any more after the loss of a rack."""
    settings = FleetSettings(50, processes=processes, racks=racks)
    found = {(settings.process_of(id), settings.rack_of(id)) for id in settings.broker_ids}
    assert len(found) == racks * processes
    sizes = [sum(settings.process_of(id) == each for id in settings.broker_ids)
             for each in range(processes)]  # fmt: skip
    assert max(sizes) - min(sizes) <= 1
