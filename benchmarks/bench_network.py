"""Controllers over the network: three processes of kraft beside three of Apache Kafka.

The same load program (`network_clients`, `network_work`) does the same work with both, one after
the other, by Kafka's protocol over loopback: the same settings, warm-up and rounds, all disks in
one directory. 300 light brokers send heartbeats every two seconds meanwhile. CPU seconds are those
of the three controllers.

``network_create``        by kraft a million partitions in one request, by Kafka 96,000 in requests
                          of 8,000, eight in flight; until the response, when all is committed
``network_bare_writers``  three processes write and sync as many bytes as the three logs grew by,
                          before each creation
``network_create_heartbeats``  the brokers' heartbeats meanwhile and in the second after it, from
                          when each was due, beside the host's steal time; no broker is fenced
``network_create_small``  topics of ten partitions, one a request, 64 in flight
``network_shrink``        every leader proposes a smaller ISR for all its partitions at once
``network_outage``        a third of the brokers falls silent at once: from the first to the last
                          committed record of it
``network_memory``        the active controller at two million partitions (Kafka: one): resident; of
                          Kafka the heap after a full collection, classes and code
``network_failover``      with as many: from the log line that a node is elected until it has
                          appended the first request that changes metadata
``network_failover_answered``  the same until the response of that request
``network_cold_start``    a follower with as many, and almost 20 MB of log after its snapshot,
                          killed: from exec until all committed records are applied, and Fetch and
                          Vote answered
``network_cold_answers``  the same until it has answered Fetch and Vote
``network_cold_fresh``    the same for a node that died within seconds after a snapshot, before
                          its columns were written
``network_loopback``      64 bytes to another thread and back, the least time of a request
``network_huge_*``        ten million partitions, kraft alone; only with ``--huge`` (12 GiB of disk,
                          several minutes)

Creations, shrinks and outages are compared by the record: on two cores Kafka's controllers lose
their leader when the ISRs of a million partitions change at once (after 268 s, with 5 GiB of heap
each), and answer sooner by the record with fewer partitions. They do so too while the second
million of partitions is created.

`bench_network_brokers` has a thousand brokers, without and with mutual TLS.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import warnings
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from benchmarks.bare_writer import write_together
from benchmarks.conftest import FULL, Sizes
from benchmarks.java_peers import Line, Peers
from benchmarks.machine import own_bytes_of, steal_seconds
from benchmarks.network_quorums import KafkaQuorum, KraftQuorum, NetworkQuorum, pid_of
from benchmarks.network_work import PER_TOPIC, Loaded, LostLeaderError
from benchmarks.timings import summary
from kraft.server.local_quorum import LOOPBACK
from kraft.server.process import loop_factory
from tests.harness.kafka_jars import MissingToolError

MIB = 1 << 20
MESSAGE = 64
ROUND_TRIPS = 1000
BROKERS = 300
#: Counted rounds of works that take Kafka seconds, after one uncounted round.
ROUNDS = 3
#: Of Kafka's creations, shrinks and outages.
PEER_PARTITIONS = 12 * PER_TOPIC
#: Of Kafka's AlterPartition requests at once that lengthen its log.
PEER_CHANGES = 50_000
#: After so many the peer's rounds are given up.
MOST_LEADERS_LOST = 3
STARTS = 5
#: Of a Java controller. With 3 GiB it collects garbage for seconds at a million partitions.
HEAP = "5g"
FAILOVERS = 3
#: Below metadata.log.max.record.bytes.between.snapshots, so that no snapshot is made.
TAIL_BYTES = 19 * MIB

Note = Callable[..., None]
#: What a request ends with when Kafka's controllers lose their leader, in long collections of
#: garbage.
LEADER_LOST = (LostLeaderError, OSError, RuntimeError)


class Script:
    """What one quorum does; ``note`` takes each line."""

    def __init__(self, loaded: Loaded, sizes: Sizes, note: Note, directory: Path) -> None:
        self.loaded = loaded
        self.sizes = sizes
        self.is_full = sizes == FULL
        self._note = note
        self._directory = directory

    def note(self, work: str, values_s: list[float], **more: Any) -> None:
        load = round(os.getloadavg()[0], 1)
        self._note(
            work=work,
            load_average=load,
            **{"unit": "works", "count": 1, **more},
            **summary(values_s),
        )

    async def create_and_change(self) -> None:
        """Create partitions, change all of them, and delete them again, in rounds."""
        loaded, count = self.loaded, self.sizes.partitions
        if loaded.quorum.kind == "kafka":
            count = min(count, PEER_PARTITIONS)
        created: list[tuple[float, float]] = []
        shrunk: list[tuple[float, float, int]] = []
        lost: list[tuple[float, float, int]] = []
        bare: list[float] = []
        beats: list[float] = []
        created_bytes, stolen_s = 0, 0.0
        warmup = 1 if self.is_full else 0
        leaders_lost = 0
        while len(lost) < warmup + (ROUNDS if self.is_full else 1):
            if len(lost) == warmup:
                beats.clear()
                stolen_s = 0.0
            rate = await asyncio.to_thread(
                write_together, self._directory, 3, MIB, self.sizes.seconds
            )
            try:
                # Also what the round of a lost leader has left.
                await loaded.rack_returns()
                await loaded.delete_all()
                first_beat, before = len(loaded.brokers.heartbeats), self._log_bytes()
                stolen_before_s = steal_seconds()
                one_created = await loaded.create(count)
                created_bytes = self._log_bytes() - before
                await asyncio.sleep(1)
                one_beats = [each.taken_s for each in loaded.brokers.heartbeats[first_beat:]]
                one_stolen_s = steal_seconds() - stolen_before_s
                one_shrunk = await loaded.alter_isrs(2)
                await loaded.alter_isrs(3)
                one_lost = await loaded.lose_rack()
            except LEADER_LOST:
                leaders_lost += 1
                if loaded.quorum.kind == "kraft" or leaders_lost > MOST_LEADERS_LOST:
                    raise
                await loaded.follow_leader()
            else:
                created.append(one_created)
                bare.append(created_bytes / rate)
                beats += one_beats
                stolen_s += one_stolen_s
                shrunk.append(one_shrunk)
                lost.append(one_lost)
        await loaded.rack_returns()
        await loaded.delete_all()
        per = min(PER_TOPIC, count)
        made = count // per * per
        self.note(
            "create", [each[0] for each in created[warmup:]], unit="partitions", count=made,
            bytes=created_bytes, cpu_s=mean([each[1] for each in created[warmup:]]),
            leaders_lost=leaders_lost,
        )  # fmt: skip
        if loaded.quorum.kind == "kraft":
            self.note(
                "bare_writers", bare[warmup:], unit="partitions", count=made, bytes=created_bytes
            )
        self.note(
            "create_heartbeats", beats, unit="heartbeats", p999_s=quantile(beats, 0.999),
            missed=len(loaded.brokers.missed), steal_s=stolen_s,
        )  # fmt: skip
        for work, done in (("shrink", shrunk), ("outage", lost)):
            assert done[-1][2] >= made, (work, done)
            self.note(
                work, [each[0] for each in done[warmup:]], unit="records", count=done[-1][2],
                cpu_s=mean([each[1] for each in done[warmup:]]),
            )  # fmt: skip

    async def create_small(self) -> None:
        count = 4000 if self.is_full else 200
        await self.loaded.create_small(2 * count)
        rounds = [await self.loaded.create_small(count) for _ in range(ROUNDS)]
        taken = [each for one in rounds for each in one[2]]
        self.note(
            "create_small", [each[0] for each in rounds], unit="topics", count=count,
            cpu_s=mean([each[1] for each in rounds]),
        )  # fmt: skip
        self.note("create_small_requests", taken, unit="requests")
        await self.loaded.delete_all()

    async def at_two_million(self) -> None:
        loaded = self.loaded
        creations = 1 if loaded.quorum.kind == "kafka" else 2
        count = creations * self.sizes.partitions
        for _ in range(creations):
            await loaded.create(self.sizes.partitions)
        await asyncio.sleep(5 if self.is_full else 1)
        self._note_memory(count)
        await self.start_cold(STARTS if self.is_full else 1)
        await self.fail_over(FAILOVERS if self.is_full else 1)

    def _note_memory(self, count: int) -> None:
        quorum, leader = self.loaded.quorum, self.loaded.leader
        line: Line = {"work": "memory", "unit": "partitions", "count": count}
        if isinstance(quorum, KafkaQuorum):
            memory = quorum.memory(leader)
            line |= {"bytes": memory.heap + memory.beside_heap, "live_heap": memory.heap}
            line |= {"heap": quorum.heap}
        else:
            line["bytes"] = own_bytes_of(pid_of(leader))
        self._note(**line)

    async def start_cold(self, rounds: int, work: str = "cold") -> None:
        loaded = self.loaded
        await self._write_tail()
        behind = await loaded.bytes_behind_snapshot()
        starts = [await loaded.start_cold() for _ in range(rounds)]
        cpu_s = mean([each["cpu_s"] for each in starts])
        done = [max(each["applied_s"], each["answered_s"]) for each in starts]
        self.note(f"{work}_start", done, cpu_s=cpu_s, bytes_behind=behind)
        self.note(f"{work}_answers", [each["answered_s"] for each in starts])
        if loaded.quorum.kind == "kraft":
            fresh = [await loaded.start_cold(is_fresh=True) for _ in range(min(rounds, 3))]
            self.note(
                f"{work}_fresh", [max(each["applied_s"], each["answered_s"]) for each in fresh]
            )

    async def _write_tail(self) -> None:
        """Change ISRs until the log after the latest snapshot has almost `TAIL_BYTES`."""
        loaded, most = self.loaded, TAIL_BYTES
        if loaded.quorum.kind == "kafka":
            most = PEER_CHANGES
        for members in (2, 3, 2, 3, 2, 3):
            behind = await loaded.bytes_behind_snapshot()
            if not self.is_full or behind > TAIL_BYTES * 3 // 4:
                return
            try:
                await loaded.alter_isrs(members, min(most, (TAIL_BYTES - behind) // 60))
            except LEADER_LOST:
                if loaded.quorum.kind == "kraft":
                    raise
                await loaded.follow_leader()
                most //= 2
            await asyncio.sleep(2)

    async def fail_over(self, rounds: int, work: str = "failover") -> None:
        loaded, taken = self.loaded, []
        for _ in range(rounds):
            killed = loaded.leader
            taken.append(await loaded.fail_over())
            loaded.quorum.start_node(killed)
            await loaded.follow_leader()
            await asyncio.sleep(5 if self.is_full else 1)
        self.note(work, [each.appended_s for each in taken])
        self.note(f"{work}_answered", [each.answered_s for each in taken])
        self.note(f"{work}_from_kill", [each.from_kill_s for each in taken])

    def _log_bytes(self) -> int:
        quorum = self.loaded.quorum
        logs = (quorum.metadata_directory(node).glob("*.log") for node in quorum.nodes)
        return sum(path.stat().st_size for paths in logs for path in paths)


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def quantile(values: list[float], fraction: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * fraction))]


def run(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(work)


def quorums(
    directory: Path, heap: str, figure: Note, peers: Peers, *, prefix: str = "network"
) -> list[tuple[Callable[[], NetworkQuorum], Note]]:
    """Return both kinds of quorum, to be made one after the other, and where their lines go.

    The names of their works begin with ``prefix``.
    """

    def note_peer(**line: Any) -> None:
        peers.lines.append(line | {"work": f"{prefix}_{line['work']}"})

    def note(**line: Any) -> None:
        figure(**line | {"work": f"{prefix}_{line['work']}"})

    return [
        (lambda: KraftQuorum(directory / "kraft", {}), note),
        (lambda: KafkaQuorum(directory / "kafka", {}, heap=heap), note_peer),
    ]


def bench_loopback(benchmark: Any, measured: Callable[..., None]) -> None:
    """Send small messages to another thread and back: below this no request is answered."""
    with socket.create_server((LOOPBACK, 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    for end in (near, far):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def answer() -> None:
        while said := far.recv(MESSAGE):
            far.sendall(said)

    def ask() -> None:
        for _ in range(ROUND_TRIPS):
            near.sendall(bytes(MESSAGE))
            near.recv(MESSAGE)

    thread = threading.Thread(target=answer)
    thread.start()
    with far:
        with near:
            benchmark.pedantic(ask, rounds=10, warmup_rounds=2)
        thread.join()
    measured("network_loopback", unit="round trips", count=ROUND_TRIPS)


@pytest.mark.peer
@pytest.mark.timeout(3600)
def bench_network(figure: Note, peers: Peers, sizes: Sizes, tmp_path: Path) -> None:
    async def work(quorum: NetworkQuorum, note: Note) -> None:
        loaded = Loaded(quorum, BROKERS if sizes == FULL else 30)
        await loaded.begin()
        script = Script(loaded, sizes, note, tmp_path)
        await script.create_small()
        await script.create_and_change()
        await script.at_two_million()
        await loaded.end()

    heap = HEAP if sizes == FULL else "512m"
    for make, note in quorums(tmp_path, heap, figure, peers):
        try:
            with make() as quorum:
                run(work(quorum, note))
        except MissingToolError as missing:
            warnings.warn(f"no quorum of Kafka's: {missing}", stacklevel=1)


@pytest.mark.timeout(3600)
def test_ten_million(
    figure: Note, sizes: Sizes, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if not request.config.getoption("--huge"):
        pytest.skip("with --huge: ten million partitions take minutes and 12 GiB of disk")

    def note(**line: Any) -> None:
        figure(**line | {"work": f"network_{line['work']}"})

    async def work(quorum: NetworkQuorum) -> None:
        loaded = Loaded(quorum, BROKERS)
        await loaded.begin()
        script = Script(loaded, sizes, note, tmp_path)
        for _ in range(10):
            await loaded.create(sizes.partitions)
        await asyncio.sleep(20 if sizes == FULL else 1)
        memory = sum(own_bytes_of(pid_of(node)) for node in quorum.nodes)
        note(work="huge_memory", unit="partitions", count=10 * sizes.partitions, bytes=memory)
        await script.start_cold(3, "huge")
        await script.fail_over(FAILOVERS, "huge_failover")
        await loaded.end()

    with KraftQuorum(tmp_path / "kraft", {}) as quorum:
        run(work(quorum))
