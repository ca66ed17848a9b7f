"""The requests of controllers to brokers, gathered for one change of state.

A `RequestBatch` collects what each broker has to know, and sends LeaderAndIsr, then UpdateMetadata,
then StopReplica. `BrokerChannels` is the port that delivers them.

Rules: ``ControllerBrokerRequestBatch`` in ``ControllerChannelManager.scala`` of Kafka 0.8.2.2 and
1.1.1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kraft.zookeeper.context import ControllerContext, Leadership
from kraft.zookeeper.states import PartitionKey
from kraft.zookeeper.znodes import BrokerZnode

#: The leader of a partition that is being deleted.
LEADER_DURING_DELETE = -2


class PartitionUpdate(NamedTuple):
    """The state of a partition in LeaderAndIsr and UpdateMetadata."""

    leadership: Leadership
    replicas: tuple[int, ...]
    #: LeaderAndIsr: the replica did not exist before.
    is_new: bool = False
    #: UpdateMetadata.
    offline_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """Lead or follow partitions."""

    controller_id: int
    controller_epoch: int
    partitions: dict[PartitionKey, PartitionUpdate]
    live_leaders: Sequence[BrokerZnode]


@dataclass(frozen=True, slots=True)
class UpdateMetadata:
    """What to answer clients: brokers, and leaders of partitions."""

    controller_id: int
    controller_epoch: int
    partitions: dict[PartitionKey, PartitionUpdate]
    live_brokers: Sequence[BrokerZnode]


@dataclass(frozen=True, slots=True)
class StopReplica:
    """Stop following partitions, and with ``delete`` remove their logs."""

    controller_id: int
    controller_epoch: int
    delete: bool
    partitions: Sequence[PartitionKey]


BrokerRequest = LeaderAndIsr | UpdateMetadata | StopReplica


class BrokerResponse(NamedTuple):
    """The answer of a broker: one error code for the request, and one for each partition."""

    error: int
    partitions: dict[PartitionKey, int]


OnResponse = Callable[[int, BrokerRequest, BrokerResponse], None]


class BrokerChannels(Protocol):
    """Delivers requests to brokers, in order for each broker, and repeats them until answered."""

    def set_brokers(self, brokers: Mapping[int, BrokerZnode]) -> None:
        """Open channels to new brokers, and drop those, with their requests, of all others."""

    def send(self, broker: int, request: BrokerRequest) -> None:
        """Queue a request; a broker without a channel gets none. Does not block."""


class RequestBatch:
    """The requests of one change of state, in the order in which they were added.

    ``being_deleted`` are the partitions of topics that are queued for deletion. ``is_0_8`` sends as
    Kafka 0.8.2: a StopReplica for each replica, and no UpdateMetadata without a partition.
    """

    def __init__(
        self,
        controller_id: int,
        context: ControllerContext,
        being_deleted: Collection[PartitionKey],
        *,
        is_0_8: bool = False,
    ) -> None:
        self._is_0_8 = is_0_8
        self._controller_id = controller_id
        self._context = context
        self._being_deleted = being_deleted
        self._live = context.live_brokers()
        self._leaders: dict[int, dict[PartitionKey, PartitionUpdate]] = {}
        self._metadata_brokers: set[int] = set()
        self._metadata: dict[PartitionKey, PartitionUpdate] = {}
        self._stops: dict[int, list[tuple[PartitionKey, bool]]] = {}
        #: Whether all brokers get metadata already.
        self._leaders_told = False

    def add_leader_and_isr(
        self,
        brokers: Iterable[int],
        key: PartitionKey,
        leadership: Leadership,
        replicas: Sequence[int],
        *,
        is_new: bool,
    ) -> None:
        """Tell these brokers the state of a partition, and its metadata to all brokers."""
        replicas = tuple(replicas)
        # The replicas of a partition add it one after the other.
        known = self._metadata.get(key)
        is_known = (
            known is not None and known.leadership == leadership and known.replicas == replicas
        )
        update = PartitionUpdate(leadership, replicas, is_new)
        for broker in brokers:
            if broker < 0:
                continue
            updates = self._leaders.setdefault(broker, {})
            if is_new or key not in updates or not updates[key].is_new:
                updates[key] = update
            else:
                updates[key] = update._replace(is_new=True)
        if not self._leaders_told:
            self._leaders_told = True
            self.add_update_metadata(self._context.brokers, ())
        if not is_known and key not in self._being_deleted:
            self._add_metadata(key)

    def add_update_metadata(
        self, brokers: Iterable[int], keys: Iterable[PartitionKey] | None = None
    ) -> None:
        """Tell these brokers the metadata of partitions, by default of all that have a leader.

        Those that are being deleted are always added.
        """
        if keys is None:
            keys = self._context.partitions_with_leader()
        self._metadata_brokers.update(brokers)
        for key in keys:
            if key not in self._being_deleted:
                self._add_metadata(key)
        for key in self._being_deleted:
            self._add_metadata(key)

    def _add_metadata(self, key: PartitionKey) -> None:
        leadership = self._context.leadership(key)
        if leadership is None:
            return
        replicas = self._context.assignment(key)
        if key in self._being_deleted:
            leadership = leadership._replace(
                leader=LEADER_DURING_DELETE, leader_epoch=0, zk_version=0
            )
        offline = (
            ()
            if self._live.issuperset(replicas) and not self._context.offline_directories
            else tuple(one for one in replicas if not self._context.is_online(one, key))
        )
        self._metadata[key] = PartitionUpdate(leadership, replicas, offline_replicas=offline)

    def add_stop_replica(self, broker: int, key: PartitionKey, *, delete: bool) -> None:
        """Tell a broker to stop its replica."""
        if broker >= 0:
            self._stops.setdefault(broker, []).append((key, delete))

    def send(self, channels: BrokerChannels) -> None:
        """Send everything that was added."""
        context = self._context
        for broker, updates in self._leaders.items():
            leaders = {update.leadership.leader for update in updates.values()}
            request = LeaderAndIsr(
                self._controller_id,
                context.epoch,
                updates,
                [znode for id, znode in context.brokers.items() if id in leaders],
            )
            channels.send(broker, request)
        if self._metadata_brokers and (self._metadata or not self._is_0_8):
            metadata = UpdateMetadata(
                self._controller_id,
                context.epoch,
                self._metadata,
                list(context.brokers.values()),
            )
            for broker in sorted(self._metadata_brokers):
                channels.send(broker, metadata)
        for broker, stops in self._stops.items():
            if self._is_0_8:
                for key, deletes in stops:
                    channels.send(
                        broker, StopReplica(self._controller_id, context.epoch, deletes, [key])
                    )
                continue
            for delete in (False, True):
                keys = [key for key, deletes in stops if deletes == delete]
                if keys:
                    channels.send(
                        broker, StopReplica(self._controller_id, context.epoch, delete, keys)
                    )
