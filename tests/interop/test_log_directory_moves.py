"""Kafka's tools move replicas between the log directories of kraft's brokers, under a load.

The cluster has three controllers and three brokers of kraft with two log directories each. The
tests run in their order; the acknowledged records of a producer are read from each replica.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from kraft.protocol.describe_log_dirs import (
    DESCRIBE_LOG_DIRS,
    DescribeLogDirsRequestData,
    DescribeLogDirsResponseData,
)
from tests.interop.client_cluster import TOOLS, ClientCluster, client_cluster
from tests.interop.cluster import Node, wait_for
from tests.interop.data_clients import Values, check_complete
from tests.interop.idempotent_load import Load, lead
from tests.interop.kraft_node import add_kraft_broker, run_by_kafka, run_by_kraft
from tests.interop.raw_client import ask_node

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

REASSIGN = f"{TOOLS}.reassign.ReassignPartitionsCommand"
LOG_DIRS = f"{TOOLS}.LogDirsCommand"
SETTINGS = {"broker.session.timeout.ms": "4000", "broker.heartbeat.interval.ms": "500"}
BROKERS, PARTITIONS, TOPIC = (1, 2, 3), 2, "moving"
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientCluster]:
    home = tmp_path_factory.mktemp("moves")
    with client_cluster(home, add_broker=add_kraft_broker, settings=SETTINGS) as cluster:
        cluster.create(TOPIC, PARTITIONS, min__insync__replicas="2")
        yield cluster


def directories(clients: ClientCluster, broker: int) -> list[str]:
    return clients.cluster.nodes[broker].settings["log.dirs"].split(",")


def homes(clients: ClientCluster, *, is_future: bool = False) -> dict[tuple[int, str], str]:
    """Return the directory of each replica of the topic, as kafka-log-dirs prints it."""
    said = clients.tool(LOG_DIRS, "--describe", "--topic-list", TOPIC)
    return {
        (one["broker"], partition["partition"]): directory["logDir"]
        for one in json.loads(said.splitlines()[-1])["brokers"]
        for directory in one["logDirs"]
        for partition in directory["partitions"]
        if partition["isFuture"] == is_future
    }


def opposite(clients: ClientCluster) -> dict[tuple[int, str], str]:
    """Return the directory in which each replica is not."""
    return {
        key: next(one for one in directories(clients, key[0]) if one != path)
        for key, path in homes(clients).items()
    }


def plan(clients: ClientCluster, file: Path, wanted: dict[tuple[int, str], str]) -> Path:
    """Write the plan of a reassignment that changes only directories."""
    partitions = []
    for partition in range(PARTITIONS):
        replicas = clients.stage.partitions(TOPIC)[partition]["replicas"]
        partitions.append(
            {
                "topic": TOPIC,
                "partition": partition,
                "replicas": replicas,
                "log_dirs": [wanted[each, f"{TOPIC}-{partition}"] for each in replicas],
            }
        )
    file.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return file


def verified(clients: ClientCluster, file: Path) -> bool:
    said = clients.tool(REASSIGN, "--verify", "--reassignment-json-file", str(file))
    done = len(re.findall(r"Reassignment of replica \S+ completed successfully", said))
    return done == len(BROKERS) * PARTITIONS


@pytest.fixture(scope="module")
def sent() -> list[str]:
    """Return the acknowledged values, of all tests."""
    return []


def test_all_replicas_change_their_directories_under_a_load(
    clients: ClientCluster, sent: list[str], tmp_path: Path
) -> None:
    with Load(clients, TOPIC) as load:
        load.wait_for_more()
        for number in range(2):
            wanted = opposite(clients)
            file = plan(clients, tmp_path / f"{number}.json", wanted)
            clients.tool(REASSIGN, "--execute", "--reassignment-json-file", str(file))
            wait_for("the moves", partial(verified, clients, file), 120)
            assert homes(clients) == wanted
            load.wait_for_more()
    sent += load.values
    check_replicas(clients, sent)


def begin_slowly(
    clients: ClientCluster, file: Path, brokers: tuple[int, ...]
) -> dict[tuple[int, str], str]:
    """Begin to move the replicas of brokers at 20 kB/s; return where the topic's will be."""
    wanted = homes(clients) | {
        key: path for key, path in opposite(clients).items() if key[0] in brokers
    }
    plan(clients, file, wanted)
    slowly = ("--replica-alter-log-dirs-throttle", "20000")
    clients.tool(REASSIGN, "--execute", "--reassignment-json-file", str(file), *slowly)
    assert {key[0] for key in homes(clients, is_future=True)} == set(brokers)
    return wanted


def finish(clients: ClientCluster, file: Path, wanted: dict[tuple[int, str], str]) -> None:
    """Lift the throttle, and wait for the moves."""
    for broker in BROKERS:
        clients.alter("brokers", str(broker), RATE)
    wait_for("the moves", lambda: verified(clients, file), 120)
    assert homes(clients) == wanted
    clients.stage.wait_for_isr(TOPIC, 3)


def test_a_throttled_move_goes_on_after_restarts(
    clients: ClientCluster, sent: list[str], tmp_path: Path
) -> None:
    """Broker 2 stops, and broker 3 is killed, while all replicas move slowly under a load."""
    file = tmp_path / "slow.json"
    with Load(clients, TOPIC, "slow") as load:
        load.wait_for_more()
        wanted = begin_slowly(clients, file, BROKERS)
        for broker, end in ((2, Node.stop), (3, Node.kill)):
            end(clients.cluster.nodes[broker])
            clients.stage.wait_for_brokers(without=broker)
            clients.stage.broker(broker)
            clients.stage.wait_for_isr(TOPIC, 3)
            load.wait_for_more()
        assert homes(clients, is_future=True)
        finish(clients, file, wanted)
        load.wait_for_more()
    sent += load.values
    check_replicas(clients, sent)


def test_each_program_goes_on_with_a_move_of_the_other(
    clients: ClientCluster, sent: list[str], tmp_path: Path
) -> None:
    for number, by in enumerate((run_by_kafka, run_by_kraft)):
        file = tmp_path / f"{number}.json"
        wanted = begin_slowly(clients, file, (3,))
        clients.cluster.nodes[3].stop()
        clients.stage.wait_for_brokers(without=3)
        by(clients.cluster, clients.cluster.nodes[3])
        clients.stage.broker(3)
        clients.settle()
        finish(clients, file, wanted)
    check_replicas(clients, sent)


def test_a_cordoned_directory_takes_no_replicas(clients: ClientCluster, tmp_path: Path) -> None:
    first, second = directories(clients, 1)
    clients.alter("brokers", "1", f"cordoned.log.dirs={first}")
    for number in range(4):
        clients.place(f"new-{number}", [[1]])
        assert clients.replicas(1, f"new-{number}") == {f"new-{number}-0": Path(second).name}
    file = tmp_path / "cordoned.json"
    here = {"topic": "new-0", "partition": 0, "replicas": [1], "log_dirs": [first]}
    file.write_text(json.dumps({"version": 1, "partitions": [here]}))
    command = ("--execute", "--reassignment-json-file", str(file))
    assert "InvalidReplicaAssignmentException" in clients.tool(REASSIGN, *command, code=None)
    # Kafka's tool does not print it.
    asked, node = DescribeLogDirsRequestData(None), clients.cluster.nodes[1]
    described = ask_node(node, DESCRIBE_LOG_DIRS, 5, asked, DescribeLogDirsResponseData)
    assert [one.log_dir for one in described.results if one.is_cordoned] == [first]
    clients.alter("brokers", "1", "cordoned.log.dirs")
    clients.tool(REASSIGN, *command)
    wait_for("the move", lambda: clients.replicas(1, "new-0").get("new-0-0") == Path(first).name)


def test_no_process_logs_a_fault(clients: ClientCluster) -> None:
    clients.check_logs()


def check_replicas(clients: ClientCluster, values: list[str]) -> None:
    """Check what each replica serves when it is the leader."""
    clients.stage.wait_for_isr(TOPIC, 3)
    found: list[Values] = []
    for broker in BROKERS:
        lead(clients, TOPIC, broker)
        found.append(clients.read_all(TOPIC, len(values)))
    check_complete(found[0], values)
    assert found[0] == found[1] == found[2]
