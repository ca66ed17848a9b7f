"""What the controller's decisions look at: the cluster, and the settings of the controller itself.

Owns how the dynamic configuration resolves to what an election asks for. Sources: Kafka's
``ConfigurationControlManager.getTopicConfig``,
``ReplicationControlManager.getTopicEffectiveMinIsr``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from kraft._core.election import ElectionContext
from kraft._core.table import PartitionTable
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
    there is no such node.
    """

    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    num_partitions: int = 1
    default_replication_factor: int = 1
    node_id: int | None = None


DEFAULTS = Settings()


def election_context(cluster: Cluster, settings: Settings = DEFAULTS) -> ElectionContext:
    """The brokers and switches of ``cluster`` as it is now; costs brokers and configured topics."""
    state, table = cluster.state, cluster.table
    static = {
        MIN_ISR: str(settings.min_insync_replicas),
        UNCLEAN: "true" if settings.unclean_leader_election_enable else "false",
    }
    above = [state.configs.cluster_default()]
    if settings.node_id is not None:
        above.insert(0, state.configs.broker(settings.node_id))
    topic_min_isr: dict[int, int] = {}
    topic_unclean: dict[int, bool] = {}
    for (resource_type, name), values in state.configs.items():
        if resource_type != TOPIC:
            continue
        if MIN_ISR in values and (number := table.topic_number(name)) >= 0:
            topic_min_isr[number] = int(values[MIN_ISR])
        if UNCLEAN in values and (number := table.topic_number(name)) >= 0:
            topic_unclean[number] = _is_true(values[UNCLEAN])
    return ElectionContext(
        table,
        state.brokers.values(),
        metadata_version=state.metadata_version,
        is_elr_enabled=state.features.get(ELR_FEATURE, 0) >= 1,
        min_isr=int(_resolved(MIN_ISR, above, static)),
        unclean=_is_true(_resolved(UNCLEAN, above, static)),
        topic_min_isr=topic_min_isr,
        topic_unclean=topic_unclean,
    )


def registered(cluster: Cluster, broker_id: int) -> BrokerRegistration:
    """Raises BrokerIdNotRegisteredError."""
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


def _resolved(name: str, above: list[Mapping[str, str]], static: Mapping[str, str]) -> str:
    for values in above:
        if name in values:
            return values[name]
    return static[name]


def _is_true(value: str) -> bool:
    return value.strip().lower() == "true"
