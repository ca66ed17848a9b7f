"""Operations on client quotas, decided by ``kraft.controller.configs.client_quotas``."""

from __future__ import annotations

import random
from typing import Any

from kraft.controller.configs.client_quotas import QuotaAlteration
from kraft.controller.runtime import operations, requests
from tests.differential.operation import Arguments, Operation, Request
from tests.differential.world import View

_USER_KEYS = (
    *("consumer_byte_rate", "producer_byte_rate", "request_percentage"),
    *("controller_mutation_rate", "connection_creation_rate", "no_such_rate"),
)
_VALUES = (
    *(1.0, 2.0, 100.0, 1e6, 0.5, 2.0000001, 1.1, 0.0, -0.0, -1.0, 2147483647.0, 2147483648.0),
    *(9.223372036854775e18, 9.223372036854775807e18, 1e19, 1e300, 5e-324),
)
# Only addresses that need no lookup: Kafka's controller resolves host names, this one does not.
_IPS = ("127.0.0.1", "10.1", "::1", "[::1]", "1.2.3.4.5", "256.0.0.1", "", ":::", "[1.2.3.4", None)


def _entity(dice: random.Random) -> dict[str, str | None]:
    drawn = dice.random()
    if drawn < 0.3:
        entity: dict[str, str | None] = {"ip": dice.choice(_IPS)}
        if dice.random() < 0.05:
            entity["user"] = "alice"
        return entity
    if drawn < 0.35:
        unusual: tuple[dict[str, str | None], ...] = (
            {},
            {"group": "g"},
            {"user": "", "client-id": "c"},
        )
        return dice.choice(unusual)
    names = ("alice", "bob", None)
    types = dice.choice((("user",), ("client-id",), ("client-id", "user"), ("user", "client-id")))
    return {entity_type: dice.choice(names) for entity_type in types}


class AlterClientQuotas(Request):
    """Set and remove quotas."""

    name = "alter_client_quotas"
    weight = 6

    def arguments(self, dice: random.Random, world: View) -> Arguments:
        alterations: list[Any] = []
        for _ in range(dice.choice((1, 1, 2, 3))):
            entity = _entity(dice)
            keys = ("connection_creation_rate",) if "ip" in entity else _USER_KEYS
            operations = [
                [dice.choice(keys), None if dice.random() < 0.3 else dice.choice(_VALUES)]
                for _ in range(dice.choice((0, 1, 1, 1, 2, 3)))
            ]
            alterations.append([entity, operations])
        return {"alterations": alterations, "validate_only": dice.random() < 0.1}

    def asked(self, world: View, arguments: Arguments) -> operations.Operation:
        return requests.alter_client_quotas(
            [
                QuotaAlteration(entity, [(key, value) for key, value in operations])
                for entity, operations in arguments["alterations"]
            ],
            validate_only=arguments["validate_only"],
        )

    def answer(self, response: Any) -> Any:
        answer = [
            [dict(entity), 0 if error is None else error.kafka_code]
            for entity, error in response.items()
        ]
        return sorted(answer, key=str)

    def understood(self, response: Any) -> Any:
        named = ([dict(sorted(entity.items())), code] for entity, code in response)
        return sorted(named, key=str)


OPERATIONS: tuple[Operation, ...] = (AlterClientQuotas(),)
