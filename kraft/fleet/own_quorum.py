"""Quorums that a run of the fleet starts itself: kraft's controllers, or Apache Kafka's.

Both kinds run on the same files: `LocalQuorum` writes the configuration and formats the
directories; only the program that is started differs. Apache Kafka needs Java, and the jars of a
release: a directory with them (``--kafka-home``, KAFKA_HOME).
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from kraft.errors import InvalidConfigError, KraftError, MissingJavaError
from kraft.metadata.properties import property_line
from kraft.network.quorum_client import QuorumClient
from kraft.server.config.loading import ServerConfig
from kraft.server.config.settings import HTTP_LISTENER
from kraft.server.local_quorum import LOOPBACK, LocalNode, LocalQuorum, free_ports
from kraft.server.storage.format import FormatRequest, format_storage

_LEADER_TIMEOUT_S = 120.0
_LEADER_POLL_S = 0.1
#: The version in the name of a jar that every release has.
_VERSION = re.compile(r"kafka-clients-(\d+(?:\.\d+){2,3})\.jar$")


class OwnQuorum:
    """Controllers on loopback in subdirectories of ``directory``. A context manager."""

    #: What ``run.json`` says, such as ``kraft`` and ``kafka-4.3.1``.
    label = "kraft"

    def __init__(
        self, directory: Path, controllers: int, settings: Mapping[str, str] | None = None
    ) -> None:
        self._files = LocalQuorum(directory, controllers, settings or {})
        #: The ports of the controllers' metrics, on loopback.
        self.metrics_ports = self._serve_metrics()

    def _serve_metrics(self) -> list[int]:
        """Let each controller serve its metrics; return their ports."""
        ports = free_ports(len(self.nodes))
        for node, port in zip(self.nodes, ports, strict=True):
            with node.config_path.open("a") as file:
                file.write(property_line(HTTP_LISTENER, f"{LOOPBACK}:{port}"))
        return ports

    @property
    def nodes(self) -> list[LocalNode]:
        return self._files.nodes

    @property
    def bootstrap_controllers(self) -> str:
        return ",".join(node.endpoint for node in self.nodes)

    @property
    def processes(self) -> dict[int, int]:
        """The ids of the processes by the port of the controller."""
        # The sampler asks from its thread while a step may kill a node.
        return {
            node.port: process.pid for node in self.nodes if (process := node.process) is not None
        }

    def start_node(self, node: LocalNode) -> None:
        """Start a node that does not run."""
        self._files.start_node(node)

    def active(self, timeout_s: float = _LEADER_TIMEOUT_S) -> LocalNode:
        """Return the active controller. Raises KraftError where none leads in time."""
        deadline = time.monotonic() + timeout_s
        while True:
            for node in self.nodes:
                if node.process is not None and node.process.poll() is not None:
                    said = node.log_path.read_text(errors="replace")[-2000:]
                    raise KraftError(f"controller {node.id} ended:\n{said}")
            addresses = [(LOOPBACK, node.port) for node in self.nodes if node.is_running]
            with suppress(KraftError, OSError), QuorumClient(addresses, timeout_s=2.0) as client:
                described = client.describe_quorum()
                # Kafka's does not describe the cluster before it has a metadata.version.
                if described.high_watermark > 0 and client.describe_cluster().cluster_id:
                    return next(each for each in self.nodes if each.id == described.leader_id)
            if time.monotonic() > deadline:
                raise KraftError(f"no controller leads within {timeout_s:g} s")
            time.sleep(_LEADER_POLL_S)

    def kill(self, node: LocalNode) -> None:
        """Kill a controller, as kill -9."""
        self._files.kill(node)
        node.process = None

    def empty(self, node: LocalNode, cluster_id: str) -> None:
        """Replace the directories of a node that does not run by new ones.

        The node then joins the quorum as an observer with a new directory id.
        """
        config = ServerConfig.load(node.config_path)
        for directory in config.directories:
            shutil.rmtree(directory)
        request = FormatRequest(cluster_id=cluster_id, has_no_initial_controllers=True)
        format_storage(config, request, timestamp_ms=int(time.time() * 1000))

    def pause(self, node: LocalNode) -> None:
        """Stop a controller's process, which keeps its connections, until `resume`."""
        assert node.process is not None, node
        os.kill(node.process.pid, signal.SIGSTOP)

    def resume(self, node: LocalNode) -> None:
        assert node.process is not None, node
        os.kill(node.process.pid, signal.SIGCONT)

    def __enter__(self) -> Self:
        try:
            for node in self.nodes:
                self.start_node(node)
            self.active()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill every node; the files of a run are not started again."""
        self._files.kill()


class KafkaQuorum(OwnQuorum):
    """Apache Kafka's controllers, with the options of its start script."""

    def __init__(
        self,
        directory: Path,
        controllers: int,
        settings: Mapping[str, str] | None = None,
        *,
        home: Path | None = None,
        heap: str = "2g",
    ) -> None:
        """Raises InvalidConfigError without Kafka's jars, MissingJavaError without Java."""
        jars, version = kafka_jars(home)
        self.label = f"kafka-{version}"
        self._command = [
            kafka_java(),
            *(f"-Xmx{heap}", f"-Xms{heap}", "-server", "-XX:+UseG1GC"),
            *("-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"),
            *("-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxInlineLevel=15"),
            "-Djava.awt.headless=true",
            # At its usual level it logs a line for each partition of each record.
            "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.controller=warn",
            *("-cp", str(jars / "*"), "kafka.Kafka"),
        ]
        setpriv = shutil.which("setpriv")
        if setpriv:
            # A killed fleet leaves no JVM with gigabytes of heap.
            self._command = [setpriv, "--pdeathsig", "KILL", *self._command]
        super().__init__(directory, controllers, settings)

    def _serve_metrics(self) -> list[int]:
        """Return no port: Apache Kafka's metrics need a JMX exporter."""
        return []

    def start_node(self, node: LocalNode) -> None:
        with node.log_path.open("ab") as log:
            node.process = subprocess.Popen(
                [*self._command, str(node.config_path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=node.config_path.parent,
                start_new_session=True,
            )


def kafka_jars(home: Path | None) -> tuple[Path, str]:
    """Return the directory of Kafka's jars and their version.

    ``home`` is a directory with the jars, or with ``libs``; by default KAFKA_HOME.
    """
    given = home or (Path(os.environ["KAFKA_HOME"]) if "KAFKA_HOME" in os.environ else None)
    if given is None:
        raise InvalidConfigError(
            "a quorum of Apache Kafka needs its release: name its directory (--kafka-home, "
            "KAFKA_HOME)"
        )
    given = given.resolve()
    for directory in (given / "libs", given):
        for path in directory.glob("kafka-clients-*.jar"):
            found = _VERSION.search(path.name)
            if found:
                return directory, found[1]
    raise InvalidConfigError(f"{given} holds no release of Apache Kafka: no kafka-clients-*.jar")


def kafka_java() -> str:
    """Return the command of Java, from JAVA_HOME or PATH. Raises MissingJavaError."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if found is None or not Path(found).exists():
        raise MissingJavaError(
            "Apache Kafka needs Java 17 or newer: put java on PATH, or set JAVA_HOME"
        )
    return found
