"""Clusters of brokers of one kind, kraft's or Apache Kafka's, for the suite `broker_data`.

Both kinds run on the same files: `LocalQuorum` writes the configuration and formats the
directories. Only the program that is started differs. Kafka's has the options of its start script,
with less logging. Every node is controller and broker.
"""

from __future__ import annotations

import asyncio
import re
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.broker_processes import QUIET_LOGGERS, RESTART_S, until
from benchmarks.machine import cpu_seconds_of, own_bytes_of
from benchmarks.network_clients import LoadConnection
from benchmarks.network_quorums import compile_kraft, java_command, java_memory, pid_of, stamp_of
from kraft.errors import NONE, KraftError, error_name
from kraft.metadata.quorum_reader import read_metadata
from kraft.network.quorum_client import QuorumClient
from kraft.protocol.create_topics import (
    CREATE_TOPICS,
    CreatableAssignment,
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
from kraft.protocol.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequestData,
    ListOffsetsResponseData,
    ListOffsetsTopic,
)
from kraft.records import Uuid
from kraft.server.local_quorum import LOOPBACK, LocalNode, LocalQuorum
from tests.harness.commands import logged
from tests.harness.kafka_jars import kafka

#: Files of deleted topics do not fill the memory; retention would take turns with the load.
SETTINGS = {
    "log.segment.delete.delay.ms": "1000",
    "log.retention.check.interval.ms": "3600000",
    "offsets.topic.num.partitions": "1",
}
_TIMEOUT_MS = 120_000
#: Of ListOffsets: the end of the log.
_END = -1


class BrokerCluster:
    """``size`` nodes of one kind, each controller and broker; a context manager that kills them."""

    kind: str
    #: A pattern of the log: the broker has become RUNNING.
    running: re.Pattern[str]

    def __init__(self, directory: Path, size: int) -> None:
        self._quorum = LocalQuorum(
            directory, size, SETTINGS, brokers=size, is_combined=True, is_static=True
        )
        self.nodes: Sequence[LocalNode] = self._quorum.brokers
        controllers = [(LOOPBACK, node.port) for node in self._quorum.nodes]
        self._client = QuorumClient(controllers, timeout_s=RESTART_S, client_id="benchmark")

    def start_node(self, node: LocalNode) -> None:
        raise NotImplementedError

    def memory(self, node: LocalNode) -> int:
        """Return the bytes of the objects of a node."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            for node in self.nodes:
                self.start_node(node)
            until(self._are_unfenced, f"the brokers of {self.kind} to be unfenced")
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()

    def kill(self) -> None:
        self._client.close()
        self._quorum.kill()

    def _are_unfenced(self) -> bool:
        for node in self.nodes:
            self._check(node)
        with suppress(KraftError):
            known = read_metadata(self._client).brokers
            return all(node.id in known and not known[node.id].fenced for node in self.nodes)
        return False

    def _check(self, node: LocalNode) -> None:
        if not node.is_running:
            said = node.log_path.read_text(errors="replace")[-4000:]
            raise RuntimeError(f"broker {node.id} of {self.kind} does not run:\n{said}")

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of all nodes so far."""
        return sum(cpu_seconds_of(pid_of(node)) for node in self.nodes)

    def restart(self, node: LocalNode) -> tuple[float, float]:
        """Shut a node down in a controlled way and start it.

        Return the seconds from the start of its process until its broker is RUNNING, and the CPU
        seconds of that time.
        """
        process = node.process
        assert process is not None
        process.send_signal(signal.SIGTERM)
        process.wait(RESTART_S)
        if process.stdin is not None:
            process.stdin.close()
        logged_before = node.log_path.stat().st_size
        begin = time.time()
        self.start_node(node)

        def running_at() -> float | None:
            self._check(node)
            with node.log_path.open("rb") as log:
                log.seek(logged_before)
                text = log.read().decode(errors="replace")
            found = (line for line in text.splitlines() if self.running.search(line))
            return next(map(stamp_of, found), None)

        at = until(running_at, f"broker {node.id} of {self.kind} to run", RESTART_S)
        return at - begin, cpu_seconds_of(pid_of(node))

    # -- topics

    def create_topics(self, topics: Sequence[CreatableTopic]) -> list[Uuid]:
        """Create topics in one request; return their ids once the brokers serve them."""
        said = self._client.call(
            CREATE_TOPICS,
            CreateTopicsRequestData(list(topics), _TIMEOUT_MS),
            CreateTopicsResponseData,
            lambda response: response.topics[0].error_code,
        ).response.topics
        for made in said:
            if made.error_code != NONE:
                error = f"{error_name(made.error_code)}: {made.error_message}"
                raise RuntimeError(f"creating topic {made.name!r}: {error}")
        for topic in topics:
            until(partial(self._is_served, topic), f"topic {topic.name!r}", RESTART_S)
        return [made.topic_id for made in said]

    def _is_served(self, topic: CreatableTopic) -> bool:
        by_leader: dict[int, list[int]] = {}
        for assignment in topic.assignments:
            by_leader.setdefault(assignment.broker_ids[0], []).append(assignment.partition_index)
        if not by_leader:
            by_leader[self.nodes[0].id] = list(range(topic.num_partitions))
        nodes = {node.id: node for node in self.nodes}
        return all(
            self.end_offsets(nodes[id], topic.name, partitions) is not None
            for id, partitions in by_leader.items()
        )

    def delete_topic(self, name: str) -> None:
        code = (
            self._client.call(
                DELETE_TOPICS,
                DeleteTopicsRequestData(topics=[DeleteTopicState(name)], timeout_ms=_TIMEOUT_MS),
                DeleteTopicsResponseData,
                lambda response: response.responses[0].error_code,
            )
            .response.responses[0]
            .error_code
        )
        if code != NONE:
            raise RuntimeError(f"deleting topic {name!r}: {error_name(code)}")

    def end_offsets(
        self, node: LocalNode, topic: str, partitions: Sequence[int]
    ) -> list[int] | None:
        """Return the high watermarks of partitions that a node leads; None if it leads not all."""
        asked = [ListOffsetsPartition(partition, timestamp=_END) for partition in partitions]
        request = ListOffsetsRequestData(-1, topics=[ListOffsetsTopic(topic, asked)])

        async def ask() -> ListOffsetsResponseData:
            ranges = {LIST_OFFSETS.key: (LIST_OFFSETS.lowest, LIST_OFFSETS.highest)}
            connection = await LoadConnection.open((LOOPBACK, node.client_port or 0), ranges)
            try:
                return await connection.ask(LIST_OFFSETS, request, ListOffsetsResponseData)
            finally:
                connection.close()

        found = asyncio.run(ask()).topics[0].partitions
        if any(each.error_code != NONE for each in found):
            return None
        return [each.offset for each in sorted(found, key=lambda each: each.partition_index)]


class KraftBrokerCluster(BrokerCluster):
    """Nodes of kraft, as by ``kraft up``."""

    kind = "kraft"
    running = re.compile(r"broker \d+ is RUNNING")

    def __init__(self, directory: Path, size: int) -> None:
        compile_kraft()
        super().__init__(directory, size)

    def start_node(self, node: LocalNode) -> None:
        self._quorum.start_node(node)

    def memory(self, node: LocalNode) -> int:
        return own_bytes_of(pid_of(node))


class KafkaBrokerCluster(BrokerCluster):
    """Nodes of Apache Kafka; raises MissingToolError without Java or the jars."""

    kind = "kafka"
    running = re.compile(r"Transitioning from RECOVERY to RUNNING")

    def __init__(self, directory: Path, size: int, heap: str) -> None:
        self._jars = kafka()
        self.heap = heap
        super().__init__(directory, size)

    def start_node(self, node: LocalNode) -> None:
        node.process = logged(
            java_command(
                self._jars,
                node.config_path,
                self.heap,
                (*QUIET_LOGGERS, "org.apache.kafka.controller"),
            ),
            node.log_path,
            cwd=node.config_path.parent,
        )

    def memory(self, node: LocalNode) -> int:
        """Return the used heap after a full collection."""
        return java_memory(self._jars, pid_of(node)).heap


def assigned(name: str, replicas: Sequence[Sequence[int]]) -> CreatableTopic:
    """Return a topic whose partitions have these replicas, the leader first."""
    assignments = [CreatableAssignment(number, list(ids)) for number, ids in enumerate(replicas)]
    return CreatableTopic(name, -1, -1, assignments)
