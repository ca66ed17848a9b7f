"""A producer and a transactional copier that check themselves: `java/VerifiedLoad.java`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.harness.kafka_jars import Jars
from tests.harness.line_process import LineProcess
from tests.interop.cluster import Driver, Node

TOPIC, COPIES, LOAD_PARTITIONS, PAUSE_MS = "stream", "copies", 6, 5
REPLICATED: dict[str, Any] = {"replication_factor": 3, "configs": {"min.insync.replicas": "2"}}
#: Kafka's defaults. The small values of other tests would hold the producer up: a checkpoint of all
#: partitions each second, 20 kB a fetch of replicas, and replicas out of sync after 3 s.
DEFAULTS_OF_BROKERS = {
    "log.flush.offset.checkpoint.interval.ms": "60000",
    "replica.fetch.max.bytes": "1048576",
    "replica.fetch.response.max.bytes": "10485760",
    "replica.lag.time.max.ms": "30000",
}


class VerifiedLoad:
    """The running load; ``process`` is a context manager. The topics must exist."""

    def __init__(
        self,
        jars: Jars,
        brokers: Iterable[Node],
        log: Path,
        security: Mapping[str, str] | None = None,
    ) -> None:
        servers = ",".join(node.address for node in brokers)
        command = jars.command(
            "VerifiedLoad", servers, TOPIC, COPIES, str(LOAD_PARTITIONS), str(PAUSE_MS),
            json.dumps(security or {}),
            classes=jars.compiled("NumberedRecords", "VerifiedLoad"),
        )  # fmt: skip
        with log.open("ab") as errors:
            self.process = LineProcess(command, errors=errors)

    def ask(self, word: str) -> dict[str, Any]:
        """Return the answer to `mark` or `end`."""
        answer: dict[str, Any] = json.loads(self.process.ask(word))
        return answer

    def check_end(self, at_least: int = 1000) -> dict[str, Any]:
        """End the load; check that each acknowledged record is there once, in order, and copied.

        The load must have written ``at_least`` so many records.
        """
        found = self.ask("end")
        complete = {"read": found["acknowledged"], "missing": 0, "out_of_order": 0}
        assert (found["read"], found["copied"], found["failed"]) == (complete, complete, 0), found
        assert found["acknowledged"] >= at_least
        return found


def create_topics(ask: Driver) -> None:
    """Create the two topics of the load."""
    for name in (TOPIC, COPIES):
        ask("create_topics", topics=[{"name": name, "partitions": LOAD_PARTITIONS, **REPLICATED}])
