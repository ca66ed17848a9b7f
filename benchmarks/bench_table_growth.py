"""Growth of a cluster's state: the longest time to apply one chunk of it.

``grow_partitions_longest``  two topics of as many partitions as in the other benchmarks, in chunks
                             of 10,000 records, on an empty table
``grow_topics_longest``      200,000 small topics at a million partitions, likewise
``grow_scattered_longest``   partitions added to those topics, far from their topic's rows
``index_longest``            the index from brokers to all these rows, a slice at a time

All with a journal, as a controller applies its decisions. No other event can run meanwhile, so the
longest time counts, not the sum.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from time import perf_counter

from benchmarks import generate
from benchmarks.conftest import Sizes
from benchmarks.controller_driver import chunks_of
from benchmarks.timings import summary
from kraft._core.bytes.batch import assign_offsets
from kraft._core.decide.placement import JavaRandom, StripedPlacer
from kraft.controller.decision import Records
from kraft.controller.runtime.periodic import PARTITIONS_INDEXED_AT_ONCE
from kraft.controller.topics.partition_creation import NewPartitions, create_partitions
from kraft.controller.topics.topic_creation import NewTopic, create_topics
from kraft.image.replay import MetadataState
from kraft.records import Uuid

BROKERS = 300


def empty_cluster() -> MetadataState:
    values = generate.prefix_values(BROKERS)
    batch = [generate.record(index, None, value) for index, value in enumerate(values)]
    cluster = MetadataState(journaling=True)
    cluster.apply(generate.small_batch(0, batch))
    return cluster


def seconds_of_pieces(cluster: MetadataState, pieces: Iterable[Records]) -> list[float]:
    """Return the seconds that each chunk takes to apply; then commit everything."""
    seconds = []
    for records in pieces:
        if len(records):
            assign_offsets(records.batches, cluster.next_offset, generate.LEADER_EPOCH)
            begin = perf_counter()
            cluster.apply(records.batches, verify_crc=False)
            seconds.append(perf_counter() - begin)
    cluster.forget(cluster.next_offset)
    return seconds


def test_longest_piece_of_large_topics(figure: Callable[..., None], sizes: Sizes) -> None:
    cluster, placer = empty_cluster(), StripedPlacer(JavaRandom(1))
    seconds = []
    for name in ("first", "second"):
        topics = [NewTopic(name, Uuid(os.urandom(16)), sizes.partitions, 3)]
        pieces = chunks_of(create_topics(cluster, topics, placer=placer))
        seconds += seconds_of_pieces(cluster, pieces)
    assert cluster.table.partition_count == 2 * sizes.partitions
    figure("grow_partitions_longest", unit="events", count=1, **summary(seconds))
    seconds = []
    while not cluster.table.is_indexed:
        begin = perf_counter()
        cluster.table.ensure_index(PARTITIONS_INDEXED_AT_ONCE)
        seconds.append(perf_counter() - begin)
    assert len(cluster.table.broker_rows(0)) > 0
    figure("index_longest", unit="events", count=1, **summary(seconds))


def test_longest_piece_of_many_topics(figure: Callable[..., None], sizes: Sizes) -> None:
    cluster, placer = empty_cluster(), StripedPlacer(JavaRandom(1))
    names = [f"topic-{number:06}" for number in range(sizes.partitions // 5)]
    topics = [NewTopic(name, Uuid(os.urandom(16)), 5, 3) for name in names]
    pieces = chunks_of(create_topics(cluster, topics, placer=placer))
    figure(
        "grow_topics_longest", unit="events", count=1, **summary(seconds_of_pieces(cluster, pieces))
    )
    wider = [NewPartitions(name, 10) for name in names]
    pieces_of_wider = chunks_of(create_partitions(cluster, wider, placer=placer))
    seconds = seconds_of_pieces(cluster, pieces_of_wider)
    assert cluster.table.partition_count == 10 * len(names)
    figure("grow_scattered_longest", unit="events", count=1, **summary(seconds))
