"""Whole quorums on loopback for the suite `network`: kraft's controllers and Apache Kafka's.

Both kinds are three processes with the same settings, their disks in one directory tree. Kafka's
are `kafka.Kafka`, with the options of its start script, as in production. Nothing here generates
load: `network_clients` does, by the protocol, and in the same way for both kinds.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from compileall import compile_dir
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

import kraft
from benchmarks.machine import cpu_seconds_of
from benchmarks.quorum_processes import settings as static_settings
from kraft._core.bytes.batch import scan
from kraft.metadata.identifiers import random_uuid
from kraft.network.controller_connection import Address, ClientSecurity
from kraft.network.quorum_client import QuorumClient, QuorumRefusedError
from kraft.raft.rpc import DescribeQuorumResponse
from kraft.server.local_quorum import LOOPBACK, LocalNode, LocalQuorum, free_ports
from tests.harness.commands import logged
from tests.harness.kafka_jars import Jars, kafka

SIZE = 3
TIMEOUT_S = 120.0
#: No record is written while nobody asks for one, so that an end of the log means an end of work.
COMMON = {"controller.quorum.append.linger.ms": "0", "metadata.max.idle.interval.ms": "0"}
_STAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}")


class NetworkQuorum:
    """Three running controllers of one kind; a context manager that kills them at its end."""

    kind: str
    #: Patterns of the log lines of a node: a majority has elected it, and all committed records
    #: are applied.
    elected: re.Pattern[str]
    applied: re.Pattern[str]

    def __init__(self, nodes: list[LocalNode], security: ClientSecurity | None = None) -> None:
        self.nodes = nodes
        self.security = security

    def start_node(self, node: LocalNode) -> None:
        """Start a node that does not run."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            for node in self.nodes:
                self.start_node(node)
            self.wait_for_leader()
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

    def kill(self, *nodes: LocalNode) -> None:
        """Kill these nodes, all by default, and wait for their end."""
        for node in nodes or self.nodes:
            if node.process is not None:
                node.process.kill()
                node.process.wait()
                if node.process.stdin is not None:
                    node.process.stdin.close()
                node.process = None

    @property
    def addresses(self) -> list[Address]:
        return [(LOOPBACK, node.port) for node in self.nodes if node.is_running]

    def describe(self, timeout_s: float = 10.0) -> DescribeQuorumResponse:
        with QuorumClient(self.addresses, timeout_s=timeout_s, security=self.security) as client:
            return client.describe_quorum()

    def wait_for_leader(self) -> LocalNode:
        """Return the leader once all nodes listen and the leader has applied the first records."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            for node in self.nodes:
                self._check(node)
            if all(self._listens(node) for node in self.nodes if node.process is not None):
                state = self.describe(TIMEOUT_S)
                # Kafka's does not describe the cluster before it knows the metadata.version.
                with suppress(QuorumRefusedError):
                    if state.high_watermark > 0 and self.cluster_id():
                        return self.leader()
            if time.monotonic() > deadline:
                raise RuntimeError(f"no leader within {TIMEOUT_S} s")
            time.sleep(0.05)

    def leader(self) -> LocalNode:
        leader_id = self.describe().leader_id
        return next(node for node in self.nodes if node.id == leader_id)

    def cluster_id(self) -> str:
        with QuorumClient(self.addresses, security=self.security) as client:
            return client.describe_cluster().cluster_id

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of all nodes so far."""
        return sum(cpu_seconds_of(pid_of(node)) for node in self.nodes if node.process is not None)

    def metadata_directory(self, node: LocalNode) -> Path:
        raise NotImplementedError

    def log_sizes(self, node: LocalNode) -> dict[Path, int]:
        """Return the sizes of the segments of a node's metadata log."""
        segments = sorted(self.metadata_directory(node).glob("*.log"))
        return {path: path.stat().st_size for path in segments}

    def appended_at(self, node: LocalNode, name: str, before: Mapping[Path, int]) -> float:
        """Return the time (of `time.time`) of the first batch with this text in the node's log.

        ``before`` are `log_sizes` of an earlier time: only later batches are searched. Both kinds
        of leader write the time of the append into the batch, in milliseconds.
        """
        for path in self.log_sizes(node):
            with path.open("rb") as log:
                log.seek(before.get(path, 0))
                data = log.read()
            table = scan(data, verify_crc=False)
            for position, size, timestamp_ms in zip(
                table.positions.tolist(),
                table.sizes.tolist(),
                table.base_timestamps.tolist(),
                strict=True,
            ):
                if name.encode() in data[position : position + size]:
                    return float(timestamp_ms) / 1000
        raise RuntimeError(f"no batch of {self.kind} controller {node.id} has {name!r}")

    def _check(self, node: LocalNode) -> None:
        if node.process is not None and not node.is_running:
            said = node.log_path.read_text(errors="replace")[-4000:]
            raise RuntimeError(f"{self.kind} controller {node.id} ended:\n{said}")

    def _listens(self, node: LocalNode) -> bool:
        with suppress(OSError), socket.create_connection((LOOPBACK, node.port), timeout=1):
            return True
        return False

    def logged_at(
        self, node: LocalNode, pattern: re.Pattern[str], since: int, timeout_s: float = 60.0
    ) -> float:
        """Return the time (of `time.time`) of the first such line after this position of the log.

        The clock of both kinds' logs has a resolution of a millisecond.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            with node.log_path.open("rb") as log:
                log.seek(since)
                text = log.read().decode(errors="replace")
            for line in text.splitlines():
                if pattern.search(line):
                    return stamp_of(line)
            self._check(node)
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.kind} controller {node.id} did not log {pattern}")
            time.sleep(0.01)


class KraftQuorum(NetworkQuorum):
    """Three nodes of kraft, as by ``kraft up``."""

    kind = "kraft"
    elected = re.compile(r"kraft\.raft: LEADER in epoch \d+")
    applied = re.compile(r"the state is up to date with the quorum")

    def __init__(
        self,
        directory: Path,
        more: Mapping[str, str],
        security: ClientSecurity | None = None,
        *,
        has_uvloop: bool = True,
    ) -> None:
        self._quorum = LocalQuorum(directory, SIZE, {**COMMON, **more}, is_static=True)
        self._has_uvloop = has_uvloop
        self._hidden = directory / "without-uvloop"
        compile_kraft()
        super().__init__(self._quorum.nodes, security)

    def start_node(self, node: LocalNode) -> None:
        if self._has_uvloop:
            self._quorum.start_node(node)
            return
        # A module of this name that cannot be imported is as if there were none.
        self._hidden.mkdir(exist_ok=True)
        (self._hidden / "uvloop.py").write_text("raise ImportError('hidden by the benchmark')\n")
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = str(self._hidden)
        try:
            self._quorum.start_node(node)
        finally:
            if before is None:
                del os.environ["PYTHONPATH"]
            else:
                os.environ["PYTHONPATH"] = before

    def metadata_directory(self, node: LocalNode) -> Path:
        return node.config_path.parent / "data" / "__cluster_metadata-0"


@dataclass(frozen=True)
class JavaMemory:
    """Bytes of a Java process after a full collection."""

    heap: int
    #: Classes and compiled code: MemoryMXBean's non-heap memory.
    beside_heap: int


def compile_kraft() -> None:
    """Write the byte code of all modules, as for an installed package.

    Where PYTHONDONTWRITEBYTECODE is set, each start of a node would compile 250 modules again, for
    a quarter of a second.
    """
    compile_dir(Path(kraft.__file__).parent, quiet=2)


class KafkaQuorum(NetworkQuorum):
    """Three of Apache Kafka's controllers; raises MissingToolError without Java or the jars."""

    kind = "kafka"
    elected = re.compile(r"Completed transition to Leader")
    applied = re.compile(r"finished catching up to the current high water mark")

    def __init__(
        self,
        directory: Path,
        more: Mapping[str, str],
        security: ClientSecurity | None = None,
        *,
        heap: str = "1g",
    ) -> None:
        self._jars: Jars = kafka()
        self.heap = heap
        ports = free_ports(SIZE)
        cluster_id = str(random_uuid())
        nodes = []
        for id, port in enumerate(ports, 1):
            home = directory / f"controller-{id}"
            home.mkdir(parents=True)
            data: dict[str, object] = {"log.dirs": home / "data", **COMMON, **more}
            path = static_settings(id, ports, home, data)
            self._jars.run("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(path))
            nodes.append(LocalNode(id, port, path, home / "controller.log"))
        super().__init__(nodes, security)

    def start_node(self, node: LocalNode) -> None:
        # At its usual level it logs a line for each partition of each record.
        command = java_command(
            self._jars, node.config_path, self.heap, ("org.apache.kafka.controller",)
        )
        node.process = logged(command, node.log_path, cwd=node.config_path.parent)

    def metadata_directory(self, node: LocalNode) -> Path:
        return node.config_path.parent / "data" / "__cluster_metadata-0"

    def memory(self, node: LocalNode) -> JavaMemory:
        """Return the memory of a node after a full collection."""
        return java_memory(self._jars, pid_of(node))


def java_command(jars: Jars, config: Path, heap: str, quiet: Sequence[str]) -> list[str]:
    """Return the command of a node of Kafka's, with the options of its start script.

    The loggers of ``quiet`` log warnings only.
    """
    jvm = (
        *(f"-Xmx{heap}", f"-Xms{heap}", "-server", "-XX:+UseG1GC"),
        *("-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"),
        *("-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxInlineLevel=15"),
        "-Djava.awt.headless=true",
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
        "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss,SSS",
        *(f"-Dorg.slf4j.simpleLogger.log.{name}=warn" for name in quiet),
    )
    command = jars.command("kafka.Kafka", config, jvm=jvm)
    setpriv = shutil.which("setpriv")
    # A killed benchmark leaves no JVM with gigabytes of heap.
    return [setpriv, "--pdeathsig", "KILL", *command] if setpriv else command


def java_memory(jars: Jars, pid: int) -> JavaMemory:
    """Return the memory of a process after a full collection, by jcmd."""
    tool = str(Path(jars.command("")[0]).with_name("jcmd"))

    def ask(*words: str) -> str:
        asked = [tool, str(pid), *words]
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout

    # A class histogram of live objects begins with a full, stop-the-world collection.
    ask("GC.class_histogram")
    info = ask("GC.heap_info")
    heap = re.search(r"total \d+K, used (\d+)K", info)
    classes = re.search(r"Metaspace\s+used (\d+)K", info)
    code = re.findall(r"size=\d+Kb used=(\d+)Kb", ask("Compiler.codecache"))
    assert heap is not None
    assert classes is not None
    beside = int(classes[1]) + sum(map(int, code))
    return JavaMemory(int(heap[1]) * 1024, beside * 1024)


def pid_of(node: LocalNode) -> int:
    assert node.process is not None, node
    return node.process.pid


def stamp_of(line: str) -> float:
    """Return the time at the begin of a line of either kind's log."""
    found = _STAMP.search(line)
    assert found is not None, line
    return datetime.strptime(found[0], "%Y-%m-%d %H:%M:%S,%f").astimezone().timestamp()
