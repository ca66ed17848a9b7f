"""Quorums as processes: what a commit costs at light load, and how much goes through.

``quorum_commit``      three nodes, 50 appends a second of one record of 200 B, one at a time: from
                       the append's call in the leader's process to the news of its commit there
``quorum_sync``        a bare write and fdatasync of as many bytes at the same pace, turn by turn
``quorum_bandwidth``   three nodes, 1 MiB batches, eight on their way at once; the bytes counted are
                       those on all three disks
``bare_writers``       three processes that write and sync 1 MiB blocks, turn by turn with the above
``kafka_*``            the same by Kafka's own controllers, raft alone (`peers/.../Quorum.java`),
                       warmed up by some thousand appends; heap and collector as in Kafka's start
                       script: G1, 1 GiB each
``single_*``           one node: the same commit; syncs a second while requests never stop; 1 MiB
                       batches

Linger is 0 on both sides. All processes share this machine and one disk; nodes talk over loopback.
Left out: clients' connections, and state machines above the log.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from benchmarks.bare_writer import write_together
from benchmarks.conftest import Sizes
from benchmarks.java_peers import Line, Peers
from benchmarks.quorum_processes import Quorum, kafka_quorum
from tests.interop.kafka_jars import MissingToolError

MIB = 1 << 20
RECORD = 200
#: A batch of one such record.
BATCH = RECORD + 71
PER_SECOND = 50
IN_FLIGHT = 8
TURNS = 3


def paced_syncs(path: Path, count: int) -> list[float]:
    """Bare writes and syncs of one batch's bytes, at the pace of the light load."""
    block, taken = bytes(BATCH), []
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    for _ in range(count):
        time.sleep(1 / PER_SECOND)
        begin = time.perf_counter()
        os.write(descriptor, block)
        os.fdatasync(descriptor)
        taken.append(time.perf_counter() - begin)
    os.close(descriptor)
    return taken


def middle(lines: list[Line]) -> Line:
    """The turn with the median of the medians; the worst of all of them."""
    chosen = sorted(lines, key=lambda line: line["median_s"])[len(lines) // 2]
    return chosen | {"worst_s": max(line["worst_s"] for line in lines)}


def light_load(quorum: Quorum, directory: Path, sizes: Sizes) -> tuple[Line, list[float]]:
    lines, syncs = [], []
    for _ in range(TURNS):
        syncs += paced_syncs(directory / "bare", sizes.commits // TURNS)
        lines.append(quorum.latency(sizes.commits // TURNS, PER_SECOND, RECORD))
    return middle(lines), syncs


def full_load(quorum: Quorum, directory: Path, sizes: Sizes, nodes: int) -> tuple[Line, float]:
    """The quorum's bytes on all disks and their time; the bare writers' bytes a second."""
    lines, bare = [], []
    for _ in range(TURNS):
        bare.append(write_together(directory, nodes, MIB, sizes.seconds / TURNS))
        lines.append(quorum.bandwidth(sizes.megabytes // TURNS, IN_FLIGHT, MIB))
    line = middle(lines)
    return line | {"bytes": line["bytes"] * nodes}, median(bare)


@pytest.fixture
def kafka(peers: Peers, tmp_path: Path) -> Iterator[Quorum]:
    try:
        with kafka_quorum(3, tmp_path) as quorum:
            yield quorum
    except MissingToolError as missing:
        pytest.skip(f"Kafka's quorum: {missing}")


def bench_kafka_quorum(kafka: Quorum, peers: Peers, sizes: Sizes, tmp_path: Path) -> None:
    kafka.latency(sizes.quorum_warm_up, 10_000, RECORD)
    line, _ = light_load(kafka, tmp_path, sizes)
    peers.lines.append(line | {"work": "quorum_commit"})
    kafka.bandwidth(sizes.megabytes // TURNS, IN_FLIGHT, MIB)
    line, _ = full_load(kafka, tmp_path, sizes, 3)
    peers.lines.append(line | {"work": "quorum_bandwidth"})
