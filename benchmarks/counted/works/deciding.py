"""Counted works of the controller: from requests to the batches for the raft layer.

On the uniform cluster of 15 brokers, each of which holds 10,000 partitions; every decision is
applied to the uncommitted state with the journal on.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from benchmarks import generate, generate_changes
from benchmarks.checks import state_check
from benchmarks.clusters import journaled
from benchmarks.controller_driver import (
    ActiveController,
    alter_partition_body,
    brokers_alone,
    leaders_moved_off,
    left_alone,
)
from benchmarks.counted.work import PARTITIONS, Work, counted
from kraft._core.bytes.batch import assign_offsets
from kraft.controller.brokers.broker_lifecycle import fence_broker
from kraft.controller.runtime import requests
from kraft.controller.topics.elections import ElectionType
from kraft.controller.topics.isr_changes import EncodedAlterPartition
from kraft.controller.topics.topic_creation import NewTopic
from kraft.image.publishing import Image, ImageDelta, ImagePublishing
from kraft.image.replay import MetadataState
from kraft.image.snapshot_generation import SnapshotGeneration
from kraft.records import Uuid

HELD = generate.HELD_PER_BROKER


def apply(cluster: MetadataState, batches: Any) -> None:
    assign_offsets(batches, cluster.next_offset, generate.LEADER_EPOCH)
    cluster.apply(batches, verify_crc=False)


@counted
def fence() -> Work:
    """Fence a broker: decide, encode, apply, and find the rows that changed between two images."""

    def run(cluster: MetadataState) -> int:
        before = cluster.next_offset
        apply(cluster, fence_broker(cluster, 0).records.batches)
        delta = cluster.table.delta(before, cluster.next_offset)
        assert cluster.state.delta(before)
        return len(delta.rows_changed)

    def check(cluster: MetadataState, changed: int) -> None:
        assert changed == HELD
        assert (cluster.table.column("leader") != 0).all()

    return Work("partitions", HELD, lambda: journaled(PARTITIONS), run, check)


@counted
def zone() -> Work:
    """Find and fence, one by one, a third of all brokers, whose sessions expire."""
    silent = PARTITIONS * 3 // HELD // 3

    def prepare() -> ActiveController:
        active = ActiveController(journaled(PARTITIONS))
        active.silence_below(silent)
        return active

    def check(active: ActiveController, _: None) -> None:
        assert (active.cluster.table.column("leader") >= silent).all()

    return Work(
        "partitions", silent * HELD, prepare, lambda active: active.run(10 * (silent + 1)), check
    )


@counted
def alter() -> Work:
    """Decide one AlterPartition request of 10,000 partitions: from its bytes to record bytes."""

    def prepare() -> tuple[ActiveController, bytes]:
        cluster = journaled(PARTITIONS)
        third = len(cluster.state.brokers) // 3
        left_alone(cluster, (third, 2 * third))
        return ActiveController(cluster), alter_partition_body(cluster, broker=0)

    def run(given: tuple[ActiveController, bytes]) -> None:
        active, body = given
        active.submit(requests.alter_partition_encoded(EncodedAlterPartition(body, 3)))
        active.run()

    def check(given: tuple[ActiveController, bytes], _: None) -> None:
        assert len(given[0].response()) > HELD

    return Work("partitions", HELD, prepare, run, check)


@counted
def elect() -> Work:
    """Elect preferred leaders for every partition of the cluster; some leaders must change."""
    to_move = PARTITIONS * 2 // 15

    def prepare() -> ActiveController:
        cluster = journaled(PARTITIONS)
        leaders_moved_off(cluster, range(2))
        return ActiveController(cluster)

    def run(active: ActiveController) -> None:
        active.submit(requests.elect_leaders(ElectionType.PREFERRED))
        active.run()

    def check(active: ActiveController, _: None) -> None:
        assert abs(len(active.response()) - to_move) < 100
        table = active.cluster.table
        assert (table.column("leader") == table.column("replicas")[:, 0]).all()

    return Work("partitions", PARTITIONS, prepare, run, check)


def creating(topics: int, partitions: int, together: int) -> Work:
    ids = [Uuid(id.tobytes()) for id in generate.topic_ids(0, topics)]
    wanted = [NewTopic(f"topic-{n}", id, partitions, 3) for n, id in enumerate(ids)]

    def prepare() -> ActiveController:
        cluster = MetadataState(journaling=True)
        cluster.apply(brokers_alone(300))
        return ActiveController(cluster)

    def run(active: ActiveController) -> None:
        for first in range(0, topics, together):
            active.submit(requests.create_topics(wanted[first : first + together]))
            active.run()
            assert len(active.response()) == together

    def check(active: ActiveController, _: None) -> None:
        assert active.cluster.table.partition_count == topics * partitions

    return Work("partitions", topics * partitions, prepare, run, check)


@counted
def create() -> Work:
    """Create topics by one request, in one metadata transaction."""
    return creating(topics=6, partitions=8000, together=6)


@counted
def create_small() -> Work:
    return creating(topics=1000, partitions=10, together=100)


# -- the state


@counted
def revert() -> Work:
    """Revert a change to every partition, as when leadership is lost."""
    tail = generate_changes.make_changes(PARTITIONS)[0].read_bytes()

    def prepare() -> tuple[MetadataState, int, int]:
        cluster = journaled(PARTITIONS)
        before, start = state_check(cluster.table), cluster.next_offset
        cluster.apply(tail, verify_crc=False)
        return cluster, start, before

    def run(given: tuple[MetadataState, int, int]) -> None:
        given[0].revert(given[1])

    def check(given: tuple[MetadataState, int, int], _: None) -> None:
        assert state_check(given[0].table) == given[2]

    return Work("partitions", PARTITIONS, prepare, run, check)


Published = tuple[MetadataState, ImagePublishing, "Counting", list[bytearray]]


class Counting:
    """A publisher that reads all changes."""

    name = "counting"

    def __init__(self) -> None:
        self.rows = 0

    def on_metadata_update(self, delta: ImageDelta, image: Image) -> None:
        if not delta.is_full:
            self.rows += len(delta.rows_changed)
            assert not delta.changes


def changes_over(cluster: MetadataState, count: int) -> list[bytearray]:
    """Return batches that each change one partition: the ISR loses its last member."""
    table, made = cluster.table, []
    for row in range(0, table.row_count, table.row_count // count):
        isr = table.state_of(row)["isr"][:2]
        value = b"\x01\x05\x02" + struct.pack(">i", int(table.column("partition")[row]))
        value += table.topic_id_of(int(table.column("topic")[row]))
        value += b"\x01\x00\x09\x03" + struct.pack(">ii", *isr)
        made.append(bytearray(generate.small_batch(0, [generate.record(0, None, value)])))
    return made


@counted
def change_one() -> Work:
    """Check the CRC of changes to one partition each, apply them, and publish them one by one."""

    def prepare() -> Published:
        cluster = journaled(PARTITIONS)
        publishing, counting = ImagePublishing(cluster), Counting()
        publishing.register(counting)
        publishing.publish(cluster.next_offset)
        return cluster, publishing, counting, changes_over(cluster, 500)

    def run(given: Published) -> None:
        cluster, publishing, _, batches = given
        for batch in batches:
            assign_offsets(batch, cluster.next_offset, generate.LEADER_EPOCH)
            cluster.apply(batch)
            publishing.note_batches(batch)
            publishing.publish(cluster.next_offset)

    def check(given: Published, _: None) -> None:
        assert given[2].rows == 500

    return Work("changes", 500, prepare, run, check)


@counted
def snapshot_slices() -> Work:
    """Make a snapshot of an image, slice by slice."""

    def prepare() -> SnapshotGeneration:
        cluster = journaled(PARTITIONS)
        publishing = ImagePublishing(cluster)
        publishing.publish(cluster.next_offset)
        assert publishing.image is not None
        return SnapshotGeneration(publishing.image, timestamp_ms=0)

    def run(generation: SnapshotGeneration) -> int:
        slices: Callable[[], Any] = generation.next_slice
        return sum(sum(map(len, pieces)) for pieces in iter(slices, None))

    def check(_: SnapshotGeneration, size: int) -> None:
        assert size > generate.make("uniform", PARTITIONS)[1].partition_record_bytes

    return Work("partitions", PARTITIONS, prepare, run, check)
