"""A quorum run by commands: properties files, ``kraft storage format``, ``kraft server start``.

A `Controller` has the ports, files and names of a node. `load_command` runs a node that makes its
own load.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kraft._core.log.log import Log
from kraft.metadata.directory import MetadataDirectory
from kraft.metadata.identifiers import random_uuid
from kraft.network.quorum_client import QuorumClient
from kraft.raft.rpc import DescribeQuorumResponse
from kraft.server.config.loading import ServerConfig
from kraft.server.local_quorum import LOOPBACK, free_ports
from kraft.server.storage.format import FormatRequest, format_storage
from tests.harness.commands import KRAFT, Foreground, eventually, printed
from tests.harness.configurations import write_properties

#: Nodes that make load while they lead: without a controller, and with one.
LOAD_NODE = "tests.harness.load_node"
CONTROLLER_LOAD_NODE = "tests.harness.controller_load_node"


def load_command(program: str, properties: Path, notes: Path, life: int) -> list[str]:
    """Return the command of a node that makes load; no two processes may have the same life."""
    return [sys.executable, "-m", program, str(properties), str(notes), str(life)]


@dataclass
class Controller:
    """One node: its file, and its process while it runs."""

    id: int
    port: int
    directory: Path
    bootstrap: str
    settings: Mapping[str, str] = field(default_factory=dict)
    #: The version of kraft that runs it.
    program: Sequence[str] = KRAFT
    running: Foreground | None = None
    _said: int = 0

    @property
    def file(self) -> Path:
        return self.directory / f"node-{self.id}.properties"

    @property
    def data(self) -> Path:
        return self.directory / f"data-{self.id}"

    @property
    def metadata_log(self) -> Path:
        return self.data / "__cluster_metadata-0"

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def directory_id(self) -> str:
        properties = MetadataDirectory.find(self.data).meta_properties
        assert properties is not None
        return str(properties.directory_id)

    @property
    def log_end(self) -> int:
        """The log end offset on disk; the node may be running."""
        with Log.open(self.metadata_log, read_only=True) as log:
            return log.log_end_offset

    def write(self) -> Self:
        fields = {
            "process.roles": "controller",
            "node.id": str(self.id),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://{self.address}",
            "controller.quorum.bootstrap.servers": self.bootstrap,
            "log.dirs": str(self.data),
            **self.settings,
        }
        write_properties(self.file, fields)
        return self

    def format(self, cluster_id: str, *options: str) -> str:
        return printed("storage", "format", "-t", cluster_id, "-c", self.file, *options)

    @property
    def output(self) -> Path:
        return self.directory / f"node-{self.id}.out"

    def launch(self) -> None:
        self._said = len(self.output.read_text()) if self.output.exists() else 0
        self.running = Foreground(["server", "start", self.file], self.output, program=self.program)

    def start(self) -> None:
        """Start it; return once the port is open."""
        self.launch()
        self.await_port()

    def await_port(self) -> None:
        running = self.running
        assert running is not None

        def is_up() -> bool:
            text = running.text[self._said :]
            assert running.process.poll() is None, text
            return f"node {self.id} of cluster" in text

        eventually(is_up)

    def stop(self, number: int) -> int:
        assert self.running is not None
        with self.running as running:
            code = running.end(number)
        self.running = None
        return code


class Controllers:
    """Several controllers with files in one directory; leaving the block ends them."""

    def __init__(
        self, directory: Path, count: int, settings: Mapping[str, str] | None = None
    ) -> None:
        ports = free_ports(count)
        bootstrap = f"{LOOPBACK}:{ports[0]}"
        if count > 1:
            bootstrap = ",".join(f"{LOOPBACK}:{port}" for port in ports)
        self.all = [
            Controller(id, port, directory, bootstrap, settings or {}).write()
            for id, port in enumerate(ports, 1)
        ]
        self.bootstrap = bootstrap

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for node in self.all:
            if node.running is not None:
                with node.running:
                    node.running = None

    def lay_out(self, nodes: Iterable[Controller]) -> None:
        """Format these, with each other as the first voters."""
        nodes = list(nodes)
        voters = ",".join(f"{node.id}@{node.address}:{random_uuid()!s}" for node in nodes)
        request = FormatRequest(cluster_id=str(random_uuid()), initial_controllers=voters)
        for node in nodes:
            config = ServerConfig.load(node.file)
            format_storage(config, request, timestamp_ms=time.time_ns() // 1_000_000)

    def form(self, nodes: Iterable[Controller]) -> None:
        """Format and start all."""
        nodes = list(nodes)
        self.lay_out(nodes)
        for node in nodes:
            node.launch()
        for node in nodes:
            node.await_port()

    def described(self) -> DescribeQuorumResponse:
        """Return the leader's description, without a command; wait for a leader."""
        with QuorumClient([(LOOPBACK, node.port) for node in self.all]) as client:
            return client.describe_quorum()

    def status(self) -> dict[str, Any]:
        """Return ``kraft quorum describe --status --json``; wait for a leader."""
        self.described()
        text = printed(
            *("quorum", "describe", "--status", "--json"), "--bootstrap-controller", self.bootstrap
        )
        status: dict[str, Any] = json.loads(text)
        return status
