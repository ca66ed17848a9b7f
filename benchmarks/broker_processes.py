"""Three of Apache Kafka's brokers on a quorum of either kind, for the suite `brokers`.

The brokers have Kafka's default settings and the options of its start script, with a heap of
2 GiB and less logging; only the controllers differ between the two kinds. `AppliedOffsets` (Java)
asks the brokers by JMX which metadata they have applied.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen
from types import TracebackType
from typing import Self, TypeVar

from benchmarks.network_quorums import TIMEOUT_S, NetworkQuorum, java_command, stamp_of
from kraft.network.controller_connection import Address
from kraft.server.local_quorum import LOOPBACK, free_ports
from tests.harness.commands import logged
from tests.harness.configurations import write_properties
from tests.harness.kafka_jars import Jars, kafka
from tests.harness.line_process import LineProcess

FIRST_BROKER_ID = 101
COUNT = 3
#: At the usual level these log several lines for each partition.
QUIET_LOGGERS = (
    "state.change.logger",
    "kafka.log",
    "kafka.cluster",
    "org.apache.kafka.storage",
)
#: A broker closes or recovers the logs of all its partitions.
RESTART_S = 600.0
T = TypeVar("T")
_REGISTERED = re.compile(r"Successfully registered broker \d+ with broker epoch")
_UNFENCED = re.compile(r"The broker has been unfenced")


class KafkaBroker:
    """One broker's files, and its process while it runs."""

    def __init__(self, jars: Jars, id: int, quorum: NetworkQuorum, directory: Path) -> None:
        self.id = id
        self.address: Address = (LOOPBACK, free_ports(1)[0])
        self._jars = jars
        self._home = directory / f"broker-{id}"
        self._home.mkdir(parents=True)
        self._config = self._home / "server.properties"
        voters = ",".join(f"{node.id}@{LOOPBACK}:{node.port}" for node in quorum.nodes)
        write_properties(
            self._config,
            {
                "process.roles": "broker",
                "node.id": id,
                "broker.rack": f"rack-{id}",
                "controller.quorum.voters": voters,
                "controller.listener.names": "CONTROLLER",
                "listeners": f"PLAINTEXT://{LOOPBACK}:{self.address[1]}",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
                "log.dirs": self._home / "data",
                # Files of deleted partitions stay open for so long; the default is 60 s.
                "log.segment.delete.delay.ms": 1000,
            },
        )
        format_it = ("format", "-t", quorum.cluster_id(), "-c", str(self._config))
        jars.run("kafka.tools.StorageTool", *format_it)
        self.log = self._home / "broker.log"
        self.process: Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process and return at once."""
        command = java_command(self._jars, self._config, "2g", QUIET_LOGGERS)
        self.process = logged(command, self.log, cwd=self._home)

    def stop(self) -> None:
        """Shut down in a controlled way, and wait for the end."""
        process = self._running()
        process.send_signal(signal.SIGTERM)
        process.wait(RESTART_S)
        self.process = None

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    @property
    def pid(self) -> int:
        return self._running().pid

    def _running(self) -> Popen[bytes]:
        if self.process is None or self.process.poll() is not None:
            said = self.log.read_text(errors="replace")[-4000:] if self.log.exists() else ""
            raise RuntimeError(f"broker {self.id} does not run:\n{said}")
        return self.process

    def registered_at(self, since: int) -> float:
        """Wait until the broker's log has its registration after this position; return its time."""
        return self._logged_at(_REGISTERED, since)

    def knows_leader_at(self, port: int, since: int) -> float:
        """Wait until the broker forwards requests to the controller at ``port``; return the time.

        Only the log after ``since`` is searched.
        """
        known = rf"forwarding-channel-manager\].* Recorded new KRaft controller.*:{port} "
        return self._logged_at(re.compile(known), since)

    def wait_until_unfenced(self, since: int) -> None:
        self._logged_at(_UNFENCED, since)

    def _logged_at(self, pattern: re.Pattern[str], since: int) -> float:
        def look() -> str | None:
            self._running()
            with self.log.open("rb") as log:
                log.seek(since)
                lines = log.read().decode(errors="replace").splitlines()
            return next((line for line in lines if pattern.search(line)), None)

        return stamp_of(until(look, f"broker {self.id} to log {pattern.pattern!r}", RESTART_S))


def until(look: Callable[[], T | None], what: str, timeout_s: float = TIMEOUT_S) -> T:
    """Repeat ``look`` until it returns something true, and return that."""
    deadline = time.monotonic() + timeout_s
    while not (found := look()):
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited {timeout_s} s for {what}")
        time.sleep(0.01)
    return found


class KafkaBrokers:
    """Running brokers of a quorum; a context manager that kills them at its end.

    Raises MissingToolError without Java or Kafka's jars.
    """

    def __init__(self, quorum: NetworkQuorum, directory: Path) -> None:
        jars = kafka()
        self._jars = jars
        ids = range(FIRST_BROKER_ID, FIRST_BROKER_ID + COUNT)
        self.all = [KafkaBroker(jars, id, quorum, directory) for id in ids]
        self._offsets: LineProcess | None = None

    def __enter__(self) -> Self:
        try:
            for broker in self.all:
                broker.start()
            for broker in self.all:
                broker.wait_until_unfenced(0)
            classes = self._jars.compiled("AppliedOffsets")
            pids = [str(broker.pid) for broker in self.all]
            self._offsets = LineProcess(
                self._jars.command("AppliedOffsets", *pids, classes=classes)
            )
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        for broker in self.all:
            broker.kill()
        if self._offsets is not None:
            self._offsets.close()

    def wait_until_applied(self, offset: int) -> None:
        """Wait until every broker has applied the metadata up to this offset.

        Only before the first restart of a broker.
        """
        offsets = self._offsets
        assert offsets is not None

        def all_applied() -> bool:
            return all(int(each) >= offset for each in offsets.ask("").split())

        until(all_applied, f"the brokers to apply offset {offset}", RESTART_S)
