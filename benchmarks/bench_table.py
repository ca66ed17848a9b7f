"""The partition table: its memory, and reverting uncommitted changes.

``revert``           revert a change to each partition, as when leadership is lost; compared with
                     ``revert_apply``, which applies the same records with the journal on
``revert_created``   revert as many partitions in topics of 100; compared with
                     ``revert_created_apply``
``memory_columns``, ``memory_all``  bytes per partition: columns, and everything that grows with
                                    them

One thread, all bytes in memory; the garbage collector as in a node. Physical floor: the bytes of
the records copied once. Peers: none that can revert in place (Kafka keeps copies of its images);
for memory, the heap of a ``TopicsImage`` (`bench_peers`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks import generate, generate_changes
from benchmarks.checks import assert_holds, state_check
from benchmarks.clusters import decoded, journaled
from benchmarks.conftest import Sizes
from benchmarks.controller_driver import brokers_alone, chunks_of, collected_as_in_a_node
from kraft._core.bytes.batch import assign_offsets
from kraft._core.decide.placement import JavaRandom, StripedPlacer
from kraft.controller.topics.topic_creation import NewTopic, create_topics
from kraft.image.replay import MetadataState
from kraft.records import Uuid

Figure = Callable[..., None]
COLUMNS = (
    *("topic", "partition", "leader", "leader_epoch", "partition_epoch", "leader_recovery_state"),
    *("replicas", "directories", "isr", "elr", "last_known_elr"),
)


def applying(cluster: MetadataState, batches: list[bytes]) -> Callable[[], None]:
    def work() -> None:
        for part in batches:
            cluster.apply(part, verify_crc=False)

    return work


def measure(
    benchmark: Any,
    sizes: Sizes,
    cluster: MetadataState,
    batches: list[bytes],
    is_reverted: bool,
) -> None:
    """Time either the apply of the batches or their revert; the other one is the set-up."""
    start, apply = cluster.next_offset, applying(cluster, batches)

    def revert() -> None:
        cluster.revert(start)

    apply()
    work, undo = (revert, apply) if is_reverted else (apply, revert)
    if is_reverted:
        revert()

    def prepare() -> tuple[tuple[()], dict[str, Any]]:
        undo()
        return (), {}

    with collected_as_in_a_node():
        benchmark.pedantic(
            work, setup=prepare, rounds=sizes.slow_rounds, warmup_rounds=sizes.slow_warmup
        )


@pytest.mark.parametrize("is_reverted", [False, True])
def bench_revert(
    benchmark: Any, measured: Figure, sizes: Sizes, partitions: int, is_reverted: bool
) -> None:
    tail, expected = generate_changes.make_changes(partitions)
    cluster = journaled(partitions)
    before = state_check(cluster.table)
    raw = tail.read_bytes()
    measure(benchmark, sizes, cluster, [raw], is_reverted)
    if is_reverted:
        assert state_check(cluster.table) == before
    else:
        assert_holds(cluster.table, expected)
    name = "revert" if is_reverted else "revert_apply"
    measured(name, unit="partitions", count=expected.records, bytes=len(raw), total=partitions)


@pytest.mark.parametrize("is_reverted", [False, True])
def bench_revert_created(
    benchmark: Any, measured: Figure, sizes: Sizes, partitions: int, is_reverted: bool
) -> None:
    cluster = MetadataState(journaling=True)
    cluster.apply(brokers_alone(300))
    topics = [
        NewTopic(generate.topic_name(number), Uuid(id.tobytes()), 100, 3)
        for number, id in enumerate(generate.topic_ids(0, partitions // 100))
    ]
    offset, batches = cluster.next_offset, []
    placer = StripedPlacer(JavaRandom(42))
    for piece in chunks_of(create_topics(cluster, topics, placer=placer, at_once=0)):
        if len(piece):
            offset = assign_offsets(piece.batches, offset, generate.LEADER_EPOCH)
            batches.append(bytes(piece.batches))
    measure(benchmark, sizes, cluster, batches, is_reverted)
    assert cluster.table.partition_count == (0 if is_reverted else partitions)
    name = "revert_created" if is_reverted else "revert_created_apply"
    size = sum(map(len, batches))
    measured(name, unit="partitions", count=partitions, bytes=size, total=partitions)


def test_memory_a_partition(figure: Callable[..., None], sizes: Sizes) -> None:
    """Compare the memory that the table reports with the memory that it frees, per partition."""
    count = sizes.partitions
    path, _ = generate.make("uniform", count)
    table = decoded(path.read_bytes())
    table.ensure_index()
    parts = table.memory_sizes
    columns = sum(array.nbytes for array in map(table.column, COLUMNS))
    assert parts["columns"] >= columns
    figure("memory_columns", unit="partitions", count=count, bytes=parts["columns"])
    figure("memory_all", unit="partitions", count=count, bytes=sum(parts.values()), parts=parts)
