"""Quorums as processes: the latency of a commit at light load, and the bandwidth at full load.

``quorum_commit``      three nodes, 50 appends per second of one record of 200 B, one at a time:
                       from the append's call in the leader's process to the notice of its commit
                       there
``quorum_sync``        a bare write and fdatasync of as many bytes at the same rate, alternating
``quorum_bandwidth``   three nodes, 1 MiB batches, eight in flight; the bytes counted are those on
                       all three disks
``bare_writers``       three processes that write and sync 1 MiB blocks, alternating with the above
``kafka_*``            the same by Kafka's own controllers, raft alone (`peers/.../Quorum.java`),
                       warmed up by some thousand appends; heap and collector as in Kafka's start
                       script: G1, 1 GiB each. Both quorums run all the time and are loaded in
                       turns, so that both are measured on the same machine; the other one is idle
``single_commit``, ``single_sync``  one node; a bare write and fdatasync back to back
``single_group_commit``  one node, 16 records of 200 B always in flight: one of the groups that are
                       synced together
``single_group_sync``  bare writes and fdatasync of as many bytes as such a group has, back to back,
                       alternating with it; a sync of more bytes takes longer
``single_bandwidth``, ``single_sync_1MiB``  one node, 1 MiB batches; bare 1 MiB blocks
``quorum_catch_up``    a node without a log, from its first step until it has downloaded, checked
                       and installed the leader's snapshot of 1M partitions
``catch_up_disk``, ``catch_up_loopback``  as many bytes written and synced, or sent over loopback;
                       the slower of the two is ``catch_up_floor``. Each round writes a new file,
                       after the machine's memory was warmed up: memory that a virtual machine
                       returned to its host makes the next write four times as slow, for any writer

Linger is 0 on both sides. All processes share this machine and one disk; nodes use loopback. Not
included: clients' connections, and state machines above the log.
"""

from __future__ import annotations

import os
import shutil
import socket
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import pytest

from benchmarks import generate
from benchmarks.bare_writer import write_blocks, write_together
from benchmarks.conftest import Sizes
from benchmarks.java_peers import Line, Peers
from benchmarks.quorum_processes import ProcessQuorum, kafka_quorum, kraft_quorum
from benchmarks.timings import summary
from kraft.server.local_quorum import LOOPBACK
from tests.harness.kafka_jars import MissingToolError

MIB = 1 << 20
RECORD = 200
#: Bytes of a batch of one such record.
BATCH = RECORD + 71
PER_SECOND = 50
IN_FLIGHT = 8
#: Chunk of a download: controller.quorum.fetch.snapshot.max.bytes.
CHUNK = MIB
TURNS = 3
#: More turns, because each is short.
CATCH_UP_TURNS = 7
#: Turns of the light load, whose results vary most.
LIGHT_TURNS = 5


def paced_syncs(path: Path, count: int) -> list[float]:
    """Write and sync one batch's bytes repeatedly, at the rate of the light load."""
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
    """Return the turn with the median of the medians, and the worst of all turns.

    A figure that is timed once per turn has one value per turn.
    """
    chosen = sorted(lines, key=lambda line: line["median_s"])[len(lines) // 2]
    values = chosen.get("values_s", [line["median_s"] for line in lines])
    return chosen | {"worst_s": max(line["worst_s"] for line in lines), "values_s": values}


def light_load(
    quorums: list[ProcessQuorum], directory: Path, sizes: Sizes
) -> tuple[list[Line], list[float]]:
    """Return the commits of each quorum, and the seconds of bare syncs, in turns."""
    lines: list[list[Line]] = [[] for _ in quorums]
    syncs: list[float] = []
    count = sizes.commits // LIGHT_TURNS
    for _ in range(LIGHT_TURNS):
        syncs += paced_syncs(directory / "bare", count)
        for quorum, taken in zip(quorums, lines, strict=True):
            taken.append(quorum.latency(count, PER_SECOND, RECORD))
    return [middle(taken) for taken in lines], syncs


def full_load(
    quorums: list[ProcessQuorum], directory: Path, sizes: Sizes, nodes: int
) -> tuple[list[Line], float]:
    """Return each quorum's bytes on all disks and time; the bare writers' bytes per second."""
    lines: list[list[Line]] = [[] for _ in quorums]
    bare = []
    for _ in range(TURNS):
        bare.append(write_together(directory, nodes, MIB, sizes.seconds / TURNS))
        for quorum, taken in zip(quorums, lines, strict=True):
            taken.append(quorum.bandwidth(sizes.megabytes // TURNS, IN_FLIGHT, MIB))
    middles = map(middle, lines)
    return [line | {"bytes": line["bytes"] * nodes} for line in middles], median(bare)


@pytest.fixture
def kafka(peers: Peers, tmp_path: Path) -> Iterator[ProcessQuorum | None]:
    """Yield Kafka's quorum; None if it is not available, so that kraft's is measured alone."""
    with ExitStack() as stack:
        quorum = None
        try:
            quorum = stack.enter_context(kafka_quorum(3, tmp_path / "kafka"))
        except MissingToolError as missing:
            warnings.warn(f"no quorum of Kafka's: {missing}", stacklevel=1)
        yield quorum


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[ProcessQuorum]:
    with kraft_quorum(3, tmp_path / "quorum") as running:
        yield running


@pytest.fixture
def single(tmp_path: Path) -> Iterator[ProcessQuorum]:
    with kraft_quorum(1, tmp_path / "single") as running:
        yield running


@pytest.mark.peer
def bench_quorum(
    quorum: ProcessQuorum,
    kafka: ProcessQuorum | None,
    figure: Callable[..., None],
    peers: Peers,
    sizes: Sizes,
    tmp_path: Path,
) -> None:
    quorums = [quorum] if kafka is None else [quorum, kafka]

    def note(work: str, line: Line, *of_kafka: Line) -> None:
        figure(**line | {"work": work})
        peers.lines.extend(each | {"work": work} for each in of_kafka)

    for each in quorums:
        each.latency(sizes.quorum_warm_up, 10_000, RECORD)
    lines, syncs = light_load(quorums, tmp_path, sizes)
    note("quorum_commit", *lines)
    figure("quorum_sync", unit="syncs", count=1, bytes=RECORD, **summary(syncs))
    for each in quorums:
        each.bandwidth(sizes.megabytes // TURNS, IN_FLIGHT, MIB)
    lines, bare = full_load(quorums, tmp_path, sizes, 3)
    note("quorum_bandwidth", *lines)
    note_rate(figure, "bare_writers", bare)


def note_rate(figure: Callable[..., None], work: str, bytes_per_s: float) -> None:
    """Record a bandwidth as the blocks of one second."""
    blocks = round(bytes_per_s / MIB)
    figure(work, unit="blocks", count=blocks, bytes=blocks * MIB, **summary([1.0]))


def bench_single(
    single: ProcessQuorum, figure: Callable[..., None], sizes: Sizes, tmp_path: Path
) -> None:
    single.latency(sizes.quorum_warm_up // 4, 10_000, RECORD)
    commits, groups, syncs, group_syncs = [], [], [], []

    def sync(size: int) -> Line:
        count, seconds = write_blocks(str(tmp_path / f"bare-{size}"), size, sizes.seconds / 6)
        return {"median_s": seconds / count, "worst_s": seconds / count}

    for _ in range(TURNS):
        commits.append(single.latency(sizes.commits, 10_000, RECORD))
        syncs.append(sync(BATCH))
        line = single.commits(sizes.commits * 20, 16, RECORD)
        count = line.pop("groups")
        # Linger 0: each record is its own batch.
        size = BATCH * line["count"] // count
        line["median_s"] = line["worst_s"] = line["median_s"] / count
        groups.append(line | {"count": 1, "bytes": size, "unit": "syncs"})
        group_syncs.append(sync(size) | {"bytes": size})
    figure(**middle(commits) | {"work": "single_commit"})
    figure("single_sync", unit="syncs", count=1, bytes=RECORD, **middle(syncs))
    figure(**middle(groups) | {"work": "single_group_commit"})
    figure("single_group_sync", unit="syncs", count=1, **middle(group_syncs))
    [line], bare = full_load([single], tmp_path, sizes, 1)
    figure(**line | {"work": "single_bandwidth"})
    note_rate(figure, "single_sync_1MiB", bare)


def bench_catch_up(
    single: ProcessQuorum, figure: Callable[..., None], sizes: Sizes, tmp_path: Path
) -> None:
    source, _ = generate.make("uniform", sizes.partitions)
    size = single.snapshot(source)["bytes"]
    disk, loopback, lines = [], [], []
    floor, home = tmp_path / "floor", tmp_path / "newcomer"
    for _ in range(CATCH_UP_TURNS):
        warm_memory(tmp_path / "warm", size)
        disk.append(seconds_to_write(floor, size))
        loopback.append(seconds_to_send(size))
        floor.unlink()
        warm_memory(tmp_path / "warm", size)
        line = single.catch_up(home)
        shutil.rmtree(home)
        assert line["bytes"] == size
        lines.append(line | {"worst_s": line["median_s"]})
    figure(**middle(lines) | {"work": "quorum_catch_up"})
    for work, seconds in (("catch_up_disk", disk), ("catch_up_loopback", loopback)):
        figure(work, unit="snapshots", count=1, bytes=size, **summary(seconds))
    slower = max(disk, loopback, key=median)
    figure("catch_up_floor", unit="snapshots", count=1, bytes=size, **summary(slower))


def warm_memory(path: Path, size: int) -> None:
    """Use and free twice as many bytes of pages."""
    seconds_to_write(path, 2 * size)
    path.unlink()


def seconds_to_write(path: Path, size: int) -> float:
    """Write and sync this many bytes in chunks of a download's size; return the seconds."""
    chunk = bytes(CHUNK)
    begin = time.perf_counter()
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    for place in range(0, size, CHUNK):
        os.write(descriptor, chunk[: size - place])
    os.fdatasync(descriptor)
    seconds = time.perf_counter() - begin
    os.close(descriptor)
    return seconds


def seconds_to_send(size: int) -> float:
    """Send this many bytes over loopback, from one thread to another; return the seconds."""
    with socket.create_server((LOOPBACK, 0)) as server:
        sender = socket.create_connection(server.getsockname())
        receiver, _ = server.accept()
    chunk, buffer = bytes(CHUNK), bytearray(CHUNK)
    begin = time.perf_counter()
    with sender, receiver, ThreadPoolExecutor(1) as pool:

        def send() -> None:
            for place in range(0, size, CHUNK):
                sender.sendall(chunk[: size - place])

        sent, received = pool.submit(send), 0
        while received < size:
            received += receiver.recv_into(buffer)
        sent.result()
    return time.perf_counter() - begin
