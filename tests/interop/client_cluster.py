"""Three controllers of kraft and three brokers of Apache Kafka, for clients that move data.

`CLIENTS_CONTROL=1` runs Apache Kafka's own controllers instead: what fails with them as well is not
kraft's. `CLIENTS=all` is the full size of the tests.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kraft.metadata.identifiers import random_uuid
from kraft.protocol.api_versions import (
    API_VERSIONS,
    ApiVersionsRequestData,
    ApiVersionsResponseData,
)
from tests.harness.kafka_jars import KAFKA_4, QUIET, SMALL_JVM, kafka
from tests.harness.line_process import JsonRequests, LineProcess
from tests.interop.cluster import HOST, Cluster, Driver, sasl_client, wait_for
from tests.interop.data_clients import Java, Values
from tests.interop.kafka_faults import check_errors, unexpected_errors
from tests.interop.kraft_node import KraftNode, add_kraft_controller
from tests.interop.mixed_quorum import CLUSTER_TOOL, FAULT, FEATURE_TOOL
from tests.interop.raw_client import ask_node
from tests.interop.record import AddBroker, start
from tests.interop.scenario import CONTROLLERS, RACKS, Stage

IS_FULL_SIZE = os.environ.get("CLIENTS", "") == "all"
IS_CONTROL = os.environ.get("CLIENTS_CONTROL", "") == "1"
BROKERS = tuple(RACKS)
CONFIG_TOOL = "kafka.admin.ConfigCommand"
TOOLS = "org.apache.kafka.tools"
#: Marks the tests that only the full size runs.
full_size = pytest.mark.skipif(not IS_FULL_SIZE, reason="make clients")
SETTINGS = {
    # One pause of a busy machine does not fence a broker.
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    # The members of a group hear of an assignment at their next heartbeat.
    **{
        f"group.{kind}.{which}heartbeat.interval.ms": "500"
        for kind in ("consumer", "share", "streams")
        for which in ("", "min.")
    },
    "share.coordinator.state.topic.num.partitions": "2",
    # What the brokers do after an operation is seen within seconds.
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "500",
    "log.segment.delete.delay.ms": "500",
}


@dataclass
class ClientCluster:
    """The running cluster and its clients."""

    stage: Stage
    java: Java
    #: Kafka's tools, one after the other in one JVM.
    run_tool: JsonRequests

    @property
    def cluster(self) -> Cluster:
        return self.stage.cluster

    @property
    def ask(self) -> Driver:
        return self.stage.ask

    @property
    def servers(self) -> str:
        return ",".join(self.cluster.nodes[id].address for id in BROKERS)

    @property
    def sasl_servers(self) -> str:
        return ",".join(f"{HOST}:{self.cluster.nodes[id].sasl_port}" for id in BROKERS)

    def create(self, topic: str, partitions: int = 3, **configs: str) -> None:
        """Create a topic with a replica on each broker, and wait until each broker has it."""
        wanted = {name.replace("__", "."): value for name, value in configs.items()}
        self.place(topic, [[1 + (p + r) % 3 for r in range(3)] for p in range(partitions)], wanted)

    def place(
        self, topic: str, assignment: list[list[int]], configs: dict[str, str] | None = None
    ) -> None:
        """Create a topic with these replicas of each partition."""
        wanted = {"name": topic, "assignment": assignment, "configs": configs or {}}
        self.ask("create_topics", topics=[wanted])
        # A broker that does not know the topic yet would have clients wait for minutes.
        self.settle()
        self.stage.wait_for_isr(topic, len(assignment[0]))

    def user(self, name: str, password: str, *, is_token: bool = False) -> Java:
        """Return Kafka's clients as they log in: as a SCRAM user, or by a token and its HMAC."""
        config = sasl_client(self.sasl_servers, name, password)
        if is_token:
            config["sasl.jaas.config"] = config["sasl.jaas.config"].replace(
                ";", ' tokenauth="true";'
            )
        return self.java.with_config(config | {"max.block.ms": "15000"})

    def alter(self, kind: str, name: str, change: str) -> None:
        """Set ``name=value``, or delete the setting ``name``, of an entity; "" is the default."""
        entity = ["--entity-name", name] if name else ["--entity-default"]
        option = "--add-config" if "=" in change else "--delete-config"
        self.tool(CONFIG_TOOL, "--alter", "--entity-type", kind, *entity, option, change)
        self.settle()

    def new_user(self, name: str, password: str) -> Java:
        """Create a SCRAM user, or change its password; return its clients."""
        self.alter("users", name, f"SCRAM-SHA-256=[iterations=4096,password={password}]")
        return self.user(name, password)

    def tool(
        self, main: str, *words: str, text: str = "", code: int | None = 0, servers: str = ""
    ) -> str:
        """Run one of Kafka's tools at the brokers; return what it prints.

        ``code`` is the exit code that it must have, None if any will do.
        """
        at = ["--bootstrap-server", servers or self.servers]
        # ClusterTool takes its options after the command, FeatureCommand before it.
        given = [*words, *at] if main == CLUSTER_TOOL else [*at, *words]
        said = self.run_tool(main, words=given, input=text)
        assert code is None or said["code"] == code, said["out"]
        printed: str = said["out"]
        return printed

    def started_tool(self, main: str, *words: str) -> subprocess.Popen[str]:
        """Start one of Kafka's tools in a process of its own."""
        command = self.cluster.jars.command(
            main, "--bootstrap-server", self.servers, *words, jvm=(*SMALL_JVM, *QUIET)
        )
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def replicas(self, broker: int, topic: str) -> dict[str, str]:
        """Return the topic's partitions on the broker's disks, with their log directories."""
        found = self.cluster.nodes[broker].directory.glob(f"data-*/{topic}-*")
        return {path.name: path.parent.name for path in found}

    def set_feature(self, name: str, level: int) -> None:
        """Change a feature with Kafka's tool; wait until every broker knows the level."""
        now = self.ask("features").get(name, 0)
        if now != level:
            verb = "upgrade" if level > now else "downgrade"
            self.tool(FEATURE_TOOL, verb, "--feature", f"{name}={level}")
        self.settle()
        for id in BROKERS:
            said = self._versions(id).finalized_features
            levels = {each.name: each.max_version_level for each in said}
            assert levels.get(name, 0) == level, (id, levels)

    def settle(self) -> None:
        """Wait until every broker has applied what is committed now."""
        self.stage.settle()

    def _versions(self, broker: int) -> ApiVersionsResponseData:
        asked = ApiVersionsRequestData("test", "1")
        node = self.cluster.nodes[broker]
        return ask_node(node, API_VERSIONS, 3, asked, ApiVersionsResponseData)

    def share_from_the_beginning(self, group: str) -> None:
        """Let a share group read all records of its topics."""
        self.alter("groups", group, "share.auto.offset.reset=earliest")

    def fail_over(self) -> None:
        """Restart the active controller while another leads."""
        leader = self.ask("quorum")["leader"]
        node = self.cluster.nodes[leader]
        node.stop()
        wait_for("another leader", lambda: self.ask("quorum")["leader"] not in (leader, -1))
        node.start()
        node.wait_until_listening()

    def read(self, topic: str, **fields: Any) -> Values:
        return self.java.read(topic, **fields)

    def read_all(self, topic: str, count: int) -> Values:
        """Read a topic once it has so many committed records.

        With acks=1 a producer does not wait for the high watermark.
        """

        def read() -> Values | None:
            found = self.read(topic)
            return found if sum(map(len, found.values())) >= count else None

        return wait_for(f"{count} records in {topic}", read)

    def check_logs(self) -> None:
        """Check that no process has logged a fault."""
        check_errors(list(self.cluster.nodes.values()))
        for node in self.cluster.nodes.values():
            if isinstance(node, KraftNode):
                text = node.log.read_text(errors="replace")
                assert unexpected_errors(node) == [], text[-4000:]
                assert FAULT.search(text) is None, text[-4000:]


@contextmanager
def client_cluster(
    directory: Path,
    *format_options: str,
    add_broker: AddBroker = Cluster.add_broker,
    settings: Mapping[str, str] | None = None,
) -> Iterator[ClientCluster]:
    """Run the cluster, Kafka's Java clients and Kafka's tools."""
    cluster = Cluster(kafka(KAFKA_4), directory, "Y2xpZW50cyBvZiBrYWZrYQ")
    cluster.settings |= {**SETTINGS, **(settings or {})}
    cluster.reserve_controllers(*CONTROLLERS)
    voters = ",".join(
        f"{id}@{HOST}:{port}:{random_uuid()!s}" for id, port in cluster.controller_ports.items()
    )
    add = Cluster.add_controller if IS_CONTROL else add_kraft_controller
    try:
        for id in CONTROLLERS:
            initial = ("--initial-controllers", voters, *format_options)
            add(cluster, id).format(cluster.cluster_id, *initial)
        stage = start(cluster, *format_options, add_broker=add_broker)
        jars = cluster.jars
        with (
            LineProcess(jars.oracle("DataClients"), errors=subprocess.DEVNULL) as clients,
            LineProcess(jars.oracle("RunTools"), errors=subprocess.DEVNULL) as tools,
        ):
            servers = ",".join(cluster.nodes[id].address for id in BROKERS)
            java = Java(JsonRequests(clients), {"bootstrap.servers": servers})
            yield ClientCluster(stage, java, JsonRequests(tools))
    finally:
        cluster.kill()
