"""Run a Kafka Streams application and a Connect worker at the brokers of a cluster."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kraft.server.local_quorum import free_ports
from tests.harness.commands import eventually, logged
from tests.harness.configurations import write_properties
from tests.harness.kafka_jars import applications
from tests.interop.cluster import HOST

_JVM = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_STRING = "org.apache.kafka.connect.storage.StringConverter"
_STOP_TIMEOUT_S = 60


@contextmanager
def word_count(
    directory: Path, servers: str, source: str, sink: str, protocol: str
) -> Iterator[None]:
    """Run `java/WordCount.java`; it has left its group at the end of the block."""
    jars = applications()
    name = f"count-{protocol}"
    command = jars.command(
        *("WordCount", servers, name, source, sink, directory / name, protocol),
        classes=jars.compiled("WordCount"),
        jvm=_JVM,
    )
    process = logged(command, directory / f"{name}.log", has_input=True)
    try:
        yield
        assert process.poll() is None, f"{name} has ended"
        assert process.stdin is not None
        process.stdin.close()
        process.wait(_STOP_TIMEOUT_S)
    finally:
        process.kill()
        process.wait()


class ConnectWorker:
    """A distributed worker of Kafka Connect, which keeps its state in topics of its own."""

    def __init__(self, directory: Path, servers: str) -> None:
        (port,) = free_ports(1)
        self._url = f"http://{HOST}:{port}/connectors"
        settings = {
            "bootstrap.servers": servers,
            "group.id": "connect",
            "listeners": f"http://{HOST}:{port}",
            "key.converter": _STRING,
            "value.converter": _STRING,
            "offset.flush.interval.ms": "1000",
            "exactly.once.source.support": "enabled",
            "offset.storage.partitions": "2",
            "status.storage.partitions": "2",
        }
        for what in ("offset", "config", "status"):
            settings[f"{what}.storage.topic"] = f"connect-{what}"
            settings[f"{what}.storage.replication.factor"] = "3"
        properties = directory / "connect.properties"
        write_properties(properties, settings)
        command = applications().command(
            "org.apache.kafka.connect.cli.ConnectDistributed", properties, jvm=_JVM
        )
        self._process = logged(command, directory / "connect.log")

    def put(self, name: str, config: dict[str, str]) -> None:
        """Create a connector, once the worker answers."""
        request = urllib.request.Request(
            f"{self._url}/{name}/config",
            data=json.dumps(config | {"name": name, "tasks.max": "1"}).encode(),
            headers={"Content-Type": "application/json"},
            method="PUT",
        )
        eventually(lambda: self._answer(request) is not None)

    def state(self, name: str) -> str:
        """Return the state of the connector's task, "" before there is one."""
        said = self._answer(urllib.request.Request(f"{self._url}/{name}/status"))
        return said["tasks"][0]["state"] if said and said["tasks"] else ""

    def _answer(self, request: urllib.request.Request) -> Any:
        assert self._process.poll() is None, "the worker has ended"
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return json.load(response)
        except OSError:
            return None

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
