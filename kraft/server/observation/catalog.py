"""All metrics of a controller, in the order of the page ``docs/how-to/watch-a-controller.md``.

Each entry names Kafka's MBean and attribute, and reads the value from the node's state. Run as a
program, the module prints the table of that page; a test compares the two. Called by
`exposition`. Sources: Kafka's ``QuorumControllerMetrics``, ``ControllerMetadataMetrics``,
``KafkaRaftMetrics``, ``MetadataLoaderMetrics``, ``SnapshotEmitterMetrics``, ``NodeMetrics``,
``RequestMetrics`` and ``SocketServer`` (4.3.1).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from kraft.controller.runtime.event_queue import DurationHistogram
from kraft.controller.runtime.requests import HEARTBEAT
from kraft.errors import error_name
from kraft.image.nodes import BrokerRegistration
from kraft.network.traffic import ListenerTraffic
from kraft.raft.interface import Role
from kraft.raft.leader import LeaderState
from kraft.records.versions import SUPPORTED_FEATURES
from kraft.server.observation.metric_names import (
    ExportedMetric,
    MetricKind,
    Summary,
)
from kraft.server.observation.observed_node import ObservedNode, PartitionCounts

CONTROLLER = "kafka.controller:type=KafkaController,name="
EVENTS = "kafka.controller:type=ControllerEventManager,name="
STATISTICS = "kafka.controller:type=ControllerStats,name="
RAFT = "kafka.server:type=raft-metrics"
LOADER = "kafka.server:type=MetadataLoader,name="
SNAPSHOTS = "kafka.server:type=SnapshotEmitter,name="
REQUESTS = "kafka.network:type=RequestMetrics,name="
SOCKETS = "kafka.network:type=SocketServer,name="
LISTENERS = "kafka.server:type=socket-server-metrics"
FEATURES = "kafka.server:type=node-metrics"
PLUGINS = "kafka.server:type=plugins"

#: Kafka's ``BrokerRegistrationState``.
FENCED, CONTROLLED_SHUTDOWN, ACTIVE = 10, 20, 30
#: The raft roles as Kafka's metric names them; an observer is a follower that does not vote.
_ROLE_NAMES = {
    Role.UNATTACHED: "unattached",
    Role.PROSPECTIVE: "prospective",
    Role.CANDIDATE: "candidate",
    Role.LEADER: "leader",
    Role.FOLLOWER: "follower",
    Role.RESIGNED: "resigned",
}


class Reading(NamedTuple):
    """One reading of all metrics: the node, its partitions and the time."""

    node: ObservedNode
    partitions: PartitionCounts
    now_ms: float

    def rate(self, name: str, total: float) -> float:
        """Return the recent growth of a total, per second."""
        return self.node.rates[name].read(total, self.now_ms)

    def idle_ratio(self, name: str, busy_ms: float) -> float:
        """Return the idle part of the recent time, from 0 to 1."""
        return min(1.0, max(0.0, 1 - self.rate(name, busy_ms) / 1000))

    def summary(self, name: str, histogram: DurationHistogram) -> Summary:
        """Return a histogram's count and total, and its recent quantiles."""
        quantiles = self.node.quantiles[name].read(histogram, self.now_ms)
        return Summary(quantiles, histogram.count, histogram.total_ms)


Metric = ExportedMetric[Reading]


def _gauge(
    mbean: str, help: str, read: Callable[[ObservedNode], float], attribute: str = "Value"
) -> Metric:
    return ExportedMetric(mbean, attribute, help, lambda reading: read(reading.node))


def _metrics() -> Iterator[Metric]:
    yield from _controller_metrics()
    yield from _event_metrics()
    yield from _raft_metrics()
    yield from _image_metrics()
    yield from _network_metrics()


# -- the controller


def _controller_metrics() -> Iterator[Metric]:
    yield _gauge(
        CONTROLLER + "ActiveControllerCount",
        "1 on the active controller, else 0",
        lambda node: node.controller.is_active,
    )
    yield _gauge(
        CONTROLLER + "GlobalTopicCount", "Topics", lambda node: node.state.table.topic_count
    )
    yield _gauge(
        CONTROLLER + "GlobalPartitionCount",
        "Partitions",
        lambda node: node.state.table.partition_count,
    )
    yield ExportedMetric(
        CONTROLLER + "OfflinePartitionsCount",
        "Value",
        "Partitions without a leader",
        lambda reading: reading.partitions.without_leader,
    )
    yield ExportedMetric(
        CONTROLLER + "PreferredReplicaImbalanceCount",
        "Value",
        "Partitions that their preferred replica does not lead",
        lambda reading: reading.partitions.without_preferred_leader,
    )
    for name, state, what in (
        ("FencedBrokerCount", FENCED, "Registered brokers that are fenced"),
        ("ActiveBrokerCount", ACTIVE, "Brokers that are neither fenced nor shutting down"),
        ("ControlledShutdownBrokerCount", CONTROLLED_SHUTDOWN, "Brokers in controlled shutdown"),
    ):
        yield _gauge(CONTROLLER + name, what, _broker_count(state))
    yield ExportedMetric(
        CONTROLLER + "BrokerRegistrationState",
        "Value",
        f"State of each broker: {FENCED} fenced, {CONTROLLED_SHUTDOWN} in controlled shutdown, "
        f"{ACTIVE} active",
        lambda reading: [
            ((str(each.id),), _state_of(each)) for each in reading.node.state.state.brokers.values()
        ],
        labels=("broker",),
    )
    yield ExportedMetric(
        CONTROLLER + "TimeSinceLastHeartbeatReceivedMs",
        "Value",
        "Time since the last heartbeat of each broker, on the active controller",
        _heartbeat_ages,
        labels=("broker",),
    )
    yield _gauge(
        CONTROLLER + "MetadataErrorCount",
        "Failures while metadata was published or a request decided",
        lambda node: (
            sum(node.runner.publishing.images.fault_counts.values()) + node.controller.fault_count
        ),
    )
    yield _gauge(
        CONTROLLER + "LastAppliedRecordOffset",
        "Offset of the last record that the controller applied",
        lambda node: node.state.next_offset - 1,
    )
    yield _gauge(
        CONTROLLER + "LastCommittedRecordOffset",
        "Offset of the last committed record that the controller knows",
        lambda node: node.controller.committed_offset - 1,
    )
    yield _gauge(
        CONTROLLER + "LastAppliedRecordTimestamp",
        "Timestamp of the last applied batch, in ms since 1970",
        lambda node: node.runner.publishing.images.applied_timestamp_ms,
    )
    yield ExportedMetric(
        CONTROLLER + "LastAppliedRecordLagMs",
        "Value",
        "Age of the last applied batch; 0 on the active controller",
        lambda reading: (
            0
            if reading.node.controller.is_active
            else reading.now_ms - reading.node.runner.publishing.images.applied_timestamp_ms
        ),
    )
    yield _gauge(
        CONTROLLER + "TimedOutBrokerHeartbeatCount",
        "Heartbeats that expired in the event queue",
        lambda node: node.controller.expired[HEARTBEAT],
    )
    yield _gauge(
        CONTROLLER + "EventQueueOperationsStartedCount",
        "Operations that the controller started",
        lambda node: node.controller.queue_times.count,
    )
    yield _gauge(
        CONTROLLER + "EventQueueOperationsTimedOutCount",
        "Operations that expired in the event queue",
        lambda node: node.controller.expired.total(),
    )
    yield _gauge(
        CONTROLLER + "NewActiveControllersCount",
        "How often this node learned a new leader",
        lambda node: node.runner.leader_count,
    )
    yield _gauge(
        CONTROLLER + "IgnoredStaticVoters",
        "1 if controller.quorum.voters is set and the log names other voters, else 0",
        lambda node: bool(node.config.voters) and node.raft.log.kraft_version >= 1,
    )
    for name, what, count in (
        (
            "UncleanLeaderElectionsPerSec",
            "Elections of a leader outside of the ISR and the ELR, since the start",
            lambda node: node.elections.counts.unclean,
        ),
        (
            "ElectionFromEligibleLeaderReplicasPerSec",
            "Elections of a leader from the ELR, since the start",
            lambda node: node.elections.counts.eligible,
        ),
    ):
        yield ExportedMetric(
            STATISTICS + name,
            "Count",
            what,
            lambda reading, count=count: count(reading.node),  # type: ignore[misc]
            kind=MetricKind.COUNTER,
        )


def _state_of(broker: BrokerRegistration) -> int:
    if broker.fenced:
        return FENCED
    return CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else ACTIVE


def _broker_count(state: int) -> Callable[[ObservedNode], int]:
    return lambda node: sum(_state_of(each) == state for each in node.state.state.brokers.values())


def _heartbeat_ages(reading: Reading) -> list[tuple[tuple[str], float]]:
    node = reading.node
    if not node.controller.is_active:
        return []
    heard = {
        each.id: node.controller.sessions.last_contact_ms(each.id, each.epoch)
        for each in node.state.state.brokers.values()
    }
    return [
        ((str(id),), max(0.0, reading.now_ms - at_ms))
        for id, at_ms in heard.items()
        if at_ms is not None
    ]


def _event_metrics() -> Iterator[Metric]:
    yield ExportedMetric(
        EVENTS + "EventQueueTimeMs",
        "Count, Percentile",
        "Time of operations in the event queue",
        lambda reading: [((), reading.summary("queue", reading.node.controller.queue_times))],
        kind=MetricKind.SUMMARY,
    )
    yield ExportedMetric(
        EVENTS + "EventQueueProcessingTimeMs",
        "Count, Percentile",
        "Time of one run of the controller",
        lambda reading: [((), reading.summary("run", reading.node.controller.processing_times))],
        kind=MetricKind.SUMMARY,
    )
    yield ExportedMetric(
        EVENTS + "AvgIdleRatio",
        "Value",
        "Part of the time in which the controller had nothing to do, 0 to 1",
        lambda reading: reading.idle_ratio(
            "controller", reading.node.controller.processing_times.total_ms
        ),
    )


# -- the quorum


def _raft_metrics() -> Iterator[Metric]:
    yield ExportedMetric(
        RAFT,
        "current-state",
        "Role of this node in the quorum",
        lambda reading: [((_role_name(reading.node),), 1)],
        info="state",
    )
    for attribute, what, read in (
        (
            "current-leader",
            "Id of the leader; -1 if unknown",
            lambda node: -1 if node.role is Role.RESIGNED else node.raft.leader_id,
        ),
        (
            "current-vote",
            "Id of the candidate that this node voted for in its epoch; -1 for none",
            lambda node: -1 if node.raft.voted is None else node.raft.voted.id,
        ),
        ("current-epoch", "Epoch of the quorum", lambda node: node.raft.epoch),
        (
            "high-watermark",
            "High watermark; -1 if unknown",
            lambda node: node.raft.log.high_watermark,
        ),
        ("log-end-offset", "End offset of the log", lambda node: node.raft.log.end_offset),
        ("log-end-epoch", "Epoch of the last record", lambda node: node.raft.log.last_epoch),
        (
            "number-unknown-voter-connections",
            "Voters without a known endpoint",
            lambda node: sum(node.raft.endpoint_of(each.id) is None for each in node.raft.voters),
        ),
        ("number-of-voters", "Voters", lambda node: len(node.raft.voters)),
    ):
        yield _gauge(RAFT, what, read, attribute)
    yield ExportedMetric(
        RAFT,
        "number-of-observers",
        "Observers that fetch from this leader",
        lambda reading: _on_leader(
            reading, lambda leadership: len(leadership.replicas.observer_keys())
        ),
    )
    yield ExportedMetric(
        RAFT,
        "uncommitted-voter-change",
        "1 on the leader while a change of the voters is not committed, else 0",
        lambda reading: _on_leader(
            reading, lambda leadership: not leadership.log.is_voters_committed()
        ),
    )
    for kind, what in (
        ("commit", "from append to commit, on the leader"),
        ("election", "from the begin of an election of this node to a leader"),
    ):
        for attribute, of in (("avg", "Average"), ("max", "Longest")):
            yield ExportedMetric(
                RAFT,
                f"{kind}-latency-{attribute}",
                f"{of} time in ms {what}, of the last 30 to 60 s; NaN without one",
                _latency(kind, attribute),
            )
    yield ExportedMetric(
        RAFT,
        "append-records-rate",
        "Records per second that this node appends as the leader",
        lambda reading: reading.rate("appended", reading.node.driver.appended_count),
    )
    yield ExportedMetric(
        RAFT,
        "fetch-records-rate",
        "Records per second that this node fetches from the leader",
        lambda reading: reading.rate("fetched", reading.node.driver.fetched_count),
    )
    yield ExportedMetric(
        RAFT,
        "poll-idle-ratio-avg",
        "Part of the time in which the Raft layer had nothing to do, 0 to 1",
        lambda reading: reading.idle_ratio("raft", reading.node.driver.busy_ms),
    )


def _role_name(node: ObservedNode) -> str:
    name = _ROLE_NAMES[node.role]
    if node.role is Role.FOLLOWER and not node.raft.is_voter:
        return "observer"
    has_voted = node.role in (Role.UNATTACHED, Role.PROSPECTIVE) and node.raft.voted is not None
    return f"{name}-voted" if has_voted else name


def _on_leader(
    reading: Reading, read: Callable[[LeaderState], float]
) -> list[tuple[tuple[str, ...], float]]:
    leadership = reading.node.leadership
    return [] if leadership is None else [((), read(leadership))]


def _latency(kind: str, attribute: str) -> Callable[[Reading], float]:
    def read(reading: Reading) -> float:
        driver = reading.node.driver
        times = driver.commit_times if kind == "commit" else driver.election_times
        if attribute == "avg":
            return times.average_ms(reading.now_ms)
        return times.maximum_ms(reading.now_ms)

    return read


# -- metadata


def _image_metrics() -> Iterator[Metric]:
    yield _gauge(
        LOADER + "CurrentMetadataVersion",
        "Level of metadata.version",
        lambda node: node.state.state.metadata_version,
    )
    yield _gauge(
        LOADER + "CurrentControllerId",
        "Id of the leader; -1 if unknown",
        lambda node: -1 if node.role is Role.RESIGNED else node.raft.leader_id,
    )
    yield _gauge(
        LOADER + "HandleLoadSnapshotCount",
        "Snapshots that this process loaded",
        lambda node: node.runner.loaded_count,
    )
    yield ExportedMetric(
        LOADER + "FinalizedLevel",
        "Value",
        "Finalized level of each feature",
        _finalized_levels,
        labels=("featureName",),
    )
    for which, index in (("minimum", 0), ("maximum", 1)):
        yield ExportedMetric(
            FEATURES,
            f"{which}-supported-level",
            f"{which.capitalize()} level of each feature that this node supports",
            _supported_levels(index),
            labels=("feature-name",),
        )
    yield _gauge(
        SNAPSHOTS + "LatestSnapshotGeneratedBytes",
        "Size of the last snapshot that this process made; 0 before the first",
        lambda node: node.runner.publishing.latest_size,
    )
    yield _gauge(
        SNAPSHOTS + "LatestSnapshotGeneratedAgeMs",
        "Time since the last snapshot that this process made, or since its start",
        lambda node: int(1000 * (time.monotonic() - node.runner.publishing.latest_s)),
    )
    yield _gauge(PLUGINS, "ACLs", lambda node: len(node.state.state.acls), "acls-total-count")


def _finalized_levels(reading: Reading) -> list[tuple[tuple[str], int]]:
    node = reading.node
    levels = {**node.state.state.features, "kraft.version": node.raft.log.kraft_version}
    return [((_camel_case(name),), level) for name, level in levels.items()]


def _supported_levels(index: int) -> Callable[[Reading], list[tuple[tuple[str], int]]]:
    return lambda reading: [
        ((name.replace(".", "-"),), levels[index]) for name, levels in SUPPORTED_FEATURES.items()
    ]


def _camel_case(feature: str) -> str:
    """Return ``metadataVersion`` for ``metadata.version``, as Kafka names it here."""
    first, *others = feature.split(".")
    return first + "".join(map(str.capitalize, others))


# -- the network


def _network_metrics() -> Iterator[Metric]:
    yield ExportedMetric(
        REQUESTS + "RequestsPerSec",
        "Count",
        "Answered requests",
        lambda reading: [
            ((api, str(version)), count)
            for api, traffic in reading.node.traffic.apis.items()
            for version, count in traffic.by_version.items()
        ],
        labels=("request", "version"),
        kind=MetricKind.COUNTER,
    )
    yield ExportedMetric(
        REQUESTS + "ErrorsPerSec",
        "Count",
        "Responses by the error of the whole response; NONE is success",
        lambda reading: [
            ((api, error_name(error)), count)
            for (api, error), count in reading.node.traffic.errors.items()
        ],
        labels=("request", "error"),
        kind=MetricKind.COUNTER,
    )
    yield ExportedMetric(
        REQUESTS + "TotalTimeMs",
        "Count, Percentile",
        "Time from the whole request to its written response",
        lambda reading: [
            ((api,), reading.summary(api, traffic.times))
            for api, traffic in reading.node.traffic.apis.items()
        ],
        labels=("request",),
        kind=MetricKind.SUMMARY,
    )
    yield ExportedMetric(
        REQUESTS + "RequestBytes",
        "Count",
        "Bytes of answered requests",
        lambda reading: [
            ((api,), Summary({}, traffic.times.count, traffic.request_size))
            for api, traffic in reading.node.traffic.apis.items()
        ],
        labels=("request",),
        kind=MetricKind.SUMMARY,
    )
    yield _gauge(
        "kafka.network:type=RequestChannel,name=RequestQueueSize",
        "Requests that wait because too many others are in progress",
        lambda node: len(node.listener.stalled),
    )
    yield _gauge(
        SOCKETS + "MemoryPoolUsed",
        "Bytes of large requests in progress",
        lambda node: node.listener.request_memory,
    )
    yield _gauge(
        SOCKETS + "MemoryPoolAvailable",
        "Bytes that further large requests may take",
        lambda node: node.listener.limits.max_request_memory - node.listener.request_memory,
    )
    for attribute, what, read in (
        ("connection-count", "Open connections", lambda one: one.opened - one.closed),
        ("connection-creation-total", "Accepted connections", lambda one: one.opened),
        ("connection-close-total", "Closed connections", lambda one: one.closed),
        ("request-total", "Answered requests", lambda one: one.requests),
        ("incoming-byte-total", "Bytes of answered requests", lambda one: one.request_size),
        ("outgoing-byte-total", "Bytes of responses", lambda one: one.response_size),
    ):
        yield ExportedMetric(
            LISTENERS,
            attribute,
            what,
            _by_listener(read),
            labels=("listener",),
            kind=MetricKind.COUNTER if attribute.endswith("-total") else MetricKind.GAUGE,
        )


def _by_listener(
    read: Callable[[ListenerTraffic], float],
) -> Callable[[Reading], list[tuple[tuple[str], float]]]:
    return lambda reading: [
        ((name,), read(traffic)) for name, traffic in reading.node.traffic.listeners.items()
    ]


#: Every metric of a controller.
METRICS: tuple[Metric, ...] = tuple(_metrics())


def metric_table() -> str:
    """Return the metrics as a Markdown table."""
    return table_of(METRICS)


def table_of(metrics: Iterable[ExportedMetric[Any]]) -> str:
    """Return a Markdown table of metrics."""
    lines = ["| metric | type | value | Kafka's MBean and attribute |", "|---|---|---|---|"]
    for metric in metrics:
        labels = ",".join(metric.label_names)
        name = f"{metric.name}{{{labels}}}" if labels else metric.name
        keys = "".join(f",{label}=*" for label in metric.labels)
        lines.append(
            f"| `{name}` | {metric.kind.value} | {metric.help} "
            f"| `{metric.mbean}{keys}` {metric.attribute} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(metric_table())
