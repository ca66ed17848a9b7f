"""Directories of Apache Kafka after a rescue: its controller leads on them, and others join."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kraft.metadata.identifiers import random_uuid
from tests.harness.commands import printed
from tests.harness.kafka_jars import kafka
from tests.interop.cluster import HOST, Cluster, Driver, wait_for
from tests.interop.mixed_quorum import QUORUM_TOOL
from tests.interop.operations import cases

pytestmark = pytest.mark.interop

CLUSTER_ID = "cmVzY3VlZCBieSBrcmFmdA"


def create(ask: Driver, name: str) -> None:
    """Create a topic once a broker is there to hold it, and wait until the broker lists it."""
    topic = {"name": name, "partitions": 2, "replication_factor": 1}

    def is_listed() -> bool:
        # A request whose answer was late may have created it.
        return name in ask("list_topics") or not ask("create_topics", topics=[topic])

    wait_for(f"topic {name}", is_listed)


@pytest.mark.parametrize(
    ("is_static", "place"), cases((False, "elsewhere"), (False, "in place"), (True, "in place"))
)
def test_kafkas_nodes_start_on_a_rescued_directory(
    is_static: bool, place: str, tmp_path: Path
) -> None:
    """Two of three controllers lose their disks; a broker and the third controller keep theirs."""
    cluster = Cluster(kafka(), tmp_path / "cluster", CLUSTER_ID, is_static=is_static)
    cluster.reserve_controllers(101, 102, 103)
    voters = ",".join(
        f"{one}@{HOST}:{port}:{random_uuid()!s}" for one, port in cluster.controller_ports.items()
    )
    options = () if is_static else ("--initial-controllers", voters)
    try:
        for one in (101, 102, 103):
            cluster.add_controller(one).format(CLUSTER_ID, *options)
        broker = cluster.add_broker(1, None)
        broker.format(CLUSTER_ID, *cluster.broker_format())
        cluster.start()
        ask = cluster.driver()
        create(ask, "before")
        left = cluster.nodes[101]
        # The other two commit without it; what only they have is lost with their disks.
        listing = ("topics", "list", "--from", left.metadata_directory)
        wait_for("controller 101 to have the topic", lambda: "before" in printed(*listing))
        cluster.kill()
        for one in (102, 103):
            shutil.rmtree(cluster.nodes[one].metadata_directory)

        command = ["rescue", left.metadata_directory, broker.metadata_directory]
        command += ["-c", left.properties]
        if place == "in place":
            # The log of the broker may be a record ahead; the rescue in place is of one directory.
            command = ["rescue", left.metadata_directory, "--in-place", "-c", left.properties]
        else:
            command += ["--to", tmp_path / "new"]
            left.settings["log.dirs"] = str(tmp_path / "new")
        printed(*command)
        if is_static:
            for node in (left, broker):
                node.settings["controller.quorum.voters"] = f"101@{left.address}"

        for node in (left, broker):
            node.start()
            node.wait_until_listening()
        ask = cluster.driver()
        quorum = wait_for("a leader", lambda: ask("quorum"))
        assert quorum["leader"] == 101
        create(ask, "after")
        assert {"before", "after"} <= set(ask("list_topics"))
        if is_static:
            return
        other = cluster.nodes[102]
        other.format(CLUSTER_ID, "--no-initial-controllers")
        other.start()
        other.wait_until_listening()

        def add() -> bool:
            said = cluster.jars.run(
                QUORUM_TOOL,
                *("--bootstrap-controller", left.address),
                *("--command-config", str(other.properties), "add-controller"),
                check=False,
            )
            return "Added controller 102" in said.stdout

        assert wait_for("the new voter", add)
    finally:
        cluster.kill()
