"""Quorums of processes on this machine, kraft's and Kafka's, and the load that their leaders make.

Owns the processes: a node is started with its own directory and a free port on loopback, and killed
in the end by its id. Both kinds speak the same few words (`peers/.../Quorum.java`,
`quorum_node.py`): whoever becomes the leader says so in a line of JSON, a command on its standard
input asks for a load, and a line of JSON answers it. The load is made in the leader's process, so
that a commit is timed from the append's call to the news of its commit, and no client's connection
is part of it.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.java_peers import CLASSES, LIBRARIES, Line, build
from benchmarks.machine import cpu_seconds_of
from kraft.server.config.loading import ServerConfig
from kraft.server.local_quorum import LOOPBACK, LocalQuorum, free_ports
from kraft.server.storage.format import FormatRequest, format_storage
from kraft.server.storage.meta_properties import load_identity
from tests.interop.kafka_jars import java

#: What Kafka's own start script gives a controller; all pages of the heap touched beforehand.
JVM = (
    *("-Xms1g", "-Xmx1g", "-XX:+AlwaysPreTouch", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
)
KRAFT_NODE = (sys.executable, "-m", "benchmarks.quorum_node")


class Node:
    """One process and the lines that it prints."""

    def __init__(self, command: list[str], directory: Path, lines: queue.Queue[Line]) -> None:
        self.log = directory / "stderr"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self._lines = lines
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                self._lines.put(json.loads(line) | {"node": self})

    def tell(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


class Quorum:
    """Running nodes of one kind."""

    def __init__(
        self, lines: queue.Queue[Line], nodes: list[Node], laid_out: LocalQuorum | None
    ) -> None:
        self._lines = lines
        self._nodes = nodes
        self._laid_out = laid_out
        self._leader = self._next("leader")["node"]

    def _next(self, field: str, timeout_s: float = 60) -> Line:
        """The next line that has `field`; RuntimeError where a node ended or nothing comes."""
        give_up = time.monotonic() + timeout_s
        while time.monotonic() < give_up:
            try:
                line = self._lines.get(timeout=0.2)
            except queue.Empty:
                for node in self._nodes:
                    if node.process.poll() is not None:
                        said = node.log.read_text(errors="replace")[-3000:]
                        raise RuntimeError(f"a node ended:\n{said}") from None
                continue
            if field in line:
                return line
        said = "\n".join(node.log.read_text(errors="replace")[-1500:] for node in self._nodes)
        raise RuntimeError(f"no {field} within {timeout_s} s:\n{said}")

    def latency(self, count: int, per_second: int, size: int) -> Line:
        """Appends of one record each, one at a time; seconds and CPU seconds of one commit."""
        before = self._cpu_seconds()
        line = self._ask(f"latency {count} {per_second} {size}")
        return line | {"cpu_s": (self._cpu_seconds() - before) / count}

    def bandwidth(self, count: int, in_flight: int, size: int) -> Line:
        """So many appends, so many on their way at once; median_s and cpu_s are of all of them."""
        before = self._cpu_seconds()
        line = self._ask(f"bandwidth {count} {in_flight} {size}")
        return line | {"cpu_s": self._cpu_seconds() - before}

    def _cpu_seconds(self) -> float:
        """CPU time of all nodes so far: a quorum at rest uses some, too."""
        return sum(cpu_seconds_of(node.process.pid) for node in self._nodes)

    def commits(self, count: int, in_flight: int, size: int) -> Line:
        """The same with records that are collected into batches; ``groups``: how many syncs."""
        return self._ask(f"commits {count} {in_flight} {size}")

    def snapshot(self, source: Path) -> Line:
        """The leader (kraft's) makes a snapshot with the records of a checkpoint; its bytes."""
        return self._ask(f"snapshot {source}")

    def catch_up(self, home: Path) -> Line:
        """A new node without a log (kraft's) until it has the leader's snapshot; then it ends."""
        assert self._laid_out is not None
        leader = self._laid_out.nodes[0]
        path = home / "controller.properties"
        home.mkdir()
        settings = {
            "process.roles": "controller",
            "node.id": len(self._laid_out.nodes) + 1,
            "controller.quorum.bootstrap.servers": leader.endpoint,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://{LOOPBACK}:{free_ports(1)[0]}",
            "log.dirs": home / "data",
        }
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        cluster_id = load_identity(ServerConfig.load(leader.config_path)).cluster_id
        request = FormatRequest(cluster_id=cluster_id, has_no_initial_controllers=True)
        format_storage(ServerConfig.load(path), request, timestamp_ms=time.time_ns() // 1_000_000)
        newcomer = Node([*KRAFT_NODE, str(path)], home, self._lines)
        self._nodes.append(newcomer)
        try:
            line = self._next("work")
        finally:
            self._nodes.remove(newcomer)
            newcomer.stop()
        line.pop("node")
        return line

    def _ask(self, command: str) -> Line:
        self._leader.tell(command)
        line = self._next("work")
        line.pop("node")
        if "heap" in line:
            line["heap"] = "1g"
        return line


@contextmanager
def _quorum(
    commands: list[tuple[list[str], Path]], laid_out: LocalQuorum | None = None
) -> Iterator[Quorum]:
    lines: queue.Queue[Line] = queue.Queue()
    nodes: list[Node] = []
    try:
        for command, directory in commands:
            nodes.append(Node(command, directory, lines))
        yield Quorum(lines, nodes, laid_out)
    finally:
        for node in nodes:
            node.stop()


def settings(id: int, ports: list[int], directory: Path, more: dict[str, object]) -> Path:
    """Writes a controller's properties, static voters; the file."""
    voters = ",".join(f"{each}@{LOOPBACK}:{port}" for each, port in enumerate(ports, 1))
    listener = f"CONTROLLER://{LOOPBACK}:{ports[id - 1]}"
    given: dict[str, object] = {
        "process.roles": "controller",
        "node.id": id,
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "listeners": listener,
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
        "log.dirs": directory,
        "controller.quorum.append.linger.ms": 0,
    }
    path = directory / "node.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in (given | more).items()))
    return path


@contextmanager
def kafka_quorum(size: int, directory: Path) -> Iterator[Quorum]:
    """Kafka's controllers with the raft layer alone. Raises MissingToolError without Java."""
    build()
    ports, commands = free_ports(size), []
    for id in range(1, size + 1):
        home = directory / f"kafka-{id}"
        home.mkdir(parents=True)
        id_of_directory = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        program = ("kraft.peers.Peers", "quorum", f"config={settings(id, ports, home, {})}")
        path = f"{CLASSES}{os.pathsep}{LIBRARIES}/*"
        command = [str(java()), *JVM, "-cp", path, *program, f"directory={id_of_directory}"]
        commands.append((command, home))
    with _quorum(commands) as quorum:
        yield quorum


@contextmanager
def kraft_quorum(size: int, directory: Path) -> Iterator[Quorum]:
    """Nodes of kraft, put together as `kraft server start` does."""
    laid_out = LocalQuorum(directory, size, {"controller.quorum.append.linger.ms": "0"})
    commands = [
        ([*KRAFT_NODE, str(node.config_path)], node.config_path.parent) for node in laid_out.nodes
    ]
    with _quorum(commands, laid_out) as quorum:
        yield quorum
