"""Images: publish one change, and make a snapshot beside the running event thread.

``change_one``  one PartitionChange record of another node: check its batch's CRC, apply it, and
                publish it to a publisher that reads the changes, in clusters of different size
``snapshot_slices``  a snapshot of two million partitions with 100,000 topics' configurations,
                beside the event thread: every slice is timed; the worst is the longest stall. A
                broker is fenced between two slices, so that 10,000 rows need their old values

One thread, warm. Physical floor: none for one change; for a slice its bytes copied once. Peers:
Kafka's image of the same changes (`bench_codec`). Kafka makes snapshots on a separate thread, from
an image; making the image copies the changed objects.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from benchmarks import generate
from benchmarks.bench_election import BROKER, fence
from benchmarks.clusters import journaled
from benchmarks.conftest import Sizes
from benchmarks.controller_driver import collected_as_in_a_node
from kraft import records
from kraft._core.bytes.batch import assign_offsets
from kraft.image.publishing import Image, ImageDelta, ImagePublishing
from kraft.image.replay import MetadataState
from kraft.image.snapshot_generation import SnapshotGeneration
from kraft.records.batches import encode_records

CONFIGURED = 100_000


def changes_over(cluster: MetadataState, count: int) -> list[bytearray]:
    """Return batches that each change one partition, spread evenly: the ISR without its last
    member.
    """
    made = []
    for row in np.linspace(0, cluster.table.row_count - 1, count).astype(int).tolist():
        topic = cluster.table.topic_id_of(int(cluster.table.column("topic")[row]))
        partition = int(cluster.table.column("partition")[row])
        isr = cluster.table.state_of(row)["isr"][:2]
        value = b"\x01\x05\x02" + struct.pack(">i", partition) + topic
        value += b"\x01\x00\x09\x03" + struct.pack(">ii", *isr)
        made.append(bytearray(generate.small_batch(0, [generate.record(0, None, value)])))
    return made


class Counting:
    """A publisher that reads all changes."""

    name = "counting"

    def __init__(self) -> None:
        self.rows = 0

    def on_metadata_update(self, delta: ImageDelta, image: Image) -> None:
        if not delta.is_full:
            self.rows += len(delta.rows_changed)
            assert not delta.rows_added
            assert not delta.changes


@pytest.mark.partitions(10_000, 100_000, 1_000_000, 10_000_000)
def bench_change_one(
    benchmark: Any, measured: Callable[..., None], sizes: Sizes, partitions: int
) -> None:
    cluster = journaled(partitions)
    batches = changes_over(cluster, 1000)
    epochs = cluster.table.column("partition_epoch").astype(np.int64).sum()
    publishing, counting = ImagePublishing(cluster), Counting()
    publishing.register(counting)
    publishing.publish(cluster.next_offset)

    def work() -> int:
        counting.rows = 0
        for batch in batches:
            assign_offsets(batch, cluster.next_offset, generate.LEADER_EPOCH)
            cluster.apply(batch)
            publishing.note_batches(batch)
            publishing.publish(cluster.next_offset)
        return counting.rows

    published = benchmark.pedantic(work, rounds=sizes.rounds, warmup_rounds=sizes.warmup)
    assert published == len(batches)
    grown = cluster.table.column("partition_epoch").astype(np.int64).sum() - epochs
    assert grown == len(batches) * (sizes.rounds + sizes.warmup)
    measured(
        "change_one",
        unit="changes",
        count=len(batches),
        bytes=sum(map(len, batches)),
        total=partitions,
    )


def bench_snapshot_slices(benchmark: Any, measured: Callable[..., None], sizes: Sizes) -> None:
    total = 2 * sizes.partitions
    cluster = journaled(total)
    publishing = ImagePublishing(cluster)
    names = [cluster.table.topic_name(topic) for topic in cluster.table.topic_numbers()]
    names += [f"topic-without-partitions-{number}" for number in range(CONFIGURED - len(names))]
    configs = [records.Config(2, name, "retention.ms", "1000") for name in names[:CONFIGURED]]
    batches = encode_records(
        configs, base_offset=cluster.next_offset, epoch=generate.LEADER_EPOCH, metadata_version=30
    )
    cluster.apply(batches)
    publishing.note_batches(batches)
    publishing.publish(cluster.next_offset)
    image = publishing.image
    assert image is not None
    slices = sum(1 for _ in iter(SnapshotGeneration(image, timestamp_ms=0).next_slice, None))
    made = SnapshotGeneration(image, timestamp_ms=0)
    sizes_of_pieces: list[int] = []
    number = 0

    def between() -> None:
        nonlocal number
        number += 1
        if number == slices // 10:
            fence(cluster, BROKER)

    def work() -> None:
        sizes_of_pieces.extend(map(len, made.next_slice() or ()))

    with collected_as_in_a_node():
        benchmark.pedantic(work, setup=between, rounds=slices)
    assert made.next_slice() is None
    assert (cluster.table.column("leader") != BROKER).all()
    measured(
        "snapshot_slices",
        unit="partitions",
        count=total // slices,
        bytes=sum(sizes_of_pieces) // slices,
        total=total,
    )
