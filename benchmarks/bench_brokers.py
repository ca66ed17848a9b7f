"""Apache Kafka's brokers with 45,000 replicas on kraft's controllers, and on Kafka's.

All requests go through a broker, as those of an administrator do. Both kinds of controllers do the
same works with the same three brokers, one kind after the other. All takes 25 minutes, most of it
the creation of files.

``brokers_create``       topics of 100 partitions, in requests of 30 topics one after the other:
                         from the first request until every broker has applied all of it
``brokers_files``        beside it: as many directories with the files that a broker creates for a
                         replica, written by one thread
``brokers_restart``      a broker shuts down in a controlled way and starts again: from its
                         registration until it is in every ISR
``brokers_pause``        the leader of the controllers is killed while an administrator changes a
                         configuration again and again: the longest time that a change took
``brokers_first_write``  the same: from the election of the next leader until it appends a change
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
import warnings
from collections.abc import Callable
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
from kraft.protocol.delete_topics import (
    DELETE_TOPICS,
    DeleteTopicsRequestData,
    DeleteTopicsResponseData,
    DeleteTopicState,
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
#: A broker removes the files of deleted partitions after a second.
DELETED_S = 10.0
#: Between two kills, so that the controllers have caught up and the brokers know the leader.
SETTLE_S = 3.0

#: Of the requests to a broker: the newest ones of kraft and of Kafka 4.3.1 are the same.
VERSIONS = {
    api.key: (api.lowest, api.highest)
    for api in (CREATE_TOPICS, DELETE_TOPICS, INCREMENTAL_ALTER_CONFIGS)
}

Note = Callable[..., None]


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

    async def delete(self, names: list[str]) -> None:
        topics = [DeleteTopicState(name) for name in names]
        request = DeleteTopicsRequestData(topics, timeout_ms=TIMEOUT_MS)
        said = await self._connection.ask(DELETE_TOPICS, request, DeleteTopicsResponseData)
        check("deleting topics", [each.error_code for each in said.responses])

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

    async def run(self, note: Note) -> None:
        connection = await LoadConnection.open(self._brokers.all[0].address, VERSIONS)
        administrator = Administrator(connection)
        replicas = self._topics * PARTITIONS_OF_TOPIC * COUNT
        created: list[tuple[float, float]] = []
        names: list[str] = []
        for number in range(2 if self._is_full else 1):
            if names:
                await administrator.delete(names)
                await asyncio.to_thread(self._wait_until_applied)
                await asyncio.sleep(DELETED_S)
            names = [f"round-{number}-{topic}" for topic in range(self._topics)]
            created.append(await self._create(administrator, names))
        note(
            work="create", unit="replicas", count=replicas,
            cpu_s=mean([cpu_s for _, cpu_s in created]),
            **summary([seconds for seconds, _ in created]),
        )  # fmt: skip
        kills = [
            await self._fail_over(administrator, names[0])
            for _ in range(30 if self._is_full else 1)
        ]
        note(work="pause", unit="kills", count=1, **summary([pause_s for pause_s, _ in kills]))
        note(
            work="first_write", unit="kills", count=1, **summary([write_s for _, write_s in kills])
        )
        restarted = [
            # Not the first broker, which the administrator is connected to.
            await asyncio.to_thread(self._restart, 1 + number % 2)
            for number in range(3 if self._is_full else 1)
        ]
        note(work="restart", unit="replicas", count=replicas // COUNT, **summary(restarted))

    async def _create(self, administrator: Administrator, names: list[str]) -> tuple[float, float]:
        """Create topics; return the seconds, and the CPU seconds of the controllers."""
        cpu_s, begin = self._quorum.cpu_seconds(), time.perf_counter()
        for first in range(0, len(names), TOPICS_OF_REQUEST):
            await administrator.create(names[first : first + TOPICS_OF_REQUEST])
        await asyncio.to_thread(self._wait_until_applied)
        return time.perf_counter() - begin, self._quorum.cpu_seconds() - cpu_s

    def _wait_until_applied(self) -> None:
        """Wait until every broker has applied all that is committed now."""
        self._brokers.wait_until_applied(self._quorum.describe().high_watermark - 1)

    async def _fail_over(self, administrator: Administrator, topic: str) -> tuple[float, float]:
        """Kill the leader while the administrator changes a configuration of ``topic``.

        Return the longest time of a change, and the time from the election to its first append.
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

        await change_for(BESIDE_KILL_S)
        quorum.kill(killed)
        # Nothing is appended before the election, which takes over a second.
        logs = {node.id: quorum.log_sizes(node) for node in survivors}
        taken.clear()
        await change_for(BESIDE_KILL_S)
        leader = await asyncio.to_thread(quorum.leader)
        elected = quorum.logged_at(leader, quorum.elected, ends[leader.id])
        appended = quorum.appended_at(leader, VALUE_PREFIX, logs[leader.id])
        quorum.start_node(killed)
        await asyncio.to_thread(quorum.wait_for_leader)
        await asyncio.sleep(SETTLE_S if self._is_full else 0)
        return max(taken), appended - elected

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
            replica = tmp_path / f"topic-{number}"
            replica.mkdir()
            for name in ("log", "index", "timeindex"):
                (replica / f"00000000000000000000.{name}").touch()
            with (replica / "partition.metadata").open("wb") as file:
                file.write(bytes(48))
                file.flush()
                os.fsync(file.fileno())

    def remove() -> None:
        for replica in tmp_path.iterdir():
            shutil.rmtree(replica)

    benchmark.pedantic(create, setup=remove, rounds=3 if sizes == FULL else 1)
    # The works of the brokers, which follow, would wait for the removal of so many files.
    remove()
    os.sync()
    measured("brokers_files", unit="replicas", count=count)


@pytest.mark.peer
@pytest.mark.timeout(7200)
def bench_brokers(figure: Note, peers: Peers, sizes: Sizes, tmp_path: Path) -> None:
    # The brokers inherit it.
    raise_soft_limit()
    for make, note in quorums(tmp_path, "1g", figure, peers, prefix="brokers"):
        try:
            with make() as quorum, KafkaBrokers(quorum, tmp_path / quorum.kind) as brokers:
                run(BrokerScript(quorum, brokers, sizes).run(note))
        except MissingToolError as missing:
            warnings.warn(f"no brokers of Kafka's: {missing}", stacklevel=1)
