"""Dynamic configuration, as ``kraft.controller.configs`` decides it."""

from __future__ import annotations

import random
from typing import Any

from kraft import controller
from kraft.errors import KraftError
from kraft.image.configs import BROKER, TOPIC
from tests.differential.operation import Arguments, Decided, Operation
from tests.differential.world import World

_SET = 0
_DELETE = 1
_TOPIC_KEYS = (
    ("min.insync.replicas", ("1", "2", "3")),
    ("unclean.leader.election.enable", ("true", "false")),
    ("retention.ms", ("1000", "-1")),
    ("cleanup.policy", ("compact", "delete")),
)
_BROKER_KEYS = (
    ("min.insync.replicas", ("1", "2", "3")),
    ("unclean.leader.election.enable", ("true", "false")),
    ("log.cleaner.threads", ("1", "2")),
)


class AlterConfigs(Operation):
    """Values of topics, brokers and the cluster's default are set and deleted."""

    name = "incremental_alter_configs"
    weight = 15

    def arguments(self, dice: random.Random, world: World) -> Arguments:
        changes: dict[tuple[int, str], list[Any]] = {}
        for _ in range(dice.choice((1, 1, 2))):
            if dice.random() < 0.6:
                resource, keys = (TOPIC, world.some_topic(dice)), _TOPIC_KEYS
            elif dice.random() < 0.5:
                resource, keys = (BROKER, ""), _BROKER_KEYS
            else:
                resource, keys = (BROKER, str(world.some_broker(dice))), _BROKER_KEYS
            named = []
            for key, values in dice.sample(keys, dice.choice((1, 1, 2))):
                is_set = dice.random() < 0.7
                named.append([key, _SET, dice.choice(values)] if is_set else [key, _DELETE, None])
            changes[resource] = named
        return {"changes": [[*resource, named] for resource, named in changes.items()]}

    def decide(self, world: World, arguments: Arguments) -> Decided:
        decision = controller.alter_configs(
            world.cluster,
            {
                (type, name): {key: value for key, _, value in named}
                for type, name, named in arguments["changes"]
            },
        )
        answer = [
            [*resource, error.kafka_code if isinstance(error, KraftError) else 0]
            for resource, error in decision.response.items()
        ]
        return Decided(decision, sorted(answer))

    def understood(self, response: Any) -> Any:
        return sorted([type, name, code] for type, name, code, _ in response)


OPERATIONS: tuple[Operation, ...] = (AlterConfigs(),)
