"""What a change costs from decision to publication: one broker fenced, one partition changed.

``fence``       of a broker that holds 10,000 partitions, in clusters of different size: decide (who
                leads, who is in sync), encode the records in batches with CRC, apply them with the
                journal on, and publish: an image as of the new offset and the rows that changed
``change_one``  one PartitionChange record of another node: its batch's CRC checked, applied and
                published to a publisher that asks what changed, in clusters of different size
``snapshot_slices``  a snapshot of the largest of them with 100,000 topics' configurations, beside
                the event thread: every slice is timed, the worst is the longest stall. A broker is
                fenced between two slices, so that 10,000 rows are written as they were

The change of ``fence`` is taken back between rounds, which is not timed. Its peer:
TopicsDelta.apply alone, without deciding, encoding or replaying. Floor: the bytes of the records
copied once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks import generate
from benchmarks.bench_table import loaded
from benchmarks.conftest import Sizes
from kraft import records
from kraft._core.batch import assign_offsets
from kraft.controller import fence_broker
from kraft.image.publishing import Image, ImageDelta, ImagePublishing
from kraft.image.replay import Cluster
from kraft.image.snapshot_generation import SnapshotGeneration
from kraft.records.batches import encode_records

BROKER = 0
CONFIGURED = 100_000


def cluster_of(total: int) -> Cluster:
    path, expected = generate.make("uniform", total)
    cluster = loaded(path.read_bytes(), expected)
    cluster.table.ensure_index()
    cluster.start_journal()
    return cluster


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


def bench_fence(
    benchmark: Any, measured: Callable[..., None], sizes: Sizes, fence_total: int
) -> None:
    cluster = cluster_of(fence_total)
    start = cluster.next_offset
    leaders = cluster.table.column("leader").copy()
    last: list[Fenced] = []

    def undo() -> tuple[tuple[Cluster, int], dict[str, Any]]:
        last.clear()
        cluster.revert(start)
        return (cluster, BROKER), {}

    def work(cluster: Cluster, broker: int) -> None:
        last.append(fence(cluster, broker))

    benchmark.pedantic(work, setup=undo, rounds=sizes.rounds * 2, warmup_rounds=sizes.warmup)
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
        "fence", unit="partitions", count=generate.HELD_PER_BROKER, bytes=size, total=fence_total
    )


def changes_over(cluster: Cluster, count: int) -> list[bytearray]:
    """Batches that each change one partition, spread evenly: the ISR without its last member."""
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
    """A publisher that asks for all that changed."""

    name = "counting"

    def __init__(self) -> None:
        self.rows = 0

    def on_metadata_update(self, delta: ImageDelta, image: Image) -> None:
        if not delta.is_full:
            self.rows += len(delta.rows_changed)
            assert not delta.rows_added
            assert not delta.changes


def bench_change_one(
    benchmark: Any, measured: Callable[..., None], sizes: Sizes, change_total: int
) -> None:
    cluster = cluster_of(change_total)
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

    published = benchmark.pedantic(work, rounds=sizes.rounds, warmup_rounds=1)
    assert published == len(batches)
    grown = cluster.table.column("partition_epoch").astype(np.int64).sum() - epochs
    assert grown == len(batches) * (sizes.rounds + 1)
    measured(
        "change_one",
        unit="changes",
        count=len(batches),
        bytes=sum(map(len, batches)),
        total=change_total,
    )


def bench_snapshot_slices(benchmark: Any, measured: Callable[..., None], sizes: Sizes) -> None:
    total = sizes.fence_totals[-1]
    cluster = cluster_of(total)
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
