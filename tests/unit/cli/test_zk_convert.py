"""``kraft zk convert``, and the commands that read ``zookeeper://…``, on a small tree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kraft.zookeeper import reading
from kraft.zookeeper.tree import ZnodeTree
from tests.harness.znode_trees import CLUSTER_ID, broker, document, settings, state, topic, tree
from tests.unit.cli.conftest import Run

ADDRESS = "localhost:2181/kafka"
ZNODES = {
    "/brokers/topics/a": topic((1, 2)),
    "/brokers/topics/a/partitions/0/state": state(1, (1,), epoch=3, version=8),
    "/config/topics/a": settings(retention__ms="1"),
}
PROPERTIES = """
process.roles=controller
node.id=7
controller.listener.names=CONTROLLER
listeners=CONTROLLER://localhost:9093
controller.quorum.bootstrap.servers=localhost:9093
"""


def unwrapped(error: str) -> str:
    """Return a message without blanks and the frame in which lines are broken."""
    return re.sub(r"[\s│]", "", error)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> dict[str, ZnodeTree]:
    """Return the trees by the addresses where they are read."""
    trees = {ADDRESS: tree(ZNODES)}

    def read_tree(address: str, *, on_progress: object) -> ZnodeTree:
        return trees[address.removeprefix("zookeeper://")]

    monkeypatch.setattr(reading, "read_tree", read_tree)
    return trees


@pytest.mark.usefixtures("cluster")
def test_a_tree_is_converted(kraft: Run, tmp_path: Path) -> None:
    ran = kraft("zk", "convert", "--zookeeper", ADDRESS, "--out", tmp_path / "new", "--json")
    assert ran.code == 0, ran.err
    document = ran.json
    assert document["clusterId"] == CLUSTER_ID
    assert (document["nodeId"], document["kraftVersion"]) == (3000, 0)
    assert (document["brokers"], document["notes"]) == ([1, 2], [])
    assert document["metadataVersion"] == "3.9-IV0"
    opened = kraft("open", tmp_path / "new", "--json").json
    assert opened["offsets"]["asOf"] == document["offset"]
    assert opened["topics"]["count"] == 1


@pytest.mark.usefixtures("cluster")
def test_the_configuration_names_node_and_voters(kraft: Run, tmp_path: Path) -> None:
    file = tmp_path / "controller.properties"
    file.write_text(PROPERTIES + f"log.dirs={tmp_path / 'new'}\n")
    options = ("--zookeeper", ADDRESS, "--out", tmp_path / "new", "-c", file)
    ran = kraft("zk", "convert", *options, "--release-version", "4.0")
    assert ran.code == 0, ran.err
    assert "BrokersToStart   1, 2" in ran.out
    opened = kraft("open", tmp_path / "new", "--json").json
    assert (opened["nodeId"], opened["metadataVersion"]) == (7, "4.0-IV3")
    assert opened["quorum"]["voters"][0]["endpoints"] == ["CONTROLLER://localhost:9093"]


def test_what_is_left_out_is_noted(
    kraft: Run, tmp_path: Path, cluster: dict[str, ZnodeTree]
) -> None:
    cluster[ADDRESS] = tree({**ZNODES, "/admin/delete_topics/a": b"", "/brokers/ids/1": broker(1)})
    ran = kraft("zk", "convert", "--zookeeper", ADDRESS, "--out", tmp_path / "new")
    assert ran.code == 3
    assert "note: registered in ZooKeeper: broker 1; the cluster runs" in ran.err
    assert "note: left out, because its deletion is pending: topic a" in ran.err
    opened = kraft("open", f"zookeeper://{ADDRESS}")
    assert opened.code == 3
    assert "note: left out, because its deletion is pending: topic a" in opened.err


def test_passwords_are_decoded_with_the_secret_of_a_broker(
    kraft: Run, tmp_path: Path, cluster: dict[str, ZnodeTree]
) -> None:
    password = {"ssl.keystore.password": "text of no form"}
    cluster[ADDRESS] = tree({"/config/brokers/1": document(version=1, config=password)})
    file = tmp_path / "broker.properties"
    options = ("--zookeeper", ADDRESS, "--out", tmp_path / "new", "--broker-config", file)
    file.write_text("broker.id=1\n")
    ran = kraft("zk", "convert", *options)
    assert ran.code == 2
    assert "hasnopassword.encoder.secret" in unwrapped(ran.err)
    file.write_text("password.encoder.secret=s\n")
    ran = kraft("zk", "convert", *options)
    assert ran.code == 1
    assert "/config/brokers/1: ssl.keystore.password is not encrypted by Kafka" in ran.err
    assert not (tmp_path / "new").exists()


def test_a_configuration_without_a_controller_is_refused(kraft: Run, tmp_path: Path) -> None:
    file = tmp_path / "broker.properties"
    file.write_text(
        "process.roles=broker\nnode.id=7\ncontroller.listener.names=CONTROLLER\n"
        "controller.quorum.bootstrap.servers=localhost:9093\n"
        f"log.dirs={tmp_path / 'new'}\n"
    )
    ran = kraft("zk", "convert", "--zookeeper", ADDRESS, "--out", tmp_path / "new", "-c", file)
    assert ran.code == 2
    assert "process.roleshasnocontroller" in unwrapped(ran.err)


@pytest.mark.usefixtures("cluster")
def test_open_shows_the_cluster_in_zookeeper(kraft: Run) -> None:
    document = kraft("open", f"zookeeper://{ADDRESS}", "--json").json
    assert document["zookeeper"] == f"zookeeper://{ADDRESS}"
    assert document["clusterId"] == CLUSTER_ID
    assert document["controller"] == {"id": -1, "epoch": -1}
    assert document["partitions"] == {
        "count": 1,
        "withoutLeader": 0,
        "underReplicated": 1,
        "underMinIsr": 0,
        "reassigning": 0,
    }
    shown = kraft("open", f"zookeeper://{ADDRESS}").out
    assert f"ZooKeeper        zookeeper://{ADDRESS}" in shown
    assert "Controller       id=-1, epoch=-1" in shown


@pytest.mark.usefixtures("cluster")
def test_other_commands_read_the_cluster_in_zookeeper(kraft: Run) -> None:
    assert "a-0" not in kraft("topics", "list", "--from", f"zookeeper://{ADDRESS}").out
    described = kraft("topics", "describe", "--from", f"zookeeper://{ADDRESS}")
    assert described.code == 0, described.err
    assert "retention.ms=1" in described.out
    ran = kraft("topics", "list", "--from", f"zookeeper://{ADDRESS}", "--at", 3)
    assert ran.code == 2
    assert "ZooKeeperhasnopaststates" in unwrapped(ran.err)
    assert kraft("open", f"zookeeper://{ADDRESS}", "--at", 3).code == 2
