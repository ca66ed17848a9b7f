"""Inputs of decisions: the cluster's metadata, the controller's settings, the election context.

Resolves the dynamic configuration (min.insync.replicas, unclean.leader.election.enable) for
elections. Caches one `ElectionContext` per cluster, so that the cost of a decision depends on
its partitions, not on the size of the configuration. Sources: Kafka's
``ConfigurationControlManager.getTopicConfig``,
``ReplicationControlManager.getTopicEffectiveMinIsr``.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from kraft._core.decide.election import ElectionContext
from kraft._core.decide.java_hash import hash_map_order_of_ids, timeline_map_order
from kraft._core.decide.placement import UsableBroker, UsableBrokers
from kraft._core.table.table import PartitionTable
from kraft.controller.arguments import MAX_INT32, check_integer
from kraft.controller.config_schema import DEFAULT_RULES, ConfigRules
from kraft.errors import BrokerIdNotRegisteredError
from kraft.image import BrokerRegistration, ClusterState
from kraft.image.configs import TOPIC
from kraft.image.view import StateView

ELR_FEATURE = "eligible.leader.replicas.version"
MIN_ISR = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"


class ClusterMetadata(Protocol):
    """A cluster's metadata: the partition table, and all other state."""

    @property
    def table(self) -> PartitionTable: ...
    @property
    def state(self) -> ClusterState: ...


class ReadableMetadata(Protocol):
    """The state apart from partitions, of a `ClusterMetadata` or of an image."""

    @property
    def state(self) -> StateView: ...


class DecisionSettings(NamedTuple):
    """Settings of decisions, from the controller's properties file, with Kafka's defaults.

    ``node_id`` is the id under which the dynamic configuration of this controller is stored, or
    None. ``config_rules`` are the defaults and limits of the dynamic configuration.
    """

    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    num_partitions: int = 1
    default_replication_factor: int = 1
    node_id: int | None = None
    delete_topic_enable: bool = True
    config_rules: ConfigRules = DEFAULT_RULES


DEFAULTS = DecisionSettings()


def election_context(
    cluster: ClusterMetadata, settings: DecisionSettings = DEFAULTS
) -> ElectionContext:
    """Return the cached election context of ``cluster``, with its present brokers and settings.

    The call updates the cached object, at the cost of the brokers and settings that changed since.
    Contexts that were returned earlier are the same object.
    """
    return _cached(cluster, settings).context


def fixed_election_context(cluster: ClusterMetadata) -> ElectionContext:
    """Return an election context that keeps the present brokers, to place partitions in many
    chunks.

    It has no topic configuration.
    """
    return ElectionContext(
        cluster.table,
        cluster.state.brokers.values(),
        metadata_version=cluster.state.metadata_version,
    )


class PlacementOrder(Protocol):
    """The order in which the active controller passes brokers to a placer (`BrokerSessions`).

    ``order_version`` changes whenever the order may have changed.
    """

    order_version: int

    def placement_order(self) -> list[int]:
        """Return the ids of the registered brokers in order."""


def usable_brokers(cluster: ClusterMetadata, order: PlacementOrder | None = None) -> UsableBrokers:
    """Return the brokers that may get new replicas (BrokerHeartbeatManager.usableBrokers); cached.

    Brokers in controlled shutdown are left out, and brokers whose directories are all cordoned
    (KIP-1066). Without an ``order`` the brokers are ordered as in a controller that has just become
    active. The order matters only if racks share a bucket of a Java HashMap.
    """
    return _cached(cluster, None).usable_brokers(cluster.state, order)


def activation_order(cluster: ClusterMetadata) -> list[int]:
    """Return the ids of the brokers in the order in which an activated controller adds them.

    Source: ``ClusterControlManager.activate``, which iterates over a TimelineHashMap.
    """
    return _activation_order(cluster.state)


def _activation_order(state: ClusterState) -> list[int]:
    brokers = state.brokers
    return timeline_map_order(brokers, max(brokers.table_size, len(brokers)))


class _CachedContext:
    """An `ElectionContext` of a cluster, and the pending changes to update it.

    The mappings of the state report their changes (``JournaledMap.watch``), so that a revert counts
    like any other change.
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

    def __init__(self, cluster: ClusterMetadata, settings: DecisionSettings) -> None:
        state = cluster.state
        self.settings = settings
        self.table = cluster.table
        self._brokers = state.brokers.watch()
        self._features = state.features.watch()
        self._configs = state.configs.watch()
        #: Numbers of the topics that have settings of their own.
        self._numbers: dict[str, int] = {}
        #: Topics that were configured before they were created; their creation does not report the
        #: settings.
        self._orphans: set[str] = set()
        self._usable: UsableBrokers | None = None
        self._usable_for: tuple[PlacementOrder | None, int] = (None, -1)
        self.context = ElectionContext(
            self.table,
            state.brokers.values(),
            metadata_version=state.metadata_version,
            is_elr_enabled=state.features.get(ELR_FEATURE, 0) >= 1,
        )
        self._update_defaults(state)
        for resource_type, name in state.configs:
            if resource_type == TOPIC:
                self._update_topic(state, name)

    def refresh(self, cluster: ClusterMetadata, settings: DecisionSettings | None) -> bool:
        """Update the context; return False if a new one has to be made."""
        if (
            self._features
            or not (settings is None or settings is self.settings or settings == self.settings)
            or self.table is not cluster.table
            or not self.context.is_numbered
        ):
            return False
        state = cluster.state
        if self._configs:
            self._update_configs(state)
        for name in tuple(self._orphans):
            if self.table.topic_number(name) != self._numbers.get(name, -1):
                self._update_topic(state, name)
        if self._brokers or not self.context.knows_directories:
            self._update_brokers(state)
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

    def _update_brokers(self, state: ClusterState) -> None:
        context, brokers = self.context, state.brokers
        if self._brokers:
            self._usable = None
        # A new broker is added: a rebuild for each registration would make the registrations of N
        # brokers cost N * N. A failure keeps the set of pending brokers, for the next call.
        if not context.knows_directories or not all(
            broker in brokers and context.update_broker(brokers[broker]) for broker in self._brokers
        ):
            context.take_brokers(brokers.values())
        self._brokers.clear()

    def _update_configs(self, state: ClusterState) -> None:
        names = set()
        for (resource_type, name), setting in self._configs:
            if setting != MIN_ISR and setting != UNCLEAN:
                continue
            if resource_type == TOPIC:
                names.add(name)
            else:
                self._update_defaults(state)
        for name in names:
            self._update_topic(state, name)
        self._configs.clear()

    def _update_defaults(self, state: ClusterState) -> None:
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

    def _update_topic(self, state: ClusterState, name: str) -> None:
        """Apply a topic's own settings, and remove those of an earlier topic of the same name."""
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


def _cached(cluster: ClusterMetadata, settings: DecisionSettings | None) -> _CachedContext:
    state = cluster.state
    kept: _CachedContext | None = state.derived
    if kept is None or not kept.refresh(cluster, settings):
        if settings is None:
            settings = DEFAULTS if kept is None else kept.settings
        kept = _CachedContext(cluster, settings)
    state.derived = kept
    return kept


def is_usable(broker: BrokerRegistration) -> bool:
    """Return whether new replicas may be placed on ``broker``.

    A broker with a negative id is never usable: Kafka accepts its registration, but -1 as a leader
    means none.

    A fenced broker has left its controlled shutdown, although its registration still shows it until
    the broker registers again. It is usable like any other fenced broker.
    """
    is_leaving = broker.in_controlled_shutdown and not broker.fenced
    return (
        not is_leaving
        and broker.id >= 0
        and not (broker.cordoned_log_dirs and set(broker.log_dirs) <= set(broker.cordoned_log_dirs))
    )


def registered(cluster: ClusterMetadata, broker_id: int) -> BrokerRegistration:
    """Return the registration of a broker.

    Raises BrokerIdNotRegisteredError, and InvalidRequestError for an id that is not an int32.
    """
    check_integer("a broker id", broker_id, -MAX_INT32 - 1, MAX_INT32)
    registration = cluster.state.brokers.get(broker_id)
    if registration is None:
        raise BrokerIdNotRegisteredError(f"broker {broker_id} is not registered")
    return registration


def is_active(cluster: ClusterMetadata, broker_id: int) -> bool:
    """Return whether a broker is registered, unfenced and not in controlled shutdown
    (ClusterControlManager.isActive).
    """
    registration = cluster.state.brokers.get(broker_id)
    return (
        registration is not None
        and not registration.fenced
        and not registration.in_controlled_shutdown
    )


def _number(value: str | None) -> int | None:
    """Return the number in ``value``, None for None and for non-numeric values.

    Kafka lets such a value of a broker into the log, and every decision fails from then on.
    """
    if value is None or not value.strip().isascii() or not value.strip().isdecimal():
        return None
    return int(value)


def _is_true(value: str) -> bool:
    return value.strip().lower() == "true"
