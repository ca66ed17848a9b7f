"""What the controller's decisions look at: the cluster, and the settings of the controller itself.

Owns how the dynamic configuration resolves to what an election asks for, and the `ElectionContext`
that is kept for each cluster, so that a decision costs what it touches and not what is configured.
Sources: Kafka's ``ConfigurationControlManager.getTopicConfig``,
``ReplicationControlManager.getTopicEffectiveMinIsr``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kraft._core.election import ElectionContext
from kraft._core.java_hash import hash_map_order_of_ids, timeline_map_order
from kraft._core.placement import UsableBroker, UsableBrokers
from kraft._core.table import PartitionTable
from kraft.controller.arguments import MAX_INT32, check_integer
from kraft.controller.config_schema import DEFAULT_RULES, ConfigRules
from kraft.errors import BrokerIdNotRegisteredError
from kraft.image import BrokerRegistration, ClusterState
from kraft.image.configs import TOPIC

ELR_FEATURE = "eligible.leader.replicas.version"
MIN_ISR = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"


class Cluster(Protocol):
    """A cluster's metadata: its partitions, and everything else."""

    @property
    def table(self) -> PartitionTable: ...
    @property
    def state(self) -> ClusterState: ...


@dataclass(frozen=True, slots=True)
class Settings:
    """What the controller's own properties file says, with Kafka's defaults.

    ``node_id`` is the id under which the controller's dynamic configuration is kept, None where
    there is no such node. ``config_rules`` are the defaults and limits of what is configured at run
    time.
    """

    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    num_partitions: int = 1
    default_replication_factor: int = 1
    node_id: int | None = None
    delete_topic_enable: bool = True
    config_rules: ConfigRules = DEFAULT_RULES


DEFAULTS = Settings()


def election_context(cluster: Cluster, settings: Settings = DEFAULTS) -> ElectionContext:
    """The brokers and switches of ``cluster`` as it is now, for one decision.

    The context is kept with the cluster's state and brought up to date here, at the cost of the
    brokers and settings that changed since; whoever holds an older one holds the same object.
    """
    return _kept(cluster, settings).context


def brokers_as_they_are(cluster: Cluster) -> ElectionContext:
    """A context that stays as the brokers are now, for new partitions over many pieces.

    It does not know what topics have configured.
    """
    return ElectionContext(
        cluster.table,
        cluster.state.brokers.values(),
        metadata_version=cluster.state.metadata_version,
    )


class PlacementOrder(Protocol):
    """The order of the brokers for a placer, as the active controller knows it (`BrokerSessions`).

    ``order_version`` changes whenever the order may have.
    """

    order_version: int

    def placement_order(self) -> list[int]:
        """Return the ids of the registered brokers in order."""


def usable_brokers(cluster: Cluster, order: PlacementOrder | None = None) -> UsableBrokers:
    """The brokers that may get new replicas (BrokerHeartbeatManager.usableBrokers); kept as above.

    Those that shut down may not, nor those all of whose directories are
    cordoned (KIP-1066). Without an ``order`` they come as in a controller that has just become
    active; it matters only where racks meet in one bucket of a Java HashMap.
    """
    return _kept(cluster, None).usable_brokers(cluster.state, order)


def activation_order(cluster: Cluster) -> list[int]:
    """Return the ids of the brokers in the order in which an activated controller takes them over.

    Source: ``ClusterControlManager.activate``, which goes through a TimelineHashMap.
    """
    return _activation_order(cluster.state)


def _activation_order(state: ClusterState) -> list[int]:
    brokers = state.brokers
    return timeline_map_order(brokers, max(brokers.table_size, len(brokers)))


class _Kept:
    """An `ElectionContext` of a cluster, and what it takes to keep it up to date.

    What changed is heard from the mappings themselves (``JournaledMap.watch``), so that a revert
    counts like any other change.
    """

    __slots__ = (
        "_brokers",
        "_configs",
        "_features",
        "_numbers",
        "_orphans",
        "_usable",
        "_usable_for",
        "context",
        "settings",
        "table",
    )

    def __init__(self, cluster: Cluster, settings: Settings) -> None:
        state = cluster.state
        self.settings = settings
        self.table = cluster.table
        self._brokers = state.brokers.watch()
        self._features = state.features.watch()
        self._configs = state.configs.watch()
        #: The numbers of the topics that set something themselves.
        self._numbers: dict[str, int] = {}
        #: Those whose settings came before them, of which the settings do not tell when they come.
        self._orphans: set[str] = set()
        self._usable: UsableBrokers | None = None
        self._usable_for: tuple[PlacementOrder | None, int] = (None, -1)
        self.context = ElectionContext(
            self.table,
            state.brokers.values(),
            metadata_version=state.metadata_version,
            is_elr_enabled=state.features.get(ELR_FEATURE, 0) >= 1,
        )
        self._take_defaults(state)
        for resource_type, name in state.configs:
            if resource_type == TOPIC:
                self._take_topic(state, name)

    def refresh(self, cluster: Cluster, settings: Settings | None) -> bool:
        """False where another one must be made."""
        if (
            self._features
            or not (settings is None or settings is self.settings or settings == self.settings)
            or self.table is not cluster.table
            or not self.context.is_numbered
        ):
            return False
        state = cluster.state
        if self._configs:
            self._take_configs(state)
        for name in tuple(self._orphans):
            if self.table.topic_number(name) != self._numbers.get(name, -1):
                self._take_topic(state, name)
        if self._brokers or not self.context.knows_directories:
            self._take_brokers(state)
        return True

    def usable_brokers(self, state: ClusterState, order: PlacementOrder | None) -> UsableBrokers:
        key = order, -1 if order is None else order.order_version
        if self._usable is None or self._usable_for != key:
            ids = (
                hash_map_order_of_ids(_activation_order(state))
                if order is None
                else order.placement_order()
            )
            self._usable_for = key
            self._usable = UsableBrokers(
                [
                    UsableBroker(broker.id, broker.rack, broker.fenced, broker.log_dirs)
                    for broker in map(state.brokers.__getitem__, ids)
                    if is_usable(broker)
                ]
            )
        return self._usable

    def _take_brokers(self, state: ClusterState) -> None:
        context, brokers = self.context, state.brokers
        if self._brokers:
            self._usable = None
        # What fails half way leaves what is to be taken over, so that it is tried again.
        if not context.knows_directories or not all(
            broker in brokers and context.update_broker(brokers[broker]) for broker in self._brokers
        ):
            context.take_brokers(brokers.values())
        self._brokers.clear()

    def _take_configs(self, state: ClusterState) -> None:
        names = set()
        for (resource_type, name), setting in self._configs:
            if setting != MIN_ISR and setting != UNCLEAN:
                continue
            if resource_type == TOPIC:
                names.add(name)
            else:
                self._take_defaults(state)
        for name in names:
            self._take_topic(state, name)
        self._configs.clear()

    def _take_defaults(self, state: ClusterState) -> None:
        above = [state.configs.cluster_default()]
        if self.settings.node_id is not None:
            above.insert(0, state.configs.broker(self.settings.node_id))
        min_isrs = (_number(values.get(MIN_ISR)) for values in above)
        uncleans = (values[UNCLEAN] for values in above if UNCLEAN in values)
        unclean = next(uncleans, None)
        self.context.set_defaults(
            next((number for number in min_isrs if number), self.settings.min_insync_replicas),
            self.settings.unclean_leader_election_enable if unclean is None else _is_true(unclean),
        )

    def _take_topic(self, state: ClusterState, name: str) -> None:
        """A topic's own settings; one of the same name may have been there before it."""
        context = self.context
        before = self._numbers.pop(name, None)
        if before is not None:
            context.set_topic_min_isr(before, None)
            context.set_topic_unclean(before, None)
        values = state.configs.topic(name)
        min_isr, unclean = _number(values.get(MIN_ISR)), values.get(UNCLEAN)
        if min_isr is None and unclean is None:
            return
        number = self.table.topic_number(name)
        if number < 0:
            self._orphans.add(name)
            return
        self._numbers[name] = number
        context.set_topic_min_isr(number, min_isr)
        context.set_topic_unclean(number, None if unclean is None else _is_true(unclean))


def _kept(cluster: Cluster, settings: Settings | None) -> _Kept:
    state = cluster.state
    kept: _Kept | None = state.derived
    if kept is None or not kept.refresh(cluster, settings):
        if settings is None:
            settings = DEFAULTS if kept is None else kept.settings
        kept = _Kept(cluster, settings)
    state.derived = kept
    return kept


def is_usable(broker: BrokerRegistration) -> bool:
    """Whether new replicas may be placed on it.

    A broker whose id is negative never is one: Kafka accepts its registration, and -1 in the place
    of a leader stands for none.

    A broker that is fenced has left its controlled shutdown behind, although its registration
    says so until it registers anew: it may come back like any other that is fenced.
    """
    is_leaving = broker.in_controlled_shutdown and not broker.fenced
    return (
        not is_leaving
        and broker.id >= 0
        and not (broker.cordoned_log_dirs and set(broker.log_dirs) <= set(broker.cordoned_log_dirs))
    )


def registered(cluster: Cluster, broker_id: int) -> BrokerRegistration:
    """Raises BrokerIdNotRegisteredError, InvalidRequestError where the id is no int32."""
    check_integer("a broker id", broker_id, -MAX_INT32 - 1, MAX_INT32)
    registration = cluster.state.brokers.get(broker_id)
    if registration is None:
        raise BrokerIdNotRegisteredError(f"broker {broker_id} is not registered")
    return registration


def is_active(cluster: Cluster, broker_id: int) -> bool:
    """Registered, not fenced and not in controlled shutdown (ClusterControlManager.isActive)."""
    registration = cluster.state.brokers.get(broker_id)
    return (
        registration is not None
        and not registration.fenced
        and not registration.in_controlled_shutdown
    )


def _number(value: str | None) -> int | None:
    """None as well for what is no number: Kafka lets such a value of a broker into the log, and
    fails at every decision from then on.
    """
    if value is None or not value.strip().isascii() or not value.strip().isdecimal():
        return None
    return int(value)


def _is_true(value: str) -> bool:
    return value.strip().lower() == "true"
