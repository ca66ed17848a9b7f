"""Let Kafka's nodes start in half the time: Java maps their classes from an archive.

The archive of a release is beside its jars, and has the classes that a node of the release had
loaded when it ended (class data sharing). Java ignores an archive of another Java or other jars.
Benchmarks use none, because operators use none.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path

from kraft.server.local_quorum import free_ports
from tests.harness.kafka_jars import SMALL_JVM, Jars, cache_lock

_CLUSTER_ID = "Q2xhc3NlcyB0byBzaGFyZQ"
_TIMEOUT_S = 60.0
_NO_WARNINGS = "-Xlog:cds=off,cds+dynamic=off,class+path=off"


def class_archive(jars: Jars) -> tuple[str, ...]:
    """Return the options for Java; the first call for a release makes the archive."""
    path = jars.directory.with_name(f"{jars.directory.name}.jsa")
    with cache_lock():
        if not path.exists():
            _make(jars, path)
    return (f"-XX:SharedArchiveFile={path}", _NO_WARNINGS)


def _make(jars: Jars, path: Path) -> None:
    """Run a node until it has started, and then let it write its classes."""
    partial = path.with_name(f"{path.name}.partial")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        config, log = directory / "server.properties", directory / "log"
        config.write_text(_settings(directory / "data"))
        jars.run("kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", config)
        jvm = (*SMALL_JVM, f"-XX:ArchiveClassesAtExit={partial}", _NO_WARNINGS)
        with log.open("wb") as output:
            node = subprocess.Popen(
                jars.command("kafka.Kafka", config, jvm=jvm), stdout=output, stderr=output
            )
        try:
            deadline = time.monotonic() + _TIMEOUT_S
            while "Kafka Server started" not in log.read_text():
                if node.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"Kafka {jars.version} did not start: {log.read_text()}")
                time.sleep(0.05)
            node.terminate()
            node.wait(_TIMEOUT_S)
        finally:
            node.kill()
            node.wait()
    partial.rename(path)


def _settings(data: Path) -> str:
    broker, controller = free_ports(2)
    return f"""
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:{controller}
log.dirs={data}
"""
