"""A broker is fenced: what a change of ten thousand leaders costs from decision to publication.

``fence``  of a broker that holds 10,000 partitions, in clusters of different size: decide (who
           leads, who is in sync), encode the records in batches with CRC, apply them with the
           journal on, and publish: an image as of the new offset and the rows that changed

The change is taken back between rounds, which is not timed. One thread, warm. Physical floor: the
bytes of the records copied once. Peer: ``TopicsDelta.apply`` alone, without deciding, encoding or
replaying. Elections by the controller's own requests are in `bench_controller`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from benchmarks import generate
from benchmarks.clusters import journaled
from benchmarks.conftest import Sizes
from kraft._core.batch import assign_offsets
from kraft.controller import fence_broker
from kraft.image.replay import Cluster

BROKER = 0


class Published(NamedTuple):
    """What publishers are handed: the delta between two images, and what it names."""

    delta: Any
    rows: Any
    others: Any


class Fenced(NamedTuple):
    """One fencing: how many records of how many bytes, and what was published."""

    record_count: int
    size: int
    published: Published


def publish(cluster: Cluster, since_offset: int) -> Published:
    delta = cluster.table.delta(since_offset, cluster.next_offset)
    return Published(delta, delta.rows_changed, cluster.state.delta(since_offset))


def fence(cluster: Cluster, broker: int) -> Fenced:
    before = cluster.next_offset
    records = fence_broker(cluster, broker).records
    assign_offsets(records.batches, before, generate.LEADER_EPOCH)
    cluster.apply(records.batches, verify_crc=False)
    return Fenced(len(records), len(records.batches), publish(cluster, before))


@pytest.mark.partitions(100_000, 1_000_000, 2_000_000)
def bench_fence(
    benchmark: Any, measured: Callable[..., None], sizes: Sizes, partitions: int
) -> None:
    cluster = journaled(partitions)
    start = cluster.next_offset
    leaders = cluster.table.column("leader").copy()
    last: list[Fenced] = []

    def undo() -> tuple[tuple[Cluster, int], dict[str, Any]]:
        last.clear()
        cluster.revert(start)
        return (cluster, BROKER), {}

    def work(cluster: Cluster, broker: int) -> None:
        last.append(fence(cluster, broker))

    benchmark.pedantic(
        work, setup=undo, rounds=sizes.rounds_at(partitions), warmup_rounds=sizes.warmup
    )
    fenced = last[0]
    assert fenced.record_count == generate.HELD_PER_BROKER + 1
    assert len(fenced.published.rows) == generate.HELD_PER_BROKER
    assert fenced.published.others
    assert (cluster.table.column("leader") != BROKER).all()
    changed = np.flatnonzero(cluster.table.column("leader") != leaders)
    assert len(changed) == (leaders == BROKER).sum()
    size = fenced.size
    del fenced
    undo()
    assert np.array_equal(cluster.table.column("leader"), leaders)
    measured(
        "fence", unit="partitions", count=generate.HELD_PER_BROKER, bytes=size, total=partitions
    )
