"""Operations on topics, decided by ``kraft.controller.topics``."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from kraft.controller.decision import MAX_RECORDS_PER_BATCH
from kraft.controller.runtime import operations, requests
from kraft.controller.topics.partition_creation import NewPartitions
from kraft.controller.topics.topic_creation import NewTopic
from kraft.controller.topics.topic_deletion import TopicToDelete
from kraft.errors import KraftError
from tests.differential.operation import Arguments, Operation, Request
from tests.differential.world import UNKNOWN_BROKER, View, drawn_id, id_of, text_of

_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
_NAMES = ("topic-{}", "new-{}", "a.b_{}", "a_b.{}", "x.{}", "x_{}")
_BAD_NAMES = ("", ".", "..", "a b", "ä", "x" * 250)
_CONFIGS = (
    ("min.insync.replicas", ("1", "2", "3")),
    ("unclean.leader.election.enable", ("true", "false")),
    ("retention.ms", ("1000", "-1")),
    ("cleanup.policy", ("compact", "delete")),
)
_BAD_CONFIGS = (
    ("retention.ms", "soon"),
    ("cleanup.policy", "nothing"),
    ("min.insync.replicas", "0"),
    ("segment.bytes", None),
    ("no.such.config", "1"),
)


#: The first metadata.version with metadata transactions (3.6-IV1).
_TRANSACTIONS_SINCE = 13


def drawn_replicas(dice: random.Random, world: View, factor: int | None = None) -> list[int]:
    """Draw brokers for one partition: mostly valid, at times a duplicate, an unknown one, or
    none.
    """
    known = world.brokers()
    most = min(len(known), 4 if dice.random() < 0.95 else 20)
    count = dice.randrange(1, most + 1) if factor is None and known else factor or 1
    replicas = dice.sample(known, min(count, len(known)))
    shape = dice.random()
    if shape < 0.02:
        replicas.append(UNKNOWN_BROKER)
    elif shape < 0.04:
        replicas += replicas[:1]
    elif shape < 0.05:
        replicas = []
    return replicas


def _is_too_large(topics: Iterable[dict[str, Any]]) -> bool:
    return sum(max(topic["numPartitions"], 1) for topic in topics) > MAX_RECORDS_PER_BATCH


class CreateTopics(Request):
    """Create one to three topics, placed by the placer or manually, with configurations."""

    name = "create_topics"
    weight = 20

    def arguments(self, dice: random.Random, world: View) -> Arguments:
        topics: dict[str, Any] = {}
        for _ in range(dice.choice((1, 1, 2, 3))):
            name = dice.choice(_NAMES).format(dice.randrange(6))
            if any(name.replace(".", "_") == other.replace(".", "_") for other in topics):
                # Kafka creates topics whose names collide in metrics: see docs/differential.md.
                continue
            if dice.random() < 0.03:
                name = dice.choice(_BAD_NAMES)
            topics[name] = self._topic(dice, world, name)
        has_transactions = world.cluster.state.metadata_version >= _TRANSACTIONS_SINCE
        if has_transactions and _is_too_large(topics.values()):
            # A request larger than a batch is a metadata transaction here; Kafka rejects it.
            for topic in topics.values():
                topic["numPartitions"] = min(topic["numPartitions"], 4)
        return {
            "ids": [text_of(drawn_id(dice)) for _ in topics],
            "request": {
                "topics": list(topics.values()),
                "timeoutMs": 30_000,
                "validateOnly": dice.random() < 0.05,
            },
        }

    def _topic(self, dice: random.Random, world: View, name: str) -> dict[str, Any]:
        partitions = dice.choice((-1, 1, 1, 2, 3, 4))
        factor = dice.choice((-1, 1, 2, 2, 3, 3, 4, len(world.brokers())))
        assignments = []
        if dice.random() < 0.35:
            partitions = factor = -1
            count = dice.randrange(1, 4)
            size = dice.randrange(1, 4)
            ids = list(range(count))
            if dice.random() < 0.03:
                ids[-1] += 1
            if dice.random() < 0.2:
                dice.shuffle(ids)
            if dice.random() < 0.03:
                ids.append(ids[0])
            for id in ids:
                factor_of_one = size if dice.random() < 0.97 else None
                assignments.append(
                    {"partitionIndex": id, "brokerIds": drawn_replicas(dice, world, factor_of_one)}
                )
            if dice.random() < 0.02:
                partitions = count
        elif dice.random() < 0.05:
            partitions, factor = dice.choice(((0, 1), (-2, 1), (1, 0), (1, -3), (10_001, 1)))
        configs: list[dict[str, str | None]] = [
            {"name": key, "value": dice.choice(values)}
            for key, values in _CONFIGS
            if dice.random() < 0.15
        ]
        if dice.random() < 0.05:
            key, value = dice.choice(_BAD_CONFIGS)
            configs = [config for config in configs if config["name"] != key]
            configs.append({"name": key, "value": value})
        return {
            "name": name,
            "numPartitions": partitions,
            "replicationFactor": factor,
            "assignments": assignments,
            "configs": configs,
        }

    def asked(self, world: View, arguments: Arguments) -> operations.Operation:
        topics = [
            NewTopic(
                topic["name"],
                id_of(id),
                num_partitions=topic["numPartitions"],
                replication_factor=topic["replicationFactor"],
                assignments=[
                    (one["partitionIndex"], one["brokerIds"]) for one in topic["assignments"]
                ],
                configs={config["name"]: config["value"] for config in topic["configs"]},
            )
            for topic, id in zip(arguments["request"]["topics"], arguments["ids"], strict=True)
        ]
        return requests.create_topics(
            topics, world.creation_rules, validate_only=arguments["request"]["validateOnly"]
        )

    def answer(self, response: Any) -> Any:
        return {
            name: [result.kafka_code, _NO_ID]
            if isinstance(result, KraftError)
            else [0, text_of(result.topic_id)]
            for name, result in response.items()
        }

    def random(self, world: View, response: Any, drawn: bytes) -> bytes:
        made = () if response is None else response.values()
        return b"".join(one.topic_id for one in made if not isinstance(one, KraftError))

    def understood(self, response: Any) -> Any:
        return {name: [error, id] for name, (error, id, _) in response.items()}


class CreatePartitions(Request):
    """Add partitions to one or two topics, placed by the placer or manually."""

    name = "create_partitions"
    weight = 8

    def arguments(self, dice: random.Random, world: View) -> Arguments | None:
        names = {world.some_topic(dice) for _ in range(dice.choice((1, 1, 2)))}
        topics = [self._topic(dice, world, name) for name in sorted(names)]
        if None in topics:
            return None
        return {
            "request": {
                "topics": topics,
                "timeoutMs": 30_000,
                "validateOnly": dice.random() < 0.05,
            }
        }

    def _topic(self, dice: random.Random, world: View, name: str) -> dict[str, Any] | None:
        rows = world.rows(name)
        factors = {len(world.cluster.table.state_of(row)["replicas"]) for row in rows}
        if len(factors) > 1:
            # Kafka uses the replication factor of any partition, by hash: see docs/differential.md.
            return None
        more = dice.choice((1, 1, 2, 3, 3, 0, -1))
        assignments = None
        if dice.random() < 0.4:
            factor = min(factors, default=1)
            count = max(more, 0) if dice.random() < 0.95 else 1
            assignments = [
                {"brokerIds": drawn_replicas(dice, world, factor if dice.random() < 0.95 else None)}
                for _ in range(count)
            ]
        return {"name": name, "count": len(rows) + more, "assignments": assignments}

    def asked(self, world: View, arguments: Arguments) -> operations.Operation:
        topics = [
            NewPartitions(
                topic["name"],
                topic["count"],
                None
                if topic["assignments"] is None
                else [one["brokerIds"] for one in topic["assignments"]],
            )
            for topic in arguments["request"]["topics"]
        ]
        return requests.create_partitions(
            topics, validate_only=arguments["request"]["validateOnly"]
        )

    def answer(self, response: Any) -> Any:
        return {
            name: result.kafka_code if isinstance(result, KraftError) else 0
            for name, result in response.items()
        }

    def understood(self, response: Any) -> Any:
        return {name: error for name, (error, _) in response.items()}


class DeleteTopics(Request):
    """Delete topics by id, at times one that does not exist."""

    name = "delete_topics"
    weight = 4

    def arguments(self, dice: random.Random, world: View) -> Arguments:
        names = {world.some_topic(dice) for _ in range(dice.choice((1, 1, 2)))}
        return {"ids": [text_of(world.topic_id(name)) for name in sorted(names)]}

    def asked(self, world: View, arguments: Arguments) -> operations.Operation:
        return requests.delete_topics(
            [TopicToDelete(topic_id=id_of(id)) for id in arguments["ids"]]
        )

    def answer(self, response: Any) -> Any:
        return {
            text_of(topic.topic_id): topic.error.kafka_code if topic.error else 0
            for topic in response
        }


OPERATIONS: tuple[Operation, ...] = (CreateTopics(), CreatePartitions(), DeleteTopics())
