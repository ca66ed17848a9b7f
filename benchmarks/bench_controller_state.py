"""The controller's state as such: taking back what was not committed, and the memory of it all.

``revert``           a change to each of a million partitions is taken back, as when leadership is
                     lost; beside it ``revert_apply``, the same records taking effect with the
                     journal on
``revert_created``   a million partitions in topics of 100 are taken back; beside it
                     ``revert_created_apply``
``controller_memory``  everything that an active controller of a cluster of the largest size keeps,
                     by the growth of a process's resident memory; the peer's heap after collections
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import generate, generate_changes
from benchmarks.bench_peers import run
from benchmarks.checks import assert_holds, state_check
from benchmarks.conftest import Sizes
from benchmarks.controller_driver import brokers_alone, cluster_of, collected_as_in_a_node
from benchmarks.java_peers import Peers
from kraft._core.batch import assign_offsets
from kraft._core.placement import JavaRandom, StripedPlacer
from kraft.controller import NewTopic, create_topics_in_pieces
from kraft.image.replay import Cluster
from kraft.records import Uuid

Figure = Callable[..., None]


def applying(cluster: Cluster, batches: list[bytes]) -> Callable[[], None]:
    def work() -> None:
        for part in batches:
            cluster.apply(part, verify_crc=False)

    return work


def measure(
    benchmark: Any,
    sizes: Sizes,
    cluster: Cluster,
    batches: list[bytes],
    is_reverted: bool,
) -> None:
    """Times either the apply of the batches or their revert; the other one is the set-up."""
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

    rounds = max(3, sizes.rounds // 2)
    with collected_as_in_a_node():
        benchmark.pedantic(work, setup=prepare, rounds=rounds, warmup_rounds=sizes.warmup)


@pytest.mark.parametrize("is_reverted", [False, True])
def bench_revert(benchmark: Any, measured: Figure, sizes: Sizes, is_reverted: bool) -> None:
    tail, expected = generate_changes.make_changes(sizes.partitions)
    cluster = cluster_of(sizes.partitions)
    before = state_check(cluster.table)
    raw = tail.read_bytes()
    measure(benchmark, sizes, cluster, [raw], is_reverted)
    if is_reverted:
        assert state_check(cluster.table) == before
    else:
        assert_holds(cluster.table, expected)
    name = "revert" if is_reverted else "revert_apply"
    measured(name, unit="partitions", count=expected.records, bytes=len(raw))


@pytest.mark.parametrize("is_reverted", [False, True])
def bench_revert_created(benchmark: Any, measured: Figure, sizes: Sizes, is_reverted: bool) -> None:
    cluster = Cluster(journaling=True)
    cluster.apply(brokers_alone(300))
    topics = [
        NewTopic(generate.topic_name(number), Uuid(id.tobytes()), 100, 3)
        for number, id in enumerate(generate.topic_ids(0, sizes.partitions // 100))
    ]
    offset, batches = cluster.next_offset, []
    for piece in create_topics_in_pieces(cluster, topics, placer=StripedPlacer(JavaRandom(42))):
        if len(piece):
            offset = assign_offsets(piece.batches, offset, generate.LEADER_EPOCH)
            batches.append(bytes(piece.batches))
    measure(benchmark, sizes, cluster, batches, is_reverted)
    assert cluster.table.partition_count == (0 if is_reverted else sizes.partitions)
    name = "revert_created" if is_reverted else "revert_created_apply"
    measured(name, unit="partitions", count=sizes.partitions, bytes=sum(map(len, batches)))


def test_memory_of_the_controller(figure: Figure, sizes: Sizes, peers: Peers) -> None:
    count = sizes.fence_totals[-1]
    path, expected = generate.make("uniform", count)
    result = subprocess.run(
        [sys.executable, "-m", "benchmarks.controller_memory", str(path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).resolve().parents[1],
    )
    held = json.loads(result.stdout)
    assert held["partitions"] == expected.partitions
    assert held["bytes"] > sum(held["table"].values()) / 2
    figure("controller_memory", unit="partitions", count=count, bytes=held["bytes"])
    line = run(peers, "controller-heap", sizes, file=path, count=count)["controller_heap"]
    assert line["bytes"] > 0
