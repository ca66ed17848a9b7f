"""Start and stop a whole quorum on loopback, as separate processes, for ``kraft up``.

Responsible for free ports, configuration files, formatting, and the processes. Each node is
``kraft server start FILE`` in its own session, so that Ctrl-C reaches only the parent process. A
node stops on SIGTERM, and when its standard input closes, which happens however its parent ends.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from kraft.errors import StorageError
from kraft.metadata.identifiers import random_uuid
from kraft.metadata.properties import property_line
from kraft.server.config.loading import ServerConfig
from kraft.server.disk.directory_lock import DirectoryLock
from kraft.server.storage.format import FormatRequest, format_storage

LISTENER = "CONTROLLER"
LOOPBACK = "127.0.0.1"
STOP_TIMEOUT_S = 10.0
#: Below the ephemeral ports of all known systems (Linux begins at 32768, others at 49152).
_OWN_PORTS = range(20_000, 32_000)
_ports_in_turn = cycle(random.sample(_OWN_PORTS, len(_OWN_PORTS)))


@dataclass(slots=True)
class LocalNode:
    """One node: its files and, while it runs, its process."""

    id: int
    port: int
    config_path: Path
    log_path: Path
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def endpoint(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None


class LocalQuorum:
    """``count`` controllers in subdirectories of ``directory``; a context manager that stops them.

    A quorum that the directory already contains is started again unchanged. ``settings`` go into
    the configuration files of a new quorum, whose voters may change unless ``is_static``.
    ``max_transaction_ms`` and ``log_format`` are options of ``kraft server start``. Raises
    StorageError where the directory contains other files.
    """

    def __init__(
        self,
        directory: Path,
        count: int,
        settings: Mapping[str, str] | None = None,
        *,
        is_static: bool = False,
        max_transaction_ms: int | None = None,
        log_format: str = "text",
    ) -> None:
        self.directory = directory
        self._options = ["--log-format", log_format]
        if max_transaction_ms is not None:
            self._options += ["--max-transaction-ms", str(max_transaction_ms)]
        self.nodes: list[LocalNode] = []
        directory.mkdir(parents=True, exist_ok=True)
        found = sorted(directory.glob("controller-*/controller.properties"))
        if found:
            self._load_nodes(found, count)
        elif any(directory.iterdir()):
            raise StorageError(f"{directory} is not empty and holds no quorum of kraft up")
        else:
            self._create_nodes(count, settings or {}, is_static)

    def _create_nodes(self, count: int, settings: Mapping[str, str], is_static: bool) -> None:
        """Create the files of a new quorum; on failure or interrupt, remove them again."""
        try:
            self._write_nodes(count, settings, is_static)
        except BaseException:
            for home in self.directory.glob("controller-*"):
                shutil.rmtree(home, ignore_errors=True)
            raise

    def _write_nodes(self, count: int, settings: Mapping[str, str], is_static: bool) -> None:
        ports = free_ports(count)
        voters = ",".join(f"{id}@{LOOPBACK}:{port}" for id, port in enumerate(ports, 1))
        directories = [random_uuid() for _ in ports]
        initial = ",".join(
            f"{id}@{LOOPBACK}:{port}:{directory_id!s}"
            for (id, port), directory_id in zip(enumerate(ports, 1), directories, strict=True)
        )
        cluster_id = str(random_uuid())
        for id, port in enumerate(ports, 1):
            home = self.directory / f"controller-{id}"
            home.mkdir()
            node = LocalNode(id, port, home / "controller.properties", home / "controller.log")
            fields = {
                "process.roles": "controller",
                "node.id": str(id),
                "controller.quorum.bootstrap.servers": ",".join(
                    f"{LOOPBACK}:{port}" for port in ports
                ),
                "controller.listener.names": LISTENER,
                "listeners": f"{LISTENER}://{LOOPBACK}:{port}",
                "log.dirs": str((home / "data").resolve()),
                **settings,
            }
            if is_static:
                fields["controller.quorum.voters"] = voters
                del fields["controller.quorum.bootstrap.servers"]
            text = "".join(property_line(name, value) for name, value in fields.items())
            node.config_path.write_text(text)
            request = FormatRequest(
                cluster_id=cluster_id, initial_controllers=None if is_static else initial
            )
            config = ServerConfig.load(node.config_path)
            format_storage(config, request, timestamp_ms=int(time.time() * 1000))
            self.nodes.append(node)

    def _load_nodes(self, paths: Sequence[Path], count: int) -> None:
        if len(paths) != count:
            raise StorageError(
                f"{self.directory} holds a quorum of {len(paths)} controllers, not {count}"
            )
        for path in paths:
            config = ServerConfig.load(path)
            port = config.controller_listeners[0].port
            node = LocalNode(config.node_id, port, path, path.parent / "controller.log")
            self.nodes.append(node)

    # -- processes

    def start(self) -> None:
        """Start every node. Raises StorageError, before any starts, where a directory is in use."""
        for node in self.nodes:
            for directory in ServerConfig.load(node.config_path).directories:
                if os.path.isdir(directory):
                    DirectoryLock(directory).release()
        for node in self.nodes:
            self.start_node(node)

    def start_node(self, node: LocalNode) -> None:
        """Start a node that does not run; its output is appended to its log file."""
        assert not node.is_running, node
        with ExitStack() as stack:
            log: IO[bytes] = stack.enter_context(node.log_path.open("ab"))
            node.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "kraft", "server", "start", str(node.config_path)),
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

        Ctrl-C while it waits kills the nodes that still run.
        """
        started = [node.process for node in nodes or self.nodes if node.process is not None]
        for process in started:
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + STOP_TIMEOUT_S
        try:
            for process in started:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, deadline - time.monotonic()))
        finally:
            self.kill(*nodes)

    def kill(self, *nodes: LocalNode) -> None:
        """Kill these nodes, all by default, and wait for their end."""
        for node in nodes or self.nodes:
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


def free_ports(count: int) -> list[int]:
    """Return free ports of loopback, below the system's ephemeral ports.

    A process gets each port once before any port a second time: a node that has not started yet
    has not bound the port that was chosen for it.

    While a node is down, an outgoing connection could take its ephemeral port. Even a connection to
    that port could connect to itself, as TCP allows, and keep the node from binding it.
    """
    ports: list[int] = []
    with ExitStack() as stack:
        for port in islice(_ports_in_turn, len(_OWN_PORTS)):
            one = stack.enter_context(socket.socket())
            with suppress(OSError):
                one.bind((LOOPBACK, port))
                ports.append(port)
            if len(ports) == count:
                return ports
    raise StorageError(f"no {count} free ports among {_OWN_PORTS.start} to {_OWN_PORTS.stop - 1}")
