"""Run an Apache Kafka cluster on loopback, and drive it with Kafka's Admin client.

This module is responsible for the processes, their configuration files and directories. It stops a
node (SIGTERM, a controlled shutdown for a broker) or kills it (SIGKILL) by its process id only.
Every listener is on 127.0.0.1, on a port that was free just before.

    cluster directory/
        <node id>/server.properties     the node's configuration
        <node id>/log                   its standard output and error
        <node id>/metadata              a controller's metadata.log.dir
        <node id>/data-0, data-1        a broker's log.dirs (the first holds the metadata too)
"""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from kraft.server.local_quorum import free_ports
from tests.harness.class_archive import class_archive
from tests.harness.commands import logged
from tests.harness.configurations import write_properties
from tests.harness.kafka_jars import KAFKA_3, SMALL_JVM, Jars, kafka
from tests.harness.line_process import EndedError, JsonRequests, LineProcess, RejectedError

HOST = "127.0.0.1"
T = TypeVar("T")
# Names and passwords of a cluster that runs for a minute on loopback.
ADMIN_USER, ADMIN_PASSWORD = "admin", "admin-of-a-throwaway-cluster"
#: The option value of a tool that formats a directory with this user.
SCRAM = f"SCRAM-SHA-256=[name={ADMIN_USER},password={ADMIN_PASSWORD}]"
TOKEN_KEY = "key-of-a-throwaway-cluster"
#: Far above the time on a machine that stands still, whose disk takes seconds to sync.
START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 120.0


class ClusterError(RuntimeError):
    """A node did not start or stop, or a request failed."""


def wait_for(what: str, ask: Callable[[], T | None], timeout_s: float = 120.0) -> T:
    """Call ``ask`` until its result is true; a failed request counts as false."""
    deadline = time.monotonic() + timeout_s
    said: object = None
    while time.monotonic() < deadline:
        try:
            if answer := ask():
                return answer
        except ClusterError as error:
            said = error
        time.sleep(0.2)
    raise ClusterError(f"waited {timeout_s} s in vain for {what}; last: {said}")


@dataclass
class Node:
    """One process: a broker or a controller."""

    jars: Jars
    directory: Path
    id: int
    role: Literal["broker", "controller"]
    port: int
    sasl_port: int
    settings: dict[str, str]
    process: subprocess.Popen[bytes] | None = None

    @property
    def properties(self) -> Path:
        return self.directory / "server.properties"

    @property
    def log(self) -> Path:
        """Return the file with the output of all processes of this node."""
        return self.directory / "log"

    @property
    def metadata_directory(self) -> Path:
        """Return the directory that contains `meta.properties` and `__cluster_metadata-0`."""
        return self.directory / ("metadata" if self.role == "controller" else "data-0")

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def write_properties(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        write_properties(self.properties, self.settings)

    def format(self, cluster_id: str, *options: str) -> None:
        self.write_properties()
        arguments = ["format", "-t", cluster_id, "-c", str(self.properties), *options]
        jvm = (*SMALL_JVM, *class_archive(self.jars))
        self.jars.run("kafka.tools.StorageTool", *arguments, jvm=jvm)

    def directory_id(self) -> str:
        lines = (self.metadata_directory / "meta.properties").read_text().splitlines()
        return next(line for line in lines if line.startswith("directory.id="))[13:]

    def start(self) -> None:
        """Start the process and return at once."""
        assert self.process is None, f"node {self.id} runs already"
        self.write_properties()
        jvm = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        quiet = ("-XX:-UsePerfData", "-Dorg.slf4j.simpleLogger.showDateTime=true")
        jvm += quiet + class_archive(self.jars)
        command = self.jars.command("kafka.Kafka", self.properties, jvm=jvm)
        self.process = logged(command, self.log, cwd=self.directory)

    def check_running(self) -> None:
        """Fail with the end of the node's log if its process has ended."""
        if self.process is None or self.process.poll() is not None:
            tail = self.log.read_text(errors="replace")[-4000:]
            raise AssertionError(f"node {self.id} is not running; its log ends:\n{tail}")

    def wait_until_listening(self) -> None:
        def listens() -> bool | None:
            self.check_running()
            try:
                socket.create_connection((HOST, self.port), timeout=10).close()
            except OSError:
                return None
            return True

        wait_for(f"node {self.id} to listen", listens, START_TIMEOUT_S)

    def stop(self) -> None:
        """Shut down cleanly; kill a node that does not end in time, and raise an error."""
        if self.process is None:
            return
        process, self.process = self.process, None
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise ClusterError(f"node {self.id} did not shut down in time; killed") from None

    def kill(self) -> None:
        """Send SIGKILL, so that the node's files are as after a crash."""
        if self.process is not None:
            process, self.process = self.process, None
            process.kill()
            process.wait()


class Driver:
    """Kafka's Admin client in one JVM (`java/Drive.java`); requests are JSON lines."""

    def __init__(self, jars: Jars, bootstrap: dict[str, str], log: Path) -> None:
        command = jars.command("Drive", classes=jars.compiled("NumberedRecords", "Drive"))
        with log.open("ab") as errors:
            self._process = LineProcess(command, errors=errors)
        self._requests = JsonRequests(self._process)
        self.connect("plain", bootstrap)

    def connect(self, name: str, config: dict[str, str]) -> None:
        """Open the client `name`; requests select it by `client`, "plain" by default."""
        limits = {"default.api.timeout.ms": "30000", "request.timeout.ms": "15000"}
        self("connect", name=name, config=limits | config)

    def __call__(self, verb: str, **fields: Any) -> Any:
        """Send a request; return its result, or raise ClusterError with Kafka's message."""
        try:
            return self._requests(verb, **fields)
        except (RejectedError, EndedError) as error:
            raise ClusterError(f"{verb} {fields}: {error}") from error

    def close(self) -> None:
        self._process.close(timeout_s=10)


@dataclass
class Cluster:
    """Controllers and brokers of one Kafka release under `directory`."""

    jars: Jars
    directory: Path
    cluster_id: str
    is_static: bool = False  # controller.quorum.voters, kraft.version 0
    settings: dict[str, str] = field(default_factory=dict)
    nodes: dict[int, Node] = field(default_factory=dict)
    controller_ports: dict[int, int] = field(default_factory=dict)
    drivers: list[Driver] = field(default_factory=list)

    def reserve_controllers(self, *ids: int) -> None:
        """Choose the controllers' ports, which every node's configuration contains."""
        self.controller_ports = dict(zip(ids, free_ports(len(ids)), strict=True))

    def add_controller(self, node_id: int, **settings: str) -> Node:
        return self._add(node_id, "controller", self.controller_ports[node_id], 0, settings)

    def add_broker(self, node_id: int, rack: str | None, **settings: str) -> Node:
        port, sasl_port = free_ports(2)
        more = {"broker.rack": rack} if rack is not None else {}
        return self._add(node_id, "broker", port, sasl_port, more | settings)

    def _add(
        self,
        node_id: int,
        role: Literal["broker", "controller"],
        port: int,
        sasl_port: int,
        settings: dict[str, str],
    ) -> Node:
        directory = self.directory / str(node_id)
        common = self._common(node_id, role)
        own = (
            _controller_settings(directory, port)
            if role == "controller"
            else _broker_settings(directory, port, sasl_port)
        )
        named = {name.replace("__", "."): value for name, value in settings.items()}
        every = common | own | self.settings | named
        node = Node(self.jars, directory, node_id, role, port, sasl_port, every)
        self.nodes[node_id] = node
        return node

    def _common(self, node_id: int, role: str) -> dict[str, str]:
        addresses = {one: f"{HOST}:{port}" for one, port in self.controller_ports.items()}
        voters = ",".join(f"{one}@{address}" for one, address in addresses.items())
        quorum = (
            {"controller.quorum.voters": voters}
            if self.is_static
            else {"controller.quorum.bootstrap.servers": ",".join(addresses.values())}
        )
        return quorum | {
            "node.id": str(node_id),
            "process.roles": role,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": (
                "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT"
            ),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:ANONYMOUS;User:{ADMIN_USER}",
            "delegation.token.secret.key": TOKEN_KEY,
            # Short timeouts, so that fencing and failover take seconds.
            "broker.heartbeat.interval.ms": "500",
            "broker.session.timeout.ms": "3000",
            "controller.quorum.election.timeout.ms": "1000",
            "controller.quorum.fetch.timeout.ms": "2000",
            "metadata.max.idle.interval.ms": "2000",
        }

    def broker_format(self) -> list[str]:
        """Return the option that kafka-storage needs for a broker."""
        return [] if self.is_static else ["--no-initial-controllers"]

    def driver(
        self, *, to_controllers: bool = False, security: dict[str, str] | None = None
    ) -> Driver:
        """Return Kafka's Admin client for the brokers, or for controllers without brokers.

        ``security`` are the client's settings for secured listeners.
        """
        role = "controller" if to_controllers else "broker"
        addresses = ",".join(node.address for node in self.nodes.values() if node.role == role)
        bootstrap = {f"bootstrap.{'controllers' if to_controllers else 'servers'}": addresses}
        # `Drive.java` needs the classes of 3.9; before 4.0 no client can send ACL requests to a
        # controller.
        oldest = "4.0" if to_controllers else KAFKA_3
        jars = self.jars if self.jars.version >= oldest else kafka()
        bootstrap |= security or {}
        self.drivers.append(Driver(jars, bootstrap, self.directory / "driver.log"))
        return self.drivers[-1]

    def start(self, *nodes: Node) -> None:
        """Start nodes, all by default, and wait until their ports are open."""
        started = nodes or tuple(self.nodes.values())
        for node in started:
            node.start()
        for node in started:
            node.wait_until_listening()

    def freeze(self) -> None:
        """End every process without further metadata records: controllers first, then brokers.

        The active controller ends last: without a majority no other is elected, and nothing more is
        committed. A broker cannot shut down cleanly without a controller, so it is killed.
        """
        controllers = [n for n in self.nodes.values() if n.role == "controller" and n.process]
        leader = self.drivers[-1]("quorum")["leader"] if len(controllers) > 1 else 0
        for node in sorted(controllers, key=lambda node: node.id == leader):
            node.stop()
        self.kill()

    def stop(self) -> None:
        """End every process; brokers first, while a controller can handle their shutdown."""
        for role in ("broker", "controller"):
            for node in self.nodes.values():
                if node.role == role:
                    node.stop()

    def kill(self) -> None:
        """Kill all processes that still run."""
        while self.drivers:
            self.drivers.pop().close()
        for node in self.nodes.values():
            node.kill()


def sasl_client(bootstrap: str, user: str, password: str) -> dict[str, str]:
    """Return a client's configuration for the SASL listener."""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": f'{module} required username="{user}" password="{password}";',
    }


def _controller_settings(directory: Path, port: int) -> dict[str, str]:
    return {
        "listeners": f"CONTROLLER://{HOST}:{port}",
        "log.dirs": str(directory / "metadata"),
    }


def _broker_settings(directory: Path, port: int, sasl_port: int) -> dict[str, str]:
    return {
        "listeners": f"PLAINTEXT://{HOST}:{port},SASL://{HOST}:{sasl_port}",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl.scram-sha-256.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        "listener.name.sasl.scram-sha-512.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        # Absolute: Kafka 4.3.1 does not report a relative directory as cordoned.
        "log.dirs": f"{directory / 'data-0'},{directory / 'data-1'}",
        # Six brokers with default buffers and threads are too much for one machine.
        "log.cleaner.dedupe.buffer.size": "2097152",
        "num.network.threads": "1",
        "num.io.threads": "2",
        "num.replica.fetchers": "1",
        "background.threads": "2",
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.num.partitions": "2",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
        "replica.lag.time.max.ms": "3000",
        # The broker notices a failed log directory when it writes the checkpoints there.
        "log.flush.offset.checkpoint.interval.ms": "1000",
        # A throttle applies only after a fetch, so one fetch must not return a whole partition.
        "replica.fetch.max.bytes": "20000",
        "replica.fetch.response.max.bytes": "20000",
        "controlled.shutdown.enable": "true",
    }
