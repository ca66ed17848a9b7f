"""The controller's decisions and Kafka's own control managers: decide, apply, encode.

Each work goes through ``QuorumController``, from the request to the batches that are passed to the
raft layer, and is applied to the uncommitted state with the journal on.

``controller_create``        topics of 8,000 partitions, a million in one request and one metadata
                             transaction; the peer needs a request per topic, because it rejects
                             more than 10,000 records
``controller_create_small``  topics of 10 partitions, 100 per request
``controller_fence``         the session of a broker with 10,000 partitions expires
``controller_zone``          the sessions of a third of all brokers expire, found one by one
``controller_alter``         one AlterPartition request of 10,000 partitions, from its bytes to
                             those of the records (in kraft also of the response)
``controller_elect``         preferred leaders for every partition of the cluster, a tenth to move;
                             the peer in requests of 50,000 partitions, because it rejects more than
                             10,000 elections
``*_longest``                the longest time that an event of these rounds held the event thread

The peer decides, replays, and writes the records' values with ``MetadataRecordSerde``, without
batches and CRC. Both sides must write the same number of records, and the same values if no ids are
random. Between rounds, untimed, kraft starts each creation with a new cluster without topics, whose
columns are small, and reverts all other changes; the peer reverts every change. The garbage
collector is configured as in a node.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import generate
from benchmarks.bench_peers import rounds_of, run
from benchmarks.clusters import journaled
from benchmarks.conftest import Sizes
from benchmarks.controller_driver import (
    ActiveController,
    alter_partition_body,
    brokers_alone,
    collected_as_in_a_node,
    leaders_moved_off,
    left_alone,
    values_check,
)
from benchmarks.java_peers import Line, Peers
from benchmarks.timings import summary
from kraft.controller.runtime import requests
from kraft.controller.topics.elections import ElectionType
from kraft.controller.topics.isr_changes import EncodedAlterPartition
from kraft.controller.topics.topic_creation import NewTopic
from kraft.image.replay import MetadataState
from kraft.records import Uuid

BROKERS = 300
#: Partitions of whole clusters; a smaller cluster has too few brokers for a zone.
TOTALS = (100_000, 1_000_000)
LARGE_TOPIC = 8_000
SMALL_TOPIC = 10
SMALL_TOPICS_A_REQUEST = 100
Figure = Callable[..., None]
Work = Callable[[ActiveController], None]


class Scenario:
    """One work, timed per round on the result of `again`; it records the longest events."""

    def __init__(self, benchmark: Any, measured: Figure, figure: Figure, sizes: Sizes) -> None:
        self._benchmark = benchmark
        self._measured, self._figure = measured, figure
        self._sizes = sizes

    def measure(
        self,
        name: str,
        again: Callable[[], ActiveController],
        work: Work,
        *,
        count: int,
        total: int,
        is_slow: bool = False,
    ) -> dict[str, int]:
        """Time ``count`` partitions per round, with as many rounds as the peer.

        ``is_slow``: the peer takes seconds per round, and both sides run fewer rounds. Returns what
        one more round writes, in the form of the peer's line.
        """
        actives: list[ActiveController] = []
        longest: list[float] = []

        def prepare() -> tuple[tuple[ActiveController], dict[str, Any]]:
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
    """Check that the peer wrote the same; ids of created topics differ."""
    for name in ("records", "bytes") if ids_differ else ("records", "bytes", "check"):
        assert line[name] == written[name], name


def empty() -> ActiveController:
    """Return a cluster without topics, with small columns, as in a node that does this once."""
    cluster = MetadataState(journaling=True)
    cluster.apply(brokers_alone(BROKERS))
    return ActiveController(cluster)


def reverting(
    active: ActiveController, prepare: Work = lambda active: None
) -> Callable[[], ActiveController]:
    """Yield the same cluster again and again, its changes reverted."""

    def again() -> ActiveController:
        active.revert()
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

    def work(active: ActiveController) -> None:
        topics = [
            NewTopic(f"topic-{number}", Uuid(os.urandom(16)), LARGE_TOPIC, 3)
            for number in range(count)
        ]
        active.submit(requests.create_topics(topics))
        active.run()
        assert len(active.response()) == count
        assert active.cluster.table.partition_count == created

    written = scenario.measure(
        "controller_create", empty, work, count=created, total=partitions, is_slow=True
    )
    # Topics, partitions, and the first and the last record of the transaction.
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

    def work(active: ActiveController) -> None:
        for request in names:
            topics = [NewTopic(name, Uuid(os.urandom(16)), SMALL_TOPIC, 3) for name in request]
            active.submit(requests.create_topics(topics))
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
    # The session of each broker expires 10 ms after that of the previous one.
    for_ms = 10 * (silent + 1)

    def work(active: ActiveController) -> None:
        active.run(for_ms)

    def prepare(active: ActiveController) -> None:
        active.silence_below(silent)

    again = reverting(ActiveController(journaled(partitions)), prepare)
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
    cluster = journaled(partitions)
    third = len(cluster.state.brokers) // 3
    tail, request = tmp_path / "tail.log", tmp_path / "request"
    tail.write_bytes(left_alone(cluster, (third, 2 * third)))
    body = alter_partition_body(cluster, broker=0)
    request.write_bytes(body)
    count = generate.HELD_PER_BROKER

    def work(active: ActiveController) -> None:
        active.submit(requests.alter_partition_encoded(EncodedAlterPartition(body, 3)))
        active.run()

    active = ActiveController(cluster)
    written = scenario.measure(
        "controller_alter", reverting(active), work, count=count, total=partitions
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
    cluster = journaled(partitions)
    away = range(max(1, len(cluster.state.brokers) // 10))
    tail = tmp_path / "tail.log"
    tail.write_bytes(leaders_moved_off(cluster, away))
    leader, replicas = cluster.table.column("leader"), cluster.table.column("replicas")
    to_move = int((leader != replicas[:, 0]).sum())
    assert to_move == pytest.approx(partitions // 10, rel=0.5)

    def work(active: ActiveController) -> None:
        active.submit(requests.elect_leaders(ElectionType.PREFERRED))
        active.run()

    active = ActiveController(cluster)
    written = scenario.measure(
        "controller_elect", reverting(active), work, count=to_move, total=partitions
    )
    assert written["records"] == to_move
    assert len(active.response()) == to_move
    if partitions != sizes.partitions:
        return
    path, _ = generate.make("uniform", partitions)
    lines = run(peers, "controller-elect", sizes, file=path, tail=tail, count=to_move)
    assert_same(written, lines["controller_elect"])
