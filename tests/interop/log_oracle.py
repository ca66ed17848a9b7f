"""Asks a real log of Apache Kafka, in one JVM (`java/LogOracle.java`)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.harness.kafka_jars import Jars
from tests.harness.line_process import JsonRequests, LineProcess


@contextmanager
def log_oracle(jars: Jars) -> Iterator[JsonRequests]:
    """Start the process; a request names the directory of its log."""
    with LineProcess(jars.oracle("LogOracle"), errors=subprocess.DEVNULL) as process:
        yield JsonRequests(process)
