"""Ask Kafka's configuration classes and storage tool, in one JVM."""

from __future__ import annotations

import json
import subprocess
from types import TracebackType
from typing import Any, Self

from tests.interop.kafka_jars import Jars


class RefusedByKafkaError(Exception):
    """Kafka rejected the request; the message is Kafka's."""


class ConfigOracle:
    """A context manager around the process; requests are those of `java/ConfigOracle.java`."""

    def __init__(self, jars: Jars) -> None:
        quiet = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=off",)
        command = jars.command("ConfigOracle", classes=jars.compiled("ConfigOracle"))
        command[1:1] = quiet
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __call__(self, verb: str, **fields: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": verb, **fields}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise RefusedByKafkaError(answer["error"])
        return answer["ok"]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.communicate(timeout=30)
