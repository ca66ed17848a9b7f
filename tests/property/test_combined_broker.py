"""The broker beside a controller that leads sees what a broker of another node sees.

The controller's state runs ahead of the committed records and is reverted when the leadership is
lost. The broker of the same process reads images of that state, sometimes late. The other broker
has a state of its own, to which only committed records are applied. After each commit, revert and
compaction both must have the same replicas, roles, logs, settings and liveness, and give the same
answers, byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from random import Random
from types import MappingProxyType
from typing import Any

import pytest

from kraft import records
from kraft.broker.metadata_cache import MetadataCache, MetadataCacheSettings
from kraft.broker.replication.messages import PartitionId
from kraft.broker.replication.replica_manager import ReplicaManager
from kraft.broker.topic_settings import EffectiveTopicSettings
from kraft.image.publishing import Image, ImageDelta, ImagePublishing, Phase
from kraft.image.replay import MetadataState
from kraft.protocol.describe_cluster import DescribeClusterRequestData
from kraft.protocol.metadata import MetadataRequestData
from kraft.records import Record, Uuid
from kraft.simulation.replica_brokers import SimulatedTopics
from kraft.simulation.replica_log import ReplicaStore
from tests.harness.joined_brokers import DIRECTORY, FirstChoice
from tests.property.growing_clusters import Growing

BROKER = 1
TURNS = 200
TOPICS = ("a", "a", "b")
REPLICAS = ([1], [2], [1, 2], [2, 1], [3, 2], [2, 3, 1])
CONFIGS = ((2, "a"), (2, "b"), (4, ""), (4, "1"))


class _Properties:
    node_id = BROKER
    given: Mapping[str, str] = MappingProxyType({})


class Observer:
    """The parts of a broker that follow the metadata."""

    name = "replica manager"

    def __init__(self, publishing: ImagePublishing) -> None:
        self.images = publishing
        self.store = ReplicaStore(FirstChoice(), lambda partition, epoch: None)  # type: ignore
        self.store.use([bytes(DIRECTORY)])
        self.manager = ReplicaManager(BROKER, self.store, SimulatedTopics(1), lambda: 1)
        self.cache = MetadataCache(
            "cluster", MetadataCacheSettings(True, 100), choose=lambda ids: min(ids)
        )
        self.topics = EffectiveTopicSettings(_Properties())
        #: Whether deltas wait; those that do. A broker applies large ones in later turns.
        self.is_delayed = False
        self._waiting: list[tuple[ImageDelta, Image]] = []
        publishing.register(self.cache, Phase.METADATA_CACHE)
        publishing.register(self.topics, Phase.REPLICA_MANAGER)
        publishing.register(self, Phase.REPLICA_MANAGER)

    def on_metadata_update(self, delta: ImageDelta, image: Image) -> None:
        self._waiting.append((delta, image))
        if not self.is_delayed:
            self.catch_up()

    def catch_up(self) -> None:
        for delta, image in self._waiting:
            self.manager.apply_delta(delta, image, 0.0)
        self._waiting.clear()

    def seen(self) -> dict[str, Any]:
        """Return all that the broker has learned, without the numbers of rows and topics."""
        manager, image = self.manager, self.images.image
        assert self.images.fault_counts == {}
        if image is None:
            return {}
        every = MetadataRequestData(topics=None)
        return {
            "offset": (image.offset, image.epoch, image.is_batch_aligned),
            "hosted": {
                id: (
                    each.topic,
                    each.is_leader,
                    each.leader_epoch,
                    each.directory,
                    manager.fetching.leader_of(id),
                )
                for id, each in manager.partitions.items()
            },
            "logs": set(self.store.logs),
            "alive": [manager.context.brokers.is_alive(id) for id in (1, 2, 3)],
            "stale": [manager.context.brokers.is_stale(id, 5) for id in (1, 2, 3)],
            "settings": {
                name: (self.topics.of(name).min_insync_replicas, self.topics.of(name).log)
                for name in ("a", "b")
            },
            "metadata": self.cache.metadata(every, 12, "PLAIN", None).body,
            "cluster": self.cache.describe_cluster(
                DescribeClusterRequestData(include_fenced_brokers=True), 2, "PLAIN"
            ).encode(2),
            "features": dict(image.state.features),
            "configs": {key: dict(value) for key, value in image.state.configs.items()},
            "errors": [
                manager.absence_error(PartitionId(number.to_bytes(16, "big"), 0))
                for number in range(1, 400)
            ],
        }

    def roles(self) -> dict[PartitionId, bool]:
        """Return the hosted partitions, and which of them the broker leads."""
        return {id: each.is_leader for id, each in self.manager.partitions.items()}


def assigned_roles(image: Image | None) -> dict[PartitionId, bool]:
    """Return the roles that an image assigns to the broker, read partition by partition."""
    roles: dict[PartitionId, bool] = {}
    for topic in [] if image is None else image.table.topic_numbers():
        assert image is not None
        for row in map(int, image.table.topic_rows(topic)):
            state = image.table.state_of(row)
            if BROKER in state["replicas"]:
                id = PartitionId(image.table.topic_id_of(topic), image.table.partition_of(row))
                roles[id] = state["leader"] == BROKER
    return roles


class Twins:
    """The controller's state with its broker, and a broker of another node."""

    def __init__(self) -> None:
        self.growing = Growing()
        self.beside = Observer(self.growing.publishing)
        self.state = MetadataState(journaling=True)
        self.remote = Observer(ImagePublishing(self.state))
        self.committed = 0
        self.topic_count = 0
        #: Records that were reverted, and how many partitions the broker had.
        self.lost_records = 0
        self.hosted_counts: set[int] = set()
        for id in (1, 2, 3):
            self.register(id)
        self.commit(100)

    @property
    def is_in_transaction(self) -> bool:
        return self._ahead.transaction_start is not None

    @property
    def _ahead(self) -> MetadataState:
        return self.growing.cluster

    def _apply(self, *written: Record) -> None:
        for record in written:
            self.growing.apply(record)

    def _topic(self, name: str) -> Uuid | None:
        table = self._ahead.table
        number = table.topic_number(name)
        return None if number < 0 else Uuid(table.topic_id_of(number))

    # -- records

    def create(self, name: str, replicas: list[int]) -> None:
        if self._topic(name) is None:
            self.topic_count += 1
            id = Uuid(self.topic_count.to_bytes(16, "big"))
            self._apply(records.Topic(name=name, topic_id=id), _partition(id, 0, replicas))

    def add(self, name: str, replicas: list[int]) -> None:
        id = self._topic(name)
        if id is not None and not self._has(name, 1):
            self._apply(_partition(id, 1, replicas))

    def delete(self, name: str) -> None:
        id = self._topic(name)
        if id is not None:
            self._apply(records.RemoveTopic(topic_id=id))

    def _has(self, name: str, partition: int) -> bool:
        table = self._ahead.table
        return partition < len(table.topic_rows(table.topic_number(name)))

    def move(self, name: str, partition: int, replicas: list[int]) -> None:
        self._change(
            name,
            partition,
            replicas=replicas,
            isr=replicas,
            leader=replicas[0],
            directories=[DIRECTORY] * len(replicas),
        )

    def elect(self, name: str, partition: int, leader: int) -> None:
        self._change(name, partition, leader=leader)

    def _change(self, name: str, partition: int, **fields: Any) -> None:
        id = self._topic(name)
        if id is not None and self._has(name, partition):
            self._apply(
                records.PartitionChange(partition_id=partition, topic_id=id, **fields, version=1)
            )

    def configure(self, resource: tuple[int, str], value: str | None) -> None:
        kind, name = resource
        self._apply(
            records.Config(
                resource_type=kind,
                resource_name=name,
                name="min.insync.replicas",
                value=value,
            )
        )

    def finalize(self, level: int) -> None:
        self._apply(
            records.FeatureLevel(name="eligible.leader.replicas.version", feature_level=level)
        )

    def register(self, id: int) -> None:
        epoch = self._ahead.next_offset
        point = records.EndpointData(name="PLAIN", host=f"host{epoch}", port=9000 + id)
        self._apply(
            records.RegisterBroker(
                broker_id=id,
                broker_epoch=epoch,
                incarnation_id=Uuid(bytes([id]) * 16),
                end_points=[point],
                fenced=False,
                log_dirs=[DIRECTORY],
            )
        )

    def fence(self, id: int, is_fenced: bool) -> None:
        registered = self._ahead.state.brokers.get(id)
        if registered is not None:
            self._apply(
                records.BrokerRegistrationChange(
                    broker_id=id, broker_epoch=registered.epoch, fenced=1 if is_fenced else -1
                )
            )

    def unregister(self, id: int) -> None:
        registered = self._ahead.state.brokers.get(id)
        if registered is not None:
            self._apply(records.UnregisterBroker(broker_id=id, broker_epoch=registered.epoch))

    def transact(self, is_kept: bool) -> None:
        """Begin a metadata transaction, or end or abort the one that is open."""
        if not self.is_in_transaction:
            self._apply(records.BeginTransaction())
        else:
            self._apply(records.EndTransaction() if is_kept else records.AbortTransaction())

    # -- the log

    def commit(self, count: int) -> None:
        """Commit some of the records; both brokers get what is committed."""
        self.committed = min(self.committed + count, self._ahead.next_offset)
        for batch in self.growing.batches[self.state.next_offset : self.committed]:
            self.remote.images.note_batches(batch)
            self.state.apply(batch)
        self.growing.publishing.publish(self.committed)
        self.remote.images.publish(self.committed)

    def lose_leadership(self) -> None:
        """Revert what is not committed, as the controller does, and read the log again."""
        kept = self.growing.batches[: self.committed]
        self.lost_records += self._ahead.next_offset - self.committed
        # A revert cannot end inside of an aborted transaction: the log delivers its records again.
        self.growing.revert(self._ahead.reachable(self.committed))
        for batch in kept[self._ahead.next_offset :]:
            self._ahead.apply(batch)
            self.growing.publishing.note_batches(batch)
            self.growing.batches.append(batch)
        assert self._ahead.next_offset == self.committed
        self.growing.publishing.publish(self.committed)

    def delay(self, is_delayed: bool) -> None:
        """Let the replicas of the broker beside the controller wait for the metadata, or not."""
        self.beside.is_delayed = is_delayed
        if not is_delayed:
            self.beside.catch_up()

    def check(self) -> None:
        """Compare both brokers, unless one of them has to apply metadata yet."""
        if not self.beside.is_delayed:
            assert self.beside.seen() == self.remote.seen()
            assert self.beside.roles() == assigned_roles(self.beside.images.image)
            self.hosted_counts.add(len(self.remote.manager.partitions))

    def compact(self) -> None:
        """Drop the rows of removed topics, of the controller's table alone."""
        if not self.is_in_transaction:
            self.commit(self._ahead.next_offset)
            self.growing.compact()


def _partition(topic_id: Uuid, partition: int, replicas: list[int]) -> Record:
    return records.Partition(
        partition_id=partition,
        topic_id=topic_id,
        replicas=replicas,
        isr=replicas,
        leader=replicas[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[DIRECTORY] * len(replicas),
        version=1,
    )


def turn(dice: Random, twins: Twins) -> None:
    """Write a few records, then commit some of what is not, or lose the leadership."""
    for _ in range(dice.randint(1, 5)):
        topic, replicas, id = dice.choice(TOPICS), dice.choice(REPLICAS), dice.randint(1, 3)
        partition = dice.choice((0, 0, 1))
        write = dice.choices(
            (
                partial(twins.create, topic, replicas),
                partial(twins.delete, topic),
                partial(twins.add, topic, replicas),
                partial(twins.move, topic, partition, replicas),
                partial(twins.elect, topic, partition, id),
                partial(twins.configure, dice.choice(CONFIGS), dice.choice(("1", "2", None))),
                partial(twins.finalize, dice.randint(0, 1)),
                partial(twins.register, id),
                partial(twins.fence, id, dice.choice((True, False))),
                partial(twins.unregister, id),
                partial(twins.transact, dice.choice((True, False))),
            ),
            (6, 3, 1, 8, 2, 2, 1, 1, 2, 1, 1),
        )[0]
        write()
    # While a transaction is open, nothing of it is published.
    if twins.is_in_transaction and dice.random() < 0.3:
        twins.transact(dice.choice((True, False)))
    act = dice.choices(
        (
            partial(twins.commit, dice.randint(0, 6)),
            twins.lose_leadership,
            twins.compact,
            partial(twins.delay, dice.choice((True, False))),
        ),
        (8, 3, 1, 2),
    )[0]
    act()


@pytest.mark.parametrize("seed", range(12))
def test_a_broker_beside_the_leading_controller_sees_what_another_broker_sees(seed: int) -> None:
    dice, twins = Random(seed), Twins()
    for _ in range(TURNS):
        turn(dice, twins)
        twins.check()
    twins.delay(False)
    twins.lose_leadership()
    twins.commit(100)
    twins.check()
    # The runs have what they are for.
    assert twins.committed > TURNS
    assert twins.lost_records > TURNS / 2
    assert twins.hosted_counts >= {0, 1, 2}
