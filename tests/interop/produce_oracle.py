"""Asks Apache Kafka's log and producer state manager, in one JVM (`java/ProduceOracle.java`)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.harness.kafka_jars import Jars
from tests.harness.line_process import JsonRequests, LineProcess


@contextmanager
def produce_oracle(jars: Jars, directory: Path) -> Iterator[JsonRequests]:
    """Start the process; ``directory`` holds its log and snapshot files."""
    command = [*jars.oracle("ProduceOracle"), str(directory)]
    with LineProcess(command, errors=subprocess.DEVNULL) as process:
        yield JsonRequests(process)
