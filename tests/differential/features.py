"""Updates of feature levels, decided by ``kraft.controller.features``."""

from __future__ import annotations

import random
from typing import Any

from kraft.controller.features import (
    FeatureUpdate,
    UpgradeType,
    finalized_features,
    update_features,
)
from kraft.controller.runtime import operations, requests
from kraft.errors import InvalidUpdateVersionError, KraftError
from kraft.records import KRaftVersion
from kraft.records.versions import METADATA_VERSION, SUPPORTED_FEATURES
from tests.differential.operation import Arguments, Decided, Operation, Request
from tests.differential.world import View, World

_KRAFT_VERSION = "kraft.version"
#: The sentence with which Kafka's controller begins the message of its response.
_PREFIX = "The update failed for all features since the following feature had an error: "


def _bucket(name: str) -> int:
    """Return the bucket of a string in a Java HashMap of at most 12 entries."""
    code = 0
    for character in name:
        code = (31 * code + ord(character)) & 0xFFFFFFFF
    return (code ^ code >> 16) & 15


class UpdateFeatures(Request):
    """Update one or several levels; the messages of rejections are compared too.

    kraft.version is only drawn alone: Kafka raises it even if it rejects another feature of the
    request.
    """

    name = "update_features"
    weight = 4

    def arguments(self, dice: random.Random, world: View) -> Arguments:
        finalized = finalized_features(world.cluster)
        updates: dict[str, list[int]] = {}
        for name in dice.sample(sorted(SUPPORTED_FEATURES), dice.choice((1, 1, 1, 2))):
            current = finalized.get(name, 0)
            if name == METADATA_VERSION:
                level = current + dice.choice((-7, -3, -2, -1, -1, 0, 1, 1, 2, 3))
            else:
                level = dice.choice((-1, 0, 0, 1, 1, 1, 2, 3))
            way = UpgradeType.UPGRADE if level >= current else dice.choice((2, 3))
            updates[name] = [level, way if dice.random() < 0.9 else dice.randrange(5)]
        if dice.random() < 0.05:
            updates["no.such.version"] = [dice.randrange(2), 1]
        if _KRAFT_VERSION in updates:
            updates = {_KRAFT_VERSION: updates[_KRAFT_VERSION]}
        # Kafka rejects the first wrong update in the order of its HashMap.
        updates = {name: updates[name] for name in sorted(updates, key=_bucket)}
        return {"updates": updates, "validate_only": dice.random() < 0.1}

    def asked(self, world: View, arguments: Arguments) -> operations.Operation:
        return requests.update_features(
            [FeatureUpdate(name, *asked) for name, asked in arguments["updates"].items()],
            world.local_features,
            validate_only=arguments["validate_only"],
        )

    def answer(self, response: Any) -> Any:
        return [0, ""]

    def refusal(self, error: KraftError) -> Any:
        if isinstance(error, InvalidUpdateVersionError):
            return [error.kafka_code, str(error)]
        return None

    def decide(self, world: World, arguments: Arguments) -> Decided:
        try:
            decision = update_features(
                world.cluster,
                [FeatureUpdate(name, *asked) for name, asked in arguments["updates"].items()],
                world.local_features,
                world.settings,
                validate_only=arguments["validate_only"],
            )
        except InvalidUpdateVersionError as error:
            return Decided(None, self.refusal(error))
        level = decision.response.kraft_version

        def raise_kraft_version() -> None:
            if level is not None and not arguments["validate_only"]:
                world.cluster.state.apply_control(
                    KRaftVersion(kraft_version=level), world.cluster.next_offset - 1, 1
                )

        return Decided(decision, self.answer(decision.response), applied=raise_kraft_version)

    def understood(self, response: Any) -> Any:
        code, message = response
        return [code, (message or "").removeprefix(_PREFIX)]


OPERATIONS: tuple[Operation, ...] = (UpdateFeatures(),)
