"""Operations on ISRs, elections and reassignments."""

from __future__ import annotations

import random
import struct
from typing import Any

from kraft.controller.runtime import operations, requests
from kraft.controller.topics.elections import ElectionType, balance_leaders, elect_unclean_leaders
from kraft.controller.topics.isr_changes import EncodedAlterPartition
from kraft.controller.topics.reassignment import list_partition_reassignments
from kraft.errors import KraftError
from tests.differential.operation import Arguments, Decided, Operation, Request
from tests.differential.topics import drawn_replicas
from tests.differential.world import UNKNOWN_BROKER, View, World, id_of, text_of


def _code(result: object) -> int:
    return result.kafka_code if isinstance(result, KraftError) else 0


class AlterPartitions(Request):
    """Alter ISRs, from the bytes of a request to those of the response: mostly valid, at times
    stale, or with invalid members.
    """

    name = "alter_partitions"
    weight = 60

    def arguments(self, dice: random.Random, world: View) -> Arguments | None:
        name, partition, state = world.some_partition(dice)
        brokers = world.cluster.state.brokers
        leader = state["leader"] if state else 0
        if leader < 0 or dice.random() < 0.03:
            leader = world.some_broker(dice)
        partitions = []
        for number, row in enumerate(world.rows(name)):
            state = world.cluster.table.state_of(row)
            if number == partition or state["leader"] == leader:
                partitions.append(self._partition(dice, world, number, state, leader))
        if not partitions:
            return None
        dice.shuffle(partitions)
        registration = brokers.get(leader)
        epoch = registration.epoch if registration else 1
        topic_id = world.topic_id(name)
        if dice.random() < 0.02:
            topic_id = type(topic_id)(b"no such topic id")
        return {
            "request": {
                "brokerId": leader,
                "brokerEpoch": epoch + (dice.random() < 0.02),
                "topics": [{"topicId": text_of(topic_id), "partitions": partitions}],
            }
        }

    def _partition(
        self, dice: random.Random, world: View, number: int, state: dict[str, Any], leader: int
    ) -> dict[str, Any]:
        brokers = world.cluster.state.brokers
        replicas = state["replicas"]
        alive = [
            id
            for id in replicas
            if id in brokers and not brokers[id].fenced and not brokers[id].in_controlled_shutdown
        ]
        isr = alive if dice.random() < 0.6 else [id for id in alive if dice.random() < 0.6]
        if leader not in isr and dice.random() < 0.95:
            isr = [leader, *isr]
        if dice.random() < 0.2:
            isr = dice.sample(isr, len(isr))
        if dice.random() < 0.03:
            isr = [*isr, dice.choice((*replicas, UNKNOWN_BROKER))]
            isr = list(dict.fromkeys(isr))
        epochs = {id: brokers[id].epoch if id in brokers else 1 for id in isr}
        if dice.random() < 0.1:
            epochs = dict.fromkeys(epochs, -1)
        elif dice.random() < 0.03 and isr:
            epochs[dice.choice(isr)] -= 1
        recovery = state["leader_recovery_state"] if dice.random() < 0.3 else 0
        if dice.random() < 0.02:
            recovery = 1
        return {
            # No partition is named twice: see docs/differential.md.
            "partitionIndex": number if dice.random() < 0.98 else 77 + number,
            "leaderEpoch": state["leader_epoch"] + dice.choice((0,) * 40 + (1, -1)),
            "newIsrWithEpochs": [
                {"brokerId": id, "brokerEpoch": epoch} for id, epoch in epochs.items()
            ],
            "leaderRecoveryState": recovery,
            "partitionEpoch": state["partition_epoch"] + dice.choice((0,) * 40 + (1, -1)),
        }

    def asked(self, world: View, arguments: Arguments) -> operations.Operation:
        body = _alter_partition_body(arguments["request"])
        return requests.alter_partition_encoded(EncodedAlterPartition(body, 3))

    def answer(self, response: Any) -> Any:
        return response.hex()


def _alter_partition_body(request: dict[str, Any]) -> bytes:
    """Return the bytes of a request of version 3; no array has more than 126 entries."""
    out = struct.pack(
        ">iqB", request["brokerId"], request["brokerEpoch"], len(request["topics"]) + 1
    )
    for topic in request["topics"]:
        out += id_of(topic["topicId"]) + bytes((len(topic["partitions"]) + 1,))
        for one in topic["partitions"]:
            isr = one["newIsrWithEpochs"]
            out += struct.pack(">iiB", one["partitionIndex"], one["leaderEpoch"], len(isr) + 1)
            for member in isr:
                out += struct.pack(">iqx", member["brokerId"], member["brokerEpoch"])
            out += struct.pack(">bix", one["leaderRecoveryState"], one["partitionEpoch"])
        out += bytes(1)
    return out + bytes(1)


class ElectLeaders(Request):
    """Request preferred or unclean elections of some partitions or all."""

    name = "elect_leaders"
    weight = 12

    def arguments(self, dice: random.Random, world: View) -> Arguments:
        topics: dict[str, list[int]] = {}
        for _ in range(dice.randrange(1, 4)):
            name, partition, _state = world.some_partition(dice)
            if partition not in topics.setdefault(name, []):
                topics[name].append(partition)
        asked = [{"topic": name, "partitions": ids} for name, ids in topics.items()]
        return {
            "request": {
                "electionType": dice.choice((0, 1)),
                "topicPartitions": None if dice.random() < 0.2 else asked,
                "timeoutMs": 30_000,
            }
        }

    def asked(self, world: View, arguments: Arguments) -> operations.Operation:
        request = arguments["request"]
        asked = request["topicPartitions"]
        return requests.elect_leaders(
            ElectionType(request["electionType"]),
            None if asked is None else {one["topic"]: one["partitions"] for one in asked},
        )

    def answer(self, response: Any) -> Any:
        return sorted([name, partition, code] for name, partition, code in response)

    def understood(self, response: Any) -> Any:
        return sorted(
            [topic["topic"], one["partitionId"], one["errorCode"]]
            for topic in response["replicaElectionResults"]
            for one in topic["partitionResult"]
        )


class BalanceLeaders(Operation):
    """The controller's periodic preferred elections."""

    name = "balance_leaders"
    weight = 8

    def arguments(self, dice: random.Random, world: View) -> Arguments:
        return {}

    def decide(self, world: World, arguments: Arguments) -> Decided:
        decision = balance_leaders(world.cluster, world.max_elections, settings=world.settings)
        return Decided(decision, decision.response)


class ElectUncleanLeaders(BalanceLeaders):
    """The controller's periodic unclean elections."""

    name = "elect_unclean_leaders"
    weight = 8

    def decide(self, world: World, arguments: Arguments) -> Decided:
        decision = elect_unclean_leaders(
            world.cluster, world.max_elections, settings=world.settings
        )
        return Decided(decision, decision.response)


class AlterReassignments(Request):
    """Set new replicas of partitions, or cancel a reassignment."""

    name = "alter_reassignments"
    weight = 25

    def arguments(self, dice: random.Random, world: View) -> Arguments:
        topics: dict[str, dict[int, list[int] | None]] = {}
        for _ in range(dice.randrange(1, 4)):
            name, partition, state = world.some_partition(dice)
            factor = len(state["replicas"]) if state and dice.random() < 0.6 else None
            target: list[int] | None = drawn_replicas(dice, world, factor)
            if dice.random() < (0.5 if state and state["removing_replicas"] else 0.1):
                target = None
            topics.setdefault(name, {})[partition] = target
        return {
            "request": {
                "timeoutMs": 30_000,
                "allowReplicationFactorChange": dice.random() < 0.8,
                "topics": [
                    {
                        "name": name,
                        "partitions": [
                            {"partitionIndex": partition, "replicas": replicas}
                            for partition, replicas in targets.items()
                        ],
                    }
                    for name, targets in topics.items()
                ],
            }
        }

    def asked(self, world: View, arguments: Arguments) -> operations.Operation:
        request = arguments["request"]
        return requests.alter_partition_reassignments(
            {
                (topic["name"], one["partitionIndex"]): one["replicas"]
                for topic in request["topics"]
                for one in topic["partitions"]
            },
            allow_replication_factor_change=request["allowReplicationFactorChange"],
        )

    def answer(self, response: Any) -> Any:
        return sorted([*name, _code(result)] for name, result in response.items())

    def understood(self, response: Any) -> Any:
        return sorted(
            [topic["name"], one["partitionIndex"], one["errorCode"]]
            for topic in response["responses"]
            for one in topic["partitions"]
        )


class ListReassignments(Operation):
    """List the reassignments in progress."""

    name = "list_reassignments"
    weight = 3

    def arguments(self, dice: random.Random, world: View) -> Arguments:
        return {}

    def decide(self, world: World, arguments: Arguments) -> Decided:
        found = list_partition_reassignments(world.cluster)
        answer = [
            [*name, list(one.replicas), list(one.adding_replicas), list(one.removing_replicas)]
            for name, one in found.items()
        ]
        return Decided(None, sorted(answer))

    def understood(self, response: Any) -> Any:
        return sorted(
            [
                *(topic["name"], one["partitionIndex"], one["replicas"]),
                *(one["addingReplicas"], one["removingReplicas"]),
            ]
            for topic in response["topics"]
            for one in topic["partitions"]
        )


OPERATIONS: tuple[Operation, ...] = (
    AlterPartitions(),
    ElectLeaders(),
    BalanceLeaders(),
    ElectUncleanLeaders(),
    AlterReassignments(),
    ListReassignments(),
)
