"""The named scenarios of the package, in the form of a scenario file.

``kraft fleet --scenario NAME`` runs one; ``kraft fleet --list-scenarios`` prints their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kraft.errors import InvalidConfigError
from kraft.fleet.scenario import FleetScenario, parse_scenario, read_scenario

_BEGIN: tuple[dict[str, Any], ...] = ({"do": "start"}, {"do": "create_topics"})

_SCENARIOS: Mapping[str, dict[str, Any]] = {
    "idle": {
        "description": "Start the brokers, create the partitions, and change nothing for a minute.",
        "steps": [*_BEGIN, {"do": "steady", "seconds": 60.0, "markers": 20}],
    },
    "start": {
        "description": "Start the brokers on an empty cluster.",
        "steps": [{"do": "start"}],
    },
    "start-again": {
        "description": "Start brokers that ran before (--state), together, until all replicas are "
        "in sync.",
        "steps": [{"do": "start", "together": True, "until_in_sync": True}],
    },
    "create": {
        "description": "Start the brokers and create the partitions.",
        "steps": [*_BEGIN],
    },
    "rack-loss": {
        "description": "Lose the first of the racks and let it come back.",
        "steps": [
            *_BEGIN,
            {"do": "steady", "seconds": 5.0},
            {"do": "lose", "rack": "rack-1"},
            {"do": "come_back"},
            {"do": "elect_preferred"},
        ],
    },
    "region-loss": {
        "description": "Lose the first of the regions, with all its racks, and let it come back.",
        "steps": [*_BEGIN, {"do": "lose", "region": "region-1"}, {"do": "come_back"}],
    },
    "broker-loss": {
        "description": "Lose one broker and let it come back.",
        "steps": [*_BEGIN, {"do": "lose", "brokers": 1}, {"do": "come_back"}],
    },
    "flapping": {
        "description": "Kill and start three brokers again and again.",
        "steps": [*_BEGIN, {"do": "flap", "brokers": 3}, {"do": "steady", "seconds": 10.0}],
    },
    "rolling-restart": {
        "description": "Restart every broker with controlled shutdown.",
        "steps": [*_BEGIN, {"do": "rolling_restart"}, {"do": "elect_preferred"}],
    },
    "topic-churn": {
        "description": "Create topics at a rate, and delete all of them.",
        "steps": [
            {"do": "start"},
            {"do": "create_topics", "per_second": 20.0},
            {"do": "delete_topics", "per_second": 20.0},
        ],
    },
    "reassignment": {
        "description": "Move replicas of many partitions to other brokers.",
        "steps": [*_BEGIN, {"do": "reassign"}],
    },
    "isr-storm": {
        "description": "Let the replicas of a rack lag, and catch up again.",
        "steps": [*_BEGIN, {"do": "isr_storm", "rack": "rack-1"}],
    },
    "slow-observers": {
        "description": "Let a tenth of the brokers fetch the metadata slowly.",
        "steps": [*_BEGIN, {"do": "slow_observers", "brokers": 10}],
    },
    "controller-loss": {
        "description": "Kill the active controller, then pause the next one.",
        "steps": [
            *_BEGIN,
            {"do": "kill_controller"},
            {"do": "steady", "seconds": 10.0},
            {"do": "pause_controller"},
            {"do": "steady", "seconds": 10.0},
        ],
    },
    "controller-replaced": {
        "description": "Replace a standby controller by an empty one.",
        "steps": [*_BEGIN, {"do": "replace_controller"}, {"do": "steady", "seconds": 10.0}],
    },
    "two-million": {
        "description": "Controlled shutdown of a broker, and recovery after the crash of the "
        "active controller: the experiment that Confluent published with 2 million partitions "
        "(--partitions 2000000). A light broker moves no data and loads no log.",
        "steps": [
            {"do": "start"},
            {"do": "create_topics", "partitions_per_topic": 1000},
            {"do": "steady", "seconds": 20.0},
            {"do": "rolling_restart", "brokers": 1, "name": "controlled_shutdown"},
            {"do": "kill_controller", "name": "uncontrolled_recovery"},
            {"do": "steady", "seconds": 20.0},
        ],
    },
}


def scenario_names() -> list[str]:
    """Return the names of the library, in the order of its page."""
    return list(_SCENARIOS)


def find_scenario(text: str) -> FleetScenario:
    """Return the scenario of a file, or of the library. Raises InvalidConfigError."""
    path = Path(text)
    if text in _SCENARIOS or not (path.suffix or path.exists()):
        return named_scenario(text)
    return read_scenario(path)


def named_scenario(name: str) -> FleetScenario:
    """Return a scenario of the library. Raises InvalidConfigError for an unknown name."""
    if name not in _SCENARIOS:
        raise InvalidConfigError(
            f"there is no scenario {name!r}; there are {', '.join(_SCENARIOS)}, and YAML files"
        )
    return parse_scenario({"name": name, **_SCENARIOS[name]}, f"scenario {name}")
