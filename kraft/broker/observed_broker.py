"""The metrics and the readiness of a broker, beside those of its node of the quorum.

`BROKER_METRICS` are in the order of the page ``docs/how-to/watch-a-broker.md``; run as a program,
the module prints the table of that page. All values are plain numbers that the parts of the broker
keep (`ReplicaCounts`), so that a reading costs some milliseconds with any number of partitions.

Called by ``kraft.server.observation``. Sources: Kafka's ``KafkaServer``, ``ReplicaManager``,
``BrokerTopicMetrics``, ``LogManager``, ``AbstractFetcherManager``, ``GroupCoordinatorMetrics``,
``BrokerServerMetrics`` (4.3.1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from kraft.broker.groups.group import GroupState
from kraft.broker.lifecycle import BrokerState
from kraft.broker.replication.replica_counts import DataTraffic, ReplicaStates
from kraft.image.publishing import Image
from kraft.server.observation.catalog import table_of
from kraft.server.observation.metric_names import ExportedMetric, MetricKind

if TYPE_CHECKING:
    from kraft.broker.node import BrokerNode, RunningBroker

SERVER = "kafka.server:type=KafkaServer,name="
REPLICAS = "kafka.server:type=ReplicaManager,name="
TRAFFIC = "kafka.server:type=BrokerTopicMetrics,name="
FETCHERS = "kafka.server:type=ReplicaFetcherManager,name="
LOGS = "kafka.log:type=LogManager,name="
GROUPS = "kafka.coordinator.group:type=GroupMetadataManager,name="
METADATA = "kafka.server:type=broker-metadata-metrics"

#: The states of a group, and the ends of the names of their metrics.
_GROUP_STATES = {
    GroupState.PREPARING_REBALANCE: "PreparingRebalance",
    GroupState.COMPLETING_REBALANCE: "CompletingRebalance",
    GroupState.STABLE: "Stable",
    GroupState.EMPTY: "Empty",
    GroupState.DEAD: "Dead",
}


class BrokerReading(NamedTuple):
    """One reading of a broker; ``broker`` is None before its start and after its stop."""

    node: BrokerNode
    broker: RunningBroker | None
    states: ReplicaStates
    traffic: DataTraffic
    groups: Counter[GroupState]
    image: Image | None
    now_ms: float


BrokerMetric = ExportedMetric[BrokerReading]


class ObservedBroker:
    """The broker of a node, for `ObservedNode.parts`."""

    def __init__(self, node: BrokerNode) -> None:
        self._node = node
        self.metrics = BROKER_METRICS

    def reading(self, now_ms: float) -> BrokerReading:
        """Read the state once for all metrics."""
        broker = self._node.broker
        if broker is None:
            none = ReplicaStates(0, 0, 0, 0, 0, 0, 0)
            return BrokerReading(
                self._node, None, none, DataTraffic(), Counter(), self._image, now_ms
            )
        manager = broker.replicas.manager
        states = manager.counts.states(len(manager.partitions), broker.topics.min_insync_replicas)
        groups = broker.groups.group_states()
        return BrokerReading(
            self._node, broker, states, manager.traffic, groups, self._image, now_ms
        )

    @property
    def _image(self) -> Image | None:
        return self._node.images.image

    def unready_reasons(self) -> list[str]:
        """Return why clients are not served; empty: they are."""
        broker = self._node.broker
        lifecycle = None if broker is None else broker.lifecycle
        if lifecycle is None:
            return ["the broker loads its logs"]
        state, facts = lifecycle.state, lifecycle.facts
        why = f": {lifecycle.last_failure}" if lifecycle.last_failure else ""
        if state in (BrokerState.PENDING_CONTROLLED_SHUTDOWN, BrokerState.SHUTTING_DOWN):
            return ["the broker is stopping"]
        if state is BrokerState.STARTING and lifecycle.epoch < 0:
            return [f"the broker is not registered yet{why}"]
        if not facts.is_caught_up:
            return [
                f"the broker has applied the metadata before offset {facts.offset}, "
                f"and its registration is at offset {lifecycle.epoch}"
            ]
        if not facts.is_loaded:
            return ["the broker loads its partitions"]
        id, image = self._node.config.node_id, self._image
        known = None if image is None else image.state.brokers.get(id)
        if state is not BrokerState.RUNNING or known is None or known.fenced:
            return [f"the controller has fenced broker {id}{why}"]
        return []

    def details(self) -> dict[str, Any]:
        broker = self._node.broker
        failed = [] if broker is None else [one.path for one in broker.logs.failed]
        lifecycle = None if broker is None else broker.lifecycle
        return {
            "broker_state": self._node.state.name.lower(),
            "broker_epoch": -1 if lifecycle is None else lifecycle.epoch,
            "offline_log_dirs": failed,
        }


def _gauge(
    mbean: str, help: str, read: Callable[[BrokerReading], float], attribute: str = "Value"
) -> BrokerMetric:
    return ExportedMetric(mbean, attribute, help, read)


def _counter(mbean: str, help: str, read: Callable[[DataTraffic], int]) -> BrokerMetric:
    return ExportedMetric(
        mbean, "Count", help, lambda reading: read(reading.traffic), kind=MetricKind.COUNTER
    )


def _of_fetchers(
    read: Callable[[RunningBroker], float],
) -> Callable[[BrokerReading], list[tuple[tuple[str], float]]]:
    return lambda reading: [] if reading.broker is None else [(("Replica",), read(reading.broker))]


def _metrics() -> Iterator[BrokerMetric]:
    yield _gauge(
        SERVER + "BrokerState",
        "State of the broker: "
        + ", ".join(f"{each.value} {each.name.lower().replace('_', ' ')}" for each in BrokerState),
        lambda reading: reading.node.state,
    )
    yield from _replica_metrics()
    yield from _traffic_metrics()
    yield from _log_metrics()
    yield from _group_metrics()
    yield from _metadata_metrics()


def _replica_metrics() -> Iterator[BrokerMetric]:
    for name, what, state in (
        ("PartitionCount", "Replicas on this broker", "partitions"),
        ("LeaderCount", "Partitions that this broker leads", "leaders"),
        ("OfflineReplicaCount", "Replicas in failed log directories", "offline"),
        (
            "UnderReplicatedPartitions",
            "Led partitions with fewer replicas in sync than they should have",
            "under_replicated",
        ),
        (
            "UnderMinIsrPartitionCount",
            "Led partitions with fewer replicas in sync than min.insync.replicas",
            "under_min_isr",
        ),
        (
            "AtMinIsrPartitionCount",
            "Led partitions with exactly min.insync.replicas in sync",
            "at_min_isr",
        ),
        ("ReassigningPartitions", "Led partitions that are being reassigned", "reassigning"),
    ):
        yield _gauge(
            REPLICAS + name,
            what,
            lambda reading, state=state: getattr(reading.states, state),  # type: ignore[misc]
        )
    yield _counter(
        REPLICAS + "IsrShrinksPerSec", "Times an ISR shrank", lambda traffic: traffic.isr_shrinks
    )
    yield _counter(
        REPLICAS + "IsrExpandsPerSec", "Times an ISR grew", lambda traffic: traffic.isr_expands
    )
    yield _counter(
        REPLICAS + "FailedIsrUpdatesPerSec",
        "Changes of an ISR that the controller rejected",
        lambda traffic: traffic.failed_isr_updates,
    )
    yield ExportedMetric(
        FETCHERS + "MaxLag",
        "Value",
        "Records that the replica furthest behind its leader lacks",
        _of_fetchers(lambda broker: max(broker.replicas.manager.fetching.lags.values(), default=0)),
        labels=("clientId",),
    )
    yield ExportedMetric(
        FETCHERS + "FailedPartitionsCount",
        "Value",
        "Replicas that are not fetched any more after an error",
        _of_fetchers(lambda broker: len(broker.replicas.manager.fetching.failed)),
        labels=("clientId",),
    )


def _traffic_metrics() -> Iterator[BrokerMetric]:
    for name, what, total in (
        ("MessagesInPerSec", "Produced records", "messages_in"),
        ("BytesInPerSec", "Bytes of produced batches", "bytes_in"),
        ("BytesOutPerSec", "Bytes of records that consumers fetched", "bytes_out"),
        ("ReplicationBytesInPerSec", "Bytes of records from leaders", "replication_bytes_in"),
        ("ReplicationBytesOutPerSec", "Bytes of records to followers", "replication_bytes_out"),
        ("TotalProduceRequestsPerSec", "Partitions of Produce requests", "produces"),
        (
            "FailedProduceRequestsPerSec",
            "Those that failed by unexpected errors",
            "failed_produces",
        ),
        ("TotalFetchRequestsPerSec", "Partitions of Fetch requests", "fetches"),
        ("FailedFetchRequestsPerSec", "Those that failed by unexpected errors", "failed_fetches"),
    ):
        yield _counter(
            TRAFFIC + name,
            what,
            lambda traffic, total=total: getattr(traffic, total),  # type: ignore[misc]
        )


def _log_metrics() -> Iterator[BrokerMetric]:
    yield _gauge(
        LOGS + "OfflineLogDirectoryCount",
        "Failed log directories",
        lambda reading: 0 if reading.broker is None else len(reading.broker.logs.failed),
    )
    yield ExportedMetric(
        LOGS + "LogDirectoryOffline",
        "Value",
        "1 for a failed log directory, else 0",
        lambda reading: (
            []
            if reading.broker is None
            else [
                ((each.path,), each.failure is not None) for each in reading.broker.logs.directories
            ]
        ),
        labels=("logDirectory",),
    )


def _group_metrics() -> Iterator[BrokerMetric]:
    yield _gauge(
        GROUPS + "NumGroups", "Groups of this coordinator", lambda reading: reading.groups.total()
    )
    for state, name in _GROUP_STATES.items():
        yield _gauge(
            f"{GROUPS}NumGroups{name}",
            f"Groups in the state {state.value}",
            lambda reading, state=state: reading.groups[state],  # type: ignore[misc]
        )
    yield _gauge(
        GROUPS + "NumOffsets",
        "Committed offsets of this coordinator",
        lambda reading: 0 if reading.broker is None else reading.broker.groups.offset_count,
    )


def _metadata_metrics() -> Iterator[BrokerMetric]:
    for attribute, what, read in (
        (
            "last-applied-record-offset",
            "Offset of the last metadata record that the broker applied",
            lambda reading: -1 if reading.image is None else reading.image.offset - 1,
        ),
        (
            "last-applied-record-timestamp",
            "Timestamp of the last applied metadata batch, in ms since 1970",
            _applied_timestamp_ms,
        ),
        (
            "last-applied-record-lag-ms",
            "Age of the last applied metadata batch",
            lambda reading: reading.now_ms - _applied_timestamp_ms(reading),
        ),
        (
            "metadata-load-error-count",
            "Failures to load metadata: 0, as such an error ends the process",
            lambda reading: 0,
        ),
        (
            "metadata-apply-error-count",
            "Failures while a part of the broker applied metadata",
            lambda reading: (
                sum(reading.node.images.fault_counts.values())
                + (0 if reading.broker is None else reading.broker.replicas.apply_error_count)
            ),
        ),
        (
            "ignored-static-voters",
            "1 if controller.quorum.voters is set and the log names other voters, else 0",
            lambda reading: reading.node.ignores_static_voters,
        ),
    ):
        yield _gauge(METADATA, what, read, attribute)


def _applied_timestamp_ms(reading: BrokerReading) -> int:
    return -1 if reading.image is None else reading.image.last_contained_log_timestamp_ms


#: Every metric of a broker beside those of the node.
BROKER_METRICS: tuple[BrokerMetric, ...] = tuple(_metrics())


if __name__ == "__main__":
    print(table_of(BROKER_METRICS))
