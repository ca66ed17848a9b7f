"""Operations on brokers, decided by ``kraft.controller.brokers.broker_lifecycle``."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from kraft.controller.brokers.broker_lifecycle import (
    RegistrationRequest,
    begin_controlled_shutdown,
    fence_broker,
    unfence_broker,
)
from kraft.controller.brokers.directories import take_directories_offline
from kraft.controller.decision import Decision
from kraft.controller.runtime import operations, requests
from kraft.image import NodeEndpoint, VersionRange
from tests.differential.operation import Arguments, Decided, Operation, Request
from tests.differential.setups import FEATURES
from tests.differential.world import (
    CLUSTER_ID,
    UNKNOWN_BROKER,
    View,
    World,
    drawn_id,
    id_of,
    text_of,
)
from tests.reference.placement_cases import MEETING


class Advance(Operation):
    """Advance the clock; sessions expire."""

    name = "advance"
    weight = 6

    def arguments(self, dice: random.Random, world: View) -> Arguments:
        return {"ms": dice.choice((1, 1_000, 8_999, 9_000, 9_001, 20_000))}

    def decide(self, world: World, arguments: Arguments) -> Decided:
        world.now_ms += arguments["ms"]
        return Decided(None)


class RegisterBroker(Request):
    """Register a new broker, a restarted one (clean, unclean, same incarnation), or an invalid
    one.
    """

    name = "register_broker"
    weight = 20

    def arguments(self, dice: random.Random, world: View) -> Arguments:
        brokers = world.cluster.state.brokers
        known = world.brokers()
        restarting = [id for id in known if dice.random() < 0.2 or not world.has_live_session(id)]
        is_known = bool(restarting) and dice.random() < 0.85
        broker = dice.choice(restarting) if is_known else dice.choice((7, 8, 33, UNKNOWN_BROKER))
        before = brokers.get(broker)
        incarnation, previous, directories = drawn_id(dice), -1, []
        if before is not None:
            directories = list(before.log_dirs)
            # Kafka would then forget that the broker shuts down: see docs/differential.md.
            is_leaving = before.in_controlled_shutdown and not before.fenced
            if dice.random() < 0.25 and not is_leaving:
                incarnation = before.incarnation_id
            previous = dice.choice((before.epoch, before.epoch, -1, before.epoch - 1))
        if not directories or dice.random() < 0.1:
            directories = [drawn_id(dice) for _ in range(dice.randrange(1, 4))]
        features = [list(feature) for feature in FEATURES]
        shape = dice.random()
        # Kafka accepts a negative id: a known difference.
        if dice.random() < 0.002:
            broker = dice.choice((-1, -7, -(1 << 31)))
        if shape < 0.01:
            directories = []
        elif shape < 0.02:
            directories = [*directories, directories[0]]
        elif shape < 0.03:
            directories = [*directories, type(incarnation)((5).to_bytes(16, "big"))]
        elif shape < 0.05 and known:
            directories = [*directories, *brokers[dice.choice(known)].log_dirs][-2:]
        elif shape < 0.06:
            features = features[1:]
        elif shape < 0.08:
            features[0][2] = dice.randrange(7, 30)
        elif shape < 0.10:
            features = [feature for feature in features if dice.random() < 0.8]
        elif shape < 0.12:
            features.append(["unknown.version", 0, 3])
        elif shape < 0.14:
            # Some features are off, and the broker requires them.
            features[dice.randrange(1, len(features))][1] = 1
        elif shape < 0.15:
            # The lower half of an id is a signed number in Java.
            directories = [*directories, type(incarnation)(bytes(8) + b"\xff" + dice.randbytes(7))]
        names = dice.choice((("PLAINTEXT",),) * 8 + (("A", "B", "A"), ()))
        return {
            "version": dice.choice((4, 4, 4, 3)),
            "request": {
                "brokerId": broker,
                "clusterId": CLUSTER_ID if dice.random() < 0.99 else "another",
                "incarnationId": text_of(incarnation),
                "listeners": [
                    {
                        "name": name,
                        "host": "h",
                        "port": 9092 + broker % 10 + number,
                        "securityProtocol": dice.randrange(4),
                    }
                    for number, name in enumerate(names)
                ],
                "features": [
                    {"name": name, "minSupportedVersion": low, "maxSupportedVersion": high}
                    for name, low, high in features
                ],
                "rack": dice.choice((None, "a", "b", *MEETING[:3])),
                "isMigratingZkBroker": dice.random() < 0.01,
                "logDirs": [text_of(directory) for directory in directories],
                "previousBrokerEpoch": previous,
            },
        }

    def asked(self, world: View, arguments: Arguments) -> operations.Operation:
        asked = arguments["request"]
        request = RegistrationRequest(
            broker_id=asked["brokerId"],
            incarnation_id=id_of(asked["incarnationId"]),
            endpoints=[
                NodeEndpoint(point["name"], point["host"], point["port"], point["securityProtocol"])
                for point in asked["listeners"]
            ],
            features={
                feature["name"]: VersionRange(
                    feature["minSupportedVersion"], feature["maxSupportedVersion"]
                )
                for feature in asked["features"]
            },
            rack=asked["rack"],
            log_dirs=[id_of(directory) for directory in asked["logDirs"]],
            previous_broker_epoch=asked["previousBrokerEpoch"],
            cluster_id=asked["clusterId"],
            is_migrating_zk_broker=asked["isMigratingZkBroker"],
        )
        return requests.register_broker(request, CLUSTER_ID)

    def answer(self, response: Any) -> Any:
        return response


class _OfBroker(Operation):
    """An operation whose only argument is a broker."""

    function: Callable[..., Decision[Any]]

    def arguments(self, dice: random.Random, world: View) -> Arguments | None:
        return {"broker": world.some_broker(dice)}

    def decide(self, world: World, arguments: Arguments) -> Decided:
        function = type(self).function
        return Decided(function(world.cluster, arguments["broker"], settings=world.settings))


class FenceBroker(_OfBroker):
    """Fence a broker whose session has expired, or that requests fencing."""

    name = "fence_broker"
    weight = 15
    function = staticmethod(fence_broker)


class UnfenceBroker(_OfBroker):
    """Unfence a broker that has caught up."""

    name = "unfence_broker"
    weight = 30
    function = staticmethod(unfence_broker)

    def arguments(self, dice: random.Random, world: View) -> Arguments | None:
        # A broker that shuts down requests nothing else until it registers again.
        able = [
            broker.id
            for broker in world.cluster.state.brokers.values()
            if not broker.in_controlled_shutdown and (broker.fenced or dice.random() < 0.1)
        ]
        return {"broker": dice.choice(sorted(able))} if able else None


class BeginControlledShutdown(_OfBroker):
    """Begin a controlled shutdown; only of an unfenced broker."""

    name = "begin_controlled_shutdown"
    weight = 8
    function = staticmethod(begin_controlled_shutdown)

    def arguments(self, dice: random.Random, world: View) -> Arguments | None:
        unfenced = [b.id for b in world.cluster.state.brokers.values() if not b.fenced]
        return {"broker": dice.choice(sorted(unfenced))} if unfenced else None

    def decide(self, world: World, arguments: Arguments) -> Decided:
        broker = arguments["broker"]

        def applied() -> None:
            if not world.cluster.state.brokers[broker].fenced:
                world.sessions.note_controlled_shutdown(broker, world.cluster.next_offset - 1)

        decided = super().decide(world, arguments)
        return Decided(decided.decision, decided.answer, applied=applied)


class UnregisterBroker(Request):
    """Unregister a broker."""

    name = "unregister_broker"
    weight = 4

    def arguments(self, dice: random.Random, world: View) -> Arguments:
        return {"broker": world.some_broker(dice)}

    def asked(self, world: View, arguments: Arguments) -> operations.Operation:
        return requests.unregister_broker(arguments["broker"])


class DirectoriesOffline(Operation):
    """Some of a broker's directories fail; at times all, or one of another broker."""

    name = "directories_offline"
    weight = 8

    def arguments(self, dice: random.Random, world: View) -> Arguments | None:
        if world.level < 17:
            return None
        broker = world.some_broker(dice)
        registration = world.cluster.state.brokers.get(broker)
        online = list(registration.log_dirs) if registration else []
        failed = [directory for directory in online if dice.random() < 0.6]
        if dice.random() < 0.1:
            failed.append(drawn_id(dice))
        return {"broker": broker, "directories": [text_of(directory) for directory in failed]}

    def decide(self, world: World, arguments: Arguments) -> Decided:
        failed = [id_of(directory) for directory in arguments["directories"]]
        return Decided(
            take_directories_offline(
                world.cluster, arguments["broker"], failed, settings=world.settings
            )
        )


OPERATIONS: tuple[Operation, ...] = (
    Advance(),
    RegisterBroker(),
    FenceBroker(),
    UnfenceBroker(),
    BeginControlledShutdown(),
    UnregisterBroker(),
    DirectoriesOffline(),
)
