"""Create, delete and describe topics in ZooKeeper, as Kafka's tools of 2018 did: without a broker.

They write znodes, and the controller sees them.

Rules: ``AdminZkClient.scala`` of Kafka 1.1.1. Replicas are placed by `StripedPlacer`, which spreads
them over racks as Kafka's controller does.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kraft._core.decide.placement import JavaRandom, PlacementSpec, StripedPlacer, UsableBroker
from kraft.errors import (
    InvalidArgumentError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    TopicAlreadyExistsError,
    UnknownTopicNameError,
    ZooKeeperError,
)
from kraft.zookeeper import znodes
from kraft.zookeeper.controller_znodes import ControllerZnodes
from kraft.zookeeper.port import CreateZnode, GetZnode, ZkCode, ZooKeeperPort
from kraft.zookeeper.znodes import (
    BrokerZnode,
    ControllerZnode,
    PartitionStateZnode,
    TopicZnode,
    decode_controller_epoch,
)

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class ZkPartitionDescription:
    """A partition's replicas, and its state, None before its first leader."""

    partition: int
    replicas: tuple[int, ...]
    state: PartitionStateZnode | None


@dataclass(frozen=True, slots=True)
class ZkControllerDescription:
    """The active controller, -1 without one, since when, and the last controller epoch.

    ``era`` is that of a controller of kraft, 0.8 or 2018; empty for one of Apache Kafka.
    """

    broker_id: int
    timestamp_ms: int
    epoch: int
    brokers: tuple[int, ...]
    topics: int
    era: str


class ZkAdmin:
    """The tools of one cluster, over a session of their own."""

    def __init__(self, port: ZooKeeperPort) -> None:
        self._port = port
        self._tree = ControllerZnodes(port)

    def topics(self) -> list[str]:
        """Return the names of all topics, ascending."""
        return sorted(self._tree.topics())

    def deletions(self) -> set[str]:
        """Return the topics that wait for their deletion."""
        return self._tree.topic_deletions()

    def describe(self, topics: Sequence[str]) -> dict[str, list[ZkPartitionDescription]]:
        """Return the partitions of topics. Raises UnknownTopicNameError."""
        assignments = self._tree.assignments(topics)
        for topic in topics:
            if topic not in assignments:
                raise UnknownTopicNameError(f"there is no topic {topic!r}")
        keys = [(topic, partition) for topic in topics for partition in sorted(assignments[topic])]
        states = self._tree.states(keys)
        described: dict[str, list[ZkPartitionDescription]] = {topic: [] for topic in topics}
        for topic, partition in keys:
            found = states[topic, partition]
            described[topic].append(
                ZkPartitionDescription(
                    partition,
                    assignments[topic][partition],
                    None if found is None else found[0],
                )
            )
        return described

    def create(
        self,
        topic: str,
        partitions: int,
        replication_factor: int,
        *,
        seed: int | None = None,
        brokers: Collection[int] | None = None,
    ) -> dict[int, tuple[int, ...]]:
        """Create a topic on the registered brokers, or on those of ``brokers``; return its
        assignment.

        ``seed`` makes the placement repeatable. Raises InvalidTopicError,
        InvalidReplicationFactorError, TopicAlreadyExistsError; ZooKeeperError where no broker or
        controller ever started.
        """
        if not _LEGAL_NAME.fullmatch(topic) or topic in (".", ".."):
            raise InvalidTopicError(
                f"{topic!r} is no name of a topic: it has 1 to 249 of a-z, A-Z, 0-9, '.', '_', '-'"
            )
        if partitions < 1:
            raise InvalidArgumentError(f"a topic has 1 partition or more, not {partitions}")
        assignment = self._place(partitions, replication_factor, seed, brokers)
        config = CreateZnode(znodes.config_path("topics", topic), znodes.encode_config({}))
        created = CreateZnode(znodes.topic_path(topic), TopicZnode(assignment).encode())
        results = self._port.multi([config, created])
        if any(one.code == ZkCode.NODE_EXISTS for one in results):
            # A config may be left of a topic that was deleted by hand.
            results = self._port.run([created])
        for result in results:
            if result.code == ZkCode.NODE_EXISTS:
                raise TopicAlreadyExistsError(f"topic {topic!r} exists already")
            if not result.is_ok:
                raise ZooKeeperError(
                    f"topic {topic!r} cannot be created: {result.code.name}; the cluster's znodes "
                    "exist once a broker or controller has started"
                )
        return assignment

    def _place(
        self,
        partitions: int,
        replication_factor: int,
        seed: int | None,
        wanted: Collection[int] | None,
    ) -> dict[int, tuple[int, ...]]:
        brokers = {
            id: broker
            for id, broker in self._tree.brokers().items()
            if wanted is None or id in wanted
        }
        if not 1 <= replication_factor <= len(brokers):
            which = "registered" if wanted is None else "registered of those that may be used"
            raise InvalidReplicationFactorError(
                f"a replication factor of {replication_factor} is not possible: "
                f"{len(brokers)} brokers are {which}"
            )
        usable = [UsableBroker(id, broker.rack) for id, broker in brokers.items()]
        java_seed = random.getrandbits(48) if seed is None else seed
        placer = StripedPlacer(JavaRandom(java_seed))
        placed = placer.place(PlacementSpec(0, partitions, replication_factor), usable)
        return {index: tuple(map(int, ids)) for index, ids in enumerate(placed)}

    def delete(self, topics: Sequence[str]) -> None:
        """Ask the controller to delete topics. Raises UnknownTopicNameError, before any."""
        known = self._tree.topics()
        for topic in topics:
            if topic not in known:
                raise UnknownTopicNameError(f"there is no topic {topic!r}")
        requests = [CreateZnode(znodes.delete_topic_path(topic)) for topic in topics]
        for topic, result in zip(topics, self._port.run(requests), strict=True):
            if result.code not in (ZkCode.OK, ZkCode.NODE_EXISTS):
                raise ZooKeeperError(f"topic {topic!r} cannot be deleted: {result.code.name}")

    def controller(self) -> ZkControllerDescription:
        """Return who is active, and what the cluster has."""
        active, epoch = self._port.run(
            [GetZnode(znodes.CONTROLLER), GetZnode(znodes.CONTROLLER_EPOCH)]
        )
        znode = ControllerZnode.decode(active.data) if active.is_ok else ControllerZnode(-1)
        return ZkControllerDescription(
            znode.broker_id,
            znode.timestamp_ms,
            decode_controller_epoch(epoch.data) if epoch.is_ok else 0,
            tuple(self._tree.brokers()),
            len(self._tree.topics()),
            self._era_of(znode.broker_id),
        )

    def _era_of(self, controller_id: int) -> str:
        (found,) = self._port.run([GetZnode(znodes.broker_path(controller_id))])
        return BrokerZnode.decode(found.data, controller_id).controller_era if found.is_ok else ""
