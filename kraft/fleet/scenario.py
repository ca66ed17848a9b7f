"""Scenarios of a fleet: a list of steps, from YAML or from Python; validated before anything runs.

A scenario file is a mapping with ``name``, ``description``, ``seed`` (optional) and ``steps``. A
step is a mapping with ``do``, the fields of that step, and optionally ``name``, which is in the
trace::

    name: two-racks
    steps:
      - do: start
      - do: create_topics
        partitions_per_topic: 500
      - do: lose
        rack: rack-1
      - do: come_back

`STEPS` has the class of each step; its fields are those of the file. A JSON file is YAML too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

from kraft.errors import InvalidConfigError


def _number(default: float, low: float, high: float = 1e9) -> Any:
    return field(default=default, metadata={"low": low, "high": high})


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step; ``name`` is its name in the trace."""

    do: ClassVar[str]
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(Step):
    """Start every broker that is down, within ``spread_s``; wait until all are unfenced.

    At most ``at_once`` brokers wait to be unfenced at a time (0: any number). A small number is
    more commits, each of which all brokers fetch: for a thousand brokers it takes longer. With
    ``together`` no broker asks to be unfenced before all have applied their registrations, as if
    each loaded its partitions for as long as that takes. With ``until_in_sync`` the step goes on
    until all replicas are in sync and every broker has applied that.
    """

    do: ClassVar[str] = "start"
    spread_s: float = _number(2.0, 0, 600)
    at_once: int = _number(0, 0, 100_000)
    timeout_s: float = _number(300.0, 1)
    together: bool = False
    until_in_sync: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopics(Step):
    """Create topics until the cluster has the run's partitions, or ``partitions`` if that is set.

    ``per_second``: topics a second, 0 for as fast as possible.
    """

    do: ClassVar[str] = "create_topics"
    partitions: int = _number(0, 0)
    #: A topic and its partitions are one request, and a request writes at most 10,000 records.
    partitions_per_topic: int = _number(100, 1, 9_999)
    replication_factor: int = _number(3, 1, 32)
    per_second: float = _number(0.0, 0, 1e5)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopics(Step):
    """Delete a ``share`` of the topics that the run has created, the last ones first."""

    do: ClassVar[str] = "delete_topics"
    share: float = _number(1.0, 0, 1)
    per_second: float = _number(0.0, 0, 1e5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady(Step):
    """Change nothing but the marker, ``markers`` times, evenly in ``seconds``."""

    do: ClassVar[str] = "steady"
    seconds: float = _number(10.0, 0.1, 1e6)
    markers: int = _number(5, 0, 10_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice(Step):
    """A choice of brokers: a ``rack``, a ``region``, or ``brokers`` of them by the seed."""

    rack: str = ""
    region: str = ""
    brokers: int = _number(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lose(_Choice):
    """Kill brokers; wait until others lead their partitions and all brokers have applied that."""

    do: ClassVar[str] = "lose"
    timeout_s: float = _number(120.0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComeBack(Step):
    """Start the lost brokers; wait until they are unfenced and in sync again."""

    do: ClassVar[str] = "come_back"
    spread_s: float = _number(0.0, 0, 600)
    timeout_s: float = _number(300.0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flap(_Choice):
    """Kill and start brokers again and again."""

    do: ClassVar[str] = "flap"
    times: int = _number(3, 1, 1000)
    down_s: float = _number(12.0, 0, 1e4)
    up_s: float = _number(5.0, 0, 1e4)


@dataclass(frozen=True, slots=True, kw_only=True)
class RollingRestart(_Choice):
    """Restart brokers with controlled shutdown, ``at_once`` at a time; all without a choice."""

    do: ClassVar[str] = "rolling_restart"
    at_once: int = _number(1, 1, 10_000)
    timeout_s: float = _number(120.0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassign(Step):
    """Move the last replica of ``partitions`` partitions to other brokers; wait for the end."""

    do: ClassVar[str] = "reassign"
    partitions: int = _number(1000, 1)
    timeout_s: float = _number(300.0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectPreferred(Step):
    """Elect the preferred leader of every partition that the run has created."""

    do: ClassVar[str] = "elect_preferred"
    timeout_s: float = _number(120.0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrStorm(_Choice):
    """Let the replicas of brokers lag for ``seconds`` beyond replica.lag.time.max.ms."""

    do: ClassVar[str] = "isr_storm"
    seconds: float = _number(5.0, 0, 1e4)
    timeout_s: float = _number(120.0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowObservers(_Choice):
    """Let brokers wait ``delay_ms`` before each fetch of the metadata, for ``seconds``."""

    do: ClassVar[str] = "slow_observers"
    delay_ms: float = _number(5000.0, 1, 1e6)
    seconds: float = _number(20.0, 0.1, 1e5)


@dataclass(frozen=True, slots=True, kw_only=True)
class KillController(Step):
    """Kill the active controller; wait for the first accepted write, and start it again."""

    do: ClassVar[str] = "kill_controller"
    timeout_s: float = _number(60.0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseController(Step):
    """Stop the active controller for ``seconds`` as by SIGSTOP; wait for an accepted write."""

    do: ClassVar[str] = "pause_controller"
    seconds: float = _number(10.0, 0.1, 600)
    timeout_s: float = _number(60.0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceController(Step):
    """Kill a standby controller, remove it from the voters, and add an empty one in its place."""

    do: ClassVar[str] = "replace_controller"
    timeout_s: float = _number(120.0, 1)


STEPS: Mapping[str, type[Step]] = {
    each.do: each
    for each in (
        *(Start, CreateTopics, DeleteTopics, Steady, Lose, ComeBack, Flap, RollingRestart),
        *(Reassign, ElectPreferred, IsrStorm, SlowObservers),
        *(KillController, PauseController, ReplaceController),
    )
}


@dataclass(frozen=True, slots=True)
class FleetScenario:
    """A name, what the scenario shows, its seed (None: the run's), and its steps."""

    name: str
    description: str
    steps: tuple[Step, ...]
    seed: int | None = None

    @property
    def needs_own_quorum(self) -> bool:
        """Whether a step kills, pauses or replaces a controller."""
        stops = KillController | PauseController | ReplaceController
        return any(isinstance(each, stops) for each in self.steps)


def read_scenario(path: Path) -> FleetScenario:
    """Return the scenario of a YAML or JSON file. Raises InvalidConfigError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfigError(f"cannot read {path}: {error}") from None
    return parse_scenario(_loaded(text, path), str(path))


def _loaded(text: str, path: Path) -> Any:
    if path.suffix == ".json":
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidConfigError(f"{path}: not JSON: {error}") from None
    try:
        import yaml
    except ImportError:
        raise InvalidConfigError(
            f"reading {path} needs PyYAML: pip install 'kraft[fleet]', or write the scenario as "
            "JSON (.json)"
        ) from None
    try:
        return yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f", line {error.problem_mark.line + 1}"
        raise InvalidConfigError(f"{path}{line}: not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise InvalidConfigError(f"{path}: not YAML: {reason}") from None


def parse_scenario(given: Any, source: str) -> FleetScenario:
    """Return the scenario of a mapping; ``source`` is for messages. Raises InvalidConfigError."""
    if not isinstance(given, Mapping):
        raise InvalidConfigError(f"{source}: a scenario is a mapping with name and steps")
    unknown = set(given) - {"name", "description", "seed", "steps"}
    if unknown:
        raise InvalidConfigError(
            f"{source}: a scenario has no {_names(unknown)}; it has name, description, seed, steps"
        )
    name = given.get("name")
    if not isinstance(name, str) or not name or not name.isprintable():
        raise InvalidConfigError(f"{source}: name is {name!r}: give the scenario's name")
    seed = given.get("seed")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise InvalidConfigError(f"{source}: seed is {seed!r}: give a whole number")
    steps = given.get("steps")
    if not isinstance(steps, list) or not steps:
        raise InvalidConfigError(f"{source}: steps is {steps!r:.60}: give a list of steps")
    parsed = tuple(_step(each, f"{source}: step {at}") for at, each in enumerate(steps, 1))
    if not isinstance(parsed[0], Start):
        raise InvalidConfigError(f"{source}: step 1 is {parsed[0].do!r}: begin with 'start'")
    return FleetScenario(name, str(given.get("description", "")), _named(parsed), seed)


def scenario_document(scenario: FleetScenario) -> dict[str, Any]:
    """Return a scenario as the mapping of a scenario file, every field of each step written out."""
    document: dict[str, Any] = {
        "name": scenario.name,
        "description": scenario.description,
        "steps": [{"do": step.do, **asdict(step)} for step in scenario.steps],
    }
    return document if scenario.seed is None else {**document, "seed": scenario.seed}


def _named(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Give each step without a name that of its kind, with a number where it is not the first."""
    from dataclasses import replace

    counts: dict[str, int] = {}
    named = []
    for step in steps:
        name = step.name or step.do
        counts[name] = count = counts.get(name, 0) + 1
        named.append(replace(step, name=name if count == 1 else f"{name}_{count}"))
    return tuple(named)


def _step(given: Any, where: str) -> Step:
    if not isinstance(given, Mapping) or "do" not in given:
        raise InvalidConfigError(f"{where} is {given!r:.60}: give a mapping with 'do'")
    kind = STEPS.get(given["do"]) if isinstance(given["do"], str) else None
    if kind is None:
        raise InvalidConfigError(
            f"{where}: there is no step {given['do']!r}; there are {', '.join(STEPS)}"
        )
    known = {each.name: each for each in fields(kind)}
    values = {key: value for key, value in given.items() if key != "do"}
    unknown = set(values) - set(known)
    if unknown:
        raise InvalidConfigError(
            f"{where}: {kind.do} has no {_names(unknown)}; it has {', '.join(known)}"
        )
    step = kind(**{key: _value(known[key], value, where) for key, value in values.items()})
    if isinstance(step, Start) and step.together and step.at_once:
        raise InvalidConfigError(
            f"{where}: start with together lets all brokers wait to be unfenced: leave out at_once"
        )
    if isinstance(step, _Choice):
        chosen = [key for key in ("rack", "region", "brokers") if getattr(step, key)]
        least = 0 if isinstance(step, RollingRestart) else 1
        if not least <= len(chosen) <= 1:
            raise InvalidConfigError(
                f"{where}: {kind.do} needs one of rack, region and brokers, not "
                f"{' and '.join(chosen) or 'none'}"
            )
    return step


def _value(rule: Field[Any], value: Any, where: str) -> Any:
    """Return the value of a field. Raises InvalidConfigError for another type or range."""
    assert rule.default is not MISSING, rule.name
    kind = type(rule.default)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not kind:
        wanted = {
            int: "a whole number",
            float: "a number",
            str: "a text",
            bool: "true or false",
        }[kind]
        raise InvalidConfigError(f"{where}: {rule.name} is {value!r:.60}: give {wanted}")
    if kind is str and not value.isprintable():
        raise InvalidConfigError(f"{where}: {rule.name} is {value!r:.60}: give a printable text")
    low, high = rule.metadata.get("low"), rule.metadata.get("high")
    if low is not None and high is not None and not low <= value <= high:
        raise InvalidConfigError(
            f"{where}: {rule.name} is {value!r}: give a number from {low:g} to {high:g}"
        )
    return value


def _names(unknown: set[Any]) -> str:
    return " and ".join(sorted(repr(each) for each in unknown))
