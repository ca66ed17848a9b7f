"""Operations on dynamic configurations, decided by ``kraft.controller.configs.config_changes``."""

from __future__ import annotations

import random
from typing import Any

from kraft.controller.config_schema import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIGS
from kraft.controller.configs.config_changes import ConfigChange, ConfigOperation
from kraft.controller.runtime import operations, requests
from kraft.errors import KraftError
from kraft.image.configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from tests.differential.operation import Arguments, Operation, Request
from tests.differential.world import View

_SET, _DELETE, _APPEND, _SUBTRACT = (int(operation) for operation in ConfigOperation)
Resource = tuple[int, str]
# Configurations that elections read, and those that accept most values, are drawn more often.
_TOPIC_KEYS: dict[str, tuple[str, ...]] = {
    "min.insync.replicas": ("1", "2", "3"),
    "unclean.leader.election.enable": ("true", "false"),
    "retention.ms": ("1000", "-1"),
    "cleanup.policy": ("compact", "delete", "", "delete,compact"),
}
_BROKER_KEYS: dict[str, tuple[str, ...]] = {
    "min.insync.replicas": ("1", "2", "3"),
    "unclean.leader.election.enable": ("true", "false"),
    "log.cleaner.threads": ("1", "2"),
    "ssl.enabled.protocols": ("TLSv1.2", "TLSv1.3,TLSv1.2", ""),
    "log.cleanup.policy": ("compact", "delete"),
    "metric.reporters": ("a.B",),
    "cordoned.log.dirs": ("/a", "/b", "/a , /b", "", " "),
}
# Valid and invalid values of each type.
_VALUES = (
    *("", " ", "0", "1", "-1", "-2", "-3", "2", "9", "10", "17", "22", "100", "1000", "5000"),
    *("15000", "45000", "60000", "60001", "1048575", "1048576", "2147483647", "2147483648", "+7"),
    *("9223372036854775807", "9223372036854775808", "0.5", "1.5", "1e-3", ".5f", "NaN", "0x1p-1"),
    *("true", "FALSE", "yes", "compact", "delete", "delete,compact", "delete, delete", "a,,b", ","),
    *("gzip", "none", "producer", "CreateTime", "LogAppendTime", "latest", "earliest"),
    *("by_duration:PT1H", "by_duration:-PT1H", "read_committed", "READ_COMMITTED", "*", "0:1,2:3"),
    *(
        "client_id=a.*",
        "client_id=(",
        "client_id=a,client_source_port=9[0-9]+",
        "user=a",
        "client_id",
    ),
    *("x" * 32767, "x" * 32768),
)


def _key(dice: random.Random, kind: int) -> tuple[str, str]:
    """Draw a configuration and a value for it, mostly a valid one."""
    if kind == BROKER:
        name = dice.choice(tuple(_BROKER_KEYS))
        return name, dice.choice(_BROKER_KEYS[name])
    if kind == TOPIC and dice.random() < 0.6:
        name = dice.choice(tuple(_TOPIC_KEYS))
        return name, dice.choice(_TOPIC_KEYS[name])
    known = {TOPIC: TOPIC_CONFIGS, GROUP: GROUP_CONFIGS}.get(kind, CLIENT_METRICS_CONFIGS)
    name = dice.choice((*known, "no.such.thing")) if dice.random() < 0.2 else dice.choice([*known])
    definition = known.get(name)
    if definition is not None and dice.random() < 0.4:
        default = definition.default
        text = ",".join(default) if isinstance(default, tuple) else str(default).lower()
        return name, text
    return name, dice.choice(_VALUES)


def _resource(dice: random.Random, world: View) -> Resource:
    drawn = dice.random()
    if drawn < 0.5:
        return TOPIC, world.some_topic(dice)
    if drawn < 0.85:
        return BROKER, dice.choice(("", "", str(world.some_broker(dice))))
    return dice.choice(
        (
            *((GROUP, "group"), (GROUP, "other"), (CLIENT_METRICS, "all"), (CLIENT_METRICS, "few")),
            *((GROUP, ""), (CLIENT_METRICS, ""), (TOPIC, ""), (TOPIC, "a/b"), (TOPIC, "..")),
            *((BROKER, "-1"), (BROKER, "zero"), (BROKER, "3000"), (BROKER_LOGGER, "0")),
        )
    )


def _codes(response: dict[Resource, KraftError | None]) -> list[Any]:
    return sorted(
        [*resource, 0 if error is None else error.kafka_code]
        for resource, error in response.items()
    )


class AlterConfigs(Request):
    """Set and delete values, append to lists and subtract from them."""

    name = "incremental_alter_configs"
    weight = 15

    def arguments(self, dice: random.Random, world: View) -> Arguments:
        changes: dict[Resource, list[Any]] = {}
        for _ in range(dice.choice((1, 1, 2, 3))):
            resource = _resource(dice, world)
            named: dict[str, list[Any]] = {}
            for _ in range(dice.choice((1, 1, 2, 3))):
                key, value = _key(dice, resource[0])
                operation = dice.choice((*(_SET,) * 7, *(_DELETE,) * 3, _APPEND, _SUBTRACT))
                if operation == _SET and dice.random() < 0.05:
                    named[key] = [key, _SET, None]
                else:
                    named[key] = [key, operation, None if operation == _DELETE else value]
            changes[resource] = list(named.values())
        return {
            "changes": [[*resource, named] for resource, named in changes.items()],
            "forwarded": dice.random() < 0.5,
            "validate_only": dice.random() < 0.1,
        }

    def asked(self, world: View, arguments: Arguments) -> operations.Operation:
        changes = [
            (
                (type, name),
                [ConfigChange(key, value, operation) for key, operation, value in named],
            )
            for type, name, named in arguments["changes"]
        ]
        return requests.incremental_alter_configs(
            changes,
            validate_only=arguments["validate_only"],
            is_forwarded=arguments["forwarded"],
            policy=world.config_policy,
        )

    def answer(self, response: Any) -> Any:
        return _codes(response)

    def understood(self, response: Any) -> Any:
        return sorted([type, name, code] for type, name, code, _ in response)


class LegacyAlterConfigs(Request):
    """Replace all values of a resource."""

    name = "legacy_alter_configs"
    weight = 5

    def arguments(self, dice: random.Random, world: View) -> Arguments:
        configs: dict[Resource, dict[str, str | None]] = {}
        for _ in range(dice.choice((1, 1, 2))):
            resource = _resource(dice, world)
            # Most existing values stay.
            values: dict[str, str | None] = {
                key: value
                for key, value in world.cluster.state.configs.get(resource, {}).items()
                if dice.random() < 0.8
            }
            for _ in range(dice.randrange(3)):
                key, value = _key(dice, resource[0])
                values[key] = None if dice.random() < 0.1 else value
            configs[resource] = values
        return {
            "configs": [[*resource, values] for resource, values in configs.items()],
            "forwarded": dice.random() < 0.5,
            "validate_only": dice.random() < 0.1,
        }

    def asked(self, world: View, arguments: Arguments) -> operations.Operation:
        configs = [((type, name), values) for type, name, values in arguments["configs"]]
        return requests.alter_configs(
            configs,
            validate_only=arguments["validate_only"],
            is_forwarded=arguments["forwarded"],
            policy=world.config_policy,
        )

    def answer(self, response: Any) -> Any:
        return _codes(response)

    def understood(self, response: Any) -> Any:
        return sorted([type, name, code] for type, name, code, _ in response)


OPERATIONS: tuple[Operation, ...] = (AlterConfigs(), LegacyAlterConfigs())
