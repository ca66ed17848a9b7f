"""What a cluster of any size costs the active controller: requests, bytes, CPU and memory.

The model counts the work of the active controller from the protocol's rules and the format of the
records. `Coefficients`, which ``calibration`` fits to runs of the fleet, turn work into CPU and
memory; without them the model gives requests and bytes only. It contains no measured figure.

Work, with B brokers, P partitions, R replicas:

heartbeats   B / heartbeat interval a second
fetches      children x `fetches_of_child`. Apache Kafka's leader: appends a second x answers of an
             append. Each append ends the waiting fetch of every child; since Fetch v18 (KIP-1166)
             the high watermark's move ends the next one. kraft's leader: rounds a second, each for
             all commits since the last one (``kraft.raft.observer_purgatory``). An idle controller
             of both appends one NoOp each `Cluster.idle_append_s`
bytes out    children x bytes appended, and a response without records for each fetch
rack loss    P x R x lost / B records, one for each replica that leaves an ISR, sent to every child;
             one append for each lost broker, evenly in the time that the loss may take
cold start   every child fetches a snapshot of P partitions

Children are all brokers or, where observers fetch through a tree, its fan-out. Heartbeats always go
to the active controller. Pure: values in, values out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kraft.errors import InvalidRequestError
from kraft.fleet.quorum_kind import QuorumKind
from kraft.protocol.broker_heartbeat import BROKER_HEARTBEAT, BrokerHeartbeatResponseData
from kraft.protocol.common import BrokerEndpoint, LeaderIdAndEpoch
from kraft.protocol.fetch import (
    FETCH,
    FetchedPartitionData,
    FetchedTopicData,
    FetchResponseData,
)
from kraft.raft.observer_purgatory import ANSWER_MS, MAX_DELAY_MS
from kraft.records import Partition, PartitionChange, Record, Uuid
from kraft.records.batches import encode_records

#: Bytes before the body of a response: its length, the correlation id, no tagged fields.
_RESPONSE_HEADER = 9
#: Records that are encoded to find the size of one in a full batch.
_SAMPLE = 1000
#: How long a leader keeps a fetch that finds nothing: the fetch's MaxWaitMs, of Kafka's brokers.
_FETCH_WAIT_S = 0.5


class Term(StrEnum):
    """A kind of work that costs the active controller CPU, and so a coefficient."""

    BASE = "base"
    HEARTBEATS = "heartbeats"
    FETCHES = "fetches"
    RECORDS = "records"
    BYTES = "bytes"


#: The units of the coefficients.
UNITS: dict[Term, str] = {
    Term.BASE: "cores",
    Term.HEARTBEATS: "CPU seconds a heartbeat",
    Term.FETCHES: "CPU seconds an observer fetch",
    Term.RECORDS: "CPU seconds a committed record",
    Term.BYTES: "CPU seconds a byte sent",
}


@dataclass(frozen=True)
class Cluster:
    """A cluster and its settings; the defaults are Kafka's.

    ``fan_out`` is the number of children of each node in a tree of observers, None without a tree.
    ``changes_per_s`` are appends beside the idle ones, of ``records_per_change`` records.
    ``answers_per_append`` of Apache Kafka's leader is 2 from Fetch v18 on, before that 1; kraft's
    leader does not use it.
    """

    brokers: int
    partitions: int
    replication_factor: int = 3
    racks: int = 3
    heartbeat_s: float = 2.0
    session_timeout_s: float = 9.0
    idle_append_s: float = 0.5
    changes_per_s: float = 0.0
    records_per_change: float = 1.0
    answers_per_append: int = 2
    fan_out: int | None = None
    quorum: QuorumKind = QuorumKind.KRAFT

    def __post_init__(self) -> None:
        for name in ("brokers", "partitions", "replication_factor", "racks", "answers_per_append"):
            if getattr(self, name) < 1:
                raise InvalidRequestError(f"{name} is {getattr(self, name)}, must be 1 or more")
        for name in ("heartbeat_s", "session_timeout_s", "idle_append_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise InvalidRequestError(f"{name} is {getattr(self, name)}, must be above 0")
        for name in ("changes_per_s", "records_per_change"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InvalidRequestError(f"{name} is {getattr(self, name)}, must not be negative")
        if self.racks > self.brokers or self.replication_factor > self.brokers:
            raise InvalidRequestError(
                f"{self.brokers} brokers are fewer than {self.racks} racks or "
                f"{self.replication_factor} replicas"
            )
        if self.fan_out is not None and self.fan_out < 2:
            raise InvalidRequestError(f"fan_out is {self.fan_out}, must be 2 or more")

    @property
    def children(self) -> int:
        """The nodes that fetch from the active controller."""
        return self.brokers if self.fan_out is None else min(self.fan_out, self.brokers)

    @property
    def depth(self) -> int:
        """The fetches after which a record has reached the last broker: 1 without a tree."""
        if self.fan_out is None:
            return 1
        levels, reached = 1, self.fan_out
        while reached < self.brokers:
            levels += 1
            reached += self.fan_out**levels
        return levels

    @property
    def lost_brokers(self) -> int:
        """The brokers of the largest rack."""
        return -(-self.brokers // self.racks)

    def scaled(self, factor: float) -> Cluster:
        """Return the cluster with brokers and partitions times ``factor``, at least its minimum."""
        least = max(self.racks, self.replication_factor)
        return replace(
            self,
            brokers=max(round(self.brokers * factor), least),
            partitions=max(round(self.partitions * factor), 1),
        )


class Rates(NamedTuple):
    """Work of the active controller a second, in the order of the coefficients after the base."""

    heartbeats: float
    fetches: float
    records: float
    bytes_out: float

    def row(self) -> NDArray[np.float64]:
        """Return the factors of the coefficients, with 1 for the base."""
        return np.array([1.0, *self])


class Burst(NamedTuple):
    """Work of one event: records and their bytes in the log, fetches, and bytes sent."""

    records: float
    log_bytes: float
    fetches: float
    bytes_out: float

    def row(self) -> NDArray[np.float64]:
        """Return the factors of the coefficients, without base and heartbeats."""
        return np.array([0.0, 0.0, self.fetches, self.records, self.bytes_out])


class Estimate(NamedTuple):
    """A predicted value and its standard error."""

    value: float
    error: float


@dataclass(frozen=True)
class Coefficients:
    """Costs of work, fitted to runs: ``values`` and ``covariance`` in the order of `Term`.

    ``memory`` has bytes of one controller without brokers, a broker and a partition; None where
    the runs do not say.
    """

    quorum: str
    values: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]
    memory: tuple[float, float, float] | None = None

    def cpu(self, row: NDArray[np.float64]) -> Estimate:
        """Return the CPU of work: cores for rates a second, CPU seconds for a burst."""
        variance = float(row @ np.array(self.covariance) @ row)
        return Estimate(float(row @ np.array(self.values)), math.sqrt(max(variance, 0.0)))

    def error(self, term: Term) -> float:
        """Return the standard error of one coefficient."""
        place = list(Term).index(term)
        return math.sqrt(max(self.covariance[place][place], 0.0))


@dataclass(frozen=True)
class ControllerMachine:
    """The limits of the active controller's machine; assumptions of the caller.

    ``cores`` is 1 for a controller whose requests one thread handles. ``burst_s`` is the time that
    a burst may take, by default the brokers' session timeout of 9 s.
    """

    cores: float = 1.0
    network_bytes_s: float = 1.25e9
    disk_bytes_s: float = 2e8
    memory_bytes: float = 64 * 2.0**30
    burst_s: float = 9.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 < value < math.inf:
                raise InvalidRequestError(f"{name} is {value}, must be above 0")


@dataclass(frozen=True)
class Limit:
    """One resource beside its limit; ``breaks_at`` is the factor of the size that reaches it.

    The factor multiplies brokers and partitions; infinity where growth does not reach the limit.
    """

    name: str
    load: float
    limit: float
    unit: str
    breaks_at: float

    @property
    def share(self) -> float:
        """The load divided by the limit."""
        return self.load / self.limit


def fetches_of_child(cluster: Cluster, children: int, appends_per_s: float) -> float:
    """Return the fetches a second of each of ``children`` while appends come evenly.

    kraft's leader answers all waiting observers in a round. It sends an answer each `ANSWER_MS`
    when rounds follow each other, and delays no round for longer than `MAX_DELAY_MS`. A fetch that
    waits for longer than 0.5 s is answered without records, and sent again.
    """
    if cluster.quorum is QuorumKind.KRAFT:
        most = max(1000 / (ANSWER_MS * children), 1000 / MAX_DELAY_MS)
        answered, answers = min(appends_per_s, most), 1
    else:
        answered, answers = appends_per_s, cluster.answers_per_append
    # A wait that ends with the next append, at exactly 0.5 s, does not expire.
    expired = math.ceil(1 / (answered * _FETCH_WAIT_S) - 1e-9) - 1
    return answered * (answers + max(expired, 0))


def steady_rates(cluster: Cluster) -> Rates:
    """Return the work of an idle cluster, and of its changes."""
    appends = 1 / cluster.idle_append_s + cluster.changes_per_s
    fetches = cluster.children * fetches_of_child(cluster, cluster.children, appends)
    records = 1 / cluster.idle_append_s + cluster.changes_per_s * cluster.records_per_change
    heartbeats = cluster.brokers / cluster.heartbeat_s
    sizes, responses = record_sizes(cluster.replication_factor), response_sizes()
    appended = appends * sizes.batch + records * sizes.change
    return Rates(
        heartbeats=heartbeats,
        fetches=fetches,
        records=records,
        bytes_out=cluster.children * appended
        + fetches * responses.fetch
        + heartbeats * responses.heartbeat,
    )


def rack_loss(cluster: Cluster, within_s: float) -> Burst:
    """Return the work after the loss of the largest rack, decided evenly within ``within_s``.

    Each lost broker is fenced by its own decision, which takes it from every ISR. Without a tree
    the brokers that live fetch all of it; a fetch has at most 8 MiB.
    """
    lost = cluster.lost_brokers
    records = cluster.partitions * cluster.replication_factor * lost / cluster.brokers + lost
    log_bytes = records * record_sizes(cluster.replication_factor).change
    receivers = cluster.children
    if cluster.fan_out is None:
        receivers = cluster.brokers - lost
    answers = within_s * fetches_of_child(cluster, receivers, lost / within_s)
    fetches = receivers * max(math.ceil(log_bytes / _MOST_FETCHED), answers)
    bytes_out = receivers * log_bytes + fetches * response_sizes().fetch
    return Burst(records, log_bytes, fetches, bytes_out)


def cold_start(cluster: Cluster) -> Burst:
    """Return the work when every child of the active controller fetches a snapshot."""
    size = cluster.partitions * record_sizes(cluster.replication_factor).partition
    fetches = cluster.children * max(math.ceil(size / _MOST_FETCHED), 1)
    bytes_out = cluster.children * size + fetches * response_sizes().fetch
    return Burst(0.0, size, fetches, bytes_out)


#: The most bytes of one Fetch or FetchSnapshot of the metadata log.
_MOST_FETCHED = 8 << 20


class RecordSizes(NamedTuple):
    """Bytes in full batches: a change of a partition, a partition in a snapshot; an empty batch."""

    change: float
    partition: float
    batch: float


@cache
def record_sizes(replication_factor: int) -> RecordSizes:
    """Return the mean sizes of records, by encoding them.

    Half of the changes have a new leader, more than after the loss of one of three racks.
    """
    topic, directory = Uuid(b"\1" * 16), Uuid(b"\2" * 16)
    brokers = list(range(5000, 5000 + replication_factor))
    left = brokers[1:] or brokers

    def mean(record_of: Callable[[int], Record]) -> float:
        return len(encode_records(record_of(number) for number in range(_SAMPLE))) / _SAMPLE

    change = mean(
        lambda number: PartitionChange(
            number, topic, isr=left, leader=left[0] if number % 2 else -2
        )
    )
    partition = mean(
        lambda number: Partition(
            number, topic, brokers, brokers, [], [], brokers[0], 0, 100, 200,
            [directory] * replication_factor,
        )
    )  # fmt: skip
    one, two = (
        len(encode_records([PartitionChange(1, topic, isr=left)] * count)) for count in (1, 2)
    )
    return RecordSizes(change, partition, float(2 * one - two))


class ResponseSizes(NamedTuple):
    """Bytes on a connection of responses: a Fetch without records, a BrokerHeartbeat."""

    fetch: int
    heartbeat: int


@cache
def response_sizes() -> ResponseSizes:
    """Return the sizes of responses of the newest versions, by encoding them."""
    partition = FetchedPartitionData(
        high_watermark=1 << 40, current_leader=LeaderIdAndEpoch(5000, 100)
    )
    topic = FetchedTopicData(topic_id=Uuid(b"\1" * 16), partitions=[partition])
    leader = BrokerEndpoint(5000, "controller-1.example.com", 9093)
    fetch = FetchResponseData(responses=[topic], node_endpoints=[leader]).encode(FETCH.highest)
    heartbeat = BrokerHeartbeatResponseData().encode(BROKER_HEARTBEAT.highest)
    return ResponseSizes(len(fetch) + _RESPONSE_HEADER, len(heartbeat) + _RESPONSE_HEADER)


def memory_of(cluster: Cluster, coefficients: Coefficients) -> float | None:
    """Return the bytes of memory of one controller; None where the runs do not say."""
    if coefficients.memory is None:
        return None
    base, broker, partition = coefficients.memory
    return base + broker * cluster.brokers + partition * cluster.partitions


def limits(
    cluster: Cluster, machine: ControllerMachine, coefficients: Coefficients | None = None
) -> list[Limit]:
    """Return every resource beside its limit; the one that breaks first comes first.

    Without coefficients, CPU and memory are missing.
    """
    found = [
        _limit(name, load, limit, unit, cluster)
        for name, load, limit, unit in _loads(machine, coefficients)
    ]
    return sorted(found, key=lambda limit: (limit.breaks_at, -limit.share))


_Load = Callable[[Cluster], float]


def _loads(
    machine: ControllerMachine, coefficients: Coefficients | None
) -> list[tuple[str, _Load, float, str]]:
    """Return name, load of a cluster, limit and unit of each resource."""
    loads: list[tuple[str, _Load, float, str]] = [
        (
            "steady: network",
            lambda cluster: steady_rates(cluster).bytes_out,
            machine.network_bytes_s,
            "bytes/s",
        ),
        (
            "rack loss: network",
            lambda cluster: rack_loss(cluster, machine.burst_s).bytes_out / machine.network_bytes_s,
            machine.burst_s,
            "s",
        ),
        (
            "rack loss: disk",
            lambda cluster: rack_loss(cluster, machine.burst_s).log_bytes / machine.disk_bytes_s,
            machine.burst_s,
            "s",
        ),
        (
            "cold start: network",
            lambda cluster: cold_start(cluster).bytes_out / machine.network_bytes_s,
            machine.burst_s,
            "s",
        ),
    ]
    if coefficients is None:
        return loads
    cores = machine.cores
    loads += [
        (
            "steady: CPU",
            lambda cluster: coefficients.cpu(steady_rates(cluster).row()).value,
            cores,
            "cores",
        ),
        (
            "rack loss: CPU",
            lambda cluster: (
                coefficients.cpu(rack_loss(cluster, machine.burst_s).row()).value / cores
            ),
            machine.burst_s,
            "s",
        ),
        (
            "cold start: CPU",
            lambda cluster: coefficients.cpu(cold_start(cluster).row()).value / cores,
            machine.burst_s,
            "s",
        ),
    ]
    if coefficients.memory is not None:
        loads.append(
            (
                "memory",
                lambda cluster: memory_of(cluster, coefficients) or 0.0,
                machine.memory_bytes,
                "bytes",
            )
        )
    return loads


def _limit(name: str, load: _Load, limit: float, unit: str, cluster: Cluster) -> Limit:
    """Return a limit with the factor of the size that reaches it, to one per thousand."""

    def reaches(factor: float) -> bool:
        return load(cluster.scaled(factor)) >= limit

    low, high = _SMALLEST_FACTOR, _LARGEST_FACTOR
    if reaches(low):
        at = low
    elif not reaches(high):
        at = math.inf
    else:
        while high / low > 1.001:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if reaches(middle) else (middle, high)
        at = high
    return Limit(name, load(cluster), limit, unit, at)


_SMALLEST_FACTOR, _LARGEST_FACTOR = 1e-4, 1e4
