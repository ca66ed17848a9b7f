"""A load of Apache Kafka's Java clients that checks itself, while nodes stop and start.

`java/VerifiedLoad.java`: an idempotent producer with acks=all, and a transactional copier.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tests.harness.line_process import LineProcess
from tests.interop.cluster import Cluster, Driver

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
    """The running load, through these brokers."""

    def __init__(self, cluster: Cluster, brokers: Iterable[int]) -> None:
        servers = ",".join(cluster.nodes[id].address for id in brokers)
        command = cluster.jars.command(
            "VerifiedLoad", servers, TOPIC, COPIES, str(LOAD_PARTITIONS), str(PAUSE_MS),
            classes=cluster.jars.compiled("NumberedRecords", "VerifiedLoad"),
        )  # fmt: skip
        with (cluster.directory / "load.log").open("ab") as errors:
            self.process = LineProcess(command, errors=errors)

    def ask(self, word: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.process.ask(word))
        return answer

    def check(self) -> None:
        """End the load; check that no acknowledged record is lost, repeated or out of order."""
        found = self.ask("end")
        print(f"\n{found}")
        complete = {"read": found["acknowledged"], "missing": 0, "out_of_order": 0}
        assert (found["read"], found["copied"], found["failed"]) == (complete, complete, 0), found
        assert found["acknowledged"] > 1000


def create_topics(ask: Driver) -> None:
    """Create the two topics of the load."""
    for name in (TOPIC, COPIES):
        ask("create_topics", topics=[{"name": name, "partitions": LOAD_PARTITIONS, **REPLICATED}])
