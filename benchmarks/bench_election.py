"""A broker is fenced: the cost of changing ten thousand leaders, from decision to publication.

``fence``  of a broker with 10,000 partitions, in clusters of different size: decide leaders and
           ISRs, encode the records in batches with CRC, apply them with the journal on, and publish
           an image as of the new offset and the changed rows

The change is reverted between rounds, untimed. One thread, warm. Physical floor: the bytes of the
records copied once. Peer: ``TopicsDelta.apply`` alone, without deciding, encoding or replaying.
`bench_controller` measures elections by the controller's own requests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from benchmarks import generate
from benchmarks.clusters import journaled
from benchmarks.conftest import Sizes
from kraft._core.bytes.batch import assign_offsets
from kraft.controller.brokers.broker_lifecycle import fence_broker
from kraft.image.replay import MetadataState

BROKER = 0


class Published(NamedTuple):
    """What publishers receive: the delta between two images, and the changed rows."""

    delta: Any
    rows: Any
    others: Any


class Fenced(NamedTuple):
    """One fencing: number and bytes of its records, and the published delta."""

    record_count: int
    size: int
    published: Published


def publish(cluster: MetadataState, since_offset: int) -> Published:
    delta = cluster.table.delta(since_offset, cluster.next_offset)
    return Published(delta, delta.rows_changed, cluster.state.delta(since_offset))


def fence(cluster: MetadataState, broker: int) -> Fenced:
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

    def undo() -> tuple[tuple[MetadataState, int], dict[str, Any]]:
        last.clear()
        cluster.revert(start)
        return (cluster, BROKER), {}

    def work(cluster: MetadataState, broker: int) -> None:
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
