"""Start and stop a whole cluster on loopback, as separate processes, for ``kraft up``.

Responsible for free ports, configuration files, formatting, and the processes. Each node is
``kraft server start FILE`` in its own session, so that Ctrl-C reaches only the parent process. A
node stops on SIGTERM, and when its standard input closes, which happens however its parent ends.
"""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from kraft.errors import StorageError
from kraft.metadata.identifiers import random_uuid
from kraft.metadata.properties import property_line
from kraft.records.versions import LACKED_BY_BROKER
from kraft.server.config.loading import ServerConfig
from kraft.server.disk.directory_lock import DirectoryLock
from kraft.server.storage.format import FormatRequest, format_storage

LISTENER = "CONTROLLER"
BROKER_LISTENER = "PLAINTEXT"
#: Controllers have ids from 1 on.
FIRST_BROKER_ID = 1001
LOOPBACK = "127.0.0.1"
STOP_TIMEOUT_S = 10.0
#: How long a stop waits before it reports for what.
_PATIENCE_S = 2.0
#: Below the ephemeral ports of all known systems (Linux begins at 32768, others at 49152).
_OWN_PORTS = range(20_000, 32_000)
_ports_in_turn = cycle(random.sample(_OWN_PORTS, len(_OWN_PORTS)))
#: The open file of `_reserved`.
_reservations: int | None = None


@dataclass(slots=True)
class LocalNode:
    """One node: its files and, while it runs, its process.

    ``port`` is that of the controller, of a broker alone that of its clients; ``client_port`` is
    that of the clients of a node with a broker.
    """

    id: int
    port: int
    config_path: Path
    log_path: Path
    client_port: int | None = None
    #: The command ``kraft`` that runs it, such as one with another environment.
    program: Sequence[str] = (sys.executable, "-m", "kraft")
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def endpoint(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def client_endpoint(self) -> str:
        """The address for clients of its broker."""
        return f"{LOOPBACK}:{self.client_port}"

    def accepts_clients(self) -> bool:
        """Return whether its broker accepts connections: it is registered, and has its logs."""
        assert self.client_port is not None
        try:
            socket.create_connection((LOOPBACK, self.client_port)).close()
        except OSError:
            return False
        return True

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None


class LocalQuorum:
    """``count`` controllers and ``brokers`` brokers in subdirectories of ``directory``.

    A context manager that stops them. A cluster that the directory already contains is started
    again unchanged. ``settings`` go into the configuration files of a new cluster; its voters may
    change unless ``is_static``. With ``is_combined`` the first controllers are brokers too.
    ``max_transaction_ms`` and ``log_format`` are options of ``kraft server start``. Raises
    StorageError where the directory contains other files.
    """

    def __init__(
        self,
        directory: Path,
        count: int,
        settings: Mapping[str, str] | None = None,
        *,
        brokers: int = 0,
        is_combined: bool = False,
        is_static: bool = False,
        max_transaction_ms: int | None = None,
        log_format: str = "text",
    ) -> None:
        self.directory = directory
        #: Called with what a stop waits for, after a moment.
        self.report: Callable[[str], None] = lambda text: None
        self._options = ["--log-format", log_format]
        if max_transaction_ms is not None:
            self._options += ["--max-transaction-ms", str(max_transaction_ms)]
        #: The controllers.
        self.nodes: list[LocalNode] = []
        #: The nodes with a broker; of a combined cluster some are controllers too.
        self.brokers: list[LocalNode] = []
        directory.mkdir(parents=True, exist_ok=True)
        found = sorted(directory.glob("controller-*/controller.properties"))
        if found:
            self._load_nodes(found, count, brokers)
        elif any(directory.iterdir()):
            raise StorageError(f"{directory} is not empty and holds no quorum of kraft up")
        else:
            combined = min(count, brokers) if is_combined else 0
            self._create_nodes(count, brokers, combined, settings or {}, is_static)

    @property
    def all(self) -> list[LocalNode]:
        """Every node, each once: the controllers, then the brokers alone."""
        return [*self.nodes, *(one for one in self.brokers if one not in self.nodes)]

    def _create_nodes(
        self, count: int, brokers: int, combined: int, settings: Mapping[str, str], is_static: bool
    ) -> None:
        """Create the files of a new cluster; on failure or interrupt, remove them again."""
        try:
            self._write_nodes(count, brokers, combined, settings, is_static)
        except BaseException:
            for home in (*self.directory.glob("controller-*"), *self.directory.glob("broker-*")):
                shutil.rmtree(home, ignore_errors=True)
            raise

    def _write_nodes(
        self, count: int, brokers: int, combined: int, settings: Mapping[str, str], is_static: bool
    ) -> None:
        ports = free_ports(count + brokers)
        ports, client_ports = ports[:count], ports[count:]
        voters = ",".join(f"{id}@{LOOPBACK}:{port}" for id, port in enumerate(ports, 1))
        initial = ",".join(
            f"{id}@{LOOPBACK}:{port}:{random_uuid()!s}" for id, port in enumerate(ports, 1)
        )
        cluster_id = str(random_uuid())
        common = {
            "controller.quorum.bootstrap.servers": ",".join(f"{LOOPBACK}:{port}" for port in ports),
            "controller.listener.names": LISTENER,
        }
        if is_static:
            common = {**common, "controller.quorum.voters": voters}
            del common["controller.quorum.bootstrap.servers"]
        if brokers:
            replicas = str(min(brokers, 3))
            common |= {
                "offsets.topic.replication.factor": replicas,
                "default.replication.factor": replicas,
            }
        # A client that finds a feature finalized may use it.
        features = dict.fromkeys(LACKED_BY_BROKER, 0) if brokers else {}
        for id, port in enumerate(ports, 1):
            node = self._new_node("controller", id, port)
            roles, listeners = "controller", f"{LISTENER}://{LOOPBACK}:{port}"
            if id <= combined:
                node.client_port = client_ports[id - 1]
                roles = "broker,controller"
                listeners += f",{BROKER_LISTENER}://{LOOPBACK}:{node.client_port}"
                self.brokers.append(node)
            self._format(
                node,
                {"process.roles": roles, "listeners": listeners, **common, **settings},
                FormatRequest(
                    cluster_id=cluster_id,
                    initial_controllers=None if is_static else initial,
                    features=features,
                ),
            )
            self.nodes.append(node)
        for id, port in enumerate(client_ports[combined:], FIRST_BROKER_ID):
            node = self._new_node("broker", id, port)
            node.client_port = port
            listeners = f"{BROKER_LISTENER}://{LOOPBACK}:{port}"
            self._format(
                node,
                {"process.roles": "broker", "listeners": listeners, **common, **settings},
                FormatRequest(cluster_id=cluster_id),
            )
            self.brokers.append(node)

    def _new_node(self, role: str, id: int, port: int) -> LocalNode:
        home = self.directory / f"{role}-{id}"
        home.mkdir()
        return LocalNode(id, port, home / f"{role}.properties", home / f"{role}.log")

    def _format(self, node: LocalNode, fields: Mapping[str, str], request: FormatRequest) -> None:
        home = node.config_path.parent
        given = {"node.id": str(node.id), "log.dirs": str((home / "data").resolve()), **fields}
        text = "".join(property_line(name, value) for name, value in given.items())
        node.config_path.write_text(text)
        config = ServerConfig.load(node.config_path)
        format_storage(config, request, timestamp_ms=int(time.time() * 1000))

    def _load_nodes(self, paths: Sequence[Path], count: int, brokers: int) -> None:
        for path in (*paths, *sorted(self.directory.glob("broker-*/broker.properties"))):
            config = ServerConfig.load(path)
            ports = [one.port for one in (*config.controller_listeners, *config.broker_listeners)]
            node = LocalNode(config.node_id, ports[0], path, path.with_suffix(".log"))
            if config.is_broker:
                node.client_port = ports[-1]
                self.brokers.append(node)
            if config.is_controller:
                self.nodes.append(node)
        if (len(self.nodes), len(self.brokers)) != (count, brokers):
            raise StorageError(
                f"{self.directory} holds {len(self.nodes)} controllers and {len(self.brokers)} "
                f"brokers, not {count} and {brokers}"
            )

    # -- processes

    def start(self) -> None:
        """Start every node. Raises StorageError, before any starts, where a directory is in use."""
        for node in self.all:
            for directory in ServerConfig.load(node.config_path).directories:
                if os.path.isdir(directory):
                    DirectoryLock(directory).release()
        for node in self.all:
            self.start_node(node)

    def start_node(self, node: LocalNode) -> None:
        """Start a node that does not run; its output is appended to its log file."""
        assert not node.is_running, node
        with ExitStack() as stack:
            log: IO[bytes] = stack.enter_context(node.log_path.open("ab"))
            node.process = subprocess.Popen(
                [
                    *(*node.program, "server", "start", str(node.config_path)),
                    "--until-stdin-closes",
                    *self._options,
                ],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def stop(self, *nodes: LocalNode) -> None:
        """Stop these nodes, all by default; kill those that do not stop in time.

        Brokers stop before controllers, which they need for it. Ctrl-C while it waits kills the
        nodes that still run. `report` is told what it waits for.
        """
        stopped = nodes or tuple(self.all)
        try:
            for are_controllers in (False, True):
                group = [node for node in stopped if (node in self.nodes) == are_controllers]
                for node in group:
                    if node.is_running:
                        assert node.process is not None
                        node.process.terminate()
                self._await_end(group)
        finally:
            self.kill(*nodes)

    def _await_end(self, group: Sequence[LocalNode]) -> None:
        """Wait until these nodes have stopped; report those that take long."""
        begin = time.monotonic()
        if not _have_ended(group, begin + _PATIENCE_S):
            still = [node for node in group if node.is_running]
            why = ""
            if any(node in self.brokers for node in still):
                why = (
                    ": the controller moves the leaders of a stopping broker, and waits until the "
                    "others have the metadata, or are fenced after broker.session.timeout.ms"
                )
            self.report(f"waiting for {_names(still)} to stop{why}; Ctrl-C kills what still runs")
        longest_s = max((self._stop_timeout_s(node) for node in group), default=0.0)
        if not _have_ended(group, begin + longest_s):
            still = [node for node in group if node.is_running]
            logs = ", ".join(str(node.log_path) for node in still)
            self.report(
                f"killing {_names(still)}, which did not stop within {longest_s:.0f} s; see {logs}"
            )

    def _stop_timeout_s(self, node: LocalNode) -> float:
        """Return how long a node may take: a broker may wait for the session of a dead one."""
        if node not in self.brokers:
            return STOP_TIMEOUT_S
        settings = ServerConfig.load(self.nodes[0].config_path).settings
        return STOP_TIMEOUT_S + settings.broker_session_timeout_ms / 1000

    def kill(self, *nodes: LocalNode) -> None:
        """Kill these nodes, all by default, and wait for their end."""
        for node in nodes or self.all:
            if node.process is not None:
                node.process.kill()
                node.process.wait()
                if node.process.stdin is not None:
                    node.process.stdin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def _have_ended(nodes: Sequence[LocalNode], deadline_s: float) -> bool:
    """Wait for the end of processes until a time of ``monotonic``; return whether all ended."""
    for node in nodes:
        if node.process is not None:
            with suppress(subprocess.TimeoutExpired):
                node.process.wait(max(0.0, deadline_s - time.monotonic()))
    return not any(node.is_running for node in nodes)


def _names(nodes: Sequence[LocalNode]) -> str:
    """Return the nodes' ids with their word: ``nodes 1, 2 and 3``."""
    *others, last = [str(node.id) for node in nodes]
    return f"nodes {', '.join(others)} and {last}" if others else f"node {last}"


def _reserved(port: int) -> bool:
    """Reserve a port for this process while it runs; return whether no other process has it.

    The lock of one byte of an empty file in memory is the reservation. Where there can be no such
    file, as on systems other than Linux, every port counts as reserved.
    """
    global _reservations
    try:
        if _reservations is None:
            path = f"/dev/shm/kraft-ports-{os.getuid()}"
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            # Never closed: that would give up all locks of the process.
            _reservations = os.open(path, flags, 0o600)
    except OSError:
        return True
    try:
        fcntl.lockf(_reservations, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


def free_ports(count: int) -> list[int]:
    """Return free ports of loopback, below the system's ephemeral ports.

    A process gets each port once before any port a second time, and no port that another process
    has got and may still use: a node that has not started yet, or that is down, has not bound the
    port that was chosen for it.

    While a node is down, an outgoing connection could take its ephemeral port. Even a connection to
    that port could connect to itself, as TCP allows, and keep the node from binding it.
    """
    ports: list[int] = []
    with ExitStack() as stack:
        for port in islice(_ports_in_turn, len(_OWN_PORTS)):
            one = stack.enter_context(socket.socket())
            with suppress(OSError):
                one.bind((LOOPBACK, port))
                if _reserved(port):
                    ports.append(port)
            if len(ports) == count:
                return ports
    raise StorageError(f"no {count} free ports among {_OWN_PORTS.start} to {_OWN_PORTS.stop - 1}")
