"""Apache Kafka's brokers in three racks, on a quorum of three kraft controllers.

`BrokerLives` ends and starts brokers, writes numbered records, reads them back, and reads the
quorum's committed metadata.

`BROKER_LIVES=all` selects the variants of `make broker-lives`; `BROKER_LIVES` may also name some of
them, separated by spaces. `BROKER_LIVES_CONTROL=1` runs Kafka's own controllers instead of kraft's.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from kraft._core.log.log import Log
from kraft.errors import KraftError
from kraft.metadata.facade import Metadata
from kraft.metadata.identifiers import random_uuid
from kraft.metadata.partitions import PartitionInfo
from kraft.metadata.quorum_reader import read_metadata
from kraft.metadata.verification import verify
from kraft.metadata.verification_findings import Severity
from kraft.network.quorum_client import QuorumClient
from tests.harness.kafka_jars import KAFKA_4, kafka
from tests.interop.cluster import (
    HOST,
    Cluster,
    ClusterError,
    Driver,
    Node,
    wait_for,
)
from tests.interop.cluster_variants import BROKERS, ClusterSecurity, Variant, asked_variants
from tests.interop.kafka_faults import check_errors
from tests.interop.kraft_node import CLEANING, KraftNode, add_kraft_controller
from tests.interop.mixed_quorum import FAULT, METADATA_LOG
from tests.interop.scenario import CONTROLLERS, RACKS

#: One variant in CI.
VARIANTS = asked_variants(os.environ.get("BROKER_LIVES", ""), f"{KAFKA_4}-dynamic-secured")
IS_FULL_SIZE = "BROKER_LIVES" in os.environ
IS_CONTROL = os.environ.get("BROKER_LIVES_CONTROL", "") == "1"
CLUSTER_ID = "bGl2ZXMgb2YgYnJva2Vycw"
RUNNING = "The broker has been unfenced. Transitioning from RECOVERY to RUNNING."
#: The settings of all nodes: a snapshot every 20 kB; old log is deleted.
SETTINGS = {
    "broker.session.timeout.ms": "5000",
    "replica.lag.time.max.ms": "10000",
    "metadata.log.max.record.bytes.between.snapshots": "20000",
    "metadata.max.retention.bytes": "1",
}
#: Only for controllers: Kafka's nodes log this setting as an error.
SMALL_SEGMENTS = {"internal.metadata.log.segment.bytes": "20000"}
#: Where a log directory of an unfenced broker fails, the leader waits for its replica, which has
#: just left the ISR, for `replica.lag.time.max.ms` (`Partition.maybeIncrementLeaderHW`). Then it
#: acknowledges a record when the producer sends it again.
PRODUCER = {"acks": "all", "request.timeout.ms": "5000"}
START_TIMEOUT_S = 60.0
#: A broker writes this file into each log directory at the end of a controlled shutdown.
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"


@dataclass
class BrokerLives:
    """The cluster, and the number of records that each partition has."""

    cluster: Cluster
    variant: Variant
    sent: dict[str, list[int]] = field(default_factory=dict)
    starts: Counter[int] = field(default_factory=Counter)

    # -- clients

    @cached_property
    def security(self) -> ClusterSecurity:
        return ClusterSecurity(self.cluster, is_secured=self.variant.is_secured)

    @property
    def at(self) -> str:
        """Return the addresses of the controllers, for `--bootstrap-controller`."""
        return ",".join(node.address for node in self.controllers)

    @property
    def controllers(self) -> list[Node]:
        return [self.cluster.nodes[id] for id in CONTROLLERS]

    @cached_property
    def ask(self) -> Driver:
        """Return Kafka's Admin client for the brokers."""
        return self.cluster.driver(security=self.security.client)

    def metadata(self) -> Metadata:
        """Return the committed metadata, read from the leader of the quorum."""
        servers = [(HOST, node.port) for node in self.controllers]
        security = self.security.controller_client
        try:
            with QuorumClient(servers, timeout_s=30.0, security=security) as client:
                return read_metadata(client)
        except KraftError as error:
            raise ClusterError(str(error)) from error

    def wait_until(
        self, what: str, holds: Callable[[Metadata], bool], timeout_s: float = 60.0
    ) -> Metadata:
        """Wait until the committed metadata has this property; return it."""
        seen: list[Metadata] = []

        def ask() -> Metadata | None:
            seen[:] = [self.metadata()]
            return seen[0] if holds(seen[0]) else None

        try:
            return wait_for(what, ask, timeout_s)
        except ClusterError as error:
            lines = "\n".join(map(str, seen[0].partitions if seen else ()))
            raise ClusterError(f"{error}; the partitions:\n{lines}") from None

    # -- brokers

    def start(self, *ids: int) -> None:
        """Start brokers; wait until each is unfenced and says that it is running."""
        for id in ids:
            self.start_process(id)
        for id in ids:
            self.wait_until_running(id)

    def start_process(self, id: int) -> None:
        self.starts[id] += 1
        self.cluster.nodes[id].start()

    def wait_until_running(self, id: int) -> None:
        node = self.cluster.nodes[id]

        def runs() -> bool:
            node.check_running()
            return node.log.read_text(errors="replace").count(RUNNING) == self.starts[id]

        wait_for(f"broker {id} to be RUNNING", runs, START_TIMEOUT_S)
        self.wait_until(f"broker {id} unfenced", lambda now: not now.brokers[id].fenced)

    def kill(self, id: int) -> None:
        """Kill a broker; wait until it is fenced."""
        self.cluster.nodes[id].kill()
        self.wait_until(f"broker {id} fenced", lambda now: now.brokers[id].fenced)

    def stop(self, id: int) -> None:
        """Shut a broker down cleanly, which fences it."""
        self.cluster.nodes[id].stop()
        self.wait_until(f"broker {id} fenced", lambda now: now.brokers[id].fenced)

    def wipe(self, id: int) -> None:
        """Replace all disks of a stopped broker by empty ones, formatted by its release."""
        node = self.cluster.nodes[id]
        for directory in self.log_directories(id):
            shutil.rmtree(directory)
        node.format(CLUSTER_ID, *self.broker_format())

    def broker_format(self) -> tuple[str, ...]:
        return (*self.cluster.broker_format(), "-r", self.variant.level)

    def log_directories(self, id: int) -> list[Path]:
        directory = self.cluster.nodes[id].directory
        return [directory / "data-0", directory / "data-1"]

    def wait_until_in_sync(self) -> Metadata:
        """Wait until all partitions have a leader and all replicas in sync, none eligible only.

        Every replica is then in a registered directory of its broker: with several directories a
        broker chooses one, and reports it with AssignReplicasToDirs.
        """

        def are_settled(now: Metadata) -> bool:
            known = {id: {*broker.log_dirs} for id, broker in now.brokers.items()}
            return all(
                {*one.isr} == {*one.replicas}
                and one.leader in one.isr
                and not one.elr
                and all(
                    directory in known[replica]
                    for replica, directory in zip(one.replicas, one.directories, strict=True)
                )
                for one in now.partitions
            )

        return self.wait_until("all replicas in sync, in registered directories", are_settled)

    # -- topics

    def create_topic(self, name: str, **how: Any) -> None:
        """Create a topic whose partitions need two replicas in sync for a record."""
        topic = {"name": name, "configs": {"min.insync.replicas": "2"}, **how}
        wait_for(f"topic {name}", lambda: self.ask("create_topics", topics=[topic]) == 1)
        now = self.wait_until_in_sync()
        self.sent[name] = [0] * sum(one.topic == name for one in now.partitions)

    def write(self, count: int = 20) -> None:
        """Write records to each partition of each topic, with acks=all."""
        for topic, sent in self.sent.items():
            fields = {"topic": topic, "sent": sent, "count": count}
            self.ask("write_numbers", config=self._client | PRODUCER, **fields)
            self.sent[topic] = [each + count for each in sent]

    def check_readable(self) -> None:
        """Check that each partition has exactly the records that were acknowledged, in order."""
        for topic, sent in self.sent.items():
            config = self._client | {"auto.offset.reset": "earliest"}
            found = self.ask("read_numbers", config=config, topic=topic, sent=sent)
            assert found == {"read": sum(sent), "missing": 0, "out_of_order": 0}, topic

    @property
    def _client(self) -> dict[str, str]:
        addresses = ",".join(self.cluster.nodes[id].address for id in BROKERS)
        return {"bootstrap.servers": addresses} | self.security.client

    # -- logs

    def log_start(self, node: Node) -> int:
        return self._extent(node)[0]

    def log_end(self, node: Node) -> int:
        return self._extent(node)[1]

    def _extent(self, node: Node) -> tuple[int, int]:
        """Return start and end offset of a node's metadata log; the node may be running."""
        try:
            with Log.open(node.metadata_directory / METADATA_LOG, read_only=True) as log:
                return log.log_start_offset, log.log_end_offset
        except (KraftError, OSError) as error:
            # The node deletes segments while they are opened.
            raise ClusterError(str(error)) from error


def partition(now: Metadata, topic: str, number: int = 0) -> PartitionInfo:
    return now.partitions.find(topic, number)


@contextmanager
def formatted_cluster(variant: Variant, directory: Path) -> Iterator[BrokerLives]:
    """Yield a cluster whose nodes are formatted, and not started; kill its processes at the end."""
    cluster = Cluster(kafka(max(variant.releases)), directory, CLUSTER_ID, variant.is_static)
    cluster.reserve_controllers(*CONTROLLERS)
    cluster.settings |= SETTINGS
    lives = BrokerLives(cluster, variant)
    try:
        for id in CONTROLLERS:
            _add_controller(lives, id)
        for id, release in zip(BROKERS, variant.releases, strict=True):
            broker = cluster.add_broker(id, RACKS[id])
            broker.jars = kafka(release)
        lives.security.secure(*cluster.nodes.values())
        voters = ",".join(
            f"{id}@{HOST}:{port}:{random_uuid()!s}" for id, port in cluster.controller_ports.items()
        )
        initial = () if variant.is_static else ("--initial-controllers", voters)
        for id in CONTROLLERS:
            cluster.nodes[id].format(
                CLUSTER_ID, *initial, "-r", variant.level, *lives.security.scram
            )
        for id in BROKERS:
            cluster.nodes[id].format(CLUSTER_ID, *lives.broker_format())
        yield lives
    finally:
        cluster.kill()


def _add_controller(lives: BrokerLives, id: int) -> None:
    if IS_CONTROL:
        lives.cluster.add_controller(id).jars = kafka(KAFKA_4)
    else:
        add_kraft_controller(lives.cluster, id).program = CLEANING
    lives.cluster.nodes[id].settings |= SMALL_SEGMENTS


def check_nodes(lives: BrokerLives, *, provoked: tuple[str, ...] = ()) -> None:
    """Stop all nodes cleanly; check that they have the same metadata and have logged no fault.

    ``provoked`` are patterns of errors of Kafka's that the test has caused.
    """
    nodes = lives.cluster.nodes
    for id in BROKERS:
        lives.stop(id)
        for directory in lives.log_directories(id):
            assert (directory / CLEAN_SHUTDOWN).exists(), directory
    for node in lives.controllers:
        node.stop()
    result = verify([node.metadata_directory / METADATA_LOG for node in nodes.values()])
    bad = [each for each in result.findings if each.severity is Severity.CONTRADICTION]
    assert not bad, "\n".join(map(str, bad))
    assert len(result.directories) == len(nodes)
    for node in lives.controllers:
        if isinstance(node, KraftNode):
            text = node.log.read_text(errors="replace")
            assert " ERROR " not in text, text[-4000:]
            assert FAULT.search(text) is None, text[-4000:]
    check_errors(list(nodes.values()), provoked=(*provoked, *SMALL_SEGMENTS))
