"""Slow reference implementation of a broker's metadata cache: plain dicts in, typed messages out.

Rules of Kafka's ``KafkaApis.handleTopicMetadataRequest``, ``KRaftMetadataCache`` and
``DescribeTopicPartitionsRequestHandler`` (4.3.1). Topics with errors come first in a Metadata
response; the others are as ordered in the request, or by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from kraft.image.publishing import Image
from kraft.image.security import AclOperation, ResourceType
from kraft.protocol.describe_topic_partitions import (
    DescribedPartition,
    DescribedTopic,
    DescribeTopicPartitionsRequestData,
    DescribeTopicPartitionsResponseData,
    TopicPartitionsCursor,
)
from kraft.protocol.metadata import (
    MetadataRequestData,
    MetadataResponseBroker,
    MetadataResponseData,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kraft.records import ZERO_UUID, Uuid

Allows = Callable[..., bool]

INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")
NOT_ASKED = -(2**31)
# READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS.
TOPIC_OPERATIONS = (3, 4, 5, 6, 7, 8, 10, 11)
# CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE.
CLUSTER_OPERATIONS = (5, 7, 8, 9, 10, 11, 12)


class RejectedRequest(Exception):  # noqa: N818
    """The request is rejected as a whole, with this error code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass
class PlainCluster:
    """``brokers``: id -> fenced, rack, listeners (name -> host, port), directories; ``topics``:
    name -> (id, partition -> state as in `TableImage.state_of`, directories as ids).
    """

    cluster_id: str = "the-cluster"
    brokers: dict[int, dict[str, Any]] = field(default_factory=dict)
    topics: dict[str, tuple[Uuid, dict[int, dict[str, Any]]]] = field(default_factory=dict)

    @classmethod
    def of(cls, image: Image) -> PlainCluster:
        cluster = cls()
        for broker in image.state.brokers.values():
            cluster.brokers[broker.id] = {
                "fenced": broker.fenced,
                "rack": broker.rack,
                "listeners": {name: (at.host, at.port) for name, at in broker.endpoints.items()},
                "directories": list(broker.log_dirs),
            }
        for number in image.table.topic_numbers():
            partitions = {}
            for partition in range(1001):
                row = image.table.row_of(number, partition)
                if row >= 0:
                    partitions[partition] = cls._state(image, row)
            row = image.table.row_of(number, 2**31 - 1)
            if row >= 0:
                partitions[2**31 - 1] = cls._state(image, row)
            topic_id = Uuid(image.table.topic_id_of(number))
            cluster.topics[image.table.topic_name(number)] = (topic_id, partitions)
        return cluster

    @staticmethod
    def _state(image: Image, row: int) -> dict[str, Any]:
        state = image.table.state_of(row)
        state["directories"] = [image.table.directory_id(one) for one in state["directories"]]
        return state

    # -- brokers and partitions

    def alive(self) -> list[int]:
        return sorted(id for id, broker in self.brokers.items() if not broker["fenced"])

    def is_reachable(self, id: int, listener: str) -> bool:
        broker = self.brokers.get(id)
        return broker is not None and not broker["fenced"] and listener in broker["listeners"]

    def is_online(self, id: int, directory: bytes, listener: str) -> bool:
        if not self.is_reachable(id, listener):
            return False
        number = int.from_bytes(directory, "big")
        if number < 2:
            return True
        known = self.brokers[id]["directories"]
        return number != 2 and (not known or directory in known)

    def offline(self, state: dict[str, Any], listener: str) -> list[int]:
        return [
            id
            for id, directory in zip(state["replicas"], state["directories"], strict=True)
            if not self.is_online(id, directory, listener)
        ]

    def leader_of(self, state: dict[str, Any], listener: str, version: int) -> tuple[int, int]:
        """Return the leader to show, and the error."""
        broker = self.brokers.get(state["leader"])
        if broker is None:
            return -1, 5
        if listener not in broker["listeners"]:
            return -1, 72 if version >= 6 else 5
        return state["leader"], 0

    def partition(
        self, index: int, state: dict[str, Any], listener: str, version: int
    ) -> MetadataResponsePartition:
        leader, error = self.leader_of(state, listener, version)
        replicas, isr = list(state["replicas"]), list(state["isr"])
        if version == 0:
            replicas = [id for id in replicas if self.is_reachable(id, listener)]
            isr = [id for id in isr if self.is_reachable(id, listener)]
            if not error and (replicas != state["replicas"] or isr != state["isr"]):
                error = 9
        return MetadataResponsePartition(
            error, index, leader, state["leader_epoch"], replicas, isr,
            self.offline(state, listener),
        )  # fmt: skip


def operations(supported: Iterable[int], allows: Allows | None, kind: int, name: str) -> int:
    return sum(
        1 << one
        for one in supported
        if allows is None
        or allows(AclOperation(one), ResourceType(kind), name, log_if_denied=False)
    )


def error_of_name(name: str) -> int:
    is_valid = re.fullmatch("[a-zA-Z0-9._-]{1,249}", name) and name not in (".", "..")
    return 3 if is_valid else 17


def metadata(
    cluster: PlainCluster,
    request: MetadataRequestData,
    version: int,
    listener: str,
    allows: Allows | None,
    *,
    auto_create: bool,
    controller: Callable[[list[int]], int],
) -> tuple[MetadataResponseData, list[str]]:
    """Return the response, and the names of the topics to create."""

    def may(operation: AclOperation, kind: ResourceType, name: str) -> bool:
        return allows is None or allows(operation, kind, name)

    asked = request.topics
    for topic in asked or []:
        if version < 12 and (topic.name is None or topic.topic_id != ZERO_UUID):
            raise RejectedRequest(42)
    ids = [one.topic_id for one in asked or [] if one.topic_id != ZERO_UUID]
    is_all = asked is None or (version == 0 and not asked)
    errors: list[MetadataResponseTopic] = []
    if is_all:
        names = sorted(cluster.topics, key=lambda name: name.encode("utf-16-be"))
    elif ids:
        by_id = {id: name for name, (id, _) in cluster.topics.items()}
        names = [by_id[id] for id in dict.fromkeys(ids) if id in by_id]
        errors += [
            MetadataResponseTopic(100, None, id) for id in dict.fromkeys(ids) if id not in by_id
        ]
    else:
        if any(one.name is None for one in asked or []):
            raise RejectedRequest(-1)
        names = [str(name) for name in dict.fromkeys(one.name for one in asked or [])]
    allowed = [name for name in names if may(AclOperation.DESCRIBE, ResourceType.TOPIC, name)]
    if not is_all:
        for name in names:
            if name not in allowed and ids:
                errors.append(MetadataResponseTopic(29, None, cluster.topics[name][0]))
            elif name not in allowed:
                errors.append(MetadataResponseTopic(29, name))
    creates = auto_create and request.allow_auto_topic_creation and not is_all
    if creates and not may(AclOperation.CREATE, ResourceType.CLUSTER, "kafka-cluster"):
        for name in list(allowed):
            if name not in cluster.topics and not may(
                AclOperation.CREATE, ResourceType.TOPIC, name
            ):
                allowed.remove(name)
                errors.append(MetadataResponseTopic(29, name, is_internal=name in INTERNAL))
    found: list[MetadataResponseTopic] = []
    to_create = []
    for name in allowed:
        bits = NOT_ASKED
        if request.include_topic_authorized_operations:
            bits = operations(TOPIC_OPERATIONS, allows, 2, name)
        topic_id, partitions = cluster.topics.get(name, (ZERO_UUID, {}))
        if partitions:
            found.append(
                MetadataResponseTopic(
                    0, name, topic_id, name in INTERNAL,
                    [
                        cluster.partition(index, partitions[index], listener, version)
                        for index in sorted(partitions)
                    ],
                    bits,
                )
            )  # fmt: skip
        elif not is_all:
            error = error_of_name(name)
            shown_id = ZERO_UUID if creates else topic_id
            errors.append(MetadataResponseTopic(error, name, shown_id, name in INTERNAL, [], bits))
            if creates and error == 3:
                to_create.append(name)
    response = MetadataResponseData(
        brokers=[
            MetadataResponseBroker(id, host, port, cluster.brokers[id]["rack"])
            for id in sorted(cluster.brokers)
            if cluster.is_reachable(id, listener)
            for host, port in [cluster.brokers[id]["listeners"][listener]]
        ],
        cluster_id=cluster.cluster_id,
        controller_id=controller(cluster.alive()) if cluster.alive() else -1,
        topics=errors + found,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = 0
        if may(AclOperation.DESCRIBE, ResourceType.CLUSTER, "kafka-cluster"):
            response.cluster_authorized_operations = operations(
                CLUSTER_OPERATIONS, allows, 4, "kafka-cluster"
            )
    return response, to_create


def describe_topic_partitions(
    cluster: PlainCluster,
    request: DescribeTopicPartitionsRequestData,
    listener: str,
    allows: Allows | None,
    *,
    limit: int,
) -> DescribeTopicPartitionsResponseData:
    is_all = not request.topics
    names = set(cluster.topics) if is_all else {topic.name for topic in request.topics}
    cursor = request.cursor
    if cursor is not None:
        start = cursor.topic_name.encode("utf-16-be")
        names = {name for name in names if name.encode("utf-16-be") >= start}
        if cursor.partition_index < 0 or (not is_all and cursor.topic_name not in names):
            raise RejectedRequest(42)
    ordered = sorted(names, key=lambda name: name.encode("utf-16-be"))
    allowed = [
        name
        for name in ordered
        if allows is None or allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
    ]
    response = DescribeTopicPartitionsResponseData()
    left = max(1, min(limit, request.response_partition_limit))
    for name in allowed:
        if left == 0:
            response.next_cursor = TopicPartitionsCursor(name, 0)
            break
        if name not in cluster.topics:
            if not is_all:
                response.topics.append(
                    DescribedTopic(
                        error_of_name(name), name, ZERO_UUID, name in INTERNAL, [],
                        operations(TOPIC_OPERATIONS, allows, 2, name),
                    )
                )  # fmt: skip
            continue
        topic_id, partitions = cluster.topics[name]
        is_first = cursor is not None and name == cursor.topic_name
        first = cursor.partition_index if cursor is not None and is_first else 0
        end = min(len(partitions), first + left)
        shown = [index for index in range(first, end) if index in partitions]
        response.topics.append(
            DescribedTopic(
                0, name, topic_id, name in INTERNAL,
                [_described(cluster, index, partitions[index], listener) for index in shown],
                operations(TOPIC_OPERATIONS, allows, 2, name),
            )
        )  # fmt: skip
        if end < len(partitions):
            response.next_cursor = TopicPartitionsCursor(name, end)
            break
        left -= len(shown)
    if not is_all:
        response.topics += [DescribedTopic(29, name) for name in ordered if name not in allowed]
    return response


def _described(
    cluster: PlainCluster, index: int, state: dict[str, Any], listener: str
) -> DescribedPartition:
    return DescribedPartition(
        0, index, cluster.leader_of(state, listener, 13)[0], state["leader_epoch"],
        state["replicas"], state["isr"], state["elr"], state["last_known_elr"],
        cluster.offline(state, listener),
    )  # fmt: skip
