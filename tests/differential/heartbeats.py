"""Operations on heartbeats and sessions, controllers, producer ids and replica directories."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from kraft.controller.brokers.broker_lifecycle import fence_stale_broker, shut_down_broker
from kraft.controller.brokers.controller_registration import ControllerRegistrationRequest
from kraft.controller.brokers.directories import LOST, MIGRATING, UNASSIGNED, DirectoryAssignment
from kraft.controller.brokers.sessions import Heartbeat
from kraft.controller.runtime import operations, requests
from kraft.image import NodeEndpoint, VersionRange
from tests.differential.operation import Arguments, Decided, Operation, Request
from tests.differential.setups import FEATURES
from tests.differential.world import NODE_ID, View, World, drawn_id, id_of, text_of


class SendHeartbeat(Request):
    """Send a heartbeat, mostly of a registered broker with plausible values."""

    name = "heartbeat"
    weight = 60

    def arguments(self, dice: random.Random, world: View) -> Arguments:
        broker = world.some_broker(dice)
        registration = world.cluster.state.brokers.get(broker)
        end = world.cluster.next_offset - 1
        offset, epoch, directories, cordoned = end, 7, [], None
        wants_shutdown = dice.random() < 0.15
        if registration is not None:
            epoch = registration.epoch + (dice.random() < 0.02)
            at = registration.registration_offset
            offset = dice.choice((end,) * 6 + (at, at - 1, dice.randrange(-1, end + 1)))
            directories = [each for each in registration.log_dirs if dice.random() < 0.04]
            cordoned = [each for each in registration.log_dirs if dice.random() < 0.3]
            # A broker that shuts down requests nothing else until it registers again.
            wants_shutdown |= registration.in_controlled_shutdown
        if dice.random() < 0.02:
            directories.append(drawn_id(dice))
        request = {
            "brokerId": broker,
            "brokerEpoch": epoch,
            "currentMetadataOffset": offset,
            "wantFence": dice.random() < 0.08,
            "wantShutDown": wants_shutdown,
            "offlineLogDirs": [text_of(each) for each in directories],
        }
        version = dice.choice((1, 2))
        if version == 2 and cordoned is not None and dice.random() < 0.9:
            request["cordonedLogDirs"] = [text_of(each) for each in cordoned]
        return {"version": version, "request": request}

    def beat(self, arguments: Arguments) -> Heartbeat:
        """Return the heartbeat itself."""
        asked = arguments["request"]
        cordoned = asked.get("cordonedLogDirs")
        return Heartbeat(
            asked["brokerId"],
            asked["brokerEpoch"],
            asked["currentMetadataOffset"],
            wants_fence=asked["wantFence"],
            wants_shutdown=asked["wantShutDown"],
            offline_log_dirs=[id_of(each) for each in asked["offlineLogDirs"]],
            cordoned_log_dirs=None if cordoned is None else [id_of(each) for each in cordoned],
        )

    def asked(self, world: View, arguments: Arguments) -> operations.Operation:
        return requests.broker_heartbeat(self.beat(arguments))

    def decide(self, world: World, arguments: Arguments) -> Decided:
        beat = self.beat(arguments)
        world.sessions.touch(beat.broker_id, beat.broker_epoch, world.now_ms)
        return super().decide(world, arguments)

    def answer(self, response: Any) -> Any:
        return [
            response.is_caught_up,
            response.is_fenced,
            response.in_controlled_shutdown,
            response.should_shut_down,
        ]


class Silence(Operation):
    """Advance the clock by a session timeout during which all brokers but one send heartbeats."""

    name = "silence"
    weight = 12

    def arguments(self, dice: random.Random, world: View) -> Arguments:
        heard = list(world.sessions._contacts)
        if heard:
            heard.remove(dice.choice(heard))
        return {"ms": dice.choice((9_000, 9_001, 9_001)), "heard": [list(each) for each in heard]}

    def decide(self, world: World, arguments: Arguments) -> Decided:
        world.now_ms += arguments["ms"]
        for broker, epoch in arguments["heard"]:
            world.sessions.touch(broker, epoch, world.now_ms)
        return Decided(None)


class Failover(Operation):
    """Make another controller active, which has its own sessions.

    Not drawn while a broker shuts down: Kafka's new controller would not know of the shutdown. See
    docs/differential.md.
    """

    name = "failover"
    weight = 5

    def arguments(self, dice: random.Random, world: View) -> Arguments | None:
        brokers = world.cluster.state.brokers.values()
        is_leaving = any(one.in_controlled_shutdown and not one.fenced for one in brokers)
        return None if is_leaving else {}

    def decide(self, world: World, arguments: Arguments) -> Decided:
        world.sessions.activate(world.cluster, world.now_ms)
        return Decided(None)


class FenceStaleBroker(Operation):
    """Fence one expired broker.

    Drawn only with one expired session: among several, Kafka's choice depends on hash codes.
    """

    name = "fence_stale_broker"
    weight = 16

    def arguments(self, dice: random.Random, world: View) -> Arguments | None:
        sessions = world.sessions
        silent = [
            session
            for session in sessions._contacts
            if not sessions.has_valid_session(*session, world.now_ms)
        ]
        return None if len(silent) > 1 else {}

    def decide(self, world: World, arguments: Arguments) -> Decided:
        decision = fence_stale_broker(world.cluster, world.sessions, world.now_ms, world.settings)
        return Decided(decision, decision.response)


class ShutDownBroker(Operation):
    """Decide the partition changes of a registration alone."""

    name = "shut_down_broker"
    weight = 4

    def arguments(self, dice: random.Random, world: View) -> Arguments:
        return {"broker": world.some_broker(dice), "clean": dice.random() < 0.5}

    def decide(self, world: World, arguments: Arguments) -> Decided:
        return Decided(
            shut_down_broker(
                world.cluster,
                arguments["broker"],
                is_clean=arguments["clean"],
                settings=world.settings,
            )
        )


class RegisterController(Request):
    """Register a controller with valid listeners: for invalid ones Kafka returns an unexpected
    error.
    """

    name = "register_controller"
    weight = 3

    def arguments(self, dice: random.Random, world: View) -> Arguments:
        features = [feature for feature in FEATURES if dice.random() < 0.9]
        return {
            "request": {
                # Kafka accepts a negative id: a known difference.
                "controllerId": -1 if dice.random() < 0.01 else NODE_ID + dice.randrange(3),
                "incarnationId": text_of(drawn_id(dice)),
                "zkMigrationReady": dice.random() < 0.1,
                "listeners": [
                    {"name": name, "host": "c", "port": 9093, "securityProtocol": protocol}
                    for protocol, name in enumerate(("A", "B", "C")[: dice.randrange(4)])
                ],
                "features": [
                    {"name": name, "minSupportedVersion": low, "maxSupportedVersion": high}
                    for name, low, high in features
                ],
            }
        }

    def asked(self, world: View, arguments: Arguments) -> operations.Operation:
        asked = arguments["request"]
        request = ControllerRegistrationRequest(
            asked["controllerId"],
            id_of(asked["incarnationId"]),
            [
                NodeEndpoint(point["name"], point["host"], point["port"], point["securityProtocol"])
                for point in asked["listeners"]
            ],
            {
                feature["name"]: VersionRange(
                    feature["minSupportedVersion"], feature["maxSupportedVersion"]
                )
                for feature in asked["features"]
            },
            asked["zkMigrationReady"],
        )
        return requests.register_controller(request)


class AllocateProducerIds(Request):
    """Allocate a block for a broker, at times with a stale epoch."""

    name = "allocate_producer_ids"
    weight = 4

    def arguments(self, dice: random.Random, world: View) -> Arguments:
        broker = world.some_broker(dice)
        return {"broker": broker, "epoch": _epoch(dice, world, broker)}

    def asked(self, world: View, arguments: Arguments) -> operations.Operation:
        return requests.allocate_producer_ids(arguments["broker"], arguments["epoch"])

    def answer(self, response: Any) -> Any:
        return list(response)


class AssignDirectories(Request):
    """Assign replicas of any broker to its own directories, failed ones, another broker's, or
    none.
    """

    name = "assign_directories"
    weight = 20

    def arguments(self, dice: random.Random, world: View) -> Arguments:
        broker = world.some_broker(dice)
        registration = world.cluster.state.brokers.get(broker)
        own = list(registration.log_dirs) if registration else []
        unlikely = (drawn_id(dice), LOST, UNASSIGNED, MIGRATING)
        directories = [
            dice.choice(unlikely) if not own or dice.random() < 0.25 else dice.choice(own)
            for _ in range(dice.randrange(1, 4))
        ]
        return {
            "request": {
                "brokerId": broker,
                "brokerEpoch": _epoch(dice, world, broker),
                "directories": [
                    {"id": text_of(directory), "topics": self._topics(dice, world, broker)}
                    for directory in directories
                ],
            }
        }

    def _topics(self, dice: random.Random, world: View, broker: int) -> list[dict[str, Any]]:
        made = []
        for name in {world.some_topic(dice) for _ in range(2)}:
            ids = [
                number
                for number, row in enumerate(world.rows(name))
                if dice.random() < 0.1 or broker in world.cluster.table.state_of(row)["replicas"]
            ]
            if dice.random() < 0.05:
                ids.append(dice.choice((77, -1)))
            partitions = [{"partitionIndex": number} for number in ids]
            made.append({"topicId": text_of(world.topic_id(name)), "partitions": partitions})
        return sorted(made, key=lambda topic: str(topic["topicId"]))

    def asked(self, world: View, arguments: Arguments) -> operations.Operation:
        asked = arguments["request"]
        assignments = [
            DirectoryAssignment(
                id_of(directory["id"]),
                id_of(topic["topicId"]),
                np.array([each["partitionIndex"] for each in topic["partitions"]], np.int32),
            )
            for directory in asked["directories"]
            for topic in directory["topics"]
        ]
        return requests.assign_replicas_to_dirs(
            asked["brokerId"], asked["brokerEpoch"], assignments
        )

    def answer(self, response: Any) -> Any:
        return [codes.tolist() for codes in response]

    def understood(self, response: Any) -> Any:
        return [
            [partition["errorCode"] for partition in topic["partitions"]]
            for directory in response["directories"]
            for topic in directory["topics"]
        ]


def _epoch(dice: random.Random, world: View, broker: int) -> int:
    registration = world.cluster.state.brokers.get(broker)
    return (registration.epoch if registration else 1) + (dice.random() < 0.03)


OPERATIONS: tuple[Operation, ...] = (
    SendHeartbeat(),
    Silence(),
    Failover(),
    FenceStaleBroker(),
    ShutDownBroker(),
    RegisterController(),
    AllocateProducerIds(),
    AssignDirectories(),
)
