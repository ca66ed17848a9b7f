"""A quorum run by commands: properties files, ``kraft storage format``, ``kraft server start``.

Runs commands, and nodes in the foreground whose output is read while they run. A `Controller` has
the ports, files and names of a node.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from kraft.metadata.identifiers import random_uuid
from kraft.network.quorum_client import QuorumClient
from kraft.raft.rpc import DescribeQuorumResponse
from kraft.server.config.loading import ServerConfig
from kraft.server.local_quorum import LOOPBACK, free_ports
from kraft.server.storage.format import FormatRequest, format_storage
from tests.e2e.signals import heed_interrupts

KRAFT = (sys.executable, "-m", "kraft")
PLAIN = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}
#: Far above the time of any step on a busy machine.
PATIENCE_S = 30.0

T = TypeVar("T")


def kraft(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*KRAFT, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=PLAIN,
        timeout=2 * PATIENCE_S,
        check=False,
    )


def printed(*arguments: object) -> str:
    """Return the output of a command that must succeed."""
    ran = kraft(*arguments)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def eventually(look: Callable[[], T], *, until: Callable[[T], object] = bool) -> T:
    """Repeat ``look`` until its result is true, and return that."""
    deadline = time.monotonic() + PATIENCE_S
    while not until(seen := look()):
        assert time.monotonic() < deadline, seen
        time.sleep(0.02)
    return seen


def is_gone(pid: int) -> bool:
    """Return whether there is no process with this id, or only a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state in "ZX"


class Foreground:
    """A command that runs until a signal; its output goes to a file."""

    def __init__(
        self,
        command: Sequence[object],
        output: Path,
        *,
        preexec: Callable[[], None] = heed_interrupts,
        is_typed: bool = False,
    ) -> None:
        self.output = output
        self.process = subprocess.Popen(
            [*KRAFT, *map(str, command)],
            stdin=subprocess.PIPE if is_typed else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=output.open("ab"),
            env=PLAIN,
            text=True,
            preexec_fn=preexec,
            start_new_session=True,
        )

    @property
    def text(self) -> str:
        return self.output.read_text()

    def end(self, number: int) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        if self.process.stdin is not None:
            self.process.stdin.close()


@dataclass
class Controller:
    """One node: its file, and its process while it runs."""

    id: int
    port: int
    directory: Path
    bootstrap: str
    settings: Mapping[str, str] = field(default_factory=dict)
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
        self.file.write_text("".join(f"{name}={value}\n" for name, value in fields.items()))
        return self

    def format(self, cluster_id: str, *options: str) -> str:
        return printed("storage", "format", "-t", cluster_id, "-c", self.file, *options)

    @property
    def output(self) -> Path:
        return self.directory / f"node-{self.id}.out"

    def launch(self) -> None:
        self._said = len(self.output.read_text()) if self.output.exists() else 0
        self.running = Foreground(["server", "start", self.file], self.output)

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
