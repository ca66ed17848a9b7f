"""Candidates for the controller of a cluster on ZooKeeper, as processes that can be killed.

kraft's own ones (`OwnCandidate`), and brokers of Apache Kafka (`KafkaCandidate`), which elect one
of themselves.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from kraft.errors import KraftError
from kraft.fleet.own_quorum import kafka_java
from kraft.generations.zk_candidate import READY
from kraft.metadata.properties import property_line
from kraft.server.local_quorum import LOOPBACK, free_ports
from kraft.zookeeper.settings import ZkEra

_SAID = 2000


class Candidate(ABC):
    """One process; ``command`` starts it, ``log`` gets its output."""

    #: Whether it registers below ``/brokers/ids`` as soon as it is a candidate.
    is_broker = False

    def __init__(self, id: int, directory: Path) -> None:
        self.id = id
        self.directory = directory
        self.log = directory / f"controller-{id}.log"
        self._process: subprocess.Popen[bytes] | None = None
        #: The size of the log when the process started.
        self._started_at = 0

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command that runs it."""

    @property
    def pid(self) -> int | None:
        """The id of its process, None while it does not run."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process; it needs a while until it is a candidate."""
        with self.log.open("ab") as log:
            self._started_at = log.tell()
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                # Ctrl-C reaches only the parent, which ends it.
                start_new_session=True,
            )

    def has_session(self) -> bool:
        """Return whether it has said that it is a candidate (`zk_candidate.READY`)."""
        with self.log.open("rb") as log:
            log.seek(self._started_at)
            return READY.encode() in log.read()

    def check(self) -> None:
        """Raise KraftError with the end of its output if it ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            said = self.log.read_text(errors="replace")[-_SAID:]
            raise KraftError(f"controller {self.id} ended:\n{said}")

    def kill(self) -> None:
        """Kill the process, if it runs, as kill -9: its session times out."""
        if self._process is not None:
            process, self._process = self._process, None
            process.kill()
            process.wait()
            if process.stdin is not None:
                with suppress(BrokenPipeError):
                    process.stdin.close()


class OwnCandidate(Candidate):
    """kraft's controller of an era."""

    def __init__(
        self,
        id: int,
        directory: Path,
        address: str,
        session_timeout_ms: int,
        *,
        era: ZkEra,
        pipelines: bool,
    ) -> None:
        super().__init__(id, directory)
        self._arguments = [era.value, str(id), address, str(session_timeout_ms)]
        if not pipelines:
            self._arguments.append("--sync")

    def command(self) -> list[str]:
        return [sys.executable, "-m", "kraft.generations.zk_candidate", *self._arguments]


class KafkaCandidate(Candidate):
    """A broker of Apache Kafka that gets no replicas: the controller, or a candidate for it."""

    is_broker = True

    def __init__(
        self,
        id: int,
        directory: Path,
        address: str,
        session_timeout_ms: int,
        *,
        jars: Path,
        heap: str,
        settings: Mapping[str, str],
    ) -> None:
        super().__init__(id, directory)
        self._jars = jars
        self._heap = heap
        home = directory / f"kafka-{id}"
        home.mkdir(parents=True)
        self._config = home / "server.properties"
        (port,) = free_ports(1)
        fields = {
            "broker.id": str(id),
            "listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
            # 0.8.2 reads these instead.
            "host.name": LOOPBACK,
            "port": str(port),
            "zookeeper.connect": address,
            "zookeeper.session.timeout.ms": str(session_timeout_ms),
            "zookeeper.connection.timeout.ms": "30000",
            "log.dirs": str(home / "data"),
            "log.cleaner.enable": "false",
            # Leaders move only where the script moves them.
            "auto.leader.rebalance.enable": "false",
            "controlled.shutdown.enable": "false",
            **settings,
        }
        self._config.write_text("".join(property_line(*each) for each in fields.items()))

    def command(self) -> list[str]:
        command = [
            *(kafka_java(), f"-Xmx{self._heap}", f"-Xms{self._heap}", "-server", "-XX:+UseG1GC"),
            *("-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"),
            "-Djava.awt.headless=true",
            # At their usual levels they log a line for each partition.
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
            # A znode of many partitions is larger than ZooKeeper's default of 1 MiB.
            f"-Djute.maxbuffer={256 << 20}",
            *("-cp", str(self._jars / "*"), "kafka.Kafka", str(self._config)),
        ]
        setpriv = shutil.which("setpriv")
        # Killed, a comparison leaves no JVM behind.
        return [setpriv, "--pdeathsig", "KILL", *command] if setpriv else command
