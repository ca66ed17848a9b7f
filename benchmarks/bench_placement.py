"""Placement: one topic of a million partitions, and many topics of ten, on 300 brokers in 3 racks.

Scenario: replication factor 3, every broker unfenced, cluster prepared once, the default directory
of each replica looked up during placement, as in Kafka; single thread, warm, no Python object per
partition. Physical floor: the bytes of the two int32 columns written once, that is 24 bytes per
partition over the memory's bandwidth; the draws of the shuffles, dependent multiplications, add
about 4 cycles per partition. Peer: StripedReplicaPlacer with the same seed, which must produce the
same placement. Not included on either side: records and encoding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from benchmarks.bench_peers import run
from benchmarks.conftest import Sizes
from benchmarks.java_peers import Peers
from kraft._core.decide.placement import (
    JavaRandom,
    PlacementSpec,
    StripedPlacer,
    UsableBroker,
    UsableBrokers,
    default_directories,
)

BROKERS = 300
RACKS = 3
SMALL_TOPIC = 10
CLUSTER = UsableBrokers(
    [
        UsableBroker(id, f"rack-{id % RACKS}", False, (id.to_bytes(16, "big"),))
        for id in range(BROKERS)
    ]
)


def replica_check(replicas: np.ndarray) -> int:
    """Return the peer's sum, which covers the partition, slot and broker of every replica."""
    partition_weight = np.arange(len(replicas), dtype=np.int64) % 1009 + 1
    slot_weight = np.arange(1, replicas.shape[1] + 1, dtype=np.int64)
    return int(partition_weight @ (replicas @ slot_weight))


@pytest.mark.peer
@pytest.mark.partitions(10_000, 100_000, 1_000_000, 10_000_000)
def bench_place(
    benchmark: Any, measured: Callable[..., None], sizes: Sizes, peers: Peers, partitions: int
) -> None:
    spec = PlacementSpec(0, partitions, 3)

    def work() -> np.ndarray:
        replicas = StripedPlacer(JavaRandom(42)).place(spec, CLUSTER)
        default_directories(replicas, CLUSTER)
        return replicas

    rounds = sizes.rounds_at(partitions)
    replicas = benchmark.pedantic(work, rounds=rounds, warmup_rounds=sizes.warmup)
    measured("place", unit="partitions", count=partitions, bytes=replicas.nbytes, total=partitions)
    if partitions == sizes.partitions:
        lines = run(peers, "place", sizes, partitions=partitions, brokers=BROKERS, racks=RACKS)
        assert replica_check(replicas) == lines["place"]["replica_check"]


def bench_place_small(
    benchmark: Any, measured: Callable[..., None], sizes: Sizes, partitions: int
) -> None:
    spec = PlacementSpec(0, SMALL_TOPIC, 3)

    def work() -> None:
        placer = StripedPlacer(JavaRandom(42))
        for _ in range(partitions // SMALL_TOPIC):
            default_directories(placer.place(spec, CLUSTER), CLUSTER)

    benchmark.pedantic(work, rounds=sizes.rounds, warmup_rounds=sizes.warmup)
    measured(
        "place_small",
        unit="partitions",
        count=partitions,
        bytes=12 * partitions,
        total=partitions,
    )
