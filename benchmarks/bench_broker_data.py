"""kraft's broker beside Apache Kafka's: the same files, settings and client, rounds in turns.

Every node is controller and broker. The client is `loopback_peer.c`: it sends valid batches that
were made before, so that it takes little of the two cores. The files are in memory where there is
room. Both kinds run at the same time, and one is idle while the other is measured. After each
round the high watermarks show whether all that was acknowledged is there.

``broker_produce_*``   acks=1, one partition, batches of 16 or 128 KiB, 5 requests in flight (as of
                       an idempotent producer); each round has a new topic
``broker_write``       the floor: one thread checks the CRC of batches of 128 KiB and writes them
                       to a file
``broker_fetch``       responses of 1 MiB out of the page cache, one after the other on a
                       connection; ``sendfile_broker_fetch`` is the floor, the bare sendfile of
                       `bench_data_loop`, of a file beside those of the clusters; client and
                       servers have the cores that they have there
``broker_replicated``  acks=all on 3 nodes, 100 producers with a batch of 1 KiB each in flight, 12
                       partitions
``broker_partitions``  requests of small batches to the 100 partitions of a topic; 100 such topics
                       (kraft keeps a third of its descriptors for segments: below a limit of about
                       31,000 it opens files again and again)
``broker_start``       from the start of the process until the broker is RUNNING, with 15,000
                       partitions, after a controlled shutdown
``broker_start_100k``  the same with 100,000, without a peer
``broker_memory``      a node's memory with those 15,000 partitions less its memory without any, a
                       partition; of Kafka the heap after a full collection alone

``cpu_s`` is of the nodes, for one item. Needs gcc; without Java or Kafka's jars there is no peer.
"""

from __future__ import annotations

import os
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.bench_brokers import directory_in_memory
from benchmarks.broker_clusters import (
    BrokerCluster,
    KafkaBrokerCluster,
    KraftBrokerCluster,
    assigned,
)
from benchmarks.conftest import FULL, Sizes
from benchmarks.loopback_client import LoopbackClient, ended
from benchmarks.machine import cpu_seconds_of, keep_on_cores
from benchmarks.network_quorums import pid_of
from benchmarks.timings import summary
from kraft._core.bytes.batch import BatchBuilder
from kraft._core.bytes.crc32c import crc32c
from kraft.protocol.create_topics import CreatableTopic
from kraft.protocol.fetch import FETCH, FetchPartitionData, FetchRequestData, FetchTopicData
from kraft.protocol.headers import Api, request_frame
from kraft.protocol.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequestData,
    TopicProduceData,
)
from kraft.records import Uuid
from kraft.server.descriptors import raise_soft_limit
from kraft.server.local_quorum import LocalNode
from tests.harness.kafka_jars import MissingToolError

KIB = 1024
MIB = 1 << 20
BATCHES = {"16KiB": 16 * KIB, "128KiB": 128 * KIB}
RECORD = 1000
AHEAD = 5
FETCH_AHEAD = 1
#: More than the caches of a CPU: a consumer reads each byte once.
FETCHED_MIB = 256
PRODUCERS = 100
REPLICATED = 12
PARTITIONS_OF_TOPIC = 100
#: A request creates 3,000 partitions: Kafka rejects one that writes more than 10,000 records.
TOPICS_OF_REQUEST = 30
HEAP = "2g"
ACKS_LEADER, ACKS_ALL = 1, -1

Note = Callable[..., None]


class Loaded(Protocol):
    """What the client measures: a cluster, or the floor."""

    @property
    def kind(self) -> str: ...
    @property
    def nodes(self) -> Sequence[LocalNode]: ...
    def cpu_seconds(self) -> float: ...


L = TypeVar("L", bound=Loaded)


class Batch(NamedTuple):
    data: bytes
    records: int


class RoundOfLoad(NamedTuple):
    item_s: float
    cpu_s: float
    taken_us: npt.NDArray[np.float64]


@dataclass
class Figures:
    """The counted rounds of one cluster."""

    rounds: list[RoundOfLoad] = field(default_factory=list)

    def line(self, *, has_p99: bool) -> dict[str, object]:
        taken = np.concatenate([each.taken_us for each in self.rounds])
        p99 = {"p99_s": float(np.percentile(taken, 99)) / 1e6} if has_p99 else {}
        return {
            **summary([each.item_s for each in self.rounds]),
            "cpu_s": median(each.cpu_s for each in self.rounds),
            **p99,
        }


def batch_of(size: int, value_size: int = RECORD) -> Batch:
    """Return a batch of about ``size`` bytes, with records of one size.

    Its time is now: retention deletes records that are older than a week.
    """
    builder = BatchBuilder(0, -1, int(time.time() * 1000))
    dice = np.random.default_rng(size)
    records = 0
    while not records or builder.size + value_size < size:
        builder.append(dice.bytes(value_size))
        records += 1
    return Batch(bytes(builder.finish()), records)


def frame(api: Api, request: ProduceRequestData | FetchRequestData) -> bytes:
    return request_frame(api, api.highest, 7, "benchmark", request.encode(api.highest))


def produce_frame(topic: Uuid, partitions: Sequence[int], batch: Batch, acks: int) -> bytes:
    data = [PartitionProduceData(partition, batch.data) for partition in partitions]
    topics = [TopicProduceData(topic_id=topic, partition_data=data)]
    return frame(PRODUCE, ProduceRequestData(acks=acks, timeout_ms=30_000, topic_data=topics))


def fetch_frame(topic: Uuid, offset: int, size: int) -> bytes:
    asked = [FetchPartitionData(0, fetch_offset=offset, partition_max_bytes=size)]
    topics = [FetchTopicData(topic_id=topic, partitions=asked)]
    request = FetchRequestData(max_wait_ms=500, min_bytes=1, max_bytes=size, topics=topics)
    return frame(FETCH, request)


class SendfileFloor:
    """A server that answers every request with the next bytes of a file, by sendfile alone."""

    kind = "sendfile"

    def __init__(self, command: Sequence[str], path: Path) -> None:
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        port = int(self._process.stdout.readline())
        self.nodes = [LocalNode(1, port, path, path, port, process=self._process)]

    def cpu_seconds(self) -> float:
        return cpu_seconds_of(self._process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()


class Loads:
    """The client, and the clusters that it measures in turns."""

    def __init__(self, directory: Path, sizes: Sizes, figure: Note) -> None:
        self.sizes = sizes
        self._directory = directory
        self._figure = figure
        self._client = LoopbackClient(directory)
        #: Where the clusters have their files.
        self._files = directory

    @contextmanager
    def clusters(self, size: int, *, has_peer: bool = True) -> Iterator[list[BrokerCluster]]:
        """Yield a running cluster of each kind."""
        # The nodes inherit it.
        raise_soft_limit()
        with ExitStack() as running:
            files = running.enter_context(directory_in_memory(self._directory))
            self._files = files
            found: list[BrokerCluster] = [KraftBrokerCluster(files / "kraft", size)]
            try:
                if has_peer:
                    found.append(KafkaBrokerCluster(files / "kafka", size, HEAP))
            except MissingToolError as missing:
                warnings.warn(f"no brokers of Kafka's: {missing}", stacklevel=1)
            for cluster in found:
                running.enter_context(cluster)
            yield found

    def floor(self, size: int, responses: int, request: int) -> SendfileFloor:
        """Start the floor: so many responses of ``size`` bytes are its file, again and again."""
        path = self._files / "floor"
        path.write_bytes(bytes(range(256)) * (size * responses // 256))
        command = [str(self._client.path), "serve", str(path), str(size), str(request)]
        return SendfileFloor(command, path)

    @contextmanager
    def apart(self, servers: Sequence[Loaded]) -> Iterator[None]:
        """Keep the client on the last core, and the servers on the first one or two others.

        Where the system puts a server beside the client decides about a third of the time that a
        large response takes. For two cores or more.
        """
        cores = sorted(os.sched_getaffinity(0))
        for server in servers:
            for node in server.nodes:
                keep_on_cores(pid_of(node), cores[: max(1, min(2, len(cores) - 1))])
        anywhere = self._client
        self._client = LoopbackClient(self._directory, ("taskset", "-c", str(cores[-1])))
        try:
            yield
        finally:
            self._client = anywhere

    def run(
        self,
        cluster: Loaded,
        frames: Sequence[Sequence[bytes]],
        connections: int,
        ahead: int,
        *,
        seconds: float | None = None,
    ) -> tuple[RoundOfLoad, int, int]:
        """Send the frames of each node to it, on so many connections in all.

        Return the figures for one response, all responses, and the bytes of one.
        """
        time_s = self.sizes.seconds if seconds is None else seconds
        clients = []
        cpu_s = cluster.cpu_seconds()
        for number, (node, of_node) in enumerate(zip(cluster.nodes, frames, strict=True)):
            path = self._directory / f"{cluster.kind}-{node.id}.requests"
            path.write_bytes(b"".join(of_node))
            own = len(range(number, connections, len(frames)))
            clients.append(self._client.begin(node.client_port or 0, own, ahead, time_s, path))
        loads = [ended(client) for client in clients]
        cpu_s = cluster.cpu_seconds() - cpu_s
        responses = sum(load.responses for load in loads)
        everything = sum(load.responses_with_warmup for load in loads)
        round_of_load = RoundOfLoad(
            max(load.seconds for load in loads) / responses,
            cpu_s / everything,
            np.concatenate([load.taken_us for load in loads]),
        )
        return round_of_load, everything, sum(load.bytes for load in loads) // responses

    def in_turns(
        self,
        work: str,
        clusters: Sequence[L],
        measure: Callable[[L], RoundOfLoad],
        *,
        unit: str,
        size: int,
        count: int = 1,
        has_p99: bool = False,
    ) -> None:
        """Note the figures of all clusters; ``count`` items of ``size`` bytes in all a request."""
        figures = {cluster.kind: Figures() for cluster in clusters}
        for turn in range(self.sizes.slow_warmup + self.sizes.slow_rounds):
            for cluster in clusters[:: -1 if turn % 2 else 1]:
                measured = measure(cluster)
                if turn >= self.sizes.slow_warmup:
                    figures[cluster.kind].rounds.append(measured)
        for kind, found in figures.items():
            line = found.line(has_p99=has_p99)
            self.note(kind, work, unit=unit, count=count, bytes=size, **line)

    def note(self, kind: str, work: str, **line: object) -> None:
        self._figure(work=work if kind == "kraft" else f"{kind}_{work}", **line)


@pytest.fixture
def loads(tmp_path: Path, sizes: Sizes, figure: Note) -> Loads:
    return Loads(tmp_path, sizes, figure)


def expect(
    cluster: BrokerCluster, topic: str, partitions: Sequence[Sequence[int]], wanted: int
) -> None:
    """Raise RuntimeError unless the partitions of the nodes have so many records together."""
    found = [
        cluster.end_offsets(node, topic, own)
        for node, own in zip(cluster.nodes, partitions, strict=True)
    ]
    records = sum(sum(offsets or []) for offsets in found)
    if records != wanted:
        raise RuntimeError(f"{cluster.kind} has {records} records in {topic!r}, not {wanted}")


def bench_write(benchmark: Any, measured: Note, tmp_path: Path) -> None:
    data = batch_of(BATCHES["128KiB"]).data
    with directory_in_memory(tmp_path) as files, (files / "log").open("wb", buffering=0) as log:

        def work() -> None:
            crc32c(data)
            log.write(data)

        benchmark.pedantic(work, rounds=2000, warmup_rounds=100)
    measured("broker_write", unit="batches", count=1, bytes=len(data))


@pytest.mark.peer
@pytest.mark.timeout(1800)
def bench_produce(loads: Loads) -> None:
    topics = 0
    with loads.clusters(1) as clusters:
        for name, size in BATCHES.items():
            batch = batch_of(size)

            def measure(cluster: BrokerCluster, batch: Batch = batch) -> RoundOfLoad:
                nonlocal topics
                topics += 1
                topic = f"produce-{topics}"
                [id] = cluster.create_topics([CreatableTopic(topic, 1, 1)])
                frames = [[produce_frame(id, [0], batch, ACKS_LEADER)]]
                measured, responses, _ = loads.run(cluster, frames, 1, AHEAD)
                expect(cluster, topic, [[0]], responses * batch.records)
                cluster.delete_topic(topic)
                return measured

            work = f"broker_produce_{name}"
            loads.in_turns(work, clusters, measure, unit="batches", size=len(batch.data))


@pytest.mark.peer
@pytest.mark.timeout(1800)
def bench_fetch(loads: Loads) -> None:
    batch = batch_of(BATCHES["128KiB"])
    size = len(batch.data) * (MIB // BATCHES["128KiB"])
    responses = FETCHED_MIB if loads.sizes == FULL else FETCHED_MIB // 8
    frames: dict[str, list[bytes]] = {}
    with loads.clusters(1) as clusters:
        for cluster in clusters:
            [id] = cluster.create_topics([CreatableTopic("fetch", 1, 1)])
            filled, written = 0, 0
            while written * len(batch.data) < responses * size:
                produced = [[produce_frame(id, [0], batch, ACKS_LEADER)]]
                _, filled, _ = loads.run(cluster, produced, 1, AHEAD, seconds=0.2)
                written += filled
            step = batch.records * size // len(batch.data)
            frames[cluster.kind] = [
                fetch_frame(id, number * step, size) for number in range(responses)
            ]

        def measure(server: Loaded) -> RoundOfLoad:
            measured, _, received = loads.run(server, [frames[server.kind]], 1, FETCH_AHEAD)
            if received < size:
                raise RuntimeError(f"{server.kind} answered with {received} bytes, not {size}")
            return measured

        frames["sendfile"] = frames["kraft"]
        with loads.floor(size, responses, len(frames["kraft"][0])) as floor:
            servers: list[Loaded] = [*clusters, floor]
            with loads.apart(servers):
                loads.in_turns("broker_fetch", servers, measure, unit="responses", size=size)


@pytest.mark.peer
@pytest.mark.timeout(1800)
def bench_replicated(loads: Loads) -> None:
    topics = 0
    batch = batch_of(KIB, RECORD - 100)
    with loads.clusters(3) as clusters:

        def measure(cluster: BrokerCluster) -> RoundOfLoad:
            nonlocal topics
            topics += 1
            topic = f"replicated-{topics}"
            ids = [node.id for node in cluster.nodes]
            replicas = [ids[first:] + ids[:first] for first in range(len(ids))]
            led = [list(range(first, REPLICATED, len(ids))) for first in range(len(ids))]
            spread = [replicas[number % len(ids)] for number in range(REPLICATED)]
            [id] = cluster.create_topics([assigned(topic, spread)])
            frames = [
                [produce_frame(id, [partition], batch, ACKS_ALL) for partition in own]
                for own in led
            ]
            measured, responses, _ = loads.run(cluster, frames, PRODUCERS, 1)
            expect(cluster, topic, led, responses * batch.records)
            cluster.delete_topic(topic)
            return measured

        loads.in_turns(
            "broker_replicated", clusters, measure, unit="batches", size=len(batch.data),
            has_p99=True,
        )  # fmt: skip


@pytest.mark.peer
@pytest.mark.timeout(1800)
def bench_partitions(loads: Loads) -> None:
    batch = batch_of(200, 100)
    topics = 100 if loads.sizes == FULL else 10
    partitions = range(PARTITIONS_OF_TOPIC)
    frames: dict[str, list[bytes]] = {}
    # Requests to each topic so far.
    answered: dict[str, npt.NDArray[np.int64]] = {}
    with loads.clusters(1) as clusters:
        for cluster in clusters:
            ids = create_many(cluster, topics)
            frames[cluster.kind] = [produce_frame(id, partitions, batch, ACKS_LEADER) for id in ids]
            answered[cluster.kind] = np.zeros(topics, np.int64)

        def measure(cluster: BrokerCluster) -> RoundOfLoad:
            measured, responses, _ = loads.run(cluster, [frames[cluster.kind]], 1, AHEAD)
            asked = answered[cluster.kind]
            asked += np.bincount(np.arange(responses) % topics, minlength=topics)
            for number, requests in enumerate(asked):
                records = int(requests) * len(partitions) * batch.records
                expect(cluster, f"many-{number}", [partitions], records)
            return measured

        loads.in_turns(
            "broker_partitions", clusters, measure, unit="batches",
            count=len(partitions), size=len(batch.data) * len(partitions),
        )  # fmt: skip


def create_many(cluster: BrokerCluster, topics: int) -> list[Uuid]:
    """Create topics of 100 partitions; return their ids once the broker serves them."""
    made = [CreatableTopic(f"many-{number}", PARTITIONS_OF_TOPIC, 1) for number in range(topics)]
    ids: list[Uuid] = []
    for first in range(0, topics, TOPICS_OF_REQUEST):
        ids += cluster.create_topics(made[first : first + TOPICS_OF_REQUEST])
    return ids


@pytest.mark.peer
@pytest.mark.timeout(3600)
def bench_start(loads: Loads) -> None:
    is_full = loads.sizes == FULL
    topics, rounds = (150, 3) if is_full else (3, 1)
    count = topics * PARTITIONS_OF_TOPIC
    with loads.clusters(1) as clusters:
        empty = {cluster.kind: cluster.memory(cluster.nodes[0]) for cluster in clusters}
        starts: dict[str, list[tuple[float, float]]] = {cluster.kind: [] for cluster in clusters}
        for cluster in clusters:
            create_many(cluster, topics)
        for turn in range(rounds):
            for cluster in clusters[:: -1 if turn % 2 else 1]:
                starts[cluster.kind].append(cluster.restart(cluster.nodes[0]))
        for cluster in clusters:
            kind = cluster.kind
            note_starts(loads, kind, "broker_start", count, starts[kind])
            used = cluster.memory(cluster.nodes[0]) - empty[kind]
            loads.note(kind, "broker_memory", unit="partitions", count=count, bytes=used)


@pytest.mark.timeout(3600)
def bench_start_100k(loads: Loads) -> None:
    topics, rounds = (1000, 3) if loads.sizes == FULL else (10, 1)
    with loads.clusters(1, has_peer=False) as [cluster]:
        create_many(cluster, topics)
        starts = [cluster.restart(cluster.nodes[0]) for _ in range(rounds)]
        note_starts(loads, cluster.kind, "broker_start_100k", topics * PARTITIONS_OF_TOPIC, starts)


def note_starts(
    loads: Loads, kind: str, work: str, count: int, starts: Sequence[tuple[float, float]]
) -> None:
    figures = summary([seconds for seconds, _ in starts])
    cpu_s = median(cpu_s for _, cpu_s in starts)
    loads.note(kind, work, unit="partitions", count=count, cpu_s=cpu_s, **figures)
