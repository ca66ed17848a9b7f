"""The works of the suite `network`, each done by a running quorum of either kind.

A work returns its seconds, beside the CPU seconds of all three controllers. One `Loaded` quorum
does several works in turn; its light brokers send heartbeats meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.machine import cpu_seconds_of
from benchmarks.network_clients import LightBrokers, LoadConnection, in_flight
from benchmarks.network_partitions import isr_requests
from benchmarks.network_quorums import NetworkQuorum, pid_of
from kraft._core.bytes.batch import scan
from kraft.errors import NONE, NOT_CONTROLLER, UNKNOWN_TOPIC_OR_PARTITION, error_name
from kraft.metadata.facade import Metadata
from kraft.metadata.quorum_reader import read_metadata
from kraft.network.quorum_client import QuorumClient
from kraft.protocol.alter_partition import ALTER_PARTITION
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
from kraft.protocol.raft_rpcs import API_OF_REQUEST, encode_request
from kraft.raft.rpc import DescribeQuorumResponse, FetchRequest, FetchResponse, VoteRequest
from kraft.raft.voters import ReplicaKey
from kraft.server.local_quorum import LOOPBACK, LocalNode
from kraft.server.snapshot_upkeep import LEAST_SIZE

#: Partitions of a topic: Kafka rejects a request that writes more than 10,000 records.
PER_TOPIC = 8000
#: Requests that the peer has in flight while it creates the same topics.
PEER_CREATIONS = 8
SMALL_TOPIC = 10
#: Topics that one request deletes.
DELETIONS = 2000
SMALL_IN_FLIGHT = 64
TIMEOUT_MS = 120_000
#: The log has not grown for so long: the work is committed.
QUIET_S = 3.0
#: How long a snapshot may be without its columns.
COLUMNS_S = 60.0
RACK = "rack-a"


class FailOver(NamedTuple):
    """The seconds of one failover.

    The first two begin with the election of another leader, as its log line says. kraft logs it
    when a majority has granted its votes, Kafka once its quorum-state file is written too.
    """

    #: Until the new leader appended the first request that changes metadata, as its batch says.
    appended_s: float
    #: Until the response of that request, once another voter has written the records too.
    answered_s: float
    #: From the kill of the old leader until that response.
    from_kill_s: float


class Loaded:
    """A quorum with its light brokers and an administrator; used on one event loop."""

    def __init__(self, quorum: NetworkQuorum, brokers: int) -> None:
        self.quorum = quorum
        self.brokers = LightBrokers(brokers, quorum.cluster_id())
        self.leader: LocalNode = quorum.leader()
        self._topics = 0
        #: The topics that `delete_all` deletes.
        self._created: list[str] = []

    async def begin(self) -> None:
        """Register the brokers; from now on they send heartbeats."""
        await self._connect()
        self.brokers.beat()

    async def _connect(self) -> None:
        address = (LOOPBACK, self.leader.port)
        with QuorumClient([address], security=self.quorum.security) as client:
            self.ranges = client.api_versions().ranges
        tls = None if self.quorum.security is None else self.quorum.security.tls
        self._tls = tls
        await self.brokers.connect(address, self.ranges, tls)

    async def follow_leader(self) -> None:
        """Connect the brokers to the present leader, and go on with their heartbeats."""
        await self.brokers.rest()
        self.leader = await asyncio.to_thread(self.quorum.wait_for_leader)
        await self._connect()
        self.brokers.beat()

    async def end(self) -> None:
        await self.brokers.rest()
        self.brokers.close()

    async def admin(self, node: LocalNode | None = None) -> LoadConnection:
        address = (LOOPBACK, (node or self.leader).port)
        return await LoadConnection.open(address, self.ranges, self._tls)

    async def describe(self) -> DescribeQuorumResponse:
        return await asyncio.to_thread(self.quorum.describe)

    async def metadata(self) -> Metadata:
        """Return all committed metadata, read from the quorum."""

        def read() -> Metadata:
            with QuorumClient(self.quorum.addresses, timeout_s=60) as client:
                return read_metadata(client)

        return await asyncio.to_thread(read)

    # -- topics

    async def create(self, partitions: int) -> tuple[float, float]:
        """Create topics with so many partitions in all; return seconds and CPU seconds.

        By kraft in one request; by Kafka, which has no larger ones, in a request a topic.
        """
        per = min(PER_TOPIC, partitions)
        names = [f"large-{self._topics + index}" for index in range(partitions // per)]
        self._topics += len(names)
        self._created += names
        asks_at_once = self.quorum.kind == "kraft"
        requests = [names] if asks_at_once else [[name] for name in names]
        connections = [await self.admin() for _ in range(1 if asks_at_once else PEER_CREATIONS)]

        async def one(connection: LoadConnection, number: int) -> None:
            await create_topics(connection, requests[number], per)

        cpu_s, begin = self.quorum.cpu_seconds(), time.perf_counter()
        await in_flight(connections, len(requests), one)
        seconds = time.perf_counter() - begin
        cpu_s = self.quorum.cpu_seconds() - cpu_s
        for connection in connections:
            connection.close()
        return seconds, cpu_s

    async def create_small(self, count: int) -> tuple[float, float, list[float]]:
        """Create topics of ten partitions, one a request; return seconds, CPU seconds, and the
        seconds of each request.
        """
        names = [f"small-{self._topics + index}" for index in range(count)]
        self._topics += count
        self._created += names
        connections = [await self.admin() for _ in range(SMALL_IN_FLIGHT)]

        async def one(connection: LoadConnection, number: int) -> None:
            await create_topics(connection, [names[number]], SMALL_TOPIC)

        cpu_s, begin = self.quorum.cpu_seconds(), time.perf_counter()
        taken = await in_flight(connections, count, one)
        seconds = time.perf_counter() - begin
        cpu_s = self.quorum.cpu_seconds() - cpu_s
        for connection in connections:
            connection.close()
        return seconds, cpu_s, taken

    async def delete_all(self) -> None:
        """Delete all topics that `create` and `create_small` have created."""
        names = self._created
        connection = await self.admin()
        for begin in range(0, len(names), DELETIONS):
            topics = [DeleteTopicState(name) for name in names[begin : begin + DELETIONS]]
            request = DeleteTopicsRequestData(topics=topics, timeout_ms=TIMEOUT_MS)
            said = await connection.ask(DELETE_TOPICS, request, DeleteTopicsResponseData)
            for each in said.responses:
                # A creation that its leader did not finish made only some of them.
                if each.error_code != UNKNOWN_TOPIC_OR_PARTITION:
                    check(each.error_code, each.name)
        connection.close()
        self._created = []

    # -- changes of every partition

    async def alter_isrs(self, members: int, most: int | None = None) -> tuple[float, float, int]:
        """Have all leaders propose ISRs of so many members at once, for the first ``most``
        partitions; return seconds, CPU seconds, and the number of changes.
        """
        bodies = isr_requests(await self.metadata(), members, most)
        before = (await self.describe()).high_watermark
        asking = []
        for broker in self.brokers.brokers:
            if broker.id in bodies:
                asking.append((await self.admin(), bodies[broker.id]))
        assert asking[0][0].version(ALTER_PARTITION) == 3
        cpu_s, begin = self.quorum.cpu_seconds(), time.perf_counter()
        answers = await asyncio.gather(
            *(connection.send(ALTER_PARTITION, body) for connection, body in asking)
        )
        seconds = time.perf_counter() - begin
        cpu_s = self.quorum.cpu_seconds() - cpu_s
        for connection, _ in asking:
            connection.close()
        for frame, at in answers:
            check(int.from_bytes(frame[at + 4 : at + 6], "big"))
        changed = (await self.describe()).high_watermark - before
        return seconds, cpu_s, changed

    async def lose_rack(self) -> tuple[float, float, int]:
        """Let the brokers of a rack fall silent together; return the seconds from the first to
        the last committed record of the outage, CPU seconds, and the number of records.
        """
        silent = [broker for broker in self.brokers.brokers if broker.rack == RACK]
        others = [broker for broker in self.brokers.brokers if broker.rack != RACK]
        await self.brokers.rest()
        await self.brokers.burst(silent)
        for broker in silent:
            broker.is_fenced = True
        self.brokers.beat(others)
        begin_offset = last_offset = (await self.describe()).high_watermark
        cpu_s = end_cpu_s = self.quorum.cpu_seconds()
        first = last = 0.0
        while not first or time.perf_counter() - last < QUIET_S:
            offset = (await self.describe()).high_watermark
            now = time.perf_counter()
            if offset > last_offset:
                # The brokers that fall silent write nothing before the first of them is fenced.
                first, last, last_offset = first or now, now, offset
                end_cpu_s = self.quorum.cpu_seconds()
            await asyncio.sleep(0.005)
        return last - first, end_cpu_s - cpu_s, last_offset - begin_offset

    async def rack_returns(self) -> None:
        """Wait until no broker is fenced, and let all send heartbeats."""
        await self.brokers.rest()
        while any(broker.is_fenced for broker in self.brokers.brokers):
            await self.brokers.burst(self.brokers.brokers)
            await asyncio.sleep(0.2)
        self.brokers.beat()

    # -- failures of controllers

    async def fail_over(self) -> FailOver:
        """Kill the leader, and ask the other controllers to create a topic until one does."""
        quorum, old = self.quorum, self.leader
        survivors = [node for node in quorum.nodes if node is not old]
        ends = {node.id: node.log_path.stat().st_size for node in survivors}
        logs = {node.id: quorum.log_sizes(node) for node in survivors}
        self._topics += 1
        name = f"failover-{self._topics}-"
        begin = time.time()
        assert old.process is not None
        old.process.kill()
        accepted: dict[int, float] = {}
        asking = [
            asyncio.create_task(self._create_until_accepted(node, name, accepted))
            for node in survivors
        ]
        await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        quorum.kill(old)
        [(id, answered)] = list(accepted.items())[:1]
        leader = next(node for node in survivors if node.id == id)
        elected = quorum.logged_at(leader, quorum.elected, ends[id])
        appended = quorum.appended_at(leader, name, logs[id])
        return FailOver(appended - elected, answered - elected, answered - begin)

    async def _create_until_accepted(
        self, node: LocalNode, name: str, accepted: dict[int, float]
    ) -> None:
        number, connection = 0, None
        while not accepted:
            number += 1
            try:
                connection = connection or await self.admin(node)
                await create_topics(connection, [f"{name}{node.id}-{number}"], 1)
                accepted[node.id] = time.time()
            except OSError:
                connection = None
                await asyncio.sleep(0.001)
            except RefusedError:
                await asyncio.sleep(0.001)

    async def start_cold(self, *, is_fresh: bool = False) -> dict[str, float]:
        """Kill a follower as by kill -9, and start it again; return the seconds from exec on until
        its port is open, Vote and Fetch are answered, and its state is applied.

        kraft writes the columns of a snapshot some seconds after it; ``is_fresh``: the node dies
        before that.
        """
        quorum = self.quorum
        node = next(each for each in quorum.nodes if each is not self.leader)
        directory = quorum.metadata_directory(node)
        if quorum.kind == "kraft":
            await _until_columns(directory)
        quorum.kill(node)
        if is_fresh:
            for path in directory.glob("*.columns"):
                path.unlink()
        end = node.log_path.stat().st_size
        begin, begin_wall = time.perf_counter(), time.time()
        quorum.start_node(node)
        answered = await self._until_answered(node)
        applied = await asyncio.to_thread(quorum.logged_at, node, quorum.applied, end)
        return {
            "answered_s": answered - begin,
            "applied_s": applied - begin_wall,
            "cpu_s": cpu_seconds_of(pid_of(node)),
        }

    async def _until_answered(self, node: LocalNode) -> float:
        """Return the time of `time.perf_counter` at which the node has answered Fetch and Vote."""
        asked = (
            FetchRequest(None, ReplicaKey(-1), 0, 0, 0),
            VoteRequest(None, 0, ReplicaKey(99), ReplicaKey(node.id), 0, 0),
        )
        while True:
            with suppress(OSError):
                connection = await self.admin(node)
                for request in asked:
                    api = API_OF_REQUEST[type(request)]
                    await connection.send(api, encode_request(request, connection.version(api)))
                connection.close()
                return time.perf_counter()
            await asyncio.sleep(0.002)

    async def bytes_behind_snapshot(self) -> int:
        """Return the bytes of the log after the leader's latest snapshot."""
        directory = self.quorum.metadata_directory(self.leader)
        names = [path.name for path in directory.glob("*.checkpoint")]
        offset = max((int(name.split("-")[0]) for name in names), default=0)
        return await asyncio.to_thread(self._bytes_from, offset)

    def _bytes_from(self, offset: int) -> int:
        total = 0
        with QuorumClient(self.quorum.addresses, timeout_s=60) as client:
            end = client.describe_quorum()
            while True:
                asked = FetchRequest(None, ReplicaKey(-1), end.epoch, offset, end.epoch, 0, 8 << 20)
                fetched = client.ask(asked)
                assert isinstance(fetched, FetchResponse)
                records = bytes(fetched.records)  # type: ignore[arg-type]
                size, next_offset = _whole_batches(records)
                if not size:
                    return total
                total, offset = total + size, next_offset


async def _until_columns(directory: Path) -> None:
    """Wait until the latest snapshot in a metadata directory has its columns, if it is large."""
    async with asyncio.timeout(COLUMNS_S):
        while True:
            latest = max(directory.glob("*.checkpoint"), default=None)
            if latest is None or latest.stat().st_size < LEAST_SIZE:
                return
            if latest.with_suffix(".columns").exists():
                return
            await asyncio.sleep(0.1)


def _whole_batches(records: bytes) -> tuple[int, int]:
    """Return the bytes of the whole batches, and the offset after them."""
    table = scan(memoryview(records), verify_crc=False)
    if not len(table):
        return 0, -1
    size = int(table.batch_lengths.astype(np.int64).sum()) + 12 * len(table)
    return size, int(table.base_offsets[-1] + table.last_offset_deltas[-1]) + 1


class RefusedError(Exception):
    """The controller rejected a request."""


class LostLeaderError(RefusedError):
    """Another controller leads than the one that was asked."""


def check(code: int, message: str | None = None) -> None:
    """Raise RefusedError for the error code of a response."""
    if code != NONE:
        kind = LostLeaderError if code == NOT_CONTROLLER else RefusedError
        raise kind(f"{error_name(code)}: {message}" if message else error_name(code))


async def create_topics(connection: LoadConnection, names: Sequence[str], partitions: int) -> None:
    """Create topics of so many partitions, of three replicas. Raises RefusedError."""
    topics = [CreatableTopic(name, partitions, 3) for name in names]
    request = CreateTopicsRequestData(topics=topics, timeout_ms=TIMEOUT_MS)
    said = await connection.ask(CREATE_TOPICS, request, CreateTopicsResponseData)
    for topic in said.topics:
        check(topic.error_code, topic.error_message)
