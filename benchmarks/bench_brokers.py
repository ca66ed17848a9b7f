"""Apache Kafka's brokers with 45,000 replicas on kraft's controllers, and on Kafka's.

All requests go through a broker, as those of an administrator do. Both kinds of controllers do the
same works with three brokers each. All takes 25 minutes, most of it the creation of files.

``brokers_create``       topics of 100 partitions, in requests of 30 topics one after the other:
                         from the first request until every broker has applied all of it; the two
                         kinds in turns, each time with new brokers
``brokers_files``        beside it: as many directories with the files that a broker creates for a
                         replica, written by one thread
``brokers_restart``      a broker shuts down in a controlled way and starts again: from its
                         registration until it is in every ISR
``brokers_pause``        the leader of the controllers is killed while an administrator changes a
                         configuration again and again: the longest time that a change took
``brokers_first_write``  the same: from the election of the next leader until it appends a change
``brokers_known_write``  the same: from the moment at which the broker knows that leader

The files of the brokers are in memory where there is room: on a disk each creation of so many files
took longer than the one before, whichever controllers asked for it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kraft
from benchmarks.bench_network import mean, quorums, run
from benchmarks.broker_processes import COUNT, RESTART_S, KafkaBrokers, until
from benchmarks.conftest import FULL, Sizes
from benchmarks.java_peers import Peers
from benchmarks.network_clients import LoadConnection
from benchmarks.network_quorums import NetworkQuorum
from benchmarks.timings import summary
from kraft.errors import NONE, error_name
from kraft.protocol.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreateTopicsRequestData,
    CreateTopicsResponseData,
)
from kraft.protocol.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    IncrementalAlterConfigsRequestData,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponseData,
    IncrementalConfig,
)
from kraft.server.descriptors import raise_soft_limit
from tests.harness.kafka_jars import MissingToolError

PARTITIONS_OF_TOPIC = 100
#: A request creates 3,000 partitions: Kafka rejects one that writes more than 10,000 records.
TOPICS_OF_REQUEST = 30
TIMEOUT_MS = 120_000
TOPIC_RESOURCE = 2
#: The begin of every value that the administrator sets, so that its batches are found in the log.
VALUE_PREFIX = "77777"
#: The administrator changes the configuration for so long before a kill, and after the recovery.
BESIDE_KILL_S = 0.5
#: Between two kills, so that the controllers have caught up and the brokers know the leader.
SETTLE_S = 3.0

#: Of the requests to a broker: the newest ones of kraft and of Kafka 4.3.1 are the same.
VERSIONS = {
    api.key: (api.lowest, api.highest) for api in (CREATE_TOPICS, INCREMENTAL_ALTER_CONFIGS)
}

Note = Callable[..., None]

#: A file system in memory, and what the files of 45,000 replicas need there.
MEMORY = Path("/dev/shm")
FREE_BYTES = 4 << 30


class Administrator:
    """Sends requests to one broker, one at a time."""

    def __init__(self, connection: LoadConnection) -> None:
        self._connection = connection
        self._value = 0

    async def create(self, names: list[str]) -> None:
        topics = [CreatableTopic(name, PARTITIONS_OF_TOPIC, COUNT) for name in names]
        request = CreateTopicsRequestData(topics, TIMEOUT_MS)
        said = await self._connection.ask(CREATE_TOPICS, request, CreateTopicsResponseData)
        check("creating topics", [each.error_code for each in said.topics])

    async def change(self, topic: str) -> float:
        """Set retention.ms of a topic to another value; return the seconds until the response."""
        self._value += 1
        value = f"{VALUE_PREFIX}{self._value:06}"
        change = IncrementalConfig("retention.ms", 0, value)
        resource = IncrementalAlterConfigsResource(TOPIC_RESOURCE, topic, [change])
        request = IncrementalAlterConfigsRequestData([resource])
        begin = time.perf_counter()
        said = await self._connection.ask(
            INCREMENTAL_ALTER_CONFIGS, request, IncrementalAlterConfigsResponseData
        )
        check("changing a configuration", [each.error_code for each in said.responses])
        return time.perf_counter() - begin


def topics_of(sizes: Sizes) -> int:
    return 150 if sizes == FULL else 3


def check(what: str, errors: list[int]) -> None:
    for error in errors:
        if error != NONE:
            raise RuntimeError(f"{what}: {error_name(error)}")


class BrokerScript:
    """What the brokers and the administrator do with one kind of controllers."""

    def __init__(self, quorum: NetworkQuorum, brokers: KafkaBrokers, sizes: Sizes) -> None:
        self._quorum = quorum
        self._brokers = brokers
        self._is_full = sizes == FULL
        self._topics = topics_of(sizes)
        self._partitions = self._topics * PARTITIONS_OF_TOPIC

    async def create_and_fail_over(
        self, created: list[tuple[float, float]], note: Note | None
    ) -> None:
        """Create the topics and append what it took; with ``note``, note that and kill leaders."""
        administrator = await self._administrator()
        created.append(await self._create(administrator))
        if note is None:
            return
        note(
            work="create", unit="replicas", count=self._partitions * COUNT,
            cpu_s=mean([cpu_s for _, cpu_s in created]),
            **summary([seconds for seconds, _ in created]),
        )  # fmt: skip
        kills = [
            await self._fail_over(administrator, "topic-0")
            for _ in range(30 if self._is_full else 1)
        ]
        for work, seconds in zip(
            ("pause", "first_write", "known_write"), zip(*kills, strict=True), strict=True
        ):
            note(work=work, unit="kills", count=1, **summary(list(seconds)))

    async def restart(self, note: Note) -> None:
        """Create the topics, and restart brokers."""
        await self._create(await self._administrator())
        restarted = [
            # Not the first broker, which the administrator is connected to.
            await asyncio.to_thread(self._restart, 1 + number % 2)
            for number in range(3 if self._is_full else 1)
        ]
        note(work="restart", unit="replicas", count=self._partitions, **summary(restarted))

    async def _administrator(self) -> Administrator:
        return Administrator(await LoadConnection.open(self._brokers.all[0].address, VERSIONS))

    async def _create(self, administrator: Administrator) -> tuple[float, float]:
        """Create all topics; return the seconds, and the CPU seconds of the controllers."""
        names = [f"topic-{number}" for number in range(self._topics)]
        cpu_s, begin = self._quorum.cpu_seconds(), time.perf_counter()
        for first in range(0, len(names), TOPICS_OF_REQUEST):
            await administrator.create(names[first : first + TOPICS_OF_REQUEST])
        await asyncio.to_thread(self._wait_until_applied)
        return time.perf_counter() - begin, self._quorum.cpu_seconds() - cpu_s

    def _wait_until_applied(self) -> None:
        """Wait until every broker has applied all that is committed now."""
        self._brokers.wait_until_applied(self._quorum.describe().high_watermark - 1)

    async def _fail_over(
        self, administrator: Administrator, topic: str
    ) -> tuple[float, float, float]:
        """Kill the leader while the administrator changes a configuration of ``topic``.

        Return the longest time of a change, and the times to the first append from the election and
        from when the broker knows the leader.
        """
        quorum = self._quorum
        killed = await asyncio.to_thread(quorum.leader)
        survivors = [node for node in quorum.nodes if node is not killed]
        ends = {node.id: node.log_path.stat().st_size for node in survivors}
        taken: list[float] = []

        async def change_for(seconds: float) -> None:
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                taken.append(await administrator.change(topic))

        broker = self._brokers.all[0]
        await change_for(BESIDE_KILL_S)
        logged = broker.log.stat().st_size
        quorum.kill(killed)
        # Nothing is appended before the election, which takes over a second.
        logs = {node.id: quorum.log_sizes(node) for node in survivors}
        taken.clear()
        await change_for(BESIDE_KILL_S)
        leader = await asyncio.to_thread(quorum.leader)
        elected = quorum.logged_at(leader, quorum.elected, ends[leader.id])
        appended = quorum.appended_at(leader, VALUE_PREFIX, logs[leader.id])
        known = broker.knows_leader_at(leader.port, logged)
        quorum.start_node(killed)
        await asyncio.to_thread(quorum.wait_for_leader)
        await asyncio.sleep(SETTLE_S if self._is_full else 0)
        return max(taken), appended - elected, appended - known

    def _restart(self, index: int) -> float:
        """Restart a broker; return the seconds from its registration to its last ISR."""
        broker = self._brokers.all[index]
        addresses = ",".join(f"{host}:{port}" for host, port in self._quorum.addresses)
        with kraft.follow(addresses) as live:

            def is_in_sync() -> bool:
                live.poll()
                return bool(np.all(live.partitions.isr_size() == COUNT))

            until(is_in_sync, "all ISRs", RESTART_S)
            end = broker.log.stat().st_size
            broker.stop()
            broker.start()
            registered = broker.registered_at(end)
            until(is_in_sync, f"broker {broker.id} in all ISRs", RESTART_S)
            return time.time() - registered


def bench_files(benchmark: Any, measured: Note, sizes: Sizes, tmp_path: Path) -> None:
    count = topics_of(sizes) * PARTITIONS_OF_TOPIC * COUNT

    def create() -> None:
        for number in range(count):
            replica = files / f"topic-{number}"
            replica.mkdir()
            for name in ("log", "index", "timeindex"):
                (replica / f"00000000000000000000.{name}").touch()
            with (replica / "partition.metadata").open("wb") as file:
                file.write(bytes(48))
                file.flush()
                os.fsync(file.fileno())

    def remove() -> None:
        for replica in files.iterdir():
            shutil.rmtree(replica)

    with directory_in_memory(tmp_path) as files:
        benchmark.pedantic(create, setup=remove, rounds=3 if sizes == FULL else 1)
    # The works of the brokers, which follow, would wait for the removal of so many files.
    os.sync()
    measured("brokers_files", unit="replicas", count=count)


@pytest.mark.peer
@pytest.mark.timeout(7200)
def bench_brokers(figure: Note, peers: Peers, sizes: Sizes, tmp_path: Path) -> None:
    created: dict[str, list[tuple[float, float]]] = {}
    turns = 2 if sizes == FULL else 1

    async def work(script: BrokerScript, kind: str, note: Note, is_last: bool) -> None:
        taken = created.setdefault(kind, [])
        await script.create_and_fail_over(taken, note if is_last else None)

    in_turns(turns, work, figure, peers, sizes, tmp_path)


@pytest.mark.peer
@pytest.mark.timeout(3600)
def bench_restarts(figure: Note, peers: Peers, sizes: Sizes, tmp_path: Path) -> None:
    async def work(script: BrokerScript, kind: str, note: Note, is_last: bool) -> None:
        await script.restart(note)

    in_turns(1, work, figure, peers, sizes, tmp_path)


def in_turns(
    turns: int,
    work: Callable[[BrokerScript, str, Note, bool], Awaitable[None]],
    figure: Note,
    peers: Peers,
    sizes: Sizes,
    tmp_path: Path,
) -> None:
    """Do ``work`` with both kinds of controllers in turns, each time with new brokers.

    Its last argument tells whether this is the last turn of its kind.
    """
    # The brokers inherit it.
    raise_soft_limit()
    try:
        for turn in range(turns):
            pair = quorums(tmp_path / f"turn-{turn}", "1g", figure, peers, prefix="brokers")
            for make, note in pair if turn % 2 else reversed(pair):
                with (
                    directory_in_memory(tmp_path) as files,
                    make() as quorum,
                    KafkaBrokers(quorum, files) as brokers,
                ):
                    script = BrokerScript(quorum, brokers, sizes)
                    run(work(script, quorum.kind, note, turn == turns - 1))
    except MissingToolError as missing:
        warnings.warn(f"no brokers of Kafka's: {missing}", stacklevel=1)


@contextmanager
def directory_in_memory(otherwise: Path) -> Iterator[Path]:
    """Yield a directory in memory; one below ``otherwise`` where there is no room for it."""
    has_room = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > FREE_BYTES
    with tempfile.TemporaryDirectory(dir=MEMORY if has_room else otherwise) as directory:
        yield Path(directory)
