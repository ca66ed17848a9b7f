"""The controllers of a live Apache Kafka cluster are replaced by kraft's one at a time, and back.

An idempotent producer with acks=all and a transactional copier run all the time. The test types
what ``kraft transplant plan`` prints, as docs/how-to/replace-kafkas-controllers.md says. At the end
no acknowledged record is lost, repeated or out of order, no broker was fenced, no Kafka process has
logged an error that it does not log in a quorum of Kafka's controllers alone, and all controllers
have the same log.

In CI the voters are static and there are a few dozen partitions. `TRANSPLANT_PARTITIONS=2000` is
the full size: it also measures Kafka's own rolling restart of its controllers in the same run.
`TRANSPLANT` names the clusters, or is "all": releases, voters, plain or secured listeners.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kraft._core.log.log import Log
from kraft.metadata.identifiers import random_uuid
from kraft.metadata.verification import verify
from kraft.metadata.verification_findings import Severity
from tests.harness.commands import kraft, printed
from tests.harness.kafka_jars import KAFKA_4, kafka
from tests.interop.cluster import HOST, Cluster, Driver, Node, wait_for
from tests.interop.cluster_variants import BROKERS, ClusterSecurity, Variant, asked_variants
from tests.interop.kafka_faults import check_errors, check_fences
from tests.interop.kraft_node import KraftNode
from tests.interop.mixed_quorum import FAULT, METADATA_LOG, QUORUM_TOOL, MixedQuorum, log_bytes
from tests.interop.scenario import RACKS
from tests.interop.verified_load import (
    DEFAULTS_OF_BROKERS,
    LOAD_PARTITIONS,
    REPLICATED,
    VerifiedLoad,
    create_topics,
)

PARTITIONS = int(os.environ.get("TRANSPLANT_PARTITIONS", "36"))
IS_FULL_SIZE = "TRANSPLANT_PARTITIONS" in os.environ
VARIANTS = asked_variants(os.environ.get("TRANSPLANT", ""), f"{KAFKA_4}-static-plaintext")
KAFKAS, KRAFTS = (101, 102, 103), (111, 112, 113)
#: The bar: the longest wait of a producer, compared with Kafka's own rolling restart.
PAUSE_RATIO = 1.5
QUIET_S = 15
#: Settings of the file that Kafka ships for a controller, which a kraft node ignores.
KAFKAS_FILE = {
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "num.recovery.threads.per.data.dir": "2",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
pytestmark = [pytest.mark.interop, pytest.mark.timeout(1200)]


class KraftController(KraftNode):
    """A kraft node with a log of its own, beside the log of the Kafka node in its directory."""

    @property
    def log(self) -> Path:
        return self.directory / "kraft-log"


@dataclass
class Transplant:
    """The cluster, and what stands on each controller's machine: Kafka, kraft and one directory."""

    quorum: MixedQuorum
    ask: Driver
    load: VerifiedLoad
    variant: Variant
    security: ClusterSecurity
    pauses: dict[str, int] = field(default_factory=dict)
    _topics: int = 0

    @property
    def cluster(self) -> Cluster:
        return self.quorum.cluster

    @property
    def at(self) -> tuple[str, ...]:
        """Return the options of a command that asks the controllers."""
        addresses = ",".join(node.address for node in self.quorum.running)
        file = str(self.security.controller_client_file)
        client = ("--command-config", file) if self.variant.is_secured else ()
        return ("--bootstrap-controller", addresses, *client)

    def run(self, *, is_back: bool) -> None:
        """Type what the plan says, as in the guide."""
        options = ["--back"] if is_back else []
        if not self.variant.is_static:
            for id in KAFKAS if is_back else KRAFTS:
                new = self.prepare(id, is_back)
                if is_back:
                    # The directory that Kafka left: an added voter has an empty one.
                    shutil.rmtree(new.metadata_directory)
                options += ["--replacement", str(new.properties)]
        ran = kraft("transplant", "plan", *options, *self.at, "--json")
        document = json.loads(ran.stdout)
        assert ran.returncode == 0, document["findings"]
        assert document["canStart"]
        leader = document["leaderId"]
        assert document["order"][-1] == leader, "the leader is the last"
        node_id = -1
        for step in document["steps"]:
            words = shlex.split(step["kafka"] if is_back and step["kafka"] else step["kraft"])
            words = words or shlex.split(step["kafka"])
            if "--controller-id" in words:
                node_id = int(words[words.index("--controller-id") + 1])
            self.type(words, node_id, is_back)

    def type(self, words: list[str], node_id: int, is_back: bool) -> None:
        """Run one command of the plan, on the machine of this controller."""
        match words:
            case []:
                # The settings of the nodes name all controllers from the start.
                pass
            case ["kafka-server-stop.sh", option]:
                assert option == f"--node-id={node_id}"
                self.stop(node_id)
            case ["systemctl", "stop", "kraft"]:
                self.stop(node_id)
            case ["kraft", "server", "start", file] | ["kafka-server-start.sh", "-daemon", file]:
                node = self.prepare(node_id, is_back) if file == "FILE" else self.of_file(file)
                assert isinstance(node, KraftNode) is not is_back
                node.start()
                node.wait_until_listening()
                self.create_topic()
            case ["kafka-metadata-quorum.sh", *_, "--command-config", file, "add-controller"]:
                own, client = Path(file), self.security.controller_client_file
                own.write_text(own.read_text() + client.read_text())
                self.cluster.jars.run(QUORUM_TOOL, *words[1:], timeout_s=180)
            case ["kafka-storage.sh" | "kafka-metadata-quorum.sh" as tool, *options]:
                main = "kafka.tools.StorageTool" if tool == "kafka-storage.sh" else QUORUM_TOOL
                self.cluster.jars.run(main, *options, timeout_s=180)
            case ["kraft", "preflight", *_]:
                wait_for("the replacement to follow", lambda: kraft(*words[1:]).returncode != 4)
            case ["kraft", "backup", *options]:
                options[options.index("--to") + 1] = str(self.cluster.directory / f"b{is_back}")
                printed("backup", *options)
            case ["kraft", *options]:
                printed(*options)
            case _:
                raise AssertionError(words)

    def prepare(self, node_id: int, is_kafka: bool) -> Node:
        """Put Kafka's or kraft's program on a controller's machine; settings and files stay."""
        if node_id not in self.cluster.nodes:
            added = self.cluster.add_controller(node_id)
            self.security.secure(added)
            added.write_properties()
        old = self.cluster.nodes[node_id]
        kind = Node if is_kafka else KraftController
        if type(old) is kind or old.process is not None:
            return old
        node = kind(
            old.jars, old.directory, old.id, old.role, old.port, old.sasl_port, old.settings
        )
        self.cluster.nodes[node_id] = node
        return node

    def of_file(self, path: str) -> Node:
        return next(one for one in self.quorum.nodes.values() if str(one.properties) == path)

    def stop(self, node_id: int) -> None:
        self.cluster.nodes[node_id].stop()

    def create_topic(self) -> None:
        """See that the brokers' clients are served, whoever leads."""
        self._topics += 1
        topic = {"name": f"after-{self._topics}", "partitions": 2, "replication_factor": 3}

        def is_there() -> bool:
            # A request whose answer was late may have created it.
            return topic["name"] in self.ask("list_topics") or not self.ask(
                "create_topics", topics=[topic]
            )

        wait_for("a topic", is_there)

    def mark(self, name: str) -> None:
        """Note the longest wait of the producer since the last mark."""
        said = self.load.ask("mark")
        print(f"\n{name}: {said}")
        self.pauses[name] = said["longest_ms"]

    def restart_kafkas(self) -> None:
        """Kafka's own rolling restart, the leader last."""
        leader = self.quorum.described().leader_id
        for id in sorted(KAFKAS, key=lambda id: id == leader):
            printed("transplant", "check", "--controller-id", id, "--wait", 60, *self.at)
            self.stop(id)
            self.quorum.start(id)
            self.create_topic()
        printed("transplant", "check", "--wait", 60, *self.at)


@pytest.fixture(params=VARIANTS, ids=str)
def transplant(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Transplant]:
    """Run three controllers and three brokers of Apache Kafka, under load."""
    variant: Variant = request.param
    directory = tmp_path_factory.mktemp("transplant")
    jars = kafka(max(variant.releases))
    cluster = Cluster(jars, directory, "dHJhbnNwbGFudCBvZiBpdA", variant.is_static)
    security = ClusterSecurity(cluster, is_secured=variant.is_secured)
    cluster.reserve_controllers(*KAFKAS, *(() if variant.is_static else KRAFTS))
    # Kafka's defaults: a controller is replaced within the session of the brokers.
    cluster.settings |= {
        "broker.heartbeat.interval.ms": "2000",
        "broker.session.timeout.ms": "9000",
        "metadata.log.max.record.bytes.between.snapshots": "200000",
    }
    try:
        voters = ",".join(
            f"{id}@{HOST}:{cluster.controller_ports[id]}:{random_uuid()!s}" for id in KAFKAS
        )
        initial = () if variant.is_static else ("--initial-controllers", voters)
        level = ("-r", variant.level)
        for id in KAFKAS:
            node = cluster.add_controller(id)
            node.settings.update(KAFKAS_FILE)
            security.secure(node)
            node.format(cluster.cluster_id, *initial, *level, *security.scram)
        for id, release in zip(BROKERS, variant.releases, strict=True):
            broker = cluster.add_broker(id, RACKS[id])
            broker.jars = kafka(release)
            broker.settings.update(DEFAULTS_OF_BROKERS)
            security.secure(broker)
            broker.format(cluster.cluster_id, *cluster.broker_format(), *level)
        cluster.start()
        mixed = MixedQuorum(cluster, security.controller_client)
        mixed.wait_for_leader(*KAFKAS)
        ask = cluster.driver(security=security.client)
        wait_for("all brokers", lambda: ask("brokers") == list(BROKERS))
        create_topics(ask)
        create_others(ask)
        brokers = [cluster.nodes[id] for id in BROKERS]
        log = cluster.directory / "load.log"
        load = VerifiedLoad(kafka(KAFKA_4), brokers, log, security.client)
        with load.process:
            yield Transplant(mixed, ask, load, variant, security)
    finally:
        cluster.kill()


def create_others(ask: Driver) -> None:
    """Create topics beside those of the load, up to `PARTITIONS` partitions."""
    rest = PARTITIONS - 2 * LOAD_PARTITIONS
    for first in range(0, rest, 100):
        topic = {"name": f"other-{first}", "partitions": min(100, rest - first), **REPLICATED}
        ask("create_topics", topics=[topic])


def test_kraft_replaces_kafkas_controllers_and_they_come_back(transplant: Transplant) -> None:
    cluster, quorum = transplant.cluster, transplant.quorum
    kafkas = list(cluster.nodes.values())
    wait_for("the first transactions", lambda: transplant.load.ask("mark")["transactions"])
    if IS_FULL_SIZE:
        # The brokers open the new partitions for some seconds, which would count as Kafka's pause.
        for name in ("settling", "no controller stops"):
            time.sleep(QUIET_S)
            transplant.mark(name)
        transplant.restart_kafkas()
        transplant.mark("Kafka's rolling restart")

    transplant.run(is_back=False)
    transplant.mark("to kraft")
    assert all(isinstance(node, KraftNode) for node in quorum.running)
    assert len(quorum.running) == 3
    krafts = quorum.running

    transplant.run(is_back=True)
    transplant.mark("back to Kafka")
    assert not any(isinstance(node, KraftNode) for node in quorum.running)
    assert len(quorum.running) == 3

    print(f"\n{transplant.load.check_end()}")

    wait_for("all brokers", lambda: transplant.ask("brokers") == list(BROKERS))
    quiet_at = quorum.wait_until_all_have_all().high_watermark
    for id in BROKERS:
        cluster.nodes[id].kill()
    for id in set(quorum.nodes) - {node.id for node in quorum.running}:
        del cluster.nodes[id]
    committed = quorum.stop()
    check_logs(quorum, committed)
    for directory in {node.metadata_directory for node in (*krafts, *quorum.nodes.values())}:
        check_no_fences(directory / METADATA_LOG, quiet_at)
    check_errors([*kafkas, *quorum.nodes.values()])
    for node in krafts:
        text = node.log.read_text(errors="replace")
        assert " ERROR " not in text, text[-4000:]
        assert FAULT.search(text) is None, text[-4000:]
    if IS_FULL_SIZE:
        # On a busy machine the brokers alone hold a record up for as long.
        kafkas_own = ("no controller stops", "Kafka's rolling restart")
        bar = PAUSE_RATIO * max(transplant.pauses[name] for name in kafkas_own)
        assert transplant.pauses["to kraft"] <= bar, transplant.pauses
        assert transplant.pauses["back to Kafka"] <= bar, transplant.pauses


def check_no_fences(directory: Path, end_offset: int) -> None:
    """Check that no broker was fenced, or registered again, in a controller's log.

    The log of an added voter begins after a snapshot that has the brokers.
    """
    with Log.open(directory, read_only=True) as log:
        start = log.log_start_offset
    check_fences(log_bytes(directory, start, end_offset), () if start else BROKERS, Counter())


def check_logs(quorum: MixedQuorum, committed: int) -> None:
    """Check that all controllers have the same log, and snapshots of the state of that log."""
    quorum.check_equal_logs(committed)
    result = verify([quorum.log_of(one) for one in quorum.nodes])
    bad = [each for each in result.findings if each.severity is Severity.CONTRADICTION]
    assert not bad, "\n".join(map(str, bad))
