"""Three servers of ZooKeeper, which need two for a quorum."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from kraft.server.local_quorum import LOOPBACK, free_ports
from kraft.zookeeper.server import four_letters, zookeeper_jars
from tests.harness.commands import eventually, logged
from tests.harness.kafka_jars import java

SERVERS = (1, 2, 3)


class ZooKeeperEnsemble:
    """A context manager; ``servers`` is its address for clients. Sessions last 4 to 40 s."""

    def __init__(self, directory: Path) -> None:
        ports = free_ports(3 * len(SERVERS))
        self._directory = directory
        self._client_ports = dict(zip(SERVERS, ports, strict=False))
        peers = ports[len(SERVERS) :]
        self._peers = [
            f"server.{id}={LOOPBACK}:{peers[2 * at]}:{peers[2 * at + 1]}"
            for at, id in enumerate(SERVERS)
        ]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.servers = ",".join(f"{LOOPBACK}:{port}" for port in self._client_ports.values())

    def start(self, id: int) -> None:
        data = self._directory / f"server-{id}"
        data.mkdir(exist_ok=True, parents=True)
        (data / "myid").write_text(f"{id}\n")
        config = self._directory / f"server-{id}.properties"
        lines = (
            f"dataDir={data}",
            f"clientPort={self._client_ports[id]}",
            f"clientPortAddress={LOOPBACK}",
            "tickTime=2000",
            # In ticks: the machine may stand still.
            *("initLimit=15", "syncLimit=10"),
            *("maxClientCnxns=0", "admin.enableServer=false", "4lw.commands.whitelist=*"),
            *self._peers,
        )
        config.write_text("\n".join(lines))
        command = (
            *(java(), "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            "-Dorg.apache.logging.log4j.level=WARN",
            *("-cp", os.pathsep.join(map(str, zookeeper_jars()))),
            *("org.apache.zookeeper.server.quorum.QuorumPeerMain", config),
        )
        self._processes[id] = logged(command, self._directory / f"server-{id}.log")

    def await_service(self, id: int) -> None:
        """Wait until a server answers clients, which needs a quorum."""
        eventually(lambda: self.mode(id) in ("leader", "follower"))

    def mode(self, id: int) -> str:
        """Return ``leader`` or ``follower``; "" without a quorum."""
        answer = four_letters(LOOPBACK, self._client_ports[id], "srvr")
        _, found, mode = answer.partition("Mode: ")
        return mode.split()[0] if found else ""

    def kill(self, id: int) -> None:
        self._processes[id].kill()
        self._processes[id].wait()

    def __enter__(self) -> Self:
        try:
            for id in SERVERS:
                self.start(id)
            for id in SERVERS:
                self.await_service(id)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for id in self._processes:
            self.kill(id)
