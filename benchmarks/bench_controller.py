"""The controller's decisions beside Kafka's own control managers: decide, apply, encode.

Each work goes through ``QuorumController``, from the request to the batches that are handed to the
raft layer, and takes effect on the tip of the log with the journal on.

``controller_create``        topics of 8,000 partitions, a million in one request and one metadata
                             transaction; the peer needs a request a topic, as it refuses more than
                             10,000 records
``controller_create_small``  topics of 10 partitions, 100 in a request
``controller_fence``         the session of a broker with 10,000 partitions is over
``controller_zone``          those of a third of all brokers, found one by one
``controller_alter``         one AlterPartition request of 10,000 partitions, from its bytes to
                             those of the records (and, here, of the response)
``controller_elect``         preferred leaders for every partition of the cluster, a tenth to move;
                             the peer in requests of 50,000 partitions, as it refuses more than
                             10,000 elections
``*_longest``                the longest that any event of the same rounds held the event thread

The peer decides, replays, and writes the records' values with ``MetadataRecordSerde``, no batches
and no CRC; both sides have to write as many records, and where no ids are drawn the same values.
Between rounds, which is not timed, creations begin with a cluster without topics, whose columns
have yet to grow; everything else is taken back, on the peer's side always. The garbage collector is
set as in a node.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import generate
from benchmarks.bench_peers import rounds_of, run
from benchmarks.conftest import Sizes
from benchmarks.controller_driver import (
    Active,
    alter_partition_body,
    brokers_alone,
    cluster_of,
    collected_as_in_a_node,
    leaders_moved_off,
    left_alone,
    values_check,
)
from benchmarks.java_peers import Line, Peers
from benchmarks.timings import summary
from kraft.controller import AlterPartitions, ElectionType, NewTopic, requests
from kraft.image.replay import Cluster
from kraft.records import Uuid

BROKERS = 300
#: Partitions of whole clusters; a cluster of fewer has too few brokers for a zone.
TOTALS = (100_000, 1_000_000)
LARGE_TOPIC = 8_000
SMALL_TOPIC = 10
SMALL_TOPICS_A_REQUEST = 100
Figure = Callable[..., None]
Work = Callable[[Active], None]


class Scenario:
    """One work, timed round by round on what `again` gives; its longest events are noted."""

    def __init__(self, benchmark: Any, measured: Figure, figure: Figure, sizes: Sizes) -> None:
        self._benchmark = benchmark
        self._measured, self._figure = measured, figure
        self._sizes = sizes

    def measure(
        self,
        name: str,
        again: Callable[[], Active],
        work: Work,
        *,
        count: int,
        total: int,
        is_slow: bool = False,
    ) -> dict[str, int]:
        """Time ``count`` partitions a round; as many rounds as the peer has.

        ``is_slow``: the peer takes seconds for a round, and both sides run fewer of them.
        Returns what one more round writes, as the peer's line says it.
        """
        actives: list[Active] = []
        longest: list[float] = []

        def prepare() -> tuple[tuple[Active], dict[str, Any]]:
            longest.extend(active.longest_s for active in actives)
            # One cluster at a time.
            actives.clear()
            actives.append(again())
            return (actives[0],), {}

        rounds, warmup = rounds_of(self._sizes, is_slow)
        with collected_as_in_a_node():
            self._benchmark.pedantic(work, setup=prepare, rounds=rounds, warmup_rounds=warmup)
        size = actives[0].bytes_written
        prepare()
        self._measured(name, unit="partitions", count=count, bytes=size, total=total)
        self._figure(
            f"{name}_longest",
            unit="events",
            count=1,
            total=total,
            **summary(longest[warmup:]),
        )
        active = actives[0]
        active.written = []
        work(active)
        records, size, check = values_check(active.written)
        return {"records": records, "bytes": size, "check": check}


@pytest.fixture
def scenario(benchmark: Any, measured: Figure, figure: Figure, sizes: Sizes) -> Scenario:
    return Scenario(benchmark, measured, figure, sizes)


def assert_same(written: dict[str, int], line: Line, *, ids_differ: bool = False) -> None:
    """The peer wrote the same; where topics were made their ids are others."""
    for name in ("records", "bytes") if ids_differ else ("records", "bytes", "check"):
        assert line[name] == written[name], name


def empty() -> Active:
    """A cluster without topics. Its columns have yet to grow, as in a node that does this once."""
    cluster = Cluster(journaling=True)
    cluster.apply(brokers_alone(BROKERS))
    return Active(cluster)


def taking_back(active: Active, prepare: Work = lambda active: None) -> Callable[[], Active]:
    """The same cluster again and again."""

    def again() -> Active:
        active.take_back()
        prepare(active)
        return active

    return again


@pytest.mark.peer
@pytest.mark.partitions(*TOTALS)
def bench_create(
    scenario: Scenario, sizes: Sizes, peers: Peers, tmp_path: Path, partitions: int
) -> None:
    count = partitions // LARGE_TOPIC
    created = count * LARGE_TOPIC

    def work(active: Active) -> None:
        topics = [
            NewTopic(f"topic-{number}", Uuid(os.urandom(16)), LARGE_TOPIC, 3)
            for number in range(count)
        ]
        active.submit(requests.create(topics))
        active.run()
        assert len(active.response()) == count
        assert active.cluster.table.partition_count == created

    written = scenario.measure(
        "controller_create", empty, work, count=created, total=partitions, is_slow=True
    )
    # The first and the last record of the transaction beside topics and partitions.
    assert written["records"] == count * (LARGE_TOPIC + 1) + 2
    if partitions != sizes.partitions:
        return
    line = created_by_peer(peers, sizes, tmp_path, "controller_create", count, LARGE_TOPIC, 1)
    assert line["records"] == count * (LARGE_TOPIC + 1)


def created_by_peer(
    peers: Peers,
    sizes: Sizes,
    directory: Path,
    name: str,
    topics: int,
    partitions: int,
    together: int,
) -> Line:
    path = directory / "brokers.log"
    path.write_bytes(brokers_alone(BROKERS))
    lines = run(
        peers,
        "controller-create",
        sizes,
        file=path,
        name=name,
        topics=topics,
        partitions=partitions,
        together=together,
        is_slow=True,
    )
    return lines[name]


@pytest.mark.peer
@pytest.mark.partitions(*TOTALS)
def bench_create_small(
    scenario: Scenario, sizes: Sizes, peers: Peers, tmp_path: Path, partitions: int
) -> None:
    count = partitions // SMALL_TOPIC
    names = [
        [f"topic-{number}" for number in range(first, first + SMALL_TOPICS_A_REQUEST)]
        for first in range(0, count, SMALL_TOPICS_A_REQUEST)
    ]

    def work(active: Active) -> None:
        for request in names:
            topics = [NewTopic(name, Uuid(os.urandom(16)), SMALL_TOPIC, 3) for name in request]
            active.submit(requests.create(topics))
            active.run()
            assert len(active.response()) == len(topics)
        assert active.cluster.table.topic_count == count

    written = scenario.measure(
        "controller_create_small",
        empty,
        work,
        count=count * SMALL_TOPIC,
        total=partitions,
        is_slow=True,
    )
    if partitions != sizes.partitions:
        return
    line = created_by_peer(
        peers,
        sizes,
        tmp_path,
        "controller_create_small",
        count,
        SMALL_TOPIC,
        SMALL_TOPICS_A_REQUEST,
    )
    assert_same(written, line, ids_differ=True)


@pytest.mark.peer
@pytest.mark.partitions(*TOTALS)
def bench_fence(scenario: Scenario, sizes: Sizes, peers: Peers, partitions: int) -> None:
    fence(scenario, sizes, peers, "controller_fence", partitions, 1)


@pytest.mark.peer
@pytest.mark.partitions(*TOTALS)
def bench_zone(scenario: Scenario, sizes: Sizes, peers: Peers, partitions: int) -> None:
    _, expected = generate.make("uniform", partitions)
    silent = expected.brokers // 3
    fence(scenario, sizes, peers, "controller_zone", partitions, silent, is_slow=True)


def fence(
    scenario: Scenario,
    sizes: Sizes,
    peers: Peers,
    name: str,
    partitions: int,
    silent: int,
    is_slow: bool = False,
) -> None:
    held = generate.HELD_PER_BROKER
    # A broker's turn comes 10 ms after that of the one before.
    for_ms = 10 * (silent + 1)

    def work(active: Active) -> None:
        active.run(for_ms)

    def prepare(active: Active) -> None:
        active.silence_below(silent)

    again = taking_back(Active(cluster_of(partitions)), prepare)
    written = scenario.measure(
        name, again, work, count=silent * held, total=partitions, is_slow=is_slow
    )
    assert written["records"] == silent * (held + 1)
    if partitions != sizes.partitions:
        return
    path, _ = generate.make("uniform", partitions)
    lines = run(
        peers,
        "controller-fence",
        sizes,
        file=path,
        name=name,
        silent=silent,
        held=held,
        is_slow=is_slow,
    )
    assert_same(written, lines[name])


@pytest.mark.peer
@pytest.mark.partitions(*TOTALS)
def bench_alter(
    scenario: Scenario, sizes: Sizes, peers: Peers, tmp_path: Path, partitions: int
) -> None:
    cluster = cluster_of(partitions)
    third = len(cluster.state.brokers) // 3
    tail, request = tmp_path / "tail.log", tmp_path / "request"
    tail.write_bytes(left_alone(cluster, (third, 2 * third)))
    body = alter_partition_body(cluster, broker=0)
    request.write_bytes(body)
    count = generate.HELD_PER_BROKER

    def work(active: Active) -> None:
        active.submit(requests.change_isrs_by(AlterPartitions(body, 3)))
        active.run()

    active = Active(cluster)
    written = scenario.measure(
        "controller_alter", taking_back(active), work, count=count, total=partitions
    )
    assert written["records"] == count
    assert len(active.response()) > 16 * cluster.table.topic_count // 100
    if partitions != sizes.partitions:
        return
    path, _ = generate.make("uniform", partitions)
    lines = run(
        peers, "controller-alter", sizes, file=path, tail=tail, request=request, count=count
    )
    assert_same(written, lines["controller_alter"])


@pytest.mark.peer
@pytest.mark.partitions(*TOTALS)
def bench_elect(
    scenario: Scenario, sizes: Sizes, peers: Peers, tmp_path: Path, partitions: int
) -> None:
    cluster = cluster_of(partitions)
    away = range(max(1, len(cluster.state.brokers) // 10))
    tail = tmp_path / "tail.log"
    tail.write_bytes(leaders_moved_off(cluster, away))
    leader, replicas = cluster.table.column("leader"), cluster.table.column("replicas")
    to_move = int((leader != replicas[:, 0]).sum())
    assert to_move == pytest.approx(partitions // 10, rel=0.5)

    def work(active: Active) -> None:
        active.submit(requests.elect(ElectionType.PREFERRED))
        active.run()

    active = Active(cluster)
    written = scenario.measure(
        "controller_elect", taking_back(active), work, count=to_move, total=partitions
    )
    assert written["records"] == to_move
    assert len(active.response()) == to_move
    if partitions != sizes.partitions:
        return
    path, _ = generate.make("uniform", partitions)
    lines = run(peers, "controller-elect", sizes, file=path, tail=tail, count=to_move)
    assert_same(written, lines["controller_elect"])
